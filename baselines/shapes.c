/*
 * Pipelines of one shape: tensor, pipeline and data parallelism of one degree each, the best of all that fit.
 *
 *     megatron_3d   Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC
 *                   2021. Every shape tp x pp x dp of all devices, tp inside a node: equal blocks and equal micro-batches,
 *                   1F1B, ranks in the order tensor, data, pipeline. If a shape does not fit, it recomputes its blocks,
 *                   one at a time.
 *     whale_3d      Jia et al., "Whale: Efficient Giant Model Training over Heterogeneous GPUs", USENIX ATC 2022. The same
 *                   shapes, balanced by the devices' speeds within one dimension: without pipelines the micro-batches of
 *                   each replica, else the blocks of each stage, which are the same in every pipeline.
 *
 * AutoHet compares with both (Sec. V-A: "best-performing results in the parallel structures supported by each system"). A
 * device's speed is that of a block's passes; a stage is as fast as its slowest device. Each shape is proved and
 * simulated, and the fastest is taken. dp divides the micro-batches.
 *
 * Left out: interleaved stages and Megatron-LM's distributed optimizer (baselines/pipelines.c has both), and Whale's shift
 * of work by memory: shapes that do not fit fall.
 */
#include "baselines/baselines.h"

#include "common/base/array.h"
#include "common/draft/cost_query.h"
#include "common/plan/candidate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEGATRON, WHALE };

static const struct ht_knob knobs[] = {
    {"tp", "tensor-parallel degree; else the best", .min = 1, .max = 1 << 16},
    {"pp", "stages of each pipeline; else the best", .min = 1, .max = 1 << 16},
    {"pipelines", "devices of each pipeline", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},
    {"l", "micro-batches of each pipeline", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_LIST},
    {"blocks", "blocks of each stage, of every pipeline", .min = 1, .max = -1, .kind = HT_VARIABLE_LIST},
    {"halves", "the same in half blocks, in place of blocks", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},
    {"place", "devices of parts, stages, pipelines, one after the other", .kind = HT_VARIABLE_RANKS},
    {"recompute", "1: backwards recompute their blocks; else only where nothing else fits", .max = 1},
    {"segment", "blocks recomputed at a time", .min = 1, .max = -1},
    {0},
};

struct shape {
    int64_t tp, pp, dp;
    bool recompute;
};

struct sweep {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_profile *profile;
    const struct ht_settings *settings;
    int64_t least_ns;
    int tried;
    int lacks; /* of ht_error, of the last shape that does not fit */
};

/* ---- balance --------------------------------------------------------------------------------------------------- */

/* Returns the device of part p of stage q of pipeline k: tensor, data, pipeline. */
static int64_t rank_at(const struct shape *x, int64_t k, int64_t q, int64_t p)
{
    return (q * x->dp + k) * x->tp + p;
}

/* Computes the speed of a stage, or of a pipeline of one stage: of its slowest device. */
static enum ht_status read_speed(const struct sweep *s, const struct shape *x, int64_t part, struct ht_error *err,
                                 double *speed)
{
    int64_t slowest = 1;
    for (int64_t k = 0; k < x->dp; k++) {
        for (int64_t p = 0; p < x->tp; p++) {
            int64_t rank = x->pp > 1 ? rank_at(x, k, part, p) : rank_at(x, part, 0, p);
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
static enum ht_status share_out(const struct sweep *s, const struct shape *x, bool by_speed, int64_t all, int32_t n,
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

/* Fills the variables of a shape's plan. */
static enum ht_status set_shape(const struct sweep *s, const struct shape *x, struct ht_error *err, struct ht_plan *out)
{
    int64_t n = x->tp * x->pp * x->dp, batches = ht_scenario_micro_batches(s->scenario);
    int64_t *devices = HT_NEW_ARRAY(int64_t, x->dp), *l = HT_NEW_ARRAY(int64_t, x->dp);
    int64_t *blocks = HT_NEW_ARRAY(int64_t, x->pp), *place = HT_NEW_ARRAY(int64_t, n);
    bool whale = s->self->variant == WHALE;
    for (int64_t k = 0; k < x->dp; k++) devices[k] = x->tp * x->pp;
    for (int64_t i = 0; i < n; i++) place[i] = rank_at(x, i / (x->tp * x->pp), i / x->tp % x->pp, i % x->tp);
    enum ht_status status = share_out(s, x, whale && x->pp == 1, batches, (int32_t)x->dp, err, l);
    if (!status) status = share_out(s, x, whale && x->pp > 1, s->scenario->model.layers, (int32_t)x->pp, err, blocks);
    ht_plan_set(out, "tp", x->tp);
    ht_plan_set(out, "pp", x->pp);
    set_vector(out, "pipelines", HT_VARIABLE_LIST, x->dp, devices);
    set_vector(out, "l", HT_VARIABLE_LIST, x->dp, l);
    set_vector(out, "blocks", HT_VARIABLE_LIST, x->pp, blocks);
    set_vector(out, "place", HT_VARIABLE_RANKS, n, place);
    ht_plan_set(out, "recompute", x->recompute);
    if (x->recompute) ht_plan_set(out, "segment", 1);
    free(devices);
    free(l);
    free(blocks);
    free(place);
    return status;
}

/* Proves and simulates a shape; takes its plan if it is the fastest so far. HT_INFEASIBLE if it does not fit. */
static enum ht_status try_shape(struct sweep *s, const struct shape *x, struct ht_error *err, struct ht_plan *best)
{
    struct ht_plan plan = {.planned_bytes = {-1, 0, 0, 0}};
    struct ht_candidate c = {0};
    char name[32];
    int64_t ns = 0;
    enum ht_status status = set_shape(s, x, err, &plan);
    if (!status) status = ht_candidate_prove(s->self, s->scenario, &plan, err, &c);
    if (!status && !ht_settings_any_fit(s->settings))
        status = ht_candidate_simulate(&c, s->scenario, s->profile, err, &ns);
    snprintf(name, sizeof name, "tp %d, pp %d, dp %d%s", (int)x->tp, (int)x->pp, (int)x->dp,
             x->recompute ? ", again" : "");
    if (!status) ht_plan_input(best, name, "s", 1e-9 * (double)ns);
    s->tried++;
    if (!status && ns < s->least_ns) {
        struct ht_plan_input *inputs = best->inputs;
        int n_inputs = best->n_inputs;
        size_t cap = best->inputs_cap;
        best->inputs = NULL;
        best->n_inputs = 0, best->inputs_cap = 0;
        ht_plan_free(best);
        *best = plan;
        best->inputs = inputs, best->n_inputs = n_inputs, best->inputs_cap = cap;
        plan = (struct ht_plan){0};
        s->least_ns = ns;
    }
    ht_candidate_free(&c);
    ht_plan_free(&plan);
    return status;
}

/* Returns true if the devices of each tensor-parallel group are on one node, and the shape has a block for each stage and
   equally many micro-batches for each pipeline (Whale: at least one). */
static bool possible(const struct sweep *s, const struct shape *x)
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

/* Tries a shape, and again with recomputation if it does not fit. */
static enum ht_status try_both(struct sweep *s, struct shape x, struct ht_error *err, struct ht_plan *best)
{
    const struct ht_variable *forced = ht_setting_variable(s->settings, "recompute");
    struct ht_error why = {0};
    enum ht_status status = HT_INFEASIBLE;
    for (int again = forced && forced->value; again < 2 && status == HT_INFEASIBLE; again++) {
        x.recompute = again;
        status = try_shape(s, &x, &why, best);
        if (forced) break;
    }
    if (status == HT_INFEASIBLE) s->lacks = why.lacks;
    return status == HT_INFEASIBLE || !status ? HT_OK : ht_fail(err, status, "%s", why.text);
}

static const char *const forms[] = {"pipelines", "l", "blocks", "place"};

/* Returns a variable of a plan that is forced; halves stand for blocks. */
static const struct ht_variable *forced(const struct ht_settings *settings, const char *form)
{
    const struct ht_variable *v = ht_setting_variable(settings, form);
    return v || strcmp(form, "blocks") ? v : ht_setting_variable(settings, "halves");
}

/* Takes a plan that is forced as a whole. */
static enum ht_status take_forced(const struct ht_settings *settings, struct ht_error *err, struct ht_plan *out)
{
    if (ht_setting_variable(settings, "blocks") && ht_setting_variable(settings, "halves"))
        return ht_fail(err, HT_BAD_INPUT, "blocks and halves are both set; expected one of them");
    for (size_t i = 0; i < HT_COUNT(forms); i++) {
        const struct ht_variable *v = forced(settings, forms[i]);
        if (!v)
            return ht_fail(err, HT_BAD_INPUT,
                           "%s is not set; expected pipelines, l, blocks and place together, or none of them",
                           forms[i]);
        ht_plan_set_vector(out, v);
    }
    ht_plan_set(out, "tp", ht_setting(settings, "tp", 1));
    ht_plan_set(out, "recompute", ht_setting(settings, "recompute", 0));
    ht_plan_set(out, "segment", ht_setting(settings, "segment", 1));
    snprintf(out->why, sizeof out->why, "forced");
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct sweep s = {self, scenario, profile, settings, .least_ns = INT64_MAX};
    int64_t n = ht_scenario_ranks(scenario), tp = ht_setting(settings, "tp", 0), pp = ht_setting(settings, "pp", 0);
    enum ht_status status = HT_OK;
    static const char none[] = "none of %d shapes of %lld devices fits";
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}};
    for (size_t i = 0; i < HT_COUNT(forms); i++)
        if (forced(settings, forms[i])) return take_forced(settings, err, out);
    for (int64_t t = 1; t <= n && !status; t++)
        for (int64_t q = 1; t * q <= n && !status; q++) {
            struct shape x = {t, q, n / (t * q), false};
            if (n % (t * q) || (tp && tp != t) || (pp && pp != q) || !possible(&s, &x)) continue;
            if (ht_settings_any_fit(settings) && s.least_ns == 0) continue;
            status = try_both(&s, x, err, out);
        }
    if (status) return status;
    if (s.least_ns == INT64_MAX)
        return s.lacks ? ht_fail_memory(err, s.lacks - 1, none, s.tried, (long long)n)
                       : ht_fail(err, HT_INFEASIBLE, none, s.tried, (long long)n);
    snprintf(out->why, sizeof out->why, "the fastest of %d shapes that fit, of %d tried", out->n_inputs, s.tried);
    return HT_OK;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                            struct ht_error *err, struct ht_schedule **out)
{
    struct ht_system as = ht_dapple; /* its graph, under our name */
    as.name = self->name;
    return as.build(&as, scenario, p, err, out);
}

/* clang-format off */
#define SHAPED(NAME, TITLE, SOURCE, VARIANT, SUMMARY)                                                                  \
    {.name = NAME, .title = TITLE, .source = SOURCE, .summary = SUMMARY, .knobs = knobs, .variant = VARIANT,           \
     .division = HT_PIPELINES, .plan = plan, .build = build}
const struct ht_system ht_megatron_3d = SHAPED("megatron_3d", "Megatron-LM", "Narayanan et al. 2021, SC", MEGATRON,
    "tensor, pipeline and data parallelism of one degree each: the fastest shape that fits");
const struct ht_system ht_whale_3d = SHAPED("whale_3d", "Whale (3D)", "Jia et al. 2022, USENIX ATC", WHALE,
    "megatron_3d with micro-batches, or layers of stages, by the devices' speeds");
/* clang-format on */
