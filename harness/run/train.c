#include "harness/run/transport.h"
#include "harness/run/train.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/interrupt.h"
#include "common/base/tasks.h"
#include "common/comm/tags.h"
#include "common/exec/run.h"
#include "common/exec/sim.h"
#include "common/mem/arena.h"
#include "harness/run/disks.h"
#include "harness/run/emulate.h"
#include "harness/run/drill.h"
#include "harness/run/engine.h"
#include "harness/run/events.h"
#include "harness/run/faults.h"
#include "harness/run/stream.h"
#include "harness/run/watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The context of the executor's hooks. */
struct session {
    const struct ht_options *options;
    const struct ht_job *job;
    const struct ht_ranks *ranks;
    struct ht_engine *engine;
    struct ht_persist *persist;
    struct ht_stream *stream;
    struct ht_watch watch;
    double *token_losses;                    /* [steps * n_micro_batches]: sums over a micro-batch's tokens */
    int32_t n_summed;                        /* steps of which rank 0 has the losses of all ranks */
    const struct ht_cpu_iteration *outcomes; /* [steps], or NULL */
    int32_t run_begin, run_end;              /* steps done when the executor's present run began, and when it ends */
    int64_t began_ns, shown_ns;
    bool terminal, shown;
};

/* Returns the mean over the batch's targets. The sums must be those of all ranks. */
static double mean_loss(const struct ht_job *job, const double *token_losses, int32_t step)
{
    const struct ht_scenario *s = &job->scenario;
    int64_t n_mb = job->schedule->n_micro_batches;
    double sum = 0;
    for (int64_t j = 0; j < n_mb; j++) sum += token_losses[step * n_mb + j];
    return sum / (double)(s->batch * ht_model_head_rows(&s->model, s->seq));
}

static int32_t count(const struct ht_cpu_iteration *outcomes, int32_t n, enum ht_cpu_outcome which)
{
    int32_t sum = 0;
    for (int32_t k = 0; outcomes && k < n; k++) sum += outcomes[k].outcome == which;
    return sum;
}

/* Shows the progress on stderr: on a terminal four times a second, elsewhere every two seconds; nothing in a run
   shorter than that. One of several ranks speaks, without the loss, of which it has only a part until the end. */
static enum ht_status on_iteration(void *ctx, int32_t iteration, struct ht_error *err)
{
    struct session *s = ctx;
    (void)err;
    if (!ht_ranks_speaks(s->ranks)) return HT_OK;
    ht_events_say(s->ranks->events, "step", "\"step\": %d", s->run_begin + iteration + 1);
    int64_t now = ht_now_ns();
    if (now - s->shown_ns < (s->terminal ? 250000000 : 2000000000)) return HT_OK;
    s->shown_ns = now;
    s->shown = true;
    int64_t steps = s->options->training.steps, done = s->run_begin + iteration + 1;
    int32_t first = s->persist->first_step;
    double each_s = (double)(now - s->began_ns) * 1e-9 / (double)(done - first);
    int32_t skipped = s->outcomes ? count(s->outcomes + first, (int32_t)done - first, HT_CPU_SKIPPED) : 0;
    char loss[32] = "", left_out[32] = "";
    if (!s->ranks->comm)
        snprintf(loss, sizeof(loss), "  loss %.4f", mean_loss(s->job, s->token_losses, (int32_t)done - 1));
    if (skipped) snprintf(left_out, sizeof(left_out), "  %d skipped", skipped);
    fprintf(stderr, "%sstep %lld/%lld%s%s  %.3g s/step  %.0f s left%s", s->terminal ? "\r" : "", (long long)done,
            (long long)steps, loss, left_out, each_s, each_s * (double)(steps - done), s->terminal ? "   " : "\n");
    return HT_OK;
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

/* Fills in what the backend reads and writes during the run. */
struct inputs {
    struct ht_batches batches;
    struct ht_cpu_fault *faults;
    double *token_losses;
    struct ht_cpu_iteration *outcomes;
};

static enum ht_status make_inputs(const struct ht_options *o, const struct ht_job *job, const struct ht_tokens *tokens,
                                  struct ht_error *err, struct inputs *in)
{
    const struct ht_scenario *s = &job->scenario;
    bool checked = ht_job_checks_gradients(job);
    if (o->training.n_faults && !checked)
        return ht_fail(err, HT_BAD_INPUT,
                       "--inject-overflow: no gradient check; expected --control gate or rollback beside it");
    enum ht_status status = ht_faults_read(o, job, err, &in->faults);
    if (status != HT_OK) return status;
    in->token_losses = HT_NEW_ARRAY(double, o->training.steps * job->schedule->n_micro_batches);
    if (checked) in->outcomes = HT_NEW_ARRAY(struct ht_cpu_iteration, o->training.steps);
    ht_batches_init(&in->batches, tokens, (uint64_t)o->training.data_seed, s->batch, job->schedule->n_micro_batches,
                    job->schedule->slices, s->seq, s->model.classes);
    return HT_OK;
}

static void free_inputs(struct inputs *in)
{
    ht_batches_free(&in->batches);
    free(in->faults);
    free(in->token_losses);
    free(in->outcomes);
}

static enum ht_status make_engine(const struct ht_options *o, const struct ht_job *job, const struct ht_ranks *ranks,
                                  struct ht_comm *between_gpus, struct inputs *in, struct ht_error *err,
                                  struct ht_engine *out, struct ht_training *training)
{
    const struct ht_scenario *s = &job->scenario;
    int32_t n_local, local = ht_ranks_local(ranks, &n_local);
    /* A modelled device has all cores that there are; beside a GPU one core serves its lanes. */
    int64_t cores = job->platform.kind == HT_PLATFORM_GPU ? 1
                    : job->platform.kind == HT_PLATFORM_EMULATED
                        ? 0
                        : ht_cluster_gpu_of(s->cluster, ht_ranks_me(ranks))->cores;
    enum ht_status status = ht_cpu_split_for_rank((int)cores, local, n_local, err, &training->split);
    if (status != HT_OK) return status;
    struct ht_cpu_options options = {.model = s->model,
                                     .numerics = s->numerics,
                                     .tokens_per_iteration = s->batch * s->seq,
                                     .seed = (uint64_t)o->training.init_seed,
                                     .adamw = o->training.adamw,
                                     .data = ht_batches_get,
                                     .data_ctx = &in->batches,
                                     .losses = in->token_losses,
                                     .control = s->control.options,
                                     .outcomes = in->outcomes,
                                     .faults = in->faults,
                                     .n_faults = (int32_t)o->training.n_faults,
                                     .comm = between_gpus ? between_gpus : ranks->comm,
                                     .sums_in_order = o->platform.deterministic,
                                     .split = &training->split};
    return ht_engine_create(&job->platform, local, &options, err, out);
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median_of(const int64_t *ns, int32_t n)
{
    if (n < 1) return 0;
    int64_t *sorted = HT_NEW_ARRAY(int64_t, n);
    memcpy(sorted, ns, (size_t)n * sizeof(*ns));
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_ns);
    int64_t median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

/* Fills in the figures of the trace and the losses. */
static void account(const struct ht_job *job, const struct inputs *in, struct ht_training *t)
{
    t->steps = t->trace->iterations;
    t->losses = HT_NEW_ARRAY(double, t->steps);
    t->step_ns = HT_NEW_ARRAY(int64_t, t->steps);
    for (int32_t k = 0; k < t->steps; k++) {
        t->losses[k] = mean_loss(job, in->token_losses, t->first_step + k);
        t->step_ns[k] = t->trace->iteration_end_ns[k] - (k ? t->trace->iteration_end_ns[k - 1] : 0);
    }
    if (in->outcomes) {
        t->outcomes = HT_NEW_ARRAY(struct ht_cpu_iteration, t->steps);
        memcpy(t->outcomes, in->outcomes + t->first_step, (size_t)t->steps * sizeof(*t->outcomes));
        t->skipped = count(t->outcomes, t->steps, HT_CPU_SKIPPED);
        t->redone = count(t->outcomes, t->steps, HT_CPU_REDONE);
    }
    t->median_step_ns = t->steps > 1 ? median_of(t->step_ns + 1, t->steps - 1) : median_of(t->step_ns, t->steps);
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

/* Gives the backend the step counts and the loss scale of a resumed state. */
static void give_counts(const struct session *s)
{
    const struct ht_persist *p = s->persist;
    if (!p->resumed) return;
    for (int64_t u = 0; u < p->state->n_units; u++)
        ht_cpu_set_row_steps(s->engine->cpu, (int32_t)u, 0, ht_unit_params(&p->state->model, u), p->state->steps[u]);
    if (p->scaler_anew) return;
    ht_cpu_control_set(s->engine->cpu, (struct ht_scaler){.scale = p->state->loss_scale, .good = p->state->good});
}

/* Sums on rank 0 the losses of all ranks, of the steps up to `end`; every rank takes part. */
static enum ht_status sum_losses(struct session *s, int32_t end, struct ht_error *err)
{
    int64_t n_mb = s->job->schedule->n_micro_batches;
    enum ht_status status =
        ht_ranks_sum(s->ranks, s->token_losses + s->n_summed * n_mb, (end - s->n_summed) * n_mb, err);
    s->n_summed = end;
    return status;
}

/* Appends the steps [begin, end) to the state's losses. */
static enum ht_status add_losses(struct session *s, int32_t begin, int32_t end, struct ht_error *err)
{
    enum ht_status status = sum_losses(s, end, err);
    if (status != HT_OK || !ht_ranks_speaks(s->ranks)) return status;
    for (int32_t k = begin; k < end; k++)
        ht_losses_add(&s->persist->state->losses, k + 1, mean_loss(s->job, s->token_losses, k));
    return HT_OK;
}

/* Names the faults of --inject-disk that no process has met; every rank takes part. */
static enum ht_status name_unmet_faults(const struct ht_disk_drill *drill, const struct ht_ranks *ranks,
                                        struct ht_error *err)
{
    const struct ht_disks *disks = drill->disks;
    double *met = HT_NEW_ARRAY(double, disks->n_faults);
    for (int64_t i = 0; i < disks->n_faults; i++) met[i] = ht_disk_drill_met(drill, i);
    enum ht_status status = ht_ranks_sum(ranks, met, disks->n_faults, err);
    for (int64_t i = 0; i < disks->n_faults && status == HT_OK && ht_ranks_speaks(ranks); i++)
        if (met[i] == 0)
            fprintf(
                stderr,
                "hetbench: warning: --inject-disk %s: nothing was injected, since no process made so many requests\n",
                disks->faults[i].text);
    free(met);
    return status;
}

/* ---- the state ---- */

static enum ht_status write_checkpoint(void *ctx, struct ht_error *err)
{
    const struct session *s = ctx;
    return ht_persist_reached(s->persist, s->run_end, err);
}

static enum ht_status write_weights(void *ctx, struct ht_error *err)
{
    const struct session *s = ctx;
    return ht_persist_save(s->persist, err);
}

/* Updates the state to the last run's end and writes a checkpoint of it; every rank takes part. */
static enum ht_status keep_state(struct session *s, int32_t begin, struct ht_error *err)
{
    struct ht_persist *p = s->persist;
    if (!p->state) return HT_OK;
    enum ht_status status = add_losses(s, begin, s->run_end, err);
    if (status != HT_OK || (!s->options->state.checkpoint && !p->stores)) return status;
    status = ht_stream_counts(s->stream, p->state, err);
    if (status == HT_OK && s->options->state.checkpoint) status = ht_stream_read(s->stream, write_checkpoint, s, err);
    if (status != HT_OK || !p->stores) return status;
    ht_events_say(ht_ranks_events(s->ranks), "saving", "\"step\": %d", s->run_end);
    status = ht_node_stores_save(p->stores, s->stream, p->state, s->run_end, p->settings, HT_PERSIST_SETTINGS, err);
    if (status == HT_OK) ht_events_say(ht_ranks_events(s->ranks), "saved", "\"step\": %d", s->run_end);
    return status;
}

/* Keeps, after Ctrl-C, the last iteration that ended; every rank takes part. Returns HT_INTERRUPTED, or why it is not kept. */
static enum ht_status keep_interrupted(struct session *s, const struct ht_trace *run, struct ht_error *err)
{
    struct ht_error why = *err;
    int64_t done = run ? run->iterations : 0; /* rank 0's, which has the trace of all */
    enum ht_status status = ht_ranks_broadcast(s->ranks, HT_TAG_STATE, &done, sizeof(done), err);
    s->run_end = s->run_begin + (int32_t)done;
    if (status == HT_OK && done) status = keep_state(s, s->run_begin, err);
    if (status != HT_OK) return status;
    *err = why;
    return HT_INTERRUPTED;
}

/* Writes the weights of --save; every rank takes part. Keeps a failure for later: the report comes all the same. */
static void save_weights(struct session *s)
{
    struct ht_persist *p = s->persist;
    if (!p->state || !s->options->state.save) return;
    p->save_error.status = ht_stream_read(s->stream, write_weights, s, &p->save_error);
}

/* Trains to the end, in as many runs of the executor as there are checkpoints. *trace covers all that was done, NULL
   before anything was. */
static enum ht_status run_steps(struct session *session, struct ht_run_options *run, struct ht_error *err,
                                struct ht_trace **trace)
{
    struct ht_persist *p = session->persist;
    enum ht_status status = HT_OK;
    int32_t step = p->first_step, end = (int32_t)session->options->training.steps;
    for (; status == HT_OK && step < end; step = session->run_end) {
        struct ht_trace *more = NULL;
        session->run_begin = step;
        session->run_end = ht_persist_next(p, step, end);
        run->iterations = session->run_end - step;
        ht_cpu_set_first_iteration(session->engine->cpu, step);
        session->watch.first_iteration = step;
        status = ht_ranks_run(session->ranks, session->job->schedule, run, err, &more);
        if (status == HT_INTERRUPTED && run->ends_whole) status = keep_interrupted(session, more, err);
        if (*trace && more) {
            ht_trace_append(*trace, more);
            ht_trace_destroy(more);
        } else if (more) {
            *trace = more;
        }
        if (status == HT_OK) status = keep_state(session, step, err);
    }
    if (status == HT_OK) save_weights(session);
    return status;
}

/* Finds the scale of the emulated clock: the given one, or from a few steps beforehand that are not held and leave
   nothing. */
static enum ht_status find_scale(const struct ht_options *options, const struct ht_job *job,
                                 const struct ht_tokens *tokens, struct ht_ranks *ranks, struct ht_error *err,
                                 struct ht_emulated *out)
{
    enum { STEPS = 3 };
    out->scale = job->platform.emu_scale;
    if (job->platform.kind != HT_PLATFORM_EMULATED || job->platform.unheld || out->scale > 0) return HT_OK;
    struct ht_options probe = *options;
    struct ht_job plain = *job; /* borrows all that the job has */
    struct ht_persist nothing = {0};
    struct ht_training t;
    probe.training.steps = STEPS;
    probe.training.n_faults = 0;
    probe.training.process_fault = NULL;
    plain.platform.kind = HT_PLATFORM_CPU;
    plain.platform.disks.n_faults = 0;
    int events = ranks->events;
    ranks->events = -1;
    enum ht_status status = ht_train(&probe, &plain, tokens, &nothing, ranks, err, &t);
    ranks->events = events;
    if (status == HT_OK) status = ht_emulation_find_scale(ranks, t.trace, job->cost_ns, err, out);
    ht_training_free(&t);
    return status;
}

/* Wraps the run's backend if somebody listens or a drill is to happen. */
static enum ht_status watch(struct session *s, struct ht_run_options *run, struct ht_error *err)
{
    const struct ht_training_options *o = &s->options->training;
    struct ht_watch *w = &s->watch;
    *w = (struct ht_watch){.schedule = s->job->schedule,
                           .rank = ht_ranks_me(s->ranks),
                           .events = ht_ranks_events(s->ranks),
                           .inner = run->backend,
                           .inner_ctx = run->backend_ctx};
    if (!o->events && !o->process_fault) return HT_OK;
    enum ht_status status = ht_drill_read(o->process_fault, ht_ranks_count(s->ranks), s->ranks->events, err, &w->drill);
    ht_watch_begin(w);
    run->backend = ht_watch_backend(w);
    run->backend_ctx = w;
    return status;
}

static void say_loaded(const struct session *s)
{
    const struct ht_persist *p = s->persist;
    uint64_t run = 0, from = 0;
    if (p->stores) ht_node_stores_runs(p->stores, &run, &from);
    ht_events_say(ht_ranks_events(s->ranks), "loaded", "\"step\": %d, \"run\": \"%016llx\", \"from\": \"%016llx\"",
                  p->first_step, (unsigned long long)run, (unsigned long long)from);
}

/* Waits for the save in flight, after Ctrl-C, too. Returns the run's status, or why the save failed. */
static enum ht_status finish_stores(struct ht_node_stores *stores, enum ht_status status, struct ht_error *err,
                                    struct ht_store_figures *figures)
{
    struct ht_error why = {0};
    if (status != HT_OK && status != HT_INTERRUPTED) return status;
    enum ht_status finished = ht_node_stores_finish(stores, &why, figures);
    if (finished != HT_OK) *err = why;
    return finished != HT_OK ? finished : status;
}

/* Gathers the memory of all nodes; every rank takes part. */
static enum ht_status account_memory(const struct ht_job *job, const struct ht_ranks *ranks, struct ht_arena **arenas,
                                     struct ht_error *err, struct ht_training *t)
{
    t->arena_peak_bytes = HT_NEW_ARRAY(int64_t, ht_n_spaces(job->schedule));
    t->arena_extent_bytes = HT_NEW_ARRAY(int64_t, ht_n_spaces(job->schedule));
    t->resident_peak_bytes = HT_NEW_ARRAY(int64_t, job->schedule->n_ranks);
    enum ht_status status = ht_ranks_resident_peaks(ranks, t->resident_peak_bytes, err);
    if (status != HT_OK) return status;
    return ht_ranks_arenas(ranks, job->schedule, arenas, t->arena_peak_bytes, t->arena_extent_bytes, err);
}

static void account_gpu(const struct ht_cuda_device *gpu, struct ht_training *t)
{
    const struct ht_cuda_slow_shape *slow = ht_cuda_device_slow_shapes(gpu, &t->n_slow);
    t->slow = HT_NEW_ARRAY(struct ht_cuda_slow_shape, t->n_slow);
    for (size_t i = 0; i < t->n_slow; i++) t->slow[i] = slow[i];
    t->foreign_bytes = ht_cuda_device_foreign_bytes(gpu);
}

enum ht_status ht_train(const struct ht_options *options, const struct ht_job *job, const struct ht_tokens *tokens,
                        struct ht_persist *persist, struct ht_ranks *ranks, struct ht_error *err,
                        struct ht_training *out)
{
    struct ht_training t = {0};
    struct inputs in = {0};
    struct ht_engine engine = {0};
    struct ht_emulation emulation = {0};
    struct ht_comm *between_gpus = NULL;
    struct ht_disk_drill drill;
    struct ht_disk_options disk = ht_disk_drill_begin(&drill, &job->platform.disks);
    enum ht_status status = find_scale(options, job, tokens, ranks, err, &t.emulated);
    if (status == HT_OK && t.emulated.scale > 0)
        status = ht_emulation_announce(ranks, job, options->training.steps - persist->first_step, err, &t.emulated);
    if (status == HT_OK) status = make_inputs(options, job, tokens, err, &in);
    status = ht_ranks_agree(ranks, status, err);
    if (status == HT_OK) status = ht_transport_open(&options->platform, &job->platform, ranks, err, &between_gpus);
    if (status == HT_OK) status = make_engine(options, job, ranks, between_gpus, &in, err, &engine, &t);
    status = ht_ranks_agree(ranks, status, err);
    t.by_nccl = between_gpus != NULL;
    if (status == HT_OK)
        status = ranks->comm ? ht_ranks_make_node(ranks, job, &engine, err)
                             : ht_engine_make_arenas(&engine, job, &disk, err);
    if (status == HT_OK && ranks->comm) status = ht_engine_join_disk(&engine, job, ranks, &disk, err);
    if (status == HT_OK && t.emulated.scale > 0)
        status = ht_emulation_begin(ranks, job, t.emulated.scale, engine.ops, engine.ctx, err, &emulation);
    if (status != HT_OK) goto out;

    struct session session = {.options = options,
                              .job = job,
                              .ranks = ranks,
                              .engine = &engine,
                              .persist = persist,
                              .token_losses = in.token_losses,
                              .outcomes = in.outcomes,
                              .began_ns = ht_now_ns(),
                              .terminal = isatty(STDERR_FILENO) != 0};
    session.shown_ns = session.began_ns;
    session.n_summed = persist->first_step;
    struct ht_run_options run = {.backend = emulation.emu ? ht_emu_backend(emulation.emu) : engine.ops,
                                 .backend_ctx = emulation.emu ? (void *)emulation.emu : engine.ctx,
                                 .arenas = engine.arenas,
                                 .hooks_ctx = &session,
                                 .ends_whole = persist->stores != NULL,
                                 .iteration_done = on_iteration};
    status = watch(&session, &run, err);
    t.first_step = persist->first_step;
    give_counts(&session);
    t.loss_scale[0] = ht_cpu_control_get(engine.cpu).scale;
    if (status == HT_OK) status = ht_ranks_make_residents(ranks, job->schedule, engine.arenas, err, &run.residents);
    if (status == HT_OK) status = ht_stream_create(ranks, job, &engine, run.residents, err, &session.stream);
    if (status == HT_OK && ht_node_stores_resumes(persist->stores))
        status = ht_node_stores_fill(persist->stores, session.stream, err);
    else if (status == HT_OK)
        status = ht_stream_fill(session.stream, persist->state, err);
    if (status == HT_OK) ht_persist_begin(persist, ht_stream_source(session.stream));
    if (status == HT_OK) say_loaded(&session);
    if (status == HT_OK) status = run_steps(&session, &run, err, &t.trace);
    if (persist->stores) status = finish_stores(persist->stores, status, err, &t.stores);
    ht_stream_destroy(session.stream);
    ht_residents_destroy(run.residents);
    if (session.shown && session.terminal) fputs("\r\033[K", stderr);
    t.n_checkpoints = persist->n_saved;
    t.checkpoints_s = persist->saving_s;
    t.loss_scale[1] = ht_cpu_control_get(engine.cpu).scale;
    if (status == HT_OK || status == HT_INTERRUPTED) {
        enum ht_status summed = sum_losses(&session, (int32_t)options->training.steps, err);
        if (!summed) summed = name_unmet_faults(&drill, ranks, err);
        if (!summed && emulation.emu) summed = ht_emulation_account(&emulation, t.trace, err, &t.emulated);
        if (!summed) summed = account_memory(job, ranks, engine.arenas, err, &t);
        if (!summed && t.trace) account(job, &in, &t);
        if (engine.gpu) account_gpu(engine.gpu, &t);
        if (summed) status = summed;
    }
out:
    if (status == HT_OK || status == HT_INTERRUPTED)
        *out = t;
    else {
        ht_training_free(&t);
        *out = t;
    }
    ht_emulation_end(&emulation);
    ht_engine_leave_node(&engine);
    ht_ranks_free_node(ranks);
    ht_engine_destroy(&engine);
    ht_transport_close(ranks, between_gpus);
    free_inputs(&in);
    return status;
}

void ht_training_free(struct ht_training *t)
{
    ht_trace_destroy(t->trace);
    free(t->losses);
    free(t->outcomes);
    free(t->step_ns);
    free(t->arena_peak_bytes);
    free(t->arena_extent_bytes);
    free(t->slow);
    free(t->resident_peak_bytes);
    *t = (struct ht_training){0};
}

/* Jittered runs, and the peaks of each. */
struct range_runs {
    const struct ht_job *job;
    int64_t *peak_bytes; /* [HT_RANGE_RUNS * spaces] */
};

static enum ht_status run_range(void *ctx, size_t i, struct ht_error *err)
{
    const struct range_runs *r = ctx;
    struct ht_sim_options options = {.iterations = HT_RANGE_ITERATIONS,
                                     .issue_ahead = r->job->issue_ahead,
                                     .jitter_percent = HT_RANGE_JITTER_PERCENT,
                                     .seed = i + 1};
    int32_t n = ht_n_spaces(r->job->schedule);
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_sim_run(r->job->schedule, r->job->cost_ns, &options, err, &trace);
    if (trace) memcpy(r->peak_bytes + i * (size_t)n, trace->peak_bytes, (size_t)n * sizeof(int64_t));
    ht_trace_destroy(trace);
    return status;
}

enum ht_status ht_predict_peaks(const struct ht_job *job, struct ht_error *err, int64_t *low_bytes, int64_t *high_bytes)
{
    int32_t n = ht_n_spaces(job->schedule);
    struct range_runs r = {job, HT_NEW_ARRAY(int64_t, HT_RANGE_RUNS * (int64_t)n)};
    struct ht_tasks tasks = {.name = "range", .noun = "simulations", .n = HT_RANGE_RUNS, .ctx = &r, .run = run_range};
    double bytes[HT_RANGE_RUNS];
    for (int i = 0; i < HT_RANGE_RUNS; i++)
        bytes[i] = (double)(HT_RANGE_ITERATIONS * sizeof(struct ht_trace_event) + 100) * job->schedule->n_ops;
    tasks.bytes = bytes;
    enum ht_status status = ht_tasks_run(&tasks, err);
    for (int64_t i = 0; i < HT_RANGE_RUNS * (int64_t)n && status == HT_OK; i++) {
        int64_t space = i % n;
        if (i < n || r.peak_bytes[i] < low_bytes[space]) low_bytes[space] = r.peak_bytes[i];
        if (i < n || r.peak_bytes[i] > high_bytes[space]) high_bytes[space] = r.peak_bytes[i];
    }
    free(r.peak_bytes);
    return status;
}
