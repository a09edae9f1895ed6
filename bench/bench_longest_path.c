/*
 * Counts the graphs whose simulation is a longest path.
 *
 *     bench_longest_path
 *
 * Where nothing ever waits for memory or shares a resource, and every lane's order is known, an op starts when the last of these has
 * ended: what it depends on, the op before it on its lane, the same of its group's other members, the iteration two before. Then end
 * times are one pass over the ops, and many sets of durations could be computed at once, side by side in vectors. Counted
 * is for how many graphs of all systems that would be exact, at the rates of the scenario:
 *
 *     lanes      every lane with ops is FIFO
 *     resources  on each resource there is room for the largest flow of every lane at once: whatever the times are, none binds
 *     memory     no order needs as much as a space has or the method declares (common/schedule/bound.h): nobody is denied
 *                what it could use at once
 *     proved     all three: known before any simulation
 *     path       three simulated iterations were a longest path to the nanosecond, whatever the first three say, with each lane in
 *                the order that came out. No method that computes first and checks afterwards can be right for more
 */
#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/exec/sim.h"
#include "common/exec/sim_groups.h"
#include "harness/run/job.h"
#include "harness/run/registry.h"

#include <stdio.h>
#include <stdlib.h>

enum { ITERATIONS = 3 };

static const struct scenario {
    const char *name;
    struct ht_scenario_request request;
} scenarios[] = {
    {"1 A100, 4B", {.cluster = "autohete-1gpu", .model = "autohete-4b", .batch = 8, .software = "eager"}},
    {"1 A100, 10B", {.cluster = "autohete-1gpu", .model = "autohete-10b", .batch = 8, .software = "eager"}},
    {"1 A100, 18B", {.cluster = "autohete-1gpu", .model = "autohete-18b", .batch = 8, .software = "eager"}},
    {"4 A100, 4B", {.cluster = "autohete-4gpu", .model = "autohete-4b", .batch = 8, .software = "eager"}},
    {"4 A100, 10B", {.cluster = "autohete-4gpu", .model = "autohete-10b", .batch = 8, .software = "eager"}},
    {"4 A100, 18B", {.cluster = "autohete-4gpu", .model = "autohete-18b", .batch = 8, .software = "eager"}},
    {"4 V100, 10B", {.cluster = "sysx-1node", .model = "sysx-10b", .micro_batch = 1}},
    {"4 RTX 4090, SSDs, 10B", {.cluster = "lohan-4x4090", .model = "autohete-10b", .batch = 32}},
    {"8 V100 on 2 nodes, tiny", {.cluster = "sysx-2node", .model = "llama-tiny", .blocks = 32, .batch = 16}},
};

struct counts {
    int32_t graphs, lanes, resources, memory, proved, path;
    int64_t ops, path_ops; /* of all graphs, of those in path */
};

static void die(const char *system, const struct ht_error *err)
{
    fprintf(stderr, "bench_longest_path: %s: %s\n", system, err->text);
    exit(1);
}

/* ---- before a simulation ----------------------------------------------------------------------------------------- */

static bool lanes_are_fifo(const struct ht_schedule *s)
{
    for (int32_t op = 0; op < s->n_ops; op++)
        if (s->lanes[s->ops[op].lane].order != HT_FIFO) return false;
    return true;
}

/* Returns the charge of a flow that runs at its cap on a resource that it uses, and of one unit of the level
   (common/exec/flow.h); a cap is at least 1. */
static double most_of(const struct ht_sim_flow *flow, struct ht_flow_use use)
{
    double share = (double)use.weight * use.times / (1 << HT_FLOW_WEIGHT_BITS);
    return ((double)ht_max(flow->cap, 1) + 1) * share + 2; /* 2: both are rounded up */
}

static bool resources_have_room(const struct ht_schedule *s, const struct ht_sim_groups *groups)
{
    double *most = HT_NEW_ARRAY(double, (size_t)s->n_lanes *(size_t)s->n_resources);
    for (int32_t op = 0; op < s->n_ops; op += ht_sim_kind_of(groups, op)->size) {
        if (ht_sim_kind_of(groups, op)->flow == HT_SIM_NO_FLOW) continue;
        const struct ht_sim_flow *flow = &groups->flows[ht_sim_kind_of(groups, op)->flow];
        for (int32_t u = 0; u < flow->n_uses; u++) {
            struct ht_flow_use use = groups->uses[flow->uses_begin + u];
            double *x = &most[(int64_t)s->ops[op].lane * s->n_resources + use.resource];
            *x = ht_max(*x, most_of(flow, use));
        }
    }
    bool room = true;
    for (int32_t r = 0; r < s->n_resources; r++) {
        double sum = 0;
        for (int32_t lane = 0; lane < s->n_lanes; lane++) sum += most[(int64_t)lane * s->n_resources + r];
        room &= sum <= (double)s->resources[r].capacity_per_s;
    }
    free(most);
    return room;
}

static bool memory_has_room(const struct ht_job *job)
{
    for (int32_t i = 0; i < ht_n_spaces(job->schedule); i++)
        if (job->bound_bytes[i] >= ht_min(job->schedule->capacity_bytes[i], job->schedule->limit_bytes[i]))
            return false;
    return true;
}

/* ---- of a simulation ----------------------------------------------------------------------------------------------- */

static bool was_skipped(const struct ht_trace_event *e)
{
    return e->release_seq < 0;
}

static int by_start(const void *a, const void *b)
{
    const struct ht_trace_event *x = *(const struct ht_trace_event *const *)a;
    const struct ht_trace_event *y = *(const struct ht_trace_event *const *)b;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return (x->release_seq > y->release_seq) - (x->release_seq < y->release_seq);
}

/* Fills in [n_events] the end of the event before each on its lane, in the order in which they ran. */
static void find_lanes(const struct ht_trace *t, int64_t *lane_ns)
{
    const struct ht_schedule *s = t->schedule;
    const struct ht_trace_event **ran = HT_NEW_ARRAY(const struct ht_trace_event *, t->n_events);
    int64_t n = 0, *last = HT_NEW_ARRAY(int64_t, s->n_lanes);
    for (int64_t i = 0; i < t->n_events; i++)
        if (!was_skipped(&t->events[i])) ran[n++] = &t->events[i];
    qsort(ran, (size_t)n, sizeof(*ran), by_start);
    for (int64_t i = 0; i < n; i++) {
        int32_t lane = s->ops[ht_trace_op(t, ran[i] - t->events)].lane;
        lane_ns[ran[i] - t->events] = last[lane];
        last[lane] = ran[i]->end_ns;
    }
    free(ran);
    free(last);
}

/* Returns the latest of [begin, end) of the deps of an iteration, at least ns. A skipped op takes no time: it ends with what it
   depends on. */
static int64_t latest(const int64_t *end_ns, const int32_t *deps, int64_t begin, int64_t end, int64_t ns)
{
    for (int64_t d = begin; d < end; d++) ns = ht_max(ns, end_ns[deps[d]]);
    return ns;
}

/* Returns true if the trace is a longest path. */
static bool is_path(const struct ht_trace *t, const struct ht_sim_groups *groups)
{
    const struct ht_schedule *s = t->schedule;
    int64_t *lane_ns = HT_NEW_ARRAY(int64_t, t->n_events), *end_ns = HT_NEW_ARRAY(int64_t, t->n_events);
    bool path = true;
    find_lanes(t, lane_ns);
    for (int32_t k = 0; k < t->iterations && path; k++) {
        int64_t *now = end_ns + (int64_t)k * s->n_ops, *before = k ? now - s->n_ops : NULL;
        for (int32_t first = 0, end; first < s->n_ops && path; first = end) {
            const struct ht_trace_event *e = &t->events[(int64_t)k * s->n_ops + first];
            int64_t start = k >= 2 ? t->iteration_end_ns[k - 2] : 0;
            end = first + ht_sim_kind_of(groups, first)->size;
            for (int32_t op = first; op < end; op++) {
                start = latest(now, s->deps, s->deps_begin[op], s->deps_begin[op + 1], start);
                if (k) start = latest(before, s->prev, s->prev_begin[op], s->prev_begin[op + 1], start);
                start = ht_max(start, lane_ns[e - t->events + op - first]);
            }
            int64_t cost = was_skipped(e) ? 0 : ht_sim_kind_of(groups, first)->cost_ns;
            for (int32_t op = first; op < end; op++) now[op] = start + cost;
            path = was_skipped(e) || (e->start_ns == start && e->end_ns == start + cost);
        }
    }
    free(lane_ns);
    free(end_ns);
    return path;
}

static bool simulates_as_path(const struct ht_job *job, const struct ht_sim_groups *groups)
{
    struct ht_sim_options o = {.iterations = ITERATIONS, .issue_ahead = job->issue_ahead};
    struct ht_error err = {0};
    struct ht_trace *t;
    if (ht_sim_run(job->schedule, job->cost_ns, &o, &err, &t) != HT_OK) die(job->system->name, &err);
    bool path = is_path(t, groups);
    ht_trace_destroy(t);
    return path;
}

/* ---- counting ------------------------------------------------------------------------------------------------------- */

static void count(const struct ht_job *job, struct counts *c)
{
    struct ht_sim_groups groups;
    struct ht_error err = {0};
    if (ht_sim_groups_init(job->schedule, job->cost_ns, &err, &groups) != HT_OK) die(job->system->name, &err);
    bool lanes = lanes_are_fifo(job->schedule), room = resources_have_room(job->schedule, &groups);
    bool memory = memory_has_room(job), proved = lanes && room && memory, path = simulates_as_path(job, &groups);
    if (proved && !path) die(job->system->name, &(struct ht_error){.text = "proved, but no path"});
    c->graphs++;
    c->lanes += lanes, c->resources += room, c->memory += memory, c->proved += proved, c->path += path;
    c->ops += job->schedule->n_ops;
    c->path_ops += path ? job->schedule->n_ops : 0;
    ht_sim_groups_free(&groups);
}

static void print(const char *name, const struct counts *c)
{
    printf("%-24s %6d %6d %9d %6d %6d %6d %9.0f%%\n", name, c->graphs, c->lanes, c->resources, c->memory, c->proved,
           c->path, c->ops ? 100.0 * (double)c->path_ops / (double)c->ops : 0);
}

int main(void)
{
    struct counts all = {0};
    printf("%-24s %6s %6s %9s %6s %6s %6s %10s\n", "scenario, all systems", "graphs", "lanes", "resources", "memory",
           "proved", "path", "path, ops");
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++) {
        struct counts c = {0};
        for (size_t k = 0; ht_system_at(k); k++) {
            struct ht_options o = {.request = scenarios[i].request, .sim = {.issue_ahead = -1}};
            struct ht_error err = {0};
            struct ht_job job;
            /* A system that has no plan for such a scenario refuses it. */
            if (ht_job_create(&o, ht_system_at(k)->name, NULL, HT_JOB_COSTS, &err, &job) != HT_OK) continue;
            if (job.answer == HT_OK) count(&job, &c);
            ht_job_free(&job);
        }
        print(scenarios[i].name, &c);
        all.graphs += c.graphs, all.lanes += c.lanes, all.resources += c.resources, all.memory += c.memory;
        all.proved += c.proved, all.path += c.path, all.ops += c.ops, all.path_ops += c.path_ops;
    }
    print("all", &all);
    return 0;
}
