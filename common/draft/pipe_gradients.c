/* Adds up the gradients of several ranks, gathers the parameters that they share, and steps stages. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"

#include <stdlib.h>

/* A collective about n units that the same ranks have. */
struct about {
    enum ht_op_kind kind;
    int32_t unit, n;
    int32_t mb;      /* of a reduce-scatter */
    bool after_pass; /* it waits for each rank's last op of a pass */
};

static void append_member(struct ht_pipe *g, const struct about *a, int32_t index, const struct ht_zero_group *group)
{
    if (a->kind == HT_OP_ALL_GATHER)
        ht_zero_all_gather_over(&g->d, index, true, group);
    else if (a->kind == HT_OP_REDUCE_SCATTER)
        ht_zero_reduce_scatter_over(&g->d, index, a->mb, group);
    else
        ht_zero_all_reduce(&g->d, index, a->n, group);
}

/* Appends this pipeline's members of a collective. The head's rank has a tied table under an index of its own. */
static void append(struct ht_pipe *g, struct about a)
{
    int32_t *ranks = HT_NEW_ARRAY(int32_t, 2 * g->d.layout->n_replicas), index = a.unit;
    struct ht_zero_group group = {.ranks = ranks, .n = ht_pipe_group(g->holders, a.unit, g->d.part, ranks)};
    for (int32_t i = 0; i < group.n && group.n > 1; i++) {
        int32_t stage = ht_layout_stage(g->d.layout, g->d.replica, ranks[i]);
        if (stage < 0) continue;
        ht_pipe_turn(g, stage);
        group.crosses = ht_links_cross(g->d.schedule, g->d.links, ranks[i], ranks, group.n);
        append_member(g, &a, index, &group);
        ht_op_match(g->d.schedule, g->match);
        if (a.after_pass) ht_op_after(g->d.schedule, g->computed[stage]);
        index = g->d.table;
    }
    g->match++;
    free(ranks);
}

void ht_pipe_all_gather(struct ht_pipe *g, int32_t unit)
{
    append(g, (struct about){.kind = HT_OP_ALL_GATHER, .unit = unit, .n = 1});
}

void ht_pipe_reduce_scatter(struct ht_pipe *g, int32_t unit, int32_t mb)
{
    append(g, (struct about){.kind = HT_OP_REDUCE_SCATTER, .unit = unit, .n = 1, .mb = mb});
}

/* Returns the first unit of the bucket that ends with a unit. */
static int32_t bucket_of(const struct ht_pipe *g, int32_t last)
{
    int64_t elements = ht_draft_params(&g->d, last);
    int32_t first = last;
    if (ht_pipe_is_half(g, last)) return last; /* a label is of one half, or of whole units */
    for (; first > 0 && ht_pipe_same_group(g->holders, first - 1, last); first--) {
        elements += ht_draft_params(&g->d, first - 1);
        if (elements > g->style->bucket || ht_pipe_is_half(g, first - 1)) break;
    }
    return first;
}

void ht_pipe_reduce(struct ht_pipe *g)
{
    struct about a = {.kind = HT_OP_ALL_REDUCE, .after_pass = g->style->bucket};
    if (ht_pipe_scatters(g)) return;
    if (g->d.sharded && !g->style->reduce_whole) a.kind = HT_OP_REDUCE_SCATTER;
    for (int32_t last = g->d.n_units - 1; last >= 0; last = a.unit - 1) {
        a.unit = a.kind == HT_OP_ALL_REDUCE ? bucket_of(g, last) : last;
        a.n = last - a.unit + 1;
        append(g, a);
    }
}

/* Appends the step of n units of a stage. */
static void step(struct ht_pipe *g, int32_t q, int32_t unit, int32_t n, const char *suffix)
{
    bool offloads = ht_pipe_offloads(g);
    ht_draft_step(&g->d, offloads ? g->stage_lane[q] : g->d.lanes->compute, unit, n, !offloads);
    ht_op_name(g->d.schedule, "%c%d%s", offloads ? 'O' : 'U', q, suffix);
}

void ht_pipe_step(struct ht_pipe *g, int32_t q)
{
    int32_t begin = g->first[q], end = g->first[q + 1], each = g->style->step_units ? 1 : end - begin;
    char suffix[16] = "";
    ht_pipe_turn(g, ht_pipe_backward_rank(&g->shape, q));
    for (int32_t u = end - each; u >= begin; u -= each) {
        if (g->style->step_units) snprintf(suffix, sizeof suffix, ".%d", u);
        step(g, q, u, each, suffix);
    }
    if (g->d.table && ht_pipe_has_head(g, q)) step(g, q, g->d.table, 1, ".wte");
}
