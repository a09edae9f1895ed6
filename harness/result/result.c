#include "harness/result/result.h"

#include "common/base/array.h"
#include "common/schedule/fold.h"
#include "harness/result/heading.h"

#include <stdlib.h>
#include <string.h>

/* ---- FLOPs ----------------------------------------------------------------------------------------------------- */

/* Counts the floating-point operations of one compute op, by its label and its work. */
static double op_flops(const struct ht_schedule *s, const struct ht_model *m, int32_t i)
{
    const struct ht_op *op = &s->ops[i];
    const struct ht_work *w = &s->works[op->work];
    bool backward = op->kind == HT_OP_BACKWARD;
    if (!backward && op->kind != HT_OP_FORWARD && op->kind != HT_OP_RECOMPUTE) return 0;
    double flops = 0, parts = w->tp > 1 ? w->tp : 1;
    for (int64_t u = op->label.unit; u >= 0 && u < op->label.unit + op->label.n_units; u++) {
        bool block = ht_model_unit_kind(m, u) == HT_UNIT_BLOCK;
        double times = ht_arch_repeats(m->arch, ht_model_unit_kind(m, u)) ? parts : 1;
        if (!block) flops += times * ht_unit_flops(m, u, w->batch, w->seq);
        for (int sub = 0; sub < HT_N_SUB_OPS && block; sub++)
            if (w->sub_ops >> sub & 1) flops += ht_sub_op_flops(m, (enum ht_sub_op)sub, w->batch, w->seq);
    }
    return flops * (backward ? 2 : 1) / parts;
}

/* Returns true if two ops have equal counts, as the members of a pass over parts have. */
static bool same_flops(const struct ht_op *a, const struct ht_op *b)
{
    return a->kind == b->kind && a->work == b->work && a->label.unit == b->label.unit &&
           a->label.n_units == b->label.n_units;
}

static double dense_peak(const struct ht_gpu *gpu, enum ht_dtype dtype)
{
    return dtype == HT_F16 ? gpu->f16_flops_per_s : dtype == HT_BF16 ? gpu->bf16_flops_per_s : gpu->f32_flops_per_s;
}

static void count_flops(struct ht_result *r)
{
    const struct ht_scenario *scenario = &r->job->scenario;
    const struct ht_schedule *s = r->job->schedule;
    if (!r->job->has_scenario || !s) return;
    r->useful_flops = ht_scenario_useful_flops(scenario);
    double flops = 0; /* of the op before */
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (i == 0 || !same_flops(&s->ops[i], &s->ops[i - 1])) flops = op_flops(s, &scenario->model, i);
        r->hardware_flops += flops;
    }
    r->hardware_flops *= ht_copies(s);
    r->n_devices = s->n_ranks; /* the devices that the system uses */
    for (int64_t rank = 0; rank < r->n_devices; rank++) {
        const char *rate =
            ht_dtype_name(ht_rate_dtype(ht_cluster_gpu_of(scenario->cluster, rank), scenario->numerics.param));
        if (rank == 0) r->peak_dtype = rate;
        if (strcmp(r->peak_dtype, rate) != 0)
            r->peak_dtype = scenario->numerics.param == HT_F16 ? "f16 or f32" : "bf16 or f32";
    }
    for (int64_t rank = 0; rank < r->n_devices; rank++)
        r->peak_flops_per_s += dense_peak(ht_cluster_gpu_of(scenario->cluster, rank), scenario->numerics.param);
}

double ht_result_tflops(const struct ht_result *r, double flops)
{
    return r->iteration_s > 0 && r->n_devices ? flops / r->iteration_s / (double)r->n_devices / 1e12 : 0;
}

double ht_result_mfu(const struct ht_result *r)
{
    return r->iteration_s > 0 && r->peak_flops_per_s > 0 ? r->useful_flops / r->iteration_s / r->peak_flops_per_s : 0;
}

double ht_result_per_1000_usd(const struct ht_result *r, double rate)
{
    return r->price_usd > 0 ? rate / r->price_usd * 1000 : 0;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static void fill_memory(struct ht_result *r)
{
    const struct ht_job *job = r->job;
    const struct ht_schedule *s = job->schedule;
    if (!s || !job->proof.spaces) return;
    r->memory = HT_NEW_ARRAY(struct ht_memory_row, ht_n_spaces(s));
    int64_t(*at_peak)[HT_N_TENSOR_CLASSES] = ht_alloc((size_t)ht_n_spaces(s) * sizeof(*at_peak));
    if (r->trace) ht_trace_peaks(r->trace, at_peak);
    for (int32_t space = 0; space < ht_n_spaces(s); space++) {
        int32_t of = ht_fold_space(s, space);
        const struct ht_footprint *f = &job->proof.spaces[of];
        if (f->peak_bytes == 0 && f->fits) continue;
        struct ht_memory_row *row = &r->memory[r->n_memory++];
        *row = (struct ht_memory_row){.space = space,
                                      .tier = ht_space_tier(s, space),
                                      .capacity_bytes = s->capacity_bytes[space],
                                      .limit_bytes = s->limit_bytes[space],
                                      .peak_bytes = r->trace ? r->trace->peak_bytes[of] : -1,
                                      .safe_bytes = f->peak_bytes,
                                      .program_bytes = f->program_bytes,
                                      .short_bytes = ht_footprint_short_bytes(s, of, f),
                                      .bound_bytes = job->bound_bytes ? job->bound_bytes[of] : -1,
                                      .planned_bytes = -1,
                                      .arena_bytes = -1,
                                      .extent_bytes = -1};
        ht_space_name(s, space, row->name, sizeof(row->name));
        if (job->system) row->planned_bytes = job->plan.planned_bytes[row->tier];
        memcpy(row->by_class, r->trace ? at_peak[of] : f->by_class, sizeof(row->by_class));
    }
    free(at_peak);
}

const struct ht_memory_row *ht_result_oom(const struct ht_result *r)
{
    const struct ht_proof *v = &r->job->proof;
    int32_t space = v->spaces ? ht_footprints_first_oom(v->spaces, v->n_spaces) : -1;
    for (int32_t i = 0; i < r->n_memory; i++)
        if (r->memory[i].space == space) return &r->memory[i];
    return NULL;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

enum ht_status ht_result_create(const struct ht_job *job, struct ht_trace *trace, const int64_t *cost_ns,
                                int32_t warmup, struct ht_error *err, struct ht_result *out)
{
    struct ht_result r = {.job = job, .trace = trace};
    if (trace) {
        if (warmup >= trace->iterations) warmup = trace->iterations - 1;
        enum ht_status status = ht_metrics_compute(trace, cost_ns, warmup, err, &r.metrics);
        if (status != HT_OK) {
            ht_trace_destroy(trace);
            return status;
        }
        r.has_metrics = true;
        r.iteration_s = (double)r.metrics.iteration_ns * 1e-9;
        if (job->has_scenario && r.iteration_s > 0) {
            r.samples_per_s = (double)job->scenario.batch / r.iteration_s;
            r.tokens_per_s = r.samples_per_s * (double)job->scenario.seq;
        }
    }
    if (job->has_scenario) r.price_usd = ht_cluster_price_usd(job->scenario.cluster);
    count_flops(&r);
    fill_memory(&r);
    *out = r;
    return HT_OK;
}

void ht_result_free(struct ht_result *r)
{
    if (r->has_metrics) ht_metrics_free(&r->metrics);
    ht_trace_destroy(r->trace);
    json_decref(r->variations);
    free(r->memory);
    *r = (struct ht_result){0};
}

const char *ht_obtained(const struct ht_result *r)
{
    static const char *const names[] = {
        [HT_CLOCK_SIM] = "simulated", [HT_CLOCK_EMU] = "emulated", [HT_CLOCK_RUN] = "measured"};
    return names[r->trace ? r->trace->clock : HT_CLOCK_SIM];
}
