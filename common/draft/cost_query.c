#include "common/draft/cost_query.h"

#include "common/draft/control.h"
#include "common/draft/layout.h"
#include "common/draft/works.h"

#include <string.h>

struct ht_cost_query ht_query_slowest(const struct ht_scenario *scenario, const struct ht_profile *profile,
                                      struct ht_error *err)
{
    return (struct ht_cost_query){.scenario = scenario,
                                  .profile = profile,
                                  .rank = HT_SLOWEST_RANK,
                                  .micro_batches = ht_equal_rounds(scenario),
                                  .tp = 1,
                                  .err = err};
}

struct ht_cost_query ht_query_gpu(const struct ht_scenario *scenario, const struct ht_profile *profile, const char *gpu,
                                  int32_t tp, struct ht_error *err)
{
    struct ht_cost_query q = ht_query_slowest(scenario, profile, err);
    q.tp = tp;
    q.micro_batches = ht_scenario_micro_batches(scenario);
    for (q.rank = 0; q.rank < ht_scenario_ranks(scenario); q.rank++)
        if (!strcmp(ht_cluster_gpu_of(scenario->cluster, q.rank)->name, gpu)) return q;
    q.status = ht_fail(err, HT_BAD_INPUT, "cluster '%s' has no '%s'; expected one of its devices",
                       scenario->cluster->name, gpu);
    return q;
}

int64_t ht_query_work(struct ht_cost_query *q, const struct ht_work *work)
{
    int64_t ns = 0;
    if (q->status != HT_OK) return 0;
    if (q->rank == HT_SLOWEST_RANK)
        q->status = ht_profile_slowest_cost(q->profile, work, q->err, &ns);
    else
        q->status = ht_profile_cost(q->profile, q->rank, work, q->err, &ns);
    return q->status == HT_OK ? ns : 0;
}

int64_t ht_query_pass(struct ht_cost_query *q, enum ht_op_kind kind, int64_t unit)
{
    struct ht_work w = ht_scenario_work(q->scenario, kind, HT_LANE_COMPUTE, unit);
    if (q->tp > 1) w.tp = q->tp;
    return ht_query_work(q, &w);
}

int64_t ht_query_copy(struct ht_cost_query *q, enum ht_lane_kind where, int64_t bytes)
{
    struct ht_work w = ht_copy_work(where, bytes);
    return ht_query_work(q, &w);
}

int64_t ht_query_accumulate(struct ht_cost_query *q, enum ht_lane_kind where, int64_t params)
{
    struct ht_work w = ht_accumulate_work(q->scenario, where, 0, params);
    return q->micro_batches > 1 ? ht_query_work(q, &w) : 0;
}

int64_t ht_query_step(struct ht_cost_query *q, enum ht_lane_kind where, int64_t params)
{
    struct ht_work step = ht_step_work(q->scenario, where, 0, params, q->micro_batches), grad_check;
    if (q->scenario->control.mode == HT_CONTROL_NONE) return ht_query_work(q, &step);
    ht_control_works(&q->scenario->control, &step, &grad_check);
    return ht_query_work(q, &step) + ht_query_work(q, &grad_check);
}

int64_t ht_query_collective(struct ht_cost_query *q, enum ht_op_kind kind, enum ht_dtype dtype, int64_t elements)
{
    return ht_query_uneven_collective(q, kind, dtype, elements, 0);
}

int64_t ht_query_uneven_collective(struct ht_cost_query *q, enum ht_op_kind kind, enum ht_dtype dtype, int64_t elements,
                                   int64_t even)
{
    int32_t ranks = q->members ? q->members : (int32_t)ht_scenario_ranks(q->scenario);
    struct ht_work w = ht_uneven_collective_work(kind, ranks, dtype, elements, even);
    return ranks > 1 ? ht_query_work(q, &w) : 0;
}
