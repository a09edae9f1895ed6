/* The verifier: correct graphs pass, every rule has a file that breaks it, and a correct graph with any one needed
   thing taken away is refused. */
#include "tests/common/schedule/sample.h"

#include <check.h>
#include <dirent.h>

#define GRAPHS HT_SOURCE_DIR "/tests/data/graphs/"

/* Runs over the files whose names begin so, in no order; returns how many there are. */
static int each_graph(const char *prefix, void (*run)(const char *path))
{
    DIR *dir = opendir(GRAPHS);
    int n = 0;
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512];
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        snprintf(path, sizeof path, GRAPHS "%.200s", e->d_name);
        run(path);
        n++;
    }
    closedir(dir);
    return n;
}

/* Reads the message that the verifier must give from the first line: "# expect: ...". */
static void must_break(const char *path)
{
    char line[512] = "";
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
    fclose(f);
    line[strcspn(line, "\n")] = 0;
    const char *expect = line + strlen("# expect: ");
    ck_assert_msg(strncmp(line, "# expect: ", 10) == 0, "%s: no '# expect:' line", path);
    ck_assert_msg(ht_schedule_load(path, &err, &s) == HT_OK, "%s", err.text);
    enum ht_status status = ht_schedule_verify(s, &err, NULL);
    ck_assert_msg(status == (strncmp(expect, "OOM", 3) == 0 ? HT_INFEASIBLE : HT_FAILED), "%s: status %d: %s", path,
                  status, err.text);
    size_t n = strlen(err.text), m = strlen(expect);
    ck_assert_msg(n >= m && strcmp(err.text + n - m, expect) == 0, "%s:\n  said     %s\n  expected %s", path, err.text,
                  expect);
    ht_schedule_destroy(s);
}

static void must_pass(const char *path)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    ck_assert_msg(ht_schedule_load(path, &err, &s) == HT_OK, "%s", err.text);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s: %s", path, err.text);
    uint64_t before = ht_schedule_hash(s);
    ht_schedule_link(s);
    ck_assert_msg(ht_schedule_hash(s) == before, "%s: linking found something to add", path);
    ht_schedule_destroy(s);
}

START_TEST(broken_graphs)
{
    ck_assert_int_ge(each_graph("bad-", must_break), 50);
}
END_TEST

START_TEST(good_graphs)
{
    ck_assert_int_ge(each_graph("good-", must_pass), 2);
}
END_TEST

/* An op of few effects, which are compared with one another, and one of many, whose tensors are marked. */
START_TEST(an_effect_said_twice)
{
    static const int sizes[] = {2, 8, 9, 30};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ht_schedule *s = ht_schedule_create("twice", 1, 1, NULL);
        struct ht_work w = {.custom = "work"};
        struct ht_error err = {0};
        int32_t lane = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
        ht_add_op(s, HT_OP_FORWARD, lane, (struct ht_label){.unit = -1, .micro_batch = -1}, ht_add_work(s, &w));
        for (int k = 0; k < sizes[i]; k++) {
            ht_add_tensor(s, (struct ht_tensor){.label = {.unit = -1, .micro_batch = -1}, .bytes = 8});
            ht_add_resident(s, k, HT_DEVICE, 0);
            ht_op_effect(s, k, HT_DEVICE, HT_NEED);
        }
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
        s->effects[sizes[i] - 1].tensor = 0;
        ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
        ck_assert_msg(strstr(err.text, "has two effects on") && strstr(err.text, "in tier device"), "%s", err.text);
        ht_schedule_destroy(s);
    }
}
END_TEST

START_TEST(sweep)
{
    for (int control = SAMPLE_NONE; control <= SAMPLE_ROLLBACK; control++)
        for (int units = 1; units <= 5; units++)
            for (int batches = 1; batches <= 3; batches++)
                for (int ranks = 1; ranks <= 4; ranks++) {
                    struct sample o = {units, batches, ranks, (enum sample_control)control, false};
                    struct ht_schedule *s = sample_build(o);
                    struct ht_error err = {0};
                    struct ht_proof v = {0};
                    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "%s", err.text);
                    for (int r = 0; r < HT_N_RULES; r++) ck_assert(v.proved[r]);
                    ck_assert_int_eq(v.n_spaces, ht_n_spaces(s));
                    ht_proof_free(&v);
                    ht_schedule_destroy(s);
                    o.unlinked = true;
                    s = sample_build(o);
                    ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
                    ht_schedule_destroy(s);
                }
}
END_TEST

/* Every edge that linking added, every op, every effect that changes what is there: without it, the graph is refused.
 */
START_TEST(mutations)
{
    static const struct sample samples[] = {{3, 1, 1, SAMPLE_NONE, false},     {3, 2, 2, SAMPLE_NONE, false},
                                            {3, 2, 1, SAMPLE_GATE, false},     {2, 2, 2, SAMPLE_GATE, false},
                                            {3, 2, 1, SAMPLE_ROLLBACK, false}, {2, 1, 3, SAMPLE_ROLLBACK, false}};
    struct sample o = samples[_i];
    struct ht_schedule *s = sample_build(o);
    struct ht_error err = {0};
    int64_t n = 0;
    struct {
        enum cut cut;
        int64_t n;
    } kinds[] = {{CUT_OP, s->n_ops},
                 {CUT_DEP, s->deps_begin[s->n_ops]},
                 {CUT_PREV, s->prev_begin[s->n_ops]},
                 {CUT_EFFECT, s->effects_begin[s->n_ops]}};
    struct ht_schedule *same = sample_cut(s, CUT_NOTHING, 0);
    ck_assert_uint_eq(ht_schedule_hash(s), ht_schedule_hash(same));
    ht_schedule_destroy(same);
    for (size_t k = 0; k < HT_COUNT(kinds); k++)
        for (int64_t i = 0; i < kinds[k].n; i++) {
            /* a read that is not declared cannot be missed, except by a copy; nor can the update of anything but
             * momentum and gradients */
            if (kinds[k].cut == CUT_EFFECT) {
                const struct ht_effect *e = &s->effects[i];
                enum ht_tensor_class class = s->tensors[e->tensor].class;
                bool followed = class == HT_MOMENTUM || class == HT_GRAD;
                if (!(e->flags & (HT_PRODUCE | HT_RELEASE)) && !(e->flags & HT_UPDATE && followed)) continue;
            }
            struct ht_schedule *cut = sample_cut(s, kinds[k].cut, i);
            ck_assert_msg(ht_schedule_verify(cut, &err, NULL) == HT_FAILED, "sample %d: %s %d is not missed", _i,
                          k == 0   ? "op"
                          : k == 1 ? "edge"
                          : k == 2 ? "edge to the previous iteration"
                                   : "effect",
                          (int)i);
            ht_schedule_destroy(cut);
            n++;
        }
    printf("sample %d: %lld mutations\n", _i, (long long)n);
    ht_schedule_destroy(s);
}
END_TEST

/*
 * A block between an embedding and a head, passed in halves. Nothing but the order of the passes is wrong in another
 * one: the residual stream's buffers are always there and are overwritten, and there is one lane. Of the 8! orders the
 * verifier accepts one.
 */
enum { PASSES = 8, ORDERS = 40320 };

static const struct stream_pass {
    enum ht_op_kind kind;
    int32_t unit;
    unsigned sub_ops;
    struct {
        enum ht_tensor_class class;
        int32_t unit;
        unsigned flags;
    } effects[2];
} passes[PASSES] = {
    {HT_OP_FORWARD, 0, HT_ALL_SUB_OPS, {{HT_CHECKPOINT, 1, HT_UPDATE}}},
    {HT_OP_FORWARD, 1, HT_ATTENTION_HALF, {{HT_CHECKPOINT, 1, HT_NEED}}},
    {HT_OP_FORWARD, 1, HT_MLP_HALF, {{HT_CHECKPOINT, 2, HT_UPDATE}}},
    {HT_OP_FORWARD, 2, HT_ALL_SUB_OPS, {{HT_CHECKPOINT, 2, HT_NEED}}},
    {HT_OP_BACKWARD, 2, HT_ALL_SUB_OPS, {{HT_CHECKPOINT, 2, HT_NEED}, {HT_ACT_GRAD, 2, HT_UPDATE}}},
    {HT_OP_BACKWARD, 1, HT_MLP_HALF, {{HT_ACT_GRAD, 2, HT_NEED}, {HT_ACT_GRAD, 1, HT_UPDATE}}},
    {HT_OP_BACKWARD, 1, HT_ATTENTION_HALF, {{HT_CHECKPOINT, 1, HT_NEED}, {HT_ACT_GRAD, 1, HT_UPDATE}}},
    {HT_OP_BACKWARD, 0, HT_ALL_SUB_OPS, {{HT_ACT_GRAD, 1, HT_NEED}}},
};

/* Builds the passes in an order; order 0 is the right one. cut: of which effect the verifier is not told; -1: of
   none. */
static struct ht_schedule *stream_build(int order, int cut)
{
    struct ht_schedule *s = ht_schedule_create("halves", 1, 1, NULL);
    int32_t gpu = ht_add_lane(s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    int32_t work = ht_add_work(s, &(struct ht_work){.custom = "w"});
    int left[PASSES], n = PASSES, effect = 0;
    s->n_units = 3;
    s->n_micro_batches = 1;
    for (int32_t u = 1; u <= 2; u++) {
        ht_add_resident(s, sample_tensor(s, HT_CHECKPOINT, u, 0, 600, 0), HT_DEVICE, 0);
        ht_add_resident(s, sample_tensor(s, HT_ACT_GRAD, u, 0, 600, 0), HT_DEVICE, 0);
    }
    for (int i = 0; i < PASSES; i++) left[i] = i;
    for (int orders = ORDERS; n > 0; n--) {
        orders /= n; /* of the passes behind this one */
        int at = order / orders % n;
        const struct stream_pass *p = &passes[left[at]];
        memmove(&left[at], &left[at + 1], (size_t)(n - at - 1) * sizeof *left);
        struct ht_label label = sample_label(p->unit, 0);
        label.sub_ops = p->sub_ops;
        ht_add_op(s, p->kind, gpu, label, work);
        for (int e = 0; e < 2 && p->effects[e].flags; e++)
            if (effect++ != cut)
                ht_op_effect(s, 2 * (p->effects[e].unit - 1) + (p->effects[e].class == HT_ACT_GRAD), HT_DEVICE,
                             p->effects[e].flags);
    }
    ht_schedule_link(s);
    return s;
}

START_TEST(orders_of_passes)
{
    struct ht_error err = {0};
    for (int order = 0; order < ORDERS; order++) {
        struct ht_schedule *s = stream_build(order, -1);
        enum ht_status status = ht_schedule_verify(s, &err, NULL);
        ck_assert_msg(status == (order ? HT_FAILED : HT_OK), "order %d: %s", order, err.text);
        ck_assert_msg(!order || strstr(err.text, "comes before the"), "order %d: %s", order, err.text);
        ht_schedule_destroy(s);
    }
}
END_TEST

/* Each effect on the residual stream is missed, of whole passes and of halves. */
START_TEST(stream_effects)
{
    int cut = 0;
    for (int i = 0; i < PASSES; i++)
        for (int e = 0; e < 2 && passes[i].effects[e].flags; e++, cut++) {
            struct ht_schedule *s = stream_build(0, cut);
            struct ht_error err = {0};
            ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
            ck_assert_msg(strstr(err.text, "input of unit "), "%s", err.text);
            ht_schedule_destroy(s);
        }
    ck_assert_int_eq(cut, 11);
}
END_TEST

/* Returns the effect of the op's first row of a class. */
static struct ht_effect *effect_on(struct ht_schedule *s, int32_t op, enum ht_tensor_class class)
{
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if (s->tensors[s->effects[e].tensor].class == class) return &s->effects[e];
    return NULL;
}

static int32_t nth_of(const struct ht_schedule *s, enum ht_op_kind kind, int32_t unit, int n)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (s->ops[i].kind == kind && s->ops[i].label.unit == unit && n-- == 0) return i;
    return -1;
}

static void says(struct ht_schedule *s, const char *text)
{
    struct ht_error err = {0};
    ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ht_schedule_destroy(s);
}

/* Two replicas of two micro-batches each: four backward passes of a unit. */
START_TEST(gradients)
{
    struct sample o = {2, 2, 2, SAMPLE_NONE, false};
    /* Both replicas skip the all-reduce of unit 1 in effect: each steps with its own two. */
    struct ht_schedule *s = sample_build(o);
    for (int r = 0; r < 2; r++) effect_on(s, nth_of(s, HT_OP_ALL_REDUCE, 1, r), HT_GRAD)->flags = HT_NEED;
    says(s, "steps unit 1 with the gradients of 2 backward passes; expected 4");
    /* One replica keeps its own, the other has the sum. */
    s = sample_build(o);
    effect_on(s, nth_of(s, HT_OP_ALL_REDUCE, 0, 1), HT_GRAD)->flags = HT_NEED;
    says(s, "steps unit 0 with the gradients of 2 backward passes; expected 4");
    /* The gradient of unit 1 passes for one of unit 0, which then has one too many. */
    o.batches = 1;
    s = sample_build(o);
    for (int r = 0; r < 2; r++)
        s->tensors[effect_on(s, nth_of(s, HT_OP_BACKWARD, 1, r), HT_GRAD)->tensor].label.unit = 0;
    says(s, "reads the gradient of unit 0");
}
END_TEST

/* The heads of 130 ranks, each of which waits for the final check of its own rank, but that of rank `early` for its
   neighbour's; -1: none. */
static struct ht_schedule *heads(int32_t early)
{
    enum { RANKS = 130 };
    struct ht_schedule *s = ht_schedule_create("heads", RANKS, 1, NULL);
    int32_t work = ht_add_work(s, &(struct ht_work){.custom = "w"});
    for (int32_t r = 0; r < RANKS; r++) {
        ht_add_lane(s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO);
        ht_add_lane(s, "cpu", HT_LANE_HOST, r, HT_FIFO);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        ht_add_op(s, HT_OP_FORWARD, 2 * r, sample_label(-1, -1), work);
        ht_op_effect(s, sample_tensor(s, HT_LOGITS, -1, 0, 64, r), HT_DEVICE, HT_PRODUCE);
        ht_op_after_prev(s, RANKS + (r == early ? r - 1 : r));
    }
    for (int32_t r = 0; r < RANKS; r++) {
        ht_add_op(s, HT_OP_VALIDATE, 2 * r + 1, sample_label(-1, -1), work);
        ht_op_effect(s, r, HT_DEVICE, HT_NEED | HT_RELEASE);
    }
    ht_schedule_link(s);
    return s;
}

START_TEST(next_iteration)
{
    struct ht_error err = {0};
    struct ht_schedule *s = heads(-1);
    ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "%s", err.text);
    ht_schedule_destroy(s);
    says(heads(1), "op 1 (forward): does not wait for its rank's final check of the iteration before");
    says(heads(63), "op 63 (forward): does not wait");
    says(heads(64), "op 64 (forward): does not wait");
    says(heads(129), "op 129 (forward): does not wait");
}
END_TEST

/* Two replicas of two parts, rank = 2 replica + part. Each op's first row is its parameters or its gradient. */
START_TEST(parts)
{
    enum { TP = 4 }; /* mistakes with rows; others below */
    static const struct {
        enum ht_op_kind kind;
        int nth;
        enum ht_tensor_class class;
        int32_t part, parts;
        const char *text;
    } rows[TP] = {
        {HT_OP_FORWARD, 0, HT_ACTIVATION, 1, 2,
         "op 0 (F0): is about part 0 of 2, but has tensor 3 (activation of part 1 of 2 of unit 0, micro-batch 0)"},
        {HT_OP_OPTIMIZER_STEP, 1, HT_MOMENTUM, 0, 2,
         "op 13 (O1): is about part 1 of 2, but has tensor 5 (momentum of part 0 of 2 of unit 0)"},
        {HT_OP_ALL_REDUCE, 2, HT_GRAD, 0, 2,
         "op 5 (B1): is about part 1 of 2, but has tensor 6 (grad of part 0 of 2 of unit 0)"},
        {HT_OP_BACKWARD, 3, HT_PARAM, 0, 1,
         "tensor 12 (param of unit 0): the unit is divided into 1 parts here, but for "
         "tensor 0 (param of part 0 of 2 of unit 0) into 2"},
    };
    struct ht_error err = {0};
    struct ht_schedule *s;
    for (int i = 0; i < TP; i++) {
        ck_assert_int_eq(ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s), HT_OK);
        struct ht_tensor *t = &s->tensors[effect_on(s, nth_of(s, rows[i].kind, 0, rows[i].nth), rows[i].class)->tensor];
        t->part = rows[i].part;
        t->parts = rows[i].parts;
        says(s, rows[i].text);
    }
    /* The reductions go across parts: each sum has both micro-batches, of different parts. */
    ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s);
    int32_t a = nth_of(s, HT_OP_ALL_REDUCE, 0, 1), b = nth_of(s, HT_OP_ALL_REDUCE, 0, 3);
    int32_t tensor = effect_on(s, a, HT_GRAD)->tensor;
    effect_on(s, a, HT_GRAD)->tensor = effect_on(s, b, HT_GRAD)->tensor;
    effect_on(s, b, HT_GRAD)->tensor = tensor;
    says(s, "op 9 (R2): is about part 0 of 2, but has tensor 14 (grad of part 1 of 2 of unit 0)");
    /* Part 1 is not reduced. */
    ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s);
    for (int k = 2; k < 4; k++) effect_on(s, nth_of(s, HT_OP_ALL_REDUCE, 0, k), HT_GRAD)->flags = HT_NEED;
    says(s, "op 13 (O1): steps unit 0 with the gradients of 1 backward passes; expected 2");
    /* A pass of one of two parts has no group, and one of a group works on the whole. */
    ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s);
    s->ops[0].match = -1;
    says(s, "op 0 (F0): works on one of 2 parts in a group of 1");
    ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s);
    s->works[s->ops[0].work].tp = 1;
    says(s, "op 0 (F0): works on one of 1 parts in a group of 2");
    /* Nobody has the momentum of part 1. */
    ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s);
    for (int32_t t = 0; t < s->n_tensors; t++)
        if (s->tensors[t].class == HT_MOMENTUM && s->tensors[t].part == 1) s->tensors[t].shard_end = 0;
    says(s, "the momentum of part 1 of 2 of unit 0 has no shards");
    /* One replica has it. */
    ht_schedule_load(GRAPHS "good-gradient-parts.yaml", &err, &s);
    s->tensors[effect_on(s, nth_of(s, HT_OP_OPTIMIZER_STEP, 0, 3), HT_MOMENTUM)->tensor].shard_end = 0;
    says(s, "the momentum of part 1 of 2 of unit 0 has 1 copies; the first part has 2");
}
END_TEST

/*
 * The smallest offload graph, by hand. Rounded to 512: p and g 2048, m 4096, a 1024.
 *     device: P 2048; F 3072; B adds g: 5120, the peak; leaves 2048
 *     host:   p 2048 + m 4096 = 6144 all the time; G adds 2048: 8192, the peak
 */
START_TEST(footprint)
{
    struct ht_error err = {0};
    struct ht_schedule *s = NULL;
    struct ht_proof v = {0};
    char text[256];
    ck_assert_int_eq(ht_schedule_load(GRAPHS "good-offload.yaml", &err, &s), HT_OK);
    ck_assert_int_eq(ht_schedule_verify(s, &err, &v), HT_OK);
    ck_assert_int_eq(v.spaces[0].peak_bytes, 5120);
    ck_assert_int_eq(v.spaces[0].peak_op, 2);
    ck_assert_int_eq(v.spaces[0].by_class[HT_PARAM], 2048);
    ck_assert_int_eq(v.spaces[0].by_class[HT_ACTIVATION], 1024);
    ck_assert_int_eq(v.spaces[0].by_class[HT_GRAD], 2048);
    ck_assert_int_eq(v.spaces[1].peak_bytes, 8192);
    ck_assert_int_eq(v.spaces[1].peak_op, 3);
    ck_assert_int_eq(v.spaces[2].peak_bytes, 0);
    ck_assert_int_eq(v.spaces[2].peak_op, -1);
    ht_footprint_describe(s, 0, &v.spaces[0], text, sizeof text);
    ck_assert_str_eq(
        text, "device 0: peak 5.12 kB of 8 kB at backward of embedding (parameters 2.048 kB, gradients 2.048 kB, "
              "activations 1.024 kB)");
    ht_footprint_describe(s, 2, &v.spaces[2], text, sizeof text);
    ck_assert_str_eq(text, "disk 0: peak 0 B of unlimited at the start of the iteration");
    ht_proof_free(&v);

    /* to the byte: 5120 fits, 5119 does not */
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 5120);
    ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_OK);
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 5119);
    ck_assert_int_eq(ht_schedule_verify(s, &err, &v), HT_INFEASIBLE);
    ck_assert_str_eq(err.text,
                     "OOM at backward of embedding on device 0: needs 2.048 kB, 3.072 kB of 5.119 kB held "
                     "(parameters 2.048 kB, activations 1.024 kB); the iteration needs 5.12 kB, short by 1 B");
    ck_assert(!v.proved[HT_RULE_MEMORY] && v.proved[HT_RULE_UPDATE]);
    ck_assert_int_eq(v.spaces[0].first_oom_op, 2);
    ck_assert_int_eq(v.spaces[0].oom_needs_bytes, 2048);
    ck_assert_int_eq(v.spaces[0].oom_held_bytes, 3072);
    ck_assert(v.spaces[1].fits);
    ht_proof_free(&v);

    /* a method's limit counts as the capacity does, and is named */
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 8000);
    ht_schedule_set_limit(s, HT_DEVICE, 0, 5120);
    ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_OK);
    ht_schedule_set_limit(s, HT_DEVICE, 0, 5119);
    ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_INFEASIBLE);
    ck_assert_str_eq(err.text,
                     "OOM at backward of embedding on device 0: needs 2.048 kB, 3.072 kB of the method's 5.119 kB held "
                     "(parameters 2.048 kB, activations 1.024 kB); the iteration needs 5.12 kB, short by 1 B");
    ht_schedule_limit_devices(s, 100);
    ck_assert_int_eq(s->limit_bytes[0], 5220);
    ck_assert_int_eq(s->limit_bytes[1], INT64_MAX);
    ht_schedule_set_limit(s, HT_DEVICE, 0, INT64_MAX);

    /* 3000: an earlier op is the first that fails, but what is lacking is still 5120 - 3000 */
    ht_schedule_set_capacity(s, HT_DEVICE, 0, 3000);
    ck_assert_int_eq(ht_schedule_verify(s, &err, &v), HT_INFEASIBLE);
    ck_assert_int_lt(v.spaces[0].first_oom_op, 2);
    ck_assert_int_eq(ht_footprint_short_bytes(s, 0, &v.spaces[0]), 2120);
    ck_assert_msg(strstr(err.text, "; the iteration needs 5.12 kB, short by 2.12 kB"), "%s", err.text);
    ck_assert_int_eq(ht_footprint_short_bytes(s, 1, &v.spaces[1]), 0);
    ht_proof_free(&v);
    ht_schedule_destroy(s);
}
END_TEST

/* Faults that no file can have, but a builder's bug can. */
START_TEST(wild_ids)
{
    struct sample o = {2, 1, 1, SAMPLE_NONE, false};
    struct ht_error err = {0};
    for (int k = 0; k < 14; k++) {
        struct ht_schedule *s = sample_build(o);
        switch (k) {
        case 0:
            s->deps[0] = s->n_ops;
            break;
        case 1:
            s->deps[0] = s->n_ops - 1;
            break;
        case 2:
            s->prev[0] = -1;
            break;
        case 3:
            s->ops[3].lane = 99;
            break;
        case 4:
            s->ops[3].work = -1;
            break;
        case 5:
            s->ops[3].kind = 200;
            break;
        case 6:
            s->effects[2].tensor = s->n_tensors;
            break;
        case 7:
            s->effects[2].tier = 4;
            break;
        case 8:
            s->effects[2].flags = 0;
            break;
        case 9:
            s->uses[0].resource = 1;
            break;
        case 10:
            s->residents[0].rank = 1;
            break;
        case 11:
            s->tensors[0].bytes = -1;
            break;
        case 12:
            s->works[1].dtype = (enum ht_dtype)7;
            break;
        case 13:
            s->lanes[0].kind = HT_LANE_P2P;
            break;
        }
        ck_assert_int_eq(ht_schedule_verify(s, &err, NULL), HT_FAILED);
        ck_assert_int_eq(strncmp(err.text, "schedule 'sample': ", 19), 0);
        ht_schedule_destroy(s);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule/verify");
    TCase *c = tcase_create("verify");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, an_effect_said_twice);
    tcase_add_test(c, broken_graphs);
    tcase_add_test(c, good_graphs);
    tcase_add_test(c, sweep);
    tcase_add_loop_test(c, mutations, 0, 6);
    tcase_add_test(c, orders_of_passes);
    tcase_add_test(c, stream_effects);
    tcase_add_test(c, gradients);
    tcase_add_test(c, next_iteration);
    tcase_add_test(c, parts);
    tcase_add_test(c, footprint);
    tcase_add_test(c, wild_ids);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
