/*
 * The state through the residents of three ranks on two nodes, and of one rank: filled piece by piece, each resident
 * has what is its own, and read back it is the same; copies that differ are found, on one rank or on two. This program
 * starts itself again under mpirun.
 */
#include "common/base/half.h"
#include "common/mem/arena.h"
#include "harness/run/stream.h"
#include "tests/common/ckpt/held.h"
#include "tests/common/ckpt/models.h"
#include "tests/support/ranks.h"

#include <check.h>
#include <stdio.h>

enum { RANKS = 3, SEED = 11 };

static void keep(struct ht_schedule *s, enum ht_tensor_class class, int32_t unit, int64_t element_bytes,
                 const enum ht_tier *tiers, int n_tiers, int32_t rank)
{
    int32_t id = ht_add_tensor(s, (struct ht_tensor){.class = class,
                                                     .label = {.unit = unit, .n_units = 1, .micro_batch = -1},
                                                     .bytes = ht_unit_params(&model, unit) * element_bytes,
                                                     .rank = rank});
    for (int i = 0; i < n_tiers; i++) ht_add_resident(s, id, tiers[i], rank);
}

/* A shard of one element more than needed, so that the last one is padded. */
static void keep_shard(struct ht_schedule *s, enum ht_tensor_class class, int32_t unit, int32_t rank)
{
    int64_t n = ht_unit_params(&model, unit), each = (n + s->n_ranks - 1) / s->n_ranks + (s->n_ranks > 1);
    struct ht_tensor t = {.class = class,
                          .label = {.unit = unit, .n_units = 1, .micro_batch = -1},
                          .bytes = 4 * each,
                          .shard_begin = rank * each < n ? rank * each : n,
                          .shard_end = (rank + 1) * each < n ? (rank + 1) * each : n,
                          .rank = rank,
                          .sharded = true};
    ht_add_resident(s, ht_add_tensor(s, t), HT_DEVICE, rank);
}

/*
 * Each unit has   16-bit parameters   on every device
 *                 masters             on node 0's host and the last rank's device: two ranks must agree
 *                 momentum            in shards, padded
 *                 variance            on the last rank's host and device: one rank has it twice
 */
static struct ht_schedule *build(int32_t n_ranks)
{
    static const int32_t nodes[RANKS] = {0, 0, 1};
    static const enum ht_tier host[] = {HT_HOST}, device[] = {HT_DEVICE}, both[] = {HT_HOST, HT_DEVICE};
    struct ht_schedule *s =
        ht_schedule_create("stream", n_ranks, n_ranks == RANKS ? 2 : 1, n_ranks == RANKS ? nodes : NULL);
    int32_t work = ht_add_work(s, &(struct ht_work){.custom = "w"}), last = n_ranks - 1;
    for (int32_t r = 0; r < n_ranks; r++) {
        struct ht_label nothing = {.unit = -1, .micro_batch = -1};
        ht_add_op(s, HT_OP_FORWARD, ht_add_lane(s, "gpu", HT_LANE_COMPUTE, r, HT_FIFO), nothing, work);
    }
    for (int32_t u = 0; u < ht_model_units(&model); u++) {
        for (int32_t r = 0; r < n_ranks; r++) keep(s, HT_PARAM, u, 2, device, 1, r);
        keep(s, HT_MASTER, u, 4, host, 1, 0);
        if (last) keep(s, HT_MASTER, u, 4, device, 1, last);
        for (int32_t r = 0; r < n_ranks; r++) keep_shard(s, HT_MOMENTUM, u, r);
        keep(s, HT_VARIANCE, u, 4, both, 2, last);
    }
    return s;
}

/* ---- one rank's part --------------------------------------------------------------------------------------------- */

struct setting {
    struct ht_job job;
    struct ht_engine engine;
    struct ht_ranks ranks;
    struct ht_residents *residents;
    struct ht_stream *stream;
    struct held *held; /* the same on every rank */
    unsigned parts;    /* that were filled in; the rest is initial */
};

static enum ht_status no_data(void *ctx, int32_t iteration, int32_t micro_batch, const void **tokens,
                              const int32_t **targets, struct ht_error *err)
{
    (void)ctx, (void)iteration, (void)micro_batch, (void)tokens, (void)targets;
    return ht_fail(err, HT_FAILED, "nothing here reads tokens");
}

static enum ht_status open_setting(struct ht_comm *comm, struct setting *x, struct ht_error *err)
{
    *x = (struct setting){.ranks = {.comm = comm, .launcher = -1}, .held = held_random(&model, SEED)};
    struct ht_schedule *s = x->job.schedule = build(comm ? RANKS : 1);
    struct ht_space_size sizes[RANKS + 5];
    x->job.scenario.model = model;
    x->job.scenario.numerics = (struct ht_numerics){HT_BF16, HT_BF16, HT_F32, HT_F32};
    struct ht_cpu_options o = {
        .model = model, .numerics = x->job.scenario.numerics, .tokens_per_iteration = 1, .data = no_data, .comm = comm};
    enum ht_status status = ht_cpu_create(&o, err, &x->engine.cpu);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) sizes[i] = (struct ht_space_size){.capacity_bytes = 1 << 20};
    sizes[ht_n_spaces(s) - 1].capacity_bytes = 0;
    x->engine.n_arenas = comm ? 0 : ht_n_spaces(s);
    x->engine.arenas = HT_NEW_ARRAY(struct ht_arena *, x->engine.n_arenas);
    for (int32_t i = 0; i < x->engine.n_arenas && !status; i++)
        status = ht_arena_create(1 << 20, 0, false, err, &x->engine.arenas[i]);
    if (!status && comm) status = ht_node_create(s, comm, sizes, err, &x->ranks.node);
    if (!status) status = ht_ranks_make_residents(&x->ranks, s, x->engine.arenas, err, &x->residents);
    if (!status) status = ht_stream_create(&x->ranks, &x->job, &x->engine, x->residents, err, &x->stream);
    return status;
}

static void close_setting(struct setting *x)
{
    ht_stream_destroy(x->stream);
    ht_residents_destroy(x->residents);
    ht_ranks_free_node(&x->ranks);
    ht_engine_destroy(&x->engine);
    ht_schedule_destroy(x->job.schedule);
    held_destroy(x->held);
}

static enum ht_status spoil_memory(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    (void)ctx, (void)space, (void)err;
    memset(b.data, 0xa5, (size_t)b.bytes);
    return HT_OK;
}

/* A resident's bytes are its elements of the values, in its type, and zeros. */
static enum ht_status check_resident(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct setting *x = ctx;
    const struct ht_tensor *t = &x->job.schedule->tensors[b.tensor];
    int part = t->class == HT_MOMENTUM   ? HT_STATE_MOMENTUM
               : t->class == HT_VARIANCE ? HT_STATE_VARIANCE
                                         : HT_STATE_PARAM;
    int64_t each = t->class == HT_PARAM ? 2 : 4, n = t->sharded ? t->shard_end - t->shard_begin : b.bytes / each;
    const float *values = held_at(x->held, t->label.unit, part) + t->shard_begin;
    for (int64_t i = 0; i < b.bytes / each; i++) {
        float want = i < n && x->parts & 1u << part ? values[i] : 0, got;
        uint16_t want16 = ht_f32_to_bf16(want);
        memcpy(&got, (char *)b.data + i * each, (size_t)each);
        if (memcmp(&got, each == 2 ? (void *)&want16 : &want, (size_t)each) == 0) continue;
        return ht_fail(err, HT_FAILED, "tensor %d in space %d: element %lld is wrong", b.tensor, space, (long long)i);
    }
    return HT_OK;
}

static enum ht_status use_all(void *ctx, struct ht_error *err)
{
    struct setting *x = ctx;
    struct ht_state *state = ht_state_create(&model);
    enum ht_status status = HT_OK;
    state->values = ht_stream_source(x->stream);
    for (int64_t most = 5; most < 1000 && !status; most = 4 * most + 1)
        if (!held_equals(x->held, state, most, err))
            status = err->status ? err->status : ht_fail(err, HT_FAILED, "in pieces of %lld: others", (long long)most);
    ht_state_destroy(state);
    return status;
}

static enum ht_status use_and_fail(void *ctx, struct ht_error *err)
{
    (void)ctx;
    return ht_fail(err, HT_BAD_INPUT, "the disk is full");
}

/* Expects that reading ends on this rank with that status and text. Returns HT_OK then, whatever the status was. */
static enum ht_status expect(struct setting *x, enum ht_status (*use)(void *, struct ht_error *), enum ht_status wanted,
                             const char *text, struct ht_error *err)
{
    struct ht_error said = {0};
    enum ht_status status = ht_stream_read(x->stream, use, x, &said);
    if (status == wanted && strstr(said.text, text)) return HT_OK;
    return ht_fail(err, HT_FAILED, "expected '%s', got %d '%.800s'", text, (int)status, said.text);
}

/* Flips a bit of an element of a resident; once more, it is as before. */
static void change(const struct setting *x, enum ht_tensor_class class, int32_t unit, enum ht_tier tier, int32_t rank,
                   int64_t element)
{
    const struct ht_schedule *s = x->job.schedule;
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_tensor *t = &s->tensors[s->residents[i].tensor];
        struct ht_buffer b;
        if (t->class != class || t->label.unit != unit || s->residents[i].tier != tier || t->rank != rank) continue;
        if (ht_residents_get(x->residents, i, &b)) ((char *)b.data)[4 * element] ^= 1;
    }
}

static enum ht_status go_through(struct setting *x, struct ht_error *err)
{
    const struct ht_ranks *ranks = &x->ranks;
    int32_t last = ranks->comm ? RANKS - 1 : 0;
    enum ht_status status = ht_residents_each(x->residents, spoil_memory, x, err);
    /* Parameters alone, as --init has them; the rest begins as in every training. Then everything. */
    for (int all = 0; all < 2 && !status; all++) {
        x->parts = x->held->state->values.parts = all ? HT_ALL_STATE_PARTS : 1u << HT_STATE_PARAM;
        status = ht_stream_fill(x->stream, x->held->state, err);
        if (!status) status = ht_ranks_agree(ranks, ht_residents_each(x->residents, check_resident, x, err), err);
    }
    if (!status) status = ht_stream_read(x->stream, use_all, x, err);
    if (!status) status = expect(x, use_and_fail, HT_BAD_INPUT, "the disk is full", err);
    /* Stale copies may be anything. */
    change(x, HT_PARAM, 1, HT_DEVICE, 0, 3);
    if (!status) status = ht_stream_read(x->stream, use_all, x, err);
    change(x, HT_VARIANCE, 2, HT_DEVICE, last, 77);
    char text[96];
    snprintf(text, sizeof(text), "unit 2: two copies of element 77 of its variance differ on rank %d", last);
    if (!status) status = expect(x, use_all, HT_FAILED, text, err);
    change(x, HT_VARIANCE, 2, HT_DEVICE, last, 77);
    if (!last || status) return ht_ranks_agree(ranks, status, err);
    change(x, HT_MASTER, 3, HT_DEVICE, last, 4);
    status = expect(x, use_all, HT_FAILED, "unit 3: ranks 0 and 2 differ in elements 0 to 5 of its param", err);
    change(x, HT_MASTER, 3, HT_DEVICE, last, 4);
    if (!status) status = ht_stream_read(x->stream, use_all, x, err); /* after all that */
    return ht_ranks_agree(ranks, status, err);
}

static enum ht_status run_rank(struct ht_comm *comm, struct ht_error *err)
{
    struct setting x;
    enum ht_status status = open_setting(comm, &x, err);
    if (!status) status = go_through(&x, err);
    close_setting(&x);
    return status;
}

START_TEST(three_ranks)
{
    launch_ranks(RANKS);
}
END_TEST

START_TEST(one_rank)
{
    struct ht_error err = {0};
    struct setting x;
    ck_assert_msg(open_setting(NULL, &x, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(go_through(&x, &err) == HT_OK, "%s", err.text);
    close_setting(&x);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "rank")) return run_as_rank(run_rank);
    Suite *s = suite_create("stream");
    TCase *tc = tcase_create("stream");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, one_rank);
    tcase_add_test(tc, three_ranks);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
