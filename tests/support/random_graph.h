/*
 * Small random schedules that pass the verifier: a few ranks, lanes of both orders, tensors that are produced, read,
 * updated, copied and released in all tiers, groups, branches, shared resources, edges to the previous iteration, and
 * capacities close to what the safe sequence needs. The same seed gives the same graph on every machine.
 */
#ifndef TESTS_SUPPORT_RANDOM_GRAPH_H
#define TESTS_SUPPORT_RANDOM_GRAPH_H

#include "common/schedule/schedule.h"

struct random_graph_options {
    int32_t max_ranks; /* 1 .. 8 */
    int32_t max_ops;   /* approximately; closing the iteration may add some */
    bool groups, branches, resources, priority_lanes;
    bool slow_tiers; /* disk and remote as well as device and host */
    bool one_node;   /* for all ranks */
    bool may_oom;    /* some graphs lack a few bytes, so that the safe sequence does not fit */
};

/* Returns options with everything on: 4 ranks, 32 ops. */
struct random_graph_options random_graph_everything(void);

/* Creates a schedule, linked but not verified. *cost_ns (may be NULL): [n_ops] costs, 0 to about 1000 ns, many of them
   equal; the caller frees it. */
struct ht_schedule *random_graph(uint64_t seed, struct random_graph_options options, int64_t **cost_ns);

#endif
