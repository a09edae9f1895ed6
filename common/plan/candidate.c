#include "common/plan/candidate.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/minmax.h"
#include "common/exec/sim.h"

#include <stdlib.h>

enum { ITERATIONS = 3 }; /* simulated iterations; the first one starts cold */

enum ht_status ht_candidate_prove(const struct ht_system *system, const struct ht_scenario *scenario,
                                  const struct ht_plan *plan, struct ht_error *err, struct ht_candidate *out)
{
    *out = (struct ht_candidate){0};
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
    struct ht_scenario folds = {0};
    if (scenario) folds = *scenario;
    folds.folds = true;
    enum ht_status status = system->build(system, scenario ? &folds : NULL, plan, err, &out->schedule);
    return status ? status : ht_schedule_verify(out->schedule, err, &out->proof);
}

void ht_candidate_free(struct ht_candidate *x)
{
    ht_proof_free(&x->proof);
    ht_schedule_destroy(x->schedule);
    *x = (struct ht_candidate){0};
}

void ht_plan_drop_built(struct ht_plan *plan)
{
    if (plan->built) ht_candidate_free(plan->built);
    free(plan->built);
    plan->built = NULL;
}

void ht_plan_keep(struct ht_plan *plan, struct ht_candidate *x)
{
    ht_plan_drop_built(plan);
    plan->built = HT_NEW(struct ht_candidate);
    *plan->built = *x;
    *x = (struct ht_candidate){0};
}

bool ht_plan_take_built(struct ht_plan *plan, bool folds, struct ht_candidate *out)
{
    *out = (struct ht_candidate){0};
    if (plan->built && (folds || !plan->built->schedule->fold)) {
        *out = *plan->built;
        *plan->built = (struct ht_candidate){0};
        if (!folds) out->schedule->not_folded = NULL; /* nobody asked */
    }
    ht_plan_drop_built(plan);
    return out->schedule;
}

struct ht_needs ht_candidate_needs(const struct ht_candidate *x)
{
    struct ht_needs n = {0};
    for (int32_t rank = 0; x->proof.spaces && rank < x->schedule->n_ranks; rank++)
        for (int tier = 0; tier < HT_N_TIERS; tier++) {
            int32_t space = ht_space(x->schedule, (enum ht_tier)tier, rank);
            const struct ht_footprint *f = &x->proof.spaces[space];
            int64_t lacks = ht_footprint_short_bytes(x->schedule, space, f);
            n.peak_bytes[tier] = ht_max(n.peak_bytes[tier], f->peak_bytes);
            n.short_bytes[tier] = ht_max(n.short_bytes[tier], lacks);
        }
    return n;
}

enum ht_status ht_plan_needs(const struct ht_system *system, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_needs *out)
{
    struct ht_candidate x;
    struct ht_error why = {0};
    enum ht_status status = ht_candidate_prove(system, scenario, plan, &why, &x);
    if (x.proof.spaces) status = HT_OK;
    *out = ht_candidate_needs(&x);
    ht_candidate_free(&x);
    if (status && err) *err = why;
    return status;
}

enum ht_status ht_candidate_simulate(const struct ht_candidate *x, const struct ht_scenario *scenario,
                                     const struct ht_profile *profile, struct ht_error *err, int64_t *iteration_ns)
{
    return ht_candidate_simulate_within(x, scenario, profile, INT64_MAX, err, iteration_ns);
}

enum ht_status ht_candidate_simulate_within(const struct ht_candidate *x, const struct ht_scenario *scenario,
                                            const struct ht_profile *profile, int64_t limit_ns, struct ht_error *err,
                                            int64_t *iteration_ns)
{
    enum { TIMED = ITERATIONS - 1 };
    struct ht_sim_options options = {.iterations = ITERATIONS, .issue_ahead = ht_issue_ahead(scenario->cluster)};
    struct ht_sim_question question = {.after = 0, .last = TIMED};
    if (limit_ns <= INT64_MAX / TIMED) question.limit_ns = TIMED * ht_max(limit_ns, 1);
    int64_t ns = 0, *cost_ns = HT_NEW_ARRAY(int64_t, x->schedule->n_ops);
    enum ht_status status = ht_profile_costs(profile, x->schedule, cost_ns, err);
    if (!status) status = ht_sim_time(x->schedule, cost_ns, &options, question, err, &ns);
    if (!status) *iteration_ns = ns / TIMED;
    free(cost_ns);
    return status;
}

int32_t ht_issue_ahead(const struct ht_cluster *cluster)
{
    return ht_cluster_gpu_of(cluster, 0)->cores ? 0 : 2;
}
