/* Graph files: a dump loads back equal, and errors are refused with their position. */
#include "tests/common/schedule/sample.h"

#include <check.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct ht_schedule *reload(const struct ht_schedule *s)
{
    size_t n = 0;
    struct ht_error err = {0};
    struct ht_schedule *back = NULL;
    char *text = sample_text(s, &n);
    enum ht_status status = ht_schedule_load_text("dump.yaml", text, n, &err, &back);
    ck_assert_msg(status == HT_OK, "%s\n%s", err.text, text);
    free(text);
    return back;
}

START_TEST(round_trip_of_samples)
{
    for (int control = SAMPLE_NONE; control <= SAMPLE_ROLLBACK; control++)
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct sample o = {.units = 3, .batches = 2, .ranks = ranks, .control = (enum sample_control)control};
            struct ht_schedule *s = sample_build(o), *back = reload(s);
            ck_assert_uint_eq(ht_schedule_hash(s), ht_schedule_hash(back));
            ck_assert_int_eq(ht_schedule_verify(back, NULL, NULL), HT_OK);
            ht_schedule_destroy(s);
            ht_schedule_destroy(back);
        }
}
END_TEST

/* Everything a builder may do that is not a default. */
START_TEST(round_trip_of_oddities)
{
    const int32_t nodes[] = {0, 1, 1};
    struct ht_schedule *s = ht_schedule_create("a \"b\" \\ c: d", 3, 2, nodes);
    s->n_units = 9;
    ht_schedule_set_capacity(s, HT_DEVICE, 1, 12345);
    ht_schedule_set_capacity(s, HT_HOST, 2, 0);
    ht_schedule_set_limit(s, HT_DEVICE, 2, 54321);
    ht_schedule_set_limit(s, HT_REMOTE, 0, 0);
    s->allocator = (struct ht_allocator){.own_bytes = 3, .round_bytes = 5, .shared_bytes = 7, .leaving = true};
    s->communicator_bytes[2] = 11;
    int32_t gpu0 = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    int32_t gpu2 = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 2, HT_FIFO);
    int32_t odd = ht_add_lane(s, "true: #x", HT_LANE_DISK, 1, HT_PRIORITY);
    s->lanes[odd].index = 7;
    int32_t cores = ht_add_resource(s, "cores of 1", HT_RES_CORES, 1, INT64_MAX);
    int32_t nic = ht_add_resource(s, "nic", HT_RES_NIC, 0, 1);
    struct ht_tensor t = {.class = HT_COMM,
                          .label = {.unit = 2, .n_units = 3, .sub_ops = 0x15, .micro_batch = 3},
                          .bytes = 77,
                          .shard_begin = 5,
                          .shard_end = INT64_MAX,
                          .rank = 2};
    int32_t a = ht_add_tensor(s, t), b = ht_add_tensor(s, t);
    ht_add_tensor(
        s, (struct ht_tensor){.class = HT_PARAM, .label = t.label, .sharded = true}); /* the first shard is empty */
    ht_add_tensor(s, (struct ht_tensor){.class = HT_GRAD, .label = t.label, .part = 2, .parts = 3});
    ht_schedule_set_micro_batches(s, 4, (struct ht_slice[]){{2, 5}, {0, 2}, {7, 1}, {8, 3}});
    t.label = (struct ht_label){.unit = -1, .n_units = 0, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = -1};
    int32_t c = ht_add_tensor(s, t);
    ht_add_resident(s, a, HT_DISK, 0);
    ht_add_resident(s, b, HT_REMOTE, 2);
    struct ht_work work = {.kind = HT_OP_BACKWARD,
                           .where = HT_LANE_HOST,
                           .unit = HT_UNIT_HEAD,
                           .arch = HT_ARCH_LLAMA,
                           .n_units = 4,
                           .sub_ops = 3,
                           .batch = 1,
                           .seq = 2,
                           .width = 3,
                           .heads = 4,
                           .kv_heads = 2,
                           .ffn = 5,
                           .vocab = 6,
                           .tied = true,
                           .flash = true,
                           .dropout = true,
                           .dtype = HT_BF16,
                           .grad_dtype = HT_F16,
                           .tp = 0,
                           .ranks = 8,
                           .params = 9,
                           .bytes = 10,
                           .free = true,
                           .write = true,
                           .custom = "x"};
    struct ht_work custom = {.custom = "12"}, same = {.custom = "x"};
    int32_t w = ht_add_work(s, &work), v = ht_add_work(s, &custom), x = ht_add_work(s, &same);
    struct ht_label none = {.unit = -1, .micro_batch = -1};
    int32_t first = ht_add_op(s, HT_OP_SEND, gpu0, none, w);
    ht_op_name(s, "twice");
    ht_op_after_prev(s, 2);
    ht_op_effect(s, c, HT_REMOTE, HT_RELEASE);
    ht_op_effect(s, a, HT_HOST, HT_NEED | HT_RELEASE);
    ht_op_effect(s, a, HT_DEVICE, HT_PRODUCE);
    int32_t second = ht_add_op(s, HT_OP_RECEIVE, gpu2, t.label, v);
    ht_op_name(s, "twice");
    ht_op_after(s, first);
    ht_op_match(s, INT32_MAX);
    ht_op_effect(s, b, HT_DISK, HT_NEED);
    ht_op_effect(s, c, HT_DISK, HT_NEED | HT_UPDATE | HT_RELEASE);
    ht_op_use(s, cores, 5);
    ht_op_use(s, nic, 0);
    ht_op_use(s, cores, 6);
    ht_add_op(s, HT_OP_RESTORE, odd, none, x);
    ht_op_name(s, "1");
    ht_op_priority(s, INT32_MIN);
    ht_op_when(s, HT_WHEN_BAD);
    ht_op_after(s, second);
    ht_op_after_prev(s, 2);
    struct ht_schedule *back = reload(s);
    ck_assert_uint_eq(ht_schedule_hash(s), ht_schedule_hash(back));
    ht_schedule_destroy(s);
    ht_schedule_destroy(back);
}
END_TEST

START_TEST(hand_written)
{
    static const char text[] = "name: two\n"
                               "ranks: 2\n"
                               "capacity: {device: [40 GB, 16 GiB], host: 64 GB}\n"
                               "limit: {device: [unlimited, 2 MB]}\n"
                               "allocator: {own: 10 MiB, round: 2 MiB, shared: 20 MiB, communicator: 40 MiB}\n"
                               "lanes:\n"
                               "  - {name: gpu, kind: compute}\n"
                               "  - {name: gpu, kind: compute, rank: 1}\n"
                               "  - {name: cpu, kind: host, order: priority, rank: 1}\n"
                               "resources:\n"
                               "  - {name: pcie, kind: pcie_h2d, capacity_per_s: 16 GB}\n"
                               "  - {name: cores, kind: cores, capacity_per_s: 8 s}\n"
                               "tensors:\n"
                               "  - {name: p, class: param, unit: 1, bytes: 2 MB, shard: [0, 10]}\n"
                               "residents: [p@host]\n"
                               "ops:\n"
                               "  - {name: A, kind: forward, lane: gpu@0, unit: 1, mb: 0, work: fp, prev: C, "
                               "need: p@host, use: {pcie: 4096, cores: 5}}\n"
                               "  - {kind: backward, lane: gpu@1, work: bp, after: A}\n"
                               "  - {name: C, kind: undo, lane: cpu, work: fp, after: [A, 1], update: [p@host], "
                               "priority: -3}\n";
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_schedule_load_text("t", text, strlen(text), &err, &s) == HT_OK, "%s", err.text);
    ck_assert_int_eq(s->capacity_bytes[0], 40000000000);
    ck_assert_int_eq(s->capacity_bytes[1], (int64_t)16 << 30);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_HOST, 1)], 64000000000);
    ck_assert_int_eq(s->capacity_bytes[ht_space(s, HT_DISK, 1)], INT64_MAX);
    ck_assert_int_eq(s->limit_bytes[0], INT64_MAX);
    ck_assert_int_eq(s->limit_bytes[1], 2000000);
    ck_assert_int_eq(s->allocator.own_bytes, 10 << 20);
    ck_assert_int_eq(s->allocator.round_bytes, 2 << 20);
    ck_assert_int_eq(s->allocator.shared_bytes, 20 << 20);
    ck_assert(!s->allocator.leaving);
    ck_assert_int_eq(s->communicator_bytes[0], 40 << 20);
    ck_assert_int_eq(s->communicator_bytes[1], 40 << 20);
    ck_assert_int_eq(s->limit_bytes[ht_space(s, HT_HOST, 1)], INT64_MAX);
    ck_assert_int_eq(ht_space_bytes(s, 0), 40000000000);
    ck_assert_int_eq(ht_space_bytes(s, 1), 2000000);
    ck_assert_int_eq(s->lanes[2].index, 0);
    ck_assert_int_eq(s->resources[1].capacity_per_s, 8000000000);
    ck_assert_int_eq(s->tensors[0].bytes, 2000000);
    ck_assert_int_eq(s->tensors[0].shard_end, 10);
    ck_assert_int_eq(s->n_works, 2);
    ck_assert_int_eq(s->ops[2].work, 0);
    ck_assert_int_eq(s->prev[0], 2);
    ck_assert_int_eq(s->uses[1].amount, 5);
    ck_assert_int_eq(s->ops[0].label.sub_ops, HT_ALL_SUB_OPS);
    ck_assert_int_eq(s->ops[1].label.unit, -1);
    ck_assert_int_eq(s->deps_begin[3] - s->deps_begin[2], 2);
    ck_assert_int_eq(s->ops[2].priority, -3);
    ht_schedule_destroy(s);
}
END_TEST

/* Messages of bad files, in full. */
#define HEAD "lanes: [{name: gpu, kind: compute}]\ntensors: [{name: t, class: grad, bytes: 8}]\nops:\n"
#define OP   "  - {name: A, kind: forward, lane: gpu, work: w"
static const struct {
    const char *text, *error;
} bad[] = {
#include "tests/common/schedule/bad_files.inc"
};

START_TEST(bad_files)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    enum ht_status status = ht_schedule_load_text("g.yaml", bad[_i].text, strlen(bad[_i].text), &err, &s);
    ck_assert_int_eq(status, HT_BAD_INPUT);
    ck_assert_ptr_null(s);
    ck_assert_str_eq(err.text, bad[_i].error);
}
END_TEST

START_TEST(file_on_disk)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_int_ne(ht_schedule_load("/nonexistent/graph.yaml", &err, &s), HT_OK);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/graph.yaml"));
}
END_TEST

/* A hundred thousand ops; the time is printed, not checked. */
START_TEST(large_dump)
{
    struct sample o = {.units = 100, .batches = 500, .ranks = 1};
    struct ht_schedule *s = sample_build(o), *back = NULL;
    struct ht_error err = {0};
    size_t n = 0;
    double t0 = now_s();
    char *text = sample_text(s, &n);
    double t1 = now_s();
    ck_assert_msg(ht_schedule_load_text("large.yaml", text, n, &err, &back) == HT_OK, "%s", err.text);
    double t2 = now_s();
    ck_assert_uint_eq(ht_schedule_hash(s), ht_schedule_hash(back));
    printf("%d ops, %.1f MB: dump %.2f s, load %.2f s\n", s->n_ops, (double)n / 1e6, t1 - t0, t2 - t1);
    free(text);
    ht_schedule_destroy(s);
    ht_schedule_destroy(back);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule/file");
    TCase *c = tcase_create("file");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, round_trip_of_samples);
    tcase_add_test(c, round_trip_of_oddities);
    tcase_add_test(c, hand_written);
    tcase_add_loop_test(c, bad_files, 0, (int)HT_COUNT(bad));
    tcase_add_test(c, file_on_disk);
    tcase_add_test(c, large_dump);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
