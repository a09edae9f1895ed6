/*
 * Are gradients fit to be stepped with, and how long is their vector?
 *
 * Bad is not only what is infinite or NaN. A finite gradient whose square overflows makes v infinite, and from then on
 * the parameter never moves again: step_size m / inf = 0, without any NaN to show for it. SysX's released check looks
 * at g only; so this one forms the square as AdamW does, ((1 - beta2) g) g with g the gradient times grad_scale, in
 * FP32.
 */
#ifndef HT_KERNELS_GRAD_CHECK_H
#define HT_KERNELS_GRAD_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/pool.h"
#include "common/kernels/adamw.h"

/* What one row of gradients says. */
struct ht_grad_partial {
    bool fits;      /* every gradient is finite, unscaled too, and so is its square as AdamW forms it */
    double squares; /* sum of the squares of the gradients as stored; not finite if one of them is not */
};

/* The parts that a sum over n gradients is cut into, by n alone: of 4096 elements or more (whole lanes of 16), and at
   most so many that a GPU, which has to add them in the same order, is busy. */
enum { HT_GRAD_PARTS = 1024, HT_GRAD_PART_ELEMENTS = 4096 };
static inline int ht_grad_parts(int64_t n)
{
    int64_t parts = (n + HT_GRAD_PART_ELEMENTS - 1) / HT_GRAD_PART_ELEMENTS;
    if (parts > HT_GRAD_PARTS) return HT_GRAD_PARTS;
    return parts < 1 ? 1 : (int)parts;
}

/* n gradients of `type`. Of `step` grad_scale and beta2 count. Sums are cut into ht_grad_parts, kept in 16 lanes, in
   double, and added up in their order: the same bits on every path and for any pool (NULL: the caller alone). */
struct ht_grad_partial ht_grad_check(struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                                     enum ht_dtype type, int64_t n);
/* On a certain path; does not fit when this CPU does not have it. For tests. */
struct ht_grad_partial ht_grad_check_at(enum ht_simd_level level, struct ht_pool *pool,
                                        const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                                        int64_t n);

#endif
