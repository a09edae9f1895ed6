#include "harness/elastic/policy_plan.h"

#include "common/base/array.h"
#include "harness/run/job.h"

#include <stdlib.h>
#include <string.h>

enum ht_status ht_policy_plan(const struct ht_policy *policy, struct ht_planbook *book, struct ht_fleet fleet,
                              const struct ht_fleet *first, struct ht_error *err, const struct ht_planned **out)
{
    struct ht_fleet parts[HT_FLEET_PARTS];
    const struct ht_planned *p;
    *out = NULL;
    for (bool whole = true; ht_fleet_nodes(&fleet) && !*out; whole = false) {
        size_t n = ht_policy_parts(policy, &fleet, first, parts);
        if (!whole || !policy->leaves_idle) n = n ? 1 : 0;
        for (size_t i = 0; i < n; i++) {
            enum ht_status status = ht_planbook_get(book, policy->system, &parts[i], err, &p);
            if (status) return status;
            if (p->fits && (!*out || p->iteration_ns < (*out)->iteration_ns)) *out = p;
        }
        if (policy->keeps_shape && first) break;
        int last = HT_FLEET_KINDS - 1;
        while (!fleet.count[last]) last--;
        fleet.count[last]--;
    }
    return HT_OK;
}

struct ht_fleet ht_fleet_first(const struct ht_fleet *fleet, int32_t nodes)
{
    struct ht_fleet first = {{0}};
    for (int k = 0; k < HT_FLEET_KINDS; k++) {
        first.count[k] = fleet->count[k] < nodes ? fleet->count[k] : nodes;
        nodes -= first.count[k];
    }
    return first;
}

/* ---- numbered nodes --------------------------------------------------------------------------------------------- */

struct ht_policy_nodes {
    const struct ht_policy *policy;
    struct ht_options options; /* the training's, without a cluster */
    struct ht_cluster *kinds;
    struct ht_planbook *book;
    int32_t *kind_of; /* [n_nodes] */
    int32_t n_nodes;
    struct ht_fleet first; /* of a policy that keeps its shape */
};

struct ht_cluster *ht_cluster_one_of_each(const struct ht_cluster *cluster)
{
    struct ht_cluster *kinds = ht_cluster_copy(cluster);
    struct ht_error ignored;
    char list[HT_MEMBER_LIST] = "";
    for (int32_t i = 0; i < cluster->n_nodes; i++)
        if (!i || cluster->nodes[i].group != cluster->nodes[i - 1].group) ht_list_add(list, cluster->nodes[i].number);
    ht_cluster_keep_nodes(kinds, list, &ignored);
    return kinds;
}

/* Numbers the kinds of a cluster's nodes, entry after entry of its file. */
static void take_cluster(struct ht_policy_nodes *n, const struct ht_cluster *cluster, int32_t keeps)
{
    struct ht_fleet all = {{0}};
    n->kinds = ht_cluster_one_of_each(cluster);
    n->n_nodes = (int32_t)cluster->n_nodes;
    n->kind_of = HT_NEW_ARRAY(int32_t, n->n_nodes);
    for (int32_t i = 0, kind = 0; i < n->n_nodes; i++) {
        kind += i && cluster->nodes[i].group != cluster->nodes[i - 1].group;
        n->kind_of[i] = kind;
        if (kind < HT_FLEET_KINDS) all.count[kind]++;
    }
    n->first = ht_fleet_first(&all, keeps);
}

enum ht_status ht_policy_nodes_create(const struct ht_options *options, const struct ht_policy *policy, int32_t keeps,
                                      struct ht_error *err, struct ht_policy_nodes **out)
{
    struct ht_scenario_request request = ht_job_request(options, NULL);
    struct ht_scenario scenario;
    *out = NULL;
    request.only_nodes = NULL;
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status) return status;
    struct ht_policy_nodes *n = HT_NEW(struct ht_policy_nodes);
    n->policy = policy;
    n->options = *options;
    n->options.request.nodes = n->options.request.ranks = 0;
    n->options.request.only_nodes = NULL;
    n->options.plan.progress = false;
    take_cluster(n, scenario.cluster, keeps);
    ht_scenario_free(&scenario);
    status = ht_planbook_create(&n->options, n->kinds, NULL, err, &n->book);
    if (status)
        ht_policy_nodes_destroy(n);
    else
        *out = n;
    return status;
}

void ht_policy_nodes_destroy(struct ht_policy_nodes *n)
{
    if (!n) return;
    ht_planbook_destroy(n->book);
    ht_cluster_destroy(n->kinds);
    free(n->kind_of);
    free(n);
}

static struct ht_fleet fleet_of(const struct ht_policy_nodes *n, const char *list)
{
    struct ht_fleet f = {{0}};
    for (int32_t i = 0, count = ht_list_count(list); i < count; i++) f.count[n->kind_of[ht_list_at(list, i)]]++;
    return f;
}

/* Writes the nodes of a plan: those that run now first, then others by number; in ascending order. */
static void assign(const struct ht_policy_nodes *n, const struct ht_fleet *fleet, const char *there,
                   const char *running, char use[HT_MEMBER_LIST])
{
    bool *taken = HT_NEW_ARRAY(bool, n->n_nodes);
    struct ht_fleet left = *fleet;
    for (int others = 0; others < 2; others++)
        for (int32_t i = 0; i < n->n_nodes; i++) {
            bool can = ht_list_has(there, i) && !taken[i] && (others || ht_list_has(running, i));
            if (!can || !left.count[n->kind_of[i]]) continue;
            left.count[n->kind_of[i]]--;
            taken[i] = true;
        }
    use[0] = '\0';
    for (int32_t i = 0; i < n->n_nodes; i++)
        if (taken[i]) ht_list_add(use, i);
    free(taken);
}

/* Returns true if all of the running nodes are there, and no other plan is faster than theirs. */
static bool stays(struct ht_policy_nodes *n, const char *there, const char *running, const struct ht_planned *best)
{
    const struct ht_planned *now;
    struct ht_error ignored;
    struct ht_fleet fleet = fleet_of(n, running);
    if (!*running || !n->policy->leaves_idle) return false;
    for (int32_t i = 0, count = ht_list_count(running); i < count; i++)
        if (!ht_list_has(there, ht_list_at(running, i))) return false;
    return ht_planbook_get(n->book, n->policy->system, &fleet, &ignored, &now) == HT_OK && now->fits &&
           now->iteration_ns <= best->iteration_ns;
}

enum ht_status ht_policy_nodes_choose(struct ht_policy_nodes *n, const char *there, const char *running,
                                      struct ht_error *err, char use[HT_MEMBER_LIST])
{
    const struct ht_planned *best;
    enum ht_status status =
        ht_policy_plan(n->policy, n->book, fleet_of(n, there), n->policy->keeps_shape ? &n->first : NULL, err, &best);
    if (status == HT_OK && !best)
        status = ht_fail(err, HT_INFEASIBLE, "policy '%s' has no plan for nodes %.200s", n->policy->name, there);
    if (status) return status;
    if (stays(n, there, running, best))
        snprintf(use, HT_MEMBER_LIST, "%s", running);
    else
        assign(n, &best->fleet, there, running, use);
    return HT_OK;
}
