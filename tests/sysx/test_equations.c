/* Eqs. 1 to 3 and the decoupled time, against passes laid out one by one as each GPU takes them. */
#include "common/base/array.h"
#include "common/schedule/pipeline.h"
#include "sysx/equations.h"
#include "sysx/sysx.h"

#include <check.h>
#include <stdlib.h>

/* Lays out all passes; *idle: the time that rank 0 has no pass until the last one of all GPUs ends. */
static int64_t lay_out(struct ht_pipe_shape p, int64_t forward, int64_t backward, int64_t *idle)
{
    int64_t n = ht_pipe_passes(&p), busy = 0;
    struct ht_pipe_pass *passes = HT_NEW_ARRAY(struct ht_pipe_pass, n * p.ranks);
    for (int32_t r = 0; r < p.ranks; r++) ht_pipe_rank_order(&p, r, passes + r * n);
    int64_t end = ht_pipe_layout(&p, forward, backward, passes);
    for (int64_t i = 0; i < n; i++) busy += passes[i].end - passes[i].start;
    *idle = end - busy;
    free(passes);
    return end;
}

/* Fig. 1(a): four GPUs, four micro-batches, T_b = 2 T_f: 3 + 6 idle of 7 + 14, which is 3/7. */
START_TEST(figure_1)
{
    struct sysx_pipeline p = {.n_gpus = 4, .n_micro_batches = 4, .v = 1, .forward = 1, .backward = 2};
    ck_assert_int_eq(sysx_bubble_time(&p), 9);
    ck_assert_int_eq(sysx_overall_time(&p), 21);
    ck_assert_double_eq_tol(sysx_bubble_ratio(&p), 3.0 / 7, 1e-15);
}
END_TEST

/* Fig. 5: 9, 8, 7. Figs. 2 and 8: 33, 30, 27. */
START_TEST(figures_2_5_8)
{
    struct sysx_pipeline fig5 = {.n_gpus = 2, .n_micro_batches = 2, .v = 1, .forward = 1, .backward = 2};
    struct sysx_pipeline fig8 = {.n_gpus = 4, .n_micro_batches = 4, .v = 2, .forward = 1, .backward = 2};
    ck_assert_int_eq(sysx_overall_time(&fig5), 9);
    ck_assert_int_eq(sysx_decoupled_time(&fig5, 1), 8);
    ck_assert_int_eq(sysx_decoupled_time(&fig5, 2), 7);
    ck_assert_int_eq(sysx_overall_time(&fig8), 33);
    ck_assert_int_eq(sysx_decoupled_time(&fig8, 1), 30);
    ck_assert_int_eq(sysx_decoupled_time(&fig8, 2), 27);
}
END_TEST

/* 2 to 8 GPUs, up to 5 micro-batches more, v and d from 1 to 3, T_b / T_f = 2 and 3. */
START_TEST(laid_out)
{
    static const int32_t gpus[] = {2, 3, 4, 8};
    for (size_t k = 0; k < HT_COUNT(gpus); k++)
        for (int32_t more = 0; more < 6; more++)
            for (int32_t v = 1; v <= 3; v++)
                for (int32_t d = 1; d <= 3; d++)
                    for (int64_t b = 2; b <= 3; b++) {
                        int32_t n = gpus[k], m = n + more;
                        struct sysx_pipeline p = {n, m, v, .forward = d, .backward = d * b};
                        struct ht_pipe_shape mobius = {n, m, v, 1, HT_PIPE_AFAB, NULL};
                        struct ht_pipe_shape dapple = {n, m, 1, 1, HT_PIPE_1F1B, NULL};
                        struct ht_pipe_shape decoupled = {n, m, v, d, HT_PIPE_AFAB, sysx_backward_rank};
                        int64_t idle;
                        ck_assert_int_eq(lay_out(mobius, d, d * b, &idle), sysx_overall_time(&p));
                        ck_assert_int_eq(idle, sysx_bubble_time(&p));
                        ck_assert_double_eq_tol(sysx_bubble_ratio(&p), (n - 1.0) / (v * m + n - 1.0), 1e-15);
                        ck_assert_int_eq(lay_out(decoupled, d, b, &idle), sysx_decoupled_time(&p, d));
                        if (v > 1) continue;
                        ck_assert_int_eq(lay_out(dapple, d, d * b, &idle), sysx_overall_time(&p));
                        ck_assert_int_eq(idle, sysx_bubble_time(&p));
                    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("equations");
    TCase *tc = tcase_create("equations");
    tcase_add_test(tc, figure_1);
    tcase_add_test(tc, figures_2_5_8);
    tcase_add_test(tc, laid_out);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
