/*
 * Metrics of a trace: iteration time, busy shares, lower bound, bubble.
 *
 * The window. The first `warmup` iterations fill the machine and are dropped. So is the last, when at least two remain
 * after them, because no next iteration prefetches or contends beside it. With E_k the time at which iterations 0 to k
 * have all ended (two may be in flight, and the later one may end first),
 *
 *     window = (E_{warmup-1}, E_last],   last = K - 2, or K - 1 when only one iteration remains
 *     iteration_ns = (E_last - E_{warmup-1}) / (last - warmup + 1)
 *
 * The lower bound is the least time that the window's own work takes. An op counts when it starts and ends inside the
 * window, with weight w = min(its uncontended cost, its duration) (jitter can make an op shorter than its cost). Work
 * of the first iteration that was done ahead, before the window, does not count; such work of the iteration after the
 * last does. Three bounds, each at most the window's length W:
 *
 *   lane      A lane runs one op at a time, so the w of its ops are lengths of disjoint parts of the window:
 *             sum of w <= W.
 *   resource  At any instant the rates on r add up to at most capacity + 2 F, where F flows can be on r at once (F:
 *             lanes whose ops use r). By sim.h each x_i a_ir / 2^16 is taken from what is left, so these add up to at
 *             most the capacity, but for x_i = max(level, 1), which is at most 1 too much for each flow; and a flow's
 *             true rate exceeds x_i by at most x_i / cap_i <= 1, since cap_i and speed_i are rounded down. An amount
 *             is at most a_ir B_i / 2^16. So the window moves at most (capacity + 2 F) W / 1e9, and
 *             floor(amounts 1e9 / (capacity + 2 F)) <= W.
 *             (A flow slowed down 2^20 times keeps speed 1 and escapes this; no number of lanes comes near.)
 *             Simulated time only: real hardware is not bound by the catalogue's figures.
 *   chain     Along dependencies (of this iteration and of the previous one) an op starts when the one before it has
 *             ended, so the w along a chain are lengths of disjoint parts of the window. Longest such sum <= W.
 *
 * Divided by the number of iterations and rounded down, each is at most iteration_ns. Once the run repeats itself from
 * iteration to iteration, lane and resource bounds are those of one whole iteration.
 */
#include "common/trace/critical.h"

#include "common/base/array.h"
#include "common/schedule/fold.h"

#include <stdlib.h>
#include <string.h>

static bool ran(const struct ht_trace_event *e)
{
    return e->grant_seq >= 0 && e->release_seq >= 0;
}

static bool inside(const struct ht_window *w, const struct ht_trace_event *e)
{
    return ran(e) && e->start_ns >= w->begin_ns && e->end_ns <= w->end_ns;
}

/* Returns each op's cost; every member of a group has the cost of the longest. */
static int64_t *group_costs(const struct ht_schedule *s, const int64_t *cost_ns)
{
    int64_t *cost = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        int64_t most = cost_ns[first];
        for (end = first + 1; s->ops[first].match >= 0 && end < s->n_ops && s->ops[end].match == s->ops[first].match;
             end++)
            if (cost_ns[end] > most) most = cost_ns[end];
        for (int32_t op = first; op < end; op++) cost[op] = most;
    }
    return cost;
}

static int64_t weight(const struct ht_trace_event *e, int32_t op, const int64_t *cost)
{
    int64_t duration = e->end_ns - e->start_ns;
    return cost && cost[op] < duration ? cost[op] : duration;
}

static void raise_bound(struct ht_metrics *m, int64_t bound_ns, const char *kind, const char *name)
{
    if (bound_ns <= m->lower_bound_ns) return;
    m->lower_bound_ns = bound_ns;
    snprintf(m->lower_bound_of, sizeof(m->lower_bound_of), "%s%s%s", kind, *name ? " " : "", name);
}

static void lanes(const struct ht_trace *t, const struct ht_window *w, const int64_t *cost, struct ht_metrics *m)
{
    const struct ht_schedule *s = t->schedule;
    int64_t *least = HT_NEW_ARRAY(int64_t, s->n_lanes);
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i];
        int32_t op = ht_trace_op(t, i), lane = s->ops[op].lane;
        int64_t from = e->start_ns > w->begin_ns ? e->start_ns : w->begin_ns;
        int64_t to = e->end_ns < w->end_ns ? e->end_ns : w->end_ns;
        if (ran(e) && to > from) m->lane_busy_ns[lane] += to - from;
        if (inside(w, e)) least[lane] += weight(e, op, cost);
    }
    double compute = 0;
    int n_compute = 0;
    for (int32_t l = 0; l < s->n_lanes; l++) {
        m->lane_busy_ns[l] /= w->iterations;
        char name[48];
        snprintf(name, sizeof(name), "%s of rank %d", s->lanes[l].name, s->lanes[l].rank);
        raise_bound(m, least[l] / w->iterations, "lane", name);
        if (s->lanes[l].kind != HT_LANE_COMPUTE) continue;
        compute += (double)m->lane_busy_ns[l];
        n_compute++;
    }
    m->bubble_ratio = n_compute && m->iteration_ns ? 1 - compute / n_compute / (double)m->iteration_ns : 0;
    if (m->bubble_ratio < 0) m->bubble_ratio = 0; /* caused by the rounding of iteration_ns */
    free(least);
}

/* Returns E_k: when iteration k and all before it had ended; 0 for k = -1. */
static int64_t ended_by(const struct ht_trace *t, int32_t k)
{
    int64_t end = 0;
    for (int32_t i = 0; i <= k; i++)
        if (t->iteration_end_ns[i] > end) end = t->iteration_end_ns[i];
    return end;
}

static int64_t not_negative(int64_t ns)
{
    return ns > 0 ? ns : 0;
}

/* Computes the means over the window of the times from first forward to last backward, idle times included, and before
   and after them. */
static void passes(const struct ht_trace *t, int32_t first, int32_t last, struct ht_metrics *out)
{
    const struct ht_schedule *s = t->schedule;
    for (int32_t k = first; k <= last; k++) {
        int64_t begin = INT64_MAX, end = -1, copied = -1;
        for (int32_t op = 0; op < s->n_ops; op++) {
            const struct ht_trace_event *e = &t->events[(int64_t)k * s->n_ops + op];
            if (!ran(e)) continue;
            if (s->ops[op].kind == HT_OP_FORWARD && e->start_ns < begin) begin = e->start_ns;
            if (s->ops[op].kind == HT_OP_BACKWARD && e->end_ns > end) end = e->end_ns;
            if (s->lanes[s->ops[op].lane].kind == HT_LANE_D2H && e->end_ns > copied) copied = e->end_ns;
        }
        if (end <= begin) continue;
        out->passes_ns += end - begin;
        out->fill_ns += not_negative(begin - ended_by(t, k - 1));
        out->drain_ns += not_negative(copied - end);
    }
    out->passes_ns /= last - first + 1;
    out->fill_ns /= last - first + 1;
    out->drain_ns /= last - first + 1;
}

/* Returns how many lanes have ops that use each resource. */
static int32_t *flows_at_once(const struct ht_schedule *s)
{
    int32_t *n = HT_NEW_ARRAY(int32_t, s->n_resources);
    uint8_t *seen = HT_NEW_ARRAY(uint8_t, (size_t)s->n_resources * (size_t)s->n_lanes);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t u = s->uses_begin[op]; u < s->uses_begin[op + 1]; u++) {
            uint8_t *mark = &seen[(size_t)s->uses[u].resource * (size_t)s->n_lanes + (size_t)s->ops[op].lane];
            if (!*mark) n[s->uses[u].resource] += ht_fold_times(s, op, s->uses[u].resource);
            *mark = 1;
        }
    free(seen);
    return n;
}

/* Computes the resources' busy shares and bounds. Cores are busy for as long as an op would take alone. Only an exact
   trace tells that time; with jitter, and in a real run, a duration includes waiting for the cores. Then their share is
   an upper bound, at most 1, and gives no lower bound. */
static void resources(const struct ht_trace *t, const struct ht_window *w, const int64_t *cost, struct ht_metrics *m)
{
    const struct ht_schedule *s = t->schedule;
    double *moved = HT_NEW_ARRAY(double, s->n_resources);
    __int128 *least = HT_NEW_ARRAY(__int128, s->n_resources);
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i];
        int32_t op = ht_trace_op(t, i);
        int64_t b = s->uses_begin[op], end = s->uses_begin[op + 1];
        if (b == end || !ran(e)) continue;
        int64_t from = e->start_ns > w->begin_ns ? e->start_ns : w->begin_ns;
        int64_t to = e->end_ns < w->end_ns ? e->end_ns : w->end_ns;
        if (to < from) continue;
        double share = e->end_ns > e->start_ns ? (double)(to - from) / (double)(e->end_ns - e->start_ns) : 1;
        for (int64_t u = b; u < end; u++) {
            const struct ht_use *use = &s->uses[u];
            bool cores = s->resources[use->resource].kind == HT_RES_CORES;
            int64_t times = (cores ? weight(e, op, cost) : 1) * ht_fold_times(s, op, use->resource);
            moved[use->resource] += share * (double)use->amount * (double)times;
            if (inside(w, e) && (!cores || (t->exact && cost))) least[use->resource] += (__int128)use->amount * times;
        }
    }
    int32_t *n_flows = flows_at_once(s);
    for (int32_t r = 0; r < s->n_resources; r++) {
        __int128 capacity = (__int128)s->resources[r].capacity_per_s + 2 * n_flows[r];
        int64_t window_ns = w->end_ns - w->begin_ns;
        if (window_ns > 0)
            m->resource_busy[r] = moved[r] * 1e9 / ((double)s->resources[r].capacity_per_s * (double)window_ns);
        if (s->resources[r].kind == HT_RES_CORES && m->resource_busy[r] > 1) m->resource_busy[r] = 1;
        if (t->clock == HT_CLOCK_SIM)
            raise_bound(m, (int64_t)(least[r] * 1000000000 / capacity) / w->iterations, "resource",
                        s->resources[r].name);
    }
    free(n_flows);
    free(moved);
    free(least);
}

/* Returns the longest chain of ops inside the window. Keeps only the chains that end in the previous iteration. */
static int64_t longest_chain(const struct ht_trace *t, const struct ht_window *w, const int64_t *cost)
{
    const struct ht_schedule *s = t->schedule;
    int64_t *now = HT_NEW_ARRAY(int64_t, s->n_ops), *last = HT_NEW_ARRAY(int64_t, s->n_ops), longest = 0;
    for (int32_t k = 0; k < t->iterations; k++) {
        const struct ht_trace_event *events = t->events + (int64_t)k * s->n_ops, *before = events - s->n_ops;
        for (int32_t op = 0; op < s->n_ops; op++) {
            const struct ht_trace_event *e = &events[op];
            now[op] = 0;
            if (!inside(w, e)) continue;
            int64_t chain = 0;
            for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++)
                if (now[s->deps[d]] > chain && events[s->deps[d]].end_ns <= e->start_ns) chain = now[s->deps[d]];
            for (int64_t d = s->prev_begin[op]; k > 0 && d < s->prev_begin[op + 1]; d++)
                if (last[s->prev[d]] > chain && before[s->prev[d]].end_ns <= e->start_ns) chain = last[s->prev[d]];
            now[op] = chain + weight(e, op, cost);
            if (now[op] > longest) longest = now[op];
        }
        int64_t *swap = now;
        now = last;
        last = swap;
    }
    free(now);
    free(last);
    return longest;
}

int32_t ht_metrics_last_iteration(int32_t iterations, int32_t warmup)
{
    return iterations - warmup >= 2 ? iterations - 2 : iterations - 1;
}

enum ht_status ht_metrics_compute(const struct ht_trace *t, const int64_t *cost_ns, int32_t warmup,
                                  struct ht_error *err, struct ht_metrics *out)
{
    const struct ht_schedule *s = t->schedule;
    if (warmup < 0 || warmup >= t->iterations)
        return ht_fail(err, HT_BAD_INPUT, "a warm-up of %d in %d iterations; expected 0 to %d", warmup, t->iterations,
                       t->iterations - 1);
    int32_t last = ht_metrics_last_iteration(t->iterations, warmup);
    struct ht_window w = {
        .begin_ns = ended_by(t, warmup - 1), .end_ns = ended_by(t, last), .iterations = last - warmup + 1};
    *out = (struct ht_metrics){.warmup = warmup,
                               .iteration_ns = (w.end_ns - w.begin_ns) / w.iterations,
                               .first_iteration_ns = t->iteration_end_ns[0],
                               .lane_busy_ns = HT_NEW_ARRAY(int64_t, s->n_lanes),
                               .resource_busy = HT_NEW_ARRAY(double, s->n_resources),
                               .critical_ns = HT_NEW_ARRAY(int64_t, s->n_lanes)};
    int64_t *cost = cost_ns ? group_costs(s, cost_ns) : NULL;
    lanes(t, &w, cost, out);
    resources(t, &w, cost, out);
    raise_bound(out, longest_chain(t, &w, cost) / w.iterations, "dependency chain", "");
    ht_critical_path(t, &w, out->critical_ns, &out->critical_wait_ns);
    for (int32_t l = 0; l < s->n_lanes; l++) out->critical_ns[l] /= w.iterations;
    out->critical_wait_ns /= w.iterations;
    passes(t, warmup, last, out);
    free(cost);
    return HT_OK;
}

void ht_metrics_free(struct ht_metrics *m)
{
    free(m->lane_busy_ns);
    free(m->resource_busy);
    free(m->critical_ns);
    memset(m, 0, sizeof(*m));
}
