/* Appends the ops of a pass to the rank's compute lane, and a stage's step, with the effects of each. */
#include "common/draft/pipe_internal.h"

/* ---- parameters that a pass reads ------------------------------------------------------------------------------ */

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
    bool for_head = unit == ht_pipe_head(g) || (unit == 0 && g->d.scenario->model.tied);
    if (for_head && forward_has_head(g, i)) return true;
    return unit < ht_pipe_head(g) && unit >= g->first[i * g->shape.d] && unit < g->first[(i + 1) * g->shape.d];
}

bool ht_pipe_backward_reads(const struct ht_pipe *g, int32_t q, int32_t unit)
{
    if (ht_pipe_has_head(g, q) && (unit == ht_pipe_head(g) || (unit == 0 && g->d.scenario->model.tied))) return true;
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
    int64_t last = -1; /* last pass of the visit that reads the unit */
    if (v->forward >= 0 && ht_pipe_forward_reads(g, v->forward, unit)) last = v->last_forward;
    if (v->backward >= 0 && ht_pipe_backward_reads(g, v->backward, unit) && v->last_backward > last)
        last = v->last_backward;
    if (n != last) return false;
    return k + 1 == g->n_visits[rank] || !ht_pipe_visit_reads(g, v + 1, unit);
}

/* ---- ops ------------------------------------------------------------------------------------------------------- */

/* Names the last op after its pass, and makes it wait for the message that blocks its rank. */
static void in_pass(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    struct ht_schedule *s = g->d.schedule;
    ht_op_name(s, "%c%d.%d", x->forward ? 'f' : 'b', x->stage, x->micro_batch);
    ht_op_after(s, g->sending[rank]);
    g->sending[rank] = -1;
    g->computed[rank] = s->n_ops - 1;
}

/* Frees a tensor on the device when the last op ends. */
static void drop(struct ht_pipe *g, int32_t tensor)
{
    ht_op_effect(g->d.schedule, tensor, HT_DEVICE, HT_RELEASE);
}

/* Frees a unit's parameters when the last op ends, if no later op of the rank's nth pass or visit reads them. */
static void drop_param(struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit)
{
    if (ht_pipe_drops(g, rank, n, unit)) drop(g, g->d.param[unit]);
}

static void drop_head(struct ht_pipe *g, int32_t rank, int64_t n)
{
    drop_param(g, rank, n, ht_pipe_head(g));
    if (g->d.scenario->model.tied) drop_param(g, rank, n, 0);
}

/* Returns true if a unit's input stays on the rank after its forward: as a checkpoint that is sent or recomputed from,
   or because nothing is recomputed. */
static bool stays(const struct ht_pipe *g, int32_t unit)
{
    if (!g->style->recompute) return true;
    return unit == 0 || unit == ht_pipe_first_block(g, g->stage_of[unit]);
}

/* Appends the head's forward for the loss, and frees its results. */
static void forward_head(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, u = ht_pipe_head(g);
    ht_draft_forward(&g->d, u, j, 0);
    in_pass(g, rank, x);
    drop_head(g, rank, n);
    drop(g, g->d.logits[j]);
    if (g->style->recompute_output) drop(g, g->d.x[ht_pipe_at(g, u, j)]);
}

void ht_pipe_forward_pass(struct ht_pipe *g, int32_t rank, int64_t n)
{
    const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + n];
    int32_t j = x->micro_batch, d = g->shape.d, head = ht_pipe_head(g);
    bool has_head = forward_has_head(g, x->stage);
    for (int32_t u = g->first[x->stage * d]; u < g->first[(x->stage + 1) * d] && u < head; u++) {
        ht_draft_forward(&g->d, u, j, g->style->recompute ? 0 : HT_ALL_SUB_OPS);
        in_pass(g, rank, x);
        if (!(u == 0 && has_head && g->d.scenario->model.tied)) drop_param(g, rank, n, u);
        if (!stays(g, u)) drop(g, g->d.x[ht_pipe_at(g, u, j)]);
        if (u + 1 == head && g->style->recompute_output && !has_head) drop(g, g->d.x[ht_pipe_at(g, head, j)]);
    }
    if (has_head) forward_head(g, rank, n, x);
}

static void backward(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t u)
{
    ht_draft_backward(&g->d, u, x->micro_batch);
    in_pass(g, rank, x);
}

/* Adds the fresh gradient of a micro-batch after the first to the sum at once, so that only one unit's is in memory. */
static void accumulate(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t u)
{
    if (x->micro_batch == 0) return;
    ht_draft_accumulate(&g->d, g->d.lanes->compute, u, x->micro_batch);
    in_pass(g, rank, x);
}

static void recompute(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, begin = ht_pipe_first_block(g, x->stage), end = ht_pipe_end_block(g, x->stage);
    ht_draft_recompute(&g->d, begin, end - begin, j, HT_ALL_SUB_OPS);
    in_pass(g, rank, x);
    if (!g->style->early_recompute) ht_op_after(g->d.schedule, g->arrival[x->stage * g->d.n_mb + j]);
    if (ht_pipe_has_head(g, x->stage) && g->style->recompute_output)
        ht_op_effect(g->d.schedule, g->d.x[ht_pipe_at(g, end, j)], HT_DEVICE, HT_PRODUCE);
}

/* Appends the head's forward and backward: the loss and its gradient. */
static void head(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t j = x->micro_batch, u = ht_pipe_head(g);
    if (g->style->forward_head)
        ht_draft_recompute(&g->d, u, 1, j, HT_ALL_SUB_OPS);
    else
        ht_draft_forward(&g->d, u, j, HT_ALL_SUB_OPS);
    in_pass(g, rank, x);
    backward(g, rank, x, u);
    drop_head(g, rank, n);
    accumulate(g, rank, x, u);
    if (g->d.table) accumulate(g, rank, x, g->d.table);
}

void ht_pipe_backward_pass(struct ht_pipe *g, int32_t rank, int64_t n)
{
    const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + n];
    int32_t q = x->stage, begin = ht_pipe_first_block(g, q);
    if (g->style->recompute) recompute(g, rank, x);
    if (ht_pipe_has_head(g, q)) head(g, rank, n, x);
    for (int32_t u = ht_pipe_end_block(g, q) - 1; u >= begin; u--) {
        backward(g, rank, x, u);
        drop_param(g, rank, n, u);
        accumulate(g, rank, x, u);
    }
    if (q > 0) return;
    backward(g, rank, x, 0);
    accumulate(g, rank, x, 0);
}

void ht_pipe_step(struct ht_pipe *g, int32_t q)
{
    bool offloads = ht_pipe_offloads(g);
    int32_t rank = ht_pipe_backward_rank(&g->shape, q), begin = g->first[q];
    ht_pipe_turn(g, rank);
    ht_draft_step(&g->d, offloads ? g->stage_lane[q] : g->d.lanes->compute, begin, g->first[q + 1] - begin, !offloads);
    ht_op_name(g->d.schedule, "%c%d", offloads ? 'O' : 'U', q);
    if (!g->d.table || !ht_pipe_has_head(g, q)) return;
    ht_draft_step(&g->d, g->d.lanes->compute, g->d.table, 1, true);
    ht_op_name(g->d.schedule, "U%d.wte", q);
}
