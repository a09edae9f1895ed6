/*
 * The step is bound by memory: 28 bytes for each parameter. It reads four streams at once, which hardware prefetchers
 * can follow, but they stop at page ends; the prefetches half a kilobyte ahead cross them. The 16-bit copy is only
 * written, so on AVX-512 it bypasses the caches in whole lines.
 */
#include "common/kernels/adamw.h"

#include <math.h>
#include <stddef.h>

#include "common/base/half.h"

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

struct ht_adamw_row ht_adamw_slice(const struct ht_adamw_row *row, int64_t begin, int64_t end)
{
    struct ht_adamw_row r = *row;
    r.param += begin;
    r.m += begin;
    r.v += begin;
    r.grad = (const char *)row->grad + begin * ht_dtype_bytes(row->grad_type);
    if (row->copy) r.copy += begin;
    r.n = end - begin;
    return r;
}

/* ---- the definition; the paths below compute the same on vectors ---- */

static inline float update_one(const struct ht_adamw_step *s, float *param, float *m, float *v, float grad)
{
    float g = grad * s->grad_scale;
    float p = *param * s->keep;
    *m = *m + s->one_less_beta1 * (g - *m);
    *v = *v * s->beta2 + s->one_less_beta2 * g * g;
    float denominator = sqrtf(*v) / s->root + s->eps;
    return *param = p - s->step_size * *m / denominator;
}

static inline float grad_at(const struct ht_adamw_row *r, int64_t i)
{
    if (r->grad_type == HT_F32) return ((const float *)r->grad)[i];
    uint16_t h = ((const uint16_t *)r->grad)[i];
    return r->grad_type == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

static void update_from(const struct ht_adamw_step *s, const struct ht_adamw_row *r, int64_t i)
{
    for (; i < r->n; i++) {
        float p = update_one(s, r->param + i, r->m + i, r->v + i, grad_at(r, i));
        if (r->copy) r->copy[i] = r->copy_type == HT_F16 ? ht_f32_to_f16(p) : ht_f32_to_bf16(p);
    }
}

static void update_portable(const struct ht_adamw_step *s, const struct ht_adamw_row *r)
{
    update_from(s, r, 0);
}

#if defined(__x86_64__)

enum { AHEAD = 128 }; /* elements: 512 bytes of FP32 */

/* Prefetches one cache line of elements. Beyond the end the hints do nothing. */
static inline void fetch_ahead(const struct ht_adamw_row *r, int64_t i)
{
    __builtin_prefetch((const void *)((uintptr_t)(r->param + i) + 4 * AHEAD), 1);
    __builtin_prefetch((const void *)((uintptr_t)(r->m + i) + 4 * AHEAD), 1);
    __builtin_prefetch((const void *)((uintptr_t)(r->v + i) + 4 * AHEAD), 1);
}

/* Expands a path's body for each pair of types, so that the `switch` is outside the loops. */
#define FOR_TYPES(body, s, r)                                                                                          \
    do {                                                                                                               \
        bool has_copy = (r)->copy != NULL, half = (r)->copy_type == HT_F16;                                            \
        if ((r)->grad_type == HT_F32) {                                                                                \
            if (!has_copy)                                                                                             \
                body(s, r, HT_F32, HT_F32);                                                                            \
            else if (half)                                                                                             \
                body(s, r, HT_F32, HT_F16);                                                                            \
            else                                                                                                       \
                body(s, r, HT_F32, HT_BF16);                                                                           \
        } else if ((r)->grad_type == HT_F16) {                                                                         \
            if (!has_copy)                                                                                             \
                body(s, r, HT_F16, HT_F32);                                                                            \
            else if (half)                                                                                             \
                body(s, r, HT_F16, HT_F16);                                                                            \
            else                                                                                                       \
                body(s, r, HT_F16, HT_BF16);                                                                           \
        } else {                                                                                                       \
            if (!has_copy)                                                                                             \
                body(s, r, HT_BF16, HT_F32);                                                                           \
            else if (half)                                                                                             \
                body(s, r, HT_BF16, HT_F16);                                                                           \
            else                                                                                                       \
                body(s, r, HT_BF16, HT_BF16);                                                                          \
        }                                                                                                              \
    } while (0)

/* ---- AVX2 ---- */

#define AVX2 static inline __attribute__((always_inline, target("avx2,f16c")))

AVX2 __m256 load_grad8(const struct ht_adamw_row *r, enum ht_dtype type, int64_t i)
{
    if (type == HT_F32) return _mm256_loadu_ps((const float *)r->grad + i);
    __m128i h = _mm_loadu_si128((const __m128i *)((const uint16_t *)r->grad + i));
    if (type == HT_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

AVX2 void store_copy8(uint16_t *to, enum ht_dtype type, __m256 p)
{
    if (type == HT_F16) {
        _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(p, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    __m256i u = _mm256_castps_si256(p), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(p, p, _CMP_UNORD_Q));
    __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i h = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), quiet, nan);
    h = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0x08);
    _mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(h));
}

AVX2 void body_avx2(const struct ht_adamw_step *s, const struct ht_adamw_row *r, enum ht_dtype grad_type,
                    enum ht_dtype copy_type)
{
    const __m256 grad_scale = _mm256_set1_ps(s->grad_scale), keep = _mm256_set1_ps(s->keep);
    const __m256 b1 = _mm256_set1_ps(s->one_less_beta1), eps = _mm256_set1_ps(s->eps);
    const __m256 beta2 = _mm256_set1_ps(s->beta2), b2 = _mm256_set1_ps(s->one_less_beta2);
    const __m256 step_size = _mm256_set1_ps(s->step_size), root = _mm256_set1_ps(s->root);
    int64_t i = 0;
    for (; i + 8 <= r->n; i += 8) {
        if (i % 16 == 0) fetch_ahead(r, i);
        __m256 g = _mm256_mul_ps(load_grad8(r, grad_type, i), grad_scale);
        __m256 p = _mm256_mul_ps(_mm256_loadu_ps(r->param + i), keep);
        __m256 mi = _mm256_loadu_ps(r->m + i), vi = _mm256_loadu_ps(r->v + i);
        mi = _mm256_add_ps(mi, _mm256_mul_ps(b1, _mm256_sub_ps(g, mi)));
        vi = _mm256_add_ps(_mm256_mul_ps(vi, beta2), _mm256_mul_ps(_mm256_mul_ps(b2, g), g));
        __m256 denominator = _mm256_add_ps(_mm256_div_ps(_mm256_sqrt_ps(vi), root), eps);
        p = _mm256_sub_ps(p, _mm256_div_ps(_mm256_mul_ps(step_size, mi), denominator));
        _mm256_storeu_ps(r->param + i, p);
        _mm256_storeu_ps(r->m + i, mi);
        _mm256_storeu_ps(r->v + i, vi);
        if (copy_type != HT_F32) store_copy8(r->copy + i, copy_type, p);
    }
    update_from(s, r, i);
}

__attribute__((target("avx2,f16c"))) static void update_avx2(const struct ht_adamw_step *s,
                                                             const struct ht_adamw_row *r)
{
    FOR_TYPES(body_avx2, s, r);
}

/* ---- AVX-512 ---- */

#define AVX512_TARGET "avx512f,avx512bw,avx512vl"
#define AVX512        static inline __attribute__((always_inline, target(AVX512_TARGET)))

/* Coefficients in registers. */
struct wide {
    __m512 grad_scale, keep, b1, beta2, b2, step_size, root, eps;
};

AVX512 __m512 load_grad16(const struct ht_adamw_row *r, enum ht_dtype type, int64_t i, __mmask16 in)
{
    if (type == HT_F32) return _mm512_maskz_loadu_ps(in, (const float *)r->grad + i);
    __m256i h = _mm256_maskz_loadu_epi16(in, (const uint16_t *)r->grad + i);
    if (type == HT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

AVX512 __m256i round16(__m512 p, enum ht_dtype type)
{
    if (type == HT_F16) return _mm512_cvtps_ph(p, _MM_FROUND_TO_NEAREST_INT);
    __m512i u = _mm512_castps_si512(p), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(p, p, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(up, nan, high, _mm512_set1_epi32(0x40)));
}

/* Steps the elements of `in` from i on. Returns the parameters. */
AVX512 __m512 step16(const struct wide *w, const struct ht_adamw_row *r, enum ht_dtype grad_type, int64_t i,
                     __mmask16 in)
{
    fetch_ahead(r, i);
    __m512 g = _mm512_mul_ps(load_grad16(r, grad_type, i, in), w->grad_scale);
    __m512 p = _mm512_mul_ps(_mm512_maskz_loadu_ps(in, r->param + i), w->keep);
    __m512 mi = _mm512_maskz_loadu_ps(in, r->m + i), vi = _mm512_maskz_loadu_ps(in, r->v + i);
    mi = _mm512_add_ps(mi, _mm512_mul_ps(w->b1, _mm512_sub_ps(g, mi)));
    vi = _mm512_add_ps(_mm512_mul_ps(vi, w->beta2), _mm512_mul_ps(_mm512_mul_ps(w->b2, g), g));
    __m512 denominator = _mm512_add_ps(_mm512_div_ps(_mm512_sqrt_ps(vi), w->root), w->eps);
    p = _mm512_sub_ps(p, _mm512_div_ps(_mm512_mul_ps(w->step_size, mi), denominator));
    _mm512_mask_storeu_ps(r->param + i, in, p);
    _mm512_mask_storeu_ps(r->m + i, in, mi);
    _mm512_mask_storeu_ps(r->v + i, in, vi);
    return p;
}

/* Steps elements [i, end), a vector at a time. */
AVX512 void steps16(const struct wide *w, const struct ht_adamw_row *r, enum ht_dtype grad_type,
                    enum ht_dtype copy_type, int64_t i, int64_t end)
{
    for (; i < end; i += 16) {
        __mmask16 in = end - i >= 16 ? 0xffff : (__mmask16)((1u << (end - i)) - 1);
        __m512 p = step16(w, r, grad_type, i, in);
        if (copy_type != HT_F32) _mm256_mask_storeu_epi16(r->copy + i, in, round16(p, copy_type));
    }
}

/* Steps two vectors, a cache line of 16-bit numbers, from i on. `copy` is aligned to a line there. */
AVX512 void step32(const struct wide *w, const struct ht_adamw_row *r, enum ht_dtype grad_type, enum ht_dtype copy_type,
                   int64_t i)
{
    const char *grad = (const char *)r->grad + i * (grad_type == HT_F32 ? 4 : 2);
    __builtin_prefetch(grad + 4 * AHEAD);
    if (grad_type == HT_F32) __builtin_prefetch(grad + 4 * AHEAD + 64);
    __m512 low = step16(w, r, grad_type, i, 0xffff), high = step16(w, r, grad_type, i + 16, 0xffff);
    if (copy_type == HT_F32) return;
    __m512i both = _mm512_castsi256_si512(round16(low, copy_type));
    _mm512_stream_si512((__m512i *)(r->copy + i), _mm512_inserti64x4(both, round16(high, copy_type), 1));
}

AVX512 void body_avx512(const struct ht_adamw_step *s, const struct ht_adamw_row *r, enum ht_dtype grad_type,
                        enum ht_dtype copy_type)
{
    const struct wide w = {.grad_scale = _mm512_set1_ps(s->grad_scale),
                           .keep = _mm512_set1_ps(s->keep),
                           .b1 = _mm512_set1_ps(s->one_less_beta1),
                           .beta2 = _mm512_set1_ps(s->beta2),
                           .b2 = _mm512_set1_ps(s->one_less_beta2),
                           .step_size = _mm512_set1_ps(s->step_size),
                           .root = _mm512_set1_ps(s->root),
                           .eps = _mm512_set1_ps(s->eps)};
    int64_t i = 0;
    if (copy_type != HT_F32) { /* steps singly until a line of the copy begins */
        i = (int64_t)((64 - (uintptr_t)r->copy % 64) % 64 / 2);
        if (i > r->n) i = r->n;
        steps16(&w, r, grad_type, copy_type, 0, i);
    }
    for (; i + 32 <= r->n; i += 32) step32(&w, r, grad_type, copy_type, i);
    if (copy_type != HT_F32) _mm_sfence();
    steps16(&w, r, grad_type, copy_type, i, r->n);
}

__attribute__((target(AVX512_TARGET))) static void update_avx512(const struct ht_adamw_step *s,
                                                                 const struct ht_adamw_row *r)
{
    FOR_TYPES(body_avx512, s, r);
}

#endif

/* ---- choosing, splitting ---- */

ht_adamw_fn ht_adamw_at(enum ht_simd_level level)
{
#if defined(__x86_64__)
    bool has_512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (level == HT_SIMD_AVX512) return has_512 ? update_avx512 : NULL;
    if (level == HT_SIMD_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") ? update_avx2 : NULL;
#endif
    return level == HT_SIMD_PORTABLE ? update_portable : NULL;
}

struct update {
    const struct ht_adamw_step *step;
    const struct ht_adamw_row *row;
};

static void update_share(void *arg, int worker, int n_workers)
{
    const struct update *u = arg;
    struct ht_range share = ht_range_split(u->row->n, 32, worker, n_workers);
    struct ht_adamw_row row = ht_adamw_slice(u->row, share.begin, share.end);
    ht_adamw_fn update = NULL;
    for (int level = HT_N_SIMD_LEVELS - 1; !update; level--) update = ht_adamw_at((enum ht_simd_level)level);
    update(u->step, &row);
}

void ht_adamw_update_row(struct ht_pool *pool, const struct ht_adamw_step *s, const struct ht_adamw_row *row)
{
    ht_pool_run(pool, update_share, &(struct update){s, row});
}

void ht_adamw_update_pool(struct ht_pool *pool, const struct ht_adamw_step *s, float *param, float *m, float *v,
                          const float *grad, int64_t n)
{
    ht_adamw_update_row(pool, s, &(struct ht_adamw_row){.param = param, .m = m, .v = v, .grad = grad, .n = n});
}

void ht_adamw_update(const struct ht_adamw_step *s, float *param, float *m, float *v, const float *grad, int64_t n)
{
    ht_adamw_update_pool(NULL, s, param, m, v, grad, n);
}
