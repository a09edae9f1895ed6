/* Candidates: the memory that spaces of unlike ranks lack, and the time of an iteration, both by hand. */
#include "common/plan/candidate.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/*
 * Two devices on two nodes. Each op of a rank allocates "device" bytes there and "host" bytes in its node's memory, as
 * scratch. The devices hold 4096 and 2048 bytes, the nodes 1024 and 8192. Rank 1 begins once rank 0 is done, and rank 0
 * once rank 1 of the iteration before is.
 */
static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    static const int64_t device[] = {4096, 2048}, host[] = {1024, 8192};
    static const int32_t nodes[] = {0, 1};
    (void)scenario;
    if (!ht_plan_get(plan, "device")) return ht_fail(err, HT_INFEASIBLE, "%s: nothing to do", self->name);
    struct ht_schedule *s = *out = ht_schedule_create("candidate", 2, 2, nodes);
    for (int32_t rank = 0; rank < 2; rank++) {
        struct ht_label about = {.unit = -1, .micro_batch = -1};
        struct ht_tensor scratch = {.class = HT_WORKSPACE, .label = about, .rank = rank};
        struct ht_work work = {0};
        ht_schedule_set_capacity(s, HT_DEVICE, rank, device[rank]);
        ht_schedule_set_capacity(s, HT_HOST, rank, host[rank]);
        int32_t lane = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, rank, HT_FIFO);
        strcpy(work.custom, rank ? "second" : "first");
        ht_add_op(s, HT_OP_FORWARD, lane, about, ht_add_work(s, &work));
        ht_op_after(s, rank - 1);
        if (rank == 0) ht_op_after_prev(s, 1);
        for (int tier = HT_DEVICE; tier <= HT_HOST; tier++) {
            scratch.bytes = ht_plan_get(plan, tier == HT_DEVICE ? "device" : "host");
            ht_op_effect(s, ht_add_tensor(s, scratch), (enum ht_tier)tier, HT_PRODUCE | HT_RELEASE);
        }
    }
    ht_schedule_link(s);
    return HT_OK;
}

static const struct ht_system unlike = {.name = "unlike", .build = build};

static struct ht_plan plan_of(int64_t device, int64_t host)
{
    struct ht_plan plan = {0};
    ht_plan_set(&plan, "device", device);
    ht_plan_set(&plan, "host", host);
    return plan;
}

static enum ht_status prove(int64_t device, int64_t host, struct ht_candidate *x)
{
    struct ht_error err = {0};
    struct ht_plan plan = plan_of(device, host);
    enum ht_status status = ht_candidate_prove(&unlike, NULL, &plan, &err, x);
    ht_plan_free(&plan);
    return status;
}

START_TEST(what_the_tightest_space_lacks)
{
    static const struct {
        int64_t device, host, short_device, short_host;
    } rows[] = {
        {2048, 1024, 0, 0},         /* the smaller device and the smaller node are full */
        {2560, 1024, 512, 0},       /* fits device 0 */
        {2048, 3072, 0, 2048},      /* fits node 1 */
        {8192, 16384, 6144, 15360}, /* fits nowhere: 8192 - 2048, 16384 - 1024 */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ht_candidate x;
        bool fits = !rows[i].short_device && !rows[i].short_host;
        ck_assert_int_eq(prove(rows[i].device, rows[i].host, &x), fits ? HT_OK : HT_INFEASIBLE);
        struct ht_needs needs = ht_candidate_needs(&x), again;
        struct ht_plan plan = plan_of(rows[i].device, rows[i].host);
        struct ht_error err = {0};
        ck_assert_int_eq(needs.short_bytes[HT_DEVICE], rows[i].short_device);
        ck_assert_int_eq(needs.short_bytes[HT_HOST], rows[i].short_host);
        ck_assert_int_eq(needs.peak_bytes[HT_DEVICE], rows[i].device);
        ck_assert_int_eq(needs.peak_bytes[HT_HOST], rows[i].host);
        ck_assert_int_eq(needs.peak_bytes[HT_DISK], 0);
        ck_assert_int_eq(ht_plan_needs(&unlike, NULL, &plan, &err, &again), HT_OK); /* whether it fits or not */
        ck_assert_mem_eq(&again, &needs, sizeof needs);
        ck_assert_str_eq(err.text, "");
        ht_plan_free(&plan);
        ht_candidate_free(&x);
    }
}
END_TEST

/* A plan that the builder refuses has no schedule, and nothing is known of its memory. */
START_TEST(what_the_builder_refuses)
{
    struct ht_candidate x;
    ck_assert_int_eq(prove(0, 0, &x), HT_INFEASIBLE);
    ck_assert_ptr_null(x.schedule);
    struct ht_needs needs = ht_candidate_needs(&x);
    struct ht_plan plan = plan_of(0, 0);
    struct ht_error err = {0};
    ck_assert_int_eq(needs.short_bytes[HT_DEVICE], 0);
    ck_assert_int_eq(needs.peak_bytes[HT_HOST], 0);
    ck_assert_int_eq(ht_plan_needs(&unlike, NULL, &plan, &err, &needs), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "unlike: nothing to do");
    ht_plan_free(&plan);
    ht_candidate_free(&x);
}
END_TEST

/* 30 + 12 ns, one after the other. */
START_TEST(a_steady_iteration)
{
    struct ht_scenario_request request = {.model = "gpt-tiny", .cluster = "local", .ranks = 2};
    struct ht_error err = {0};
    struct ht_candidate x;
    struct ht_profile *costs = ht_profile_create("by hand", "the test");
    int64_t ns = 0;
    struct ht_scenario scenario = scenario_from(&request);
    ck_assert_int_eq(prove(512, 512, &x), HT_OK);
    ht_profile_add(costs, "first", 30);
    ck_assert_int_eq(ht_candidate_simulate(&x, &scenario, costs, &err, &ns), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "no cost of 'second'") != NULL, "%s", err.text);
    ht_profile_add(costs, "second", 12);
    ck_assert_int_eq(ht_candidate_simulate(&x, &scenario, costs, &err, &ns), HT_OK);
    ck_assert_int_eq(ns, 42);
    for (int64_t limit = 1; limit <= 43; limit++) { /* not below the limit: between it and the time */
        ck_assert_int_eq(ht_candidate_simulate_within(&x, &scenario, costs, limit, &err, &ns), HT_OK);
        ck_assert(limit > 42 ? ns == 42 : ns >= limit && ns <= 42);
    }
    ht_candidate_free(&x);
    ht_profile_destroy(costs);
    ht_scenario_free(&scenario);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("candidate");
    TCase *t = tcase_create("candidate");
    tcase_add_test(t, what_the_tightest_space_lacks);
    tcase_add_test(t, what_the_builder_refuses);
    tcase_add_test(t, a_steady_iteration);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
