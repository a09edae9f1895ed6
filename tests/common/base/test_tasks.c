/* The pool of tasks: order, memory budget, errors and Ctrl-C, the callback. */
#include "common/base/tasks.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST = 400 };

/* One test's record. Threads write it, the test asserts. */
struct record {
    const double *bytes;
    double budget;
    pthread_mutex_t lock;
    double taken; /* by the tasks that run */
    int running;  /* tasks that run */
    int over;     /* times that the budget was exceeded by more than one task */
    size_t started[MOST], n_started;
    int runs[MOST], finishes[MOST], n_finished;
    atomic_int in_finished;
    int overlaps; /* of finished */
    size_t bad;   /* task i that fails, */
    enum ht_status bad_status;
    pthread_barrier_t meet;
};

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static void begin(struct record *r, size_t i)
{
    pthread_mutex_lock(&r->lock);
    r->started[r->n_started++] = i;
    r->runs[i]++;
    r->running++;
    if (r->bytes) r->taken += r->bytes[i];
    if (r->bytes && r->running > 1 && r->taken > r->budget) r->over++;
    pthread_mutex_unlock(&r->lock);
}

static void end(struct record *r, size_t i)
{
    pthread_mutex_lock(&r->lock);
    if (r->bytes) r->taken -= r->bytes[i];
    r->running--;
    pthread_mutex_unlock(&r->lock);
}

static enum ht_status note_run(void *ctx, size_t i, struct ht_error *err)
{
    struct record *r = ctx;
    begin(r, i);
    if (r->bytes) sleep_ms(1);
    end(r, i);
    return i == r->bad ? ht_fail(err, r->bad_status, "task %zu failed", i) : HT_OK;
}

static enum ht_status note_finished(void *ctx, size_t i, struct ht_error *err)
{
    struct record *r = ctx;
    (void)err;
    if (atomic_fetch_add(&r->in_finished, 1)) r->overlaps++;
    r->finishes[i]++;
    r->n_finished++;
    atomic_fetch_sub(&r->in_finished, 1);
    return HT_OK;
}

static struct ht_tasks tasks_of(struct record *r, size_t n, int n_threads)
{
    *r = (struct record){.bad = MOST};
    pthread_mutex_init(&r->lock, NULL);
    return (struct ht_tasks){.name = "test",
                             .noun = "things",
                             .n = n,
                             .ctx = r,
                             .run = note_run,
                             .finished = note_finished,
                             .n_threads = n_threads};
}

START_TEST(every_task_runs_once)
{
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, MOST, 8);
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_OK);
    for (int i = 0; i < MOST; i++) {
        ck_assert_int_eq(r.runs[i], 1);
        ck_assert_int_eq(r.finishes[i], 1);
    }
    ck_assert_int_eq(r.overlaps, 0);
    t = tasks_of(&r, 0, 8);
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_OK);
}
END_TEST

START_TEST(the_largest_first)
{
    /* Equal ones in the caller's order. */
    const double bytes[] = {10, 30, 20, 30, 5};
    const size_t expected[] = {1, 3, 2, 0, 4}, plain[] = {0, 1, 2, 3, 4};
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, 5, 1);
    t.bytes = bytes;
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_OK);
    ck_assert_mem_eq(r.started, expected, sizeof(expected));
    t = tasks_of(&r, 5, 1);
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_OK);
    ck_assert_mem_eq(r.started, plain, sizeof(plain));
}
END_TEST

START_TEST(the_budget_holds)
{
    /* 150 runs alone; of the others at most three fit 100 at once: 20 + 30 + 40, or 20 + 20 + 60. */
    const double bytes[] = {40, 60, 150, 50, 30, 20, 40, 60, 50, 30, 20, 150, 70, 20};
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, HT_COUNT(bytes), 8);
    t.bytes = r.bytes = bytes;
    t.memory_bytes = r.budget = 100;
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_OK);
    ck_assert_int_eq(r.n_finished, (int)HT_COUNT(bytes));
    ck_assert_int_eq(r.over, 0);
}
END_TEST

static enum ht_status meet(void *ctx, size_t i, struct ht_error *err)
{
    struct record *r = ctx;
    (void)i, (void)err;
    pthread_barrier_wait(&r->meet);
    return HT_OK;
}

/* Two tasks that wait for each other end only when both run: 50 + 50 fit 100. */
START_TEST(what_fits_runs_at_once)
{
    const double bytes[] = {50, 50};
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, 2, 2);
    t.bytes = bytes;
    t.memory_bytes = 100;
    t.run = meet;
    pthread_barrier_init(&r.meet, NULL, 2);
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_OK);
    pthread_barrier_destroy(&r.meet);
}
END_TEST

START_TEST(an_error_ends_the_run)
{
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, 8, 1);
    r.bad = 3;
    r.bad_status = HT_BAD_INPUT;
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "task 3 failed");
    ck_assert_uint_eq(r.n_started, 4);
    ck_assert_int_eq(r.n_finished, 3);
    ck_assert_int_eq(r.finishes[3], 0);
}
END_TEST

static enum ht_status refuse_finished(void *ctx, size_t i, struct ht_error *err)
{
    note_finished(ctx, i, err);
    return i == 2 ? ht_fail(err, HT_FAILED, "disk is full") : HT_OK;
}

START_TEST(an_error_of_the_callback_ends_the_run)
{
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, 8, 1);
    t.finished = refuse_finished;
    ck_assert_int_eq(ht_tasks_run(&t, &err), HT_FAILED);
    ck_assert_str_eq(err.text, "disk is full");
    ck_assert_uint_eq(r.n_started, 3);
}
END_TEST

/* Tasks 0 and 1 run at once. 0 returns codes[0] soon, 1 codes[1] well after it. */
static const enum ht_status *codes;

static enum ht_status fail_both(void *ctx, size_t i, struct ht_error *err)
{
    struct record *r = ctx;
    pthread_barrier_wait(&r->meet);
    sleep_ms(i ? 50 : 0);
    return ht_fail(err, codes[i], "task %zu failed", i);
}

START_TEST(the_first_error_wins_but_over_an_interrupt)
{
    static const struct {
        enum ht_status codes[2], expected;
        const char *text;
    } cases[] = {
        {{HT_BAD_INPUT, HT_FAILED}, HT_BAD_INPUT, "task 0 failed"},
        {{HT_INTERRUPTED, HT_FAILED}, HT_FAILED, "task 1 failed"},
        {{HT_FAILED, HT_INTERRUPTED}, HT_FAILED, "task 0 failed"},
        {{HT_INTERRUPTED, HT_INTERRUPTED}, HT_INTERRUPTED, "interrupted after 0 of 2 things"},
    };
    for (size_t c = 0; c < HT_COUNT(cases); c++) {
        struct record r;
        struct ht_error err = {0};
        struct ht_tasks t = tasks_of(&r, 2, 2);
        t.run = fail_both;
        codes = cases[c].codes;
        pthread_barrier_init(&r.meet, NULL, 2);
        ck_assert_int_eq(ht_tasks_run(&t, &err), cases[c].expected);
        ck_assert_str_eq(err.text, cases[c].text);
        ck_assert_int_eq(r.n_finished, 0);
        pthread_barrier_destroy(&r.meet);
    }
}
END_TEST

static enum ht_status interrupt_at_2(void *ctx, size_t i, struct ht_error *err)
{
    if (i == 2) ht_interrupt_set(true);
    return note_run(ctx, i, err);
}

/* Ctrl-C lets the task that runs finish, and starts none. */
START_TEST(an_interrupt_ends_the_run)
{
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, 8, 1);
    t.run = interrupt_at_2;
    enum ht_status status = ht_tasks_run(&t, &err);
    ht_interrupt_set(false);
    ck_assert_int_eq(status, HT_INTERRUPTED);
    ck_assert_str_eq(err.text, "interrupted after 3 of 8 things");
    ck_assert_uint_eq(r.n_started, 3);
    ck_assert_int_eq(r.n_finished, 3);
}
END_TEST

/* Eight tasks, of which each runs eight: those of one are of one thread, in their order. */
struct within {
    pthread_t thread;
    size_t next;
    bool other;
};

static enum ht_status note_thread(void *ctx, size_t i, struct ht_error *err)
{
    struct within *w = ctx;
    (void)err;
    w->other |= !pthread_equal(pthread_self(), w->thread) || i != w->next++;
    return HT_OK;
}

static enum ht_status run_tasks(void *ctx, size_t i, struct ht_error *err)
{
    struct within w = {.thread = pthread_self()};
    struct ht_tasks t = {.name = "inner", .noun = "things", .n = 8, .ctx = &w, .run = note_thread, .n_threads = 8};
    enum ht_status status = ht_tasks_run(&t, err);
    if (w.other || w.next != t.n) return ht_fail(err, HT_FAILED, "task %zu: not in order, or on another thread", i);
    return status ? status : note_run(ctx, i, err);
}

START_TEST(tasks_of_a_task_run_on_its_thread)
{
    struct record r;
    struct ht_error err = {0};
    struct ht_tasks t = tasks_of(&r, 8, 4);
    t.run = run_tasks;
    enum ht_status status = ht_tasks_run(&t, &err);
    ck_assert_msg(status == HT_OK, "%s", err.text);
    ck_assert_int_eq(r.n_finished, 8);
}
END_TEST

/* A quarter of the work took 30 s, so three quarters take 90; an eighth took 30 s: 210 s, which is 3.5 min. Nothing is
   foretold before something is done, or at the end. */
START_TEST(progress_says_how_much_time_is_left)
{
    struct ht_tasks t = {.name = "maxsize", .noun = "rows", .n = 14};
    char text[HT_PROGRESS_TEXT];
    ck_assert_str_eq(ht_progress_text(&t, 3, 0.25, 30, text), "maxsize: 3 of 14 rows, about 90 s left");
    ck_assert_str_eq(ht_progress_text(&t, 1, 0.125, 30, text), "maxsize: 1 of 14 rows, about 4 min left");
    ck_assert_str_eq(ht_progress_text(&t, 0, 0, 30, text), "maxsize: 0 of 14 rows");
    ck_assert_str_eq(ht_progress_text(&t, 14, 1, 30, text), "maxsize: 14 of 14 rows");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tasks");
    TCase *tc = tcase_create("tasks");
    tcase_add_test(tc, every_task_runs_once);
    tcase_add_test(tc, the_largest_first);
    tcase_add_test(tc, the_budget_holds);
    tcase_add_test(tc, what_fits_runs_at_once);
    tcase_add_test(tc, an_error_ends_the_run);
    tcase_add_test(tc, an_error_of_the_callback_ends_the_run);
    tcase_add_test(tc, the_first_error_wins_but_over_an_interrupt);
    tcase_add_test(tc, tasks_of_a_task_run_on_its_thread);
    tcase_add_test(tc, progress_says_how_much_time_is_left);
    tcase_add_test(tc, an_interrupt_ends_the_run);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
