#include "common/kernels/rotary.h"

#include <math.h>

#include "common/kernels/convert.h"

enum { FREQUENCIES = 64 }; /* computed at a time: all D/2 of a head of 128 */

void ht_rows_rotate(const struct ht_simd *simd, const struct ht_rotary *rotary, bool back, void *x,
                    struct ht_range rows)
{
    int64_t D = rotary->head_size, half = D / 2;
    for (int64_t first = 0; first < half; first += FREQUENCIES) {
        int64_t n = half - first < FREQUENCIES ? half - first : FREQUENCIES;
        double frequency[FREQUENCIES];
        float cosine[FREQUENCIES], sine[FREQUENCIES];
        for (int64_t i = 0; i < n; i++) frequency[i] = pow(rotary->theta, -2.0 * (double)(first + i) / (double)D);
        for (int64_t row = rows.begin; row < rows.end && row < rows.begin + rotary->seq; row++) {
            double position = (double)(row % rotary->seq);
            for (int64_t i = 0; i < n; i++) {
                double s, c;
                sincos(position * frequency[i], &s, &c);
                cosine[i] = (float)c;
                sine[i] = (float)(back ? -s : s);
            }
            for (int64_t r = row; r < rows.end; r += rotary->seq) { /* rows of all sequences at this position */
                for (int64_t h = 0; h < rotary->heads; h++) {
                    int64_t low = r * rotary->stride + h * D + first;
                    simd->rotate(cosine, sine, ht_element(x, simd->stored, low),
                                 ht_element(x, simd->stored, low + half), n);
                }
            }
        }
    }
}
