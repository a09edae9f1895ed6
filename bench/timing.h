/* Reads the clock, repeats, and gives the median with its range, for all benchmarks. */
#ifndef HT_BENCH_TIMING_H
#define HT_BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double bench_clock_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double bench_now_s(void)
{
    return bench_clock_s(CLOCK_MONOTONIC);
}

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median and range of some samples. */
struct bench_spread {
    double median, low, high;
};

static inline struct bench_spread bench_spread_of(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), bench_by_value);
    return (struct bench_spread){x[n / 2], x[0], x[n - 1]};
}

#endif
