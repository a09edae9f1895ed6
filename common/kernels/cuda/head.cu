/* The embedding and head units, in the steps of common/kernels/embedding.c and head.c. */
#include "common/kernels/cuda/unit.cuh"

void ht_cuda_embedding_forward(const struct ht_cuda_args *args, const void *input, const void *params, void *out,
                               void *workspace)
{
    const struct ht_model *m = args->model;
    const int32_t *tokens = (const int32_t *)input;
    if (m->arch == HT_ARCH_VIT) {
        ht_cuda_patches_forward(args, (const unsigned char *)input, params, out, workspace);
        return;
    }
    int64_t C = m->width, V = ht_model_vocab(m), first = ht_model_first_token(m);
    const void *wpe = m->arch == HT_ARCH_LLAMA ? NULL : ht_offset(params, args->dtype, V * C);
    const void *wtype = m->arch == HT_ARCH_BERT ? ht_offset(wpe, args->dtype, m->max_seq * C) : NULL;
    if (ht_model_parts(m) == 1) {
        ht_cuda_embed(args->cuda, args->dtype, tokens, first, V, params, wpe, wtype, out, args->batch, args->seq, C);
        return;
    }
    struct ht_cuda_workspace w;
    ht_cuda_workspace_of(m, 0, args->batch, args->seq, args->dtype, false, &w);
    void *all = ht_model_cuts_rows(m) ? (char *)workspace + w.rows : out;
    ht_cuda_embed(args->cuda, args->dtype, tokens, first, V, params, NULL, NULL, all, args->batch, args->seq, C);
    if (ht_model_cuts_rows(m))
        ht_cuda_scatter_rows(args, all, out);
    else
        ht_cuda_sum_parts(args, out);
    if (wpe)
        ht_cuda_add_positions(args->cuda, args->dtype, out, wpe, wtype, ht_cuda_first_row(args), ht_cuda_own_rows(args),
                              args->seq, C);
}

void ht_cuda_embedding_backward(const struct ht_cuda_args *args, const void *input, const void *dout, void *grad,
                                void *workspace)
{
    const struct ht_model *m = args->model;
    const int32_t *tokens = (const int32_t *)input;
    int64_t C = m->width, rows = args->batch * args->seq, V = ht_model_vocab(m);
    void *dwpe = m->arch == HT_ARCH_LLAMA ? NULL : ht_offset(grad, args->grad_store, V * C);
    struct ht_cuda_workspace w;
    if (!ht_cuda_types_fit(args)) return;
    if (m->arch == HT_ARCH_VIT) {
        ht_cuda_patches_backward(args, (const unsigned char *)input, dout, grad, workspace);
        return;
    }
    ht_cuda_workspace_of(m, 0, args->batch, args->seq, args->dtype, true, &w);
    if (ht_model_cuts_rows(m)) {
        ht_cuda_gather_rows(args, dout, (char *)workspace + w.rows);
        dout = (char *)workspace + w.rows;
    }
    ht_cuda_embed_backward(args->cuda, args->dtype, tokens, dout, args->grad, args->grad_store, grad, dwpe, m->tied,
                           args->batch, args->seq, C, ht_model_first_token(m), V, m->max_seq, (int32_t *)workspace);
    if (m->arch != HT_ARCH_BERT) return;
    void *dwtype = ht_offset(dwpe, args->grad_store, m->max_seq * C); /* all tokens are of the first type */
    ht_cuda_column_sum(args->cuda, args->dtype, dout, rows, C, args->grad, args->grad_store, dwtype,
                       (float *)((char *)workspace + w.columns));
    ht_cuda_zero(args->cuda, ht_offset(dwtype, args->grad_store, C), C * ht_dtype_bytes(args->grad_store));
}

struct head {
    int64_t rows, C, V, stride; /* of the logits */
    int64_t matrix_at;          /* the head's own matrix follows the norm's elements */
    struct ht_cuda_norm norm;
    struct ht_cuda_linear matrix;
    void *norm_out;
    float *stats;
};

static struct head head_of(const struct ht_cuda_args *args, const void *params, const void *wte, void *act)
{
    const struct ht_model *m = args->model;
    bool biased = m->arch == HT_ARCH_GPT;
    struct head h = {};
    struct ht_act_layout l;
    ht_head_activations(m, args->batch, args->seq, args->dtype, &l);
    h.rows = args->batch * args->seq;
    h.C = m->width;
    h.V = ht_model_vocab(m);
    h.stride = ht_logits_stride(m);
    h.matrix_at = biased ? 2 * h.C : h.C;
    struct ht_cuda_norm norm = {
        args->dtype,       ht_cuda_own_rows(args), h.C, params, biased ? ht_offset(params, args->dtype, h.C) : NULL,
        (float)m->norm_eps};
    struct ht_cuda_linear matrix = {m->tied ? wte : ht_offset(params, args->dtype, h.matrix_at), NULL, h.C, h.V};
    h.norm = norm;
    h.matrix = matrix;
    h.norm_out = (char *)act + l.norm1.offset;
    h.stats = (float *)((char *)act + l.norm1_stats.offset);
    return h;
}

/* Returns the norm's output of all rows. */
static const void *all_rows(const struct ht_cuda_args *args, const void *own, void *workspace,
                            const struct ht_cuda_workspace *w)
{
    if (!ht_model_cuts_rows(args->model)) return own;
    ht_cuda_gather_rows(args, own, (char *)workspace + w->rows);
    return (char *)workspace + w->rows;
}

/* Computes loss and gradient of a part's tokens. mine: (B,T,2), followed by that of all parts. */
static void part_loss(const struct ht_cuda_args *args, const struct head *h, float *logits, const int32_t *targets,
                      float scale, float *mine, double *row_loss)
{
    const struct ht_model *m = args->model;
    float *theirs = mine + 2 * h->rows;
    int64_t first = ht_model_first_token(m);
    ht_cuda_part_peaks(args->cuda, logits, targets, first, h->rows, h->V, h->stride, mine);
    if (args->cuda->error.status) return;
    args->link->gather(args->link->ctx, mine, theirs, HT_F32, 2 * h->rows);
    ht_cuda_part_cross_entropy(args->cuda, args->dtype, logits, targets, first, h->rows, h->V, h->stride, scale, theirs,
                               ht_model_parts(m), row_loss);
}

void ht_cuda_head_forward(const struct ht_cuda_args *args, const void *params, const void *wte, const void *x,
                          void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                          void *workspace)
{
    if (args->model->classes) {
        ht_cuda_classifier_forward(args, params, x, act, logits, targets, scale, loss_sum, workspace);
        return;
    }
    struct head h = head_of(args, params, wte, act);
    struct ht_cuda_workspace w;
    ht_cuda_workspace_of(args->model, args->model->layers + 1, args->batch, args->seq, args->dtype, false, &w);
    double *row_loss = (double *)((char *)workspace + w.row_loss);
    ht_cuda_norm_forward(args->cuda, &h.norm, x, h.norm_out, h.stats);
    const void *norm_out = all_rows(args, h.norm_out, workspace, &w);
    struct ht_cuda_product p = {};
    p.in = args->dtype;
    p.out = HT_F32;
    p.m = h.rows;
    p.n = h.V;
    p.k = h.C;
    p.a = norm_out;
    p.a_stride = h.C;
    p.b = h.matrix.weight;
    p.b_stride = h.C;
    p.b_transposed = true;
    p.c = logits;
    p.c_stride = h.stride;
    ht_cuda_multiply(args->cuda, &p);
    if (ht_model_parts(args->model) == 1)
        ht_cuda_cross_entropy(args->cuda, args->dtype, logits, targets, h.rows, h.V, h.stride, scale, row_loss);
    else
        part_loss(args, &h, logits, targets, scale, (float *)((char *)workspace + w.part_rows), row_loss);
    ht_cuda_sum(args->cuda, row_loss, h.rows, loss_sum);
}

void ht_cuda_head_backward(const struct ht_cuda_args *args, const void *params, const void *wte, const void *x,
                           const void *act, const float *dlogits, void *dx, void *grad, void *dwte, void *workspace)
{
    if (!ht_cuda_types_fit(args)) return;
    if (args->model->classes) {
        ht_cuda_classifier_backward(args, params, act, dlogits, dx, grad, workspace);
        return;
    }
    bool tied = args->model->tied;
    struct head h = head_of(args, params, wte, (void *)act); /* act is only read */
    struct ht_cuda_workspace w;
    ht_cuda_workspace_of(args->model, args->model->layers + 1, args->batch, args->seq, args->dtype, true, &w);
    void *dnorm = (char *)workspace + w.narrow;
    float *columns = (float *)((char *)workspace + w.columns);
    int64_t stride = args->dtype == HT_F32 ? h.stride : 2 * h.stride; /* ht_cuda_cross_entropy */
    void *dbias = h.norm.bias ? ht_offset(grad, args->grad_store, h.C) : NULL;
    struct ht_cuda_norm_grad g = {args->grad, args->grad_store, grad, dbias, columns};
    void *dmatrix = tied ? dwte : ht_offset(grad, args->grad_store, h.matrix_at);
    ht_cuda_linear_backward(args, &h.matrix, dlogits, stride, NULL, dnorm, h.C);
    if (ht_model_cuts_rows(args->model)) {
        ht_cuda_scatter_rows(args, dnorm, (char *)workspace + w.own);
        dnorm = (char *)workspace + w.own;
    } else {
        ht_cuda_sum_parts(args, dnorm);
    }
    const void *norm_out = all_rows(args, h.norm_out, workspace, &w);
    ht_cuda_norm_backward(args->cuda, &h.norm, x, dnorm, h.stats, NULL, dx, &g);
    ht_cuda_linear_grad(args, &h.matrix, norm_out, dlogits, stride, dmatrix, NULL, columns);
    if (ht_model_cuts_rows(args->model)) ht_cuda_sum_norm_grads(args, grad, dbias);
}
