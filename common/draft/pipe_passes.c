/*
 * Appends the ops of a pass to the rank's compute lane, with the effects of each.
 *
 * A stage with fewer replicas than another passes several micro-batches of the graph at a time: unit by unit, so that as
 * much is in memory as if they were one.
 */
#include "common/draft/pipe_internal.h"

/* Makes the last op, the first of a pass of several micro-batches, wait for the inputs of all: a program's are one. */
static void await_all(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    const int32_t *arrivals = (x->forward ? g->came : g->arrival) + x->stage * g->d.n_mb;
    for (int32_t j = ht_pipe_first_mb(g, rank, x); j < ht_pipe_end_mb(g, rank, x); j++)
        ht_op_after(g->d.schedule, arrivals[j]);
    g->begun = NULL;
}

/* Names the last op after its pass, and makes it wait for the message that blocks its rank. */
static void in_pass(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    struct ht_schedule *s = g->d.schedule;
    ht_op_number(s, x->forward ? "f" : "b", x->stage, x->micro_batch);
    ht_op_after(s, g->sending[rank]);
    if (g->begun == x) await_all(g, rank, x);
    g->sending[rank] = -1;
    g->computed[rank] = s->n_ops - 1;
}

/* Frees a tensor on the device when the last op ends. */
static void drop(struct ht_pipe *g, int32_t tensor)
{
    ht_op_effect(g->d.schedule, tensor, HT_DEVICE, HT_RELEASE);
}

/* Appends the forward, of which these sub-ops stay, or the backward of a unit, or the addition of its gradient: as it repeats, or in
   full. */
static void pass_op(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, enum ht_pipe_repeat kind, int32_t u,
                    int32_t j, unsigned keep)
{
    struct ht_repeat *r = ht_pipe_repeats(g, kind, u);
    int64_t key = (int64_t)rank << 32 | keep;
    int32_t rows = g->d.schedule->n_tensors;
    if (ht_repeat_op(&g->d, r, key, j)) {
        in_pass(g, rank, x);
        return;
    }
    if (kind == HT_REPEAT_FORWARD)
        ht_draft_forward(&g->d, u, j, keep);
    else if (kind == HT_REPEAT_BACKWARD)
        ht_draft_backward(&g->d, u, j);
    else if (g->d.state->reduce_once)
        ht_draft_add_to_sum(&g->d, u, j);
    else
        ht_draft_accumulate(&g->d, g->d.lanes->compute, u, j);
    ht_repeat_note(&g->d, r, key, j, rows);
    in_pass(g, rank, x);
}

/* Appends the recomputation of n units, likewise. */
static void recompute_op(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t u, int32_t n, int32_t j,
                         unsigned sub_ops)
{
    struct ht_repeat *r = ht_pipe_repeats(g, HT_REPEAT_RECOMPUTE, u);
    int64_t key = (int64_t)rank << 32 | n;
    int32_t rows = g->d.schedule->n_tensors;
    if (!ht_repeat_op(&g->d, r, key, j)) {
        ht_draft_recompute(&g->d, u, n, j, sub_ops);
        ht_repeat_note(&g->d, r, key, j, rows);
    }
    in_pass(g, rank, x);
}

/* Returns true if no later pass of the rank's visit after its nth, and not the next visit, reads a unit's parameters. */
static bool is_last_read(const struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit)
{
    int32_t k = g->visit_of[rank * g->n_passes + n];
    const struct ht_pipe_visit *v = &g->visits[rank * g->n_passes + k];
    int64_t last = -1; /* last pass of the visit that reads the unit */
    if (v->forward >= 0 && ht_pipe_forward_reads(g, v->forward, unit)) last = v->last_forward;
    if (v->backward >= 0 && ht_pipe_backward_reads(g, v->backward, unit) && v->last_backward > last)
        last = v->last_backward;
    return n == last && (k + 1 == g->n_visits[rank] || !ht_pipe_visit_reads(g, v + 1, unit));
}

/* Frees a unit's parameters, if they are offloaded, when the last op, of the rank's nth pass, is the last that reads
   them. */
static void drop_param(struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit)
{
    if (ht_pipe_offloads(g) && is_last_read(g, rank, n, unit)) drop(g, g->d.param[unit]);
}

static void drop_head(struct ht_pipe *g, int32_t rank, int64_t n)
{
    drop_param(g, rank, n, ht_pipe_head(g));
    if (g->d.scenario->model.tied) drop_param(g, rank, n, 0);
}

/* Returns the first block of a block's segment. A half of a block is a segment, and ends the one before. */
static int32_t segment_of(const struct ht_pipe *g, int32_t unit)
{
    int32_t stage = ht_pipe_first_block(g, g->stage_of[unit]), begin = unit;
    if (ht_pipe_is_half(g, unit)) return unit;
    if (!g->style->halves && !g->style->sub_ops) begin = stage;
    while (begin > stage && !ht_pipe_is_half(g, begin - 1)) begin--;
    return g->style->segment ? unit - (unit - begin) % g->style->segment : begin;
}

/* Returns true if a unit's input stays on the rank after its forward: as a checkpoint that is sent or recomputed from,
   or because its backward reads it as it is. */
static bool stays(const struct ht_pipe *g, int32_t unit)
{
    return unit == 0 || ht_pipe_dropped(g, unit) != HT_ALL_SUB_OPS || unit == segment_of(g, unit);
}

/* Frees what a pass leaves for a stage of fewer parts, none of which gets it from here. The front's backward may read it. */
static void drop_boundary(struct ht_pipe *g, int32_t rank, int32_t unit, int32_t j)
{
    int32_t at = ht_pipe_at(g, unit, j);
    if (ht_pipe_keeps_output(g, unit)) return;
    if (!ht_pipe_keeps_boundary(g, rank, ht_pipe_forward_rank(&g->shape, g->stage_of[unit] / g->shape.d))) return;
    if (!ht_pipe_reads_again(g, unit)) drop(g, g->d.x[at]);
    if (g->d.handed[at] >= 0) drop(g, g->d.handed[at]);
}

/* Appends the head's forward for the loss, and frees its results. */
static void forward_head(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x, int32_t j)
{
    int32_t u = ht_pipe_head(g);
    pass_op(g, rank, x, HT_REPEAT_FORWARD, u, j, 0);
    drop_head(g, rank, n);
    drop(g, g->d.logits[j]);
    if (g->style->recompute_output) drop(g, g->d.x[ht_pipe_at(g, u, j)]);
}

void ht_pipe_forward_pass(struct ht_pipe *g, int32_t rank, int64_t n)
{
    const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + n];
    int32_t d = g->shape.d, head = ht_pipe_head(g), begin = ht_pipe_first_mb(g, rank, x),
            end = ht_pipe_end_mb(g, rank, x);
    bool has_head = ht_pipe_forward_has_head(g, x->stage);
    for (int32_t j = begin; j < end; j++) {
        int32_t at = ht_pipe_at(g, g->first[x->stage * d], j);
        ht_pipe_join_boundary(g, rank, g->d.x[at], -1);
        ht_pipe_join_boundary(g, rank, g->d.handed[at], -1);
    }
    for (int32_t u = g->first[x->stage * d]; u < g->first[(x->stage + 1) * d] && u < head; u++)
        for (int32_t j = begin; j < end; j++) {
            pass_op(g, rank, x, HT_REPEAT_FORWARD, u, j, HT_ALL_SUB_OPS & ~ht_pipe_dropped(g, u));
            if (g->kept[ht_pipe_at(g, u, j)] >= 0)
                ht_op_effect(g->d.schedule, g->kept[ht_pipe_at(g, u, j)], HT_DEVICE, HT_PRODUCE);
            if (j + 1 == end && !(u == 0 && has_head && g->d.scenario->model.tied)) drop_param(g, rank, n, u);
            if (!stays(g, u)) drop(g, g->d.x[ht_pipe_at(g, u, j)]);
            if (u + 1 == g->first[(x->stage + 1) * d] && u + 1 < head) drop_boundary(g, rank, u + 1, j);
            if (u + 1 == head && g->style->recompute_output && !has_head) drop(g, g->d.x[ht_pipe_at(g, head, j)]);
        }
    g->made[rank] = g->computed[rank];
    for (int32_t j = begin; j < end && has_head; j++) forward_head(g, rank, n, x, j);
}

/* Adds the fresh gradient of a micro-batch after the rank's first to the sum at once, so that only one unit's is in memory. The
   last one's sum may have to be rearranged. */
static void accumulate(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t u, int32_t j)
{
    if (u < 0) return;
    if (j != g->d.first_mb) pass_op(g, rank, x, HT_REPEAT_ACCUMULATE, u, j, 0);
    if (j == g->d.n_mb - 1 && ht_pipe_transpose(g, u)) g->computed[rank] = g->d.schedule->n_ops - 1;
}

/* Collects what a backward pass has added to a unit's gradient. A shard of it is being scattered while the next unit's
   backward runs, and is accumulated after that; u -1: the pass ends. The head's table is scattered with the embedding. */
static void collect(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t u, int32_t j)
{
    if (!ht_pipe_scatters(g)) {
        accumulate(g, rank, x, u, j);
        return;
    }
    if (u >= 0) ht_pipe_reduce_scatter(g, u, j);
    ht_pipe_turn(g, rank);
    accumulate(g, rank, x, ht_draft_wait_reduced(&g->d, u), j);
}

/* Accumulates the head's shard of a tied table, once the embedding's pass has ended. */
static void collect_table(struct ht_pipe *g, const struct ht_pipe_pass *x)
{
    int32_t rank = ht_pipe_backward_rank(&g->shape, g->n_backward - 1);
    ht_pipe_turn(g, rank);
    accumulate(g, rank, x, g->d.table, x->micro_batch);
}

/* Recomputes blocks [begin, end) of a backward stage. Those that its pass reads first may have to wait for its input. */
static void recompute(struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x, int32_t begin, int32_t end)
{
    bool last = end == ht_pipe_end_block(g, x->stage);
    if (!ht_pipe_dropped(g, begin)) return; /* a half without what alone is dropped */
    for (int32_t j = ht_pipe_first_mb(g, rank, x); j < ht_pipe_end_mb(g, rank, x); j++) {
        recompute_op(g, rank, x, begin, end - begin, j, ht_pipe_dropped(g, begin));
        if (last && !g->style->early_recompute) ht_op_after(g->d.schedule, g->arrival[x->stage * g->d.n_mb + j]);
        if (ht_pipe_has_head(g, x->stage) && g->style->recompute_output)
            ht_op_effect(g->d.schedule, g->d.x[ht_pipe_at(g, end, j)], HT_DEVICE, HT_PRODUCE);
    }
}

/* Appends the head's forward and backward: the loss and its gradient. */
static void head(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x)
{
    int32_t u = ht_pipe_head(g), begin = ht_pipe_first_mb(g, rank, x), end = ht_pipe_end_mb(g, rank, x);
    for (int32_t j = begin; j < end; j++) {
        if (g->style->forward_head)
            recompute_op(g, rank, x, u, 1, j, HT_ALL_SUB_OPS);
        else
            pass_op(g, rank, x, HT_REPEAT_FORWARD, u, j, HT_ALL_SUB_OPS);
    }
    for (int32_t j = begin; j < end; j++) {
        pass_op(g, rank, x, HT_REPEAT_BACKWARD, u, j, 0);
        if (j + 1 == end) drop_head(g, rank, n);
        collect(g, rank, x, u, j);
        if (g->d.table && !ht_pipe_scatters(g)) accumulate(g, rank, x, g->d.table, j);
    }
}

/* Frees what a stage has sent of a micro-batch and kept, when the last op, of its backward pass, ends. The front of a block that the
   stage ends in may have freed the residual. */
static void drop_output(struct ht_pipe *g, int32_t q, int32_t j)
{
    if (q + 1 == g->n_backward || !ht_pipe_keeps_output(g, g->first[q + 1])) return;
    int32_t at = ht_pipe_at(g, g->first[q + 1], j);
    if (!ht_pipe_reads_again(g, g->first[q + 1])) drop(g, g->d.x[at]);
    if (g->d.handed[at] >= 0) drop(g, g->d.handed[at]);
}

/* Appends the backward of a unit, for each micro-batch of a pass. */
static void backward_unit(struct ht_pipe *g, int32_t rank, int64_t n, const struct ht_pipe_pass *x, int32_t u)
{
    int32_t q = x->stage, end = ht_pipe_end_mb(g, rank, x);
    bool first = u == ht_pipe_first_block(g, q);
    for (int32_t j = ht_pipe_first_mb(g, rank, x); j < end; j++) {
        pass_op(g, rank, x, HT_REPEAT_BACKWARD, u, j, 0);
        if (g->kept[ht_pipe_at(g, u, j)] >= 0)
            ht_op_effect(g->d.schedule, g->kept[ht_pipe_at(g, u, j)], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (first) g->made[rank] = g->computed[rank];
        if (first) drop_output(g, q, j);
        if (first && q > 0 && ht_pipe_keeps_boundary(g, rank, ht_pipe_backward_rank(&g->shape, q - 1))) {
            int32_t at = ht_pipe_at(g, u, j);
            drop(g, g->d.dx[at]);
            if (g->d.dhanded[at] >= 0) drop(g, g->d.dhanded[at]);
        }
        if (j + 1 == end && u > 0) drop_param(g, rank, n, u);
        collect(g, rank, x, u, j);
    }
}

void ht_pipe_backward_pass(struct ht_pipe *g, int32_t rank, int64_t n)
{
    const struct ht_pipe_pass *x = &g->passes[rank * g->n_passes + n];
    int32_t q = x->stage, begin = ht_pipe_first_block(g, q), end = ht_pipe_end_recomputed(g, q);
    int32_t first = ht_pipe_first_mb(g, rank, x);
    bool at_once = g->style->recompute && !g->style->segment, last = q + 1 == g->n_backward;
    for (int32_t j = first; j < ht_pipe_end_mb(g, rank, x); j++) {
        int32_t at = ht_pipe_at(g, last ? ht_pipe_head(g) : g->first[q + 1], j);
        ht_pipe_join_boundary(g, rank, last ? g->d.x[at] : g->d.dx[at], q);
        if (!last) ht_pipe_join_boundary(g, rank, g->d.dhanded[at], q);
    }
    for (int32_t u = begin, next = begin; u < end && at_once; u = next) {
        for (next++; next < end && segment_of(g, next) == u;) next++;
        recompute(g, rank, x, u, next);
    }
    if (ht_pipe_has_head(g, q)) head(g, rank, n, x);
    for (int32_t u = ht_pipe_end_block(g, q) - 1; u >= begin; u--) {
        if (u < end && !at_once && (u + 1 == end || segment_of(g, u + 1) == u + 1))
            recompute(g, rank, x, segment_of(g, u), u + 1);
        backward_unit(g, rank, n, x, u);
    }
    if (q == 0) backward_unit(g, rank, n, x, 0);
    collect(g, rank, x, -1, first);
    if (q == 0 && g->d.table && ht_pipe_scatters(g)) collect_table(g, x);
}
