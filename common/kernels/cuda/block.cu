/*
 * A block, in the steps of common/kernels/block.c, and for a part that cuts rows in those of block_rows.c. The matrix
 * products add the residual stream and the biases themselves, so that a stored element is rounded once; where rows are
 * cut, residuals are added to a part's own rows.
 */
#include "common/kernels/cuda/unit.cuh"
extern "C" {
#include "common/model/halves.h"
}

/* Index of each among the parameter parts, as in common/kernels/block.c: -1 where the architecture has none. */
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC1_W, FC1_B, FC2_W, FC2_B, N_PARTS };
static const int part_of[][N_PARTS] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},     /* HT_ARCH_GPT */
    {0, -1, 1, -1, 4, -1, 5, -1, 6, -1, 8, -1}, /* HT_ARCH_LLAMA */
    {0, 1, 2, 5, 8, 9, 10, 11, 12, 13, 14, 15}, /* HT_ARCH_BERT */
    {0, 1, 2, 5, 8, 9, 10, 11, 12, 13, 14, 15}, /* HT_ARCH_VIT */
};

struct kept {
    void *norm1, *qkv, *attention, *proj, *norm2, *fc1, *gelu, *probs;
    float *norm1_stats, *norm2_stats, *lse;
};

struct block {
    const struct ht_cuda_args *args;
    struct ht_cuda *cuda;
    unsigned sub_ops;
    int64_t rows, C, Q, F, W, E;        /* B T; widths of the stream, and of the part's attention, gelu, qkv, fc1 */
    bool llama, post_norm, first, cuts; /* first: the part that adds residuals and biases */
    struct ht_cuda_norm norm1, norm2;
    struct ht_cuda_linear qkv, proj, fc1, fc2;
    struct kept act;
    struct ht_cuda_attention attention;
    void *grad[N_PARTS]; /* backward; NULL: no such part */
    void *dwide, *dnorm, *dattention;
    void *all, *own; /* parts that cut rows: (B,T,C) gathered or to be scattered; backward: own rows of dnorm */
    float *columns;
};

/* Returns the beginning of a part that its sub-op keeps behind the first; NULL when the sub-op's row is absent. */
static float *behind(void *first_at, struct ht_act_part first, struct ht_act_part part)
{
    return first_at ? (float *)((char *)first_at + (part.offset - first.offset)) : NULL;
}

static struct ht_cuda_norm norm_of(const struct block *b, const void *weight, const void *bias)
{
    struct ht_cuda_norm n = {b->args->dtype, ht_cuda_own_rows(b->args),      b->C, weight,
                             bias,           (float)b->args->model->norm_eps};
    return n;
}

static void place_activations(struct block *b, void *const act[HT_N_SUB_OPS])
{
    const struct ht_model *m = b->args->model;
    struct ht_act_layout l;
    ht_block_activations(m, HT_ALL_SUB_OPS, b->args->batch, b->args->seq, b->args->dtype, &l);
    b->act.norm1 = act[HT_SUB_NORM1];
    b->act.norm1_stats = behind(act[HT_SUB_NORM1], l.norm1, l.norm1_stats);
    b->act.qkv = act[HT_SUB_QKV];
    b->act.attention = act[HT_SUB_ATTENTION];
    b->act.proj = act[HT_SUB_PROJ];
    b->act.norm2 = act[HT_SUB_NORM2];
    b->act.norm2_stats = behind(act[HT_SUB_NORM2], l.norm2, l.norm2_stats);
    b->act.fc1 = act[HT_SUB_FC1];
    b->act.gelu = act[HT_SUB_GELU];
    b->act.probs = m->flash ? NULL : behind(act[HT_SUB_ATTENTION], l.attention, l.probs);
    b->act.lse = m->flash ? behind(act[HT_SUB_ATTENTION], l.attention, l.lse) : NULL;
}

static void place_attention(struct block *b, float *scratch)
{
    const struct ht_model *m = b->args->model;
    b->attention.dtype = b->args->dtype;
    b->attention.batch = b->args->batch;
    b->attention.seq = b->args->seq;
    b->attention.heads = ht_model_heads(m);
    b->attention.kv_heads = ht_model_kv_heads(m);
    b->attention.head_size = m->width / m->heads;
    b->attention.bidirectional = ht_arch_bidirectional(m->arch);
    b->attention.qkv = b->act.qkv;
    b->attention.out = b->act.attention;
    b->attention.lse = b->act.lse;
    b->attention.probs = b->act.probs;
    b->attention.scratch = scratch;
    b->attention.rope_theta = b->llama ? m->rope_theta : 0;
}

static void place_layers(struct block *b, const void *const p[N_PARTS])
{
    struct ht_cuda_linear qkv = {p[QKV_W], p[QKV_B], b->C, b->W};
    struct ht_cuda_linear proj = {p[PROJ_W], b->first ? p[PROJ_B] : NULL, b->Q, b->C};
    struct ht_cuda_linear fc1 = {p[FC1_W], p[FC1_B], b->C, b->E};
    struct ht_cuda_linear fc2 = {p[FC2_W], b->first ? p[FC2_B] : NULL, b->F, b->C};
    b->norm1 = norm_of(b, p[LN1_W], p[LN1_B]);
    b->norm2 = norm_of(b, p[LN2_W], p[LN2_B]);
    b->qkv = qkv;
    b->proj = proj;
    b->fc1 = fc1;
    b->fc2 = fc2;
}

static struct block block_of(const struct ht_cuda_args *args, unsigned sub_ops, const void *params,
                             const struct ht_block_acts *act, void *grad, void *workspace)
{
    const struct ht_model *m = args->model;
    struct block b = {};
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_cuda_workspace w;
    const void *p[N_PARTS];
    ht_unit_param_parts(m, 1, parts);
    ht_cuda_block_workspace_of(m, sub_ops, args->batch, args->seq, args->dtype, grad != NULL, &w);
    for (int i = 0; i < N_PARTS; i++) {
        int at = part_of[m->arch][i];
        p[i] = at < 0 ? NULL : ht_offset(params, args->dtype, parts[at].offset);
        b.grad[i] = at < 0 || !grad ? NULL : ht_offset(grad, args->grad_store, parts[at].offset);
    }
    b.args = args;
    b.cuda = args->cuda;
    b.sub_ops = sub_ops;
    b.llama = m->arch == HT_ARCH_LLAMA;
    b.post_norm = ht_arch_post_norm(m->arch);
    b.rows = args->batch * args->seq;
    b.C = m->width;
    b.Q = ht_model_q_width(m);
    b.F = ht_model_ffn(m);
    b.W = b.Q + 2 * ht_model_kv_width(m);
    b.E = b.llama ? 2 * b.F : b.F;
    b.first = m->part == 0;
    b.cuts = ht_model_cuts_rows(m);
    place_layers(&b, p);
    place_activations(&b, act->of);
    char *base = (char *)workspace;
    place_attention(&b, (float *)(base + w.scratch));
    b.all = base + w.rows;
    b.own = base + w.own;
    if (!grad) return b;
    b.dwide = base + w.wide;
    b.dnorm = base + w.narrow;
    b.dattention = base + w.attention;
    b.columns = b.attention.turns = (float *)(base + w.columns);
    return b;
}

static bool can_run(const struct ht_cuda_args *args)
{
    if (args->model->dropout)
        ht_cuda_fail(args->cuda, HT_BAD_INPUT, "the GPU's kernels have no dropout", __FILE__, __LINE__);
    return args->cuda->error.status == HT_OK;
}

static void rotate(const struct block *b)
{
    const struct ht_cuda_attention *a = &b->attention;
    ht_cuda_rotate(b->cuda, a->dtype, b->act.qkv, a->batch, a->seq, a->heads + a->kv_heads, a->head_size, b->W,
                   a->rope_theta, false);
}

static bool wants(const struct block *b, enum ht_sub_op sub)
{
    return b->sub_ops >> sub & 1;
}

/* Copies rows of so many elements, which lie so far apart. */
static void copy_rows(const struct block *b, void *to, int64_t to_stride, const void *from, int64_t from_stride,
                      int64_t width)
{
    size_t e = (size_t)ht_dtype_bytes(b->args->dtype);
    ht_cuda_check(b->cuda,
                  cudaMemcpy2DAsync(to, (size_t)to_stride * e, from, (size_t)from_stride * e, (size_t)width * e,
                                    (size_t)b->rows, cudaMemcpyDeviceToDevice, b->cuda->stream),
                  "copying what a half hands", __FILE__, __LINE__);
}

/* Returns all rows of a tensor of which the part has its own. */
static const void *all_rows(const struct block *b, const void *own)
{
    if (!b->cuts) return own;
    ht_cuda_gather_rows(b->args, own, b->all);
    return b->all;
}

/* ---- forward ---- */

/* Computes to = x W^T + b + residual, of which a part has a share of the first two. */
static void project(const struct block *b, const struct ht_cuda_linear *l, const void *x, const void *residual,
                    void *to)
{
    if (b->cuts) {
        ht_cuda_linear_forward(b->args, l, x, NULL, b->all);
        ht_cuda_scatter_rows(b->args, b->all, to);
        ht_cuda_add_rows(b->args, to, residual);
    } else {
        ht_cuda_linear_forward(b->args, l, x, b->first ? residual : NULL, to);
        ht_cuda_sum_parts(b->args, to);
    }
}

static void forward(const struct block *b, const void *x, void *out)
{
    enum ht_dtype t = b->args->dtype;
    const void *around_attention = b->post_norm ? b->act.norm1 : x,
               *around_mlp = b->post_norm ? b->act.norm2 : b->act.proj;
    if (wants(b, HT_SUB_NORM1)) ht_cuda_norm_forward(b->cuda, &b->norm1, x, b->act.norm1, b->act.norm1_stats);
    if (wants(b, HT_SUB_QKV)) {
        ht_cuda_linear_forward(b->args, &b->qkv, all_rows(b, b->act.norm1), NULL, b->act.qkv);
        if (b->llama) rotate(b);
    }
    if (wants(b, HT_SUB_ATTENTION)) ht_cuda_attention_forward(b->cuda, &b->attention);
    if (wants(b, HT_SUB_PROJ)) project(b, &b->proj, b->act.attention, around_attention, b->act.proj);
    if (wants(b, HT_SUB_NORM2)) ht_cuda_norm_forward(b->cuda, &b->norm2, b->act.proj, b->act.norm2, b->act.norm2_stats);
    if (wants(b, HT_SUB_FC1)) ht_cuda_linear_forward(b->args, &b->fc1, all_rows(b, b->act.norm2), NULL, b->act.fc1);
    if (wants(b, HT_SUB_GELU)) {
        if (b->llama)
            ht_cuda_swiglu(b->cuda, t, b->act.fc1, b->act.gelu, b->rows, b->F);
        else
            ht_cuda_gelu(b->cuda, t, b->act.fc1, b->act.gelu, b->rows * b->F);
    }
    if (wants(b, HT_SUB_FC2)) project(b, &b->fc2, b->act.gelu, around_mlp, out);
}

void ht_cuda_block_forward(const struct ht_cuda_args *args, unsigned sub_ops, const void *params, const void *x,
                           const struct ht_block_acts *act, void *out, void *workspace)
{
    if (!can_run(args)) return;
    struct block b = block_of(args, sub_ops, params, act, NULL, workspace);
    forward(&b, x, out);
    if (!act->handed || !ht_is_front(sub_ops)) return;
    int64_t width = ht_handed_width(args->model, ht_handed(sub_ops));
    copy_rows(&b, act->handed, width, act->of[__builtin_ctz(ht_handed(sub_ops))], width, width);
}

/* ---- backward ---- */

/* Computes the gradient of gelu in dwide (B T, F); with a gate in the right half of each row. */
static void fc2_backward(const struct block *b, const void *dout)
{
    if (b->llama)
        ht_cuda_linear_backward(b->args, &b->fc2, dout, b->C, NULL, ht_offset(b->dwide, b->args->dtype, b->F), b->E);
    else
        ht_cuda_linear_backward(b->args, &b->fc2, dout, b->C, NULL, b->dwide, b->F);
}

/* Computes dwide (B T, E), the gradient of fc1, from that of gelu in its place. */
static void gelu_backward(const struct block *b)
{
    if (b->llama)
        ht_cuda_swiglu_backward(b->cuda, b->args->dtype, b->act.fc1, b->dwide, b->rows, b->F);
    else
        ht_cuda_gelu_backward(b->cuda, b->args->dtype, b->act.fc1, b->dwide, b->rows * b->F);
}

/* Computes dnorm = dy W + around (NULL: none), the gradient of a norm's output. Of a part it is its share. */
static void input_backward(const struct block *b, const struct ht_cuda_linear *l, const void *dy, const void *around)
{
    ht_cuda_linear_backward(b->args, l, dy, l->out, b->first && !b->cuts ? around : NULL, b->dnorm, b->C);
}

/* Adds up the parts' dnorm, of which they have shares, unless they cut rows. */
static void sum_norm(const struct block *b)
{
    if (!b->cuts) ht_cuda_sum_parts(b->args, b->dnorm);
}

/* Carries dnorm through the norm. `around` is that of input_backward. */
static void norm_backward(const struct block *b, const struct ht_cuda_norm *n, const void *x, const float *stats,
                          const void *around, const void *residual, void *dx, void *dweight, void *dbias)
{
    struct ht_cuda_norm_grad g = {b->args->grad, b->args->grad_store, dweight, dbias, b->columns};
    if (!b->cuts) {
        ht_cuda_norm_backward(b->cuda, n, x, b->dnorm, stats, residual, dx, &g);
        return;
    }
    ht_cuda_scatter_rows(b->args, b->dnorm, b->own);
    if (around) ht_cuda_add_rows(b->args, b->own, around);
    ht_cuda_norm_backward(b->cuda, n, x, b->own, stats, residual, dx, &g);
    ht_cuda_sum_norm_grads(b->args, dweight, dbias);
}

/* Computes dx, the gradient of proj, and the gradients of the parameters of norm2, fc1 and fc2, or what of these the pass
   has. BERT's residuals join their gradients before the norms, the others' behind them. dout: for a front, dx. */
static void backward_mlp(const struct block *b, const void *dout, void *dx)
{
    const struct ht_cuda_args *args = b->args;
    void *const *g = b->grad;
    const void *around = b->post_norm ? dout : NULL;
    if (wants(b, HT_SUB_FC2)) {
        const void *all = all_rows(b, dout);
        fc2_backward(b, all);
        if (wants(b, HT_SUB_GELU)) gelu_backward(b);
        ht_cuda_linear_grad(args, &b->fc2, b->act.gelu, all, b->C, g[FC2_W], g[FC2_B], b->columns);
    } else if (wants(b, HT_SUB_GELU)) {
        gelu_backward(b);
    }
    if (wants(b, HT_SUB_FC1)) {
        input_backward(b, &b->fc1, b->dwide, around);
        ht_cuda_linear_grad(args, &b->fc1, all_rows(b, b->act.norm2), b->dwide, b->E, g[FC1_W], g[FC1_B], b->columns);
        sum_norm(b);
    }
    if (wants(b, HT_SUB_NORM2))
        norm_backward(b, &b->norm2, b->act.proj, b->act.norm2_stats, around, b->post_norm ? NULL : dout, dx, g[LN2_W],
                      g[LN2_B]);
}

/* Computes dx, the gradient of the input, from that of proj in its place, and the gradients of the other parameters, or what
   of these the pass has. */
static void backward_attention(struct block *b, const void *x, void *dx)
{
    const struct ht_cuda_args *args = b->args;
    void *const *g = b->grad;
    const void *around = b->post_norm ? dx : NULL;
    if (wants(b, HT_SUB_PROJ)) {
        const void *all = all_rows(b, dx);
        ht_cuda_linear_backward(args, &b->proj, all, b->C, NULL, b->dattention, b->Q);
        ht_cuda_linear_grad(args, &b->proj, b->act.attention, all, b->C, g[PROJ_W], g[PROJ_B], b->columns);
    }
    if (wants(b, HT_SUB_ATTENTION)) {
        b->attention.dout = b->dattention;
        b->attention.dqkv = b->dwide;
        ht_cuda_attention_backward(b->cuda, &b->attention);
    }
    if (wants(b, HT_SUB_QKV)) {
        input_backward(b, &b->qkv, b->dwide, around);
        ht_cuda_linear_grad(args, &b->qkv, all_rows(b, b->act.norm1), b->dwide, b->W, g[QKV_W], g[QKV_B], b->columns);
        sum_norm(b);
    }
    if (wants(b, HT_SUB_NORM1))
        norm_backward(b, &b->norm1, x, b->act.norm1_stats, around, b->post_norm ? NULL : dx, dx, g[LN1_W], g[LN1_B]);
}

/* Copies the gradient of what a front hands between the buffer that the steps have and the handed tensor, as
   common/kernels/block.c does. */
static void hand_gradient(const struct block *b, void *handed, unsigned sub_op, bool take)
{
    int64_t width = ht_handed_width(b->args->model, sub_op), stride = width;
    void *own = ht_handed_alike(sub_op) ? b->dnorm : sub_op == 1u << HT_SUB_ATTENTION ? b->dattention : b->dwide;
    if (b->llama && sub_op == 1u << HT_SUB_GELU) own = ht_offset(b->dwide, b->args->dtype, b->F), stride = b->E;
    if (take)
        copy_rows(b, own, stride, handed, width, width);
    else
        copy_rows(b, handed, width, own, stride, width);
}

void ht_cuda_block_backward(const struct ht_cuda_args *args, unsigned sub_ops, const void *params, const void *x,
                            const struct ht_block_acts *act, const void *dout, void *dx, void *grad, void *workspace)
{
    if (!can_run(args) || !ht_cuda_types_fit(args)) return;
    struct block b = block_of(args, sub_ops, params, act, grad, workspace);
    bool front = ht_is_front(sub_ops), back = ht_is_back(sub_ops);
    unsigned handed = front || back ? ht_handed(sub_ops) : 0;
    if (front && handed) hand_gradient(&b, act->handed, handed, true);
    backward_mlp(&b, front ? dx : dout, dx);
    backward_attention(&b, x, dx);
    if (back && handed) hand_gradient(&b, act->handed, handed, false);
    if (back && handed && ht_hands_proj(sub_ops)) copy_rows(&b, dx, b.C, dout, b.C, b.C);
}
