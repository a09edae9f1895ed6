/* The plain trainer. */
#include "tests/support/plain.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/kernels/convert.h"
#include "common/kernels/grad_sum.h"

/* One unit's state. Units run one at a time, so logits, workspace and the two activation gradients are shared. */
struct unit {
    int64_t n; /* parameters */
    float *master, *m, *v;
    void *param;        /* read by the kernels: the master, or its rounded copy */
    void *grad, *fresh; /* grad: of the first micro-batch, then the sum; fresh: of another micro-batch */
    void *input;        /* (B,T,C); NULL for unit 0 */
    void *act;
};

struct ht_plain {
    struct ht_model model;
    struct ht_numerics numerics;
    struct ht_unit_args args;
    struct unit *units; /* L + 2 */
    float *logits;
    void *d[2], *workspace;
    int64_t step;
};

/* Allocates a cache-line aligned buffer, as an arena does. */
static void *buffer(int64_t bytes)
{
    return ht_alloc_aligned(64, (size_t)bytes + 64);
}

static void init_states(struct ht_plain *p, int64_t u, uint64_t seed)
{
    struct unit *unit = &p->units[u];
    enum ht_dtype type = p->numerics.param;
    unit->n = ht_unit_params(&p->model, u);
    float **states[] = {&unit->master, &unit->m, &unit->v};
    for (size_t i = 0; i < HT_COUNT(states); i++) *states[i] = buffer(unit->n * (int64_t)sizeof(float));
    ht_unit_init(&p->model, u, seed, unit->master);
    unit->param = type == HT_F32 ? unit->master : buffer(unit->n * ht_dtype_bytes(type));
    if (unit->param != unit->master) ht_round_copy(p->args.pool, unit->master, unit->param, type, unit->n);
    unit->grad = buffer(unit->n * (int64_t)sizeof(float)); /* room for the largest type of a sum */
    unit->fresh = buffer(unit->n * ht_dtype_bytes(p->numerics.grad));
}

struct ht_plain *ht_plain_create(const struct ht_model *model, const struct ht_numerics *numerics, int64_t batch,
                                 int64_t seq, struct ht_pool *pool, uint64_t seed)
{
    struct ht_plain *p = HT_NEW(struct ht_plain);
    p->model = *model;
    p->numerics = numerics ? *numerics : (struct ht_numerics){0};
    enum ht_dtype type = p->numerics.param;
    p->args = (struct ht_unit_args){
        .model = &p->model, .batch = batch, .seq = seq, .pool = pool, .dtype = type, .grad = p->numerics.grad};
    p->units = HT_NEW_ARRAY(struct unit, ht_model_units(model));
    int64_t workspace_bytes = 0;
    for (int64_t u = 0; u < ht_model_units(model); u++) {
        struct unit *unit = &p->units[u];
        init_states(p, u, seed);
        unit->input = buffer(ht_unit_input_bytes(model, u, batch, seq, type));
        unit->act = buffer(ht_unit_activation_bytes(model, u, batch, seq, type));
        for (int backward = 0; backward < 2; backward++) {
            int64_t bytes = ht_unit_workspace_bytes(model, u, batch, seq, type, backward);
            if (bytes > workspace_bytes) workspace_bytes = bytes;
        }
    }
    int64_t width_bytes = batch * seq * model->width * ht_dtype_bytes(type);
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
        if (unit->param != unit->master) free(unit->param);
        void *buffers[] = {unit->master, unit->m, unit->v, unit->grad, unit->fresh, unit->input, unit->act};
        for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
    }
    void *shared[] = {p->units, p->logits, p->d[0], p->d[1], p->workspace, p};
    for (size_t i = 0; i < HT_COUNT(shared); i++) free(shared[i]);
}

/* Computes all blocks, up to the head's input. */
static void forward_blocks(struct ht_plain *p, const void *input)
{
    const struct ht_unit_args *a = &p->args;
    struct unit *u = p->units;
    ht_embedding_forward(a, input, u[0].param, u[1].input, p->workspace);
    for (int64_t i = 1; i <= p->model.layers; i++) {
        struct ht_block_acts act = ht_block_acts_at(a, u[i].act);
        ht_block_forward(a, HT_ALL_SUB_OPS, u[i].param, u[i].input, &act, u[i + 1].input, p->workspace);
    }
}

/* Runs forward and backward of one micro-batch into grad (first) or fresh. Returns the summed loss. */
static double micro_batch(struct ht_plain *p, const void *input, const int32_t *targets, float scale, bool first)
{
    const struct ht_unit_args *a = &p->args;
    struct unit *u = p->units, *head = &u[p->model.layers + 1];
    const void *wte = p->model.tied ? u[0].param : NULL;
    double loss_sum;
    forward_blocks(p, input);
    ht_head_forward(a, head->param, wte, head->input, head->act, p->logits, targets, scale, &loss_sum, p->workspace);

#define GRAD(unit) (first ? (unit)->grad : (unit)->fresh)
    void *d = p->d[0], *d_next = p->d[1];
    ht_head_backward(a, head->param, wte, head->input, head->act, p->logits, d, GRAD(head),
                     p->model.tied ? GRAD(&u[0]) : NULL, p->workspace);
    for (int64_t i = p->model.layers; i >= 1; i--) {
        struct ht_block_acts act = ht_block_acts_at(a, u[i].act);
        ht_block_backward(a, HT_ALL_SUB_OPS, u[i].param, u[i].input, &act, d, d_next, GRAD(&u[i]), p->workspace);
        void *swap = d;
        d = d_next;
        d_next = swap;
    }
    ht_embedding_backward(a, input, d, GRAD(&u[0]), p->workspace);
#undef GRAD
    return loss_sum;
}

static void step_unit(struct ht_plain *p, const struct ht_adamw_step *s, struct unit *unit, enum ht_dtype grad_type)
{
    ht_adamw_update_row(p->args.pool, s,
                        &(struct ht_adamw_row){.param = unit->master,
                                               .m = unit->m,
                                               .v = unit->v,
                                               .grad = unit->grad,
                                               .grad_type = grad_type,
                                               .copy_type = p->numerics.param,
                                               .copy = unit->param == unit->master ? NULL : unit->param,
                                               .n = unit->n});
}

double ht_plain_step(struct ht_plain *p, int64_t n_micro, const void *input, const int32_t *targets,
                     const struct ht_adamw *adamw, double loss_scale)
{
    int64_t micro_bytes = p->args.batch * ht_model_sample_bytes(&p->model, p->args.seq),
            n_units = ht_model_units(&p->model);
    int64_t rows = ht_model_head_rows(&p->model, p->args.seq);
    double n_targets = (double)(n_micro * p->args.batch * rows), loss_sum = 0;
    enum ht_dtype fresh_type = p->numerics.grad, grad_type = n_micro > 1 ? p->numerics.accumulate : fresh_type;
    for (int64_t k = 0; k < n_micro; k++) {
        p->args.grad_store = k == 0 ? grad_type : fresh_type;
        loss_sum += micro_batch(p, (const char *)input + k * micro_bytes, targets + k * p->args.batch * rows,
                                (float)(loss_scale / n_targets), k == 0);
        for (int64_t u = 0; u < n_units && k > 0; u++)
            ht_grad_sum(p->args.pool, p->units[u].grad, grad_type, p->units[u].fresh, fresh_type, p->units[u].n);
    }
    struct ht_adamw_step s = ht_adamw_step(adamw, ++p->step, 1 / loss_scale);
    for (int64_t u = 0; u < n_units; u++) step_unit(p, &s, &p->units[u], grad_type);
    return loss_sum / n_targets;
}

const float *ht_plain_logits(struct ht_plain *p, const void *input)
{
    struct unit *u = p->units, *head = &u[p->model.layers + 1];
    forward_blocks(p, input);
    ht_head_logits(&p->args, head->param, p->model.tied ? u[0].param : NULL, head->input, head->act, p->logits);
    return p->logits;
}

const float *ht_plain_params(const struct ht_plain *p, int64_t unit)
{
    return p->units[unit].master;
}
