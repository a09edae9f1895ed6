/* hetbench goodput: a simulated day of a job on nodes that come and go, by policy. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "harness/days/study.h"
#include "harness/result/provenance.h"
#include "harness/result/result.h"
#include "harness/result/rows.h"
#include "harness/run/output.h"
#include "harness/run/progress.h"

#include <stdlib.h>

/* Takes a value that was given, in place of one with a source. */
static void take(double *to, double value, char *source)
{
    if (value < 0) return;
    *to = value;
    snprintf(source, HT_DAY_SOURCE, "as given");
}

/* Reads the options into a study. *drawn: text that the study points into, allocated. */
static enum ht_status read_study(const struct ht_options *o, struct ht_error *err, struct ht_study *s, char **drawn)
{
    const struct ht_day_options *d = &o->day;
    *s = (struct ht_study){.options = *o,
                           .day = d->trace,
                           .cluster = o->request.cluster,
                           .plans = d->plans,
                           .times = ht_day_times_default()};
    if (!d->trace == !d->drawn)
        return ht_fail(err, HT_BAD_INPUT, "%s; expected --trace INSTANCE=NAME or --draw",
                       d->trace ? "--trace and --draw are both given" : "--trace is missing");
    enum ht_status status = ht_study_read_policies("--policies", d->policies, err, s);
    if (!status) status = ht_study_read_prices("--price", d->price, err, s);
    if (!status) status = ht_study_read_points("--speeds", d->speeds, err, s->speeds, &s->n_speeds);
    if (!status) status = ht_study_read_points("--intervals", d->intervals, err, s->intervals, &s->n_intervals);
    if (!status && d->drawn) status = ht_study_read_drawn("--draw", *drawn = ht_strdup(d->drawn), err, &s->drawn);
    if (!status && d->times) status = ht_day_times_read(d->times, err, &s->times, &s->sources);
    take(&s->times.detect_s, d->detect_s, s->sources.detect);
    take(&s->times.plan_s, d->plan_s, s->sources.plan);
    take(&s->times.relaunch_s, d->relaunch_s, s->sources.relaunch);
    if (d->quiet_s >= 0) s->times.quiet_s = d->quiet_s;
    s->times.save_every_s = d->save_every_s;
    s->times.keep_nodes = (int32_t)d->keep_nodes;
    if (d->remote_bytes_per_s > 0) s->times.remote_bytes_per_s = d->remote_bytes_per_s;
    return status;
}

static enum ht_status write_trace(const struct ht_study *s, const char *path, struct ht_error *err)
{
    struct ht_spot_trace t;
    struct ht_output file;
    enum ht_status status = ht_study_trace(s, err, &t);
    if (status) return status;
    status = ht_output_open(path, err, &file);
    if (!status) {
        ht_spot_trace_write(&t, file.file);
        status = ht_output_end(&file, HT_OK, err);
    }
    ht_spot_trace_free(&t);
    return status;
}

static enum ht_status write_csv(const json_t *study, const char *path, struct ht_error *err)
{
    struct ht_output file;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status) return status;
    ht_study_csv(study, true, file.file);
    return ht_output_end(&file, HT_OK, err);
}

static enum ht_status run(const struct ht_options *o, struct ht_error *err)
{
    struct ht_study *s = HT_NEW(struct ht_study);
    char *drawn = NULL;
    json_t *root = NULL;
    enum ht_status status = read_study(o, err, s, &drawn);
    if (!status && o->day.write) {
        status = write_trace(s, o->day.write, err);
    } else if (!status) {
        struct ht_progress progress = ht_progress_begin("goodput");
        ht_progress_beat(&progress, "planning and simulating");
        status = ht_study_run(s, err, &root);
        ht_progress_end(&progress);
        if (!status && o->out) status = write_csv(root, o->out, err);
        if (!status && !o->json) ht_study_print(root, stdout);
        if (!status && o->json) {
            ht_provenance_add(root);
            status = ht_json_print(json_incref(root), "study", err);
        }
    }
    json_decref(root);
    free(drawn);
    free(s);
    return status;
}

const struct ht_command ht_cmd_goodput = {
    .name = "goodput",
    .help = "simulate a day on spot instances: samples, lost steps, money, by policy\v"
            "--cluster names a file with one node of each kind, and their 'instance' [spot-instances]. docs/goodput.md "
            "says what is counted.",
    .example = "hetbench goodput --model gpt2-1.5b --batch 256 --trace p3.2xlarge=oobleck-p3",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_SHAPE | HT_OPT_SIM | HT_OPT_DAY,
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
