/* Linear layers, and the layout of workspaces. */
#include "common/kernels/cuda/unit.cuh"

static void take(struct ht_cuda_workspace *w, int64_t *part, int64_t bytes)
{
    *part = (w->bytes + 255) / 256 * 256;
    w->bytes = *part + (bytes + 255) / 256 * 256;
}

/* Returns the bytes that sums over rows need for gradients of norms of width C and of biases up to `wide`. */
static int64_t sums_bytes(int64_t C, int64_t wide)
{
    int64_t norm = ht_cuda_norm_scratch_bytes(C), bias = ht_cuda_column_scratch_bytes(wide);
    return norm > bias ? norm : bias;
}

/* Takes what parts that cut rows need beside the others. */
static void take_rows(struct ht_cuda_workspace *w, const struct ht_model *m, int64_t rows, int64_t e, bool backward)
{
    if (!ht_model_cuts_rows(m)) return;
    take(w, &w->rows, rows * m->width * e);
    if (backward) take(w, &w->own, ht_model_rows(m, rows) * m->width * e);
}

void ht_cuda_block_workspace_of(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                enum ht_dtype dtype, bool backward, struct ht_cuda_workspace *out)
{
    int64_t e = ht_dtype_bytes(dtype), rows = batch * seq, C = m->width;
    unsigned products = 1u << HT_SUB_QKV | 1u << HT_SUB_PROJ | 1u << HT_SUB_FC1 | 1u << HT_SUB_FC2;
    bool attends = sub_ops >> HT_SUB_ATTENTION & 1, dattention = attends || sub_ops >> HT_SUB_PROJ & 1;
    bool feeds = sub_ops & (1u << HT_SUB_FC1 | 1u << HT_SUB_GELU | 1u << HT_SUB_FC2);
    int64_t fc1 = feeds ? (m->arch == HT_ARCH_LLAMA ? 2 : 1) * ht_model_ffn(m) : 0, Q = ht_model_q_width(m);
    int64_t qkv = attends || sub_ops >> HT_SUB_QKV & 1 ? Q + 2 * ht_model_kv_width(m) : 0, wide = fc1 > qkv ? fc1 : qkv;
    struct ht_cuda_workspace w = {};
    if (backward) {
        take(&w, &w.wide, rows * wide * e);
        take(&w, &w.narrow, rows * C * e);
        if (dattention) take(&w, &w.attention, rows * Q * e);
        int64_t sums = sums_bytes(C, wide > C ? wide : C);
        int64_t turns = attends ? ht_cuda_attention_turns_bytes(m, seq) : 0;
        take(&w, &w.columns, sums > turns ? sums : turns);
    }
    if (attends) take(&w, &w.scratch, ht_cuda_attention_scratch_bytes(m, batch, seq, backward));
    if (sub_ops & products) take_rows(&w, m, rows, e, backward);
    *out = w;
}

void ht_cuda_workspace_of(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype dtype,
                          bool backward, struct ht_cuda_workspace *out)
{
    int64_t e = ht_dtype_bytes(dtype), rows = batch * seq, C = m->width;
    int64_t head_rows = batch * ht_model_head_rows(m, seq);
    struct ht_cuda_workspace w = {};
    switch (ht_model_unit_kind(m, unit)) {
    case HT_UNIT_EMBEDDING: /* rounded as the CPU's workspace, which has the same size in 16 bit */
        if (m->arch == HT_ARCH_VIT) {
            take(&w, &w.patches, rows * ht_model_patch_width(m) * e);
            if (backward) take(&w, &w.positions, seq * C * (int64_t)sizeof(float));
            if (backward) take(&w, &w.columns, ht_cuda_column_scratch_bytes(C));
            if (backward) take_rows(&w, m, rows, e, false);
            break;
        }
        if (backward) w.bytes = (ht_cuda_embed_scratch_bytes(rows, ht_model_vocab(m)) + 63) / 64 * 64;
        if (backward && m->arch == HT_ARCH_BERT) take(&w, &w.columns, ht_cuda_column_scratch_bytes(C));
        take_rows(&w, m, rows, e, false);
        break;
    case HT_UNIT_BLOCK:
        ht_cuda_block_workspace_of(m, HT_ALL_SUB_OPS, batch, seq, dtype, backward, &w);
        break;
    case HT_UNIT_HEAD:
        if (backward) {
            take(&w, &w.narrow, head_rows * C * e);
            take(&w, &w.columns, sums_bytes(C, C));
            if (m->arch == HT_ARCH_BERT) take(&w, &w.pooled, batch * C * e);
            if (m->classes) take(&w, &w.first, batch * C * e);
        } else {
            take(&w, &w.row_loss, head_rows * (int64_t)sizeof(double));
            if (ht_model_parts(m) > 1 && !m->classes)
                take(&w, &w.part_rows, (1 + ht_model_parts(m)) * rows * 2 * (int64_t)sizeof(float));
        }
        if (!backward || !m->classes) take_rows(&w, m, rows, e, backward);
        break;
    }
    *out = w;
}

int64_t ht_cuda_unit_workspace_bytes(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq,
                                     enum ht_dtype dtype, bool backward)
{
    struct ht_cuda_workspace w;
    ht_cuda_workspace_of(m, unit, batch, seq, dtype, backward, &w);
    return w.bytes;
}

int64_t ht_cuda_block_workspace_bytes(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                      enum ht_dtype dtype, bool backward)
{
    struct ht_cuda_workspace w;
    ht_cuda_block_workspace_of(m, sub_ops, batch, seq, dtype, backward, &w);
    return w.bytes;
}

bool ht_cuda_types_fit(const struct ht_cuda_args *args)
{
    if (args->grad_store == HT_F32 || (args->grad_store == args->grad && args->grad == args->dtype)) return true;
    ht_cuda_fail(args->cuda, HT_BAD_INPUT,
                 "on the GPU gradients of parameters are stored as FP32, or in the parameters' own type", __FILE__,
                 __LINE__);
    return false;
}

static struct ht_cuda_product product_of(const struct ht_cuda_args *args, int64_t m, int64_t n, int64_t k)
{
    struct ht_cuda_product p = {};
    p.in = p.out = args->dtype;
    p.m = m;
    p.n = n;
    p.k = k;
    return p;
}

void ht_cuda_linear_forward(const struct ht_cuda_args *args, const struct ht_cuda_linear *l, const void *x,
                            const void *residual, void *y)
{
    struct ht_cuda_product p = product_of(args, args->batch * args->seq, l->out, l->in);
    p.a = x;
    p.a_stride = l->in;
    p.b = l->weight;
    p.b_stride = l->in;
    p.b_transposed = true;
    p.c = y;
    p.c_stride = l->out;
    p.bias = l->bias;
    p.add = residual;
    ht_cuda_multiply(args->cuda, &p);
}

void ht_cuda_linear_backward(const struct ht_cuda_args *args, const struct ht_cuda_linear *l, const void *dy,
                             int64_t dy_stride, const void *residual, void *dx, int64_t dx_stride)
{
    struct ht_cuda_product p = product_of(args, args->batch * args->seq, l->in, l->out);
    p.a = dy;
    p.a_stride = dy_stride;
    p.b = l->weight;
    p.b_stride = l->in;
    p.c = dx;
    p.c_stride = dx_stride;
    p.add = residual;
    ht_cuda_multiply(args->cuda, &p);
}

void ht_cuda_linear_grad(const struct ht_cuda_args *args, const struct ht_cuda_linear *l, const void *x, const void *dy,
                         int64_t dy_stride, void *dweight, void *dbias, float *scratch)
{
    int64_t rows = args->batch * args->seq;
    struct ht_cuda_product p = product_of(args, l->out, l->in, rows);
    p.out = args->grad_store;
    p.a = dy;
    p.a_stride = dy_stride;
    p.a_transposed = true;
    p.b = x;
    p.b_stride = l->in;
    p.c = dweight;
    p.c_stride = l->in;
    ht_cuda_multiply(args->cuda, &p);
    if (args->grad_store == HT_F32) ht_cuda_round(args->cuda, args->grad, (float *)dweight, l->out * l->in);
    if (dbias)
        ht_cuda_column_sum(args->cuda, args->dtype, dy, rows, l->out, args->grad, args->grad_store, dbias, scratch);
}
