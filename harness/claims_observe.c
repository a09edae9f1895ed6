#include "harness/claims_observe.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/rng.h"
#include "harness/registry.h"
#include "harness/result.h"
#include "harness/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- from the schedule ----------------------------------------------------------------------------------------- */

static bool is_state(enum ht_tensor_class class)
{
    return class == HT_MASTER || class == HT_MOMENTUM || class == HT_VARIANCE;
}

/* Every row of the tensor table once, wherever it lies. */
static void observe_tensors(const struct ht_schedule *s, double *metric)
{
    double states = 0, copies = 0, grads = 0;
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        if (is_state(t->class)) states += (double)t->bytes;
        if (t->class == HT_PARAM) copies += (double)t->bytes;
        if (t->class == HT_GRAD && t->label.micro_batch <= 0) grads += (double)t->bytes;
    }
    metric[HT_CLAIM_MODEL_BYTES] = states + copies + grads;
    if (copies > 0) metric[HT_CLAIM_STATES_PER_COPY] = states / copies;
    double copied = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        if (s->ops[i].kind == HT_OP_COPY) copied += (double)s->works[s->ops[i].work].bytes;
    metric[HT_CLAIM_COPIED_BYTES] = copied;
}

static void observe_units(const struct ht_job *job, double *unit)
{
    const struct ht_scenario *s = &job->scenario;
    unit[HT_CLAIM_NO_UNIT] = 1;
    unit[HT_CLAIM_PARAMS] = (double)ht_model_params(&s->model);
    unit[HT_CLAIM_BLOCK_PARAMS] = (double)ht_unit_params(&s->model, 1);
    unit[HT_CLAIM_BLOCK_ACTIVATIONS] =
        (double)ht_unit_activation_bytes(&s->model, 1, s->micro_batch, s->seq, s->numerics.param);
    for (int32_t i = 0; job->cost_ns && i < job->schedule->n_ops; i++) {
        const struct ht_op *op = &job->schedule->ops[i];
        if (op->kind == HT_OP_FORWARD && op->label.unit == 1 && op->label.n_units == 1)
            unit[HT_CLAIM_BLOCK_FORWARD] = (double)job->cost_ns[i] * 1e-9;
    }
}

/* The worst device and the worst host: those with the most bytes. */
static void observe_memory(const struct ht_result *r, double *metric)
{
    const struct ht_memory_row *device = NULL;
    for (int32_t i = 0; i < r->n_memory; i++) {
        const struct ht_memory_row *row = &r->memory[i];
        if (row->tier == HT_DEVICE && (!device || row->peak_bytes > device->peak_bytes)) device = row;
        if (row->tier == HT_HOST && !(metric[HT_CLAIM_HOST_NEED] >= (double)row->safe_bytes))
            metric[HT_CLAIM_HOST_NEED] = (double)row->safe_bytes;
    }
    if (!device) return;
    double states = 0;
    for (int c = 0; c < HT_N_TENSOR_CLASSES; c++)
        if (is_state((enum ht_tensor_class)c)) states += (double)device->by_class[c];
    metric[HT_CLAIM_DEVICE_STATES] = states;
    metric[HT_CLAIM_DEVICE_NEED] = (double)device->safe_bytes;
    metric[HT_CLAIM_DEVICE_PEAK] = (double)device->peak_bytes;
    if (device->capacity_bytes < INT64_MAX)
        metric[HT_CLAIM_DEVICE_SHARE] = (double)device->peak_bytes / (double)device->capacity_bytes;
    if (device->planned_bytes > 0)
        metric[HT_CLAIM_PLAN_MEMORY_ERROR] = fabs((double)device->planned_bytes / (double)device->peak_bytes - 1);
}

/* ---- from the trace -------------------------------------------------------------------------------------------- */

/* When things happened in one iteration, on rank 0; -1: they did not. Lanes: work on blocks only. The papers count
   blocks; an embedding's backward pass and step at the end of an iteration would hide which lane is behind. */
struct moments {
    int64_t lane_end[HT_N_LANE_KINDS];
    int64_t host_begin, host_busy_ns;
    int64_t first_start, turn_begin, last_backward_start, turn_end, last_step_end;
};

static void later(int64_t *at, int64_t ns)
{
    if (ns > *at) *at = ns;
}

static struct moments moments_of(const struct ht_job *job, const struct ht_trace *t, int32_t iteration)
{
    const struct ht_schedule *s = job->schedule;
    int64_t last_block = job->scenario.model.layers;
    struct moments m = {.host_begin = -1,
                        .first_start = -1,
                        .turn_begin = -1,
                        .last_backward_start = -1,
                        .turn_end = -1,
                        .last_step_end = -1};
    for (int k = 0; k < HT_N_LANE_KINDS; k++) m.lane_end[k] = -1;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct ht_trace_event *e = &t->events[(int64_t)iteration * s->n_ops + i];
        const struct ht_op *op = &s->ops[i];
        const struct ht_lane *lane = &s->lanes[op->lane];
        if (e->grant_seq < 0 || lane->rank != 0 || op->label.unit < 0) continue;
        if (ht_model_unit_kind(&job->scenario.model, op->label.unit) == HT_UNIT_BLOCK) {
            later(&m.lane_end[lane->kind], e->end_ns);
            if (lane->kind == HT_LANE_HOST) {
                m.host_busy_ns += e->end_ns - e->start_ns;
                if (m.host_begin < 0 || e->start_ns < m.host_begin) m.host_begin = e->start_ns;
            }
        }
        if (lane->kind == HT_LANE_HOST && op->kind == HT_OP_OPTIMIZER_STEP) later(&m.last_step_end, e->end_ns);
        if (op->label.unit == 1 && op->kind == HT_OP_FORWARD && (m.first_start < 0 || e->start_ns < m.first_start))
            m.first_start = e->start_ns;
        if (op->label.unit != last_block) continue;
        if (op->kind == HT_OP_FORWARD) later(&m.turn_begin, e->end_ns);
        if (op->kind == HT_OP_BACKWARD) {
            later(&m.turn_end, e->end_ns);
            if (m.last_backward_start < 0 || e->start_ns < m.last_backward_start) m.last_backward_start = e->start_ns;
        }
    }
    return m;
}

/* Whether the device's peak over the whole run is reached between F_L and B_L of an iteration (of any: they are alike
   in the steady state). Ends and starts of ops are when memory changes hands, so the borders belong to it. */
static double peak_at_turn(const struct ht_job *job, const struct ht_trace *t)
{
    struct ht_memory_sample *samples;
    int64_t n = ht_trace_memory(t, 0, &samples), most = -1, at = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t live = 0;
        for (int c = 0; c < HT_N_TENSOR_CLASSES; c++) live += samples[i].by_class[c];
        if (live <= most) continue;
        most = live;
        at = samples[i].time_ns;
    }
    free(samples);
    for (int32_t k = 0; k < t->iterations; k++) {
        struct moments m = moments_of(job, t, k);
        if (at >= m.turn_begin && at <= m.turn_end) return 1;
    }
    return 0;
}

/* The op at which the safe sequence needs most of device 0: after the last F_L and not after the last B_L, the head's
   passes among them. */
static double need_at_turn(const struct ht_job *job)
{
    const struct ht_schedule *s = job->schedule;
    int32_t forward = -1, backward = -1, peak = job->verdict.spaces[0].peak_op;
    for (int32_t i = 0; i < s->n_ops; i++) {
        if (s->ops[i].label.unit != job->scenario.model.layers || ht_op_rank(s, i) != 0) continue;
        if (s->ops[i].kind == HT_OP_FORWARD) forward = i;
        if (s->ops[i].kind == HT_OP_BACKWARD) backward = i;
    }
    return peak >= forward && peak <= backward;
}

static void observe_trace(const struct ht_job *job, const struct ht_result *r, double *metric)
{
    const struct ht_trace *t = r->trace;
    const struct ht_schedule *s = job->schedule;
    struct moments m = moments_of(job, t, t->iterations - 1);
    const int64_t *end = m.lane_end;
    if (end[HT_LANE_D2H] >= 0 && end[HT_LANE_HOST] >= 0)
        metric[HT_CLAIM_LANES_IN_ORDER] =
            end[HT_LANE_COMPUTE] < end[HT_LANE_D2H] && end[HT_LANE_D2H] < end[HT_LANE_HOST];
    /* A host lane with less than 5% of gaps was never waiting for gradients. */
    metric[HT_CLAIM_COMPUTE_HIDDEN] =
        end[HT_LANE_COMPUTE] < end[HT_LANE_HOST] && 20 * m.host_busy_ns >= 19 * (end[HT_LANE_HOST] - m.host_begin);
    if (m.last_step_end >= 0 && m.last_backward_start >= 0)
        metric[HT_CLAIM_BACKWARD_SPAN] = (double)(m.last_step_end - m.last_backward_start) * 1e-9;
    if (t->iterations > 2) {
        struct moments before = moments_of(job, t, t->iterations - 2);
        if (before.last_step_end >= 0 && m.first_start >= 0)
            metric[HT_CLAIM_HEAD_START] = (double)(before.last_step_end - m.first_start) * 1e-9 / r->iteration_s;
    }
    metric[HT_CLAIM_PEAK_AT_TURN] = peak_at_turn(job, t);
    metric[HT_CLAIM_NEED_AT_TURN] = need_at_turn(job);
    double compute = 0, collectives = 0;
    bool has_collectives = false;
    for (int32_t i = 0; i < s->n_lanes; i++) {
        if (s->lanes[i].kind == HT_LANE_COMPUTE && s->lanes[i].rank == 0) compute += (double)r->metrics.lane_busy_ns[i];
        if (s->lanes[i].kind != HT_LANE_COLLECTIVE) continue;
        has_collectives = true;
        collectives += (double)r->metrics.critical_ns[i];
    }
    metric[HT_CLAIM_COMPUTE_TIME] = compute * 1e-9;
    if (has_collectives) metric[HT_CLAIM_COLLECTIVES] = collectives * 1e-9 / r->iteration_s;
}

/* ---- one observation ------------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct ht_options options_of(const struct ht_claim_setup *s, struct ht_claim_point p)
{
    int set = p.at[HT_CLAIM_SETTINGS];
    struct ht_options o = {.iterations = s->iterations,
                           .warmup = s->iterations > 4 ? 2 : 0,
                           .issue_ahead = -1,
                           .seed = 1,
                           .steps = s->train_steps,
                           .init_seed = 1234,
                           .data_seed = 5678,
                           .lr = 3e-4,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .weight_decay = 0.1,
                           .n_set = s->n_settings[set]};
    o.request = (struct ht_scenario_request){.model = s->models[p.at[HT_CLAIM_MODELS]],
                                             .cluster = s->cluster,
                                             .batch = s->batches[p.at[HT_CLAIM_BATCHES]],
                                             .micro_batch = s->micro_batch,
                                             .seq = s->seq,
                                             .device_memory_bytes = s->memory_bytes[p.at[HT_CLAIM_MEMORY]],
                                             .numerics = s->numerics[0] ? s->numerics : NULL};
    for (int i = 0; i < s->n_settings[set]; i++) o.set[i] = s->settings[set][i];
    return o;
}

/* Real training, on bytes drawn from a fixed seed: no claim is about the text. */
static enum ht_status train(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                            struct ht_observation *o)
{
    enum { N_BYTES = 1 << 16 };
    struct ht_tokens text = {.bytes = ht_alloc(N_BYTES), .n = N_BYTES, .fd = -1};
    for (int64_t i = 0; i < N_BYTES; i++) text.bytes[i] = (unsigned char)(1 + ht_random_below(1, (uint64_t)i, 255));
    struct ht_training t;
    struct ht_persist nothing = {0};
    struct ht_ranks one = {0};
    enum ht_status status = ht_train(options, job, &text, &nothing, &one, err, &t);
    if (status == HT_OK) {
        o->losses = t.losses;
        o->n_losses = t.steps;
        t.losses = NULL;
        o->metric[HT_CLAIM_LOSS_DIFFERENCE] = 0; /* to itself */
        ht_training_free(&t);
    }
    free(text.bytes);
    return status;
}

static void no_fit(const struct ht_job *job, struct ht_observation *o)
{
    o->sight = HT_SEEN_NO_FIT;
    snprintf(o->why, sizeof(o->why), "%.500s", job->reason);
    const struct ht_schedule *s = job->schedule;
    for (int32_t i = 0; s && job->verdict.spaces && i < ht_n_spaces(s); i++)
        if (!job->verdict.spaces[i].fits && !o->fails_in) o->fails_in = i < s->n_ranks ? 1 + HT_DEVICE : 1 + HT_HOST;
}

static enum ht_status simulate(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                               struct ht_observation *o)
{
    struct ht_trace *trace = NULL;
    struct ht_result r = {0};
    enum ht_status status = ht_simulate(options, job, err, &trace);
    if (status == HT_OK) status = ht_result_create(job, trace, job->cost_ns, (int32_t)options->warmup, err, &r);
    if (status != HT_OK) return status;
    o->metric[HT_CLAIM_THROUGHPUT] = ht_result_tflops(&r, r.useful_flops);
    if (job->plan.planned_s > 0) o->metric[HT_CLAIM_PLAN_TIME_ERROR] = fabs(job->plan.planned_s / r.iteration_s - 1);
    observe_memory(&r, o->metric);
    observe_trace(job, &r, o->metric);
    ht_result_free(&r);
    return HT_OK;
}

/* On a cluster of several devices a system has to use them all; one that cannot is not there yet. */
static bool covers_cluster(const struct ht_job *job, struct ht_observation *o)
{
    int64_t devices = job->scenario.cluster->n_gpus;
    if (!job->schedule || job->schedule->n_ranks == devices) return true;
    o->sight = HT_SEEN_NOT_THERE;
    snprintf(o->why, sizeof(o->why), "%s runs on one device yet, not on %lld", job->system->name, (long long)devices);
    return false;
}

/* "autohete c=2 p=1": a system, and settings that make it a variant; cuts `words`. Returns the system's name. */
static const char *variant_of(char *words, struct ht_options *options)
{
    char *save = NULL, *system = strtok_r(words, " ", &save);
    for (char *w = strtok_r(NULL, " ", &save); w && options->n_set < HT_MAX_SET; w = strtok_r(NULL, " ", &save))
        options->set[options->n_set++] = w;
    return system ? system : "";
}

static enum ht_status look(const char *variant, const struct ht_claim_setup *setup, struct ht_claim_point point,
                           struct ht_error *err, struct ht_observation *o)
{
    for (int i = 0; i < HT_N_CLAIM_METRICS; i++) o->metric[i] = NAN;
    for (size_t i = 0; i < HT_COUNT(o->unit); i++) o->unit[i] = NAN;
    struct ht_options options = options_of(setup, point);
    char words[HT_CLAIM_NAME];
    snprintf(words, sizeof(words), "%s", variant);
    const char *system = variant_of(words, &options);
    const struct ht_system *known;
    struct ht_job job = {0};
    enum ht_status status = ht_system_find(system, err, &known);
    if (status != HT_OK) {
        o->sight = HT_SEEN_NOT_THERE;
        snprintf(o->why, sizeof(o->why), "there is no system '%s' yet", system);
        return HT_OK;
    }
    double began = now_s();
    status = ht_job_create(&options, system, NULL, HT_JOB_PLAN, err, &job);
    double planned = now_s() - began;
    if (status == HT_OK) {
        ht_job_free(&job);
        status = ht_job_create(&options, system, NULL, HT_JOB_COSTS, err, &job);
    }
    if (status == HT_OK && covers_cluster(&job, o)) {
        if (job.schedule) {
            observe_tensors(job.schedule, o->metric);
            observe_units(&job, o->unit);
        }
        memcpy(o->variables, job.plan.variables, sizeof(o->variables));
        o->n_variables = job.plan.n_variables;
        o->metric[HT_CLAIM_PLAN_TIME] = planned;
        if (job.answer != HT_OK)
            no_fit(&job, o);
        else
            status = setup->train_steps ? train(&options, &job, err, o) : simulate(&options, &job, err, o);
    }
    ht_job_free(&job);
    if (status == HT_OK || status == HT_INTERRUPTED) return status;
    /* The ledger has been checked: names exist, numbers are in range. What is refused now, a system cannot do. */
    o->sight = status == HT_BAD_INPUT ? HT_SEEN_NOT_THERE : HT_SEEN_BROKEN;
    snprintf(o->why, sizeof(o->why), "%.500s", err->text);
    return HT_OK;
}

/* ---- remembering ----------------------------------------------------------------------------------------------- */

static void key_of(const char *system, const struct ht_claim_setup *s, struct ht_claim_point p, char *buf, size_t n)
{
    char settings[HT_CLAIM_SET * 32 + 8];
    snprintf(buf, n, "%s %s %s %s %lld %lld %lld %lld %lld %lld %s", system, s->models[p.at[HT_CLAIM_MODELS]],
             s->cluster, s->numerics, (long long)s->batches[p.at[HT_CLAIM_BATCHES]],
             (long long)s->memory_bytes[p.at[HT_CLAIM_MEMORY]], (long long)s->seq, (long long)s->micro_batch,
             (long long)s->iterations, (long long)s->train_steps,
             ht_claim_entry(s, HT_CLAIM_SETTINGS, p.at[HT_CLAIM_SETTINGS], settings, sizeof(settings)));
}

enum ht_status ht_observe(struct ht_observations *seen, const char *system, const struct ht_claim_setup *setup,
                          struct ht_claim_point point, struct ht_error *err, const struct ht_observation **out)
{
    char key[sizeof((*out)->key)];
    key_of(system, setup, point, key, sizeof(key));
    for (size_t i = 0; i < seen->n; i++) {
        if (strcmp(seen->list[i]->key, key) != 0) continue;
        *out = seen->list[i];
        return HT_OK;
    }
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted after %zu scenarios", seen->n);
    struct ht_observation *o = HT_NEW(struct ht_observation);
    memcpy(o->key, key, sizeof(key));
    enum ht_status status = look(system, setup, point, err, o);
    if (status != HT_OK) {
        free(o);
        return status;
    }
    HT_PUSH(seen->list, seen->n, seen->cap, o);
    *out = o;
    return HT_OK;
}

void ht_observations_free(struct ht_observations *seen)
{
    for (size_t i = 0; i < seen->n; i++) {
        free(seen->list[i]->losses);
        free(seen->list[i]);
    }
    free(seen->list);
    *seen = (struct ht_observations){0};
}

double ht_observed(const struct ht_observation *o, const struct ht_claim *claim)
{
    if (o->sight != HT_SEEN) return NAN;
    if (claim->metric != HT_CLAIM_PLAN_VARIABLE) return o->metric[claim->metric] / o->unit[claim->unit];
    for (int i = 0; i < o->n_variables; i++)
        if (!strcmp(o->variables[i].name, claim->variable)) return (double)o->variables[i].value;
    return NAN;
}
