/* Exchanges inside the passes of a tensor-parallel part. */
#include "common/kernels/cuda/unit.cuh"

static bool is_part(const struct ht_cuda_args *args)
{
    return ht_model_parts(args->model) > 1 && args->cuda->error.status == HT_OK;
}

/* Returns the elements of the part's own rows. */
static int64_t own_elements(const struct ht_cuda_args *args)
{
    return ht_cuda_own_rows(args) * args->model->width;
}

void ht_cuda_sum_parts(const struct ht_cuda_args *args, void *data)
{
    if (is_part(args))
        args->link->sum(args->link->ctx, data, args->dtype, args->batch * args->seq * args->model->width);
}

void ht_cuda_gather_rows(const struct ht_cuda_args *args, const void *mine, void *all)
{
    if (is_part(args)) args->link->gather(args->link->ctx, mine, all, args->dtype, own_elements(args));
}

void ht_cuda_scatter_rows(const struct ht_cuda_args *args, const void *all, void *mine)
{
    if (is_part(args)) args->link->scatter(args->link->ctx, all, mine, args->dtype, own_elements(args));
}

void ht_cuda_add_rows(const struct ht_cuda_args *args, void *to, const void *term)
{
    ht_cuda_accumulate(args->cuda, args->dtype, to, args->dtype, term, own_elements(args));
}

void ht_cuda_sum_norm_grads(const struct ht_cuda_args *args, void *weight, void *bias)
{
    if (!is_part(args)) return;
    args->link->sum(args->link->ctx, weight, args->grad_store, args->model->width);
    if (bias) args->link->sum(args->link->ctx, bias, args->grad_store, args->model->width);
}
