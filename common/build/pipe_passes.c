/* The ops of a pass, on the rank's compute lane, and of a stage's step: what each reads, makes and frees. */
#include "common/build/pipe_build.h"

#include "common/base/array.h"
#include "common/build/works.h"

/* ---- what a pass needs of a stage ------------------------------------------------------------------------------ */

int32_t ht_pipe_first_block(const struct ht_pipe *g, int32_t q)
{
    return g->first[q] > 0 ? g->first[q] : 1;
}

bool ht_pipe_has_head(const struct ht_pipe *g, int32_t q)
{
    return q == g->n_backward - 1;
}

int32_t ht_pipe_end_block(const struct ht_pipe *g, int32_t q)
{
    return ht_pipe_has_head(g, q) ? ht_pipe_head(g) : g->first[q + 1];
}

static bool forward_has_head(const struct ht_pipe *g, int32_t i)
{
    return g->style->forward_head && i == g->n_forward - 1;
}

bool ht_pipe_forward_reads(const struct ht_pipe *g, int32_t i, int32_t unit)
{
    bool for_head = unit == ht_pipe_head(g) || (unit == 0 && g->scenario->model.tied);
    if (for_head && forward_has_head(g, i)) return true;
    return unit < ht_pipe_head(g) && unit >= g->first[i * g->shape.d] && unit < g->first[(i + 1) * g->shape.d];
}

bool ht_pipe_backward_reads(const struct ht_pipe *g, int32_t q, int32_t unit)
{
    if (ht_pipe_has_head(g, q) && (unit == ht_pipe_head(g) || (unit == 0 && g->scenario->model.tied))) return true;
    return unit >= ht_pipe_first_block(g, q) && unit < ht_pipe_end_block(g, q);
}

bool ht_pipe_visit_reads(const struct ht_pipe *g, const struct ht_pipe_visit *v, int32_t unit)
{
    return (v->forward >= 0 && ht_pipe_forward_reads(g, v->forward, unit)) ||
           (v->backward >= 0 && ht_pipe_backward_reads(g, v->backward, unit));
}

bool ht_pipe_drops(const struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit)
{
    int32_t k = g->visit_of[rank * g->n_passes + n];
    const struct ht_pipe_visit *v = &g->visits[rank * g->n_passes + k];
    if (!ht_pipe_offloads(g)) return false;
    int64_t last = -1; /* pass of the visit that reads it */
    if (v->forward >= 0 && ht_pipe_forward_reads(g, v->forward, unit)) last = v->last_forward;
    if (v->backward >= 0 && ht_pipe_backward_reads(g, v->backward, unit) && v->last_backward > last)
        last = v->last_backward;
    if (n != last) return false;
    return k + 1 == g->n_visits[rank] || !ht_pipe_visit_reads(g, v + 1, unit);
}

/* ---- ops ------------------------------------------------------------------------------------------------------- */

static void on_device(struct ht_pipe *g, int32_t tensor, unsigned flags)
{
    if (tensor >= 0) ht_op_effect(g->s, tensor, HT_DEVICE, flags);
}

/* Units [unit, unit + n) of one kind on a micro-batch. */
static int32_t compute(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, enum ht_op_kind kind,
                       int32_t unit, int32_t n)
{
    struct ht_work w = ht_scenario_work(g->scenario, kind, HT_LANE_COMPUTE, unit);
    struct ht_label about = {unit, n, HT_ALL_SUB_OPS, g->replica.first_micro_batch + x->micro_batch};
    w.n_units = n;
    if (kind == HT_OP_ACCUMULATE) {
        w.params = ht_unit_params(&g->scenario->model, unit);
        w.dtype = g->scenario->numerics.accumulate;
    }
    int32_t op = ht_add_op(g->s, kind, g->lanes[rank].compute, about, ht_add_work(g->s, &w));
    ht_op_name(g->s, "%c%d.%d", x->forward ? 'f' : 'b', x->stage, x->micro_batch);
    ht_charge_work(g->s, g->ports, 0);
    ht_op_after(g->s, g->sending[rank]);
    g->sending[rank] = -1;
    g->computed[rank] = op;
    return op;
}

static void read_param(struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit, bool last_in_pass)
{
    bool drop = last_in_pass && ht_pipe_drops(g, rank, n, unit);
    on_device(g, g->param[unit], drop ? HT_NEED | HT_RELEASE : HT_NEED);
}

static void read_head(struct ht_pipe *g, int32_t rank, int64_t n, bool last_in_pass)
{
    read_param(g, rank, n, ht_pipe_head(g), last_in_pass);
    if (g->scenario->model.tied) read_param(g, rank, n, 0, last_in_pass);
}

/* Does a unit's input stay on the rank after its forward: as a checkpoint, to be sent from here or recomputed from, or
   because nothing is recomputed? */
static bool stays(const struct ht_pipe *g, int32_t unit)
{
    if (!g->style->recompute) return true;
    return unit == ht_pipe_first_block(g, g->stage_of[unit]);
}

/* For the loss; nothing of it is kept. */
static void forward_head(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, u = ht_pipe_head(g);
    compute(g, rank, x, HT_OP_FORWARD, u, 1);
    read_head(g, rank, n, true);
    on_device(g, g->x[ht_pipe_at(g, u, j)], g->style->recompute_output ? HT_NEED | HT_RELEASE : HT_NEED);
    on_device(g, g->a[ht_pipe_at(g, u, j)], HT_PRODUCE | HT_RELEASE);
    on_device(g, g->logits[j], HT_PRODUCE | HT_RELEASE);
    on_device(g, ht_pipe_scratch(g, rank, u, false), HT_PRODUCE | HT_RELEASE);
}

void ht_pipe_forward_pass(struct ht_pipe *g, int32_t rank, int64_t n)
{
    const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + n];
    int32_t j = x->micro_batch, d = g->shape.d, head = ht_pipe_head(g);
    bool has_head = forward_has_head(g, x->stage);
    for (int32_t u = g->first[x->stage * d]; u < g->first[(x->stage + 1) * d] && u < head; u++) {
        int64_t at = ht_pipe_at(g, u, j);
        compute(g, rank, x, HT_OP_FORWARD, u, 1);
        read_param(g, rank, n, u, !(u == 0 && has_head && g->scenario->model.tied));
        on_device(g, g->x[at], stays(g, u) ? HT_NEED : HT_NEED | HT_RELEASE);
        on_device(g, g->a[at], g->style->recompute ? HT_PRODUCE | HT_RELEASE : HT_PRODUCE);
        bool unused = u + 1 == head && g->style->recompute_output && !has_head;
        on_device(g, g->x[ht_pipe_at(g, u + 1, j)], unused ? HT_PRODUCE | HT_RELEASE : HT_PRODUCE);
        on_device(g, ht_pipe_scratch(g, rank, u, false), HT_PRODUCE | HT_RELEASE);
    }
    if (has_head) forward_head(g, rank, n, x);
}

/* What a backward op writes: the sum itself, or what is added to it. */
static int32_t fresh(const struct ht_pipe *g, int32_t unit, int32_t j)
{
    return j ? g->grad_mb[ht_pipe_at(g, unit, j)] : g->grad[unit];
}

/* What a micro-batch after the first has made goes into the sum at once, so that one unit's is held beside the sums. */
static void accumulate(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t u)
{
    if (x->micro_batch == 0) return;
    compute(g, rank, x, HT_OP_ACCUMULATE, u, 1);
    on_device(g, g->grad[u], HT_UPDATE);
    on_device(g, fresh(g, u, x->micro_batch), HT_NEED | HT_RELEASE);
}

static void recompute(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, begin = ht_pipe_first_block(g, x->stage), end = ht_pipe_end_block(g, x->stage);
    compute(g, rank, x, HT_OP_RECOMPUTE, begin, end - begin);
    if (!g->style->early_recompute) ht_op_after(g->s, g->arrival[x->stage * g->n_mb + j]);
    for (int32_t u = begin; u < end; u++) {
        read_param(g, rank, n, u, false);
        on_device(g, g->x[ht_pipe_at(g, u, j)], u == begin ? HT_NEED : HT_PRODUCE);
        on_device(g, g->a[ht_pipe_at(g, u, j)], HT_PRODUCE);
    }
    if (ht_pipe_has_head(g, x->stage) && g->style->recompute_output)
        on_device(g, g->x[ht_pipe_at(g, end, j)], HT_PRODUCE);
    on_device(g, ht_pipe_scratch(g, rank, begin, false), HT_PRODUCE | HT_RELEASE);
}

/* Forward and backward at once: the loss and its gradient. */
static void head(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, u = ht_pipe_head(g);
    bool tied = g->scenario->model.tied;
    int64_t at = ht_pipe_at(g, u, j);
    compute(g, rank, x, g->style->forward_head ? HT_OP_RECOMPUTE : HT_OP_FORWARD, u, 1);
    read_head(g, rank, n, false);
    on_device(g, g->x[at], HT_NEED);
    on_device(g, g->a[at], HT_PRODUCE);
    on_device(g, g->logits[j], HT_PRODUCE);
    on_device(g, ht_pipe_scratch(g, rank, u, false), HT_PRODUCE | HT_RELEASE);
    compute(g, rank, x, HT_OP_BACKWARD, u, 1);
    read_head(g, rank, n, true);
    on_device(g, g->x[at], HT_NEED | HT_RELEASE);
    on_device(g, g->a[at], HT_NEED | HT_RELEASE);
    on_device(g, g->logits[j], HT_NEED | HT_RELEASE);
    on_device(g, g->dx[at], HT_PRODUCE);
    on_device(g, fresh(g, u, j), HT_PRODUCE);
    if (tied) on_device(g, fresh(g, 0, j), HT_PRODUCE);
    on_device(g, ht_pipe_scratch(g, rank, u, true), HT_PRODUCE | HT_RELEASE);
    accumulate(g, rank, x, u);
}

static void blocks(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, begin = ht_pipe_first_block(g, x->stage), end = ht_pipe_end_block(g, x->stage);
    for (int32_t u = end - 1; u >= begin; u--) {
        compute(g, rank, x, HT_OP_BACKWARD, u, 1);
        read_param(g, rank, n, u, true);
        on_device(g, g->dx[ht_pipe_at(g, u + 1, j)], HT_NEED | HT_RELEASE);
        on_device(g, g->x[ht_pipe_at(g, u, j)], HT_NEED | HT_RELEASE);
        on_device(g, g->a[ht_pipe_at(g, u, j)], HT_NEED | HT_RELEASE);
        on_device(g, g->dx[ht_pipe_at(g, u, j)], HT_PRODUCE);
        on_device(g, fresh(g, u, j), HT_PRODUCE);
        on_device(g, ht_pipe_scratch(g, rank, u, true), HT_PRODUCE | HT_RELEASE);
        accumulate(g, rank, x, u);
    }
}

void ht_pipe_backward_pass(struct ht_pipe *g, int32_t rank, int64_t n)
{
    const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + n];
    int32_t j = x->micro_batch, q = x->stage;
    if (g->style->recompute) recompute(g, rank, n, x);
    if (ht_pipe_has_head(g, q)) head(g, rank, n, x);
    blocks(g, rank, n, x);
    if (q == 0) {
        compute(g, rank, x, HT_OP_BACKWARD, 0, 1);
        on_device(g, g->dx[ht_pipe_at(g, 1, j)], HT_NEED | HT_RELEASE);
        on_device(g, fresh(g, 0, j), g->scenario->model.tied ? HT_UPDATE : HT_PRODUCE);
        on_device(g, ht_pipe_scratch(g, rank, 0, true), HT_PRODUCE | HT_RELEASE);
        accumulate(g, rank, x, 0);
    }
}

void ht_pipe_step(struct ht_pipe *g, int32_t q)
{
    bool offloads = ht_pipe_offloads(g);
    int32_t begin = g->first[q], end = g->first[q + 1];
    int32_t lane = offloads ? g->stage_lane[q] : g->lanes[ht_pipe_backward_rank(&g->shape, q)].compute;
    enum ht_tier tier = offloads ? HT_HOST : HT_DEVICE;
    const struct ht_numerics *n = &g->scenario->numerics;
    struct ht_work w = ht_scenario_work(g->scenario, HT_OP_OPTIMIZER_STEP, g->s->lanes[lane].kind, begin);
    for (int32_t u = begin; u < end; u++) w.params += ht_unit_params(&g->scenario->model, u);
    w.grad_dtype = g->sums ? n->accumulate : n->grad;
    ht_add_op(g->s, HT_OP_OPTIMIZER_STEP, lane, (struct ht_label){begin, end - begin, HT_ALL_SUB_OPS, -1},
              ht_add_work(g->s, &w));
    ht_op_name(g->s, "%c%d", offloads ? 'O' : 'U', q);
    for (int32_t u = begin; u < end; u++) {
        int32_t updated[] = {g->param[u], g->master[u], g->momentum[u], g->variance[u]};
        for (size_t i = 0; i < HT_COUNT(updated); i++)
            if (updated[i] >= 0) ht_op_effect(g->s, updated[i], tier, HT_UPDATE);
        ht_op_effect(g->s, g->grad[u], tier, offloads ? HT_NEED : HT_NEED | HT_RELEASE);
    }
    ht_charge_work(g->s, g->ports, w.params * ht_step_traffic_bytes(n, w.grad_dtype));
}
