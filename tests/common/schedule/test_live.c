/* Live memory while each op runs, by hand. */
#include "common/schedule/live.h"

#include <check.h>
#include <stdlib.h>

static const struct ht_label about = {.unit = -1, .micro_batch = -1};

static int32_t row(struct ht_schedule *s, enum ht_tensor_class class, int32_t rank, int64_t bytes)
{
    return ht_add_tensor(s, (struct ht_tensor){.class = class, .label = about, .bytes = bytes, .rank = rank});
}

static int32_t op(struct ht_schedule *s, int32_t lane, enum ht_when when)
{
    struct ht_work work = {.custom = "op"};
    int32_t id = ht_add_op(s, HT_OP_FORWARD, lane, about, ht_add_work(s, &work));
    ht_op_when(s, when);
    return id;
}

/*
 * Two ranks on one node; P (1024 bytes) is resident on device 0. In bytes, rounded up to 512:
 *
 *     op   rank                                       device 0             of it no parameters   host
 *     0    0     makes A (600) on the device          1024 + 1024          1024                  0
 *     1    0     makes host H (512), frees A          1024 + 1024          1024                  512
 *     2    0     a group of two: each makes and       1024                 0                     512 + 2 x 2048
 *     3    1     frees its own S (2048) on the host   1024                 0                     512 + 2 x 2048
 *     4    0     when bad: makes X (4096), which      1024                 0                     512
 *                does not count
 *     5    0     when ok: frees H                     1024                 0                     512
 *     6    0                                          1024                 0                     0
 */
START_TEST(by_hand)
{
    static const int64_t device[] = {2048, 2048, 1024, 1024, 1024, 1024, 1024}, others[] = {1024, 1024, 0, 0, 0, 0, 0},
                         host[] = {0, 512, 4608, 4608, 512, 512, 0};
    struct ht_schedule *s = ht_schedule_create("live", 2, 1, NULL);
    int32_t gpu[2];
    int64_t bytes[7];
    for (int32_t r = 0; r < 2; r++) gpu[r] = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
    ht_add_resident(s, row(s, HT_PARAM, 0, 1024), HT_DEVICE, 0);
    int32_t a = row(s, HT_ACTIVATION, 0, 600), h = row(s, HT_GRAD, 0, 512);
    op(s, gpu[0], HT_ALWAYS);
    ht_op_effect(s, a, HT_DEVICE, HT_PRODUCE);
    op(s, gpu[0], HT_ALWAYS);
    ht_op_effect(s, h, HT_HOST, HT_PRODUCE);
    ht_op_effect(s, a, HT_DEVICE, HT_NEED | HT_RELEASE);
    for (int32_t r = 0; r < 2; r++) {
        op(s, gpu[r], HT_ALWAYS);
        ht_op_match(s, 0);
        ht_op_effect(s, row(s, HT_STAGING, r, 2048), HT_HOST, HT_PRODUCE | HT_RELEASE);
    }
    op(s, gpu[0], HT_WHEN_BAD);
    ht_op_effect(s, row(s, HT_STAGING, 0, 4096), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    op(s, gpu[0], HT_WHEN_OK);
    ht_op_effect(s, h, HT_HOST, HT_NEED | HT_RELEASE);
    op(s, gpu[0], HT_ALWAYS);

    ht_schedule_live(s, ht_space(s, HT_DEVICE, 0), HT_ALL_CLASSES, bytes);
    for (int i = 0; i < 7; i++) ck_assert_int_eq(bytes[i], device[i]);
    ht_schedule_live(s, ht_space(s, HT_DEVICE, 0), HT_ALL_CLASSES & ~HT_CLASS(HT_PARAM), bytes);
    for (int i = 0; i < 7; i++) ck_assert_int_eq(bytes[i], others[i]);
    ht_schedule_live(s, ht_space(s, HT_HOST, 1), HT_ALL_CLASSES, bytes);
    for (int i = 0; i < 7; i++) ck_assert_int_eq(bytes[i], host[i]);
    ht_schedule_live(s, ht_space(s, HT_DEVICE, 1), HT_ALL_CLASSES, bytes);
    for (int i = 0; i < 7; i++) ck_assert_int_eq(bytes[i], 0);
    ht_schedule_destroy(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("live");
    TCase *t = tcase_create("live");
    tcase_add_test(t, by_hand);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
