/* Adds up the gradients of several ranks, and steps stages. */
#include "common/draft/pipe_internal.h"

#include "common/base/array.h"

#include <stdlib.h>

/* Lists the graph's ranks that have a gradient of a unit, and returns how many: one of each pipeline after the other,
   and for a tied table the head's rank, too. */
static int32_t find_holders(const struct ht_pipe *g, int32_t unit, int32_t *ranks)
{
    int32_t n = 0;
    for (int32_t k = 0; k < g->d.layout->n_replicas; k++) {
        int32_t head = ht_pipe_holder(g, k, ht_pipe_head(g));
        ranks[n++] = ht_pipe_holder(g, k, unit);
        if (unit == 0 && g->d.scenario->model.tied && head != ranks[n - 1]) ranks[n++] = head;
    }
    return n;
}

void ht_pipe_all_reduce(struct ht_pipe *g, int32_t unit)
{
    const struct ht_schedule *s = g->d.schedule;
    int32_t *ranks = HT_NEW_ARRAY(int32_t, 2 * g->d.layout->n_replicas), n = find_holders(g, unit, ranks);
    for (int32_t i = 0, index = unit; i < n && n > 1; i++) {
        int32_t stage = ht_layout_stage(g->d.layout, g->d.replica, ranks[i]);
        if (stage < 0) continue;
        ht_pipe_turn(g, stage);
        ht_zero_all_reduce(&g->d, index, n, ht_links_cross(s, g->d.links, ranks[i], ranks, n));
        ht_op_match(g->d.schedule, g->match);
        index = g->d.table;
    }
    g->match++;
    free(ranks);
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
