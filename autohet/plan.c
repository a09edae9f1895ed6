/*
 * AutoHet's planner: Algorithm 1 on what profiling says, proved and simulated.
 *
 *     measure     times and sizes of layers by GPU type and tp                       measure.c
 *     decide      candidates of Algorithm 1, the shortest by eq. (1) first           algorithm1.c
 *     prove       the schedule of the first one; if a GPU is too small, (4c) gets so much less memory, and again
 *     simulate    the best few, so that the plan says by how much eq. (1) was off
 *
 * The default takes the paper's choice, the shortest by eq. (1). Variants that are ours, none of them the default:
 * choose=1 takes the fastest of those simulated; objective=1 partitions by eq. (1) instead of eq. (4); uneven=1 lets D not
 * divide the micro-batches; fitted=1 uses the clean fit instead of eq. (5).
 *
 * The four systems of the breakdown (Sec. V-B) are this planner without some of its steps.
 */
#include "autohet/autohet.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/tasks.h"
#include "common/plan/candidate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 8, SIMULATED = 3, CANDIDATE_BYTES = 500 }; /* the last: of an op, while it is simulated */

/* clang-format off */
#define PLAN                                                                                                           \
    {"pipelines", "devices of each group", .min = 1, .max = 1 << 16, .kind = HT_VARIABLE_LIST},                        \
    {"l", "micro-batches of each group", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_LIST},                          \
    {"blocks", "layers of each stage, of one group after the other", .min = 1, .max = -1, .kind = HT_VARIABLE_LIST},   \
    {"place", "devices of parts, stages, groups, one after the other", .kind = HT_VARIABLE_RANKS},                     \
    {"tp", "tensor-parallel degree", .min = 1, .max = 1 << 16},                                                        \
    {"recompute", "1: a layer keeps nothing and is recomputed; 2: it drops its attention alone", .max = 2},            \
    {"segment", "layers recomputed at a time, from the input of the first; 0: those of a stage", .max = -1},           \
    {"zero", "1: the groups share optimizer states (ZeRO-1)", .max = 1},                                                        \
    {"transposed", "1/n of gradients that GPUs of a group rearrange, by group; 0: none (simulation only)", .max = 64,  \
     .kind = HT_VARIABLE_LIST}
#define CHOICES                                                                                                        \
    {"D", "number of groups", .min = 1, .max = 1 << 16},                                                               \
    {"K", "micro-batches in eq. (2), whatever D; 0: all over D", .max = 1 << 20},                                      \
    {"g", "computing power of each device; else as profiled", .max = 1000, .kind = HT_VARIABLE_BY_RANK, .decimal = true}, \
    {"uneven", "1: D need not divide the micro-batches", .max = 1},                                                    \
    {"fitted", "1: times of layers by a line instead of eq. (5)", .max = 1},                                           \
    {"rank", "plans by 1, eq. (1), or 3, D Z of eq. (3a)", .min = 1, .max = 3},                                        \
    {"choose", "1: the fastest of those simulated; 0: the first", .max = 1},                             \
    {"simulated", "plans that are simulated", .max = 64}
static const struct ht_knob knobs[] = {PLAN, CHOICES, {"objective", "of the partition: 4, the slowest stage, or 1, eq. (1)", .min = 1, .max = 4}, {0}};
static const struct ht_knob equal_knobs[] = {PLAN, CHOICES, {0}};
static const struct ht_knob one_knobs[] = {PLAN, {0}};
/* clang-format on */

static const char *const forms[] = {"pipelines", "l", "blocks", "place"};

struct planner {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_profile *profile;
    const struct ht_settings *settings;
    struct autohet_measured measured;
    struct autohet_candidates all;
    struct ht_candidate best; /* the one to take: the first of them, proved, until another one is faster */
    int64_t reserve_bytes;    /* of every GPU: what (4c) did not know of */
};

static void free_candidates(struct planner *q)
{
    ht_candidate_free(&q->best);
    autohet_candidates_free(&q->all);
    autohet_measured_free(&q->measured);
}

/* Adds what layers recompute and groups share to the plan, where that is set. */
static enum ht_status set_kept(const struct ht_scenario *scenario, const struct ht_settings *settings,
                               struct ht_error *err, struct ht_plan *out)
{
    bool recomputes = ht_setting_variable(settings, "recompute") || ht_setting_variable(settings, "segment");
    if (ht_setting_variable(settings, "zero")) ht_plan_set(out, "zero", ht_setting(settings, "zero", 0));
    return recomputes ? ht_pipe_plan_recomputation(scenario, settings, false, err, out) : HT_OK;
}

/* ---- candidates ------------------------------------------------------------------------------------------------ */

/* Keeps only the forced tensor-parallel degree. */
static enum ht_status force_degree(struct planner *q, struct ht_error *err)
{
    struct autohet_problem *p = &q->measured.problem;
    bool one = q->self->variant == AUTOHET_ONE_PIPELINE;
    int64_t tp = ht_setting(q->settings, "tp", one ? 1 : 0);
    if (!tp) return HT_OK;
    for (int32_t i = 0; i < p->n_degrees; i++)
        if (p->degrees[i].tp == tp) {
            p->degrees += i;
            p->n_degrees = 1;
            return HT_OK;
        }
    return ht_fail(err, HT_INFEASIBLE,
                   "tp is %lld; expected a degree that divides the devices of every node and the model", (long long)tp);
}

static enum ht_status find_candidates(struct planner *q, struct ht_error *err)
{
    const struct ht_variable *g = ht_setting_variable(q->settings, "g");
    struct autohet_problem *p = &q->measured.problem;
    struct ht_plan kept = {0};
    struct ht_pipe_style style = {.zero = (int32_t)ht_setting(q->settings, "zero", 0)};
    enum ht_status status = set_kept(q->scenario, q->settings, err, &kept);
    ht_pipe_read_recomputation(&kept, &style);
    ht_plan_free(&kept);
    if (!status)
        status =
            autohet_measure(q->scenario, q->profile, g ? g->values : NULL, q->reserve_bytes, &style, err, &q->measured);
    if (status) return status;
    p->groups = (int32_t)ht_setting(q->settings, "D", q->self->variant == AUTOHET_ONE_PIPELINE);
    p->grouping_micro_batches = (double)ht_setting(q->settings, "K", 0);
    p->uneven = ht_setting(q->settings, "uneven", 0);
    p->by_power = ht_setting(q->settings, "rank", 1) == 3;
    p->fitted = ht_setting(q->settings, "fitted", 0);
    p->objective = ht_setting(q->settings, "objective", 4) == 1 ? AUTOHET_EQ_1 : AUTOHET_EQ_4;
    p->in_order = q->self->variant >= AUTOHET_GROUPED;
    p->equal_layers = q->self->variant >= AUTOHET_MAPPED;
    status = force_degree(q, err);
    return status ? status : autohet_algorithm1(p, err, &q->all);
}

static void set_list(struct ht_plan *out, const char *name, enum ht_variable_kind kind, int32_t n, int64_t *values)
{
    struct ht_variable v = {.kind = kind, .n = n, .values = values};
    snprintf(v.name, sizeof v.name, "%s", name);
    ht_plan_set_vector(out, &v);
}

/* Takes what unequal tensor-parallel degrees cost into the plan, if it is asked for. */
static void set_transposed(const struct planner *q, struct ht_plan *out)
{
    const struct ht_variable *transposed = ht_setting_variable(q->settings, "transposed");
    if (transposed) ht_plan_set_vector(out, transposed);
}

/* Fills the plan's variables. */
static void set_variables(const struct planner *q, const struct autohet_candidate *c, struct ht_plan *out)
{
    int32_t tp = c->degree->tp;
    int64_t *ranks = HT_NEW_ARRAY(int64_t, c->n_groups), *place = HT_NEW_ARRAY(int64_t, c->n_stages * tp);
    for (int32_t j = 0; j < c->n_groups; j++) ranks[j] = c->stages[j] * tp;
    for (int32_t i = 0; i < c->n_stages * tp; i++)
        place[i] = autohet_first_rank(&q->measured, c->degree, &c->places[i / tp]) + i % tp;
    ht_plan_set(out, "tp", tp);
    set_list(out, "pipelines", HT_VARIABLE_LIST, c->n_groups, ranks);
    set_list(out, "l", HT_VARIABLE_LIST, c->n_groups, c->micro_batches);
    set_list(out, "blocks", HT_VARIABLE_LIST, c->n_stages, c->blocks);
    set_list(out, "place", HT_VARIABLE_RANKS, c->n_stages * tp, place);
    set_transposed(q, out);
    set_kept(q->scenario, q->settings, NULL, out); /* find_candidates has checked them */
    free(ranks);
    free(place);
}

/* Builds and proves a candidate. The caller frees *out. */
static enum ht_status prove(const struct planner *q, const struct autohet_candidate *c, struct ht_error *err,
                            struct ht_candidate *out)
{
    struct ht_plan plan = {0};
    *out = (struct ht_candidate){0};
    set_variables(q, c, &plan);
    enum ht_status status = autohet_check(q->scenario, &plan, err);
    if (!status) status = ht_candidate_prove(q->self, q->scenario, &plan, err, out);
    ht_plan_free(&plan);
    return status;
}

/* Finds the candidates of which the first one fits, and keeps that. */
static enum ht_status find_fitting(struct planner *q, struct ht_error *err)
{
    for (int round = 0;; round++) {
        enum ht_status status = find_candidates(q, err);
        if (!status) status = prove(q, &q->all.list[0], err, &q->best);
        int64_t lacks = ht_candidate_needs(&q->best).short_bytes[HT_DEVICE];
        if (status != HT_INFEASIBLE || lacks == 0 || round == ROUNDS) return status;
        q->reserve_bytes += lacks;
        free_candidates(q);
    }
}

/* ---- the plan -------------------------------------------------------------------------------------------------- */

static void record_inputs(const struct planner *q, const struct autohet_candidate *c, struct ht_plan *out)
{
    char name[32];
    for (int32_t t = 0; t < q->measured.problem.n_kinds; t++) {
        const struct autohet_type_profile *type = &c->degree->types[t];
        int32_t rank = 0;
        while (q->measured.kind_of[rank] != c->degree->kind_of[t]) rank++;
        snprintf(name, sizeof name, "t(1)[%d]", rank);
        ht_plan_input(out, name, "s", type->layers_s[0]);
        snprintf(name, sizeof name, "g[%d]", rank);
        ht_plan_input(out, name, "", type->unit_power / c->degree->types[0].unit_power);
    }
    ht_plan_input(out, "D", "", c->n_groups);
    ht_plan_input(out, "Z", "", c->z / c->degree->types[0].unit_power);
    ht_plan_input(out, "M_min", "B", c->degree->sizes.group_bytes);
    ht_plan_input(out, "memory kept back", "B", (double)q->reserve_bytes);
    ht_plan_input(out, "T_sync", "s", c->sync_s);
    ht_plan_input(out, "T_iter", "s", autohet_estimate_s(c));
    ht_plan_input(out, "plans compared", "", q->all.n);
}

/* The best few, simulated on all processors. */
struct few {
    struct planner *q;
    struct ht_candidate *x; /* [n] each while it may be the one to take */
    int64_t *ns;            /* [n] 0: it does not fit */
    int32_t best;           /* the one to take so far; -1: none */
};

/* Proves and simulates candidate i. The first one is proved already. */
static enum ht_status examine(void *ctx, size_t i, struct ht_error *err)
{
    struct few *f = ctx;
    const struct planner *q = f->q;
    enum ht_status status = i ? prove(q, &q->all.list[i], err, &f->x[i]) : HT_OK;
    if (!status) status = ht_candidate_simulate(&f->x[i], q->scenario, q->profile, err, &f->ns[i]);
    return status == HT_INFEASIBLE ? HT_OK : status;
}

/* Keeps the graph of the candidate to take, the first one or with choose=1 the fastest; of equally fast ones the first. */
static enum ht_status keep_or_drop(void *ctx, size_t i, struct ht_error *err)
{
    struct few *f = ctx;
    int32_t x = (int32_t)i, best = f->best;
    bool may = f->ns[i] && (!i || ht_setting(f->q->settings, "choose", 0));
    (void)err;
    if (may && (best < 0 || f->ns[x] < f->ns[best] || (f->ns[x] == f->ns[best] && x < best))) f->best = x;
    if (best >= 0 && f->best != best) ht_candidate_free(&f->x[best]);
    if (f->best != x) ht_candidate_free(&f->x[x]);
    return HT_OK;
}

/* Simulates the best few. *chosen: the one to take, whose graph is kept in q->best; *off: its time by eq. (1) over the simulated
   one, less 1. */
static enum ht_status simulate(struct planner *q, struct ht_plan *out, struct ht_error *err, int32_t *chosen,
                               double *off)
{
    int32_t n = (int32_t)ht_min(ht_setting(q->settings, "simulated", SIMULATED), q->all.n);
    struct few f = {q, HT_NEW_ARRAY(struct ht_candidate, n), HT_NEW_ARRAY(int64_t, n), -1};
    double *bytes = HT_NEW_ARRAY(double, n);
    for (int32_t i = 0; i < n; i++) bytes[i] = CANDIDATE_BYTES * (double)q->best.schedule->n_ops;
    struct ht_tasks tasks = {.name = q->self->name,
                             .noun = "plans",
                             .n = (size_t)n,
                             .bytes = bytes,
                             .ctx = &f,
                             .run = examine,
                             .finished = keep_or_drop};
    if (n) f.x[0] = q->best, q->best = (struct ht_candidate){0};
    enum ht_status status = ht_tasks_run(&tasks, err);
    for (int32_t i = 0; i < n && !status; i++) {
        const struct autohet_candidate *c = &q->all.list[i];
        char name[32];
        snprintf(name, sizeof name, "simulated %d: tp %d, D %d", i + 1, c->degree->tp, c->n_groups);
        if (f.ns[i]) ht_plan_input(out, name, "s", 1e-9 * (double)f.ns[i]);
    }
    if (!status && f.best >= 0) {
        *chosen = f.best;
        *off = autohet_estimate_s(&q->all.list[f.best]) / (1e-9 * (double)f.ns[f.best]) - 1;
        q->best = f.x[f.best];
        f.x[f.best] = (struct ht_candidate){0};
    }
    for (int32_t i = 0; i < n; i++) ht_candidate_free(&f.x[i]);
    free(f.x);
    free(f.ns);
    free(bytes);
    return status;
}

static void explain(const struct autohet_candidate *c, double off, struct ht_plan *out)
{
    int n = snprintf(out->why, sizeof out->why, "%d group%s, Z %s; eq. (1) says %.3f s", c->n_groups,
                     c->n_groups == 1 ? "" : "s", c->proved ? "the best" : "not proved to be the best",
                     autohet_estimate_s(c));
    if (off != 0) snprintf(out->why + n, sizeof out->why - (size_t)n, ", %+.1f%% of the simulation", 100 * off);
    out->planned_s = autohet_estimate_s(c);
    out->planned_bytes[HT_DEVICE] = (int64_t)autohet_plan_bytes(c);
}

static enum ht_status decide(struct planner *q, struct ht_error *err, struct ht_plan *out)
{
    int32_t chosen = 0;
    double off = 0;
    enum ht_status status = find_fitting(q, err);
    if (!status && !ht_settings_any_fit(q->settings)) status = simulate(q, out, err, &chosen, &off);
    if (status) return status;
    const struct autohet_candidate *c = &q->all.list[chosen];
    record_inputs(q, c, out);
    set_variables(q, c, out);
    ht_plan_keep(out, &q->best);
    explain(c, off, out);
    return HT_OK;
}

/* Checks the variables of which only two values mean something. */
static enum ht_status check_choices(const struct ht_settings *settings, struct ht_error *err)
{
    int64_t rank = ht_setting(settings, "rank", 1), objective = ht_setting(settings, "objective", 4);
    if (rank == 2) return ht_fail(err, HT_BAD_INPUT, "rank is 2; expected 1, eq. (1), or 3, eq. (3a)");
    if (objective == 2 || objective == 3)
        return ht_fail(err, HT_BAD_INPUT, "objective is %d; expected 1, eq. (1), or 4, eq. (4)", (int)objective);
    return HT_OK;
}

/* Takes a plan that is forced as a whole. */
static enum ht_status take_forced(const struct planner *q, struct ht_error *err, struct ht_plan *out)
{
    for (size_t i = 0; i < HT_COUNT(forms); i++) {
        const struct ht_variable *v = ht_setting_variable(q->settings, forms[i]);
        if (!v)
            return ht_fail(err, HT_BAD_INPUT,
                           "%s is not set; expected pipelines, l, blocks and place together, or none of them",
                           forms[i]);
        ht_plan_set_vector(out, v);
    }
    ht_plan_set(out, "tp", ht_setting(q->settings, "tp", 1));
    set_transposed(q, out);
    snprintf(out->why, sizeof out->why, "forced");
    enum ht_status status = set_kept(q->scenario, q->settings, err, out);
    return status ? status : autohet_check(q->scenario, out, err);
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct planner q = {.self = self, .scenario = scenario, .profile = profile, .settings = settings};
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}};
    for (size_t i = 0; i < HT_COUNT(forms); i++)
        if (ht_setting_variable(settings, forms[i])) return take_forced(&q, err, out);
    enum ht_status status = check_choices(settings, err);
    if (!status) status = decide(&q, err, out);
    free_candidates(&q);
    return status;
}

/* clang-format off */
#define AUTOHET(NAME, TITLE, VARIANT, KNOBS, SUMMARY)                                                                  \
    {.name = NAME, .title = TITLE, .source = "arXiv:2512.20953", .summary = SUMMARY, .knobs = KNOBS,                   \
     .variant = VARIANT, .division = HT_PIPELINES, .plan = plan, .build = autohet_build}
const struct ht_system autohet = AUTOHET("autohet", "AutoHet", AUTOHET, knobs,
    "unlike pipelines over unlike GPUs, data-parallel with each other, with one tensor-parallel degree");
const struct ht_system autohet_mapped = AUTOHET("autohet_mapped", "AutoHet +GROUP +MAP", AUTOHET_MAPPED, equal_knobs,
    "AutoHet with equal layers: grouping and mapping");
const struct ht_system autohet_grouped = AUTOHET("autohet_grouped", "AutoHet +GROUP", AUTOHET_GROUPED, equal_knobs,
    "AutoHet with equal layers, stages in the nodes' order: grouping alone");
const struct ht_system autohet_one_pipeline = AUTOHET("autohet_one_pipeline", "AutoHet's baseline", AUTOHET_ONE_PIPELINE, one_knobs,
    "one pipeline of all GPUs, in the nodes' order, with equal layers");
/* clang-format on */
