#include "common/kernels/grad_check.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/kernels/convert.h"

enum { LANES = 16, BLOCK = 1024 };

/* Sums and maxima of elements i, i + LANES, i + 2 LANES ... of a part. */
struct lanes {
    double sums[LANES];
    uint32_t most[LANES]; /* largest square as AdamW forms it, as bits. Squares are not negative, so their bits are in
                             order, and infinity and NaN (of either sign) come last. If the square is finite, so are g
                             and g scaled. */
};
static const uint32_t infinite = 0x7f800000u;

typedef void (*check_fn)(const void *x, enum ht_dtype type, int64_t n, float scale, float factor, struct lanes *l);

struct job {
    check_fn grad_check;
    const void *grad;
    enum ht_dtype type;
    int64_t n;
    float scale, factor;
    int n_parts;
    bool bad[HT_GRAD_PARTS];
    double squares[HT_GRAD_PARTS];
};

static inline __attribute__((always_inline)) void check_one(float x, float scale, float factor, double *sum,
                                                            uint32_t *most)
{
    float g = x * scale, square = factor * g * g;
    uint32_t bits;
    memcpy(&bits, &square, sizeof(bits));
    *most = bits > *most ? bits : *most;
    *sum += (double)x * (double)x;
}

/* Checks n floats, of which the first belongs to lane 0. */
static inline __attribute__((always_inline)) void check_floats(const float *restrict x, int64_t n, float scale,
                                                               float factor, struct lanes *restrict l)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) check_one(x[i + lane], scale, factor, &l->sums[lane], &l->most[lane]);
    for (int lane = 0; i + lane < n; lane++) check_one(x[i + lane], scale, factor, &l->sums[lane], &l->most[lane]);
}

static inline __attribute__((always_inline)) void check_blocks(const void *x, enum ht_dtype type, int64_t n,
                                                               float scale, float factor, struct lanes *l)
{
    float wide[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t block = n - i < BLOCK ? n - i : BLOCK;
        const void *from = ht_element(x, type, i);
        if (type != HT_F32) ht_widen_copy(NULL, from, type, wide, block);
        check_floats(type == HT_F32 ? from : wide, block, scale, factor, l);
    }
}

static void check_portable(const void *x, enum ht_dtype type, int64_t n, float scale, float factor, struct lanes *l)
{
    check_blocks(x, type, n, scale, factor, l);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) static void check_avx2(const void *x, enum ht_dtype type, int64_t n, float scale,
                                                       float factor, struct lanes *l)
{
    check_blocks(x, type, n, scale, factor, l);
}

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

static inline AVX512 __attribute__((always_inline)) __m512 load16(const void *x, enum ht_dtype type, int64_t i)
{
    const char *from = (const char *)x + i * (type == HT_F32 ? 4 : 2);
    __builtin_prefetch(from + 1024);
    if (type == HT_F32) return _mm512_loadu_ps(from);
    __m256i h = _mm256_loadu_si256((const __m256i *)from);
    if (type == HT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Checks with all lanes in registers. Returns how many elements it checked: a multiple of LANES. */
static inline AVX512 __attribute__((always_inline)) int64_t check_wide(const void *x, enum ht_dtype type, int64_t n,
                                                                       float scale, float factor, struct lanes *l)
{
    const __m512 s = _mm512_set1_ps(scale), f = _mm512_set1_ps(factor);
    __m512d low = _mm512_loadu_pd(l->sums), high = _mm512_loadu_pd(l->sums + 8);
    __m512i most = _mm512_loadu_si512(l->most);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m512 v = load16(x, type, i), g = _mm512_mul_ps(v, s);
        most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_mul_ps(_mm512_mul_ps(f, g), g)));
        __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v)), b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
        low = _mm512_fmadd_pd(a, a, low); /* exact: a float's square fits a double */
        high = _mm512_fmadd_pd(b, b, high);
    }
    _mm512_storeu_pd(l->sums, low);
    _mm512_storeu_pd(l->sums + 8, high);
    _mm512_storeu_si512(l->most, most);
    return i;
}

AVX512 static void check_avx512(const void *x, enum ht_dtype type, int64_t n, float scale, float factor,
                                struct lanes *l)
{
    int64_t done = type == HT_F32   ? check_wide(x, HT_F32, n, scale, factor, l)
                   : type == HT_F16 ? check_wide(x, HT_F16, n, scale, factor, l)
                                    : check_wide(x, HT_BF16, n, scale, factor, l);
    check_blocks(ht_element(x, type, done), type, n - done, scale, factor, l);
}

#endif

static check_fn check_at(enum ht_simd_level level)
{
#if defined(__x86_64__)
    if (level == HT_SIMD_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                   ? check_avx512
                   : NULL;
    if (level == HT_SIMD_AVX2) return __builtin_cpu_supports("avx2") ? check_avx2 : NULL;
#endif
    return level == HT_SIMD_PORTABLE ? check_portable : NULL;
}

static void check_part(struct job *j, int part)
{
    struct ht_range r = ht_range_split(j->n, LANES, part, j->n_parts);
    struct lanes l = {0};
    j->grad_check(ht_element(j->grad, j->type, r.begin), j->type, r.end - r.begin, j->scale, j->factor, &l);
    j->bad[part] = false;
    for (int lane = 0; lane < LANES; lane++) j->bad[part] |= l.most[lane] >= infinite;
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) l.sums[lane] += l.sums[lane + half];
    j->squares[part] = l.sums[0];
}

static void check_share(void *arg, int worker, int n_workers)
{
    struct job *j = arg;
    struct ht_range r = ht_range_split(j->n_parts, 1, worker, n_workers);
    for (int64_t part = r.begin; part < r.end; part++) check_part(j, (int)part);
}

struct ht_grad_partial ht_grad_check_at(enum ht_simd_level level, struct ht_pool *pool,
                                        const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                                        int64_t n)
{
    struct job j = {.grad_check = check_at(level),
                    .grad = grad,
                    .type = type,
                    .n = n,
                    .scale = step->grad_scale,
                    .factor = step->one_less_beta2,
                    .n_parts = ht_grad_parts(n)};
    struct ht_grad_partial p = {.fits = true};
    if (!j.grad_check) return (struct ht_grad_partial){0};
    ht_pool_run(pool, check_share, &j);
    for (int part = 0; part < j.n_parts; part++) {
        p.fits &= !j.bad[part];
        p.squares += j.squares[part];
    }
    return p;
}

struct ht_grad_partial ht_grad_check(struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                                     enum ht_dtype type, int64_t n)
{
    enum ht_simd_level level = HT_SIMD_AVX512;
    while (!check_at(level)) level--;
    return ht_grad_check_at(level, pool, step, grad, type, n);
}
