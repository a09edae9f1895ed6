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
