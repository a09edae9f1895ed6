/*
 * Verdicts and optimizer.
 *
 *     AFTER_VERDICT   G3 V3  G2 V2  .. |agree| verdict | O3 O2 ..
 *     AT_ONCE         G3 V3 O3  G2 V2 O2  .. |agree| verdict | (bad: undo 3, undo 2, ..)
 *     ON_DEVICE       b3 V3  b2 V2  ..       |agree| verdict | U3 U2 ..   (bad: free 3, free 2, ..)   when gated
 *
 * V q judges the gradients of backward stage q; "agree" is an all-reduce of what the ranks found, and each rank's
 * verdict op takes it down. A step for which its undo log had no room is bad, too, for all of them: the undo ops, in the
 * same place, take the others back and make them all without a log (common/backend/cpu.h); their cost in a simulation is
 * that of the undo.
 */
#include "common/plan/pipe_parts.h"

#include "common/base/array.h"
#include "common/plan/works.h"

static struct ht_label of_units(int32_t begin, int32_t end)
{
    return (struct ht_label){begin, end - begin, HT_ALL_SUB_OPS, -1};
}

static enum ht_dtype sums(const struct ht_pipe *g)
{
    return g->n_mb > 1 ? g->scenario->numerics.accumulate : g->scenario->numerics.grad;
}

static struct ht_work work_of(const struct ht_pipe *g, enum ht_op_kind kind, int32_t begin, int32_t end)
{
    enum ht_lane_kind where = ht_pipe_offloads(g) ? HT_LANE_HOST : HT_LANE_COMPUTE;
    struct ht_work w = ht_scenario_work(g->scenario, kind, where, begin);
    for (int32_t u = begin; u < end; u++) w.params += ht_unit_params(&g->scenario->model, u);
    w.grad_dtype = sums(g);
    return w;
}

bool ht_pipe_judges(const struct ht_pipe *g)
{
    return g->gated || (ht_pipe_offloads(g) && !g->plain);
}

/* Where a stage's gradients are judged and stepped. */
static enum ht_tier tier_of(const struct ht_pipe *g)
{
    return ht_pipe_offloads(g) ? HT_HOST : HT_DEVICE;
}

static int32_t lane_of(const struct ht_pipe *g, int32_t q)
{
    return ht_pipe_offloads(g) ? g->stage_lane[q] : g->lanes[ht_pipe_backward_rank(&g->shape, q)].compute;
}

void ht_pipe_judge(struct ht_pipe *g, int32_t q)
{
    struct ht_work w = work_of(g, HT_OP_VALIDATE, g->first[q], g->first[q + 1]);
    struct ht_label stage = of_units(g->first[q], g->first[q + 1]);
    g->judged[q] = ht_add_op(g->s, HT_OP_VALIDATE, lane_of(g, q), stage, ht_add_work(g->s, &w));
    ht_op_name(g->s, "V%d", q);
    for (int32_t u = g->first[q]; u < g->first[q + 1]; u++) ht_op_effect(g->s, g->grad[u], tier_of(g), HT_NEED);
    ht_charge_work(g->s, g->ports, w.params * ht_dtype_bytes(w.grad_dtype));
}

/* The step of units [begin, end) of a stage, or its undo. */
static int32_t update(struct ht_pipe *g, enum ht_op_kind kind, int32_t q, int32_t begin, int32_t end)
{
    struct ht_work w = work_of(g, kind, begin, end);
    bool offloads = ht_pipe_offloads(g), undo = kind == HT_OP_UNDO;
    enum ht_tier tier = tier_of(g);
    int32_t op = ht_add_op(g->s, kind, lane_of(g, q), of_units(begin, end), ht_add_work(g->s, &w));
    ht_op_name(g->s, "%s%d", undo ? "undo" : offloads ? "O" : "U", q);
    int64_t bytes = w.params * ht_step_traffic_bytes(&g->scenario->numerics, w.grad_dtype);
    for (int32_t u = begin; u < end; u++) {
        int32_t updated[] = {g->param[u], g->master[u], g->momentum[u], g->variance[u]};
        for (size_t i = 0; i < HT_COUNT(updated); i++)
            if (updated[i] >= 0) ht_op_effect(g->s, updated[i], tier, HT_UPDATE);
        ht_op_effect(g->s, g->grad[u], tier, offloads ? HT_NEED : HT_NEED | HT_RELEASE);
        if (g->log[u] < 0) continue;
        ht_op_effect(g->s, g->log[u], HT_HOST, undo ? HT_NEED : HT_UPDATE);
        bytes += g->s->tensors[g->log[u]].bytes;
    }
    ht_charge_work(g->s, g->ports, bytes);
    return op;
}

void ht_pipe_step(struct ht_pipe *g, int32_t q, enum ht_op_kind kind, enum ht_when when, int32_t after)
{
    int32_t op = update(g, kind, q, g->first[q], g->first[q + 1]);
    ht_op_when(g->s, when);
    ht_op_after(g->s, after);
    if (kind != HT_OP_UNDO) g->stepped[q] = op;
}

/* On a device gradients are not kept: where the step would have freed them, and is not made, they are freed alone. */
static void free_gradients(struct ht_pipe *g, int32_t q, int32_t after)
{
    struct ht_work w = work_of(g, HT_OP_ACCUMULATE, g->first[q], g->first[q + 1]);
    w.free = true;
    ht_add_op(g->s, HT_OP_ACCUMULATE, lane_of(g, q), of_units(g->first[q], g->first[q + 1]), ht_add_work(g->s, &w));
    ht_op_name(g->s, "free%d", q);
    ht_op_when(g->s, HT_WHEN_BAD);
    ht_op_after(g->s, after);
    for (int32_t u = g->first[q]; u < g->first[q + 1]; u++) ht_op_effect(g->s, g->grad[u], HT_DEVICE, HT_RELEASE);
}

void ht_pipe_step_plainly(struct ht_pipe *g, int32_t q)
{
    for (int32_t u = g->first[q]; u < g->first[q + 1]; u++) update(g, HT_OP_OPTIMIZER_STEP, q, u, u + 1);
}

/* Waits for all that the rank's stages have to say. */
static void after_stages(struct ht_pipe *g, int32_t rank)
{
    for (int32_t q = g->n_backward - 1; q >= 0; q--) {
        if (ht_pipe_backward_rank(&g->shape, q) != rank) continue;
        ht_op_after(g->s, g->judged[q]);
        ht_op_after(g->s, g->stepped[q]);
    }
}

static int32_t agree(struct ht_pipe *g, int32_t rank)
{
    struct ht_work w = {.kind = HT_OP_ALL_REDUCE,
                        .where = HT_LANE_COLLECTIVE,
                        .tp = 1,
                        .ranks = g->shape.ranks,
                        .bytes = 4,
                        .grad_dtype = HT_F32};
    int32_t op =
        ht_add_op(g->s, HT_OP_ALL_REDUCE, g->lanes[rank].agree, (struct ht_label){-1, 0, 0, -1}, ht_add_work(g->s, &w));
    ht_op_name(g->s, "agree");
    ht_op_match(g->s, g->match);
    after_stages(g, rank);
    return op;
}

static int32_t verdict(struct ht_pipe *g, int32_t rank, int32_t after)
{
    struct ht_work w = {.kind = HT_OP_VALIDATE, .where = HT_LANE_HOST, .tp = 1, .ranks = g->shape.ranks, .free = true};
    int32_t op =
        ht_add_op(g->s, HT_OP_VALIDATE, g->lanes[rank].verdict, (struct ht_label){-1, 0, 0, -1}, ht_add_work(g->s, &w));
    ht_op_name(g->s, "verdict");
    ht_op_after(g->s, after);
    after_stages(g, rank);
    for (int32_t u = 0; u < g->n_units; u++)
        if (ht_pipe_owner(g, u) == rank && ht_pipe_offloads(g)) ht_op_effect(g->s, g->grad[u], HT_HOST, HT_NEED);
    return op;
}

void ht_pipe_end(struct ht_pipe *g)
{
    int32_t *told = g->computed; /* by rank: verdict, no longer needed as compute ops */
    if (g->plain) {
        for (int32_t q = g->n_backward - 1; q >= 0 && !ht_pipe_offloads(g); q--) ht_pipe_step_plainly(g, q);
        return;
    }
    if (ht_pipe_judges(g)) {
        int32_t first = g->s->n_ops;
        for (int32_t r = 0; r < g->shape.ranks && g->shape.ranks > 1; r++) agree(g, r);
        g->match++;
        for (int32_t r = 0; r < g->shape.ranks; r++) told[r] = verdict(g, r, g->shape.ranks > 1 ? first + r : -1);
    }
    for (int32_t q = g->n_backward - 1; q >= 0; q--) {
        int32_t after = told[ht_pipe_backward_rank(&g->shape, q)];
        bool at_end = g->style->update == HT_PIPE_ON_DEVICE;
        if (at_end && !g->gated) ht_pipe_step(g, q, HT_OP_OPTIMIZER_STEP, HT_ALWAYS, -1);
        if (at_end && g->gated) ht_pipe_step(g, q, HT_OP_OPTIMIZER_STEP, HT_WHEN_OK, after);
        if (at_end && g->gated) free_gradients(g, q, after);
        if (g->style->update == HT_PIPE_AFTER_VERDICT) ht_pipe_step(g, q, HT_OP_OPTIMIZER_STEP, HT_WHEN_OK, after);
        if (g->style->update == HT_PIPE_AT_ONCE) ht_pipe_step(g, q, HT_OP_UNDO, HT_WHEN_BAD, after);
    }
}
