/*
 * ViT's embedding. X (B,T,P) holds each sequence's flattened patches behind a row of zeros, the class token's, so that
 * one product over all rows does.
 *
 *     forward     rows: X, y = X W^T + b, out[0] = cls + wpe[0], out[1 + i] = y[1 + i] + wpe[1 + i]
 *     backward    rows: X | features: dW = dout^T X, dwpe[t] = sum of dout[.,t] over sequences, dcls = dwpe[0],
 *                 db = sum of the other dwpe[t] before they are rounded
 *
 * Of a model in parts each computes all of it. A patch is flattened as a convolution's weight is in PyTorch: channel, row, column.
 */
#include "common/kernels/patches.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/part_sum.h"
#include "common/kernels/rows.h"

enum { WEIGHT, BIAS, CLASS, POSITIONS, N_PARTS };
enum { COLUMNS = 256 }; /* columns that are summed on the stack at a time */

struct patches {
    const struct ht_simd *simd;
    const struct ht_model *m;
    enum ht_dtype type;
    int64_t batch, seq, C, P;
    struct ht_range own; /* rows of out that a part has, if it cuts them; else all */
    const unsigned char *images;
    const void *p[N_PARTS];
    struct ht_linear linear;
    void *x, *out;
    /* backward */
    const void *dout;
    void *grad[N_PARTS];
    struct ht_stored stored;
};

static void init(struct patches *e, const struct ht_unit_args *args, const unsigned char *images, const void *params,
                 void *grad, void *workspace)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_workspace_layout w;
    ht_unit_param_parts(args->model, 0, parts);
    ht_unit_workspace(args->model, 0, args->batch, args->seq, args->dtype, grad != NULL, &w);
    assert(args->seq == args->model->max_seq);
    *e = (struct patches){.simd = ht_simd_for(args->dtype),
                          .m = args->model,
                          .type = args->dtype,
                          .batch = args->batch,
                          .seq = args->seq,
                          .C = args->model->width,
                          .P = ht_model_patch_width(args->model),
                          .images = images,
                          .x = (char *)workspace + w.patches.offset,
                          .stored = {args->grad, args->grad_store}};
    for (int i = 0; i < N_PARTS; i++) {
        e->p[i] = ht_element(params, args->dtype, parts[i].offset);
        e->grad[i] = ht_element(grad, args->grad_store, parts[i].offset);
    }
    e->linear = (struct ht_linear){e->p[WEIGHT], e->p[BIAS], .in = e->P, .out = e->C, .y_type = args->dtype};
}

/* Makes row r of X: 0 for a class token, else a patch, whose pixels are scaled to [-1, 1]. */
static void fill_row(const struct patches *e, int64_t r)
{
    int64_t S = e->m->image, p = e->m->patch, b = r / e->seq, i = r % e->seq - 1;
    if (i < 0) {
        memset(ht_element(e->x, e->type, r * e->P), 0, (size_t)(e->P * ht_dtype_bytes(e->type)));
        return;
    }
    const unsigned char *corner = e->images + b * e->m->channels * S * S + i / (S / p) * p * S + i % (S / p) * p;
    for (int64_t line = 0; line < e->m->channels * p; line++) {
        const unsigned char *from = corner + line / p * S * S + line % p * S;
        float pixels[COLUMNS];
        for (int64_t k = 0, n; k < p; k += n) {
            n = p - k < COLUMNS ? p - k : COLUMNS;
            for (int64_t j = 0; j < n; j++) pixels[j] = ((float)from[k + j] - 127.5f) / 127.5f;
            e->simd->narrow(pixels, e->type, ht_element(e->x, e->type, r * e->P + line * p + k), n);
        }
    }
}

static struct ht_range my_rows(const struct patches *e, int worker, int n_workers)
{
    return ht_range_split(e->batch * e->seq, HT_ROW_GRAIN, worker, n_workers);
}

static void forward(void *arg, int worker, int n_workers)
{
    const struct patches *e = arg;
    int64_t first = e->own.begin;
    struct ht_range rows = ht_range_split(e->own.end - first, HT_ROW_GRAIN, worker, n_workers);
    for (int64_t r = rows.begin; r < rows.end; r++) fill_row(e, first + r);
    ht_rows_linear(e->simd, &e->linear, ht_element(e->x, e->type, first * e->P), NULL, e->out, rows);
    for (int64_t r = rows.begin; r < rows.end; r++) {
        void *out = ht_element(e->out, e->type, r * e->C);
        int64_t t = (first + r) % e->seq;
        const void *position = ht_element(e->p[POSITIONS], e->type, t * e->C);
        e->simd->add(t ? out : e->p[CLASS], position, out, e->C);
    }
}

void ht_patches_forward(const struct ht_unit_args *args, const unsigned char *images, const void *params, void *out,
                        void *workspace)
{
    struct patches e;
    init(&e, args, images, params, NULL, workspace);
    e.out = out;
    e.own = ht_model_cuts_rows(args->model) ? ht_own_rows(args) : (struct ht_range){0, e.batch * e.seq};
    ht_pool_run(args->pool, forward, &e);
}

static void backward_rows(void *arg, int worker, int n_workers)
{
    const struct patches *e = arg;
    struct ht_range rows = my_rows(e, worker, n_workers);
    for (int64_t r = rows.begin; r < rows.end; r++) fill_row(e, r);
}

/* Sums columns [c, c + n), n <= COLUMNS, of each position over the sequences, in order, and those of the patches. */
static void sum_positions(const struct patches *e, int64_t c, int64_t n)
{
    float bias[COLUMNS] = {0};
    for (int64_t t = 0; t < e->seq; t++) {
        float sums[COLUMNS] = {0};
        e->simd->column_sum(ht_element(e->dout, e->type, t * e->C + c), e->batch, e->seq * e->C, n, sums);
        for (int64_t k = 0; k < n && t > 0; k++) bias[k] += sums[k];
        if (t == 0) e->simd->store(sums, e->stored, ht_element(e->grad[CLASS], e->stored.as, c), n);
        e->simd->store(sums, e->stored, ht_element(e->grad[POSITIONS], e->stored.as, t * e->C + c), n);
    }
    e->simd->store(bias, e->stored, ht_element(e->grad[BIAS], e->stored.as, c), n);
}

static void backward_features(void *arg, int worker, int n_workers)
{
    const struct patches *e = arg;
    struct ht_range columns = ht_range_split(e->C, HT_FEATURE_GRAIN, worker, n_workers);
    ht_features_linear_grad(e->simd, &e->linear, e->x, e->dout, e->batch * e->seq, e->stored, e->grad[WEIGHT], NULL,
                            columns);
    for (int64_t c = columns.begin, n; c < columns.end; c += n) {
        n = columns.end - c < COLUMNS ? columns.end - c : COLUMNS;
        sum_positions(e, c, n);
    }
}

void ht_patches_backward(const struct ht_unit_args *args, const unsigned char *images, const void *dout, void *grad,
                         void *workspace)
{
    struct patches e;
    init(&e, args, images, NULL, grad, workspace);
    e.dout = dout;
    if (ht_model_cuts_rows(args->model)) {
        struct ht_workspace_layout w;
        ht_unit_workspace(args->model, 0, args->batch, args->seq, args->dtype, true, &w);
        void *all = (char *)workspace + w.rows.offset;
        ht_gather_rows(args, dout, all);
        e.dout = all;
    }
    ht_pool_run(args->pool, backward_rows, &e);
    ht_pool_run(args->pool, backward_features, &e);
}
