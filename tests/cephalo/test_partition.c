/* Shares of the state and of units: worked examples, and properties of all. */
#include "cephalo/partition.h"

#include "tests/support/draw.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 9, MOST_UNITS = 40, INSTANCES = SANITIZED ? 500 : 5000 };

/* ---- of the state ---------------------------------------------------------------------------------------------- */

/*
 * cap (24, 24, 48, 12), M (6, 6, 10, 3), S 40: u = (40 + 25) / 108 = 65/108, s = u cap - M = (8.4444, 8.4444, 18.8889,
 * 4.2222). In units of 1/9: (76, 76, 170, 38). With M (6, 6, 10, 9), S 20: 51/108 of 12 is less than 9, so GPU 3 holds
 * nothing; u = 42/96 = 0.4375, s = (4.5, 4.5, 11).
 */
START_TEST(example_2)
{
    static const int64_t cap[] = {24 * 9, 24 * 9, 48 * 9, 12 * 9}, m[] = {6 * 9, 6 * 9, 10 * 9, 3 * 9};
    static const int64_t want[] = {76, 76, 170, 38};
    int64_t held[4];
    ck_assert_int_eq(cephalo_partition_state(4, m, cap, 40 * 9, NULL, held), HT_OK);
    ck_assert(!memcmp(held, want, sizeof(want)));
    static const int64_t whole[] = {24, 24, 48, 12}, full[] = {6, 6, 10, 9}, kept[] = {5, 4, 11, 0};
    ck_assert_int_eq(cephalo_partition_state(4, full, whole, 20, NULL, held), HT_OK);
    ck_assert(!memcmp(held, kept, sizeof(kept))); /* the first of two halves is rounded up */
}
END_TEST

START_TEST(state_that_does_not_fit)
{
    static const int64_t cap[] = {60, 40}, m[] = {10, 20};
    int64_t held[2];
    struct ht_error err = {0};
    ck_assert_int_eq(cephalo_partition_state(2, m, cap, 70, &err, held), HT_OK);
    ck_assert(held[0] == 50 && held[1] == 20); /* every GPU is full */
    ck_assert_int_eq(cephalo_partition_state(2, m, cap, 71, &err, held), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "training state and compute memory of 101 B exceed all GPUs' 100 B");
}
END_TEST

/* The paper's greedy: a byte at a time to the GPU that is the least full. Every other GPU can be a byte ahead of the
   level that the last one is at. */
static void greedy(int32_t n, const int64_t *m, const int64_t *cap, int64_t state, int64_t *held)
{
    memset(held, 0, (size_t)n * sizeof(*held));
    for (; state > 0; state--) {
        int32_t least = -1;
        for (int32_t i = 0; i < n; i++)
            if (cap[i] && (least < 0 || (m[i] + held[i]) * cap[least] < (m[least] + held[least]) * cap[i])) least = i;
        held[least]++;
    }
}

START_TEST(state_as_the_greedy_shares_it)
{
    int dry = 0;
    for (uint64_t seed = 0; seed < INSTANCES; seed++) {
        struct draw d = {seed, 0};
        int32_t n = (int32_t)pick(&d, 1, MOST_GPUS);
        int64_t cap[MOST_GPUS], m[MOST_GPUS], held[MOST_GPUS], more[MOST_GPUS], byte_by_byte[MOST_GPUS], room = 0,
                                                                                                         sum = 0;
        for (int32_t i = 0; i < n; i++) {
            cap[i] = pick(&d, 0, 1000);
            m[i] = pick(&d, 0, cap[i]);
            room += cap[i] - m[i];
        }
        int64_t state = pick(&d, 0, room);
        ck_assert_int_eq(cephalo_partition_state(n, m, cap, state, NULL, held), HT_OK);
        greedy(n, m, cap, state, byte_by_byte);
        for (int32_t i = 0; i < n; i++) {
            sum += held[i];
            ck_assert(held[i] >= 0 && m[i] + held[i] <= cap[i]);
            ck_assert_msg(llabs(held[i] - byte_by_byte[i]) <= n, "seed %d: GPU %d holds %d, byte by byte %d", (int)seed,
                          i, (int)held[i], (int)byte_by_byte[i]);
            dry += state > 0 && cap[i] > m[i] && !held[i];
        }
        ck_assert_int_eq(sum, state);
        /* with more state nobody holds less, but for the byte that rounding moves */
        ck_assert_int_eq(cephalo_partition_state(n, m, cap, pick(&d, state, room), NULL, more), HT_OK);
        for (int32_t i = 0; i < n; i++) ck_assert_int_ge(more[i], held[i] - 1);
    }
    ck_assert_int_gt(dry, INSTANCES / 20);
}
END_TEST

/* Petabytes: products exceed 64 bits. Equal GPUs hold equal parts, but for the remainder. */
START_TEST(state_of_petabytes)
{
    int64_t cap[64], m[64], held[64];
    for (int i = 0; i < 64; i++) cap[i] = INT64_C(1) << 46, m[i] = INT64_C(1) << 40;
    ck_assert_int_eq(cephalo_partition_state(64, m, cap, (INT64_C(1) << 51) + 3, NULL, held), HT_OK);
    for (int i = 0; i < 64; i++) ck_assert_int_eq(held[i], (INT64_C(1) << 45) + (i < 3));
}
END_TEST

/* ---- of units -------------------------------------------------------------------------------------------------- */

static void check_units(int32_t n, const int64_t *weights, int32_t n_units, int64_t elements, const int64_t *want,
                        int32_t n_even)
{
    int64_t sizes[MOST_UNITS], shards[MOST_UNITS * MOST_GPUS];
    bool even[MOST_UNITS];
    for (int32_t u = 0; u < n_units; u++) sizes[u] = elements;
    cephalo_partition_units(n, weights, n_units, sizes, shards, even);
    for (int32_t u = 0; u < n_units; u++) ck_assert_int_eq(even[u], u < n_even);
    for (int32_t i = 0; i < n * n_units; i++)
        ck_assert_msg(shards[i] == want[i], "unit %d, GPU %d: %d, expected %d", i / n, i % n, (int)shards[i],
                      (int)want[i]);
}

/* In units of 1/30 and 1/10 of a unit, and the example of Sec. 3.3. */
START_TEST(example_3)
{
    check_units(3, (int64_t[]){5, 3, 2}, 5, 30, (int64_t[]){10, 10, 10, 10, 10, 10, 10, 10, 10, 30, 0, 0, 15, 15, 0},
                3);
    check_units(3, (int64_t[]){7, 3, 0}, 4, 10, (int64_t[]){10, 0, 0, 10, 0, 0, 0, 10, 0, 8, 2, 0}, 0);
    check_units(2, (int64_t[]){3, 1}, 2, 10, (int64_t[]){5, 5, 10, 0}, 1);
    check_units(3, (int64_t[]){1, 1, 0}, 3, 10, (int64_t[]){10, 0, 0, 0, 10, 0, 5, 5, 0}, 0); /* 15, 15: the first */
}
END_TEST

/* Units of 7 and of 40: a quarter of 4 x 7 + 40 = 68 fits the large one, with 4 of 17 a GPU, though it is the last. */
START_TEST(the_largest_units_become_even_first)
{
    static const int64_t weights[] = {1, 1, 2}, sizes[] = {7, 7, 7, 7, 40};
    int64_t shards[15];
    bool even[5];
    cephalo_partition_units(3, weights, 5, sizes, shards, even);
    /* 3 / 4 of 68 is 51: 40 and one of 7 */
    static const bool want[] = {true, false, false, false, true};
    ck_assert(!memcmp(even, want, sizeof(want)));
    ck_assert(shards[12] == 14 && shards[13] == 14 && shards[14] == 12); /* padded to 14 */
    ck_assert(shards[0] == 3 && shards[1] == 3 && shards[2] == 1);
}
END_TEST

/* Even units are cut as common/draft/layout.h cuts equal ranks; a GPU holds its weight's part. */
START_TEST(units_of_any_size)
{
    int n_even = 0, n_uneven = 0;
    for (uint64_t seed = 0; seed < INSTANCES; seed++) {
        struct draw d = {seed, 0};
        int32_t n = (int32_t)pick(&d, 1, MOST_GPUS), n_units = (int32_t)pick(&d, 1, MOST_UNITS), evens = 0;
        int64_t weights[MOST_GPUS], all_weights = 0, least = INT64_MAX, sizes[MOST_UNITS], all = 0, in_even = 0,
                                    smallest = 0;
        int64_t shards[MOST_UNITS * MOST_GPUS], block = pick(&d, 1, 1000), of[MOST_GPUS] = {0};
        int64_t unit = pick(&d, 0, 1) ? 1 : INT64_C(1) << 34;
        bool even[MOST_UNITS];
        for (int32_t i = 0; i < n; i++) {
            weights[i] = (i ? pick(&d, 0, 5) > 0 : 1) * pick(&d, 1, 99) * unit;
            all_weights += weights[i];
            if (weights[i] < least) least = weights[i];
        }
        for (int32_t u = 0; u < n_units; u++) all += sizes[u] = pick(&d, 0, 4) ? block : pick(&d, 0, 3000);
        cephalo_partition_units(n, weights, n_units, sizes, shards, even);
        for (int32_t u = 0; u < n_units; u++) {
            int64_t sum = 0, each = (sizes[u] + n - 1) / n;
            bool well_cut = true; /* one assertion a unit: each is a message to the runner */
            for (int32_t i = 0; i < n; i++) {
                int64_t x = shards[u * n + i], left = sizes[u] - i * each;
                well_cut &= even[u] ? x == (left < 0 ? 0 : left < each ? left : each) : x >= 0;
                sum += x;
                of[i] += x;
            }
            ck_assert_msg(well_cut && sum == sizes[u], "seed %d, unit %d", (int)seed, u);
            evens += even[u];
            if (even[u]) in_even += sizes[u];
            if (!even[u] && (!smallest || sizes[u] < smallest)) smallest = sizes[u];
        }
        /* as many as the least weight allows: in_even / N <= r all, and not even the smallest other unit fits beside
         * them */
        ck_assert((__int128)in_even * all_weights <= (__int128)n * least * all);
        ck_assert(evens == n_units || (__int128)(in_even + smallest) * all_weights > (__int128)n * least * all);
        for (int32_t i = 0; i < n; i++) { /* r_i all, one for rounding, and padding: at most (N - 1) / N an even unit */
            double part = (double)weights[i] / (double)all_weights * (double)all;
            ck_assert_msg((double)of[i] < part + 1 + evens + 1e-6, "seed %d, GPU %d", (int)seed, i);
            ck_assert_msg((double)of[i] > part - 1 - (double)evens * n - 1e-6, "seed %d, GPU %d", (int)seed, i);
        }
        n_even += evens;
        n_uneven += n_units - evens;
    }
    ck_assert_int_gt(n_even, 2 * INSTANCES);
    ck_assert_int_gt(n_uneven, 2 * INSTANCES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("Cephalo: partition of the state");
    TCase *tc = tcase_create("partition");
    tcase_add_test(tc, example_2);
    tcase_add_test(tc, state_that_does_not_fit);
    tcase_add_test(tc, state_as_the_greedy_shares_it);
    tcase_add_test(tc, state_of_petabytes);
    tcase_add_test(tc, example_3);
    tcase_add_test(tc, the_largest_units_become_even_first);
    tcase_add_test(tc, units_of_any_size);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
