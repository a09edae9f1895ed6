#include "harness/days/goodput_state.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_day_phase_names[HT_N_DAY_PHASES] = {"waiting", "detection", "planning", "relaunch",
                                                         "loading", "stalls",    "lost",     "useful"};
/* ---- the state of a day ----------------------------------------------------------------------------------------- */

/* Returns the nodes that are there, and not about to leave. */
static struct ht_fleet staying(const struct state *x)
{
    struct ht_fleet f = {{0}};
    for (size_t i = 0; i < x->s->trace->n_nodes; i++)
        if (x->alive[i] && !x->leaving[i]) f.count[kind_of(x, i)]++;
    return f;
}

static bool uses(const struct state *x, int32_t node)
{
    if (!x->plan) return false;
    for (int32_t i = 0; i < ht_fleet_nodes(&x->plan->fleet); i++)
        if (x->nodes[i] == node) return true;
    return false;
}

static void set_saved(struct saved *v, int64_t step, const struct ht_planned *plan, const int32_t *nodes)
{
    size_t bytes = sizeof(*nodes) * (size_t)ht_fleet_nodes(&plan->fleet);
    v->step = step;
    v->plan = plan;
    v->nodes = ht_realloc(v->nodes, bytes + 1);
    memcpy(v->nodes, nodes, bytes);
}

/* ---- accounts --------------------------------------------------------------------------------------------------- */

static void spend(struct state *x, enum ht_day_phase phase, int64_t ns)
{
    x->out->phase_s[phase] += (double)ns / HT_NS_OF_S;
}

/* Books the rent of the nodes that are there, up to now. */
static void pay(struct state *x)
{
    double hours = (double)(x->now - x->last) / HT_NS_OF_S / 3600;
    for (size_t i = 0; i < x->s->trace->n_nodes; i++) {
        const struct ht_machine *m = &x->s->kinds->nodes[kind_of(x, i)];
        if (!x->alive[i]) continue;
        x->out->gpu_hours += hours * (double)m->n_gpus;
        x->out->usd += m->usd_per_hour > 0 ? hours * m->usd_per_hour : NAN; /* not known */
    }
    x->last = x->now;
}

static double rate_of(const struct state *x)
{
    return (double)x->s->batch / ((double)x->plan->iteration_ns / HT_NS_OF_S);
}

static void note_moment(struct state *x)
{
    bool runs = x->phase == RUNNING;
    struct ht_day_moment m = {x->now, there(x), runs ? x->plan->n_gpus : 0, runs ? rate_of(x) : 0};
    struct ht_day *d = x->out;
    if (d->n_moments && d->moments[d->n_moments - 1].time_ns == x->now)
        d->moments[d->n_moments - 1] = m;
    else
        HT_PUSH(d->moments, d->n_moments, d->moments_cap, m);
}

/* Takes steps [step, reached) back, from useful time to lost time. */
static void take_back(struct state *x, int64_t step)
{
    int64_t end = x->reached;
    x->out->lost_steps += x->reached - step;
    while (end > step) {
        struct pace *p = &x->paces[x->n_paces - 1];
        int64_t first = p->first > step ? p->first : step, ns = (end - first) * p->step_ns - p->cut_ns;
        p->cut_ns = 0;
        spend(x, HT_DAY_USEFUL, -ns);
        spend(x, HT_DAY_LOST, ns);
        end = first;
        if (p->first >= step) x->n_paces--;
    }
    x->reached = step;
}

/* Takes back time that the last change booked beyond now: its save, and before that the end of its step, which may have
   been lost since. */
static void unspend(struct state *x, int64_t ns)
{
    int64_t stop = ns < x->stop_ns ? ns : x->stop_ns;
    spend(x, HT_DAY_STALLS, -stop);
    x->stop_ns -= stop;
    if (ns == stop) return;
    bool lost = x->reached < x->stop_step;
    if (!lost) x->paces[x->n_paces - 1].cut_ns += ns - stop;
    spend(x, lost ? HT_DAY_LOST : HT_DAY_USEFUL, stop - ns);
}

/* Books what there was of a wait: one behind a change begins when its save has ended. */
static void end_wait(struct state *x)
{
    if (x->now >= x->begun)
        spend(x, HT_DAY_WAITING, x->now - x->begun);
    else
        unspend(x, x->begun - x->now);
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

/* The rhythm of a run: a save, then again and again `steps` steps and a save. */
struct rhythm {
    int64_t step_ns, stall_ns, upload_ns;
    int64_t first_ns;         /* of the first save */
    int64_t steps, period_ns; /* of one round */
};

static struct rhythm rhythm_of(const struct state *x)
{
    const struct ht_day_times *t = &x->s->times;
    struct rhythm r = {.step_ns = x->plan->iteration_ns, .stall_ns = x->plan->stall_ns};
    r.upload_ns = (int64_t)ceil((double)x->plan->state_bytes / t->remote_bytes_per_s * HT_NS_OF_S);
    r.steps = llround(x->out->save_every_s * HT_NS_OF_S / (double)r.step_ns);
    if (t->measured.given) r.stall_ns = llround(t->measured.stall_s * HT_NS_OF_S), r.steps = t->measured.save_steps;
    r.first_ns = t->measured.given ? 0 : r.stall_ns;
    if (r.steps < 1) r.steps = 1;
    int64_t compute = r.steps * r.step_ns, wait = r.upload_ns > compute ? r.upload_ns - compute : 0;
    r.period_ns = compute + wait + r.stall_ns;
    return r;
}

/* How far a run is when it has lasted `ns`. */
struct progress {
    int64_t rounds, steps; /* whole rounds; steps in all */
    int64_t rest_ns;       /* of a step that has begun */
    int64_t local, remote; /* number of the newest save that counts, from 0; -1: none */
};

static struct progress progress_at(const struct rhythm *r, int64_t ns)
{
    struct progress p = {.local = -1, .remote = -1};
    if (ns < r->first_ns) return p;
    int64_t at = ns - r->first_ns, in_round;
    p.rounds = at / r->period_ns;
    in_round = at % r->period_ns;
    int64_t steps = in_round / r->step_ns;
    if (steps < r->steps)
        p.rest_ns = in_round % r->step_ns;
    else
        steps = r->steps;
    p.steps = p.rounds * r->steps + steps;
    p.local = p.rounds;
    if (at >= r->upload_ns) p.remote = (at - r->upload_ns) / r->period_ns;
    if (p.remote > p.local) p.remote = p.local;
    return p;
}

/* Books what a run did until now, and keeps its saves. */
static void end_run(struct state *x, struct progress p, const struct rhythm *r)
{
    int64_t done_ns = p.steps * r->step_ns, ns = x->now - x->begun;
    struct pace pace = {x->begin_step, r->step_ns, 0};
    HT_PUSH(x->paces, x->n_paces, x->paces_cap, pace);
    spend(x, HT_DAY_USEFUL, done_ns);
    spend(x, HT_DAY_LOST, p.rest_ns);
    spend(x, HT_DAY_STALLS, ns - done_ns - p.rest_ns);
    x->out->busy_gpu_hours += (double)(done_ns + p.rest_ns) / HT_NS_OF_S / 3600 * (double)x->plan->n_gpus;
    x->out->saves += p.local + 1;
    x->reached = x->begin_step + p.steps;
    if (p.local >= 0) set_saved(&x->local, x->begin_step + p.local * r->steps, x->plan, x->nodes);
    if (p.remote >= 0) set_saved(&x->remote, x->begin_step + p.remote * r->steps, x->plan, x->nodes);
}

/* ---- plans ------------------------------------------------------------------------------------------------------ */

static enum ht_status best_plan(const struct state *x, struct ht_fleet fleet, const struct ht_planned **out)
{
    return ht_policy_plan(x->policy, x->s->book, fleet, x->has_first ? &x->first : NULL, x->err, out);
}

/* Chooses the plan's nodes of those that stay: first those that run now, in their order, then others as they joined. */
static int32_t *assign(const struct state *x, const struct ht_planned *plan)
{
    int32_t *nodes = HT_NEW_ARRAY(int32_t, ht_fleet_nodes(&plan->fleet)), n = 0;
    int32_t n_old = x->plan ? ht_fleet_nodes(&x->plan->fleet) : 0;
    for (int k = 0; k < HT_FLEET_KINDS; k++) {
        int32_t end = n + plan->fleet.count[k];
        for (int32_t i = 0; i < n_old && n < end; i++)
            if (kind_of(x, (size_t)x->nodes[i]) == k && x->alive[x->nodes[i]] && !x->leaving[x->nodes[i]])
                nodes[n++] = x->nodes[i];
        for (size_t j = 0; j < x->s->trace->n_nodes && n < end; j++) {
            size_t i = x->s->order ? (size_t)x->s->order[j] : j;
            if (kind_of(x, i) == k && x->alive[i] && !x->leaving[i] && !uses(x, (int32_t)i)) nodes[n++] = (int32_t)i;
        }
    }
    return nodes;
}

static void take_plan(struct state *x, const struct ht_planned *plan, int32_t *nodes)
{
    free(x->nodes);
    x->plan = plan;
    x->nodes = nodes;
    if (plan && !x->has_first) {
        x->first = plan->fleet;
        x->has_first = true;
    }
}

/* ---- what happens ----------------------------------------------------------------------------------------------- */

/* Begins to start on a plan; books the parts up to where the run begins. */
static enum ht_status start(struct state *x, const struct ht_planned *plan, bool planned, int64_t since)
{
    struct ht_store_price load;
    const struct ht_day_times *t = &x->s->times;
    int64_t step, lost = x->out->lost_steps, wait = x->now;
    int64_t plan_ns = planned ? 0 : llround(t->plan_s * HT_NS_OF_S), relaunch_ns = llround(t->relaunch_s * HT_NS_OF_S);
    int32_t *nodes = assign(x, plan);
    enum ht_status status = ht_day_price_newest(x, plan, nodes, &step, &load);
    if (status) {
        free(nodes);
        return status;
    }
    take_back(x, step);
    take_plan(x, plan, nodes);
    x->begin_step = step;
    x->phase = STARTING;
    x->timer = wait + plan_ns + relaunch_ns + load.ns;
    struct ht_day_recovery r = {.time_ns = since,
                                .load_ns = load.ns,
                                .all_ns = x->timer - since,
                                .lost_steps = x->out->lost_steps - lost,
                                .planned = planned};
    memcpy(r.bytes, load.bytes, sizeof(r.bytes));
    HT_PUSH(x->out->recoveries, x->out->n_recoveries, x->out->recoveries_cap, r);
    return HT_OK;
}

/* Books a start that went on until now: planning, relaunch, loading, in this order. */
static void book_start(struct state *x)
{
    const struct ht_day_recovery *r = &x->out->recoveries[x->out->n_recoveries - 1];
    int64_t relaunch = llround(x->s->times.relaunch_s * HT_NS_OF_S), left = x->timer - x->now;
    int64_t load = r->load_ns, plan = r->planned ? 0 : llround(x->s->times.plan_s * HT_NS_OF_S);
    int64_t cut = left < load ? left : load;
    load -= cut, left -= cut;
    cut = left < relaunch ? left : relaunch;
    relaunch -= cut, left -= cut;
    cut = left < plan ? left : plan;
    plan -= cut, left -= cut;
    unspend(x, left);
    spend(x, HT_DAY_PLANNING, plan);
    spend(x, HT_DAY_RELAUNCH, relaunch);
    spend(x, HT_DAY_LOADING, load);
}

/* Looks for a plan after a loss, or while waiting. */
static enum ht_status recover(struct state *x, int64_t since)
{
    const struct ht_planned *plan;
    enum ht_status status = best_plan(x, staying(x), &plan);
    if (status) return status;
    if (plan) return start(x, plan, false, since);
    take_plan(x, NULL, NULL);
    x->phase = WAITING;
    x->timer = INT64_MAX;
    x->begun = x->now; /* of the wait */
    return HT_OK;
}

/* A node of the job is gone. */
static void fail(struct state *x)
{
    if (x->phase == RUNNING) {
        struct rhythm r = rhythm_of(x);
        end_run(x, progress_at(&r, x->now - x->begun), &r);
        x->out->losses++;
    } else if (x->phase == STARTING) {
        book_start(x);
        x->out->losses++;
    } else if (x->phase == DETECTING) {
        return; /* what was lost before is not noticed yet, and this will be with it */
    }
    x->phase = DETECTING;
    x->begun = x->now;
    x->timer = x->now + llround(x->s->times.detect_s * HT_NS_OF_S);
}

/* Returns when the step that runs at `ns` after the run's begin has ended, as time after the begin. */
static int64_t step_end(const struct rhythm *r, int64_t ns)
{
    struct progress p = progress_at(r, ns);
    if (ns < r->first_ns) return r->first_ns;
    return p.rest_ns ? ns + r->step_ns - p.rest_ns : ns;
}

/* Returns true if an announced node would be gone before the save that answers it is whole. */
static bool is_too_late(const struct state *x, int64_t saved_ns)
{
    for (size_t i = 0; i < x->s->trace->n_nodes; i++)
        if (x->alive[i] && x->leaving[i] && x->lost_ns[i] < saved_ns) return true;
    return false;
}

/* Ends the run behind its step with a save, and goes on with another plan. `plan` NULL: waits. */
static enum ht_status change(struct state *x, const struct ht_planned *plan, bool forced)
{
    struct rhythm r = rhythm_of(x);
    int64_t since = x->now, end = x->begun + step_end(&r, x->now - x->begun);
    int64_t saved = end + r.stall_ns + (x->policy->source == HT_FROM_REMOTE ? r.upload_ns : 0);
    if (forced && is_too_late(x, saved)) return HT_OK; /* trains on until the loss */
    x->now = end;
    end_run(x, progress_at(&r, end - x->begun), &r);
    x->out->saves++;
    x->out->changes++;
    set_saved(&x->local, x->reached, x->plan, x->nodes);
    if (x->policy->source == HT_FROM_REMOTE) set_saved(&x->remote, x->reached, x->plan, x->nodes);
    saved += llround(x->s->times.measured.stop_s * HT_NS_OF_S);
    spend(x, HT_DAY_STALLS, saved - end);
    x->stop_ns = saved - end + (since - x->begun < r.first_ns ? end - since : 0);
    x->stop_step = x->reached;
    x->now = saved;
    if (plan) return start(x, plan, true, since);
    take_plan(x, NULL, NULL);
    x->phase = WAITING;
    x->begun = x->now;
    return HT_OK;
}

static bool is_leaving(const struct state *x)
{
    for (int32_t i = 0; x->plan && i < ht_fleet_nodes(&x->plan->fleet); i++)
        if (x->leaving[x->nodes[i]]) return true;
    return false;
}

/* Nodes have joined, or are about to leave: looks for another plan. */
static enum ht_status reconsider(struct state *x)
{
    const struct ht_planned *plan;
    if (x->phase == WAITING) {
        end_wait(x);
        return recover(x, x->now);
    }
    bool forced = is_leaving(x);
    enum ht_status status = best_plan(x, staying(x), &plan);
    if (status || (!plan && !forced)) return status;
    bool other = plan && plan != x->plan && (!x->policy->leaves_idle || plan->iteration_ns < x->plan->iteration_ns);
    return forced || other ? change(x, plan, forced) : HT_OK;
}

/* An event of the trace. *gone: a node of the job is lost. */
static void happen(struct state *x, const struct ht_spot_event *e, bool *gone)
{
    switch (e->kind) {
    case HT_SPOT_JOINED:;
        x->alive[e->node] = true;
        bool at_once = x->phase == WAITING && x->s->times.measured.given;
        x->change = x->now + (at_once ? 0 : llround(x->s->times.quiet_s * HT_NS_OF_S));
        return;
    case HT_SPOT_NOTICE:
        if (!x->policy->saves_on_notice) return;
        x->leaving[e->node] = true;
        if (uses(x, e->node)) x->change = x->now;
        return;
    default:
        *gone |= uses(x, e->node);
        x->alive[e->node] = false;
        x->leaving[e->node] = false;
    }
}

/* The time of a start has come to its end: training begins. */
static void begin_run(struct state *x)
{
    book_start(x);
    x->phase = RUNNING;
    x->begun = x->now;
    x->timer = INT64_MAX;
    if (is_leaving(x)) x->change = x->now;
}

/* Goes on to the next thing that happens at or before `until`; returns false if there is none. */
static bool advance(struct state *x, int64_t until, enum ht_status *status)
{
    int64_t change = x->phase == WAITING || x->phase == RUNNING ? x->change : INT64_MAX;
    int64_t next = x->timer < change ? x->timer : change;
    if (next > until) return false;
    if (next > x->now) x->now = next;
    if (next == x->timer && x->phase == STARTING) {
        begin_run(x);
    } else if (next == x->timer) {
        spend(x, HT_DAY_DETECTION, x->now - x->begun);
        *status = recover(x, x->begun);
    } else {
        x->change = INT64_MAX;
        *status = reconsider(x);
    }
    if (x->now > until) x->now = until; /* a change's save goes beyond it; its start's timer says so */
    pay(x);
    note_moment(x);
    return true;
}

/* Returns the newest step that can be read whole; 0 without any. */
static int64_t newest_step(const struct state *x)
{
    const struct ht_model *m = ht_planbook_model(x->s->book);
    struct ht_store_price ignored;
    struct ht_error why;
    struct ht_fleet live = there(x);
    if (x->policy->source == HT_FROM_NEAREST && x->local.step >= 0 && ht_fleet_nodes(&live) &&
        ht_day_price(x, &x->local, true, x->remote.plan == x->local.plan && x->remote.step == x->local.step,
                     x->local.plan, x->local.nodes, m, &why, &ignored) == HT_OK)
        return x->local.step;
    return x->remote.step > 0 ? x->remote.step : 0;
}

/* Ends the day: books what goes on. Of a job that does not train, what no store has is lost. */
static void close_day(struct state *x)
{
    if (x->phase == RUNNING) {
        struct rhythm r = rhythm_of(x);
        end_run(x, progress_at(&r, x->now - x->begun), &r);
    } else if (x->phase == STARTING) {
        book_start(x);
    } else {
        if (x->phase == WAITING)
            end_wait(x);
        else
            spend(x, HT_DAY_DETECTION, x->now - x->begun);
        take_back(x, newest_step(x));
    }
}

static enum ht_status run_day(struct state *x)
{
    const struct ht_spot_trace *t = x->s->trace;
    enum ht_status status = HT_OK;
    for (size_t i = 0; i < t->n_events && !status;) {
        int64_t time = t->events[i].time_ns;
        bool gone = false;
        while (!status && advance(x, time, &status)) {
        }
        x->now = time;
        pay(x);
        for (; i < t->n_events && t->events[i].time_ns == time; i++) happen(x, &t->events[i], &gone);
        if (gone) fail(x);
        note_moment(x);
        if (!status && ht_interrupted()) status = ht_fail(x->err, HT_INTERRUPTED, "interrupted");
    }
    while (!status && advance(x, x->now, &status)) {
    }
    return status;
}

/* Sums up the recoveries. */
static void sum_up(struct state *x)
{
    struct ht_day *d = x->out;
    int64_t n[2] = {0, 0};
    for (size_t i = 0; i < d->n_recoveries; i++) {
        d->load_s[d->recoveries[i].planned] += (double)d->recoveries[i].load_ns / HT_NS_OF_S;
        n[d->recoveries[i].planned]++;
    }
    for (int k = 0; k < 2; k++)
        if (n[k]) d->load_s[k] /= (double)n[k];
    d->steps = x->reached;
    d->samples = (double)x->reached * (double)x->s->batch;
}

/* Decides the shape of a policy that keeps one, if it is asked for. */
static void set_first(struct state *x)
{
    if (!x->policy->keeps_shape || !x->s->times.keep_nodes) return;
    struct ht_fleet most = ht_day_most(x->s);
    x->first = ht_fleet_first(&most, x->s->times.keep_nodes);
    x->has_first = true;
}

enum ht_status ht_day_save_costs(const struct ht_day_setting *s, const struct ht_policy *policy, struct ht_error *err,
                                 double *stall_s, double *upload_s)
{
    struct state x = {.s = s, .policy = policy, .err = err};
    const struct ht_planned *plan;
    set_first(&x);
    enum ht_status status = best_plan(&x, ht_day_most(s), &plan);
    if (status) return status;
    *stall_s = plan ? (double)plan->stall_ns / HT_NS_OF_S : 0;
    *upload_s = plan ? (double)plan->state_bytes / s->times.remote_bytes_per_s : 0;
    return HT_OK;
}

/* Takes the interval that was asked for; or Young's, or the remote store's time for a save if that is longer. */
static enum ht_status find_interval(struct state *x)
{
    double stall, upload, between = ht_day_between_losses_s(x->s->trace);
    x->out->save_every_s = x->s->times.save_every_s;
    if (x->out->save_every_s > 0) return HT_OK;
    enum ht_status status = ht_day_save_costs(x->s, x->policy, x->err, &stall, &upload);
    if (!status) x->out->save_every_s = fmax(isfinite(between) ? ht_young_s(stall, between) : 3600, upload);
    return status;
}

enum ht_status ht_day_run(const struct ht_day_setting *s, const struct ht_policy *policy, struct ht_error *err,
                          struct ht_day *out)
{
    const struct ht_spot_trace *t = s->trace;
    struct state x = {.s = s, .policy = policy, .out = out, .err = err, .timer = INT64_MAX, .change = INT64_MAX};
    *out = (struct ht_day){.policy = policy,
                           .wall_s = (double)(t->events[t->n_events - 1].time_ns - t->events[0].time_ns) / HT_NS_OF_S};
    x.alive = HT_NEW_ARRAY(bool, t->n_nodes);
    x.leaving = HT_NEW_ARRAY(bool, t->n_nodes);
    x.lost_ns = HT_NEW_ARRAY(int64_t, t->n_nodes);
    x.now = x.last = x.begun = t->events[0].time_ns;
    x.local.step = x.remote.step = -1;
    for (size_t i = 0; i < t->n_nodes; i++) x.lost_ns[i] = INT64_MAX;
    for (size_t i = 0; i < t->n_events; i++)
        if (t->events[i].kind == HT_SPOT_LOST) x.lost_ns[t->events[i].node] = t->events[i].time_ns;
    set_first(&x);
    enum ht_status status = find_interval(&x);
    if (!status) status = run_day(&x);
    if (!status) {
        close_day(&x);
        sum_up(&x);
    }
    free(x.alive);
    free(x.leaving);
    free(x.lost_ns);
    free(x.nodes);
    free(x.local.nodes);
    free(x.remote.nodes);
    free(x.paces);
    return status;
}

void ht_day_free(struct ht_day *d)
{
    free(d->moments);
    free(d->recoveries);
    *d = (struct ht_day){0};
}
