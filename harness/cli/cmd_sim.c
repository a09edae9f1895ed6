/* hetbench sim: the schedule under virtual time, or a report on a trace of it. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "harness/cli/drawing.h"
#include "harness/cli/job_report.h"
#include "harness/result/evaluate.h"
#include "harness/result/variations.h"
#include "harness/run/simulate.h"

#include <stdlib.h>
#include <string.h>

/* Replays the trace's grants and releases and checks that they give its peaks. */
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

/* Returns true if the graph is for times and memory alone: nothing writes it out, or an op of it. */
static bool folds(const struct ht_options *o)
{
    return !o->trace && !o->plan.dump && !o->draw && !o->plot && !o->sim.replay;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_evaluation e;
    struct ht_options shown = *options;
    shown.plan.progress = true;
    shown.plan.folds = folds(options);
    enum ht_status status = ht_check_variations(options, err); /* before a planner takes its time */
    if (status == HT_OK) status = ht_evaluate(&shown, NULL, NULL, err, &e);
    if (status != HT_OK) return status;
    if (e.result.trace) status = check_replay(e.result.trace, err);
    if (status == HT_OK) status = ht_save_trace(e.result.trace, options->trace, err);
    if (status == HT_OK) status = ht_job_dump(&e.job, options->plan.dump, err);
    if (status == HT_OK) status = ht_draw_plan(&e.result, options->draw, err);
    if (status == HT_OK) status = ht_plot_result(&e.result, options->plot, err);
    if (status == HT_OK) status = ht_result_show(&e.result, options->json, err);
    ht_evaluation_free(&e);
    return status;
}

const struct ht_command ht_cmd_sim = {
    .name = "sim",
    .args = "SYSTEM",
    .help = "simulate a system on a scenario: throughput, bounds, lanes, memory"
            "\vWith --load FILE the graph in FILE is simulated; its costs come from --profile or --cluster. With "
            "--replay FILE the report is on a trace that sim or train wrote of the same graph.",
    .example = "hetbench sim zero_offload --model autohete-4b --cluster autohete-1gpu --batch 8",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_LOAD | HT_OPT_DUMP | HT_OPT_SIM | HT_OPT_VARY | HT_OPT_TRACE |
              HT_OPT_REPLAY | HT_OPT_DRAW | HT_OPT_PLOT,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
