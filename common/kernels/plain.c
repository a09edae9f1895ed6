/* The plain trainer. */
#include "common/kernels/plain.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

/* One unit's state. Units run one at a time, so logits, workspace and the two activation gradients are shared. */
struct unit {
    int64_t n; /* parameters */
    float *param, *m, *v, *grad, *fresh;
    float *input; /* (B,T,C); NULL for unit 0 */
    void *act;
};

struct ht_plain {
    struct ht_model model;
    struct ht_unit_args args;
    struct unit *units; /* L + 2 */
    float *logits, *d[2];
    void *workspace;
    int64_t step;
};

/* Cache-line aligned, as an arena's buffers are. */
static void *buffer(int64_t bytes)
{
    size_t n = ((size_t)bytes + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, n);
    if (!p) abort();
    memset(p, 0, n);
    return p;
}

struct ht_plain *ht_plain_create(const struct ht_model *model, int64_t batch, int64_t seq, struct ht_pool *pool,
                                 uint64_t seed)
{
    struct ht_plain *p = HT_NEW(struct ht_plain);
    p->model = *model;
    p->args = (struct ht_unit_args){.model = &p->model, .batch = batch, .seq = seq, .pool = pool};
    p->units = HT_NEW_ARRAY(struct unit, ht_model_units(model));
    int64_t workspace_bytes = 0;
    for (int64_t u = 0; u < ht_model_units(model); u++) {
        struct unit *unit = &p->units[u];
        unit->n = ht_unit_params(model, u);
        float **states[] = {&unit->param, &unit->m, &unit->v, &unit->grad, &unit->fresh};
        for (size_t i = 0; i < HT_COUNT(states); i++) *states[i] = buffer(unit->n * (int64_t)sizeof(float));
        ht_unit_init(model, u, seed, unit->param);
        unit->input = buffer(ht_unit_input_bytes(model, u, batch, seq, HT_F32));
        unit->act = buffer(ht_unit_activation_bytes(model, u, batch, seq, HT_F32));
        for (int backward = 0; backward < 2; backward++) {
            int64_t bytes = ht_unit_workspace_bytes(model, u, batch, seq, HT_F32, backward);
            if (bytes > workspace_bytes) workspace_bytes = bytes;
        }
    }
    int64_t width_bytes = batch * seq * model->width * (int64_t)sizeof(float);
    p->workspace = buffer(workspace_bytes);
    p->logits = buffer(ht_logits_bytes(model, batch, seq));
    for (int i = 0; i < 2; i++) p->d[i] = buffer(width_bytes);
    return p;
}

void ht_plain_destroy(struct ht_plain *p)
{
    if (!p) return;
    for (int64_t u = 0; u < ht_model_units(&p->model); u++) {
        struct unit *unit = &p->units[u];
        void *buffers[] = {unit->param, unit->m, unit->v, unit->grad, unit->fresh, unit->input, unit->act};
        for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
    }
    void *shared[] = {p->units, p->logits, p->d[0], p->d[1], p->workspace, p};
    for (size_t i = 0; i < HT_COUNT(shared); i++) free(shared[i]);
}

/* Forward and backward of one micro-batch into grad (first) or fresh. Returns the summed loss. */
static double micro_batch(struct ht_plain *p, const int32_t *tokens, const int32_t *targets, float scale, bool first)
{
    const struct ht_unit_args *a = &p->args;
    struct unit *u = p->units, *head = &u[p->model.layers + 1];
    const float *wte = p->model.tied ? u[0].param : NULL;
    double loss_sum;
    ht_embedding_forward(a, tokens, u[0].param, u[1].input);
    for (int64_t i = 1; i <= p->model.layers; i++)
        ht_block_forward(a, u[i].param, u[i].input, u[i].act, u[i + 1].input, p->workspace);
    ht_head_forward(a, head->param, wte, head->input, head->act, p->logits, targets, scale, &loss_sum, p->workspace);

#define GRAD(unit) (first ? (unit)->grad : (unit)->fresh)
    float *d = p->d[0], *d_next = p->d[1];
    ht_head_backward(a, head->param, wte, head->input, head->act, p->logits, d, GRAD(head),
                     p->model.tied ? GRAD(&u[0]) : NULL, p->workspace);
    for (int64_t i = p->model.layers; i >= 1; i--) {
        ht_block_backward(a, u[i].param, u[i].input, u[i].act, d, d_next, GRAD(&u[i]), p->workspace);
        float *swap = d;
        d = d_next;
        d_next = swap;
    }
    ht_embedding_backward(a, tokens, d, GRAD(&u[0]));
#undef GRAD
    return loss_sum;
}

double ht_plain_step(struct ht_plain *p, int64_t n_micro, const int32_t *tokens, const int32_t *targets,
                     const struct ht_adamw *adamw)
{
    int64_t micro_tokens = p->args.batch * p->args.seq, n_units = ht_model_units(&p->model);
    double n_tokens = (double)(n_micro * micro_tokens), loss_sum = 0;
    for (int64_t k = 0; k < n_micro; k++) {
        loss_sum +=
            micro_batch(p, tokens + k * micro_tokens, targets + k * micro_tokens, (float)(1 / n_tokens), k == 0);
        if (k == 0) continue;
        for (int64_t u = 0; u < n_units; u++)
            ht_grad_accumulate(p->args.pool, p->units[u].grad, p->units[u].fresh, p->units[u].n);
    }
    struct ht_adamw_step s = ht_adamw_step(adamw, ++p->step, 1);
    for (int64_t u = 0; u < n_units; u++) {
        struct unit *unit = &p->units[u];
        ht_adamw_update_pool(p->args.pool, &s, unit->param, unit->m, unit->v, unit->grad, unit->n);
    }
    return loss_sum / n_tokens;
}

const float *ht_plain_params(const struct ht_plain *p, int64_t unit)
{
    return p->units[unit].param;
}
