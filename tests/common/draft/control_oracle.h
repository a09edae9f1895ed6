/*
 * Checks what a schedule under control does by following values instead of trusting effects: every copy of a unit's
 * parameters and states carries a version, and every gradient the iteration that made it.
 */
#ifndef HT_TESTS_BUILD_CONTROL_ORACLE_H
#define HT_TESTS_BUILD_CONTROL_ORACLE_H

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/draft/control.h"
#include "common/exec/sim.h"
#include "common/profile/profile.h"
#include "common/schedule/bound.h"
#include "common/schedule/verify.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Outcome of an iteration. If its gradients are too large, steps that were undone are redone, clipped. */
enum outcome { GOOD, OVERFLOWN, TOO_LARGE };

struct oracle {
    const struct ht_schedule *s;
    const char *what;
    enum outcome outcome;
    int iteration; /* from 1 */
    int *value;    /* [tensors * spaces] version or iteration; -1: not there or never written */
    int *version;  /* [units] that the passes must see */
    int *made;     /* [units] effective steps of this iteration */
    bool wrong;    /* instead of failing the test */
    char text[256];
};

#define EXPECT(o, op, condition, ...)                                                                                  \
    do {                                                                                                               \
        if (!(condition) && !(o)->wrong) {                                                                             \
            char title_[64], why_[128];                                                                                \
            (o)->wrong = true;                                                                                         \
            snprintf(why_, sizeof why_, __VA_ARGS__);                                                                  \
            snprintf((o)->text, sizeof(o)->text, "%.60s, iteration %d: op %d (%s): %s", (o)->what, (o)->iteration, op, \
                     ht_op_label((o)->s, op, title_, sizeof title_), why_);                                            \
        }                                                                                                              \
    } while (0)

static inline int *value_at(struct oracle *o, int32_t tensor, int tier, int32_t rank)
{
    return &o->value[(int64_t)tensor * ht_n_spaces(o->s) + ht_space(o->s, (enum ht_tier)tier, rank)];
}

static inline int *value_of(struct oracle *o, int32_t op, const struct ht_effect *e)
{
    return value_at(o, e->tensor, e->tier, ht_op_rank(o->s, op));
}

static inline bool is_state(enum ht_tensor_class c)
{
    return c == HT_PARAM || c == HT_MASTER || c == HT_MOMENTUM || c == HT_VARIANCE;
}

static inline bool has_master(const struct ht_schedule *s, int32_t op)
{
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        if (s->tensors[s->effects[k].tensor].class == HT_MASTER) return true;
    return false;
}

/* Follows a forward, recompute, backward or accumulate op. */
static inline void follow_pass(struct oracle *o, int32_t op)
{
    const struct ht_schedule *s = o->s;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        const struct ht_tensor *t = &s->tensors[e->tensor];
        int *v = value_of(o, op, e);
        if (is_state(t->class) && e->flags & HT_NEED)
            EXPECT(o, op, *v == o->version[t->label.unit], "reads version %d of unit %d, not %d", *v, t->label.unit,
                   o->version[t->label.unit]);
        if (t->class != HT_GRAD) continue;
        if (e->flags & HT_NEED) EXPECT(o, op, *v == o->iteration, "adds a gradient of iteration %d", *v);
        if (e->flags & (HT_PRODUCE | HT_UPDATE)) *v = o->iteration;
    }
}

static inline void follow_copy(struct oracle *o, int32_t op)
{
    const struct ht_schedule *s = o->s;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        for (int64_t l = s->effects_begin[op]; l < s->effects_begin[op + 1]; l++) {
            const struct ht_effect *from = &s->effects[k], *to = &s->effects[l];
            if (from->tensor != to->tensor || from->tier == to->tier) continue;
            if (from->flags & HT_NEED && to->flags & (HT_PRODUCE | HT_UPDATE))
                *value_of(o, op, to) = *value_of(o, op, from);
        }
}

/* Follows a receive of parameters: the other member of its group reads them. */
static inline void follow_receive(struct oracle *o, int32_t op)
{
    const struct ht_schedule *s = o->s;
    int32_t send = op > 0 && s->ops[op - 1].match == s->ops[op].match ? op - 1 : op + 1;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        for (int64_t l = s->effects_begin[send]; l < s->effects_begin[send + 1]; l++)
            if (s->effects[k].tensor == s->effects[l].tensor && s->effects[k].flags & HT_PRODUCE)
                *value_of(o, op, &s->effects[k]) = *value_of(o, send, &s->effects[l]);
}

/* Follows a step, redo or undo of one or more units. A redo with gradients that are not finite changes nothing. */
static inline void follow_update(struct oracle *o, int32_t op)
{
    const struct ht_schedule *s = o->s;
    bool undo = s->ops[op].kind == HT_OP_UNDO, redo = !undo && s->ops[op].when == HT_WHEN_BAD;
    bool master = has_master(s, op), effective = !redo || o->outcome == TOO_LARGE;
    int32_t begin = s->ops[op].label.unit, end = begin + s->ops[op].label.n_units;
    int change = undo ? -1 : effective;
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++) {
        const struct ht_effect *e = &s->effects[k];
        enum ht_tensor_class class = s->tensors[e->tensor].class;
        int32_t u = s->tensors[e->tensor].label.unit;
        int *v = value_of(o, op, e), before = u < 0 ? 0 : o->version[u] + o->made[u];
        bool copy = class == HT_PARAM && master; /* written, not read */
        if (class == HT_GRAD && e->flags & HT_NEED)
            EXPECT(o, op, *v == o->iteration, "uses a gradient of iteration %d", *v);
        if (class == HT_STAGING && e->flags & HT_NEED) EXPECT(o, op, *v == o->iteration, "uses a log of %d", *v);
        if (class == HT_STAGING && e->flags & (HT_PRODUCE | HT_UPDATE)) *v = o->iteration;
        if (!is_state(class) || !(e->flags & (HT_UPDATE | HT_PRODUCE))) continue;
        if (!copy || redo) EXPECT(o, op, *v == before, "finds version %d, not %d", *v, before);
        *v = before + change;
    }
    for (int32_t u = begin; u < end; u++) {
        EXPECT(o, op, !undo || o->made[u] == 1, "undoes %d steps", o->made[u]);
        o->made[u] += change;
    }
}

static inline void follow_op(struct oracle *o, int32_t op)
{
    const struct ht_schedule *s = o->s;
    int made = -1;
    switch ((enum ht_op_kind)s->ops[op].kind) {
    case HT_OP_COPY:
        follow_copy(o, op);
        break;
    case HT_OP_OPTIMIZER_STEP:
    case HT_OP_UNDO:
        follow_update(o, op);
        break;
    case HT_OP_RECEIVE:
        follow_receive(o, op);
        break;
    case HT_OP_RESTORE:
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
            if (s->effects[k].flags & HT_NEED) made = *value_of(o, op, &s->effects[k]);
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
            if (s->effects[k].flags & HT_PRODUCE) *value_of(o, op, &s->effects[k]) = made;
        break;
    default:
        follow_pass(o, op);
        break;
    }
    for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
        if (s->effects[k].flags & HT_RELEASE) *value_of(o, op, &s->effects[k]) = -1;
}

/* Checks that after an iteration all remaining copies are those of the last step that counts. */
static inline void follow_iteration(struct oracle *o)
{
    const struct ht_schedule *s = o->s;
    bool looks = false;
    for (int32_t op = 0; op < s->n_ops; op++) looks |= s->ops[op].kind == HT_OP_VALIDATE;
    memset(o->made, 0, (size_t)s->n_units * sizeof(int));
    for (int32_t op = 0; op < s->n_ops; op++) {
        enum ht_when when = (enum ht_when)s->ops[op].when, out = o->outcome == GOOD ? HT_WHEN_OK : HT_WHEN_BAD;
        if (when == HT_ALWAYS || when == out) follow_op(o, op);
    }
    bool redone = false;
    for (int32_t op = 0; op < s->n_ops; op++)
        redone |= s->ops[op].kind == HT_OP_OPTIMIZER_STEP && s->ops[op].when == HT_WHEN_BAD;
    int steps = o->outcome == GOOD || !looks || (o->outcome == TOO_LARGE && redone);
    for (int32_t u = 0; u < s->n_units; u++) {
        EXPECT(o, 0, o->made[u] == steps, "unit %d is stepped %d times, not %d", u, o->made[u], steps);
        o->version[u] += steps;
    }
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_tensor *t = &s->tensors[s->residents[i].tensor];
        int v = *value_at(o, s->residents[i].tensor, (int)s->residents[i].tier, s->residents[i].rank);
        if (is_state(t->class))
            EXPECT(o, 0, v == o->version[t->label.unit], "%s of unit %d stays %s as version %d, not %d",
                   ht_tensor_class_name(t->class), t->label.unit, ht_tier_name(s->residents[i].tier), v,
                   o->version[t->label.unit]);
    }
}

/* Runs some iterations with random outcomes; returns false with why[256]. */
static inline bool values_hold(const struct ht_schedule *s, const char *what, uint64_t seed, char *why)
{
    enum { ITERATIONS = 8 };
    struct oracle o = {.s = s, .what = what};
    int64_t values = (int64_t)s->n_tensors * ht_n_spaces(s);
    o.value = HT_NEW_ARRAY(int, values);
    o.version = HT_NEW_ARRAY(int, s->n_units);
    o.made = HT_NEW_ARRAY(int, s->n_units);
    for (int64_t i = 0; i < values; i++) o.value[i] = -1;
    for (int32_t i = 0; i < s->n_residents; i++)
        if (is_state(s->tensors[s->residents[i].tensor].class))
            *value_at(&o, s->residents[i].tensor, (int)s->residents[i].tier, s->residents[i].rank) = 0;
    for (o.iteration = 1; o.iteration <= ITERATIONS && !o.wrong; o.iteration++) {
        o.outcome = (enum outcome)ht_random_below(seed, (uint64_t)o.iteration, 3);
        follow_iteration(&o);
    }
    if (why) snprintf(why, 256, "%s", o.text);
    free(o.value);
    free(o.version);
    free(o.made);
    return !o.wrong;
}

/* Simulates with jitter and random outcomes, at the costs of the cluster: no stall, and memory within the bound. */
static inline void runs_in_bounds(const struct ht_schedule *s, const struct ht_scenario *sc, const char *what,
                                  uint64_t seed)
{
    enum { ITERATIONS = 7 };
    struct ht_error err = {0};
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops), *bound = HT_NEW_ARRAY(int64_t, ht_n_spaces(s));
    bool bad[ITERATIONS];
    ck_assert_msg(ht_profile_costs(costs, s, cost_ns, &err) == HT_OK, "%s: %s", what, err.text);
    for (int32_t ahead = 0; ahead <= 2; ahead += 2) {
        for (int i = 0; i < ITERATIONS; i++) bad[i] = ht_random_below(seed, (uint64_t)(i + 10 * ahead), 2);
        struct ht_sim_options o = {
            .iterations = ITERATIONS, .issue_ahead = ahead, .jitter_percent = 40, .seed = seed, .bad = bad};
        struct ht_trace *t = NULL;
        ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &t) == HT_OK, "%s: %s", what, err.text);
        ht_schedule_bound(s, ahead, bound);
        for (int32_t i = 0; i < ht_n_spaces(s); i++)
            ck_assert_msg(t->peak_bytes[i] <= bound[i] && t->peak_bytes[i] <= s->capacity_bytes[i],
                          "%s: %lld bytes in space %d, bound %lld", what, (long long)t->peak_bytes[i], i,
                          (long long)bound[i]);
        ht_trace_destroy(t);
    }
    ht_profile_destroy(costs);
    free(cost_ns);
    free(bound);
}

/* Checks everything that a system's schedule under control has to prove. */
static inline void prove_control(const struct ht_schedule *s, const struct ht_scenario *sc, const char *what,
                                 uint64_t seed)
{
    struct ht_error err = {0};
    char why[256];
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s: %s", what, err.text);
    ck_assert_msg(values_hold(s, what, seed, why), "%s", why);
    runs_in_bounds(s, sc, what, seed);
}

/* Modes that are swept: gate and rollback, with and without clipping. */
static const struct ht_control swept_controls[] = {
    {.mode = HT_CONTROL_GATE},
    {.mode = HT_CONTROL_GATE, .options = {.clip = 1}},
    {.mode = HT_CONTROL_ROLLBACK},
    {.mode = HT_CONTROL_ROLLBACK, .options = {.clip = 1}},
};

#endif
