/*
 * Forward and backward passes of whole units in FP32 on the CPU: what an executor calls.
 *
 * Every buffer is the caller's (an arena's), laid out by common/model/model.h; the kernels allocate nothing. An output
 * is written in full and its old contents are never read, so dirty memory cannot be told from clean, with one exception
 * that is named below (the tied token table's gradient). Outputs may not overlap inputs or one another.
 *
 * The pool's workers split each step statically, and no sum is ever cut between two of them: the bits do not depend on
 * the number of workers. A worker needs HT_GEMM_STACK_BYTES of stack (common/kernels/gemm.h).
 *
 * GPT and LLaMA, without dropout: the caller has rejected other models.
 */
#ifndef HT_KERNELS_UNIT_H
#define HT_KERNELS_UNIT_H

#include <stdint.h>

#include "common/base/pool.h"
#include "common/model/model.h"

struct ht_unit_args {
    const struct ht_model *model;
    int64_t batch, seq;   /* B, T; T <= model->max_seq */
    struct ht_pool *pool; /* NULL: the caller alone */
};

/* ---- embedding (unit 0) ---- */

/* out = wte[token] + wpe[position]; LLaMA: wte[token]. tokens: (B,T), each in [0, V); out: (B,T,C). */
void ht_embedding_forward(const struct ht_unit_args *args, const int32_t *tokens, const float *params, float *out);

/* dout: (B,T,C). grad, unit 0's: the wpe part, if there is one, is written (rows from T on are 0). The wte part is
   ADDED to when the model is tied, since the head wrote its contribution there first (ht_head_backward); otherwise it
   is written. */
void ht_embedding_backward(const struct ht_unit_args *args, const int32_t *tokens, const float *dout, float *grad);

/* ---- block ---- */

/* x, out: (B,T,C). act: ht_block_activations. workspace: ht_unit_workspace_bytes(.., backward = false). */
void ht_block_forward(const struct ht_unit_args *args, const float *params, const float *x, void *act, float *out,
                      void *workspace);

/* Fills in again what the sub-ops in `sub_ops` (bits 1 << HT_SUB_...) keep in act, from x and from what the others
   kept: the same bits as the forward pass. Workspace as the forward's. */
void ht_block_recompute(const struct ht_unit_args *args, const float *params, const float *x, void *act,
                        unsigned sub_ops, void *workspace);

/* dout: (B,T,C) gradient of the output; dx: (B,T,C) of the input; grad: of the parameters. act is only read. */
void ht_block_backward(const struct ht_unit_args *args, const float *params, const float *x, const void *act,
                       const float *dout, float *dx, float *grad, void *workspace);

/* ---- head (unit L + 1) ---- */

/* wte: the tied token table (V,C); NULL when the model is not tied (the matrix is then in params). logits: (B,T,V),
   left as their own gradient: (softmax - onehot(target)) * scale, where scale is 1 / (tokens of the whole batch).
   targets: (B,T), each in [0, V). *loss_sum: sum over the B T tokens of -log p(target), not scaled, summed in order. */
void ht_head_forward(const struct ht_unit_args *args, const float *params, const float *wte, const float *x, void *act,
                     float *logits, const int32_t *targets, float scale, double *loss_sum, void *workspace);

/* dlogits: as ht_head_forward left them. grad: of the head's own parameters. dwte: (V,C), written: the wte part of unit
   0's gradient; NULL when the model is not tied. */
void ht_head_backward(const struct ht_unit_args *args, const float *params, const float *wte, const float *x,
                      const void *act, const float *dlogits, float *dx, float *grad, float *dwte, void *workspace);

/* ---- gradients and initial values ---- */

/* acc[i] += add[i]: a micro-batch's gradients are formed fresh and accumulated as a step of its own. */
void ht_grad_accumulate(struct ht_pool *pool, float *acc, const float *add, int64_t n);

/*
 * Initial parameters of a unit, a pure function of (model, unit, seed). Norm weights 1, biases 0. Any other element i
 * of the unit's flat buffer is a * (2 u - 1), u = ht_random_float(ht_random(seed, unit), i), rounded to FP32 after each
 * operation. a = 0.02 sqrt(3) as float: the standard deviation of GPT-2's initialisation, 0.02. For the two projections
 * back into the residual stream a is divided by sqrt(2 L) in double before it is rounded (Radford et al. 2019,
 * Sec. 2.3). LLaMA: 0.02 for every matrix, the initializer_range of transformers' LlamaConfig.
 */
void ht_unit_init(const struct ht_model *model, int64_t unit, uint64_t seed, float *params);

#endif
