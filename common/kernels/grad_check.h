/*
 * Are gradients fit to be stepped with?
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

/* True: every gradient and the square of every gradient is finite. The answer is the same for any pool (NULL: alone).
 */
bool ht_adamw_grads_fit(struct ht_pool *pool, const struct ht_adamw_step *step, const float *grad, int64_t n);
/* True: every one of n floats is finite. */
bool ht_all_finite(struct ht_pool *pool, const float *x, int64_t n);

#endif
