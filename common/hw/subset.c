/* Clusters made of others: copies, and a part of the devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/hw/hw.h"

struct ht_cluster *ht_cluster_copy(const struct ht_cluster *c)
{
    struct ht_cluster *copy = HT_NEW(struct ht_cluster);
    *copy = *c;
    copy->nodes = HT_NEW_ARRAY(struct ht_machine, c->n_nodes);
    memcpy(copy->nodes, c->nodes, sizeof(*c->nodes) * (size_t)c->n_nodes);
    for (int64_t i = 0; i < c->n_nodes; i++) {
        struct ht_machine *m = &copy->nodes[i];
        m->groups = HT_NEW_ARRAY(struct ht_gpu_group, m->n_groups);
        memcpy(m->groups, c->nodes[i].groups, sizeof(*m->groups) * (size_t)m->n_groups);
    }
    copy->between = HT_NEW_ARRAY(struct ht_between, c->n_between);
    if (c->n_between) memcpy(copy->between, c->between, sizeof(*c->between) * (size_t)c->n_between);
    return copy;
}

/* Leaves each group of devices `count` many (counts[kind] of its kind, which it takes off), and drops empty groups and
   nodes. */
static void leave(struct ht_cluster *c, const struct ht_device_kind *kinds, int64_t n_kinds, int64_t *counts)
{
    int64_t n_nodes = 0;
    c->n_gpus = 0;
    for (int64_t i = 0; i < c->n_nodes; i++) {
        struct ht_machine m = c->nodes[i];
        int64_t n_groups = 0;
        m.n_gpus = 0;
        for (int64_t g = 0; g < m.n_groups; g++) {
            int64_t k = 0;
            while (k < n_kinds && strcmp(kinds[k].gpu->name, m.groups[g].gpu.name) != 0) k++;
            struct ht_gpu_group group = m.groups[g];
            if (group.count > counts[k]) group.count = counts[k];
            counts[k] -= group.count;
            if (!group.count) continue;
            m.n_gpus += group.count;
            m.groups[n_groups++] = group;
        }
        m.n_groups = n_groups;
        c->n_gpus += m.n_gpus;
        if (m.n_gpus)
            c->nodes[n_nodes++] = m;
        else
            free(m.groups);
    }
    c->n_nodes = n_nodes;
}

enum ht_status ht_cluster_keep(struct ht_cluster *c, const char *devices, struct ht_error *err)
{
    struct ht_cluster *whole = ht_cluster_copy(c);
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, c->n_gpus);
    int64_t n = ht_cluster_kinds(whole, kinds), *counts = HT_NEW_ARRAY(int64_t, n), kept = 0;
    enum ht_status status = HT_OK;
    for (const char *word = devices, *end; status == HT_OK && *word; word = *end ? end + 1 : end) {
        char name[HT_NAME_BYTES], *count;
        end = word + strcspn(word, ",");
        snprintf(name, sizeof(name), "%.*s", (int)(end - word), word);
        if ((count = strchr(name, ':'))) *count++ = '\0';
        int64_t k = 0, most;
        while (k < n && strcmp(kinds[k].gpu->name, name) != 0) k++;
        if (k == n) {
            char have[256];
            status = ht_fail(err, HT_BAD_INPUT, "the cluster has no '%s'; it has %s", name,
                             ht_cluster_devices(c, have, sizeof(have)));
            break;
        }
        counts[k] = most = kinds[k].count;
        if (count) status = ht_flag_count(name, count, 1, most, err, &counts[k]);
        kept += counts[k];
    }
    if (status == HT_OK && !kept) status = ht_fail(err, HT_BAD_INPUT, "the list of devices to use is empty");
    if (status == HT_OK) leave(c, kinds, n, counts);
    ht_cluster_destroy(whole);
    free(kinds);
    free(counts);
    return status;
}

void ht_cluster_keep_first(struct ht_cluster *c, int64_t n)
{
    int64_t n_nodes = 0;
    c->n_gpus = n;
    for (int64_t i = 0; i < c->n_nodes; i++) {
        struct ht_machine *m = &c->nodes[i];
        m->n_gpus = 0;
        for (int64_t g = 0; g < m->n_groups; g++) {
            if (m->groups[g].count > n) m->groups[g].count = n;
            n -= m->groups[g].count;
            m->n_gpus += m->groups[g].count;
        }
        while (m->n_groups > 1 && !m->groups[m->n_groups - 1].count) m->n_groups--;
        if (m->n_gpus)
            c->nodes[n_nodes++] = *m;
        else
            free(m->groups);
    }
    c->n_nodes = n_nodes;
}

/* Reads the next number of a list, which must be larger than `last`; moves *at behind it. */
static enum ht_status next_node(const char **at, int64_t last, int64_t n_nodes, struct ht_error *err, int64_t *out)
{
    char word[24];
    size_t n = strcspn(*at, ",");
    snprintf(word, sizeof(word), "%.*s", (int)n, *at);
    enum ht_status status = ht_flag_count("--only-nodes", word, 0, n_nodes - 1, err, out);
    if (status == HT_OK && *out <= last)
        status = ht_fail(err, HT_BAD_INPUT, "--only-nodes: node %lld comes after node %lld; expected ascending numbers",
                         (long long)*out, (long long)last);
    *at += n;
    if (**at) (*at)++;
    return status;
}

enum ht_status ht_cluster_keep_nodes(struct ht_cluster *c, const char *nodes, struct ht_error *err)
{
    bool *kept = HT_NEW_ARRAY(bool, c->n_nodes);
    int64_t number = -1, n = 0;
    enum ht_status status = HT_OK;
    for (const char *at = nodes; status == HT_OK && (*at || number < 0);) {
        status = next_node(&at, number, c->n_nodes, err, &number);
        if (status == HT_OK) kept[number] = true;
    }
    for (int64_t i = 0; status == HT_OK && i < c->n_nodes; i++) {
        if (kept[i])
            c->nodes[n++] = c->nodes[i];
        else
            c->n_gpus -= c->nodes[i].n_gpus, free(c->nodes[i].groups);
    }
    if (status == HT_OK) c->n_nodes = n;
    free(kept);
    return status;
}

enum ht_status ht_cluster_divide(struct ht_cluster *c, int64_t n, struct ht_error *err)
{
    struct ht_machine *whole = &c->nodes[0], part = *whole;
    struct ht_gpu_group *group = &whole->groups[0];
    if (n < 1 || group->count % n)
        return ht_fail(err, HT_BAD_INPUT, "%lld devices cannot be divided into %lld nodes; expected a multiple",
                       (long long)group->count, (long long)n);
    int64_t used = group->count / n * group->gpu.cores;
    part.n_gpus = group->count / n;
    part.cpu.cores = whole->cpu.cores / n > used ? whole->cpu.cores / n : used;
    part.cpu.dram_bytes_per_s /= (double)n;
    part.ram_bytes /= n;
    part.nic = part.pcie;
    part.has_nic = n > 1;
    struct ht_gpu_group share = *group;
    share.count = part.n_gpus;
    free(whole->groups);
    free(c->nodes);
    c->nodes = HT_NEW_ARRAY(struct ht_machine, n);
    c->n_nodes = n;
    for (int64_t i = 0; i < n; i++) {
        c->nodes[i] = part;
        c->nodes[i].groups = HT_NEW(struct ht_gpu_group);
        c->nodes[i].groups[0] = share;
    }
    return HT_OK;
}
