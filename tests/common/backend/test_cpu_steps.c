/* Tests the step counts that runs hand on: overlapping writes, and reads across their borders. */
#include "common/backend/cpu_steps.h"

#include "common/base/rng.h"

#include <check.h>
#include <stdlib.h>

START_TEST(test_by_hand)
{
    struct ht_cpu_steps *s = ht_cpu_steps_create();
    ck_assert_int_eq(ht_cpu_steps_get(s, 1, 0, 100, 7), 7); /* none was put: the default */
    ht_cpu_steps_put(s, 1, 0, 100, 5);
    ht_cpu_steps_put(s, 2, 0, 100, 6);
    ht_cpu_steps_put(s, 1, 40, 60, 4); /* 0..40: 5, 40..60: 4, 60..100: 5 */
    ck_assert_int_eq(ht_cpu_steps_get(s, 1, 0, 40, 7), 5);
    ck_assert_int_eq(ht_cpu_steps_get(s, 1, 40, 60, 7), 4);
    ck_assert_int_eq(ht_cpu_steps_get(s, 1, 60, 100, 7), 5);
    ck_assert_int_eq(ht_cpu_steps_get(s, 1, 39, 41, 7), -1);
    ck_assert_int_eq(ht_cpu_steps_get(s, 2, 0, 100, 7), 6);
    ck_assert_int_eq(ht_cpu_steps_get(s, 2, 90, 110, 7), -1); /* from 100 on it is 7 */
    ck_assert_int_eq(ht_cpu_steps_get(s, 2, 90, 110, 6), 6);
    ht_cpu_steps_put(s, 1, 0, 100, 8);
    ck_assert_int_eq(ht_cpu_steps_get(s, 1, 0, 100, 7), 8);
    ht_cpu_steps_destroy(s);
    ht_cpu_steps_destroy(NULL);
}
END_TEST

/* Compares with an array that has a count for each element. */
START_TEST(test_random)
{
    enum { N = 50, CALLS = 3000, OTHERWISE = 3 };
    struct ht_cpu_steps *s = ht_cpu_steps_create();
    int64_t plain[2][N];
    for (int i = 0; i < 2 * N; i++) plain[i / N][i % N] = OTHERWISE;
    for (uint64_t call = 0; call < CALLS; call++) {
        int32_t unit = (int32_t)ht_random_below(1, 4 * call, 2);
        int64_t begin = (int64_t)ht_random_below(1, 4 * call + 1, N);
        int64_t end = begin + 1 + (int64_t)ht_random_below(1, 4 * call + 2, (uint64_t)(N - begin));
        int64_t steps = (int64_t)ht_random_below(1, 4 * call + 3, 5), expected = plain[unit][begin];
        for (int64_t i = begin; i < end; i++)
            if (plain[unit][i] != expected) expected = -1;
        ck_assert_int_eq(ht_cpu_steps_get(s, unit, begin, end, OTHERWISE), expected);
        if (call % 2) continue;
        ht_cpu_steps_put(s, unit, begin, end, steps);
        for (int64_t i = begin; i < end; i++) plain[unit][i] = steps;
    }
    ht_cpu_steps_destroy(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cpu steps");
    TCase *t = tcase_create("cpu steps");
    tcase_add_test(t, test_by_hand);
    tcase_add_test(t, test_random);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
