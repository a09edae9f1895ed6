#include "common/kernels/convert.h"

#include "common/kernels/simd.h"

struct convert {
    const void *from;
    void *to;
    enum ht_dtype type;
    int64_t n;
};

enum { GRAIN = 32 }; /* elements; a cache line in 16 bit holds as many */

static void round_share(void *arg, int worker, int n_workers)
{
    const struct convert *c = arg;
    struct ht_range r = ht_range_split(c->n, GRAIN, worker, n_workers);
    ht_simd()->narrow((const float *)c->from + r.begin, c->type, ht_element(c->to, c->type, r.begin), r.end - r.begin);
}

static void widen_share(void *arg, int worker, int n_workers)
{
    const struct convert *c = arg;
    struct ht_range r = ht_range_split(c->n, GRAIN, worker, n_workers);
    ht_simd()->widen(ht_element(c->from, c->type, r.begin), c->type, (float *)c->to + r.begin, r.end - r.begin);
}

void ht_round_copy(struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n)
{
    ht_pool_run(pool, round_share, &(struct convert){from, to, type, n});
}

void ht_widen_copy(struct ht_pool *pool, const void *from, enum ht_dtype type, float *to, int64_t n)
{
    ht_pool_run(pool, widen_share, &(struct convert){from, to, type, n});
}
