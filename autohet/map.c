/*
 * Mapping to nodes and stages: Sec. III-C, Algorithm 1, line 10.
 *
 *     for the types by rising power, weakest first, since early stages hold the most activations and do the least:
 *         while (i) every group has an unassigned unit of the type and (ii) a node has one free for every group:
 *             they become the next stage of every group, so that its gradients' rings stay inside the node
 *     what remains, group by group, weakest first: the next stages, types by rising power, nodes in their order
 *
 * The first part ends as soon as a type fails (i) or (ii) with units left. The paper says "assigned in sequence" of what
 * remains; the order of groups, of types and of nodes is ours. tests/autohet/test_map.c works an example out by hand.
 */
#include "autohet/planner.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

struct mapping {
    const struct autohet_grouping *groups;
    int32_t n_nodes, n_types;
    const int32_t *node_units;
    int32_t *used;   /* [n_nodes * n_types] */
    int32_t *left;   /* [n_groups * n_types] */
    int32_t *first;  /* [n_groups], of the group's places */
    int32_t *stages; /* [n_groups], assigned so far */
    struct autohet_place *places;
};

static int32_t free_units(const struct mapping *m, int32_t node, int32_t type)
{
    return m->node_units[node * m->n_types + type] - m->used[node * m->n_types + type];
}

/* Makes the node's next unit of a type the group's next stage. */
static void assign(struct mapping *m, int32_t group, int32_t type, int32_t node)
{
    m->places[m->first[group] + m->stages[group]++] =
        (struct autohet_place){.type = type, .node = node, .unit = m->used[node * m->n_types + type]++};
    m->left[group * m->n_types + type]--;
}

/* Condition (i) for one type; *any: a group has a unit of it left. */
static bool all_have(const struct mapping *m, int32_t type, bool *any)
{
    bool all = true;
    *any = false;
    for (int32_t j = 0; j < m->groups->n_groups; j++) {
        all &= m->left[j * m->n_types + type] > 0;
        *any |= m->left[j * m->n_types + type] > 0;
    }
    return all;
}

/* Returns the first node with a unit of the type for each group, condition (ii); -1: none. */
static int32_t shared_node(const struct mapping *m, int32_t type)
{
    for (int32_t node = 0; node < m->n_nodes; node++)
        if (free_units(m, node, type) >= m->groups->n_groups) return node;
    return -1;
}

static void assign_common_stages(struct mapping *m)
{
    for (int32_t type = 0; type < m->n_types; type++) {
        bool any;
        int32_t node;
        while (all_have(m, type, &any) && (node = shared_node(m, type)) >= 0)
            for (int32_t j = 0; j < m->groups->n_groups; j++) assign(m, j, type, node);
        if (any) return;
    }
}

static void assign_rest(struct mapping *m, int32_t group)
{
    for (int32_t type = 0; type < m->n_types; type++)
        for (int32_t node = 0; m->left[group * m->n_types + type] > 0;)
            if (free_units(m, node, type) > 0)
                assign(m, group, type, node);
            else
                node++;
}

/* Sorts the groups by their units' power; of equal ones the first comes first. */
static void sort_groups(const struct autohet_grouping *g, const double *power, int32_t *order)
{
    double *sum = HT_NEW_ARRAY(double, g->n_groups);
    for (int32_t j = 0; j < g->n_groups; j++) {
        int32_t i = j;
        for (int32_t t = 0; t < g->n_types; t++) sum[j] += autohet_count(g, j, t) * power[t];
        for (; i > 0 && sum[order[i - 1]] > sum[j]; i--) order[i] = order[i - 1];
        order[i] = j;
    }
    free(sum);
}

static void init(struct mapping *m, const struct autohet_grouping *groups, int32_t n_nodes, const int32_t *node_units,
                 struct autohet_place *places)
{
    int32_t n = groups->n_groups, types = groups->n_types;
    *m = (struct mapping){groups, n_nodes, types, node_units, .places = places};
    m->used = HT_NEW_ARRAY(int32_t, n_nodes * types);
    m->left = HT_NEW_ARRAY(int32_t, n * types);
    m->first = HT_NEW_ARRAY(int32_t, n + 1);
    m->stages = HT_NEW_ARRAY(int32_t, n);
    memcpy(m->left, groups->counts, (size_t)(n * types) * sizeof(*m->left));
    for (int32_t j = 0; j < n; j++) {
        m->first[j + 1] = m->first[j];
        for (int32_t t = 0; t < types; t++) m->first[j + 1] += autohet_count(groups, j, t);
    }
}

static void end(struct mapping *m)
{
    free(m->used);
    free(m->left);
    free(m->first);
    free(m->stages);
}

void autohet_map(const struct autohet_grouping *groups, const double *power, int32_t n_nodes, const int32_t *node_units,
                 struct autohet_place *places)
{
    struct mapping m;
    int32_t *order = HT_NEW_ARRAY(int32_t, groups->n_groups);
    init(&m, groups, n_nodes, node_units, places);
    assign_common_stages(&m);
    sort_groups(groups, power, order);
    for (int32_t i = 0; i < groups->n_groups; i++) assign_rest(&m, order[i]);
    end(&m);
    free(order);
}

void autohet_map_in_order(const struct autohet_grouping *groups, int32_t n_nodes, const int32_t *node_units,
                          struct autohet_place *places)
{
    struct mapping m;
    init(&m, groups, n_nodes, node_units, places);
    for (int32_t j = 0; j < groups->n_groups; j++)
        for (int32_t node = 0; node < n_nodes; node++)
            for (int32_t type = 0; type < m.n_types; type++)
                while (m.left[j * m.n_types + type] > 0 && free_units(&m, node, type) > 0) assign(&m, j, type, node);
    end(&m);
}
