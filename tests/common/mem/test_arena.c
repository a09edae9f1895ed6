/* The arena against a model that knows nothing of blocks: a list of live ranges, checked after every step. */
#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/mem/arena.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static struct ht_arena *make(int64_t capacity_bytes, int64_t slack_bytes)
{
    struct ht_error err = {0};
    struct ht_arena *a;
    ck_assert_msg(ht_arena_create(capacity_bytes, slack_bytes, false, &err, &a) == HT_OK, "%s", err.text);
    return a;
}

static int64_t rounded(int64_t bytes)
{
    return (bytes + 511) / 512 * 512;
}

START_TEST(test_books)
{
    struct ht_arena *a = make(4096, 1024);
    /* 1 -> 512, 513 -> 1024, 2048 -> 2048: 3584 live of 4096. */
    char *p = ht_arena_alloc(a, 1, true), *q = ht_arena_alloc(a, 513, true), *r = ht_arena_alloc(a, 2048, false);
    ck_assert(p && q && r);
    ck_assert_int_eq(q - p, 512);
    ck_assert_int_eq(r - q, 1024);
    ck_assert_int_eq((intptr_t)p % 512, 0);
    struct ht_arena_stats st = ht_arena_stats(a);
    ck_assert_int_eq(st.live_bytes, 3584);
    ck_assert_int_eq(st.extent_bytes, 3584);
    ck_assert_int_eq(st.largest_hole_bytes, 4096 + 1024 - 3584);
    /* 513 bytes are 1024 and the budget has 512 left: refused, though the slack has room. */
    ck_assert_ptr_null(ht_arena_alloc(a, 513, true));
    ck_assert_ptr_nonnull(ht_arena_alloc(a, 512, true));
    ht_arena_free(a, q);
    ht_arena_free(a, NULL);
    st = ht_arena_stats(a);
    ck_assert_int_eq(st.live_bytes, 3072);
    ck_assert_int_eq(st.peak_bytes, 4096);
    ck_assert_int_eq(st.n_allocs, 4);
    ck_assert_int_eq(st.n_frees, 1);
    ht_arena_destroy(a);
}
END_TEST

START_TEST(test_rounds_capacity)
{
    struct ht_arena *a = make(1000, 1);
    ck_assert_int_eq(ht_arena_stats(a).capacity_bytes, 1024);
    ck_assert_int_eq(ht_arena_stats(a).slack_bytes, 512);
    ck_assert_ptr_nonnull(ht_arena_alloc(a, 1000, true));
    ht_arena_destroy(a);
    a = make(0, 0);
    ck_assert_ptr_null(ht_arena_alloc(a, 1, true));
    ht_arena_destroy(a);
    ht_arena_destroy(NULL);
}
END_TEST

START_TEST(test_best_fit_and_ends)
{
    struct ht_arena *a = make(1 << 20, 0);
    /* Holes of 4, 2 and 4 granules between blocks of one: | x 4 x 2 x 4 x | */
    char *hole[3], *base = ht_arena_alloc(a, 512, true);
    int granules[3] = {4, 2, 4};
    for (int i = 0; i < 3; i++) {
        hole[i] = ht_arena_alloc(a, granules[i] * 512, true);
        ht_arena_alloc(a, 512, true);
    }
    for (int i = 0; i < 3; i++) ht_arena_free(a, hole[i]);
    int64_t extent = ht_arena_stats(a).extent_bytes;
    ck_assert_int_eq(extent, 14 * 512);
    ck_assert_ptr_eq(ht_arena_alloc(a, 1024, true), hole[1]);           /* exact */
    ck_assert_ptr_eq(ht_arena_alloc(a, 512, true), hole[0]);            /* lowest of equals, low end */
    ck_assert_ptr_eq(ht_arena_alloc(a, 512, false), hole[0] + 3 * 512); /* smallest that fits (3), high end */
    ck_assert_ptr_eq(ht_arena_alloc(a, 1500, false), hole[2] + 512);    /* 3 of 4, high end */
    ck_assert_ptr_eq(ht_arena_alloc(a, 1024, true), hole[0] + 512);
    ck_assert_int_eq(ht_arena_stats(a).extent_bytes, extent);
    ck_assert_ptr_eq(ht_arena_alloc(a, 1024, true), base + extent); /* no hole left but one granule: the tail */
    ht_arena_destroy(a);
}
END_TEST

START_TEST(test_transients_take_the_highest_of_equals)
{
    struct ht_arena *a = make(1 << 20, 0);
    char *hole[2];
    for (int i = 0; i < 2; i++) {
        hole[i] = ht_arena_alloc(a, 2048, true);
        ht_arena_alloc(a, 512, true);
    }
    for (int i = 0; i < 2; i++) ht_arena_free(a, hole[i]);
    ck_assert_ptr_eq(ht_arena_alloc(a, 2048, false), hole[1]);
    ck_assert_ptr_eq(ht_arena_alloc(a, 2048, false), hole[0]);
    ht_arena_destroy(a);
}
END_TEST

START_TEST(test_fragmentation_is_told_from_the_budget)
{
    /* Four blocks of 1 KiB fill the budget; the first and third go: 2 KiB free, in two holes, and no slack. */
    struct ht_arena *a = make(4096, 0);
    void *p[4];
    for (int i = 0; i < 4; i++) p[i] = ht_arena_alloc(a, 1024, true);
    ht_arena_free(a, p[0]);
    ht_arena_free(a, p[2]);
    ck_assert_ptr_null(ht_arena_alloc(a, 2048, false));
    char text[256];
    ht_arena_explain(a, 2048, text, sizeof(text));
    ck_assert_msg(strstr(text, "fragmentation") && strstr(text, "2.048 kB more slack would do"), "%s", text);
    ck_assert_int_eq(ht_arena_stats(a).largest_hole_bytes, 1024);
    ht_arena_explain(a, 4096, text, sizeof(text));
    ck_assert_msg(strstr(text, "over the budget") && strstr(text, "2.048 kB more capacity"), "%s", text);
    /* Neighbours join: the second goes too, and 3 KiB are in one piece. */
    ht_arena_free(a, p[1]);
    ck_assert_int_eq(ht_arena_stats(a).largest_hole_bytes, 3072);
    ck_assert_ptr_eq(ht_arena_alloc(a, 3072, false), p[0]);
    ht_arena_destroy(a);

    /* As said, 2 KiB of slack would have done. */
    a = make(4096, 2048);
    for (int i = 0; i < 4; i++) p[i] = ht_arena_alloc(a, 1024, true);
    ht_arena_free(a, p[0]);
    ht_arena_free(a, p[2]);
    ck_assert_ptr_nonnull(ht_arena_alloc(a, 2048, false));
    ck_assert_int_eq(ht_arena_stats(a).extent_bytes, 6144);
    ht_arena_destroy(a);
}
END_TEST

/* ---- against a model ---- */

struct live {
    unsigned char *p;
    int64_t bytes;
    unsigned char stamp;
};

static void check_block(const struct live *b)
{
    ck_assert_int_eq(b->p[0], b->stamp);
    ck_assert_int_eq(b->p[b->bytes - 1], b->stamp);
    ck_assert_int_eq(b->p[b->bytes / 2], b->stamp);
}

/* The free bytes between the live blocks, by sorting them: what the largest hole should be. */
static int by_address(const void *a, const void *b)
{
    const struct live *x = a, *y = b;
    return x->p < y->p ? -1 : x->p > y->p;
}

static int64_t largest_gap(const struct live *live, size_t n, unsigned char *base, int64_t usable_bytes)
{
    struct live *sorted = HT_NEW_ARRAY(struct live, n);
    memcpy(sorted, live, n * sizeof(*live));
    qsort(sorted, n, sizeof(*sorted), by_address);
    int64_t largest = 0, at = 0;
    for (size_t i = 0; i <= n; i++) {
        int64_t begin = i < n ? sorted[i].p - base : usable_bytes;
        ck_assert_int_ge(begin, at); /* no two blocks overlap */
        if (begin - at > largest) largest = begin - at;
        if (i < n) at = begin + rounded(sorted[i].bytes);
    }
    free(sorted);
    return largest;
}

START_TEST(test_random_against_model)
{
    uint64_t seed = (uint64_t)_i;
    enum { CAPACITY = 1 << 20, SLACK = 1 << 17, MAX = 400, STEPS = 6000 };
    struct ht_arena *a = make(CAPACITY, SLACK);
    unsigned char *base = ht_arena_alloc(a, 1, true);
    ht_arena_free(a, base);
    struct live *live = HT_NEW_ARRAY(struct live, MAX);
    size_t n = 0;
    int64_t live_bytes = 0, peak_bytes = 512;
    for (uint64_t step = 0; step < STEPS; step++) {
        bool grow = ht_random_below(seed, 4 * step, 100) < (step / 500 % 2 ? 40 : 65);
        if (grow && n < MAX) {
            int64_t limit = ht_random_below(seed, 4 * step + 1, 10) == 0 ? 1 << 17 : 1 << 12;
            int64_t bytes = 1 + (int64_t)ht_random_below(seed, 4 * step + 2, (uint64_t)limit);
            int64_t gap = largest_gap(live, n, base, CAPACITY + SLACK);
            unsigned char *p = ht_arena_alloc(a, bytes, ht_random(seed, 4 * step + 3) & 1);
            bool fits = rounded(bytes) <= CAPACITY - live_bytes && rounded(bytes) <= gap;
            ck_assert_int_eq(p != NULL, fits);
            if (!p) continue;
            ck_assert_int_eq((p - base) % 512, 0);
            live[n] = (struct live){p, bytes, (unsigned char)step};
            memset(p, live[n].stamp, (size_t)bytes);
            n++;
            live_bytes += rounded(bytes);
            if (live_bytes > peak_bytes) peak_bytes = live_bytes;
        } else if (n) {
            size_t i = ht_random_below(seed, 4 * step + 1, n);
            check_block(&live[i]);
            ht_arena_free(a, live[i].p);
            live_bytes -= rounded(live[i].bytes);
            live[i] = live[--n];
        }
        struct ht_arena_stats st = ht_arena_stats(a);
        ck_assert_int_eq(st.live_bytes, live_bytes);
        ck_assert_int_eq(st.peak_bytes, peak_bytes);
        ck_assert_int_le(st.peak_bytes, st.extent_bytes);
        if (step % 50 == 0) ck_assert_int_eq(st.largest_hole_bytes, largest_gap(live, n, base, CAPACITY + SLACK));
    }
    for (size_t i = 0; i < n; i++) {
        check_block(&live[i]);
        ht_arena_free(a, live[i].p);
    }
    ck_assert_int_eq(ht_arena_stats(a).live_bytes, 0);
    ck_assert_int_eq(ht_arena_stats(a).largest_hole_bytes, CAPACITY + SLACK); /* everything joined again */
    free(live);
    ht_arena_destroy(a);
}
END_TEST

struct churn {
    struct ht_arena *a;
    uint64_t seed;
};

static void *churn(void *arg)
{
    const struct churn *c = arg;
    unsigned char *p[16] = {0};
    for (uint64_t i = 0; i < 4000; i++) {
        int at = (int)(i % 16);
        if (p[at]) {
            if (*p[at] != (unsigned char)c->seed) abort();
            ht_arena_free(c->a, p[at]);
        }
        p[at] = ht_arena_alloc(c->a, 1 + (int64_t)ht_random_below(c->seed, i, 3000), i & 1);
        if (p[at]) *p[at] = (unsigned char)c->seed;
    }
    for (int i = 0; i < 16; i++) ht_arena_free(c->a, p[i]);
    return NULL;
}

START_TEST(test_threads)
{
    struct ht_arena *a = make(128 << 10, 64 << 10);
    pthread_t threads[4];
    struct churn args[4];
    for (int i = 0; i < 4; i++) {
        args[i] = (struct churn){a, (uint64_t)i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, &args[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    struct ht_arena_stats st = ht_arena_stats(a);
    ck_assert_int_eq(st.live_bytes, 0);
    ck_assert_int_eq(st.n_allocs, st.n_frees);
    ck_assert_int_le(st.peak_bytes, 128 << 10);
    ht_arena_destroy(a);
}
END_TEST

/* ---- the guard ---- */

START_TEST(test_guard_page)
{
    long page = sysconf(_SC_PAGESIZE);
    struct ht_arena *a = make(4 * page, page);
    volatile char *p = ht_arena_alloc(a, 4 * page, false);
    p[4 * page - 1] = 1;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        close(STDERR_FILENO); /* a sanitizer has much to say about this */
        p[5 * page] = 1;      /* the first byte behind capacity and slack */
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    /* A sanitizer's handler turns the signal into an exit with an error. */
    ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
    ht_arena_destroy(a);
}
END_TEST

/* Under AddressSanitizer holes and the beginning of the tail are poisoned, wherever the tail has been. */
START_TEST(test_poison)
{
#ifdef __SANITIZE_ADDRESS__
    enum { MIB = 1 << 20 };
    struct ht_arena *a = make((int64_t)1 << 30, 0);
    char *p = ht_arena_alloc(a, 100 * MIB + 1, true), *q = ht_arena_alloc(a, 3, true);
    ck_assert_ptr_null(__asan_region_is_poisoned(p, 100 * MIB + 1));
    for (char *at = p + 100 * MIB + 1; at < q; at++) ck_assert(__asan_address_is_poisoned(at));
    for (char *at = q + 3; at < q + 8 * MIB; at += 509) ck_assert(__asan_address_is_poisoned(at));
    ht_arena_free(a, q);
    ht_arena_free(a, p);
    for (char *at = p; at < q + 8 * MIB; at += 509) ck_assert(__asan_address_is_poisoned(at));
    ht_arena_destroy(a);
    /* Memory is the system's again when the arena is gone. */
    char *again = mmap(p, 101 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_null(__asan_region_is_poisoned(again, 101 * MIB));
    munmap(again, 101 * MIB);
#endif
}
END_TEST

/* An arena over memory that this process may not touch: its tables are elsewhere, and destroying it leaves the memory
   alone. */
START_TEST(test_over_given_memory)
{
    struct ht_error err = {0};
    struct ht_arena *a;
    int64_t bytes;
    char *base = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_int_eq(ht_arena_create_over(base, 4096, 4096, &err, &a), HT_OK);
    ck_assert_ptr_eq(ht_arena_base(a, &bytes), base);
    ck_assert_int_eq(bytes, 8192);
    char *x = ht_arena_alloc(a, 1000, true), *y = ht_arena_alloc(a, 3000, false);
    ck_assert_ptr_eq(x, base);
    ck_assert_ptr_eq(y, base + 1024);
    ck_assert_ptr_null(ht_arena_alloc(a, 1, true));
    ht_arena_free(a, x);
    ck_assert_ptr_eq(ht_arena_alloc(a, 512, true), base);
    ck_assert_int_eq(ht_arena_stats(a).peak_bytes, 4096);
    ht_arena_destroy(a);
    ck_assert_int_eq(mprotect(base, 8192, PROT_READ | PROT_WRITE), 0); /* it is still there */
    for (int i = 0; i < 8192; i++) ck_assert_int_eq(base[i], 0);
    munmap(base, 8192);
}
END_TEST

START_TEST(test_refuses_absurd_sizes)
{
    struct ht_error err = {0};
    struct ht_arena *a;
    ck_assert_int_eq(ht_arena_create(INT64_MAX, 0, false, &err, &a), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "cannot make a memory arena"), "%s", err.text);
    ck_assert_int_eq(ht_arena_create(INT64_MAX / 8, 0, false, &err, &a), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "cannot map"), "%s", err.text);
}
END_TEST

START_TEST(test_prefault)
{
    struct ht_error err = {0};
    struct ht_arena *a;
    ck_assert_int_eq(ht_arena_create(1 << 20, 1 << 16, true, &err, &a), HT_OK);
    char *p = ht_arena_alloc(a, 1 << 20, true);
    for (int i = 0; i < 1 << 20; i += 4096) ck_assert_int_eq(p[i], 0);
    ht_arena_destroy(a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("arena");
    TCase *tc = tcase_create("arena");
    tcase_add_test(tc, test_books);
    tcase_add_test(tc, test_rounds_capacity);
    tcase_add_test(tc, test_best_fit_and_ends);
    tcase_add_test(tc, test_transients_take_the_highest_of_equals);
    tcase_add_test(tc, test_fragmentation_is_told_from_the_budget);
    tcase_add_loop_test(tc, test_random_against_model, 0, 6);
    tcase_add_test(tc, test_threads);
    tcase_add_test(tc, test_guard_page);
    tcase_add_test(tc, test_poison);
    tcase_add_test(tc, test_over_given_memory);
    tcase_add_test(tc, test_refuses_absurd_sizes);
    tcase_add_test(tc, test_prefault);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
