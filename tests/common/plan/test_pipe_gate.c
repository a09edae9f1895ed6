/* Pipelines that keep everything on the devices, with a verdict over several ranks. Random ones: test_pipe.c. */
#include "tests/support/pipes.h"

static const struct ht_pipe_style gpipe = {
    .order = HT_PIPE_AFAB, .v = 1, .d = 1, .update = HT_PIPE_ON_DEVICE, .early_checkpoints = true, .strict_loss = true};

/* A gate of GPipe over ranks: a stage is judged before the agreement, on which every rank's verdict waits, and each
   unit is stepped when all are good, or its gradient is freed. */
START_TEST(gate_on_device)
{
    struct ht_scenario sc = pipe_scenario(4, 1, 4, 3);
    sc.control.mode = HT_CONTROL_GATE;
    struct ht_schedule *s = pipe_build(&sc, &gpipe);
    int32_t judged = 0, agreed = 0, told = 0, stepped = 0, freed = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        const struct ht_op *o = &s->ops[op];
        bool partial = o->kind == HT_OP_VALIDATE && o->label.unit >= 0, step = o->kind == HT_OP_OPTIMIZER_STEP;
        if (partial) ck_assert_int_eq(agreed, 0);
        judged += partial ? o->label.n_units : 0;
        agreed += o->kind == HT_OP_ALL_REDUCE;
        told += o->kind == HT_OP_VALIDATE && o->label.unit < 0;
        if (!step && o->when != HT_WHEN_BAD) continue;
        ck_assert_int_eq(o->when, step ? HT_WHEN_OK : HT_WHEN_BAD);
        ck_assert_int_eq(told, 4);
        *(step ? &stepped : &freed) += o->label.n_units;
    }
    ck_assert_int_eq(agreed, 4);
    ck_assert_int_eq(told, 4);
    ck_assert_int_eq(judged, s->n_units);
    ck_assert_int_eq(stepped, s->n_units);
    ck_assert_int_eq(freed, s->n_units);
    struct ht_error err = {0};
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    sc.control.mode = HT_CONTROL_ROLLBACK;
    ck_assert_int_eq(ht_pipe_check(&sc, &gpipe, &err), HT_INFEASIBLE);
    ht_schedule_destroy(s);
    ht_scenario_free(&sc);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("gate");
    tcase_add_test(tc, gate_on_device);
    return pipe_main("pipelines with a gate", tc);
}
