/*
 * The event loop. common/exec/core.c alone decides what may start; this file has the clock and the sharing.
 *
 *     dispatch at 0
 *     while anything runs:
 *         now = the earliest end
 *         all ends at now, in id order          -> core
 *         serve ready lanes until there are none -> issued, started: ends that are known at once are noted
 *         share resources again                 -> ends of flows; put off while more ends are due at now
 *
 * An op without cost that starts at now ends in the next round at the same now. A run that is asked for a time only has no
 * trace, and ends when the answer is known.
 */
#include "common/exec/sim.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/minmax.h"
#include "common/exec/core.h"
#include "common/exec/flow.h"
#include "common/exec/sim_ends.h"
#include "common/exec/sim_groups.h"
#include "common/exec/sim_repeat.h"
#include "common/exec/sim_rest.h"

#include <stdlib.h>

struct sim {
    const struct ht_schedule *s;
    const struct ht_sim_options *options;
    struct ht_sim_groups groups;
    struct ht_core *core;
    struct ht_flows *flows;
    struct ht_sim_ends ends;
    struct ht_trace_event *events;   /* of the trace; NULL: a time is asked for */
    int64_t *iteration_end_ns;       /* [iterations] */
    struct ht_sim_question question; /* last is -1 for a trace */
    struct ht_sim_rest rest;         /* of a question with a limit */
    int64_t begin_ns;                /* end of iterations 0 .. after; HT_FLOW_NEVER_NS until it is known */
    int64_t least_end_ns;            /* iterations 0 .. last have not all ended before this */
    struct ht_sim_repeat repeat;     /* of a run that may be shortened by it */
    int32_t simulated;               /* iterations of a trace that are simulated */
    int64_t period_ns;               /* of the others */
    int64_t *running;                /* [n_lanes] id_of the issue group that runs in the lane's slot */
    int32_t *changed;                /* [n_lanes] scratch */
    int64_t now_ns;
    bool only_times; /* as of the core */
    bool unsettled;  /* flows have to be settled before the clock moves */
};

/* Returns the id of an issue group among the ends: ordered as (iteration, first op), and taken apart without a division. */
static int64_t id_of(struct ht_inst first)
{
    return (int64_t)first.iteration << 32 | first.op;
}

/* Returns the number of an op's event in the trace. */
static int64_t event_of(const struct sim *sim, struct ht_inst inst)
{
    return (int64_t)inst.iteration * sim->s->n_ops + inst.op;
}

static inline void begin(struct sim *sim, int32_t lane, struct ht_inst inst)
{
    /* The group's slot is the lane of its first op. The other members start at the same instant and need no entry. */
    if (sim->groups.kind_of[inst.op] == HT_SIM_MEMBER) return;
    if (sim->rest.of_last)
        sim->least_end_ns =
            ht_max(sim->least_end_ns, sim->now_ns + ht_sim_rest_ns(&sim->rest, inst.iteration, inst.op));
    const struct ht_sim_kind *kind = ht_sim_kind_of(&sim->groups, inst.op);
    int64_t cost = kind->cost_ns;
    if (sim->options->jitter_percent)
        cost = ht_sim_jitter(cost, sim->options->jitter_percent, sim->options->seed, (uint64_t)event_of(sim, inst));
    int64_t id = sim->running[lane] = id_of(inst);
    if (kind->flow != HT_SIM_NO_FLOW) {
        const struct ht_sim_flow *flow = &sim->groups.flows[kind->flow];
        int64_t cap = flow->cap;
        if (sim->options->jitter_percent) {
            if (cost < flow->need_ns) cost = flow->need_ns;
            if (!flow->of_cores) cap = ht_flow_per_giga(flow->largest, cost);
        }
        if (!ht_flows_start(sim->flows, lane, sim->now_ns, cost, cap, sim->groups.uses + flow->uses_begin,
                            flow->n_uses)) {
            sim->unsettled = true;
            return; /* settle() tells when it ends */
        }
    }
    ht_sim_ends_set(&sim->ends, lane, (struct ht_sim_end){sim->now_ns + cost, id});
}

static void dispatch(struct sim *sim)
{
    for (struct ht_turn turn; ht_core_turn(sim->core, &turn);) {
        if (sim->events) {
            struct ht_trace_event *e = &sim->events[event_of(sim, turn.inst)];
            if (turn.issued) {
                e->issue_ns = sim->now_ns;
                e->grant_seq = turn.grant_seq;
            }
            if (turn.started) e->start_ns = sim->now_ns;
        }
        if (turn.started) begin(sim, turn.lane, turn.inst);
    }
}

static void end(struct sim *sim)
{
    struct ht_sim_end entry;
    int32_t slot = ht_sim_ends_take(&sim->ends, &entry), iteration = (int32_t)(entry.id >> 32),
            first = (int32_t)entry.id;
    const struct ht_sim_kind *kind = ht_sim_kind_of(&sim->groups, first);
    if (kind->flow >= 0 && !ht_flows_finish(sim->flows, slot)) sim->unsettled = true;
    for (int32_t op = first, stop = first + kind->size; op < stop; op++) {
        if (sim->options->bad && sim->s->ops[op].kind == HT_OP_VALIDATE)
            ht_core_set_control(sim->core, iteration, !sim->options->bad[iteration]);
        int64_t release_seq = ht_core_finish(sim->core, (struct ht_inst){iteration, op});
        if (!sim->events) continue;
        struct ht_trace_event *e = &sim->events[event_of(sim, (struct ht_inst){iteration, op})];
        e->end_ns = sim->now_ns;
        e->release_seq = release_seq;
    }
    sim->iteration_end_ns[iteration] = sim->now_ns;
}

static void settle(struct sim *sim)
{
    int32_t n = ht_flows_settle(sim->flows, sim->now_ns, sim->changed);
    sim->unsettled = false;
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = sim->changed[i];
        ht_sim_ends_set(&sim->ends, slot, (struct ht_sim_end){ht_flows_end_ns(sim->flows, slot), sim->running[slot]});
    }
}

static struct ht_sim_parts parts_of(const struct sim *sim)
{
    return (struct ht_sim_parts){sim->core, sim->flows, &sim->ends, sim->running, sim->s->n_lanes};
}

/* Returns when iterations 0 .. k had ended, or the latest end so far; 0 for k = -1. */
static int64_t ended_by(const struct sim *sim, int32_t k)
{
    int64_t end = 0;
    for (int32_t i = 0; i <= k; i++) end = ht_max(end, sim->iteration_end_ns[i]);
    return end;
}

/* Answers the question if what follows is foretold. */
static bool is_foretold(struct sim *sim)
{
    const struct ht_sim_question *q = &sim->question;
    struct ht_sim_parts parts = parts_of(sim);
    int64_t period_ns = ht_sim_repeat_check(&sim->repeat, &parts, sim->now_ns);
    int32_t k = ht_core_ended(sim->core) - 1;
    if (period_ns == 0 || ended_by(sim, k) != sim->now_ns) return false;
    if (period_ns > (HT_FLOW_NEVER_NS - sim->now_ns) / q->last) return false; /* the run reports that */
    sim->begin_ns = q->after <= k ? ended_by(sim, q->after) : sim->now_ns + (q->after - k) * period_ns;
    sim->least_end_ns = q->last <= k ? ended_by(sim, q->last) : sim->now_ns + (q->last - k) * period_ns;
    return true;
}

/* Cuts a trace's run down to the iterations that ht_sim_repeat_fill needs, once it repeats itself. */
static void cut(struct sim *sim)
{
    int32_t iterations = sim->options->iterations;
    struct ht_sim_parts parts = parts_of(sim);
    int64_t period_ns = ht_sim_repeat_check(&sim->repeat, &parts, sim->now_ns);
    int32_t k = ht_core_ended(sim->core) - 1;
    if (period_ns == 0 || k + 4 >= iterations || ended_by(sim, k) != sim->now_ns) return;
    if (period_ns > (HT_FLOW_NEVER_NS - sim->now_ns) / iterations) return; /* the run reports that */
    sim->period_ns = period_ns;
    sim->simulated = k + 4;
    ht_core_cut(sim->core, sim->simulated);
    ht_sim_repeat_free(&sim->repeat);
}

/* Returns true once the question has its answer, begin_ns and least_end_ns. */
static bool is_answered(struct sim *sim)
{
    const struct ht_sim_question *q = &sim->question;
    if (q->last < 0 && sim->repeat.bytes) cut(sim);
    if (q->last < 0) return false;
    if (sim->repeat.bytes && is_foretold(sim)) return true;
    int32_t ended = ht_core_ended(sim->core);
    if (ended <= q->after) return false;
    if (sim->begin_ns == HT_FLOW_NEVER_NS) sim->begin_ns = ended_by(sim, q->after);
    if (ended > q->last) sim->least_end_ns = ended_by(sim, q->last);
    return ended > q->last || (q->limit_ns && sim->least_end_ns - sim->begin_ns >= q->limit_ns);
}

static enum ht_status loop(struct sim *sim, struct ht_error *err)
{
    const struct ht_schedule *s = sim->s;
    int64_t n_ops = ht_core_unfinished(sim->core);
    bool answered = false;
    dispatch(sim);
    for (int64_t rounds = 1; ht_core_is_exact(sim->core) && !(answered = is_answered(sim)); rounds++) {
        /* While more ends are due at now, sharing before them would have no effect. */
        if (sim->unsettled && ht_sim_ends_next_ns(&sim->ends) != sim->now_ns) settle(sim);
        int64_t next_ns = ht_sim_ends_next_ns(&sim->ends);
        if (next_ns == HT_SIM_NO_END) break;
        sim->now_ns = next_ns;
        if (sim->now_ns >= HT_FLOW_NEVER_NS)
            return ht_fail(err, HT_BAD_INPUT, "schedule '%s': simulated time passes 146 years", s->name);
        while (ht_sim_ends_next_ns(&sim->ends) == sim->now_ns) end(sim);
        dispatch(sim);
        if ((rounds & 4095) != 0) continue;
        if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
        if (!sim->options->progress) continue;
        if (sim->period_ns) n_ops = (int64_t)sim->simulated * s->n_ops;
        sim->options->progress(sim->options->progress_ctx, n_ops - ht_core_unfinished(sim->core), n_ops);
    }
    if (ht_core_is_exact(sim->core) && !answered && !ht_core_done(sim->core)) {
        char stall[768];
        ht_core_describe_stall(sim->core, stall, sizeof(stall));
        return ht_fail(err, HT_FAILED, "schedule '%s': stalled at %lld ns with %lld ops to go: %s", s->name,
                       (long long)sim->now_ns, (long long)ht_core_unfinished(sim->core), stall);
    }
    return HT_OK;
}

static enum ht_status check_options(const struct ht_schedule *s, const struct ht_sim_options *o,
                                    struct ht_sim_question q, struct ht_error *err)
{
    if (o->iterations < 1) return ht_fail(err, HT_BAD_INPUT, "%d iterations; expected at least 1", o->iterations);
    if (o->issue_ahead < 0 || o->issue_ahead > 1024)
        return ht_fail(err, HT_BAD_INPUT, "issue-ahead %d; expected 0 to 1024", o->issue_ahead);
    if (o->jitter_percent < 0 || o->jitter_percent > 99)
        return ht_fail(err, HT_BAD_INPUT, "jitter of %d %%; expected 0 to 99", o->jitter_percent);
    if (q.last >= 0 && (q.after < -1 || q.after >= q.last || q.last >= o->iterations || q.limit_ns < 0))
        return ht_fail(err, HT_BAD_INPUT, "the time from the end of iteration %d to that of %d of %d, up to %lld ns",
                       q.after, q.last, o->iterations, (long long)q.limit_ns);
    if (s->n_ops && o->iterations > INT64_MAX / (int64_t)sizeof(struct ht_trace_event) / s->n_ops)
        return ht_fail(err, HT_BAD_INPUT, "%d iterations of %d ops: too many events", o->iterations, s->n_ops);
    return HT_OK;
}

/* Returns true if a repetition may shorten the run: it foretells neither jitter and bad iterations, nor the last one. */
static bool may_foretell(const struct sim *sim)
{
    const struct ht_sim_question *q = &sim->question;
    const struct ht_sim_options *o = sim->options;
    if (o->every || o->jitter_percent || o->bad) return false;
    return q->last < 0 ? o->iterations > 5 : q->last >= 1 && q->last <= o->iterations - 2;
}

/* Prepares a run of checked options. */
static enum ht_status set_up(struct sim *sim, const int64_t *cost_ns, struct ht_error *err)
{
    const struct ht_schedule *s = sim->s;
    const struct ht_sim_options *o = sim->options;
    struct ht_core_options core = {
        .iterations = o->iterations, .issue_ahead = o->issue_ahead, .only_times = sim->only_times};
    ht_sim_ends_init(&sim->ends, s->n_lanes);
    sim->running = HT_NEW_ARRAY(int64_t, s->n_lanes);
    sim->changed = HT_NEW_ARRAY(int32_t, s->n_lanes);
    enum ht_status status = ht_sim_groups_init(s, cost_ns, err, &sim->groups);
    if (status != HT_OK) return status;
    if (!o->jitter_percent) ht_sim_groups_drop_slack(s, &sim->groups);
    int64_t *capacity = HT_NEW_ARRAY(int64_t, s->n_resources);
    for (int32_t r = 0; r < s->n_resources; r++) capacity[r] = s->resources[r].capacity_per_s;
    status = ht_flows_create(s->n_resources, capacity, s->n_lanes, sim->groups.max_uses, err, &sim->flows);
    free(capacity);
    if (status == HT_OK) status = ht_core_create(s, core, err, &sim->core);
    if (status == HT_OK && sim->question.limit_ns)
        ht_sim_rest_init(&sim->rest, s, &sim->groups, o->jitter_percent, sim->question.last);
    if (status == HT_OK && may_foretell(sim)) {
        struct ht_sim_parts parts = parts_of(sim);
        ht_sim_repeat_init(&sim->repeat, &parts);
    }
    return status;
}

static void tear_down(struct sim *sim)
{
    ht_core_destroy(sim->core);
    ht_flows_destroy(sim->flows);
    ht_sim_ends_free(&sim->ends);
    ht_sim_rest_free(&sim->rest);
    ht_sim_repeat_free(&sim->repeat);
    ht_sim_groups_free(&sim->groups);
    free(sim->running);
    free(sim->changed);
}

enum ht_status ht_sim_run(const struct ht_schedule *s, const int64_t *cost_ns, const struct ht_sim_options *options,
                          struct ht_error *err, struct ht_trace **out)
{
    *out = NULL;
    struct sim sim = {.s = s, .options = options, .question = {.last = -1}};
    struct ht_trace *trace = NULL;
    enum ht_status status = check_options(s, options, sim.question, err);
    if (status == HT_OK) status = set_up(&sim, cost_ns, err);
    if (status == HT_OK) {
        trace = ht_trace_create(s, HT_CLOCK_SIM, options->iterations);
        trace->exact = options->jitter_percent == 0;
        sim.events = trace->events;
        sim.iteration_end_ns = trace->iteration_end_ns;
        status = loop(&sim, err);
    }
    if (status == HT_OK) {
        trace->end_ns = sim.now_ns;
        if (sim.period_ns) {
            ht_sim_repeat_fill(trace, sim.simulated, sim.period_ns);
            trace->end_ns += (options->iterations - sim.simulated) * sim.period_ns;
        }
        for (int32_t i = 0; i < ht_n_spaces(s); i++) trace->peak_bytes[i] = ht_core_peak_bytes(sim.core, i);
        *out = trace;
        trace = NULL;
    }
    ht_trace_destroy(trace);
    tear_down(&sim);
    return status;
}

/* Answers a question. *exact: false if it has to be asked without only_times. */
static enum ht_status answer(struct sim *sim, const int64_t *cost_ns, struct ht_error *err, int64_t *ns, bool *exact)
{
    enum ht_status status = set_up(sim, cost_ns, err);
    if (status == HT_OK) {
        sim->iteration_end_ns = HT_NEW_ARRAY(int64_t, sim->options->iterations);
        status = loop(sim, err);
        free(sim->iteration_end_ns);
        *exact = ht_core_is_exact(sim->core);
    }
    if (status == HT_OK) *ns = sim->least_end_ns - sim->begin_ns;
    tear_down(sim);
    return status;
}

enum ht_status ht_sim_time(const struct ht_schedule *s, const int64_t *cost_ns, const struct ht_sim_options *options,
                           struct ht_sim_question question, struct ht_error *err, int64_t *ns)
{
    if (question.last < 0) return ht_fail(err, HT_BAD_INPUT, "the time up to iteration %d", question.last);
    enum ht_status status = check_options(s, options, question, err);
    bool exact = false;
    for (int only_times = 1; status == HT_OK && !exact; only_times--) {
        struct sim sim = {
            .s = s, .options = options, .question = question, .only_times = only_times, .begin_ns = HT_FLOW_NEVER_NS};
        status = answer(&sim, cost_ns, err, ns, &exact);
    }
    return status;
}
