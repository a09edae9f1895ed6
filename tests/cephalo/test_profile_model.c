#include "cephalo/profile_model.h"

#include <check.h>

/*
 * tf(m) = 10 m + 20 from m = 4 on, and more before: the line is that of m = 4..8, so that the first three points do not
 * bend it. tf(16) = 180.
 */
START_TEST(latency_is_a_table_and_then_a_line)
{
    int64_t y[17] = {0, 50, 55, 58, 60, 70, 80, 90, 100};
    cephalo_extend_latency(y, 8, 16);
    static const int64_t want[] = {50, 55, 58, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180};
    for (int m = 1; m <= 16; m++) ck_assert_int_eq(y[m], want[m - 1]);
}
END_TEST

/* m = 2..4: 20, 50, 50. Mean 40 at m = 3; slope (-1 * -20 + 1 * 10) / 2 = 15: 40 + 15 * 2 = 70 at 5, 85 at 6. */
START_TEST(latency_by_least_squares)
{
    int64_t y[7] = {0, 5, 20, 50, 50};
    cephalo_extend_latency(y, 4, 6);
    ck_assert(y[1] == 5 && y[2] == 20 && y[3] == 50 && y[4] == 50);
    ck_assert_int_eq(y[5], 70);
    ck_assert_int_eq(y[6], 85);
}
END_TEST

/* Two points that fall, 30 and 20: their mean. */
START_TEST(latency_never_falls)
{
    int64_t y[5] = {0, 30, 20};
    cephalo_extend_latency(y, 2, 4);
    ck_assert_int_eq(y[3], 25);
    ck_assert_int_eq(y[4], 25);
}
END_TEST

/*
 * (1, 103), (2, 104), (3, 108), (4, 109): mean 106 at 2.5, slope (1.5 * 6 + 0.5 * 4) / 5 = 2.2, so c = 2 and a = 106 -
 * 5 = 101. The line has 103, 105, 107, 109; the points are off by at most 1.
 */
START_TEST(memory_is_a_line_of_whole_bytes)
{
    int64_t y[7] = {-1, 103, 104, 108, 109};
    struct cephalo_line line = cephalo_fit_memory(y, 4, 6);
    ck_assert_double_eq(line.intercept, 101);
    ck_assert_double_eq(line.slope, 2);
    ck_assert_double_eq(line.worst, 1);
    for (int m = 0; m <= 6; m++) ck_assert_int_eq(y[m], 101 + 2 * m);
}
END_TEST

/* Points as above, 2.2 m + 100.5; the third lies 0.9 above the line: 101.4 + 2.2 * 5 = 112.4 and 114.6, rounded up. */
START_TEST(memory_beyond_a_table_is_no_less_than_it)
{
    int64_t y[7] = {7, 103, 104, 108, 109};
    cephalo_extend_memory(y, 4, 6);
    ck_assert(y[0] == 7 && y[1] == 103 && y[2] == 104 && y[3] == 108 && y[4] == 109);
    ck_assert_int_eq(y[5], 113);
    ck_assert_int_eq(y[6], 115);
}
END_TEST

/* Nothing to fill: the table is as long as what was measured. */
START_TEST(tables_that_are_complete_stay)
{
    int64_t y[4] = {1, 9, 8, 30}, same[4] = {1, 9, 8, 30};
    cephalo_extend_latency(y, 3, 3);
    cephalo_extend_memory(y, 3, 3);
    for (int m = 0; m <= 3; m++) ck_assert_int_eq(y[m], same[m]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("Cephalo: profile models");
    TCase *tc = tcase_create("models");
    tcase_add_test(tc, latency_is_a_table_and_then_a_line);
    tcase_add_test(tc, latency_by_least_squares);
    tcase_add_test(tc, latency_never_falls);
    tcase_add_test(tc, memory_is_a_line_of_whole_bytes);
    tcase_add_test(tc, memory_beyond_a_table_is_no_less_than_it);
    tcase_add_test(tc, tables_that_are_complete_stay);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
