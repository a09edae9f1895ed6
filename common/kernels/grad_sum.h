/* Adds up gradients of several micro-batches. */
#ifndef HT_KERNELS_GRAD_SUM_H
#define HT_KERNELS_GRAD_SUM_H

#include <stdint.h>

#include "common/base/pool.h"
#include "common/model/model.h"

/* Computes sum[i] = round(sum[i] + add[i]), both widened to FP32 first, rounded to the type of the sum. Arrays of n,
   any alignment of their type, not overlapping. The bits do not depend on the pool (NULL: the caller alone). */
void ht_grad_sum(struct ht_pool *pool, void *sum, enum ht_dtype sum_type, const void *add, enum ht_dtype add_type,
                 int64_t n);

#endif
