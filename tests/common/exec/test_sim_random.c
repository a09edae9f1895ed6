/*
 * The simulator against the reference on thousands of random graphs: the same issue, start and end times, the same
 * order of grants and releases, the same peaks, the same OOM; no stall; and what must hold of any run.
 */
#include "common/base/rng.h"
#include "common/exec/sim.h"
#include "common/schedule/verify.h"
#include "tests/support/random_graph.h"
#include "tests/support/reference_sim.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { ITERATIONS = 4, GRAPHS = SANITIZED ? 1000 : 10000 };

struct tally {
    int oom, run, ahead, limited; /* limited: spaces that filled the method's limit, below their capacity */
    int given_up, early;          /* times of iterations beyond a limit; found before the iterations had ended */
    int tight;                    /* times of which the lower bound is more than half */
    int long_runs, periodic;      /* runs of many iterations; those whose last iterations take equally long */
};

static void check_same(uint64_t seed, const struct ht_schedule *s, const struct ht_trace *t,
                       const struct reference_result *want)
{
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *a = &t->events[i], *b = &want->events[i];
        ck_assert_msg(
            a->issue_ns == b->issue_ns && a->start_ns == b->start_ns && a->end_ns == b->end_ns &&
                a->grant_seq == b->grant_seq && a->release_seq == b->release_seq,
            "seed %llu, iteration %d, op %d: issue %lld start %lld end %lld grant %lld release %lld; reference %lld "
            "%lld %lld %lld %lld",
            (unsigned long long)seed, ht_trace_iteration(t, i), ht_trace_op(t, i), (long long)a->issue_ns,
            (long long)a->start_ns, (long long)a->end_ns, (long long)a->grant_seq, (long long)a->release_seq,
            (long long)b->issue_ns, (long long)b->start_ns, (long long)b->end_ns, (long long)b->grant_seq,
            (long long)b->release_seq);
    }
    ck_assert_int_eq(t->end_ns, want->end_ns);
    for (int32_t i = 0; i < ht_n_spaces(s); i++)
        ck_assert_msg(t->peak_bytes[i] == want->peak_bytes[i] && t->peak_bytes[i] <= ht_space_bytes(s, i),
                      "seed %llu: peak of space %d is %lld, reference %lld", (unsigned long long)seed, i,
                      (long long)t->peak_bytes[i], (long long)want->peak_bytes[i]);
}

static void check_properties(uint64_t seed, const struct ht_schedule *s, const struct ht_trace *t,
                             const int64_t *cost_ns)
{
    struct ht_error err = {0};
    int64_t *peak = calloc((size_t)ht_n_spaces(s), sizeof(*peak));
    ck_assert_int_eq(ht_trace_replay(t, &err, peak), HT_OK);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) ck_assert_int_eq(peak[i], t->peak_bytes[i]);
    free(peak);
    for (int warmup = 0; warmup < ITERATIONS; warmup++) {
        struct ht_metrics m;
        ck_assert_int_eq(ht_metrics_compute(t, cost_ns, warmup, &err, &m), HT_OK);
        ck_assert_msg(m.lower_bound_ns <= m.iteration_ns, "seed %llu, warm-up %d: bound %lld (%s) over %lld",
                      (unsigned long long)seed, warmup, (long long)m.lower_bound_ns, m.lower_bound_of,
                      (long long)m.iteration_ns);
        int64_t path = m.critical_wait_ns;
        for (int32_t l = 0; l < s->n_lanes; l++) path += m.critical_ns[l];
        ck_assert_msg(path <= m.iteration_ns && path > m.iteration_ns - s->n_lanes - 2,
                      "seed %llu, warm-up %d: critical path of %lld in an iteration of %lld", (unsigned long long)seed,
                      warmup, (long long)path, (long long)m.iteration_ns);
        ht_metrics_free(&m);
    }
}

static int64_t ended_by(const struct ht_trace *t, int32_t k)
{
    int64_t end = 0;
    for (int32_t i = 0; i <= k; i++)
        if (t->iteration_end_ns[i] > end) end = t->iteration_end_ns[i];
    return end;
}

/* The time of drawn iterations, with limits around it: exact below the limit, else between the limit and the time. */
static void check_time(uint64_t seed, const struct ht_schedule *s, const struct ht_trace *t, const int64_t *cost_ns,
                       const struct ht_sim_options *o, struct tally *tally)
{
    int32_t after = -1 + (int32_t)ht_random_below(seed, 2000000, ITERATIONS);
    int32_t last = after + 1 + (int32_t)ht_random_below(seed, 2000001, (uint64_t)(ITERATIONS - 1 - after));
    int64_t want = ended_by(t, last) - ended_by(t, after);
    int64_t limits[] = {0, want + 1, want, want / 2 + (int64_t)ht_random_below(seed, 2000002, (uint64_t)want / 2 + 1)};
    int64_t least = ht_sim_least_ns(s, cost_ns, o->jitter_percent, (struct ht_sim_question){after, last, 0});
    ck_assert_msg(least <= want, "seed %llu: at least %lld, takes %lld", (unsigned long long)seed, (long long)least,
                  (long long)want);
    tally->tight += 2 * least > want;
    for (int i = 0; i < 4; i++) {
        struct ht_error err = {0};
        int64_t ns = -1, limit = limits[i];
        struct ht_sim_question q = {.after = after, .last = last, .limit_ns = limit};
        ck_assert_int_eq(ht_sim_time(s, cost_ns, o, q, &err, &ns), HT_OK);
        bool gives_up = limit && want >= limit;
        ck_assert_msg(gives_up ? ns >= limit && ns <= want : ns == want,
                      "seed %llu: iterations %d to %d take %lld, limit %lld: %lld", (unsigned long long)seed, after + 1,
                      last, (long long)want, (long long)limit, (long long)ns);
        tally->given_up += gives_up;
        tally->early += gives_up && ns < want;
    }
}

/* A trace whose repeated iterations were not simulated: as of the whole run. */
static void check_short_run(uint64_t seed, const struct ht_schedule *s, const int64_t *cost_ns, struct ht_sim_options o,
                            const struct ht_trace *want)
{
    struct ht_error err = {0};
    struct ht_trace *t;
    o.every = false;
    ck_assert_int_eq(ht_sim_run(s, cost_ns, &o, &err, &t), HT_OK);
    ck_assert_int_eq(t->end_ns, want->end_ns);
    ck_assert_mem_eq(t->iteration_end_ns, want->iteration_end_ns, (size_t)o.iterations * sizeof *t->iteration_end_ns);
    ck_assert_mem_eq(t->peak_bytes, want->peak_bytes, (size_t)ht_n_spaces(s) * sizeof *t->peak_bytes);
    for (int64_t i = 0; i < t->n_events; i++)
        ck_assert_msg(!memcmp(&t->events[i], &want->events[i], sizeof *t->events),
                      "seed %llu, ahead %d: op %d of iteration %d: start %lld, grant %lld; expected %lld, %lld",
                      (unsigned long long)seed, o.issue_ahead, ht_trace_op(want, i), ht_trace_iteration(want, i),
                      (long long)t->events[i].start_ns, (long long)t->events[i].grant_seq,
                      (long long)want->events[i].start_ns, (long long)want->events[i].grant_seq);
    ht_trace_destroy(t);
}

/* Times of many iterations, which mostly repeat themselves: as in the whole run. */
static void check_repetition(uint64_t seed, const struct ht_schedule *s, const int64_t *cost_ns, int32_t ahead,
                             struct tally *tally)
{
    enum { MANY = 12 };
    struct ht_sim_options o = {.iterations = MANY, .issue_ahead = ahead, .every = true};
    struct ht_error err = {0};
    struct ht_trace *t;
    ck_assert_int_eq(ht_sim_run(s, cost_ns, &o, &err, &t), HT_OK);
    check_short_run(seed, s, cost_ns, o, t);
    o.every = false;
    for (int32_t last = 1; last <= MANY - 2; last++) {
        int64_t ns = -1;
        int32_t after = -1 + (int32_t)ht_random_below(seed, 3000000 + (uint64_t)last, (uint64_t)last + 1);
        int64_t want = ended_by(t, last) - ended_by(t, after);
        ck_assert_int_eq(ht_sim_time(s, cost_ns, &o, (struct ht_sim_question){after, last, 0}, &err, &ns), HT_OK);
        ck_assert_msg(ns == want, "seed %llu, ahead %d: iterations %d to %d take %lld, not %lld",
                      (unsigned long long)seed, ahead, after + 1, last, (long long)want, (long long)ns);
    }
    tally->long_runs++;
    tally->periodic += ended_by(t, MANY - 2) - ended_by(t, MANY - 3) == ended_by(t, MANY - 3) - ended_by(t, MANY - 4);
    ht_trace_destroy(t);
}

/* One iteration, which has no next one to go on to. */
static void check_single(uint64_t seed, const struct ht_schedule *s, const int64_t *cost_ns, int32_t ahead)
{
    struct ht_sim_options o = {.iterations = 1, .issue_ahead = ahead};
    struct reference_result want = reference_run(s, cost_ns, &o);
    struct ht_error err = {0};
    struct ht_trace *t;
    ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &t) == HT_OK, "seed %llu: %s", (unsigned long long)seed, err.text);
    check_same(seed, s, t, &want);
    ht_trace_destroy(t);
    reference_free(&want);
}

/* Spaces with drawn room beyond what one op at a time needs: where there is enough for all that is issued ahead, times are found
   without issuing anything ahead; where there is a little less, such a run begins again. */
static void check_roomy(uint64_t seed, struct ht_schedule *s, const int64_t *cost_ns, struct ht_sim_options o,
                        struct tally *tally)
{
    struct ht_error err = {0};
    struct ht_trace *t;
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        int64_t bytes = ht_space_bytes(s, i), room = (int64_t)ht_random_below(seed, 4000000 + (uint64_t)i, 12);
        s->limit_bytes[i] = INT64_MAX;
        s->capacity_bytes[i] = bytes > INT64_MAX / 16 ? bytes : bytes + bytes * room;
    }
    ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &t) == HT_OK, "seed %llu: %s", (unsigned long long)seed, err.text);
    check_time(seed, s, t, cost_ns, &o, tally);
    check_repetition(seed, s, cost_ns, o.issue_ahead, tally);
    ht_trace_destroy(t);
}

static void run_one(uint64_t seed, struct random_graph_options options, struct tally *tally)
{
    int64_t *cost_ns;
    struct ht_schedule *s = random_graph(seed, options, &cost_ns);
    struct ht_error err = {0};
    enum ht_status proof = ht_schedule_verify(s, &err, NULL);
    ck_assert_msg(proof == HT_OK || proof == HT_INFEASIBLE, "seed %llu: %s", (unsigned long long)seed, err.text);
    bool bad[ITERATIONS];
    for (int k = 0; k < ITERATIONS; k++) bad[k] = ht_random_below(seed, 1000000 + (uint64_t)k, 3) == 0;
    for (int ahead = 0; ahead <= 2; ahead += 2) {
        struct ht_sim_options o = {.iterations = ITERATIONS,
                                   .issue_ahead = ahead,
                                   .jitter_percent = seed % 3 == 0 ? 20 : 0,
                                   .seed = seed,
                                   .bad = options.branches ? bad : NULL};
        struct reference_result want = reference_run(s, cost_ns, &o);
        struct ht_trace *t;
        enum ht_status status = ht_sim_run(s, cost_ns, &o, &err, &t);
        if (proof == HT_INFEASIBLE) {
            ck_assert_msg(status == HT_INFEASIBLE && want.answer == REFERENCE_OOM, "seed %llu: the verifier says OOM",
                          (unsigned long long)seed);
            tally->oom++;
        } else {
            ck_assert_msg(want.answer == REFERENCE_DONE, "seed %llu, ahead %d: the reference stalls (%d)",
                          (unsigned long long)seed, ahead, want.answer);
            ck_assert_msg(status == HT_OK, "seed %llu, ahead %d: %s", (unsigned long long)seed, ahead, err.text);
            check_same(seed, s, t, &want);
            check_properties(seed, s, t, cost_ns);
            check_time(seed, s, t, cost_ns, &o, tally);
            check_single(seed, s, cost_ns, ahead);
            if (seed % 4 == 1) check_repetition(seed, s, cost_ns, ahead, tally);
            tally->run++;
            for (int32_t i = 0; i < ht_n_spaces(s); i++)
                tally->limited += s->limit_bytes[i] < s->capacity_bytes[i] && t->peak_bytes[i] == s->limit_bytes[i];
            for (int64_t i = 0; i < t->n_events; i++) tally->ahead += t->events[i].issue_ns < t->events[i].start_ns;
        }
        ht_trace_destroy(t);
        reference_free(&want);
    }
    if (proof == HT_OK && seed % 4 == 2)
        check_roomy(seed, s, cost_ns, (struct ht_sim_options){.iterations = ITERATIONS, .issue_ahead = 1 + seed % 3},
                    tally);
    free(cost_ns);
    ht_schedule_destroy(s);
}

/* HT_TEST_GRAPHS and HT_TEST_FIRST: more graphs, or others, for a longer search. */
static int from_environment(const char *name, int otherwise)
{
    const char *n = getenv(name);
    return n ? atoi(n) : otherwise;
}

START_TEST(everything)
{
    struct tally tally = {0};
    int first = from_environment("HT_TEST_FIRST", 0), n = from_environment("HT_TEST_GRAPHS", GRAPHS);
    for (int i = first; i < first + n; i++) run_one((uint64_t)i, random_graph_everything(), &tally);
    printf("%d runs compared, %d OOM, %d ops issued before they started, %d limits reached, %d of %d given up early\n",
           tally.run, tally.oom, tally.ahead, tally.limited, tally.early, tally.given_up);
    ck_assert_int_gt(tally.run, tally.oom);
    ck_assert(n < 100 || (tally.oom > 0 && tally.ahead > 0 && tally.limited > 0 && tally.early > tally.given_up / 4 &&
                          tally.tight > 0 && tally.periodic > tally.long_runs / 2));
}
END_TEST

START_TEST(larger_ones)
{
    struct random_graph_options o = random_graph_everything();
    struct tally tally = {0};
    o.max_ranks = 8;
    o.max_ops = 120;
    int first = from_environment("HT_TEST_FIRST", 0), n = from_environment("HT_TEST_GRAPHS", GRAPHS) / 200;
    for (int i = first; i < first + n; i++) run_one(1000000 + (uint64_t)i, o, &tally);
    ck_assert(n == 0 || tally.run > 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_random");
    TCase *tc = tcase_create("sim_random");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, everything);
    tcase_add_test(tc, larger_ones);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
