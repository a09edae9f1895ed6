#include "common/kernels/grad_sum.h"

#include "common/kernels/convert.h"
#include "common/kernels/simd.h"

enum { GRAIN = 32, BLOCK = 1024 };

struct sum {
    void *sum;
    const void *add;
    enum ht_dtype sum_type, add_type;
    int64_t n;
};

/* Adds at most BLOCK elements; converts 16-bit ones to FP32 first. */
static void sum_block(const struct sum *s, int64_t at, int64_t n)
{
    const struct ht_simd *simd = ht_simd();
    void *to = ht_element(s->sum, s->sum_type, at);
    const void *from = ht_element(s->add, s->add_type, at);
    float wide_sum[BLOCK], wide_add[BLOCK];
    float *x = s->sum_type == HT_F32 ? to : wide_sum;
    const float *y = s->add_type == HT_F32 ? from : wide_add;
    if (x == wide_sum) simd->widen(to, s->sum_type, wide_sum, n);
    if (y == wide_add) simd->widen(from, s->add_type, wide_add, n);
    simd->add(x, y, x, n);
    if (x == wide_sum) simd->narrow(wide_sum, s->sum_type, to, n);
}

static void sum_share(void *arg, int worker, int n_workers)
{
    const struct sum *s = arg;
    struct ht_range r = ht_range_split(s->n, GRAIN, worker, n_workers);
    for (int64_t i = r.begin; i < r.end; i += BLOCK) sum_block(s, i, r.end - i < BLOCK ? r.end - i : BLOCK);
}

void ht_grad_sum(struct ht_pool *pool, void *sum, enum ht_dtype sum_type, const void *add, enum ht_dtype add_type,
                 int64_t n)
{
    ht_pool_run(pool, sum_share, &(struct sum){sum, add, sum_type, add_type, n});
}
