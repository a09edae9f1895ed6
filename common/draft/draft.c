#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/draft/control.h"
#include "common/draft/draft_internal.h"
#include "common/draft/fold.h"
#include "common/schedule/merge.h"

#include <assert.h>
#include <stdlib.h>

void ht_draft_turn_to(struct ht_draft *g, int32_t mb)
{
    int32_t k = mb < 0 ? 0 : mb % g->sharers;
    if (g->sharers == 1) return;
    g->rank = ht_layout_rank(g->layout, g->replica, k, 0);
    g->lanes = &g->state->all_lanes[k];
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Returns the unit of the layout. */
static int32_t unit_of(const struct ht_draft *g, int32_t index)
{
    return index == g->n_units ? 0 : index;
}

int32_t ht_draft_unit(const struct ht_draft *g, int32_t index)
{
    return g->layout->units[unit_of(g, index)].unit;
}

unsigned ht_draft_sub_ops(const struct ht_draft *g, int32_t index)
{
    return g->layout->units[unit_of(g, index)].sub_ops;
}

int64_t ht_draft_params(const struct ht_draft *g, int32_t index)
{
    struct ht_range all = ht_layout_params(g->layout, &g->scenario->model, unit_of(g, index));
    return all.end - all.begin;
}

struct ht_label ht_draft_label(const struct ht_draft *g, int32_t unit, int32_t mb)
{
    return (struct ht_label){.unit = ht_draft_unit(g, unit),
                             .n_units = 1,
                             .sub_ops = ht_draft_sub_ops(g, unit),
                             .micro_batch = mb < 0 ? -1 : ht_layout_micro_batch(g->layout, g->replica, mb)};
}

enum ht_unit_kind ht_draft_kind(const struct ht_draft *g, int32_t unit)
{
    return ht_model_unit_kind(&g->scenario->model, ht_draft_unit(g, unit));
}

/* Adds a row and returns it, or returns -1 if it would have no bytes. */
static int32_t add(struct ht_draft *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes,
                   int32_t rank)
{
    struct ht_tensor t = {.class = class, .label = ht_draft_label(g, unit, mb), .bytes = bytes, .rank = rank};
    if (bytes == 0) return -1;
    if (class != HT_CHECKPOINT && class != HT_ACT_GRAD && class != HT_WORKSPACE) /* every part has these alike */
        t.part = g->part, t.parts = ht_layout_width_at(g->layout, rank);
    return ht_add_tensor(g->schedule, t);
}

int32_t ht_draft_row(struct ht_draft *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes)
{
    return add(g, class, unit, mb, bytes, g->rank);
}

static int32_t holder(const struct ht_draft *g, int32_t unit)
{
    return g->holder ? g->holder[unit] : g->rank;
}
static int32_t forward_rank(const struct ht_draft *g, int32_t unit)
{
    return g->forward_rank ? g->forward_rank[unit] : g->rank;
}

const struct ht_shard *ht_draft_shard_of(const struct ht_draft *g, int32_t unit, int32_t rank)
{
    return ht_layout_shard(g->layout, unit_of(g, unit), rank);
}

const struct ht_shard *ht_draft_shard(const struct ht_draft *g, int32_t unit)
{
    return ht_draft_shard_of(g, unit, holder(g, unit));
}

/* Adds a row for the shard of a unit that its holder has, even if it is empty. */
static int32_t shard(struct ht_draft *g, enum ht_tensor_class class, int32_t unit, int32_t mb, enum ht_dtype dtype)
{
    const struct ht_shard *x = ht_draft_shard(g, unit);
    return ht_add_tensor(g->schedule, (struct ht_tensor){.class = class,
                                                         .label = ht_draft_label(g, unit, mb),
                                                         .bytes = x->padded * ht_dtype_bytes(dtype),
                                                         .shard_begin = x->begin,
                                                         .shard_end = x->end,
                                                         .part = g->part,
                                                         .parts = ht_layout_width_at(g->layout, holder(g, unit)),
                                                         .sharded = true,
                                                         .rank = holder(g, unit)});
}

/* Returns true if a rank, of this draft, passes a micro-batch of its replica. */
static bool passes(const struct ht_draft *g, int32_t rank, int32_t j)
{
    return rank >= 0 && ht_layout_passes(g->layout, rank, j);
}

/* Returns the elements of a unit's largest matrix or vector. */
static int64_t largest_matrix(const struct ht_draft *g, int32_t u)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    struct ht_range all = ht_layout_params(g->layout, &g->scenario->model, unit_of(g, u));
    int64_t most = 0;
    for (int i = ht_unit_param_parts(&g->scenario->model, ht_draft_unit(g, u), parts) - 1; i >= 0; i--)
        if (parts[i].offset >= all.begin && parts[i].offset < all.end)
            most = ht_max(most, parts[i].rows * parts[i].cols);
    return most;
}

/* Adds the row of a unit's fresh gradient of a micro-batch, of which all or one matrix at a time is in memory. */
static int32_t add_fresh_gradient(struct ht_draft *g, int32_t u, int32_t j)
{
    enum ht_dtype dtype = g->scenario->numerics.grad;
    int32_t row = shard(g, HT_GRAD, u, j, dtype);
    if (g->state->by_matrix) g->schedule->tensors[row].bytes = largest_matrix(g, u) * ht_dtype_bytes(dtype);
    return row;
}

static void add_parameters(struct ht_draft *g, int32_t u)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    g->param[u] = shard(g, HT_PARAM, u, -1, n->param);
    if (ht_numerics_has_master(n)) g->master[u] = shard(g, HT_MASTER, u, -1, HT_F32);
    g->momentum[u] = shard(g, HT_MOMENTUM, u, -1, HT_F32);
    g->variance[u] = shard(g, HT_VARIANCE, u, -1, HT_F32);
    /* With one micro-batch the fresh gradient is the gradient; with more, sums are kept in the accumulation type. */
    g->grad[u] = shard(g, HT_GRAD, u, -1, ht_stepped_gradient(n, g->rounds));
    for (int32_t j = 0; j < g->n_mb && !g->state->reduce_once; j++) {
        if (j == g->first_mb || !passes(g, holder(g, u), j)) continue;
        ht_draft_turn_to(g, j);
        if (g->sharded || j < g->own_mb) g->grad_mb[ht_draft_at(g, u, j)] = add_fresh_gradient(g, u, j);
    }
    ht_draft_turn_to(g, -1);
}

/* Adds the row of what some sub-ops of a block keep, or returns -1 if that is nothing. */
static int32_t add_kept(struct ht_draft *g, int32_t u, int32_t j, unsigned sub_ops, int32_t rank)
{
    const struct ht_scenario *sc = g->scenario;
    int64_t bytes = ht_sub_ops_activation_bytes(&sc->model, sub_ops, g->micro_batch, sc->seq, sc->numerics.param);
    int32_t row = add(g, HT_ACTIVATION, u, j, bytes, rank);
    if (row >= 0) g->schedule->tensors[row].label.sub_ops = sub_ops;
    return row;
}

/* Returns the rank that has a row about a unit's input: this one, or, if it does not pass the unit and micro-batch, that of the
   unit before it; -1: neither does. */
static int32_t beside(const struct ht_draft *g, int32_t rank, int32_t u, int32_t j)
{
    if (passes(g, rank, j)) return rank;
    return u > 0 && passes(g, holder(g, u - 1), j) ? holder(g, u - 1) : -1;
}

/* Adds a row of a unit's input, X(u,j) of class CHECKPOINT or dX(u,j). */
static int32_t add_stream(struct ht_draft *g, enum ht_tensor_class class, int32_t u, int32_t j, int32_t rank)
{
    const struct ht_scenario *sc = g->scenario;
    int64_t bytes = ht_unit_input_bytes(&sc->model, ht_draft_unit(g, u), g->micro_batch, sc->seq, sc->numerics.param);
    int32_t row = add(g, class, u, j, bytes, rank);
    if (row >= 0) g->schedule->tensors[row].label.sub_ops = HT_ALL_SUB_OPS;
    return row;
}

/* Adds a row of what a front hands to a back beside the residual, or of its gradient: of most outputs a part's own columns, or all. */
static int32_t add_handed(struct ht_draft *g, enum ht_tensor_class class, int32_t u, int32_t j)
{
    const struct ht_scenario *sc = g->scenario;
    unsigned handed = ht_handed(ht_draft_sub_ops(g, u));
    int32_t rank = beside(g, holder(g, u), u, j);
    if (!handed) return -1;
    bool own = !ht_handed_alike(handed), whole = own && g->state->hands_whole && g->state->hands_whole[u];
    int64_t elements = g->micro_batch * sc->seq * ht_handed_width(&sc->model, handed);
    if (whole) elements *= ht_layout_width_at(g->layout, rank);
    int32_t row = add(g, class, u, j, elements * ht_dtype_bytes(sc->numerics.param), rank);
    struct ht_tensor *t = &g->schedule->tensors[row];
    t->label.sub_ops = handed;
    if (own && !whole) t->part = g->part, t->parts = ht_layout_width_at(g->layout, rank);
    return row;
}

/* Adds the inputs of a back, and their gradients. Its residual is the input of the block, or what the projection keeps.
   Between the halves dX(u,j) holds the gradient of that (draft_extra.h). */
static void add_inputs_of_back(struct ht_draft *g, int32_t u, int32_t j)
{
    int32_t at = ht_draft_at(g, u, j), before = ht_draft_at(g, u - 1, j);
    if (g->dx[before] < 0) g->dx[before] = add_stream(g, HT_ACT_GRAD, u - 1, j, holder(g, u));
    g->dx[at] = g->dx[before];
    g->handed[at] = add_handed(g, HT_CHECKPOINT, u, j);
    g->dhanded[at] = add_handed(g, HT_ACT_GRAD, u, j);
    if (ht_hands_proj(ht_draft_sub_ops(g, u))) {
        g->x[at] = add_kept(g, u, j, 1u << HT_SUB_PROJ, beside(g, holder(g, u), u, j));
        g->schedule->tensors[g->x[at]].part = 0, g->schedule->tensors[g->x[at]].parts = 1; /* each part has it alike */
        return;
    }
    if (g->x[before] < 0) g->x[before] = add_stream(g, HT_CHECKPOINT, u - 1, j, holder(g, u));
    g->x[at] = g->x[before];
}

/* Adds the activations of a half. */
static void add_activations_of_half(struct ht_draft *g, int32_t u, int32_t j)
{
    unsigned half = ht_draft_sub_ops(g, u), kept = half & ~(ht_hands_proj(half) ? 1u << HT_SUB_PROJ : 0);
    int32_t at = ht_draft_at(g, u, j), row;
    if (ht_is_front(half)) {
        g->x[at] = add_stream(g, HT_CHECKPOINT, u, j, beside(g, forward_rank(g, u), u, j));
        g->dx[at] = add_stream(g, HT_ACT_GRAD, u, j, beside(g, holder(g, u), u, j));
    } else {
        add_inputs_of_back(g, u, j);
    }
    if (!passes(g, holder(g, u), j)) return;
    row = add_kept(g, u, j, kept, holder(g, u));
    for (int s = 0; s < HT_N_SUB_OPS; s++)
        if (kept >> s & 1) g->a[at][s] = row;
}

/* Returns the bytes that the passes of a whole unit keep; mostly those of the last one of this kind. */
static int64_t kept_bytes(struct ht_draft *g, int32_t u)
{
    const struct ht_scenario *sc = g->scenario;
    struct ht_draft_scratch *known = &g->state->kept[ht_draft_kind(g, u)];
    int32_t unit = ht_draft_unit(g, u);
    if (known->scenario != sc)
        *known = (struct ht_draft_scratch){
            .scenario = sc,
            .bytes = ht_unit_activation_bytes(&sc->model, unit, g->micro_batch, sc->seq, sc->numerics.param)};
    return known->bytes;
}

static void add_activations(struct ht_draft *g, int32_t u, int32_t j)
{
    const struct ht_scenario *sc = g->scenario;
    int32_t at = ht_draft_at(g, u, j), rank = holder(g, u);
    if (beside(g, rank, u, j) < 0) return;
    if (ht_is_half(ht_draft_sub_ops(g, u))) {
        add_activations_of_half(g, u, j);
        return;
    }
    g->x[at] = add_stream(g, HT_CHECKPOINT, u, j, beside(g, forward_rank(g, u), u, j));
    g->dx[at] = add_stream(g, HT_ACT_GRAD, u, j, beside(g, rank, u, j));
    if (!passes(g, rank, j)) return;
    int32_t row = add(g, HT_ACTIVATION, u, j, kept_bytes(g, u), rank);
    for (int s = 0; s < HT_N_SUB_OPS; s++) g->a[at][s] = row;
    if (u == g->n_units - 1)
        g->logits[j] = add(g, HT_LOGITS, u, j, ht_logits_bytes(&sc->model, g->micro_batch, sc->seq), rank);
}

bool ht_draft_head_has_summed(const struct ht_draft *g, int32_t unit)
{
    return unit == 0 && g->scenario->model.tied && g->state->keeps == HT_GATHER_VISIT && g->state->reduce_once;
}

void ht_draft_cut(struct ht_draft *g, int32_t unit, int32_t mb, const unsigned *sub_ops, int32_t n)
{
    const struct ht_scenario *sc = g->scenario;
    if (mb >= g->own_mb || !passes(g, holder(g, unit), mb)) return; /* only other ranks have this micro-batch */
    int32_t *rows = g->a[ht_draft_at(g, unit, mb)], row = rows[__builtin_ctz(sub_ops[0])];
    unsigned cut = 0, all = g->schedule->tensors[row].label.sub_ops;
    for (int32_t i = 0; i < n; i++) {
        struct ht_tensor t = g->schedule->tensors[row];
        assert(sub_ops[i] && !(sub_ops[i] & cut) && ht_draft_kind(g, unit) == HT_UNIT_BLOCK);
        cut |= t.label.sub_ops = sub_ops[i];
        t.bytes = ht_sub_ops_activation_bytes(&sc->model, sub_ops[i], g->micro_batch, sc->seq, sc->numerics.param);
        if (i) row = ht_add_tensor(g->schedule, t);
        g->schedule->tensors[row] = t;
        for (int s = 0; s < HT_N_SUB_OPS; s++)
            if (sub_ops[i] >> s & 1) rows[s] = row;
    }
    assert(cut == all);
    (void)all;
}

/* Adds the whole parameters and gradients that a rank has for a time while it keeps only a shard. */
static void add_whole(struct ht_draft *g, int32_t u)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    struct ht_draft_state *x = g->state;
    int64_t params = ht_draft_params(g, u);
    int32_t rank = holder(g, u);
    if (g->own_mb) x->full_param[u] = add(g, HT_COMM, u, -1, params * ht_dtype_bytes(n->param), rank);
    if (g->own_mb && x->reduce_once)
        x->full_sum[u] = add(g, HT_GRAD, u, -1, params * ht_dtype_bytes(ht_stepped_gradient(n, g->rounds)), rank);
    for (int32_t j = x->reduce_once && !ht_draft_head_has_summed(g, u); j < g->own_mb; j++)
        x->full_grad[ht_draft_at(g, u, j)] = add(g, HT_GRAD, u, j, params * ht_dtype_bytes(n->grad), rank);
}

void ht_draft_add_rows(struct ht_draft *g)
{
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_turn_to_stage(g, holder(g, u));
        if (holder(g, u) >= 0) add_parameters(g, u);
        for (int32_t j = 0; j < g->own_mb; j++) {
            ht_draft_turn_to_stage(g, beside(g, holder(g, u), u, j));
            ht_draft_turn_to(g, j);
            add_activations(g, u, j);
        }
        ht_draft_turn_to(g, -1);
    }
    ht_draft_turn_to_stage(g, holder(g, g->table));
    if (g->table) add_parameters(g, g->table);
    for (int32_t u = 0; u < g->n_units + (g->table > 0) && g->sharded; u++) {
        ht_draft_turn_to_stage(g, holder(g, u));
        if (holder(g, u) >= 0) add_whole(g, u);
    }
}

void ht_draft_place(struct ht_draft *g, int32_t tensor, enum ht_tier tier)
{
    ht_add_resident(g->schedule, tensor, tier, g->schedule->tensors[tensor].rank);
}

void ht_draft_place_states(struct ht_draft *g, int32_t unit, enum ht_tier tier)
{
    if (g->master[unit] >= 0) ht_draft_place(g, g->master[unit], tier);
    ht_draft_place(g, g->momentum[unit], tier);
    ht_draft_place(g, g->variance[unit], tier);
}

int32_t ht_draft_state_rows(const struct ht_draft *g, int32_t unit, bool compute_copy, int32_t rows[4])
{
    int32_t n = 0;
    if (compute_copy || g->master[unit] < 0) rows[n++] = g->param[unit];
    if (g->master[unit] >= 0) rows[n++] = g->master[unit];
    rows[n++] = g->momentum[unit];
    rows[n++] = g->variance[unit];
    return n;
}

/* ---- ops -------------------------------------------------------------------------------------------------------- */

void ht_draft_blocks(struct ht_draft *g, enum ht_blocking blocking)
{
    struct ht_blocking_edges *b = &g->state->edges;
    b->blocking = blocking;
    if (b->prev == -1) b->prev = ht_mark_create(g->schedule);
    if (blocking == HT_BLOCKS_ALL) g->state->ends_blocked = true;
}

void ht_draft_block(struct ht_draft *g)
{
    if (g->state->edges.blocking == HT_BLOCKS_HOST) ht_blocking_wait(g->schedule, &g->state->edges);
}

void ht_draft_chain(struct ht_draft *g)
{
    struct ht_schedule *s = g->schedule;
    struct ht_blocking_edges *b = &g->state->edges;
    bool kernel = b->blocking == HT_BLOCKS_HOST && !ht_blocks_host(s->lanes[s->ops[s->n_ops - 1].lane].kind);
    if (kernel && g->state->followed == b->waited) return; /* it follows the first one on their lane */
    ht_blocking_follow(s, b);
    if (kernel) g->state->followed = b->waited;
}

/* ---- begin and end --------------------------------------------------------------------------------------------- */

/* Returns the replicas of the stage that has fewest of its own. */
static int32_t fewest_replicas(const struct ht_layout *l)
{
    int32_t fewest = l->per_pass;
    for (int32_t q = 0; q < l->n_stages; q++) fewest = ht_min(fewest, ht_layout_stage_replicas(l, q));
    return fewest;
}

void ht_draft_init(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_layout *layout,
                   int32_t replica, int32_t member, const char *name)
{
    const struct ht_replica *x = &layout->replicas[replica];
    int64_t rows = layout->n_units + 1;
    int32_t models = layout->tp == 1 ? 0 : layout->stage_begin ? layout->n_stages : 1;
    struct ht_scenario *of_part = models ? HT_NEW_ARRAY(struct ht_scenario, models) : NULL;
    for (int32_t i = 0; i < models; i++) {
        of_part[i] = *scenario;
        int32_t width = ht_layout_width(layout, i);
        if (member >= width * ht_layout_stage_replicas(layout, i)) continue; /* it is not of this stage */
        of_part[i].model = ht_model_part(&scenario->model, member % width, width);
        of_part[i].model.sequence = layout->sequence;
    }
    *g = (struct ht_draft){.scenario = of_part ? of_part : scenario,
                           .layout = layout,
                           .replica = replica,
                           .member = member,
                           .part = member,
                           .schedule = ht_links_schedule(scenario, name),
                           .n_units = layout->n_units,
                           .n_mb = layout->rounds,
                           .own_mb = x->n_micro_batches,
                           .sharers = 1,
                           .rounds = layout->rounds / fewest_replicas(layout),
                           .micro_batch = x->micro_batch,
                           .rank = ht_layout_rank(layout, replica, 0, member),
                           .sharded = layout->n_ranks > 1 && layout->sharding == HT_SHARD_ALL,
                           .state = HT_NEW(struct ht_draft_state)};
    *g->state = (struct ht_draft_state){.of_part = of_part,
                                        .computed = -1,
                                        .slot = -1,
                                        .ahead = -1,
                                        .pending_reduce = -1,
                                        .held_unit = -1,
                                        .edges = {.prev = -1, .waited = -1},
                                        .followed = -2};
    ht_layout_slice(layout, g->schedule);
    int32_t **per_unit[] = {&g->param,          &g->master, &g->momentum, &g->variance, &g->grad, &g->state->full_param,
                            &g->state->full_sum};
    int32_t **per_pass[] = {&g->grad_mb, &g->x, &g->dx, &g->handed, &g->dhanded, &g->state->full_grad};
    for (size_t i = 0; i < HT_COUNT(per_unit); i++) *per_unit[i] = ht_alloc_ids(rows);
    for (size_t i = 0; i < HT_COUNT(per_pass); i++) *per_pass[i] = ht_alloc_ids(rows * g->n_mb);
    g->a = (int32_t(*)[HT_N_SUB_OPS])ht_alloc_ids(rows * g->n_mb * HT_N_SUB_OPS);
    g->logits = ht_alloc_ids(g->n_mb);
    g->cast_on_use = HT_NEW_ARRAY(bool, rows);
    g->realloc_on_step = HT_NEW_ARRAY(bool, rows);
    g->state->gathered = HT_NEW_ARRAY(bool, rows);
}

void ht_draft_turn_to_stage(struct ht_draft *g, int32_t rank)
{
    const struct ht_layout *l = g->layout;
    if (!l->stage_begin || rank < 0) return;
    int32_t stage = ht_layout_stage(l, g->replica, rank);
    if (l->tp > 1) g->scenario = &g->state->of_part[stage];
    g->part = g->member % ht_layout_width(l, stage);
    g->first_mb = ht_layout_first_passed(l, stage, g->member);
}

struct ht_schedule *ht_draft_free(struct ht_draft *g)
{
    struct ht_draft_state *x = g->state;
    void *all[] = {g->param,
                   g->master,
                   g->momentum,
                   g->variance,
                   g->grad,
                   g->grad_mb,
                   g->x,
                   g->dx,
                   g->handed,
                   g->dhanded,
                   g->a,
                   g->logits,
                   g->links,
                   g->cast_on_use,
                   g->realloc_on_step,
                   x->full_param,
                   x->full_grad,
                   x->full_sum,
                   x->gathered,
                   x->of_part,
                   x->all_lanes,
                   x};
    assert(x->held_unit < 0);
    ht_layout_destroy(x->own_layout);
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    return g->schedule;
}

static void add_disk_lanes(struct ht_draft *g, enum ht_lane_order order)
{
    const struct ht_machine *m = ht_cluster_node_of(g->scenario->cluster, g->rank, NULL);
    bool apart = m->has_ssds && m->ssd.duplex;
    struct ht_lanes *l = g->lanes;
    l->disk_read = ht_add_lane(g->schedule, apart ? "disk read" : "disk", HT_LANE_DISK, g->rank, order);
    l->disk_write = apart ? ht_add_lane(g->schedule, "disk write", HT_LANE_DISK, g->rank, order) : l->disk_read;
}

/* Adds the lanes of the current rank. Sharers have no collectives but those of control, and the first one's disk lanes. */
static void add_lanes(struct ht_draft *g, const struct ht_program *program)
{
    struct ht_schedule *s = g->schedule;
    struct ht_lanes *l = g->lanes;
    bool reduces = g->sharers == 1 || g->scenario->control.mode != HT_CONTROL_NONE;
    *l = HT_NO_LANES;
    l->compute = ht_add_lane(s, "compute", HT_LANE_COMPUTE, g->rank, HT_FIFO);
    l->h2d = ht_add_lane(s, "h2d", HT_LANE_H2D, g->rank, program->h2d_order);
    l->d2h = ht_add_lane(s, "d2h", HT_LANE_D2H, g->rank, program->d2h_order);
    l->host = ht_add_lane(s, "cpu", HT_LANE_HOST, g->rank, program->host_order);
    const char *gathers = g->state->one_communicator ? "collectives" : "gather";
    if (g->sharded) l->gather = ht_add_lane(s, gathers, HT_LANE_COLLECTIVE, g->rank, HT_FIFO);
    if (g->state->one_communicator)
        l->reduce = l->gather;
    else if (s->n_ranks > 1 && reduces)
        l->reduce = ht_add_lane(s, "reduce", HT_LANE_COLLECTIVE, g->rank, HT_FIFO);
    if (program->disk && l == g->state->all_lanes) add_disk_lanes(g, program->disk_order);
    l->disk_read = g->state->all_lanes->disk_read;
    l->disk_write = g->state->all_lanes->disk_write;
}

/* Begins the draft of a program's replica: a rank, or the ranks that share the states. */
static void begin(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_layout *layout,
                  const struct ht_program *program, int32_t replica)
{
    ht_draft_init(g, scenario, layout, replica, 0, program->name);
    g->state->keeps = program->keeps;
    g->state->blocks_gathers = program->blocks_gathers;
    g->state->one_communicator = program->one_communicator && g->sharded;
    if (program->shares_states) g->sharers = layout->replicas[replica].n_ranks;
    g->rounds = g->n_mb / g->sharers;
    g->state->reduce_once = program->reduce_once && g->sharded && g->n_mb > 1;
    g->lanes = g->state->all_lanes = HT_NEW_ARRAY(struct ht_lanes, g->sharers);
    for (int32_t k = 0; k < g->sharers; k++) {
        ht_draft_turn_to(g, k);
        add_lanes(g, program);
    }
    ht_draft_turn_to(g, -1);
    g->links = ht_links_add(g->schedule, scenario->cluster, false);
    ht_draft_add_rows(g);
}

/* Lays out a program's ranks as it says. *made: the layout if it is not the program's own. */
static enum ht_status lay_out(const struct ht_scenario *scenario, const struct ht_program *program,
                              struct ht_error *err, struct ht_layout **made)
{
    if (program->layout) return HT_OK;
    return program->shares_states ? ht_layout_shared(scenario, err, made) : ht_layout_equal(scenario, err, made);
}

void ht_draft_begin(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_program *program)
{
    struct ht_layout *made = NULL;
    enum ht_status status = lay_out(scenario, program, NULL, &made);
    assert(!status);
    (void)status;
    begin(g, scenario, made ? made : program->layout, program, 0);
    g->state->own_layout = made;
}

struct ht_schedule *ht_draft_end(struct ht_draft *g)
{
    struct ht_schedule *s = ht_draft_free(g);
    ht_schedule_link(s);
    return s;
}

/* ---- programs -------------------------------------------------------------------------------------------------- */

/* Writes the draft of a replica and applies control to it. */
static enum ht_status write_draft(const struct ht_scenario *scenario, const struct ht_layout *layout,
                                  const struct ht_program *program, int32_t replica, struct ht_error *err,
                                  struct ht_schedule **out)
{
    struct ht_draft g;
    begin(&g, scenario, layout, program, replica);
    program->emit(&g, program->context);
    enum ht_blocking blocking = g.state->edges.blocking;
    if (g.state->ends_blocked) ht_mark_set(g.schedule, g.state->edges.prev);
    struct ht_schedule *plain = ht_draft_free(&g);
    if (scenario->control.mode == HT_CONTROL_NONE) {
        *out = plain;
        return HT_OK;
    }
    ht_marks_resolve(plain);
    enum ht_status status =
        ht_control_apply(plain, &scenario->control, (struct ht_control_style){.blocking = blocking}, err, out);
    ht_schedule_destroy(plain);
    return status;
}

struct builder {
    const struct ht_scenario *scenario;
    const struct ht_layout *layout;
    const struct ht_program *program;
};

/* Writes and merges the drafts of the first replicas. context: struct builder. */
static enum ht_status write_some(void *context, int32_t replicas, bool one_part, struct ht_error *err,
                                 struct ht_schedule **out)
{
    const struct builder *b = context;
    int32_t n = 0;
    (void)one_part; /* there is one */
    struct ht_schedule **drafts = HT_NEW_ARRAY(struct ht_schedule *, replicas);
    enum ht_status status = HT_OK;
    for (; n < replicas && !status; n++) status = write_draft(b->scenario, b->layout, b->program, n, err, &drafts[n]);
    return ht_schedule_join(drafts, replicas, 1, status, err, out);
}

static enum ht_status build(const struct ht_scenario *scenario, const struct ht_layout *layout,
                            const struct ht_program *program, struct ht_error *err, struct ht_schedule **out)
{
    struct builder b = {scenario, layout, program};
    return ht_fold_build(scenario, layout, &(struct ht_fold_builder){&b, write_some, NULL, NULL}, err, out);
}

enum ht_status ht_build_graph(const struct ht_scenario *scenario, const struct ht_program *program,
                              struct ht_error *err, struct ht_schedule **out)
{
    struct ht_layout *made = NULL;
    enum ht_status status = lay_out(scenario, program, err, &made);
    if (!status) status = build(scenario, made ? made : program->layout, program, err, out);
    ht_layout_destroy(made);
    return status;
}

enum ht_status ht_build_program(const struct ht_system *self, const struct ht_scenario *scenario,
                                const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_program program = *self->program;
    program.name = self->name;
    program.context = plan;
    return ht_build_graph(scenario, &program, err, out);
}
