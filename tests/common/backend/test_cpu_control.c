/*
 * Tests overflow, loss scale and clipping on the CPU backend.
 *
 * Runs schedules made by hand, one that waits for the final check (gate) and one that steps at once and undoes
 * (rollback), in all numerics, with faults in random gradients. Losses, parameters, momentum, variance and loss scales
 * must be those of the rule in control_rule.h, bit for bit.
 */
#include "common/kernels/undo.h"
#include "common/mem/arena.h"
#include "common/schedule/verify.h"
#include "tests/common/backend/control_rule.h"
#include "tests/support/filled.h"

#include <check.h>
#include <string.h>

/* ---- the schedules ---- */

struct graph {
    const struct variant *v;
    struct ht_schedule *s;
    enum ht_tier home; /* of the optimizer */
    int32_t gpu, h2d, d2h, cpu, optimizer, work, pass;
    int32_t param[UNITS], master[UNITS], grad[UNITS], m[UNITS], vv[UNITS], log[UNITS];
    int32_t final_check;
};

static struct ht_label about(int32_t unit, int32_t n_units, int32_t mb)
{
    return (struct ht_label){.unit = unit, .n_units = n_units, .sub_ops = HT_ALL_SUB_OPS, .micro_batch = mb};
}

static int32_t tensor(struct graph *g, enum ht_tensor_class class, int32_t u, int32_t mb, int64_t bytes)
{
    return ht_add_tensor(g->s, (struct ht_tensor){.class = class, .label = about(u, 1, mb), .bytes = bytes});
}

static void effect(struct graph *g, int32_t t, enum ht_tier tier, unsigned flags)
{
    if (t >= 0) ht_op_effect(g->s, t, tier, flags);
}

static bool has_master(const struct graph *g)
{
    return g->v->param != HT_F32;
}

static void add_states(struct graph *g)
{
    for (int32_t u = 0; u < UNITS; u++) {
        int64_t n = ht_unit_params(&model, u);
        g->param[u] = tensor(g, HT_PARAM, u, -1, n * ht_dtype_bytes(g->v->param));
        g->master[u] = has_master(g) ? tensor(g, HT_MASTER, u, -1, 4 * n) : -1;
        g->grad[u] = tensor(g, HT_GRAD, u, -1, n * ht_dtype_bytes(gradient_type(g->v)));
        g->m[u] = tensor(g, HT_MOMENTUM, u, -1, 4 * n);
        g->vv[u] = tensor(g, HT_VARIANCE, u, -1, 4 * n);
        g->log[u] =
            g->v->rollback ? tensor(g, HT_STAGING, u, -1, ht_undo_log_bytes(n, ht_undo_usual_exceptions(n))) : -1;
        ht_add_resident(g->s, g->param[u], HT_DEVICE, 0);
        if (g->v->offload && !g->v->made) ht_add_resident(g->s, g->param[u], HT_HOST, 0);
        const int32_t state[] = {g->master[u], g->m[u], g->vv[u], g->log[u]};
        for (size_t i = 0; i < HT_COUNT(state); i++)
            if (state[i] >= 0) ht_add_resident(g->s, state[i], g->home, 0);
    }
}

static void workspace(struct graph *g, int32_t u, bool backward)
{
    int64_t bytes = ht_unit_workspace_bytes(&model, u, B, T, g->v->param, backward);
    if (bytes) effect(g, tensor(g, HT_WORKSPACE, u, -1, bytes), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
}

/* Adds one forward and one backward op for all units of a micro-batch; later micro-batches add to the gradients. */
static void passes(struct graph *g, int32_t j)
{
    int32_t x[UNITS], a[UNITS], fresh[UNITS], logits = tensor(g, HT_LOGITS, L + 1, j, ht_logits_bytes(&model, B, T));
    ht_add_op(g->s, HT_OP_FORWARD, g->gpu, about(0, UNITS, j), g->pass);
    for (int32_t u = 0; u < UNITS; u++) {
        int64_t in = ht_unit_input_bytes(&model, u, B, T, g->v->param);
        int64_t kept = ht_unit_activation_bytes(&model, u, B, T, g->v->param);
        x[u] = in ? tensor(g, HT_CHECKPOINT, u, j, in) : -1;
        a[u] = kept ? tensor(g, HT_ACTIVATION, u, j, kept) : -1;
        effect(g, g->param[u], HT_DEVICE, HT_NEED);
        effect(g, x[u], HT_DEVICE, HT_PRODUCE);
        effect(g, a[u], HT_DEVICE, HT_PRODUCE);
        workspace(g, u, false);
    }
    effect(g, logits, HT_DEVICE, HT_PRODUCE);
    ht_add_op(g->s, HT_OP_BACKWARD, g->gpu, about(0, UNITS, j), g->pass);
    for (int32_t u = 0; u < UNITS; u++) {
        int64_t n = ht_unit_params(&model, u), in = ht_unit_input_bytes(&model, u, B, T, g->v->param);
        fresh[u] = j ? tensor(g, HT_GRAD, u, j, n * ht_dtype_bytes(g->v->param)) : g->grad[u];
        effect(g, g->param[u], HT_DEVICE, HT_NEED);
        effect(g, x[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        effect(g, a[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        if (in) effect(g, tensor(g, HT_ACT_GRAD, u, j, in), HT_DEVICE, HT_PRODUCE | HT_RELEASE);
        effect(g, fresh[u], HT_DEVICE, HT_PRODUCE);
        workspace(g, u, true);
    }
    effect(g, logits, HT_DEVICE, HT_NEED | HT_RELEASE);
    for (int32_t u = UNITS - 1; u >= 0 && j; u--) {
        ht_add_op(g->s, HT_OP_ACCUMULATE, g->gpu, about(u, 1, j), g->work);
        effect(g, fresh[u], HT_DEVICE, HT_NEED | HT_RELEASE);
        effect(g, g->grad[u], HT_DEVICE, HT_UPDATE);
    }
}

static void update(struct graph *g, enum ht_op_kind kind, int32_t u, unsigned param_flags, unsigned log_flags)
{
    ht_add_op(g->s, kind, g->optimizer, about(u, 1, -1), g->work);
    effect(g, g->param[u], g->home, param_flags);
    effect(g, g->master[u], g->home, HT_UPDATE);
    effect(g, g->grad[u], g->home, HT_NEED);
    effect(g, g->m[u], g->home, HT_UPDATE);
    effect(g, g->vv[u], g->home, HT_UPDATE);
    if (log_flags) effect(g, g->log[u], g->home, log_flags);
}

static void copy(struct graph *g, int32_t lane, int32_t u, int32_t t, enum ht_tier from, enum ht_tier to, unsigned then,
                 unsigned made)
{
    ht_add_op(g->s, HT_OP_COPY, lane, about(u, 1, -1), g->work);
    effect(g, t, from, HT_NEED | then);
    effect(g, t, to, made);
}

static void grad_check(struct graph *g, int32_t u)
{
    ht_add_op(g->s, HT_OP_VALIDATE, g->optimizer, about(u, 1, -1), g->work);
    effect(g, g->grad[u], g->home, HT_NEED);
}

static void add_final_check(struct graph *g)
{
    g->final_check = ht_add_op(g->s, HT_OP_VALIDATE, g->optimizer, about(-1, 0, -1), g->work);
    for (int32_t op = 0; op < g->final_check; op++)
        if (g->s->ops[op].kind == HT_OP_VALIDATE) ht_op_after(g->s, op);
}

static void when(struct graph *g, enum ht_when branch)
{
    ht_op_after(g->s, g->final_check);
    ht_op_when(g->s, branch);
}

static void gate(struct graph *g)
{
    for (int32_t u = UNITS - 1; u >= 0; u--) grad_check(g, u);
    add_final_check(g);
    for (int32_t u = UNITS - 1; u >= 0; u--) {
        update(g, HT_OP_OPTIMIZER_STEP, u, g->v->made ? HT_PRODUCE : HT_UPDATE, 0);
        when(g, HT_WHEN_OK);
        if (!g->v->made) continue;
        ht_add_op(g->s, HT_OP_RESTORE, g->optimizer, about(u, 1, -1), g->work);
        effect(g, g->master[u], g->home, HT_NEED);
        effect(g, g->param[u], g->home, HT_PRODUCE);
        when(g, HT_WHEN_BAD);
    }
}

static void rollback(struct graph *g)
{
    for (int32_t u = UNITS - 1; u >= 0; u--) grad_check(g, u);
    if (g->v->early) add_final_check(g);
    for (int32_t u = UNITS - 1; u >= 0; u--)
        update(g, HT_OP_OPTIMIZER_STEP, u, g->v->made ? HT_PRODUCE : HT_UPDATE, HT_UPDATE);
    if (!g->v->early) add_final_check(g);
    for (int32_t u = 0; u < UNITS; u++) {
        update(g, HT_OP_UNDO, u, HT_UPDATE, HT_NEED);
        when(g, HT_WHEN_BAD);
        if (g->v->clip == 0) continue;
        update(g, HT_OP_OPTIMIZER_STEP, u, HT_UPDATE, 0);
        when(g, HT_WHEN_BAD);
    }
}

static void build(struct graph *g, const struct variant *v)
{
    *g = (struct graph){
        .v = v, .s = ht_schedule_create("control", 1, 1, NULL), .home = v->offload ? HT_HOST : HT_DEVICE};
    g->gpu = ht_add_lane(g->s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    g->h2d = ht_add_lane(g->s, "h2d", HT_LANE_H2D, 0, HT_FIFO);
    g->d2h = ht_add_lane(g->s, "d2h", HT_LANE_D2H, 0, HT_FIFO);
    g->cpu = ht_add_lane(g->s, "cpu", HT_LANE_HOST, 0, HT_PRIORITY);
    g->optimizer = v->offload ? g->cpu : g->gpu;
    g->s->n_units = UNITS;
    g->s->n_micro_batches = v->n_mb;
    g->work = ht_add_work(g->s, &(struct ht_work){.bytes = 1});
    g->pass = ht_add_work(g->s, &(struct ht_work){.batch = B, .seq = T});
    add_states(g);
    for (int32_t j = 0; j < v->n_mb; j++) passes(g, j);
    for (int32_t u = UNITS - 1; u >= 0 && v->offload; u--)
        copy(g, g->d2h, u, g->grad[u], HT_DEVICE, HT_HOST, HT_RELEASE, HT_PRODUCE);
    if (v->rollback)
        rollback(g);
    else
        gate(g);
    for (int32_t u = 0; u < UNITS; u++) {
        if (v->offload) copy(g, g->h2d, u, g->param[u], HT_HOST, HT_DEVICE, v->made ? HT_RELEASE : 0, HT_UPDATE);
        ht_add_op(g->s, HT_OP_ACCUMULATE, g->optimizer, about(u, 1, -1), g->work); /* only frees */
        effect(g, g->grad[u], g->home, HT_RELEASE);
    }
    ht_schedule_link(g->s);
}

/* ---- running them ---- */

struct session {
    const struct graph *g;
    struct course *c;
    struct ht_cpu *cpu;
};

static enum ht_status data(void *ctx, int32_t iteration, int32_t micro_batch, const void **tok, const int32_t **tgt,
                           struct ht_error *err)
{
    (void)ctx, (void)err;
    *tok = tokens[iteration][micro_batch];
    *tgt = targets[iteration][micro_batch];
    return HT_OK;
}

static enum ht_status init(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct session *x = ctx;
    const struct ht_tensor *t = &x->g->s->tensors[b.tensor];
    (void)space;
    const void *kept[HT_N_TENSOR_CLASSES] = {[HT_PARAM] = x->c->p[t->label.unit],
                                             [HT_MASTER] = x->c->w[t->label.unit],
                                             [HT_MOMENTUM] = x->c->m[t->label.unit],
                                             [HT_VARIANCE] = x->c->v[t->label.unit]};
    if (!kept[t->class]) return ht_cpu_init(x->cpu, t, b, err); /* else it is kept from the previous run */
    memcpy(b.data, kept[t->class], (size_t)b.bytes);
    return HT_OK;
}

static void keep(void *slot, const struct ht_buffer *b)
{
    void **kept = slot;
    free(*kept);
    *kept = memcpy(ht_alloc((size_t)b->bytes), b->data, (size_t)b->bytes);
}

static enum ht_status final(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    struct session *x = ctx;
    (void)space, (void)err;
    for (int32_t u = 0; u < UNITS; u++) {
        if (b.tensor == x->g->param[u] && b.tier == HT_DEVICE) keep(&x->c->p[u], &b);
        if (b.tensor == (has_master(x->g) ? x->g->master[u] : x->g->param[u])) keep(&x->c->w[u], &b);
        if (b.tensor == x->g->m[u]) keep(&x->c->m[u], &b);
        if (b.tensor == x->g->vv[u]) keep(&x->c->v[u], &b);
    }
    return HT_OK;
}

static enum ht_status create(const struct variant *v, struct course *c, struct ht_error *err, struct ht_cpu **out)
{
    struct ht_cpu_options co = {.model = model,
                                .numerics = numerics_of(v),
                                .tokens_per_iteration = B * T * v->n_mb,
                                .seed = SEED,
                                .adamw = adamw,
                                .data = data,
                                .losses = c->losses,
                                .control = c->control,
                                .outcomes = c->outcomes,
                                .faults = c->faults,
                                .n_faults = FAULTS};
    return ht_cpu_create(&co, err, out);
}

static enum ht_status run(struct session *x, int32_t first, int32_t n, struct ht_error *err)
{
    struct ht_arena *arenas[4] = {0};
    for (int i = 0; i < 2; i++) ck_assert_int_eq(ht_arena_create(8 << 20, 8 << 20, false, err, &arenas[i]), HT_OK);
    struct ht_run_options ro = {.iterations = n, .backend = &ht_cpu_backend, .backend_ctx = x->cpu, .arenas = arenas};
    struct ht_trace *t;
    ht_cpu_set_first_iteration(x->cpu, first);
    enum ht_status status = run_filled(x->g->s, ro, init, final, x, err, &t);
    for (int i = 0; i < 2; i++) ht_arena_destroy(arenas[i]);
    ht_trace_destroy(t);
    return status;
}

/* Runs the iterations. After `cut` of them a second backend goes on, as after a checkpoint; 0: one backend runs all. */
static void train(const struct variant *v, struct course *c, int32_t cut)
{
    struct graph g;
    struct ht_error err = {0};
    build(&g, v);
    ck_assert_msg(ht_schedule_verify(g.s, &err, NULL) == HT_OK, "%s", err.text);
    struct session x = {.g = &g, .c = c};
    ck_assert_msg(create(v, c, &err, &x.cpu) == HT_OK, "%s", err.text);
    if (cut) {
        ck_assert_msg(run(&x, 0, cut, &err) == HT_OK, "%s", err.text);
        struct ht_cpu *before = x.cpu;
        ck_assert_msg(create(v, c, &err, &x.cpu) == HT_OK, "%s", err.text);
        ht_cpu_control_set(x.cpu, ht_cpu_control_get(before));
        for (int u = 0; u < UNITS; u++) {
            int64_t n = ht_unit_params(&model, u);
            ht_cpu_set_row_steps(x.cpu, u, 0, n, ht_cpu_row_steps(before, u, 0, n));
        }
        ht_cpu_destroy(before);
    }
    ck_assert_msg(run(&x, cut, ITERATIONS - cut, &err) == HT_OK, "%s", err.text);
    c->scaler = ht_cpu_control_get(x.cpu);
    c->steps = ht_cpu_row_steps(x.cpu, 0, 0, ht_unit_params(&model, 0));
    ht_cpu_destroy(x.cpu);
    ht_schedule_destroy(g.s);
}

static struct course draw(const struct variant *v, uint64_t seed)
{
    struct course c = {.control = {.clip = v->clip, .dynamic = true, .loss_scale = 65536, .growth = 2, .backoff = 0.5}};
    if (seed % 5 == 4) c.control.loss_scale = 0x1p40, c.control.backoff = 0x1p-12; /* F16: overflows at first */
    c.control.growth_interval = 1 + (int64_t)ht_random_below(seed, 99, 4);
    for (uint64_t f = 0; f < FAULTS; f++)
        c.faults[f] = (struct ht_cpu_fault){.iteration = (int32_t)ht_random_below(seed, 5 * f, ITERATIONS - 1),
                                            .unit = (int32_t)ht_random_below(seed, 5 * f + 1, UNITS),
                                            .micro_batch = (int32_t)ht_random_below(seed, 5 * f + 2, (uint64_t)v->n_mb),
                                            .element = (int64_t)ht_random_below(seed, 5 * f + 3, 1 << 20),
                                            .kind = (enum ht_cpu_fault_kind)ht_random_below(seed, 5 * f + 4, 3)};
    return c;
}

static void compare(const struct variant *v, const struct course *got, const struct course *expected)
{
    for (int k = 0; k < ITERATIONS; k++) {
        const struct ht_cpu_iteration *x = &got->outcomes[k], *y = &expected->outcomes[k];
        bool good = y->outcome == HT_CPU_OK, redone = v->rollback && y->clip_factor < 1;
        ck_assert_msg(x->loss_scale == y->loss_scale, "iteration %d: loss scale %g, not %g", k, x->loss_scale,
                      y->loss_scale);
        ck_assert_int_eq(x->outcome, good && redone ? HT_CPU_REDONE : y->outcome);
        ck_assert(!good || (x->norm == y->norm && x->clip_factor == y->clip_factor));
    }
    ck_assert_mem_eq(got->losses, expected->losses, sizeof(double) * (size_t)(ITERATIONS * v->n_mb));
    ck_assert(got->scaler.scale == expected->scaler.scale && got->scaler.good == expected->scaler.good);
    ck_assert_int_eq(got->steps, expected->steps);
    for (int u = 0; u < UNITS; u++) {
        size_t n = (size_t)ht_unit_params(&model, u);
        ck_assert_mem_eq(got->w[u], expected->w[u], 4 * n);
        ck_assert_mem_eq(got->m[u], expected->m[u], 4 * n);
        ck_assert_mem_eq(got->v[u], expected->v[u], 4 * n);
        ck_assert_mem_eq(got->p[u], expected->p[u], n * (size_t)ht_dtype_bytes(v->param));
    }
}

static const struct variant variants[] = {
    {.param = HT_F32, .n_mb = 1},
    {.param = HT_F32, .n_mb = 2, .offload = true, .clip = 1},
    {.param = HT_F32, .n_mb = 1, .rollback = true},
    {.param = HT_F32, .n_mb = 1, .rollback = true, .offload = true, .clip = 1},
    {.param = HT_F16, .n_mb = 1},
    {.param = HT_F16, .n_mb = 1, .offload = true, .made = true, .clip = 1},
    {.param = HT_F16, .n_mb = 2, .sum_f32 = true, .offload = true},
    {.param = HT_F16, .n_mb = 1, .rollback = true, .offload = true},
    {.param = HT_F16, .n_mb = 2, .sum_f32 = true, .rollback = true, .offload = true, .made = true, .clip = 1},
    {.param = HT_F16, .n_mb = 2, .rollback = true, .early = true, .clip = 1},
    {.param = HT_BF16, .n_mb = 2, .clip = 1},
    {.param = HT_BF16, .n_mb = 1, .offload = true, .made = true},
    {.param = HT_BF16, .n_mb = 1, .rollback = true, .offload = true, .made = true},
    {.param = HT_BF16, .n_mb = 2, .sum_f32 = true, .rollback = true, .offload = true, .early = true, .clip = 1},
    {.param = HT_BF16, .n_mb = 2, .rollback = true, .clip = 1},
};

/* Counts each event: a test without skipped or clipped iterations would prove nothing. */
struct tally {
    int skipped, clipped, whole;
};

static void count(struct tally *t, const struct course *c)
{
    for (int k = 0; k < ITERATIONS; k++) {
        bool good = c->outcomes[k].outcome == HT_CPU_OK;
        t->skipped += !good;
        t->clipped += good && c->outcomes[k].clip_factor < 1;
        t->whole += good && c->outcomes[k].clip_factor == 1;
    }
}

START_TEST(test_as_the_rule_says)
{
    const struct variant *v = &variants[_i];
    struct tally t = {0};
    for (uint64_t seed = 0; seed < COURSES; seed++) {
        struct course expected = draw(v, seed), got = expected;
        run_plain(v, &expected);
        train(v, &got, seed % 3 ? 0 : 5);
        compare(v, &got, &expected);
        count(&t, &expected);
        course_free(&got);
        course_free(&expected);
    }
    ck_assert_msg(t.skipped > COURSES && t.whole > 0 && (t.clipped > COURSES) == (v->clip > 0),
                  "%d skipped, %d clipped, %d whole", t.skipped, t.clipped, t.whole);
}
END_TEST

/* ---- what is refused ---- */

static void no_final_check(struct graph *g)
{
    g->s->ops[g->final_check].kind = HT_OP_ACCUMULATE;
}
static void two_final_checks(struct graph *g)
{
    for (int32_t op = 0; op < g->final_check; op++)
        if (g->s->ops[op].kind == HT_OP_VALIDATE && g->s->ops[op].label.unit == 1) g->s->ops[op].label.unit = -1;
}
static void not_checked(struct graph *g)
{
    for (int32_t op = 0; op < g->final_check; op++)
        for (int64_t e = g->s->effects_begin[op]; e < g->s->effects_begin[op + 1]; e++)
            if (g->s->ops[op].kind == HT_OP_VALIDATE && g->s->ops[op].label.unit == 2)
                g->s->effects[e].tensor = g->grad[1];
}
static void does_not_wait(struct graph *g) /* does not wait for all partials, on a PRIORITY lane */
{
    int64_t begin = g->s->deps_begin[g->final_check];
    for (int64_t k = begin; k < g->s->deps_begin[g->final_check + 1]; k++) g->s->deps[k] = g->s->deps[begin];
}
static void step_regardless(struct graph *g)
{
    for (int32_t op = 0; op < g->s->n_ops; op++) g->s->ops[op].when = HT_ALWAYS;
}
static void no_redo(struct graph *g)
{
    for (int32_t op = g->final_check; op < g->s->n_ops; op++)
        if (g->s->ops[op].kind == HT_OP_OPTIMIZER_STEP) g->s->ops[op].kind = HT_OP_ACCUMULATE;
}
static void wide_copy(struct graph *g)
{
    g->s->tensors[g->param[1]].bytes *= 2;
}
static void narrow_gradient(struct graph *g)
{
    g->s->tensors[g->grad[1]].bytes /= 2;
}

static void expect_failure(struct variant v, void (*alter)(struct graph *g), const char *text)
{
    struct graph g;
    struct ht_error err = {0};
    struct course c = draw(&v, 1);
    struct ht_cpu *cpu;
    build(&g, &v);
    alter(&g);
    ck_assert_msg(create(&v, &c, &err, &cpu) == HT_OK, "%s", err.text);
    enum ht_status status = ht_cpu_backend.open(cpu, g.s, &err);
    ck_assert_msg(status == HT_FAILED && strstr(err.text, text), "expected \"%s\": %s", text, err.text);
    ht_cpu_destroy(cpu);
    ht_schedule_destroy(g.s);
}

START_TEST(test_refusals)
{
    const struct variant gated = {.param = HT_BF16, .n_mb = 2, .sum_f32 = true, .offload = true};
    const struct variant back = {.param = HT_F16, .n_mb = 1, .rollback = true, .offload = true, .clip = 1};
    expect_failure(gated, no_final_check, "has no final check");
    expect_failure(gated, two_final_checks, "is a second final check");
    expect_failure(gated, not_checked, "of unit 2 is not checked exactly once");
    expect_failure(gated, does_not_wait, "the final check does not wait for it");
    expect_failure(gated, step_regardless, "is not undone");
    expect_failure(back, no_redo, "nothing makes them again");
    expect_failure(gated, wide_copy, "bytes");
    expect_failure(gated, narrow_gradient, "bytes");
}
END_TEST

int main(void)
{
    draw_batches();
    Suite *s = suite_create("cpu control");
    TCase *tc = tcase_create("cpu control");
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, test_as_the_rule_says, 0, (int)HT_COUNT(variants));
    tcase_add_test(tc, test_refusals);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
