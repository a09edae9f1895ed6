/*
 * Head of a classifier: the first token's row of each sequence, B rows in all.
 *
 *     forward     rows: first, norm1 = norm(first), pooled = tanh(norm1 Wp^T + b), logits = pooled Wc^T + b, loss and
 *                       dlogits in place
 *     backward    rows: dpooled = dlogits Wc (1 - pooled^2), dnorm1 = dpooled Wp, dx, 0 but in the first tokens' rows |
 *                 features: dWc, dWp, the norm's gradients
 *
 * ViT has no pooler: logits = norm1 Wc^T + b, dnorm1 = dlogits Wc.
 *
 * tanh is the C library's, one element at a time: B rows are few. Of a model in parts each computes all of it.
 */
#include "common/kernels/classifier.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/part_sum.h"
#include "common/kernels/rows.h"

enum { NORM_W, NORM_B, POOLER_W, POOLER_B, CLASSES_W, CLASSES_B, N_PARTS };
static const int part_of[][N_PARTS] = {[HT_ARCH_BERT] = {0, 1, 2, 3, 4, 5}, [HT_ARCH_VIT] = {0, 1, -1, -1, 2, 3}};
enum { SPAN = 256 }; /* elements that are converted on the stack at a time */

struct classifier {
    const struct ht_simd *simd;
    int64_t n_rows, seq; /* B, T */
    struct ht_range own; /* rows of x and dx that a part has, if it cuts them; else all */
    struct ht_norm norm;
    struct ht_linear pooler, classes;
    bool pools;
    void *first, *norm_out, *pooled; /* without a pooler `pooled` is norm_out */
    float *stats;
    const void *x;
    float scale;
    const int32_t *targets; /* NULL: logits only */
    float *logits;
    double *row_loss;
    /* backward */
    const float *dlogits;
    void *dnorm, *dpooled, *dx, *grad[N_PARTS];
    struct ht_stored stored;
};

static void init(struct classifier *h, const struct ht_unit_args *args, const void *params, void *act, void *grad)
{
    const struct ht_model *m = args->model;
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_act_layout l;
    int64_t C = m->width;
    const void *p[N_PARTS] = {0};
    assert(!m->tied);
    ht_unit_param_parts(m, m->layers + 1, parts);
    ht_head_activations(m, args->batch, args->seq, args->dtype, &l);
    *h = (struct classifier){.simd = ht_simd_for(args->dtype), .n_rows = args->batch, .seq = args->seq};
    for (int i = 0; i < N_PARTS; i++) {
        int part = part_of[m->arch][i];
        if (part < 0) continue;
        p[i] = ht_element(params, args->dtype, parts[part].offset);
        h->grad[i] = ht_element(grad, args->grad_store, parts[part].offset);
    }
    h->pools = p[POOLER_W] != NULL;
    h->norm = (struct ht_norm){p[NORM_W], p[NORM_B], C, 0};
    h->pooler = (struct ht_linear){p[POOLER_W], p[POOLER_B], .in = C, .out = C, .y_type = args->dtype};
    h->classes = (struct ht_linear){
        p[CLASSES_W], p[CLASSES_B], .in = C, .out = m->classes, .y_stride = ht_logits_stride(m), .y_type = HT_F32};
    h->first = (char *)act + l.first.offset;
    h->norm_out = (char *)act + l.norm1.offset;
    h->stats = (float *)((char *)act + l.norm1_stats.offset);
    h->pooled = h->pools ? (char *)act + l.pooled.offset : h->norm_out;
    h->stored = (struct ht_stored){args->grad, args->grad_store};
}

static void *row_of(const struct classifier *h, const void *matrix, int64_t row)
{
    return ht_element(matrix, h->simd->stored, row * h->norm.width);
}

/* Computes y = tanh(y) of some rows. */
static void rows_tanh(const struct classifier *h, void *y, struct ht_range rows)
{
    float v[SPAN];
    enum ht_dtype t = h->simd->stored;
    for (int64_t i = rows.begin * h->norm.width, end = rows.end * h->norm.width, n; i < end; i += n) {
        n = end - i < SPAN ? end - i : SPAN;
        h->simd->widen(ht_element(y, t, i), t, v, n);
        for (int64_t k = 0; k < n; k++) v[k] = tanhf(v[k]);
        h->simd->narrow(v, t, ht_element(y, t, i), n);
    }
}

/* Computes d = d (1 - y^2) of some rows: the gradient of tanh's output in, of its input out. */
static void rows_tanh_backward(const struct classifier *h, const void *y, void *d, struct ht_range rows)
{
    float v[SPAN], dv[SPAN];
    enum ht_dtype t = h->simd->stored;
    for (int64_t i = rows.begin * h->norm.width, end = rows.end * h->norm.width, n; i < end; i += n) {
        n = end - i < SPAN ? end - i : SPAN;
        h->simd->widen(ht_element(y, t, i), t, v, n);
        h->simd->widen(ht_element(d, t, i), t, dv, n);
        for (int64_t k = 0; k < n; k++) dv[k] *= 1 - v[k] * v[k];
        h->simd->narrow(dv, t, ht_element(d, t, i), n);
    }
}

static void forward(void *arg, int worker, int n_workers)
{
    struct classifier *h = arg;
    struct ht_range rows = ht_range_split(h->n_rows, HT_ROW_GRAIN, worker, n_workers);
    size_t bytes = (size_t)(h->norm.width * ht_dtype_bytes(h->simd->stored));
    for (int64_t r = rows.begin; r < rows.end; r++) memcpy(row_of(h, h->first, r), row_of(h, h->x, r * h->seq), bytes);
    ht_rows_norm(h->simd, &h->norm, h->first, h->norm_out, h->stats, h->n_rows, rows);
    if (h->pools) {
        ht_rows_linear(h->simd, &h->pooler, h->norm_out, NULL, h->pooled, rows);
        rows_tanh(h, h->pooled, rows);
    }
    ht_rows_linear(h->simd, &h->classes, h->pooled, NULL, h->logits, rows);
    for (int64_t r = rows.begin; r < rows.end && h->targets; r++) {
        assert(h->targets[r] >= 0 && h->targets[r] < h->classes.out);
        h->row_loss[r] =
            h->simd->cross_entropy(h->logits + r * h->classes.y_stride, h->classes.out, h->targets[r], h->scale);
    }
}

void ht_classifier_forward(const struct ht_unit_args *args, const void *params, const void *x, void *act, float *logits,
                           const int32_t *targets, float scale, double *loss_sum, void *workspace)
{
    struct classifier h;
    init(&h, args, params, act, NULL);
    h.x = x;
    if (ht_model_cuts_rows(args->model)) {
        struct ht_workspace_layout w;
        ht_unit_workspace(args->model, args->model->layers + 1, args->batch, args->seq, args->dtype, false, &w);
        ht_gather_rows(args, x, (char *)workspace + w.rows.offset);
        h.x = (char *)workspace + w.rows.offset;
    }
    h.logits = logits;
    h.targets = targets;
    h.scale = scale;
    h.row_loss = workspace;
    ht_pool_run(args->pool, forward, &h);
    if (!targets) return;
    double sum = 0;
    for (int64_t r = 0; r < h.n_rows; r++) sum += h.row_loss[r];
    *loss_sum = sum;
}

static void backward_rows(void *arg, int worker, int n_workers)
{
    struct classifier *h = arg;
    struct ht_range rows = ht_range_split(h->n_rows, HT_ROW_GRAIN, worker, n_workers);
    size_t row_bytes = (size_t)(h->norm.width * ht_dtype_bytes(h->simd->stored));
    ht_rows_linear_backward(h->simd, &h->classes, h->dlogits, NULL, h->dpooled, rows);
    if (h->pools) {
        rows_tanh_backward(h, h->pooled, h->dpooled, rows);
        ht_rows_linear_backward(h->simd, &h->pooler, h->dpooled, NULL, h->dnorm, rows);
    }
    for (int64_t r = rows.begin; r < rows.end; r++) {
        int64_t begin = r * h->seq, end = begin + h->seq;
        if (begin < h->own.begin) begin = h->own.begin;
        if (end > h->own.end) end = h->own.end;
        if (begin >= end) continue;
        if (begin == r * h->seq) {
            h->simd->norm_backward(row_of(h, h->first, r), h->norm.weight, row_of(h, h->dnorm, r), h->stats[r],
                                   h->stats[h->n_rows + r], NULL, row_of(h, h->dx, begin - h->own.begin),
                                   h->norm.width);
            begin++;
        }
        memset(row_of(h, h->dx, begin - h->own.begin), 0, (size_t)(end - begin) * row_bytes);
    }
}

/* Computes the gradient of the classes' biases: sums over the FP32 rows. */
static void class_biases(const struct classifier *h, struct ht_range classes)
{
    for (int64_t c = classes.begin, n; c < classes.end; c += n) {
        float sums[SPAN] = {0};
        n = classes.end - c < SPAN ? classes.end - c : SPAN;
        ht_simd()->column_sum(h->dlogits + c, h->n_rows, h->classes.y_stride, n, sums);
        h->simd->store(sums, h->stored, ht_element(h->grad[CLASSES_B], h->stored.as, c), n);
    }
}

static void backward_features(void *arg, int worker, int n_workers)
{
    struct classifier *h = arg;
    struct ht_range classes = ht_range_split(h->classes.out, HT_FEATURE_GRAIN, worker, n_workers);
    struct ht_range columns = ht_range_split(h->norm.width, HT_FEATURE_GRAIN, worker, n_workers);
    ht_features_linear_grad(h->simd, &h->classes, h->pooled, h->dlogits, h->n_rows, h->stored, h->grad[CLASSES_W], NULL,
                            classes);
    class_biases(h, classes);
    if (h->pools)
        ht_features_linear_grad(h->simd, &h->pooler, h->norm_out, h->dpooled, h->n_rows, h->stored, h->grad[POOLER_W],
                                h->grad[POOLER_B], columns);
    ht_features_norm_grad(h->simd, &h->norm, h->first, h->dnorm, h->stats, h->n_rows, h->stored, h->grad[NORM_W],
                          h->grad[NORM_B], columns);
}

void ht_classifier_backward(const struct ht_unit_args *args, const void *params, const void *act, const float *dlogits,
                            void *dx, void *grad, void *workspace)
{
    struct classifier h;
    struct ht_workspace_layout w;
    init(&h, args, params, (void *)act, grad); /* the backward steps do not write act */
    ht_unit_workspace(args->model, args->model->layers + 1, args->batch, args->seq, args->dtype, true, &w);
    h.dlogits = dlogits;
    h.dnorm = (char *)workspace + w.narrow.offset;
    h.dpooled = h.pools ? (char *)workspace + w.pooled.offset : h.dnorm;
    h.dx = dx;
    h.own = ht_model_cuts_rows(args->model) ? ht_own_rows(args) : (struct ht_range){0, args->batch * args->seq};
    ht_pool_run(args->pool, backward_rows, &h);
    ht_pool_run(args->pool, backward_features, &h);
}
