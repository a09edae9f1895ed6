/*
 * Costs and flows of issue groups, before they start. For the simulator and the pacer.
 *
 * An issue group is an op alone, or all ops that carry one `match`. Its members start and end together, so it takes the
 * longest member's time, and its flow charges the union of their resources (amounts on the same resource add up). It is
 * listed under its first op.
 */
#ifndef HT_EXEC_SIM_GROUPS_H
#define HT_EXEC_SIM_GROUPS_H

#include "common/exec/flow.h"
#include "common/exec/sim.h"

#define HT_SIM_MAX_COST_NS (HT_FLOW_MAX_NS / 2) /* exclusive: jitter may nearly double it */

struct ht_sim_flow {
    int64_t need_ns; /* time its resources, cores apart, need when it runs alone: max of ceil(amount 1e9 / capacity) */
    int64_t largest; /* B: largest amount */
    int64_t cap;     /* floor(B 1e9 / T) without jitter */
    bool of_cores;   /* B is an amount of cores: it grows with T, so cap holds with jitter, too */
    int64_t uses_begin;
    int32_t n_uses;
};

/* Holds what many issue groups have in common. */
struct ht_sim_kind {
    int64_t cost_ns;    /* T without jitter */
    int64_t longest_ns; /* the longest member's cost: T is longer if a resource needs more */
    int32_t flow;       /* index into flows, or HT_SIM_NO_FLOW */
    int32_t size;       /* members of the group */
    int32_t lane;       /* of its first op */
};
enum { HT_SIM_NO_FLOW = -1 };
enum { HT_SIM_MEMBER = -1 };

struct ht_sim_groups {
    int32_t *kind_of; /* [n_ops] index into kinds, or HT_SIM_MEMBER: a group's second, third, ... op */
    struct ht_sim_kind *kinds;
    struct ht_sim_flow *flows;
    struct ht_flow_use *uses;
    int32_t n_kinds, n_flows, max_uses;
    int64_t n_uses;
};

/* Computes the groups of a schedule. Returns HT_BAD_INPUT, naming the op or resource, for numbers that do not fit the
   simulator's integers. */
enum ht_status ht_sim_groups_init(const struct ht_schedule *s, const int64_t *cost_ns, struct ht_error *err,
                                  struct ht_sim_groups *out);
/* Leaves out the uses of resources that can never be tight (common/exec/flow.h), however the groups meet: they move no
   end. Each lane is taken to run what takes the most of the resource. Not for costs with jitter, which change caps. */
void ht_sim_groups_drop_slack(const struct ht_schedule *s, struct ht_sim_groups *groups);
void ht_sim_groups_free(struct ht_sim_groups *groups);

/* Returns the kind of the issue group that begins with op `first`. */
static inline const struct ht_sim_kind *ht_sim_kind_of(const struct ht_sim_groups *groups, int32_t first)
{
    return &groups->kinds[groups->kind_of[first]];
}

/* Returns the cost with jitter: times 1 + u, u uniform in +-percent (in millionths), rounded down. At least 1 ns stays
   1. */
int64_t ht_sim_jitter(int64_t cost_ns, int32_t percent, uint64_t seed, uint64_t index);

#endif
