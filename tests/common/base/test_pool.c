/* The worker pool: every worker runs once, results are seen, ranges cover everything exactly once. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/pool.h"

enum { MAX_WORKERS = 8, RUNS = 3000 };

struct record {
    long calls[MAX_WORKERS];
    pthread_t thread[MAX_WORKERS];
    int n_workers;
    long input; /* written by the caller before each run, read by all */
    long seen[MAX_WORKERS];
};

static void note(void *arg, int worker, int n_workers)
{
    struct record *r = arg;
    r->calls[worker]++;
    r->thread[worker] = pthread_self();
    r->seen[worker] += r->input;
    if (worker == 0) r->n_workers = n_workers;
}

/* After runs with inputs 0 .. RUNS-1 every worker has seen their sum, RUNS (RUNS - 1) / 2. */
START_TEST(test_every_worker_once_a_run)
{
    struct ht_pool *pool = ht_pool_create(_i, NULL);
    ck_assert_ptr_nonnull(pool);
    ck_assert_int_eq(ht_pool_threads(pool), _i);
    struct record r = {0};
    for (long run = 0; run < RUNS; run++) {
        r.input = run;
        ht_pool_run(pool, note, &r);
        if (run % 1000 == 999) usleep(2000); /* long enough for the workers to fall asleep */
    }
    ck_assert_int_eq(r.n_workers, _i);
    for (int w = 0; w < _i; w++) {
        ck_assert_int_eq(r.calls[w], RUNS);
        ck_assert_int_eq(r.seen[w], (long)RUNS * (RUNS - 1) / 2);
        for (int other = 0; other < w; other++) ck_assert(!pthread_equal(r.thread[w], r.thread[other]));
    }
    ck_assert(pthread_equal(r.thread[0], pthread_self()));
    ht_pool_destroy(pool);
}
END_TEST

START_TEST(test_null_pool_is_the_caller)
{
    struct record r = {0};
    ht_pool_run(NULL, note, &r);
    ck_assert_int_eq(r.calls[0], 1);
    ck_assert_int_eq(r.n_workers, 1);
    ck_assert_int_eq(ht_pool_threads(NULL), 1);
    ht_pool_destroy(NULL);
}
END_TEST

static void where(void *arg, int worker, int n_workers)
{
    (void)n_workers;
    cpu_set_t *sets = arg;
    pthread_getaffinity_np(pthread_self(), sizeof(cpu_set_t), &sets[worker]);
}

START_TEST(test_pinned)
{
    cpu_set_t allowed, sets[2];
    pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed);
    int cpu = 0;
    while (!CPU_ISSET((size_t)cpu, &allowed)) cpu++;
    int cpus[] = {cpu, cpu};
    struct ht_pool *pool = ht_pool_create(2, cpus);
    ck_assert_ptr_nonnull(pool);
    ht_pool_run(pool, where, sets);
    ck_assert_int_eq(CPU_COUNT(&sets[1]), 1);
    ck_assert(CPU_ISSET((size_t)cpu, &sets[1]));
    ck_assert(CPU_EQUAL(&sets[0], &allowed)); /* the caller pins itself or not */
    ht_pool_destroy(pool);
}
END_TEST

/* 10 in grains of 4 is 3 grains, the last of 2. Two workers: 3 * 1 / 2 = 1 grain, then 2: [0,4) and [4,10). */
START_TEST(test_split_by_hand)
{
    struct ht_range a = ht_range_split(10, 4, 0, 2), b = ht_range_split(10, 4, 1, 2);
    ck_assert(a.begin == 0 && a.end == 4 && b.begin == 4 && b.end == 10);
}
END_TEST

START_TEST(test_split_covers_once)
{
    for (int64_t n = 0; n < 70; n++)
        for (int64_t grain = 1; grain < 20; grain += 3)
            for (int workers = 1; workers < 9; workers++) {
                int64_t at = 0;
                for (int w = 0; w < workers; w++) {
                    struct ht_range r = ht_range_split(n, grain, w, workers);
                    ck_assert_int_eq(r.begin, at);
                    ck_assert_int_ge(r.end, r.begin);
                    ck_assert(r.begin % grain == 0 || r.begin == n);
                    at = r.end;
                }
                ck_assert_int_eq(at, n);
            }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("pool");
    TCase *t = tcase_create("pool");
    tcase_add_loop_test(t, test_every_worker_once_a_run, 1, MAX_WORKERS);
    tcase_add_test(t, test_null_pool_is_the_caller);
    tcase_add_test(t, test_pinned);
    tcase_add_test(t, test_split_by_hand);
    tcase_add_test(t, test_split_covers_once);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
