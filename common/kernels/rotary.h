/*
 * Internal: rotary positions (Su et al. 2021, "RoFormer"). A head's element d < D/2 and its partner d + D/2 are a point
 * of the plane, turned by the angle t theta^(-2d/D) for the token at position t:
 *
 *     x'[d] = x[d] cos - x[d + D/2] sin        x'[d + D/2] = x[d + D/2] cos + x[d] sin
 *
 * The paper pairs neighbours (2d, 2d + 1); we pair halves, as the weights that transformers publishes are laid out. A
 * turn has itself reversed as its transpose, so the backward pass is the same with -angle. Angles, sine and cosine are
 * computed in double and rounded once, from the position alone, by each worker for the positions it meets: D/2 of
 * them a position, which a shared table would save and a step to fill it would cost.
 */
#ifndef HT_KERNELS_ROTARY_H
#define HT_KERNELS_ROTARY_H

#include <stdbool.h>

#include "common/base/pool.h"
#include "common/kernels/simd.h"

struct ht_rotary {
    int64_t seq;       /* T: row r of (B,T) is at position r % T */
    int64_t heads;     /* that are turned: H + Hkv, they lie first in a row */
    int64_t head_size; /* D, even */
    int64_t stride;    /* elements from row to row: C + 2K */
    double theta;
};

/* Turns rows of x (B,T,stride), of simd's storage type, in place; back: by the opposite angles. */
void ht_rows_rotate(const struct ht_simd *simd, const struct ht_rotary *rotary, bool back, void *x,
                    struct ht_range rows);

#endif
