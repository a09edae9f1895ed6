/*
 * Units in double precision and obvious loops: what the kernels are held against. Forward only; gradients are taken by
 * central differences of a scalar, which needs no second derivation.
 */
#ifndef HT_TESTS_REFERENCE_H
#define HT_TESTS_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/model/model.h"

/* y (n_rows, out) = x (n_rows, in) W^T + b; b may be NULL. */
static inline void ref_linear(const double *x, const double *w, const double *b, double *y, int64_t n_rows, int64_t in,
                              int64_t out)
{
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = b ? b[o] : 0;
            for (int64_t i = 0; i < in; i++) sum += x[r * in + i] * w[o * in + i];
            y[r * out + o] = sum;
        }
}

static inline void ref_norm(const double *x, const double *w, const double *b, double *y, int64_t n_rows, int64_t C)
{
    for (int64_t r = 0; r < n_rows; r++) {
        double mean = 0, var = 0;
        for (int64_t c = 0; c < C; c++) mean += x[r * C + c] / (double)C;
        for (int64_t c = 0; c < C; c++) var += (x[r * C + c] - mean) * (x[r * C + c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++) y[r * C + c] = (x[r * C + c] - mean) / sqrt(var + 1e-5) * w[c] + b[c];
    }
}

/* qkv: (B,T,3C); out: (B,T,C); probs: (T) scratch. */
static inline void ref_attention(const double *qkv, double *out, double *probs, int64_t B, int64_t T, int64_t C,
                                 int64_t H)
{
    int64_t D = C / H;
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < T; i++) {
                const double *q = qkv + (b * T + i) * 3 * C + h * D;
                double sum = 0;
                for (int64_t j = 0; j <= i; j++) {
                    const double *k = qkv + (b * T + j) * 3 * C + C + h * D;
                    double s = 0;
                    for (int64_t d = 0; d < D; d++) s += q[d] * k[d];
                    probs[j] = exp(s / sqrt((double)D));
                    sum += probs[j];
                }
                for (int64_t d = 0; d < D; d++) {
                    double o = 0;
                    for (int64_t j = 0; j <= i; j++) o += probs[j] / sum * qkv[(b * T + j) * 3 * C + 2 * C + h * D + d];
                    out[(b * T + i) * C + h * D + d] = o;
                }
            }
}

/* out (B,T,C) of a block; params as the block's flat buffer, in double. */
static inline void ref_block(const struct ht_model *m, int64_t B, int64_t T, const double *params, const double *x,
                             double *out)
{
    int64_t C = m->width, F = m->ffn, R = B * T;
    struct ht_param_part part[HT_MAX_PARAM_PARTS];
    ht_unit_param_parts(m, 1, part);
    const double *p[12];
    for (int i = 0; i < 12; i++) p[i] = params + part[i].offset;
    double *scratch = calloc((size_t)(R * (6 * C + 2 * F) + T), sizeof(double));
    double *n = scratch, *qkv = n + R * C, *att = qkv + R * 3 * C, *proj = att + R * C, *fc = proj + R * C;
    ref_norm(x, p[0], p[1], n, R, C);
    ref_linear(n, p[2], p[3], qkv, R, C, 3 * C);
    ref_attention(qkv, att, fc + R * F, B, T, C, m->heads);
    ref_linear(att, p[4], p[5], proj, R, C, C);
    for (int64_t i = 0; i < R * C; i++) proj[i] += x[i];
    ref_norm(proj, p[6], p[7], n, R, C);
    ref_linear(n, p[8], p[9], fc, R, C, F);
    for (int64_t i = 0; i < R * F; i++)
        fc[i] = 0.5 * fc[i] * (1 + tanh(sqrt(2 / M_PI) * (fc[i] + 0.044715 * fc[i] * fc[i] * fc[i])));
    ref_linear(fc, p[10], p[11], out, R, F, C);
    for (int64_t i = 0; i < R * C; i++) out[i] += proj[i];
    free(scratch);
}

/* Sum over the tokens of -log p(target); norm_params: weight, bias; matrix: (V,C). */
static inline double ref_head(const struct ht_model *m, int64_t n_rows, const double *norm_params, const double *matrix,
                              const double *x, const int32_t *targets)
{
    int64_t C = m->width, V = m->vocab;
    double *n = calloc((size_t)(n_rows * (C + V)), sizeof(double)), *logits = n + n_rows * C, loss = 0;
    ref_norm(x, norm_params, norm_params + C, n, n_rows, C);
    ref_linear(n, matrix, NULL, logits, n_rows, C, V);
    for (int64_t r = 0; r < n_rows; r++) {
        double sum = 0;
        for (int64_t v = 0; v < V; v++) sum += exp(logits[r * V + v]);
        loss += log(sum) - logits[r * V + targets[r]];
    }
    free(n);
    return loss;
}

/* Derivative of f(ctx) by *at, f smooth and of order 1. */
static inline double ref_derivative(double (*f)(void *ctx), void *ctx, double *at)
{
    const double h = 1e-5, old = *at;
    *at = old + h;
    double up = f(ctx);
    *at = old - h;
    double down = f(ctx);
    *at = old;
    return (up - down) / (2 * h);
}

#endif
