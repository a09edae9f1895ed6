/*
 * Measures the cost of the real executor, without the ops' own work.
 *
 *     lane     a chain of empty ops on one lane: ns an op. Nothing sleeps; it is all bookkeeping.
 *     hand-off empty ops that alternate between two lanes: ns from one lane to the other, beside what two bare threads
 *              need that wake each other through futexes (the least that any hand-off between sleeping threads costs).
 *     fan-out  one op makes an op ready on each of n - 1 other lanes, which join again: ns a round
 *     memory   the chain again, with one allocation and one release an op
 *
 * Every run is checked first: all ops ran, in order, and the trace's times are in order. Then 9 rounds; median and
 * spread (largest - smallest, over the median). `--check` exits 1 when a target is missed: 1000 ns an op within a
 * lane, 1.5 times the bare ping-pong across lanes.
 */
#include "common/base/array.h"
#include "common/base/futex.h"
#include "common/base/pool.h"
#include "common/exec/run.h"
#include "common/mem/arena.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/timing.h"

enum { ROUNDS = 9, OPS = 2000, ITERATIONS = 20, PING_PONGS = 20000 };

struct sample {
    double median, spread;
};

static struct sample summarise(double v[ROUNDS])
{
    struct bench_spread s = bench_spread_of(v, ROUNDS);
    return (struct sample){s.median, (s.high - s.low) / s.median};
}

static int cpus[CPU_SETSIZE], n_cpus; /* those that the process may use; set once by main */

static void list_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set)) return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((size_t)i, &set)) cpus[n_cpus++] = i;
}

/* Pins the calling thread to the i-th CPU, going round. Unpinned, two threads that take turns are moved onto one core
   at times and apart at others, which changes their hand-off several-fold. */
static void pin_to(int i)
{
    if (n_cpus) ht_pool_pin_self(cpus[i % n_cpus]);
}

/* ---- the executor ---- */

struct order {
    _Atomic int64_t ran;
    int64_t n_ops;
    _Atomic bool wrong;
    bool chain;  /* op ids must come in order */
    int n_awake; /* lanes below this have a core of their own */
};

static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct order *o = ctx;
    (void)buffers, (void)n, (void)err;
    int64_t at = atomic_fetch_add_explicit(&o->ran, 1, memory_order_relaxed);
    if (o->chain && at != iteration * o->n_ops + op) o->wrong = true;
    return HT_OK;
}

static void lane_begin(void *ctx, int32_t lane)
{
    (void)ctx;
    pin_to(lane);
}

static bool has_dedicated_core(void *ctx, int32_t lane)
{
    const struct order *o = ctx;
    return lane < o->n_awake && n_cpus > 1;
}

static const struct ht_backend_ops backend = {
    .name = "empty", .lane_begin = lane_begin, .has_dedicated_core = has_dedicated_core, .run_op = run_op};

/* Runs the schedule once; ns per iteration, -1 when something is wrong. */
static double time_run(const struct ht_schedule *s, bool chain, int n_awake)
{
    struct ht_error err = {0};
    struct ht_arena *arenas[4] = {0}, *arena = NULL;
    if (ht_arena_create(1 << 20, 0, true, &err, &arena)) return -1;
    arenas[0] = arena;
    struct order order = {.n_ops = s->n_ops, .chain = chain, .n_awake = n_awake};
    struct ht_run_options o = {.iterations = ITERATIONS, .backend = &backend, .backend_ctx = &order, .arenas = arenas};
    struct ht_trace *t;
    enum ht_status status = ht_run(s, &o, &err, &t);
    if (status) {
        fprintf(stderr, "bench_exec: %s\n", err.text);
        ht_arena_destroy(arena);
        return -1;
    }
    bool ok = !order.wrong && order.ran == (int64_t)ITERATIONS * s->n_ops && ht_arena_stats(arena).live_bytes == 0;
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i];
        ok &= e->issue_ns <= e->start_ns && e->start_ns <= e->end_ns && e->grant_seq < e->release_seq;
    }
    /* The first iteration is the warm-up. */
    double ns = (double)(t->end_ns - t->iteration_end_ns[0]) / (ITERATIONS - 1);
    ht_trace_destroy(t);
    ht_arena_destroy(arena);
    return ok ? ns : -1;
}

static const struct ht_label nothing = {.unit = -1, .micro_batch = -1};

/* OPS ops, each after the one before, going round over the lanes; with memory: each has a scratch buffer. */
static struct ht_schedule *make_chain(int n_lanes, bool memory)
{
    struct ht_schedule *s = ht_schedule_create("chain", 1, 1, NULL);
    for (int i = 0; i < n_lanes; i++) {
        char name[16];
        snprintf(name, sizeof(name), "lane%d", i);
        ht_add_lane(s, name, i ? HT_LANE_HOST : HT_LANE_COMPUTE, 0, HT_FIFO);
    }
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 1 << 20);
    int32_t work = ht_add_work(s, &(struct ht_work){.custom = "empty"});
    int32_t tensor = ht_add_tensor(s, (struct ht_tensor){.class = HT_WORKSPACE, .label = nothing, .bytes = 4096});
    for (int i = 0; i < OPS; i++) {
        int32_t op = ht_add_op(s, HT_OP_COPY, i % n_lanes, nothing, work);
        ht_op_after(s, op - 1);
        if (op == 0) ht_op_after_prev(s, OPS - 1);
        if (memory) ht_op_effect(s, tensor, HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    }
    return s;
}

/* A diamond a round: lane 0, then all the others, then lane 0. */
static struct ht_schedule *make_fans(int n_lanes, int rounds)
{
    struct ht_schedule *s = make_chain(n_lanes, false);
    struct ht_schedule *f = ht_schedule_create("fans", 1, 1, NULL);
    for (int i = 0; i < n_lanes; i++) ht_add_lane(f, s->lanes[i].name, s->lanes[i].kind, 0, HT_FIFO);
    ht_schedule_destroy(s);
    int32_t work = ht_add_work(f, &(struct ht_work){.custom = "empty"}), hub = -1;
    for (int r = 0; r < rounds; r++) {
        int32_t spokes_end;
        int32_t next = ht_add_op(f, HT_OP_COPY, 0, nothing, work);
        for (int32_t spoke = hub + 1; hub >= 0 && spoke < next; spoke++) ht_op_after(f, spoke);
        hub = next;
        for (int i = 1; i < n_lanes; i++) {
            spokes_end = ht_add_op(f, HT_OP_COPY, i, nothing, work);
            ht_op_after(f, hub);
            (void)spokes_end;
        }
    }
    return f;
}

/* ---- the bare ping-pong ---- */

struct pair {
    _Alignas(64) atomic_uint ping;
    _Alignas(64) atomic_uint pong;
    int n;
};

static void wait_for(atomic_uint *word, unsigned value)
{
    for (unsigned seen; (seen = atomic_load_explicit(word, memory_order_acquire)) != value;) ht_futex_wait(word, seen);
}

static void tell(atomic_uint *word, unsigned value)
{
    atomic_store_explicit(word, value, memory_order_release);
    ht_futex_wake(word, 1);
}

static void *answer(void *arg)
{
    struct pair *p = arg;
    pin_to(1);
    for (int i = 1; i <= p->n; i++) {
        wait_for(&p->ping, (unsigned)i);
        tell(&p->pong, (unsigned)i);
    }
    return NULL;
}

/* ns for one hand-off, in one direction. */
static double time_ping_pong(void)
{
    struct pair p = {.n = PING_PONGS};
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer, &p)) return -1;
    double begin = 0;
    pin_to(0);
    for (int i = 1; i <= p.n; i++) {
        if (i == p.n / 10) begin = 1e9 * bench_now_s(); /* before that: warm-up */
        tell(&p.ping, (unsigned)i);
        wait_for(&p.pong, (unsigned)i);
    }
    double end = 1e9 * bench_now_s();
    pthread_join(thread, NULL);
    return (end - begin) / (2.0 * (p.n - p.n / 10 + 1));
}

/* ---- */

struct row {
    const char *what;
    struct ht_schedule *s;
    bool chain;
    int n_awake;
    int per_iteration; /* what is timed: an iteration has so many */
    double v[ROUNDS];
    struct sample sample;
};

static void print_row(const char *what, struct sample s)
{
    printf("%-44s %9.0f  %4.0f%%\n", what, s.median, 100 * s.spread);
}

int main(int argc, char **argv)
{
    list_cpus();
    bool check = argc > 1 && strcmp(argv[1], "--check") == 0;
    enum { FAN_LANES = 5, FAN_ROUNDS = 500, N = 6 };
    struct row rows[N] = {
        {.what = "op within a lane", .s = make_chain(1, false), .chain = true, .n_awake = 0, .per_iteration = OPS},
        {.what = "  with one buffer allocated and freed",
         .s = make_chain(1, true),
         .chain = true,
         .n_awake = 0,
         .per_iteration = OPS},
        {.what = "hand-off to another lane",
         .s = make_chain(2, false),
         .chain = true,
         .n_awake = 0,
         .per_iteration = OPS},
        {.what = "  where one of the two has its own core",
         .s = make_chain(2, false),
         .chain = true,
         .n_awake = 1,
         .per_iteration = OPS},
        {.what = "  where both have", .s = make_chain(2, false), .chain = true, .n_awake = 2, .per_iteration = OPS},
        {.what = "fan-out to 4 lanes and back",
         .s = make_fans(FAN_LANES, FAN_ROUNDS),
         .chain = false,
         .n_awake = 0,
         .per_iteration = FAN_ROUNDS},
    };
    double bare[ROUNDS];
    int rc = 0;
    for (int round = -1; round < ROUNDS && !rc; round++) {
        /* All in every round, so that whatever else runs here meets all of them alike. Round -1 is the warm-up. */
        for (int i = 0; i < N; i++) {
            double ns = time_run(rows[i].s, rows[i].chain, rows[i].n_awake) / rows[i].per_iteration;
            if (ns < 0) rc = 1;
            if (round >= 0) rows[i].v[round] = ns;
        }
        double ns = time_ping_pong();
        if (ns < 0) rc = 1;
        if (round >= 0) bare[round] = ns;
    }
    for (int i = 0; i < N; i++) ht_schedule_destroy(rows[i].s);
    if (rc) {
        fprintf(stderr, "bench_exec: a run went wrong; nothing was timed\n");
        return 1;
    }
    printf("%-44s %9s  %s\n", "median of 9", "ns", "spread");
    for (int i = 0; i < N; i++) print_row(rows[i].what, rows[i].sample = summarise(rows[i].v));
    struct sample ping = summarise(bare);
    print_row("hand-off between bare threads (futex)", ping);
    double ratio = rows[2].sample.median / ping.median;
    printf("hand-off / bare = %.2f (target 1.5); op within a lane: target 1000 ns; %d CPUs\n", ratio, n_cpus);
    return check && (ratio > 1.5 || rows[0].sample.median > 1000);
}
