/*
 * Forward and backward passes of whole units on a GPU: common/kernels/unit.h with a stream. Layouts of parameters and
 * activations, meaning of every argument and the rule of rounding are the CPU's, with these differences:
 *
 *   - Buffers are device memory, tokens, targets and *loss_sum too; a call returns before its work has begun.
 *   - The workspace is ht_cuda_unit_workspace_bytes, of a block's sub-ops ht_cuda_block_workspace_bytes, not the CPU's.
 *   - With 16-bit storage ht_cuda_head_forward leaves the logits' gradient in 16 bits (ht_cuda_ops.h).
 *   - A tensor-parallel part exchanges what the CPU's does, at the same places, through args->link, and waits there.
 *   - Matrix products of 16-bit types take 16-bit gradients of parameters only of that same type, or FP32.
 *
 * Tokens outside [0, V) would be read as addresses: the caller must have checked them.
 */
#ifndef HT_CUDA_UNIT_H
#define HT_CUDA_UNIT_H

#include "common/kernels/cuda/ht_cuda.h"
#include "common/kernels/part_link.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ht_cuda_args {
    struct ht_cuda *cuda;
    const struct ht_model *model;
    int64_t batch, seq;              /* B, T; T <= model->max_seq */
    enum ht_dtype dtype;             /* storage of parameters, activations and their gradients */
    enum ht_dtype grad, grad_store;  /* parameter gradients: rounded to, stored as (`grad`, or F32) */
    const struct ht_part_link *link; /* for a model in parts */
};

int64_t ht_cuda_unit_workspace_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq,
                                     enum ht_dtype dtype, bool backward);
int64_t ht_cuda_block_workspace_bytes(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                      enum ht_dtype dtype, bool backward);

void ht_cuda_embedding_forward(const struct ht_cuda_args *args, const void *input, const void *params, void *out,
                               void *workspace);
void ht_cuda_embedding_backward(const struct ht_cuda_args *args, const void *input, const void *dout, void *grad,
                                void *workspace);

void ht_cuda_block_forward(const struct ht_cuda_args *args, unsigned sub_ops, const void *params, const void *x,
                           const struct ht_block_acts *act, void *out, void *workspace);
void ht_cuda_block_backward(const struct ht_cuda_args *args, unsigned sub_ops, const void *params, const void *x,
                            const struct ht_block_acts *act, const void *dout, void *dx, void *grad, void *workspace);

/* *loss_sum: a double in device memory. */
void ht_cuda_head_forward(const struct ht_cuda_args *args, const void *params, const void *wte, const void *x,
                          void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                          void *workspace);
void ht_cuda_head_backward(const struct ht_cuda_args *args, const void *params, const void *wte, const void *x,
                           const void *act, const float *dlogits, void *dx, void *grad, void *dwte, void *workspace);

#ifdef __cplusplus
}
#endif

#endif
