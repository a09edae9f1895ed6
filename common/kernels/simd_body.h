/*
 * The body of struct ht_simd (simd.h), included once by each simd_<level>.c after it has chosen its instructions and
 *
 *     SIMD_BYTES   width of its registers
 *     SIMD_TABLE   name of the table to define
 *
 * and has included convert_body.h and gemm_body.h.
 *
 * Element-wise loops are plain C that the compiler vectorises. Sums are written out in 16 lanes, because a compiler may
 * not reorder them; lanes are held in 64 / SIMD_BYTES registers, and the lanes' order does not depend on how many.
 */
#include <math.h>
#include <string.h>

#include "common/kernels/simd.h"

enum { LANES = 16, PER_VEC = SIMD_BYTES / 4, VECS = LANES / PER_VEC };
typedef float vec __attribute__((vector_size(SIMD_BYTES)));
typedef float vec_at __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias)); /* anywhere in a float array */

struct lanes {
    vec v[VECS];
};

#define AT(p, k)       (*(const vec_at *)((p) + (k)*PER_VEC))
#define EACH_VEC(k)    for (int k = 0; k < VECS; k++)
#define LOG2_E         1.44269504088896341f
#define LN2_HIGH       0.693359375f    /* 9 bits, so that n * LN2_HIGH is exact */
#define LN2_LOW        -2.12194440e-4f /* ln 2 - LN2_HIGH */
#define ROUND_TO_INT   12582912.0f     /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
#define SQRT_2_OVER_PI 0.797884560802865f
#define GELU_CUBIC     0.044715f
#define NORM_EPSILON   1e-5f

/* The loop may read and write the same array, but only at the same index. */
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

/* ---- reductions ---- */

/* Folds lanes j and j + 8, then 4, 2, 1. `rest` (fewer than 16) is folded into the first lanes before that. */
static inline float fold_sum(const struct lanes *a, const float rest[LANES])
{
    float s[LANES];
    memcpy(s, a->v, sizeof(s));
    for (int j = 0; j < LANES; j++) s[j] += rest[j];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) s[j] += s[j + half];
    return s[0];
}

/* sum of EXPR over i, EXPR given once for vectors (with AT) and once for scalars. */
#define REDUCE(result, n, vector_expr, scalar_expr)                                                                    \
    do {                                                                                                               \
        struct lanes sum_ = {0};                                                                                       \
        float rest_[LANES] = {0};                                                                                      \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= (n); i += LANES) EACH_VEC(k) sum_.v[k] += (vector_expr);                                   \
        for (int j = 0; i < (n); i++, j++) rest_[j] = (scalar_expr);                                                   \
        (result) = fold_sum(&sum_, rest_);                                                                             \
    } while (0)

static float simd_sum(const float *x, int64_t n)
{
    float s;
    REDUCE(s, n, AT(x + i, k), x[i]);
    return s;
}

static float simd_dot(const float *x, const float *y, int64_t n)
{
    float s;
    REDUCE(s, n, AT(x + i, k) * AT(y + i, k), x[i] * y[i]);
    return s;
}

/* sum of x y (z - mean) */
static float dot_centred(const float *x, const float *y, const float *z, float mean, int64_t n)
{
    float s;
    REDUCE(s, n, AT(x + i, k) * AT(y + i, k) * (AT(z + i, k) - mean), x[i] * y[i] * (z[i] - mean));
    return s;
}

/* Largest of x; n >= 1. NaN may or may not be seen: the exponentials that follow carry it anyway. */
static float simd_max(const float *x, int64_t n)
{
    float m[LANES], best = x[0];
    for (int j = 0; j < LANES; j++) m[j] = best;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int j = 0; j < LANES; j++) best = m[j] > best ? m[j] : best;
    return best;
}

/* ---- exponential and GELU ---- */

/* exp(x) = 2^n exp(r), r = x - n ln 2 in [-0.35, 0.35]; the polynomial is Cephes' expf. 2^n goes in as two factors, so
   that results near the largest float and below the smallest normal one are reached. */
static inline float exp_one(float x)
{
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * LOG2_E + ROUND_TO_INT;
    float n = shifted - ROUND_TO_INT;
    float r = (x - n * LN2_HIGH) - n * LN2_LOW;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    int32_t e = (int32_t)(bits - 0x4b400000u); /* the bits of ROUND_TO_INT */
    int32_t e1 = e >> 1;
    uint32_t bits1 = ((uint32_t)e1 + 127u) << 23, bits2 = ((uint32_t)e - (uint32_t)e1 + 127u) << 23;
    float scale1, scale2;
    memcpy(&scale1, &bits1, sizeof(scale1));
    memcpy(&scale2, &bits2, sizeof(scale2));
    return p * scale1 * scale2;
}

static void simd_exp(const float *x, float *y, int64_t n)
{
    IVDEP for (int64_t i = 0; i < n; i++) y[i] = exp_one(x[i]);
}

/* (1 + tanh u) / 2 = 1 / (1 + exp(-2u)): no cancellation, and one exponential. */
static inline float gelu_gate(float x)
{
    float u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
    return 1.0f / (1.0f + exp_one(-2.0f * u));
}

static void simd_gelu(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * gelu_gate(x[i]);
}

static void simd_gelu_backward(const float *restrict x, float *restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float g = gelu_gate(x[i]);
        float slope = 2.0f * SQRT_2_OVER_PI * (1.0f + 3.0f * GELU_CUBIC * x[i] * x[i]);
        d[i] *= g + x[i] * g * (1.0f - g) * slope;
    }
}

/* ---- norm ---- */

static void simd_norm(const float *restrict x, const float *restrict weight, const float *restrict bias,
                      float *restrict y, float *mean, float *rstd, int64_t n)
{
    float m = simd_sum(x, n) / (float)n;
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - m;
    float r = 1.0f / sqrtf(simd_dot(y, y, n) / (float)n + NORM_EPSILON);
    for (int64_t i = 0; i < n; i++) y[i] = y[i] * r * weight[i] + bias[i];
    *mean = m;
    *rstd = r;
}

static void simd_norm_backward(const float *x, const float *weight, const float *dy, float mean, float rstd,
                               const float *residual, float *dx, int64_t n)
{
    float m1 = simd_dot(dy, weight, n) / (float)n;
    float m2 = dot_centred(dy, weight, x, mean, n) * rstd * rstd / (float)n;
    if (residual) {
        IVDEP for (int64_t i = 0; i < n; i++) dx[i] =
            residual[i] + rstd * (dy[i] * weight[i] - m1 - (x[i] - mean) * m2);
    } else {
        IVDEP for (int64_t i = 0; i < n; i++) dx[i] = rstd * (dy[i] * weight[i] - m1 - (x[i] - mean) * m2);
    }
}

static void simd_norm_weight_grad(const float *x, const float *dy, const float *mean, const float *rstd, int64_t rows,
                                  int64_t stride, int64_t n, float *restrict dweight, float *restrict dbias)
{
    memset(dweight, 0, (size_t)n * sizeof(float));
    memset(dbias, 0, (size_t)n * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict xr = x + r * stride, *restrict dr = dy + r * stride;
        float m = mean[r], s = rstd[r];
        for (int64_t c = 0; c < n; c++) {
            dweight[c] += dr[c] * ((xr[c] - m) * s);
            dbias[c] += dr[c];
        }
    }
}

static void simd_column_sum(const float *x, int64_t rows, int64_t stride, int64_t n, float *restrict out)
{
    memset(out, 0, (size_t)n * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        const float *restrict xr = x + r * stride;
        for (int64_t c = 0; c < n; c++) out[c] += xr[c];
    }
}

/* ---- softmax and loss ---- */

static float simd_softmax(float *s, int64_t valid, int64_t n, float scale)
{
    float max = simd_max(s, valid) * scale; /* scale > 0 */
    for (int64_t i = 0; i < valid; i++) s[i] = exp_one(s[i] * scale - max);
    float sum = simd_sum(s, valid), inverse = 1.0f / sum;
    for (int64_t i = 0; i < valid; i++) s[i] *= inverse;
    memset(s + valid, 0, (size_t)(n - valid) * sizeof(float));
    return max + logf(sum);
}

static void simd_softmax_again(float *s, int64_t valid, int64_t n, float scale, float lse)
{
    for (int64_t i = 0; i < valid; i++) s[i] = exp_one(s[i] * scale - lse);
    memset(s + valid, 0, (size_t)(n - valid) * sizeof(float));
}

static void simd_softmax_backward(const float *restrict p, float *restrict dp, float dot, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dp[i] = p[i] * (dp[i] - dot) * scale;
}

static double simd_cross_entropy(float *logits, int64_t n, int64_t target, float scale)
{
    float max = simd_max(logits, n), picked = logits[target];
    for (int64_t i = 0; i < n; i++) logits[i] = exp_one(logits[i] - max);
    float sum = simd_sum(logits, n), factor = scale / sum;
    for (int64_t i = 0; i < n; i++) logits[i] *= factor;
    logits[target] -= scale;
    return log((double)sum) + ((double)max - (double)picked);
}

#include "common/kernels/simd_llama.h"

static void simd_add(const float *x, const float *y, float *z, int64_t n)
{
    IVDEP for (int64_t i = 0; i < n; i++) z[i] = x[i] + y[i];
}

const struct ht_simd SIMD_TABLE = {
    .gemm = simd_gemm,
    .exp = simd_exp,
    .gelu = simd_gelu,
    .gelu_backward = simd_gelu_backward,
    .norm = simd_norm,
    .norm_backward = simd_norm_backward,
    .norm_weight_grad = simd_norm_weight_grad,
    .column_sum = simd_column_sum,
    .softmax = simd_softmax,
    .softmax_again = simd_softmax_again,
    .softmax_backward = simd_softmax_backward,
    .cross_entropy = simd_cross_entropy,
    .rms_norm = simd_rms_norm,
    .rms_norm_backward = simd_rms_norm_backward,
    .rms_norm_weight_grad = simd_rms_norm_weight_grad,
    .swiglu = simd_swiglu,
    .swiglu_backward = simd_swiglu_backward,
    .rotate = simd_rotate,
    .widen = simd_widen,
    .narrow = simd_narrow,
    .dot = simd_dot,
    .add = simd_add,
};
