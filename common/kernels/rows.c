/* Linear layers and norms over a worker's share. */
#include "common/kernels/rows.h"

#include <string.h>

#include "common/kernels/convert.h"

static int64_t y_stride(const struct ht_linear *l)
{
    return l->y_stride ? l->y_stride : l->out;
}

void ht_rows_linear(const struct ht_simd *simd, const struct ht_linear *l, const void *x, const void *residual, void *y,
                    struct ht_range rows)
{
    int64_t n = rows.end - rows.begin;
    if (n <= 0) return;
    simd->gemm(&(struct ht_gemm){.m = n,
                                 .n = l->out,
                                 .k = l->in,
                                 .b_transposed = true,
                                 .a = ht_element(x, simd->stored, rows.begin * l->in),
                                 .a_stride = l->in,
                                 .a_type = simd->stored,
                                 .b = l->weight,
                                 .b_stride = l->in,
                                 .b_type = simd->stored,
                                 .c = ht_element(y, l->y_type, rows.begin * y_stride(l)),
                                 .c_stride = y_stride(l),
                                 .c_stored = {l->y_type, l->y_type},
                                 .residual = ht_element(residual, simd->stored, rows.begin * y_stride(l)),
                                 .bias = l->bias});
}

void ht_rows_linear_backward(const struct ht_simd *simd, const struct ht_linear *l, const void *dy,
                             const void *residual, void *dx, struct ht_range rows)
{
    int64_t n = rows.end - rows.begin;
    if (n <= 0) return;
    simd->gemm(&(struct ht_gemm){.m = n,
                                 .n = l->in,
                                 .k = l->out,
                                 .a = ht_element(dy, l->y_type, rows.begin * y_stride(l)),
                                 .a_stride = y_stride(l),
                                 .a_type = l->y_type,
                                 .b = l->weight,
                                 .b_stride = l->in,
                                 .b_type = simd->stored,
                                 .c = ht_element(dx, simd->stored, rows.begin * l->in),
                                 .c_stride = l->in,
                                 .c_stored = {simd->stored, simd->stored},
                                 .residual = ht_element(residual, l->y_type, rows.begin * l->in)});
}

enum { COLUMNS = 256 }; /* columns that are summed on the stack at a time */

void ht_features_linear_grad(const struct ht_simd *simd, const struct ht_linear *l, const void *x, const void *dy,
                             int64_t n_rows, struct ht_stored stored, void *dweight, void *dbias,
                             struct ht_range features)
{
    int64_t n = features.end - features.begin;
    if (n <= 0) return;
    simd->gemm(&(struct ht_gemm){.m = n,
                                 .n = l->in,
                                 .k = n_rows,
                                 .a_transposed = true,
                                 .a = ht_element(dy, l->y_type, features.begin),
                                 .a_stride = y_stride(l),
                                 .a_type = l->y_type,
                                 .b = x,
                                 .b_stride = l->in,
                                 .b_type = simd->stored,
                                 .c = ht_element(dweight, stored.as, features.begin * l->in),
                                 .c_stride = l->in,
                                 .c_stored = stored});
    if (!dbias) return;
    for (int64_t c = features.begin, m; c < features.end; c += m) {
        float sums[COLUMNS] = {0};
        m = features.end - c < COLUMNS ? features.end - c : COLUMNS;
        simd->column_sum(ht_element(dy, simd->stored, c), n_rows, y_stride(l), m, sums);
        simd->store(sums, stored, ht_element(dbias, stored.as, c), m);
    }
}

void ht_rows_norm(const struct ht_simd *simd, const struct ht_norm *n, const void *x, void *y, float *stats,
                  int64_t n_rows, struct ht_range rows)
{
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const void *from = ht_element(x, simd->stored, r * n->width);
        void *to = ht_element(y, simd->stored, r * n->width);
        if (n->bias)
            simd->norm(from, n->weight, n->bias, to, stats + r, stats + n_rows + r, n->width);
        else
            simd->rms_norm(from, n->weight, n->eps, to, stats + r, n->width);
    }
}

void ht_rows_norm_backward(const struct ht_simd *simd, const struct ht_norm *n, const void *x, const void *dy,
                           const float *stats, const void *residual, void *dx, int64_t n_rows, struct ht_range rows)
{
    for (int64_t r = rows.begin; r < rows.end; r++) {
        int64_t at = r * n->width;
        const void *xr = ht_element(x, simd->stored, at), *dyr = ht_element(dy, simd->stored, at);
        const void *from = ht_element(residual, simd->stored, at);
        void *to = ht_element(dx, simd->stored, at);
        if (n->bias)
            simd->norm_backward(xr, n->weight, dyr, stats[r], stats[n_rows + r], from, to, n->width);
        else
            simd->rms_norm_backward(xr, n->weight, dyr, stats[r], from, to, n->width);
    }
}

void ht_features_norm_grad(const struct ht_simd *simd, const struct ht_norm *n, const void *x, const void *dy,
                           const float *stats, int64_t n_rows, struct ht_stored stored, void *dweight, void *dbias,
                           struct ht_range features)
{
    for (int64_t c = features.begin, m; c < features.end; c += m) {
        float dw[COLUMNS] = {0}, db[COLUMNS] = {0};
        m = features.end - c < COLUMNS ? features.end - c : COLUMNS;
        const void *xc = ht_element(x, simd->stored, c), *dyc = ht_element(dy, simd->stored, c);
        if (n->bias)
            simd->norm_weight_grad(xc, dyc, stats, stats + n_rows, n_rows, n->width, m, dw, db);
        else
            simd->rms_norm_weight_grad(xc, dyc, stats, n_rows, n->width, m, dw);
        simd->store(dw, stored, ht_element(dweight, stored.as, c), m);
        if (n->bias) simd->store(db, stored, ht_element(dbias, stored.as, c), m);
    }
}
