/* Building: rows that the setters ignore, merge and share; keys, labels and the hash. */
#include "tests/common/schedule/sample.h"

#include <check.h>

static const struct ht_label none = {.unit = -1, .micro_batch = -1};

/* Two ranks on two nodes, a lane each of gpu, and d2h on rank 0; two tensors; no ops. */
static struct ht_schedule *start(void)
{
    const int32_t nodes[] = {0, 1};
    struct ht_schedule *s = ht_schedule_create("start", 2, 2, nodes);
    struct ht_tensor t = {.class = HT_GRAD, .label = sample_label(3, -1), .bytes = 8};
    ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 1, HT_FIFO);
    ht_add_lane(s, "d2h", HT_LANE_D2H, 0, HT_FIFO);
    ht_add_tensor(s, t);
    ht_add_tensor(s, t);
    ht_add_resource(s, "pcie", HT_RES_PCIE_D2H, 0, 1000);
    ht_add_resource(s, "dram", HT_RES_DRAM, 0, 1000);
    return s;
}

START_TEST(repeats)
{
    struct ht_schedule *s = start();
    for (int i = 0; i < 3; i++) ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    ht_op_after(s, 1);
    ht_op_after(s, 0);
    ht_op_after(s, 1);
    ht_op_after(s, -1);
    ht_op_after_prev(s, 2);
    ht_op_after_prev(s, 2);
    ht_op_after_prev(s, 9); /* still to come */
    ht_op_effect(s, 1, HT_HOST, HT_NEED);
    ht_op_effect(s, 1, HT_DISK, HT_PRODUCE);
    ht_op_effect(s, 0, HT_HOST, HT_NEED);
    ht_op_effect(s, 1, HT_HOST, HT_RELEASE);
    ht_op_use(s, 0, 5);
    ht_op_use(s, 1, 6);
    ht_op_use(s, 0, 7);
    ck_assert_int_eq(s->deps_begin[2], 0);
    ck_assert_int_eq(s->deps_begin[3], 2);
    ck_assert_int_eq(s->deps[0], 1);
    ck_assert_int_eq(s->deps[1], 0);
    ck_assert_int_eq(s->prev_begin[3], 2);
    ck_assert_int_eq(s->effects_begin[3], 3);
    ck_assert_int_eq(s->effects[0].flags, HT_NEED | HT_RELEASE);
    ck_assert_int_eq(s->effects[1].flags, HT_PRODUCE);
    ck_assert_int_eq(s->uses_begin[3], 2);
    ck_assert_int_eq(s->uses[0].amount, 12);
    /* the next op starts afresh */
    ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    ht_op_after(s, 1);
    ht_op_effect(s, 1, HT_HOST, HT_UPDATE);
    ck_assert_int_eq(s->deps_begin[4] - s->deps_begin[3], 1);
    ck_assert_int_eq(s->effects[3].flags, HT_UPDATE);
    ht_schedule_destroy(s);
}
END_TEST

/* Each thing is said twice, in both orders, in lists of up to 40: short ones are searched, long ones looked up. A list begins anew
   with the op, and a mark among the edges is no op. */
START_TEST(long_lists)
{
    struct ht_schedule *s = start();
    for (int i = 0; i < 40; i++) ht_add_tensor(s, (struct ht_tensor){.bytes = 1});
    int32_t first = s->n_tensors - 40, mark = ht_mark_create(s);
    for (int i = 0; i < 40; i++) ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    for (int n = 1; n <= 40; n++) {
        int32_t op = ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
        ht_op_after_prev(s, mark);
        for (int k = 0; k < 2 * n; k++) {
            int32_t at = k < n ? k : 2 * n - 1 - k;
            ht_op_after(s, at);
            ht_op_after_prev(s, at);
            ht_op_effect(s, first + at, HT_DEVICE, k < n ? HT_NEED : HT_RELEASE);
        }
        ck_assert_int_eq(s->deps_begin[op + 1] - s->deps_begin[op], n);
        ck_assert_int_eq(s->prev_begin[op + 1] - s->prev_begin[op], n + 1);
        ck_assert_int_eq(s->effects_begin[op + 1] - s->effects_begin[op], n);
        for (int k = 0; k < n; k++) {
            const struct ht_effect *e = &s->effects[s->effects_begin[op] + k];
            ck_assert_int_eq(s->deps[s->deps_begin[op] + k], k);
            ck_assert_int_eq(s->prev[s->prev_begin[op] + 1 + k], k);
            ck_assert_int_eq(e->tensor, first + k);
            ck_assert_int_eq(e->flags, HT_NEED | HT_RELEASE);
        }
    }
    ht_schedule_destroy(s);
}
END_TEST

/* Marks a and b, and c that nothing sets: op 0 waits for a, 2, b, a and c; op 1 sets a, op 2 sets b, op 3 sets a
   again. */
START_TEST(marks)
{
    struct ht_schedule *s = start();
    int32_t a = ht_mark_create(s), b = ht_mark_create(s), c = ht_mark_create(s);
    ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    ht_op_after_prev(s, a);
    ht_op_after_prev(s, 2);
    ht_op_after_prev(s, b);
    ht_op_after_prev(s, a);
    ht_op_after_prev(s, c);
    ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    ht_mark_set(s, a);
    ht_op_after_prev(s, c);
    ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    ht_mark_set(s, b);
    ht_op_after_prev(s, 0);
    ht_add_op(s, HT_OP_FORWARD, 0, none, 0);
    ht_mark_set(s, a);
    ht_op_after_prev(s, b);
    for (int i = 0; i < 2; i++) { /* the second time nothing is left to do */
        ht_marks_resolve(s);
        ck_assert_int_eq(s->prev_begin[1], 2);
        ck_assert_int_eq(s->prev[0], 3); /* a */
        ck_assert_int_eq(s->prev[1], 2); /* 2, which is b, too */
        ck_assert_int_eq(s->prev_begin[2], 2);
        ck_assert_int_eq(s->prev_begin[3], 3);
        ck_assert_int_eq(s->prev[2], 0);
        ck_assert_int_eq(s->prev_begin[4], 4);
        ck_assert_int_eq(s->prev[3], 2);
    }
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(works_are_shared)
{
    struct ht_schedule *s = start();
    struct ht_work w = {.kind = HT_OP_COPY, .where = HT_LANE_D2H};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 5000; i++) {
            w.bytes = i;
            ck_assert_int_eq(ht_add_work(s, &w), i);
        }
    ck_assert_int_eq(s->n_works, 5000);
    struct ht_work a = {.custom = "fp"}, b = {.custom = "fp"};
    memset(b.custom + 3, 'x', sizeof b.custom - 4); /* behind the end */
    ck_assert_int_eq(ht_add_work(s, &a), 5000);
    ck_assert_int_eq(ht_add_work(s, &b), 5000);
    ht_schedule_destroy(s);
}
END_TEST

START_TEST(keys)
{
    char key[HT_WORK_KEY_MAX];
    struct ht_work w = {.kind = HT_OP_FORWARD,
                        .where = HT_LANE_COMPUTE,
                        .unit = HT_UNIT_BLOCK,
                        .n_units = 1,
                        .sub_ops = HT_ALL_SUB_OPS,
                        .batch = 8,
                        .seq = 1024,
                        .width = 4096,
                        .heads = 32,
                        .ffn = 16384,
                        .vocab = 50257,
                        .flash = true,
                        .dtype = HT_BF16,
                        .tp = 1,
                        .ranks = 1,
                        .params = 5,
                        .bytes = 6};
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key),
                     "forward block batch=8 seq=1024 width=4096 heads=32 ffn=16384 flash dtype=bf16");
    w.kind = HT_OP_BACKWARD;
    w.sub_ops = 1u << HT_SUB_QKV | 1u << HT_SUB_PROJ;
    w.tp = 4;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key),
                     "backward block sub_ops=qkv+proj batch=8 seq=1024 width=4096 heads=32 ffn=16384 flash dtype=bf16 "
                     "grad=f32 tp=4");
    w.unit = HT_UNIT_HEAD;
    w.where = HT_LANE_HOST;
    w.n_units = 2;
    ck_assert_str_eq(
        ht_work_key(&w, key, sizeof key),
        "backward head where=host units=2 batch=8 seq=1024 width=4096 vocab=50257 tied=0 dtype=bf16 grad=f32 "
        "tp=4");
    struct ht_work llama = w;
    llama.arch = HT_ARCH_LLAMA;
    llama.unit = HT_UNIT_BLOCK;
    llama.kv_heads = 8;
    llama.tp = llama.n_units = 1;
    llama.sub_ops = HT_ALL_SUB_OPS;
    ck_assert_str_eq(ht_work_key(&llama, key, sizeof key),
                     "backward block llama where=host batch=8 seq=1024 width=4096 heads=32 kv_heads=8 ffn=16384 flash "
                     "dtype=bf16 grad=f32");
    llama.kv_heads = 32; /* as many as heads: not said */
    ck_assert_str_eq(ht_work_key(&llama, key, sizeof key),
                     "backward block llama where=host batch=8 seq=1024 width=4096 heads=32 ffn=16384 flash dtype=bf16 "
                     "grad=f32");
    w.kind = HT_OP_OPTIMIZER_STEP;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "optimizer_step where=host params=5 dtype=bf16 grad=f32 log=6");
    struct ht_work plain = w;
    plain.bytes = 0;
    ck_assert_str_eq(ht_work_key(&plain, key, sizeof key), "optimizer_step where=host params=5 dtype=bf16 grad=f32");
    plain.kind = HT_OP_VALIDATE;
    plain.ranks = 1;
    ck_assert_str_eq(ht_work_key(&plain, key, sizeof key), "validate where=host params=5 ranks=1 grad=f32");
    plain.kind = HT_OP_RESTORE;
    ck_assert_str_eq(ht_work_key(&plain, key, sizeof key), "restore where=host params=5 dtype=bf16");
    w.kind = HT_OP_COPY;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "copy where=host bytes=6");
    w.kind = HT_OP_ALL_REDUCE;
    w.ranks = 8;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "all_reduce ranks=8 bytes=6 grad=f32");
    w.free = true;
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "all_reduce free");
    strcpy(w.custom, "my own");
    ck_assert_str_eq(ht_work_key(&w, key, sizeof key), "my own");
    ck_assert_str_eq(ht_work_key(&w, key, 4), "my ");
}
END_TEST

/* (B,T,C) = 2 x 8 x 10 = 160 elements, on 4 parts 40 each: 2 x 3 x 40 x 2 bytes go in a ring. Logits: 16 rows of 2 FP32
   go to each of 3. */
START_TEST(sums_of_parts)
{
    struct ht_work w = {.kind = HT_OP_FORWARD,
                        .unit = HT_UNIT_BLOCK,
                        .n_units = 1,
                        .sub_ops = HT_ALL_SUB_OPS,
                        .batch = 2,
                        .seq = 8,
                        .width = 10,
                        .dtype = HT_BF16,
                        .tp = 4};
    const struct {
        enum ht_op_kind kind;
        enum ht_unit_kind unit;
        uint32_t sub_ops;
        int32_t n_units, n;
        int64_t bytes;
    } cases[] = {{HT_OP_FORWARD, HT_UNIT_BLOCK, HT_ALL_SUB_OPS, 1, 2, 480},
                 {HT_OP_BACKWARD, HT_UNIT_BLOCK, HT_ALL_SUB_OPS, 1, 2, 480},
                 {HT_OP_RECOMPUTE, HT_UNIT_BLOCK, HT_ALL_SUB_OPS, 3, 6, 480},
                 {HT_OP_RECOMPUTE, HT_UNIT_BLOCK, 1u << HT_SUB_PROJ | 1u << HT_SUB_NORM2, 1, 1, 480},
                 {HT_OP_RECOMPUTE, HT_UNIT_BLOCK, 1u << HT_SUB_GELU, 1, 0, 480},
                 {HT_OP_FORWARD, HT_UNIT_EMBEDDING, HT_ALL_SUB_OPS, 1, 1, 480},
                 {HT_OP_BACKWARD, HT_UNIT_EMBEDDING, HT_ALL_SUB_OPS, 1, 0, 480},
                 {HT_OP_FORWARD, HT_UNIT_HEAD, HT_ALL_SUB_OPS, 1, 1, 3 * 16 * 2 * 4},
                 {HT_OP_BACKWARD, HT_UNIT_HEAD, HT_ALL_SUB_OPS, 1, 1, 480}};
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        w.kind = cases[i].kind;
        w.unit = cases[i].unit;
        w.sub_ops = cases[i].sub_ops;
        w.n_units = cases[i].n_units;
        ck_assert_int_eq(ht_work_part_sums(&w).n, cases[i].n);
        ck_assert_int_eq(ht_work_part_sums(&w).bytes, cases[i].bytes);
    }
    /* BERT's token table is cut, its head and ViT's patches are not. */
    w.kind = HT_OP_FORWARD;
    w.arch = HT_ARCH_BERT;
    ck_assert_int_eq(ht_work_part_sums(&w).n, 0);
    w.unit = HT_UNIT_EMBEDDING;
    ck_assert_int_eq(ht_work_part_sums(&w).n, 1);
    w.arch = HT_ARCH_VIT;
    ck_assert_int_eq(ht_work_part_sums(&w).n, 0);
    w.unit = HT_UNIT_BLOCK;
    ck_assert_int_eq(ht_work_part_sums(&w).n, 2);
    /* Parts that cut rows: 3 shares of 4 rows of 10 in 16 bit, each 240 bytes. */
    static const struct {
        enum ht_arch arch;
        enum ht_unit_kind unit;
        int forward, backward, sums; /* of logits, forward */
    } halves[] = {{HT_ARCH_GPT, HT_UNIT_BLOCK, 4, 6, 0},     {HT_ARCH_GPT, HT_UNIT_EMBEDDING, 1, 1, 0},
                  {HT_ARCH_GPT, HT_UNIT_HEAD, 1, 2, 1},      {HT_ARCH_BERT, HT_UNIT_HEAD, 1, 0, 0},
                  {HT_ARCH_VIT, HT_UNIT_EMBEDDING, 0, 1, 0}, {HT_ARCH_BERT, HT_UNIT_EMBEDDING, 1, 1, 0}};
    w.sequence = true;
    w.sub_ops = HT_ALL_SUB_OPS;
    for (size_t i = 0; i < HT_COUNT(halves); i++)
        for (int back = 0; back < 2; back++) {
            w.kind = back ? HT_OP_BACKWARD : HT_OP_FORWARD;
            w.arch = halves[i].arch;
            w.unit = halves[i].unit;
            struct ht_part_sums sums = ht_work_part_sums(&w);
            ck_assert_int_eq(sums.n_halves, back ? halves[i].backward : halves[i].forward);
            ck_assert_int_eq(sums.half_bytes, 240);
            ck_assert_int_eq(sums.n, back ? 0 : halves[i].sums);
        }
    w.kind = HT_OP_RECOMPUTE;
    w.unit = HT_UNIT_BLOCK;
    w.sub_ops = 1u << HT_SUB_QKV | 1u << HT_SUB_GELU;
    ck_assert_int_eq(ht_work_part_sums(&w).n_halves, 1);
    w.tp = 1;
    ck_assert_int_eq(ht_work_part_sums(&w).n, 0);
}
END_TEST

START_TEST(titles)
{
    char t[64];
    struct ht_schedule *s = start();
    struct ht_label l = {.unit = 3, .n_units = 1, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = 1};
    ht_add_op(s, HT_OP_FORWARD, 0, l, 0);
    ck_assert_str_eq(ht_op_label(s, 0, t, sizeof t), "F3"); /* one micro-batch: left out */
    ck_assert_str_eq(ht_op_description(s, 0, t, sizeof t), "forward of unit 3");
    s->n_micro_batches = 2;
    s->n_units = 8;
    ck_assert_str_eq(ht_op_label(s, 0, t, sizeof t), "F3.1");
    ck_assert_str_eq(ht_op_description(s, 0, t, sizeof t), "forward of block 3, micro-batch 1");
    s->ops[0].kind = HT_OP_RECOMPUTE;
    s->ops[0].label.sub_ops = 1u << HT_SUB_QKV | 1u << HT_SUB_GELU;
    ck_assert_str_eq(ht_op_label(s, 0, t, sizeof t), "R3.1 (qkv, gelu)");
    ck_assert_str_eq(ht_op_description(s, 0, t, sizeof t), "recompute of block 3 (qkv, gelu), micro-batch 1");
    l.n_units = 3;
    l.micro_batch = -1;
    ht_add_op(s, HT_OP_OPTIMIZER_STEP, 0, l, 0);
    ck_assert_str_eq(ht_op_label(s, 1, t, sizeof t), "O3-5");
    ck_assert_str_eq(ht_op_description(s, 1, t, sizeof t), "optimizer step of block 3 to unit 5");
    ht_add_op(s, HT_OP_COPY, 2, sample_label(3, -1), 0);
    ht_op_effect(s, 0, HT_DEVICE, HT_NEED);
    ck_assert_str_eq(ht_op_label(s, 2, t, sizeof t), "d2h grad 3");
    ck_assert_str_eq(ht_op_description(s, 2, t, sizeof t), "copy of gradients of block 3");
    s->tensors[0].part = 1;
    s->tensors[0].parts = 2;
    ck_assert_str_eq(ht_op_description(s, 2, t, sizeof t), "copy of gradients of part 1 of 2 of block 3");
    ht_add_op(s, HT_OP_VALIDATE, 0, none, 0);
    ck_assert_str_eq(ht_op_label(s, 3, t, sizeof t), "validate");
    ht_op_name(s, "%s", "a name of more than fifteen");
    ck_assert_str_eq(ht_op_label(s, 3, t, sizeof t), "a name of more ");
    ht_add_op(s, HT_OP_UNDO, 0, sample_label(7, -1), 0);
    ck_assert_str_eq(ht_op_description(s, 4, t, sizeof t), "undo of head");
    ck_assert_str_eq(ht_space_name(s, ht_space(s, HT_HOST, 1), t, sizeof t), "host 1");
    ck_assert_str_eq(ht_space_name(s, ht_space(s, HT_DEVICE, 1), t, sizeof t), "device 1");
    ck_assert_str_eq(ht_space_name(s, ht_space(s, HT_DISK, 0), t, sizeof t), "disk 0");
    ck_assert_str_eq(ht_space_name(s, ht_space(s, HT_REMOTE, 0), t, sizeof t), "remote");
    ht_schedule_destroy(s);
}
END_TEST

/* Any one field changed changes the hash. */
START_TEST(hash_sees_everything)
{
    struct sample o = {2, 1, 1, SAMPLE_GATE, false};
    struct ht_schedule *s = sample_build(o);
    s->allocator = (struct ht_allocator){1 << 20, 1 << 20, 1 << 20, true};
    uint64_t before = ht_schedule_hash(s);
    uint8_t *bytes[] = {(uint8_t *)s->name,
                        (uint8_t *)&s->n_units,
                        (uint8_t *)&s->n_micro_batches,
                        (uint8_t *)s->capacity_bytes,
                        (uint8_t *)s->limit_bytes,
                        (uint8_t *)&s->allocator.own_bytes,
                        (uint8_t *)&s->allocator.round_bytes,
                        (uint8_t *)&s->allocator.shared_bytes,
                        (uint8_t *)s->communicator_bytes,
                        (uint8_t *)&s->lanes[1].name,
                        (uint8_t *)&s->lanes[1].order,
                        (uint8_t *)&s->lanes[1].index,
                        (uint8_t *)&s->resources[0].capacity_per_s,
                        (uint8_t *)&s->tensors[2].bytes,
                        (uint8_t *)&s->tensors[2].label.micro_batch,
                        (uint8_t *)&s->tensors[2].parts,
                        (uint8_t *)&s->tensors[2].label.sub_ops,
                        (uint8_t *)&s->residents[1].tier,
                        (uint8_t *)&s->works[1].width,
                        (uint8_t *)s->works[1].custom,
                        (uint8_t *)&s->ops[4].priority,
                        (uint8_t *)&s->ops[4].when,
                        (uint8_t *)&s->ops[4].match,
                        (uint8_t *)&s->ops[4].label.unit,
                        (uint8_t *)&s->ops[4].label.sub_ops,
                        (uint8_t *)&s->deps[3],
                        (uint8_t *)&s->prev[0],
                        (uint8_t *)&s->effects[5].tensor,
                        (uint8_t *)&s->effects[5].tier,
                        (uint8_t *)&s->effects[5].flags,
                        (uint8_t *)&s->uses[0].amount};
    for (size_t i = 0; i < HT_COUNT(bytes); i++) {
        *bytes[i] ^= 1;
        ck_assert_msg(ht_schedule_hash(s) != before, "field %zu is not hashed", i);
        *bytes[i] ^= 1;
    }
    ck_assert_uint_eq(ht_schedule_hash(s), before);
    ht_schedule_destroy(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule/build");
    TCase *c = tcase_create("build");
    tcase_add_test(c, repeats);
    tcase_add_test(c, long_lists);
    tcase_add_test(c, marks);
    tcase_add_test(c, works_are_shared);
    tcase_add_test(c, keys);
    tcase_add_test(c, sums_of_parts);
    tcase_add_test(c, titles);
    tcase_add_test(c, hash_sees_everything);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
