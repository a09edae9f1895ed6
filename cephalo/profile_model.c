#include "cephalo/profile_model.h"

#include <math.h>

static double mean(const int64_t *y, int32_t first, int32_t last)
{
    double sum = 0;
    for (int32_t m = first; m <= last; m++) sum += (double)y[m];
    return sum / (last - first + 1);
}

/* Fits a line to y[first..last], first < last. */
static struct cephalo_line fit(const int64_t *y, int32_t first, int32_t last)
{
    double x = 0.5 * (first + last), height = mean(y, first, last), xx = 0, xy = 0;
    for (int32_t m = first; m <= last; m++) {
        xx += (m - x) * (m - x);
        xy += (m - x) * ((double)y[m] - height);
    }
    double slope = fmax(xy / xx, 0);
    return (struct cephalo_line){.intercept = height - slope * x, .slope = slope};
}

void cephalo_extend_latency(int64_t *y, int32_t n, int32_t max)
{
    struct cephalo_line line = fit(y, n / 2, n);
    for (int32_t m = n + 1; m <= max; m++) y[m] = llround(line.intercept + line.slope * m);
}

struct cephalo_line cephalo_fit_memory(int64_t *y, int32_t n, int32_t max)
{
    struct cephalo_line line = fit(y, 1, n);
    line.slope = round(line.slope);
    line.intercept = round(mean(y, 1, n) - line.slope * 0.5 * (1 + n));
    for (int32_t m = 1; m <= n; m++)
        line.worst = fmax(line.worst, fabs((double)y[m] - line.intercept - line.slope * m));
    for (int32_t m = 0; m <= max; m++) y[m] = llround(line.intercept + line.slope * m);
    return line;
}

void cephalo_extend_memory(int64_t *y, int32_t n, int32_t max)
{
    struct cephalo_line line = fit(y, 1, n);
    double below = 0;
    for (int32_t m = 1; m <= n; m++) below = fmax(below, (double)y[m] - line.intercept - line.slope * m);
    for (int32_t m = n + 1; m <= max; m++) y[m] = (int64_t)ceil(line.intercept + below + line.slope * m);
}
