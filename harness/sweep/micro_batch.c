#include "harness/sweep/micro_batch.h"

#include "common/base/array.h"
#include "harness/run/registry.h"

#include <stdlib.h>

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

double ht_job_least_s(const struct ht_job *job)
{
    const struct ht_schedule *g = job->schedule;
    int64_t *busy = HT_NEW_ARRAY(int64_t, g->n_lanes), most = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].when == HT_ALWAYS) busy[g->ops[i].lane] += job->cost_ns[i];
    for (int32_t i = 0; i < g->n_lanes; i++) most = busy[i] > most ? busy[i] : most;
    free(busy);
    return (double)most * 1e-9;
}

/* Sets *samples_per_s to the rate at the options' micro-batch; 0 if it does not fit or is refused, or is slower than
   `best` for sure. */
static enum ht_status rate_of(const struct ht_options *o, const char *system, const char *model, double best,
                              struct ht_error *err, double *samples_per_s)
{
    struct ht_job job;
    struct ht_result result;
    struct ht_error why;
    *samples_per_s = 0;
    enum ht_status status = ht_job_create(o, system, model, HT_JOB_COSTS, &why, &job);
    if (status == HT_BAD_INPUT) return HT_OK;
    if (status != HT_OK) {
        *err = why;
        return status;
    }
    if (job.answer == HT_OK && (double)job.scenario.batch > best * ht_job_least_s(&job)) {
        status = ht_evaluate_job(o, &job, &why, &result);
        if (status == HT_OK) {
            *samples_per_s = result.samples_per_s;
            ht_result_free(&result);
        } else if (status == HT_BAD_INPUT) {
            status = HT_OK;
        } else {
            *err = why;
        }
    }
    ht_job_free(&job);
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
    double best = 0;
    if (o.request.micro_batch || o.plan.load || o.sim.replay) return ht_evaluate(options, name, model, err, out);
    enum ht_status status = ht_system_find(name, err, &system);
    if (status == HT_OK) status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    size_t n = ht_micro_batches(system, scenario.batch, ht_scenario_ranks(&scenario), list);
    ht_scenario_free(&scenario);
    int64_t fastest = n ? list[n - 1] : 0;
    for (size_t i = 0; i < n && n > 1 && status == HT_OK; i++) {
        double rate;
        o.request.micro_batch = list[i];
        status = rate_of(&o, name, model, best, err, &rate);
        if (rate > best) best = rate, fastest = list[i];
    }
    o.request.micro_batch = fastest;
    return status == HT_OK ? ht_evaluate(&o, name, model, err, out) : status;
}
