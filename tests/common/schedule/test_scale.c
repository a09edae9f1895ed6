/* A million ops: the result is checked, the time is printed. */
#include "tests/common/schedule/sample.h"

#include <check.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ops in turn on eight lanes, half of them PRIORITY; op i writes tensor i, reads three before it and frees an older
   one: nearly every access costs an edge. */
static struct ht_schedule *woven(int32_t n)
{
    static const int32_t reads[] = {1, 3, 7};
    struct ht_schedule *s = ht_schedule_create("woven", 1, 1, NULL);
    struct ht_work work = {.custom = "w"};
    struct ht_label none = {.unit = -1, .micro_batch = -1};
    ht_add_work(s, &work);
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        ht_add_lane(s, name, HT_LANE_HOST, 0, i % 2 ? HT_PRIORITY : HT_FIFO);
    }
    for (int32_t i = 0; i < n; i++) {
        struct ht_tensor t = {.class = HT_STAGING, .label = none, .bytes = 100};
        ht_add_tensor(s, t);
        ht_add_op(s, HT_OP_ACCUMULATE, i % 8, none, 0);
        ht_op_effect(s, i, HT_HOST, HT_PRODUCE);
        for (size_t k = 0; k < HT_COUNT(reads); k++)
            if (i >= reads[k]) ht_op_effect(s, i - reads[k], HT_HOST, HT_NEED);
        if (i >= 10) ht_op_effect(s, i - 10, HT_HOST, HT_RELEASE);
    }
    ht_add_op(s, HT_OP_ACCUMULATE, 0, none, 0);
    for (int32_t i = n > 10 ? n - 10 : 0; i < n; i++) ht_op_effect(s, i, HT_HOST, HT_RELEASE);
    return s;
}

static void time_all(struct ht_schedule *s, double begin_s)
{
    struct ht_error err = {0};
    double t0 = now_s();
    ht_schedule_link(s);
    double t1 = now_s();
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    double t2 = now_s();
    uint64_t hash = ht_schedule_hash(s);
    double t3 = now_s();
    printf("%s: %.2f M ops, %.2f M edges, %.2f M effects, %.2f M tensors: build %.2f s, link %.2f s, verify %.2f s, "
           "hash %.2f s (%016llx)\n",
           s->name, s->n_ops / 1e6, (double)(s->deps_begin[s->n_ops] + s->prev_begin[s->n_ops]) / 1e6,
           (double)s->effects_begin[s->n_ops] / 1e6, s->n_tensors / 1e6, t0 - begin_s, t1 - t0, t2 - t1, t3 - t2,
           (unsigned long long)hash);
    ht_schedule_destroy(s);
}

START_TEST(offload_on_64_ranks)
{
    double begin_s = now_s();
    struct sample o = {.units = 100, .batches = 80, .ranks = 64, .unlinked = true};
    time_all(sample_build(o), begin_s);
}
END_TEST

START_TEST(woven_lanes)
{
    double begin_s = now_s();
    time_all(woven(1000000), begin_s);
}
END_TEST

/* A validate op that waits for everything, and a thousand optimizer steps that wait for it. */
START_TEST(wide_fan)
{
    double begin_s = now_s();
    struct sample o = {.units = 500, .batches = 1, .ranks = 64, .control = SAMPLE_ROLLBACK, .unlinked = true};
    time_all(sample_build(o), begin_s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule/scale");
    TCase *c = tcase_create("scale");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, offload_on_64_ranks);
    tcase_add_test(c, woven_lanes);
    tcase_add_test(c, wide_fan);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
