/*
 * Embedding: token table, in GPT plus position table. Backward splits the columns, so that every worker goes over all
 * tokens in order: no two of them touch the same element, and the sum's order does not depend on their number.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "common/kernels/rows.h"
#include "common/kernels/unit.h"

struct embedding {
    const struct ht_simd *simd;
    const struct ht_unit_args *args;
    const int32_t *tokens;
    const float *wte, *wpe, *dout;
    float *out, *dwte, *dwpe; /* wpe, dwpe: NULL in LLaMA */
};

static void forward(void *arg, int worker, int n_workers)
{
    const struct embedding *e = arg;
    int64_t T = e->args->seq, C = e->args->model->width;
    struct ht_range rows = ht_range_split(e->args->batch * T, HT_ROW_GRAIN, worker, n_workers);
    for (int64_t r = rows.begin; r < rows.end; r++) {
        assert(e->tokens[r] >= 0 && e->tokens[r] < e->args->model->vocab);
        const float *token = e->wte + e->tokens[r] * C;
        if (e->wpe)
            e->simd->add(token, e->wpe + r % T * C, e->out + r * C, C);
        else
            memcpy(e->out + r * C, token, (size_t)C * sizeof(float));
    }
}

static void backward(void *arg, int worker, int n_workers)
{
    const struct embedding *e = arg;
    const struct ht_model *m = e->args->model;
    int64_t B = e->args->batch, T = e->args->seq, C = m->width;
    struct ht_range columns = ht_range_split(C, HT_FEATURE_GRAIN, worker, n_workers);
    int64_t c = columns.begin, n = columns.end - columns.begin;
    if (n <= 0) return;
    size_t bytes = (size_t)n * sizeof(float);
    if (!m->tied)
        for (int64_t v = 0; v < m->vocab; v++) memset(e->dwte + v * C + c, 0, bytes);
    for (int64_t r = 0; r < B * T; r++) {
        float *to = e->dwte + e->tokens[r] * C + c;
        e->simd->add(to, e->dout + r * C + c, to, n);
    }
    if (!e->dwpe) return;
    for (int64_t t = 0; t < T; t++) {
        float *to = e->dwpe + t * C + c;
        memcpy(to, e->dout + t * C + c, bytes);
        for (int64_t b = 1; b < B; b++) e->simd->add(to, e->dout + (b * T + t) * C + c, to, n);
    }
    for (int64_t t = T; t < m->max_seq; t++) memset(e->dwpe + t * C + c, 0, bytes);
}

void ht_embedding_forward(const struct ht_unit_args *args, const int32_t *tokens, const float *params, float *out)
{
    const struct ht_model *m = args->model;
    assert(args->seq <= m->max_seq);
    struct embedding e = {.simd = ht_simd(),
                          .args = args,
                          .tokens = tokens,
                          .wte = params,
                          .wpe = m->arch == HT_ARCH_GPT ? params + m->vocab * m->width : NULL,
                          .out = out};
    ht_pool_run(args->pool, forward, &e);
}

void ht_embedding_backward(const struct ht_unit_args *args, const int32_t *tokens, const float *dout, float *grad)
{
    const struct ht_model *m = args->model;
    struct embedding e = {.simd = ht_simd(),
                          .args = args,
                          .tokens = tokens,
                          .dout = dout,
                          .dwte = grad,
                          .dwpe = m->arch == HT_ARCH_GPT ? grad + m->vocab * m->width : NULL};
    ht_pool_run(args->pool, backward, &e);
}
