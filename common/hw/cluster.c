/*
 * Clusters: from the catalogue or a user's file, ranks to devices, and this machine.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/hw/parts.h"

HT_EMBED(ht_clusters_yaml, "common/hw/clusters.yaml");
static const struct ht_builtin ht_cluster_file = {"builtin:clusters.yaml", ht_clusters_yaml, ht_clusters_yaml_end};

enum { HT_MAX_NODES = 4096, HT_MAX_GPUS_PER_NODE = 64, HT_MAX_SSDS = 64 };

/* A cluster, a node, and a group of devices, as written in a file. */
struct ht_cluster_entry {
    struct ht_cluster cluster;
    const struct ht_node *nodes, *between;
};
struct ht_machine_entry {
    struct ht_machine machine;
    int64_t count, sockets;
    const struct ht_node *cpu, *gpus, *pcie, *nvlink, *nic, *ssds;
};
struct ht_group_entry {
    const struct ht_node *type;
    int64_t count;
};
struct ht_array_entry {
    const struct ht_node *type, *uplink;
    int64_t count;
};

#define AT(t, m) .offset = offsetof(struct t, m)
static const struct ht_field ht_cluster_fields[] = {
    {.key = "name", .type = HT_FIELD_STRING, AT(ht_cluster_entry, cluster.name), .size = HT_NAME_BYTES},
    {.key = "source", .type = HT_FIELD_STRING, AT(ht_cluster_entry, cluster.source), .size = HT_SOURCE_BYTES},
    {.key = "nodes", .type = HT_FIELD_LIST_NODE, AT(ht_cluster_entry, nodes), .required = true},
    {.key = "between", .type = HT_FIELD_LIST_NODE, AT(ht_cluster_entry, between)},
    {0},
};
static const struct ht_field ht_machine_fields[] = {
    {.key = "count", .type = HT_FIELD_INT, AT(ht_machine_entry, count), .min = 1, .max = HT_MAX_NODES, .fallback = "1"},
    {.key = "cpu", .type = HT_FIELD_ANY_NODE, AT(ht_machine_entry, cpu), .required = true},
    {.key = "sockets", .type = HT_FIELD_INT, AT(ht_machine_entry, sockets), .min = 1, .max = 16, .fallback = "1"},
    {.key = "ram",
     .type = HT_FIELD_BYTES,
     AT(ht_machine_entry, machine.ram_bytes),
     .min = 1,
     .max = 1e15,
     .required = true},
    {.key = "gpus", .type = HT_FIELD_LIST_NODE, AT(ht_machine_entry, gpus), .required = true},
    {.key = "pcie", .type = HT_FIELD_ANY_NODE, AT(ht_machine_entry, pcie), .required = true},
    {.key = "gpus_per_switch",
     .type = HT_FIELD_INT,
     AT(ht_machine_entry, machine.gpus_per_switch),
     .min = 1,
     .max = HT_MAX_GPUS_PER_NODE,
     .fallback = "1"},
    {.key = "domains",
     .type = HT_FIELD_INT,
     AT(ht_machine_entry, machine.domains),
     .min = 1,
     .max = HT_MAX_GPUS_PER_NODE,
     .fallback = "1"},
    {.key = "peer", .type = HT_FIELD_BOOL, AT(ht_machine_entry, machine.peer), .fallback = "true"},
    {.key = "through_host",
     .type = HT_FIELD_BYTES_PER_S,
     AT(ht_machine_entry, machine.through_host_bytes_per_s),
     .min = HT_MIN_RATE,
     .max = HT_MAX_RATE},
    {.key = "messages",
     .type = HT_FIELD_BYTES_PER_S,
     AT(ht_machine_entry, machine.message_bytes_per_s),
     .min = HT_MIN_RATE,
     .max = HT_MAX_RATE},
    {.key = "nvlink", .type = HT_FIELD_ANY_NODE, AT(ht_machine_entry, nvlink)},
    {.key = "nic", .type = HT_FIELD_ANY_NODE, AT(ht_machine_entry, nic)},
    {.key = "ssds", .type = HT_FIELD_MAP_NODE, AT(ht_machine_entry, ssds)},
    {.key = "price_usd", .type = HT_FIELD_DOUBLE, AT(ht_machine_entry, machine.price_usd), .min = 1, .max = HT_MAX_USD},
    {.key = "instance", .type = HT_FIELD_STRING, AT(ht_machine_entry, machine.instance), .size = HT_NAME_BYTES},
    {.key = "usd_per_hour",
     .type = HT_FIELD_DOUBLE,
     AT(ht_machine_entry, machine.usd_per_hour),
     .min = 0.0001,
     .max = HT_MAX_USD},
    {.key = "price_source",
     .type = HT_FIELD_STRING,
     AT(ht_machine_entry, machine.price_source),
     .size = HT_SOURCE_BYTES},
    {0},
};
static const struct ht_field ht_array_fields[] = {
    {.key = "type", .type = HT_FIELD_ANY_NODE, AT(ht_array_entry, type), .required = true},
    {.key = "count", .type = HT_FIELD_INT, AT(ht_array_entry, count), .min = 1, .max = HT_MAX_SSDS, .fallback = "1"},
    {.key = "uplink", .type = HT_FIELD_ANY_NODE, AT(ht_array_entry, uplink)},
    {0},
};
static const struct ht_field ht_group_fields[] = {
    {.key = "type", .type = HT_FIELD_ANY_NODE, AT(ht_group_entry, type), .required = true},
    {.key = "count",
     .type = HT_FIELD_INT,
     AT(ht_group_entry, count),
     .min = 1,
     .max = HT_MAX_GPUS_PER_NODE,
     .fallback = "1"},
    {0},
};

void ht_cluster_destroy(struct ht_cluster *cluster)
{
    if (!cluster) return;
    for (int64_t i = 0; i < cluster->n_nodes; i++) free(cluster->nodes[i].groups);
    free(cluster->nodes);
    free(cluster->between);
    free(cluster);
}

/* ---- files ---- */

static enum ht_status ht_read_gpus(const struct ht_node *list, struct ht_error *err, struct ht_machine *m)
{
    if (!list->n_children) return ht_node_error(list, err, "is empty; expected at least one '{type: ..., count: ...}'");
    size_t cap = 0;
    int64_t emulated = 0;
    HT_EACH_CHILD(list, c)
    {
        struct ht_group_entry e = {0};
        struct ht_gpu_group group = {0};
        enum ht_status st = ht_config_load(c, ht_group_fields, err, &e);
        if (!st) st = ht_part_gpu(e.type, err, &group.gpu);
        if (st) return st;
        group.count = e.count;
        m->n_gpus += e.count;
        emulated += e.count * group.gpu.cores;
        if (m->n_gpus > HT_MAX_GPUS_PER_NODE)
            return ht_node_error(c, err, "brings the node to %lld devices; expected at most %d", (long long)m->n_gpus,
                                 HT_MAX_GPUS_PER_NODE);
        if (emulated > m->cpu.cores * m->cpu.sockets)
            return ht_node_error(c, err, "emulated devices take %lld cores; expected at most the node's %lld",
                                 (long long)emulated, (long long)(m->cpu.cores * m->cpu.sockets));
        HT_PUSH(m->groups, m->n_groups, cap, group);
    }
    return HT_OK;
}

static enum ht_status ht_read_ssds(const struct ht_node *map, struct ht_error *err, struct ht_machine *m)
{
    struct ht_array_entry e = {0};
    enum ht_status st = ht_config_load(map, ht_array_fields, err, &e);
    if (!st) st = ht_part_ssd(e.type, err, &m->ssd);
    if (!st && e.uplink) st = ht_part_link(e.uplink, err, &m->ssd_uplink);
    m->has_ssds = true;
    m->has_ssd_uplink = e.uplink != NULL;
    m->n_ssds = e.count;
    return st;
}

static enum ht_status ht_read_machine(const struct ht_node *node, struct ht_error *err, struct ht_machine *out,
                                      int64_t *count)
{
    struct ht_machine_entry e = {0};
    struct ht_machine *m = &e.machine;
    enum ht_status st = ht_config_load(node, ht_machine_fields, err, &e);
    if (!st) st = ht_part_cpu(e.cpu, err, &m->cpu);
    m->cpu.sockets = e.sockets;
    if (!st) st = ht_part_link(e.pcie, err, &m->pcie);
    if (!st && e.nvlink) st = ht_part_link(e.nvlink, err, &m->nvlink);
    if (!st && e.nic) st = ht_part_link(e.nic, err, &m->nic);
    if (!st && e.ssds) st = ht_read_ssds(e.ssds, err, m);
    if (!st) st = ht_read_gpus(e.gpus, err, m);
    m->has_nvlink = e.nvlink != NULL;
    if (!st && ht_machine_stages(m) && ht_machine_ring_rate(m) == 0)
        st = ht_node_error(e.pcie, err,
                           "lacks the rate between GPUs through host memory; expected a link, or a node, with "
                           "'through_host'");
    if (st) {
        free(m->groups);
        return st;
    }
    m->has_nic = e.nic != NULL;
    *out = *m;
    *count = e.count;
    return HT_OK;
}

static enum ht_status ht_cluster_read(const struct ht_node *map, const char *name, struct ht_error *err,
                                      struct ht_cluster **out)
{
    struct ht_cluster_entry e = {0};
    struct ht_cluster *c = NULL;
    size_t cap = 0;
    int32_t n_groups = 0;
    enum ht_status st = ht_config_load(map, ht_cluster_fields, err, &e);
    if (st) return st;
    if (name)
        snprintf(e.cluster.name, sizeof(e.cluster.name), "%s", name);
    else if (!e.cluster.name[0])
        return ht_node_error(map, err, "the key 'name' is missing; expected 'name: ...'");
    if (!e.nodes->n_children) return ht_node_error(e.nodes, err, "is empty; expected at least one node");

    c = HT_NEW(struct ht_cluster);
    *c = e.cluster;
    HT_EACH_CHILD(e.nodes, node)
    {
        struct ht_machine m;
        int64_t count = 0;
        st = ht_read_machine(node, err, &m, &count);
        if (st) goto out;
        if (c->n_nodes + count > HT_MAX_NODES) {
            free(m.groups);
            st = ht_node_error(node, err, "brings the cluster to %lld nodes; expected at most %d",
                               (long long)(c->n_nodes + count), HT_MAX_NODES);
            goto out;
        }
        m.group = n_groups++;
        for (int64_t i = 0; i < count; i++) {
            struct ht_machine copy = m;
            if (i > 0) {
                copy.groups = HT_NEW_ARRAY(struct ht_gpu_group, m.n_groups);
                memcpy(copy.groups, m.groups, sizeof(*m.groups) * (size_t)m.n_groups);
            }
            HT_PUSH(c->nodes, c->n_nodes, cap, copy);
            c->n_gpus += copy.n_gpus;
        }
    }
    if (c->n_nodes > 1) {
        HT_EACH_CHILD(e.nodes, node)
        {
            if (ht_node_find(node, "nic")) continue;
            st =
                ht_node_error(node, err, "the key 'nic' is missing; expected 'nic: ...' in a cluster of several nodes");
            goto out;
        }
    }
    if (e.between && (st = ht_between_read(e.between, n_groups, err, c))) goto out;
    *out = c;
    return HT_OK;
out:
    ht_cluster_destroy(c);
    return st;
}

enum ht_status ht_cluster_parse(const struct ht_doc *doc, struct ht_error *err, struct ht_cluster **out)
{
    return ht_cluster_read(ht_doc_root(doc), NULL, err, out);
}

enum ht_status ht_cluster_load(const char *name_or_path, struct ht_error *err, struct ht_cluster **out)
{
    struct ht_doc *doc = NULL;
    const struct ht_node *entry = NULL;
    enum ht_status st;
    if (strcmp(name_or_path, "local") == 0) return ht_cluster_local(1, 0, 0, err, out);
    if (ht_is_parts_list(name_or_path)) return ht_cluster_of_parts(name_or_path, err, out);
    if (ht_is_path(name_or_path)) {
        st = ht_doc_open(name_or_path, err, &doc);
        if (!st) st = ht_cluster_parse(doc, err, out);
    } else {
        st = ht_builtin_find(&ht_cluster_file, 1, "cluster", name_or_path, err, &doc, &entry);
        if (!st) st = ht_cluster_read(entry, entry->key, err, out);
    }
    ht_doc_destroy(doc);
    return st;
}

bool ht_hw_cluster_name(int64_t index, char buf[HT_NAME_BYTES])
{
    if (ht_builtin_name(&ht_cluster_file, 1, index, buf, HT_NAME_BYTES)) return true;
    if (index == 0 || !ht_builtin_name(&ht_cluster_file, 1, index - 1, buf, HT_NAME_BYTES)) return false;
    snprintf(buf, HT_NAME_BYTES, "local");
    return true;
}

/* ---- ranks ---- */

const struct ht_machine *ht_cluster_node_of(const struct ht_cluster *cluster, int64_t rank, int64_t *node)
{
    int64_t i = 0;
    while (rank >= cluster->nodes[i].n_gpus) rank -= cluster->nodes[i++].n_gpus;
    if (node) *node = i;
    return &cluster->nodes[i];
}

const struct ht_gpu *ht_cluster_gpu_of(const struct ht_cluster *cluster, int64_t rank)
{
    int64_t i = 0, g = 0;
    while (rank >= cluster->nodes[i].n_gpus) rank -= cluster->nodes[i++].n_gpus;
    while (rank >= cluster->nodes[i].groups[g].count) rank -= cluster->nodes[i].groups[g++].count;
    return &cluster->nodes[i].groups[g].gpu;
}

int64_t ht_machine_host_cores(const struct ht_machine *machine)
{
    int64_t cores = machine->cpu.cores * machine->cpu.sockets;
    for (int64_t g = 0; g < machine->n_groups; g++) cores -= machine->groups[g].count * machine->groups[g].gpu.cores;
    return cores > 0 ? cores : 1;
}

int64_t ht_machine_process_cores(const struct ht_machine *machine)
{
    int64_t cores = ht_machine_host_cores(machine);
    if (machine->domains > 1) cores /= machine->domains;
    return cores > 0 ? cores : 1;
}

int64_t ht_cluster_kinds(const struct ht_cluster *c, struct ht_device_kind *kinds)
{
    int64_t n = 0;
    for (int64_t rank = 0; rank < c->n_gpus; rank++) {
        const struct ht_gpu *gpu = ht_cluster_gpu_of(c, rank);
        int64_t k = 0;
        while (k < n && (strcmp(kinds[k].gpu->name, gpu->name) || kinds[k].gpu->memory_bytes != gpu->memory_bytes)) k++;
        if (k == n) kinds[n++] = (struct ht_device_kind){.gpu = gpu};
        kinds[k].count++;
    }
    return n;
}

const char *ht_cluster_devices(const struct ht_cluster *c, char *buf, size_t n)
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, c->n_gpus);
    int64_t n_kinds = ht_cluster_kinds(c, kinds);
    size_t used = 0;
    buf[0] = 0;
    for (int64_t k = 0; k < n_kinds && used < n; k++) {
        char memory[HT_QUANTITY_TEXT];
        used += (size_t)snprintf(buf + used, n - used, "%s%lld x %s (%s)", k ? " + " : "", (long long)kinds[k].count,
                                 kinds[k].gpu->name,
                                 ht_format_quantity(HT_BYTES, (double)kinds[k].gpu->memory_bytes, memory));
    }
    free(kinds);
    return buf;
}

enum ht_status ht_cluster_set_device_memory(struct ht_cluster *cluster, int64_t bytes, struct ht_error *err)
{
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < cluster->n_nodes; i++)
            for (int64_t g = 0; g < cluster->nodes[i].n_groups; g++) {
                struct ht_gpu *gpu = &cluster->nodes[i].groups[g].gpu;
                int64_t limit = gpu->cores ? cluster->nodes[i].ram_bytes : gpu->memory_bytes;
                char want[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
                if (bytes < 1 || bytes > limit)
                    return ht_fail(err, HT_BAD_INPUT, "device memory of %s does not fit %s '%s'; expected at most %s",
                                   ht_format_quantity(HT_BYTES, (double)bytes, want),
                                   gpu->cores ? "the node of" : "the", gpu->name,
                                   ht_format_quantity(HT_BYTES, (double)limit, have));
                if (pass) gpu->memory_bytes = bytes;
            }
    return HT_OK;
}

enum ht_status ht_cluster_set_host_memory(struct ht_cluster *cluster, int64_t bytes, struct ht_error *err)
{
    for (int64_t i = 0; i < cluster->n_nodes; i++) {
        char want[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
        if (cluster->local && bytes > cluster->nodes[i].ram_bytes)
            return ht_fail(err, HT_BAD_INPUT, "host memory of %s; expected at most the machine's %s",
                           ht_format_quantity(HT_BYTES, (double)bytes, want),
                           ht_format_quantity(HT_BYTES, (double)cluster->nodes[i].ram_bytes, have));
        cluster->nodes[i].ram_bytes = bytes;
    }
    return HT_OK;
}

void ht_cluster_drop_ssds(struct ht_cluster *cluster)
{
    for (int64_t i = 0; i < cluster->n_nodes; i++) {
        cluster->nodes[i].has_ssds = false;
        cluster->nodes[i].n_ssds = 0;
    }
}

enum ht_status ht_cluster_set_ssds(struct ht_cluster *cluster, int64_t n, struct ht_error *err)
{
    bool found = false;
    for (int64_t i = 0; i < cluster->n_nodes; i++) found |= cluster->nodes[i].has_ssds;
    if (!found)
        return ht_fail(err, HT_BAD_INPUT,
                       "cluster '%s' has no SSDs, so their number cannot be set; expected their model with it, for "
                       "example --ssd 990-pro-2tb:2",
                       cluster->name);
    if (n < 1 || n > HT_MAX_SSDS)
        return ht_fail(err, HT_BAD_INPUT, "%lld SSDs are out of range; expected 1 to %d", (long long)n, HT_MAX_SSDS);
    for (int64_t i = 0; i < cluster->n_nodes; i++)
        if (cluster->nodes[i].has_ssds) cluster->nodes[i].n_ssds = n;
    return HT_OK;
}

void ht_cluster_set_through_host(struct ht_cluster *cluster, double bytes_per_s)
{
    for (int64_t i = 0; i < cluster->n_nodes; i++) {
        struct ht_machine *m = &cluster->nodes[i];
        if (!ht_machine_stages(m)) continue;
        m->through_host_bytes_per_s = bytes_per_s;
        m->message_bytes_per_s = 0;
    }
}

void ht_cluster_scale_through_host(struct ht_cluster *cluster, double factor)
{
    for (int64_t i = 0; i < cluster->n_nodes; i++)
        if (ht_machine_assumes_ring_rate(&cluster->nodes[i])) cluster->nodes[i].pcie.through_host_bytes_per_s *= factor;
}

double ht_cluster_price_usd(const struct ht_cluster *cluster)
{
    double usd = 0;
    for (int64_t i = 0; i < cluster->n_nodes; i++) {
        const struct ht_machine *m = &cluster->nodes[i];
        if (m->price_usd == 0) return 0;
        usd += m->price_usd + (m->has_ssds ? (double)m->n_ssds * m->ssd.price_usd : 0);
        for (int64_t g = 0; g < m->n_groups; g++) usd += (double)m->groups[g].count * m->groups[g].gpu.price_usd;
    }
    return usd;
}

/* Returns the rate of all disks of a node, of `each`, as far as their uplink carries it. */
static double ht_array_rate(const struct ht_machine *m, double each)
{
    double all = pow((double)m->n_ssds, m->ssd.striping) * each * m->ssd.efficiency;
    return m->has_ssd_uplink ? fmin(all, ht_link_rate(&m->ssd_uplink)) : all;
}

double ht_machine_ssd_read_rate(const struct ht_machine *m)
{
    return ht_array_rate(m, m->ssd.read_bytes_per_s);
}

double ht_machine_ssd_write_rate(const struct ht_machine *m)
{
    return ht_array_rate(m, m->ssd.write_bytes_per_s);
}

enum ht_status ht_cluster_set_disks(struct ht_cluster *cluster, const char *kind, int64_t n, struct ht_error *err)
{
    struct ht_ssd ssd;
    enum ht_status status = ht_ssd_load(kind, err, &ssd);
    for (int64_t i = 0; i < cluster->n_nodes && status == HT_OK; i++) {
        cluster->nodes[i].ssd = ssd;
        cluster->nodes[i].n_ssds = n;
        cluster->nodes[i].has_ssds = true;
    }
    return status;
}

void ht_cluster_set_disk_rates(struct ht_cluster *cluster, struct ht_disk_rates rates)
{
    for (int64_t i = 0; i < cluster->n_nodes; i++) {
        struct ht_machine *m = &cluster->nodes[i];
        if (!m->has_ssds) continue;
        m->ssd.read_bytes_per_s = rates.read_bytes_per_s / (double)m->n_ssds;
        m->ssd.write_bytes_per_s = rates.write_bytes_per_s / (double)m->n_ssds;
        m->ssd.duplex = rates.duplex;
        m->ssd.efficiency = m->ssd.striping = 1;
    }
}

/* ---- this machine ---- */

enum ht_status ht_cluster_local(int64_t n_devices, int64_t device_cores, int64_t device_memory_bytes,
                                struct ht_error *err, struct ht_cluster **out)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t cores = online > 0 ? online : 1, ram = pages > 0 && page > 0 ? (int64_t)pages * page : INT64_C(1) << 30;
    if (n_devices < 1 || n_devices > HT_MAX_GPUS_PER_NODE)
        return ht_fail(err, HT_BAD_INPUT, "%lld emulated devices on one machine; expected 1 to %d",
                       (long long)n_devices, HT_MAX_GPUS_PER_NODE);
    if (device_cores == 0) device_cores = cores > n_devices ? (cores - 1) / n_devices : 1;
    if (device_cores < 1 || device_cores > cores)
        return ht_fail(err, HT_BAD_INPUT, "%lld cores for an emulated device; expected 1 to %lld",
                       (long long)device_cores, (long long)cores);
    if (device_memory_bytes == 0) device_memory_bytes = ram / 4 / n_devices;
    if (device_memory_bytes < 1 || device_memory_bytes > ram) {
        char want[HT_QUANTITY_TEXT], have[HT_QUANTITY_TEXT];
        return ht_fail(err, HT_BAD_INPUT, "%s for an emulated device; expected at most the machine's %s",
                       ht_format_quantity(HT_BYTES, (double)device_memory_bytes, want),
                       ht_format_quantity(HT_BYTES, (double)ram, have));
    }
    struct ht_cluster *c = HT_NEW(struct ht_cluster);
    struct ht_machine *m = c->nodes = HT_NEW(struct ht_machine);
    c->n_nodes = 1;
    m->groups = HT_NEW(struct ht_gpu_group);
    m->n_groups = 1;
    enum ht_status st = ht_cpu_load("local", err, &m->cpu);
    if (!st) st = ht_link_load("local-memcpy", err, &m->pcie);
    if (st) {
        ht_cluster_destroy(c);
        return st;
    }
    snprintf(c->name, sizeof(c->name), "local");
    c->local = true;
    snprintf(c->source, sizeof(c->source), "cores and memory as the operating system reports them; rates declared");
    /* cpus.yaml declares one core. DRAM stops growing with the cores at about eight of them. */
    double core_dram = m->cpu.dram_bytes_per_s;
    m->cpu.sockets = 1;
    m->cpu.cores = cores;
    m->cpu.dram_bytes_per_s = core_dram * fmin((double)cores, 8);
    m->ram_bytes = ram;
    m->gpus_per_switch = 1;
    m->domains = 1;
    m->peer = true;
    m->n_gpus = c->n_gpus = m->groups[0].count = n_devices;

    struct ht_gpu *gpu = &m->groups[0].gpu;
    snprintf(gpu->name, sizeof(gpu->name), "cpu-%lldcore", (long long)device_cores);
    snprintf(gpu->source, sizeof(gpu->source), "%s", m->cpu.source);
    gpu->memory_bytes = device_memory_bytes;
    gpu->cores = device_cores;
    gpu->f32_flops_per_s = (double)device_cores * m->cpu.core_flops_per_s;
    gpu->f16_flops_per_s = gpu->bf16_flops_per_s = gpu->f32_flops_per_s;
    gpu->memory_bytes_per_s = fmin((double)device_cores * core_dram, m->cpu.dram_bytes_per_s);
    gpu->gemm_efficiency = m->cpu.gemm_efficiency;
    gpu->memory_efficiency = m->cpu.dram_efficiency;
    gpu->launch_ns = 1000;
    *out = c;
    return HT_OK;
}

enum ht_status ht_cluster_local_gpus(const struct ht_gpu *gpus, int64_t n, struct ht_error *err,
                                     struct ht_cluster **out)
{
    struct ht_link link;
    enum ht_status status = ht_link_load("pcie5-x16", err, &link);
    if (status == HT_OK) status = ht_cluster_local(n, 1, 0, err, out);
    if (status != HT_OK) return status;
    struct ht_machine *m = &(*out)->nodes[0];
    free(m->groups);
    m->groups = HT_NEW_ARRAY(struct ht_gpu_group, n);
    m->n_groups = 0;
    for (int64_t i = 0; i < n; i++) {
        bool another = i == 0 || strcmp(gpus[i].name, gpus[i - 1].name) != 0;
        if (another) m->groups[m->n_groups++].gpu = gpus[i];
        m->groups[m->n_groups - 1].count++;
    }
    m->pcie = link;
    m->peer = n == 1;
    return HT_OK;
}
