/* Equations (1), (2) and (5) by hand, and what eq. (1) is of the makespans that it stands for. */
#include "autohet/planner.h"

#include "tests/support/draw.h"
#include "tests/support/suite.h"

#include <math.h>

/*
 * Groups t = (3, 4, 2) and (5, 5), K = 6, T_sync = 7: 9 + 5 * 4 = 29, 10 + 5 * 5 = 35; T_iter = 35 + 7 = 42.
 * 7 = 14 bytes at 2 bytes/s.
 */
START_TEST(eq_1)
{
    const double a[] = {3, 4, 2}, b[] = {5, 5};
    ck_assert_double_eq(autohet_pipeline_s(a, 3, 6), 29);
    ck_assert_double_eq(autohet_pipeline_s(b, 2, 6), 35);
    ck_assert_double_eq(autohet_pipeline_s(b, 2, 6) + autohet_sync_s(14, 2), 42);
    ck_assert_double_eq(autohet_sync_s(0, INFINITY), 0);
}
END_TEST

/* 2 A100 and 2 H800 of twice the power with as many layers each, t = (2, 2, 1, 1) in units of half an H800's work. For
   K = 16 an iteration takes 6 + 15 * 2 = 36. A100 work 32 of 36 and so idle 11.1%, H800 16 of 36: 55.6%, all 33.3%. For
   many micro-batches 0, 50%, 25%. */
START_TEST(observation_3)
{
    const double t[] = {2, 2, 1, 1};
    double many = 1e9, all = autohet_pipeline_s(t, 4, 16);
    ck_assert_double_eq(all, 36);
    ck_assert_double_eq_tol(1 - 16 * 2 / all, 0.111, 5e-4);
    ck_assert_double_eq_tol(1 - 16 * 1 / all, 0.556, 5e-4);
    ck_assert_double_eq_tol(1 - 16 * 6 / (4 * all), 0.333, 5e-4);
    ck_assert_double_eq_tol(1 - many * 6 / (4 * autohet_pipeline_s(t, 4, many)), 0.25, 1e-6);
}
END_TEST

/* Makespan of all forwards and then all backwards, without messages: backward takes twice a forward. */
static double all_forward_all_backward(const double *t, int n, int k)
{
    double free_at[8] = {0}, done[8][16];
    for (int m = 0; m < k; m++)
        for (int p = 0; p < n; p++) {
            double in = p ? done[p - 1][m] : 0;
            free_at[p] = done[p][m] = fmax(in, free_at[p]) + t[p] / 3;
        }
    for (int m = 0; m < k; m++)
        for (int p = n - 1; p >= 0; p--) {
            double in = p + 1 < n ? done[p + 1][m] : free_at[p];
            free_at[p] = done[p][m] = fmax(in, free_at[p]) + 2 * t[p] / 3;
        }
    return free_at[0];
}

START_TEST(eq_1_is_all_forward_all_backward)
{
    struct draw d = {.seed = 41};
    for (int i = 0; i < 500; i++) {
        double t[8];
        int n = 1 + (int)pick(&d, 0, 7), k = (int)pick(&d, 1, 16);
        for (int p = 0; p < n; p++) t[p] = (double)pick(&d, 1, 30);
        ck_assert_double_eq_tol(autohet_pipeline_s(t, n, k), all_forward_all_backward(t, n, k), 1e-9);
    }
}
END_TEST

/* K = 8, two units of power 2 and 4: rho = 1 / 9, G = 8 * 6 / 9. One unit has no bubble. */
START_TEST(eq_2)
{
    ck_assert_double_eq_tol(autohet_bubble_ratio(2, 8), 1 / 9.0, 1e-15);
    ck_assert_double_eq_tol(autohet_effective_power(6, 2, 8), 8 * 6 / 9.0, 1e-12);
    ck_assert_double_eq(autohet_effective_power(4, 1, 8), 4);
}
END_TEST

/*
 * t(1, 2, 4, 8, 16) = 5.2, 10.1, 20.1, 40.0, 79.8: t(13) = 40 + 20.1 + 5.2 = 65.3, t(31) = 155.2. With t(n) = a + b n
 * eq. (5) makes t(13) = 3a + 13b, 2a too much; the fit does not.
 */
START_TEST(eq_5)
{
    double t[AUTOHET_POWERS] = {5.2, 10.1, 20.1, 40.0, 79.8};
    ck_assert_double_eq_tol(autohet_composed_s(t, 13), 65.3, 1e-12);
    ck_assert_double_eq_tol(autohet_composed_s(t, 31), 155.2, 1e-12);
    for (int k = 0; k < 5; k++) t[k] = 0.7 + 5 * (1 << k);
    struct autohet_line line = autohet_fit(t, 5);
    ck_assert_double_eq_tol(autohet_composed_s(t, 13), 3 * 0.7 + 13 * 5, 1e-12);
    ck_assert_double_eq_tol(line.fixed_s, 0.7, 1e-9);
    ck_assert_double_eq_tol(line.layer_s, 5, 1e-9);
    ck_assert_int_eq(autohet_profiled_powers(1), 1);
    ck_assert_int_eq(autohet_profiled_powers(31), 5);
    ck_assert_int_eq(autohet_profiled_powers(32), 6);
    ck_assert_double_eq(autohet_fit(t, 1).layer_s, t[0]);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, eq_1);
    tcase_add_test(t, observation_3);
    tcase_add_test(t, eq_1_is_all_forward_all_backward);
    tcase_add_test(t, eq_2);
    tcase_add_test(t, eq_5);
}

int main(void)
{
    return run_suite("autohet equations", add);
}
