/*
 * Costs of units, as planners ask a profile for them. The works asked for are those of the ops in drafts
 * (common/draft/works.h), so a profile that has a cost for every op of a graph can answer every query.
 *
 *     struct ht_cost_query q = ht_query_slowest(scenario, profile, err);
 *     int64_t forward_ns = ht_query_pass(&q, HT_OP_FORWARD, 1), fetch_ns = ht_query_copy(&q, HT_LANE_H2D, bytes);
 *     if (q.status != HT_OK) return q.status;
 *
 * A query keeps its first error and returns 0 from then on, so a planner can ask for all costs and check once.
 *
 * Unlike devices share one plan. Collectives make every rank wait for the slowest one, unit by unit, so the plan is
 * made for a rank that takes for each work as long as the slowest rank does, and for the smallest memory
 * (ht_scenario_device_bytes, ht_scenario_host_bytes). A planner that gives each rank its own part sets `rank`; for
 * other micro-batch sizes it changes micro_batch in a copy of the scenario. A planner that cuts stages into parts asks
 * by kind of GPU and degree:
 *
 *     struct ht_cost_query q = ht_query_gpu(scenario, profile, "h800-80gb", 4, err);
 */
#ifndef HT_DRAFT_COST_QUERY_H
#define HT_DRAFT_COST_QUERY_H

#include "common/plan/scenario.h"
#include "common/profile/profile.h"

enum { HT_SLOWEST_RANK = -1 };

struct ht_cost_query {
    const struct ht_scenario *scenario;
    const struct ht_profile *profile;
    int64_t rank;          /* of the cluster; HT_SLOWEST_RANK: each work costs the most that it costs on any rank */
    int64_t micro_batches; /* of a rank; with more than one, gradients are summed */
    int32_t tp;      /* passes work on one of so many tensor-parallel parts, which cut rows if the scenario's model
                              says `sequence`; 0: on whole units */
    int32_t members; /* of a collective; 0: all ranks */
    struct ht_error *err;
    enum ht_status status; /* HT_OK until a query fails */
};

/* Returns a query for the slowest rank. All ranks run equally many micro-batches. */
struct ht_cost_query ht_query_slowest(const struct ht_scenario *scenario, const struct ht_profile *profile,
                                      struct ht_error *err);

/* Returns a query for a kind of GPU, on the first node that has it, and stages that are cut into tp parts: a part's passes,
   with the sums inside. One pipeline has all micro-batches. status is HT_BAD_INPUT if the cluster has no such GPU. */
struct ht_cost_query ht_query_gpu(const struct ht_scenario *scenario, const struct ht_profile *profile, const char *gpu,
                                  int32_t tp, struct ht_error *err);

/* Returns the cost in ns of any work, e.g. one of ht_scenario_work restricted to some sub-ops of a block. */
int64_t ht_query_work(struct ht_cost_query *q, const struct ht_work *work);
/* Returns the cost of a forward, recompute or backward op of one unit. */
int64_t ht_query_pass(struct ht_cost_query *q, enum ht_op_kind kind, int64_t unit);
int64_t ht_query_copy(struct ht_cost_query *q, enum ht_lane_kind where, int64_t bytes);
/* Returns the cost of adding one more micro-batch's gradient; 0 with one micro-batch. */
int64_t ht_query_accumulate(struct ht_cost_query *q, enum ht_lane_kind where, int64_t params);
/* Returns the cost of an optimizer step and of what control adds to it (common/draft/control.h): its gradient check and
   the log that it writes. */
int64_t ht_query_step(struct ht_cost_query *q, enum ht_lane_kind where, int64_t params);
/* Returns the cost of a collective of the query's members that passes `elements` each way through each rank; 0 with one
   member. Members are taken to fill one node after the other. */
int64_t ht_query_collective(struct ht_cost_query *q, enum ht_op_kind kind, enum ht_dtype dtype, int64_t elements);
/* Returns the cost of the same collective of uneven shards, where even ones would pass `even` elements. */
int64_t ht_query_uneven_collective(struct ht_cost_query *q, enum ht_op_kind kind, enum ht_dtype dtype, int64_t elements,
                                   int64_t even);

#endif
