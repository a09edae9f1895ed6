/*
 * The paper's closed forms for the time of a pipeline's passes, messages and transfers being free, N_m >= N_g.
 *
 *     N_g  GPUs                     T_f  forward of one micro-batch through a forward stage
 *     N_m  micro-batches            T_b  its backward; recomputation included
 *     v    forward stages per GPU   d    backward stages per forward stage
 *
 * The paper gives eqs. 1 to 3 for GPipe, v = 1. With v stages per GPU they hold for Mobius and interleaved 1F1B, too:
 * each stage adds N_m passes to a GPU, and none adds a bubble. Any unit of time; tests/sysx/test_equations.c holds them
 * against the passes laid out one by one.
 */
#ifndef SYSX_EQUATIONS_H
#define SYSX_EQUATIONS_H

#include <stdint.h>

struct sysx_pipeline {
    int64_t n_gpus, n_micro_batches, v; /* >= 1 each */
    int64_t forward, backward;          /* T_f and T_b of a forward stage */
};

/* Returns the time that a GPU idles, eq. 1: T_bbs = T_f (N_g - 1) + T_b (N_g - 1). */
int64_t sysx_bubble_time(const struct sysx_pipeline *p);

/* Returns the time of all passes, eq. 2: T_overall = T_f (v N_m + N_g - 1) + T_b (v N_m + N_g - 1). */
int64_t sysx_overall_time(const struct sysx_pipeline *p);

/* Returns the bubble ratio, eq. 3: T_bbs / T_overall, which is (N_g - 1) / (v N_m + N_g - 1) whatever T_f and T_b. */
double sysx_bubble_ratio(const struct sysx_pipeline *p);

/* Returns the time of all passes with decoupled assignment, d a divisor of T_b:

       N_m v (T_f + T_b) + (N_g - 1) max(T_f, T_b / d)

   The paper prints no equation for it; this follows from Sec. 3.1 and gives Fig. 5 (9, 8, 7) and Fig. 8 (27). */
int64_t sysx_decoupled_time(const struct sysx_pipeline *p, int64_t d);

#endif
