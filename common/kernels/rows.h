/*
 * Internal: what one worker does to its share of a (rows, width) matrix. Rows are tokens, B * T of them.
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
    const float *weight; /* (out, in) */
    const float *bias;   /* (out), or NULL */
    int64_t in, out;
};

/* y[r] = x[r] W^T + b + residual[r] for r in rows. residual: (rows, out) or NULL. */
void ht_rows_linear(const struct ht_simd *simd, const struct ht_linear *l, const float *x, const float *residual,
                    float *y, struct ht_range rows);
/* dx[r] = dy[r] W. */
void ht_rows_linear_backward(const struct ht_simd *simd, const struct ht_linear *l, const float *dy, float *dx,
                             struct ht_range rows);
/* dweight[o] = sum over all n_rows of dy[r,o] x[r], dbias[o] = sum of dy[r,o], for o in features. dbias may be NULL. */
void ht_features_linear_grad(const struct ht_simd *simd, const struct ht_linear *l, const float *x, const float *dy,
                             int64_t n_rows, float *dweight, float *dbias, struct ht_range features);

/* LayerNorm, or without a bias RMSNorm. */
struct ht_norm {
    const float *weight, *bias; /* (width) */
    int64_t width;
    float eps; /* RMSNorm's; LayerNorm's is a constant */
};

/* stats: (n_rows) means, then (n_rows) 1/std; RMSNorm: (n_rows) 1/rms. */
void ht_rows_norm(const struct ht_simd *simd, const struct ht_norm *n, const float *x, float *y, float *stats,
                  int64_t n_rows, struct ht_range rows);
/* dx[r] = residual[r] + gradient of x[r] through the norm. residual: NULL or (rows, width); may be dx. */
void ht_rows_norm_backward(const struct ht_simd *simd, const struct ht_norm *n, const float *x, const float *dy,
                           const float *stats, const float *residual, float *dx, int64_t n_rows, struct ht_range rows);
/* dbias: NULL for RMSNorm. */
void ht_features_norm_grad(const struct ht_simd *simd, const struct ht_norm *n, const float *x, const float *dy,
                           const float *stats, int64_t n_rows, float *dweight, float *dbias, struct ht_range features);

/* Grains of a static split: 16 floats are a cache line. */
enum { HT_ROW_GRAIN = 4, HT_FEATURE_GRAIN = 16 };

#endif
