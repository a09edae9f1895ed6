/* Control of pipelines over several ranks. Random ones: test_pipe.c. */
#include "common/schedule/merge.h"
#include "tests/support/pipes.h"

static const struct ht_pipe_style gpipe = {.order = HT_PIPE_AFAB, .v = 1, .d = 1};

/* Counts the ops without a micro-batch ("agree agree verdict verdict U1 ..") by kind, branch and rank. */
static void expect_order(const struct ht_schedule *s, const char *expected)
{
    char text[1024] = "";
    for (int32_t op = 0; op < s->n_ops; op++) {
        size_t n = strlen(text);
        if (s->ops[op].label.micro_batch >= 0) continue;
        snprintf(text + n, sizeof text - n, "%s%s%s", n ? " " : "", s->ops[op].name,
                 s->ops[op].when == HT_WHEN_OK    ? "+"
                 : s->ops[op].when == HT_WHEN_BAD ? "-"
                                                  : "");
    }
    ck_assert_str_eq(text, expected);
}

/* Agreements are one group; each rank's final check waits for its own agreement and for the rank's gradient checks. */
static void expect_agreement(const struct ht_schedule *s)
{
    int32_t group = -1;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t rank = ht_op_rank(s, op), own = 0, checked = 0;
        if (s->ops[op].label.unit >= 0 || s->ops[op].kind == HT_OP_ALL_REDUCE) {
            if (s->ops[op].kind == HT_OP_ALL_REDUCE) ck_assert(group < 0 || s->ops[op].match == group);
            if (s->ops[op].kind == HT_OP_ALL_REDUCE) group = s->ops[op].match;
            continue;
        }
        for (int64_t k = s->deps_begin[op]; k < s->deps_begin[op + 1]; k++) {
            ck_assert_int_eq(ht_op_rank(s, s->deps[k]), rank);
            own += s->ops[s->deps[k]].kind == HT_OP_ALL_REDUCE;
            checked += s->ops[s->deps[k]].kind == HT_OP_VALIDATE;
        }
        ck_assert_int_eq(own, 1);
        ck_assert_int_eq(checked, 1);
    }
    ck_assert_int_ge(group, 0);
}

static void check_order(const struct ht_pipe_style *y, enum ht_control_mode mode, const char *expected)
{
    struct ht_scenario sc = pipe_scenario(2, 1, 2, 2);
    struct ht_error err = {0};
    sc.control.mode = mode;
    struct ht_schedule *s = pipe_build(&sc, y);
    expect_order(s, expected);
    if (mode != HT_CONTROL_NONE) expect_agreement(s);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}

/* GPipe on two ranks, a stage each. Steps are those of a stage. Under a gate gradients are checked where the last
   backward has left them; they are stepped if all are ok, else freed. Under rollback they are checked and stepped; the
   step is undone and redone. With parameters on the host the sums are checked there, and stay. */
START_TEST(control_over_ranks)
{
    struct ht_pipe_style offloaded = gpipe;
    offloaded.offload = offloaded.recompute = true;
    check_order(&gpipe, HT_CONTROL_NONE, "U1 U0");
    check_order(&gpipe, HT_CONTROL_GATE, "V1 V0 agree agree verdict verdict U1+ free1- U0+ free0-");
    check_order(&gpipe, HT_CONTROL_ROLLBACK,
                "V1 U1 V0 U0 agree agree verdict verdict undo1- redo1- free1+ undo0- redo0- free0+");
    check_order(&offloaded, HT_CONTROL_GATE, "P0 P2 G1 V1 G0 V0 agree agree verdict verdict O1+ O0+");
    check_order(&offloaded, HT_CONTROL_ROLLBACK,
                "P0 P2 G1 V1 O1 G0 V0 O0 agree agree verdict verdict undo1- redo1- free1+ undo0- redo0- free0+");
    offloaded.own = HT_CONTROL_ROLLBACK;
    offloaded.undo = HT_UNDO_LASTING;
    check_order(&offloaded, HT_CONTROL_ROLLBACK, "P0 P2 G1 V1 O1 G0 V0 O0 agree agree verdict verdict undo1- undo0-");
}
END_TEST

/* Logs that last are resident, one a unit; those of a redo come and go. Steps without a log have none to be undone by.
 */
START_TEST(logs)
{
    for (enum ht_undo_kind undo = HT_UNDO_AND_REDO; undo <= HT_UNDO_UNLOGGED; undo++) {
        struct ht_pipe_style y = gpipe;
        y.offload = y.recompute = true;
        y.own = HT_CONTROL_ROLLBACK;
        y.undo = undo;
        struct ht_scenario sc = pipe_scenario(2, 1, 2, 2);
        struct ht_schedule *s = pipe_build(&sc, &y);
        struct ht_error err = {0};
        struct ht_proof v;
        int rows = 0, resident = 0, undone = 0;
        for (int32_t t = 0; t < s->n_tensors; t++) rows += s->tensors[t].class == HT_STAGING;
        for (int32_t i = 0; i < s->n_residents; i++) resident += s->tensors[s->residents[i].tensor].class == HT_STAGING;
        for (int32_t op = 0; op < s->n_ops; op++) undone += s->ops[op].kind == HT_OP_UNDO;
        ck_assert_int_eq(rows, undo == HT_UNDO_UNLOGGED ? 0 : s->n_units);
        ck_assert_int_eq(resident, undo == HT_UNDO_LASTING ? s->n_units : 0);
        ck_assert_int_eq(undone, 2);
        sc.control.mode = HT_CONTROL_ROLLBACK;
        ck_assert_int_eq(ht_pipe_check(&sc, &y, &err), undo == HT_UNDO_UNLOGGED ? HT_INFEASIBLE : HT_OK);
        sc.control.options.clip = 1; /* for which the step is made again: with logs, whatever the method's own are */
        ck_assert_int_eq(ht_pipe_check(&sc, &y, &err), HT_OK);
        ht_schedule_destroy(s);
        s = pipe_build(&sc, &y);
        ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
        int64_t host = ht_pipe_host_bytes(&sc, &y); /* but for rounding */
        ck_assert_int_ge(v.spaces[2].peak_bytes, host);
        ck_assert_int_lt(v.spaces[2].peak_bytes, host + 512 * s->n_tensors);
        ht_proof_free(&v);
        ht_schedule_destroy(s);
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Two ranks of four as a draft by hand: a gradient each, its sum over all ranks, and its step. */
static struct ht_schedule *draft_of_two(int32_t rank)
{
    static const enum ht_op_kind kinds[] = {HT_OP_BACKWARD, HT_OP_ALL_REDUCE, HT_OP_OPTIMIZER_STEP};
    struct ht_schedule *s = ht_schedule_create("draft", 4, 1, NULL);
    for (int32_t r = rank; r < rank + 2; r++) {
        const struct ht_label label = {.unit = r, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
        ht_add_lane(s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
        ht_add_lane(s, "cpu", HT_LANE_HOST, r, HT_FIFO);
        ht_add_lane(s, "ring", HT_LANE_COLLECTIVE, r, HT_FIFO);
        ht_add_tensor(s, (struct ht_tensor){.class = HT_GRAD, .label = label, .bytes = 8, .rank = r});
        ht_add_tensor(s, (struct ht_tensor){.class = HT_MOMENTUM, .label = label, .bytes = 8, .rank = r});
        ht_add_resident(s, s->n_tensors - 1, HT_DEVICE, r);
    }
    for (int32_t k = 0; k < 6; k++) {
        int32_t of = k % 2, grad = 2 * of;
        bool joint = k / 2 == 1, step = k / 2 == 2;
        struct ht_work w = {.kind = kinds[k / 2],
                            .where = joint ? HT_LANE_COLLECTIVE : HT_LANE_COMPUTE,
                            .tp = 1,
                            .ranks = joint ? 4 : 1};
        ht_add_op(s, w.kind, 3 * of + (joint ? 2 : 0), joint ? (struct ht_label){-1, 0, 0, -1} : s->tensors[grad].label,
                  ht_add_work(s, &w));
        ht_op_name(s, "%c%d", "BRU"[k / 2], rank + of);
        ht_op_effect(s, grad, HT_DEVICE, step ? HT_NEED | HT_RELEASE : joint ? HT_UPDATE : HT_PRODUCE);
        if (step) ht_op_effect(s, grad + 1, HT_DEVICE, HT_UPDATE);
        if (joint) ht_op_match(s, 0);
    }
    return s;
}

/* Two drafts of two ranks under control, merged: gradients are checked when their sum is there, behind its whole group,
   and the agreements of all four ranks are one group. */
START_TEST(drafts_agree)
{
    struct ht_control gate = {.mode = HT_CONTROL_GATE};
    struct ht_schedule *drafts[2], *s = NULL;
    struct ht_error err = {0};
    for (int d = 0; d < 2; d++) {
        struct ht_schedule *plain = draft_of_two(2 * d);
        ck_assert(ht_control_apply(plain, &gate, (struct ht_control_style){0}, &err, &drafts[d]) == HT_OK);
        ht_schedule_destroy(plain);
    }
    ck_assert_msg(ht_schedule_merge(drafts, 2, 1, &err, &s) == HT_OK, "%s", err.text);
    ht_schedule_link(s);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    expect_order(s, "B0 B2 B1 B3 R0 R1 R2 R3 V0 V2 V1 V3 agree agree agree agree verdict verdict verdict verdict "
                    "U0+ U2+ free0- free2- U1+ U3+ free1- free3-");
    ht_schedule_destroy(s);
    for (int d = 0; d < 2; d++) ht_schedule_destroy(drafts[d]);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("gate");
    tcase_add_test(tc, control_over_ranks);
    tcase_add_test(tc, logs);
    tcase_add_test(tc, drafts_agree);
    return pipe_main("control of pipelines", tc);
}
