/*
 * What the ops of a pipeline share, as the cluster has it:
 *
 *     a real device        copies take its port (each direction) and its domain's DRAM; messages inside the node NVLink, or
 *                          the sender's port up and the receiver's down; between nodes both NICs too. Reads of another
 *                          node's memory take its DRAM and NIC, this node's NIC and the reader's port.
 *     an emulated one      what moves bytes are the host's cores: one for a copy or a message's receiver
 *     host work            all cores of the domain, and its DRAM: optimizers that run at once there share them
 *
 * A domain is the part of a node that a device's process keeps to (struct ht_machine): mostly all of it.
 * Devices behind one PCIe switch share its uplink for copies; messages stay below it.
 */
#include "common/plan/pipe_parts.h"

#include "common/base/array.h"
#include "common/plan/links.h"

#include <stdio.h>

static int32_t add(struct ht_pipe *g, int32_t rank, const char *whose, int32_t number, const char *what,
                   enum ht_resource_kind kind)
{
    const struct ht_machine *m = ht_cluster_node_of(g->scenario->cluster, rank, NULL);
    char name[32];
    snprintf(name, sizeof name, "%s %d %s", whose, number, what);
    return ht_add_resource(g->s, name, kind, g->s->rank_node[rank], ht_resource_rate(m, kind));
}

/* The one of a pair of directions, or (simplex) the one for both. */
static void add_pair(struct ht_pipe *g, int32_t rank, const char *whose, int32_t number, const struct ht_link *link,
                     const char *const names[3], const enum ht_resource_kind kinds[2], int32_t out[2])
{
    out[0] = add(g, rank, whose, number, link->duplex ? names[0] : names[2], kinds[0]);
    out[1] = link->duplex ? add(g, rank, whose, number, names[1], kinds[1]) : out[0];
}

static void add_node(struct ht_pipe *g, int32_t rank, struct ht_pipe_ports *p)
{
    static const char *const nic[] = {"nic out", "nic in", "nic"};
    static const enum ht_resource_kind kinds[] = {HT_RES_NIC, HT_RES_NIC};
    const struct ht_machine *m = ht_cluster_node_of(g->scenario->cluster, rank, NULL);
    int32_t node = g->s->rank_node[rank], pair[2];
    if (p->emulated) return;
    if (g->s->n_nodes == 1 || !m->has_nic) return;
    add_pair(g, rank, "node", node, &m->nic, nic, kinds, pair);
    p->nic_out = pair[0];
    p->nic_in = pair[1];
}

/* Cores and memory of the domain that the device's process keeps to; devices are dealt out evenly. */
static void add_domain(struct ht_pipe *g, int32_t rank, int32_t place, struct ht_pipe_ports *p)
{
    const struct ht_machine *m = ht_cluster_node_of(g->scenario->cluster, rank, NULL);
    int64_t domain = place * m->domains / m->n_gpus, before = (place - 1) * m->domains / m->n_gpus;
    int32_t number = (int32_t)(g->s->rank_node[rank] * m->domains + domain);
    const char *whose = m->domains > 1 ? "domain" : "node";
    if (place > 0 && domain == before) {
        p->cores = p[-1].cores;
        p->dram = p[-1].dram;
        return;
    }
    p->cores = add(g, rank, whose, number, "cores", HT_RES_CORES);
    if (!p->emulated) p->dram = add(g, rank, whose, number, "dram", HT_RES_DRAM);
    g->s->resources[p->cores].capacity_per_s = p->host_cores * 1000000000;
    if (p->dram >= 0) g->s->resources[p->dram].capacity_per_s /= m->domains;
}

static void add_device(struct ht_pipe *g, int32_t rank, int32_t place, struct ht_pipe_ports *p)
{
    static const char *const pcie[] = {"pcie d2h", "pcie h2d", "pcie"}, *const uplink[] = {"switch d2h", "switch h2d",
                                                                                           "switch"};
    static const char *const nvlink[] = {"nvlink out", "nvlink in", "nvlink"};
    static const enum ht_resource_kind ports[] = {HT_RES_PCIE_D2H, HT_RES_PCIE_H2D};
    static const enum ht_resource_kind switches[] = {HT_RES_PCIE_SWITCH, HT_RES_PCIE_SWITCH};
    static const enum ht_resource_kind nvlinks[] = {HT_RES_NVLINK, HT_RES_NVLINK};
    const struct ht_machine *m = ht_cluster_node_of(g->scenario->cluster, rank, NULL);
    int32_t pair[2];
    add_pair(g, rank, "rank", rank, &m->pcie, pcie, ports, pair);
    p->pcie_d2h = pair[0];
    p->pcie_h2d = pair[1];
    if (m->gpus_per_switch > 1 && m->n_gpus > 1) {
        if (place % m->gpus_per_switch) {
            pair[0] = p[-1].switch_d2h;
            pair[1] = p[-1].switch_h2d;
        } else {
            add_pair(g, rank, "rank", rank, &m->pcie, uplink, switches, pair);
        }
        p->switch_d2h = pair[0];
        p->switch_h2d = pair[1];
    }
    if (!m->has_nvlink || g->shape.ranks == 1) return;
    add_pair(g, rank, "rank", rank, &m->nvlink, nvlink, nvlinks, pair);
    p->nvlink_out = pair[0];
    p->nvlink_in = pair[1];
}

void ht_pipe_add_ports(struct ht_pipe *g)
{
    const struct ht_cluster *cluster = g->scenario->cluster;
    g->ports = HT_NEW_ARRAY(struct ht_pipe_ports, g->shape.ranks);
    for (int32_t r = 0, place = 0; r < g->shape.ranks; r++, place++) {
        struct ht_pipe_ports *p = &g->ports[r];
        const struct ht_machine *m = ht_cluster_node_of(cluster, r, NULL);
        *p = (struct ht_pipe_ports){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, ht_machine_process_cores(m), false, false};
        p->emulated = ht_cluster_gpu_of(cluster, r)->cores > 0;
        p->one_core = p->emulated && m->cpu.cores * m->cpu.sockets == 1;
        if (r == 0 || g->s->rank_node[r] != g->s->rank_node[r - 1]) {
            place = 0;
            add_node(g, r, p);
        } else {
            p->nic_out = p[-1].nic_out;
            p->nic_in = p[-1].nic_in;
        }
        add_domain(g, r, place, p);
        if (!p->emulated) add_device(g, r, place, p);
    }
}

static void use(struct ht_pipe *g, int32_t resource, int64_t amount)
{
    if (resource >= 0 && amount > 0) ht_op_use(g->s, resource, amount);
}

void ht_pipe_draw_compute(struct ht_pipe *g, int32_t rank)
{
    if (g->ports[rank].one_core) use(g, g->ports[rank].cores, 1);
}

void ht_pipe_draw_copy(struct ht_pipe *g, int32_t rank, bool to_device, int64_t bytes)
{
    const struct ht_pipe_ports *p = &g->ports[rank];
    if (p->emulated) {
        use(g, p->cores, 1);
        return;
    }
    use(g, to_device ? p->pcie_h2d : p->pcie_d2h, bytes);
    use(g, to_device ? p->switch_h2d : p->switch_d2h, bytes);
    use(g, p->dram, bytes);
}

void ht_pipe_draw_host(struct ht_pipe *g, int32_t rank, int64_t bytes)
{
    use(g, g->ports[rank].cores, g->ports[rank].host_cores);
    use(g, g->ports[rank].dram, bytes);
}

static bool crosses(const struct ht_pipe *g, int32_t from, int32_t to)
{
    return g->s->rank_node[from] != g->s->rank_node[to];
}

void ht_pipe_draw_send(struct ht_pipe *g, int32_t from, int32_t to, bool from_host, int64_t bytes)
{
    const struct ht_pipe_ports *p = &g->ports[from];
    if (p->emulated) return;
    if (from_host)
        use(g, p->dram, bytes);
    else
        use(g, !crosses(g, from, to) && p->nvlink_out >= 0 ? p->nvlink_out : p->pcie_d2h, bytes);
    if (crosses(g, from, to)) use(g, p->nic_out, bytes);
}

void ht_pipe_draw_receive(struct ht_pipe *g, int32_t from, int32_t to, int64_t bytes)
{
    const struct ht_pipe_ports *p = &g->ports[to];
    if (p->emulated) {
        use(g, p->cores, 1);
        return;
    }
    use(g, !crosses(g, from, to) && p->nvlink_in >= 0 ? p->nvlink_in : p->pcie_h2d, bytes);
    if (crosses(g, from, to)) use(g, p->nic_in, bytes);
}
