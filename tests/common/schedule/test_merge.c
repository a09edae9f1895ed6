/* Drafts of ranks merged by hand: equal ones, unequal ones, and drafts that do not fit together. */
#include "common/schedule/merge.h"
#include "common/schedule/verify.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct ht_label none = {.unit = -1, .micro_batch = -1};

/* Lanes gpu and ring of the rank, out of `ranks`; a tensor of 8 bytes, resident. */
static struct ht_schedule *draft(int32_t rank, int32_t ranks)
{
    struct ht_schedule *s = ht_schedule_create("draft", ranks, 1, NULL);
    struct ht_tensor t = {.class = HT_GRAD, .label = none, .bytes = 8, .rank = rank};
    ht_add_lane(s, "gpu", HT_LANE_COMPUTE, rank, HT_FIFO);
    ht_add_lane(s, "ring", HT_LANE_COLLECTIVE, rank, HT_FIFO);
    ht_add_resource(s, "wire", HT_RES_NVLINK, 0, 1000);
    ht_add_resident(s, ht_add_tensor(s, t), HT_DEVICE, rank);
    return s;
}

/* 'f': compute; 'p': a pass over a part; a digit: an all-reduce of that unit, after the op before it; 'a': of none. */
static void write(struct ht_schedule *s, const char *ops, int32_t parts)
{
    for (; *ops; ops++) {
        bool pass = *ops == 'f' || *ops == 'p', joint = !pass;
        struct ht_label label = none;
        struct ht_work w = {
            .kind = joint ? HT_OP_ALL_REDUCE : HT_OP_FORWARD, .tp = *ops == 'p' ? parts : 1, .ranks = 1};
        if (joint) w.ranks = *ops == 'a' ? s->n_ranks : s->n_ranks / parts;
        if (joint && *ops != 'a')
            label = (struct ht_label){.unit = *ops - '0', .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
        w.where = joint ? HT_LANE_COLLECTIVE : HT_LANE_COMPUTE;
        w.bytes = joint ? 8 : 0;
        ht_add_op(s, w.kind, joint, label, ht_add_work(s, &w));
        ht_op_name(s, "%c%d", *ops, s->lanes[0].rank);
        ht_op_effect(s, 0, HT_DEVICE, HT_UPDATE);
        if (joint) ht_op_after(s, s->n_ops - 2);
        if (joint) ht_op_use(s, 0, 8);
    }
}

static enum ht_status merge(const char *const *ops, int32_t n, int32_t parts, struct ht_error *err,
                            struct ht_schedule **out)
{
    struct ht_schedule *drafts[4] = {NULL};
    for (int32_t r = 0; r < n; r++) write(drafts[r] = draft(r, n), ops[r], parts);
    enum ht_status status = ht_schedule_merge(drafts, n, parts, err, out);
    for (int32_t r = 0; r < n; r++) ht_schedule_destroy(drafts[r]);
    return status;
}

/* "f0 f1 (10 11) f0 f1": ops by name, groups in brackets. */
static void shape_of(const struct ht_schedule *s, char text[256])
{
    text[0] = '\0';
    for (int32_t i = 0; i < s->n_ops; i++) {
        int32_t match = s->ops[i].match;
        bool begins = match >= 0 && (i == 0 || s->ops[i - 1].match != match);
        bool ends = match >= 0 && (i == s->n_ops - 1 || s->ops[i + 1].match != match);
        size_t n = strlen(text);
        snprintf(text + n, 256 - n, "%s%s%s%s", i ? " " : "", begins ? "(" : "", s->ops[i].name, ends ? ")" : "");
    }
}

START_TEST(orders_by_hand)
{
    static const struct {
        const char *ops[4];
        int32_t n, parts;
        const char *shape;
    } cases[] = {
        {{"f1f"}, 1, 1, "f0 10 f0"}, /* one draft keeps its ops as they are */
        {{"f1f", "f1f"}, 2, 1, "f0 f1 (10 11) f0 f1"},
        {{"f1", "fff1f"}, 2, 1, "f0 f1 f1 f1 (10 11) f1"},
        {{"1ff2", "12"}, 2, 1, "(10 11) f0 f0 (20 21)"},
        {{"ffff", "", "f"}, 3, 1, "f0 f2 f0 f0 f0"},
        {{"f12f", "1f2", "ff12"}, 3, 1, "f0 f2 f2 (10 11 12) f1 (20 21 22) f0"},
        {{"pfp", "fpp"}, 2, 2, "f1 (p0 p1) f0 (p0 p1)"},
        /* two replicas of two parts: sums of a part, an agreement of all */
        {{"p1a", "p1a", "fp1a", "p1a"}, 4, 2, "f2 (p0 p1) (p2 p3) (10 12) (11 13) (a0 a1 a2 a3)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ht_schedule *s = NULL;
        struct ht_error err = {0};
        char shape[256];
        ck_assert_msg(merge(cases[i].ops, cases[i].n, cases[i].parts, &err, &s) == HT_OK, "%s", err.text);
        shape_of(s, shape);
        ck_assert_str_eq(shape, cases[i].shape);
        ht_schedule_link(s);
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s: %s", shape, err.text);
        ht_schedule_destroy(s);
    }
}
END_TEST

/* Two drafts, the second with one row more: rows zipped, lanes one draft's after the other's, edges and uses the
   draft's own. */
START_TEST(tables_by_hand)
{
    struct ht_schedule *drafts[2] = {draft(0, 2), draft(1, 2)}, *s = NULL;
    struct ht_error err = {0};
    struct ht_tensor more = {.class = HT_STAGING, .label = none, .bytes = 16, .rank = 1};
    int32_t extra = ht_add_tensor(drafts[1], more), last = ht_mark_create(drafts[1]);
    write(drafts[0], "f1", 1);
    write(drafts[1], "f", 1);
    ht_op_after_prev(drafts[1], last);
    ht_op_effect(drafts[1], extra, HT_HOST, HT_PRODUCE | HT_RELEASE);
    write(drafts[1], "1f", 1);
    ht_mark_set(drafts[1], last);
    ck_assert_int_eq(ht_schedule_merge(drafts, 2, 1, &err, &s), HT_OK);
    /* f0 f1 (10 11) f1 */
    ck_assert_int_eq(s->n_lanes, 4);
    ck_assert_int_eq(s->lanes[2].rank, 1);
    ck_assert_int_eq(s->n_resources, 1);
    ck_assert_int_eq(s->n_tensors, 3);
    ck_assert_int_eq(s->tensors[1].rank, 1);
    ck_assert_int_eq(s->tensors[2].class, HT_STAGING);
    ck_assert_int_eq(s->residents[1].tensor, 1);
    ck_assert_int_eq(s->ops[3].lane, 3);
    ck_assert_int_eq(s->ops[2].match, s->ops[3].match);
    ck_assert_int_eq(s->deps_begin[3] - s->deps_begin[2], 1);
    ck_assert_int_eq(s->deps[s->deps_begin[2]], 0);
    ck_assert_int_eq(s->deps[s->deps_begin[3]], 1);
    ck_assert_int_eq(s->prev_begin[5], 1);
    ck_assert_int_eq(s->prev[0], 4); /* the mark of the second draft: its last op */
    ck_assert_int_eq(s->effects[s->effects_begin[1] + 1].tensor, 2);
    ck_assert_int_eq(s->uses[s->uses_begin[3]].amount, 8);
    ck_assert_int_eq(s->n_works, 2);
    ht_schedule_destroy(s);
    ht_schedule_destroy(drafts[0]);
    ht_schedule_destroy(drafts[1]);
}
END_TEST

/* A pipeline of two ranks as one draft: 'm' a message from the first to the second, 'a' an all-reduce of both. */
static struct ht_schedule *pipe_draft(int32_t rank, const char *ops)
{
    struct ht_schedule *s = ht_schedule_create("draft", 4, 1, NULL);
    int32_t group = 0;
    for (int32_t r = rank; r < rank + 2; r++) {
        struct ht_tensor t = {.class = HT_GRAD, .label = none, .bytes = 8, .rank = r};
        ht_add_lane(s, "wire", HT_LANE_P2P, r, HT_FIFO);
        ht_add_lane(s, "ring", HT_LANE_COLLECTIVE, r, HT_FIFO);
        ht_add_resident(s, ht_add_tensor(s, t), HT_DEVICE, r);
    }
    for (; *ops; ops++, group++)
        for (int32_t member = 0; member < 2; member++) {
            bool joint = *ops == 'a';
            struct ht_work w = {.kind = joint    ? HT_OP_ALL_REDUCE
                                        : member ? HT_OP_RECEIVE
                                                 : HT_OP_SEND,
                                .where = joint ? HT_LANE_COLLECTIVE : HT_LANE_P2P,
                                .tp = 1,
                                .ranks = joint ? 4 : 2,
                                .bytes = 8};
            ht_add_op(s, w.kind, 2 * member + joint, none, ht_add_work(s, &w));
            ht_op_name(s, "%c%d", *ops, rank + member);
            ht_op_effect(s, member, HT_DEVICE, member || joint ? HT_UPDATE : HT_NEED);
            ht_op_match(s, group);
        }
    return s;
}

/* Two pipelines: messages stay groups of two, the all-reduces of both are one group of four. */
START_TEST(drafts_of_several_ranks)
{
    struct ht_schedule *drafts[2] = {pipe_draft(0, "mma"), pipe_draft(2, "mam")}, *s = NULL;
    struct ht_error err = {0};
    char shape[256];
    ck_assert_msg(ht_schedule_merge(drafts, 2, 1, &err, &s) == HT_OK, "%s", err.text);
    shape_of(s, shape);
    ck_assert_str_eq(shape, "(m0 m1) (m2 m3) (m0 m1) (a0 a1 a2 a3) (m2 m3)");
    for (int32_t i = 0; i < s->n_ops; i++) /* a number a group */
        for (int32_t j = 0; j < i; j++) ck_assert(s->ops[i].match != s->ops[j].match || i - j < 4);
    ht_schedule_link(s);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ht_schedule_destroy(s);
    for (int d = 0; d < 2; d++) ht_schedule_destroy(drafts[d]);
}
END_TEST

/* Four members of a stage, two parts of two replicas: a pass joins the parts of a replica, a collective about a unit the replicas of a
   part, any other all. */
START_TEST(replicas_of_a_stage)
{
    static const char *const ops[] = {"p1a", "p1a", "fp1a", "p1a"};
    static const struct ht_merge_stage stages[] = {{0, 2, 2}, {0, 2, 2}, {2, 2, 2}, {2, 2, 2}};
    struct ht_schedule *drafts[4] = {NULL}, *s = NULL;
    struct ht_error err = {0};
    char shape[256];
    for (int32_t r = 0; r < 4; r++) write(drafts[r] = draft(r, 4), ops[r], 2);
    ck_assert_msg(ht_schedule_merge_stages(drafts, 4, 4, stages, &err, &s) == HT_OK, "%s", err.text);
    shape_of(s, shape);
    ck_assert_str_eq(shape, "f2 (p0 p1) (p2 p3) (10 12) (11 13) (a0 a1 a2 a3)");
    ht_schedule_link(s);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ht_schedule_destroy(s);
    for (int d = 0; d < 4; d++) ht_schedule_destroy(drafts[d]);
}
END_TEST

/* Appends a message's member: a send of the draft's row, or its receive, to or from another draft. */
static void write_member(struct ht_schedule *s, bool sends, int32_t other, int32_t match)
{
    struct ht_work w = {
        .kind = sends ? HT_OP_SEND : HT_OP_RECEIVE, .where = HT_LANE_P2P, .tp = 1, .ranks = 2, .bytes = 8};
    ht_add_op(s, w.kind, sends ? 0 : 1, none, ht_add_work(s, &w));
    ht_op_name(s, "%c%d", sends ? 's' : 'r', s->lanes[0].rank);
    ht_op_across(s, other);
    ht_op_match(s, match);
    ht_op_effect(s, 0, HT_DEVICE, sends ? HT_NEED : HT_PRODUCE);
}

/* A row that goes from draft 0 to draft 1 and on to 2, and one that comes back to where it has begun: one row in the graph. */
START_TEST(rows_that_are_sent_on)
{
    static const int32_t ends[][2] = {{2, 2}, {2, 0}};
    for (int i = 0; i < 2; i++) {
        struct ht_schedule *drafts[3], *s = NULL;
        struct ht_error err = {0};
        for (int32_t r = 0; r < 3; r++) {
            drafts[r] = ht_schedule_create("draft", 3, 1, NULL);
            ht_add_lane(drafts[r], "out", HT_LANE_P2P, r, HT_FIFO);
            ht_add_lane(drafts[r], "in", HT_LANE_P2P, r, HT_FIFO);
            ht_add_tensor(drafts[r], (struct ht_tensor){.class = HT_STAGING, .label = none, .bytes = 8, .rank = r});
        }
        write_member(drafts[0], true, 1, 0);
        write_member(drafts[1], false, 0, 0);
        write_member(drafts[1], true, ends[i][0], 1);
        write_member(drafts[2], false, 1, 1);
        if (i) write_member(drafts[2], true, ends[i][1], 2);
        if (i) write_member(drafts[0], false, 2, 2);
        ck_assert_msg(ht_schedule_merge_stages(drafts, 3, 3, NULL, &err, &s) == HT_OK, "%s", err.text);
        ck_assert_int_eq(s->n_ops, i ? 6 : 4);
        ck_assert_int_eq(s->n_tensors, 1);
        ck_assert_int_eq(s->tensors[0].rank, 0);
        for (int64_t e = 0; e < s->effects_begin[s->n_ops]; e++) ck_assert_int_eq(s->effects[e].tensor, 0);
        ht_schedule_destroy(s);
        for (int d = 0; d < 3; d++) ht_schedule_destroy(drafts[d]);
    }
}
END_TEST

START_TEST(drafts_that_do_not_fit)
{
    static const struct {
        const char *ops[4];
        int32_t n, parts;
        const char *says;
    } cases[] = {
        {{"f12", "f21"}, 2, 1, "drafts 0 and 1 of 'draft' differ: the first has all reduce"},
        {{"1", "1", "2"}, 3, 1, "drafts 0 and 2 of 'draft' differ"},
        {{"f1", "f"}, 2, 1, "drafts 1 and 0 of 'draft' differ: one has ended, the other has all reduce"},
        {{"", "11"}, 2, 1, "drafts 0 and 1 of 'draft' differ: one has ended"},
        {{"p", "f"}, 2, 2, "drafts 1 and 0 of 'draft' differ: one has ended, the other has forward next"},
        {{"1p", "p1", "p1", "1p"},
         4,
         2,
         "drafts 0 and 2 of 'draft' differ: the first has all reduce of unit 1 next, the other forward"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ht_schedule *s = NULL;
        struct ht_error err = {0};
        ck_assert_int_eq(merge(cases[i].ops, cases[i].n, cases[i].parts, &err, &s), HT_FAILED);
        ck_assert_msg(!strncmp(err.text, cases[i].says, strlen(cases[i].says)), "%s", err.text);
        ck_assert_ptr_null(s);
    }
}
END_TEST

/* Random drafts with the same collectives: every draft's order is kept, each group is whole and consecutive. */
START_TEST(random_drafts)
{
    unsigned seed = 5;
    for (int k = 0; k < 2000; k++) {
        char ops[4][64];
        const char *each[4];
        int32_t n = 2 + (int32_t)(rand_r(&seed) % 3), joint = (int32_t)(rand_r(&seed) % 6);
        for (int32_t r = 0; r < n; r++) {
            size_t at = 0;
            for (int32_t c = 0; c <= joint; c++) {
                for (unsigned f = (unsigned)rand_r(&seed) % 5; f > 0; f--) ops[r][at++] = 'f';
                if (c < joint) ops[r][at++] = (char)('1' + c);
            }
            ops[r][at] = '\0';
            each[r] = ops[r];
        }
        struct ht_schedule *s = NULL;
        struct ht_error err = {0};
        ck_assert_msg(merge(each, n, 1, &err, &s) == HT_OK, "%s", err.text);
        size_t at[4] = {0};
        for (int32_t i = 0; i < s->n_ops; i++) {
            int32_t r = ht_op_rank(s, i);
            ck_assert_int_eq(s->ops[i].name[0], ops[r][at[r]++]);
            if (s->ops[i].match < 0) continue;
            ck_assert_int_eq(s->ops[i].match, s->ops[i - r].match);
            ck_assert_int_eq(s->ops[i].name[0], s->ops[i - r].name[0]);
        }
        for (int32_t r = 0; r < n; r++) ck_assert_uint_eq(at[r], strlen(ops[r]));
        ht_schedule_link(s);
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
        ht_schedule_destroy(s);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule/merge");
    TCase *c = tcase_create("merge");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, orders_by_hand);
    tcase_add_test(c, tables_by_hand);
    tcase_add_test(c, drafts_of_several_ranks);
    tcase_add_test(c, replicas_of_a_stage);
    tcase_add_test(c, rows_that_are_sent_on);
    tcase_add_test(c, drafts_that_do_not_fit);
    tcase_add_test(c, random_drafts);
    suite_add_tcase(suite, c);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
