#include "harness/result/evaluate.h"

#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/result/variations.h"
#include "harness/run/registry.h"
#include "harness/run/simulate.h"

#include <stdlib.h>

/* A graph over 32 devices takes about 48 kB a pass, over fewer devices less. Its trace takes some 12 ops of 70 bytes a
   pass and iteration. */
static const double graph_bytes = 64e3, iteration_bytes = 1e3;

/* Simulates the job again with ok iterations only, and compares. */
static enum ht_status compare_outcomes(const struct ht_options *o, const struct ht_job *job, struct ht_error *err,
                                       struct ht_result *r)
{
    struct ht_options without = *o;
    struct ht_trace *ok = NULL;
    struct ht_times times;
    without.sim.n_bad = 0;
    enum ht_status status = ht_simulate(&without, job, err, &ok);
    if (status != HT_OK) return status;
    status = ht_trace_times(ok, job->cost_ns, r->metrics.warmup, err, &times);
    if (status == HT_OK) {
        free(ht_bad_iterations(o, &r->bad.n));
        r->bad.ok_s = (double)times.iteration_ns * 1e-9;
        r->bad.bad_s = r->bad.ok_s + (double)(r->trace->end_ns - ok->end_ns) * 1e-9 / (double)r->bad.n;
    }
    ht_trace_destroy(ok);
    return status;
}

enum ht_status ht_evaluate_job(const struct ht_options *o, const struct ht_job *job, struct ht_error *err,
                               struct ht_result *out)
{
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_check_bad(o, job, err);
    if (status == HT_OK && job->answer == HT_OK) status = ht_simulate(o, job, err, &trace);
    if (status != HT_OK) return status;
    bool real = trace && trace->clock != HT_CLOCK_SIM;
    status = ht_result_create(job, trace, real ? NULL : job->cost_ns, (int32_t)o->sim.warmup, err, out);
    if (status != HT_OK || !trace) return status;
    if (o->sim.n_bad) status = compare_outcomes(o, job, err, out);
    if (status == HT_OK) status = ht_variations(job, o, err, &out->variations);
    if (status != HT_OK) ht_result_free(out);
    return status;
}

enum ht_status ht_evaluate(const struct ht_options *o, const char *system, const char *model, struct ht_error *err,
                           struct ht_evaluation *out)
{
    enum ht_status status = ht_job_create(o, system, model, HT_JOB_COSTS, err, &out->job);
    if (status != HT_OK) return status;
    status = ht_evaluate_job(o, &out->job, err, &out->result);
    if (status != HT_OK) ht_job_free(&out->job);
    return status;
}

void ht_evaluation_free(struct ht_evaluation *e)
{
    ht_result_free(&e->result);
    ht_job_free(&e->job);
}

static void add_peak(const struct ht_result *r, enum ht_tier tier, const char *key, json_t *row)
{
    int64_t peak = ht_result_peak(r, tier);
    json_object_set_new(row, key, peak < 0 ? json_null() : json_integer(peak));
}

json_t *ht_evaluation_row(const struct ht_evaluation *e, json_t *provenance)
{
    json_t *row = ht_result_values_json(&e->result);
    if (provenance) json_object_update(row, provenance);
    add_peak(&e->result, HT_DEVICE, "device_peak_bytes", row);
    add_peak(&e->result, HT_HOST, "host_peak_bytes", row);
    return row;
}

json_t *ht_refused_row(const struct ht_options *options, const char *system, const char *name,
                       const struct ht_model *model, json_t *provenance, const struct ht_error *why)
{
    struct ht_scenario_request request = ht_job_request(options, name);
    struct ht_scenario scenario;
    const struct ht_system *found;
    struct ht_error ignored;
    json_t *row = json_pack("{s:s,s:o,s:s}", "status", "refused", "reason", ht_json_text(why->text), "system", system);
    if (provenance) json_object_update(row, provenance);
    if (ht_system_find(system, &ignored, &found) == HT_OK &&
        ht_scenario_create(&request, &ignored, &scenario) == HT_OK) {
        json_object_set_new(row, "title", json_string(ht_system_title(found, &scenario)));
        json_object_set_new(row, "scenario", ht_scenario_json(&scenario, found->division));
        ht_scenario_free(&scenario);
    } else {
        json_object_set_new(
            row, "scenario",
            json_pack("{s:{s:s,s:I}}", "model", "name", model->name, "params", (json_int_t)ht_model_params(model)));
    }
    return row;
}

double ht_evaluation_bytes(const struct ht_options *o, int64_t n_units)
{
    const struct ht_scenario_request *r = &o->request;
    double micro_batches = (double)(r->batch ? r->batch : 8) / (double)(r->micro_batch ? r->micro_batch : 1);
    return micro_batches * (double)n_units * (graph_bytes + (double)o->sim.iterations * iteration_bytes);
}
