/*
 * Ops that are copies of one of another micro-batch: which rows they touch, and when they are none.
 *
 *     rows   0 P   1 X.0   2 A.0   3 X.1   4 A.1   5 X.2   6 A.2   7 X.3   8 A.3   9 X.4   10 A.4   then scratch
 */
#include "common/draft/repeat.h"
#include "tests/support/scenario.h"
#include "tests/support/suite.h"

#include <stdlib.h>

enum { MICRO_BATCHES = 5 };

struct fixture {
    struct ht_scenario sc;
    struct ht_layout *layout;
    struct ht_draft g;
    struct ht_repeat r;
    int32_t lane, pcie;
};

static struct ht_label label_of(int32_t mb)
{
    return (struct ht_label){.unit = 3, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = mb};
}

static int32_t add_row(struct fixture *f, enum ht_tensor_class class, int32_t mb)
{
    return ht_add_tensor(f->g.schedule, (struct ht_tensor){.class = class, .label = label_of(mb), .bytes = 64});
}

static void begin(struct fixture *f)
{
    struct ht_scenario_request request = {
        .cluster = "autohete-1gpu", .model = "gpt-tiny", .batch = MICRO_BATCHES, .micro_batch = 1};
    struct ht_error err = {0};
    *f = (struct fixture){.sc = scenario_from(&request)};
    ck_assert_int_eq(ht_layout_pipelines(&f->sc, 1, (int64_t[]){1}, (int64_t[]){MICRO_BATCHES}, 1, &err, &f->layout),
                     HT_OK);
    ht_draft_init(&f->g, &f->sc, f->layout, 0, 0, "repeat");
    f->lane = ht_add_lane(f->g.schedule, "compute", HT_LANE_COMPUTE, 0, HT_FIFO);
    f->pcie = ht_add_resource(f->g.schedule, "pcie", HT_RES_PCIE_H2D, 0, 1000);
    add_row(f, HT_PARAM, -1);
    for (int32_t j = 0; j < MICRO_BATCHES; j++) {
        add_row(f, HT_CHECKPOINT, j);
        add_row(f, HT_ACTIVATION, j);
    }
}

static void end(struct fixture *f)
{
    ht_schedule_destroy(ht_draft_free(&f->g));
    ht_layout_destroy(f->layout);
    ht_scenario_free(&f->sc);
}

/* Writes the op of a micro-batch in full, which passes `amount` bytes; notes it, and then frees its input. */
static void write(struct fixture *f, int32_t mb, int64_t amount)
{
    struct ht_schedule *s = f->g.schedule;
    struct ht_work w = {.kind = HT_OP_FORWARD, .where = HT_LANE_COMPUTE, .tp = 1, .ranks = 1, .custom = "pass"};
    int32_t rows = s->n_tensors;
    ht_add_op(s, HT_OP_FORWARD, f->lane, label_of(mb), ht_add_work(s, &w));
    ht_op_effect(s, 0, HT_DEVICE, HT_NEED);
    ht_op_effect(s, 1 + 2 * mb, HT_DEVICE, HT_NEED);
    ht_op_effect(s, 2 + 2 * mb, HT_DEVICE, HT_PRODUCE);
    ht_op_effect(s, add_row(f, HT_WORKSPACE, mb), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
    ht_op_use(s, f->pcie, amount);
    ht_repeat_note(&f->g, &f->r, 7, mb, rows);
    ht_op_effect(s, 1 + 2 * mb, HT_DEVICE, HT_RELEASE);
}

/* Asks for a copy, which has to be refused with nothing appended. */
static void check_refused(struct fixture *f, int64_t key, int32_t mb)
{
    struct ht_schedule *s = f->g.schedule;
    int32_t ops = s->n_ops, rows = s->n_tensors;
    ck_assert(!ht_repeat_op(&f->g, &f->r, key, mb));
    ck_assert_int_eq(s->n_ops, ops);
    ck_assert_int_eq(s->n_tensors, rows);
}

/* Micro-batch 4 reads row 9, makes row 10, and has scratch of its own. A release that comes again changes nothing. */
START_TEST(a_copy_touches_its_own_rows)
{
    struct fixture f;
    begin(&f);
    struct ht_schedule *s = f.g.schedule;
    check_refused(&f, 7, 0); /* nothing is noted */
    write(&f, 0, 5);
    check_refused(&f, 7, 1); /* one is not enough */
    write(&f, 1, 5);
    check_refused(&f, 8, 4); /* of another key */
    ck_assert(ht_repeat_op(&f.g, &f.r, 7, 4));
    ht_op_effect(s, 9, HT_DEVICE, HT_RELEASE);
    static const struct ht_effect expected[] = {{0, HT_DEVICE, HT_NEED},
                                                {9, HT_DEVICE, HT_NEED | HT_RELEASE},
                                                {10, HT_DEVICE, HT_PRODUCE},
                                                {13, HT_DEVICE, HT_PRODUCE | HT_RELEASE}};
    ck_assert_int_eq(s->n_ops, 3);
    ck_assert_int_eq(s->n_tensors, 14);
    ck_assert_int_eq(s->effects_begin[3] - s->effects_begin[2], 4);
    for (int i = 0; i < 4; i++) {
        const struct ht_effect *e = &s->effects[s->effects_begin[2] + i];
        ck_assert_int_eq(e->tensor, expected[i].tensor);
        ck_assert_int_eq(e->tier, expected[i].tier);
        ck_assert_int_eq(e->flags, expected[i].flags);
    }
    ck_assert_int_eq(s->ops[2].label.micro_batch, 4);
    ck_assert_int_eq(s->ops[2].work, s->ops[1].work);
    ck_assert_int_eq(s->tensors[13].label.micro_batch, 4);
    ck_assert_int_eq(s->uses_begin[3] - s->uses_begin[2], 1);
    ck_assert_int_eq(s->uses[s->uses_begin[2]].amount, 5);
    end(&f);
}
END_TEST

/* Row 7 is not what rows 1, 3 and 5 are, if it says that it is of another class, rank, micro-batch or size. */
START_TEST(a_row_that_is_elsewhere_is_not_taken)
{
    for (int what = 0; what < 4; what++) {
        struct fixture f;
        begin(&f);
        struct ht_tensor *t = &f.g.schedule->tensors[7];
        if (what == 0) t->class = HT_ACT_GRAD;
        if (what == 1) t->rank = 1;
        if (what == 2) t->label.micro_batch = 4;
        if (what == 3) t->bytes = 65;
        write(&f, 0, 5);
        write(&f, 1, 5);
        check_refused(&f, 7, 3);
        ck_assert(ht_repeat_op(&f.g, &f.r, 7, 2));
        end(&f);
    }
}
END_TEST

/* Two ops that differ in more than their micro-batch say nothing of a third; the next two may. */
START_TEST(ops_that_differ_are_not_copied)
{
    struct fixture f;
    begin(&f);
    write(&f, 0, 5);
    write(&f, 1, 6);
    check_refused(&f, 7, 2);
    write(&f, 2, 6);
    ck_assert(ht_repeat_op(&f.g, &f.r, 7, 3));
    end(&f);
    begin(&f);
    write(&f, 0, 5);
    write(&f, 1, 5);
    ht_op_effect(f.g.schedule, 0, HT_DEVICE, HT_RELEASE);
    check_refused(&f, 7, 2);
    end(&f);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, a_copy_touches_its_own_rows);
    tcase_add_test(t, a_row_that_is_elsewhere_is_not_taken);
    tcase_add_test(t, ops_that_differ_are_not_copied);
}

int main(void)
{
    return run_suite("repeat", add);
}
