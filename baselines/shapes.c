/*
 * Pipelines of one shape: tensor, pipeline and data parallelism of one degree each, the best of all that fit.
 *
 *     megatron_3d   Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
 *                   2021. Every shape tp x pp x dp of all devices, tp inside a node: equal blocks and equal micro-batches,
 *                   ranks in the order tensor, data, pipeline; boundaries in slices (its Sec. 4.1); 1F1B, and interleaved
 *                   over v = 2, 4, .. stages a device; with and without its distributed optimizer (ZeRO-1). If a shape does
 *                   not fit, it recomputes attention (Korthikanti et al., "Reducing Activation Recomputation in Large
 *                   Transformer Models", MLSys 2023, Sec. 5), and if that does not either, its blocks, one at a time.
 *     whale_3d      Jia et al., "Whale: Efficient Giant Model Training over Heterogeneous GPUs", USENIX ATC 2022. The same
 *                   tp x pp x dp with v = 1, without ZeRO, all blocks recomputed where they must be; balanced by the devices'
 *                   speeds within one dimension: without pipelines the micro-batches of each replica, else the blocks of each
 *                   stage, which are the same in every pipeline.
 *
 * AutoHet compares with both (Sec. V-A: "best-performing results in the parallel structures supported by each system"). A
 * device's speed is that of a block's passes; a stage is as fast as its slowest device. dp divides the micro-batches, whose
 * size is the scenario's.
 *
 * The search knows of each candidate the memory and the time that it takes at least (baselines/shape.h). It comes to them by
 * that time, and builds, proves and simulates those that may be faster than the fastest so far, until they surely are not. Not tried is what recomputes
 * more than a candidate of the same shape that fits: that is slower in all else. Whale's bounds are not computed, since its
 * stages are not equal: each of its shapes is tried.
 *
 * All stages have one width: Megatron-LM has one tensor-parallel size for all of them (Sec. 3 of the paper; its option
 * --tensor-model-parallel-size), and so has Whale here. Widths by stage are other planners' (baselines/pipelines.c: widths=).
 *
 * Left out: Whale's shift of work by memory: shapes that do not fit fall.
 */
#include "baselines/baselines.h"
#include "baselines/shape.h"

#include "common/base/array.h"
#include "common/draft/cost_query.h"
#include "common/plan/candidate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEGATRON, WHALE };

/* clang-format off */
#define DEGREES                                                                                                        \
    {"tp", "tensor-parallel degree; else the best", .min = 1, .max = 1 << 16},                                         \
    {"pp", "stages of each pipeline; else the best", .min = 1, .max = 1 << 16},                                        \
    {"pipelines", "devices of each pipeline", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},                     \
    {"l", "micro-batches of each pipeline", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_LIST},                       \
    {"blocks", "blocks of each stage, of every pipeline", .min = 1, .max = -1, .kind = HT_VARIABLE_LIST},              \
    {"halves", "the same in half blocks, in place of blocks", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},     \
    {"place", "devices of parts, stages, pipelines, one after the other", .kind = HT_VARIABLE_RANKS},                  \
    {"segment", "blocks recomputed at a time", .min = 1, .max = -1}
/* clang-format on */

static const struct ht_knob whale_knobs[] = {
    DEGREES,
    {"recompute", "1: backwards recompute their blocks; else only where nothing else fits", .max = 1, .planned = true},
    {0}};
static const struct ht_knob megatron_knobs[] = {
    DEGREES,
    {"v", "stages a device, interleaved; else the best", .min = 1, .max = -1},
    {"slices", "0: a part sends the whole of what crosses a boundary; 1: its slice of it, as Megatron-LM does",
     .max = 1},
    {"zero", "1: pipelines share the optimizer states, 0: they do not; else the best", .max = 1},
    {"recompute", "1: backwards recompute their blocks, 2: their attention; else only where nothing else fits",
     .max = 2, .planned = true},
    {0}};

/* A shape that is tried, and what becomes of it. */
struct candidate {
    struct ht_shape shape;
    int64_t bound_ns, least_bytes;
    int index; /* of the enumeration, which decides between equal bounds */
    bool fits;
};

struct sweep {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_profile *profile;
    const struct ht_settings *settings;
    struct candidate *all;
    size_t n, cap;
    int64_t least_ns;
    int fit;
    int lacks; /* of ht_error, of the last shape that does not fit */
};

/* ---- balance --------------------------------------------------------------------------------------------------- */

/* Computes the speed of a stage, or of a pipeline of one stage: of its slowest device. */
static enum ht_status read_speed(const struct sweep *s, const struct ht_shape *x, int64_t part, struct ht_error *err,
                                 double *speed)
{
    int64_t slowest = 1;
    for (int64_t k = 0; k < x->dp; k++) {
        for (int64_t p = 0; p < x->tp; p++) {
            int64_t rank = x->pp > 1 ? ht_shape_rank(x, k, part, p) : ht_shape_rank(x, part, 0, p);
            struct ht_cost_query q = {
                .scenario = s->scenario, .profile = s->profile, .rank = rank, .tp = (int32_t)x->tp, .err = err};
            int64_t ns = ht_query_pass(&q, HT_OP_FORWARD, 1) + ht_query_pass(&q, HT_OP_BACKWARD, 1);
            if (q.status) return q.status;
            if (ns > slowest) slowest = ns;
        }
        if (x->pp == 1) break;
    }
    *speed = 1 / (double)slowest;
    return HT_OK;
}

/* Divides `all` by the weights, at least one each: each next one goes to the part that would be done with it first. */
static void divide(int64_t all, const double *weights, int32_t n, int64_t *parts)
{
    for (int32_t i = 0; i < n; i++) parts[i] = 1;
    for (int64_t left = all - n; left > 0; left--) {
        int32_t first = 0;
        for (int32_t i = 1; i < n; i++)
            if ((double)(parts[i] + 1) / weights[i] < (double)(parts[first] + 1) / weights[first]) first = i;
        parts[first]++;
    }
}

/* Fills the parts of `all` over stages or pipelines: equal, or by speed. */
static enum ht_status share_out(const struct sweep *s, const struct ht_shape *x, bool by_speed, int64_t all, int32_t n,
                                struct ht_error *err, int64_t *parts)
{
    double *speeds = HT_NEW_ARRAY(double, n);
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < n; i++) parts[i] = (i + 1) * all / n - i * all / n;
    for (int32_t i = 0; i < n && by_speed && !status; i++) status = read_speed(s, x, i, err, &speeds[i]);
    if (by_speed && !status) divide(all, speeds, n, parts);
    free(speeds);
    return status;
}

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

static void set_vector(struct ht_plan *out, const char *name, enum ht_variable_kind kind, int64_t n, int64_t *values)
{
    struct ht_variable v = {.kind = kind, .n = (int32_t)n, .values = values};
    snprintf(v.name, sizeof v.name, "%s", name);
    ht_plan_set_vector(out, &v);
}

/* Adds to the plan whether boundaries are sent in slices: as it is forced, or as Megatron-LM does. */
static void set_slices(const struct ht_system *self, const struct ht_settings *settings, int64_t tp, int64_t pp,
                       struct ht_plan *out)
{
    bool boundaries = self->variant == MEGATRON && tp > 1 && pp > 1;
    if (boundaries) ht_plan_set(out, "slices", ht_setting(settings, "slices", 1));
}

/* Fills the variables of a shape's plan. */
static enum ht_status set_shape(const struct sweep *s, const struct ht_shape *x, struct ht_error *err,
                                struct ht_plan *out)
{
    int64_t n = x->tp * x->pp * x->dp, batches = ht_scenario_micro_batches(s->scenario);
    int64_t *devices = HT_NEW_ARRAY(int64_t, x->dp), *l = HT_NEW_ARRAY(int64_t, x->dp);
    int64_t *blocks = HT_NEW_ARRAY(int64_t, x->pp), *place = HT_NEW_ARRAY(int64_t, n);
    bool whale = s->self->variant == WHALE;
    for (int64_t k = 0; k < x->dp; k++) devices[k] = x->tp * x->pp;
    for (int64_t i = 0; i < n; i++) place[i] = ht_shape_rank(x, i / (x->tp * x->pp), i / x->tp % x->pp, i % x->tp);
    enum ht_status status = share_out(s, x, whale && x->pp == 1, batches, (int32_t)x->dp, err, l);
    if (!status) status = share_out(s, x, whale && x->pp > 1, s->scenario->model.layers, (int32_t)x->pp, err, blocks);
    ht_plan_set(out, "tp", x->tp);
    ht_plan_set(out, "pp", x->pp);
    if (x->v > 1) ht_plan_set(out, "v", x->v);
    if (x->zero) ht_plan_set(out, "zero", 1);
    set_vector(out, "pipelines", HT_VARIABLE_LIST, x->dp, devices);
    set_vector(out, "l", HT_VARIABLE_LIST, x->dp, l);
    if (x->v == 1) set_vector(out, "blocks", HT_VARIABLE_LIST, x->pp, blocks);
    set_vector(out, "place", HT_VARIABLE_RANKS, n, place);
    set_slices(s->self, s->settings, x->tp, x->pp, out);
    ht_plan_set(out, "recompute", x->again);
    if (x->again) ht_plan_set(out, "segment", 1);
    free(devices);
    free(l);
    free(blocks);
    free(place);
    return status;
}

static const char *name_of(const struct ht_shape *x, char *buf, size_t bytes)
{
    static const char *const again[] = {"", ", blocks again", ", attention again"};
    char v[32] = "";
    if (x->v > 1) snprintf(v, sizeof v, ", v %d", (int)x->v);
    snprintf(buf, bytes, "tp %d, pp %d, dp %d%s%s%s", (int)x->tp, (int)x->pp, (int)x->dp, v, x->zero ? ", zero 1" : "",
             again[x->again]);
    return buf;
}

/* Takes a plan in place of the best so far, which keeps what has been considered. */
static void take(struct ht_plan *best, struct ht_plan *plan)
{
    struct ht_considered *considered = best->considered;
    size_t n = best->n_considered, cap = best->considered_cap;
    best->considered = NULL;
    ht_plan_free(best);
    *best = *plan;
    best->considered = considered, best->n_considered = n, best->considered_cap = cap;
    *plan = (struct ht_plan){0};
}

/* Proves and simulates a candidate; takes its plan if it is the fastest so far. *ns: its time, or a
   lower bound that is not below the fastest's. HT_INFEASIBLE if it does not fit. */
static enum ht_status try_shape(struct sweep *s, struct candidate *x, struct ht_error *err, struct ht_plan *best,
                                int64_t *ns)
{
    struct ht_plan plan = {.planned_bytes = {-1, 0, 0, 0}};
    struct ht_candidate c = {0};
    enum ht_status status = set_shape(s, &x->shape, err, &plan);
    *ns = 0;
    if (!status) status = ht_candidate_prove(s->self, s->scenario, &plan, err, &c);
    if (!status && !ht_settings_any_fit(s->settings))
        status = ht_candidate_simulate_within(&c, s->scenario, s->profile, s->least_ns, err, ns);
    x->fits = !status;
    s->fit += x->fits;
    if (x->fits && *ns < s->least_ns) {
        ht_plan_keep(&plan, &c);
        take(best, &plan);
        s->least_ns = *ns;
    }
    ht_candidate_free(&c);
    ht_plan_free(&plan);
    return status;
}

/* Returns true if the devices of each tensor-parallel group are on one node, and the shape has a block for each stage and
   equally many micro-batches for each pipeline (Whale: at least one). */
static bool possible(const struct sweep *s, const struct ht_shape *x)
{
    const struct ht_cluster *c = s->scenario->cluster;
    int64_t n = ht_scenario_ranks(s->scenario), batches = ht_scenario_micro_batches(s->scenario), a, b;
    char buf[64];
    bool uneven = s->self->variant == WHALE && x->pp == 1;
    if (x->pp > s->scenario->model.layers || batches < x->dp || (!uneven && batches % x->dp)) return false;
    if (x->tp > 1 && ht_model_cannot_part(&s->scenario->model, (int32_t)x->tp, buf, sizeof buf)) return false;
    for (int64_t r = 0; r < n; r += x->tp) {
        ht_cluster_node_of(c, r, &a);
        ht_cluster_node_of(c, r + x->tp - 1, &b);
        if (a != b) return false;
    }
    return true;
}

/* Returns true if the blocks can be cut into v equal stages a device, whose order takes the micro-batches. */
static bool interleaves(const struct sweep *s, const struct ht_shape *x)
{
    int64_t l = ht_scenario_micro_batches(s->scenario) / x->dp;
    return x->v == 1 || (x->pp > 1 && l % x->pp == 0 && s->scenario->model.layers % (x->pp * x->v) == 0);
}

/* Adds a shape that recomputes so much, with its bounds. */
static enum ht_status add_again(struct sweep *s, struct ht_shape x, int again, struct ht_error *err)
{
    const struct ht_variable *forced = ht_setting_variable(s->settings, "recompute");
    struct candidate c = {.shape = x, .index = (int)s->n};
    enum ht_status status = HT_OK;
    c.shape.again = again;
    if (forced && forced->value != (int64_t)again) return HT_OK;
    if (!forced && again == HT_RECOMPUTES_ATTENTION && (s->self->variant == WHALE || s->scenario->model.flash))
        return HT_OK;
    if (s->self->variant == MEGATRON) {
        c.least_bytes = ht_shape_least_bytes(s->scenario, &c.shape);
        status = ht_shape_bound_ns(s->scenario, s->profile, &c.shape, err, &c.bound_ns);
    }
    HT_PUSH(s->all, s->n, s->cap, c);
    return status;
}

/* Adds the candidates of tp, pp and dp, those that recompute less first. */
static enum ht_status add_shapes(struct sweep *s, struct ht_shape x, struct ht_error *err)
{
    static const int ladder[] = {HT_RECOMPUTES_NOTHING, HT_RECOMPUTES_ATTENTION, HT_RECOMPUTES_BLOCKS};
    const struct ht_variable *zero = ht_setting_variable(s->settings, "zero"),
                             *v = ht_setting_variable(s->settings, "v");
    bool megatron = s->self->variant == MEGATRON;
    enum ht_status status = HT_OK;
    for (int z = 0; z < 2; z++)
        for (x.v = v ? v->value : 1; x.v * x.pp <= s->scenario->model.layers; x.v *= 2) {
            x.zero = z;
            bool tried = zero ? zero->value == z : !z || (megatron && x.dp > 1);
            for (size_t i = 0; i < HT_COUNT(ladder) && tried && interleaves(s, &x) && !status; i++)
                status = add_again(s, x, ladder[i], err);
            if (v || !megatron) break;
        }
    return status;
}

static enum ht_status list_candidates(struct sweep *s, struct ht_error *err)
{
    int64_t n = ht_scenario_ranks(s->scenario), tp = ht_setting(s->settings, "tp", 0),
            pp = ht_setting(s->settings, "pp", 0);
    enum ht_status status = HT_OK;
    for (int64_t t = 1; t <= n && !status; t++)
        for (int64_t q = 1; t * q <= n && !status; q++) {
            struct ht_shape x = {.tp = t, .pp = q, .dp = n / (t * q), .v = 1};
            if (n % (t * q) || (tp && tp != t) || (pp && pp != q) || !possible(s, &x)) continue;
            status = add_shapes(s, x, err);
        }
    return status;
}

static int by_bound(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    return x->index - y->index;
}

/* Returns true if the same shape fits that recomputes less. */
static bool needless(const struct sweep *s, const struct candidate *x)
{
    static const int rungs[] = {[HT_RECOMPUTES_NOTHING] = 0, [HT_RECOMPUTES_ATTENTION] = 1, [HT_RECOMPUTES_BLOCKS] = 2};
    for (size_t i = 0; i < s->n; i++) {
        const struct ht_shape *a = &s->all[i].shape, *b = &x->shape;
        bool same = a->tp == b->tp && a->pp == b->pp && a->dp == b->dp && a->v == b->v && a->zero == b->zero;
        if (same && s->all[i].fits && rungs[a->again] < rungs[b->again]) return true;
    }
    return false;
}

/* Returns the memory of the largest device: no shape whose fullest stage needs more has a place for it. */
static int64_t largest_device(const struct ht_scenario *sc)
{
    int64_t most = 0;
    for (int64_t r = 0; r < ht_scenario_ranks(sc); r++)
        if (ht_cluster_gpu_of(sc->cluster, r)->memory_bytes > most)
            most = ht_cluster_gpu_of(sc->cluster, r)->memory_bytes;
    return most;
}

/* Tries a candidate, unless its bounds rule it out, and records why it falls. */
static enum ht_status consider(struct sweep *s, struct candidate *x, struct ht_error *err, struct ht_plan *best)
{
    struct ht_considered c = {.least_bytes = x->least_bytes, .bound_s = 1e-9 * (double)x->bound_ns};
    struct ht_error why = {0};
    enum ht_status status = HT_OK;
    int64_t ns = 0;
    name_of(&x->shape, c.name, sizeof c.name);
    if (x->least_bytes > largest_device(s->scenario)) {
        snprintf(c.why, sizeof c.why, "states and activations alone are more than a device has");
        s->lacks = 1 + HT_DEVICE;
    } else if (needless(s, x)) {
        snprintf(c.why, sizeof c.why, "fits without that recomputation");
    } else if (x->bound_ns >= s->least_ns) {
        snprintf(c.why, sizeof c.why, "takes longer than the fastest so far at best");
    } else {
        int64_t least_ns = s->least_ns;
        status = try_shape(s, x, &why, best, &ns);
        if (status && status != HT_INFEASIBLE) return ht_fail(err, status, "%s", why.text);
        if (status) s->lacks = why.lacks;
        snprintf(c.why, sizeof c.why, "%.*s", HT_CANDIDATE_TEXT - 1, status ? why.text : "slower");
        if (ns < least_ns) c.iteration_s = 1e-9 * (double)ns;
        if (ns >= least_ns) c.gave_up_s = 1e-9 * (double)ns;
    }
    HT_PUSH(best->considered, best->n_considered, best->considered_cap, c);
    return HT_OK;
}

/* Marks the candidate that was taken: the first of the fastest. */
static void mark_taken(const struct sweep *s, struct ht_plan *out)
{
    for (size_t i = 0; i < out->n_considered; i++)
        if (s->all[i].fits && out->considered[i].gave_up_s == 0 &&
            out->considered[i].iteration_s <= 1e-9 * (double)s->least_ns) {
            snprintf(out->considered[i].why, sizeof out->considered[i].why, "taken");
            return;
        }
}

static const char *const forms[] = {"pipelines", "l", "blocks", "place"};

/* Returns a variable of a plan that is forced; halves stand for blocks. */
static const struct ht_variable *forced(const struct ht_settings *settings, const char *form)
{
    const struct ht_variable *v = ht_setting_variable(settings, form);
    return v || strcmp(form, "blocks") ? v : ht_setting_variable(settings, "halves");
}

/* Takes a plan that is forced as a whole. Interleaved stages are equal: their plan has no blocks. */
static enum ht_status take_forced(const struct ht_system *self, const struct ht_settings *settings,
                                  struct ht_error *err, struct ht_plan *out)
{
    int64_t tp = ht_setting(settings, "tp", 1);
    if (ht_setting_variable(settings, "blocks") && ht_setting_variable(settings, "halves"))
        return ht_fail(err, HT_BAD_INPUT, "blocks and halves are both set; expected one of them");
    for (size_t i = 0; i < HT_COUNT(forms); i++) {
        const struct ht_variable *v = forced(settings, forms[i]);
        if (!v && !strcmp(forms[i], "blocks") && ht_setting(settings, "v", 1) > 1) continue;
        if (!v)
            return ht_fail(err, HT_BAD_INPUT,
                           "%s is not set; expected pipelines, l, blocks and place together, or none of them",
                           forms[i]);
        ht_plan_set_vector(out, v);
    }
    ht_plan_set(out, "tp", tp);
    set_slices(self, settings, tp, ht_plan_variable(out, "pipelines")->values[0] / tp, out);
    if (ht_setting(settings, "v", 1) > 1) ht_plan_set(out, "v", ht_setting(settings, "v", 1));
    if (ht_setting(settings, "zero", 0)) ht_plan_set(out, "zero", 1);
    ht_plan_set(out, "recompute", ht_setting(settings, "recompute", 0));
    ht_plan_set(out, "segment", ht_setting(settings, "segment", 1));
    snprintf(out->why, sizeof out->why, "forced");
    return HT_OK;
}

static enum ht_status search(struct sweep *s, struct ht_error *err, struct ht_plan *out)
{
    static const char none[] = "none of %zu shapes of %lld devices fits";
    long long devices = ht_scenario_ranks(s->scenario);
    enum ht_status status = list_candidates(s, err);
    if (s->n) qsort(s->all, s->n, sizeof *s->all, by_bound);
    for (size_t i = 0; i < s->n && !status; i++) {
        status = consider(s, &s->all[i], err, out);
        if (s->settings && s->settings->progress) s->settings->progress(s->settings->progress_ctx, i + 1, s->n);
    }
    if (status) return status;
    if (!s->fit)
        return s->lacks ? ht_fail_memory(err, s->lacks - 1, none, s->n, devices)
                        : ht_fail(err, HT_INFEASIBLE, none, s->n, devices);
    mark_taken(s, out);
    snprintf(out->why, sizeof out->why, "the fastest of %d shapes that fit and were simulated, of %zu", s->fit, s->n);
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct sweep s = {self, scenario, profile, settings, .least_ns = INT64_MAX};
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}};
    for (size_t i = 0; i < HT_COUNT(forms); i++)
        if (forced(settings, forms[i])) return take_forced(self, settings, err, out);
    enum ht_status status = search(&s, err, out);
    free(s.all);
    return status;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                            struct ht_error *err, struct ht_schedule **out)
{
    struct ht_system as = ht_plan_get(p, "v") > 1 ? ht_interleaved : ht_dapple; /* its graph, under our name */
    as.name = self->name;
    return as.build(&as, scenario, p, err, out);
}

/* clang-format off */
#define SHAPED(NAME, TITLE, SOURCE, VARIANT, KNOBS, SUMMARY)                                                           \
    {.name = NAME, .title = TITLE, .source = SOURCE, .summary = SUMMARY, .knobs = KNOBS, .variant = VARIANT,           \
     .division = HT_PIPELINES, .plan = plan, .build = build}
const struct ht_system ht_megatron_3d = SHAPED("megatron_3d", "Megatron-LM", "Narayanan et al. 2021, SC", MEGATRON,
    megatron_knobs, "tensor, pipeline and data parallelism of one degree each: the fastest shape that fits");
const struct ht_system ht_whale_3d = SHAPED("whale_3d", "Whale (3D)", "Jia et al. 2022, USENIX ATC", WHALE,
    whale_knobs, "megatron_3d with micro-batches, or layers of stages, by the devices' speeds");
/* clang-format on */
