/*
 * A block.
 *
 *     norm1 = norm(x)                    norm2 = norm(proj)
 *     qkv   = norm1 Wqkv^T + b           fc1   = norm2 W1^T + b
 *     att   = attention(qkv)             gelu  = gelu(fc1)
 *     proj  = x + att Wp^T + b           out   = proj + gelu W2^T + b
 *
 * BERT's residuals come from the norms: proj = norm1 + .., out = norm2 + .. (common/model/model.h). Then the gradient of
 * norm2 is that of fc1 through W1 plus dout, that of norm1 likewise, and none goes around the norms.
 *
 * LLaMA's has other parts: no b, RMSNorm, queries and keys of qkv rotated in place, F -> 2F in fc1 (gate, up), and
 * gelu = silu(gate) up. Below, E is the width of fc1 (F or 2F) and W that of qkv (3C or C + 2K).
 *
 * Only attention and the parameters' gradients mix tokens, so a pass is a few parallel steps. In each step a worker
 * chains all work that needs only its own rows:
 *
 *     forward     rows: norm1, qkv | pairs: attention | rows: proj, norm2, fc1, gelu, out
 *     backward    rows: dgelu, dfc1, dnorm2, dproj, datt | features: dW2, dW1, dnorm2's, dWp | pairs: attention |
 *                 rows: dnorm1, dx | features: dWqkv, dnorm1's
 *
 * A backward pass of one half takes of these steps what belongs to its sub-ops: the back's ends with the gradient of the
 * residual, which it leaves in dx, and the front's begins with it. What else is handed between them (common/model/halves.h)
 * is copied from the buffer in which the whole pass has it, and into that of the other.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "common/kernels/block.h"
#include "common/kernels/convert.h"
#include "common/kernels/part_sum.h"
#include "common/model/halves.h"

/* The part (ht_unit_param_parts) of each parameter: -1 where the architecture has none. LLaMA's, BERT's and ViT's q, k, v
   are rows of one matrix, and so are gate and up: the entry is the first part. */
static const int part_of[][N_PARTS] = {
    [HT_ARCH_GPT] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
    [HT_ARCH_LLAMA] = {0, -1, 1, -1, 4, -1, 5, -1, 6, -1, 8, -1},
    [HT_ARCH_BERT] = {0, 1, 2, 5, 8, 9, 10, 11, 12, 13, 14, 15},
    [HT_ARCH_VIT] = {0, 1, 2, 5, 8, 9, 10, 11, 12, 13, 14, 15},
};

static void *at(void *base, struct ht_act_part part)
{
    return (char *)base + part.offset;
}

/* Returns element i of a matrix in the type of the block's activations. */
static void *element(const struct ht_block *b, const void *matrix, int64_t i)
{
    return ht_element(matrix, b->simd->stored, i);
}

/* Returns the beginning of a part that its sub-op keeps behind the first; NULL when the sub-op's row is absent. */
static void *behind(void *first_at, struct ht_act_part first, struct ht_act_part part)
{
    return first_at ? (char *)first_at + (part.offset - first.offset) : NULL;
}

static void block_init(struct ht_block *b, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                       const void *x, const struct ht_block_acts *act, void *grad, void *workspace)
{
    void *const *kept = act->of;
    const struct ht_model *m = args->model;
    bool llama = m->arch == HT_ARCH_LLAMA;
    int64_t C = m->width, Q = ht_model_q_width(m), K = ht_model_kv_width(m), F = ht_model_ffn(m), D = C / m->heads;
    int64_t H = ht_model_heads(m);
    bool first = m->part == 0;
    assert(!m->dropout && C % m->heads == 0 && H % ht_model_kv_heads(m) == 0);
    assert(llama ? D % 2 == 0 : K == Q);
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    ht_unit_param_parts(m, 1, parts);
    const void *p[N_PARTS];
    for (int i = 0; i < N_PARTS; i++) {
        int at = part_of[m->arch][i];
        p[i] = at < 0 ? NULL : ht_element(params, args->dtype, parts[at].offset);
    }
    struct ht_act_layout l;
    ht_block_activations(m, HT_ALL_SUB_OPS, args->batch, args->seq, args->dtype, &l);
    struct ht_workspace_layout w;
    ht_block_workspace(m, sub_ops, args->batch, args->seq, args->dtype, grad != NULL, &w);

    *b = (struct ht_block){
        .simd = ht_simd_for(args->dtype),
        .n_rows = args->batch * args->seq,
        .n_own = ht_model_rows(m, args->batch * args->seq),
        .sub_ops = sub_ops,
        .norm1 = {p[LN1_W], p[LN1_B], C, (float)m->norm_eps},
        .norm2 = {p[LN2_W], p[LN2_B], C, (float)m->norm_eps},
        .qkv = {p[QKV_W], p[QKV_B], .in = C, .out = Q + 2 * K, .y_type = args->dtype},
        .proj = {p[PROJ_W], first ? p[PROJ_B] : NULL, .in = Q, .out = C, .y_type = args->dtype},
        .fc1 = {p[FC1_W], p[FC1_B], .in = C, .out = llama ? 2 * F : F, .y_type = args->dtype},
        .fc2 = {p[FC2_W], first ? p[FC2_B] : NULL, .in = F, .out = C, .y_type = args->dtype},
        .first = first,
        .rotates = llama,
        .gated = llama,
        .post_norm = ht_arch_post_norm(m->arch),
        .act = {.norm1 = kept[HT_SUB_NORM1],
                .norm1_stats = behind(kept[HT_SUB_NORM1], l.norm1, l.norm1_stats),
                .qkv = kept[HT_SUB_QKV],
                .attention = kept[HT_SUB_ATTENTION],
                .proj = kept[HT_SUB_PROJ],
                .norm2 = kept[HT_SUB_NORM2],
                .norm2_stats = behind(kept[HT_SUB_NORM2], l.norm2, l.norm2_stats),
                .fc1 = kept[HT_SUB_FC1],
                .gelu = kept[HT_SUB_GELU]},
        .x = x,
    };
    b->rotary = (struct ht_rotary){.seq = args->seq,
                                   .heads = H + ht_model_kv_heads(m),
                                   .head_size = D,
                                   .stride = b->qkv.out,
                                   .theta = m->rope_theta};
    b->attention = (struct ht_attention){
        .batch = args->batch,
        .seq = args->seq,
        .heads = H,
        .kv_heads = ht_model_kv_heads(m),
        .width = Q,
        .bidirectional = ht_arch_bidirectional(m->arch),
        .type = args->dtype,
        .qkv = b->act.qkv,
        .out = b->act.attention,
        .probs = m->flash ? NULL : behind(kept[HT_SUB_ATTENTION], l.attention, l.probs),
        .lse = m->flash ? behind(kept[HT_SUB_ATTENTION], l.attention, l.lse) : NULL,
        .scores = w.scores.bytes && workspace ? at(workspace, w.scores) : NULL,
        .tile_floats = w.tile_bytes / (int64_t)sizeof(float),
        .slots = ht_attention_slots(m, args->batch),
    };
    if (ht_model_cuts_rows(m) && workspace) b->all = at(workspace, w.rows), b->own = at(workspace, w.own);
    if (!grad) return;
    b->attention.dscores = at(workspace, w.dscores);
    b->attention.dkv = w.dkv.bytes ? at(workspace, w.dkv) : NULL;
    b->attention.dkv_floats = w.dkv_bytes / (int64_t)sizeof(float);
    b->stored = (struct ht_stored){args->grad, args->grad_store};
    b->dwide = at(workspace, w.wide);
    b->dnorm = at(workspace, w.narrow);
    b->dattention = at(workspace, w.attention);
    for (int i = 0; i < N_PARTS; i++) {
        int at = part_of[m->arch][i];
        b->grad[i] = at < 0 ? NULL : ht_element(grad, args->grad_store, parts[at].offset);
    }
}

/* Returns true if the pass has one of the sub-ops, a sum of 1 << HT_SUB_... */
static bool wants_any(const struct ht_block *b, unsigned sub_ops)
{
    return b->sub_ops & sub_ops;
}

/* ---- forward ---- */

/* Copies what a front hands on. */
static void hand_output(const struct ht_unit_args *args, const struct ht_block_acts *act, unsigned handed)
{
    int64_t elements = args->batch * args->seq * ht_handed_width(args->model, handed);
    memcpy(act->handed, act->of[__builtin_ctz(handed)], (size_t)(elements * ht_dtype_bytes(args->dtype)));
}

/* Returns a residual where this part adds it: in the first part, and where there is one. */
static const void *in_first(const struct ht_block *b, const void *residual)
{
    return b->first ? residual : NULL;
}

static void forward_before_attention(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    if (ht_block_wants(b, HT_SUB_NORM1))
        ht_rows_norm(b->simd, &b->norm1, b->x, b->act.norm1, b->act.norm1_stats, b->n_rows, rows);
    if (!ht_block_wants(b, HT_SUB_QKV)) return;
    ht_rows_linear(b->simd, &b->qkv, b->act.norm1, NULL, b->act.qkv, rows);
    if (b->rotates) ht_rows_rotate(b->simd, &b->rotary, false, b->act.qkv, rows);
}

void ht_block_attend(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_attention_forward(b->simd, &b->attention, worker, n_workers);
}

void ht_block_activate(const struct ht_block *b, struct ht_range rows)
{
    int64_t F = b->fc2.in;
    if (!b->gated) {
        b->simd->gelu(element(b, b->act.fc1, rows.begin * F), element(b, b->act.gelu, rows.begin * F),
                      (rows.end - rows.begin) * F);
        return;
    }
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const void *gate = element(b, b->act.fc1, r * 2 * F), *up = element(b, gate, F);
        b->simd->swiglu(gate, up, element(b, b->act.gelu, r * F), F);
    }
}

static void forward_projection(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    if (ht_block_wants(b, HT_SUB_PROJ))
        ht_rows_linear(b->simd, &b->proj, b->act.attention, in_first(b, b->post_norm ? b->act.norm1 : b->x),
                       b->act.proj, rows);
}

static void forward_after_projection(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    if (ht_block_wants(b, HT_SUB_NORM2))
        ht_rows_norm(b->simd, &b->norm2, b->act.proj, b->act.norm2, b->act.norm2_stats, b->n_rows, rows);
    if (ht_block_wants(b, HT_SUB_FC1)) ht_rows_linear(b->simd, &b->fc1, b->act.norm2, NULL, b->act.fc1, rows);
    if (ht_block_wants(b, HT_SUB_GELU)) ht_block_activate(b, rows);
    if (ht_block_wants(b, HT_SUB_FC2))
        ht_rows_linear(b->simd, &b->fc2, b->act.gelu, in_first(b, b->post_norm ? b->act.norm2 : b->act.proj), b->out,
                       rows);
}

void ht_block_forward(const struct ht_unit_args *args, unsigned sub_ops, const void *params, const void *x,
                      const struct ht_block_acts *act, void *out, void *workspace)
{
    struct ht_block b;
    block_init(&b, args, sub_ops, params, x, act, NULL, workspace);
    b.out = out;
    if (ht_model_cuts_rows(args->model)) {
        ht_block_forward_by_rows(args, &b);
        return;
    }
    ht_pool_run(args->pool, forward_before_attention, &b);
    if (ht_block_wants(&b, HT_SUB_ATTENTION)) ht_pool_run(args->pool, ht_block_attend, &b);
    ht_run_rows(args, &b, forward_projection, ht_block_wants(&b, HT_SUB_PROJ) ? b.act.proj : NULL,
                forward_after_projection);
    if (ht_block_wants(&b, HT_SUB_FC2)) ht_sum_parts(args, b.out);
    if (act->handed && ht_is_front(sub_ops)) hand_output(args, act, ht_handed(sub_ops));
}

/* ---- backward ---- */

/* Computes dwide (rows, F), the gradient of gelu, from dout; with a gate in the right half of each row. */
static void fc2_backward(const struct ht_block *b, struct ht_range rows)
{
    int64_t F = b->fc2.in, C = b->fc2.out, n = rows.end - rows.begin;
    if (!b->gated) {
        ht_rows_linear_backward(b->simd, &b->fc2, b->dout, NULL, b->dwide, rows);
        return;
    }
    b->simd->gemm(&(struct ht_gemm){.m = n,
                                    .n = F,
                                    .k = C,
                                    .a = element(b, b->dout, rows.begin * C),
                                    .a_stride = C,
                                    .a_type = b->simd->stored,
                                    .b = b->fc2.weight,
                                    .b_stride = F,
                                    .b_type = b->simd->stored,
                                    .c = element(b, b->dwide, rows.begin * 2 * F + F),
                                    .c_stride = 2 * F,
                                    .c_stored = {b->simd->stored, b->simd->stored}});
}

/* Computes dwide (rows, E), the gradient of fc1, from that of gelu in its place. */
static void gelu_backward(const struct ht_block *b, struct ht_range rows)
{
    int64_t F = b->fc2.in, n = rows.end - rows.begin;
    if (!b->gated) {
        b->simd->gelu_backward(element(b, b->act.fc1, rows.begin * F), element(b, b->dwide, rows.begin * F), n * F);
        return;
    }
    for (int64_t r = rows.begin; r < rows.end; r++) {
        const void *gate = element(b, b->act.fc1, r * 2 * F), *up = element(b, gate, F);
        void *dgate = element(b, b->dwide, r * 2 * F);
        b->simd->swiglu_backward(gate, up, dgate, element(b, dgate, F), F);
    }
}

void ht_block_activate_backward(const struct ht_block *b, struct ht_range rows)
{
    fc2_backward(b, rows);
    gelu_backward(b, rows);
}

static void backward_mlp(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    if (ht_block_wants(b, HT_SUB_FC2)) fc2_backward(b, rows);
    if (ht_block_wants(b, HT_SUB_GELU)) gelu_backward(b, rows);
    if (!ht_block_wants(b, HT_SUB_FC1)) return;
    const void *around = b->post_norm ? in_first(b, b->dout) : NULL;
    ht_rows_linear_backward(b->simd, &b->fc1, b->dwide, around, b->dnorm, rows); /* of norm2 */
}

static void backward_projection(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    const void *around = b->post_norm ? NULL : b->dout;
    if (ht_block_wants(b, HT_SUB_NORM2))
        ht_rows_norm_backward(b->simd, &b->norm2, b->act.proj, b->dnorm, b->act.norm2_stats, around, b->dx, b->n_rows,
                              rows); /* of proj */
    if (ht_block_wants(b, HT_SUB_PROJ)) ht_rows_linear_backward(b->simd, &b->proj, b->dx, NULL, b->dattention, rows);
}

static void grads_of_mlp(const struct ht_block *b, int worker, int n_workers)
{
    struct ht_range narrow = ht_range_split(b->norm2.width, HT_FEATURE_GRAIN, worker, n_workers);
    struct ht_range wide = ht_range_split(b->fc1.out, HT_FEATURE_GRAIN, worker, n_workers);
    void *const *g = b->grad;
    if (ht_block_wants(b, HT_SUB_FC2))
        ht_features_linear_grad(b->simd, &b->fc2, b->act.gelu, b->dout, b->n_rows, b->stored, g[FC2_W], g[FC2_B],
                                narrow);
    if (ht_block_wants(b, HT_SUB_FC1))
        ht_features_linear_grad(b->simd, &b->fc1, b->act.norm2, b->dwide, b->n_rows, b->stored, g[FC1_W], g[FC1_B],
                                wide);
    if (ht_block_wants(b, HT_SUB_NORM2))
        ht_features_norm_grad(b->simd, &b->norm2, b->act.proj, b->dnorm, b->act.norm2_stats, b->n_rows, b->stored,
                              g[LN2_W], g[LN2_B], narrow);
}

static void grads_after_attention(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range columns = ht_range_split(b->proj.out, HT_FEATURE_GRAIN, worker, n_workers);
    grads_of_mlp(b, worker, n_workers);
    if (ht_block_wants(b, HT_SUB_PROJ))
        ht_features_linear_grad(b->simd, &b->proj, b->act.attention, b->dx, b->n_rows, b->stored, b->grad[PROJ_W],
                                b->grad[PROJ_B], columns);
}

void ht_block_attend_backward(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    ht_attention_backward(b->simd, &b->attention, b->dattention, b->dwide, worker, n_workers); /* dwide: of qkv */
}

static void backward_qkv(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    if (!ht_block_wants(b, HT_SUB_QKV)) return;
    if (b->rotates) ht_rows_rotate(b->simd, &b->rotary, true, b->dwide, rows);
    const void *around = b->post_norm ? in_first(b, b->dx) : NULL;
    ht_rows_linear_backward(b->simd, &b->qkv, b->dwide, around, b->dnorm, rows); /* of norm1 */
}

static void backward_input(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    struct ht_range rows = ht_block_rows(b, worker, n_workers);
    const void *around = b->post_norm ? NULL : b->dx;
    if (ht_block_wants(b, HT_SUB_NORM1))
        ht_rows_norm_backward(b->simd, &b->norm1, b->x, b->dnorm, b->act.norm1_stats, around, b->dx, b->n_rows, rows);
}

static void grads_before_attention(void *arg, int worker, int n_workers)
{
    struct ht_block *b = arg;
    int64_t C = b->norm1.width;
    struct ht_range features = ht_range_split(b->qkv.out, HT_FEATURE_GRAIN, worker, n_workers);
    struct ht_range columns = ht_range_split(C, HT_FEATURE_GRAIN, worker, n_workers);
    if (ht_block_wants(b, HT_SUB_QKV))
        ht_features_linear_grad(b->simd, &b->qkv, b->act.norm1, b->dwide, b->n_rows, b->stored, b->grad[QKV_W],
                                b->grad[QKV_B], features);
    if (ht_block_wants(b, HT_SUB_NORM1))
        ht_features_norm_grad(b->simd, &b->norm1, b->x, b->dnorm, b->act.norm1_stats, b->n_rows, b->stored,
                              b->grad[LN1_W], b->grad[LN1_B], columns);
}

/* Copies the gradient of what a front hands on between the buffer that the steps have and the handed tensor, to which the
   back writes it and from which the front takes it. */
static void hand_gradient(const struct ht_block *b, void *handed, unsigned sub_op, bool take)
{
    int64_t F = b->fc2.in, e = ht_dtype_bytes(b->simd->stored), width, stride;
    char *from = b->dwide, *to = handed;
    if (ht_handed_alike(sub_op))
        from = b->dnorm, width = b->norm1.width;
    else if (sub_op == 1u << HT_SUB_ATTENTION)
        from = b->dattention, width = b->proj.in;
    else
        width = sub_op == 1u << HT_SUB_QKV ? b->qkv.out : sub_op == 1u << HT_SUB_FC1 ? b->fc1.out : F;
    stride = width;
    if (b->gated && sub_op == 1u << HT_SUB_GELU) from += F * e, stride = 2 * F;
    for (int64_t r = 0; r < b->n_rows; r++) {
        char *own = from + r * stride * e, *other = to + r * width * e;
        memcpy(take ? own : other, take ? other : own, (size_t)(width * e));
    }
}

/* Runs the steps of a half or of all, between which the parts add up what they have of the norms' gradients. */
static void run_backward(const struct ht_unit_args *args, struct ht_block *b)
{
    const unsigned mlp = 1u << HT_SUB_FC1 | 1u << HT_SUB_GELU | 1u << HT_SUB_FC2,
                   between = 1u << HT_SUB_PROJ | 1u << HT_SUB_NORM2, first = 1u << HT_SUB_NORM1 | 1u << HT_SUB_QKV;
    if (wants_any(b, mlp))
        ht_run_rows(args, b, backward_mlp, ht_block_wants(b, HT_SUB_FC1) ? b->dnorm : NULL, backward_projection);
    else if (wants_any(b, between))
        ht_pool_run(args->pool, backward_projection, b);
    if (wants_any(b, mlp | between)) ht_pool_run(args->pool, grads_after_attention, b);
    if (ht_block_wants(b, HT_SUB_ATTENTION)) ht_pool_run(args->pool, ht_block_attend_backward, b);
    if (!wants_any(b, first)) return;
    ht_run_rows(args, b, backward_qkv, ht_block_wants(b, HT_SUB_QKV) ? b->dnorm : NULL, backward_input);
    ht_pool_run(args->pool, grads_before_attention, b);
}

void ht_block_backward(const struct ht_unit_args *args, unsigned sub_ops, const void *params, const void *x,
                       const struct ht_block_acts *act, const void *dout, void *dx, void *grad, void *workspace)
{
    struct ht_block b;
    bool front = ht_is_front(sub_ops), back = ht_is_back(sub_ops);
    unsigned handed = front || back ? ht_handed(sub_ops) : 0;
    assert(sub_ops == HT_ALL_SUB_OPS || front || back);
    block_init(&b, args, sub_ops, params, x, act, grad, workspace);
    assert(!handed || !(b.post_norm || ht_model_cuts_rows(args->model)));
    b.dout = front ? dx : dout; /* the front's residual is what dx holds */
    b.dx = dx;
    if (ht_model_cuts_rows(args->model)) {
        ht_block_backward_by_rows(args, &b);
        return;
    }
    if (front && handed) hand_gradient(&b, act->handed, handed, true);
    run_backward(args, &b);
    if (back && handed) hand_gradient(&b, act->handed, handed, false);
    if (back && handed && ht_hands_proj(sub_ops)) /* the residual goes around all of the back */
        memcpy(dx, dout, (size_t)(b.n_rows * b.fc2.out * ht_dtype_bytes(args->dtype)));
}
