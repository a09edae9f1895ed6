#include "harness/days/replay_account.h"

#include "common/base/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_STEPS = 3 };

/* An incarnation while its file is read. */
struct reading {
    struct ht_replay_account *a;
    int64_t since_ns, saving_ns; /* when the next step began; 0: not yet */
    int64_t first_ns, others_ns, n;
};

/* Takes back the steps after `step`: an incarnation does them again. */
static void take_back(struct ht_replay_account *a, int64_t step)
{
    while (a->n_useful && a->useful[a->n_useful - 1].step > step) {
        const struct ht_step_time *last = &a->useful[--a->n_useful];
        a->useful_ns -= last->ns;
        a->lost_ns += last->ns;
        a->lost_steps++;
    }
}

static void take_step(struct reading *r, int64_t step, int64_t at_ns)
{
    struct ht_step_time t = {step, at_ns - r->since_ns};
    HT_PUSH(r->a->useful, r->a->n_useful, r->a->useful_cap, t);
    r->a->useful_ns += t.ns;
    *(r->n++ ? &r->others_ns : &r->first_ns) += t.ns;
    r->since_ns = at_ns;
}

static void take_event(struct reading *r, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "event"));
    int64_t at_ns = (int64_t)json_integer_value(json_object_get(o, "at_ns")),
            step = (int64_t)json_integer_value(json_object_get(o, "step"));
    if (step > r->a->last_step) r->a->last_step = step;
    if (!name || at_ns > r->a->end_ns) return;
    if (!strcmp(name, "loaded")) {
        take_back(r->a, step);
        r->since_ns = at_ns;
    } else if (!strcmp(name, "step") && r->since_ns) {
        take_step(r, step, at_ns);
    } else if (!strcmp(name, "saving")) {
        r->saving_ns = at_ns;
    } else if (!strcmp(name, "saved") && r->saving_ns) {
        r->a->stall_ns += at_ns - (r->since_ns ? r->since_ns : r->saving_ns);
        r->a->saves++;
        HT_PUSH(r->a->saved_ns, r->a->n_saved, r->a->saved_cap, at_ns);
        r->since_ns = at_ns;
        r->saving_ns = 0;
    }
}

/* Takes off the first step what it took longer than the mean of the others: that belongs to the start. */
static void take_excess(struct reading *r)
{
    int64_t excess_ns = r->first_ns - r->others_ns / (r->n - 1);
    struct ht_step_time *first = &r->a->useful[r->a->n_useful - (size_t)r->n];
    r->a->starts++;
    if (excess_ns <= 0) return;
    r->a->first_excess_ns += excess_ns;
    r->a->useful_ns -= excess_ns;
    first->ns -= excess_ns;
}

enum ht_status ht_replay_account_take(struct ht_replay_account *a, const char *path, struct ht_error *err)
{
    struct reading r = {.a = a};
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t cap = 0;
    if (!f) return ht_fail(err, HT_FAILED, "%s: cannot be read: %s", path, strerror(errno));
    while (getline(&line, &cap, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        if (o) take_event(&r, o);
        json_decref(o);
    }
    free(line);
    fclose(f);
    if (r.n >= MIN_STEPS) take_excess(&r);
    return HT_OK;
}

void ht_replay_account_free(struct ht_replay_account *a)
{
    free(a->useful);
    free(a->saved_ns);
    *a = (struct ht_replay_account){0};
}

/* ---- parts ------------------------------------------------------------------------------------------------------ */

struct mean {
    double sum;
    int64_t n;
};

static void add(struct mean *m, const json_t *value)
{
    if (!json_is_number(value)) return;
    m->sum += json_number_value(value);
    m->n++;
}

static double value_of(struct mean m)
{
    return m.n ? m.sum / (double)m.n : 0;
}

/* Adds how long a change's processes were there after their last save. */
static void add_stop(struct mean *m, const struct ht_replay_account *a, const json_t *row)
{
    int64_t asked_ns = (int64_t)json_integer_value(json_object_get(row, "fault_ns")), saved_ns = 0,
            ended_ns = asked_ns + (int64_t)(1e9 * json_number_value(json_object_get(row, "detection_s")));
    for (size_t i = 0; i < a->n_saved && a->saved_ns[i] <= ended_ns; i++) saved_ns = a->saved_ns[i];
    if (saved_ns < asked_ns) return;
    m->sum += (double)(ended_ns - saved_ns) * 1e-9;
    m->n++;
}

/* Returns true for a stop that was asked for: it has not lost a step. */
static bool is_change(const json_t *row)
{
    const char *cause = json_string_value(json_object_get(row, "cause"));
    return cause && (!strcmp(cause, "nodes changed") || !strcmp(cause, "notice"));
}

struct ht_replay_parts ht_replay_parts(const struct ht_replay_account *a, const json_t *recoveries, double speed)
{
    struct mean detect = {0}, plan = {0}, relaunch = {0}, load = {0}, stop = {0};
    struct ht_replay_parts p = {0};
    for (size_t i = 0; i < json_array_size(recoveries); i++) {
        const json_t *row = json_array_get(recoveries, i);
        bool change = is_change(row);
        p.losses += !change;
        p.changes += change;
        if (change)
            add_stop(&stop, a, row);
        else
            add(&detect, json_object_get(row, "detection_s")), add(&plan, json_object_get(row, "planning_s"));
        add(&relaunch, json_object_get(row, "relaunch_s"));
        add(&load, json_object_get(row, "loading_s"));
    }
    double excess_s = a->starts ? (double)a->first_excess_ns * 1e-9 / (double)a->starts : 0;
    p.detect_s = speed * value_of(detect);
    p.plan_s = speed * value_of(plan);
    p.relaunch_s = speed * (value_of(relaunch) + excess_s);
    p.load_s = speed * value_of(load);
    p.stop_s = speed * value_of(stop);
    p.saves = a->saves;
    p.stall_s = a->saves ? speed * (double)a->stall_ns * 1e-9 / (double)a->saves : 0;
    return p;
}

static double both(double a, int64_t n, double b, int64_t m)
{
    return n + m ? (a * (double)n + b * (double)m) / (double)(n + m) : 0;
}

struct ht_replay_parts ht_replay_parts_of_both(const struct ht_replay_parts *a, const struct ht_replay_parts *b)
{
    int64_t all_a = a->losses + a->changes, all_b = b->losses + b->changes;
    return (struct ht_replay_parts){.detect_s = both(a->detect_s, a->losses, b->detect_s, b->losses),
                                    .plan_s = both(a->plan_s, a->losses, b->plan_s, b->losses),
                                    .relaunch_s = both(a->relaunch_s, all_a, b->relaunch_s, all_b),
                                    .load_s = both(a->load_s, all_a, b->load_s, all_b),
                                    .stop_s = both(a->stop_s, a->changes, b->stop_s, b->changes),
                                    .stall_s = both(a->stall_s, a->saves, b->stall_s, b->saves),
                                    .losses = a->losses + b->losses,
                                    .changes = a->changes + b->changes,
                                    .saves = a->saves + b->saves};
}
