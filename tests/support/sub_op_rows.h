/*
 * Trainings that cut the activations of every block and micro-batch into tensors by sub-op. A seed decides which of
 * them are kept, which are copied to the host and back, and which are recomputed. They run on the CPU backend or on the
 * CUDA backend with a given table.
 */
#ifndef TESTS_SUPPORT_SUB_OP_ROWS_H
#define TESTS_SUPPORT_SUB_OP_ROWS_H

#include "baselines/passes.h"
#include "common/backend/cuda.h"
#include "common/base/array.h"
#include "common/draft/draft_extra.h"
#include "common/exec/residents.h"
#include "common/exec/sim.h"
#include "common/mem/arena.h"
#include "common/plan/system.h"
#include "common/schedule/verify.h"
#include "tests/support/draw.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_L = 2, ROWS_UNITS = ROWS_L + 2, ROWS_MB = 2, ROWS_B = 1, ROWS_T = 16, ROWS_V = 37, ROWS_ITERATIONS = 3 };

enum fate { KEPT, MOVED, AGAIN, N_FATES };

/* The cut of a block's activations of one micro-batch, and what becomes of each tensor. */
struct rows_cut {
    unsigned parts[HT_N_SUB_OPS];
    enum fate fates[HT_N_SUB_OPS];
    int32_t n;
    bool one_op; /* one op recomputes all */
};

struct rows_choice {
    struct rows_cut cuts[ROWS_L][ROWS_MB];
    bool blocking; /* nothing overlaps */
};

/* ---- random choices ---- */

/* Draws a cut: half are cut at every boundary; in the others some, or any sub-ops share a tensor. */
static inline struct rows_cut rows_draw_cut(struct draw *d)
{
    struct rows_cut c = {.one_op = below(d, 2)};
    unsigned parts[HT_N_SUB_OPS] = {0};
    int how = below(d, 4), at = 0;
    for (int s = 0; s < HT_N_SUB_OPS; s++) {
        if (s && (how < 2 || below(d, 2))) at++;
        parts[how == 3 ? below(d, 4) : at] |= 1u << s;
    }
    for (int s = 0; s < HT_N_SUB_OPS; s++) {
        if (!parts[s]) continue;
        c.parts[c.n] = parts[s];
        c.fates[c.n++] = (enum fate)below(d, N_FATES);
    }
    return c;
}

static inline struct rows_choice rows_draw_choice(uint64_t seed)
{
    struct draw d = {.seed = seed};
    struct rows_choice c = {0};
    for (int u = 0; u < ROWS_L; u++)
        for (int j = 0; j < ROWS_MB; j++) c.cuts[u][j] = rows_draw_cut(&d);
    return c;
}

/* ---- schedules ---- */

static inline void rows_move(struct ht_draft *g, const struct rows_cut *c, int32_t u, int32_t j, bool back)
{
    for (int32_t i = 0; i < c->n; i++) {
        if (c->fates[i] != MOVED) continue;
        int32_t row = g->a[ht_draft_at(g, u, j)][__builtin_ctz(c->parts[i])];
        ht_draft_copy(g, row, back ? HT_HOST : HT_DEVICE, back ? HT_DEVICE : HT_HOST, HT_PRODUCE, true);
    }
}

static inline unsigned rows_of_fate(const struct rows_cut *c, enum fate fate)
{
    unsigned sub_ops = 0;
    for (int32_t i = 0; i < c->n; i++)
        if (c->fates[i] == fate) sub_ops |= c->parts[i];
    return sub_ops;
}

/* Recomputes tensors one by one, each after those that it reads; tensors that wait for one another in one op. */
static inline void rows_remake(struct ht_draft *g, const struct rows_cut *c, int32_t u, int32_t j)
{
    unsigned left = rows_of_fate(c, AGAIN);
    while (left) {
        unsigned next = left;
        for (int32_t i = 0; i < c->n && !c->one_op && next == left; i++) {
            unsigned part = c->parts[i];
            if (part & left && !(ht_sub_ops_read(g->scenario->model.arch, part & ~(1u << HT_SUB_FC2)).sub_ops & left))
                next = part;
        }
        ht_draft_recompute(g, u, 1, j, next);
        left &= ~next;
    }
}

static inline void rows_emit(struct ht_draft *g, const void *context)
{
    const struct rows_choice *choice = context;
    if (choice->blocking) ht_draft_blocks(g, HT_BLOCKS_ALL);
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (int32_t j = 0; j < g->n_mb; j++) {
        for (int32_t u = 0; u < g->n_units; u++) {
            bool block = ht_draft_kind(g, u) == HT_UNIT_BLOCK;
            const struct rows_cut *c = block ? &choice->cuts[u - 1][j] : NULL;
            if (block) ht_draft_cut(g, u, j, c->parts, c->n);
            ht_draft_forward(g, u, j, block ? HT_ALL_SUB_OPS & ~rows_of_fate(c, AGAIN) : HT_ALL_SUB_OPS);
            if (block) rows_move(g, c, u, j, false);
        }
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            const struct rows_cut *c = ht_draft_kind(g, u) == HT_UNIT_BLOCK ? &choice->cuts[u - 1][j] : NULL;
            if (c) rows_move(g, c, u, j, true);
            if (c) rows_remake(g, c, u, j);
            ht_draft_backward(g, u, j);
            if (j) ht_draft_accumulate(g, g->lanes->compute, u, j);
        }
    }
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
}

/* Returns a scenario of this machine, with a model of two blocks. */
static inline struct ht_scenario rows_scenario(enum ht_arch arch, const char *numerics, bool flash, const char *control)
{
    struct ht_scenario_request r = {.model = arch == HT_ARCH_GPT        ? "gpt-mini"
                                             : ht_arch_classifies(arch) ? "bert-tiny"
                                                                        : "llama-tiny",
                                    .cluster = "local",
                                    .batch = ROWS_B * ROWS_MB,
                                    .micro_batch = ROWS_B,
                                    .seq = ROWS_T,
                                    .numerics = numerics,
                                    .control = control,
                                    .clip = control ? 1 : 0,
                                    .training = control != NULL};
    struct ht_scenario s = scenario_from(&r);
    s.model = (struct ht_model){.name = "two blocks",
                                .arch = arch,
                                .layers = ROWS_L,
                                .width = 32,
                                .heads = 2,
                                .ffn = 48,
                                .vocab = ROWS_V,
                                .max_seq = ROWS_T,
                                .classes = ht_arch_classifies(arch) ? ROWS_V : 0,
                                .tied = arch == HT_ARCH_GPT,
                                .flash = flash,
                                .kv_heads = arch == HT_ARCH_LLAMA,
                                .rope_theta = 100,
                                .norm_eps = 1e-5};
    if (arch == HT_ARCH_VIT) { /* 9 patches; an image has fewer bytes than a text here */
        s.model.image = 6, s.model.patch = 2, s.model.channels = 1, s.model.vocab = 0;
        s.model.max_seq = s.seq = 10;
        _Static_assert(1 * 6 * 6 <= ROWS_B * ROWS_T * 4, "a text holds an image");
    }
    return s;
}

/* Builds the schedule. choice NULL: training in memory. */
static inline struct ht_schedule *rows_build(const struct ht_scenario *sc, const struct rows_choice *choice)
{
    struct ht_plan plan = {0};
    struct ht_program p = {.name = "rows", .emit = choice ? rows_emit : ht_train_in_memory, .context = choice};
    struct ht_schedule *s = NULL;
    struct ht_error err = {0};
    if (!choice) p.context = &plan;
    ck_assert_msg(ht_build_graph(sc, &p, &err, &s) == HT_OK, "%s", err.text);
    return s;
}

/* ---- training ---- */

struct rows_outcome {
    double losses[ROWS_ITERATIONS * ROWS_MB];
    float *states[3][ROWS_UNITS]; /* parameters of the optimizer, momentum, variance */
};

static inline void rows_outcome_free(struct rows_outcome *o)
{
    for (int k = 0; k < 3; k++)
        for (int u = 0; u < ROWS_UNITS; u++) free(o->states[k][u]);
}

struct rows_session {
    const struct ht_scenario *sc;
    const struct ht_schedule *s;
    struct ht_cpu *cpu;
    struct ht_cuda_device *gpu; /* one of the two */
    struct rows_outcome *out;
};

static int32_t rows_text[ROWS_ITERATIONS * ROWS_MB][ROWS_B * ROWS_T + 1];

static inline enum ht_status rows_data(void *ctx, int32_t iteration, int32_t mb, const void **tokens,
                                       const int32_t **targets, struct ht_error *err)
{
    (void)ctx, (void)err;
    *tokens = rows_text[iteration * ROWS_MB + mb];
    *targets = rows_text[iteration * ROWS_MB + mb] + 1;
    return HT_OK;
}

static inline enum ht_status rows_fill(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct rows_session *x = ctx;
    const struct ht_tensor *t = &x->s->tensors[b.tensor];
    (void)space;
    return x->gpu ? ht_cuda_device_init(x->gpu, t, b, err) : ht_cpu_init(x->cpu, t, b, err);
}

static inline enum ht_status rows_take(void *ctx, int32_t space, struct ht_buffer b, struct ht_error *err)
{
    const struct rows_session *x = ctx;
    const struct ht_tensor *t = &x->s->tensors[b.tensor];
    bool stepped = t->class == (ht_numerics_has_master(&x->sc->numerics) ? HT_MASTER : HT_PARAM);
    int k = stepped ? 0 : t->class == HT_MOMENTUM ? 1 : t->class == HT_VARIANCE ? 2 : -1;
    (void)space;
    if (k < 0) return HT_OK;
    float *to = x->out->states[k][t->label.unit] = ht_alloc((size_t)b.bytes);
    if (x->gpu) return ht_cuda_device_read(x->gpu, b, to, err);
    memcpy(to, b.data, (size_t)b.bytes);
    return HT_OK;
}

/* Checks the memory in the simulator, with durations of its own. */
static inline void rows_check_simulated(const struct ht_schedule *s, int32_t issue_ahead, bool blocking, uint64_t seed)
{
    struct ht_sim_options o = {.iterations = ROWS_ITERATIONS, .issue_ahead = issue_ahead};
    struct ht_trace *t = NULL;
    struct ht_error err = {0};
    int64_t *cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) cost_ns[i] = 1000 + (int64_t)ht_random_below(seed, (uint64_t)i, 9000);
    ck_assert_msg(ht_sim_run(s, cost_ns, &o, &err, &t) == HT_OK, "seed %d: %s", (int)seed, err.text);
    for (int32_t sp = 0; sp < ht_n_spaces(s); sp++) {
        ck_assert_int_le(t->peak_bytes[sp], s->capacity_bytes[sp]);
        if (blocking) ck_assert_int_eq(t->peak_bytes[sp], s->capacity_bytes[sp]);
    }
    ht_trace_destroy(t);
    free(cost_ns);
}

/* Checks that the arenas, the trace and its replay have the same peaks: within the proof, and equal to it when nothing
   overlaps. */
static inline void rows_check_measured(const struct ht_trace *t, struct ht_arena **arenas, bool blocking)
{
    const struct ht_schedule *s = t->schedule;
    struct ht_error err = {0};
    int64_t replayed[8];
    ck_assert_int_le(ht_n_spaces(s), 8);
    ck_assert_msg(ht_trace_replay(t, &err, replayed) == HT_OK, "%s", err.text);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) {
        int64_t measured = arenas[i] ? ht_arena_stats(arenas[i]).peak_bytes : 0;
        ck_assert_int_eq(measured, t->peak_bytes[i]);
        ck_assert_int_eq(measured, replayed[i]);
        ck_assert_int_le(measured, s->capacity_bytes[i]);
        if (blocking) ck_assert_int_eq(measured, s->capacity_bytes[i]);
    }
}

/* Proves the schedule, gives it just the proved memory, simulates it and trains with it. api: the CUDA backend's;
   on_gpu false: the CPU backend. Residents are not freed between iterations, so the peak includes them. */
static inline void rows_train(const struct ht_scenario *sc, struct ht_schedule *s, bool blocking, bool on_gpu,
                              const struct ht_cuda_api *api, uint64_t seed, struct rows_outcome *out)
{
    struct rows_session x = {.sc = sc, .s = s, .out = out};
    struct ht_cpu_options o = {.model = sc->model,
                               .numerics = sc->numerics,
                               .tokens_per_iteration = ROWS_B * sc->seq * ROWS_MB,
                               .seed = 7,
                               .adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
                               .data = rows_data,
                               .losses = out->losses,
                               .control = sc->control.options};
    struct ht_error err = {0};
    struct ht_proof v = {0};
    struct ht_arena *arenas[8] = {0};
    struct ht_residents *residents = NULL;
    struct ht_trace *trace = NULL;
    if (sc->control.mode == HT_CONTROL_NONE && sc->numerics.param == HT_F16) o.control.loss_scale = 64;
    for (uint64_t k = 0; k < ROWS_ITERATIONS * ROWS_MB; k++)
        for (uint64_t i = 0; i <= ROWS_B * ROWS_T; i++) rows_text[k][i] = (int32_t)ht_random_below(k, i, ROWS_V);
    ck_assert_msg(ht_schedule_verify(s, &err, &v) == HT_OK, "seed %d: %s", (int)seed, err.text);
    for (int32_t i = 0; i < ht_n_spaces(s); i++) s->capacity_bytes[i] = v.spaces[i].peak_bytes;
    ht_proof_free(&v);
    rows_check_simulated(s, on_gpu ? 2 : 0, blocking, seed);
    enum ht_status status = on_gpu ? ht_cuda_device_create(&o, api, 0, &err, &x.gpu) : ht_cpu_create(&o, &err, &x.cpu);
    for (int32_t i = 0; i < ht_n_spaces(s) && !status; i++) {
        int64_t bytes = s->capacity_bytes[i];
        enum ht_tier tier = i < s->n_ranks ? HT_DEVICE : HT_HOST;
        if (!bytes) continue;
        status = on_gpu ? ht_cuda_device_arena(x.gpu, tier, bytes, bytes + (1 << 20), &err, &arenas[i])
                        : ht_arena_create(bytes, bytes + (1 << 20), false, &err, &arenas[i]);
    }
    if (!status) status = ht_residents_create(s, arenas, &err, &residents);
    if (!status) status = ht_residents_each(residents, rows_fill, &x, &err);
    struct ht_run_options run = {.iterations = ROWS_ITERATIONS,
                                 .backend = on_gpu ? &ht_cuda_backend : &ht_cpu_backend,
                                 .backend_ctx = on_gpu ? (void *)x.gpu : (void *)x.cpu,
                                 .arenas = arenas,
                                 .residents = residents};
    if (!status) status = ht_run(s, &run, &err, &trace);
    if (!status) status = ht_residents_each(residents, rows_take, &x, &err);
    ck_assert_msg(status == HT_OK, "seed %d: %s", (int)seed, err.text);
    rows_check_measured(trace, arenas, blocking);
    ht_trace_destroy(trace);
    ht_residents_destroy(residents);
    for (int32_t i = 0; i < 8 && !on_gpu; i++) ht_arena_destroy(arenas[i]); /* the GPU's are its own */
    ht_cpu_destroy(x.cpu);
    ht_cuda_device_destroy(x.gpu);
}

static inline void rows_same(const struct ht_scenario *sc, const struct rows_outcome *got,
                             const struct rows_outcome *want, uint64_t seed)
{
    for (int i = 0; i < ROWS_ITERATIONS * ROWS_MB; i++)
        ck_assert_msg(!memcmp(&got->losses[i], &want->losses[i], sizeof(double)),
                      "seed %d: loss %d is %.17g, in memory %.17g", (int)seed, i, got->losses[i], want->losses[i]);
    for (int k = 0; k < 3; k++)
        for (int u = 0; u < ROWS_UNITS; u++)
            ck_assert_msg(!memcmp(got->states[k][u], want->states[k][u], 4 * (size_t)ht_unit_params(&sc->model, u)),
                          "seed %d: state %d of unit %d differs", (int)seed, k, u);
}

/* Trains with a seed's choice and compares with training in memory. */
static inline void rows_compare(const struct ht_scenario *sc, const struct rows_choice *choice, bool on_gpu,
                                const struct ht_cuda_api *api, uint64_t seed, const struct rows_outcome *want)
{
    struct rows_outcome got = {0};
    struct ht_schedule *s = rows_build(sc, choice);
    rows_train(sc, s, choice->blocking, on_gpu, api, seed, &got);
    rows_same(sc, &got, want, seed);
    ht_schedule_destroy(s);
    rows_outcome_free(&got);
}

#endif
