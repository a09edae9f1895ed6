/* Linear layers and norms over a worker's share. */
#include "common/kernels/rows.h"

#include <string.h>

void ht_rows_linear(const struct ht_simd *simd, const struct ht_linear *l, const float *x, const float *residual,
                    float *y, struct ht_range rows)
{
    int64_t n = rows.end - rows.begin;
    if (n <= 0) return;
    x += rows.begin * l->in;
    y += rows.begin * l->out;
    if (residual) residual += rows.begin * l->out;
    if (l->bias || residual) { /* laid down first, so that the product is added to it */
        for (int64_t r = 0; r < n; r++) {
            float *yr = y + r * l->out;
            if (!residual)
                memcpy(yr, l->bias, (size_t)l->out * sizeof(float));
            else if (!l->bias)
                memcpy(yr, residual + r * l->out, (size_t)l->out * sizeof(float));
            else
                simd->add(residual + r * l->out, l->bias, yr, l->out);
        }
    }
    simd->gemm(&(struct ht_gemm){.m = n,
                                 .n = l->out,
                                 .k = l->in,
                                 .b_transposed = true,
                                 .add = l->bias || residual,
                                 .a = x,
                                 .a_stride = l->in,
                                 .b = l->weight,
                                 .b_stride = l->in,
                                 .c = y,
                                 .c_stride = l->out});
}

void ht_rows_linear_backward(const struct ht_simd *simd, const struct ht_linear *l, const float *dy, float *dx,
                             struct ht_range rows)
{
    int64_t n = rows.end - rows.begin;
    if (n <= 0) return;
    simd->gemm(&(struct ht_gemm){.m = n,
                                 .n = l->in,
                                 .k = l->out,
                                 .a = dy + rows.begin * l->out,
                                 .a_stride = l->out,
                                 .b = l->weight,
                                 .b_stride = l->in,
                                 .c = dx + rows.begin * l->in,
                                 .c_stride = l->in});
}

void ht_features_linear_grad(const struct ht_simd *simd, const struct ht_linear *l, const float *x, const float *dy,
                             int64_t n_rows, float *dweight, float *dbias, struct ht_range features)
{
    int64_t n = features.end - features.begin;
    if (n <= 0) return;
    simd->gemm(&(struct ht_gemm){.m = n,
                                 .n = l->in,
                                 .k = n_rows,
                                 .a_transposed = true,
                                 .a = dy + features.begin,
                                 .a_stride = l->out,
                                 .b = x,
                                 .b_stride = l->in,
                                 .c = dweight + features.begin * l->in,
                                 .c_stride = l->in});
    if (dbias) simd->column_sum(dy + features.begin, n_rows, l->out, n, dbias + features.begin);
}

void ht_rows_norm(const struct ht_simd *simd, const struct ht_norm *n, const float *x, float *y, float *stats,
                  int64_t n_rows, struct ht_range rows)
{
    for (int64_t r = rows.begin; r < rows.end && !n->bias; r++)
        simd->rms_norm(x + r * n->width, n->weight, n->eps, y + r * n->width, stats + r, n->width);
    for (int64_t r = rows.begin; r < rows.end && n->bias; r++)
        simd->norm(x + r * n->width, n->weight, n->bias, y + r * n->width, stats + r, stats + n_rows + r, n->width);
}

void ht_rows_norm_backward(const struct ht_simd *simd, const struct ht_norm *n, const float *x, const float *dy,
                           const float *stats, const float *residual, float *dx, int64_t n_rows, struct ht_range rows)
{
    for (int64_t r = rows.begin; r < rows.end; r++) {
        int64_t at = r * n->width;
        const float *from = residual ? residual + at : NULL;
        if (n->bias)
            simd->norm_backward(x + at, n->weight, dy + at, stats[r], stats[n_rows + r], from, dx + at, n->width);
        else
            simd->rms_norm_backward(x + at, n->weight, dy + at, stats[r], from, dx + at, n->width);
    }
}

void ht_features_norm_grad(const struct ht_simd *simd, const struct ht_norm *n, const float *x, const float *dy,
                           const float *stats, int64_t n_rows, float *dweight, float *dbias, struct ht_range features)
{
    int64_t c = features.begin, width = features.end - features.begin;
    if (width <= 0) return;
    if (n->bias)
        simd->norm_weight_grad(x + c, dy + c, stats, stats + n_rows, n_rows, n->width, width, dweight + c, dbias + c);
    else
        simd->rms_norm_weight_grad(x + c, dy + c, stats, n_rows, n->width, width, dweight + c);
}
