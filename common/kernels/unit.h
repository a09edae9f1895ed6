/*
 * Forward and backward passes of whole units on the CPU, which executors call.
 *
 * The caller (an arena) owns every buffer, laid out by common/model/model.h; the kernels allocate nothing. An output is
 * written in full and its old contents are never read, so dirty memory gives the same results as clean, with one
 * exception that is named below (the tied token table's gradient). Outputs may not overlap inputs or one another.
 *
 * Arithmetic is FP32, and so are all sums, the norms' statistics, log-sum-exp, logits and their gradient. Parameters,
 * activations and their gradients are stored as args->dtype: each element is rounded once, to nearest even, when it is
 * stored, and later reads use the rounded number, so a recomputed activation has the same bits. (LLaMA's queries and
 * keys are rounded as projected and again as rotated, in place.) Between the steps of a backward pass gradients lie in
 * the workspace as args->dtype, too, except the scores' and sums that are not complete.
 *
 * The pool's workers split each step statically, and no sum is ever cut between two of them: the bits do not depend on
 * the number of workers. A worker needs HT_GEMM_STACK_BYTES of stack (common/kernels/gemm.h).
 *
 * Tensor parallelism. For a model that is part q of n (common/model/model.h) a pass computes with the part's heads,
 * columns and tokens, and exchanges sums with the other parts through args->link; all parts run the same pass at the
 * same time. Data that every part has (inputs, outputs, norms) have the same bits in each:
 *
 *     forward     what the part adds to proj, and to out    summed; part 0 has added residual and bias before
 *     backward    gradient of norm2, of norm1               summed
 *     embedding   rows of the part's tokens, else 0         summed: exactly the token's row
 *     head        log-sum-exp of each row's part            gathered, with the target's logit; dnorm summed
 *     classifier, ViT's embedding                           nothing: every part computes all of it
 *
 * A part that cuts rows, too (sequence parallelism, common/model/model.h), has its rows of inputs, outputs and norms.
 * Norms' outputs are gathered, the parts' shares of proj and out scattered; residuals are added to a part's own rows
 * after that. The norms' gradients are summed. Inputs, outputs and their gradients are then (B,T,C) / n here.
 *
 * Sums are from the left in the order of parts, in FP32, rounded to the storage type once; each part's own term was
 * rounded before.
 *
 * GPT, LLaMA, BERT and ViT, without dropout: the caller has rejected other models.
 */
#ifndef HT_KERNELS_UNIT_H
#define HT_KERNELS_UNIT_H

#include <stdint.h>

#include "common/base/pool.h"
#include "common/kernels/part_link.h"
#include "common/model/model.h"

struct ht_unit_args {
    const struct ht_model *model;
    int64_t batch, seq;   /* B, T; T <= model->max_seq */
    struct ht_pool *pool; /* NULL: the caller alone */
    enum ht_dtype dtype;  /* storage: struct ht_numerics.param */
    /* Gradients of parameters are rounded to `grad` and stored as grad_store: grad, or HT_F32 for an accumulator in
       FP32. So a micro-batch's gradient has the same value wherever it is written. FP32 if dtype is. */
    enum ht_dtype grad, grad_store;
    const struct ht_part_link *link; /* for a model in parts */
};

/* ---- embedding (unit 0) ---- */

/* Computes out = wte[token] + wpe[position]; LLaMA: wte[token]; BERT: + wtype[0]; ViT: model.h. input: token ids (B,T), int32,
   each in [0, V); ViT: images (B,c,S,S), uint8. out: (B,T,C). workspace: ht_unit_workspace_bytes(.., backward = false), which
   is 0 but for ViT. */
void ht_embedding_forward(const struct ht_unit_args *args, const void *input, const void *params, void *out,
                          void *workspace);

/* Computes unit 0's gradient. dout: (B,T,C). grad: the wpe part, if there is one, is written (rows from T on are 0), and
   the wtype part (row 1 is 0).
   The wte part is ADDED to when the model is tied, since the head wrote its contribution there first
   (ht_head_backward); otherwise it is written. A token's rows are added in FP32, in order, to what the head stored, and
   the sum is rounded once. workspace: ht_unit_workspace_bytes(.., backward = true), which is 0 for FP32, but for ViT's.
   The latter's class token has the gradient of position 0; the bias' is that of the other positions, summed in FP32 before they
   are rounded. */
void ht_embedding_backward(const struct ht_unit_args *args, const void *input, const void *dout, void *grad,
                           void *workspace);

/* ---- block ---- */

/* Runs the sub-ops in `sub_ops` (bits 1 << HT_SUB_...): all of them are the forward pass, some a recomputation with the
   same bits. Writes what they keep to act; reads x and those activations that ht_sub_ops_read names. x: (B,T,C). act:
   each sub-op's, laid out by ht_block_activations. A front also writes act->handed, if that is not NULL. out: (B,T,C),
   NULL without HT_SUB_FC2. workspace: ht_block_workspace_bytes(.., backward = false), NULL if that is 0. */
void ht_block_forward(const struct ht_unit_args *args, unsigned sub_ops, const void *params, const void *x,
                      const struct ht_block_acts *act, void *out, void *workspace);

/* Returns the activations of a block that lie at `at` in one piece. */
static inline struct ht_block_acts ht_block_acts_at(const struct ht_unit_args *args, void *at)
{
    struct ht_block_acts acts = {{0}, NULL};
    ht_block_acts_place(args->model, HT_ALL_SUB_OPS, args->batch, args->seq, args->dtype, at, &acts);
    return acts;
}

/*
 * Computes a block's gradients. dout: (B,T,C) of the output; dx: (B,T,C) of the input; grad: of the parameters. Reads
 * what ht_sub_ops_backward_read names and writes none of it. workspace: ht_block_workspace_bytes(.., backward = true).
 * sub_ops: all, or the halves one after the other, with the same bits:
 *
 *     HT_MLP_HALF         x NULL       dout       writes dx: of proj, and norm2's, fc1's and fc2's gradients
 *     HT_ATTENTION_HALF   x            dout NULL  reads and overwrites dx; writes the other gradients
 *
 * or a back and a front that are cut elsewhere (common/model/halves.h): then dx is the residual's gradient between them, and
 * act->handed that of the handed output, which the back writes and the front reads. Not of BERT, nor of parts that cut rows.
 */
void ht_block_backward(const struct ht_unit_args *args, unsigned sub_ops, const void *params, const void *x,
                       const struct ht_block_acts *act, const void *dout, void *dx, void *grad, void *workspace);

/* ---- head (unit L + 1) ---- */

/* Computes loss and the gradient of the logits. wte: the tied token table (V,C); NULL when the model is not tied (the
   matrix is then in params). logits: (B,T,V), rows ht_logits_stride apart, hold their own gradient afterwards: (softmax
   - onehot(target)) * scale, where scale is the loss scale (1 in FP32) divided by the tokens of the whole batch; all
   gradients carry it. targets: (B,T), each in [0, V). *loss_sum: sum over the B T tokens of -log p(target), not scaled,
   summed in order. A classifier has B rows of logits and of targets, the classes of the sequences, and no token table. */
void ht_head_forward(const struct ht_unit_args *args, const void *params, const void *wte, const void *x, void *act,
                     float *logits, const int32_t *targets, float scale, double *loss_sum, void *workspace);

/* Computes the logits, without a loss. */
void ht_head_logits(const struct ht_unit_args *args, const void *params, const void *wte, const void *x, void *act,
                    float *logits);

/* Computes the head's gradients. dlogits: as ht_head_forward left them, FP32. grad: of the head's own parameters. dwte:
   (V,C), written: the wte part of unit 0's gradient; NULL when the model is not tied. */
void ht_head_backward(const struct ht_unit_args *args, const void *params, const void *wte, const void *x,
                      const void *act, const float *dlogits, void *dx, void *grad, void *dwte, void *workspace);

/* ---- initial values ---- */

/*
 * Computes the initial parameters of a unit, a pure function of (model, unit, seed). Norm weights are 1, biases 0. Any
 * other element i of the unit's flat buffer is a * (2 u - 1), u = ht_random_float(ht_random(seed, unit), i), rounded to
 * FP32 after each operation. a = 0.02 sqrt(3) as float: the standard deviation of GPT-2's initialisation, 0.02. For the
 * two projections back into the residual stream a is divided by sqrt(2 L) in double before it is rounded (Radford et
 * al. 2019, Sec. 2.3). LLaMA, BERT and ViT: 0.02 for every matrix, the initializer_range of transformers' LlamaConfig,
 * BertConfig and ViTConfig; also for ViT's class token and positions.
 */
void ht_unit_init(const struct ht_model *model, int64_t unit, uint64_t seed, float *params);
/* Computes elements [begin, end) of a unit's initial parameters; out: [end - begin]. */
void ht_unit_init_range(const struct ht_model *model, int64_t unit, uint64_t seed, int64_t begin, int64_t end,
                        float *out);

#endif
