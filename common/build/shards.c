#include "common/build/shards.h"

#include "common/base/array.h"
#include "common/build/works.h"

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
    if (g->sharded) g->gather = ht_add_lane(g->schedule, "gather", HT_LANE_COLLECTIVE, g->rank, HT_FIFO);
    if (g->n_ranks > 1) g->reduce = ht_add_lane(g->schedule, "reduce", HT_LANE_COLLECTIVE, g->rank, HT_FIFO);
    if (!g->sharded) return;
    g->gathered = HT_NEW_ARRAY(bool, g->n_units);
    g->full_param = HT_NEW_ARRAY(int32_t, g->n_units);
    g->full_sum = HT_NEW_ARRAY(int32_t, g->n_units);
    g->full_grad = HT_NEW_ARRAY(int32_t, g->n_units * g->n_mb);
    for (int32_t u = 0; u < g->n_units; u++) {
        g->full_param[u] = g->own_mb ? whole(g, HT_COMM, u, -1, n->param) : -1;
        g->full_sum[u] = g->reduce_once && g->own_mb ? whole(g, HT_GRAD, u, -1, n->accumulate) : -1;
        for (int32_t j = 0; j < g->n_mb; j++)
            g->full_grad[ht_single_at(g, u, j)] =
                j < g->own_mb && !(g->reduce_once && j == 0) ? whole(g, HT_GRAD, u, j, n->grad) : -1;
    }
}

void ht_shards_free(struct ht_single *g)
{
    free(g->gathered);
    free(g->full_param);
    free(g->full_sum);
    free(g->full_grad);
}

void ht_shards_begin_slot(struct ht_single *g)
{
    g->ahead = g->slot;
    g->slot = g->computed;
}

/* Returns the elements that pass a rank each way. In a ring all shards but one go by, be they parameters or sums; its own is taken for
   that one, so that uneven shards cost little more than even ones. A rank without a micro-batch in this round (takes_part
   false) only sends its shard, or receives it. */
static int64_t traffic(const struct ht_single *g, int32_t unit, bool takes_part)
{
    int64_t own = ht_layout_shard(g->layout, unit, g->rank)->padded, all = 0;
    for (int32_t r = 0; r < g->n_ranks; r++) all += ht_layout_shard(g->layout, unit, r)->padded;
    return takes_part ? all - own : own;
}

static void collective(struct ht_single *g, enum ht_op_kind kind, int32_t lane, int32_t unit, enum ht_dtype dtype, int64_t sent)
{
    struct ht_schedule *s = g->schedule;
    struct ht_work w = {.kind = kind, .where = HT_LANE_COLLECTIVE, .tp = 1, .ranks = g->n_ranks, .grad_dtype = dtype};
    w.bytes = sent * ht_dtype_bytes(dtype);
    /* About no micro-batch: the ranks' are different ones. */
    ht_add_op(s, kind, lane, ht_single_label(g, unit, -1), ht_add_work(s, &w));
    ht_charge_collective(s, g->ports, g->ports[g->rank].leads, w.bytes);
    ht_single_chain(g);
}

void ht_shards_gather(struct ht_single *g, int32_t unit, int32_t mb)
{
    struct ht_schedule *s = g->schedule;
    bool takes_part = mb < g->own_mb;
    if (g->gathered[unit]) return;
    collective(g, HT_OP_ALL_GATHER, g->gather, unit, g->scenario->numerics.param, traffic(g, unit, takes_part));
    ht_op_name(s, "AG%d", unit);
    ht_op_after(s, g->ahead);
    if (g->cast[unit]) ht_op_effect(s, g->master[unit], HT_DEVICE, HT_NEED);
    ht_op_effect(s, g->param[unit], HT_DEVICE, g->cast[unit] ? HT_PRODUCE | HT_RELEASE : HT_NEED);
    if (takes_part) ht_op_effect(s, g->full_param[unit], HT_DEVICE, HT_PRODUCE);
    g->gathered[unit] = true;
}

void ht_shards_reduce(struct ht_single *g, int32_t unit, int32_t mb)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    struct ht_schedule *s = g->schedule;
    bool own = mb < g->own_mb, once = g->reduce_once;
    int32_t at = ht_single_at(g, unit, mb), whole = once ? g->full_sum[unit] : own ? g->full_grad[at] : -1;
    if (once && own && mb) g->computed = ht_single_accumulate(g, g->compute, unit, mb);
    if (once && mb + 1 < g->n_mb) return;
    collective(g, HT_OP_REDUCE_SCATTER, g->reduce, unit, once ? n->accumulate : n->reduce,
               traffic(g, unit, whole >= 0));
    if (g->n_mb > 1 && !once)
        ht_op_name(s, "RS%d.%d", unit, mb);
    else
        ht_op_name(s, "RS%d", unit);
    if (whole >= 0) ht_op_effect(s, whole, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(s, mb && !once ? g->grad_mb[at] : g->grad[unit], HT_DEVICE, HT_PRODUCE);
}

void ht_single_all_reduce(struct ht_single *g, int32_t unit)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    if (g->n_ranks == 1 || g->sharded) return;
    collective(g, HT_OP_ALL_REDUCE, g->reduce, unit, g->n_mb > 1 ? n->accumulate : n->reduce,
               ht_all_reduce_elements(g->scenario, unit, g->n_ranks));
    ht_op_name(g->schedule, "AR%d", unit);
    ht_op_effect(g->schedule, g->grad[unit], HT_DEVICE, HT_UPDATE);
}
