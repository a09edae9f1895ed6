#include "common/kernels/part_sum.h"

void ht_sum_parts(const struct ht_unit_args *args, void *data)
{
    int64_t n = args->batch * args->seq * args->model->width;
    if (ht_model_parts(args->model) > 1 && data) args->link->sum(args->link->ctx, data, args->dtype, n);
}

struct both {
    ht_pool_fn first, second;
    void *arg;
};

static void run_both(void *arg, int worker, int n_workers)
{
    const struct both *b = arg;
    b->first(b->arg, worker, n_workers);
    b->second(b->arg, worker, n_workers);
}

void ht_run_rows(const struct ht_unit_args *args, void *arg, ht_pool_fn first, void *made, ht_pool_fn second)
{
    if (ht_model_parts(args->model) == 1) {
        ht_pool_run(args->pool, run_both, &(struct both){first, second, arg});
        return;
    }
    ht_pool_run(args->pool, first, arg);
    ht_sum_parts(args, made);
    ht_pool_run(args->pool, second, arg);
}
