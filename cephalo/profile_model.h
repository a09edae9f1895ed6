/*
 * Cephalo's profile models (Guo et al., Sec. 2.3; Sec. 3.1): times and memory of all micro-batch sizes, from those of a
 * few small ones.
 *
 * Tables are y[0..max]. y[1..n] have been measured, or computed, one by one, n >= 2; the paper has n = 8 (Sec. 3.1).
 * Lines are fitted by least squares. A line that falls, which only noise can cause, is replaced by the mean of its
 * points.
 */
#ifndef CEPHALO_PROFILE_MODEL_H
#define CEPHALO_PROFILE_MODEL_H

#include <stdint.h>

/* y(m) = intercept + slope m. */
struct cephalo_line {
    double intercept, slope;
    double worst; /* largest |y[m] - line| over the points that it is fitted to */
};

/*
 * Fills y[n+1..max] of a latency table, in ns; y[1..n] stay. Small micro-batches do not fill a GPU and lie above the
 * line of the larger ones (Fig. 5), so the line is fitted to the upper half, m = n/2..n [ours: the paper does not say
 * to which points].
 */
void cephalo_extend_latency(int64_t *y, int32_t n, int32_t max);

/*
 * Fills y[0..max] of a memory table, in bytes, with the paper's model a + c m, fitted to all of y[1..n], which it
 * replaces too. a and c are whole bytes, so that GPUs of one c satisfy Algorithm 1 (optimize.h). Returns the line;
 * `worst` is what to keep free beside it.
 */
struct cephalo_line cephalo_fit_memory(int64_t *y, int32_t n, int32_t max);

/* Fills y[n+1..max] of a memory table, in bytes, whose first entries are exact; y[0..n] stay. Uses the line of all of
   y[1..n], raised until no point is above it. */
void cephalo_extend_memory(int64_t *y, int32_t n, int32_t max);

#endif
