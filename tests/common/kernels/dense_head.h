/*
 * Rows of logits are padded (ht_logits_stride). The head again with rows V apart, step by step: padding may change no
 * bit, whatever lies in it, and nothing is written there.
 */
#ifndef HT_TESTS_DENSE_HEAD_H
#define HT_TESTS_DENSE_HEAD_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/rows.h"

/* Two buffers of logits or their gradients; what lies in the padding may differ. */
static inline void assert_same_logits(const struct ht_model *m, int64_t n_rows, const float *a, const float *b)
{
    int64_t stride = ht_logits_stride(m);
    for (int64_t r = 0; r < n_rows; r++) ck_assert_mem_eq(a + r * stride, b + r * stride, (size_t)m->vocab * 4);
}

/* The results of a head's passes: its loss, and the gradients of logits, input and matrix (stored as t). */
struct head_made {
    double loss_sum;
    const float *dlogits;
    const void *dx, *dmatrix;
};

/* poison: what every byte of the logits was before. */
static inline void assert_dense_head(const struct ht_model *m, enum ht_dtype t, int64_t n_rows, const void *params,
                                     const void *matrix, const void *x, const int32_t *targets, float scale,
                                     const struct head_made *made, int poison)
{
    int64_t C = m->width, V = m->vocab, padding = ht_logits_stride(m) - V, row_bytes = C * ht_dtype_bytes(t);
    const struct ht_simd *simd = ht_simd_for(t);
    struct ht_norm norm = {params, m->arch == HT_ARCH_GPT ? ht_element(params, t, C) : NULL, C, (float)m->norm_eps};
    struct ht_linear linear = {.weight = matrix, .in = C, .out = V, .y_type = HT_F32};
    struct ht_range rows = {0, n_rows}, features = {0, V};
    float *logits = malloc((size_t)(n_rows * V) * 4), *stats = malloc((size_t)n_rows * 8);
    char *n = malloc((size_t)(n_rows * row_bytes) * 3), *dn = n + n_rows * row_bytes, *dx = dn + n_rows * row_bytes;
    char *dmatrix = malloc((size_t)(V * row_bytes));
    double loss_sum = 0;
    ht_rows_norm(simd, &norm, x, n, stats, n_rows, rows);
    ht_rows_linear(simd, &linear, n, NULL, logits, rows);
    for (int64_t r = 0; r < n_rows; r++) loss_sum += simd->cross_entropy(logits + r * V, V, targets[r], scale);
    ht_rows_linear_backward(simd, &linear, logits, NULL, dn, rows);
    ht_rows_norm_backward(simd, &norm, x, dn, stats, NULL, dx, n_rows, rows);
    ht_features_linear_grad(simd, &linear, n, logits, n_rows, (struct ht_stored){t, t}, dmatrix, NULL, features);
    ck_assert(padding > 0); /* else this tests nothing */
    ck_assert(made->loss_sum == loss_sum);
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = made->dlogits + r * (V + padding);
        const unsigned char *behind = (const unsigned char *)(row + V);
        ck_assert_mem_eq(row, logits + r * V, (size_t)V * 4);
        for (int64_t i = 0; i < padding * 4; i++)
            if (behind[i] != poison) ck_abort_msg("row %d: byte %d of the padding was written", (int)r, (int)i);
    }
    ck_assert_mem_eq(made->dx, dx, (size_t)(n_rows * row_bytes));
    ck_assert_mem_eq(made->dmatrix, dmatrix, (size_t)(V * row_bytes));
    free(logits);
    free(stats);
    free(n);
    free(dmatrix);
}

#endif
