/* hetbench train: real training on this machine, or the memory ledger when it does not fit. */
#include "harness/cli/commands.h"
#include "harness/cli/drawing.h"
#include "harness/cli/job_report.h"
#include "harness/cli/train_report.h"

#include "common/base/array.h"
#include "common/base/stacks.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/exec/sim.h"
#include "harness/run/disks.h"
#include "harness/run/engine.h"
#include "harness/run/events.h"
#include "harness/run/transport.h"
#include "harness/result/heading.h"
#include "harness/run/output.h"
#include "harness/result/provenance.h"
#include "harness/run/ranks.h"
#include "harness/result/result.h"
#include "harness/result/table.h"
#include "harness/run/train.h"
#include "harness/run/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A training, from its options to its report. */
struct run {
    const struct ht_options *options;
    struct ht_ranks *ranks;
    bool speaks;
    struct ht_job job;
    struct ht_tokens tokens;
    struct ht_prediction prediction;
    struct ht_training training;
    struct ht_persist persist;
};

static void prediction_free(struct ht_prediction *p)
{
    free(p->peak_bytes);
    free(p->low_bytes);
    free(p->high_bytes);
    *p = (struct ht_prediction){0};
}

/* Returns the iterations of a training's trace before the steady state. */
static int32_t warmup_of(int64_t steps)
{
    return steps > 1 ? 1 : 0;
}

static enum ht_status predict(const struct ht_job *job, struct ht_error *err, struct ht_prediction *out)
{
    int32_t n = ht_n_spaces(job->schedule);
    struct ht_prediction p = {.peak_bytes = HT_NEW_ARRAY(int64_t, n),
                              .low_bytes = HT_NEW_ARRAY(int64_t, n),
                              .high_bytes = HT_NEW_ARRAY(int64_t, n)};
    struct ht_sim_options options = {.iterations = HT_RANGE_ITERATIONS, .issue_ahead = job->issue_ahead};
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_sim_run(job->schedule, job->cost_ns, &options, err, &trace);
    if (status == HT_OK) {
        memcpy(p.peak_bytes, trace->peak_bytes, (size_t)n * sizeof(int64_t));
        struct ht_times times;
        status = ht_trace_times(trace, job->cost_ns, 2, err, &times);
        if (status == HT_OK) p.iteration_ns = times.iteration_ns;
    }
    ht_trace_destroy(trace);
    if (status == HT_OK) status = ht_predict_peaks(job, err, p.low_bytes, p.high_bytes);
    if (status == HT_OK)
        *out = p;
    else
        prediction_free(&p);
    return status;
}

static enum ht_status open_data(const struct ht_options *o, const struct ht_job *job, struct ht_error *err,
                                struct ht_tokens *out)
{
    const struct ht_model *m = &job->scenario.model;
    enum ht_token_format format;
    enum ht_status status = ht_token_format_of(o->training.data, o->training.data_format, m->vocab, err, &format);
    if (status != HT_OK) return status;
    if (format == HT_TOKENS_IMAGES) return ht_images_open(o->training.data, m, err, out);
    if (format == HT_TOKENS_TEXT && m->vocab < 256)
        return ht_fail(err, HT_BAD_INPUT,
                       "model '%s' has a vocabulary of %lld; training on a text's bytes needs at least 256", m->name,
                       (long long)m->vocab);
    return ht_tokens_open(o->training.data, format, m->vocab, job->scenario.seq, err, out);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Writes a row for each step, also for those before a resumed training. */
static enum ht_status write_losses(const struct run *x, struct ht_error *err)
{
    const struct ht_training *t = &x->training;
    const char *path = x->options->training.losses;
    struct ht_output file;
    struct ht_losses all = {0};
    size_t bytes;
    enum ht_status status = path ? ht_output_open(path, err, &file) : HT_OK;
    if (status != HT_OK || !path) return status;
    for (int64_t i = 0; i < x->persist.n_losses_before; i++)
        ht_losses_add(&all, x->persist.state->losses.rows[i].step, x->persist.state->losses.rows[i].loss);
    for (int32_t k = 0; k < t->steps; k++) ht_losses_add(&all, t->first_step + k + 1, t->losses[k]);
    char *text = ht_losses_text(&all, &bytes);
    fwrite(text, 1, bytes, file.file);
    free(text);
    ht_losses_free(&all);
    return ht_output_commit(&file, err);
}

/* ---- reports --------------------------------------------------------------------------------------------------- */

static void add_arenas(struct ht_result *r, const struct ht_training *t)
{
    for (int32_t i = 0; i < r->n_memory; i++) {
        r->memory[i].arena_bytes = t->arena_peak_bytes[r->memory[i].space];
        r->memory[i].extent_bytes = t->arena_extent_bytes[r->memory[i].space];
    }
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

/* Prints the whole ledger of a job that does not fit, and fails with the verifier's reason. */
static enum ht_status refuse(const struct ht_options *o, const struct ht_job *job, struct ht_error *err)
{
    struct ht_result result = {0};
    enum ht_status status = ht_result_create(job, NULL, NULL, 0, err, &result);
    if (status == HT_OK) status = ht_result_show(&result, o->json, err);
    ht_result_free(&result);
    return status;
}

static enum ht_status invalid(const struct ht_emulated *e, struct ht_error *err)
{
    const struct ht_emu_overruns *v = &e->overruns;
    return ht_fail(
        err, HT_FAILED,
        "INVALID emulation: %lld of %lld ops (%.1f%%) took longer than their model at scale %.6g; expected at "
        "most 1%%: a larger --emu-scale gives them time",
        (long long)v->n_overran, (long long)v->n_ops, 100 * (double)v->n_overran / (double)v->n_ops, e->scale);
}

static void warn_of_losses(const struct ht_training *t)
{
    int32_t k = 0;
    while (k < t->steps && isfinite(t->losses[k])) k++;
    if (k < t->steps)
        fprintf(stderr, "hetbench: warning: the loss is not finite from step %d on (null in JSON)\n",
                t->first_step + k + 1);
}

/* Reports on the steps that are done, all or up to Ctrl-C. An interrupted run, and an invalid emulation, write no
   files. */
static enum ht_status report(struct run *x, bool whole, struct ht_error *err)
{
    struct ht_training *t = &x->training;
    struct ht_result result;
    if (t->steps == 0) return HT_OK;
    enum ht_status status = HT_OK;
    bool emulated = t->emulated.scale > 0, valid = !emulated || t->emulated.overruns.valid;
    if (emulated) status = ht_emulation_model(&x->job, t->steps, warmup_of(t->steps), err, &x->prediction.model);
    if (whole && valid && status == HT_OK) status = write_losses(x, err);
    if (whole && valid && status == HT_OK) status = ht_save_trace(t->trace, x->options->trace, err);
    if (status != HT_OK) return status;
    struct ht_trace *trace = t->trace;
    t->trace = NULL; /* the result has it now */
    status = ht_result_create(&x->job, trace, NULL, warmup_of(t->steps), err, &result);
    if (status != HT_OK) return status;
    add_arenas(&result, t);
    if (whole && valid) status = ht_plot_result(&result, x->options->plot, err);
    warn_of_losses(t);
    if (status == HT_OK && x->options->json) {
        json_t *root = ht_training_json(x->options, &result, t, &x->prediction, &x->persist);
        if (!valid) json_object_set_new(root, "status", json_string("invalid"));
        if (!whole) json_object_set_new(root, "status", json_string("interrupted"));
        status = ht_json_print(root, "result", err);
    } else if (status == HT_OK) {
        ht_training_print(&result, t, &x->prediction, &x->persist);
    }
    ht_result_free(&result);
    return status == HT_OK && whole && !valid ? invalid(&t->emulated, err) : status;
}

/* Writes the other files and the report also when the weights could not be written. */
static enum ht_status finish(struct run *x, struct ht_error *err)
{
    enum ht_status status = report(x, true, err);
    if (x->persist.save_error.status == HT_OK) return status;
    *err = x->persist.save_error; /* the worse of two errors */
    return x->persist.save_error.status;
}

/* Reports on a checkpoint that is at the last step already. */
static enum ht_status report_no_step(const struct run *x, bool saved, struct ht_error *err)
{
    const struct ht_options *o = x->options;
    struct ht_result result = {0};
    char folder[512], weights[512];
    enum ht_status status = ht_result_create(&x->job, NULL, NULL, 0, err, &result);
    if (status != HT_OK) return status;
    if (o->json) {
        json_t *root = ht_result_json(&result);
        json_object_set_new(root, "losses", json_array());
        json_object_set_new(root, "training",
                            json_pack("{s:o,s:I,s:i,s:i}", "data", ht_json_text(o->training.data), "steps_asked",
                                      (json_int_t)o->training.steps, "first_step", (int)x->persist.first_step,
                                      "steps_done", 0));
        status = ht_json_print(root, "result", err);
    } else {
        printf("%s is at step %d already: no step was run%s%s\n",
               ht_shown(x->persist.resumed_from, folder, sizeof(folder)), x->persist.first_step,
               saved ? "; its weights are in " : "", saved ? ht_shown(o->state.save, weights, sizeof(weights)) : "");
    }
    ht_result_free(&result);
    return status;
}

/* Writes the files of a checkpoint that is at the last step already, without a step. */
static enum ht_status export_checkpoint(struct run *x, struct ht_error *err)
{
    struct ht_error why = {0};
    enum ht_status saved = ht_persist_save(&x->persist, &why), status = write_losses(x, err);
    if (status == HT_OK) status = report_no_step(x, x->options->state.save && saved == HT_OK, err);
    if (saved == HT_OK) return status;
    *err = why;
    return saved;
}

/* Plans and proves the job, and opens its data. Refuses a job that does not fit. */
static enum ht_status prepare(struct run *x, struct ht_error *err)
{
    const struct ht_options *o = x->options;
    char config[4096];
    if (!o->training.data) return ht_fail(err, HT_BAD_INPUT, "train: --data is missing; expected a text or token ids");
    enum ht_status status = ht_persist_model(o, config, err);
    if (status == HT_OK) status = ht_job_create(o, NULL, *config ? config : NULL, HT_JOB_TRAINABLE, err, &x->job);
    if (status == HT_OK)
        ht_events_say(ht_ranks_events(x->ranks), "plan", "\"ns\": %lld", (long long)x->job.planning_ns);
    if (status == HT_OK) status = open_data(o, &x->job, err, &x->tokens);
    if (status == HT_OK && x->job.answer != HT_OK) status = refuse(o, &x->job, err);
    if (status == HT_OK) status = ht_transport_check(&o->platform, &x->job.platform, x->job.schedule->n_ranks, err);
    return status == HT_OK ? ht_check_events(&x->job, "--steps", o->training.steps, err) : status;
}

/* Starts the ranks, which do all the rest. */
static enum ht_status launch(const struct run *x, struct ht_error *err)
{
    const char *const outputs[] = {x->options->training.losses, x->options->trace, x->options->plan.dump,
                                   x->options->plot};
    enum ht_status status = HT_OK;
    for (size_t i = 0; i < HT_COUNT(outputs) && status == HT_OK; i++) status = ht_output_check_ranks(outputs[i], err);
    return status == HT_OK ? ht_ranks_launch(x->ranks, x->options, &x->job, err) : status;
}

/* Predicts the run, and opens the state that it begins with. */
static enum ht_status begin(struct run *x, struct ht_error *err)
{
    enum ht_status status = x->speaks ? ht_job_dump(&x->job, x->options->plan.dump, err) : HT_OK;
    if (status == HT_OK && x->speaks) status = predict(&x->job, err, &x->prediction);
    ht_events_say(ht_ranks_events(x->ranks), "planned", "\"step_ns\": %.0f", (double)x->prediction.iteration_ns);
    return status == HT_OK ? ht_persist_open(x->options, &x->job, &x->tokens, x->speaks, err, &x->persist) : status;
}

/* Reports on the steps up to Ctrl-C. */
static enum ht_status report_interrupted(struct run *x, struct ht_error *err)
{
    int32_t done = x->training.first_step + x->training.steps;
    int64_t kept = x->persist.checkpoints ? ht_checkpoints_latest(x->persist.checkpoints) : -1;
    char files[80] = "no files were written";
    if (x->persist.stores && ht_node_stores_newest(x->persist.stores) > kept)
        kept = ht_node_stores_newest(x->persist.stores);
    if (kept >= 0) snprintf(files, sizeof(files), "the newest checkpoint is of step %lld", (long long)kept);
    report(x, false, err);
    return ht_fail(err, HT_INTERRUPTED, "interrupted after %d of %lld steps; %s", done,
                   (long long)x->options->training.steps, files);
}

/* Trains and reports; a checkpoint of the last step is only written out. */
static enum ht_status train_on(struct run *x, struct ht_error *err)
{
    struct ht_persist *p = &x->persist;
    enum ht_status status = ht_persist_share(p, x->ranks, err);
    if (status == HT_OK) status = ht_node_stores_open(x->options, &x->job, x->ranks, p, err, &p->stores);
    if (status != HT_OK) return status;
    if (x->persist.first_step == x->options->training.steps) return x->speaks ? export_checkpoint(x, err) : HT_OK;
    status = ht_train(x->options, &x->job, &x->tokens, &x->persist, x->ranks, err, &x->training);
    if (status == HT_OK) return finish(x, err);
    return status == HT_INTERRUPTED ? report_interrupted(x, err) : status;
}

static enum ht_status train(const struct ht_options *options, struct ht_ranks *ranks, struct ht_error *err)
{
    struct run x = {.options = options, .ranks = ranks, .speaks = ht_ranks_speaks(ranks)};
    struct ht_new_folders folders = ht_persist_new_folders(&options->state);
    bool away = false;
    enum ht_status status = prepare(&x, err);
    if (status == HT_OK) status = ht_ranks_wanted(ranks, options, &x.job, err, &away);
    if (status == HT_OK && away) {
        status = launch(&x, err);
    } else {
        if (status == HT_OK) status = begin(&x, err);
        status = ht_ranks_agree(ranks, status, err); /* also on what failed before */
        if (status == HT_OK) status = train_on(&x, err);
    }
    ht_training_free(&x.training);
    ht_node_stores_close(x.persist.stores);
    ht_persist_close(&x.persist);
    if (x.speaks) ht_persist_remove_empty(&options->state, folders);
    prediction_free(&x.prediction);
    ht_tokens_close(&x.tokens);
    if (x.job.status) ht_job_free(&x.job);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_ranks ranks;
    if (options->training.events) ht_stacks_on_signal(); /* for the supervisor */
    enum ht_status status = ht_ranks_open(err, &ranks);
    if (status == HT_OK) status = ht_events_open(options->training.events, err, &ranks.events);
    if (status == HT_OK && ranks.comm)
        ht_events_say(ht_ranks_events(&ranks), "ranks", "\"n\": %d", ht_ranks_count(&ranks));
    if (status == HT_OK) status = train(options, &ranks, err);
    status = ht_ranks_close(&ranks, status, err);
    ht_events_close(ranks.events);
    return status;
}

const struct ht_command ht_cmd_train = {
    .name = "train",
    .args = "SYSTEM",
    .help = "train for real on this machine: losses, times, memory"
            "\vThe cluster is 'local' unless another with an emulated device is named, or any under --clock emu. "
            "--device-memory sets what the "
            "device has; a job that does not fit is refused with its memory ledger (exit status 3). A cluster of "
            "several "
            "emulated devices, or --ranks N, trains in as many processes, which mpirun starts.",
    .example = "hetbench train in_memory --model gpt-tiny --data FILE --steps 50",
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_TRAIN | HT_OPT_LAUNCH | HT_OPT_DUMP | HT_OPT_TRACE | HT_OPT_PLOT,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
