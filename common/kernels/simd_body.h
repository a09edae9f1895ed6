/*
 * The body of struct ht_simd (simd.h). Each simd_<level>.c includes this file once, after it has chosen its
 * instructions, has defined
 *
 *     SIMD_BYTES   width of its registers
 *     SIMD_TABLES  name of the tables to define, one for each storage type
 *
 * and has included convert_body.h and gemm_body.h.
 *
 * Element-wise loops are plain C that the compiler vectorises. Sums are written out in 16 lanes, because a compiler may
 * not reorder them; lanes are held in 64 / SIMD_BYTES registers, and their order does not depend on that number.
 *
 * Code that reads or writes stored numbers is in simd_stored.h, included once for each type. Loops run over spans in
 * FP32: a stored array of FP32 is one span, a 16-bit one is converted in spans that stay in the first cache.
 */
#include <math.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/simd.h"

enum { LANES = 16, PER_VEC = SIMD_BYTES / 4, VECS = LANES / PER_VEC };
enum { SPAN = 256 }; /* numbers converted at a time; a multiple of LANES */
typedef float vec __attribute__((vector_size(SIMD_BYTES)));
typedef uint16_t half_vec __attribute__((vector_size(SIMD_BYTES / 2)));
typedef uint32_t word_vec __attribute__((vector_size(SIMD_BYTES)));
typedef float vec_at __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias)); /* at any float's address */

struct lanes {
    vec v[VECS];
};

#define EACH_VEC(k)    for (int k = 0; k < VECS; k++)
#define LOG2_E         1.44269504088896341f
#define LN2_HIGH       0.693359375f    /* 9 bits, so that n * LN2_HIGH is exact */
#define LN2_LOW        -2.12194440e-4f /* ln 2 - LN2_HIGH */
#define ROUND_TO_INT   12582912.0f     /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
#define SQRT_2_OVER_PI 0.797884560802865f
#define GELU_CUBIC     0.044715f
#define NORM_EPSILON   1e-5f

/* For functions whose caller passes a constant storage type. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The next loop may read and write the same array, but only at the same index. */
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

/* ---- stored numbers ---- */

/* Loads numbers i, i + 1 .. as a register of FP32. */
ALWAYS_INLINE vec load(enum ht_dtype t, const void *x, int64_t i)
{
    if (t == HT_F32) return *(const vec_at *)((const float *)x + i);
#if defined(F16_WIDEN)
    if (t == HT_F16) return F16_WIDEN((const uint16_t *)x + i);
#endif
    vec v;
    if (t == HT_F16) {
        for (int k = 0; k < PER_VEC; k++) v[k] = ht_f16_to_f32(((const uint16_t *)x)[i + k]);
        return v;
    }
    half_vec upper;
    memcpy(&upper, (const uint16_t *)x + i, sizeof(upper));
    word_vec bits = __builtin_convertvector(upper, word_vec) << 16;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

ALWAYS_INLINE float one(enum ht_dtype t, const void *x, int64_t i)
{
    if (t == HT_F32) return ((const float *)x)[i];
    uint16_t h = ((const uint16_t *)x)[i];
    return t == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

/* for (at, n) over spans of [0, total) */
#define EACH_SPAN(t, at, n, total)                                                                                     \
    for (int64_t at = 0, n = 0; n = (t) == HT_F32 || (total)-at < SPAN ? (total)-at : SPAN, at < (total); at += n)

/* Returns the span's numbers as FP32: in place, or converted in `span`. */
ALWAYS_INLINE float *get(enum ht_dtype t, const void *x, int64_t at, int64_t n, float span[SPAN])
{
    if (t == HT_F32) return (float *)x + at;
    simd_widen(ht_element(x, t, at), t, span, n);
    return span;
}

/* Returns a buffer for the span's numbers, which are stored from it afterwards. */
ALWAYS_INLINE float *store_buffer(enum ht_dtype t, void *x, int64_t at, float span[SPAN])
{
    return t == HT_F32 ? (float *)x + at : span;
}

ALWAYS_INLINE void put(enum ht_dtype t, const float span[SPAN], void *x, int64_t at, int64_t n)
{
    if (t != HT_F32) simd_narrow(span, t, ht_element(x, t, at), n);
}

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

/* sum of EXPR over i, EXPR given once for vectors (i + k PER_VEC on) and once for scalars. */
#define REDUCE(result, n, vector_expr, scalar_expr)                                                                    \
    do {                                                                                                               \
        struct lanes sum_ = {0};                                                                                       \
        float rest_[LANES] = {0};                                                                                      \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= (n); i += LANES) EACH_VEC(k) sum_.v[k] += (vector_expr);                                   \
        for (int j = 0; i < (n); i++, j++) rest_[j] = (scalar_expr);                                                   \
        (result) = fold_sum(&sum_, rest_);                                                                             \
    } while (0)
#define VEC(x) load(t, x, i + k * PER_VEC)
#define ONE(x) one(t, x, i)

ALWAYS_INLINE float sum(enum ht_dtype t, const void *x, int64_t n)
{
    float s;
    REDUCE(s, n, VEC(x), ONE(x));
    return s;
}

ALWAYS_INLINE float dot(enum ht_dtype t, const void *x, const void *y, int64_t n)
{
    float s;
    REDUCE(s, n, VEC(x) * VEC(y), ONE(x) * ONE(y));
    return s;
}

/* sum of (x - mean)^2 */
ALWAYS_INLINE float squares_centred(enum ht_dtype t, const void *x, float mean, int64_t n)
{
    float s;
    REDUCE(s, n, (VEC(x) - mean) * (VEC(x) - mean), (ONE(x) - mean) * (ONE(x) - mean));
    return s;
}

/* sum of x y (z - mean) */
ALWAYS_INLINE float dot_centred(enum ht_dtype t, const void *x, const void *y, const void *z, float mean, int64_t n)
{
    float s;
    REDUCE(s, n, VEC(x) * VEC(y) * (VEC(z) - mean), ONE(x) * ONE(y) * (ONE(z) - mean));
    return s;
}

/* sum of x y z */
ALWAYS_INLINE float dot_three(enum ht_dtype t, const void *x, const void *y, const void *z, int64_t n)
{
    float s;
    REDUCE(s, n, VEC(x) * VEC(y) * VEC(z), ONE(x) * ONE(y) * ONE(z));
    return s;
}

/* Returns the largest of x; n >= 1. May miss a NaN: the exponentials that follow carry it anyway. */
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

/* Computes exp(x) = 2^n exp(r), r = x - n ln 2 in [-0.35, 0.35]; the polynomial is Cephes' expf. 2^n is applied as two
   factors, which reaches results near the largest float and below the smallest normal one. */
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

/* Computes (1 + tanh u) / 2 = 1 / (1 + exp(-2u)): no cancellation, and one exponential. */
static inline float gelu_gate(float x)
{
    float u = SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x);
    return 1.0f / (1.0f + exp_one(-2.0f * u));
}

/* Computes 1 / (1 + exp(-x)). exp_one saturates, so a very negative x gives 0 and no NaN. */
static inline float sigmoid(float x)
{
    return 1.0f / (1.0f + exp_one(-x));
}

/* ---- softmax and loss ---- */

static float simd_softmax(float *s, int64_t valid, int64_t n, float scale)
{
    float max = simd_max(s, valid) * scale; /* scale > 0 */
    for (int64_t i = 0; i < valid; i++) s[i] = exp_one(s[i] * scale - max);
    float total = sum(HT_F32, s, valid), inverse = 1.0f / total;
    for (int64_t i = 0; i < valid; i++) s[i] *= inverse;
    memset(s + valid, 0, (size_t)(n - valid) * sizeof(float));
    return max + logf(total);
}

static void simd_softmax_again(float *s, int64_t valid, int64_t n, float scale, float lse)
{
    for (int64_t i = 0; i < valid; i++) s[i] = exp_one(s[i] * scale - lse);
    memset(s + valid, 0, (size_t)(n - valid) * sizeof(float));
}

static double simd_cross_entropy(float *logits, int64_t n, int64_t target, float scale)
{
    float max = simd_max(logits, n), picked = logits[target];
    for (int64_t i = 0; i < n; i++) logits[i] = exp_one(logits[i] - max);
    float total = sum(HT_F32, logits, n), factor = scale / total;
    for (int64_t i = 0; i < n; i++) logits[i] *= factor;
    logits[target] -= scale;
    return log((double)total) + ((double)max - (double)picked);
}

/* ---- one table for each storage type ---- */

#define STORED  HT_F32
#define S(name) simd_##name##_f32
#include "common/kernels/simd_stored.h"
#define STORED  HT_F16
#define S(name) simd_##name##_f16
#include "common/kernels/simd_stored.h"
#define STORED  HT_BF16
#define S(name) simd_##name##_bf16
#include "common/kernels/simd_stored.h"

#define TABLE(type, suffix)                                                                                            \
    {                                                                                                                  \
        .stored = (type), .gemm = simd_gemm, .exp = simd_exp, .softmax = simd_softmax,                                 \
        .softmax_again = simd_softmax_again, .cross_entropy = simd_cross_entropy, .widen = simd_widen,                 \
        .narrow = simd_narrow, .store = simd_store, .gelu = simd_gelu_##suffix,                                        \
        .gelu_backward = simd_gelu_backward_##suffix, .norm = simd_norm_##suffix,                                      \
        .norm_backward = simd_norm_backward_##suffix, .norm_weight_grad = simd_norm_weight_grad_##suffix,              \
        .column_sum = simd_column_sum_##suffix, .softmax_backward = simd_softmax_backward_##suffix,                    \
        .rms_norm = simd_rms_norm_##suffix, .rms_norm_backward = simd_rms_norm_backward_##suffix,                      \
        .rms_norm_weight_grad = simd_rms_norm_weight_grad_##suffix, .swiglu = simd_swiglu_##suffix,                    \
        .swiglu_backward = simd_swiglu_backward_##suffix, .rotate = simd_rotate_##suffix, .dot = simd_dot_##suffix,    \
        .add = simd_add_##suffix,                                                                                      \
    }

const struct ht_simd SIMD_TABLES[] = {
    [HT_F32] = TABLE(HT_F32, f32),
    [HT_F16] = TABLE(HT_F16, f16),
    [HT_BF16] = TABLE(HT_BF16, bf16),
};
