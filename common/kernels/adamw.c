/*
 * The step is bound by memory: it reads 16 bytes and writes 12 for each parameter. Four streams are read at once, which
 * is within what hardware prefetchers follow, but they stop at page ends; the prefetches half a kilobyte ahead cross
 * them.
 */
#include "common/kernels/adamw.h"

#include <math.h>
#include <stddef.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

struct ht_adamw_step ht_adamw_step(const struct ht_adamw *c, int64_t step, double grad_scale)
{
    return (struct ht_adamw_step){
        .grad_scale = (float)grad_scale,
        .keep = (float)(1 - c->lr * c->weight_decay),
        .one_less_beta1 = (float)(1 - c->beta1),
        .beta2 = (float)c->beta2,
        .one_less_beta2 = (float)(1 - c->beta2),
        .step_size = (float)(c->lr / (1 - pow(c->beta1, (double)step))),
        .root = (float)sqrt(1 - pow(c->beta2, (double)step)),
        .eps = (float)c->eps,
    };
}

/* The definition; the paths below are this, wider. */
static inline void update_one(const struct ht_adamw_step *s, float *param, float *m, float *v, float grad)
{
    float g = grad * s->grad_scale;
    float p = *param * s->keep;
    *m = *m + s->one_less_beta1 * (g - *m);
    *v = *v * s->beta2 + s->one_less_beta2 * g * g;
    float denominator = sqrtf(*v) / s->root + s->eps;
    *param = p - s->step_size * *m / denominator;
}

static void update_portable(const struct ht_adamw_step *s, float *param, float *m, float *v, const float *grad,
                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) update_one(s, param + i, m + i, v + i, grad[i]);
}

#if defined(__x86_64__)

enum { AHEAD = 128 }; /* floats: 512 bytes */

static inline void prefetch(const float *param, const float *m, const float *v, const float *grad)
{
    __builtin_prefetch(param + AHEAD, 1);
    __builtin_prefetch(m + AHEAD, 1);
    __builtin_prefetch(v + AHEAD, 1);
    __builtin_prefetch(grad + AHEAD, 0);
}

__attribute__((target("avx2"))) static void update_avx2(const struct ht_adamw_step *s, float *param, float *m, float *v,
                                                        const float *grad, int64_t n)
{
    const __m256 grad_scale = _mm256_set1_ps(s->grad_scale), keep = _mm256_set1_ps(s->keep);
    const __m256 b1 = _mm256_set1_ps(s->one_less_beta1), eps = _mm256_set1_ps(s->eps);
    const __m256 beta2 = _mm256_set1_ps(s->beta2), b2 = _mm256_set1_ps(s->one_less_beta2);
    const __m256 step_size = _mm256_set1_ps(s->step_size), root = _mm256_set1_ps(s->root);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        if (i % 16 == 0 && i + AHEAD < n) prefetch(param + i, m + i, v + i, grad + i);
        __m256 g = _mm256_mul_ps(_mm256_loadu_ps(grad + i), grad_scale);
        __m256 p = _mm256_mul_ps(_mm256_loadu_ps(param + i), keep);
        __m256 mi = _mm256_loadu_ps(m + i), vi = _mm256_loadu_ps(v + i);
        mi = _mm256_add_ps(mi, _mm256_mul_ps(b1, _mm256_sub_ps(g, mi)));
        vi = _mm256_add_ps(_mm256_mul_ps(vi, beta2), _mm256_mul_ps(_mm256_mul_ps(b2, g), g));
        __m256 denominator = _mm256_add_ps(_mm256_div_ps(_mm256_sqrt_ps(vi), root), eps);
        p = _mm256_sub_ps(p, _mm256_div_ps(_mm256_mul_ps(step_size, mi), denominator));
        _mm256_storeu_ps(param + i, p);
        _mm256_storeu_ps(m + i, mi);
        _mm256_storeu_ps(v + i, vi);
    }
    update_portable(s, param + i, m + i, v + i, grad + i, n - i);
}

__attribute__((target("avx512f"))) static void update_avx512(const struct ht_adamw_step *s, float *param, float *m,
                                                             float *v, const float *grad, int64_t n)
{
    const __m512 grad_scale = _mm512_set1_ps(s->grad_scale), keep = _mm512_set1_ps(s->keep);
    const __m512 b1 = _mm512_set1_ps(s->one_less_beta1), eps = _mm512_set1_ps(s->eps);
    const __m512 beta2 = _mm512_set1_ps(s->beta2), b2 = _mm512_set1_ps(s->one_less_beta2);
    const __m512 step_size = _mm512_set1_ps(s->step_size), root = _mm512_set1_ps(s->root);
    for (int64_t i = 0; i < n; i += 16) {
        if (i + AHEAD < n) prefetch(param + i, m + i, v + i, grad + i);
        __mmask16 in = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        __m512 g = _mm512_mul_ps(_mm512_maskz_loadu_ps(in, grad + i), grad_scale);
        __m512 p = _mm512_mul_ps(_mm512_maskz_loadu_ps(in, param + i), keep);
        __m512 mi = _mm512_maskz_loadu_ps(in, m + i), vi = _mm512_maskz_loadu_ps(in, v + i);
        mi = _mm512_add_ps(mi, _mm512_mul_ps(b1, _mm512_sub_ps(g, mi)));
        vi = _mm512_add_ps(_mm512_mul_ps(vi, beta2), _mm512_mul_ps(_mm512_mul_ps(b2, g), g));
        __m512 denominator = _mm512_add_ps(_mm512_div_ps(_mm512_sqrt_ps(vi), root), eps);
        p = _mm512_sub_ps(p, _mm512_div_ps(_mm512_mul_ps(step_size, mi), denominator));
        _mm512_mask_storeu_ps(param + i, in, p);
        _mm512_mask_storeu_ps(m + i, in, mi);
        _mm512_mask_storeu_ps(v + i, in, vi);
    }
}

#endif

ht_adamw_fn ht_adamw_at(enum ht_simd_level level)
{
#if defined(__x86_64__)
    if (level == HT_SIMD_AVX512) return __builtin_cpu_supports("avx512f") ? update_avx512 : NULL;
    if (level == HT_SIMD_AVX2) return __builtin_cpu_supports("avx2") ? update_avx2 : NULL;
#endif
    return level == HT_SIMD_PORTABLE ? update_portable : NULL;
}

void ht_adamw_update(const struct ht_adamw_step *s, float *param, float *m, float *v, const float *grad, int64_t n)
{
    ht_adamw_fn update = NULL;
    for (int level = HT_N_SIMD_LEVELS - 1; !update; level--) update = ht_adamw_at((enum ht_simd_level)level);
    update(s, param, m, v, grad, n);
}

struct update {
    const struct ht_adamw_step *step;
    float *param, *m, *v;
    const float *grad;
    int64_t n;
};

static void update_share(void *arg, int worker, int n_workers)
{
    const struct update *u = arg;
    struct ht_range r = ht_range_split(u->n, 16, worker, n_workers);
    int64_t i = r.begin;
    ht_adamw_update(u->step, u->param + i, u->m + i, u->v + i, u->grad + i, r.end - i);
}

void ht_adamw_update_pool(struct ht_pool *pool, const struct ht_adamw_step *s, float *param, float *m, float *v,
                          const float *grad, int64_t n)
{
    ht_pool_run(pool, update_share, &(struct update){s, param, m, v, grad, n});
}
