/* Equations (1) to (5) and the period against the arithmetic above each table, and eq. 6 on one instance worked out in
   full. */
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
        ck_assert_int_eq(autohete_overlapped(&f, s), rows[i].v);
        ck_assert_int_eq(autohete_by_period.overlapped(&f, s), rows[i].exact);
        ck_assert_int_eq(autohete_forward_ns(&f, s), rows[i].forward);
        ck_assert_int_eq(autohete_sync_ns(&f, s, rows[i].v), rows[i].sync);
        ck_assert_int_eq(autohete_sync_ns(&f, s, rows[i].exact), rows[i].exact_sync);
        ck_assert_int_eq(autohete_backward_ns(&f, s, rows[i].v), rows[i].backward);
        ck_assert_int_eq(autohete_iteration_ns(&f, s, rows[i].v), rows[i].sum);
        ck_assert_int_eq(autohete_iteration_ns(&f, s, rows[i].exact), rows[i].exact_sum);
    }
}
END_TEST

/*
 * The same plans as a period. t_head = t_turn = t_const = 0. Two steps after the first take 2 x (30-20) >= 20 more than
 * backward slots, so block L-2 is stepped last, with 3 forward slots from there on.
 *
 *              (3,1,5)                        (3,2,4)                           (3,3,3)
 *   device     150+30 = 180                   150+30+4+2 = 186                  150+30+12+4 = 196
 *   chain      180-0-0+24+30+24 = 258         186-32-10+78 = 222                196-64-20+78 = 190
 *   prefetch   258-24+24x5-10x4 = 314         222-24+24x4-10x3 = 264            190-24+24x3-10x2 = 218
 *   host       30x5+24+10x3+20+24 = 248       30x4+98 = 218                     30x3+98 = 188
 *   d2h        24x5+30+24+10+20 = 204         24x4+84 = 180                     24x3+84 = 156
 *   h2d        24x(5+1) = 144                 24x(4+2) = 144                    24x(3+3) = 144
 *
 * (5,1,2), c = L: device 150+50+0+6 = 206, with R_L in host and d2h: 30x2+98+10 = 168, 24x2+84+10 = 142; chain
 * 206-96-30+78 = 158, prefetch 158-24+24x2-10 = 172, h2d 72. (0,0,0): device 160, chain and prefetch 160-160 = 0.
 */
START_TEST(periods_by_hand)
{
    static const struct {
        struct autohete_choice s;
        int64_t device, chain, prefetch, host, d2h, h2d;
        enum autohete_bound longest;
    } rows[] = {{{3, 1, 5}, 180, 258, 314, 248, 204, 144, AUTOHETE_PREFETCH},
                {{3, 2, 4}, 186, 222, 264, 218, 180, 144, AUTOHETE_PREFETCH},
                {{3, 3, 3}, 196, 190, 218, 188, 156, 144, AUTOHETE_PREFETCH},
                {{5, 1, 2}, 206, 158, 172, 168, 142, 72, AUTOHETE_DEVICE},
                {{0, 0, 0}, 160, 0, 0, 0, 0, 0, AUTOHETE_DEVICE}};
    struct autohete_profile f = example();
    ck_assert_int_eq(autohete_blocks_behind(&f), 3);
    for (size_t i = 0; i < HT_COUNT(rows); i++) {
        int64_t ns[AUTOHETE_N_BOUNDS];
        autohete_periods(&f, rows[i].s, ns);
        ck_assert_int_eq(ns[AUTOHETE_DEVICE], rows[i].device);
        ck_assert_int_eq(ns[AUTOHETE_CHAIN], rows[i].chain);
        ck_assert_int_eq(ns[AUTOHETE_PREFETCH], rows[i].prefetch);
        ck_assert_int_eq(ns[AUTOHETE_HOST], rows[i].host);
        ck_assert_int_eq(ns[AUTOHETE_SUMS], rows[i].host);
        ck_assert_int_eq(ns[AUTOHETE_D2H], rows[i].d2h);
        ck_assert_int_eq(ns[AUTOHETE_H2D], rows[i].h2d);
        ck_assert_int_eq(autohete_longest(ns), rows[i].longest);
        ck_assert_int_eq(autohete_by_period.objective_ns(&f, rows[i].s), ns[rows[i].longest]);
    }
    f.cpu_ns = 40; /* twice t_bp: block L-1 is passed over at once */
    ck_assert_int_eq(autohete_blocks_behind(&f), 2);
    f.cpu_ns = 20; /* the CPU keeps up */
    ck_assert_int_eq(autohete_blocks_behind(&f), 1);
}
END_TEST

/*
 * As printed: the optimum is (3,3,3): 2x3 + 20x(5-3+1) + 8x(5-3+1) + 48x(5-3) + 10 = 6+60+24+96+10 = 196 <= 200, time 224.
 * By the period: (2,1,3): 2x2 + 20x3 + 8x(3-1+1) + 48x2 + 10 = 4+60+24+96+10 = 194, period 200 by the prefetches: device
 * 150+20+4+4 = 178, chain 178-64-20+78 = 172, prefetch 172-24+24x3-10x2 = 200. (4,1,2) takes 200 too, by the device
 * (150+40+4+6), and loses by c.
 */
START_TEST(memory_and_optimum_by_hand)
{
    struct autohete_profile f = example();
    const struct autohete_box box = {{0, 0, 0}, {5, 5, 5}};
    struct autohete_choice s;
    struct ht_error err = {0};
    ck_assert_int_eq(autohete_device_bytes(&f, (struct autohete_choice){3, 3, 3}), 196);
    ck_assert_int_eq(autohete_by_period.device_bytes(&f, (struct autohete_choice){2, 1, 3}), 194);
    ck_assert_int_eq(autohete_by_period.device_bytes(&f, (struct autohete_choice){5, 1, 2}), 198);
    ck_assert_int_eq(autohete_host_bytes(&f, (struct autohete_choice){5, 1, 2}), 112);
    for (int glpk = 0; glpk <= 1; glpk++) {
        ck_assert_int_eq((glpk ? autohete_solve : autohete_search)(&f, &autohete_printed, &box, &err, &s), HT_OK);
        ck_assert(s.c == 3 && s.p == 3 && s.o == 3);
        ck_assert_int_eq((glpk ? autohete_solve : autohete_search)(&f, &autohete_by_period, &box, &err, &s), HT_OK);
        ck_assert(s.c == 2 && s.p == 1 && s.o == 3);
    }
}
END_TEST

/* The plan of Fig. 2, c=3 p=1 o=5, without M_gc: 2x3 + 20x3 + 8x5 = 6 + 60 + 40 = 106 as printed, one set of
   activations less by footnote 2. The 78 and 86 bytes that are live at the end of F_5 and during B_5 are in
   test_schedule.c. */
START_TEST(memory_of_figure_2)
{
    struct autohete_profile f = example();
    f.device_const_bytes = 0;
    const struct autohete_choice s = {3, 1, 5};
    ck_assert_int_eq(autohete_device_bytes(&f, s), 106);
    ck_assert_int_eq(autohete_by_period.device_bytes(&f, s), 86);
}
END_TEST

/* FP32: the 16-byte copy of a block's 4 parameters is its own master, part of the 48 bytes of states. Both forms count
   the same parameters then. (3,1,2): as printed 6 + 60 + 16x(5-1+1) + (48-16)x3 = 6+60+80+96 = 242; by footnote 2 6 + 40 +
   16x(2-1+1) + 48x3 = 222. */
START_TEST(fp32_has_no_second_copy)
{
    struct autohete_profile f = example();
    f.device_const_bytes = 0;
    f.copy_bytes = f.shared_bytes = 16;
    const struct autohete_choice s = {3, 1, 2};
    ck_assert_int_eq(autohete_device_bytes(&f, s), 242);
    ck_assert_int_eq(autohete_by_period.device_bytes(&f, s), 222);
}
END_TEST

/*
 * Three micro-batches, adding a gradient takes 3 on the device and 5 on the host; (3,2,4), as printed.
 * T_fwd = 106 as above, T_bwd = max(100 + 30 + (2+3)x1 + 0, 20 + 24 + 35x4) = 184.
 * Each of the two others: T'_fwd = max(50, 24x2+10) = 58, T'_bwd = max(100 + 30 + 3x1, 20 + 24 + 5x4) = 133.
 * 106 + 184 + 2 x (58 + 133) = 672. Sums of 16 bytes a block on the device for L - o = 1 block: 16 more bytes.
 */
START_TEST(several_micro_batches)
{
    struct autohete_profile f = example();
    int64_t one = autohete_device_bytes(&f, (struct autohete_choice){3, 2, 4});
    f.micro_batches = 3;
    f.gpu_sum_ns = 3;
    f.cpu_sum_ns = 5;
    f.sum_bytes = 16;
    ck_assert_int_eq(autohete_printed.objective_ns(&f, (struct autohete_choice){3, 2, 4}), 672);
    ck_assert_int_eq(autohete_device_bytes(&f, (struct autohete_choice){3, 2, 4}), one + 16);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *t = tcase_create("equations");
    tcase_add_test(t, times_by_hand);
    tcase_add_test(t, periods_by_hand);
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
