/* One body, compiled for each instruction set; the compiler makes the vectors. */
#include "common/kernels/undo_path.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define BODY static inline __attribute__((always_inline))

BODY uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

BODY float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Floats in order, as integers: ... -2^-149, -0 is -1, +0 is 0, 2^-149 is 1 ... One to one, NaNs included; being its
   own inverse. Differences are taken modulo 2^32. */
BODY uint32_t in_order(uint32_t bits)
{
    return bits ^ (bits >> 31 ? 0x7fffffffu : 0);
}

/* Which NaN comes out of an operation depends on the order of its operands, which is the compiler's to choose. */
BODY float one_nan(float x)
{
    uint32_t bits = bits_of(x);
    return float_of((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits);
}

BODY void reverse_body(const struct ht_adamw_step *s, const float *restrict p, const float *restrict m,
                       const float *restrict v, const float *restrict grad, int64_t n,
                       struct ht_undo_values *restrict out)
{
    const struct ht_adamw_step c = *s;
    const float beta1 = 1 - c.one_less_beta1;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.grad_scale;
        float update = c.step_size * m[i] / (sqrtf(v[i]) / c.root + c.eps);
        out->p[i] = one_nan((p[i] + update) / c.keep);
        out->m[i] = one_nan((m[i] - c.one_less_beta1 * g) / beta1);
        out->v[i] = one_nan((v[i] - c.one_less_beta2 * g * g) / c.beta2);
    }
}

BODY int64_t differences_body(const float *restrict truth, const float *restrict estimate, int64_t n,
                              int8_t *restrict d)
{
    int32_t escapes = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t by = in_order(bits_of(truth[i])) - in_order(bits_of(estimate[i]));
        int32_t escape = by + 127 > 254;
        d[i] = (int8_t)(escape ? HT_UNDO_ESCAPE : (int32_t)by);
        escapes += escape;
    }
    return escapes;
}

BODY void correct_body(const float *restrict estimate, const int8_t *restrict d, int64_t n, float *restrict x)
{
    for (int64_t i = 0; i < n; i++) x[i] = float_of(in_order(in_order(bits_of(estimate[i])) + (uint32_t)(int32_t)d[i]));
}

#define PATH(name, attribute)                                                                                          \
    attribute static void reverse_##name(const struct ht_adamw_step *s, const float *p, const float *m,                \
                                         const float *v, const float *grad, int64_t n, struct ht_undo_values *out)     \
    {                                                                                                                  \
        reverse_body(s, p, m, v, grad, n, out);                                                                        \
    }                                                                                                                  \
    attribute static int64_t differences_##name(const float *truth, const float *estimate, int64_t n, int8_t *d)       \
    {                                                                                                                  \
        return differences_body(truth, estimate, n, d);                                                                \
    }                                                                                                                  \
    attribute static void correct_##name(const float *estimate, const int8_t *d, int64_t n, float *x)                  \
    {                                                                                                                  \
        correct_body(estimate, d, n, x);                                                                               \
    }

PATH(portable, )
#if defined(__x86_64__)
PATH(avx2, __attribute__((target("avx2"))))
PATH(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))))
#endif

#define TABLE(name, at)                                                                                                \
    {                                                                                                                  \
        .level = at, .reverse = reverse_##name, .differences = differences_##name, .correct = correct_##name           \
    }

const struct ht_undo_path *ht_undo_path_at(enum ht_simd_level level)
{
    static const struct ht_undo_path portable = TABLE(portable, HT_SIMD_PORTABLE);
#if defined(__x86_64__)
    static const struct ht_undo_path avx2 = TABLE(avx2, HT_SIMD_AVX2);
    static const struct ht_undo_path avx512 = TABLE(avx512, HT_SIMD_AVX512);
    bool has_all = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (level == HT_SIMD_AVX512) return has_all ? &avx512 : NULL;
    if (level == HT_SIMD_AVX2) return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
#endif
    return level == HT_SIMD_PORTABLE ? &portable : NULL;
}
