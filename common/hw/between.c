/*
 * Networks whose speed depends on which nodes talk, and links whose speed depends on how much is sent.
 *
 *     between:
 *       - {groups: [0, 2], link: ethernet-1g}     nodes of the cluster's first and third entry
 *       - {groups: [1, 1], link: ..}              nodes of its second entry, among themselves
 *
 * Two nodes whose groups no entry names are connected by their NICs.
 */
#include <math.h>

#include "common/base/array.h"
#include "common/hw/parts.h"

struct ht_between_entry {
    const struct ht_node *groups, *link;
};

static const struct ht_field ht_between_fields[] = {
    {.key = "groups",
     .type = HT_FIELD_LIST_NODE,
     .offset = offsetof(struct ht_between_entry, groups),
     .required = true},
    {.key = "link", .type = HT_FIELD_ANY_NODE, .offset = offsetof(struct ht_between_entry, link), .required = true},
    {0},
};

static enum ht_status ht_read_groups(const struct ht_node *list, int32_t n_groups, struct ht_error *err, int32_t out[2])
{
    if (list->n_children != 2)
        return ht_node_error(list, err, "has %u entries; expected two groups, such as [0, 1]", list->n_children);
    int n = 0;
    HT_EACH_CHILD(list, c)
    {
        int64_t group;
        enum ht_status st = ht_node_int(c, 0, n_groups - 1, err, &group);
        if (st) return st;
        out[n++] = (int32_t)group;
    }
    return HT_OK;
}

enum ht_status ht_between_read(const struct ht_node *list, int32_t n_groups, struct ht_error *err,
                               struct ht_cluster *cluster)
{
    size_t cap = 0;
    HT_EACH_CHILD(list, node)
    {
        struct ht_between_entry e = {0};
        struct ht_between between = {0};
        enum ht_status st = ht_config_load(node, ht_between_fields, err, &e);
        if (!st) st = ht_read_groups(e.groups, n_groups, err, between.groups);
        if (!st) st = ht_part_link(e.link, err, &between.link);
        if (st) return st;
        HT_PUSH(cluster->between, cluster->n_between, cap, between);
    }
    return HT_OK;
}

int32_t ht_cluster_between(const struct ht_cluster *cluster, int64_t node, int64_t other)
{
    int32_t a = cluster->nodes[node].group, b = cluster->nodes[other].group;
    for (int32_t i = 0; i < cluster->n_between; i++) {
        const int32_t *groups = cluster->between[i].groups;
        if ((groups[0] == a && groups[1] == b) || (groups[0] == b && groups[1] == a)) return i;
    }
    return -1;
}

double ht_link_rate_at(const struct ht_link *link, double bytes)
{
    const struct ht_link_size *s = link->sizes;
    int64_t n = link->n_sizes, i = 0;
    if (!n) return ht_link_rate(link);
    while (i < n && bytes > (double)s[i].bytes) i++;
    if (i == 0 || i == n) return s[i == n ? n - 1 : 0].bytes_per_s;
    double low = log((double)s[i - 1].bytes), high = log((double)s[i].bytes);
    double share = (log(bytes) - low) / (high - low);
    return s[i - 1].bytes_per_s + share * (s[i].bytes_per_s - s[i - 1].bytes_per_s);
}
