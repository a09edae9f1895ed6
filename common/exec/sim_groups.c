#include "common/exec/sim_groups.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/rng.h"
#include "common/exec/recent.h"
#include "common/schedule/fold.h"
#include "common/schedule/residency.h"

#include <stdlib.h>

int64_t ht_sim_jitter(int64_t cost_ns, int32_t percent, uint64_t seed, uint64_t index)
{
    if (percent == 0 || cost_ns == 0) return cost_ns;
    uint64_t range = (uint64_t)percent * 10000; /* in millionths */
    uint64_t factor = 1000000 - range + ht_random_below(seed, index, 2 * range + 1);
    uint64_t cost = (uint64_t)cost_ns * factor / 1000000; /* below 2^42 * 2^21 */
    return cost ? (int64_t)cost : 1;
}

/* Returns the core-nanoseconds of a group that keeps `cores` busy for cost_ns; INT64_MAX on overflow. */
static int64_t core_ns(int64_t cores, int64_t cost_ns)
{
    int64_t product;
    return __builtin_mul_overflow(cores, cost_ns, &product) ? INT64_MAX : product;
}

/* Appends the group's uses to out, merged by resource and weighted by the largest amount, and fills in *flow. `at`:
   [n_resources] each resource's index in the group's list, or -1. */
static enum ht_status add_uses(const struct ht_schedule *s, int32_t first, int32_t end, int64_t cost_ns, int32_t *at,
                               int64_t **amounts, size_t *amounts_cap, size_t *uses_cap, struct ht_error *err,
                               struct ht_sim_groups *out, struct ht_sim_flow *flow)
{
    int64_t *amount = *amounts;
    int32_t n = 0;
    enum ht_status status = HT_OK;
    *flow = (struct ht_sim_flow){.uses_begin = out->n_uses};
    struct ht_flow_use *uses = out->uses;
    for (int64_t u = s->uses_begin[first]; u < s->uses_begin[end] && status == HT_OK; u++) {
        int32_t r = s->uses[u].resource;
        int64_t a = s->uses[u].amount;
        if (s->resources[r].kind == HT_RES_CORES) a = core_ns(a, cost_ns);
        if (a == 0) continue;
        if (a > 0 && at[r] < 0) {
            at[r] = n;
            HT_RESERVE(amount, *amounts_cap, n + 1);
            HT_RESERVE(uses, *uses_cap, out->n_uses + n + 1);
            amount[n] = 0;
            uses[out->n_uses + n++].resource = r;
        }
        if (a < 0 || a >= HT_FLOW_MAX_AMOUNT - amount[at[r]]) {
            char label[64];
            status = ht_fail(err, HT_BAD_INPUT, "op %d (%s): amount %lld on resource '%s'; expected 0 to %lld", first,
                             ht_op_label(s, first, label, sizeof(label)), (long long)a, s->resources[r].name,
                             (long long)HT_FLOW_MAX_AMOUNT - 1);
            break;
        }
        amount[at[r]] += a;
    }
    *amounts = amount;
    out->uses = uses;
    if (status != HT_OK) return status;
    flow->n_uses = n;
    for (int32_t k = 0; k < n; k++) {
        const struct ht_resource *r = &s->resources[uses[out->n_uses + k].resource];
        bool cores = r->kind == HT_RES_CORES;
        int64_t need = cores ? 0 : ht_flow_per_giga_up(amount[k], r->capacity_per_s);
        if (need > flow->need_ns) flow->need_ns = need;
        flow->of_cores = amount[k] > flow->largest ? cores : flow->of_cores || (cores && amount[k] == flow->largest);
        if (amount[k] > flow->largest) flow->largest = amount[k];
    }
    for (int32_t k = 0; k < n; k++) {
        struct ht_flow_use *use = &uses[out->n_uses + k];
        int64_t one = (int64_t)1 << HT_FLOW_WEIGHT_BITS;
        use->times = ht_fold_times(s, first, use->resource);
        use->weight = (uint32_t)((amount[k] * one + flow->largest - 1) / flow->largest);
        at[use->resource] = -1;
    }
    out->n_uses += n;
    if (n > out->max_uses) out->max_uses = n;
    return HT_OK;
}

/* Returns true if two groups of `size` ops have the same uses. */
static bool same_uses(const struct ht_schedule *s, int32_t a, int32_t b, int32_t size)
{
    const struct ht_use *x = s->uses + s->uses_begin[a], *y = s->uses + s->uses_begin[b];
    int64_t n = s->uses_begin[a + size] - s->uses_begin[a];
    if (n != s->uses_begin[b + size] - s->uses_begin[b]) return false;
    for (int64_t i = 0; i < n; i++)
        if (x[i].resource != y[i].resource || x[i].amount != y[i].amount) return false;
    return true;
}

/* Returns the longest cost of a group's members; one that is too long if a cost is negative. */
static int64_t longest(const int64_t *cost_ns, int32_t first, int32_t end)
{
    int64_t cost = 0;
    for (int32_t op = first; op < end; op++) {
        if (cost_ns[op] < 0) return HT_SIM_MAX_COST_NS;
        if (cost_ns[op] > cost) cost = cost_ns[op];
    }
    return cost;
}

static enum ht_status check_resources(const struct ht_schedule *s, struct ht_error *err)
{
    for (int32_t r = 0; r < s->n_resources; r++)
        if (s->resources[r].capacity_per_s < 1 || s->resources[r].capacity_per_s >= HT_FLOW_MAX_CAPACITY)
            return ht_fail(err, HT_BAD_INPUT, "resource '%s': capacity %lld per second; expected 1 to %lld",
                           s->resources[r].name, (long long)s->resources[r].capacity_per_s,
                           (long long)HT_FLOW_MAX_CAPACITY - 1);
    return HT_OK;
}

enum ht_status ht_sim_groups_init(const struct ht_schedule *s, const int64_t *cost_ns, struct ht_error *err,
                                  struct ht_sim_groups *out)
{
    *out = (struct ht_sim_groups){0};
    enum ht_status status = check_resources(s, err);
    if (status != HT_OK) return status;
    out->kind_of = ht_alloc_ids(s->n_ops); /* HT_SIM_MEMBER */
    size_t kinds_cap = 0, flows_cap = 0, uses_cap = 0, amounts_cap = 0;
    int64_t *amounts = NULL;
    int32_t *at = HT_NEW_ARRAY(int32_t, s->n_resources);
    for (int32_t r = 0; r < s->n_resources; r++) at[r] = -1;
    int32_t *recent = ht_recent_create(); /* groups of the same work, cost and uses share a kind */

    for (int32_t first = 0, end; first < s->n_ops && status == HT_OK; first = end) {
        end = ht_group_end(s, first);
        int64_t cost = longest(cost_ns, first, end);
        int32_t *recent_first = ht_recent_of(recent, s, first, end), like = *recent_first, size = end - first;
        const struct ht_sim_kind *k = like < 0 ? NULL : ht_sim_kind_of(out, like);
        bool known = k && k->longest_ns == cost && k->size == size && k->lane == s->ops[first].lane &&
                     same_uses(s, like, first, size);
        out->kind_of[first] = known ? out->kind_of[like] : out->n_kinds;
        *recent_first = first;
        if (known) continue;
        struct ht_sim_kind kind = {
            .longest_ns = cost, .flow = HT_SIM_NO_FLOW, .size = size, .lane = s->ops[first].lane};
        if (s->uses_begin[first] < s->uses_begin[end]) {
            struct ht_sim_flow flow;
            status = add_uses(s, first, end, cost, at, &amounts, &amounts_cap, &uses_cap, err, out, &flow);
            if (flow.need_ns > cost) cost = flow.need_ns;
            if (flow.n_uses && cost < HT_SIM_MAX_COST_NS && status == HT_OK) {
                flow.cap = ht_flow_per_giga(flow.largest, cost);
                kind.flow = out->n_flows;
                HT_PUSH(out->flows, out->n_flows, flows_cap, flow);
            }
        }
        kind.cost_ns = cost;
        HT_PUSH(out->kinds, out->n_kinds, kinds_cap, kind);
        if (cost >= HT_SIM_MAX_COST_NS && status == HT_OK) {
            char label[64];
            status =
                ht_fail(err, HT_BAD_INPUT, "op %d (%s): its cost, or what its resources need, is outside 0 to %lld ns",
                        first, ht_op_label(s, first, label, sizeof(label)), (long long)HT_SIM_MAX_COST_NS - 1);
        }
    }
    free(amounts);
    free(at);
    free(recent);
    if (status != HT_OK) ht_sim_groups_free(out);
    return status;
}

/* ---- resources that are never tight ---------------------------------------------------------------------------- */

/* The most that flows take of a resource at once. */
struct most {
    uint64_t demand, weight;
};

/* Returns the kinds that have flows, lane after lane; *n: their number. */
static int32_t *flows_by_lane(const struct ht_sim_groups *g, int32_t n_lanes, int32_t *n)
{
    int32_t *at = HT_NEW_ARRAY(int32_t, n_lanes + 1), *kinds = HT_NEW_ARRAY(int32_t, g->n_flows);
    for (int32_t k = 0; k < g->n_kinds; k++) at[g->kinds[k].lane + 1] += g->kinds[k].flow != HT_SIM_NO_FLOW;
    for (int32_t lane = 0; lane < n_lanes; lane++) at[lane + 1] += at[lane];
    *n = at[n_lanes];
    for (int32_t k = 0; k < g->n_kinds; k++)
        if (g->kinds[k].flow != HT_SIM_NO_FLOW) kinds[at[g->kinds[k].lane]++] = k;
    free(at);
    return kinds;
}

/* Adds up, over all lanes, the most that a flow of the lane takes of each resource. */
static struct most *add_up_lanes(const struct ht_schedule *s, const struct ht_sim_groups *g)
{
    struct most *sum = HT_NEW_ARRAY(struct most, s->n_resources), *of_lane = HT_NEW_ARRAY(struct most, s->n_resources);
    int32_t n, *kinds = flows_by_lane(g, s->n_lanes, &n);
    for (int32_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && g->kinds[kinds[end]].lane == g->kinds[kinds[first]].lane; end++) {
            const struct ht_sim_flow *flow = &g->flows[g->kinds[kinds[end]].flow];
            for (const struct ht_flow_use *u = g->uses + flow->uses_begin;
                 u < g->uses + flow->uses_begin + flow->n_uses; u++) {
                struct most *m = &of_lane[u->resource];
                m->demand = ht_max(m->demand, ht_flow_charge((uint64_t)ht_max(flow->cap, 1), u));
                m->weight = ht_max(m->weight, ht_flow_weight(u));
            }
        }
        for (int32_t i = first; i < end; i++) {
            const struct ht_sim_flow *flow = &g->flows[g->kinds[kinds[i]].flow];
            for (const struct ht_flow_use *u = g->uses + flow->uses_begin;
                 u < g->uses + flow->uses_begin + flow->n_uses; u++) {
                sum[u->resource].demand += of_lane[u->resource].demand;
                sum[u->resource].weight += of_lane[u->resource].weight;
                of_lane[u->resource] = (struct most){0};
            }
        }
    }
    free(kinds);
    free(of_lane);
    return sum;
}

void ht_sim_groups_drop_slack(const struct ht_schedule *s, struct ht_sim_groups *groups)
{
    struct most *most = add_up_lanes(s, groups);
    for (int32_t k = 0; k < groups->n_kinds; k++) {
        if (groups->kinds[k].flow == HT_SIM_NO_FLOW) continue;
        struct ht_sim_flow *flow = &groups->flows[groups->kinds[k].flow];
        struct ht_flow_use *uses = groups->uses + flow->uses_begin;
        int32_t n = 0;
        for (int32_t u = 0; u < flow->n_uses; u++) {
            const struct most *m = &most[uses[u].resource];
            uint64_t capacity = (uint64_t)s->resources[uses[u].resource].capacity_per_s;
            if (ht_flow_is_tight(m->demand, m->weight, capacity)) uses[n++] = uses[u];
        }
        flow->n_uses = n;
        if (!n) groups->kinds[k].flow = HT_SIM_NO_FLOW;
    }
    free(most);
}

void ht_sim_groups_free(struct ht_sim_groups *groups)
{
    free(groups->kind_of);
    free(groups->kinds);
    free(groups->flows);
    free(groups->uses);
    *groups = (struct ht_sim_groups){0};
}
