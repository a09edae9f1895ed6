/*
 * The collectives that several data-parallel ranks add to the graph of one rank: ZeRO-3 (Rajbhandari et al., "ZeRO:
 * Memory Optimizations Toward Training Trillion Parameter Models", SC 2020, Sec. 5).
 *
 * A unit is cut into one shard per rank (common/draft/layout.h): even shards of ceil(P / N) elements, the last one
 * padded, or uneven ones. A rank's shard is resident wherever the system keeps parameters. A pass reads whole
 * parameters:
 *
 *     gather   AG1 AG2 AG3 ..               AG3      AG2      AG1        shards --> whole parameters, on the device
 *     compute      F1  F2  F3 .. FH | BH .. R3 B3    R2 B2    R1 B1
 *     reduce                            RSH    RS3      RS2      RS1     whole gradient --> the rank's shard of the sum
 *
 * Each collective moves as many elements through a rank as the other ranks' shards have: (N - 1) / N of P if they are
 * even. Gathered parameters live until the pass has read them. They are gathered again for the backward pass, where
 * recomputation and backward share them. The head's parameters (and with them a tied table) stay between its forward
 * and its backward, which follow each other. Gradients are scattered in every micro-batch, since ZeRO-3 has no room for
 * whole ones; sums over micro-batches are sums of shards. With reduce_once a rank sums whole gradients of its own
 * micro-batches and scatters the sum with the last one.
 *
 * Gathering runs one unit ahead. The slot of a unit is its forward, or its recomputation and backward. The AG of a slot
 * may run once the previous slot begins, i.e. after the last op of the slot before that. Its id comes right before its
 * own slot, so the safe sequence needs room for one gathered unit, not two. A second unit is gathered when the memory
 * rule grants it. With blocks_gathers it waits for the last op before its own slot: nothing hides it.
 *
 * There are two lanes, or one if the program has one communicator: NCCL runs the collectives of a communicator one at a
 * time (Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023, Sec. 3.3.2;
 * github.com/pytorch/pytorch/issues/65299). The AG of the next unit would then queue behind the RS of this unit, which
 * waits for its backward. So FSDP issues that AG first (BackwardPrefetch.BACKWARD_PRE, the default), as is done here:
 *
 *     collectives   AG3 AG2 RS3 AG1 RS2 AG0 RS1 RS0
 *     compute       R3 B3   R2 B2   R1 B1   B0
 *
 * The ids are in this order, AG2 after B3. The safe sequence still has one gathered unit at a time. The embedding's RS
 * ends a pass, and what comes after it is not gathered ahead. With blocks_gathers nothing is prefetched, and RS3 precedes
 * AG2 (BackwardPrefetch none).
 *
 * Pipelines append these collectives by themselves, over the ranks that have a unit (common/draft/pipe.h).
 *
 * Ranks with fewer micro-batches than others, or none, join the collectives of the rounds that they lack: an all-gather
 * sends their shard and gives them nothing, a reduce-scatter gives them their shard of the others' sum.
 */
#include "common/draft/draft_internal.h"
#include "common/draft/works.h"

void ht_zero_begin_slot(struct ht_draft *g)
{
    g->state->ahead = g->state->blocks_gathers ? g->state->computed : g->state->slot;
    g->state->slot = g->state->computed;
}

static struct ht_zero_group everyone(const struct ht_draft *g)
{
    return (struct ht_zero_group){.n = g->layout->n_ranks, .crosses = g->links[g->rank].leads};
}

/* Returns the elements of the shard of a group's i-th rank. */
static int64_t shard_of(const struct ht_draft *g, int32_t unit, const struct ht_zero_group *group, int32_t i)
{
    return ht_draft_shard_of(g, unit, group->ranks ? group->ranks[i] : i)->padded;
}

/* Returns the elements that pass a rank each way. In a ring all shards but one pass it, whether parameters or sums. We
   take the rank's own for that one, so that uneven shards pass little more than even ones. What the programs'
   collectives take longer for uneven shards is in the cost (even_bytes of the work). A rank without a micro-batch in
   this round (takes_part false) only sends its shard, or only receives it. */
static int64_t traffic(const struct ht_draft *g, int32_t unit, bool takes_part, const struct ht_zero_group *group)
{
    int64_t own = ht_draft_shard_of(g, unit, g->rank)->padded, all = 0;
    for (int32_t i = 0; i < group->n; i++) all += shard_of(g, unit, group, i);
    return takes_part ? all - own : own;
}

/* Returns the elements that would pass a rank each way if the unit's shards were even; 0 if they are. */
static int64_t even_traffic(const struct ht_draft *g, int32_t unit, const struct ht_zero_group *group)
{
    int64_t first = shard_of(g, unit, group, 0), all = 0;
    bool even = true;
    for (int32_t i = 0; i < group->n; i++) {
        all += shard_of(g, unit, group, i);
        even &= shard_of(g, unit, group, i) == first;
    }
    return even ? 0 : (group->n - 1) * ((all + group->n - 1) / group->n);
}

static void collective(struct ht_draft *g, enum ht_op_kind kind, int32_t lane, int32_t unit, enum ht_dtype dtype,
                       int64_t sent, int64_t even, const struct ht_zero_group *group)
{
    struct ht_schedule *s = g->schedule;
    struct ht_work w = ht_uneven_collective_work(kind, group->n, dtype, sent, even);
    /* The label has no micro-batch: each rank has a different one. */
    ht_add_op(s, kind, lane, ht_draft_label(g, unit, -1), ht_add_work(s, &w));
    ht_charge_collective(s, g->links, group->crosses, w.bytes);
    ht_draft_chain(g);
}

void ht_zero_all_gather_over(struct ht_draft *g, int32_t unit, bool takes_part, const struct ht_zero_group *group)
{
    struct ht_schedule *s = g->schedule;
    collective(g, HT_OP_ALL_GATHER, g->lanes->gather, unit, g->scenario->numerics.param,
               traffic(g, unit, takes_part, group), even_traffic(g, unit, group), group);
    ht_op_number(s, "AG", ht_draft_unit(g, unit), -1);
    ht_op_after(s, g->state->ahead);
    if (g->cast_on_use[unit]) ht_op_effect(s, g->master[unit], HT_DEVICE, HT_NEED);
    ht_op_effect(s, g->param[unit], HT_DEVICE, g->cast_on_use[unit] ? HT_PRODUCE | HT_RELEASE : HT_NEED);
    if (takes_part) ht_op_effect(s, g->state->full_param[unit], HT_DEVICE, HT_PRODUCE);
    g->state->gathered[unit] = true;
}

void ht_zero_all_gather(struct ht_draft *g, int32_t unit, int32_t mb)
{
    struct ht_zero_group group = everyone(g);
    if (!g->state->gathered[unit]) ht_zero_all_gather_over(g, unit, mb < g->own_mb, &group);
}

void ht_zero_reduce_scatter_over(struct ht_draft *g, int32_t unit, int32_t mb, const struct ht_zero_group *group)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    struct ht_schedule *s = g->schedule;
    bool own = mb < g->own_mb, once = g->state->reduce_once;
    int32_t at = ht_draft_at(g, unit, mb), whole = once ? g->state->full_sum[unit] : own ? g->state->full_grad[at] : -1;
    int32_t of = ht_draft_unit(g, unit);
    collective(g, HT_OP_REDUCE_SCATTER, g->lanes->reduce, unit, once ? n->accumulate : n->reduce,
               traffic(g, unit, whole >= 0, group), even_traffic(g, unit, group), group);
    if (g->n_mb > 1 && !once)
        ht_op_number(s, "RS", of, mb);
    else
        ht_op_number(s, "RS", of, -1);
    if (whole >= 0) ht_op_effect(s, whole, HT_DEVICE, HT_NEED | HT_RELEASE);
    ht_op_effect(s, mb && !once ? g->grad_mb[at] : g->grad[unit], HT_DEVICE, HT_PRODUCE);
}

static void append_reduce_scatter(struct ht_draft *g, int32_t unit, int32_t mb)
{
    struct ht_zero_group group = everyone(g);
    ht_zero_reduce_scatter_over(g, unit, mb, &group);
}

void ht_zero_reduce_scatter(struct ht_draft *g, int32_t unit, int32_t mb)
{
    if (g->state->reduce_once && mb + 1 < g->n_mb) return;
    if (g->state->one_communicator && !g->state->blocks_gathers && unit > 0) {
        g->state->held_unit = unit;
        g->state->held_mb = mb;
    } else {
        append_reduce_scatter(g, unit, mb);
    }
}

void ht_zero_end_gathers(struct ht_draft *g)
{
    if (g->state->held_unit >= 0) append_reduce_scatter(g, g->state->held_unit, g->state->held_mb);
    g->state->held_unit = -1;
}

void ht_zero_all_reduce(struct ht_draft *g, int32_t unit, int32_t n, const struct ht_zero_group *group)
{
    const struct ht_numerics *x = &g->scenario->numerics;
    struct ht_schedule *s = g->schedule;
    int64_t elements = 0;
    for (int32_t u = unit; u < unit + n; u++) elements += ht_all_reduce_elements(ht_draft_params(g, u), group->n);
    collective(g, HT_OP_ALL_REDUCE, g->lanes->reduce, unit, g->rounds > 1 ? x->accumulate : x->reduce, elements, 0,
               group);
    s->ops[s->n_ops - 1].label.n_units = n;
    ht_op_number(s, "AR", ht_draft_unit(g, unit), -1);
    for (int32_t u = unit; u < unit + n; u++) ht_op_effect(s, g->grad[u], HT_DEVICE, HT_UPDATE);
}

void ht_draft_all_reduce(struct ht_draft *g, int32_t unit)
{
    struct ht_zero_group replicas = {.n = g->layout->n_replicas, .crosses = g->links[g->rank].leads};
    if (replicas.n > 1 && !g->sharded) ht_zero_all_reduce(g, unit, 1, &replicas);
}
