/*
 * The executor over several processes: random schedules with stamped buffers (tests/support/stamps.h), every rank's ops
 * in a process of its own, on one emulated node or several. This program starts itself again under mpirun.
 */
#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/comm/launch.h"
#include "common/exec/node.h"
#include "common/exec/residents.h"
#include "common/mem/arena.h"
#include "common/schedule/verify.h"
#include "tests/support/random_graph.h"
#include "tests/support/stamps.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRAPHS = 12, ITERATIONS = STAMPS_ITERATIONS };

/* A rank's command line: rank NODES FATE SEED. */
enum fate { RUNS, FAILS, IS_KILLED, IS_INTERRUPTED };
static const char *const fates[] = {"runs", "fails", "killed", "interrupted"};

static const struct ht_backend_ops backend = {.name = "stamps", .run_op = stamps_run_op, .control = stamps_control};

/* In the op that is fated: the rank is gone, as if the machine's memory had run out. */
static enum ht_status die_in_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *b, int32_t n,
                                struct ht_error *err)
{
    struct stamps *w = ctx;
    if (w->began + 1 == w->fail_at) raise(SIGKILL);
    return stamps_run_op(ctx, iteration, op, b, n, err);
}

static const struct ht_backend_ops deadly = {.name = "deadly", .run_op = die_in_op, .control = stamps_control};

/* A seed's graph with just these ranks; the next seed that has one. */
static struct ht_schedule *graph_of(uint64_t *seed, int32_t ranks, bool one_node, int64_t **cost_ns)
{
    struct random_graph_options o = random_graph_everything();
    o.may_oom = false;
    o.max_ranks = ranks;
    o.max_ops = 60;
    o.one_node = one_node;
    o.slow_tiers = one_node; /* nodes share no remote store */
    for (;; ++*seed) {
        struct ht_schedule *s = random_graph(*seed, o, cost_ns);
        if (s->n_ranks == ranks && (one_node || s->n_nodes > 1)) return s;
        ht_schedule_destroy(s);
        free(*cost_ns);
    }
}

static enum ht_status check_trace(const struct stamps *w, const struct ht_trace *t, struct ht_error *err)
{
    const struct ht_schedule *s = w->s;
    int64_t *peak = HT_NEW_ARRAY(int64_t, ht_n_spaces(s)), ran = 0;
    enum ht_status status = ht_trace_replay(t, err, peak);
    for (int32_t i = 0; i < ht_n_spaces(s) && !status && t->iterations == ITERATIONS; i++)
        if (peak[i] != t->peak_bytes[i] || peak[i] > ht_space_bytes(s, i))
            status = ht_fail(err, HT_FAILED, "space %d: replay's peak is %lld of %lld, the run's %lld", i,
                             (long long)peak[i], (long long)ht_space_bytes(s, i), (long long)t->peak_bytes[i]);
    for (int64_t i = 0; i < t->n_events && !status; i++) {
        const struct ht_trace_event *e = &t->events[i];
        int32_t op = ht_trace_op(t, i), k = ht_trace_iteration(t, i);
        ran += e->grant_seq >= 0;
        if (e->grant_seq >= 0 && (e->issue_ns < 0 || e->start_ns < e->issue_ns || e->end_ns < e->start_ns ||
                                  e->end_ns > t->iteration_end_ns[k]))
            status = ht_fail(err, HT_FAILED, "op %d: issued at %lld, ran from %lld to %lld, its iteration to %lld", op,
                             (long long)e->issue_ns, (long long)e->start_ns, (long long)e->end_ns,
                             (long long)t->iteration_end_ns[k]);
        for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1] && e->grant_seq >= 0; d++) {
            const struct ht_trace_event *before = &t->events[(int64_t)k * s->n_ops + s->deps[d]];
            if (before->grant_seq >= 0 && before->end_ns > e->start_ns)
                status = ht_fail(err, HT_FAILED, "op %d began before op %d had ended", op, s->deps[d]);
        }
    }
    if (!status && t->iterations == ITERATIONS && ran != w->n_run)
        status = ht_fail(err, HT_FAILED, "%lld ops ran, expected %lld", (long long)ran, (long long)w->n_run);
    free(peak);
    return status;
}

static enum ht_status check_arenas(const struct ht_schedule *s, struct ht_node *node, struct ht_error *err)
{
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        struct ht_arena *a = ht_node_arenas(node)[i];
        if (a && ht_arena_stats(a).live_bytes)
            return ht_fail(err, HT_FAILED, "space %d: %lld bytes are left", i, (long long)ht_arena_stats(a).live_bytes);
    }
    return HT_OK;
}

static enum ht_status run_graph(struct ht_comm *c, uint64_t *seed, bool one_node, enum fate fate, struct ht_error *err)
{
    int64_t *cost_ns;
    struct ht_schedule *s = graph_of(seed, c->size, one_node, &cost_ns);
    struct stamps w = {.s = s, .cost_ns = cost_ns, .seed = *seed};
    struct ht_space_size *sizes = HT_NEW_ARRAY(struct ht_space_size, ht_n_spaces(s));
    struct ht_node *node = NULL;
    struct ht_trace *t = NULL;
    stamps_expect(&w);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        int64_t capacity = s->capacity_bytes[i] > 1 << 20 ? 1 << 20 : s->capacity_bytes[i];
        sizes[i] = (struct ht_space_size){.capacity_bytes = capacity ? capacity : 512, /* there may be empty tensors */
                                          .slack_bytes = 8 * capacity};
    }
    if (!one_node) sizes[ht_n_spaces(s) - 1].capacity_bytes = 0;
    if (fate != RUNS && c->rank == (int32_t)(*seed % (uint64_t)c->size)) w.fail_at = 3;
    if (fate == IS_INTERRUPTED) w.interrupt_at = w.fail_at, w.fail_at = 0;
    struct ht_run_options o = {.iterations = ITERATIONS,
                               .backend = fate == IS_KILLED ? &deadly : &backend,
                               .backend_ctx = &w,
                               .hooks_ctx = &w,
                               .iteration_done = stamps_iteration_done};
    enum ht_status status = ht_node_create(s, c, sizes, err, &node);
    if (!status) status = ht_residents_create_ranks(node, err, &o.residents);
    if (!status) status = ht_residents_each(o.residents, stamps_init, &w, err);
    if (!status) status = ht_run_ranks(s, &o, node, err, &t);
    if (!status) status = ht_residents_each(o.residents, stamps_final, &w, err);
    if (status == HT_INTERRUPTED && fate == IS_INTERRUPTED) status = HT_OK;
    ht_interrupt_set(false);
    if (!status && t) status = check_trace(&w, t, err);
    ht_residents_destroy(o.residents);
    if (!status && ht_node_leads(node)) status = check_arenas(s, node, err);
    if (!status && (t != NULL) != (c->rank == 0)) status = ht_fail(err, HT_FAILED, "the trace is not rank 0's");
    if (!status && ht_node_leads(node) && fate == RUNS && w.n_done != ITERATIONS)
        status = ht_fail(err, HT_FAILED, "%d iterations were reported", w.n_done);
    if (status != HT_FAILED || !atomic_load(&c->cancelled)) status = ht_agree(c, status, err);
    ht_trace_destroy(t);
    ht_node_destroy(node);
    stamps_free(&w);
    free(sizes);
    free(cost_ns);
    ht_schedule_destroy(s);
    return status;
}

static int rank_main(bool one_node, enum fate fate, uint64_t seed)
{
    struct ht_comm *c = NULL;
    struct ht_error err = {0}, why;
    int launcher = ht_launch_begin();
    enum ht_status status = ht_comm_mpi(&err, &c);
    for (int i = 0; i < (fate == RUNS || fate == IS_INTERRUPTED ? GRAPHS : 1) && !status; i++, seed++) {
        status = run_graph(c, &seed, one_node, fate, &err);
        why = err;
        if (status) ht_fail(&err, status, "seed %llu, rank %d: %.900s", (unsigned long long)seed, c->rank, why.text);
    }
    ht_launch_report(launcher, status, &err);
    if (status == HT_FAILED) ht_comm_abort(c, 1);
    ht_comm_close(c);
    return 0;
}

static enum ht_status launch(int32_t ranks, bool one_node, enum fate fate, uint64_t seed, struct ht_error *err)
{
    char text[32];
    char *argv[] = {"test", one_node ? "one" : "nodes", (char *)fates[fate], text, NULL};
    snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
    struct ht_launch_loss loss;
    return ht_launch(ranks, argv, &loss, err);
}

static void expect_ok(int32_t ranks, bool one_node, enum fate fate, uint64_t seed)
{
    struct ht_error err = {0};
    enum ht_status status = launch(ranks, one_node, fate, seed, &err);
    ck_assert_msg(status == HT_OK, "%s", err.text);
}

START_TEST(test_one_node)
{
    expect_ok(2 + 2 * _i, true, RUNS, 1000 * (uint64_t)_i);
}
END_TEST

START_TEST(test_nodes)
{
    expect_ok(2 + 2 * _i, false, RUNS, 2000 + 1000 * (uint64_t)_i);
}
END_TEST

START_TEST(test_interrupted)
{
    expect_ok(3, _i == 0, IS_INTERRUPTED, 3000);
}
END_TEST

/* An op that fails in any rank ends all of them, with its own words. */
START_TEST(test_fails)
{
    struct ht_error err = {0};
    ck_assert_int_eq(launch(3, _i % 2, FAILS, 4000 + (uint64_t)_i, &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, "as told"), "%s", err.text);
}
END_TEST

START_TEST(test_killed)
{
    struct ht_error err = {0};
    ck_assert_int_eq(launch(3, _i % 2, IS_KILLED, 4000 + (uint64_t)_i, &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, "is gone") || strstr(err.text, "killed by signal 9"), "%s", err.text);
}
END_TEST

/* HT_SEED=43 HT_RANKS=2 HT_NODES=1 build/test_common_exec_run_ranks: twelve graphs from this seed on. */
START_TEST(test_this_one)
{
    expect_ok(atoi(getenv("HT_RANKS")), atoi(getenv("HT_NODES")) == 1, RUNS, strtoull(getenv("HT_SEED"), NULL, 10));
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 3) {
        enum fate fate = RUNS;
        while (strcmp(fates[fate], argv[2])) fate++;
        return rank_main(!strcmp(argv[1], "one"), fate, strtoull(argv[3], NULL, 10));
    }
    if (!ht_comm_has_mpi()) {
        puts("skipped: this build has no MPI");
        return 77;
    }
    Suite *s = suite_create("run_ranks");
    TCase *tc = tcase_create("run_ranks");
    tcase_set_timeout(tc, 60);
    if (getenv("HT_SEED")) {
        tcase_add_test(tc, test_this_one);
    } else {
        tcase_add_loop_test(tc, test_one_node, 0, 2);
        tcase_add_loop_test(tc, test_nodes, 0, 2);
        tcase_add_loop_test(tc, test_interrupted, 0, 2);
        tcase_add_loop_test(tc, test_fails, 0, 4);
        tcase_add_loop_test(tc, test_killed, 0, 4);
    }
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
