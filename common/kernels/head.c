/*
 * Head: final norm, logits against the token table (or a matrix of its own), softmax cross-entropy.
 *
 *     forward     rows: norm, logits = norm W^T, loss and dlogits in place
 *     backward    rows: dnorm = dlogits W, dx | features: dW = dlogits^T norm, the norm's gradients
 *
 * A part (unit.h) has logits of its own tokens: it computes their softmax first, and scales it down by the others'
 * log-sum-exp. A model with classes has another head (classifier.h).
 */
#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "common/kernels/classifier.h"
#include "common/kernels/convert.h"
#include "common/kernels/part_sum.h"
#include "common/kernels/rows.h"
#include "common/kernels/unit.h"

struct head {
    const struct ht_simd *simd;
    int64_t n_rows, n_own; /* B T, and those of the norm: a part may cut them */
    struct ht_norm norm;
    struct ht_linear matrix;
    void *norm_out;
    const void *all; /* norm_out of all rows */
    float *stats;
    const void *x;
    float scale;
    const int32_t *targets; /* NULL: logits only */
    float *logits;
    double *row_loss;
    /* for a part of a tensor-parallel model */
    int64_t first_token, parts;
    float *mine, *theirs; /* (B,T,2), (parts,B,T,2): log-sum-exp of a row's part, and the target's logit or 0 */
    /* backward */
    const float *dlogits;
    void *dnorm, *dx, *dnorm_weight, *dnorm_bias, *dmatrix;
    struct ht_stored stored; /* of the parameters' gradients */
};

static void head_init(struct head *h, const struct ht_unit_args *args, const void *params, const void *wte,
                      const void *x, void *act)
{
    const struct ht_model *m = args->model;
    bool biased = m->arch == HT_ARCH_GPT;
    int64_t C = m->width, n_norm = biased ? 2 * C : C; /* the matrix follows the norm's elements */
    assert(m->tied == (wte != NULL));
    struct ht_act_layout l;
    ht_head_activations(m, args->batch, args->seq, args->dtype, &l);
    *h = (struct head){
        .simd = ht_simd_for(args->dtype),
        .n_rows = args->batch * args->seq,
        .n_own = ht_model_rows(m, args->batch * args->seq),
        .norm = {params, biased ? ht_element(params, args->dtype, C) : NULL, C, (float)m->norm_eps},
        .matrix = {.weight = m->tied ? wte : ht_element(params, args->dtype, n_norm),
                   .in = C,
                   .out = ht_model_vocab(m),
                   .y_stride = ht_logits_stride(m),
                   .y_type = HT_F32},
        .norm_out = (char *)act + l.norm1.offset,
        .all = (char *)act + l.norm1.offset,
        .stats = (float *)((char *)act + l.norm1_stats.offset),
        .x = x,
        .first_token = ht_model_first_token(m),
        .parts = ht_model_parts(m),
    };
}

/* Returns the logit of a row's target, or NULL when another part has it. */
static float *target_of(const struct head *h, int64_t row)
{
    int64_t token = h->targets[row] - h->first_token;
    return token >= 0 && token < h->matrix.out ? h->logits + row * h->matrix.y_stride + token : NULL;
}

static void forward_norm(void *arg, int worker, int n_workers)
{
    struct head *h = arg;
    struct ht_range rows = ht_range_split(h->n_own, HT_ROW_GRAIN, worker, n_workers);
    ht_rows_norm(h->simd, &h->norm, h->x, h->norm_out, h->stats, h->n_own, rows);
}

static void forward_logits(void *arg, int worker, int n_workers)
{
    struct head *h = arg;
    int64_t V = h->matrix.out;
    struct ht_range rows = ht_range_split(h->n_rows, HT_ROW_GRAIN, worker, n_workers);
    ht_rows_linear(h->simd, &h->matrix, h->all, NULL, h->logits, rows);
    for (int64_t r = rows.begin; r < rows.end && h->targets; r++) {
        float *logits = h->logits + r * h->matrix.y_stride;
        if (h->parts > 1) {
            const float *picked = target_of(h, r);
            h->mine[2 * r + 1] = picked ? *picked : 0;
            h->mine[2 * r] = h->simd->softmax(logits, V, V, 1);
            continue;
        }
        assert(h->targets[r] >= 0 && h->targets[r] < V);
        h->row_loss[r] = h->simd->cross_entropy(logits, V, h->targets[r], h->scale);
    }
}

static void forward(void *arg, int worker, int n_workers)
{
    forward_norm(arg, worker, n_workers);
    forward_logits(arg, worker, n_workers);
}

/* Computes the gradient from the softmax of the part's tokens and the others' log-sum-exp. Every part adds up in the
   same order. */
static void forward_part(void *arg, int worker, int n_workers)
{
    struct head *h = arg;
    int64_t V = h->matrix.out, R = h->n_rows;
    struct ht_range rows = ht_range_split(R, HT_ROW_GRAIN, worker, n_workers);
    for (int64_t r = rows.begin; r < rows.end; r++) {
        float *logits = h->logits + r * h->matrix.y_stride, *picked = target_of(h, r);
        double max = h->theirs[2 * r], sum = 0, target = 0;
        for (int64_t q = 1; q < h->parts; q++) max = fmax(max, h->theirs[2 * (q * R + r)]);
        for (int64_t q = 0; q < h->parts; q++) {
            sum += exp(h->theirs[2 * (q * R + r)] - max);
            target += h->theirs[2 * (q * R + r) + 1];
        }
        float factor = (float)(exp(h->mine[2 * r] - max) / sum * h->scale);
        for (int64_t v = 0; v < V; v++) logits[v] *= factor;
        if (picked) *picked -= h->scale;
        h->row_loss[r] = log(sum) + (max - target);
    }
}

void ht_head_forward(const struct ht_unit_args *args, const void *params, const void *wte, const void *x, void *act,
                     float *logits, const int32_t *targets, float scale, double *loss_sum, void *workspace)
{
    if (args->model->classes) {
        ht_classifier_forward(args, params, x, act, logits, targets, scale, loss_sum, workspace);
        return;
    }
    struct head h;
    struct ht_workspace_layout w;
    head_init(&h, args, params, wte, x, act);
    ht_unit_workspace(args->model, args->model->layers + 1, args->batch, args->seq, args->dtype, false, &w);
    h.logits = logits;
    h.targets = targets;
    h.scale = scale;
    h.row_loss = workspace;
    h.mine = (float *)((char *)workspace + w.part_rows.offset);
    h.theirs = h.mine + 2 * h.n_rows;
    if (ht_model_cuts_rows(args->model)) {
        void *all = (char *)workspace + w.rows.offset;
        ht_pool_run(args->pool, forward_norm, &h);
        ht_gather_rows(args, h.norm_out, all);
        h.all = all;
        ht_pool_run(args->pool, forward_logits, &h);
    } else {
        ht_pool_run(args->pool, forward, &h);
    }
    if (h.parts > 1) {
        args->link->gather(args->link->ctx, h.mine, h.theirs, HT_F32, 2 * h.n_rows);
        ht_pool_run(args->pool, forward_part, &h);
    }
    double sum = 0;
    for (int64_t r = 0; r < h.n_rows; r++) sum += h.row_loss[r];
    *loss_sum = sum;
}

void ht_head_logits(const struct ht_unit_args *args, const void *params, const void *wte, const void *x, void *act,
                    float *logits)
{
    struct head h;
    if (args->model->classes) {
        ht_classifier_forward(args, params, x, act, logits, NULL, 0, NULL, NULL);
        return;
    }
    head_init(&h, args, params, wte, x, act);
    h.logits = logits;
    ht_pool_run(args->pool, forward, &h);
}

static void backward_logits(void *arg, int worker, int n_workers)
{
    struct head *h = arg;
    struct ht_range rows = ht_range_split(h->n_rows, HT_ROW_GRAIN, worker, n_workers);
    ht_rows_linear_backward(h->simd, &h->matrix, h->dlogits, NULL, h->dnorm, rows);
}

static void backward_norm(void *arg, int worker, int n_workers)
{
    struct head *h = arg;
    struct ht_range rows = ht_range_split(h->n_own, HT_ROW_GRAIN, worker, n_workers);
    ht_rows_norm_backward(h->simd, &h->norm, h->x, h->dnorm, h->stats, NULL, h->dx, h->n_own, rows);
}

static void backward_features(void *arg, int worker, int n_workers)
{
    struct head *h = arg;
    struct ht_range tokens = ht_range_split(h->matrix.out, HT_FEATURE_GRAIN, worker, n_workers);
    struct ht_range columns = ht_range_split(h->norm.width, HT_FEATURE_GRAIN, worker, n_workers);
    ht_features_linear_grad(h->simd, &h->matrix, h->all, h->dlogits, h->n_rows, h->stored, h->dmatrix, NULL, tokens);
    ht_features_norm_grad(h->simd, &h->norm, h->x, h->dnorm, h->stats, h->n_own, h->stored, h->dnorm_weight,
                          h->dnorm_bias, columns);
}

void ht_head_backward(const struct ht_unit_args *args, const void *params, const void *wte, const void *x,
                      const void *act, const float *dlogits, void *dx, void *grad, void *dwte, void *workspace)
{
    const struct ht_model *m = args->model;
    struct head h;
    assert(m->tied == (dwte != NULL));
    if (m->classes) {
        ht_classifier_backward(args, params, act, dlogits, dx, grad, workspace);
        return;
    }
    head_init(&h, args, params, wte, x, (void *)act); /* the backward steps do not write act */
    h.dlogits = dlogits;
    h.dnorm = workspace;
    h.dx = dx;
    h.dnorm_weight = grad;
    h.dnorm_bias = h.norm.bias ? ht_element(grad, args->grad_store, m->width) : NULL;
    h.dmatrix = m->tied ? dwte : ht_element(grad, args->grad_store, (h.norm.bias ? 2 : 1) * m->width);
    h.stored = (struct ht_stored){args->grad, args->grad_store};
    if (!ht_model_cuts_rows(m)) {
        ht_run_rows(args, &h, backward_logits, h.dnorm, backward_norm);
        ht_pool_run(args->pool, backward_features, &h);
        return;
    }
    struct ht_workspace_layout w;
    ht_unit_workspace(m, m->layers + 1, args->batch, args->seq, args->dtype, true, &w);
    void *all = (char *)workspace + w.rows.offset, *own = (char *)workspace + w.own.offset;
    ht_pool_run(args->pool, backward_logits, &h);
    ht_scatter_rows(args, h.dnorm, own);
    ht_gather_rows(args, h.norm_out, all);
    h.dnorm = own;
    h.all = all;
    ht_pool_run(args->pool, backward_norm, &h);
    ht_pool_run(args->pool, backward_features, &h);
    ht_sum_norm_grads(args, h.dnorm_weight, h.dnorm_bias);
}
