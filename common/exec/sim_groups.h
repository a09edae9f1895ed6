/*
 * What the simulator knows of each step before it starts: uncontended time, and the flow that it is, if any.
 *
 * A step is an op, or a whole group: its members start and end together, so it takes the longest member's time and
 * draws on the union of their resources (amounts on the same resource add up). It is listed under its first op.
 */
#ifndef HT_EXEC_SIM_GROUPS_H
#define HT_EXEC_SIM_GROUPS_H

#include "common/exec/flow.h"
#include "common/exec/sim.h"

#define HT_SIM_MAX_COST_NS (HT_FLOW_MAX_NS / 2) /* exclusive: jitter may nearly double it */

struct ht_sim_flow {
    int64_t need_ns; /* what its resources, cores apart, need when it is alone: max of ceil(amount 1e9 / capacity)
                      */
    int64_t largest; /* B: largest amount */
    int64_t cap;     /* floor(B 1e9 / T) without jitter */
    bool of_cores;   /* B is of cores: it grows with T, so that cap holds with jitter too */
    int64_t uses_begin;
    int32_t n_uses;
};

/* All that the event loop reads of an op: a quarter of a cache line. */
struct ht_sim_row {
    int64_t cost_ns; /* T of the step without jitter, under its first op */
    int32_t flow;    /* row of flows, or HT_SIM_NO_FLOW, or HT_SIM_MEMBER: a group's second, third, ... op */
    unsigned size : 31, validate : 1; /* of the step, under its first op; is the op a validate op? */
};
enum { HT_SIM_NO_FLOW = -1, HT_SIM_MEMBER = -2 };

struct ht_sim_groups {
    struct ht_sim_row *rows; /* [n_ops] */
    struct ht_sim_flow *flows;
    struct ht_flow_use *uses;
    int32_t n_flows, max_uses;
    int64_t n_uses;
};

/* HT_BAD_INPUT names the op or resource whose numbers are beyond what the simulator's integers hold. */
enum ht_status ht_sim_groups_init(const struct ht_schedule *s, const int64_t *cost_ns, struct ht_error *err,
                                  struct ht_sim_groups *out);
void ht_sim_groups_free(struct ht_sim_groups *steps);

/* The cost in this run: times 1 + u, u uniform in +-percent (steps of a millionth), rounded down. At least 1 ns
 * stays 1. */
int64_t ht_sim_jitter(int64_t cost_ns, int32_t percent, uint64_t seed, uint64_t index);

#endif
