/*
 * The schedule of a rank: layered gradient accumulation (Sec. 2.2), with the tensors between layers in host memory
 * (Sec. 3.3, Supplement B).
 *
 *     collectives  AG0 AG1     AG2        AG3 ..   AG1              RS2 AG0     RS1
 *     compute       F0.0 F0.1  F1.0 F1.1  F2.0 ..  R2.0 B2.0 R2.1 B2.1  R1.0 ..
 *     d2h                X1.0  X1.1  X2.0  X2.1 ..      dX2.0     dX2.1
 *     h2d                      X1.0  X1.1  X2.0 ..  X2.0, dX3.0  X2.1, dX3.1
 *
 * A visit is a unit's passes over all micro-batches, which follow one another. One all-gather serves the whole visit,
 * and one reduce-scatter its gradients, which are summed whole. The next unit is gathered while this one computes, so
 * two are on the device. Collectives run one at a time, as FSDP's (common/draft/zero.c). The forward pass keeps only a
 * block's input; the backward pass recomputes from it. The head's forward and backward of a micro-batch follow each
 * other, so only one micro-batch's logits are in memory.
 *
 * Boundary tensors, i.e. inputs X(u,j) and their gradients dX(u,j), go to the host once they are made, and come back
 * one step before they are needed. So a device holds a few of them, whatever the number of micro-batches (Fig. 11).
 * With one micro-batch a tensor that the next step needs stays; only inputs are copied to the host, for the backward
 * pass, while their unit computes. offload=0 leaves all of them on the device. overlap=0 gathers a unit only when the
 * one before it has ended.
 *
 * Departures. A micro-batch's gradient is formed fresh and then added (docs/architecture.md), so a whole sum and a
 * fresh gradient are in memory at a time. The embedding is gathered for its backward like any module.
 */
#include "cephalo/cephalo.h"
#include "cephalo/partition.h"

#include "common/base/array.h"
#include "common/draft/draft_extra.h"
#include "common/draft/turns.h"

#include <stdlib.h>

/* The rank's own passes in order. Step v l + j is turn v of micro-batch j: a visit is a turn of all micro-batches. */
struct build {
    struct ht_draft *g;
    bool offload;
    int32_t *passed; /* [steps] last compute op of each step */
};

static bool swaps(const struct build *b)
{
    return b->offload && b->g->own_mb > 1;
}

static void bring(const struct build *b, int32_t row, bool last, int32_t after)
{
    ht_draft_copy(b->g, row, HT_HOST, HT_DEVICE, HT_PRODUCE, last);
    ht_op_after(b->g->schedule, after);
}

/* Fetches from the host what a step needs; the copies may run beside the step before it. */
static void fetch(const struct build *b, int32_t step)
{
    const struct ht_draft *g = b->g;
    int32_t j = step % g->own_mb, after = step >= 2 ? b->passed[step - 2] : -1; /* the step whose room it takes */
    struct ht_turn x = ht_turn(g->n_units, step / g->own_mb);
    if (x.round) return; /* there is no such step */
    bool needs_input = x.unit > 0 && (x.forward ? swaps(b) : b->offload);
    if (needs_input) bring(b, g->x[ht_draft_at(g, x.unit, j)], x.backward, after);
    if (!x.forward && swaps(b)) bring(b, g->dx[ht_draft_at(g, x.unit + 1, j)], true, after);
}

static void send(const struct build *b, int32_t row, bool leaves)
{
    ht_draft_copy(b->g, row, HT_DEVICE, HT_HOST, HT_PRODUCE, leaves);
}

static void forward(const struct build *b, int32_t u, int32_t j)
{
    struct ht_draft *g = b->g;
    ht_draft_forward(g, u, j, 0);
    if (!b->offload || j >= g->own_mb) return;
    /* With one micro-batch X(u) is on its way to the host while F(u) reads it. The copy of X(u + 1) comes after both,
       so it frees X(u): were F(u) to do that, it would have to wait for the copy of its own input. */
    bool sends = swaps(b) || u + 2 < g->n_units, at_once = swaps(b) || !sends;
    int32_t in = g->x[ht_draft_at(g, u, j)];
    if (u > 0 && at_once) ht_op_effect(g->schedule, in, HT_DEVICE, HT_RELEASE);
    if (sends) send(b, g->x[ht_draft_at(g, u + 1, j)], swaps(b));
    if (u > 0 && !at_once) ht_op_effect(g->schedule, in, HT_DEVICE, HT_RELEASE);
}

static void backward(const struct build *b, int32_t u, int32_t j)
{
    struct ht_draft *g = b->g;
    if (u == g->n_units - 1) ht_draft_forward(g, u, j, HT_ALL_SUB_OPS);
    if (ht_draft_kind(g, u) == HT_UNIT_BLOCK) ht_draft_recompute(g, u, 1, j, HT_ALL_SUB_OPS);
    ht_draft_backward(g, u, j);
    if (j > 0) ht_draft_accumulate(g, g->lanes->compute, u, j);
    if (u > 0 && swaps(b) && j < g->own_mb) send(b, g->dx[ht_draft_at(g, u, j)], true);
}

static void visit(const struct build *b, int32_t turn)
{
    struct ht_draft *g = b->g;
    struct ht_turn x = ht_turn(g->n_units, turn);
    for (int32_t j = 0; j < g->n_mb; j++) {
        int32_t step = turn * g->own_mb + j;
        if (j < g->own_mb) fetch(b, step + 1);
        (x.backward ? backward : forward)(b, x.unit, j);
        if (j < g->own_mb) b->passed[step] = ht_draft_computed(g);
    }
}

void cephalo_emit(struct ht_draft *g, const void *plan)
{
    int32_t turns = ht_turns(g->n_units);
    struct build b = {.g = g, .offload = ht_plan_get(plan, "offload"), .passed = ht_alloc_ids(turns * g->own_mb)};
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (int32_t v = 0; v < turns; v++) visit(&b, v);
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
    free(b.passed);
}

struct ht_program cephalo_program(const char *name, const struct ht_layout *layout, const struct ht_plan *plan)
{
    return (struct ht_program){.name = name,
                               .layout = layout,
                               .keeps = HT_GATHER_VISIT,
                               .reduce_once = true,
                               .blocks_gathers = !ht_plan_get(plan, "overlap"),
                               .one_communicator = ht_plan_get(plan, "communicators") == 1,
                               .emit = cephalo_emit,
                               .context = plan};
}

/* Cuts the units so that few of them are uneven (Sec. 3.3). */
static void cut_units(const struct ht_scenario *scenario, const struct ht_variable *share, struct ht_layout *layout)
{
    int32_t units = layout->n_units, ranks = layout->n_ranks;
    int64_t *elements = HT_NEW_ARRAY(int64_t, units), *shards = HT_NEW_ARRAY(int64_t, (int64_t)units * ranks);
    bool *even = HT_NEW_ARRAY(bool, units);
    for (int32_t u = 0; u < units; u++) elements[u] = ht_unit_params(&scenario->model, u);
    cephalo_partition_units(ranks, share->values, units, elements, shards, even);
    for (int32_t u = 0; u < units; u++) ht_layout_cut(layout, u, shards + (int64_t)u * ranks, even[u]);
    free(elements);
    free(shards);
    free(even);
}

enum ht_status cephalo_build(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_layout *layout = NULL;
    enum ht_status status = ht_layout_planned(scenario, HT_SHARD_ALL, plan, err, &layout);
    if (status) return status;
    cut_units(scenario, ht_plan_variable(plan, "share"), layout);
    struct ht_program program = cephalo_program(self->name, layout, plan);
    status = ht_build_graph(scenario, &program, err, out);
    ht_layout_destroy(layout);
    return status;
}
