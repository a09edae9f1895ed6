#include "common/kernels/part_sum.h"

#include "common/kernels/convert.h"

void ht_sum_parts(const struct ht_unit_args *args, void *data)
{
    int64_t n = args->batch * args->seq * args->model->width;
    if (ht_model_parts(args->model) > 1 && data) args->link->sum(args->link->ctx, data, args->dtype, n);
}

struct ht_range ht_own_rows(const struct ht_unit_args *args)
{
    int64_t n = ht_model_rows(args->model, args->batch * args->seq);
    return (struct ht_range){args->model->part * n, (args->model->part + 1) * n};
}

void ht_gather_rows(const struct ht_unit_args *args, const void *mine, void *all)
{
    int64_t n = ht_model_rows(args->model, args->batch * args->seq) * args->model->width;
    args->link->gather(args->link->ctx, mine, all, args->dtype, n);
}

void ht_scatter_rows(const struct ht_unit_args *args, const void *all, void *mine)
{
    int64_t n = ht_model_rows(args->model, args->batch * args->seq) * args->model->width;
    args->link->scatter(args->link->ctx, all, mine, args->dtype, n);
}

struct addition {
    const struct ht_simd *simd;
    void *to;
    const void *term;
    int64_t rows, width;
};

static void add(void *arg, int worker, int n_workers)
{
    const struct addition *a = arg;
    struct ht_range r = ht_range_split(a->rows, HT_ROW_GRAIN, worker, n_workers);
    void *to = ht_element(a->to, a->simd->stored, r.begin * a->width);
    a->simd->add(to, ht_element(a->term, a->simd->stored, r.begin * a->width), to, (r.end - r.begin) * a->width);
}

void ht_add_rows(const struct ht_unit_args *args, void *to, const void *term, int64_t rows)
{
    ht_pool_run(args->pool, add, &(struct addition){ht_simd_for(args->dtype), to, term, rows, args->model->width});
}

void ht_sum_norm_grads(const struct ht_unit_args *args, void *weight, void *bias)
{
    args->link->sum(args->link->ctx, weight, args->grad_store, args->model->width);
    if (bias) args->link->sum(args->link->ctx, bias, args->grad_store, args->model->width);
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
