/*
 * Measures the speed of the simulator.
 *
 *     bench_sim [OPS] [RUNS] [ITERATIONS]      default: 100000 ops, median of 9 runs, 1 iteration
 *
 * The graph: bench/pipeline_1f1b.h.
 *
 * Before anything is timed: the verifier proves the graph (up to a million ops), and the same pipeline without copies
 * and with free messages must take exactly (M + P - 1) (f + b).
 *
 * Timed, as CPU time of the one thread (it never waits), is ht_sim_run as a whole, set-up and trace included. Beside
 * it, in the same process, a bare event loop over the same ops and edges: a heap, counters and FIFO lanes, without
 * memory, sharing, groups or iterations; what is lost against it is what the rules cost. SimGrid: bench_simgrid.
 */
#include "common/exec/sim.h"
#include "common/schedule/verify.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "bench/pipeline_1f1b.h"
#include "bench/timing.h"
#include <unistd.h>

/* ---- the bare loop --------------------------------------------------------------------------------------------- */

struct event {
    int64_t time_ns;
    int32_t op;
};

static void push(struct event *heap, int32_t *n, struct event e)
{
    int32_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2].time_ns > e.time_ns; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static struct event pop(struct event *heap, int32_t *n)
{
    struct event top = heap[0], last = heap[--*n];
    int32_t i = 0;
    for (int32_t c; (c = 2 * i + 1) < *n; i = c) {
        if (c + 1 < *n && heap[c + 1].time_ns < heap[c].time_ns) c++;
        if (last.time_ns <= heap[c].time_ns) break;
        heap[i] = heap[c];
    }
    heap[i] = last;
    return top;
}

struct bare {
    int32_t *pending, *succ, *lane_ops;
    int64_t *succ_begin, *end_ns;
    int32_t *lane_next, *lane_end;
    bool *busy;
    struct event *heap;
    int32_t n_heap;
};

static void bare_start(const struct pipeline *p, struct bare *b, int32_t lane, int64_t now)
{
    if (b->busy[lane] || b->lane_next[lane] == b->lane_end[lane] || b->pending[b->lane_ops[b->lane_next[lane]]]) return;
    int32_t op = b->lane_ops[b->lane_next[lane]++];
    b->busy[lane] = true;
    push(b->heap, &b->n_heap, (struct event){now + p->costs.ns[op], op});
}

/* Returns how many ops it ran. */
static int64_t bare_run(const struct pipeline *p)
{
    const struct ht_schedule *s = p->s;
    int32_t n = s->n_ops;
    struct bare b = {.pending = HT_NEW_ARRAY(int32_t, n),
                     .succ = HT_NEW_ARRAY(int32_t, s->deps_begin[n]),
                     .lane_ops = HT_NEW_ARRAY(int32_t, n),
                     .succ_begin = HT_NEW_ARRAY(int64_t, n + 2),
                     .end_ns = HT_NEW_ARRAY(int64_t, n),
                     .lane_next = HT_NEW_ARRAY(int32_t, s->n_lanes + 1),
                     .lane_end = HT_NEW_ARRAY(int32_t, s->n_lanes),
                     .busy = HT_NEW_ARRAY(bool, s->n_lanes),
                     .heap = HT_NEW_ARRAY(struct event, s->n_lanes)};
    for (int32_t op = 0; op < n; op++) b.lane_next[s->ops[op].lane + 1]++;
    for (int32_t l = 0; l < s->n_lanes; l++) b.lane_end[l] = b.lane_next[l + 1] += b.lane_next[l];
    int32_t *at = HT_NEW_ARRAY(int32_t, s->n_lanes);
    memcpy(at, b.lane_next, sizeof(*at) * (size_t)s->n_lanes);
    for (int32_t op = 0; op < n; op++) {
        b.lane_ops[at[s->ops[op].lane]++] = op;
        b.pending[op] = (int32_t)(s->deps_begin[op + 1] - s->deps_begin[op]);
    }
    for (int64_t d = 0; d < s->deps_begin[n]; d++) b.succ_begin[s->deps[d] + 2]++;
    for (int32_t op = 0; op < n; op++) b.succ_begin[op + 2] += b.succ_begin[op + 1];
    for (int32_t op = 0; op < n; op++)
        for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) b.succ[b.succ_begin[s->deps[d] + 1]++] = op;
    int64_t done = 0;
    for (int32_t l = 0; l < s->n_lanes; l++) bare_start(p, &b, l, 0);
    for (; b.n_heap; done++) {
        struct event e = pop(b.heap, &b.n_heap);
        b.end_ns[e.op] = e.time_ns;
        b.busy[s->ops[e.op].lane] = false;
        for (int64_t d = b.succ_begin[e.op]; d < b.succ_begin[e.op + 1]; d++)
            if (--b.pending[b.succ[d]] == 0) bare_start(p, &b, s->ops[b.succ[d]].lane, e.time_ns);
        bare_start(p, &b, s->ops[e.op].lane, e.time_ns);
    }
    free(b.pending);
    free(b.succ);
    free(b.lane_ops);
    free(b.succ_begin);
    free(b.end_ns);
    free(b.lane_next);
    free(b.lane_end);
    free(b.busy);
    free(b.heap);
    free(at);
    return done;
}

/* ---- measuring ------------------------------------------------------------------------------------------------- */

/* A field of /proc/self/status in bytes, or 0. */
static int64_t status_bytes(const char *key)
{
    char line[128];
    int64_t kb = 0;
    FILE *in = fopen("/proc/self/status", "r");
    while (in && fgets(line, sizeof(line), in))
        if (!strncmp(line, key, strlen(key))) kb = atoll(line + strlen(key) + 1);
    if (in) fclose(in);
    return kb * 1024;
}

static void reset_peak(void)
{
    FILE *out = fopen("/proc/self/clear_refs", "w");
    if (!out) return;
    fputs("5", out);
    fclose(out);
}

static void die(const char *what, const struct ht_error *err)
{
    fprintf(stderr, "bench_sim: %s: %s\n", what, err->text);
    exit(1);
}

static void check_closed_form(int32_t batches)
{
    struct pipeline plain = {0};
    make_pipeline(&plain, batches);
    struct ht_error err = {0};
    struct ht_trace *t;
    struct ht_sim_options o = {.iterations = 1};
    if (ht_sim_run(plain.s, plain.costs.ns, &o, &err, &t) != HT_OK) die("plain pipeline", &err);
    int64_t want = (batches + RANKS - 1) * (forward_ns + backward_ns);
    if (t->end_ns != want) {
        ht_fail(&err, HT_FAILED, "took %" PRId64 " ns, not (M + P - 1) (f + b) = %" PRId64, t->end_ns, want);
        die("plain pipeline", &err);
    }
    printf("checked: 1F1B without copies, %d micro-batches, %d ops: (M + P - 1) (f + b) = %.3f s exactly\n", batches,
           plain.s->n_ops, 1e-9 * (double)want);
    ht_trace_destroy(t);
    free_pipeline(&plain);
}

int main(int argc, char **argv)
{
    int64_t n_ops = argc > 1 ? atoll(argv[1]) : 100000;
    int runs = argc > 2 ? atoi(argv[2]) : 9, iterations = argc > 3 ? atoi(argv[3]) : 1;
    if (n_ops < 1000 || n_ops > 20000000 || runs < 1 || runs > 99 || iterations < 1 || iterations > 100) {
        fprintf(stderr, "usage: bench_sim [OPS 1000..20000000] [RUNS 1..99] [ITERATIONS 1..100]\n");
        return 2;
    }
    int32_t batches = (int32_t)(n_ops / (RANKS * 8 - 4)) + 1;
    check_closed_form(batches);
    struct pipeline p = {.full = true};
    make_pipeline(&p, batches);
    struct ht_error err = {0};
    if (n_ops <= 1000000) {
        if (ht_schedule_verify(p.s, &err, NULL) != HT_OK) die("verifier", &err);
        printf("checked: the verifier proves the full graph\n");
    }
    double sim_s[99], bare_s[99];
    int64_t events = (int64_t)p.s->n_ops * iterations, held = 0, end_ns = 0;
    struct ht_sim_options o = {.iterations = iterations};
    for (int i = -1; i < runs; i++) { /* -1: warm-up */
        struct ht_trace *t;
        malloc_trim(0); /* or it would reuse pages that were freed before, uncounted */
        int64_t before = status_bytes("VmRSS");
        reset_peak();
        double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        if (ht_sim_run(p.s, p.costs.ns, &o, &err, &t) != HT_OK) die("simulation", &err);
        double sim = bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
        int64_t peak = status_bytes("VmHWM") - before;
        if (i >= 0 && peak > held) held = peak; /* the warm-up reads code, too */
        if (i > 0 && t->end_ns != end_ns) die("simulation", &(struct ht_error){.text = "two runs differ"});
        end_ns = t->end_ns;
        ht_trace_destroy(t);
        start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        if (bare_run(&p) != p.s->n_ops) die("bare loop", &(struct ht_error){.text = "ops are missing"});
        double bare = bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
        if (i < 0) continue;
        sim_s[i] = sim / (double)events;
        bare_s[i] = bare / p.s->n_ops;
    }
    struct bench_spread a = bench_spread_of(sim_s, runs), b = bench_spread_of(bare_s, runs);
    printf("%d ops x %d iterations, %" PRId64 " edges, %" PRId64 " effects, %" PRId64
           " uses; simulated %.3f s; n = %d\n",
           p.s->n_ops, iterations, p.s->deps_begin[p.s->n_ops], p.s->effects_begin[p.s->n_ops],
           p.s->uses_begin[p.s->n_ops], 1e-9 * (double)end_ns, runs);
    printf("simulator   %7.1f ns/op (%.1f to %.1f)  %6.2fe6 ops/s  %.0f bytes/op beside the graph\n", 1e9 * a.median,
           1e9 * a.low, 1e9 * a.high, 1e-6 / a.median, (double)held / (double)p.s->n_ops);
    printf("bare loop   %7.1f ns/op (%.1f to %.1f)  %6.2fe6 ops/s\n", 1e9 * b.median, 1e9 * b.low, 1e9 * b.high,
           1e-6 / b.median);
    printf("ratio       %7.2f\n", a.median / b.median);
    free_pipeline(&p);
    return 0;
}
