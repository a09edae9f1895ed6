/* Linear layers and norms over a worker's share. */
#include "common/kernels/rows.h"

#include <cblas.h>
#include <string.h>

/* One worker's rows or features are few enough for BLAS's int; a table of V * C elements is only ever indexed by
 * pointer. */
static int as_int(int64_t n)
{
    return (int)n;
}

void ht_rows_linear(const struct ht_simd *simd, const struct ht_linear *l, const float *x, const float *residual,
                    float *y, struct ht_range rows)
{
    int64_t n = rows.end - rows.begin;
    if (n <= 0) return;
    x += rows.begin * l->in;
    y += rows.begin * l->out;
    float beta = 0;
    if (l->bias || residual) { /* laid down first, so that BLAS adds to it instead of clearing */
        beta = 1;
        if (residual) residual += rows.begin * l->out;
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
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, as_int(n), as_int(l->out), as_int(l->in), 1, x, as_int(l->in),
                l->weight, as_int(l->in), beta, y, as_int(l->out));
}

void ht_rows_linear_backward(const struct ht_linear *l, const float *dy, float *dx, struct ht_range rows)
{
    int64_t n = rows.end - rows.begin;
    if (n <= 0) return;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, as_int(n), as_int(l->in), as_int(l->out), 1,
                dy + rows.begin * l->out, as_int(l->out), l->weight, as_int(l->in), 0, dx + rows.begin * l->in,
                as_int(l->in));
}

void ht_features_linear_grad(const struct ht_simd *simd, const struct ht_linear *l, const float *x, const float *dy,
                             int64_t n_rows, float *dweight, float *dbias, struct ht_range features)
{
    int64_t n = features.end - features.begin;
    if (n <= 0) return;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, as_int(n), as_int(l->in), as_int(n_rows), 1,
                dy + features.begin, as_int(l->out), x, as_int(l->in), 0, dweight + features.begin * l->in,
                as_int(l->in));
    if (dbias) simd->column_sum(dy + features.begin, n_rows, l->out, n, dbias + features.begin);
}

void ht_rows_norm(const struct ht_simd *simd, const struct ht_norm *n, const float *x, float *y, float *stats,
                  int64_t n_rows, struct ht_range rows)
{
    for (int64_t r = rows.begin; r < rows.end; r++)
        simd->norm(x + r * n->width, n->weight, n->bias, y + r * n->width, stats + r, stats + n_rows + r, n->width);
}

void ht_rows_norm_backward(const struct ht_simd *simd, const struct ht_norm *n, const float *x, const float *dy,
                           const float *stats, const float *residual, float *dx, int64_t n_rows, struct ht_range rows)
{
    for (int64_t r = rows.begin; r < rows.end; r++)
        simd->norm_backward(x + r * n->width, n->weight, dy + r * n->width, stats[r], stats[n_rows + r],
                            residual ? residual + r * n->width : NULL, dx + r * n->width, n->width);
}

void ht_features_norm_grad(const struct ht_simd *simd, const struct ht_norm *n, const float *x, const float *dy,
                           const float *stats, int64_t n_rows, float *dweight, float *dbias, struct ht_range features)
{
    int64_t c = features.begin, width = features.end - features.begin;
    if (width <= 0) return;
    simd->norm_weight_grad(x + c, dy + c, stats, stats + n_rows, n_rows, n->width, width, dweight + c, dbias + c);
}
