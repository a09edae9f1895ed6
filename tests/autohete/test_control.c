/* Gate and rollback in AutoHete: every plan of a small model, and the planner under a budget. */
#include "tests/autohete/helpers.h"
#include "tests/common/draft/control_oracle.h"

#include <stdio.h>

enum { BLOCKS = 4, MIB = 1 << 20 };

static const struct ht_system *const systems[] = {&ht_autohete, &ht_autohete_period};
static const struct ht_system *const orders[] = {&ht_autohete, &ht_autohete_nops};
static const char *const numerics[] = {"fp32", "fp16", "bf16"};

/* Every (c, p, o) by numerics, mode, clipping, micro-batches; variant, placement of the ends and `ahead` in turn. */
START_TEST(every_plan_is_proved)
{
    int64_t n = 0;
    for (int i = 0; i < 3; i++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
            struct ht_scenario sc = tiny(BLOCKS, 3, 3 / micro_batches, numerics[i], (int64_t)4 << 30);
            sc.control = swept_controls[_i];
            for (int64_t o = 0; o <= BLOCKS; o++)
                for (int64_t p = 0; p <= o; p++)
                    for (int64_t c = 0; c <= BLOCKS; c++, n++) {
                        char what[128];
                        int64_t e = n / 2 % 2, ahead = 1 + n % 5;
                        snprintf(what, sizeof what, "%s x%d control %d c=%d p=%d o=%d e=%d ahead=%d", numerics[i],
                                 (int)micro_batches, _i, (int)c, (int)p, (int)o, (int)e, (int)ahead);
                        struct ht_schedule *s = build(orders[n % 2], &sc, plan_by_hand(c, p, o, e, ahead));
                        prove_control(s, &sc, what, (uint64_t)n + 1);
                        ht_schedule_destroy(s);
                    }
            ht_scenario_free(&sc);
        }
    ck_assert_int_eq(n, 3 * 2 * 5 * 15);
}
END_TEST

static bool fits(const struct ht_scenario *sc, struct ht_plan plan)
{
    struct ht_error err = {0};
    struct ht_schedule *s = build(&ht_autohete, sc, plan);
    enum ht_status status = ht_schedule_verify(s, &err, NULL);
    ck_assert_msg(status == HT_OK || status == HT_INFEASIBLE, "%s", err.text);
    ht_schedule_destroy(s);
    return status == HT_OK;
}

/* The plan with the least device memory: everything recomputed, dropped and offloaded. */
static bool any_fits(const struct ht_scenario *sc)
{
    return fits(sc, plan_by_hand(BLOCKS, BLOCKS, BLOCKS, 1, 1)) || fits(sc, plan_by_hand(BLOCKS, BLOCKS, BLOCKS, 0, 1));
}

/* With any budget each planner's schedule fits under control; autohete_period finds one down to nearly the least
   budget. */
START_TEST(the_planner_fits_what_it_is_given)
{
    int planned = 0, missed = 0;
    for (int i = 0; i < 2; i++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
            for (int64_t kib = 512, k = 0; kib <= 16 * 1024; kib += kib / 24, k++) {
                struct ht_scenario sc = tiny(BLOCKS, 3, 3 / micro_batches, numerics[i], kib << 10);
                struct ht_profile *costs = ht_profile_modelled(sc.cluster);
                struct ht_error err = {0};
                struct ht_plan plan = {0};
                sc.control = swept_controls[_i];
                const struct ht_system *system = systems[k % 2];
                enum ht_status status = system->plan(system, &sc, costs, NULL, &err, &plan);
                ck_assert_msg(status == HT_OK || status == HT_INFEASIBLE, "%s", err.text);
                if (status == HT_OK) ck_assert_msg(fits(&sc, plan), "%d KiB", (int)kib);
                planned += status == HT_OK;
                missed += status != HT_OK && k % 2 && any_fits(&sc);
                ht_plan_free(&plan);
                ht_profile_destroy(costs);
                ht_scenario_free(&sc);
            }
    printf("control %d: %d plans; in %d cases the least plan fits and none was found\n", _i, planned, missed);
    ck_assert_int_gt(planned, 100);
    ck_assert_int_lt(missed, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control");
    TCase *t = tcase_create("autohete");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, every_plan_is_proved, 0, (int)HT_COUNT(swept_controls));
    tcase_add_loop_test(t, the_planner_fits_what_it_is_given, 0, (int)HT_COUNT(swept_controls));
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
