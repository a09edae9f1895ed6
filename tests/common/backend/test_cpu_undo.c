/*
 * Tests undo on the CPU backend: a schedule steps at once, checks the gradients, and undoes the step when bad.
 *
 * Faults make gradients overflow in random iterations and units. Losses, parameters, momentum and variance must be, bit
 * for bit, those of a graph without log, validate and undo that runs the ok iterations alone.
 */
#include "common/backend/cuda.h"
#include "common/base/array.h"
#include "common/base/rng.h"
#include "tests/support/plain.h"
#include "common/kernels/undo.h"
#include "common/mem/arena.h"
#include "common/schedule/verify.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/filled.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { L = 2, UNITS = L + 2, B = 2, T = 16, V = 37, ITERATIONS = 9, SEED = 7, CASES = SANITIZED ? 4 : 24 };

static const struct ht_model model = {.name = "test",
                                      .arch = HT_ARCH_GPT,
                                      .layers = L,
                                      .width = 32,
                                      .heads = 2,
                                      .ffn = 128,
                                      .vocab = V,
                                      .max_seq = 24,
                                      .tied = true};

static const struct ht_adamw adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

enum control { PLAIN, GATE, ROLLBACK };

struct variant {
    enum control control;
    bool offload;   /* optimizer on the host */
    bool shards;    /* state and log in two shards a unit */
    bool transient; /* the step produces the log, which is released after the gradient check */
    bool no_room;   /* the log has room for the exceptions of ok gradients only */
    bool none;      /* no room for any: ok steps are left out, too, and made when all have been undone */
    bool cuda;      /* on the CUDA backend, over tests/support/fake_cuda.h: enqueued ahead */
};

/* ---- the schedule ---- */

struct graph {
    const struct variant *v;
    struct ht_schedule *s;
    enum ht_tier home; /* of the optimizer */
    int32_t gpu, h2d, d2h, cpu, optimizer, work;
    int32_t backward; /* the op that writes all gradients */
    int32_t param[UNITS], grad[UNITS], m[UNITS][2], vv[UNITS][2], log[UNITS][2];
};

static struct ht_label about(int32_t unit, int32_t n_units, int32_t mb)
{
    return (struct ht_label){.unit = unit, .n_units = n_units, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = mb};
}

static int32_t tensor(struct graph *g, enum ht_tensor_class class, int32_t u, int32_t mb, int64_t bytes)
{
    return ht_add_tensor(g->s, (struct ht_tensor){.class = class, .label = about(u, 1, mb), .bytes = bytes});
}

static int32_t shard(struct graph *g, enum ht_tensor_class class, int32_t u, int i)
{
    int64_t n = ht_unit_params(&model, u), cut = g->v->shards ? n / 3 : n, begin = i ? cut : 0, end = i ? n : cut;
    if (begin == end) return -1;
    int64_t room = g->v->none ? 0 : g->v->no_room ? ht_undo_usual_exceptions(end - begin) : 3 * n;
    int64_t bytes = class == HT_STAGING ? ht_undo_log_bytes(end - begin, room) : 4 * (end - begin);
    struct ht_tensor row = {.class = class, .label = about(u, 1, -1), .bytes = bytes};
    if (g->v->shards) row.shard_begin = begin, row.shard_end = end;
    return ht_add_tensor(g->s, row);
}

static void add_states(struct graph *g)
{
    for (int32_t u = 0; u < UNITS; u++) {
        int64_t bytes = 4 * ht_unit_params(&model, u);
        g->param[u] = tensor(g, HT_PARAM, u, -1, bytes);
        g->grad[u] = tensor(g, HT_GRAD, u, -1, bytes);
        ht_add_resident(g->s, g->param[u], HT_DEVICE, 0);
        if (g->v->offload) ht_add_resident(g->s, g->param[u], HT_HOST, 0);
        for (int i = 0; i < 2; i++) {
            g->m[u][i] = shard(g, HT_MOMENTUM, u, i);
            g->vv[u][i] = shard(g, HT_VARIANCE, u, i);
            g->log[u][i] = g->v->control == ROLLBACK ? shard(g, HT_STAGING, u, i) : -1;
            if (g->m[u][i] < 0) continue;
            ht_add_resident(g->s, g->m[u][i], g->home, 0);
            ht_add_resident(g->s, g->vv[u][i], g->home, 0);
            if (g->log[u][i] >= 0 && !g->v->transient) ht_add_resident(g->s, g->log[u][i], g->home, 0);
        }
    }
}

static void effect(struct graph *g, int32_t t, enum ht_tier tier, unsigned flags)
{
    if (t >= 0) ht_op_effect(g->s, t, tier, flags);
}

static void workspace(struct graph *g, int32_t u, bool backward)
{
    int64_t bytes = ht_unit_workspace_bytes(&model, u, B, T, HT_F32, backward);
    if (bytes) effect(g, tensor(g, HT_WORKSPACE, u, -1, bytes), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
}

/* Adds one forward and one backward op for all units. */
static void passes(struct graph *g)
{
    int32_t x[UNITS], a[UNITS], logits = tensor(g, HT_LOGITS, L + 1, 0, ht_logits_bytes(&model, B, T));
    int32_t pass = ht_add_work(g->s, &(struct ht_work){.batch = B, .seq = T});
    ht_add_op(g->s, HT_OP_FORWARD, g->gpu, about(0, UNITS, 0), pass);
    for (int32_t u = 0; u < UNITS; u++) {
        int64_t in = ht_unit_input_bytes(&model, u, B, T, HT_F32);
        int64_t kept = ht_unit_activation_bytes(&model, u, B, T, HT_F32);
        x[u] = in ? tensor(g, HT_CHECKPOINT, u, 0, in) : -1;
        a[u] = kept ? tensor(g, HT_ACTIVATION, u, 0, kept) : -1;
        effect(g, g->param[u], HT_DEVICE, HT_NEED);
        effect(g, x[u], HT_DEVICE, HT_PRODUCE);
        effect(g, a[u], HT_DEVICE, HT_PRODUCE);
        workspace(g, u, false);
    }
    effect(g, logits, HT_DEVICE, HT_PRODUCE);
    g->backward = ht_add_op(g->s, HT_OP_BACKWARD, g->gpu, about(0, UNITS, 0), pass);
    for (int32_t u = 0; u < UNITS; u++) {
        effect(g, g->param[u], HT_DEVICE, HT_NEED);
        effect(g, x[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        effect(g, a[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (x[u] >= 0)
            effect(g, tensor(g, HT_ACT_GRAD, u, 0, ht_unit_input_bytes(&model, u, B, T, HT_F32)), HT_DEVICE,
                   HT_PRODUCE | HT_RELEASE);
        effect(g, g->grad[u], HT_DEVICE, HT_PRODUCE);
        workspace(g, u, true);
    }
    effect(g, logits, HT_DEVICE, HT_NEED | HT_RELEASE);
}

static void update(struct graph *g, enum ht_op_kind kind, int32_t u, unsigned log_flags)
{
    ht_add_op(g->s, kind, g->optimizer, about(u, 1, -1), g->work);
    effect(g, g->param[u], g->home, HT_UPDATE);
    effect(g, g->grad[u], g->home, HT_NEED);
    for (int i = 0; i < 2; i++) {
        effect(g, g->m[u][i], g->home, HT_UPDATE);
        effect(g, g->vv[u][i], g->home, HT_UPDATE);
        effect(g, g->log[u][i], g->home, log_flags);
    }
}

static int32_t add_validate(struct graph *g)
{
    int32_t op = ht_add_op(g->s, HT_OP_VALIDATE, g->optimizer, about(-1, 0, -1), g->work);
    for (int32_t u = 0; u < UNITS; u++) effect(g, g->grad[u], g->home, HT_NEED);
    return op;
}

static void copy(struct graph *g, int32_t lane, int32_t u, int32_t t, enum ht_tier from, enum ht_tier to, bool moved)
{
    ht_add_op(g->s, HT_OP_COPY, lane, about(u, 1, -1), g->work);
    effect(g, t, from, moved ? HT_NEED | HT_RELEASE : HT_NEED);
    effect(g, t, to, moved ? HT_PRODUCE : HT_UPDATE);
}

static void optimize(struct graph *g)
{
    enum control control = g->v->control;
    int32_t validate = -1;
    for (int32_t u = UNITS - 1; u >= 0 && g->v->offload; u--) copy(g, g->d2h, u, g->grad[u], HT_DEVICE, HT_HOST, true);
    if (control == GATE) validate = add_validate(g);
    for (int32_t u = UNITS - 1; u >= 0; u--) {
        update(g, HT_OP_OPTIMIZER_STEP, u, g->v->transient ? HT_PRODUCE : HT_UPDATE);
        if (control == GATE) ht_op_after(g->s, validate);
        if (control == GATE) ht_op_when(g->s, HT_WHEN_OK);
    }
    if (control == ROLLBACK) validate = add_validate(g);
    for (int32_t u = 0; u < UNITS && control == ROLLBACK; u++) {
        update(g, HT_OP_UNDO, u, HT_NEED);
        ht_op_after(g->s, validate);
        ht_op_when(g->s, HT_WHEN_BAD);
    }
    for (int32_t u = 0; u < UNITS; u++) {
        if (g->v->offload) copy(g, g->h2d, u, g->param[u], HT_HOST, HT_DEVICE, false);
        ht_add_op(g->s, HT_OP_ACCUMULATE, g->optimizer, about(u, 1, -1), g->work); /* only frees */
        effect(g, g->grad[u], g->home, HT_RELEASE);
        for (int i = 0; i < 2 && g->v->transient; i++) effect(g, g->log[u][i], g->home, HT_RELEASE);
    }
}

static void build(struct graph *g, const struct variant *v)
{
    *g = (struct graph){.v = v, .s = ht_schedule_create("undo", 1, 1, NULL), .home = v->offload ? HT_HOST : HT_DEVICE};
    g->gpu = ht_add_lane(g->s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    g->h2d = ht_add_lane(g->s, "h2d", HT_LANE_H2D, 0, HT_FIFO);
    g->d2h = ht_add_lane(g->s, "d2h", HT_LANE_D2H, 0, HT_FIFO);
    g->cpu = ht_add_lane(g->s, "cpu", HT_LANE_HOST, 0, HT_PRIORITY);
    g->optimizer = v->offload ? g->cpu : g->gpu;
    g->s->n_units = UNITS;
    g->s->n_micro_batches = 1;
    g->work = ht_add_work(g->s, &(struct ht_work){.bytes = 1});
    add_states(g);
    passes(g);
    optimize(g);
    ht_schedule_link(g->s);
}

/* ---- running it ---- */

enum spoilt { GOOD, ONE_NAN, ONE_INFINITE, SQUARE_OVERFLOWS, ALL_NAN, N_SPOILT };

/* Inputs of each iteration, and the results. */
struct course {
    const struct graph *g;
    struct ht_cpu *cpu;
    struct ht_cuda_device *gpu;   /* instead of cpu */
    bool spoils;                  /* a gradient in some iteration */
    int32_t n, batch[ITERATIONS]; /* iterations; the batch of each */
    enum spoilt spoilt[ITERATIONS];
    int32_t unit[ITERATIONS]; /* whose gradient is spoilt */
    double losses[ITERATIONS];
    float *state[3][UNITS][2]; /* parameters ([0] only), momentum, variance, by shard */
};

static int32_t tokens[ITERATIONS][B * T], targets[ITERATIONS][B * T];

static enum ht_status data(void *ctx, int32_t iteration, int32_t micro_batch, const void **tok, const int32_t **tgt,
                           struct ht_error *err)
{
    const struct course *c = ctx;
    (void)micro_batch, (void)err;
    *tok = tokens[c->batch[iteration]];
    *tgt = targets[c->batch[iteration]];
    return HT_OK;
}

static void spoil(const struct course *c, int32_t iteration, const struct ht_buffer *b)
{
    int64_t n = b->bytes / 4, at = (int64_t)ht_random_below(3, (uint64_t)iteration, (uint64_t)n);
    float *grad = b->data;
    switch (c->spoilt[iteration]) {
    case ONE_NAN:
        grad[at] = NAN;
        break;
    case ONE_INFINITE:
        grad[at] = -INFINITY;
        break;
    case SQUARE_OVERFLOWS:
        grad[at] = 1e21f;
        break; /* (1 - 0.95) 1e42 > 3.4e38 */
    case ALL_NAN:
        memset(grad, 0xff, (size_t)b->bytes);
        break;
    default:
        break;
    }
}

/* Runs an op on the CPU backend, and makes a gradient overflow after a faulty backward pass. */
static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct course *c = ctx;
    enum ht_status status = ht_cpu_backend.run_op(c->cpu, iteration, op, buffers, n, err);
    for (int32_t i = 0; i < n && op == c->g->backward; i++)
        if (buffers[i].tensor == c->g->grad[c->unit[iteration]]) spoil(c, iteration, &buffers[i]);
    return status;
}

static enum ht_status open_backend(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    return ht_cpu_backend.open(((struct course *)ctx)->cpu, s, err);
}
static bool control(void *ctx, int32_t iteration, int32_t op)
{
    return ht_cpu_backend.control(((struct course *)ctx)->cpu, iteration, op);
}
static void close_backend(void *ctx)
{
    ht_cpu_backend.close(((struct course *)ctx)->cpu);
}

static const struct ht_backend_ops overflowing = {
    .name = "overflowing cpu", .open = open_backend, .run_op = run_op, .control = control, .close = close_backend};

/* The course that runs on the CUDA backend, which has a context of its own. The host waits only for a backward pass
   with a fault. */
static struct course *on_gpu;

static enum ht_status cuda_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                                  struct ht_error *err)
{
    struct course *c = on_gpu;
    enum ht_status status = ht_cuda_backend.run_op(ctx, iteration, op, buffers, n, err);
    for (int32_t i = 0; i < n && op == c->g->backward; i++) {
        if (buffers[i].tensor != c->g->grad[c->unit[iteration]]) continue;
        struct ht_buffer here = buffers[i];
        here.data = ht_alloc((size_t)here.bytes);
        ck_assert_int_eq(ht_cuda_device_read(c->gpu, buffers[i], here.data, err), HT_OK);
        spoil(c, iteration, &here);
        ck_assert_int_eq(ht_cuda_device_write(c->gpu, here.data, buffers[i], err), HT_OK);
        free(here.data);
    }
    return status;
}

static bool cuda_is_async(void *ctx, int32_t op)
{
    return (op != on_gpu->g->backward || !on_gpu->spoils) && ht_cuda_backend.is_async(ctx, op);
}

static enum ht_status init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct course *c = ctx;
    const struct ht_tensor *t = &c->g->s->tensors[b.tensor];
    (void)space;
    return c->gpu ? ht_cuda_device_init(c->gpu, t, b, err) : ht_cpu_init(c->cpu, t, b, err);
}

static enum ht_status compare_state(struct course *c, struct ht_buffer b)
{
    for (int32_t u = 0; u < UNITS; u++)
        for (int i = 0; i < 2; i++) {
            const int32_t rows[3] = {i ? -1 : c->g->param[u], c->g->m[u][i], c->g->vv[u][i]};
            for (int k = 0; k < 3; k++) {
                if (b.tensor != rows[k]) continue;
                float **state = &c->state[k][u][i];
                if (!*state) *state = memcpy(ht_alloc((size_t)b.bytes), b.data, (size_t)b.bytes);
                ck_assert_mem_eq(*state, b.data, (size_t)b.bytes); /* parameters: on the device as on the host */
            }
        }
    return HT_OK;
}

static enum ht_status final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct course *c = ctx;
    (void)space;
    if (!c->gpu) return compare_state(c, b);
    struct ht_buffer here = b;
    here.data = ht_alloc((size_t)b.bytes);
    enum ht_status status = ht_cuda_device_read(c->gpu, b, here.data, err);
    if (status == HT_OK) status = compare_state(c, here);
    free(here.data);
    return status;
}

static void course_free(struct course *c)
{
    for (int k = 0; k < 3; k++)
        for (int u = 0; u < UNITS; u++)
            for (int i = 0; i < 2; i++) free(c->state[k][u][i]);
}

/* The device that the variant asks for, and two arenas, which destroy_device destroys. */
static void create_device(const struct variant *v, struct course *c, const struct ht_cpu_options *co,
                          struct ht_arena **arenas, struct ht_run_options *ro)
{
    static struct ht_backend_ops cuda;
    struct ht_error err = {0};
    enum ht_status status =
        v->cuda ? ht_cuda_device_create(co, fake_cuda_api(), 0, &err, &c->gpu) : ht_cpu_create(co, &err, &c->cpu);
    for (int i = 0; i < 2 && status == HT_OK; i++)
        status = v->cuda ? ht_cuda_device_arena(c->gpu, i ? HT_HOST : HT_DEVICE, 8 << 20, 8 << 20, &err, &arenas[i])
                         : ht_arena_create(8 << 20, 8 << 20, false, &err, &arenas[i]);
    ck_assert_msg(status == HT_OK, "%s", err.text);
    cuda = ht_cuda_backend;
    cuda.run_op = cuda_run_op;
    cuda.is_async = cuda_is_async;
    on_gpu = c;
    ro->backend = v->cuda ? &cuda : &overflowing;
    ro->backend_ctx = v->cuda ? (void *)c->gpu : (void *)c;
    ro->arenas = arenas;
}

static void destroy_device(struct course *c, struct ht_arena **arenas)
{
    for (int i = 0; i < 2 && !c->gpu; i++) ht_arena_destroy(arenas[i]);
    ht_cuda_device_destroy(c->gpu);
    ht_cpu_destroy(c->cpu);
    c->gpu = NULL;
    c->cpu = NULL;
    ck_assert_int_eq(fake_cuda_leaks(), 0);
}

static enum ht_status run(const struct variant *v, struct course *c, struct ht_error *err)
{
    struct graph g;
    build(&g, v);
    ck_assert_msg(ht_schedule_verify(g.s, err, NULL) == HT_OK, "%s", err->text);
    struct ht_cpu_options co = {.model = model,
                                .tokens_per_iteration = B * T,
                                .seed = SEED,
                                .adamw = adamw,
                                .data = data,
                                .data_ctx = c,
                                .losses = c->losses};
    struct ht_arena *arenas[4] = {0};
    c->g = &g;
    struct ht_run_options ro = {.iterations = c->n};
    create_device(v, c, &co, arenas, &ro);
    struct ht_trace *t;
    enum ht_status status = run_filled(g.s, ro, init, final, c, err, &t);
    destroy_device(c, arenas);
    ht_trace_destroy(t);
    ht_schedule_destroy(g.s);
    return status;
}

/* ---- undone iterations leave nothing behind ---- */

static void draw_batches(void)
{
    uint64_t n = 0;
    for (int k = 0; k < ITERATIONS; k++)
        for (int i = 0; i < B * T; i++) {
            tokens[k][i] = (int32_t)ht_random_below(SEED, n++, V);
            targets[k][i] = (int32_t)ht_random_below(SEED, n++, V);
        }
}

/* Each iteration is bad with a chance of 0.4. The last one never is: it shows what the others have left. */
static struct course draw(uint64_t seed)
{
    struct course c = {.n = ITERATIONS, .spoils = true};
    for (int k = 0; k < ITERATIONS; k++) {
        uint64_t i = 3 * (uint64_t)k;
        bool bad = k < ITERATIONS - 1 && ht_random_below(seed, i, 10) < 4;
        c.batch[k] = k;
        c.spoilt[k] = bad ? (enum spoilt)(1 + ht_random_below(seed, i + 1, N_SPOILT - 1)) : GOOD;
        c.unit[k] = (int32_t)ht_random_below(seed, i + 2, UNITS);
    }
    return c;
}

static void compare(const struct variant *v, uint64_t seed)
{
    struct course c = draw(seed), good = {0};
    struct ht_error err = {0};
    for (int k = 0; k < ITERATIONS; k++)
        if (c.spoilt[k] == GOOD) good.batch[good.n++] = k;
    struct variant plain = {.control = PLAIN, .offload = v->offload, .shards = v->shards, .cuda = v->cuda};
    ck_assert_msg(run(v, &c, &err) == HT_OK, "%s", err.text);
    ck_assert_msg(run(&plain, &good, &err) == HT_OK, "%s", err.text);
    for (int i = 0; i < good.n; i++)
        ck_assert_msg(memcmp(&c.losses[good.batch[i]], &good.losses[i], sizeof(double)) == 0,
                      "case %d, iteration %d: loss %.17g, without the bad ones %.17g", (int)seed, good.batch[i],
                      c.losses[good.batch[i]], good.losses[i]);
    for (int k = 0; k < 3; k++)
        for (int u = 0; u < UNITS; u++)
            for (int i = 0; i < 2; i++) {
                if (!c.state[k][u][i]) continue;
                int64_t n = ht_unit_params(&model, u), cut = v->shards ? n / 3 : n;
                int64_t held = k == 0 ? n : i ? n - cut : cut;
                ck_assert_mem_eq(c.state[k][u][i], good.state[k][u][i], 4 * (size_t)held);
            }
    /* The plain trainer, which has no graph, gets the same from the good iterations alone. */
    struct ht_plain *p = ht_plain_create(&model, NULL, B, T, NULL, SEED);
    for (int i = 0; i < good.n; i++) ht_plain_step(p, 1, tokens[good.batch[i]], targets[good.batch[i]], &adamw, 1);
    for (int u = 0; u < UNITS; u++)
        ck_assert_mem_eq(c.state[0][u][0], ht_plain_params(p, u), 4 * (size_t)ht_unit_params(&model, u));
    ht_plain_destroy(p);
    course_free(&c);
    course_free(&good);
}

static const struct variant variants[] = {
    {.control = GATE},
    {.control = GATE, .offload = true},
    {.control = ROLLBACK},
    {.control = ROLLBACK, .offload = true},
    {.control = ROLLBACK, .offload = true, .shards = true},
    {.control = ROLLBACK, .offload = true, .transient = true},
    {.control = ROLLBACK, .shards = true, .transient = true},
    {.control = ROLLBACK, .offload = true, .no_room = true},
    {.control = ROLLBACK, .offload = true, .shards = true, .transient = true, .no_room = true},
    {.control = ROLLBACK, .none = true},
    {.control = ROLLBACK, .shards = true, .transient = true, .none = true},
    {.control = GATE, .cuda = true},
    {.control = GATE, .offload = true, .cuda = true},
    {.control = ROLLBACK, .cuda = true},
    {.control = ROLLBACK, .no_room = true, .cuda = true},
    {.control = ROLLBACK, .shards = true, .transient = true, .no_room = true, .cuda = true},
    {.control = ROLLBACK, .offload = true, .shards = true, .no_room = true, .cuda = true},
    {.control = ROLLBACK, .none = true, .cuda = true},
    {.control = ROLLBACK, .shards = true, .none = true, .cuda = true},
};

START_TEST(test_as_if_it_had_not_been)
{
    for (uint64_t seed = 0; seed < CASES; seed++) compare(&variants[_i], seed);
}
END_TEST

/* ---- what is refused ---- */

static void expect_failure(const struct variant *v, struct course c, void (*alter)(struct graph *g), const char *text)
{
    struct ht_error err = {0};
    struct graph g;
    c.n = ITERATIONS;
    for (int k = 0; k < ITERATIONS; k++) c.batch[k] = k;
    build(&g, v);
    alter(&g);
    struct ht_cpu_options co = {
        .model = model, .tokens_per_iteration = B * T, .seed = SEED, .adamw = adamw, .data = data, .data_ctx = &c};
    struct ht_arena *arenas[4] = {0};
    c.g = &g;
    struct ht_run_options ro = {.iterations = ITERATIONS};
    create_device(v, &c, &co, arenas, &ro);
    struct ht_trace *t;
    ck_assert_int_eq(run_filled(g.s, ro, init, final, &c, &err, &t), HT_FAILED);
    ck_assert_msg(strstr(err.text, text), "%s", err.text);
    destroy_device(&c, arenas);
    ht_schedule_destroy(g.s);
}

static int64_t elements(const struct graph *g, int32_t u)
{
    return g->s->tensors[g->m[u][0]].bytes / 4;
}

static void least_log(struct graph *g)
{
    for (int32_t u = 0; u < UNITS; u++) g->s->tensors[g->log[u][0]].bytes = ht_undo_log_bytes(elements(g, u), 0);
}
static void too_small_log(struct graph *g)
{
    g->s->tensors[g->log[1][0]].bytes = ht_undo_log_bytes(elements(g, 1), 0) - 1;
}
static void log_of_another_unit(struct graph *g)
{
    g->s->tensors[g->log[1][0]].label.unit = 2;
}
static void step_without_log(struct graph *g)
{
    for (int32_t op = 0; op < g->s->n_ops; op++)
        for (int64_t e = g->s->effects_begin[op]; e < g->s->effects_begin[op + 1]; e++)
            if (g->s->ops[op].kind == HT_OP_OPTIMIZER_STEP && g->s->effects[e].tensor == g->log[1][0])
                g->s->effects[e].flags = HT_NEED;
}
static void never_undone(struct graph *g)
{
    for (int32_t op = 0; op < g->s->n_ops; op++)
        if (g->s->ops[op].kind == HT_OP_UNDO) g->s->ops[op].when = HT_WHEN_OK;
}

START_TEST(test_refusals)
{
    const struct variant v = {.control = ROLLBACK, .cuda = _i},
                         tight = {.control = ROLLBACK, .no_room = true, .cuda = _i},
                         apart = {.control = ROLLBACK, .offload = true, .cuda = _i};
    struct course good = {0}, bad = {.spoilt = {ALL_NAN}, .unit = {1}, .spoils = true};
    /* With no room at all, the second step's exceptions do not fit, or an earlier one's; and this graph's final check,
       on another lane, does not wait for steps. */
    expect_failure(&apart, good, least_log, "the undo log of unit");
    expect_failure(&apart, good, least_log, "needs");
    expect_failure(&v, good, too_small_log, "expected at least");
    expect_failure(&v, good, log_of_another_unit, "no effect reads an undo log (staging) of elements 0 to");
    expect_failure(&v, bad, step_without_log, "tells of no step");
    expect_failure(&tight, bad, never_undone, "was left out");
}
END_TEST

/* Any failure on the device is returned as the device's error, also when a step is undone and when the gradients of a
   refused step are checked again. */
START_TEST(test_device_failures)
{
    const struct variant v = {.control = ROLLBACK, .no_room = true, .cuda = true};
    const struct course c = {
        .n = 3, .spoils = true, .spoilt = {GOOD, ALL_NAN, ONE_NAN}, .unit = {0, 1, 2}, .batch = {0, 1, 2}};
    struct ht_error err = {0};
    struct course x = c;
    (void)fake_cuda_calls();
    ck_assert_msg(run(&v, &x, &err) == HT_OK, "%s", err.text);
    course_free(&x);
    int64_t calls = fake_cuda_calls();
    for (int64_t at = 1; at <= calls; at++) {
        x = c;
        fake_cuda_fail_at(at);
        enum ht_status status = run(&v, &x, &err);
        fake_cuda_fail_at(0);
        course_free(&x);
        ck_assert_msg(status == HT_FAILED && strstr(err.text, "as told"), "call %d: status %d: %s", (int)at, status,
                      err.text);
    }
}
END_TEST

int main(void)
{
    draw_batches();
    Suite *s = suite_create("cpu undo");
    TCase *tc = tcase_create("cpu undo");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_as_if_it_had_not_been, 0, (int)HT_COUNT(variants));
    tcase_add_loop_test(tc, test_refusals, 0, 2);
    tcase_add_test(tc, test_device_failures);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
