/*
 * Element-wise and reducing loops of the kernels, compiled three times (AVX-512, AVX2, portable) from one body and
 * chosen at run time. All three give the same bits: every sum is kept in 16 lanes and folded in the same order, and
 * nothing is contracted into fused multiply-adds. (Matrix products are the exception, see gemm.h.)
 *
 * `const void *` and `void *` are arrays of the table's storage type; arithmetic, sums, statistics and `float`
 * arguments are FP32. Stored numbers are rounded once, to nearest even. Pointers need only the alignment of their type.
 * Every function writes all of its output and reads none of its old values, unless its comment says "added".
 */
#ifndef HT_KERNELS_SIMD_H
#define HT_KERNELS_SIMD_H

#include <stdint.h>

#include "common/kernels/gemm.h"
#include "common/model/model.h"

enum ht_simd_level { HT_SIMD_PORTABLE, HT_SIMD_AVX2, HT_SIMD_AVX512, HT_N_SIMD_LEVELS };

struct ht_simd {
    enum ht_dtype stored;

    void (*gemm)(const struct ht_gemm *g); /* matrix product (gemm.h), with types of its own */

    /* y[i] = exp(x[i]), within 2 ulp; overflows to inf, underflows through the denormals to 0. x may be y. */
    void (*exp)(const float *x, float *y, int64_t n);

    /* GELU, tanh form: y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
    void (*gelu)(const void *x, void *y, int64_t n);
    /* d[i] *= gelu'(x[i]): the gradient of the output in, of the input out. */
    void (*gelu_backward)(const void *x, void *d, int64_t n);

    /* One row (n): y = (x - mean) / sqrt(var + 1e-5) * weight + bias; leaves mean and 1/std. */
    void (*norm)(const void *x, const void *weight, const void *bias, void *y, float *mean, float *rstd, int64_t n);
    /* One row: dx = residual + gradient through the norm. dx may be residual; residual may be NULL (0). */
    void (*norm_backward)(const void *x, const void *weight, const void *dy, float mean, float rstd,
                          const void *residual, void *dx, int64_t n);
    /* Columns, added: dweight[c] += sum over rows r of dy[r,c] (x[r,c] - mean[r]) rstd[r]; dbias[c] += sum of dy[r,c].
       Rows are `stride` apart; the sums run over r in order. */
    void (*norm_weight_grad)(const void *x, const void *dy, const float *mean, const float *rstd, int64_t rows,
                             int64_t stride, int64_t n, float *dweight, float *dbias);
    /* Columns, added: out[c] += sum over rows of x[r,c], in order. */
    void (*column_sum)(const void *x, int64_t rows, int64_t stride, int64_t n, float *out);

    /* One row of scores (n): the first `valid` become softmax(scale * s), the rest 0. Returns max + log(sum): the
       log-sum-exp of the scaled scores. */
    float (*softmax)(float *s, int64_t valid, int64_t n, float scale);
    /* One row: s = exp(scale * s - lse) for the first `valid`, 0 after. */
    void (*softmax_again)(float *s, int64_t valid, int64_t n, float scale, float lse);
    /* One row: ds = p (dp - dot) scale, in place on dp. */
    void (*softmax_backward)(const void *p, float *dp, float dot, float scale, int64_t n);

    /* One row of logits (n): becomes (softmax - onehot(target)) * scale. Returns -log softmax[target]. */
    double (*cross_entropy)(float *logits, int64_t n, int64_t target, float scale);

    /* ---- LLaMA's (simd_llama.h) ---- */

    /* One row (n): y = x / sqrt(mean(x^2) + eps) * weight; leaves 1/rms. */
    void (*rms_norm)(const void *x, const void *weight, float eps, void *y, float *rrms, int64_t n);
    /* One row: dx = residual + gradient through the norm. dx may be residual; residual may be NULL (0). */
    void (*rms_norm_backward)(const void *x, const void *weight, const void *dy, float rrms, const void *residual,
                              void *dx, int64_t n);
    /* Columns, added: dweight[c] += sum over rows r of dy[r,c] x[r,c] rrms[r], in order; rows are `stride` apart. */
    void (*rms_norm_weight_grad)(const void *x, const void *dy, const float *rrms, int64_t rows, int64_t stride,
                                 int64_t n, float *dweight);
    /* y = silu(gate) up, silu(g) = g / (1 + exp(-g)). */
    void (*swiglu)(const void *gate, const void *up, void *y, int64_t n);
    /* d: gradient of y in, of up out; dgate: of gate. */
    void (*swiglu_backward)(const void *gate, const void *up, void *dgate, void *d, int64_t n);
    /* Points (low, high) turned in place: low cos - high sin, high cos + low sin. */
    void (*rotate)(const float *cosine, const float *sine, void *low, void *high, int64_t n);

    /* y = x, from and to any type; narrow and store round to nearest even (base/half.h). */
    void (*widen)(const void *x, enum ht_dtype type, float *y, int64_t n);
    void (*narrow)(const float *x, enum ht_dtype type, void *y, int64_t n);
    void (*store)(const float *x, struct ht_stored stored, void *y, int64_t n);

    float (*dot)(const void *x, const void *y, int64_t n);
    void (*add)(const void *x, const void *y, void *z, int64_t n); /* z = x + y; z may be either */
};

/* Returns the best table that this CPU has, for FP32. */
const struct ht_simd *ht_simd(void);
/* Returns the best table for a storage type. */
const struct ht_simd *ht_simd_for(enum ht_dtype stored);
/* Returns the table of this level, or NULL when this CPU (or this build) does not have it. For tests. */
const struct ht_simd *ht_simd_at(enum ht_simd_level level, enum ht_dtype stored);

#endif
