/* Profiles of either kind, and the costs of a whole schedule. */
#include "common/profile/profile.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/profile/internal.h"
#include "common/schedule/fold.h"
#include "common/schedule/residency.h"

struct ht_profile *ht_profile_create(const char *name, const char *source)
{
    struct ht_profile *p = HT_NEW(struct ht_profile);
    struct ht_part part = {0};
    snprintf(part.name, sizeof(part.name), "%s", name);
    snprintf(part.source, sizeof(part.source), "%s", source);
    HT_PUSH(p->parts, p->n_parts, p->parts_cap, part);
    ht_profile_rename(p);
    return p;
}

void ht_profile_label(struct ht_profile *p, const char *device, const char *host)
{
    struct ht_part *part = &p->parts[0];
    snprintf(part->device, sizeof(part->device), "%s", device);
    snprintf(part->host, sizeof(part->host), "%s", host);
}

struct ht_profile *ht_profile_modelled(const struct ht_cluster *cluster)
{
    struct ht_profile *p = HT_NEW(struct ht_profile);
    p->name = ht_strdup(cluster->name);
    p->source = ht_strdup(cluster->source);
    p->cluster = cluster;
    p->modelled = true;
    struct ht_error err;
    enum ht_status status = ht_software_load("fused", &err, &p->software);
    assert(status == HT_OK); /* the tree's own file */
    (void)status;
    return p;
}

void ht_profile_set_software(struct ht_profile *p, const struct ht_software *software)
{
    p->software = *software;
}

void ht_part_free(struct ht_part *part)
{
    for (size_t i = 0; i < part->n_costs; i++) free(part->costs[i].key);
    free(part->costs);
    free(part->device_at);
    free(part->host_at);
}

void ht_profile_destroy(struct ht_profile *p)
{
    if (!p) return;
    for (int32_t i = 0; i < p->n_parts; i++) ht_part_free(&p->parts[i]);
    free(p->parts);
    free(p->name);
    free(p->source);
    free(p);
}

void ht_append(char **text, const char *separator, const char *more)
{
    size_t n = *text ? strlen(*text) + strlen(separator) : 0, all = n + strlen(more) + 1;
    *text = ht_realloc(*text, all);
    if (n) memcpy(*text + n - strlen(separator), separator, strlen(separator));
    memcpy(*text + n, more, strlen(more) + 1);
}

void ht_profile_rename(struct ht_profile *p)
{
    free(p->name);
    free(p->source);
    p->name = p->source = NULL;
    for (int32_t i = 0; i < p->n_parts; i++) {
        ht_append(&p->name, " + ", p->parts[i].name);
        ht_append(&p->source, "; ", p->parts[i].source);
    }
}

const char *ht_profile_name(const struct ht_profile *p)
{
    return p->name;
}

const char *ht_profile_source(const struct ht_profile *p)
{
    return p->source;
}

/* ---- one work ---- */

static bool ht_on_cluster(const struct ht_profile *p, int64_t rank)
{
    return p->cluster && rank >= 0 && rank < p->cluster->n_gpus;
}

/* Checks that a modelled profile is asked for a rank of its cluster. */
static enum ht_status ht_check_rank(const struct ht_profile *p, int64_t rank, struct ht_error *err)
{
    if (!p->modelled || ht_on_cluster(p, rank)) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "rank %lld is not on cluster '%s'; expected 0 to %lld", (long long)rank,
                   p->cluster->name, (long long)p->cluster->n_gpus - 1);
}

static struct ht_rank_kind ht_kind_of(const struct ht_profile *p, int64_t rank)
{
    if (!ht_on_cluster(p, rank)) return (struct ht_rank_kind){0};
    return (struct ht_rank_kind){ht_cluster_gpu_of(p->cluster, rank)->name,
                                 ht_cluster_node_of(p->cluster, rank, NULL)->cpu.name};
}

/* Returns true if the formulas have the cost. */
static bool ht_is_modelled(const struct ht_profile *p, int64_t rank, const struct ht_work *work)
{
    bool message = work->kind >= HT_OP_ALL_GATHER && work->kind <= HT_OP_RECEIVE && !work->custom[0];
    return p->modelled || (p->messages_modelled && message && ht_on_cluster(p, rank));
}

/* ---- how far groups reach ---- */

/* Widens a group's reach from a rank on `node` by a member on `other`. The slower of two connections counts. */
static void ht_reach_add(const struct ht_cluster *c, int32_t node, int32_t other, struct ht_reach *reach)
{
    if (other == node) {
        reach->shares_node = true;
        return;
    }
    int32_t between = c->n_between ? ht_cluster_between(c, node, other) : -1;
    bool slower = between >= 0 && (reach->between < 0 || ht_link_rate(&c->between[between].link) <
                                                             ht_link_rate(&c->between[reach->between].link));
    reach->crosses = true;
    if (slower) reach->between = between;
}

/* Counts the nodes of group [first, end), of all copies that it joins. seen[node] is the first op + 1 of the last group
   on the node. */
static int32_t ht_count_nodes(const struct ht_schedule *s, int32_t first, int32_t end, int32_t *seen)
{
    int32_t n = 0;
    struct ht_joined copies = ht_joined(s, first);
    for (int32_t i = first; i < end; i++)
        for (int32_t c = 0; c < copies.n; c++) {
            int32_t *of_node = &seen[ht_fold_node(s, i, c * copies.step)];
            n += *of_node != first + 1;
            *of_node = first + 1;
        }
    return n;
}

/* Returns how far the op's group [first, end) reaches, which is on so many nodes. */
static struct ht_reach ht_reach_of(const struct ht_cluster *c, const struct ht_schedule *s, int32_t op, int32_t first,
                                   int32_t end, int32_t nodes)
{
    struct ht_reach reach = {.nodes = nodes, .between = -1};
    int32_t node = s->rank_node[ht_op_rank(s, op)];
    struct ht_joined copies = ht_joined(s, op);
    for (int32_t i = first; i < end; i++)
        for (int32_t k = 0; k < copies.n; k++)
            if (i != op || k) ht_reach_add(c, node, ht_fold_node(s, i, k * copies.step), &reach);
    return reach;
}

/* Returns how far a group of so many members reaches, for all that a planner knows: all of the cluster, if one node has
   not enough. */
static struct ht_reach ht_reach_of_members(const struct ht_cluster *c, int64_t rank, int32_t members)
{
    struct ht_reach reach = {.nodes = 1, .between = -1};
    int64_t node, gpus = ht_cluster_node_of(c, rank, &node)->n_gpus;
    reach.shares_node = gpus > 1;
    reach.crosses = members > gpus;
    if (reach.crosses) reach.nodes = (members + (int32_t)gpus - 1) / (int32_t)gpus;
    for (int64_t other = 0; other < c->n_nodes && members > gpus; other++)
        if (other != node) ht_reach_add(c, (int32_t)node, (int32_t)other, &reach);
    return reach;
}

/* Number the reaches of groups on at most so many nodes. */
static int32_t ht_n_reaches(const struct ht_cluster *c, int32_t nodes)
{
    return 4 * ((c ? (int32_t)c->n_between : 0) + 1) * (nodes + 1);
}
static int32_t ht_reach_index(struct ht_reach reach, int32_t nodes)
{
    int32_t at = reach.nodes + (nodes + 1) * (reach.between + 1);
    return 4 * at + 2 * reach.shares_node + reach.crosses;
}

/* ---- costs ---- */

/* Sets *ns to the cost on a rank of the cluster, if there is a cluster. */
static enum ht_status ht_rank_cost(const struct ht_profile *p, int64_t rank, struct ht_reach reach,
                                   const struct ht_work *work, struct ht_error *err, int64_t *ns)
{
    if (ht_is_modelled(p, rank, work)) return ht_modelled_cost(p->cluster, &p->software, rank, reach, work, err, ns);
    return ht_listed_cost(p, ht_kind_of(p, rank), work, err, ns);
}

enum ht_status ht_profile_cost(const struct ht_profile *p, int64_t rank, const struct ht_work *work,
                               struct ht_error *err, int64_t *ns)
{
    enum ht_status st = ht_check_rank(p, rank, err);
    if (st) return st;
    int32_t members = work->tp > work->ranks ? work->tp : work->ranks;
    struct ht_reach reach = {.between = -1};
    if (ht_on_cluster(p, rank)) reach = ht_reach_of_members(p->cluster, rank, members);
    return ht_rank_cost(p, rank, reach, work, err, ns);
}

/* ---- kinds of ranks ---- */

bool ht_profile_same_kind(const struct ht_cluster *c, int64_t a, int64_t b)
{
    const struct ht_machine *m = ht_cluster_node_of(c, a, NULL), *n = ht_cluster_node_of(c, b, NULL);
    if (memcmp(ht_cluster_gpu_of(c, a), ht_cluster_gpu_of(c, b), sizeof(struct ht_gpu)) != 0) return false;
    if (m == n) return true;
    if (c->n_between && m->group != n->group) return false;
    return m->n_gpus == n->n_gpus && ht_machine_host_cores(m) == ht_machine_host_cores(n) && m->domains == n->domains &&
           m->peer == n->peer && m->through_host_bytes_per_s == n->through_host_bytes_per_s &&
           m->message_bytes_per_s == n->message_bytes_per_s && memcmp(&m->cpu, &n->cpu, sizeof(m->cpu)) == 0 &&
           memcmp(&m->pcie, &n->pcie, sizeof(m->pcie)) == 0 && m->has_nvlink == n->has_nvlink &&
           memcmp(&m->nvlink, &n->nvlink, sizeof(m->nvlink)) == 0 && m->has_nic == n->has_nic &&
           memcmp(&m->nic, &n->nic, sizeof(m->nic)) == 0 && m->has_ssds == n->has_ssds && m->n_ssds == n->n_ssds &&
           memcmp(&m->ssd, &n->ssd, sizeof(m->ssd)) == 0 && m->has_ssd_uplink == n->has_ssd_uplink &&
           memcmp(&m->ssd_uplink, &n->ssd_uplink, sizeof(m->ssd_uplink)) == 0;
}

enum ht_status ht_profile_slowest_cost(const struct ht_profile *p, const struct ht_work *work, struct ht_error *err,
                                       int64_t *ns)
{
    int64_t ranks = p->cluster ? p->cluster->n_gpus : 1, most = 0, cost;
    for (int64_t rank = 0; rank < ranks; rank++) {
        if (rank && ht_profile_same_kind(p->cluster, rank - 1, rank)) continue;
        enum ht_status st = ht_profile_cost(p, rank, work, err, &cost);
        if (st) return st;
        most = ht_max(most, cost);
    }
    *ns = most;
    return HT_OK;
}

/* ---- a whole schedule ---- */

/* Returns true if two ranks are of one kind. All ranks beyond the cluster are of one kind. */
static bool ht_alike(const struct ht_profile *p, int32_t a, int32_t b)
{
    bool known = ht_on_cluster(p, a);
    return known == ht_on_cluster(p, b) && (!known || ht_profile_same_kind(p->cluster, a, b));
}

/* Fills in kinds[rank] and one example rank of each kind; returns the number of kinds. */
static int32_t ht_rank_kinds(const struct ht_profile *p, int32_t n_ranks, int32_t *kinds, int32_t *examples)
{
    int32_t n = 0;
    for (int32_t r = 0; r < n_ranks; r++) {
        int32_t k = 0;
        while (k < n && !ht_alike(p, r, examples[k])) k++;
        if (k == n) examples[n++] = r;
        kinds[r] = k;
    }
    return n;
}

enum ht_status ht_profile_costs(const struct ht_profile *p, const struct ht_schedule *s, int64_t *cost_ns,
                                struct ht_error *err)
{
    enum ht_status st = ht_check_rank(p, s->n_ranks - 1, err);
    if (st) return st;
    int32_t *kinds = HT_NEW_ARRAY(int32_t, 2 * (int64_t)s->n_ranks), *examples = kinds + s->n_ranks;
    int32_t n_kinds = ht_rank_kinds(p, s->n_ranks, kinds, examples);
    /* table[(kind, reach, work)]: -1 until computed */
    size_t n_reaches = (size_t)ht_n_reaches(p->cluster, s->n_nodes),
           cells = n_reaches * (size_t)n_kinds * (size_t)s->n_works;
    int64_t *table = HT_NEW_ARRAY(int64_t, cells);
    memset(table, 0xff, cells * sizeof(*table));
    int32_t *seen = HT_NEW_ARRAY(int32_t, s->n_nodes), first = 0, end = 0, nodes = 0;
    for (int32_t op = 0; op < s->n_ops && !st; op++) {
        int32_t work = s->ops[op].work, kind = kinds[ht_op_rank(s, op)];
        struct ht_reach reach = {.between = -1};
        if (op == end) first = op, end = ht_group_end(s, op), nodes = ht_count_nodes(s, first, end, seen);
        if (p->cluster) reach = ht_reach_of(p->cluster, s, op, first, end, nodes);
        size_t row = n_reaches * (size_t)kind + (size_t)ht_reach_index(reach, s->n_nodes);
        int64_t *cell = &table[row * (size_t)s->n_works + (size_t)work];
        if (*cell < 0) st = ht_rank_cost(p, examples[kind], reach, &s->works[work], err, cell);
        cost_ns[op] = *cell;
    }
    free(seen);
    free(table);
    free(kinds);
    return st;
}
