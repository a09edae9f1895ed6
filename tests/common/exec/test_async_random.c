/*
 * The real executor on random schedules whose device lanes are streams, issued two ops ahead.
 *
 * Hazards are proved on real bytes (tests/support/stamps.h): the streams are threads (tests/support/streams.h), and
 * what they do is ordered by nothing but their events. Then conformance: where ops end in the order in which the
 * simulator says, memory is granted in the simulator's order too, and the peaks are the simulator's.
 */
#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/rng.h"
#include "common/exec/core.h"
#include "common/exec/run.h"
#include "common/exec/sim.h"
#include "common/mem/arena.h"
#include "common/schedule/verify.h"
#include "tests/support/arenas.h"
#include "tests/support/filled.h"
#include "tests/support/random_graph.h"
#include "tests/support/stamps.h"
#include "tests/support/streams.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ITERATIONS = STAMPS_ITERATIONS, AHEAD = 2, PARITIES = 3 };

/* An enqueued op: its buffers, and its result. */
struct enqueued_op {
    struct world *w;
    int32_t iteration, op, n;
    struct ht_buffer *buffers;
    enum ht_status status;
    struct ht_error err;
    struct stream_event *begin, *end;
    atomic_bool ended_on_host; /* the host knows its end */
    int32_t met, met_in;       /* of a group's first member: members that have come, and in which iteration, plus 1 */
};

struct world {
    struct stamps stamps; /* first: it is the context of the hooks, too */
    struct streams *device;
    struct stream **lanes;                        /* [n_lanes] */
    struct enqueued_op *in_flight;                /* [n_ops * PARITIES] */
    _Atomic int64_t n_enqueued, n_awaited, n_met; /* n_met: groups */

    /* Conformance only: ops end in this order. */
    const int32_t *rank; /* [ITERATIONS * n_ops], -1: never */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int32_t next;
    bool given_up;
    bool job_failed; /* under the lock, too; always */
};

static struct enqueued_op *in_flight_of(struct world *w, int32_t iteration, int32_t op)
{
    return &w->in_flight[(int64_t)op * PARITIES + iteration % PARITIES];
}

/* Holds an op's end back until the ops that should end before it have ended, as far as this thread can tell. If they
   end in another order all the same, the awaited one may never come: then nothing is held back any more. */
static void take_turn(struct world *w, int32_t iteration, int32_t op)
{
    enum { GIVE_UP_S = 2, PAUSE_NS = 200000 };
    struct timespec until, pause = {.tv_nsec = PAUSE_NS};
    if (!w->rank) return;
    int32_t rank = w->rank[(int64_t)iteration * w->stamps.s->n_ops + op];
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GIVE_UP_S;
    pthread_mutex_lock(&w->lock);
    while (w->next < rank && !w->given_up)
        if (pthread_cond_timedwait(&w->moved, &w->lock, &until)) w->given_up = true;
    bool in_time = !w->given_up;
    pthread_mutex_unlock(&w->lock);
    /* The previous op has left this function; it still has to get through the executor. */
    if (in_time) nanosleep(&pause, NULL);
    pthread_mutex_lock(&w->lock);
    w->next++;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

/* ---- the backend ---- */

static bool is_async(void *ctx, int32_t op)
{
    struct world *w = ctx;
    const struct ht_schedule *s = w->stamps.s;
    enum ht_lane_kind kind = s->lanes[s->ops[op].lane].kind;
    if (kind == HT_LANE_HOST || kind == HT_LANE_DISK) return false;
    int32_t first = op; /* of the group, whose members are alike */
    while (first > 0 && s->ops[op].match >= 0 && s->ops[first - 1].match == s->ops[op].match) first--;
    return ht_random_below(w->stamps.seed + 3, (uint64_t)first, 8) > 0; /* some ops in between are not enqueued */
}

/* Lets some ops depend on the host's knowledge of their dependencies in the previous iteration. */
static int32_t host_deps(void *ctx, int32_t op, const int32_t **ops)
{
    const struct world *w = ctx;
    const struct ht_schedule *s = w->stamps.s;
    if (ht_random_below(w->stamps.seed + 4, (uint64_t)op, 3)) return 0;
    *ops = &s->prev[s->prev_begin[op]];
    return (int32_t)(s->prev_begin[op + 1] - s->prev_begin[op]);
}

static void check_heard(struct world *w, int32_t iteration, int32_t op)
{
    const int32_t *ops;
    int32_t n = iteration ? host_deps(w, op, &ops) : 0;
    for (int32_t i = 0; i < n; i++) {
        const struct enqueued_op *f = in_flight_of(w, iteration - 1, ops[i]);
        if (f->w && f->iteration == iteration - 1)
            ck_assert(f->ended_on_host); /* else it was skipped, or not enqueued */
    }
    w->n_awaited += n;
}

/* Holds a member of a group, and its stream, until the other members have come: as a kernel of NCCL. */
static void meet(struct world *w, int32_t iteration, int32_t op)
{
    const struct ht_schedule *s = w->stamps.s;
    int32_t match = s->ops[op].match, first = op, n = 0;
    if (match < 0) return;
    while (first > 0 && s->ops[first - 1].match == match) first--;
    while (first + n < s->n_ops && s->ops[first + n].match == match) n++;
    struct enqueued_op *f = in_flight_of(w, iteration, first);
    pthread_mutex_lock(&w->lock);
    if (f->met_in != iteration + 1) f->met = 0;
    f->met_in = iteration + 1;
    f->met++;
    w->n_met += f->met == n;
    pthread_cond_broadcast(&w->moved);
    while (f->met_in == iteration + 1 && f->met < n && !w->job_failed) pthread_cond_wait(&w->moved, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

static void give_up(void *ctx)
{
    struct world *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->job_failed = true;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static void fly(void *arg)
{
    struct enqueued_op *f = *(struct enqueued_op **)arg;
    meet(f->w, f->iteration, f->op);
    f->status = stamps_run_op(&f->w->stamps, f->iteration, f->op, f->buffers, f->n, &f->err);
}

static enum ht_status enqueue(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                              const struct ht_inst *after, int32_t n_after, struct ht_error *err)
{
    struct world *w = ctx;
    struct enqueued_op *f = in_flight_of(w, iteration, op);
    struct stream *stream = w->lanes[w->stamps.s->ops[op].lane];
    (void)err;
    check_heard(w, iteration, op);
    f->ended_on_host = false;
    f->w = w, f->iteration = iteration, f->op = op, f->n = n;
    if (!f->buffers) f->buffers = HT_NEW_ARRAY(struct ht_buffer, n);
    memcpy(f->buffers, buffers, sizeof(*buffers) * (size_t)n);
    for (int32_t i = 0; i < n_after; i++) {
        struct enqueued_op *before = in_flight_of(w, after[i].iteration, after[i].op);
        ck_assert(is_async(w, after[i].op) && before->iteration == after[i].iteration);
        ck_assert_int_eq(ht_op_rank(w->stamps.s, after[i].op), ht_op_rank(w->stamps.s, op));
        stream_wait(stream, before->end);
    }
    stream_record(stream, f->begin);
    stream_do(stream, fly, &f, sizeof(f));
    stream_record(stream, f->end);
    w->n_enqueued++;
    return HT_OK;
}

static enum ht_status wait_op(void *ctx, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct enqueued_op *f = in_flight_of(ctx, iteration, op);
    stream_event_finish(f->end);
    ck_assert(f->iteration == iteration);
    take_turn(ctx, iteration, op);
    f->ended_on_host = true;
    if (f->status) *err = f->err;
    return f->status;
}

static void op_times(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns)
{
    struct enqueued_op *f = in_flight_of(ctx, iteration, op);
    *start_ns = stream_event_ns(f->begin);
    *end_ns = stream_event_ns(f->end);
}

static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                             struct ht_error *err)
{
    struct world *w = ctx;
    enum ht_status status = stamps_run_op(&w->stamps, iteration, op, b, n, err);
    take_turn(w, iteration, op);
    return status;
}

static void drain(void *ctx)
{
    struct world *w = ctx;
    for (int32_t i = 0; i < w->stamps.s->n_lanes; i++) stream_finish(w->lanes[i]);
}

static const struct ht_backend_ops backend = {.name = "streams",
                                              .run_op = run_op,
                                              .control = stamps_control,
                                              .issue_ahead = AHEAD,
                                              .is_async = is_async,
                                              .host_deps = host_deps,
                                              .enqueue = enqueue,
                                              .wait = wait_op,
                                              .op_times = op_times,
                                              .give_up = give_up,
                                              .drain = drain};

static void open_world(struct world *w)
{
    const struct ht_schedule *s = w->stamps.s;
    stamps_expect(&w->stamps);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->moved, NULL);
    w->device = streams_create();
    w->lanes = HT_NEW_ARRAY(struct stream *, s->n_lanes);
    for (int32_t i = 0; i < s->n_lanes; i++) w->lanes[i] = stream_create(w->device);
    w->in_flight = HT_NEW_ARRAY(struct enqueued_op, (int64_t)s->n_ops * PARITIES);
    for (int64_t i = 0; i < (int64_t)s->n_ops * PARITIES; i++) {
        w->in_flight[i].begin = stream_event_create(w->device);
        w->in_flight[i].end = stream_event_create(w->device);
    }
}

static void close_world(struct world *w)
{
    const struct ht_schedule *s = w->stamps.s;
    for (int32_t i = 0; i < s->n_lanes; i++) stream_destroy(w->lanes[i]);
    for (int64_t i = 0; i < (int64_t)s->n_ops * PARITIES; i++) {
        stream_event_destroy(w->in_flight[i].begin);
        stream_event_destroy(w->in_flight[i].end);
        free(w->in_flight[i].buffers);
    }
    streams_destroy(w->device);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->moved);
    free(w->in_flight);
    free(w->lanes);
    stamps_free(&w->stamps);
}

/* ---- the rules, read off the trace ---- */

static bool ran(const struct ht_trace_event *e)
{
    return e->grant_seq >= 0;
}

static void check_before(const struct ht_trace_event *a, const struct ht_trace_event *b)
{
    if (ran(a)) ck_assert(a->release_seq < b->release_seq && a->end_ns <= b->start_ns);
}

static void check_trace(const struct ht_trace *t)
{
    const struct ht_schedule *s = t->schedule;
    for (int32_t k = 0; k < t->iterations; k++)
        for (int32_t op = 0; op < s->n_ops; op++) {
            const struct ht_trace_event *e = &t->events[(int64_t)k * s->n_ops + op];
            if (!ran(e)) continue;
            ck_assert(e->issue_ns <= e->start_ns && e->start_ns <= e->end_ns && e->end_ns <= t->iteration_end_ns[k]);
            ck_assert_int_lt(e->grant_seq, e->release_seq);
            for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++)
                check_before(&t->events[(int64_t)k * s->n_ops + s->deps[d]], e);
            for (int64_t d = s->prev_begin[op]; k && d < s->prev_begin[op + 1]; d++)
                check_before(&t->events[(int64_t)(k - 1) * s->n_ops + s->prev[d]], e);
        }
}

static void check_memory(const struct ht_trace *t, struct ht_arena **arenas)
{
    int64_t *peak = HT_NEW_ARRAY(int64_t, ht_n_spaces(t->schedule));
    struct ht_error err = {0};
    ck_assert_msg(ht_trace_replay(t, &err, peak) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < ht_n_spaces(t->schedule); i++) {
        struct ht_arena_stats st = ht_arena_stats(arenas[i]);
        ck_assert_int_eq(st.peak_bytes, t->peak_bytes[i]);
        ck_assert_int_le(t->peak_bytes[i], ht_space_bytes(t->schedule, i));
        if (t->iterations == ITERATIONS) ck_assert_int_eq(peak[i], st.peak_bytes);
    }
    free(peak);
}

/* ---- one graph ---- */

static struct ht_arena **make_arenas(const struct ht_schedule *s)
{
    struct ht_arena **arenas = HT_NEW_ARRAY(struct ht_arena *, ht_n_spaces(s));
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        int64_t capacity = s->capacity_bytes[i] > 1 << 20 ? 1 << 20 : s->capacity_bytes[i];
        arenas[i] = arena_of(s, i, capacity, 8 * capacity);
    }
    return arenas;
}

static enum ht_status run_world(struct world *w, struct ht_arena **arenas, struct ht_error *err, struct ht_trace **out)
{
    struct ht_run_options o = {.iterations = ITERATIONS,
                               .backend = &backend,
                               .backend_ctx = w,
                               .arenas = arenas,
                               .hooks_ctx = w,
                               .iteration_done = stamps_iteration_done};
    enum ht_status status = run_filled(w->stamps.s, o, stamps_init, stamps_final, w, err, out);
    ht_interrupt_set(false);
    for (int32_t i = 0; i < ht_n_spaces(w->stamps.s); i++) ck_assert_int_eq(ht_arena_stats(arenas[i]).live_bytes, 0);
    return status;
}

static void destroy_arenas(const struct ht_schedule *s, struct ht_arena **arenas)
{
    for (int32_t i = 0; i < ht_n_spaces(s); i++) arena_free(s, i, arenas[i]);
    free(arenas);
}

static struct random_graph_options options_of(uint64_t seed)
{
    struct random_graph_options o = random_graph_everything();
    o.may_oom = false;
    o.max_ranks = 1 + (int32_t)(seed % 3);
    o.max_ops = seed % 5 == 0 ? 120 : 40;
    return o;
}

static struct ht_schedule *make_graph(uint64_t seed, int64_t **cost_ns)
{
    struct ht_schedule *s = random_graph(seed, options_of(seed), cost_ns);
    struct ht_error err = {0};
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "seed %llu: %s", (unsigned long long)seed, err.text);
    return s;
}

enum fate { RUNS, FAILS, IS_INTERRUPTED };

static int64_t try_graph(uint64_t seed, enum fate fate, int64_t *n_awaited, int64_t *n_met)
{
    int64_t *cost_ns;
    struct ht_error err = {0};
    struct ht_schedule *s = make_graph(seed, &cost_ns);
    struct world w = {.stamps = {.s = s, .cost_ns = cost_ns, .seed = seed}};
    open_world(&w);
    int64_t at = w.stamps.n_run ? 1 + (int64_t)ht_random_below(seed, 99, (uint64_t)w.stamps.n_run) : 0;
    if (fate == FAILS) w.stamps.fail_at = at;
    if (fate == IS_INTERRUPTED) w.stamps.interrupt_at = at;
    struct ht_arena **arenas = make_arenas(s);
    struct ht_trace *t;
    enum ht_status status = run_world(&w, arenas, &err, &t);
    if (at && fate == FAILS) {
        ck_assert_msg(status == HT_FAILED && !strcmp(err.text, "as told"), "seed %llu: status %d: %s",
                      (unsigned long long)seed, status, err.text);
    } else {
        /* Ops that were enqueued when the interrupt came run, but are not part of the trace. */
        ck_assert_msg(status == (at && fate == IS_INTERRUPTED ? HT_INTERRUPTED : HT_OK), "seed %llu: status %d: %s",
                      (unsigned long long)seed, status, err.text);
        ck_assert_int_eq(w.stamps.n_done, t->iterations);
        if (status == HT_OK) ck_assert_int_eq(w.stamps.began, w.stamps.n_run);
        check_trace(t);
        check_memory(t, arenas);
    }
    int64_t n = w.n_enqueued;
    *n_awaited += w.n_awaited;
    *n_met += w.n_met;
    ht_trace_destroy(t);
    destroy_arenas(s, arenas);
    close_world(&w);
    free(cost_ns);
    ht_schedule_destroy(s);
    return n;
}

/* ---- conformance ---- */

/* Ranks ops by their end in the simulation. Returns false if two end at once, because the executor, which takes ends
   one by one, may then differ from the simulator. */
static bool order_of_ends(const struct ht_trace *t, int32_t *rank)
{
    for (int64_t i = 0; i < t->n_events; i++) {
        rank[i] = -1;
        if (!ran(&t->events[i])) continue;
        rank[i] = 0;
        for (int64_t j = 0; j < t->n_events; j++) {
            if (!ran(&t->events[j]) || i == j) continue;
            if (t->events[j].end_ns == t->events[i].end_ns) return false;
            rank[i] += t->events[j].release_seq < t->events[i].release_seq;
        }
    }
    return true;
}

enum conformity { TIES, OTHER_ORDER, SAME };

/* Grants and releases have common numbers, so equal numbers are an equal order. */
static void check_same(uint64_t seed, const struct ht_trace *sim, const struct ht_trace *real)
{
    for (int64_t i = 0; i < sim->n_events; i++)
        ck_assert_msg(sim->events[i].grant_seq == real->events[i].grant_seq,
                      "seed %llu: op %d of iteration %d: grant %lld, simulated %lld", (unsigned long long)seed,
                      ht_trace_op(sim, i), ht_trace_iteration(sim, i), (long long)real->events[i].grant_seq,
                      (long long)sim->events[i].grant_seq);
    for (int32_t i = 0; i < ht_n_spaces(sim->schedule); i++) ck_assert_int_eq(sim->peak_bytes[i], real->peak_bytes[i]);
}

static bool same_ends(const struct ht_trace *a, const int32_t *rank)
{
    for (int64_t i = 0; i < a->n_events; i++)
        for (int64_t j = 0; j < a->n_events; j++)
            if (rank[i] >= 0 && rank[j] > rank[i] && a->events[j].release_seq < a->events[i].release_seq) return false;
    return true;
}

static enum conformity conform(uint64_t seed, int64_t *n_ahead)
{
    int64_t *cost_ns;
    struct ht_error err = {0};
    struct ht_schedule *s = make_graph(seed, &cost_ns);
    struct world w = {.stamps = {.s = s, .cost_ns = cost_ns, .seed = seed}};
    bool bad[ITERATIONS];
    for (int32_t k = 0; k < ITERATIONS; k++) bad[k] = !stamps_outcome(&w.stamps, k);
    for (int32_t op = 0; op < s->n_ops; op++)
        cost_ns[op] = 1000 + (int64_t)ht_random_below(seed + 5, (uint64_t)op, 1 << 20);
    struct ht_sim_options o = {.iterations = ITERATIONS, .issue_ahead = AHEAD, .bad = bad};
    struct ht_trace *sim, *real = NULL;
    ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &sim) == HT_OK, "%s", err.text);
    int32_t *rank = HT_NEW_ARRAY(int32_t, sim->n_events);
    enum conformity result = TIES;
    if (order_of_ends(sim, rank)) {
        for (int32_t op = 0; op < s->n_ops; op++) cost_ns[op] = 0; /* ends are ordered, so it takes no time */
        w.rank = rank;
        open_world(&w);
        struct ht_arena **arenas = make_arenas(s);
        ck_assert_msg(run_world(&w, arenas, &err, &real) == HT_OK, "seed %llu: %s", (unsigned long long)seed, err.text);
        result = same_ends(real, rank) ? SAME : OTHER_ORDER;
        if (result == SAME) check_same(seed, sim, real);
        for (int64_t i = 0; i < sim->n_events; i++)
            *n_ahead += result == SAME && sim->events[i].issue_ns < sim->events[i].start_ns;
        destroy_arenas(s, arenas);
        close_world(&w);
    }
    ht_trace_destroy(sim);
    ht_trace_destroy(real);
    free(rank);
    free(cost_ns);
    ht_schedule_destroy(s);
    return result;
}

/* ---- tests ---- */

enum { GRAPHS_A_TEST = 20 };

static void try_graphs(uint64_t first, enum fate fate)
{
    int64_t n_enqueued = 0, n_awaited = 0, n_met = 0;
    for (uint64_t i = 0; i < GRAPHS_A_TEST; i++) n_enqueued += try_graph(first + i, fate, &n_awaited, &n_met);
    ck_assert_int_gt(n_enqueued, GRAPHS_A_TEST);
    ck_assert_int_gt(n_awaited, 0);
    ck_assert_int_gt(n_met, 0);
}

START_TEST(test_runs)
{
    try_graphs((uint64_t)_i * GRAPHS_A_TEST, RUNS);
}
END_TEST

START_TEST(test_fails)
{
    try_graphs(10000 + (uint64_t)_i * GRAPHS_A_TEST, FAILS);
}
END_TEST

START_TEST(test_interrupts)
{
    try_graphs(20000 + (uint64_t)_i * GRAPHS_A_TEST, IS_INTERRUPTED);
}
END_TEST

START_TEST(test_conforms)
{
    int n[3] = {0};
    int64_t n_ahead = 0;
    for (uint64_t i = 0; i < 100; i++) n[conform(30000 + i, &n_ahead)]++;
    printf("conformance: %d as simulated, %d with ends in another order, %d with ties; %lld ops issued ahead\n",
           n[SAME], n[OTHER_ORDER], n[TIES], (long long)n_ahead);
    ck_assert_int_ge(n[SAME], 25);
    ck_assert_int_gt(n_ahead, 200);
}
END_TEST

/* HT_SEED=43 HT_FATE=0 build/test_common_exec_async_random: one graph again. */
START_TEST(test_this_one)
{
    uint64_t seed = strtoull(getenv("HT_SEED"), NULL, 10);
    int64_t n_ahead = 0, n_awaited = 0, n_met = 0;
    if (getenv("HT_FATE") && !strcmp(getenv("HT_FATE"), "conform"))
        printf("%d\n", conform(seed, &n_ahead));
    else
        try_graph(seed, getenv("HT_FATE") ? (enum fate)atoi(getenv("HT_FATE")) : RUNS, &n_awaited, &n_met);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("async_random");
    TCase *tc = tcase_create("async_random");
    tcase_set_timeout(tc, 300);
    if (getenv("HT_SEED")) {
        tcase_add_test(tc, test_this_one);
    } else {
        tcase_add_loop_test(tc, test_runs, 0, 15);
        tcase_add_loop_test(tc, test_fails, 0, 5);
        tcase_add_loop_test(tc, test_interrupts, 0, 5);
        tcase_add_test(tc, test_conforms);
    }
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
