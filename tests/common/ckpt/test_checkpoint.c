/* The state by unit, out of shards and tiers, and through checkpoints. */
#include "common/ckpt/checkpoint.h"

#include "common/ckpt/durable.h"
#include "common/ckpt/manifest.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/base/rng.h"

static const struct ht_model model = {
    .arch = HT_ARCH_GPT, .layers = 2, .width = 6, .heads = 2, .ffn = 24, .vocab = 11, .max_seq = 5, .tied = true};
static struct ht_checkpoint_setting settings[] = {{.name = "--batch", .value = "8"}, {.name = "--lr", .value = "0.001"}};

static struct ht_state *random_state(uint64_t seed)
{
    struct ht_state *state = ht_state_create(&model, HT_F32);
    for (int64_t u = 0; u < state->n_units; u++)
        for (int p = 0; p < HT_N_STATE_PARTS; p++)
            for (int64_t i = 0; i < state->units[u].n; i++)
                state->units[u].values[p][i] = ht_random_float(seed + (uint64_t)(u * 3 + p), (uint64_t)i);
    for (int64_t u = 0; u < state->n_units; u++) state->units[u].steps = (int64_t)(seed / 100) - u;
    state->loss_scale = (double)seed / 3;
    state->good = (int64_t)seed / 200;
    return state;
}

static void assert_equal(const struct ht_state *a, const struct ht_state *b)
{
    for (int64_t u = 0; u < a->n_units; u++)
        for (int p = 0; p < HT_N_STATE_PARTS; p++)
            ck_assert_mem_eq(a->units[u].values[p], b->units[u].values[p], (size_t)a->units[u].n * sizeof(float));
}

static void assert_same_counts(const struct ht_state *a, const struct ht_state *b)
{
    for (int64_t u = 0; u < a->n_units; u++) ck_assert_int_eq(a->units[u].steps, b->units[u].steps);
    ck_assert(a->loss_scale == b->loss_scale && a->good == b->good); /* to the last bit */
}

START_TEST(save_and_load)
{
    char dir[] = "/tmp/ht_checkpoint_XXXXXX", command[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    struct ht_error err = {0};
    struct ht_checkpoints *c = NULL, *other = NULL;
    struct ht_state *got = ht_state_create(&model, HT_F32), *last = NULL;
    int64_t step = -7;
    ck_assert_msg(ht_checkpoints_open(dir, 2, &err, &c) == HT_OK, "%s", err.text);
    ck_assert_int_eq(ht_checkpoints_latest(c), -1);
    ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_BAD_INPUT);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &other), HT_BAD_INPUT); /* one process, one writer */
    for (int64_t k = 5; k <= 15; k += 5) {
        ht_state_destroy(last);
        last = random_state((uint64_t)k * 100);
        ck_assert_msg(ht_checkpoints_save(c, last, k, settings, 2, &err) == HT_OK, "%s", err.text);
        ck_assert_int_eq(ht_checkpoints_latest(c), k);
    }
    ht_checkpoints_close(c);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_msg(ht_checkpoints_load(c, settings, 2, &err, got, &step) == HT_OK, "%s", err.text);
    ck_assert_int_eq(step, 15);
    assert_equal(got, last);
    assert_same_counts(got, last);
    struct ht_checkpoint_setting changed[] = {{.name = "--batch", .value = "8"}, {.name = "--lr", .value = "0.01"}};
    ck_assert_int_eq(ht_checkpoints_load(c, changed, 2, &err, got, &step), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "was made with --lr 0.001; this run has 0.01") != NULL, "%s", err.text);
    changed[1].may_change = true; /* then it is no error, and said */
    ck_assert_int_eq(ht_checkpoints_load(c, changed, 2, &err, got, &step), HT_OK);
    ck_assert(!changed[0].changed && changed[1].changed);
    ck_assert_str_eq(changed[1].was, "0.001");
    struct ht_checkpoint_setting unknown = {.name = "--clip", .value = "1", .may_change = true};
    ck_assert_int_eq(ht_checkpoints_load(c, &unknown, 1, &err, got, &step), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "was made with --clip unsaid; this run has 1") != NULL, "%s", err.text);
    /* 5 is gone, 10 is whole: it is what remains when 15 is removed. */
    char path[256];
    snprintf(path, sizeof(path), "%s/step-0000000005", dir);
    ck_assert(access(path, F_OK) != 0);
    snprintf(command, sizeof(command), "rm -r %s/step-0000000015", dir);
    ck_assert_int_eq(system(command), 0);
    ht_checkpoints_close(c);
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_OK);
    ck_assert_int_eq(step, 10);
    ht_state_destroy(last);
    last = random_state(1000);
    assert_equal(got, last);
    ht_checkpoints_close(c);
    ht_state_destroy(got);
    ht_state_destroy(last);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

static void put_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

/* Losses come back to the last bit, whatever they are; a checkpoint without them, as of old versions, has none. */
START_TEST(losses_in_checkpoints)
{
    static const double values[] = {5.5, 0.1, 1e-300, 1.0 / 3, INFINITY, -0.0, NAN};
    char dir[] = "/tmp/ht_checkpoint_XXXXXX", command[64], path[128];
    struct ht_error err = {0};
    struct ht_checkpoints *c = NULL;
    struct ht_state *state = random_state(1000), *got = ht_state_create(&model, HT_F32);
    int64_t step;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(ht_checkpoints_open(dir, 2, &err, &c), HT_OK);
    for (int64_t k = 10; k <= 12; k++) { /* 10: without */
        for (size_t i = 0; i < HT_COUNT(values) && k == 11; i++)
            ht_losses_add(&state->losses, (int64_t)i + 5, values[i]);
        ck_assert_msg(ht_checkpoints_save(c, state, k, settings, 2, &err) == HT_OK, "%s", err.text);
        ck_assert_msg(ht_checkpoints_load(c, settings, 2, &err, got, &step) == HT_OK, "%s", err.text);
        ck_assert_int_eq(got->losses.n, k == 10 ? 0 : HT_COUNT(values));
        for (int64_t i = 0; i < got->losses.n; i++) {
            ck_assert_int_eq(got->losses.rows[i].step, i + 5);
            ck_assert_mem_eq(&got->losses.rows[i].loss, &values[i], sizeof(double));
        }
    }
    snprintf(path, sizeof(path), "%s/step-0000000012/losses.csv", dir);
    put_text(path, "step,loss\n");
    ck_assert_int_eq(ht_checkpoints_load(c, settings, 2, &err, got, &step), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "losses.csv: has 10 bytes") && strstr(err.text, "to resume from step 11"), "%s",
                  err.text);
    ht_checkpoints_close(c);
    ht_state_destroy(state);
    ht_state_destroy(got);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(files_of_losses)
{
    static const struct {
        const char *text;
        int64_t rows; /* -1: refused */
    } cases[] = {{"", 0}, {"step,loss\n", 0}, {"step,loss\n3,1\n7,0x1p-2\n", 2}, {"step,loss\n3,nan\n", 1},
                 {"step,loss", -1}, {"step;loss\n", -1}, {"1,2\n", -1}, {"step,loss\n2,1\n2,1\n", -1},
                 {"step,loss\n0,1\n", -1}, {"step,loss\n-1,1\n", -1}, {"step,loss\n1,\n", -1},
                 {"step,loss\n1,2,3\n", -1}, {"step,loss\n1,2", -1}, {"step,loss\n\n", -1},
                 {"step,loss\n99999999999999999999,1\n", -1}};
    char path[] = "/tmp/ht_losses_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        struct ht_losses l = {0};
        struct ht_error err = {0};
        put_text(path, cases[i].text);
        enum ht_status status = ht_losses_read(path, &err, &l);
        ck_assert_msg(status == (cases[i].rows < 0 ? HT_BAD_INPUT : HT_OK), "'%s': status %d", cases[i].text, status);
        ck_assert_int_eq(l.n, cases[i].rows < 0 ? 0 : cases[i].rows);
        ht_losses_free(&l);
    }
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/*
 * A schedule that keeps every unit in two shards, [0, 5) and [5, n): parameters on the device and on the host, momentum
 * and variance on the host. The optimizer, one op, steps everything on the host: so the device's parameters may be old.
 */
struct kept {
    struct ht_schedule s;
    struct ht_tensor *tensors;
    struct ht_resident *residents;
    struct ht_effect *effects;
    struct ht_op op;
    int64_t begin[2];
};

static struct kept *make_kept(bool step_on_host)
{
    static const enum ht_tensor_class classes[] = {HT_PARAM, HT_MOMENTUM, HT_VARIANCE};
    struct kept *k = HT_NEW(struct kept);
    int64_t units = ht_model_units(&model);
    k->tensors = HT_NEW_ARRAY(struct ht_tensor, units * 6);
    k->residents = HT_NEW_ARRAY(struct ht_resident, units * 8);
    k->effects = HT_NEW_ARRAY(struct ht_effect, units * 6);
    for (int32_t u = 0; u < units; u++)
        for (int c = 0; c < 3; c++)
            for (int half = 0; half < 2; half++) {
                int64_t n = ht_unit_params(&model, u), begin = half ? 5 : 0, end = half ? n : 5;
                int32_t id = k->s.n_tensors++;
                k->tensors[id] = (struct ht_tensor){.class = classes[c],
                                                    .label = {.unit = u, .n_units = 1, .micro_batch = -1},
                                                    .bytes = (end - begin) * 4,
                                                    .shard_begin = begin,
                                                    .shard_end = end,
                                                    .sharded = true};
                k->residents[k->s.n_residents++] = (struct ht_resident){.tensor = id, .tier = HT_HOST};
                if (c == 0) k->residents[k->s.n_residents++] = (struct ht_resident){.tensor = id, .tier = HT_DEVICE};
                k->effects[k->begin[1]++] = (struct ht_effect){.tensor = id, .tier = HT_HOST, .flags = HT_UPDATE};
            }
    k->op.kind = step_on_host ? HT_OP_OPTIMIZER_STEP : HT_OP_UNDO;
    k->s.tensors = k->tensors;
    k->s.residents = k->residents;
    k->s.effects = k->effects;
    k->s.effects_begin = k->begin;
    k->s.ops = &k->op;
    k->s.n_ops = 1;
    return k;
}

static void kept_free(struct kept *k)
{
    free(k->tensors);
    free(k->residents);
    free(k->effects);
    free(k);
}

/* Gives every resident its memory and takes it back; the device's copies are changed in between by `spoil`. */
static enum ht_status through(const struct kept *k, const struct ht_state *from, struct ht_state *to, float spoil,
                              struct ht_error *err)
{
    enum ht_status status = HT_OK;
    ht_state_take_begin(to);
    for (int32_t i = 0; i < k->s.n_residents && status == HT_OK; i++) {
        const struct ht_resident *r = &k->s.residents[i];
        float *data = ht_alloc((size_t)k->tensors[r->tensor].bytes);
        status = ht_state_give(from, &k->tensors[r->tensor], data, err);
        if (r->tier == HT_DEVICE) data[0] += spoil;
        if (status == HT_OK) status = ht_state_take(to, &k->s, r->tensor, r->tier, data, err);
        free(data);
    }
    return status == HT_OK ? ht_state_take_end(to, err) : status;
}

START_TEST(shards_and_tiers)
{
    struct ht_error err = {0};
    struct ht_state *from = random_state(3), *to = ht_state_create(&model, HT_F32);
    struct kept *k = make_kept(true);
    ck_assert_msg(through(k, from, to, 1.0f, &err) == HT_OK, "%s", err.text); /* the host's count */
    assert_equal(from, to);
    k->s.n_residents--;                            /* the device's copy of the last is not needed, */
    k->residents[k->s.n_residents - 1].tensor = 0; /* the last shard of the variance is */
    ck_assert_int_eq(through(k, from, to, 0, &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, "of its variance are resident nowhere") != NULL, "%s", err.text);
    kept_free(k);
    k = make_kept(false); /* nobody says who is newer: they must agree */
    ck_assert_int_eq(through(k, from, to, 0, &err), HT_OK);
    assert_equal(from, to);
    ck_assert_int_eq(through(k, from, to, 1.0f, &err), HT_FAILED);
    ck_assert_str_eq(err.text, "unit 0: two copies of element 0 of its param differ");
    kept_free(k);
    struct ht_tensor wrong = {.class = HT_PARAM, .label = {.unit = 9}, .bytes = 4};
    ck_assert_int_eq(ht_state_give(from, &wrong, NULL, &err), HT_FAILED);
    wrong = (struct ht_tensor){.class = HT_MOMENTUM, .label = {.unit = 1}, .bytes = 4};
    ck_assert_int_eq(ht_state_give(from, &wrong, NULL, &err), HT_FAILED);
    ht_state_destroy(from);
    ht_state_destroy(to);
}
END_TEST

/*
 * Shards as common/build/zero.c cuts them: of ceil(n / N) elements, those that reach beyond the unit padded. A unit of
 * 12 elements over 8 ranks: six shards of 2 and two empty ones; over 5: four of 3 and an empty one.
 */
static struct ht_tensor shard_of(enum ht_tensor_class class, int64_t unit, int64_t rank, int64_t n_ranks,
                                 int64_t element_bytes)
{
    int64_t n = ht_unit_params(&model, unit), each = (n + n_ranks - 1) / n_ranks;
    return (struct ht_tensor){.class = class,
                              .label = {.unit = (int32_t)unit, .n_units = 1, .micro_batch = -1},
                              .bytes = each * element_bytes,
                              .shard_begin = rank * each < n ? rank * each : n,
                              .shard_end = (rank + 1) * each < n ? (rank + 1) * each : n,
                              .sharded = true,
                              .rank = (int32_t)rank};
}

/* Gives the shard to guarded memory and takes it back; checks the padding, and that nothing beyond is touched. */
static void shard_through(const struct ht_state *from, struct ht_state *to, struct ht_tensor t)
{
    struct ht_error err = {0};
    struct ht_schedule s = {.tensors = &t, .n_tensors = 1};
    bool is_copy = t.class == HT_PARAM && from->param != HT_F32;
    int64_t each = is_copy ? 2 : 4, used = (t.shard_end - t.shard_begin) * each;
    unsigned char *data = ht_alloc((size_t)t.bytes + 8);
    memset(data, 0xa5, (size_t)t.bytes + 8);
    ck_assert_msg(ht_state_give(from, &t, data, &err) == HT_OK, "%s", err.text);
    for (int64_t i = used; i < t.bytes + 8; i++) ck_assert_int_eq(data[i], i < t.bytes ? 0 : 0xa5);
    const float *values = from->units[t.label.unit].values[HT_STATE_PARAM] + t.shard_begin;
    for (int64_t i = 0; is_copy && i < used / 2; i++) {
        uint16_t x;
        memcpy(&x, data + 2 * i, sizeof(x));
        ck_assert_int_eq(x, from->param == HT_BF16 ? ht_f32_to_bf16(values[i]) : ht_f32_to_f16(values[i]));
    }
    memset(data + used, 0xff, (size_t)(t.bytes - used)); /* what padding holds is nobody's */
    ck_assert_msg(ht_state_take(to, &s, 0, HT_HOST, data, &err) == HT_OK, "%s", err.text);
    free(data);
}

START_TEST(padded_shards)
{
    static const enum ht_dtype params[] = {HT_F32, HT_BF16, HT_F16};
    struct ht_error err = {0};
    int64_t n_empty = 0, n_padded = 0;
    for (int64_t n_ranks = 1; n_ranks <= 16; n_ranks++)
        for (size_t k = 0; k < HT_COUNT(params); k++) {
            struct ht_state *from = random_state(5), *to = ht_state_create(&model, params[k]);
            from->param = params[k];
            bool master = params[k] != HT_F32;
            ht_state_take_begin(to);
            for (int64_t u = 0; u < from->n_units; u++)
                for (int64_t r = 0; r < n_ranks; r++) {
                    struct ht_tensor t = shard_of(HT_PARAM, u, r, n_ranks, master ? 2 : 4);
                    n_empty += t.shard_begin == t.shard_end;
                    n_padded += t.shard_end - t.shard_begin < t.bytes / (master ? 2 : 4);
                    shard_through(from, to, t);
                    if (master) shard_through(from, to, shard_of(HT_MASTER, u, r, n_ranks, 4));
                    shard_through(from, to, shard_of(HT_MOMENTUM, u, r, n_ranks, 4));
                    shard_through(from, to, shard_of(HT_VARIANCE, u, r, n_ranks, 4));
                }
            ck_assert_msg(ht_state_take_end(to, &err) == HT_OK, "%lld ranks: %s", (long long)n_ranks, err.text);
            assert_equal(from, to);
            ht_state_destroy(from);
            ht_state_destroy(to);
        }
    ck_assert(n_empty > 0 && n_padded > n_empty);
    /* Only the unit's end is padded, by whole elements, and by no more than a unit has. */
    struct ht_state *state = random_state(5);
    struct ht_tensor inner = shard_of(HT_MOMENTUM, 3, 1, 5, 4), last = shard_of(HT_MOMENTUM, 3, 4, 5, 4);
    unsigned char data[64];
    inner.bytes += 4;
    ck_assert_int_eq(ht_state_give(state, &inner, data, &err), HT_FAILED);
    last.bytes = 13 * 4;
    ck_assert_int_eq(ht_state_give(state, &last, data, &err), HT_FAILED);
    last.bytes = 6;
    ck_assert_int_eq(ht_state_give(state, &last, data, &err), HT_FAILED);
    ht_state_destroy(state);
}
END_TEST

/* Two processes, of which each has every other element and one has all momentum. */
START_TEST(parts_of_processes)
{
    struct ht_error err = {0};
    struct ht_state *from = random_state(4), *to = ht_state_create(&model, HT_F32);
    for (int wrong = 0; wrong < 3; wrong++) { /* 0: nothing is; 1: an element is missing; 2: one differs */
        enum ht_status status = HT_OK;
        ht_state_take_begin(to);
        for (int64_t u = 0; u < from->n_units; u++)
            for (int64_t process = 0; process < 2 && !status; process++) {
                struct ht_unit_state *unit = &from->units[u];
                unsigned char *seen = HT_NEW_ARRAY(unsigned char, unit->n);
                for (int64_t i = 0; i < unit->n; i++) seen[i] = i % 2 == process ? 7 : process ? 2 : 0;
                if (wrong == 1 && u == 1 && process == 1) seen[3] = 2;
                if (wrong == 2 && u == 1 && process == 1) seen[0] = 7, unit->values[HT_STATE_VARIANCE][0] += 1;
                status = ht_state_take_from(to, u, seen, unit->values, &err);
                if (wrong == 2 && u == 1 && process == 1) unit->values[HT_STATE_VARIANCE][0] -= 1;
                free(seen);
            }
        if (wrong == 2) {
            ck_assert_int_eq(status, HT_FAILED);
            ck_assert_str_eq(err.text, "unit 1: two copies of element 0 of its variance differ");
            continue;
        }
        ck_assert_msg(status == HT_OK, "%s", err.text);
        ck_assert_int_eq(ht_state_take_end(to, &err), wrong ? HT_FAILED : HT_OK);
        if (wrong)
            ck_assert_ptr_nonnull(strstr(err.text, "unit 1: 1 of "));
        else
            assert_equal(from, to);
    }
    ht_state_destroy(from);
    ht_state_destroy(to);
}
END_TEST

/* Numbers whose rounding is worked out: 1 + 2^-9 ties to even in BF16 (8 bits of fraction count the hidden one), 1 + 3 2^-9
   does not; in F16 (11 bits) both are exact, 1 + 2^-11 ties to even, 70000 is beyond 65504. */
START_TEST(copies_are_rounded_masters)
{
    static const float masters[] = {1, 1 + 0x1p-9f, 1 + 0x3p-9f, 1 + 0x1p-11f, 70000, -0.0f, 0x1p-24f};
    static const struct {
        enum ht_dtype dtype;
        uint16_t bits[7];
    } cases[] = {{HT_BF16, {0x3f80, 0x3f80, 0x3f81, 0x3f80, 0x4789, 0x8000, 0x3380}},
                 {HT_F16, {0x3c00, 0x3c02, 0x3c06, 0x3c00, 0x7c00, 0x8000, 0x0001}}};
    struct ht_error err = {0};
    for (int k = 0; k < 2; k++) {
        struct ht_state *state = ht_state_create(&model, cases[k].dtype);
        struct ht_schedule s = {0};
        uint16_t copy[7];
        float master[7];
        memcpy(state->units[1].values[HT_STATE_PARAM] + 20, masters, sizeof(masters));
        struct ht_tensor tensors[] = {
            {.class = HT_PARAM, .label = {.unit = 1}, .bytes = sizeof(copy), .shard_begin = 20, .shard_end = 27, .sharded = true},
            {.class = HT_MASTER, .label = {.unit = 1}, .bytes = sizeof(masters), .shard_begin = 20, .shard_end = 27, .sharded = true}};
        ck_assert_int_eq(ht_state_give(state, &tensors[0], copy, &err), HT_OK);
        ck_assert_mem_eq(copy, cases[k].bits, sizeof(copy));
        ck_assert_int_eq(ht_state_give(state, &tensors[1], master, &err), HT_OK);
        ck_assert_mem_eq(master, masters, sizeof(masters));
        tensors[0].bytes *= 2; /* an FP32 copy beside a master is no such numerics */
        ck_assert_int_eq(ht_state_give(state, &tensors[0], copy, &err), HT_FAILED);
        ck_assert_msg(strstr(err.text, "a tensor of 28 bytes for elements 20 to 27 of") != NULL, "%s", err.text);
        /* What is taken is the masters; the copies are passed over. */
        s.tensors = tensors;
        tensors[0].bytes /= 2;
        memset(copy, 0xff, sizeof(copy));
        ht_state_take_begin(state);
        ck_assert_int_eq(ht_state_take(state, &s, 0, HT_DEVICE, copy, &err), HT_OK);
        ck_assert_int_eq(state->units[1].taken[HT_STATE_PARAM], 0);
        master[0] = 5;
        ck_assert_int_eq(ht_state_take(state, &s, 1, HT_HOST, master, &err), HT_OK);
        ck_assert_int_eq(state->units[1].taken[HT_STATE_PARAM], 7);
        ck_assert(state->units[1].values[HT_STATE_PARAM][20] == 5);
        ck_assert_int_eq(ht_state_take_end(state, &err), HT_FAILED); /* the other units are resident nowhere */
        ht_state_destroy(state);
    }
}
END_TEST

/* The text of a stored manifest with some of it replaced, in an envelope with the right hash. */
static enum ht_status parse_changed(const char *from, const char *to, struct ht_error *err, bool *damaged)
{
    static const struct ht_model nano = {.arch = HT_ARCH_GPT, .layers = 2, .width = 16, .heads = 2, .ffn = 64,
                                         .vocab = 256, .max_seq = 32, .tied = true};
    static char text[8192], body[16384], whole[20000];
    FILE *f = fopen(HT_SOURCE_DIR "/tests/common/ckpt/manifest.json", "rb");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "the manifest has no %s", from);
    snprintf(body, sizeof(body), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    json_t *root = json_loads(body, 0, NULL);
    ck_assert_ptr_nonnull(root);
    char *canonical = json_dumps(json_object_get(root, "checkpoint"), JSON_COMPACT | JSON_SORT_KEYS);
    int n = snprintf(whole, sizeof(whole), "{\"checkpoint\":%s,\"xxh3\":\"%016llx\"}", canonical,
                     (unsigned long long)ht_hash_bytes(canonical, strlen(canonical)));
    free(canonical);
    json_decref(root);
    struct ht_state *state = ht_state_create(&nano, HT_F32);
    struct ht_manifest_file files[5];
    struct ht_checkpoint_setting batch = {.name = "--batch", .value = "4"};
    enum ht_status status = ht_manifest_parse(whole, (size_t)n, "m", 20, &batch, 1, err, damaged, state, files);
    if (status == HT_OK) {
        ck_assert_int_eq(state->units[0].steps, 18);
        ck_assert(state->loss_scale == 16384);
        ck_assert_int_eq(state->good, 11);
    }
    ht_state_destroy(state);
    return status;
}

START_TEST(manifests)
{
    static const struct {
        const char *from, *to, *why;
        bool damaged;
    } wrong[] = {{"\"format\": 2", "\"format\": 1", "m: has format 1; expected 2: go on with the version that wrote it", false},
                 {"\"loss_scale\": 16384.0", "\"loss_scale\": 1e39", "does not say what the optimizer's steps", true},
                 {"\"loss_scale\": 16384.0", "\"loss_scale\": 0.0", "does not say what the optimizer's steps", true},
                 {"\"loss_scale\": 16384.0", "\"loss_scale\": \"1\"", "does not say what the optimizer's steps", true},
                 {"\"good_iterations\": 11", "\"good_iterations\": 21", "does not say what the optimizer's steps", true},
                 {"18", "21", "does not say what the optimizer's steps", true},
                 {"18", "-1", "does not say what the optimizer's steps", true},
                 {"   18,\n", "", "does not say what the optimizer's steps", true},
                 {"\"files\"", "\"losses\": {\"bytes\": 10, \"xxh3\": \"0\"}, \"files\"", "does not list", true},
                 {"\"files\"", "\"losses\": {\"bytes\": -1, \"xxh3\": \"0123456789abcdef\"}, \"files\"", "does not list",
                  true},
                 {"\"bytes\"", "\"Bytes\"", "does not list the 4 files of step 20", true}};
    struct ht_error err = {0};
    bool damaged = true;
    ck_assert_msg(parse_changed("18", "18", &err, &damaged) == HT_OK && !damaged, "%s", err.text);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(parse_changed(wrong[i].from, wrong[i].to, &err, &damaged), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, wrong[i].why) != NULL, "'%s' lacks '%s'", err.text, wrong[i].why);
        ck_assert_int_eq(damaged, wrong[i].damaged);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("checkpoint");
    TCase *t = tcase_create("checkpoint");
    tcase_add_test(t, save_and_load);
    tcase_add_test(t, losses_in_checkpoints);
    tcase_add_test(t, files_of_losses);
    tcase_add_test(t, shards_and_tiers);
    tcase_add_test(t, padded_shards);
    tcase_add_test(t, parts_of_processes);
    tcase_add_test(t, copies_are_rounded_masters);
    tcase_add_test(t, manifests);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
