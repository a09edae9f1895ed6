#include "common/build/single.h"

#include "common/base/array.h"
#include "common/build/control.h"
#include "common/build/shards.h"
#include "common/build/works.h"
#include "common/schedule/merge.h"

#include <assert.h>
#include <stdlib.h>

struct ht_label ht_single_label(const struct ht_single *g, int32_t unit, int32_t mb)
{
    return (struct ht_label){.unit = unit,
                             .n_units = 1,
                             .sub_ops = HT_ALL_SUB_OPS,
                             .micro_batch = mb < 0 ? -1 : ht_layout_micro_batch(g->layout, g->rank, mb)};
}

static int32_t tensor(struct ht_single *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes)
{
    struct ht_label label = ht_single_label(g, unit, mb);
    return ht_add_tensor(g->schedule, (struct ht_tensor){.class = class, .label = label, .bytes = bytes, .rank = g->rank});
}

/* Adds a row for the rank's shard. */
static int32_t shard(struct ht_single *g, enum ht_tensor_class class, int32_t unit, int32_t mb, enum ht_dtype dtype)
{
    const struct ht_shard *x = ht_layout_shard(g->layout, unit, g->rank);
    int32_t row = tensor(g, class, unit, mb, x->padded * ht_dtype_bytes(dtype));
    struct ht_tensor *t = &g->schedule->tensors[row];
    t->shard_begin = x->begin;
    t->shard_end = x->end;
    t->sharded = true;
    return row;
}

enum ht_unit_kind ht_single_kind(const struct ht_single *g, int32_t unit)
{
    return ht_model_unit_kind(&g->scenario->model, unit);
}

static void add_parameters(struct ht_single *g, int32_t u)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    g->param[u] = shard(g, HT_PARAM, u, -1, n->param);
    g->master[u] = ht_numerics_has_master(n) ? shard(g, HT_MASTER, u, -1, HT_F32) : -1;
    g->momentum[u] = shard(g, HT_MOMENTUM, u, -1, HT_F32);
    g->variance[u] = shard(g, HT_VARIANCE, u, -1, HT_F32);
    /* With one micro-batch the fresh gradient is the gradient; with more, sums are kept in the accumulation type. */
    g->grad[u] = shard(g, HT_GRAD, u, -1, g->n_mb > 1 ? n->accumulate : n->grad);
    for (int32_t j = 0; j < g->n_mb; j++)
        g->grad_mb[ht_single_at(g, u, j)] =
            j && !g->reduce_once && (g->sharded || j < g->own_mb) ? shard(g, HT_GRAD, u, j, n->grad) : -1;
}

static void add_activations(struct ht_single *g, int32_t u, int32_t j)
{
    const struct ht_scenario *sc = g->scenario;
    bool own = j < g->own_mb;
    int64_t input = ht_unit_input_bytes(&sc->model, u, g->micro_batch, sc->seq, sc->numerics.param);
    int64_t kept = ht_unit_activation_bytes(&sc->model, u, g->micro_batch, sc->seq, sc->numerics.param);
    int32_t at = ht_single_at(g, u, j);
    g->x[at] = own && input ? tensor(g, HT_CHECKPOINT, u, j, input) : -1;
    g->d[at] = own && input ? tensor(g, HT_ACT_GRAD, u, j, input) : -1;
    g->a[at] = own && kept ? tensor(g, HT_ACTIVATION, u, j, kept) : -1;
    if (own && u == g->n_units - 1)
        g->logits[j] = tensor(g, HT_LOGITS, u, j, ht_logits_bytes(&sc->model, g->micro_batch, sc->seq));
}

static void init(struct ht_single *g, const struct ht_scenario *scenario, const struct ht_layout *layout,
                 const struct ht_program *program, int32_t rank)
{
    *g = (struct ht_single){.scenario = scenario,
                            .layout = layout,
                            .n_units = layout->n_units,
                            .n_mb = layout->rounds,
                            .own_mb = layout->replicas[rank].n_micro_batches,
                            .micro_batch = layout->replicas[rank].micro_batch,
                            .n_ranks = layout->n_ranks,
                            .rank = rank,
                            .sharded = layout->n_ranks > 1 && layout->sharding == HT_SHARD_ALL,
                            .gather_once = program->gather_once,
                            .blocking_prev = -1};
    g->reduce_once = program->reduce_once && g->sharded && g->n_mb > 1;
    struct ht_schedule *s = g->schedule = ht_links_schedule(scenario, program->name);
    ht_layout_slice(layout, s);
    g->compute = ht_add_lane(s, "compute", HT_LANE_COMPUTE, rank, HT_FIFO);
    g->h2d = ht_add_lane(s, "h2d", HT_LANE_H2D, rank, program->h2d_order);
    g->d2h = ht_add_lane(s, "d2h", HT_LANE_D2H, rank, program->d2h_order);
    g->host = ht_add_lane(s, "cpu", HT_LANE_HOST, rank, program->host_order);
    g->ports = ht_links_add(s, scenario->cluster, false);

    int32_t **per_unit[] = {&g->param, &g->master, &g->momentum, &g->variance, &g->grad};
    int32_t **per_pass[] = {&g->grad_mb, &g->x, &g->a, &g->d};
    for (size_t i = 0; i < HT_COUNT(per_unit); i++) *per_unit[i] = HT_NEW_ARRAY(int32_t, g->n_units);
    for (size_t i = 0; i < HT_COUNT(per_pass); i++) *per_pass[i] = HT_NEW_ARRAY(int32_t, g->n_units * g->n_mb);
    g->logits = HT_NEW_ARRAY(int32_t, g->n_mb);
    g->cast = HT_NEW_ARRAY(bool, g->n_units);
    g->fresh = HT_NEW_ARRAY(bool, g->n_units);
    for (int32_t u = 0; u < g->n_units; u++) {
        add_parameters(g, u);
        for (int32_t j = 0; j < g->n_mb; j++) add_activations(g, u, j);
    }
    ht_shards_init(g);
}

void ht_draft_begin(struct ht_single *g, const struct ht_scenario *scenario, const char *name)
{
    struct ht_layout *layout;
    enum ht_status status = ht_layout_equal(scenario, NULL, &layout);
    assert(!status);
    (void)status;
    init(g, scenario, layout, &(struct ht_program){.name = name}, 0);
}

static struct ht_schedule *let_go(struct ht_single *g)
{
    int32_t *arrays[] = {g->param, g->master, g->momentum, g->variance, g->grad, g->grad_mb, g->x, g->a, g->d, g->logits};
    for (size_t i = 0; i < HT_COUNT(arrays); i++) free(arrays[i]);
    free(g->ports);
    free(g->cast);
    free(g->fresh);
    ht_shards_free(g);
    return g->schedule;
}

struct ht_schedule *ht_draft_end(struct ht_single *g)
{
    struct ht_schedule *s = let_go(g);
    ht_layout_destroy((struct ht_layout *)g->layout);
    ht_schedule_link(s);
    return s;
}

/* The draft of a rank, under control. */
static enum ht_status write_draft(const struct ht_scenario *scenario, const struct ht_layout *layout,
                                  const struct ht_program *program, int32_t rank, struct ht_error *err,
                                  struct ht_schedule **out)
{
    struct ht_single g;
    init(&g, scenario, layout, program, rank);
    program->emit(&g, program->context);
    bool blocking = g.blocking;
    struct ht_schedule *plain = let_go(&g);
    if (scenario->control.mode == HT_CONTROL_NONE) {
        *out = plain;
        return HT_OK;
    }
    ht_marks_resolve(plain);
    enum ht_status status = ht_control_apply(plain, &scenario->control, (struct ht_control_style){.blocking = blocking}, err, out);
    ht_schedule_destroy(plain);
    return status;
}

static enum ht_status build(const struct ht_scenario *scenario, const struct ht_layout *layout,
                            const struct ht_program *program, struct ht_error *err, struct ht_schedule **out)
{
    int32_t ranks = layout->n_ranks, n = 0;
    struct ht_schedule **drafts = HT_NEW_ARRAY(struct ht_schedule *, ranks);
    enum ht_status status = HT_OK;
    for (; n < ranks && !status; n++) status = write_draft(scenario, layout, program, n, err, &drafts[n]);
    return ht_schedule_join(drafts, ranks, status, err, out);
}

enum ht_status ht_build_graph(const struct ht_scenario *scenario, const struct ht_program *program, struct ht_error *err,
                              struct ht_schedule **out)
{
    struct ht_layout *equal = NULL;
    enum ht_status status = program->layout ? HT_OK : ht_layout_equal(scenario, err, &equal);
    if (!status) status = build(scenario, program->layout ? program->layout : equal, program, err, out);
    ht_layout_destroy(equal);
    return status;
}

void ht_single_place(struct ht_single *g, int32_t tensor, enum ht_tier tier)
{
    ht_add_resident(g->schedule, tensor, tier, g->rank);
}

void ht_single_place_states(struct ht_single *g, int32_t unit, enum ht_tier tier)
{
    if (g->master[unit] >= 0) ht_single_place(g, g->master[unit], tier);
    ht_single_place(g, g->momentum[unit], tier);
    ht_single_place(g, g->variance[unit], tier);
}

/* ---- ops ------------------------------------------------------------------------------------------------------- */

static struct ht_work work_of(const struct ht_single *g, enum ht_op_kind kind, enum ht_lane_kind where, int32_t unit)
{
    struct ht_work w = ht_scenario_work(g->scenario, kind, where, unit);
    w.batch = g->micro_batch;
    return w;
}

void ht_single_chain(struct ht_single *g)
{
    struct ht_schedule *s = g->schedule;
    if (!g->blocking) return;
    if (s->n_ops > 1)
        ht_op_after(s, s->n_ops - 2);
    else
        ht_op_after_prev(s, g->blocking_prev);
}

static int32_t pass(struct ht_single *g, enum ht_op_kind kind, char letter, int32_t unit, int32_t mb)
{
    struct ht_work w = work_of(g, kind, HT_LANE_COMPUTE, unit);
    int32_t op = ht_add_op(g->schedule, kind, g->compute, ht_single_label(g, unit, mb), ht_add_work(g->schedule, &w));
    if (g->n_mb > 1)
        ht_op_name(g->schedule, "%c%d.%d", letter, unit, mb);
    else
        ht_op_name(g->schedule, "%c%d", letter, unit);
    ht_charge_work(g->schedule, g->ports, 0);
    ht_single_chain(g);
    g->computed = op;
    return op;
}

static void on_device(struct ht_single *g, int32_t t, unsigned flags)
{
    if (t >= 0) ht_op_effect(g->schedule, t, HT_DEVICE, flags);
}

/* last: with several ranks, nothing reads what was gathered after this. */
static void read_param(struct ht_single *g, int32_t unit, bool last)
{
    if (g->sharded) {
        on_device(g, g->full_param[unit], last ? HT_NEED | HT_RELEASE : HT_NEED);
        g->gathered[unit] = g->gather_once || !last;
        return;
    }
    if (g->cast[unit]) on_device(g, g->master[unit], HT_NEED);
    on_device(g, g->param[unit], g->cast[unit] ? HT_PRODUCE | HT_RELEASE : HT_NEED);
}

static void scratch(struct ht_single *g, int32_t unit, int32_t mb, bool backward)
{
    const struct ht_scenario *sc = g->scenario;
    int64_t bytes = ht_unit_workspace_bytes(&sc->model, unit, g->micro_batch, sc->seq, sc->numerics.param, backward);
    if (bytes) on_device(g, tensor(g, HT_WORKSPACE, unit, mb, bytes), HT_PRODUCE | HT_RELEASE);
}

static bool head_uses_table(const struct ht_single *g, int32_t unit)
{
    return unit == g->n_units - 1 && g->scenario->model.tied;
}

/* Gathers before a pass the whole parameters that it reads, for those ranks that have the micro-batch. */
static void gather(struct ht_single *g, int32_t unit, int32_t mb)
{
    if (!g->sharded) return;
    if (!g->gathered[unit]) ht_shards_begin_slot(g);
    ht_shards_gather(g, unit, mb);
    if (head_uses_table(g, unit)) ht_shards_gather(g, 0, mb);
}

/* Stands for a pass that only other ranks have: notes as dropped what they drop. Returns -1. */
static int32_t leave_out(struct ht_single *g, int32_t unit, bool last)
{
    if (!g->sharded) return -1;
    g->gathered[unit] = g->gather_once || !last;
    if (head_uses_table(g, unit)) g->gathered[0] = g->gathered[unit];
    return -1;
}

int32_t ht_single_forward(struct ht_single *g, int32_t unit, int32_t mb, bool keep)
{
    bool head = unit == g->n_units - 1; /* its backward comes next */
    gather(g, unit, mb);
    if (mb >= g->own_mb) return leave_out(g, unit, !head);
    int32_t op = pass(g, HT_OP_FORWARD, 'F', unit, mb), at = ht_single_at(g, unit, mb);
    read_param(g, unit, !head && !g->gather_once);
    if (head_uses_table(g, unit)) read_param(g, 0, false);
    on_device(g, g->x[at], HT_NEED);
    on_device(g, g->a[at], keep ? HT_PRODUCE : HT_PRODUCE | HT_RELEASE);
    if (unit == g->n_units - 1)
        on_device(g, g->logits[mb], HT_PRODUCE);
    else
        on_device(g, g->x[ht_single_at(g, unit + 1, mb)], HT_PRODUCE);
    scratch(g, unit, mb, false);
    return op;
}

int32_t ht_single_recompute(struct ht_single *g, int32_t unit, int32_t mb)
{
    gather(g, unit, mb);
    if (mb >= g->own_mb) return leave_out(g, unit, false);
    int32_t op = pass(g, HT_OP_RECOMPUTE, 'R', unit, mb), at = ht_single_at(g, unit, mb);
    read_param(g, unit, false);
    on_device(g, g->x[at], HT_NEED);
    on_device(g, g->a[at], HT_PRODUCE);
    scratch(g, unit, mb, false);
    return op;
}

/* What a backward op writes. */
static int32_t fresh_gradient(const struct ht_single *g, int32_t unit, int32_t mb)
{
    int32_t at = ht_single_at(g, unit, mb);
    if (g->reduce_once && mb == 0) return g->full_sum[unit];
    if (g->sharded) return g->full_grad[at];
    return mb ? g->grad_mb[at] : g->grad[unit];
}

static int32_t backward(struct ht_single *g, int32_t unit, int32_t mb)
{
    int32_t op = pass(g, HT_OP_BACKWARD, 'B', unit, mb), at = ht_single_at(g, unit, mb);
    read_param(g, unit, !g->gather_once || mb + 1 == g->own_mb);
    if (unit == g->n_units - 1) {
        if (g->scenario->model.tied) {
            read_param(g, 0, !g->gather_once);
            on_device(g, fresh_gradient(g, 0, mb), HT_PRODUCE);
        }
        on_device(g, g->logits[mb], HT_NEED | HT_RELEASE);
    } else {
        on_device(g, g->d[ht_single_at(g, unit + 1, mb)], HT_NEED | HT_RELEASE);
    }
    on_device(g, g->x[at], HT_NEED | HT_RELEASE);
    on_device(g, g->a[at], HT_NEED | HT_RELEASE);
    on_device(g, g->d[at], HT_PRODUCE);
    /* The head has written its share of a tied table's gradient. */
    on_device(g, fresh_gradient(g, unit, mb), unit == 0 && g->scenario->model.tied ? HT_UPDATE : HT_PRODUCE);
    scratch(g, unit, mb, true);
    return op;
}

int32_t ht_single_backward(struct ht_single *g, int32_t unit, int32_t mb)
{
    gather(g, unit, mb);
    int32_t op = mb < g->own_mb ? backward(g, unit, mb) : leave_out(g, unit, true);
    if (g->sharded) ht_shards_reduce(g, unit, mb);
    return op;
}

int32_t ht_single_settled(struct ht_single *g, int32_t unit)
{
    int32_t before = g->scattering;
    if (!g->sharded) return unit;
    g->scattering = unit;
    return before;
}

static enum ht_tier tier_of(const struct ht_single *g, int32_t lane) { return lane == g->host ? HT_HOST : HT_DEVICE; }

int32_t ht_single_accumulate(struct ht_single *g, int32_t lane, int32_t unit, int32_t mb)
{
    if (!g->sharded && mb >= g->own_mb) return -1;
    int32_t at = ht_single_at(g, unit, mb), sum = g->reduce_once ? g->full_sum[unit] : g->grad[unit];
    struct ht_work w = work_of(g, HT_OP_ACCUMULATE, g->schedule->lanes[lane].kind, unit);
    w.params = g->reduce_once ? ht_unit_params(&g->scenario->model, unit) : ht_layout_shard(g->layout, unit, g->rank)->padded;
    w.dtype = g->scenario->numerics.accumulate;
    int32_t op = ht_add_op(g->schedule, HT_OP_ACCUMULATE, lane, ht_single_label(g, unit, mb), ht_add_work(g->schedule, &w));
    ht_op_name(g->schedule, "A%d.%d", unit, mb);
    enum ht_tier tier = tier_of(g, lane);
    ht_op_effect(g->schedule, sum, tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->reduce_once ? g->full_grad[at] : g->grad_mb[at], tier, HT_NEED | HT_RELEASE);
    /* Reads both, writes one. */
    int64_t element = 2 * ht_dtype_bytes(g->scenario->numerics.accumulate) + ht_dtype_bytes(g->scenario->numerics.grad);
    ht_charge_work(g->schedule, g->ports, w.params * element);
    ht_single_chain(g);
    return op;
}

int32_t ht_single_step(struct ht_single *g, int32_t lane, int32_t unit, bool release_grad)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    struct ht_work w = work_of(g, HT_OP_OPTIMIZER_STEP, g->schedule->lanes[lane].kind, unit);
    w.params = ht_layout_shard(g->layout, unit, g->rank)->padded;
    if (g->n_mb > 1) w.grad_dtype = n->accumulate;
    int32_t op = ht_add_op(g->schedule, HT_OP_OPTIMIZER_STEP, lane, ht_single_label(g, unit, -1), ht_add_work(g->schedule, &w));
    ht_op_name(g->schedule, "%c%d", lane == g->host ? 'O' : 'U', unit);
    enum ht_tier tier = tier_of(g, lane);
    if (tier == HT_HOST || !g->cast[unit])
        ht_op_effect(g->schedule, g->param[unit], tier, g->fresh[unit] ? HT_PRODUCE : HT_UPDATE);
    if (g->master[unit] >= 0) ht_op_effect(g->schedule, g->master[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->momentum[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->variance[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->grad[unit], tier, release_grad ? HT_NEED | HT_RELEASE : HT_NEED);
    ht_charge_work(g->schedule, g->ports, w.params * ht_step_traffic_bytes(n, w.grad_dtype));
    ht_single_chain(g);
    return op;
}

int32_t ht_single_copy(struct ht_single *g, int32_t t, enum ht_tier from, enum ht_tier to, unsigned to_flags,
                       bool release_from)
{
    struct ht_schedule *s = g->schedule;
    bool out = from == HT_DEVICE;
    struct ht_label about = s->tensors[t].label;
    int64_t bytes = s->tensors[t].bytes;
    int32_t lane = out ? g->d2h : g->h2d;
    struct ht_work w = {.kind = HT_OP_COPY, .where = s->lanes[lane].kind, .tp = 1, .ranks = 1, .bytes = bytes};
    int32_t op = ht_add_op(s, HT_OP_COPY, lane, about, ht_add_work(s, &w));
    char letter = s->tensors[t].class == HT_GRAD ? 'G' : 'P';
    if (g->n_mb > 1 && about.micro_batch >= 0)
        ht_op_name(s, "%c%d.%d", letter, about.unit, ht_layout_round(g->layout, about.micro_batch));
    else
        ht_op_name(s, "%c%d", letter, about.unit);
    ht_op_effect(s, t, from, release_from ? HT_NEED | HT_RELEASE : HT_NEED);
    ht_op_effect(s, t, to, to_flags);
    ht_charge_copy(s, g->ports, from, to, bytes);
    ht_single_chain(g);
    return op;
}
