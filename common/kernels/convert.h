/*
 * Copies between FP32 and a storage type: exact one way, rounded to nearest even the other (base/half.h has the cases).
 * The bits depend neither on the instructions of the CPU nor on the number of workers.
 */
#ifndef HT_KERNELS_CONVERT_H
#define HT_KERNELS_CONVERT_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/pool.h"
#include "common/model/model.h"

/* Copies n FP32 numbers to `type` (HT_F32: unchanged). Arrays of any alignment of their type, not overlapping. */
void ht_round_copy(struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n);
/* Copies n numbers of `type` to FP32. */
void ht_widen_copy(struct ht_pool *pool, const void *from, enum ht_dtype type, float *to, int64_t n);

/* Returns the address of element i of an array of `type`; NULL stays NULL. */
static inline void *ht_element(const void *array, enum ht_dtype type, int64_t i)
{
    return array ? (char *)array + i * (type == HT_F32 ? 4 : 2) : NULL;
}

#endif
