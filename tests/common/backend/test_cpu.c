/*
 * The CPU backend against the plain trainer, which calls the same kernels one after the other.
 *
 * A tiny GPT is trained for some iterations by schedules that differ in everything that the contract in cpu.h allows:
 * where the optimizer runs, what is recomputed, one unit an op or all of them, whole units or shards. Each must give
 * the losses and parameters of the plain trainer, bit for bit.
 */
#include "common/backend/cpu.h"
#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/kernels/convert.h"
#include "common/kernels/plain.h"
#include "common/mem/arena.h"
#include "common/schedule/verify.h"
#include "tests/support/filled.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { L = 2, UNITS = L + 2, B = 2, T = 16, V = 37, ITERATIONS = 3, MAX_MB = 3, SEED = 7 };

struct variant {
    bool tied, flash;
    int32_t n_mb;
    bool offload;   /* optimizer and its state on the host; gradients and parameters are copied */
    bool recompute; /* the blocks' activations */
    bool fused;     /* one op for all units, forward and backward */
    bool segment;   /* the blocks are one op forward, keep the first one's input only, and are recomputed by one op */
    bool shards;    /* optimizer state in two shards a unit */
    bool validate;
    bool llama;         /* two query heads share keys */
    enum ht_dtype type; /* of parameters, activations and their gradients, and gradients; FP32 stays the master */
    bool sums16;        /* gradients are accumulated in this type too */
    bool cast;          /* P is made from W by every op that reads it */
    bool parts;         /* a block's activations are the rows of `part` */
    unsigned again;     /* sub-ops that are made again in place before each backward pass */
};

static struct ht_numerics numerics_of(const struct variant *v)
{
    return (struct ht_numerics){.param = v->type, .grad = v->type, .accumulate = v->sums16 ? v->type : HT_F32};
}

static struct ht_model model_of(const struct variant *v)
{
    return (struct ht_model){.name = "test",
                             .arch = v->llama ? HT_ARCH_LLAMA : HT_ARCH_GPT,
                             .layers = L,
                             .width = 32,
                             .heads = 2,
                             .ffn = 128,
                             .vocab = V,
                             .max_seq = 24,
                             .tied = v->tied,
                             .flash = v->flash,
                             .kv_heads = v->llama ? 1 : 0,
                             .rope_theta = 100,
                             .norm_eps = 1e-5};
}

static const struct ht_adamw adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

static int32_t tokens[ITERATIONS][MAX_MB][B * T], targets[ITERATIONS][MAX_MB][B * T];

static void draw_batches(void)
{
    uint64_t n = 0;
    for (int k = 0; k < ITERATIONS; k++)
        for (int j = 0; j < MAX_MB; j++)
            for (int i = 0; i < B * T; i++) {
                tokens[k][j][i] = (int32_t)ht_random_below(SEED, n++, V);
                targets[k][j][i] = (int32_t)ht_random_below(SEED, n++, V);
            }
}

static enum ht_status data(void *ctx, int32_t iteration, int32_t micro_batch, const int32_t **tok, const int32_t **tgt,
                           struct ht_error *err)
{
    (void)ctx, (void)err;
    *tok = tokens[iteration][micro_batch];
    *tgt = targets[iteration][micro_batch];
    return HT_OK;
}

struct outcome {
    double losses[ITERATIONS * MAX_MB]; /* sum over a micro-batch's tokens */
    void *param[UNITS];
    float *master[UNITS];
};

static void free_outcome(struct outcome *o)
{
    for (int u = 0; u < UNITS; u++) free(o->param[u]), free(o->master[u]);
}

/* ---- schedules ---- */

/* Two parts are recomputed, the first from the input and the last from the third, which stays; the second waits on the
   host. The order of sub-ops does not matter to a row. */
enum { PARTS = 4, MOVED = 1 };
#define SUB(name) (1u << HT_SUB_##name)
static const unsigned part[PARTS] = {SUB(NORM1) | SUB(QKV), SUB(ATTENTION) | SUB(NORM2), SUB(PROJ) | SUB(FC1),
                                     SUB(GELU) | SUB(FC2)};
static const bool part_again[PARTS] = {true, false, false, true};

struct graph {
    const struct variant *v;
    struct ht_model model;
    struct ht_schedule *s;
    int32_t gpu, h2d, d2h, cpu, pass, other; /* lanes; rows of works */
    int32_t param[UNITS], grad[UNITS], w[UNITS][2], m[UNITS][2], vv[UNITS][2];
    int32_t fresh[UNITS][MAX_MB], x[UNITS][MAX_MB], a[UNITS][MAX_MB][PARTS], d[UNITS][MAX_MB], logits[MAX_MB];
};

static struct ht_label about(int32_t unit, int32_t n_units, int32_t mb)
{
    return (struct ht_label){.unit = unit, .n_units = n_units, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = mb};
}

static int32_t tensor(struct graph *g, enum ht_tensor_class class, int32_t u, int32_t mb, int64_t bytes)
{
    return ht_add_tensor(g->s, (struct ht_tensor){.class = class, .label = about(u, 1, mb), .bytes = bytes});
}

/* A(u,j): one row, or those of `part`. */
static void add_activations(struct graph *g, int32_t u, int32_t j)
{
    int64_t whole = ht_unit_activation_bytes(&g->model, u, B, T, g->v->type);
    bool parts = g->v->parts && ht_model_unit_kind(&g->model, u) == HT_UNIT_BLOCK;
    for (int i = 0; i < PARTS; i++) {
        g->a[u][j][i] = -1;
        if (!whole || (i && !parts)) continue;
        g->a[u][j][i] = tensor(g, HT_ACTIVATION, u, j, whole);
        if (!parts) continue;
        struct ht_tensor *t = &g->s->tensors[g->a[u][j][i]];
        t->label.sub_ops = part[i];
        t->bytes = ht_sub_ops_activation_bytes(&g->model, part[i], B, T, g->v->type);
    }
}

static void shard(struct graph *g, enum ht_tensor_class class, int32_t u, int32_t out[2])
{
    int64_t n = ht_unit_params(&g->model, u), cut = n / 3, ends[3] = {0, cut, n};
    out[0] = out[1] = -1;
    if (!g->v->shards) out[0] = tensor(g, class, u, -1, 4 * n);
    for (int i = 0; i < 2 && g->v->shards; i++)
        out[i] = ht_add_tensor(g->s, (struct ht_tensor){.class = class,
                                                        .label = about(u, 1, -1),
                                                        .bytes = 4 * (ends[i + 1] - ends[i]),
                                                        .shard_begin = ends[i],
                                                        .shard_end = ends[i + 1]});
}

static void add_tensors(struct graph *g)
{
    for (int32_t u = 0; u < UNITS; u++) {
        enum ht_dtype type = g->v->type, sums = g->v->n_mb > 1 && !g->v->sums16 ? HT_F32 : type;
        int64_t n = ht_unit_params(&g->model, u), bytes = n * ht_dtype_bytes(type);
        int64_t in = ht_unit_input_bytes(&g->model, u, B, T, type);
        enum ht_tier home = g->v->offload ? HT_HOST : HT_DEVICE;
        g->param[u] = tensor(g, HT_PARAM, u, -1, bytes);
        g->grad[u] = tensor(g, HT_GRAD, u, -1, n * ht_dtype_bytes(sums));
        g->w[u][0] = g->w[u][1] = -1;
        if (type != HT_F32) shard(g, HT_MASTER, u, g->w[u]);
        shard(g, HT_MOMENTUM, u, g->m[u]);
        shard(g, HT_VARIANCE, u, g->vv[u]);
        if (!g->v->cast) ht_add_resident(g->s, g->param[u], HT_DEVICE, 0);
        if (g->v->offload) ht_add_resident(g->s, g->param[u], HT_HOST, 0);
        for (int i = 0; i < 2 && g->m[u][i] >= 0; i++) {
            if (type != HT_F32) ht_add_resident(g->s, g->w[u][i], home, 0);
            ht_add_resident(g->s, g->m[u][i], home, 0);
            ht_add_resident(g->s, g->vv[u][i], home, 0);
        }
        for (int32_t j = 0; j < g->v->n_mb; j++) {
            g->fresh[u][j] = j ? tensor(g, HT_GRAD, u, j, bytes) : g->grad[u];
            g->x[u][j] = in ? tensor(g, HT_CHECKPOINT, u, j, in) : -1;
            g->d[u][j] = in ? tensor(g, HT_ACT_GRAD, u, j, in) : -1;
            add_activations(g, u, j);
            if (u == L + 1) g->logits[j] = tensor(g, HT_LOGITS, u, j, ht_logits_bytes(&g->model, B, T));
        }
    }
}

static void effect(struct graph *g, int32_t t, enum ht_tier tier, unsigned flags)
{
    if (t >= 0) ht_op_effect(g->s, t, tier, flags);
}

static void workspace(struct graph *g, int32_t u, bool backward)
{
    int64_t bytes = ht_unit_workspace_bytes(&g->model, u, B, T, g->v->type, backward);
    if (bytes) effect(g, tensor(g, HT_WORKSPACE, u, -1, bytes), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
}

static void read_param(struct graph *g, int32_t u)
{
    if (g->v->cast) effect(g, g->w[u][0], HT_DEVICE, HT_NEED);
    effect(g, g->param[u], HT_DEVICE, g->v->cast ? HT_PRODUCE | HT_RELEASE : HT_NEED);
}

static bool dropped(const struct graph *g, int32_t u)
{
    return g->v->recompute && u >= 1 && u <= L;
}

static void activations(struct graph *g, int32_t u, int32_t j, unsigned flags)
{
    for (int i = 0; i < PARTS; i++) effect(g, g->a[u][j][i], HT_DEVICE, flags);
}

static void move(struct graph *g, int32_t t, int32_t u, int32_t j, bool back)
{
    ht_add_op(g->s, HT_OP_COPY, back ? g->h2d : g->d2h, about(u, 1, j), g->other);
    effect(g, t, back ? HT_HOST : HT_DEVICE, HT_NEED | HT_RELEASE);
    effect(g, t, back ? HT_DEVICE : HT_HOST, HT_PRODUCE);
}

static bool in_parts(const struct graph *g, int32_t u)
{
    return g->v->parts && !g->v->segment && u >= 1 && u <= L;
}

/* Makes again a row of some sub-ops, or these in the row of all. What is not read is not among the effects. */
static void remake(struct graph *g, int32_t u, int32_t j, unsigned sub_ops, int row)
{
    struct ht_label label = about(u, 1, j);
    label.sub_ops = sub_ops;
    struct ht_sub_op_reads reads = ht_sub_ops_read(sub_ops & ~SUB(FC2));
    ht_add_op(g->s, HT_OP_RECOMPUTE, g->gpu, label, g->pass);
    read_param(g, u);
    if (reads.input) effect(g, g->x[u][j], HT_DEVICE, HT_NEED);
    effect(g, g->a[u][j][row], HT_DEVICE, in_parts(g, u) ? HT_PRODUCE : HT_UPDATE);
    for (int i = 0; i < PARTS && in_parts(g, u); i++)
        if (part[i] & reads.sub_ops) effect(g, g->a[u][j][i], HT_DEVICE, HT_NEED);
    if (sub_ops & SUB(ATTENTION)) workspace(g, u, false);
}

static void forward(struct graph *g, int32_t u, int32_t j)
{
    ht_add_op(g->s, HT_OP_FORWARD, g->gpu, about(u, 1, j), g->pass);
    read_param(g, u);
    if (u == L + 1 && g->model.tied) read_param(g, 0);
    effect(g, g->x[u][j], HT_DEVICE, HT_NEED);
    for (int i = 0; i < PARTS; i++) {
        bool drop = dropped(g, u) || (in_parts(g, u) && part_again[i]);
        effect(g, g->a[u][j][i], HT_DEVICE, drop ? HT_PRODUCE | HT_RELEASE : HT_PRODUCE);
    }
    effect(g, u == L + 1 ? g->logits[j] : g->x[u + 1][j], HT_DEVICE, HT_PRODUCE);
    workspace(g, u, false);
    if (in_parts(g, u)) move(g, g->a[u][j][MOVED], u, j, false);
}

static void backward(struct graph *g, int32_t u, int32_t j)
{
    if (dropped(g, u)) {
        ht_add_op(g->s, HT_OP_RECOMPUTE, g->gpu, about(u, 1, j), g->pass);
        read_param(g, u);
        effect(g, g->x[u][j], HT_DEVICE, HT_NEED);
        activations(g, u, j, HT_PRODUCE);
        workspace(g, u, false);
    }
    if (in_parts(g, u)) move(g, g->a[u][j][MOVED], u, j, true);
    for (int i = 0; i < PARTS && in_parts(g, u); i++)
        if (part_again[i]) remake(g, u, j, part[i], i);
    if (g->v->again && u >= 1 && u <= L) remake(g, u, j, g->v->again, 0);
    bool head = u == L + 1, tied = g->model.tied;
    ht_add_op(g->s, HT_OP_BACKWARD, g->gpu, about(u, 1, j), g->pass);
    read_param(g, u);
    if (head && tied) read_param(g, 0);
    effect(g, head ? g->logits[j] : g->d[u + 1][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    effect(g, g->x[u][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    activations(g, u, j, HT_NEED | HT_RELEASE);
    effect(g, g->d[u][j], HT_DEVICE, HT_PRODUCE);
    effect(g, g->fresh[u][j], HT_DEVICE, u == 0 && tied ? HT_UPDATE : HT_PRODUCE);
    if (head && tied) effect(g, g->fresh[0][j], HT_DEVICE, HT_PRODUCE);
    workspace(g, u, true);
}

/* All units in one op each way. The workspace of a block serves the head too: it is larger. */
static void fused(struct graph *g, int32_t j)
{
    ht_add_op(g->s, HT_OP_FORWARD, g->gpu, about(0, UNITS, j), g->pass);
    for (int32_t u = 0; u < UNITS; u++) {
        read_param(g, u);
        effect(g, g->x[u][j], HT_DEVICE, HT_PRODUCE);
        activations(g, u, j, HT_PRODUCE);
        workspace(g, u, false);
    }
    effect(g, g->logits[j], HT_DEVICE, HT_PRODUCE);
    ht_add_op(g->s, HT_OP_BACKWARD, g->gpu, about(0, UNITS, j), g->pass);
    for (int32_t u = 0; u < UNITS; u++) {
        read_param(g, u);
        effect(g, g->x[u][j], HT_DEVICE, HT_NEED | HT_RELEASE);
        activations(g, u, j, HT_NEED | HT_RELEASE);
        effect(g, g->d[u][j], HT_DEVICE, HT_PRODUCE | HT_RELEASE);
        effect(g, g->fresh[u][j], HT_DEVICE, HT_PRODUCE);
        workspace(g, u, true);
    }
    effect(g, g->logits[j], HT_DEVICE, HT_NEED | HT_RELEASE);
}

/* Blocks 1 .. L at once. Forward passes X(2) .. X(L) on and drops them; the recomputation makes them anew. */
static void segment(struct graph *g, enum ht_op_kind kind, int32_t j)
{
    bool again = kind == HT_OP_RECOMPUTE;
    unsigned flags = again ? HT_PRODUCE : HT_PRODUCE | HT_RELEASE;
    ht_add_op(g->s, kind, g->gpu, about(1, L, j), g->pass);
    effect(g, g->x[1][j], HT_DEVICE, HT_NEED);
    for (int32_t u = 1; u <= L; u++) {
        read_param(g, u);
        activations(g, u, j, flags);
        if (u > 1) effect(g, g->x[u][j], HT_DEVICE, flags);
    }
    if (!again) effect(g, g->x[L + 1][j], HT_DEVICE, HT_PRODUCE);
    workspace(g, 1, false);
}

static void step(struct graph *g, int32_t u, int32_t validate)
{
    enum ht_tier home = g->v->offload ? HT_HOST : HT_DEVICE;
    if (g->v->offload) {
        ht_add_op(g->s, HT_OP_COPY, g->d2h, about(u, 1, -1), g->other);
        effect(g, g->grad[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        effect(g, g->grad[u], HT_HOST, HT_PRODUCE);
    }
    ht_add_op(g->s, HT_OP_OPTIMIZER_STEP, g->v->offload ? g->cpu : g->gpu, about(u, 1, -1), g->other);
    ht_op_after(g->s, validate);
    if (!g->v->cast) effect(g, g->param[u], home, HT_UPDATE);
    for (int i = 0; i < 2; i++) {
        effect(g, g->w[u][i], home, HT_UPDATE);
        effect(g, g->m[u][i], home, HT_UPDATE);
        effect(g, g->vv[u][i], home, HT_UPDATE);
    }
    effect(g, g->grad[u], home, HT_NEED | HT_RELEASE);
    if (!g->v->offload) return;
    ht_add_op(g->s, HT_OP_COPY, g->h2d, about(u, 1, -1), g->other);
    effect(g, g->param[u], HT_HOST, HT_NEED);
    effect(g, g->param[u], HT_DEVICE, HT_UPDATE);
}

static void micro_batch(struct graph *g, int32_t j)
{
    if (g->v->fused) fused(g, j);
    for (int32_t u = 0; u < UNITS && !g->v->fused; u++) {
        bool inside = g->v->segment && u >= 1 && u <= L;
        if (!inside) forward(g, u, j);
        if (inside && u == 1) segment(g, HT_OP_FORWARD, j);
    }
    for (int32_t u = UNITS - 1; u >= 0 && !g->v->fused; u--) {
        if (g->v->segment && u == L) segment(g, HT_OP_RECOMPUTE, j);
        backward(g, u, j);
    }
    for (int32_t u = UNITS - 1; u >= 0 && j; u--) {
        ht_add_op(g->s, HT_OP_ACCUMULATE, g->gpu, about(u, 1, j), g->other);
        effect(g, g->grad[u], HT_DEVICE, HT_UPDATE);
        effect(g, g->fresh[u][j], HT_DEVICE, HT_NEED | HT_RELEASE);
    }
}

static void build(struct graph *g, const struct variant *v)
{
    *g = (struct graph){.v = v, .model = model_of(v), .s = ht_schedule_create("test", 1, 1, NULL)};
    g->gpu = ht_add_lane(g->s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    g->h2d = ht_add_lane(g->s, "h2d", HT_LANE_H2D, 0, HT_FIFO);
    g->d2h = ht_add_lane(g->s, "d2h", HT_LANE_D2H, 0, HT_PRIORITY);
    g->cpu = ht_add_lane(g->s, "cpu", HT_LANE_HOST, 0, HT_PRIORITY);
    g->s->n_units = UNITS;
    g->s->n_micro_batches = v->n_mb;
    g->pass = ht_add_work(g->s, &(struct ht_work){.batch = B, .seq = T});
    g->other = ht_add_work(g->s, &(struct ht_work){.bytes = 1});
    add_tensors(g);
    for (int32_t j = 0; j < v->n_mb; j++) micro_batch(g, j);
    int32_t validate = -1;
    if (v->validate) {
        validate = ht_add_op(g->s, HT_OP_VALIDATE, g->gpu, about(-1, 0, -1), g->other);
        for (int32_t u = 0; u < UNITS; u++) effect(g, g->grad[u], HT_DEVICE, HT_NEED);
    }
    for (int32_t u = 0; u < UNITS; u++) step(g, u, validate);
    ht_schedule_link(g->s);
}

/* ---- running it ---- */

struct hooks {
    struct ht_cpu *cpu;
    const struct graph *g;
    struct outcome *o;
    bool spoil; /* the initial parameters of unit 1 with a NaN */
};

static enum ht_status init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct hooks *h = ctx;
    enum ht_status status = ht_cpu_init(h->cpu, &h->g->s->tensors[b.tensor], b, err);
    (void)space;
    if (h->spoil && b.tensor == h->g->param[1]) *(float *)b.data = NAN;
    return status;
}

static enum ht_status final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct hooks *h = ctx;
    (void)space, (void)err;
    for (int32_t u = 0; u < UNITS; u++) {
        const struct ht_tensor *t = &h->g->s->tensors[b.tensor];
        if (!h->o->master[u]) h->o->master[u] = HT_NEW_ARRAY(float, ht_unit_params(&h->g->model, u));
        for (int i = 0; i < 2; i++)
            if (b.tensor == h->g->w[u][i]) memcpy(h->o->master[u] + t->shard_begin, b.data, (size_t)b.bytes);
        if (b.tensor != h->g->param[u]) continue;
        if (!h->o->param[u]) h->o->param[u] = memcpy(ht_alloc((size_t)b.bytes), b.data, (size_t)b.bytes);
        ck_assert_mem_eq(h->o->param[u], b.data, (size_t)b.bytes); /* equal on the device and on the host */
    }
    return HT_OK;
}

static struct ht_cpu_options options_of(const struct variant *v, double *losses, const struct ht_cpu_split *split)
{
    return (struct ht_cpu_options){.model = model_of(v),
                                   .numerics = numerics_of(v),
                                   .tokens_per_iteration = (int64_t)v->n_mb * B * T,
                                   .seed = SEED,
                                   .adamw = adamw,
                                   .data = data,
                                   .losses = losses,
                                   .control = {.loss_scale = v->type == HT_F16 ? 64 : 0},
                                   .split = split};
}

static enum ht_status train(const struct variant *v, struct graph *g, const struct ht_cpu_split *split, bool spoil,
                            struct outcome *o, struct ht_trace **t, struct ht_error *err)
{
    struct ht_cpu_options co = options_of(v, o->losses, split);
    struct hooks h = {.g = g, .o = o, .spoil = spoil};
    ck_assert_msg(ht_cpu_create(&co, err, &h.cpu) == HT_OK, "%s", err->text);
    struct ht_arena *arenas[4] = {0};
    for (int i = 0; i < 2; i++) ck_assert_int_eq(ht_arena_create(8 << 20, 8 << 20, false, err, &arenas[i]), HT_OK);
    struct ht_run_options ro = {
        .iterations = ITERATIONS, .backend = &ht_cpu_backend, .backend_ctx = h.cpu, .arenas = arenas};
    enum ht_status status = run_filled(g->s, ro, init, final, &h, err, t);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ht_arena_stats(arenas[i]).live_bytes, 0);
        ht_arena_destroy(arenas[i]);
    }
    ht_cpu_destroy(h.cpu);
    return status;
}

static void compare_with_plain(const struct variant *v, const struct outcome *run)
{
    struct ht_model model = model_of(v);
    struct ht_numerics numerics = numerics_of(v);
    struct ht_plain *plain = ht_plain_create(&model, &numerics, B, T, NULL, SEED);
    double scale = v->type == HT_F16 ? 64 : 1;
    for (int k = 0; k < ITERATIONS; k++) {
        double plainly = ht_plain_step(plain, v->n_mb, tokens[k][0], targets[k][0], &adamw, scale), sum = 0;
        for (int j = 0; j < v->n_mb; j++) sum += run->losses[k * v->n_mb + j];
        double loss = sum / (double)(v->n_mb * B * T);
        ck_assert_msg(memcmp(&loss, &plainly, sizeof(loss)) == 0, "loss %d: %.17g, plainly %.17g", k, loss, plainly);
        if (k == 0) ck_assert_double_eq_tol(loss, 3.61, 0.1); /* ln(37) = 3.6109: nothing is known yet */
    }
    for (int u = 0; u < UNITS; u++) {
        int64_t n = ht_unit_params(&model, u);
        const float *master = ht_plain_params(plain, u);
        void *param = HT_NEW_ARRAY(float, n);
        ht_round_copy(NULL, master, param, v->type, n);
        if (!v->cast) ck_assert_mem_eq(run->param[u], param, (size_t)(n * ht_dtype_bytes(v->type)));
        if (v->type != HT_F32) ck_assert_mem_eq(run->master[u], master, 4 * (size_t)n);
        free(param);
    }
    ht_plain_destroy(plain);
}

static void compare(const struct variant *v, const struct ht_cpu_split *split)
{
    struct outcome run = {0};
    struct ht_error err = {0};
    struct ht_trace *t;
    struct graph g;
    build(&g, v);
    ck_assert_msg(ht_schedule_verify(g.s, &err, NULL) == HT_OK, "%s", err.text);
    ck_assert_msg(train(v, &g, split, false, &run, &t, &err) == HT_OK, "%s", err.text);
    compare_with_plain(v, &run);
    ht_trace_destroy(t);
    ht_schedule_destroy(g.s);
    free_outcome(&run);
}

static const struct variant variants[] = {
    {.n_mb = 1},
    {.n_mb = 1, .tied = true},
    {.n_mb = 1, .tied = true, .flash = true},
    {.n_mb = 3, .tied = true},
    {.n_mb = 2, .tied = true, .recompute = true},
    {.n_mb = 2, .flash = true, .recompute = true, .validate = true},
    {.n_mb = 2, .tied = true, .offload = true},
    {.n_mb = 3, .tied = true, .offload = true, .recompute = true, .flash = true},
    {.n_mb = 2, .tied = true, .fused = true},
    {.n_mb = 1, .fused = true, .offload = true, .validate = true},
    {.n_mb = 2, .tied = true, .flash = true, .segment = true},
    {.n_mb = 2, .tied = true, .shards = true},
    {.n_mb = 2, .tied = true, .shards = true, .offload = true, .recompute = true, .validate = true},
    {.n_mb = 1, .llama = true},
    {.n_mb = 3, .llama = true, .tied = true, .offload = true, .recompute = true, .flash = true},
    {.n_mb = 2, .llama = true, .segment = true, .flash = true},
    {.n_mb = 2, .llama = true, .fused = true, .shards = true, .validate = true},
    {.n_mb = 1, .type = HT_BF16, .tied = true},
    {.n_mb = 3, .type = HT_BF16, .tied = true, .offload = true, .recompute = true, .flash = true},
    {.n_mb = 2, .type = HT_F16, .sums16 = true, .shards = true, .offload = true},
    {.n_mb = 2, .type = HT_F16, .fused = true, .validate = true, .tied = true},
    {.n_mb = 2, .type = HT_BF16, .cast = true, .tied = true, .recompute = true},
    {.n_mb = 2, .type = HT_F16, .cast = true, .segment = true, .llama = true, .sums16 = true},
    {.n_mb = 1, .type = HT_BF16, .cast = true, .fused = true, .tied = true, .flash = true},
    {.n_mb = 3, .type = HT_BF16, .llama = true, .tied = true, .shards = true, .validate = true},
    {.n_mb = 2, .parts = true, .tied = true},
    {.n_mb = 3, .parts = true, .llama = true, .flash = true, .offload = true},
    {.n_mb = 2, .parts = true, .type = HT_BF16, .cast = true, .tied = true},
    {.n_mb = 2, .parts = true, .type = HT_F16, .llama = true, .segment = true},
    {.n_mb = 2, .parts = true, .fused = true, .flash = true},
    {.n_mb = 2, .again = SUB(QKV) | SUB(PROJ) | SUB(GELU)},
    {.n_mb = 1, .again = SUB(ATTENTION) | SUB(FC2), .type = HT_BF16, .flash = true, .llama = true},
};

START_TEST(test_variants)
{
    compare(&variants[_i], NULL);
}
END_TEST

START_TEST(test_with_pinned_cores)
{
    struct ht_cpu_split split;
    struct ht_error err = {0};
    ck_assert_msg(ht_cpu_split_cores(0, &err, &split) == HT_OK, "%s", err.text);
    /* More than one device core may sum in another order than the plain loop's one worker: see unit.h. */
    if (split.n_device > 1) split.n_device = 1;
    compare(&variants[7], &split);
}
END_TEST

START_TEST(test_validate_sees_a_nan)
{
    struct variant v = {.n_mb = 1, .validate = true};
    struct graph g;
    build(&g, &v);
    int32_t id = ht_add_op(g.s, HT_OP_COPY, g.d2h, about(-1, 0, -1), g.other); /* runs only when all is well */
    for (int32_t op = 0; op < id; op++)
        if (g.s->ops[op].kind == HT_OP_VALIDATE) ht_op_after(g.s, op);
    ht_op_when(g.s, HT_WHEN_OK);
    for (int spoil = 0; spoil < 2; spoil++) {
        struct outcome o = {0};
        struct ht_error err = {0};
        struct ht_trace *t;
        ck_assert_msg(train(&v, &g, NULL, spoil, &o, &t, &err) == HT_OK, "%s", err.text);
        ck_assert_int_eq(t->events[id].grant_seq >= 0, !spoil);
        ht_trace_destroy(t);
        free_outcome(&o);
    }
    ht_schedule_destroy(g.s);
}
END_TEST

/* ---- what is refused ---- */

/* Builds the plain variant, lets `spoil` break it, and expects the complaint. */
static void refused(const struct variant *variant, void (*spoil)(struct graph *g), const char *text)
{
    struct variant v = *variant;
    struct graph g;
    struct outcome o = {0};
    struct ht_error err = {0};
    struct ht_trace *t;
    build(&g, &v);
    spoil(&g);
    ck_assert_int_eq(train(&v, &g, NULL, false, &o, &t, &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, text) && strstr(err.text, "on the cpu backend"), "%s", err.text);
    ck_assert_ptr_null(t);
    ht_schedule_destroy(g.s);
}

static void expect_refusal(void (*spoil)(struct graph *g), const char *text)
{
    refused(&(struct variant){.n_mb = 1, .tied = true}, spoil, text);
}

static void lose_effect(struct graph *g)
{
    g->s->effects[g->s->effects_begin[0]].flags = HT_RELEASE;
}
static void grow_tensor(struct graph *g)
{
    g->s->tensors[g->x[1][0]].bytes += 4;
}
static void shrink_workspace(struct graph *g)
{
    for (int32_t i = 0; i < g->s->n_tensors; i++)
        if (g->s->tensors[i].class == HT_WORKSPACE) g->s->tensors[i].bytes = 64;
}
static void move_lane(struct graph *g)
{
    g->s->ops[0].lane = g->h2d;
}
static void lonely_collective(struct graph *g)
{
    g->s->ops[0].kind = HT_OP_ALL_GATHER;
}
static void part_of_block(struct graph *g)
{
    g->s->ops[1].label.sub_ops = 1;
}
static void lonely_part(struct graph *g)
{
    g->s->works[g->pass].tp = 2;
}
static void three_parts(struct graph *g)
{
    g->s->works[g->pass].tp = 3;
    for (int32_t op = 0; op < 3; op++) g->s->ops[op].match = 0;
}
static void beyond_model(struct graph *g)
{
    g->s->ops[0].label.n_units = UNITS + 1;
}
static void long_sequence(struct graph *g)
{
    g->s->works[g->pass].seq = 25;
}
static void wrong_micro_batch(struct graph *g)
{
    g->s->ops[0].label.micro_batch = 1;
}
static void momentless(struct graph *g)
{
    for (int32_t u = 0; u < UNITS; u++) g->s->tensors[g->m[u][0]].class = HT_STAGING;
}
static void copy_from_nowhere(struct graph *g)
{
    ht_add_op(g->s, HT_OP_COPY, g->h2d, about(0, 1, -1), g->other);
    ht_op_effect(g->s, g->param[0], HT_DEVICE, HT_UPDATE);
}

/* The first op of a kind that is about block 1, and its effect on one of the rows of that block. */
static struct ht_effect *on_part(struct graph *g, enum ht_op_kind kind, int row)
{
    for (int32_t op = 0; op < g->s->n_ops; op++)
        for (int64_t e = g->s->effects_begin[op]; e < g->s->effects_begin[op + 1]; e++)
            if (g->s->ops[op].kind == kind && g->s->effects[e].tensor == g->a[1][0][row]) return &g->s->effects[e];
    ck_abort_msg("no such effect");
    return NULL;
}
static void lose_part(struct graph *g)
{
    on_part(g, HT_OP_BACKWARD, 2)->tensor = g->logits[0];
}
static void lose_source(struct graph *g)
{
    on_part(g, HT_OP_RECOMPUTE, 2)->tensor = g->logits[0];
}
static void not_kept(struct graph *g)
{
    on_part(g, HT_OP_FORWARD, 0)->tensor = g->logits[0];
}
static void same_part_twice(struct graph *g)
{
    struct ht_tensor *t = &g->s->tensors[g->a[1][0][2]];
    t->label.sub_ops |= SUB(QKV);
    t->bytes = ht_sub_ops_activation_bytes(&g->model, t->label.sub_ops, B, T, g->v->type);
}
static void part_too_large(struct graph *g)
{
    g->s->tensors[g->a[1][0][3]].bytes += 64;
}
static void more_than_is_made(struct graph *g)
{
    for (int32_t op = 0; op < g->s->n_ops; op++)
        if (g->s->ops[op].kind == HT_OP_RECOMPUTE) g->s->ops[op].label.sub_ops &= ~SUB(QKV);
}
static void output_without_fc2(struct graph *g)
{
    struct ht_effect *e = on_part(g, HT_OP_RECOMPUTE, 0);
    e->tensor = g->x[2][0];
}

START_TEST(test_parts_refused)
{
    const struct variant v = {.n_mb = 1, .parts = true}, again = {.n_mb = 1, .again = SUB(GELU)};
    refused(&v, lose_part, "no effect reads proj, fc1 of the activation of unit 1, micro-batch 0 in device memory");
    refused(&v, lose_source, "no effect reads fc1 of the activation of unit 1, micro-batch 0");
    refused(&v, not_kept, "no effect writes norm1, qkv of the activation of unit 1, micro-batch 0");
    refused(&v, same_part_twice, "two effects write qkv of the activation of unit 1, micro-batch 0");
    refused(&v, part_too_large, "16448 bytes for gelu, fc2, expected 16384");
    refused(&v, more_than_is_made, "produces qkv of the activation of unit 2, micro-batch 0 without filling it in");
    refused(&again, output_without_fc2, "makes the output of unit 1 without fc2");
}
END_TEST

START_TEST(test_refusals)
{
    expect_refusal(lose_effect, "no effect reads the param of unit 0 in device memory");
    expect_refusal(grow_tensor, "the checkpoint of unit 1, micro-batch 0 has 4100 bytes, expected 4096");
    expect_refusal(shrink_workspace, "the workspace has 64 bytes, expected");
    expect_refusal(move_lane, "forward on a h2d lane; expected a compute or host lane");
    expect_refusal(lonely_collective, "has the group -1");
    expect_refusal(part_of_block, "some sub-ops only");
    expect_refusal(lonely_part, "works on one of 2 parts in a group of 1");
    expect_refusal(three_parts, "works on one of 3 parts, which do not divide the 2 heads");
    expect_refusal(beyond_model, "units 0 to 4 of a model with 4");
    expect_refusal(long_sequence, "sequence 25 (the longest is 24)");
    expect_refusal(wrong_micro_batch, "micro-batch 1 of 1");
    expect_refusal(momentless, "updates no momentum in device memory");
    expect_refusal(copy_from_nowhere, "reads it nowhere else");
}
END_TEST

/* The embedding begins a gradient that the head has begun: the backend would take it for a row of its own. */
START_TEST(test_table_begun_twice)
{
    struct variant v = {.n_mb = 1, .tied = true};
    struct ht_error err = {0};
    struct graph g;
    build(&g, &v);
    for (int32_t op = 0; op < g.s->n_ops; op++)
        if (g.s->ops[op].kind == HT_OP_BACKWARD && g.s->ops[op].label.unit == 0)
            for (int64_t e = g.s->effects_begin[op]; e < g.s->effects_begin[op + 1]; e++)
                if (g.s->effects[e].tensor == g.grad[0]) g.s->effects[e].flags = HT_PRODUCE;
    ck_assert_int_eq(ht_schedule_verify(g.s, &err, NULL), HT_FAILED);
    ck_assert_msg(strstr(err.text, "grad"), "%s", err.text);
    ht_schedule_destroy(g.s);
}
END_TEST

START_TEST(test_models_and_numerics_refused)
{
    struct variant v = {.n_mb = 1};
    struct ht_error err = {0};
    struct ht_cpu *cpu;
    struct ht_cpu_options o = options_of(&v, NULL, NULL);
    o.model.dropout = true;
    ck_assert_int_eq(ht_cpu_create(&o, &err, &cpu), HT_INFEASIBLE);
    o = options_of(&v, NULL, NULL);
    o.numerics.grad = HT_BF16;
    ck_assert_int_eq(ht_cpu_create(&o, &err, &cpu), HT_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "f32/bf16/f32/f32"), "%s", err.text);
    ht_cpu_destroy(NULL);
}
END_TEST

START_TEST(test_split)
{
    struct ht_cpu_split split, least;
    struct ht_error err = {0};
    ck_assert_int_eq(ht_cpu_split_cores(0, &err, &split), HT_OK);
    ck_assert_int_eq(ht_cpu_split_cores(1, &err, &least), HT_OK);
    ck_assert_int_eq(least.n_device, 1);
    int n = split.shared ? 1 : split.n_device + split.n_host;
    ck_assert_int_eq(split.shared, n == 1);
    ck_assert(split.n_device >= 1 && split.n_host >= 1);
    for (int i = 0; i < split.n_device && !split.shared; i++)
        for (int k = 0; k < split.n_host; k++) ck_assert_int_ne(split.device[i], split.host[k]);
    ck_assert_int_eq(ht_cpu_split_cores(split.shared ? 2 : n, &err, &split), HT_BAD_INPUT);
    ck_assert_int_eq(ht_cpu_split_cores(-1, &err, &split), HT_BAD_INPUT);
}
END_TEST

int main(void)
{
    draw_batches();
    Suite *s = suite_create("cpu");
    TCase *tc = tcase_create("cpu");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, test_variants, 0, (int)HT_COUNT(variants));
    tcase_add_test(tc, test_with_pinned_cores);
    tcase_add_test(tc, test_validate_sees_a_nan);
    tcase_add_test(tc, test_refusals);
    tcase_add_test(tc, test_table_begun_twice);
    tcase_add_test(tc, test_parts_refused);
    tcase_add_test(tc, test_models_and_numerics_refused);
    tcase_add_test(tc, test_split);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
