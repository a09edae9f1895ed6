#include "common/plan/shards.h"

#include "common/base/array.h"

#include <stdlib.h>

static int32_t whole(struct ht_single *g, enum ht_tensor_class class, int32_t unit, int32_t mb, enum ht_dtype dtype)
{
    int64_t bytes = ht_unit_params(&g->scenario->model, unit) * ht_dtype_bytes(dtype);
    struct ht_label label = ht_single_label(g, unit, mb);
    return ht_add_tensor(g->schedule,
                         (struct ht_tensor){.class = class, .label = label, .bytes = bytes, .rank = g->rank});
}

void ht_shards_init(struct ht_single *g)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    g->gather = g->reduce = g->computed = g->slot = g->ahead = g->scattering = -1;
    if (g->n_ranks == 1) return;
    g->gather = ht_add_lane(g->schedule, "gather", HT_LANE_COLLECTIVE, g->rank, HT_FIFO);
    g->reduce = ht_add_lane(g->schedule, "reduce", HT_LANE_COLLECTIVE, g->rank, HT_FIFO);
    g->gathered = HT_NEW_ARRAY(bool, g->n_units);
    g->full_param = HT_NEW_ARRAY(int32_t, g->n_units);
    g->full_grad = HT_NEW_ARRAY(int32_t, g->n_units * g->n_mb);
    for (int32_t u = 0; u < g->n_units; u++) {
        g->full_param[u] = whole(g, HT_COMM, u, -1, n->param);
        for (int32_t j = 0; j < g->n_mb; j++) g->full_grad[ht_single_at(g, u, j)] = whole(g, HT_GRAD, u, j, n->grad);
    }
}

void ht_shards_free(struct ht_single *g)
{
    free(g->gathered);
    free(g->full_param);
    free(g->full_grad);
}

void ht_shards_begin_slot(struct ht_single *g)
{
    g->ahead = g->slot;
    g->slot = g->computed;
}

/* Every rank sends its shard to the N - 1 others, or their shards of its gradient to them. */
static void collective(struct ht_single *g, enum ht_op_kind kind, int32_t lane, int32_t unit, enum ht_dtype dtype)
{
    struct ht_schedule *s = g->schedule;
    struct ht_work w = {.kind = kind, .where = HT_LANE_COLLECTIVE, .tp = 1, .ranks = g->n_ranks, .grad_dtype = dtype};
    w.bytes = ht_scenario_shard(g->scenario, unit) * (g->n_ranks - 1) * ht_dtype_bytes(dtype);
    /* About no micro-batch: the ranks' are different ones. */
    ht_add_op(s, kind, lane, ht_single_label(g, unit, -1), ht_add_work(s, &w));
    ht_single_draw(g, w.bytes);
    ht_single_chain(g);
}

void ht_shards_gather(struct ht_single *g, int32_t unit)
{
    struct ht_schedule *s = g->schedule;
    if (g->gathered[unit]) return;
    collective(g, HT_OP_ALL_GATHER, g->gather, unit, g->scenario->numerics.param);
    ht_op_name(s, "AG%d", unit);
    ht_op_after(s, g->ahead);
    if (g->cast[unit]) ht_op_effect(s, g->master[unit], HT_DEVICE, HT_NEED);
    ht_op_effect(s, g->param[unit], HT_DEVICE, g->cast[unit] ? HT_PRODUCE | HT_RELEASE : HT_NEED);
    ht_op_effect(s, g->full_param[unit], HT_DEVICE, HT_PRODUCE);
    g->gathered[unit] = true;
}

void ht_shards_reduce(struct ht_single *g, int32_t unit, int32_t mb)
{
    struct ht_schedule *s = g->schedule;
    int32_t at = ht_single_at(g, unit, mb);
    collective(g, HT_OP_REDUCE_SCATTER, g->reduce, unit, g->scenario->numerics.reduce);
    if (g->n_mb > 1)
        ht_op_name(s, "RS%d.%d", unit, mb);
    else
        ht_op_name(s, "RS%d", unit);
    ht_op_effect(s, g->full_grad[at], HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(s, mb ? g->grad_mb[at] : g->grad[unit], HT_DEVICE, HT_PRODUCE);
}
