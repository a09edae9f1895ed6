/* hetbench sim: the schedule under virtual time, or a report on a trace of it. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "harness/result/result.h"
#include "harness/run/simulate.h"

#include <stdlib.h>
#include <string.h>

/* The trace's grants and releases give its peaks once more: the executor's book against the order of events. */
static enum ht_status check_replay(const struct ht_trace *t, struct ht_error *err)
{
    int32_t n = ht_n_spaces(t->schedule);
    int64_t *peak = HT_NEW_ARRAY(int64_t, n);
    enum ht_status status = ht_trace_replay(t, err, peak);
    if (status == HT_OK && memcmp(peak, t->peak_bytes, (size_t)n * sizeof(*peak)) != 0)
        status = ht_fail(err, HT_FAILED, "replaying the trace's grants and releases does not give its peaks");
    free(peak);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_job job;
    struct ht_result result = {0};
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_job_create(options, NULL, NULL, HT_JOB_COSTS, err, &job);
    if (status != HT_OK) return status;
    if (job.answer == HT_OK) status = ht_simulate(options, &job, err, &trace);
    if (status == HT_OK && trace) status = check_replay(trace, err);
    if (status == HT_OK) status = ht_save_trace(trace, options->trace, err);
    if (status == HT_OK) status = ht_job_dump(&job, options->dump, err);
    if (status != HT_OK) {
        ht_trace_destroy(trace);
        ht_job_free(&job);
        return status;
    }
    bool real = trace && trace->clock != HT_CLOCK_SIM;
    status = ht_result_create(&job, trace, real ? NULL : job.cost_ns, (int32_t)options->warmup, err, &result);
    if (status == HT_OK && options->json)
        status = ht_json_print(ht_result_json(&result), err);
    else if (status == HT_OK)
        ht_result_print(&result, stdout);
    if (status == HT_OK && job.answer != HT_OK) status = ht_fail(err, job.answer, "%s", job.reason);
    ht_result_free(&result);
    ht_job_free(&job);
    return status;
}

const struct ht_command ht_cmd_sim = {
    .name = "sim",
    .args = "SYSTEM",
    .help = "simulate a system on a scenario: throughput, bounds, lanes, memory"
            "\vWith --load FILE the graph in FILE is simulated; its costs come from --profile or --cluster. With "
            "--replay FILE the report is on a trace that sim or train wrote of the same graph.",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_LOAD | HT_OPT_DUMP | HT_OPT_SIM | HT_OPT_TRACE | HT_OPT_REPLAY,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
