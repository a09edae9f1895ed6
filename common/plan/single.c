#include "common/plan/single.h"

#include "common/base/array.h"
#include "common/plan/shards.h"
#include "common/plan/works.h"

#include <stdlib.h>

static struct ht_label label(int32_t unit, int32_t mb)
{
    return (struct ht_label){.unit = unit, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = mb};
}

static int32_t tensor(struct ht_single *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes, int64_t elements)
{
    return ht_add_tensor(g->schedule, (struct ht_tensor){.class = class, .label = label(unit, mb), .bytes = bytes,
                                                         .shard_begin = 0, .shard_end = elements});
}

enum ht_unit_kind ht_single_kind(const struct ht_single *g, int32_t unit)
{
    return ht_model_unit_kind(&g->scenario->model, unit);
}

static void add_parameters(struct ht_single *g, int32_t u)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    int64_t params = ht_scenario_shard(g->scenario, u); /* all of the unit's, of one rank */
    g->param[u] = tensor(g, HT_PARAM, u, -1, params * ht_dtype_bytes(n->param), params);
    g->master[u] = ht_numerics_has_master(n) ? tensor(g, HT_MASTER, u, -1, params * 4, params) : -1;
    g->momentum[u] = tensor(g, HT_MOMENTUM, u, -1, params * 4, params);
    g->variance[u] = tensor(g, HT_VARIANCE, u, -1, params * 4, params);
    /* With one micro-batch the fresh gradient is the gradient; with more, sums are kept in the accumulation type. */
    int64_t grad_bytes = params * ht_dtype_bytes(g->n_mb > 1 ? n->accumulate : n->grad);
    g->grad[u] = tensor(g, HT_GRAD, u, -1, grad_bytes, params);
    for (int32_t j = 0; j < g->n_mb; j++)
        g->grad_mb[ht_single_at(g, u, j)] = j ? tensor(g, HT_GRAD, u, j, params * ht_dtype_bytes(n->grad), params) : -1;
}

static void add_activations(struct ht_single *g, int32_t u, int32_t j)
{
    const struct ht_scenario *sc = g->scenario;
    int64_t input = ht_unit_input_bytes(&sc->model, u, sc->micro_batch, sc->seq, sc->numerics.param);
    int64_t kept = ht_unit_activation_bytes(&sc->model, u, sc->micro_batch, sc->seq, sc->numerics.param);
    int32_t at = ht_single_at(g, u, j);
    g->x[at] = input ? tensor(g, HT_CHECKPOINT, u, j, input, 0) : -1;
    g->d[at] = input ? tensor(g, HT_ACT_GRAD, u, j, input, 0) : -1;
    g->a[at] = kept ? tensor(g, HT_ACTIVATION, u, j, kept, 0) : -1;
    if (u == g->n_units - 1)
        g->logits[j] = tensor(g, HT_LOGITS, u, j, ht_logits_bytes(&sc->model, sc->micro_batch, sc->seq), 0);
}

/* What the node's memory system and the device's port carry. A simplex port is one resource for both directions. */
static void add_resources(struct ht_single *g, const struct ht_machine *node, const struct ht_gpu *gpu)
{
    struct ht_schedule *s = g->schedule;
    g->pcie_h2d = g->pcie_d2h = g->dram = g->cores = g->nvlink = g->nic = -1;
    g->emulated = gpu->cores > 0;
    g->host_cores = ht_machine_process_cores(node);
    if (g->emulated || g->n_ranks > 1)
        g->cores = ht_add_resource(s, "host cores", HT_RES_CORES, 0, ht_resource_rate(node, HT_RES_CORES));
    if (g->emulated) {
        g->one_core = node->cpu.cores * node->cpu.sockets == 1;
        return;
    }
    int64_t port = ht_resource_rate(node, HT_RES_PCIE_H2D);
    bool duplex = node->pcie.duplex;
    g->dram = ht_add_resource(s, "dram", HT_RES_DRAM, 0, ht_resource_rate(node, HT_RES_DRAM));
    g->pcie_h2d = ht_add_resource(s, duplex ? "pcie h2d" : "pcie", HT_RES_PCIE_H2D, 0, port);
    g->pcie_d2h = duplex ? ht_add_resource(s, "pcie d2h", HT_RES_PCIE_D2H, 0, port) : g->pcie_h2d;
    if (g->n_ranks == 1) return;
    if (node->has_nvlink)
        g->nvlink = ht_add_resource(s, "nvlink", HT_RES_NVLINK, 0, ht_resource_rate(node, HT_RES_NVLINK));
    if (g->scenario->cluster->n_nodes > 1)
        g->nic = ht_add_resource(s, "nic", HT_RES_NIC, 0, ht_resource_rate(node, HT_RES_NIC));
}

void ht_single_init(struct ht_single *g, const struct ht_scenario *scenario, const char *name,
                    enum ht_lane_order copy_order, enum ht_lane_order host_order)
{
    *g = (struct ht_single){.scenario = scenario,
                            .n_units = (int32_t)ht_model_units(&scenario->model),
                            .n_mb = (int32_t)ht_scenario_micro_batches(scenario),
                            .n_ranks = (int32_t)ht_scenario_ranks(scenario),
                            .blocking_prev = -1};
    struct ht_schedule *s = g->schedule = ht_schedule_create(name, 1, 1, NULL); /* of the first rank */
    const struct ht_machine *node = ht_cluster_node_of(scenario->cluster, 0, NULL);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, ht_cluster_gpu_of(scenario->cluster, 0)->memory_bytes);
    ht_schedule_set_capacity(s, HT_HOST, 0, node->ram_bytes);
    s->n_units = g->n_units;
    s->n_micro_batches = g->n_mb;
    g->compute = ht_add_lane(s, "compute", HT_LANE_COMPUTE, 0, HT_FIFO);
    g->h2d = ht_add_lane(s, "h2d", HT_LANE_H2D, 0, copy_order);
    g->d2h = ht_add_lane(s, "d2h", HT_LANE_D2H, 0, copy_order);
    g->host = ht_add_lane(s, "cpu", HT_LANE_HOST, 0, host_order);
    add_resources(g, node, ht_cluster_gpu_of(scenario->cluster, 0));

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

static struct ht_schedule *let_go(struct ht_single *g)
{
    int32_t *arrays[] = {g->param, g->master, g->momentum, g->variance, g->grad, g->grad_mb, g->x, g->a, g->d, g->logits};
    for (size_t i = 0; i < HT_COUNT(arrays); i++) free(arrays[i]);
    free(g->cast);
    free(g->fresh);
    ht_shards_free(g);
    return g->schedule;
}

struct ht_schedule *ht_single_finish_rank(struct ht_single *g)
{
    struct ht_schedule *s = let_go(g);
    ht_schedule_link(s);
    return s;
}

enum ht_status ht_single_complete(struct ht_single *g, struct ht_error *err, struct ht_schedule **out)
{
    const struct ht_control *control = &g->scenario->control;
    if (control->mode == HT_CONTROL_NONE) {
        struct ht_schedule *one = ht_single_finish_rank(g);
        *out = g->n_ranks == 1 ? one : ht_shards_replicate(one, g->scenario);
        if (*out != one) ht_schedule_destroy(one);
        return HT_OK;
    }
    struct ht_schedule *plain = let_go(g);
    struct ht_schedule *one = NULL;
    ht_marks_resolve(plain);
    enum ht_status status = ht_control_apply(plain, control, g->blocking, err, &one);
    ht_schedule_destroy(plain);
    if (status != HT_OK) return status;
    *out = g->n_ranks == 1 ? one : ht_shards_replicate(one, g->scenario);
    if (*out != one) ht_schedule_destroy(one);
    return HT_OK;
}

void ht_single_place_states(struct ht_single *g, int32_t unit, enum ht_tier tier)
{
    if (g->master[unit] >= 0) ht_add_resident(g->schedule, g->master[unit], tier, 0);
    ht_add_resident(g->schedule, g->momentum[unit], tier, 0);
    ht_add_resident(g->schedule, g->variance[unit], tier, 0);
}

/* ---- ops ------------------------------------------------------------------------------------------------------- */

static struct ht_work work_of(const struct ht_single *g, enum ht_op_kind kind, enum ht_lane_kind where, int32_t unit)
{
    return ht_scenario_work(g->scenario, kind, where, unit);
}

void ht_single_draw(struct ht_single *g, int64_t host_bytes)
{
    struct ht_schedule *s = g->schedule;
    enum ht_lane_kind kind = s->lanes[s->ops[s->n_ops - 1].lane].kind;
    if (g->emulated) {
        int64_t cores = kind == HT_LANE_HOST ? g->host_cores : kind == HT_LANE_COMPUTE ? g->one_core : 1;
        if (cores) ht_op_use(s, g->cores, cores);
        return;
    }
    if (kind == HT_LANE_COMPUTE) return;
    if (kind == HT_LANE_COLLECTIVE) {
        if (g->nvlink >= 0) ht_op_use(s, g->nvlink, host_bytes);
        if (g->nvlink < 0) ht_op_use(s, g->pcie_h2d, host_bytes);
        if (g->nvlink < 0) ht_op_use(s, g->pcie_d2h, host_bytes);
        if (g->nic >= 0) ht_op_use(s, g->nic, host_bytes);
        return;
    }
    if (kind == HT_LANE_HOST && g->cores >= 0) ht_op_use(s, g->cores, g->host_cores);
    if (kind == HT_LANE_H2D) ht_op_use(s, g->pcie_h2d, host_bytes);
    if (kind == HT_LANE_D2H) ht_op_use(s, g->pcie_d2h, host_bytes);
    ht_op_use(s, g->dram, host_bytes);
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
    int32_t op = ht_add_op(g->schedule, kind, g->compute, label(unit, mb), ht_add_work(g->schedule, &w));
    if (g->n_mb > 1)
        ht_op_name(g->schedule, "%c%d.%d", letter, unit, mb);
    else
        ht_op_name(g->schedule, "%c%d", letter, unit);
    ht_single_draw(g, 0);
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
    if (g->n_ranks > 1) {
        on_device(g, g->full_param[unit], last ? HT_NEED | HT_RELEASE : HT_NEED);
        g->gathered[unit] = !last;
        return;
    }
    if (g->cast[unit]) on_device(g, g->master[unit], HT_NEED);
    on_device(g, g->param[unit], g->cast[unit] ? HT_PRODUCE | HT_RELEASE : HT_NEED);
}

static void scratch(struct ht_single *g, int32_t unit, int32_t mb, bool backward)
{
    const struct ht_scenario *sc = g->scenario;
    int64_t bytes = ht_unit_workspace_bytes(&sc->model, unit, sc->micro_batch, sc->seq, sc->numerics.param, backward);
    if (bytes) on_device(g, tensor(g, HT_WORKSPACE, unit, mb, bytes, 0), HT_PRODUCE | HT_RELEASE);
}

static bool head_uses_table(const struct ht_single *g, int32_t unit)
{
    return unit == g->n_units - 1 && g->scenario->model.tied;
}

/* Before a pass: the whole parameters that it reads. */
static void gather(struct ht_single *g, int32_t unit)
{
    if (g->n_ranks == 1) return;
    if (!g->gathered[unit]) ht_shards_begin_slot(g);
    ht_shards_gather(g, unit);
    if (head_uses_table(g, unit)) ht_shards_gather(g, 0);
}

int32_t ht_single_forward(struct ht_single *g, int32_t unit, int32_t mb, bool keep)
{
    gather(g, unit);
    int32_t op = pass(g, HT_OP_FORWARD, 'F', unit, mb), at = ht_single_at(g, unit, mb);
    bool head = unit == g->n_units - 1; /* its backward comes next */
    read_param(g, unit, !head);
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
    gather(g, unit);
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
    if (g->n_ranks > 1) return g->full_grad[at];
    return mb ? g->grad_mb[at] : g->grad[unit];
}

int32_t ht_single_backward(struct ht_single *g, int32_t unit, int32_t mb)
{
    gather(g, unit);
    int32_t op = pass(g, HT_OP_BACKWARD, 'B', unit, mb), at = ht_single_at(g, unit, mb);
    read_param(g, unit, true);
    if (unit == g->n_units - 1) {
        if (g->scenario->model.tied) {
            read_param(g, 0, true);
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
    if (g->n_ranks > 1) ht_shards_reduce(g, unit, mb);
    return op;
}

int32_t ht_single_settled(struct ht_single *g, int32_t unit)
{
    int32_t before = g->scattering;
    if (g->n_ranks == 1) return unit;
    g->scattering = unit;
    return before;
}

static enum ht_tier tier_of(const struct ht_single *g, int32_t lane) { return lane == g->host ? HT_HOST : HT_DEVICE; }

int32_t ht_single_accumulate(struct ht_single *g, int32_t lane, int32_t unit, int32_t mb)
{
    struct ht_work w = work_of(g, HT_OP_ACCUMULATE, g->schedule->lanes[lane].kind, unit);
    w.params = ht_scenario_shard(g->scenario, unit);
    w.dtype = g->scenario->numerics.accumulate;
    int32_t op = ht_add_op(g->schedule, HT_OP_ACCUMULATE, lane, label(unit, mb), ht_add_work(g->schedule, &w));
    ht_op_name(g->schedule, "A%d.%d", unit, mb);
    enum ht_tier tier = tier_of(g, lane);
    ht_op_effect(g->schedule, g->grad[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->grad_mb[ht_single_at(g, unit, mb)], tier, HT_NEED | HT_RELEASE);
    /* Reads both, writes one. */
    int64_t element = 2 * ht_dtype_bytes(g->scenario->numerics.accumulate) + ht_dtype_bytes(g->scenario->numerics.grad);
    ht_single_draw(g, w.params * element);
    ht_single_chain(g);
    return op;
}

int32_t ht_single_step(struct ht_single *g, int32_t lane, int32_t unit, bool release_grad)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    struct ht_work w = work_of(g, HT_OP_OPTIMIZER_STEP, g->schedule->lanes[lane].kind, unit);
    w.params = ht_scenario_shard(g->scenario, unit);
    if (g->n_mb > 1) w.grad_dtype = n->accumulate;
    int32_t op = ht_add_op(g->schedule, HT_OP_OPTIMIZER_STEP, lane, label(unit, -1), ht_add_work(g->schedule, &w));
    ht_op_name(g->schedule, "%c%d", lane == g->host ? 'O' : 'U', unit);
    enum ht_tier tier = tier_of(g, lane);
    if (tier == HT_HOST || !g->cast[unit])
        ht_op_effect(g->schedule, g->param[unit], tier, g->fresh[unit] ? HT_PRODUCE : HT_UPDATE);
    if (g->master[unit] >= 0) ht_op_effect(g->schedule, g->master[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->momentum[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->variance[unit], tier, HT_UPDATE);
    ht_op_effect(g->schedule, g->grad[unit], tier, release_grad ? HT_NEED | HT_RELEASE : HT_NEED);
    ht_single_draw(g, w.params * ht_step_traffic_bytes(n, w.grad_dtype));
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
    if (g->n_mb > 1 && about.micro_batch > 0)
        ht_op_name(s, "%c%d.%d", letter, about.unit, about.micro_batch);
    else
        ht_op_name(s, "%c%d", letter, about.unit);
    ht_op_effect(s, t, from, release_from ? HT_NEED | HT_RELEASE : HT_NEED);
    ht_op_effect(s, t, to, to_flags);
    ht_single_draw(g, bytes);
    ht_single_chain(g);
    return op;
}
