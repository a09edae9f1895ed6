#include "harness/sweep/micro_batch.h"

#include "harness/run/registry.h"
#include "harness/run/simulate.h"

size_t ht_micro_batches(const struct ht_system *system, int64_t batch, int64_t n_gpus,
                        int64_t list[HT_MAX_MICRO_BATCHES])
{
    size_t n = 0;
    int64_t most = system->division == HT_PIPELINES ? batch : batch / n_gpus, first = 1;
    if (system->division == HT_PLANNED_REPLICAS) list[n++] = 0;
    while (2 * first <= most) first *= 2;
    for (int64_t m = first; m && n < HT_MAX_MICRO_BATCHES; m /= 2)
        if (most % m == 0) list[n++] = m;
    return n;
}

/* Finds the time of an iteration at the options' micro-batch if it is below best_ns. INT64_MAX if it is not, if the plan does
   not fit, or is refused. */
static enum ht_status time_of(const struct ht_options *o, const char *system, const char *model, int64_t best_ns,
                              struct ht_error *err, int64_t *iteration_ns)
{
    struct ht_job job;
    struct ht_error why;
    int64_t ns = 0;
    *iteration_ns = INT64_MAX;
    enum ht_status status = ht_job_create(o, system, model, HT_JOB_PRICED, &why, &job);
    if (status == HT_OK) {
        status = ht_check_bad(o, &job, &why);
        if (status == HT_OK && job.answer == HT_OK && ht_least_iteration_ns(o, &job) < best_ns)
            status = ht_iteration_time(o, &job, best_ns, &why, &ns);
        if (status == HT_OK && ns > 0 && ns < best_ns) *iteration_ns = ns;
        ht_job_free(&job);
    }
    if (status == HT_BAD_INPUT) return HT_OK;
    if (status != HT_OK) *err = why;
    return status;
}

enum ht_status ht_evaluate_best(const struct ht_options *options, const char *name, const char *model,
                                struct ht_error *err, struct ht_evaluation *out)
{
    struct ht_options o = *options;
    struct ht_scenario_request request = ht_job_request(options, model);
    struct ht_scenario scenario;
    const struct ht_system *system;
    int64_t list[HT_MAX_MICRO_BATCHES];
    int64_t best_ns = INT64_MAX;
    if (o.request.micro_batch || o.plan.load || o.sim.replay) return ht_evaluate(options, name, model, err, out);
    enum ht_status status = ht_system_find(name, err, &system);
    if (status == HT_OK) status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    size_t n = ht_micro_batches(system, scenario.batch, ht_scenario_ranks(&scenario), list);
    ht_scenario_free(&scenario);
    int64_t fastest = n ? list[n - 1] : 0;
    for (size_t i = 0; i < n && n > 1 && status == HT_OK; i++) {
        int64_t ns;
        o.request.micro_batch = list[i];
        status = time_of(&o, name, model, best_ns, err, &ns);
        if (ns < best_ns) best_ns = ns, fastest = list[i];
    }
    o.request.micro_batch = fastest;
    return status == HT_OK ? ht_evaluate(&o, name, model, err, out) : status;
}
