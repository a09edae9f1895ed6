/* hetbench train: real training on this machine, or the memory ledger when it does not fit. */
#include "harness/cli/commands.h"
#include "harness/cli/stores.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/exec/sim.h"
#include "harness/run/disks.h"
#include "harness/run/engine.h"
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

/* The predictions before the run, by space. */
struct prediction {
    int64_t *peak_bytes, *low_bytes, *high_bytes; /* without jitter; over the jittered runs */
    int64_t iteration_ns;
    struct ht_emulation_model model; /* of the very run under the emulated clock */
};

static void prediction_free(struct prediction *p)
{
    free(p->peak_bytes);
    free(p->low_bytes);
    free(p->high_bytes);
    *p = (struct prediction){0};
}

/* Returns the iterations of a training's trace before the steady state. */
static int32_t warmup_of(int64_t steps)
{
    return steps > 1 ? 1 : 0;
}

static enum ht_status predict(const struct ht_job *job, struct ht_error *err, struct prediction *out)
{
    int32_t n = ht_n_spaces(job->schedule);
    struct prediction p = {.peak_bytes = HT_NEW_ARRAY(int64_t, n),
                           .low_bytes = HT_NEW_ARRAY(int64_t, n),
                           .high_bytes = HT_NEW_ARRAY(int64_t, n)};
    struct ht_sim_options options = {.iterations = HT_RANGE_ITERATIONS, .issue_ahead = job->issue_ahead};
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_sim_run(job->schedule, job->cost_ns, &options, err, &trace);
    if (status == HT_OK) {
        memcpy(p.peak_bytes, trace->peak_bytes, (size_t)n * sizeof(int64_t));
        struct ht_metrics m;
        status = ht_metrics_compute(trace, job->cost_ns, 2, err, &m);
        if (status == HT_OK) {
            p.iteration_ns = m.iteration_ns;
            ht_metrics_free(&m);
        }
    }
    ht_trace_destroy(trace);
    if (status == HT_OK) status = ht_predict_peaks(job, err, p.low_bytes, p.high_bytes);
    if (status == HT_OK)
        *out = p;
    else
        prediction_free(&p);
    return status;
}

/* Checks that this build can train the job: HT_INFEASIBLE when it cannot, HT_BAD_INPUT when the user erred. */
static enum ht_status check_request(const struct ht_options *o, struct ht_error *err)
{
    if (!o->data) return ht_fail(err, HT_BAD_INPUT, "train: --data is missing; expected a text or token ids");
    return HT_OK;
}

static enum ht_status check_job(const struct ht_job *job, bool on_gpu, bool emulated, struct ht_error *err)
{
    const struct ht_scenario *s = &job->scenario;
    const struct ht_gpu *gpu = ht_cluster_gpu_of(s->cluster, 0);
    if (emulated) return HT_OK; /* any devices */
    for (int64_t i = 1; i < s->cluster->n_gpus; i++)
        if (ht_cluster_gpu_of(s->cluster, i)->cores == 0)
            return ht_fail(err, HT_INFEASIBLE,
                           "cluster '%s' has %lld devices, accelerators among them; several ranks train on emulated "
                           "devices only, or under --clock emu",
                           s->cluster->name, (long long)s->cluster->n_gpus);
    if (on_gpu && gpu->cores)
        return ht_fail(err, HT_BAD_INPUT, "cluster '%s' has an emulated device; expected a GPU for --backend cuda",
                       s->cluster->name);
    if (gpu->cores == 0 && !on_gpu)
        return ht_fail(
            err, HT_INFEASIBLE,
            "cluster '%s' has the accelerator %s; training is on the CPU (--cluster local, or under --clock emu), "
            "or on the machine's own GPU (--backend cuda)",
            s->cluster->name, gpu->name);
    return HT_OK;
}

static enum ht_status check_disks(const struct ht_options *o, const struct ht_job *job, struct ht_error *err)
{
    struct ht_disks disks;
    enum ht_status status = ht_disks_read(o, err, &disks);
    if (status == HT_OK) status = ht_disks_check(&disks, job, err);
    if (status == HT_OK) ht_disks_free(&disks);
    return status;
}

static enum ht_status open_data(const struct ht_options *o, const struct ht_job *job, struct ht_error *err,
                                struct ht_tokens *out)
{
    const struct ht_model *m = &job->scenario.model;
    enum ht_token_format format;
    enum ht_status status = ht_token_format_of(o->data, o->data_format, m->vocab, err, &format);
    if (status != HT_OK) return status;
    if (format == HT_TOKENS_IMAGES) return ht_images_open(o->data, m, err, out);
    if (format == HT_TOKENS_TEXT && m->vocab < 256)
        return ht_fail(err, HT_BAD_INPUT,
                       "model '%s' has a vocabulary of %lld; training on a text's bytes needs at least 256", m->name,
                       (long long)m->vocab);
    return ht_tokens_open(o->data, format, m->vocab, job->scenario.seq, err, out);
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Writes a row for each step, also for those before a resumed training. */
static enum ht_status write_losses(const struct ht_training *t, const struct ht_persist *persist, const char *path,
                                   struct ht_error *err)
{
    struct ht_output file;
    struct ht_losses all = {0};
    size_t bytes;
    enum ht_status status = ht_output_open(path, err, &file);
    if (status != HT_OK) return status;
    for (int64_t i = 0; i < persist->n_losses_before; i++)
        ht_losses_add(&all, persist->state->losses.rows[i].step, persist->state->losses.rows[i].loss);
    for (int32_t k = 0; k < t->steps; k++) ht_losses_add(&all, t->first_step + k + 1, t->losses[k]);
    char *text = ht_losses_text(&all, &bytes);
    fwrite(text, 1, bytes, file.file);
    free(text);
    ht_losses_free(&all);
    return ht_output_commit(&file, err);
}

/* ---- reports --------------------------------------------------------------------------------------------------- */

static const char *const outcome_names[] = {
    [HT_CPU_OK] = "ok", [HT_CPU_SKIPPED] = "skipped", [HT_CPU_REDONE] = "redone"};

static void print_losses(const struct ht_training *t)
{
    printf("\nlosses (%s)\n", t->emulated.scale > 0 ? "measured; times emulated" : "measured");
    struct ht_table *table =
        ht_table_create(t->outcomes ? ">step|>loss|>time|>norm|>loss scale|<outcome" : ">step|>loss|>time");
    int32_t every = t->steps > 20 ? (t->steps + 9) / 10 : 1;
    for (int32_t k = 0; k < t->steps; k++) {
        if (k % every != 0 && k != t->steps - 1) continue;
        char text[HT_QUANTITY_TEXT];
        ht_table_cell(table, "%d", t->first_step + k + 1);
        ht_table_cell(table, "%.9g", t->losses[k]);
        ht_table_cell(table, "%s", ht_format_quantity(HT_TIME, (double)t->step_ns[k], text));
        if (!t->outcomes) continue;
        ht_table_cell(table, "%.6g", t->outcomes[k].norm);
        ht_table_cell(table, "%g", t->outcomes[k].loss_scale);
        ht_table_cell(table, "%s", outcome_names[t->outcomes[k].outcome]);
    }
    ht_table_print(table, "  ", stdout);
    ht_table_destroy(table);
}

static void print_control(const struct ht_scenario *s, const struct ht_training *t)
{
    const struct ht_control *c = &s->control;
    printf("\nnumerics: %s compute, %s gradients summed in %s; control: %s, %s loss scale %g",
           ht_dtype_name(s->numerics.param), ht_dtype_name(s->numerics.grad), ht_dtype_name(s->numerics.accumulate),
           ht_control_mode_names[c->mode], c->options.dynamic ? "dynamic" : "fixed", t->loss_scale[0]);
    if (t->loss_scale[1] != t->loss_scale[0]) printf(", then %g", t->loss_scale[1]);
    if (c->options.clip) printf(", norm clipped to %g", c->options.clip);
    if (t->outcomes) printf("; of %d steps %d skipped, %d redone", t->steps, t->skipped, t->redone);
    putchar('\n');
}

/* Says so if a resumed training adds up gradients in another order than the one that saved, or may do. */
static void print_sums(const struct ht_persist *p)
{
    if (p->sums == HT_SUMS_OTHER)
        printf("resumed after step %d with gradients added up in another order", p->first_step);
    if (p->sums == HT_SUMS_OTHER && p->micro_batch_was[0]) printf(" (--micro-batch was %s)", p->micro_batch_was);
    if (p->sums == HT_SUMS_OTHER)
        printf(": losses may differ in their last bits from those of a training that was not stopped\n");
    if (p->sums == HT_SUMS_UNSAID)
        printf("resumed after step %d; the checkpoint does not say in which order gradients were added up\n",
               p->first_step);
}

static void print_prediction(const struct ht_result *r, const struct ht_training *t, const struct prediction *p)
{
    printf("\nmemory, predicted and measured (range: %d simulated runs with durations spread by %d%%)\n", HT_RANGE_RUNS,
           HT_RANGE_JITTER_PERCENT);
    struct ht_table *table = ht_table_create("<place|>simulated|<range|>arena peak (measured)|<deviation");
    for (int32_t i = 0; i < r->n_memory; i++) {
        const struct ht_memory_row *m = &r->memory[i];
        char low[HT_QUANTITY_TEXT], high[HT_QUANTITY_TEXT];
        ht_table_cell(table, "%s", m->name);
        ht_table_bytes(table, p->peak_bytes[m->space]);
        ht_table_cell(table, "%s .. %s", ht_format_quantity(HT_BYTES, (double)p->low_bytes[m->space], low),
                      ht_format_quantity(HT_BYTES, (double)p->high_bytes[m->space], high));
        ht_table_bytes(table, t->arena_peak_bytes[m->space]);
        ht_table_cell(table, "%+.2f%%",
                      100 * ((double)t->arena_peak_bytes[m->space] / (double)p->peak_bytes[m->space] - 1));
    }
    ht_table_print(table, "  ", stdout);
    ht_table_destroy(table);
}

/* Prints what the GPU holds beside the arena. */
static void print_reserve(const struct ht_cuda_reserve *r, int64_t foreign_bytes)
{
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT], c[HT_QUANTITY_TEXT], d[HT_QUANTITY_TEXT], e[HT_QUANTITY_TEXT];
    printf(
        "  reserve on the GPU %s, of the same budget: matrix products %s, scratch %s, token ids, losses and outcomes "
        "%s\n  beside both, at the end: %s (CUDA's context and code, other programs)\n",
        ht_format_quantity(HT_BYTES, (double)ht_cuda_reserve_bytes(r), a),
        ht_format_quantity(HT_BYTES, (double)r->products_bytes, b),
        ht_format_quantity(HT_BYTES, (double)r->scratch_bytes, c),
        ht_format_quantity(HT_BYTES, (double)r->results_bytes, d),
        ht_format_quantity(HT_BYTES, (double)foreign_bytes, e));
}

static void print_slow_shapes(const struct ht_training *t)
{
    if (!t->n_slow) return;
    printf("\nslow matrix products: cuBLASLt has no algorithm for %zu shape%s, whose kernel here is perhaps 100 times "
           "slower\n",
           t->n_slow, t->n_slow == 1 ? "" : "s");
    for (size_t i = 0; i < t->n_slow; i++) printf("  %8lld of %s\n", (long long)t->slow[i].products, t->slow[i].text);
}

static json_t *slow_shapes_json(const struct ht_training *t)
{
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_slow; i++)
        json_array_append_new(
            list, json_pack("{s:s,s:I}", "shape", t->slow[i].text, "products", (json_int_t)t->slow[i].products));
    return list;
}

static double error_percent(const struct ht_result *r, const struct ht_emulation_model *model)
{
    return 100 * ((double)r->metrics.iteration_ns / (double)model->iteration_ns - 1);
}

static const char *op_text(const struct ht_job *job, int32_t op, char text[64])
{
    return op < 0 ? "none" : ht_op_label(job->schedule, op, text, 64);
}

static void print_emulation(const struct ht_result *r, const struct ht_emulated *e,
                            const struct ht_emulation_model *model)
{
    const struct ht_emu_overruns *v = &e->overruns;
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT], title[64];
    printf("\nemulated clock: every op held for %.6g times its modelled cost", e->scale);
    if (e->fitting_scale > 0) printf(" (auto: without a hold, one took %.6g times as long)", e->fitting_scale);
    printf("\n  iteration        %s emulated, %s simulated: %+.2f%%\n",
           ht_format_quantity(HT_TIME, (double)r->metrics.iteration_ns, a),
           ht_format_quantity(HT_TIME, (double)model->iteration_ns, b), error_percent(r, model));
    printf("  overran          %lld of %lld ops (worst: %s, by %.3g of its cost): %s\n", (long long)v->n_overran,
           (long long)v->n_ops, op_text(r->job, v->worst_op, title), v->worst, v->valid ? "valid" : "INVALID");
}

static json_t *emulation_json(const struct ht_result *r, const struct ht_emulated *e,
                              const struct ht_emulation_model *model)
{
    const struct ht_emu_overruns *v = &e->overruns;
    char title[64];
    return json_pack("{s:f,s:o,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:f,s:s,s:b}", "scale", e->scale, "fitting_scale",
                     e->fitting_scale > 0 ? json_real(e->fitting_scale) : json_null(), "estimated_s", e->estimated_s,
                     "iteration_s", (double)r->metrics.iteration_ns * 1e-9, "simulated_iteration_s",
                     (double)model->iteration_ns * 1e-9, "error_percent", error_percent(r, model),
                     "simulated_lower_bound_s", (double)model->lower_bound_ns * 1e-9, "ops", (json_int_t)v->n_ops,
                     "overran", (json_int_t)v->n_overran, "worst_overrun", v->worst, "worst_op",
                     op_text(r->job, v->worst_op, title), "valid", (int)v->valid);
}

/* Prints the resident memory by the kernel's count: arenas as far as they were touched, and everything beside them. */
static void print_resident(int32_t n_ranks, const struct ht_training *t)
{
    char text[HT_QUANTITY_TEXT];
    int32_t most = 0;
    for (int32_t r = 1; r < n_ranks; r++)
        if (t->resident_peak_bytes[r] > t->resident_peak_bytes[most]) most = r;
    if (!t->resident_peak_bytes[most]) return;
    printf("resident memory: at most %s", ht_format_quantity(HT_BYTES, (double)t->resident_peak_bytes[most], text));
    if (n_ranks > 1) printf(", on rank %d of %d", most, n_ranks);
    putchar('\n');
}

static void print_training(const struct ht_result *r, const struct ht_training *t, const struct prediction *p,
                           const struct ht_persist *persist)
{
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT];
    ht_result_print(r, stdout);
    print_losses(t);
    print_control(&r->job->scenario, t);
    print_sums(persist);
    print_prediction(r, t, p);
    if (t->on_gpu) print_reserve(&r->job->reserve, t->foreign_bytes);
    print_slow_shapes(t);
    const char *plural = t->host_cores == 1 ? "" : "s";
    if (t->emulated.scale > 0) print_emulation(r, &t->emulated, &p->model);
    printf("\nstep time: median %s %s, %s simulated; ", ht_format_quantity(HT_TIME, (double)t->median_step_ns, a),
           ht_obtained(r), ht_format_quantity(HT_TIME, (double)p->iteration_ns, b));
    if (t->on_gpu)
        printf("GPU %s, %d host core%s\n", ht_cluster_gpu_of(r->job->scenario.cluster, 0)->name, t->host_cores, plural);
    else
        printf("%d device core%s, %d host core%s%s\n", t->device_cores, t->device_cores == 1 ? "" : "s", t->host_cores,
               plural, t->shared_cores ? " (the same one)" : "");
    print_resident(r->job->schedule->n_ranks, t);
    if (t->n_checkpoints)
        printf("checkpoints: %d written in %s, which is in no step's time\n", t->n_checkpoints,
               ht_format_quantity(HT_TIME, t->checkpoints_s * 1e9, a));
    ht_stores_print(&t->stores);
}

static json_t *real(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* Adds the outcomes of the steps; the lists are empty without a gradient check. */
static json_t *control_json(const struct ht_scenario *s, const struct ht_training *t)
{
    const struct ht_control *c = &s->control;
    json_t *norms = json_array(), *scales = json_array(), *factors = json_array(), *outcomes = json_array();
    for (int32_t k = 0; t->outcomes && k < t->steps; k++) {
        json_array_append_new(norms, real(t->outcomes[k].norm));
        json_array_append_new(scales, real(t->outcomes[k].loss_scale));
        json_array_append_new(factors, real(t->outcomes[k].clip_factor));
        json_array_append_new(outcomes, json_string(outcome_names[t->outcomes[k].outcome]));
    }
    return json_pack("{s:s,s:o,s:b,s:f,s:f,s:i,s:i,s:o,s:o,s:o,s:o}", "mode", ht_control_mode_names[c->mode], "clip",
                     c->options.clip ? json_real(c->options.clip) : json_null(), "dynamic", (int)c->options.dynamic,
                     "loss_scale_first", t->loss_scale[0], "loss_scale_next", t->loss_scale[1], "skipped",
                     (int)t->skipped, "redone", (int)t->redone, "norms", norms, "loss_scales", scales, "clip_factors",
                     factors, "verdicts", outcomes);
}

static json_t *sums_json(const struct ht_persist *p)
{
    static const char *const names[] = {
        [HT_SUMS_SAME] = "same", [HT_SUMS_OTHER] = "other", [HT_SUMS_UNSAID] = "unsaid"};
    return p->sums == HT_SUMS_NOT_RESUMED ? json_null() : json_string(names[p->sums]);
}

static json_t *training_json(const struct ht_options *o, const struct ht_result *r, const struct ht_training *t,
                             const struct prediction *p, const struct ht_persist *persist)
{
    char order[17];
    snprintf(order, sizeof(order), "%016llx", (unsigned long long)persist->sum_order);
    json_t *root = ht_result_json(r), *losses = json_array(), *times = json_array(), *predicted = json_array();
    json_t *resident = json_array();
    for (int32_t i = 0; i < r->job->schedule->n_ranks; i++)
        json_array_append_new(resident, json_integer((json_int_t)t->resident_peak_bytes[i]));
    for (int32_t k = 0; k < t->steps; k++) {
        json_array_append_new(losses, real(t->losses[k]));
        json_array_append_new(times, json_real((double)t->step_ns[k] * 1e-9));
    }
    for (int32_t i = 0; i < r->n_memory; i++) {
        int32_t space = r->memory[i].space;
        json_array_append_new(predicted,
                              json_pack("{s:s,s:I,s:I,s:I,s:I}", "space", r->memory[i].name, "simulated_bytes",
                                        (json_int_t)p->peak_bytes[space], "low_bytes", (json_int_t)p->low_bytes[space],
                                        "high_bytes", (json_int_t)p->high_bytes[space], "measured_bytes",
                                        (json_int_t)t->arena_peak_bytes[space]));
    }
    json_object_set_new(root, "losses", losses);
    json_object_set_new(root, "step_s", times);
    json_object_set_new(root, "median_step_s", json_real((double)t->median_step_ns * 1e-9));
    json_object_set_new(root, "simulated_iteration_s", json_real((double)p->iteration_ns * 1e-9));
    json_object_set_new(root, "predicted_memory", predicted);
    const struct ht_cuda_reserve *reserve = &r->job->reserve;
    if (t->on_gpu)
        json_object_set_new(root, "device_reserve",
                            json_pack("{s:I,s:I,s:I,s:I,s:I}", "bytes", (json_int_t)ht_cuda_reserve_bytes(reserve),
                                      "products_bytes", (json_int_t)reserve->products_bytes, "scratch_bytes",
                                      (json_int_t)reserve->scratch_bytes, "aside_bytes",
                                      (json_int_t)reserve->results_bytes, "foreign_bytes_at_end",
                                      (json_int_t)t->foreign_bytes));
    if (t->on_gpu) json_object_set_new(root, "slow_products", slow_shapes_json(t));
    json_object_set_new(root, "numerics", ht_numerics_json(&r->job->scenario.numerics));
    json_object_set_new(root, "control", control_json(&r->job->scenario, t));
    json_object_set_new(root, "clock", json_string(t->emulated.scale > 0 ? "emu" : "run"));
    if (t->emulated.scale > 0) json_object_set_new(root, "emulation", emulation_json(r, &t->emulated, &p->model));
    json_object_set_new(root, "training",
                        json_pack("{s:s,s:o,s:I,s:i,s:s,s:o,s:i,s:f,s:i,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:i,s:i,s:o,s:o}",
                                  "backend", t->on_gpu ? "cuda" : "cpu", "data", ht_json_text(o->data), "steps_asked",
                                  (json_int_t)o->steps, "first_step", (int)t->first_step, "sum_order", order,
                                  "resumed_sums", sums_json(persist), "checkpoints", (int)t->n_checkpoints,
                                  "checkpoints_s", t->checkpoints_s, "steps_done", (int)t->steps, "lr", o->lr, "beta1",
                                  o->beta1, "beta2", o->beta2, "eps", o->eps, "weight_decay", o->weight_decay,
                                  "init_seed", (json_int_t)o->init_seed, "data_seed", (json_int_t)o->data_seed,
                                  "device_cores", t->device_cores, "host_cores", t->host_cores, "resident_peak_bytes",
                                  resident, "stores", ht_stores_json(o, &t->stores)));
    return root;
}

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
    if (status == HT_OK && o->json)
        status = ht_json_print(ht_result_json(&result), err);
    else if (status == HT_OK)
        ht_result_print(&result, stdout);
    ht_result_free(&result);
    return status == HT_OK ? ht_fail(err, job->answer, "%s", job->reason) : status;
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

/* Reports on the steps that are done, all or up to Ctrl-C. An interrupted run, and an invalid emulation, write no
   files. */
static enum ht_status report(const struct ht_options *o, const struct ht_job *job, struct ht_training *t,
                             struct prediction *p, const struct ht_persist *persist, bool whole, struct ht_error *err)
{
    struct ht_result result;
    if (t->steps == 0) return HT_OK;
    enum ht_status status = HT_OK;
    bool emulated = t->emulated.scale > 0, valid = !emulated || t->emulated.overruns.valid;
    if (emulated) status = ht_emulation_model(job, t->steps, warmup_of(t->steps), err, &p->model);
    if (whole && valid && status == HT_OK && o->losses) status = write_losses(t, persist, o->losses, err);
    if (whole && valid && status == HT_OK) status = ht_save_trace(t->trace, o->trace, err);
    if (status != HT_OK) return status;
    struct ht_trace *trace = t->trace;
    t->trace = NULL; /* the result has it now */
    status = ht_result_create(job, trace, NULL, warmup_of(t->steps), err, &result);
    if (status != HT_OK) return status;
    add_arenas(&result, t);
    for (int32_t k = 0; k < t->steps; k++) {
        if (isfinite(t->losses[k])) continue;
        fprintf(stderr, "hetbench: warning: the loss is not finite from step %d on (null in JSON)\n",
                t->first_step + k + 1);
        break;
    }
    if (o->json) {
        json_t *root = training_json(o, &result, t, p, persist);
        if (!valid) json_object_set_new(root, "status", json_string("invalid"));
        if (!whole) json_object_set_new(root, "status", json_string("interrupted"));
        status = ht_json_print(root, err);
    } else {
        print_training(&result, t, p, persist);
    }
    ht_result_free(&result);
    return status == HT_OK && whole && !valid ? invalid(&t->emulated, err) : status;
}

/* Writes the other files and the report also when the weights could not be written. */
static enum ht_status finish(const struct ht_options *o, const struct ht_job *job, struct ht_training *t,
                             struct prediction *p, const struct ht_persist *persist, struct ht_error *err)
{
    enum ht_status status = report(o, job, t, p, persist, true, err);
    if (persist->save_error.status == HT_OK) return status;
    *err = persist->save_error; /* the worse of two errors */
    return persist->save_error.status;
}

/* Writes the files of a checkpoint that is at the last step already, without a step. */
static enum ht_status export_checkpoint(const struct ht_options *o, const struct ht_job *job,
                                        struct ht_persist *persist, struct ht_error *err)
{
    struct ht_training none = {0};
    struct ht_result result = {0};
    struct ht_error why = {0};
    char folder[512], weights[512];
    enum ht_status saved = ht_persist_save(persist, &why), status = HT_OK;
    if (o->losses) status = write_losses(&none, persist, o->losses, err);
    if (status == HT_OK) status = ht_result_create(job, NULL, NULL, 0, err, &result);
    bool weights_too = o->save && saved == HT_OK;
    if (status != HT_OK) goto out;
    if (o->json) {
        json_t *root = ht_result_json(&result);
        json_object_set_new(root, "losses", json_array());
        json_object_set_new(root, "training",
                            json_pack("{s:o,s:I,s:i,s:i}", "data", ht_json_text(o->data), "steps_asked",
                                      (json_int_t)o->steps, "first_step", (int)persist->first_step, "steps_done", 0));
        status = ht_json_print(root, err);
    } else {
        printf("%s is at step %d already: no step was run%s%s\n",
               ht_shown(persist->resumed_from, folder, sizeof(folder)), persist->first_step,
               weights_too ? "; its weights are in " : "",
               weights_too ? ht_shown(o->save, weights, sizeof(weights)) : "");
    }
    ht_result_free(&result);
out:
    if (saved == HT_OK) return status;
    *err = why;
    return saved;
}

static enum ht_status train(const struct ht_options *given, struct ht_ranks *ranks, struct ht_error *err)
{
    struct ht_options options = *given;
    struct ht_job job = {0};
    struct ht_tokens tokens = {0};
    struct prediction prediction = {0};
    struct ht_training training = {0};
    struct ht_persist persist = {0};
    char config[4096];
    bool on_gpu = false, emulated = false;
    double scale;
    struct ht_gpu gpu;
    bool launch = false, speaks = ht_ranks_speaks(ranks);
    struct ht_new_folders folders = ht_persist_new_folders(&options);
    if (!options.request.cluster) options.request.cluster = "local";
    enum ht_status status = check_request(&options, err);
    if (status == HT_OK) status = ht_emulation_wanted(&options, err, &emulated, &scale);
    if (status == HT_OK) status = ht_engine_wants_gpu(&options, "train", err, &on_gpu);
    if (emulated) options.issue_ahead = 0; /* as the CPU backend has it, whatever the cluster's devices would do */
    if (status == HT_OK && on_gpu) {
        status = ht_engine_find_gpu(&options, err, &gpu);
        options.request.local_gpu = &gpu;
    }
    if (status == HT_OK) status = ht_persist_model(&options, config, err, &options.request);
    if (status == HT_OK) status = ht_job_create(&options, NULL, NULL, HT_JOB_COSTS, err, &job);
    if (status == HT_OK) status = check_job(&job, on_gpu, emulated, err);
    if (status == HT_OK) status = check_disks(&options, &job, err);
    if (status == HT_OK) status = open_data(&options, &job, err, &tokens);
    if (status == HT_OK && job.answer != HT_OK) status = refuse(&options, &job, err);
    if (status == HT_OK) status = ht_check_events(&job, "--steps", options.steps, err);
    if (status == HT_OK) status = ht_ranks_check_hosts(&options, &job, err);
    if (status == HT_OK) status = ht_ranks_wanted(ranks, &job, err, &launch);
    if (status == HT_OK && launch) status = ht_output_check_ranks(options.losses, err);
    if (status == HT_OK && launch) status = ht_output_check_ranks(options.trace, err);
    if (status == HT_OK && launch) status = ht_output_check_ranks(options.dump, err);
    if (status == HT_OK && launch) {
        status = ht_ranks_launch(&options, &job, err);
        goto out;
    }
    if (status == HT_OK && speaks) status = ht_job_dump(&job, options.dump, err);
    if (status == HT_OK && speaks) status = predict(&job, err, &prediction);
    if (status == HT_OK) status = ht_persist_open(&options, &job, &tokens, speaks, err, &persist);
    status = ht_ranks_agree(ranks, status, err);
    if (status == HT_OK) status = ht_persist_share(&persist, ranks, err);
    if (status == HT_OK) status = ht_node_stores_open(&options, &job, ranks, &persist, err, &persist.stores);
    if (status == HT_OK && persist.first_step == options.steps) {
        if (speaks) status = export_checkpoint(&options, &job, &persist, err);
    } else if (status == HT_OK) {
        status = ht_train(&options, &job, &tokens, &persist, ranks, err, &training);
        if (status == HT_OK) status = finish(&options, &job, &training, &prediction, &persist, err);
        if (status == HT_INTERRUPTED) {
            int32_t done = training.first_step + training.steps;
            int64_t kept = persist.checkpoints ? ht_checkpoints_latest(persist.checkpoints) : -1;
            char files[80] = "no files were written";
            if (persist.stores && ht_node_stores_newest(persist.stores) > kept)
                kept = ht_node_stores_newest(persist.stores);
            if (kept >= 0) snprintf(files, sizeof(files), "the newest checkpoint is of step %lld", (long long)kept);
            report(&options, &job, &training, &prediction, &persist, false, err);
            status = ht_fail(err, HT_INTERRUPTED, "interrupted after %d of %lld steps; %s", done,
                             (long long)options.steps, files);
        }
    }
out:
    ht_training_free(&training);
    ht_node_stores_close(persist.stores);
    ht_persist_close(&persist);
    if (speaks) ht_persist_remove_empty(&options, folders);
    prediction_free(&prediction);
    ht_tokens_close(&tokens);
    if (job.status) ht_job_free(&job);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_ranks ranks;
    enum ht_status status = ht_ranks_open(err, &ranks);
    if (status == HT_OK) status = train(options, &ranks, err);
    return ht_ranks_close(&ranks, status, err);
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
    .groups = HT_OPT_MODEL | HT_OPT_SCENARIO | HT_OPT_TRAIN | HT_OPT_DUMP | HT_OPT_TRACE,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
