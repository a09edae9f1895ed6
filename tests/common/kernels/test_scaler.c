/* The loss scale follows torch.amp.GradScaler's rule, and clipping torch.nn.utils.clip_grad_norm_'s. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/array.h"
#include "common/kernels/scaler.h"

/* growth 3 after 2 good ones, backoff 1/4, from 8:
     bad   8 / 4 = 2                      good  1 in a row
     good  2 in a row: 2 * 3 = 6          good  1          bad  6 / 4 = 1.5, and the count starts again
     good  1                              good  2: 1.5 * 3 = 4.5 */
START_TEST(test_by_hand)
{
    const struct ht_control_options o = {
        .dynamic = true, .loss_scale = 8, .growth = 3, .backoff = 0.25, .growth_interval = 2};
    const struct {
        bool finite;
        double scale;
        int64_t good;
    } then[] = {{false, 2, 0},   {true, 2, 1},   {true, 6, 0},  {true, 6, 1},
                {false, 1.5, 0}, {true, 1.5, 1}, {true, 4.5, 0}};
    struct ht_scaler s = ht_scaler_start(&o);
    ck_assert(s.scale == 8 && s.good == 0);
    for (size_t i = 0; i < HT_COUNT(then); i++) {
        ht_scaler_update(&s, &o, then[i].finite);
        ck_assert_msg(s.scale == then[i].scale && s.good == then[i].good, "%zu: %g after %d", i, s.scale, (int)s.good);
    }
}
END_TEST

START_TEST(test_defaults)
{
    const struct ht_control_options none = {0}, dynamic = {.dynamic = true};
    struct ht_scaler s = ht_scaler_start(&none);
    ht_scaler_update(&s, &none, false);
    ck_assert(s.scale == 1 && s.good == 0);
    s = ht_scaler_start(&dynamic);
    for (int i = 0; i < 1999; i++) ht_scaler_update(&s, &dynamic, true);
    ck_assert(s.scale == 65536 && s.good == 1999);
    ht_scaler_update(&s, &dynamic, true);
    ck_assert(s.scale == 131072 && s.good == 0);
    ht_scaler_update(&s, &dynamic, false);
    ck_assert(s.scale == 65536);
}
END_TEST

/* The scale is an FP32 number; it does not grow beyond the largest. */
START_TEST(test_ends)
{
    const struct ht_control_options o = {.dynamic = true, .loss_scale = 0x1p127, .growth_interval = 1, .backoff = 0.1};
    struct ht_scaler s = ht_scaler_start(&o);
    ht_scaler_update(&s, &o, true);
    ck_assert(s.scale == 0x1p127 && s.good == 0);
    ht_scaler_update(&s, &o, false);
    ck_assert(s.scale == (float)(0x1p127 * 0.1));
}
END_TEST

/* clip 1: norm 2 gives 1 / 2.000001; norm 0.5 gives 1; none: 1. */
START_TEST(test_clip)
{
    ck_assert(ht_clip_factor(1, 2) == 1 / 2.000001 && ht_clip_factor(1, 0.5) == 1);
    ck_assert(ht_clip_factor(0, 1e30) == 1 && ht_clip_factor(1, 0) == 1);
    ck_assert(ht_clip_factor(1, 0.9999999) < 1); /* the 1e-6 counts */
}
END_TEST

/*
 * Cephalo's eq. 1: N = 2 GPUs, B = 4 samples, of which GPU 0 has b_0 = 3 with gradients 1, 2, 3 and GPU 1 b_1 = 1 with 6.
 *
 *     right    (1 + 2 + 3 + 6) / 4 = 3
 *     left     1/2 (2 3/4 2 + 2 1/4 6) = 1/2 (3 + 3) = 3, where the unweighted mean of both GPUs' means is (2 + 6) / 2
 *
 * Eight targets a sample and a scale of 16: each target counts 16 / 32.
 */
START_TEST(test_loss_weight)
{
    const double of_gpu_0[] = {1, 2, 3}, of_gpu_1 = 6;
    double weight = ht_loss_weight(1, 4, 1), sum = of_gpu_1 * weight;
    for (int j = 0; j < 3; j++) sum += of_gpu_0[j] * weight;
    ck_assert(sum == 3);
    ck_assert(ht_loss_weight(16, 4, 8) == 0.5);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("scaler");
    TCase *t = tcase_create("scaler");
    tcase_add_test(t, test_by_hand);
    tcase_add_test(t, test_defaults);
    tcase_add_test(t, test_ends);
    tcase_add_test(t, test_clip);
    tcase_add_test(t, test_loss_weight);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
