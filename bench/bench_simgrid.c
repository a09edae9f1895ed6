/*
 * Measures the simulator beside SimGrid, on the same graph in one process.
 *
 *     bench_simgrid [OPS] [RUNS]      default: 100000 ops, median of 9 runs
 *
 * The graph: bench/pipeline_1f1b.h. SimGrid gets its issue groups, one activity each:
 *
 *     compute op         Exec on its GPU's host
 *     copy               Comm between its GPU's host and one that stands for its node's memory
 *     send and receive   Comm between two GPUs' hosts
 *     resource           link of its capacity; a route has the links that the ops use
 *     message's cost     a link that its flows do not share, at the rate at which a message lasts its cost
 *     dependency         the same, and one from each op to the next on its lane, since hosts keep no order
 *
 * Both share links by max-min fairness. What SimGrid leaves out here, to its advantage: memory, so that what waits for
 * some there starts at once; lanes by priority, so that copies to the host go in the order of ids; traces of issues and
 * releases. Its times are doubles. In the first measurement it keeps no dependencies either: this program counts down
 * predecessors and makes an activity when it can start (bench/simgrid.cpp says why).
 *
 * Checked before anything is timed: the pipeline without copies and with free messages takes (M + P - 1) (f + b), here
 * exactly, in SimGrid to 1e-9. The times of the whole graph are printed beside each other.
 *
 * Timed, in turns, is processor time of the one thread. Here: building the graph, linked; ht_sim_run with set-up and
 * trace. SimGrid: making activities; Engine::run. The second measurement, on a tenth of the graph, gives all activities
 * and dependencies to SimGrid before it runs.
 */
#include "common/exec/sim.h"

#include <inttypes.h>
#include <math.h>

#include "bench/pipeline_1f1b.h"
#include "bench/simgrid.h"
#include "bench/timing.h"

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_simgrid: %s: %s\n", what, why);
    exit(1);
}

/* ---- the graph for SimGrid --------------------------------------------------------------------------------------- */

static int32_t memory_host(int32_t rank)
{
    return RANKS + rank / PER_NODE;
}

/* Makes hosts, links and routes: link r is resource r. */
static void open_platform(const struct pipeline *p)
{
    double *bytes_per_s = HT_NEW_ARRAY(double, p->s->n_resources);
    for (int32_t r = 0; r < p->s->n_resources; r++) bytes_per_s[r] = (double)p->s->resources[r].capacity_per_s;
    int32_t alone = p->s->n_resources;
    bench_simgrid_open(RANKS + NODES, alone, bytes_per_s, (double)message_bytes * 1e9 / (double)message_ns);
    for (int32_t r = 0; r < RANKS; r++) {
        int32_t node = r / PER_NODE;
        int32_t out[] = {p->port_out[r], p->pcie_switch[r / 2], p->dram[node]};
        int32_t in[] = {p->port_in[r], p->pcie_switch[r / 2], p->dram[node]};
        bench_simgrid_route(r, memory_host(r), 3, out);
        bench_simgrid_route(memory_host(r), r, 3, in);
        if (r + 1 == RANKS) continue;
        int32_t next = (r + 1) / PER_NODE;
        int32_t inside[] = {p->nvlink[node], alone}, between[] = {p->nic[node], p->nic[next], alone};
        for (int way = 0; way < 2; way++)
            bench_simgrid_route(r + way, r + 1 - way, node == next ? 2 : 3, node == next ? inside : between);
    }
    bench_simgrid_seal();
    free(bytes_per_s);
}

/* Returns the activity of the issue group [first, end). */
static struct bench_activity activity_of(const struct pipeline *p, int32_t first, int32_t end)
{
    const struct ht_schedule *s = p->s;
    int32_t rank = s->lanes[s->ops[first].lane].rank;
    enum ht_lane_kind kind = s->lanes[s->ops[first].lane].kind;
    if (kind == HT_LANE_COMPUTE)
        return (struct bench_activity){.host = rank, .to = -1, .amount = (double)p->costs.ns[first]};
    struct bench_activity a = {.host = rank, .to = s->lanes[s->ops[end - 1].lane].rank};
    if (kind == HT_LANE_D2H) a.to = memory_host(rank);
    if (kind == HT_LANE_H2D) a.host = memory_host(rank);
    if (s->uses_begin[first] < s->uses_begin[end]) a.amount = (double)s->uses[s->uses_begin[first]].amount;
    return a;
}

/* Adds an edge between issue groups unless the list has it. */
static void add_before(struct bench_activities *g, int32_t from, int64_t *n, size_t *cap)
{
    for (int64_t k = g->before_begin[g->n]; k < *n; k++)
        if (g->before[k] == from) return;
    HT_PUSH(g->before, *n, *cap, from);
}

/* Fills in the successors. */
static void turn_around(struct bench_activities *g)
{
    int64_t n = g->before_begin[g->n];
    g->after = HT_NEW_ARRAY(int32_t, n);
    g->after_begin = HT_NEW_ARRAY(int64_t, g->n + 2);
    for (int64_t k = 0; k < n; k++) g->after_begin[g->before[k] + 2]++;
    for (int32_t i = 0; i < g->n; i++) g->after_begin[i + 2] += g->after_begin[i + 1];
    for (int32_t i = 0; i < g->n; i++)
        for (int64_t k = g->before_begin[i]; k < g->before_begin[i + 1]; k++)
            g->after[g->after_begin[g->before[k] + 1]++] = i;
}

static struct bench_activities activities_of(const struct pipeline *p)
{
    const struct ht_schedule *s = p->s;
    struct bench_activities g = {.list = HT_NEW_ARRAY(struct bench_activity, s->n_ops),
                                 .before_begin = HT_NEW_ARRAY(int64_t, s->n_ops + 1)};
    int32_t *of_op = HT_NEW_ARRAY(int32_t, s->n_ops), *last = ht_alloc_ids(s->n_lanes);
    int64_t n = 0;
    size_t cap = 0;
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = first + (s->ops[first].match >= 0 ? 2 : 1);
        for (int32_t op = first; op < end; op++) {
            of_op[op] = g.n;
            for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++)
                add_before(&g, of_op[s->deps[d]], &n, &cap);
            int32_t *on_lane = &last[s->ops[op].lane];
            if (*on_lane >= 0) add_before(&g, *on_lane, &n, &cap);
            *on_lane = g.n;
        }
        g.list[g.n++] = activity_of(p, first, end);
        g.before_begin[g.n] = n;
    }
    free(of_op);
    free(last);
    turn_around(&g);
    return g;
}

static void free_activities(struct bench_activities *g)
{
    free(g->list);
    free(g->after);
    free(g->before);
    free(g->after_begin);
    free(g->before_begin);
}

/* ---- measuring ------------------------------------------------------------------------------------------------- */

/* Simulates here. Returns the time in ns. */
static int64_t simulate(const struct pipeline *p)
{
    struct ht_error err = {0};
    struct ht_trace *t;
    struct ht_sim_options o = {.iterations = 1};
    if (ht_sim_run(p->s, p->costs.ns, &o, &err, &t) != HT_OK) die("simulation", err.text);
    int64_t end_ns = t->end_ns;
    ht_trace_destroy(t);
    return end_ns;
}

static void check_closed_form(int32_t batches)
{
    struct pipeline plain = {0};
    make_pipeline(&plain, batches);
    struct bench_activities g = activities_of(&plain);
    int64_t want_ns = (batches + RANKS - 1) * (forward_ns + backward_ns);
    double want_s = 1e-9 * (double)want_ns;
    if (simulate(&plain) != want_ns) die("plain pipeline", "not (M + P - 1) (f + b) here");
    for (int all = 0; all < 2; all++)
        if (fabs(bench_simgrid_run(&g, all).end_s - want_s) > 1e-9 * want_s)
            die("plain pipeline", "not (M + P - 1) (f + b) in SimGrid");
    printf("checked: 1F1B without copies, %d micro-batches: (M + P - 1) (f + b) = %.3f s in both\n", batches, want_s);
    free_activities(&g);
    free_pipeline(&plain);
}

/* Prints the time per activity of a graph's samples, and returns its median. */
static double print(const char *what, double *s, int runs, int32_t n)
{
    struct bench_spread x = bench_spread_of(s, runs);
    printf("  %-34s %9.1f ns per activity (%.1f to %.1f)  %7.3fe6 activities/s\n", what, 1e9 * x.median / n,
           1e9 * x.low / n, 1e9 * x.high / n, 1e-6 * n / x.median);
    return x.median;
}

/* Measures a graph. all: as of bench_simgrid_run. */
static void measure(int32_t batches, int runs, bool all)
{
    double ours[99], ours_built[99], theirs[99], theirs_built[99], end_s = 0;
    int64_t end_ns = 0;
    int32_t n = 0, n_ops = 0;
    for (int i = -1; i < runs; i++) { /* -1: warm-up */
        struct pipeline p = {.full = true};
        double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        make_pipeline(&p, batches);
        double made = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        /* The trace is freed within, on this side only. */
        end_ns = simulate(&p);
        double ran = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        struct bench_activities g = activities_of(&p);
        struct bench_simgrid_times t = bench_simgrid_run(&g, all);
        end_s = t.end_s, n = g.n, n_ops = p.s->n_ops;
        free_activities(&g);
        free_pipeline(&p);
        if (i < 0) continue;
        ours[i] = ran - made, ours_built[i] = ran - start;
        theirs[i] = t.run_s, theirs_built[i] = t.build_s + t.run_s;
    }
    printf("%d ops, %d activities; simulated %.4f s here, %.4f s in SimGrid; n = %d\n", n_ops, n, 1e-9 * (double)end_ns,
           end_s, runs);
    double a = print("simulator", ours, runs, n), b = print("simulator, and building", ours_built, runs, n);
    double c = print(all ? "SimGrid, all made before" : "SimGrid, each made in time", theirs, runs, n);
    /* Activities that are made one by one are made while it runs. */
    double d = all ? print("SimGrid, all made before, and making", theirs_built, runs, n) : c;
    printf("  ratio %.1f, with building %.1f\n", c / a, d / b);
}

int main(int argc, char **argv)
{
    int64_t n_ops = argc > 1 ? atoll(argv[1]) : 100000;
    int runs = argc > 2 ? atoi(argv[2]) : 9;
    if (n_ops < 10000 || n_ops > 1000000 || runs < 1 || runs > 99) {
        fprintf(stderr, "usage: bench_simgrid [OPS 10000..1000000] [RUNS 1..99]\n");
        return 2;
    }
    int32_t batches = (int32_t)(n_ops / (RANKS * 8 - 4)) + 1, fewer = (int32_t)(n_ops / 10 / (RANKS * 8 - 4)) + 1;
    struct pipeline p = {.full = true};
    make_pipeline(&p, 1);
    open_platform(&p);
    free_pipeline(&p);
    int version[2];
    bench_simgrid_version(version);
    printf("SimGrid %d.%d\n", version[0], version[1]);
    check_closed_form(fewer);
    measure(batches, runs, false);
    measure(fewer, runs, true);
    return 0;
}
