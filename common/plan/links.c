#include "common/plan/links.h"

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

/* ---- capacities ------------------------------------------------------------------------------------------------ */

static int64_t disk_bytes(const struct ht_machine *node)
{
    return node->has_ssds ? node->n_ssds * node->ssd.capacity_bytes : 0;
}

struct ht_schedule *ht_links_schedule(const struct ht_scenario *sc, const char *name)
{
    const struct ht_cluster *cluster = sc->cluster;
    int32_t ranks = (int32_t)ht_scenario_ranks(sc), *rank_node = HT_NEW_ARRAY(int32_t, ranks);
    for (int32_t r = 0; r < ranks; r++) {
        int64_t node = 0;
        ht_cluster_node_of(cluster, r, &node);
        rank_node[r] = (int32_t)node;
    }
    struct ht_schedule *s = ht_schedule_create(name, ranks, (int32_t)cluster->n_nodes, rank_node);
    free(rank_node);
    for (int32_t r = 0; r < ranks; r++) {
        const struct ht_machine *node = ht_cluster_node_of(cluster, r, NULL);
        ht_schedule_set_capacity(s, HT_DEVICE, r, ht_cluster_gpu_of(cluster, r)->memory_bytes);
        ht_schedule_set_capacity(s, HT_HOST, r, node->ram_bytes);
        ht_schedule_set_capacity(s, HT_DISK, r, disk_bytes(node));
    }
    s->n_units = (int32_t)ht_model_units(&sc->model);
    s->n_micro_batches = (int32_t)(sc->batch / sc->micro_batch);
    return s;
}

/* ---- tables ---------------------------------------------------------------------------------------------------- */

static const struct ht_machine *machine_of(const struct ht_single *g, int32_t rank)
{
    return ht_cluster_node_of(g->scenario->cluster, rank, NULL);
}

static bool is_emulated(const struct ht_single *g, int32_t rank)
{
    return ht_cluster_gpu_of(g->scenario->cluster, rank)->cores > 0;
}

/* Does the rank use a resource of the kind? */
static bool has(const struct ht_single *g, enum ht_resource_kind kind, int32_t rank)
{
    const struct ht_machine *m = machine_of(g, rank);
    bool real = !is_emulated(g, rank);
    switch (kind) {
    case HT_RES_CORES:
        return !real || g->n_ranks > 1;
    case HT_RES_PCIE_D2H:
        return real && m->pcie.duplex;
    case HT_RES_NVLINK:
        return real && g->n_ranks > 1 && m->has_nvlink;
    case HT_RES_NIC:
        return real && g->schedule->n_nodes > 1;
    default:
        return real;
    }
}

static bool is_of_node(enum ht_resource_kind kind)
{
    return kind == HT_RES_DRAM || kind == HT_RES_CORES || kind == HT_RES_NIC || kind == HT_RES_PCIE_SWITCH;
}

static int32_t add(struct ht_single *g, const char *name, enum ht_resource_kind kind, int32_t rank)
{
    struct ht_schedule *s = g->schedule;
    char text[64];
    if (is_of_node(kind) && s->n_nodes > 1)
        snprintf(text, sizeof(text), "node %d %s", s->rank_node[rank], name);
    else if (!is_of_node(kind) && g->n_ranks > 1)
        snprintf(text, sizeof(text), "rank %d %s", rank, name);
    else
        snprintf(text, sizeof(text), "%s", name);
    return ht_add_resource(s, text, kind, s->rank_node[rank], ht_resource_rate(machine_of(g, rank), kind));
}

static const char *name_of(const struct ht_single *g, enum ht_resource_kind kind, int32_t rank)
{
    switch (kind) {
    case HT_RES_CORES:
        return "host cores";
    case HT_RES_DRAM:
        return "dram";
    case HT_RES_PCIE_H2D:
        return machine_of(g, rank)->pcie.duplex ? "pcie h2d" : "pcie";
    case HT_RES_PCIE_D2H:
        return "pcie d2h";
    case HT_RES_NVLINK:
        return "nvlink";
    default:
        return "nic";
    }
}

/* One for each rank, or for each node that has such a rank; the draft's own, or -1. */
static int32_t add_kind(struct ht_single *g, enum ht_resource_kind kind)
{
    const int32_t *node = g->schedule->rank_node;
    int32_t own = -1, *of_node = HT_NEW_ARRAY(int32_t, g->schedule->n_nodes); /* + 1 */
    for (int32_t r = 0; r < g->n_ranks; r++) {
        if (!has(g, kind, r)) continue;
        int32_t *shared = &of_node[node[r]], this = is_of_node(kind) ? *shared - 1 : -1;
        if (this < 0) this = add(g, name_of(g, kind, r), kind, r);
        *shared = this + 1;
        if (r == g->rank) own = this;
    }
    free(of_node);
    return own;
}

static int32_t first_of_node(const struct ht_single *g, int32_t rank)
{
    const int32_t *node = g->schedule->rank_node;
    int32_t first = 0;
    while (node[first] != node[rank]) first++;
    return first;
}

/* Uplinks that several devices share, each direction. */
static void add_switches(struct ht_single *g)
{
    int32_t to_host = -1, to_device = -1;
    for (int32_t r = 0; r < g->n_ranks && g->n_ranks > 1; r++) {
        const struct ht_machine *m = machine_of(g, r);
        int64_t each = m->gpus_per_switch, place = r - first_of_node(g, r);
        char name[32];
        if (each < 2 || m->n_gpus < 2) continue;
        if (place % each == 0) {
            snprintf(name, sizeof(name), "switch %lld%s", (long long)(place / each), m->pcie.duplex ? " d2h" : "");
            to_host = to_device = add(g, name, HT_RES_PCIE_SWITCH, r);
            snprintf(name, sizeof(name), "switch %lld h2d", (long long)(place / each));
            if (m->pcie.duplex) to_device = add(g, name, HT_RES_PCIE_SWITCH, r);
        }
        if (r != g->rank) continue;
        g->switch_d2h = to_host;
        g->switch_h2d = to_device;
    }
}

void ht_links_add(struct ht_single *g)
{
    const struct ht_machine *node = machine_of(g, g->rank);
    g->emulated = is_emulated(g, g->rank);
    g->one_core = g->emulated && node->cpu.cores * node->cpu.sockets == 1;
    g->host_cores = ht_machine_process_cores(node);
    g->switch_h2d = g->switch_d2h = -1;
    g->cores = add_kind(g, HT_RES_CORES);
    g->dram = add_kind(g, HT_RES_DRAM);
    g->pcie_h2d = add_kind(g, HT_RES_PCIE_H2D);
    g->pcie_d2h = add_kind(g, HT_RES_PCIE_D2H);
    if (g->pcie_d2h < 0) g->pcie_d2h = g->pcie_h2d;
    g->nvlink = add_kind(g, HT_RES_NVLINK);
    g->nic = add_kind(g, HT_RES_NIC);
    for (int32_t r = first_of_node(g, g->rank); r < g->rank; r++)
        if (has(g, HT_RES_NIC, r)) g->nic = -1; /* which stands for the node */
    add_switches(g);
}

/* ---- what an op takes ------------------------------------------------------------------------------------------ */

static void use(struct ht_single *g, int32_t resource, int64_t amount)
{
    if (resource >= 0) ht_op_use(g->schedule, resource, amount);
}

static void use_port(struct ht_single *g, bool to_device, int64_t bytes)
{
    use(g, to_device ? g->pcie_h2d : g->pcie_d2h, bytes);
    use(g, to_device ? g->switch_h2d : g->switch_d2h, bytes);
}

void ht_single_draw(struct ht_single *g, int64_t bytes)
{
    const struct ht_schedule *s = g->schedule;
    enum ht_lane_kind kind = s->lanes[s->ops[s->n_ops - 1].lane].kind;
    if (g->emulated) {
        int64_t cores = kind == HT_LANE_HOST ? g->host_cores : kind == HT_LANE_COMPUTE ? g->one_core : 1;
        if (cores) use(g, g->cores, cores);
        return;
    }
    if (kind == HT_LANE_COMPUTE) return;
    if (kind == HT_LANE_COLLECTIVE) {
        use(g, g->nvlink, bytes);
        if (g->nvlink < 0) use_port(g, true, bytes);
        if (g->nvlink < 0) use_port(g, false, bytes);
        use(g, g->nic, bytes);
        return;
    }
    if (kind == HT_LANE_HOST) use(g, g->cores, g->host_cores);
    if (kind == HT_LANE_H2D) use_port(g, true, bytes);
    if (kind == HT_LANE_D2H) use_port(g, false, bytes);
    use(g, g->dram, bytes);
}
