/* Drives the state machine by hand: several validate ops in one iteration; what is issued ahead. */
#include "common/exec/core.h"

#include <check.h>
#include <stdlib.h>

/*
 * Two validate ops on two lanes, then an op for either outcome. One validate op that says bad makes the iteration bad,
 * whichever of the two it is and in whichever order they end; the next iteration begins as ok again.
 *
 *     a   V0  N2 (when ok)
 *     b   V1  N3 (when bad)      both wait for V0 and V1
 */
static int ran_with(bool first_ok, bool second_ok, bool second_ends_first)
{
    const struct ht_label none = {.unit = -1, .micro_batch = -1};
    const struct ht_work work = {.kind = HT_OP_VALIDATE, .where = HT_LANE_HOST, .free = true};
    struct ht_schedule *s = ht_schedule_create("verdicts", 1, 1, NULL);
    int32_t a = ht_add_lane(s, "a", HT_LANE_HOST, 0, HT_FIFO), b = ht_add_lane(s, "b", HT_LANE_HOST, 0, HT_FIFO);
    int32_t row = ht_add_work(s, &work);
    ht_add_op(s, HT_OP_VALIDATE, a, none, row);
    ht_add_op(s, HT_OP_VALIDATE, b, none, row);
    for (int i = 0; i < 2; i++) {
        ht_add_op(s, HT_OP_ACCUMULATE, i ? b : a, none, row);
        ht_op_after(s, 0);
        ht_op_after(s, 1);
        ht_op_when(s, i ? HT_WHEN_BAD : HT_WHEN_OK);
    }
    struct ht_core *core;
    struct ht_error err;
    ck_assert_int_eq(ht_core_create(s, (struct ht_core_options){.iterations = 2}, &err, &core), HT_OK);

    struct ht_inst open[2], inst;
    int ran = 0, n_open = 0; /* bit 2 k: the ok op of iteration k ran; bit 2 k + 1: the bad one */
    while (!ht_core_done(core)) {
        for (struct ht_turn turn; ht_core_turn(core, &turn);)
            if (turn.started) open[n_open++] = turn.inst;
        ck_assert_int_gt(n_open, 0);
        int pick = n_open == 2 && (open[0].op == 1) != second_ends_first;
        inst = open[pick];
        if (pick == 0) open[0] = open[1];
        n_open--;
        if (inst.op >= 2) ran |= 1 << (2 * inst.iteration + inst.op - 2);
        /* The first iteration has the given outcomes, the second is ok. */
        if (inst.op < 2) ht_core_set_control(core, inst.iteration, inst.iteration || (inst.op ? second_ok : first_ok));
        ht_core_finish(core, inst);
    }
    ht_core_destroy(core);
    ht_schedule_destroy(s);
    return ran;
}

/* Two ops on a FIFO lane of a device: the second is issued behind the first, unless only times are asked for. */
START_TEST(nothing_is_issued_ahead_for_times)
{
    const struct ht_work work = {.kind = HT_OP_FORWARD, .where = HT_LANE_COMPUTE, .free = true};
    for (int only_times = 0; only_times < 2; only_times++) {
        struct ht_schedule *s = ht_schedule_create("ahead", 1, 1, NULL);
        int32_t gpu = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO), row = ht_add_work(s, &work);
        for (int i = 0; i < 2; i++)
            ht_add_op(s, HT_OP_FORWARD, gpu, (struct ht_label){.unit = -1, .micro_batch = -1}, row);
        struct ht_core *core;
        struct ht_error err;
        struct ht_turn turn;
        struct ht_core_options o = {.iterations = 1, .issue_ahead = 2, .only_times = only_times};
        ck_assert_int_eq(ht_core_create(s, o, &err, &core), HT_OK);
        ck_assert(ht_core_turn(core, &turn) && turn.started && turn.inst.op == 0);
        ck_assert_int_eq(ht_core_turn(core, &turn), !only_times);
        ck_assert(only_times || (turn.issued && !turn.started && turn.inst.op == 1));
        ck_assert(ht_core_is_exact(core));
        ht_core_destroy(core);
        ht_schedule_destroy(s);
    }
}
END_TEST

START_TEST(one_bad_verdict_is_enough)
{
    for (int first_to_end = 0; first_to_end < 2; first_to_end++) {
        ck_assert_int_eq(ran_with(true, true, first_to_end), 1 | 4);
        ck_assert_int_eq(ran_with(false, true, first_to_end), 2 | 4);
        ck_assert_int_eq(ran_with(true, false, first_to_end), 2 | 4);
        ck_assert_int_eq(ran_with(false, false, first_to_end), 2 | 4);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core");
    TCase *t = tcase_create("verdicts");
    tcase_add_test(t, one_bad_verdict_is_enough);
    tcase_add_test(t, nothing_is_issued_ahead_for_times);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
