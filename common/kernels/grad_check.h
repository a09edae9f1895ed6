/*
 * The gradient check: whether gradients may be stepped with, and the length of their vector.
 *
 * Overflow is more than infinity and NaN. A finite gradient whose square overflows makes v infinite, and from then on
 * the parameter never moves again: step_size m / inf = 0, without any NaN to show it. SysX's released check tests only
 * g; so this one forms the square as AdamW does, ((1 - beta2) g) g with g the gradient times grad_scale, in FP32.
 */
#ifndef HT_KERNELS_GRAD_CHECK_H
#define HT_KERNELS_GRAD_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/pool.h"
#include "common/kernels/adamw.h"

/* Partial result for one row of gradients. */
struct ht_grad_partial {
    bool fits;      /* every gradient is finite, also unscaled, and so is its square as AdamW forms it */
    double squares; /* sum of the squares of the gradients as stored; not finite if one of them is not */
};

/* Number of parts that a sum over n gradients is cut into, by n alone. A part has 4096 elements or more (whole lanes of
   16); there are enough parts to keep a GPU busy, which must add them in the same order. */
enum { HT_GRAD_PARTS = 1024, HT_GRAD_PART_ELEMENTS = 4096 };
static inline int ht_grad_parts(int64_t n)
{
    int64_t parts = (n + HT_GRAD_PART_ELEMENTS - 1) / HT_GRAD_PART_ELEMENTS;
    if (parts > HT_GRAD_PARTS) return HT_GRAD_PARTS;
    return parts < 1 ? 1 : (int)parts;
}

/* Checks n gradients of `type`. Uses `step`'s grad_scale and beta2. Sums are cut into ht_grad_parts, kept in 16 lanes,
   in double, and added up in their order: the same bits on every path and for any pool (NULL: the caller alone). */
struct ht_grad_partial ht_grad_check(struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                                     enum ht_dtype type, int64_t n);
/* Checks on the path of this level; returns fits = false when this CPU does not have it. For tests. */
struct ht_grad_partial ht_grad_check_at(enum ht_simd_level level, struct ht_pool *pool,
                                        const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                                        int64_t n);

#endif
