/* One body, compiled for each instruction set; the compiler vectorises it. */
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

/* Maps floats to ordered integers: ... -2^-149, -0 is -1, +0 is 0, 2^-149 is 1 ... One to one, NaNs included, and its
   own inverse. Differences are taken modulo 2^32. */
BODY uint32_t in_order(uint32_t bits)
{
    return bits ^ (bits >> 31 ? 0x7fffffffu : 0);
}

/* Replaces every NaN by one: the operands' order, which the compiler chooses, decides which NaN an operation gives. */
BODY float one_nan(float x)
{
    uint32_t bits = bits_of(x);
    return float_of((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits);
}

struct values {
    float p, m, v;
};

/* 1 / keep, 1 / beta1, 1 / beta2. */
struct reciprocals {
    float keep, beta1, beta2;
};

BODY struct reciprocals reciprocals_of(const struct ht_adamw_step *c)
{
    return (struct reciprocals){1 / c->keep, 1 / (1 - c->one_less_beta1), 1 / c->beta2};
}

/* Estimates one element's values before the step, from which the log's differences count; g is the scaled gradient.
   This is the paper's reversal with products by reciprocals, which save three of five divisions; that they are less
   exact costs nothing here. */
BODY struct values estimate(const struct ht_adamw_step *c, struct reciprocals r, float p, float m, float v, float g)
{
    float update = c->step_size * m / (sqrtf(v) / c->root + c->eps);
    return (struct values){.p = one_nan((p + update) * r.keep),
                           .m = one_nan((m - c->one_less_beta1 * g) * r.beta1),
                           .v = one_nan((v - c->one_less_beta2 * g * g) * r.beta2)};
}

BODY void reverse_body(const struct ht_adamw_step *s, float *restrict p, float *restrict m, float *restrict v,
                       const float *restrict grad, int64_t n)
{
    const struct ht_adamw_step c = *s;
    const float beta1 = 1 - c.one_less_beta1;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.grad_scale;
        p[i] = (p[i] + c.step_size * m[i] / (sqrtf(v[i]) / c.root + c.eps)) / c.keep;
        m[i] = (m[i] - c.one_less_beta1 * g) / beta1;
        v[i] = (v[i] - c.one_less_beta2 * g * g) / c.beta2;
    }
}

/* Prefetches half a kilobyte ahead, across page ends, where hardware stops. Beyond the block follows the next one. */
BODY void fetch_ahead(const float *x)
{
    for (int line = 0; line < 4; line++) __builtin_prefetch((const void *)((uintptr_t)x + 512 + 64 * (uintptr_t)line));
}

enum { STRIP = 64 };

/* Returns the distance from the estimate to the truth, modulo 2^32. */
BODY uint32_t distance(float truth, float estimate)
{
    return in_order(bits_of(truth)) - in_order(bits_of(estimate));
}

BODY int32_t narrow(const uint32_t *restrict by, int64_t n, int8_t *restrict d)
{
    int32_t escapes = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t escape = by[i] + 127 > 254;
        d[i] = (int8_t)(escape ? HT_UNDO_ESCAPE : (int32_t)by[i]);
        escapes += escape;
    }
    return escapes;
}

/* Steps at most STRIP elements. The step itself is update_one of adamw.c, operation by operation. */
BODY int32_t step_strip(const struct ht_adamw_step *c, struct reciprocals r, float *restrict p, float *restrict m,
                        float *restrict v, const float *restrict grad, int64_t n, float *restrict old_p,
                        float *restrict old_m, float *restrict old_v, int8_t *dp, int8_t *dm, int8_t *dv)
{
    uint32_t by_p[STRIP], by_m[STRIP], by_v[STRIP];
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c->grad_scale, p0 = p[i], m0 = m[i], v0 = v[i];
        float m1 = m0 + c->one_less_beta1 * (g - m0);
        float v1 = v0 * c->beta2 + c->one_less_beta2 * g * g;
        float p1 = p0 * c->keep - c->step_size * m1 / (sqrtf(v1) / c->root + c->eps);
        struct values x = estimate(c, r, p1, m1, v1, g);
        by_p[i] = distance(p0, x.p);
        by_m[i] = distance(m0, x.m);
        by_v[i] = distance(v0, x.v);
        p[i] = p1;
        m[i] = m1;
        v[i] = v1;
        old_p[i] = p0;
        old_m[i] = m0;
        old_v[i] = v0;
    }
    return narrow(by_p, n, dp) + narrow(by_m, n, dm) + narrow(by_v, n, dv);
}

BODY int64_t step_body(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n,
                       struct ht_undo_values *old, int8_t *const d[3])
{
    const struct ht_adamw_step c = *s;
    const struct reciprocals r = reciprocals_of(&c);
    int64_t escapes = 0, i = 0;
    for (; i + STRIP <= n; i += STRIP) {
        fetch_ahead(p + i);
        fetch_ahead(m + i);
        fetch_ahead(v + i);
        fetch_ahead(grad + i);
        escapes += step_strip(&c, r, p + i, m + i, v + i, grad + i, STRIP, old->p + i, old->m + i, old->v + i, d[0] + i,
                              d[1] + i, d[2] + i);
    }
    return escapes + step_strip(&c, r, p + i, m + i, v + i, grad + i, n - i, old->p + i, old->m + i, old->v + i,
                                d[0] + i, d[1] + i, d[2] + i);
}

/* Undoes at most STRIP elements. */
BODY void undo_strip(const struct ht_adamw_step *c, struct reciprocals r, float *restrict p, float *restrict m,
                     float *restrict v, const float *restrict grad, int64_t n, const int8_t *restrict dp,
                     const int8_t *restrict dm, const int8_t *restrict dv)
{
    int32_t by_p[STRIP], by_m[STRIP], by_v[STRIP];
    for (int64_t i = 0; i < n; i++) by_p[i] = dp[i];
    for (int64_t i = 0; i < n; i++) by_m[i] = dm[i];
    for (int64_t i = 0; i < n; i++) by_v[i] = dv[i];
    for (int64_t i = 0; i < n; i++) {
        struct values x = estimate(c, r, p[i], m[i], v[i], grad[i] * c->grad_scale);
        p[i] = float_of(in_order(in_order(bits_of(x.p)) + (uint32_t)by_p[i]));
        m[i] = float_of(in_order(in_order(bits_of(x.m)) + (uint32_t)by_m[i]));
        v[i] = float_of(in_order(in_order(bits_of(x.v)) + (uint32_t)by_v[i]));
    }
}

BODY void undo_body(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n,
                    int8_t *const d[3])
{
    const struct ht_adamw_step c = *s;
    const struct reciprocals r = reciprocals_of(&c);
    int64_t i = 0;
    for (; i + STRIP <= n; i += STRIP) {
        fetch_ahead(p + i);
        fetch_ahead(m + i);
        fetch_ahead(v + i);
        fetch_ahead(grad + i);
        undo_strip(&c, r, p + i, m + i, v + i, grad + i, STRIP, d[0] + i, d[1] + i, d[2] + i);
    }
    undo_strip(&c, r, p + i, m + i, v + i, grad + i, n - i, d[0] + i, d[1] + i, d[2] + i);
}

#define PATH(name, attribute)                                                                                          \
    attribute static void reverse_##name(const struct ht_adamw_step *s, float *p, float *m, float *v,                  \
                                         const float *grad, int64_t n)                                                 \
    {                                                                                                                  \
        reverse_body(s, p, m, v, grad, n);                                                                             \
    }                                                                                                                  \
    attribute static int64_t step_##name(const struct ht_adamw_step *s, float *p, float *m, float *v,                  \
                                         const float *grad, int64_t n, struct ht_undo_values *old, int8_t *const d[3]) \
    {                                                                                                                  \
        return step_body(s, p, m, v, grad, n, old, d);                                                                 \
    }                                                                                                                  \
    attribute static void undo_##name(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad,  \
                                      int64_t n, int8_t *const d[3])                                                   \
    {                                                                                                                  \
        undo_body(s, p, m, v, grad, n, d);                                                                             \
    }

PATH(portable, )
#if defined(__x86_64__)
PATH(avx2, __attribute__((target("avx2"))))
PATH(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))))
#endif

#define TABLE(name)                                                                                                    \
    {                                                                                                                  \
        .step = step_##name, .undo = undo_##name, .reverse = reverse_##name                                            \
    }

const struct ht_undo_path *ht_undo_path_at(enum ht_simd_level level)
{
    static const struct ht_undo_path portable = TABLE(portable);
#if defined(__x86_64__)
    static const struct ht_undo_path avx2 = TABLE(avx2);
    static const struct ht_undo_path avx512 = TABLE(avx512);
    bool has_all = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (level == HT_SIMD_AVX512) return has_all ? &avx512 : NULL;
    if (level == HT_SIMD_AVX2) return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
#endif
    return level == HT_SIMD_PORTABLE ? &portable : NULL;
}
