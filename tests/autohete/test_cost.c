/* Equations (1) to (5) against the arithmetic above each table, and eq. 6 on one instance worked out in full. */
#include "autohete/autohete.h"

#include "common/base/array.h"

#include <check.h>

/* L=5, t_fp=10 t_bp=20 t_h2d=24 t_d2h=24 t_cpu=30 t_gpu=2; M_a=10 M'_a=1 M_p=4 elements in FP16, so a block has 20
   bytes of activations, 2 of input, 8 of compute copy, 48 of states and 14 x 4 = 56 on the host. M_gc=10 M_gpu=200
   M_cpu=1000. */
static struct autohete_profile example(void)
{
    return (struct autohete_profile){.layers = 5,
                                     .micro_batches = 1,
                                     .input_bytes = 2,
                                     .activation_bytes = 20,
                                     .copy_bytes = 8,
                                     .state_bytes = 48,
                                     .host_bytes = 56,
                                     .device_const_bytes = 10,
                                     .device_capacity_bytes = 200,
                                     .host_capacity_bytes = 1000,
                                     .fp_ns = 10,
                                     .bp_ns = 20,
                                     .h2d_ns = 24,
                                     .d2h_ns = 24,
                                     .cpu_ns = 30,
                                     .gpu_ns = 2};
}

/*
 * k1 = max(24 - 10 - 20, 0) = 0, k2 = max(24 - 20, 0) = 4.
 *
 *   (3,1,5)  v = min(1, 3-0) = 1, exact min(1, 3-1-0) = 1.  T_fwd = max(50, 24x5+10) = 130.  t_sync = 0 + 0x4 = 0.
 *            T_bwd = max(100 + 30 + 0 + 0, 20 + 24 + 150) = 194.  Sum 324.
 *   (3,2,4)  v = min(2, 3-1) = 2, exact 1.  T_fwd = max(50, 106) = 106.  t_sync = 0; exact 4.
 *            T_bwd = max(100 + 30 + 2 + 0, 20 + 24 + 120) = 164.  Sum 270.
 *   (2,3,5)  v = 2, exact 1.  t_sync = 1 x 4 = 4; exact 8.  T_bwd = max(100 + 20 + 4, 194) = 194.  Sum 324.
 *   (0,3,5)  v = 0.  t_sync = 12.  T_bwd = max(112, 194).  Sum 324.
 *   (3,3,3)  v = min(3, 3-2) = 1 (not min(c,p) = 3), exact 0.  T_fwd = max(50, 82) = 82.  t_sync = 2 x 4 = 8; exact 12.
 *            T_bwd = max(100 + 30 + 2x2 + 8, 20 + 24 + 90) = max(142, 134) = 142.  Sum 224; exact 146 and 228.
 */
START_TEST(times_by_hand)
{
    static const struct {
        struct autohete_choice s;
        int64_t v, exact, forward, sync, exact_sync, backward, sum, exact_sum;
    } rows[] = {{{3, 1, 5}, 1, 1, 130, 0, 0, 194, 324, 324},
                {{3, 2, 4}, 2, 1, 106, 0, 4, 164, 270, 270},
                {{2, 3, 5}, 2, 1, 130, 4, 8, 194, 324, 324},
                {{0, 3, 5}, 0, 0, 130, 12, 12, 194, 324, 324},
                {{3, 3, 3}, 1, 0, 82, 8, 12, 142, 224, 228}};
    struct autohete_profile f = example();
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        struct autohete_choice s = rows[i].s;
        ck_assert_int_eq(autohete_overlapped(&f, AUTOHETE_LITERAL, s), rows[i].v);
        ck_assert_int_eq(autohete_overlapped(&f, AUTOHETE_MENDED, s), rows[i].exact);
        ck_assert_int_eq(autohete_forward_ns(&f, s), rows[i].forward);
        ck_assert_int_eq(autohete_sync_ns(&f, AUTOHETE_LITERAL, s), rows[i].sync);
        ck_assert_int_eq(autohete_sync_ns(&f, AUTOHETE_MENDED, s), rows[i].exact_sync);
        ck_assert_int_eq(autohete_backward_ns(&f, AUTOHETE_LITERAL, s), rows[i].backward);
        ck_assert_int_eq(autohete_iteration_ns(&f, AUTOHETE_LITERAL, s), rows[i].sum);
        ck_assert_int_eq(autohete_iteration_ns(&f, AUTOHETE_MENDED, s), rows[i].exact_sum);
    }
}
END_TEST

/*
 * Literal: the optimum is (3,3,3): 2x3 + 20x(5-3+1) + 8x(5-3+1) + 48x(5-3) + 10 = 6+60+24+96+10 = 196 <= 200, time 224.
 * Mended: (5,1,2): 2x5 + 20x1 + 8x(2-1+1) + 48x3 + 10 = 10+20+16+144+10 = 200, T_fwd = max(50, 58) = 58,
 * T_bwd = max(100 + 50 + 2x3 + 0, 20 + 24 + 60) = 156, sum 214; with the printed v, (5,2,2) would tie and lose by p.
 */
START_TEST(memory_and_optimum_by_hand)
{
    struct autohete_profile f = example();
    const struct autohete_box box = {{0, 0, 0}, {5, 5, 5}};
    struct autohete_choice s;
    struct ht_error err = {0};
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_LITERAL, (struct autohete_choice){3, 3, 3}), 196);
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_MENDED, (struct autohete_choice){5, 1, 2}), 200);
    ck_assert_int_eq(autohete_host_bytes(&f, (struct autohete_choice){5, 1, 2}), 112);
    for (int glpk = 0; glpk <= 1; glpk++) {
        ck_assert_int_eq((glpk ? autohete_solve : autohete_search)(&f, AUTOHETE_LITERAL, &box, &err, &s), HT_OK);
        ck_assert(s.c == 3 && s.p == 3 && s.o == 3);
        ck_assert_int_eq((glpk ? autohete_solve : autohete_search)(&f, AUTOHETE_MENDED, &box, &err, &s), HT_OK);
        ck_assert(s.c == 5 && s.p == 1 && s.o == 2);
    }
}
END_TEST

/* The plan of Fig. 2, c=3 p=1 o=5, without M_gc: 2x3 + 20x3 + 8x5 = 6 + 60 + 40 = 106 in both forms, since o = L. The
   78 and 86 bytes that are live at the end of F_5 and during B_5 are in test_schedule.c. */
START_TEST(memory_of_figure_2)
{
    struct autohete_profile f = example();
    f.device_const_bytes = 0;
    const struct autohete_choice s = {3, 1, 5};
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_LITERAL, s), 106);
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_MENDED, s), 106);
}
END_TEST

/* FP32: the 16-byte copy of a block's 4 parameters is its own master, part of the 48 bytes of states. Both forms count
   the same then. (3,1,2): literal 6 + 60 + 16x(5-1+1) + (48-16)x3 = 6+60+80+96 = 242; mended 6 + 60 + 16x(2-1+1) + 48x3
   = 242. */
START_TEST(fp32_has_no_second_copy)
{
    struct autohete_profile f = example();
    f.device_const_bytes = 0;
    f.copy_bytes = f.shared_bytes = 16;
    const struct autohete_choice s = {3, 1, 2};
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_LITERAL, s), 242);
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_MENDED, s), 242);
}
END_TEST

/*
 * Three micro-batches, adding a gradient takes 3 on the device and 5 on the host; (3,2,4), literal.
 * T_fwd = 106 as above, T_bwd = max(100 + 30 + (2+3)x1 + 0, 20 + 24 + 35x4) = 184.
 * Each of the two others: T'_fwd = max(50, 24x2+10) = 58, T'_bwd = max(100 + 30 + 3x1, 20 + 24 + 5x4) = 133.
 * 106 + 184 + 2 x (58 + 133) = 672. Sums of 16 bytes a block on the device for L - o = 1 block: 16 more bytes.
 */
START_TEST(several_micro_batches)
{
    struct autohete_profile f = example();
    int64_t one = autohete_device_bytes(&f, AUTOHETE_LITERAL, (struct autohete_choice){3, 2, 4});
    f.micro_batches = 3;
    f.gpu_sum_ns = 3;
    f.cpu_sum_ns = 5;
    f.sum_bytes = 16;
    ck_assert_int_eq(autohete_iteration_ns(&f, AUTOHETE_LITERAL, (struct autohete_choice){3, 2, 4}), 672);
    ck_assert_int_eq(autohete_device_bytes(&f, AUTOHETE_LITERAL, (struct autohete_choice){3, 2, 4}), one + 16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *t = tcase_create("equations");
    tcase_add_test(t, times_by_hand);
    tcase_add_test(t, memory_and_optimum_by_hand);
    tcase_add_test(t, memory_of_figure_2);
    tcase_add_test(t, fp32_has_no_second_copy);
    tcase_add_test(t, several_micro_batches);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
