#include "common/kernels/grad_check.h"

#include <stdatomic.h>
#include <string.h>

struct scan {
    const float *x;
    int64_t n;
    float scale, factor; /* looked at: (factor (scale x)) (scale x), if squared */
    bool squared;
    atomic_bool bad;
};

/* All ones in the exponent: infinite or NaN. */
static inline uint32_t not_finite(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (bits & 0x7f800000u) == 0x7f800000u;
}

static void scan_share(void *arg, int worker, int n_workers)
{
    struct scan *s = arg;
    struct ht_range r = ht_range_split(s->n, 16, worker, n_workers);
    uint32_t any = 0;
    float scale = s->scale, factor = s->factor;
    if (s->squared)
        for (int64_t i = r.begin; i < r.end; i++) {
            float g = s->x[i] * scale;
            any |= not_finite(s->x[i]) | not_finite(g) | not_finite(factor * g * g);
        }
    else
        for (int64_t i = r.begin; i < r.end; i++) any |= not_finite(s->x[i]);
    if (any) atomic_store_explicit(&s->bad, true, memory_order_relaxed);
}

bool ht_adamw_grads_fit(struct ht_pool *pool, const struct ht_adamw_step *step, const float *grad, int64_t n)
{
    struct scan s = {.x = grad, .n = n, .scale = step->grad_scale, .factor = step->one_less_beta2, .squared = true};
    ht_pool_run(pool, scan_share, &s);
    return !s.bad;
}

bool ht_all_finite(struct ht_pool *pool, const float *x, int64_t n)
{
    struct scan s = {.x = x, .n = n};
    ht_pool_run(pool, scan_share, &s);
    return !s.bad;
}
