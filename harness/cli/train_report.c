#include "harness/cli/train_report.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "harness/cli/stores.h"
#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/result/table.h"

#include <math.h>
#include <stdio.h>

static bool on_gpu(const struct ht_result *r)
{
    return r->job->platform.kind == HT_PLATFORM_GPU;
}

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

static void print_prediction(const struct ht_result *r, const struct ht_training *t, const struct ht_prediction *p)
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

static double error_percent(const struct ht_result *r, const struct ht_times *model)
{
    return 100 * ((double)r->metrics.iteration_ns / (double)model->iteration_ns - 1);
}

static const char *op_text(const struct ht_job *job, int32_t op, char text[64])
{
    return op < 0 ? "none" : ht_op_label(job->schedule, op, text, 64);
}

static void print_emulation(const struct ht_result *r, const struct ht_emulated *e, const struct ht_times *model)
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

static json_t *emulation_json(const struct ht_result *r, const struct ht_emulated *e, const struct ht_times *model)
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

void ht_training_print(const struct ht_result *r, const struct ht_training *t, const struct ht_prediction *p,
                       const struct ht_persist *persist)
{
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT];
    ht_result_print(r, stdout);
    print_losses(t);
    print_control(&r->job->scenario, t);
    print_sums(persist);
    print_prediction(r, t, p);
    if (on_gpu(r)) print_reserve(&r->job->reserve, t->foreign_bytes);
    print_slow_shapes(t);
    const char *plural = t->split.n_host == 1 ? "" : "s";
    if (t->emulated.scale > 0) print_emulation(r, &t->emulated, &p->model);
    printf("\nstep time: median %s %s, %s simulated; ", ht_format_quantity(HT_TIME, (double)t->median_step_ns, a),
           ht_obtained(r), ht_format_quantity(HT_TIME, (double)p->iteration_ns, b));
    if (on_gpu(r))
        printf("GPU %s, %d host core%s%s\n", ht_cluster_gpu_of(r->job->scenario.cluster, 0)->name, t->split.n_host,
               plural,
               r->job->schedule->n_ranks == 1 ? ""
               : t->by_nccl                   ? "; messages by NCCL"
                                              : "; messages through host memory");
    else
        printf("%d device core%s, %d host core%s%s\n", t->split.n_device, t->split.n_device == 1 ? "" : "s",
               t->split.n_host, plural, t->split.shared ? " (the same one)" : "");
    char comment[HT_STEP_COMMENT];
    if (t->emulated.scale <= 0 &&
        *ht_step_comment((double)t->median_step_ns, (double)p->iteration_ns, r->job->profiled, comment))
        printf("%s\n", comment);
    print_resident(r->job->schedule->n_ranks, t);
    if (t->n_checkpoints)
        printf("checkpoints: %d written in %s, which is in no step's time\n", t->n_checkpoints,
               ht_format_quantity(HT_TIME, t->checkpoints_s * 1e9, a));
    ht_stores_print(&t->stores);
}

const char *ht_step_comment(double step_ns, double predicted_ns, bool profiled, char buf[HT_STEP_COMMENT])
{
    static const double far_above = 1.5;
    buf[0] = '\0';
    if (!(predicted_ns > 0) || step_ns <= far_above * predicted_ns) return buf;
    snprintf(buf, HT_STEP_COMMENT, "a step takes %.3g times its prediction: %s", step_ns / predicted_ns,
             profiled ? "the costs were measured at other shapes, or something else is using this machine"
                      : "its costs are of the catalogue; hetbench profile measures this machine's, and --profile "
                        "takes them. Or something else is using the machine");
    return buf;
}

/* Adds the outcomes of the steps; the lists are empty without a gradient check. */
static json_t *control_json(const struct ht_scenario *s, const struct ht_training *t)
{
    const struct ht_control *c = &s->control;
    json_t *norms = json_array(), *scales = json_array(), *factors = json_array(), *outcomes = json_array();
    for (int32_t k = 0; t->outcomes && k < t->steps; k++) {
        json_array_append_new(norms, ht_json_number(t->outcomes[k].norm));
        json_array_append_new(scales, ht_json_number(t->outcomes[k].loss_scale));
        json_array_append_new(factors, ht_json_number(t->outcomes[k].clip_factor));
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

json_t *ht_training_json(const struct ht_options *o, const struct ht_result *r, const struct ht_training *t,
                         const struct ht_prediction *p, const struct ht_persist *persist)
{
    char order[17];
    snprintf(order, sizeof(order), "%016llx", (unsigned long long)persist->sum_order);
    json_t *root = ht_result_json(r), *losses = json_array(), *times = json_array(), *predicted = json_array();
    json_t *resident = json_array();
    for (int32_t i = 0; i < r->job->schedule->n_ranks; i++)
        json_array_append_new(resident, json_integer((json_int_t)t->resident_peak_bytes[i]));
    for (int32_t k = 0; k < t->steps; k++) {
        json_array_append_new(losses, ht_json_number(t->losses[k]));
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
    if (on_gpu(r))
        json_object_set_new(root, "device_reserve",
                            json_pack("{s:I,s:I,s:I,s:I,s:I}", "bytes", (json_int_t)ht_cuda_reserve_bytes(reserve),
                                      "products_bytes", (json_int_t)reserve->products_bytes, "scratch_bytes",
                                      (json_int_t)reserve->scratch_bytes, "aside_bytes",
                                      (json_int_t)reserve->results_bytes, "foreign_bytes_at_end",
                                      (json_int_t)t->foreign_bytes));
    if (on_gpu(r)) json_object_set_new(root, "slow_products", slow_shapes_json(t));
    if (on_gpu(r) && r->job->schedule->n_ranks > 1)
        json_object_set_new(root, "transport", json_string(t->by_nccl ? "nccl" : "host"));
    json_object_set_new(root, "numerics", ht_numerics_json(&r->job->scenario.numerics));
    json_object_set_new(root, "control", control_json(&r->job->scenario, t));
    json_object_set_new(root, "clock", json_string(t->emulated.scale > 0 ? "emu" : "run"));
    if (t->emulated.scale > 0) json_object_set_new(root, "emulation", emulation_json(r, &t->emulated, &p->model));
    json_object_set_new(
        root, "training",
        json_pack("{s:s,s:o,s:I,s:i,s:s,s:o,s:i,s:f,s:i,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:i,s:i,s:o,s:o}", "backend",
                  on_gpu(r) ? "cuda" : "cpu", "data", ht_json_text(o->training.data), "steps_asked",
                  (json_int_t)o->training.steps, "first_step", (int)t->first_step, "sum_order", order, "resumed_sums",
                  sums_json(persist), "checkpoints", (int)t->n_checkpoints, "checkpoints_s", t->checkpoints_s,
                  "steps_done", (int)t->steps, "lr", o->training.adamw.lr, "beta1", o->training.adamw.beta1, "beta2",
                  o->training.adamw.beta2, "eps", o->training.adamw.eps, "weight_decay", o->training.adamw.weight_decay,
                  "init_seed", (json_int_t)o->training.init_seed, "data_seed", (json_int_t)o->training.data_seed,
                  "device_cores", on_gpu(r) ? 0 : t->split.n_device, "host_cores", t->split.n_host,
                  "resident_peak_bytes", resident, "stores", ht_stores_json(o, &t->stores)));
    return root;
}
