#include "common/plan/shards.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>

int64_t ht_resource_rate(const struct ht_machine *node, enum ht_resource_kind kind)
{
    switch (kind) {
    case HT_RES_DRAM:
        return (int64_t)ht_machine_dram_rate(node);
    case HT_RES_CORES:
        return ht_machine_host_cores(node) * 1000000000;
    case HT_RES_NVLINK:
        return (int64_t)ht_link_rate(node->has_nvlink ? &node->nvlink : &node->pcie);
    case HT_RES_NIC:
        return (int64_t)ht_link_rate(&node->nic);
    default:
        return (int64_t)ht_link_rate(&node->pcie);
    }
}

/* ---- rows and collectives of one rank -------------------------------------------------------------------------- */

static struct ht_label label(int32_t unit, int32_t mb)
{
    return (struct ht_label){.unit = unit, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = mb};
}

static int32_t whole(struct ht_single *g, enum ht_tensor_class class, int32_t unit, int32_t mb, enum ht_dtype dtype)
{
    int64_t bytes = ht_unit_params(&g->scenario->model, unit) * ht_dtype_bytes(dtype);
    return ht_add_tensor(g->schedule, (struct ht_tensor){.class = class, .label = label(unit, mb), .bytes = bytes});
}

void ht_shards_init(struct ht_single *g)
{
    const struct ht_numerics *n = &g->scenario->numerics;
    g->gather = g->reduce = g->computed = g->slot = g->ahead = g->scattering = -1;
    if (g->n_ranks == 1) return;
    g->gather = ht_add_lane(g->schedule, "gather", HT_LANE_COLLECTIVE, 0, HT_FIFO);
    g->reduce = ht_add_lane(g->schedule, "reduce", HT_LANE_COLLECTIVE, 0, HT_FIFO);
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
    ht_add_op(s, kind, lane, label(unit, -1), ht_add_work(s, &w)); /* the ranks' micro-batches are different ones */
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

/* ---- all ranks ------------------------------------------------------------------------------------------------- */

struct replica {
    const struct ht_schedule *one;
    const struct ht_scenario *scenario;
    struct ht_schedule *all;
    int32_t n;                    /* ranks */
    int32_t *first_of_node;       /* [nodes]: lowest rank */
    int32_t *resource;            /* [resources of one * n]: of each rank */
    int32_t *to_host, *to_device; /* [n]: resource of the PCIe switch's uplink, or -1 */
};

static const struct ht_machine *machine_of(const struct replica *x, int32_t rank)
{
    return ht_cluster_node_of(x->scenario->cluster, rank, NULL);
}

static void create(struct replica *x)
{
    const struct ht_cluster *cluster = x->scenario->cluster;
    int32_t *rank_node = HT_NEW_ARRAY(int32_t, x->n);
    x->first_of_node = HT_NEW_ARRAY(int32_t, cluster->n_nodes);
    for (int32_t r = x->n - 1; r >= 0; r--) {
        int64_t node = 0;
        ht_cluster_node_of(cluster, r, &node);
        rank_node[r] = (int32_t)node;
        x->first_of_node[node] = r;
    }
    x->all = ht_schedule_create(x->one->name, x->n, (int32_t)cluster->n_nodes, rank_node);
    free(rank_node);
    x->all->n_units = x->one->n_units;
    x->all->n_micro_batches = x->one->n_micro_batches * x->n;
    for (int32_t r = 0; r < x->n; r++) {
        ht_schedule_set_capacity(x->all, HT_DEVICE, r, ht_cluster_gpu_of(cluster, r)->memory_bytes);
        ht_schedule_set_capacity(x->all, HT_HOST, r, machine_of(x, r)->ram_bytes);
        for (int32_t l = 0; l < x->one->n_lanes; l++) {
            const struct ht_lane *lane = &x->one->lanes[l];
            ht_add_lane(x->all, lane->name, lane->kind, r, lane->order);
        }
    }
}

/* Names a resource of a rank or, for one that its node has, of the node where there are several. */
static int32_t add_resource(struct replica *x, const char *name, enum ht_resource_kind kind, int32_t rank, bool shared)
{
    char text[64];
    int32_t node = x->all->rank_node[rank];
    if (!shared)
        snprintf(text, sizeof(text), "rank %d %s", rank, name);
    else if (x->all->n_nodes > 1)
        snprintf(text, sizeof(text), "node %d %s", node, name);
    else
        snprintf(text, sizeof(text), "%s", name);
    return ht_add_resource(x->all, text, kind, node, ht_resource_rate(machine_of(x, rank), kind));
}

/* Devices that share a PCIe uplink, each direction. */
static void add_switches(struct replica *x)
{
    x->to_host = HT_NEW_ARRAY(int32_t, x->n);
    x->to_device = HT_NEW_ARRAY(int32_t, x->n);
    for (int32_t r = 0; r < x->n; r++) {
        const struct ht_machine *m = machine_of(x, r);
        int64_t each = m->gpus_per_switch, place = r - x->first_of_node[x->all->rank_node[r]];
        char name[32];
        x->to_host[r] = x->to_device[r] = -1;
        if (each < 2 || m->n_gpus < 2) continue;
        if (place % each) {
            x->to_host[r] = x->to_host[r - 1];
            x->to_device[r] = x->to_device[r - 1];
            continue;
        }
        snprintf(name, sizeof(name), "switch %lld%s", (long long)(place / each), m->pcie.duplex ? " d2h" : "");
        x->to_host[r] = x->to_device[r] = add_resource(x, name, HT_RES_PCIE_SWITCH, r, true);
        if (!m->pcie.duplex) continue;
        snprintf(name, sizeof(name), "switch %lld h2d", (long long)(place / each));
        x->to_device[r] = add_resource(x, name, HT_RES_PCIE_SWITCH, r, true);
    }
}

static bool is_of_node(enum ht_resource_kind kind)
{
    return kind == HT_RES_DRAM || kind == HT_RES_CORES || kind == HT_RES_NIC;
}

static void add_resources(struct replica *x)
{
    x->resource = HT_NEW_ARRAY(int32_t, (int64_t)x->one->n_resources * x->n);
    for (int32_t i = 0; i < x->one->n_resources; i++)
        for (int32_t r = 0; r < x->n; r++) {
            const struct ht_resource *of = &x->one->resources[i];
            int32_t *mine = &x->resource[i * x->n + r], first = x->first_of_node[x->all->rank_node[r]];
            bool shared = is_of_node(of->kind);
            *mine =
                shared && r != first ? x->resource[i * x->n + first] : add_resource(x, of->name, of->kind, r, shared);
        }
    add_switches(x);
}

static struct ht_label label_of(const struct replica *x, struct ht_label l, int32_t rank)
{
    if (l.micro_batch >= 0) l.micro_batch += rank * x->one->n_micro_batches;
    return l;
}

/* Rows with a range are shards: those of rank r begin at element r ceil(P / N). */
static void add_tensors(struct replica *x)
{
    for (int32_t i = 0; i < x->one->n_tensors; i++)
        for (int32_t r = 0; r < x->n; r++) {
            struct ht_tensor t = x->one->tensors[i];
            int64_t shard = t.shard_end;
            t.rank = r;
            if (shard > 0) {
                int64_t params = ht_unit_params(&x->scenario->model, t.label.unit);
                t.shard_begin = r * shard < params ? r * shard : params;
                t.shard_end = (r + 1) * shard < params ? (r + 1) * shard : params;
            }
            t.label = label_of(x, t.label, r);
            ht_add_tensor(x->all, t);
        }
    for (int32_t i = 0; i < x->one->n_residents; i++)
        for (int32_t r = 0; r < x->n; r++)
            ht_add_resident(x->all, x->one->residents[i].tensor * x->n + r, x->one->residents[i].tier, r);
}

/* Host work keeps all cores of a node busy, however many that node has. The NIC carries what one rank of the node
 * sends. */
static void add_use(struct replica *x, const struct ht_use *use, int32_t rank)
{
    const struct ht_resource *of = &x->one->resources[use->resource];
    int64_t amount = use->amount;
    if (of->kind == HT_RES_NIC && rank != x->first_of_node[x->all->rank_node[rank]]) return;
    if (of->kind == HT_RES_CORES && amount * 1000000000 == of->capacity_per_s)
        amount = ht_machine_host_cores(machine_of(x, rank));
    ht_op_use(x->all, x->resource[use->resource * x->n + rank], amount);
    if (of->kind == HT_RES_PCIE_H2D && x->to_device[rank] >= 0) ht_op_use(x->all, x->to_device[rank], amount);
    if (of->kind == HT_RES_PCIE_D2H && x->to_host[rank] >= 0) ht_op_use(x->all, x->to_host[rank], amount);
}

static void add_op(struct replica *x, int32_t i, int32_t rank)
{
    const struct ht_schedule *one = x->one;
    const struct ht_op *op = &one->ops[i];
    struct ht_schedule *s = x->all;
    ht_add_op(s, (enum ht_op_kind)op->kind, rank * one->n_lanes + op->lane, label_of(x, op->label, rank),
              ht_add_work(s, &one->works[op->work]));
    if (op->name[0]) ht_op_name(s, "%.16s", op->name);
    ht_op_priority(s, op->priority);
    ht_op_when(s, (enum ht_when)op->when);
    if (one->lanes[op->lane].kind == HT_LANE_COLLECTIVE) ht_op_match(s, i);
    for (int64_t k = one->deps_begin[i]; k < one->deps_begin[i + 1]; k++) ht_op_after(s, one->deps[k] * x->n + rank);
    for (int64_t k = one->prev_begin[i]; k < one->prev_begin[i + 1]; k++)
        ht_op_after_prev(s, one->prev[k] * x->n + rank);
    for (int64_t k = one->effects_begin[i]; k < one->effects_begin[i + 1]; k++)
        ht_op_effect(s, one->effects[k].tensor * x->n + rank, (enum ht_tier)one->effects[k].tier,
                     one->effects[k].flags);
    for (int64_t k = one->uses_begin[i]; k < one->uses_begin[i + 1]; k++) add_use(x, &one->uses[k], rank);
}

struct ht_schedule *ht_shards_replicate(const struct ht_schedule *one, const struct ht_scenario *scenario)
{
    struct replica x = {.one = one, .scenario = scenario, .n = (int32_t)ht_scenario_ranks(scenario)};
    create(&x);
    add_resources(&x);
    add_tensors(&x);
    for (int32_t i = 0; i < one->n_ops; i++)
        for (int32_t r = 0; r < x.n; r++) add_op(&x, i, r);
    free(x.first_of_node);
    free(x.resource);
    free(x.to_host);
    free(x.to_device);
    return x.all;
}
