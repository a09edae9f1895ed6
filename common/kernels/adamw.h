/*
 * AdamW over flat FP32 arrays (Loshchilov and Hutter 2019; decay decoupled from the gradient), in PyTorch's order of
 * operations (torch/optim/adamw.py, single tensor). With g the gradient times grad_scale, and every operation rounded
 * to FP32:
 *
 *     p = p (1 - lr weight_decay)
 *     m = m + (1 - beta1) (g - m)
 *     v = v beta2 + ((1 - beta2) g) g
 *     p = p - (lr / (1 - beta1^step) m) / (sqrt(v) / sqrt(1 - beta2^step) + eps)
 *
 * In 16-bit numerics p is the FP32 master copy, g is stored in 16 bits and widened first, and the compute copy round(p)
 * is written in the same pass: 28 bytes move for a parameter, as in FP32, and none are read again.
 *
 * An element's result depends only on its own p, m, v, g and the coefficients: AVX-512, AVX2 and portable paths, and
 * any split into ranges, give the same bits (except the payload of a NaN). So a system may step a unit on the host in
 * pieces and on the device whole, and still agree with the plain trainer.
 */
#ifndef HT_KERNELS_ADAMW_H
#define HT_KERNELS_ADAMW_H

#include <stdint.h>

#include "common/base/pool.h"
#include "common/kernels/simd.h"
#include "common/model/model.h"

struct ht_adamw {
    double lr, beta1, beta2, eps, weight_decay;
};

/* Scalars of one step: computed in double, rounded once. */
struct ht_adamw_step {
    float grad_scale;     /* 1 / loss scale, times the clip factor */
    float keep;           /* 1 - lr weight_decay */
    float one_less_beta1; /* 1 - beta1 */
    float beta2, one_less_beta2;
    float step_size; /* lr / (1 - beta1^step) */
    float root;      /* sqrt(1 - beta2^step) */
    float eps;
};

/* Computes the scalars of a step; `step` counts from 1. */
struct ht_adamw_step ht_adamw_step(const struct ht_adamw *config, int64_t step, double grad_scale);

/* Arrays of n that a step reads and writes: any alignment of their elements, not overlapping. */
struct ht_adamw_row {
    float *param, *m, *v; /* updated in place */
    const void *grad;     /* any grad_type */
    enum ht_dtype grad_type;
    enum ht_dtype copy_type; /* F16 or BF16 */
    uint16_t *copy;          /* param rounded to copy_type; NULL: none */
    int64_t n;
};

/* Returns elements [begin, end) of the arrays. */
struct ht_adamw_row ht_adamw_slice(const struct ht_adamw_row *row, int64_t begin, int64_t end);

/* Steps the arrays, split over the pool; NULL: the caller alone. */
void ht_adamw_update_row(struct ht_pool *pool, const struct ht_adamw_step *s, const struct ht_adamw_row *row);

/* Step FP32 arrays: without a pool, and split over one. */
void ht_adamw_update(const struct ht_adamw_step *s, float *param, float *m, float *v, const float *grad, int64_t n);
void ht_adamw_update_pool(struct ht_pool *pool, const struct ht_adamw_step *s, float *param, float *m, float *v,
                          const float *grad, int64_t n);

typedef void (*ht_adamw_fn)(const struct ht_adamw_step *s, const struct ht_adamw_row *row);
/* Returns the path of this level, or NULL when this CPU does not have it. For tests. */
ht_adamw_fn ht_adamw_at(enum ht_simd_level level);

#endif
