#include "common/comm/sum.h"

#include "common/base/half.h"

#include <assert.h>

enum { BLOCK = 256 }; /* elements summed at a time, so that they stay in the first cache */

static void widen(float *out, const void *in, int64_t begin, int64_t n, enum ht_comm_type type)
{
    for (int64_t k = 0; k < n; k++) {
        if (type == HT_COMM_F32)
            out[k] = ((const float *)in)[begin + k];
        else if (type == HT_COMM_F16)
            out[k] = ht_f16_to_f32(((const uint16_t *)in)[begin + k]);
        else
            out[k] = ht_bf16_to_f32(((const uint16_t *)in)[begin + k]);
    }
}

static void narrow(void *out, const float *in, int64_t begin, int64_t n, enum ht_comm_type type)
{
    for (int64_t k = 0; k < n; k++) {
        if (type == HT_COMM_F32)
            ((float *)out)[begin + k] = in[k];
        else if (type == HT_COMM_F16)
            ((uint16_t *)out)[begin + k] = ht_f32_to_f16(in[k]);
        else
            ((uint16_t *)out)[begin + k] = ht_f32_to_bf16(in[k]);
    }
}

static void sum_f64(double *out, const void *const *terms, int32_t n_terms, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        double sum = ((const double *)terms[0])[k];
        for (int32_t i = 1; i < n_terms; i++) sum += ((const double *)terms[i])[k];
        out[k] = sum;
    }
}

void ht_comm_sum(void *out, const void *const *terms, int32_t n_terms, int64_t count, enum ht_comm_type type)
{
    float sum[BLOCK], term[BLOCK];
    assert(type != HT_COMM_BYTE && n_terms >= 1);
    if (type == HT_COMM_F64) {
        sum_f64(out, terms, n_terms, count);
        return;
    }
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        widen(sum, terms[0], at, n, type);
        for (int32_t i = 1; i < n_terms; i++) {
            widen(term, terms[i], at, n, type);
            for (int64_t k = 0; k < n; k++) sum[k] += term[k];
        }
        narrow(out, sum, at, n, type);
    }
}
