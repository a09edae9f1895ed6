#include "common/kernels/grad_check.h"

#include <string.h>

#include "common/kernels/convert.h"

enum { PARTS = 64, LANES = 16, BLOCK = 1024 };

struct job {
    const void *grad;
    enum ht_dtype type;
    int64_t n;
    float scale, factor;
    uint32_t bad[PARTS];
    double squares[PARTS];
};

/* All ones in the exponent: infinite or NaN. */
static inline __attribute__((always_inline)) uint32_t not_finite(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (bits & 0x7f800000u) == 0x7f800000u;
}

/* Adds element i's square to lane i % LANES. */
static inline __attribute__((always_inline)) void
block_body(const float *restrict x, int64_t n, float scale, float factor, double *restrict sums, uint32_t *restrict bad)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            float g = x[i + lane] * scale;
            bad[lane] |= not_finite(x[i + lane]) | not_finite(g) | not_finite(factor * g * g);
            sums[lane] += (double)x[i + lane] * (double)x[i + lane];
        }
    for (int lane = 0; i + lane < n; lane++) {
        float g = x[i + lane] * scale;
        bad[lane] |= not_finite(x[i + lane]) | not_finite(g) | not_finite(factor * g * g);
        sums[lane] += (double)x[i + lane] * (double)x[i + lane];
    }
}

typedef void (*block_fn)(const float *x, int64_t n, float scale, float factor, double *sums, uint32_t *bad);

#define PATH(name, attribute)                                                                                          \
    attribute static void block_##name(const float *x, int64_t n, float scale, float factor, double *sums,             \
                                       uint32_t *bad)                                                                  \
    {                                                                                                                  \
        block_body(x, n, scale, factor, sums, bad);                                                                    \
    }
PATH(portable, )
#if defined(__x86_64__)
PATH(avx2, __attribute__((target("avx2"))))
PATH(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"))))
#endif

static block_fn best_block(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return block_avx512;
    if (__builtin_cpu_supports("avx2")) return block_avx2;
#endif
    return block_portable;
}

static void judge_part(struct job *j, block_fn block, int part)
{
    struct ht_range r = ht_range_split(j->n, LANES, part, PARTS);
    double sums[LANES] = {0};
    uint32_t bad[LANES] = {0}, any = 0;
    float wide[BLOCK];
    for (int64_t i = r.begin; i < r.end; i += BLOCK) {
        int64_t n = r.end - i < BLOCK ? r.end - i : BLOCK;
        const void *from = ht_element(j->grad, j->type, i);
        if (j->type != HT_F32) ht_widen_copy(NULL, from, j->type, wide, n);
        block(j->type == HT_F32 ? from : wide, n, j->scale, j->factor, sums, bad);
    }
    for (int lane = 0; lane < LANES; lane++) any |= bad[lane];
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
    j->bad[part] = any;
    j->squares[part] = sums[0];
}

static void judge_share(void *arg, int worker, int n_workers)
{
    struct job *j = arg;
    struct ht_range r = ht_range_split(PARTS, 1, worker, n_workers);
    for (int64_t part = r.begin; part < r.end; part++) judge_part(j, best_block(), (int)part);
}

struct ht_grad_partial ht_grad_judge(struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                                     enum ht_dtype type, int64_t n)
{
    struct job j = {.grad = grad, .type = type, .n = n, .scale = step->grad_scale, .factor = step->one_less_beta2};
    ht_pool_run(pool, judge_share, &j);
    struct ht_grad_partial p = {.fits = true};
    for (int part = 0; part < PARTS; part++) {
        p.fits &= !j.bad[part];
        p.squares += j.squares[part];
    }
    return p;
}
