/*
 * What the simulator knows of each step before it starts: uncontended time, and the flow that it is, if any.
 *
 * A step is an op, or a whole group: its members start and end together, so it takes the longest member's time and
 * draws on the union of their resources (amounts on the same resource add up). It is listed under its first op.
 */
#ifndef HT_EXEC_SIM_STEPS_H
#define HT_EXEC_SIM_STEPS_H

#include "common/exec/flow.h"
#include "common/exec/sim.h"

#define HT_SIM_MAX_COST_NS (HT_FLOW_MAX_NS / 2) /* exclusive: jitter may nearly double it */

struct ht_sim_flow {
    int64_t need_ns; /* what its resources need when it is alone: max of ceil(amount 1e9 / capacity) */
    int64_t largest; /* B: largest amount */
    int64_t cap;     /* floor(B 1e9 / T) without jitter */
    int64_t uses_begin;
    int32_t n_uses;
};

struct ht_sim_steps {
    int64_t *cost_ns; /* [n_ops]: T without jitter, under the step's first op */
    int32_t *flow;    /* [n_ops]: row of flows, or -1 */
    struct ht_sim_flow *flows;
    struct ht_flow_use *uses;
    int32_t n_flows, max_uses;
    int64_t n_uses;
};

/* HT_BAD_INPUT names the op or resource whose numbers are beyond what the simulator's integers hold. */
enum ht_status ht_sim_steps_init(const struct ht_schedule *s, const int64_t *cost_ns, struct ht_error *err,
                                 struct ht_sim_steps *out);
void ht_sim_steps_free(struct ht_sim_steps *steps);

/* One past the last member of the step that begins with op `first`. */
static inline int32_t ht_sim_step_end(const struct ht_schedule *s, int32_t first)
{
    int32_t match = s->ops[first].match, end = first + 1;
    if (match >= 0)
        while (end < s->n_ops && s->ops[end].match == match) end++;
    return end;
}

/* The cost in this run: times 1 + u, u uniform in +-percent (steps of a millionth), rounded down. At least 1 ns
 * stays 1. */
int64_t ht_sim_jitter(int64_t cost_ns, int32_t percent, uint64_t seed, uint64_t index);

#endif
