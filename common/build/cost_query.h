/*
 * What planners ask a profile: the costs of units, in the words of planners. The works are those of the ops that drafts
 * are made of (common/build/works.h), so a profile that has a cost for every op of a graph has an answer to every
 * question.
 *
 *     struct ht_cost_query q = ht_query_slowest(scenario, profile, err);
 *     int64_t forward_ns = ht_query_pass(&q, HT_OP_FORWARD, 1), fetch_ns = ht_query_copy(&q, HT_LANE_H2D, bytes);
 *     if (q.status != HT_OK) return q.status;
 *
 * A query keeps its first error and answers 0 from then on, so that a planner asks for all that it needs and looks
 * once.
 *
 * One plan for all ranks, on devices that are not alike: collectives make every rank wait for the slowest one, unit by
 * unit. So the plan is made for a rank that takes for each work as long as the slowest of all ranks does, and for the
 * smallest memory (ht_scenario_device_bytes, ht_scenario_host_bytes). A planner that gives each rank a part of its own
 * asks by rank; for passes of other micro-batches it changes micro_batch in a copy of the scenario.
 */
#ifndef HT_BUILD_COST_QUERY_H
#define HT_BUILD_COST_QUERY_H

#include "common/plan/scenario.h"
#include "common/profile/profile.h"

enum { HT_SLOWEST_RANK = -1 };

struct ht_cost_query {
    const struct ht_scenario *scenario;
    const struct ht_profile *profile;
    int64_t rank;          /* of the cluster, or HT_SLOWEST_RANK: the largest cost of all ranks for each work */
    int64_t micro_batches; /* of a rank: of more than one, gradients are summed */
    struct ht_error *err;
    enum ht_status status; /* HT_OK until a question has no answer */
};

/* Returns a query for the slowest rank, ranks taking as many micro-batches each. */
struct ht_cost_query ht_query_slowest(const struct ht_scenario *scenario, const struct ht_profile *profile,
                                      struct ht_error *err);

/* Returns the cost of any work, such as one of ht_scenario_work about some sub-ops of a block. */
int64_t ht_query_work(struct ht_cost_query *q, const struct ht_work *work);
/* Returns the cost of a forward, recompute or backward op of one unit. */
int64_t ht_query_pass(struct ht_cost_query *q, enum ht_op_kind kind, int64_t unit);
int64_t ht_query_copy(struct ht_cost_query *q, enum ht_lane_kind where, int64_t bytes);
/* Returns the cost of adding one more micro-batch's gradient; 0 when there is one. */
int64_t ht_query_accumulate(struct ht_cost_query *q, enum ht_lane_kind where, int64_t params);
/* Returns the cost of an optimizer step, and of what control adds to it (common/build/control.h): the gradient that is
   judged, the log that is written. */
int64_t ht_query_step(struct ht_cost_query *q, enum ht_lane_kind where, int64_t params);
/* Returns the cost of a collective of all ranks, through each of which `elements` pass each way; 0 when there is one
 * rank. */
int64_t ht_query_collective(struct ht_cost_query *q, enum ht_op_kind kind, enum ht_dtype dtype, int64_t elements);

#endif
