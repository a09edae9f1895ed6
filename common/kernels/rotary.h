/*
 * Rotary positions (Su et al. 2021, "RoFormer"). Internal to common/kernels. A head's element d < D/2 and its partner
 * d + D/2 are a point of the plane, rotated by the angle t theta^(-2d/D) for the token at position t:
 *
 *     x'[d] = x[d] cos - x[d + D/2] sin        x'[d + D/2] = x[d + D/2] cos + x[d] sin
 *
 * The paper pairs neighbours (2d, 2d + 1); we pair halves, as the weights that transformers publishes are laid out. The
 * transpose of a rotation is the opposite rotation, so the backward pass uses -angle. Each worker computes angles, sine
 * and cosine for the positions it meets, from the position alone, in double and rounded once: D/2 of them per position.
 * A shared table would save this, but filling it would cost a step.
 */
#ifndef HT_KERNELS_ROTARY_H
#define HT_KERNELS_ROTARY_H

#include <stdbool.h>

#include "common/base/pool.h"
#include "common/kernels/simd.h"

struct ht_rotary {
    int64_t seq;       /* T: row r of (B,T) is at position r % T */
    int64_t heads;     /* rotated heads: H + Hkv, first in a row */
    int64_t head_size; /* D, even */
    int64_t stride;    /* row stride in elements: C + 2K */
    double theta;
};

/* Rotates rows of x (B,T,stride), of simd's storage type, in place; back: by the opposite angles. */
void ht_rows_rotate(const struct ht_simd *simd, const struct ht_rotary *rotary, bool back, void *x,
                    struct ht_range rows);

#endif
