/*
 * The event loop. common/exec/core.c alone decides what may start; this file has the clock and the sharing.
 *
 *     dispatch at 0
 *     while anything runs:
 *         now = the earliest end
 *         all ends at now, in id order          -> core
 *         serve ready lanes until there are none -> issued, started: ends that are known at once go to the heap
 *         share resources again                 -> ends of flows; put off while more ends are due at now
 *
 * An op without cost that starts at now ends in the next round at the same now.
 */
#include "common/exec/sim.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/exec/core.h"
#include "common/exec/flow.h"
#include "common/exec/sim_heap.h"
#include "common/exec/sim_groups.h"

#include <stdlib.h>

struct sim {
    const struct ht_schedule *s;
    const struct ht_sim_options *options;
    struct ht_sim_groups groups;
    struct ht_core *core;
    struct ht_flows *flows;
    struct ht_sim_heap heap;
    struct ht_trace *trace;
    int64_t *running; /* [n_lanes]: id of the issue group that runs in the lane's slot */
    int32_t *changed; /* [n_lanes] scratch */
    int64_t now_ns;
    bool unsettled;
};

static void begin(struct sim *sim, int32_t lane, struct ht_inst inst)
{
    const struct ht_sim_op *info = &sim->groups.ops[inst.op];
    int64_t id = (int64_t)inst.iteration * sim->s->n_ops + inst.op;
    sim->trace->events[id].start_ns = sim->now_ns;
    /* The group's slot is the lane of its first op. The other members start at the same instant and need no entry. */
    if (info->flow == HT_SIM_MEMBER) return;
    int64_t cost = ht_sim_jitter(info->cost_ns, sim->options->jitter_percent, sim->options->seed, (uint64_t)id);
    sim->running[lane] = id;
    if (info->flow == HT_SIM_NO_FLOW) {
        ht_sim_heap_set(&sim->heap, (struct ht_sim_entry){sim->now_ns + cost, id, lane});
        return;
    }
    const struct ht_sim_flow *flow = &sim->groups.flows[info->flow];
    int64_t cap = flow->cap;
    if (sim->options->jitter_percent) {
        if (cost < flow->need_ns) cost = flow->need_ns;
        if (!flow->of_cores) cap = ht_flow_per_giga(flow->largest, cost);
    }
    ht_flows_start(sim->flows, lane, sim->now_ns, cost, cap, sim->groups.uses + flow->uses_begin, flow->n_uses);
    sim->unsettled = true;
}

/* Prefetches what begin() reads and writes of an op that comes soon. */
static void fetch(const struct sim *sim, int32_t op, int32_t iteration)
{
    if (op < 0) return;
    const struct ht_trace_event *e = &sim->trace->events[(int64_t)iteration * sim->s->n_ops + op];
    __builtin_prefetch(e, 1);
    __builtin_prefetch((const char *)(e + 1) - 1, 1);
    __builtin_prefetch(&sim->groups.ops[op]);
}

static void dispatch(struct sim *sim)
{
    struct ht_inst inst;
    for (int32_t lane; (lane = ht_core_next_ready(sim->core)) >= 0;) {
        if (!ht_core_start(sim->core, lane, &inst)) {
            if (!ht_core_issue(sim->core, lane, &inst)) continue;
            struct ht_trace_event *e = &sim->trace->events[(int64_t)inst.iteration * sim->s->n_ops + inst.op];
            e->issue_ns = sim->now_ns;
            e->grant_seq = ht_core_grant_seq(sim->core, inst);
            fetch(sim, ht_core_upcoming(sim->core, lane), inst.iteration);
            if (!ht_core_start(sim->core, lane, &inst)) continue;
        }
        begin(sim, lane, inst);
    }
}

static void end(struct sim *sim, struct ht_sim_entry entry)
{
    const struct ht_schedule *s = sim->s;
    int32_t iteration = (int32_t)(entry.id / s->n_ops), first = (int32_t)(entry.id % s->n_ops);
    const struct ht_sim_op *info = &sim->groups.ops[first];
    if (info->flow >= 0) {
        ht_flows_finish(sim->flows, entry.slot);
        sim->unsettled = true;
    }
    for (int32_t op = first, stop = first + (int32_t)info->size; op < stop; op++) {
        if (sim->groups.ops[op].validate && sim->options->bad)
            ht_core_set_control(sim->core, iteration, !sim->options->bad[iteration]);
        struct ht_trace_event *e = &sim->trace->events[entry.id + (op - first)];
        e->end_ns = sim->now_ns;
        e->release_seq = ht_core_finish(sim->core, (struct ht_inst){iteration, op});
    }
    sim->trace->iteration_end_ns[iteration] = sim->now_ns;
}

static void settle(struct sim *sim)
{
    sim->unsettled = false;
    int32_t n = ht_flows_settle(sim->flows, sim->now_ns, sim->changed);
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = sim->changed[i];
        ht_sim_heap_set(&sim->heap, (struct ht_sim_entry){ht_flows_end_ns(sim->flows, slot), sim->running[slot], slot});
    }
}

static enum ht_status loop(struct sim *sim, struct ht_error *err)
{
    const struct ht_schedule *s = sim->s;
    dispatch(sim);
    for (int64_t rounds = 1;; rounds++) {
        /* While more ends are due at now, sharing before them would have no effect. */
        if (sim->unsettled && !(sim->heap.n && sim->heap.entries[0].time_ns == sim->now_ns)) settle(sim);
        if (!sim->heap.n) break;
        sim->now_ns = sim->heap.entries[0].time_ns;
        if (sim->now_ns >= HT_FLOW_NEVER_NS)
            return ht_fail(err, HT_BAD_INPUT, "schedule '%s': simulated time passes 146 years", s->name);
        while (sim->heap.n && sim->heap.entries[0].time_ns == sim->now_ns) end(sim, ht_sim_heap_pop(&sim->heap));
        dispatch(sim);
        if ((rounds & 4095) == 0 && ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
    }
    if (!ht_core_done(sim->core)) {
        char stall[768];
        ht_core_describe_stall(sim->core, stall, sizeof(stall));
        return ht_fail(err, HT_FAILED, "schedule '%s': stalled at %lld ns with %lld ops to go: %s", s->name,
                       (long long)sim->now_ns, (long long)ht_core_unfinished(sim->core), stall);
    }
    sim->trace->end_ns = sim->now_ns;
    return HT_OK;
}

static enum ht_status check_options(const struct ht_schedule *s, const struct ht_sim_options *o, struct ht_error *err)
{
    if (o->iterations < 1) return ht_fail(err, HT_BAD_INPUT, "%d iterations; expected at least 1", o->iterations);
    if (o->issue_ahead < 0 || o->issue_ahead > 1024)
        return ht_fail(err, HT_BAD_INPUT, "issue-ahead %d; expected 0 to 1024", o->issue_ahead);
    if (o->jitter_percent < 0 || o->jitter_percent > 99)
        return ht_fail(err, HT_BAD_INPUT, "jitter of %d %%; expected 0 to 99", o->jitter_percent);
    if (s->n_ops && o->iterations > INT64_MAX / (int64_t)sizeof(struct ht_trace_event) / s->n_ops)
        return ht_fail(err, HT_BAD_INPUT, "%d iterations of %d ops: too many events", o->iterations, s->n_ops);
    return HT_OK;
}

enum ht_status ht_sim_run(const struct ht_schedule *s, const int64_t *cost_ns, const struct ht_sim_options *options,
                          struct ht_error *err, struct ht_trace **out)
{
    *out = NULL;
    enum ht_status status = check_options(s, options, err);
    if (status != HT_OK) return status;
    struct sim sim = {.s = s, .options = options};
    int64_t *capacity = HT_NEW_ARRAY(int64_t, s->n_resources);
    for (int32_t r = 0; r < s->n_resources; r++) capacity[r] = s->resources[r].capacity_per_s;
    ht_sim_heap_init(&sim.heap, s->n_lanes);
    sim.running = HT_NEW_ARRAY(int64_t, s->n_lanes);
    sim.changed = HT_NEW_ARRAY(int32_t, s->n_lanes);
    status = ht_sim_groups_init(s, cost_ns, err, &sim.groups);
    if (status != HT_OK) goto out;
    status = ht_flows_create(s->n_resources, capacity, s->n_lanes, sim.groups.max_uses, err, &sim.flows);
    if (status != HT_OK) goto out;
    struct ht_core_options core = {.iterations = options->iterations, .issue_ahead = options->issue_ahead};
    status = ht_core_create(s, core, err, &sim.core);
    if (status != HT_OK) goto out;
    sim.trace = ht_trace_create(s, HT_CLOCK_SIM, options->iterations);
    sim.trace->exact = options->jitter_percent == 0;
    status = loop(&sim, err);
    if (status != HT_OK) goto out;
    for (int32_t i = 0; i < ht_n_spaces(s); i++) sim.trace->peak_bytes[i] = ht_core_peak_bytes(sim.core, i);
    *out = sim.trace;
    sim.trace = NULL;
out:
    ht_trace_destroy(sim.trace);
    ht_core_destroy(sim.core);
    ht_flows_destroy(sim.flows);
    ht_sim_heap_free(&sim.heap);
    ht_sim_groups_free(&sim.groups);
    free(capacity);
    free(sim.running);
    free(sim.changed);
    return status;
}
