/*
 * Embedding: token table, in GPT plus position table, in BERT also plus the first row of the type table.
 * ViT's is another (patches.h). Backward splits the columns, so every worker goes over all tokens in order: no two of them touch the same element, and
 * the order of a sum does not depend on the number of workers.
 *
 * An FP32 gradient holds the sums itself. In 16 bit a token's rows are summed beside it; for that the workspace lists
 * every token's rows in order: first[v] of token v, next[r] after row r; -1 ends a list.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/part_sum.h"
#include "common/kernels/patches.h"
#include "common/kernels/rows.h"
#include "common/kernels/unit.h"

struct embedding {
    const struct ht_simd *simd;
    const struct ht_unit_args *args;
    const int32_t *tokens;
    int64_t first_token, V; /* the table's rows; a part has some tokens */
    struct ht_range own;    /* rows of out that a part has, if it cuts them; else all */
    const void *wte, *wpe, *wtype, *dout;
    void *out, *dwte, *dwpe, *dwtype; /* wpe, dwpe: NULL in LLaMA; wtype, dwtype: NULL but in BERT */
    int32_t *first, *next;            /* (V), (B,T); NULL in FP32 */
};

/* Returns the table's row for a row's token; -1 when the part does not have it. */
static int64_t table_row(const struct embedding *e, int64_t r)
{
    int64_t row = e->tokens[r] - e->first_token;
    assert(e->tokens[r] >= 0 && e->tokens[r] < e->args->model->vocab);
    return row >= 0 && row < e->V ? row : -1;
}

static void forward_tokens(void *arg, int worker, int n_workers)
{
    const struct embedding *e = arg;
    int64_t C = e->args->model->width, bytes = C * ht_dtype_bytes(e->args->dtype);
    struct ht_range rows = ht_range_split(e->args->batch * e->args->seq, HT_ROW_GRAIN, worker, n_workers);
    for (int64_t r = rows.begin; r < rows.end; r++) {
        int64_t row = table_row(e, r);
        void *out = ht_element(e->out, e->args->dtype, r * C);
        if (row < 0)
            memset(out, 0, (size_t)bytes);
        else
            memcpy(out, ht_element(e->wte, e->args->dtype, row * C), (size_t)bytes);
    }
}

static void forward_positions(void *arg, int worker, int n_workers)
{
    const struct embedding *e = arg;
    enum ht_dtype type = e->args->dtype;
    int64_t T = e->args->seq, C = e->args->model->width;
    struct ht_range rows = ht_range_split(e->own.end - e->own.begin, HT_ROW_GRAIN, worker, n_workers);
    for (int64_t r = rows.begin; r < rows.end && e->wpe; r++) {
        void *out = ht_element(e->out, type, r * C);
        e->simd->add(out, ht_element(e->wpe, type, (e->own.begin + r) % T * C), out, C);
        if (e->wtype) e->simd->add(out, e->wtype, out, C);
    }
}

static struct embedding embedding_of(const struct ht_unit_args *args, const int32_t *tokens)
{
    return (struct embedding){.simd = ht_simd_for(args->dtype),
                              .args = args,
                              .tokens = tokens,
                              .first_token = ht_model_first_token(args->model),
                              .V = ht_model_vocab(args->model)};
}

/* Returns the table of positions in the unit's parameters or gradient; NULL if the model has none. */
static void *behind_tokens(const struct embedding *e, const void *unit, enum ht_dtype type)
{
    const struct ht_model *m = e->args->model;
    return m->arch == HT_ARCH_LLAMA ? NULL : ht_element(unit, type, e->V * m->width);
}

/* Returns the table of types; NULL if the model has none. */
static void *behind_positions(const struct embedding *e, const void *unit, enum ht_dtype type)
{
    const struct ht_model *m = e->args->model;
    return m->arch == HT_ARCH_BERT ? ht_element(unit, type, (e->V + m->max_seq) * m->width) : NULL;
}

void ht_embedding_forward(const struct ht_unit_args *args, const void *input, const void *params, void *out,
                          void *workspace)
{
    const struct ht_model *m = args->model;
    if (m->arch == HT_ARCH_VIT) {
        ht_patches_forward(args, input, params, out, workspace);
        return;
    }
    assert(args->seq <= m->max_seq);
    struct embedding e = embedding_of(args, input);
    e.wte = params;
    e.wpe = behind_tokens(&e, params, args->dtype);
    e.wtype = behind_positions(&e, params, args->dtype);
    e.out = out;
    if (!ht_model_cuts_rows(m)) {
        e.own = (struct ht_range){0, args->batch * args->seq};
        ht_run_rows(args, &e, forward_tokens, out, forward_positions);
        return;
    }
    e.own = ht_own_rows(args);
    e.out = workspace; /* all rows */
    ht_pool_run(args->pool, forward_tokens, &e);
    ht_scatter_rows(args, workspace, out);
    e.out = out;
    ht_pool_run(args->pool, forward_positions, &e);
}

/* ---- backward ---- */

enum { COLUMNS = 256 }; /* columns that are summed on the stack at a time */

static void *grad_at(const struct embedding *e, void *table, int64_t row, int64_t column)
{
    return ht_element(table, e->args->grad_store, row * e->args->model->width + column);
}

/* Adds a row: sums[k] += dout[r, c + k] for k < n. */
static void add_row(const struct embedding *e, int64_t r, int64_t c, int64_t n, float *sums)
{
    e->simd->column_sum(ht_element(e->dout, e->args->dtype, r * e->args->model->width + c), 1, 0, n, sums);
}

static void store(const struct embedding *e, const float *sums, int64_t n, void *to)
{
    e->simd->store(sums, (struct ht_stored){e->args->grad, e->args->grad_store}, to, n);
}

static void zero_rows(const struct embedding *e, void *table, int64_t begin, int64_t end, struct ht_range columns)
{
    size_t bytes = (size_t)((columns.end - columns.begin) * ht_dtype_bytes(e->args->grad_store));
    for (int64_t row = begin; row < end; row++) memset(grad_at(e, table, row, columns.begin), 0, bytes);
}

/* Adds the tokens' rows in place in the FP32 table. */
static void add_tokens(const struct embedding *e, struct ht_range columns)
{
    for (int64_t r = 0; r < e->args->batch * e->args->seq; r++) {
        int64_t row = table_row(e, r);
        if (row < 0) continue;
        add_row(e, r, columns.begin, columns.end - columns.begin, grad_at(e, e->dwte, row, columns.begin));
    }
}

static void sum_tokens(const struct embedding *e, struct ht_range columns)
{
    for (int64_t v = 0; v < e->V; v++)
        for (int64_t c = columns.begin, n; c < columns.end && e->first[v] >= 0; c += n) {
            float sums[COLUMNS];
            n = columns.end - c < COLUMNS ? columns.end - c : COLUMNS;
            e->simd->widen(grad_at(e, e->dwte, v, c), e->args->grad_store, sums, n);
            for (int32_t r = e->first[v]; r >= 0; r = e->next[r]) add_row(e, r, c, n, sums);
            store(e, sums, n, grad_at(e, e->dwte, v, c));
        }
}

static void sum_positions(const struct embedding *e, struct ht_range columns)
{
    for (int64_t t = 0; t < e->args->seq; t++)
        for (int64_t c = columns.begin, n; c < columns.end; c += n) {
            float sums[COLUMNS];
            n = columns.end - c < COLUMNS ? columns.end - c : COLUMNS;
            e->simd->widen(ht_element(e->dout, e->args->dtype, t * e->args->model->width + c), e->args->dtype, sums, n);
            for (int64_t b = 1; b < e->args->batch; b++) add_row(e, b * e->args->seq + t, c, n, sums);
            store(e, sums, n, grad_at(e, e->dwpe, t, c));
        }
}

/* Sums all tokens' rows into the first type's: sequences here have one sentence. */
static void sum_types(const struct embedding *e, struct ht_range columns)
{
    int64_t C = e->args->model->width, rows = e->args->batch * e->args->seq;
    for (int64_t c = columns.begin, n; c < columns.end; c += n) {
        float sums[COLUMNS] = {0};
        n = columns.end - c < COLUMNS ? columns.end - c : COLUMNS;
        e->simd->column_sum(ht_element(e->dout, e->args->dtype, c), rows, C, n, sums);
        store(e, sums, n, grad_at(e, e->dwtype, 0, c));
    }
}

static void backward(void *arg, int worker, int n_workers)
{
    const struct embedding *e = arg;
    const struct ht_model *m = e->args->model;
    struct ht_range columns = ht_range_split(m->width, HT_FEATURE_GRAIN, worker, n_workers);
    if (columns.begin == columns.end) return;
    if (!m->tied) zero_rows(e, e->dwte, 0, e->V, columns);
    if (e->first)
        sum_tokens(e, columns);
    else
        add_tokens(e, columns);
    if (!e->dwpe) return;
    sum_positions(e, columns);
    zero_rows(e, e->dwpe, e->args->seq, m->max_seq, columns);
    if (!e->dwtype) return;
    sum_types(e, columns);
    zero_rows(e, e->dwtype, 1, 2, columns);
}

static void list_rows(const struct embedding *e)
{
    for (int64_t v = 0; v < e->V; v++) e->first[v] = -1;
    for (int64_t r = e->args->batch * e->args->seq - 1; r >= 0; r--) {
        int64_t row = table_row(e, r);
        if (row < 0) continue;
        e->next[r] = e->first[row];
        e->first[row] = (int32_t)r;
    }
}

void ht_embedding_backward(const struct ht_unit_args *args, const void *input, const void *dout, void *grad,
                           void *workspace)
{
    const struct ht_model *m = args->model;
    if (m->arch == HT_ARCH_VIT) {
        ht_patches_backward(args, input, dout, grad, workspace);
        return;
    }
    struct ht_workspace_layout w;
    ht_unit_workspace(m, 0, args->batch, args->seq, args->dtype, true, &w);
    assert(args->dtype != HT_F32 || args->grad == HT_F32);
    if (ht_model_cuts_rows(m)) {
        void *all = (char *)workspace + w.rows.offset;
        ht_gather_rows(args, dout, all);
        dout = all;
    }
    struct embedding e = embedding_of(args, input);
    e.dout = dout;
    e.dwte = grad;
    e.dwpe = behind_tokens(&e, grad, args->grad_store);
    e.dwtype = behind_positions(&e, grad, args->grad_store);
    if (w.rows_of_tokens.bytes) {
        e.first = (int32_t *)((char *)workspace + w.rows_of_tokens.offset);
        e.next = e.first + e.V;
        list_rows(&e);
    }
    ht_pool_run(args->pool, backward, &e);
}
