#include "common/exec/sim_rest.h"

#include "common/base/array.h"
#include "common/base/minmax.h"

#include <stdlib.h>

/* Returns true if no member of the issue group [first, end) may be skipped. */
static bool surely_runs(const struct ht_schedule *s, int32_t first, int32_t end)
{
    for (int32_t op = first; op < end; op++)
        if (s->ops[op].when != HT_ALWAYS) return false;
    return true;
}

/* Returns the least cost of an issue group that runs. */
static int64_t least_ns(const struct ht_sim_groups *groups, int32_t jitter_percent, int32_t first)
{
    int64_t cost = ht_sim_kind_of(groups, first)->cost_ns;
    return jitter_percent ? cost * (100 - jitter_percent) / 100 : cost; /* below 2^42 * 2^7 */
}

/* Returns the sum of at most HT_FLOW_NEVER_NS and a cost, at most HT_FLOW_NEVER_NS. */
static int64_t sum_ns(int64_t ns, int64_t cost_ns)
{
    return ht_min(ns + cost_ns, HT_FLOW_NEVER_NS);
}

/* Raises the rest of everything that an op depends on. */
static void raise_deps(const int32_t *deps, int64_t begin, int64_t end, int64_t ns, int64_t *rest)
{
    for (int64_t d = begin; d < end; d++) rest[deps[d]] = ht_max(rest[deps[d]], ns);
}

/* Computes one iteration's rests into zeros, given those of the next one (NULL: nothing counts there). lane_first: [n_lanes]
   the rest of the first op that follows on each FIFO lane; afterwards of the first op of this iteration. An op that may be
   skipped is so even while an earlier one of its lane runs, so lanes' order counts only for ops that surely run. */
static void fill(const struct ht_schedule *s, const struct ht_sim_groups *groups, int32_t jitter_percent,
                 const int64_t *next, int64_t *lane_first, int64_t *rest)
{
    for (int32_t op = 0; next && op < s->n_ops; op++)
        raise_deps(s->prev, s->prev_begin[op], s->prev_begin[op + 1], next[op], rest);
    for (int32_t end = s->n_ops, first; end > 0; end = first) {
        int64_t most = 0;
        for (first = end - 1; groups->kind_of[first] == HT_SIM_MEMBER;) first--;
        for (int32_t op = first; op < end; op++) most = ht_max(most, ht_max(rest[op], lane_first[s->ops[op].lane]));
        bool runs = surely_runs(s, first, end);
        if (runs) most = sum_ns(most, least_ns(groups, jitter_percent, first));
        for (int32_t op = first; op < end; op++) {
            int32_t lane = s->ops[op].lane;
            if (runs && s->lanes[lane].order == HT_FIFO) lane_first[lane] = most;
            raise_deps(s->deps, s->deps_begin[op], s->deps_begin[op + 1], most, rest);
            rest[op] = most;
        }
    }
}

int64_t ht_sim_least_ns(const struct ht_schedule *s, const int64_t *cost_ns, int32_t jitter_percent,
                        struct ht_sim_question question)
{
    int64_t *sums = HT_NEW_ARRAY(int64_t, s->n_lanes), most = 0, n = question.last - question.after;
    if (question.after >= 0) n--; /* iteration after + 1 may have begun before */
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->ops[op].when == HT_ALWAYS && cost_ns[op] > 0)
            sums[s->ops[op].lane] =
                sum_ns(sums[s->ops[op].lane], ht_min(cost_ns[op], HT_SIM_MAX_COST_NS) * (100 - jitter_percent) / 100);
    for (int32_t lane = 0; lane < s->n_lanes; lane++) most = ht_max(most, sums[lane]);
    free(sums);
    return n && most > HT_FLOW_NEVER_NS / n ? HT_FLOW_NEVER_NS : n * most;
}

/* Computes [n_ops] the costs of an iteration on the FIFO lane of each group's first op. */
static int64_t *sum_lanes(const struct ht_schedule *s, const struct ht_sim_groups *groups, int32_t jitter_percent)
{
    int64_t *sums = HT_NEW_ARRAY(int64_t, s->n_lanes), *of_op = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = first + ht_sim_kind_of(groups, first)->size;
        int64_t cost = surely_runs(s, first, end) ? least_ns(groups, jitter_percent, first) : 0;
        for (int32_t op = first; op < end; op++) sums[s->ops[op].lane] = sum_ns(sums[s->ops[op].lane], cost);
    }
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->lanes[s->ops[op].lane].order == HT_FIFO) of_op[op] = sums[s->ops[op].lane];
    free(sums);
    return of_op;
}

void ht_sim_rest_init(struct ht_sim_rest *rest, const struct ht_schedule *s, const struct ht_sim_groups *groups,
                      int32_t jitter_percent, int32_t last)
{
    int64_t *lane_first = HT_NEW_ARRAY(int64_t, s->n_lanes);
    *rest = (struct ht_sim_rest){
        .last = last, .of_last = HT_NEW_ARRAY(int64_t, s->n_ops), .before = HT_NEW_ARRAY(int64_t, s->n_ops)};
    fill(s, groups, jitter_percent, NULL, lane_first, rest->of_last);
    if (last > 0) fill(s, groups, jitter_percent, rest->of_last, lane_first, rest->before);
    if (last > 1) rest->lane_ns = sum_lanes(s, groups, jitter_percent);
    free(lane_first);
}

void ht_sim_rest_free(struct ht_sim_rest *rest)
{
    free(rest->of_last);
    free(rest->before);
    free(rest->lane_ns);
    *rest = (struct ht_sim_rest){0};
}

int64_t ht_sim_rest_ns(const struct ht_sim_rest *rest, int32_t k, int32_t op)
{
    if (k >= rest->last) return k == rest->last ? rest->of_last[op] : 0;
    int64_t between = rest->last - 1 - k, ns = rest->before[op];
    if (between == 0) return ns;
    return rest->lane_ns[op] > (HT_FLOW_NEVER_NS - ns) / between ? HT_FLOW_NEVER_NS : ns + between * rest->lane_ns[op];
}
