/*
 * FORWARD, RECOMPUTE and BACKWARD: call the kernels of common/kernels/unit.h with an op's effects. The table in cpu.h
 * says which effects each expects; each function here is one line of it.
 */
#include "common/backend/cpu_call.h"

#include "common/model/halves.h"

#include <assert.h>

static int64_t param_bytes(const struct ht_cpu_call *c, int32_t unit, enum ht_dtype type)
{
    return ht_dtype_bytes(type) * ht_unit_params(c->args.model, unit);
}

/* Returns where a unit's flat buffer of parameters or gradients begins. A pass of one half of a block may have only that
   half's elements: then the address is that of the first one less its offset. */
static void *flat(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch, unsigned flags,
                  enum ht_dtype type)
{
    const struct ht_buffer *b = ht_cpu_lookup(c, class, unit, micro_batch, flags);
    unsigned sub_ops = b ? c->s->tensors[b->tensor].label.sub_ops : HT_ALL_SUB_OPS;
    struct ht_range has = ht_sub_ops_params(c->args.model, unit, sub_ops);
    bool cut_alike = c->op->kind == HT_OP_RECOMPUTE || c->op->label.sub_ops == sub_ops;
    if (ht_is_half(sub_ops) && (c->op->label.sub_ops & ~sub_ops || !cut_alike))
        ht_cpu_fail(c, "has a half's %s of unit %d, and passes other sub-ops", ht_tensor_class_name(class), unit);
    char *data = ht_cpu_find(c, class, unit, micro_batch, flags, (has.end - has.begin) * ht_dtype_bytes(type));
    if (c->status || c->check_only) return data;
    return (void *)((uintptr_t)data - (uintptr_t)(has.begin * ht_dtype_bytes(type)));
}

static int64_t input_bytes(const struct ht_cpu_call *c, int32_t unit)
{
    return ht_unit_input_bytes(c->args.model, unit, c->args.batch, c->args.seq, c->args.dtype);
}

static void *workspace(struct ht_cpu_call *c, int32_t unit, bool backward)
{
    const struct ht_unit_args *a = &c->args;
    return ht_cpu_workspace(c, ht_unit_workspace_bytes(a->model, unit, a->batch, a->seq, a->dtype, backward));
}

static void *block_workspace(struct ht_cpu_call *c, unsigned sub_ops, bool backward)
{
    const struct ht_unit_args *a = &c->args;
    return ht_cpu_workspace(c, ht_block_workspace_bytes(a->model, sub_ops, a->batch, a->seq, a->dtype, backward));
}

/* Returns P(u). When the op produces it and has W(u), rounds it first. */
static const void *param(struct ht_cpu_call *c, int32_t unit)
{
    enum ht_dtype type = c->args.dtype;
    if (!ht_cpu_lookup(c, HT_PARAM, unit, -1, HT_CPU_READ | HT_PRODUCE) &&
        ht_cpu_lookup(c, HT_COMM, unit, -1, HT_CPU_READ)) /* gathered from all ranks' shards */
        return flat(c, HT_COMM, unit, -1, HT_CPU_READ, type);
    bool cast = type != HT_F32 && ht_cpu_lookup(c, HT_MASTER, unit, -1, HT_NEED) &&
                ht_cpu_lookup(c, HT_PARAM, unit, -1, HT_PRODUCE);
    if (!cast) return flat(c, HT_PARAM, unit, -1, HT_CPU_READ, type);
    void *p = ht_cpu_find(c, HT_PARAM, unit, -1, HT_PRODUCE, param_bytes(c, unit, type));
    const float *w = ht_cpu_find(c, HT_MASTER, unit, -1, HT_NEED, param_bytes(c, unit, HT_F32));
    if (!c->status && !c->check_only)
        c->kernels->round_copy(c->device, c->args.pool, w, p, type, ht_unit_params(c->args.model, unit));
    return p;
}

/* Returns the token table, first in unit 0, which is a tied head's matrix; NULL when the head is not tied. */
static const void *token_table(struct ht_cpu_call *c)
{
    return c->args.model->tied ? param(c, 0) : NULL;
}

/* Returns G(u,j) if the op has it, else G(u). Sets the kernel's storage type for it. */
static void *gradient(struct ht_cpu_call *c, int32_t unit, unsigned flags)
{
    int32_t j = c->op->label.micro_batch;
    if (!ht_cpu_lookup(c, HT_GRAD, unit, j, flags)) j = -1;
    c->args.grad_store = ht_cpu_dtype(c, HT_GRAD, j);
    return flat(c, HT_GRAD, unit, j, flags, c->args.grad_store);
}

/* Returns the bytes of the token table, first in unit 0, in its gradient. */
static int64_t table_bytes(const struct ht_cpu_call *c)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    ht_unit_param_parts(c->args.model, 0, parts);
    return parts[0].rows * parts[0].cols * ht_dtype_bytes(c->args.grad_store);
}

static void zero(struct ht_cpu_call *c, void *grad, int64_t begin, int64_t end)
{
    if (!c->status && !c->check_only && begin < end) c->kernels->zero(c->device, (char *)grad + begin, end - begin);
}

/* Returns the token table's part of the gradient for the head; zeroes the rest. */
static void *table_gradient(struct ht_cpu_call *c)
{
    enum ht_dtype head = c->args.grad_store;
    if (!c->args.model->tied) return NULL;
    void *grad = gradient(c, 0, HT_CPU_WRITE);
    if (c->args.grad_store != head)
        ht_cpu_fail(c, "writes gradients of %s and %s, its own and the token table's", ht_dtype_name(head),
                    ht_dtype_name(c->args.grad_store));
    zero(c, grad, table_bytes(c), param_bytes(c, 0, c->args.grad_store));
    return grad;
}

static const void *x_in(struct ht_cpu_call *c, int32_t unit)
{
    return ht_cpu_find(c, HT_CHECKPOINT, unit, c->op->label.micro_batch, HT_CPU_READ, input_bytes(c, unit));
}

static void *x_out(struct ht_cpu_call *c, int32_t unit)
{
    return ht_cpu_find(c, HT_CHECKPOINT, unit, c->op->label.micro_batch, HT_CPU_WRITE, input_bytes(c, unit));
}

/* Returns the head's kept activations: one tensor. */
static void *kept(struct ht_cpu_call *c, int32_t head, unsigned flags)
{
    const struct ht_unit_args *a = &c->args;
    int64_t bytes = ht_unit_activation_bytes(a->model, head, a->batch, a->seq, a->dtype);
    return ht_cpu_find(c, HT_ACTIVATION, head, c->op->label.micro_batch, flags, bytes);
}

static void *dx(struct ht_cpu_call *c, int32_t unit, unsigned flags)
{
    return ht_cpu_find(c, HT_ACT_GRAD, unit, c->op->label.micro_batch, flags, input_bytes(c, unit));
}

static float *logits(struct ht_cpu_call *c, int32_t head, unsigned flags)
{
    int64_t bytes = ht_logits_bytes(c->args.model, c->args.batch, c->args.seq);
    return ht_cpu_find(c, HT_LOGITS, head, c->op->label.micro_batch, flags, bytes);
}

static enum ht_status batch_of(struct ht_cpu_call *c, const void **input, const int32_t **targets)
{
    const struct ht_cpu_options *o = c->options;
    return o->data(o->data_ctx, c->iteration, c->op->label.micro_batch, input, targets, c->err);
}

/* ---- forward ---- */

static enum ht_status forward_embedding(struct ht_cpu_call *c)
{
    const void *p = param(c, 0);
    void *out = x_out(c, 1), *scratch = workspace(c, 0, false);
    const void *input;
    const int32_t *targets;
    if (c->status || c->check_only) return c->status;
    enum ht_status status = batch_of(c, &input, &targets);
    if (status == HT_OK) c->kernels->embedding_forward(c->device, &c->args, input, p, out, scratch);
    return status ? status : c->status;
}

/* Sets the activations that a pass or a recomputation of a back, which reads some sub-ops' besides its own, has of what its front
   hands. Returns the sub-ops that it reads of others. */
static unsigned find_handed(struct ht_cpu_call *c, int32_t unit, unsigned reads, struct ht_block_acts *act)
{
    for (int s = 0; s < HT_N_SUB_OPS; s++) {
        if (!(reads >> s & 1) || !ht_cpu_has_handed(c, unit, 1u << s)) continue;
        act->of[s] = ht_cpu_find_handed(c, HT_CHECKPOINT, unit, 1u << s, HT_CPU_READ);
        reads &= ~(1u << s);
    }
    return reads;
}

/* Runs a forward pass or one half of it, or a recomputation of some sub-ops, which writes the output only if the op has
   it: as the input of a block that is recomputed next. */
static enum ht_status forward_block(struct ht_cpu_call *c, int32_t unit)
{
    unsigned sub_ops = c->op->label.sub_ops & HT_ALL_SUB_OPS, fills = sub_ops;
    bool passes = c->op->kind == HT_OP_FORWARD && sub_ops >> HT_SUB_FC2 & 1;
    bool wanted = passes || ht_cpu_lookup(c, HT_CHECKPOINT, unit + 1, c->op->label.micro_batch, HT_CPU_WRITE);
    assert(!wanted || sub_ops >> HT_SUB_FC2 & 1); /* the verifier proves it */
    if (!wanted) sub_ops &= ~(1u << HT_SUB_FC2);
    struct ht_sub_op_reads reads = ht_sub_ops_read(c->args.model->arch, sub_ops);
    struct ht_block_acts act = {0};
    const void *p = param(c, unit), *x = reads.input ? x_in(c, unit) : NULL;
    bool hands = c->op->kind == HT_OP_FORWARD && ht_is_front(sub_ops) && ht_handed(sub_ops);
    ht_cpu_find_acts(c, unit, HT_CPU_READ, find_handed(c, unit, reads.sub_ops, &act), &act);
    ht_cpu_find_acts(c, unit, HT_CPU_WRITE, fills, &act);
    if (hands) act.handed = ht_cpu_find_handed(c, HT_CHECKPOINT, unit, ht_handed(sub_ops), HT_CPU_WRITE);
    void *scratch = block_workspace(c, sub_ops, false);
    void *out = wanted ? x_out(c, unit + 1) : NULL;
    if (c->status || c->check_only) return c->status;
    c->kernels->block_forward(c->device, &c->args, sub_ops, p, x, &act, out, scratch);
    return c->status;
}

/* Runs the head. The forward op records the loss, of several parts the first one; a recomputation gives the same
   loss. */
static enum ht_status forward_head(struct ht_cpu_call *c, int32_t unit)
{
    const void *p = param(c, unit), *wte = token_table(c), *x = x_in(c, unit);
    void *act = kept(c, unit, HT_CPU_WRITE), *scratch = workspace(c, unit, false);
    float *out = logits(c, unit, HT_CPU_WRITE);
    const void *input;
    const int32_t *targets;
    if (c->status || c->check_only) return c->status;
    enum ht_status status = batch_of(c, &input, &targets);
    if (status) return status;
    /* With logits that are dropped at once, no gradient follows, and the op need not wait for the scale. */
    bool dropped = ht_cpu_lookup(c, HT_LOGITS, unit, c->op->label.micro_batch, HT_RELEASE);
    int64_t seq = c->args.seq, batch = c->options->tokens_per_iteration / seq;
    float scale =
        (float)ht_loss_weight(dropped ? 1 : ht_cpu_loss_scale(c), batch, ht_model_head_rows(c->args.model, seq));
    int64_t at = (int64_t)c->iteration * c->s->n_micro_batches + c->op->label.micro_batch;
    bool noted = c->options->losses && c->op->kind == HT_OP_FORWARD && c->args.model->part == 0;
    double *loss = noted ? &c->options->losses[at] : NULL;
    c->kernels->head_forward(c->device, &c->args, p, wte, x, act, out, targets, scale, loss, scratch);
    return c->status;
}

enum ht_status ht_cpu_forward(struct ht_cpu_call *c)
{
    int32_t end = c->op->label.unit + c->op->label.n_units;
    for (int32_t u = c->op->label.unit; u < end; u++) {
        enum ht_unit_kind kind = ht_model_unit_kind(c->args.model, u);
        enum ht_status status = kind == HT_UNIT_EMBEDDING ? forward_embedding(c)
                                : kind == HT_UNIT_BLOCK   ? forward_block(c, u)
                                                          : forward_head(c, u);
        if (status) return status;
    }
    return HT_OK;
}

/* ---- recompute ---- */

enum ht_status ht_cpu_recompute(struct ht_cpu_call *c)
{
    int32_t end = c->op->label.unit + c->op->label.n_units;
    for (int32_t u = c->op->label.unit; u < end; u++) {
        enum ht_unit_kind kind = ht_model_unit_kind(c->args.model, u);
        if (kind == HT_UNIT_EMBEDDING) return ht_cpu_fail(c, "recomputes unit %d, of which nothing is kept", u);
        enum ht_status status = kind == HT_UNIT_BLOCK ? forward_block(c, u) : forward_head(c, u);
        if (status) return status;
    }
    return HT_OK;
}

/* ---- backward ---- */

static enum ht_status backward_head(struct ht_cpu_call *c, int32_t unit)
{
    const void *p = param(c, unit), *wte = token_table(c), *x = x_in(c, unit);
    const void *act = kept(c, unit, HT_CPU_READ);
    const float *dlogits = logits(c, unit, HT_CPU_READ);
    void *out = dx(c, unit, HT_CPU_WRITE), *grad = gradient(c, unit, HT_CPU_WRITE), *dwte = table_gradient(c);
    void *scratch = workspace(c, unit, true);
    if (c->status || c->check_only) return c->status;
    c->kernels->head_backward(c->device, &c->args, p, wte, x, act, dlogits, out, grad, dwte, scratch);
    return c->status;
}

/* Returns true if the op has the gradient of a half of a block, not of all of it. */
static bool own_gradient(const struct ht_cpu_call *c, int32_t unit)
{
    const struct ht_buffer *b = ht_cpu_lookup(c, HT_GRAD, unit, c->op->label.micro_batch, HT_CPU_WRITE);
    if (!b) b = ht_cpu_lookup(c, HT_GRAD, unit, -1, HT_CPU_WRITE);
    return b && ht_is_half(c->s->tensors[b->tensor].label.sub_ops);
}

/* Runs a backward pass or one half of it. dx is begun by the MLP's half, and so is the gradient, unless the attention's
   has one of its own. */
static enum ht_status backward_block(struct ht_cpu_call *c, int32_t unit)
{
    unsigned sub_ops = c->op->label.sub_ops & HT_ALL_SUB_OPS;
    bool begins = sub_ops >> HT_SUB_FC2 & 1;
    struct ht_sub_op_reads reads = ht_sub_ops_backward_read(c->args.model->dropout, sub_ops);
    struct ht_block_acts act = {0};
    const void *p = param(c, unit), *x = reads.input ? x_in(c, unit) : NULL;
    const void *dout = begins ? dx(c, unit + 1, HT_CPU_READ) : NULL;
    ht_cpu_find_acts(c, unit, HT_CPU_READ, find_handed(c, unit, reads.sub_ops, &act), &act);
    unsigned writes = begins ? HT_CPU_WRITE : HT_UPDATE, handed = ht_is_half(sub_ops) ? ht_handed(sub_ops) : 0;
    if (handed) act.handed = ht_cpu_find_handed(c, HT_ACT_GRAD, unit, handed, begins ? HT_CPU_WRITE : HT_CPU_READ);
    void *out = dx(c, unit, writes), *grad = gradient(c, unit, own_gradient(c, unit) ? HT_CPU_WRITE : writes);
    void *scratch = block_workspace(c, sub_ops, true);
    if (c->status || c->check_only) return c->status;
    c->kernels->block_backward(c->device, &c->args, sub_ops, p, x, &act, dout, out, grad, scratch);
    return c->status;
}

static enum ht_status backward_embedding(struct ht_cpu_call *c)
{
    /* When tied, the head's contribution is already in the gradient, from this op or an earlier one. If the head has a
       gradient of its own, this one begins at 0. */
    int64_t head = c->args.model->layers + 1;
    bool joins = c->args.model->tied && c->op->label.unit + c->op->label.n_units <= head;
    bool begins = joins && (ht_cpu_lookup(c, HT_GRAD, 0, c->op->label.micro_batch, HT_PRODUCE) ||
                            ht_cpu_lookup(c, HT_GRAD, 0, -1, HT_PRODUCE));
    const void *dout = dx(c, 1, HT_CPU_READ);
    void *grad = gradient(c, 0, joins && !begins ? HT_UPDATE : HT_CPU_WRITE), *scratch = workspace(c, 0, true);
    const void *input;
    const int32_t *targets;
    if (c->status || c->check_only) return c->status;
    enum ht_status status = batch_of(c, &input, &targets);
    if (status) return status;
    if (begins) zero(c, grad, 0, table_bytes(c));
    c->kernels->embedding_backward(c->device, &c->args, input, dout, grad, scratch);
    return c->status;
}

enum ht_status ht_cpu_backward(struct ht_cpu_call *c)
{
    for (int32_t u = c->op->label.unit + c->op->label.n_units - 1; u >= c->op->label.unit; u--) {
        enum ht_unit_kind kind = ht_model_unit_kind(c->args.model, u);
        enum ht_status status = kind == HT_UNIT_EMBEDDING ? backward_embedding(c)
                                : kind == HT_UNIT_BLOCK   ? backward_block(c, u)
                                                          : backward_head(c, u);
        if (status) return status;
    }
    return HT_OK;
}
