/* Profiles from files: what they cost, what is derived from what they list, and over schedules. */
#include "common/base/array.h"
#include "tests/common/profile/costs.h"
#include "tests/support/suite.h"

/* F0 F1 on rank 0, an all-gather of both ranks, F on rank 1 of another device. */
static struct ht_schedule *two_ranks(const int32_t *rank_node, struct ht_work f)
{
    struct ht_schedule *s = ht_schedule_create("two", 2, rank_node ? 2 : 1, rank_node);
    struct ht_label label = {.unit = 1, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = 0};
    struct ht_work g = plain(HT_OP_ALL_GATHER, HT_LANE_COLLECTIVE);
    g.ranks = 2;
    g.bytes = 1000000000;
    int32_t gpu0 = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO),
            gpu1 = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 1, HT_FIFO);
    int32_t net0 = ht_add_lane(s, "net", HT_LANE_COLLECTIVE, 0, HT_FIFO),
            net1 = ht_add_lane(s, "net", HT_LANE_COLLECTIVE, 1, HT_FIFO);
    int32_t wf = ht_add_work(s, &f), wg = ht_add_work(s, &g);
    ht_add_op(s, HT_OP_FORWARD, gpu0, label, wf);
    ht_add_op(s, HT_OP_FORWARD, gpu0, label, wf);
    ht_add_op(s, HT_OP_ALL_GATHER, net0, label, wg);
    ht_op_match(s, 7);
    ht_add_op(s, HT_OP_ALL_GATHER, net1, label, wg);
    ht_op_match(s, 7);
    ht_add_op(s, HT_OP_FORWARD, gpu1, label, wf);
    return s;
}

START_TEST(schedules)
{
    struct ht_error err = {0};
    struct ht_doc *doc = NULL;
    struct ht_cluster *c = NULL;
    const char *text = "name: mixed\nsource: test\nnodes:\n"
                       "  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, nvlink: nvlink3, nic: pcie3-x16,\n"
                       "     gpus: [{type: a100-40gb}, {type: v100-16gb}]}\n"
                       "  - {cpu: epyc-7713, ram: 1 TB, pcie: pcie4-x16, nic: pcie3-x16, gpus: [{type: v100-16gb}]}\n";
    ck_assert_msg(!ht_doc_parse(text, strlen(text), "c.yaml", &err, &doc), "%s", err.text);
    ck_assert_msg(!ht_cluster_parse(doc, &err, &c), "%s", err.text);
    ht_doc_destroy(doc);
    struct ht_profile *p = ht_profile_modelled(c);

    struct ht_work f = plain(HT_OP_FORWARD, HT_LANE_COMPUTE);
    f.unit = HT_UNIT_BLOCK;
    f.sub_ops = HT_ALL_SUB_OPS;
    f.batch = 1, f.seq = 512, f.width = 1024, f.heads = 8, f.ffn = 4096;
    f.dtype = HT_F16;
    int64_t ns[5];
    struct ht_schedule *s = two_ranks(NULL, f);
    ck_assert_msg(!ht_profile_costs(p, s, ns, &err), "%s", err.text);
    ck_assert_int_eq(ns[0], ns[1]);
    ck_assert_int_eq(ns[0], cost(p, 0, f));
    ck_assert_int_eq(ns[4], cost(p, 1, f)); /* the V100 is slower */
    ck_assert_int_gt(ns[4], ns[0]);
    /* one step of 5 us; 1e9 / 234e9 = 4.274 ms */
    ck_assert_int_eq((ns[2] + 500) / 1000, 4279);
    ck_assert_int_eq(ns[2], ns[3]);
    ht_schedule_destroy(s);

    /* The pair on two nodes goes through the NIC: 15.75 x 0.76 = 11.97 GB/s, 83.542 ms and 10 us. */
    s = two_ranks((const int32_t[]){0, 1}, f);
    ck_assert_msg(!ht_profile_costs(p, s, ns, &err), "%s", err.text);
    ck_assert_int_eq((ns[2] + 500) / 1000, 83552);
    ht_schedule_destroy(s);
    ht_profile_destroy(p);
    ht_cluster_destroy(c);
}
END_TEST

static const char listed[] = "profile:\n  name: hand\n  source: fixture\n  costs:\n"
                             "    - {work: F, time: 10 ns}\n    - {work: B, time: 20 us}\n"
                             "    - {work: \"copy where=h2d bytes=1024\", time: 1.5 ms}\n";

START_TEST(from_file)
{
    struct ht_error err = {0};
    struct ht_profile *p = NULL;
    ck_assert_msg(!parse(listed, &err, &p), "%s", err.text);
    ck_assert_str_eq(ht_profile_name(p), "hand");
    struct ht_work w = {.custom = "F"};
    ck_assert_int_eq(cost(p, 0, w), 10);
    ck_assert_int_eq(cost(p, 99, (struct ht_work){.custom = "B"}), 20000);
    w = plain(HT_OP_COPY, HT_LANE_H2D);
    w.bytes = 1024;
    ck_assert_int_eq(cost(p, 0, w), 1500000);
    w.bytes = 1025;
    int64_t ns = -5;
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "profile 'hand' has no cost of 'copy where=h2d bytes=1025'; the nearest it has is "
                               "'copy where=h2d bytes=1024'");
    ck_assert_int_eq(ns, -5);

    int64_t all[5];
    struct ht_schedule *s = two_ranks(NULL, (struct ht_work){.custom = "F"});
    ck_assert_int_eq(ht_profile_costs(p, s, all, &err), HT_BAD_INPUT); /* no all-gather */
    char key[HT_WORK_KEY_MAX];
    ht_profile_add(p, ht_work_key(&s->works[1], key, sizeof(key)), 77);
    ck_assert_msg(!ht_profile_costs(p, s, all, &err), "%s", err.text);
    const int64_t want[] = {10, 10, 77, 77, 10};
    for (int i = 0; i < 5; i++) ck_assert_int_eq(all[i], want[i]);
    ht_schedule_destroy(s);
    ht_profile_destroy(p);
}
END_TEST

/* A cast without a measurement is charged as the step of the same elements, on the same lane only. */
START_TEST(cast_that_was_not_measured)
{
    struct ht_error err = {0};
    struct ht_profile *p = ht_profile_create("some", "");
    struct ht_work w = plain(HT_OP_RESTORE, HT_LANE_HOST);
    int64_t ns = 0;
    w.params = 5;
    ht_profile_add(p, "optimizer_step where=host params=5 dtype=bf16 grad=bf16", 70);
    ck_assert_int_eq(cost(p, 0, w), 70);
    ht_profile_add(p, "restore where=host params=5 dtype=bf16", 20);
    ck_assert_int_eq(cost(p, 0, w), 20);
    w.where = HT_LANE_COMPUTE;
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "no cost of 'optimizer_step where=compute params=5") != NULL, "%s", err.text);
    ht_profile_destroy(p);
}
END_TEST

/* A recomputation without a measurement is charged as the forward pass of its blocks. */
START_TEST(recomputation_that_was_not_measured)
{
    struct ht_error err = {0};
    struct ht_profile *p = ht_profile_create("some", "");
    struct ht_work w = plain(HT_OP_RECOMPUTE, HT_LANE_COMPUTE);
    char key[HT_WORK_KEY_MAX];
    int64_t ns = 0;
    w.unit = HT_UNIT_BLOCK;
    w.batch = 2, w.seq = 8, w.width = 4, w.heads = 2, w.ffn = 16;
    w.sub_ops = 1u << HT_SUB_QKV;
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    struct ht_work f = w;
    f.kind = HT_OP_FORWARD;
    f.sub_ops = HT_ALL_SUB_OPS;
    ht_profile_add(p, ht_work_key(&f, key, sizeof(key)), 70);
    ck_assert_int_eq(cost(p, 0, w), 70);
    w.n_units = 3;
    ck_assert_int_eq(cost(p, 0, w), 210);
    ht_profile_add(p, ht_work_key(&w, key, sizeof(key)), 50);
    ck_assert_int_eq(cost(p, 0, w), 50);
    ht_profile_destroy(p);
}
END_TEST

/* Where blocks were measured in halves only, a whole pass costs both: 30 + 45 ns. One half is not enough. */
START_TEST(whole_passes_of_measured_halves)
{
    struct ht_error err = {0};
    struct ht_profile *p = ht_profile_create("some", "");
    struct ht_work w = plain(HT_OP_BACKWARD, HT_LANE_COMPUTE);
    char key[HT_WORK_KEY_MAX];
    int64_t ns = 0;
    w.unit = HT_UNIT_BLOCK, w.n_units = 1, w.sub_ops = HT_ALL_SUB_OPS;
    w.batch = 2, w.seq = 8, w.width = 4, w.heads = 2, w.ffn = 16;
    struct ht_work half = w, two = w;
    half.sub_ops = HT_ATTENTION_HALF;
    ht_profile_add(p, ht_work_key(&half, key, sizeof(key)), 30);
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    half.sub_ops = HT_MLP_HALF;
    ht_profile_add(p, ht_work_key(&half, key, sizeof(key)), 45);
    ck_assert_int_eq(cost(p, 0, w), 75);
    ck_assert_int_eq(cost(p, 0, half), 45);
    two.n_units = 2;
    ck_assert_int_eq(ht_profile_cost(p, 0, &two, &err, &ns), HT_BAD_INPUT);
    ht_profile_add(p, ht_work_key(&w, key, sizeof(key)), 70);
    ck_assert_int_eq(cost(p, 0, w), 70);
    ht_profile_destroy(p);
}
END_TEST

/* 100 bytes took 20 ns and 300 took 80: 150 lie a quarter of the way, 35 ns. Nothing is known below, above, or of other
   lanes. */
START_TEST(copies_between_measured_sizes)
{
    struct ht_error err = {0};
    struct ht_profile *p = ht_profile_create("some", "");
    struct ht_work w = {.kind = HT_OP_COPY, .where = HT_LANE_D2H, .tp = 1, .ranks = 1, .bytes = 150};
    int64_t ns = 0;
    ht_profile_add(p, "copy where=d2h bytes=100", 20);
    ht_profile_add(p, "copy where=d2h bytes=300", 80);
    ht_profile_add(p, "copy where=d2h bytes=1000", 9000);
    ht_profile_add(p, "copy where=h2d bytes=140", 1);
    ck_assert_int_eq(cost(p, 0, w), 35);
    w.bytes = 300;
    ck_assert_int_eq(cost(p, 0, w), 80);
    static const int64_t outside[] = {99, 1001};
    for (int i = 0; i < 2; i++) {
        w.bytes = outside[i];
        ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    }
    w.where = HT_LANE_H2D;
    w.bytes = 150;
    ck_assert_int_eq(ht_profile_cost(p, 0, &w, &err, &ns), HT_BAD_INPUT);
    ht_profile_destroy(p);
}
END_TEST

START_TEST(save_and_load)
{
    struct ht_error err = {0};
    struct ht_profile *p = ht_profile_create("odd \"name\"", "a \\ b: c"), *q = NULL;
    char *text = NULL;
    size_t n = 0;
    ht_profile_add(p, "z", 3);
    ht_profile_add(p, "forward block batch=1", INT64_C(123456789012));
    ht_profile_add(p, "z", 4);
    FILE *f = open_memstream(&text, &n);
    ck_assert(!ht_profile_save(p, f, &err));
    fclose(f);
    ck_assert_msg(!parse(text, &err, &q), "%s in %s", err.text, text);
    ck_assert_str_eq(ht_profile_name(q), "odd \"name\"");
    ck_assert_str_eq(ht_profile_source(q), "a \\ b: c");
    ck_assert_int_eq(cost(q, 0, (struct ht_work){.custom = "z"}), 4);
    ck_assert_int_eq(cost(q, 0, (struct ht_work){.custom = "forward block batch=1"}), INT64_C(123456789012));
    free(text);
    ht_profile_destroy(p);
    ht_profile_destroy(q);
}
END_TEST

static const struct {
    const char *text, *says;
} bad[] = {
    {"profile: []\n", "p.yaml:1:10: key 'profile': is empty; expected at least one list of costs"},
    {"profile:\n  - {name: x, source: s, costs: []}\n  - {name: y, costs: []}\n",
     "p.yaml:3:5: key 'profile[1]': the key 'source' is missing"},
    {"profile: {name: x, source: s, devices: v, costs: []}\n",
     "p.yaml:1:31: key 'devices': is unknown here; expected 'device'?"},
    {"costs: []\n", "p.yaml:1:1: the key 'profile' is missing; expected 'profile: ...'"},
    {"profile: 3\n", "p.yaml:1:10: key 'profile': is a value; expected a map"},
    {"profile: {name: x, source: s, costs: []}\nprofiles: 1\n", "p.yaml:2:1: key 'profiles': is unknown here"},
    {"profile: {source: s, costs: []}\n", "p.yaml:1:10: key 'profile': the key 'name' is missing"},
    {"profile: {name: x, costs: []}\n", "p.yaml:1:10: key 'profile': the key 'source' is missing"},
    {"profile:\n  name: x\n  source: s\n  costs:\n    - {work: F, time: 3}\n",
     "p.yaml:5:23: key 'time': '3' has no unit; expected a time"},
    {"profile:\n  name: x\n  source: s\n  costs:\n    - {work: F, time: 3 GB}\n",
     "p.yaml:5:23: key 'time': '3 GB' has the wrong unit 'GB'"},
    {"profile:\n  name: x\n  source: s\n  costs:\n    - {work: F, time: -3 s}\n",
     "p.yaml:5:23: key 'time': '-3 s' is negative"},
    {"profile:\n  name: x\n  source: s\n  costs:\n    - {work: F, tiem: 3 s}\n",
     "p.yaml:5:17: key 'tiem': is unknown here; expected 'time'?"},
    {"profile:\n  name: x\n  source: s\n  costs:\n    - {time: 3 s}\n",
     "p.yaml:5:7: key 'costs[0]': the key 'work' is missing"},
    {"profile:\n  name: x\n  source: s\n  costs:\n    - {work: F, time: 3 s}\n    - {work: F, time: 4 s}\n",
     "p.yaml:6:14: key 'work': 'F' is given twice; expected it once"},
};

START_TEST(bad_files)
{
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        struct ht_profile *p = NULL;
        ck_assert_int_eq(parse(bad[i].text, &err, &p), HT_BAD_INPUT);
        ck_assert_msg(strncmp(err.text, bad[i].says, strlen(bad[i].says)) == 0, "%s", err.text);
        ck_assert_ptr_null(p);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, schedules);
    tcase_add_test(t, from_file);
    tcase_add_test(t, cast_that_was_not_measured);
    tcase_add_test(t, recomputation_that_was_not_measured);
    tcase_add_test(t, whole_passes_of_measured_halves);
    tcase_add_test(t, copies_between_measured_sizes);
    tcase_add_test(t, save_and_load);
    tcase_add_test(t, bad_files);
}

int main(void)
{
    return run_suite("profile", add);
}
