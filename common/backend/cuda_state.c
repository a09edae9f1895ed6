/* Functions that all files of the CUDA backend use: errors, a lane's stream and context. */
#include "common/backend/cuda_state.h"

#include "common/base/array.h"

#include <stdio.h>
#include <string.h>

enum ht_status ht_cuda_failed(const char *text, const char *what, struct ht_error *err)
{
    return text ? ht_fail(err, HT_FAILED, "cuda: %s: %s", what, text) : HT_OK;
}

enum ht_status ht_cuda_failed_op(const struct ht_cuda_device *d, int32_t op, const char *text, struct ht_error *err)
{
    char label[64];
    return text ? ht_fail(err, HT_FAILED, "cuda: schedule '%s': op %d (%s): %s", d->s->name, op,
                          ht_op_label(d->s, op, label, sizeof(label)), text)
                : HT_OK;
}

enum ht_status ht_cuda_infeasible(enum ht_status status, struct ht_error *err)
{
    static const char *const lacks[] = {"cudaErrorMemoryAllocation",
                                        "cudaErrorNoKernelImageForDevice",
                                        "cudaErrorUnsupportedPtxVersion",
                                        "cudaErrorInvalidDeviceFunction",
                                        "cudaErrorInsufficientDriver",
                                        "cudaErrorNoDevice",
                                        "cudaErrorInvalidDevice",
                                        "cuBLASLt is not here",
                                        "HT_CUBLASLT: "};
    for (size_t i = 0; i < HT_COUNT(lacks) && status == HT_FAILED; i++)
        if (err && strstr(err->text, lacks[i])) status = err->status = HT_INFEASIBLE;
    return status;
}

enum ht_status ht_cuda_lane_open(struct ht_cuda_device *d, struct ht_cuda_lane *l, void *products, struct ht_error *err)
{
    enum ht_status status = ht_cuda_failed(d->api->stream_create(&l->stream), "a stream", err);
    if (status == HT_OK)
        status = ht_cuda_failed(d->api->context_create(l->stream, products, &l->context), "the kernels' context", err);
    return status;
}

/* Adds a shape's products to those of the lanes before. */
static void add_slow(void *ctx, const char *shape, int64_t products)
{
    struct ht_cuda_device *d = ctx;
    struct ht_cuda_slow_shape found = {.products = products};
    snprintf(found.text, sizeof(found.text), "%s", shape);
    for (size_t i = 0; i < d->n_slow; i++) {
        if (strcmp(d->slow[i].text, found.text) != 0) continue;
        d->slow[i].products += products;
        return;
    }
    HT_PUSH(d->slow, d->n_slow, d->slow_cap, found);
}

void ht_cuda_lane_close(struct ht_cuda_device *d, struct ht_cuda_lane *l)
{
    if (l->context && d->api->each_slow_shape) d->api->each_slow_shape(l->context, add_slow, d);
    if (l->context) d->api->context_destroy(l->context);
    if (l->stream) (void)d->api->stream_destroy(l->stream);
    *l = (struct ht_cuda_lane){0};
}
