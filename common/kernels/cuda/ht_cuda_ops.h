/*
 * Building blocks of units (ht_cuda_unit.h), a launch or two each. `dtype` is the storage of activations and
 * parameters; statistics, log-sum-exp and logits are FP32. Rows are tokens, B T of them. Every output is written in
 * full and its old contents are never read, unless a comment says otherwise. common/kernels/simd.h has the CPU's
 * definitions.
 */
#ifndef HT_CUDA_OPS_H
#define HT_CUDA_OPS_H

#include "common/kernels/cuda/ht_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- norms (rows.cu). LayerNorm with a bias, RMSNorm without ---- */

struct ht_cuda_norm {
    enum ht_dtype dtype;
    int64_t n_rows, width;
    const void *weight, *bias; /* (width); bias NULL: RMSNorm */
    float eps;                 /* RMSNorm's; LayerNorm's is 1e-5 */
};

/* Computes y (n_rows, width). stats, FP32: (n_rows) means, then (n_rows) 1/std; RMSNorm: (n_rows) 1/rms. */
void ht_cuda_norm_forward(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, void *y, float *stats);
/* Gradients of a norm's weight and bias (width), the latter NULL for RMSNorm, rounded to `grad` and stored as `store`.
   scratch: ht_cuda_norm_scratch_bytes(width). */
struct ht_cuda_norm_grad {
    enum ht_dtype grad, store;
    void *weight, *bias;
    float *scratch;
};
int64_t ht_cuda_norm_scratch_bytes(int64_t width);
/* Computes dx = residual + gradient of x, and the gradients g. residual: NULL (0) or (n_rows, width), may be dx. dx is
   neither x nor dy. The rows are cut into chunks by their number alone; a chunk's rows are summed in their order, and
   the chunks in a fixed one. */
void ht_cuda_norm_backward(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, const void *dy,
                           const float *stats, const void *residual, void *dx, const struct ht_cuda_norm_grad *g);

/* Returns the scratch bytes of sums over rows. */
int64_t ht_cuda_column_scratch_bytes(int64_t width);
/* Computes out[c] = sum over rows of x[r,c]: a bias's gradient, summed as those of norms are. scratch:
   ht_cuda_column_scratch_bytes(width). */
void ht_cuda_column_sum(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, int64_t n_rows, int64_t width,
                        enum ht_dtype grad, enum ht_dtype store, void *out, float *scratch);

/* ---- element by element (pointwise.cu) ---- */

void ht_cuda_gelu(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *y, int64_t n);
/* Computes the gradient. d: of the output in, of the input out. */
void ht_cuda_gelu_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *d, int64_t n);
/* Computes y (n_rows, F) = silu(gate) up. x (n_rows, 2 F): gate and up side by side. */
void ht_cuda_swiglu(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *y, int64_t n_rows, int64_t F);
/* Computes the gradient. d (n_rows, 2 F): of y in its right half in, of gate and up out. */
void ht_cuda_swiglu_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *d, int64_t n_rows,
                             int64_t F);
/* Rotates the first `heads` heads of each row of x (B T, stride) in place (common/kernels/rotary.h); back: by the
   opposite angles. Sine and cosine are computed in double. */
void ht_cuda_rotate(struct ht_cuda *cuda, enum ht_dtype dtype, void *x, int64_t batch, int64_t seq, int64_t heads,
                    int64_t head_size, int64_t stride, double theta, bool back);
/* Computes to[i] = from[i] rounded to `to_type`; the two are the same array, of the same type, or do not overlap. */
void ht_cuda_convert(struct ht_cuda *cuda, enum ht_dtype from_type, const void *from, enum ht_dtype to_type, void *to,
                     int64_t n);
/* Rounds FP32 values to those that `grad` can hold, in place. */
void ht_cuda_round(struct ht_cuda *cuda, enum ht_dtype grad, float *x, int64_t n);
/* Computes acc[i] = acc[i] + add[i], rounded to acc's type. */
void ht_cuda_accumulate(struct ht_cuda *cuda, enum ht_dtype acc_type, void *acc, enum ht_dtype add_type,
                        const void *add, int64_t n);

/* ---- embedding (embedding.cu) and loss (loss.cu) ---- */

/* Computes out (B,T,C) = wte[token - first] + wpe[position] + wtype[0]; wpe and wtype may be NULL. The table has the
   tokens [first, first + vocab): a whole model's all, so first is 0, a part's some. Rows of other tokens begin at 0. */
void ht_cuda_embed(struct ht_cuda *cuda, enum ht_dtype dtype, const int32_t *tokens, int64_t first, int64_t vocab,
                   const void *wte, const void *wpe, const void *wtype, void *out, int64_t batch, int64_t seq,
                   int64_t C);
/* Computes y = y + wpe[position] + wtype[0] (NULL: none) of n_rows rows, the first of which is row `begin` of B T. */
void ht_cuda_add_positions(struct ht_cuda *cuda, enum ht_dtype dtype, void *y, const void *wpe, const void *wtype,
                           int64_t begin, int64_t n_rows, int64_t seq, int64_t C);
/* Computes dwte (vocab,C) of such a table, which is added to when `tied`, else written, and dwpe, NULL or (max_seq, C), written. A row's
   gradients are summed in the order of the tokens, from the old value if there is one, and rounded once. scratch:
   int32, ht_cuda_embed_scratch_bytes(batch * seq, vocab). Fewer than 2^31 tokens. */
int64_t ht_cuda_embed_scratch_bytes(int64_t n_tokens, int64_t vocab);
void ht_cuda_embed_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const int32_t *tokens, const void *dout,
                            enum ht_dtype grad, enum ht_dtype store, void *dwte, void *dwpe, bool tied, int64_t batch,
                            int64_t seq, int64_t C, int64_t first, int64_t vocab, int64_t max_seq, int32_t *scratch);

/*
 * Turns logits (n_rows, V), FP32, rows `stride` apart, into their own gradient in place: (softmax - onehot(target))
 * scale. With a 16-bit `dtype` that gradient is rounded to it, since tensor cores multiply factors of one type, and row
 * r then begins where the FP32 row began: element (r, c) is 16-bit element 2 stride r + c of the buffer. row_loss
 * (n_rows): -log p(target).
 */
void ht_cuda_cross_entropy(struct ht_cuda *cuda, enum ht_dtype dtype, float *logits, const int32_t *targets,
                           int64_t n_rows, int64_t V, int64_t stride, float scale, double *row_loss);
/* The same of a part that has the logits of tokens [first, first + V), in two steps. Computes mine (n_rows, 2): each
   row's log-sum-exp, and the target's logit or 0. */
void ht_cuda_part_peaks(struct ht_cuda *cuda, const float *logits, const int32_t *targets, int64_t first,
                        int64_t n_rows, int64_t V, int64_t stride, float *mine);
/* Computes what ht_cuda_cross_entropy does, from the `mine` of all parts: theirs (parts, n_rows, 2). */
void ht_cuda_part_cross_entropy(struct ht_cuda *cuda, enum ht_dtype dtype, float *logits, const int32_t *targets,
                                int64_t first, int64_t n_rows, int64_t V, int64_t stride, float scale,
                                const float *theirs, int64_t parts, double *row_loss);
/* Writes zeros. */
void ht_cuda_zero(struct ht_cuda *cuda, void *x, int64_t bytes);
/* Adds up n values in a fixed order, by one block, into *sum. */
void ht_cuda_sum(struct ht_cuda *cuda, const double *x, int64_t n, double *sum);

#ifdef __cplusplus
}
#endif

#endif
