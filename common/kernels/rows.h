/*
 * Layers on one worker's share of a (rows, width) matrix. Internal to common/kernels. Rows are tokens, B * T of them.
 * `const void *` and `void *` have simd's storage type unless a comment says otherwise.
 *
 * "rows" functions need only the rows they are given, so one worker can chain them; "features" functions sum over all
 * tokens for a range of output features, and need a finished matrix.
 */
#ifndef HT_KERNELS_ROWS_H
#define HT_KERNELS_ROWS_H

#include "common/base/pool.h"
#include "common/kernels/simd.h"

/* A linear layer, y = x W^T + b. */
struct ht_linear {
    const void *weight; /* (out, in) */
    const void *bias;   /* (out), or NULL */
    int64_t in, out;
    int64_t y_stride;     /* row stride of y and dy in elements; 0: out */
    enum ht_dtype y_type; /* of y and dy */
};

/* Computes y[r] = x[r] W^T + b + residual[r] for r in rows. residual: (rows, out), rows as far apart as y's, or
   NULL. */
void ht_rows_linear(const struct ht_simd *simd, const struct ht_linear *l, const void *x, const void *residual, void *y,
                    struct ht_range rows);
/* Computes dx[r] = dy[r] W + residual[r]. residual: (rows, in) of y's type, or NULL. */
void ht_rows_linear_backward(const struct ht_simd *simd, const struct ht_linear *l, const void *dy,
                             const void *residual, void *dx, struct ht_range rows);
/* Computes dweight[o] = sum over all n_rows of dy[r,o] x[r], dbias[o] = sum of dy[r,o], for o in features. dbias may be
   NULL; else dy is of simd's type. */
void ht_features_linear_grad(const struct ht_simd *simd, const struct ht_linear *l, const void *x, const void *dy,
                             int64_t n_rows, struct ht_stored stored, void *dweight, void *dbias,
                             struct ht_range features);

/* LayerNorm, or without a bias RMSNorm. */
struct ht_norm {
    const void *weight, *bias; /* (width) */
    int64_t width;
    float eps; /* RMSNorm's; LayerNorm's is a constant */
};

/* Computes the norm of rows. stats: (n_rows) means, then (n_rows) 1/std; RMSNorm: (n_rows) 1/rms. */
void ht_rows_norm(const struct ht_simd *simd, const struct ht_norm *n, const void *x, void *y, float *stats,
                  int64_t n_rows, struct ht_range rows);
/* Computes dx[r] = residual[r] + gradient of x[r] through the norm. residual: NULL or (rows, width); may be dx. */
void ht_rows_norm_backward(const struct ht_simd *simd, const struct ht_norm *n, const void *x, const void *dy,
                           const float *stats, const void *residual, void *dx, int64_t n_rows, struct ht_range rows);
/* Computes the gradients of weight and bias. dbias: NULL for RMSNorm. */
void ht_features_norm_grad(const struct ht_simd *simd, const struct ht_norm *n, const void *x, const void *dy,
                           const float *stats, int64_t n_rows, struct ht_stored stored, void *dweight, void *dbias,
                           struct ht_range features);

/* Grains of a static split: 16 floats are a cache line, and half of one in 16 bit. */
enum { HT_ROW_GRAIN = 4, HT_FEATURE_GRAIN = 16 };

#endif
