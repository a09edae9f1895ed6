#include "common/draft/links.h"

#include "common/base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- capacities ------------------------------------------------------------------------------------------------ */

static int64_t disk_bytes(const struct ht_machine *node)
{
    return node->has_ssds ? node->n_ssds * node->ssd.capacity_bytes : 0;
}

/* Sets how the software takes device memory. Emulated devices have an arena of ours. */
static void take_allocator(const struct ht_scenario *sc, struct ht_schedule *s)
{
    const struct ht_software_allocator *a = &sc->software.allocator;
    if (!a->own || ht_cluster_gpu_of(sc->cluster, 0)->cores > 0) return;
    s->allocator = (struct ht_allocator){
        .own_bytes = a->own, .round_bytes = a->round, .shared_bytes = a->shared, .leaving = a->leaving};
    for (int32_t r = 0; r < s->n_ranks; r++) s->communicator_bytes[r] = ht_scenario_communicator_bytes(sc, r);
}

/* Returns the GPU of a node's nth rank. */
static const struct ht_gpu *gpu_of(const struct ht_machine *node, int64_t nth)
{
    int64_t g = 0;
    while (nth >= node->groups[g].count) nth -= node->groups[g++].count;
    return &node->groups[g].gpu;
}

/* Returns which rank of its node the next rank is, after rank r - 1, which is the nth. */
static int32_t next_of_node(const struct ht_schedule *s, int32_t r, int32_t nth)
{
    return r > 0 && s->rank_node[r] == s->rank_node[r - 1] ? nth + 1 : 0;
}

struct ht_schedule *ht_links_schedule(const struct ht_scenario *sc, const char *name)
{
    const struct ht_cluster *cluster = sc->cluster;
    int32_t ranks = (int32_t)ht_scenario_ranks(sc), *rank_node = HT_NEW_ARRAY(int32_t, ranks);
    for (int64_t r = 0, node = 0, first = 0; r < ranks; r++) {
        while (r - first >= cluster->nodes[node].n_gpus) first += cluster->nodes[node++].n_gpus;
        rank_node[r] = (int32_t)node;
    }
    struct ht_schedule *s = ht_schedule_create(name, ranks, (int32_t)cluster->n_nodes, rank_node);
    free(rank_node);
    for (int32_t r = 0, nth = 0; r < ranks; r++) {
        const struct ht_machine *node = &cluster->nodes[s->rank_node[r]];
        nth = next_of_node(s, r, nth);
        ht_schedule_set_capacity(s, HT_DEVICE, r, gpu_of(node, nth)->memory_bytes);
        ht_schedule_set_capacity(s, HT_HOST, r, node->ram_bytes);
        ht_schedule_set_capacity(s, HT_DISK, r, disk_bytes(node));
    }
    take_allocator(sc, s);
    s->n_units = (int32_t)ht_model_units(&sc->model);
    s->n_micro_batches = (int32_t)(sc->batch / sc->micro_batch);
    return s;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

/* Owner of a resource, the prefix of its name: "rank 2". The only owner of its kind has no prefix. */
struct owner {
    const char *kind;
    int32_t number;
    bool only;
};

static int32_t add(struct ht_schedule *s, int32_t rank, struct owner o, const char *name, enum ht_resource_kind kind,
                   double per_s)
{
    char text[32];
    if (o.only)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%s %d %s", o.kind, o.number, name);
    return ht_add_resource(s, text, kind, s->rank_node[rank], (int64_t)per_s);
}

/* Names of a link's two directions, of the one resource of a simplex link, and the kinds of the directions. */
struct directions {
    const char *out, *in, *both;
    enum ht_resource_kind out_kind, in_kind;
};

static const struct directions pcie = {"pcie d2h", "pcie h2d", "pcie", HT_RES_PCIE_D2H, HT_RES_PCIE_H2D},
                               uplink = {"switch d2h", "switch h2d", "switch", HT_RES_PCIE_SWITCH, HT_RES_PCIE_SWITCH},
                               nvlink = {"nvlink out", "nvlink in", "nvlink", HT_RES_NVLINK, HT_RES_NVLINK},
                               nic = {"nic out", "nic in", "nic", HT_RES_NIC, HT_RES_NIC},
                               ssd = {"ssd write", "ssd read", "ssd", HT_RES_SSD, HT_RES_SSD};

static void add_link(struct ht_schedule *s, int32_t rank, struct owner o, const struct directions *names,
                     const struct ht_link *link, int32_t *out, int32_t *in)
{
    double per_s = ht_link_rate(link);
    *out = add(s, rank, o, link->duplex ? names->out : names->both, names->out_kind, per_s);
    *in = link->duplex ? add(s, rank, o, names->in, names->in_kind, per_s) : *out;
}

static void add_disk(struct ht_schedule *s, int32_t rank, struct owner node, const struct ht_machine *m,
                     struct ht_links *p)
{
    double read = ht_machine_ssd_read_rate(m), write = ht_machine_ssd_write_rate(m);
    p->disk_read = add(s, rank, node, m->ssd.duplex ? ssd.in : ssd.both, ssd.in_kind, read);
    p->disk_write = m->ssd.duplex ? add(s, rank, node, ssd.out, ssd.out_kind, write) : p->disk_read;
    p->write_weight = m->ssd.duplex ? 1 : read / write;
}

/* Adds the cores and the memory of the rank's domain. A node's devices are spread evenly over its domains. */
static void add_domain(struct ht_schedule *s, int32_t rank, struct owner o, const struct ht_machine *m,
                       bool shares_cores, struct ht_links *p)
{
    if (shares_cores && p->cores < 0) p->cores = add(s, rank, o, "cores", HT_RES_CORES, (double)p->host_cores * 1e9);
    if (p->dram < 0 && !p->emulated)
        p->dram = add(s, rank, o, "dram", HT_RES_DRAM, ht_machine_dram_rate(m) / (double)m->domains);
}

static void add_device(struct ht_schedule *s, int32_t rank, struct owner o, const struct ht_machine *m,
                       struct ht_links *p)
{
    add_link(s, rank, o, &pcie, &m->pcie, &p->pcie_d2h, &p->pcie_h2d);
    if (m->gpus_per_switch > 1 && m->n_gpus > 1 && p->switch_d2h < 0)
        add_link(s, rank, o, &uplink, &m->pcie, &p->switch_d2h, &p->switch_h2d);
    if (s->n_ranks == 1) return;
    if (m->has_nvlink) {
        add_link(s, rank, o, &nvlink, &m->nvlink, &p->nvlink_out, &p->nvlink_in);
    } else if (ht_machine_stages(m)) {
        p->staged_out = p->message_out = add(s, rank, o, "staged out", HT_RES_STAGED, ht_machine_ring_rate(m));
        p->staged_in = p->message_in = add(s, rank, o, "staged in", HT_RES_STAGED, ht_machine_ring_rate(m));
        if (m->message_bytes_per_s > 0) {
            p->message_out = add(s, rank, o, "messages out", HT_RES_STAGED, m->message_bytes_per_s);
            p->message_in = add(s, rank, o, "messages in", HT_RES_STAGED, m->message_bytes_per_s);
        }
    }
}

/* Adds the resources of the nth rank of a node; shares those that the ranks before it on the node already have. */
static void add_rank(struct ht_schedule *s, const struct ht_cluster *cluster, bool shares_cores, int32_t rank,
                     int32_t nth, struct ht_links *p)
{
    int32_t node = s->rank_node[rank];
    const struct ht_machine *m = &cluster->nodes[node];
    int64_t domain = nth * m->domains / m->n_gpus, each = m->gpus_per_switch > 1 ? m->gpus_per_switch : 1;
    int32_t domains_before = 0;
    *p = (struct ht_links){-1,           -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, .write_weight = 1,
                           .leads = true};
    for (int32_t n = 0; n < node && m->domains > 1; n++) domains_before += (int32_t)cluster->nodes[n].domains;
    p->host_cores = ht_machine_process_cores(m);
    p->emulated = gpu_of(m, nth)->cores > 0;
    p->one_core = p->emulated && m->cpu.cores * m->cpu.sockets == 1;
    for (int32_t k = 0; k < nth; k++) {
        const struct ht_links *q = p - nth + k;
        bool real = !q->emulated && !p->emulated;
        if (k * m->domains / m->n_gpus == domain) p->cores = q->cores;
        if (k * m->domains / m->n_gpus == domain && real) p->dram = q->dram;
        if (k / each == nth / each && real) p->switch_d2h = q->switch_d2h, p->switch_h2d = q->switch_h2d;
        p->nic_out = q->nic_out, p->nic_in = q->nic_in;
        p->disk_read = q->disk_read, p->disk_write = q->disk_write, p->write_weight = q->write_weight;
        p->leads &= q->emulated;
    }
    struct owner of_node = {"node", node, s->n_nodes == 1}, of_rank = {"rank", rank, s->n_ranks == 1};
    struct owner of_domain = {"domain", domains_before + (int32_t)domain, false};
    add_domain(s, rank, m->domains > 1 ? of_domain : of_node, m, shares_cores || p->emulated, p);
    if (!p->emulated) add_device(s, rank, of_rank, m, p);
    if (s->n_nodes > 1 && m->has_nic && p->nic_out < 0)
        add_link(s, rank, of_node, &nic, &m->nic, &p->nic_out, &p->nic_in);
    if (m->has_ssds && p->disk_read < 0) add_disk(s, rank, of_node, m, p);
}

struct ht_links *ht_links_add(struct ht_schedule *s, const struct ht_cluster *cluster, bool host_lanes)
{
    struct ht_links *links = HT_NEW_ARRAY(struct ht_links, s->n_ranks);
    for (int32_t r = 0, nth = 0; r < s->n_ranks; r++) {
        nth = next_of_node(s, r, nth);
        add_rank(s, cluster, host_lanes || s->n_ranks > 1, r, nth, &links[r]);
    }
    return links;
}

void ht_links_list(const struct ht_links *p, int32_t list[HT_LINKS])
{
    const int32_t all[HT_LINKS] = {p->pcie_d2h,    p->pcie_h2d,   p->switch_d2h, p->switch_h2d,
                                   p->nvlink_out,  p->nvlink_in,  p->staged_out, p->staged_in,
                                   p->message_out, p->message_in, p->cores,      p->dram,
                                   p->nic_out,     p->nic_in,     p->disk_read,  p->disk_write};
    memcpy(list, all, sizeof all);
}

bool ht_links_alike(const struct ht_links *a, const struct ht_links *b)
{
    return a->host_cores == b->host_cores && a->write_weight == b->write_weight && a->emulated == b->emulated &&
           a->one_core == b->one_core;
}

/* ---- what an op takes ------------------------------------------------------------------------------------------ */

static void use(struct ht_schedule *s, int32_t resource, int64_t amount)
{
    if (resource >= 0 && amount > 0) ht_op_use(s, resource, amount);
}

static const struct ht_links *of_last(const struct ht_schedule *s, const struct ht_links *links)
{
    return &links[ht_op_rank(s, s->n_ops - 1)];
}

static void use_port(struct ht_schedule *s, const struct ht_links *p, bool to_device, int64_t bytes)
{
    use(s, to_device ? p->pcie_h2d : p->pcie_d2h, bytes);
    use(s, to_device ? p->switch_h2d : p->switch_d2h, bytes);
}

void ht_charge_work(struct ht_schedule *s, const struct ht_links *links, int64_t bytes)
{
    const struct ht_links *p = of_last(s, links);
    if (s->lanes[s->ops[s->n_ops - 1].lane].kind != HT_LANE_HOST) {
        if (p->one_core) use(s, p->cores, 1);
        return;
    }
    use(s, p->cores, p->host_cores);
    use(s, p->dram, bytes);
}

void ht_charge_copy(struct ht_schedule *s, const struct ht_links *links, enum ht_tier from, enum ht_tier to,
                    int64_t bytes)
{
    const struct ht_links *p = of_last(s, links);
    bool disk = from == HT_DISK || to == HT_DISK;
    if (p->emulated) {
        if (!disk) use(s, p->cores, 1); /* a disk moves the bytes itself */
    } else {
        if (from == HT_DEVICE || to == HT_DEVICE) use_port(s, p, to == HT_DEVICE, bytes);
        if (from == HT_HOST || to == HT_HOST) use(s, p->dram, bytes);
    }
    if (from == HT_DISK) use(s, p->disk_read, bytes);
    if (to == HT_DISK) use(s, p->disk_write, (int64_t)ceil((double)bytes * p->write_weight));
}

void ht_charge_collective(struct ht_schedule *s, const struct ht_links *links, bool crosses, int64_t bytes)
{
    const struct ht_links *p = of_last(s, links);
    if (p->emulated) {
        use(s, p->cores, 1);
        return;
    }
    for (int in = 0; in < 2; in++) {
        if (p->nvlink_out >= 0)
            use(s, in ? p->nvlink_in : p->nvlink_out, bytes);
        else
            use_port(s, p, in, bytes);
        int32_t port = in ? p->nic_in : p->nic_out, path = in ? p->staged_in : p->staged_out;
        use(s, crosses && port >= 0 ? port : path, bytes);
    }
}

bool ht_links_cross(const struct ht_schedule *s, const struct ht_links *links, int32_t rank, const int32_t *group,
                    int32_t n)
{
    const int32_t *node = s->rank_node;
    bool elsewhere = false;
    for (int32_t i = 0; i < n; i++) {
        if (group[i] < rank && node[group[i]] == node[rank] && !links[group[i]].emulated) return false;
        elsewhere |= node[group[i]] != node[rank];
    }
    return elsewhere;
}

void ht_charge_parts(struct ht_schedule *s, const struct ht_links *links, const int32_t *group, int32_t n,
                     int64_t bytes)
{
    int32_t rank = ht_op_rank(s, s->n_ops - 1);
    if (bytes && !links[rank].emulated) ht_charge_collective(s, links, ht_links_cross(s, links, rank, group, n), bytes);
}

void ht_charge_message(struct ht_schedule *s, const struct ht_links *links, int32_t peer, bool from_host, int64_t bytes)
{
    const struct ht_links *p = of_last(s, links);
    int32_t op = s->n_ops - 1;
    bool in = s->ops[op].kind == HT_OP_RECEIVE, crosses = s->rank_node[ht_op_rank(s, op)] != s->rank_node[peer];
    bool by_nvlink = !crosses && p->nvlink_out >= 0;
    if (p->emulated) {
        if (in) use(s, p->cores, 1);
        return;
    }
    if (from_host && !in)
        use(s, p->dram, bytes);
    else if (by_nvlink)
        use(s, in ? p->nvlink_in : p->nvlink_out, bytes);
    else
        use(s, in ? p->pcie_h2d : p->pcie_d2h, bytes);
    if (crosses)
        use(s, in ? p->nic_in : p->nic_out, bytes);
    else
        use(s, in ? p->message_in : p->message_out, bytes);
}
