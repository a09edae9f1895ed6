/* Common parts of blocks and heads: linear layers, and layouts of workspaces. Internal to common/kernels/cuda. */
#ifndef HT_CUDA_UNIT_CUH
#define HT_CUDA_UNIT_CUH

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_attention.h"
#include "common/kernels/cuda/ht_cuda_gemm.h"
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "common/kernels/cuda/ht_cuda_unit.h"

/* Offsets of a workspace's parts, in bytes and multiples of 256. */
struct ht_cuda_workspace {
    int64_t wide, narrow, attention; /* backward: as in struct ht_workspace_layout */
    int64_t scratch;                 /* of attention */
    int64_t columns;                 /* backward: of sums over rows, and of attention's turns */
    int64_t row_loss;                /* head forward: (B,T) double; classifier: (B) */
    int64_t pooled, first;           /* classifier backward: gradients of the pooler and of the first rows (B,C) */
    int64_t patches;                 /* ViT's embedding: (B,T,P) */
    int64_t positions;               /* its backward: sums over sequences (T,C), FP32 */
    int64_t part_rows;               /* head forward of a part: as in struct ht_workspace_layout */
    int64_t rows, own;               /* parts that cut rows: (B,T,C); backward: the part's rows of a sum */
    int64_t bytes;
};
void ht_cuda_workspace_of(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype dtype,
                          bool backward, struct ht_cuda_workspace *out);
/* Lays out the workspace of a block's pass over some sub-ops, as ht_block_workspace does. */
void ht_cuda_block_workspace_of(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                enum ht_dtype dtype, bool backward, struct ht_cuda_workspace *out);

/* A linear layer, y = x W^T + b. */
struct ht_cuda_linear {
    const void *weight, *bias; /* (out, in); (out) or NULL */
    int64_t in, out;
};

/* Computes y (B T, out) = x W^T + b + residual (NULL: none). */
void ht_cuda_linear_forward(const struct ht_cuda_args *args, const struct ht_cuda_linear *l, const void *x,
                            const void *residual, void *y);
/* Computes dx = dy W + residual (NULL: none); dy's rows are dy_stride apart, dx's and the residual's dx_stride. */
void ht_cuda_linear_backward(const struct ht_cuda_args *args, const struct ht_cuda_linear *l, const void *dy,
                             int64_t dy_stride, const void *residual, void *dx, int64_t dx_stride);
/* Computes dweight (out, in) = dy^T x and dbias (out) = sum of dy's rows, unless NULL; with dbias the rows of dy are
   contiguous. */
void ht_cuda_linear_grad(const struct ht_cuda_args *args, const struct ht_cuda_linear *l, const void *x, const void *dy,
                         int64_t dy_stride, void *dweight, void *dbias, float *scratch);

/* The head of a model that classifies sequences (classifier.cu); arguments as ht_cuda_head_forward and _backward have. */
void ht_cuda_classifier_forward(const struct ht_cuda_args *args, const void *params, const void *x, void *act,
                                float *logits, const int32_t *targets, float scale, double *loss_sum, void *workspace);
void ht_cuda_classifier_backward(const struct ht_cuda_args *args, const void *params, const void *act,
                                 const float *dlogits, void *dx, void *grad, void *workspace);

/* ViT's embedding (patches.cu); arguments as ht_cuda_embedding_forward and _backward have. */
void ht_cuda_patches_forward(const struct ht_cuda_args *args, const unsigned char *images, const void *params,
                             void *out, void *workspace);
void ht_cuda_patches_backward(const struct ht_cuda_args *args, const unsigned char *images, const void *dout,
                              void *grad, void *workspace);

/*
 * Exchanges between parts (parts.cu), as common/kernels/part_sum.h has them. All but ht_cuda_add_rows wait for the
 * stream. They do nothing after a failure.
 */
void ht_cuda_sum_parts(const struct ht_cuda_args *args, void *data); /* nothing for a whole model */
void ht_cuda_gather_rows(const struct ht_cuda_args *args, const void *mine, void *all);
void ht_cuda_scatter_rows(const struct ht_cuda_args *args, const void *all, void *mine);
/* Adds the part's own rows of a term, in place. */
void ht_cuda_add_rows(const struct ht_cuda_args *args, void *to, const void *term);
void ht_cuda_sum_norm_grads(const struct ht_cuda_args *args, void *weight, void *bias);
/* Returns the number of rows that the part has, of B T. */
static inline int64_t ht_cuda_own_rows(const struct ht_cuda_args *args)
{
    return ht_model_rows(args->model, args->batch * args->seq);
}
/* Returns the first of them; 0 for a part that has all rows. */
static inline int64_t ht_cuda_first_row(const struct ht_cuda_args *args)
{
    return ht_model_cuts_rows(args->model) ? args->model->part * ht_cuda_own_rows(args) : 0;
}

/* Returns true when the types are supported together; otherwise false, and records an error. */
bool ht_cuda_types_fit(const struct ht_cuda_args *args);

#endif
