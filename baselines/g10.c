/*
 * G10 (Zhang et al., "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture with Smart Tensor
 * Migrations", MICRO 2023) as LoHan simulates it for large models (LoHan, Sec. III-C): GPU, main memory and SSDs are
 * one memory. Parameters and optimizer states are on the SSDs and come to the GPU when it needs them, for Adam, too.
 * Activations go by G10's policy (policies/g10.c); nothing is recomputed.
 *
 *     disk     DP0 DP1 DP2 ..   AW1 ..  | DPL ARL ..            | SRH  SRL SWH ..     SW0
 *     h2d          P0  P1  P2 ..        |     PL  AIL ..        |      SIH  SIL ..
 *     compute          F0  F1 .. FL FH  | BH  BL .. B1 B0       |         UH   UL ..
 *     d2h                   AO1 ..      |   GH GL ..            |            SOH  SOL ..
 *
 * P16 of a unit comes from the SSDs (DP, P) for its forward and again for its backward pass, a turn ahead, and is
 * dropped after it. After the backward pass the optimizer goes over the units: states from the SSDs (SR) to the GPU
 * (SI) with the gradient, Adam there (U), and back (SO, SW): 14 bytes a parameter each way, of which the SSDs read 12.
 * While a unit's are written the next one's are read.
 *
 *     after=1   as above: 14 bytes a parameter in after the backward pass. Gradients wait in main memory; on the SSDs
 *               with g_ssd=1, which the planner takes if main memory has no room for them
 *     after=0   a unit is stepped right behind its backward pass, with the gradient on the GPU
 *
 * Departures. The GPU has no GPUDirect (LoHan, Sec. III-C, third issue), so everything passes through main memory.
 * Parameters and states are always evicted: with two uses of P16 and one of the states an iteration they have by far
 * the largest inactive periods. With several micro-batches gradients are added on the CPU, where they wait. The head's
 * input stays on the GPU. One device.
 */
#include "baselines/baselines.h"
#include "common/base/array.h"
#include "policies/decide.h"

#include <stdlib.h>

static const struct ht_knob knobs[] = {
    HT_KNOBS_FATES,
    HT_KNOB_AHEAD,
    {"after", "1: steps begin after the backward pass; 0: each right behind its unit", .max = 1},
    {"g_ssd", "1: gradients wait on the SSDs; needs after=1", .max = 1},
    {0},
};

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static void complete(const struct ht_policy_request *r, struct ht_plan *plan)
{
    ht_plan_set(plan, "after", ht_setting(r->settings, "after", 1));
    ht_plan_set(plan, "g_ssd", ht_setting(r->settings, "g_ssd", *(const int64_t *)r->context));
}

/* Decides. Lets gradients wait on the SSDs if main memory has no room for them. */
static enum ht_status decide(struct ht_policy_request *r, struct ht_error *err, struct ht_plan *out)
{
    static const int64_t on_ssd[] = {0, 1};
    struct ht_needs needs;
    bool may = ht_setting(r->settings, "after", 1) && !ht_setting_variable(r->settings, "g_ssd");
    r->context = &on_ssd[0];
    enum ht_status status = ht_policy_decide(r, err, out, &needs);
    if (status || !may || !needs.short_bytes[HT_HOST]) return status;
    ht_plan_free(out);
    *out = (struct ht_plan){0};
    r->context = &on_ssd[1];
    return ht_policy_decide(r, err, out, NULL);
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *costs, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct ht_policy_request r = {.self = self,
                                  .scenario = scenario,
                                  .costs = costs,
                                  .settings = settings,
                                  .policy = ht_policy_g10,
                                  .title = self->title,
                                  .input = HT_FATE_SSD,
                                  .rest = HT_FATE_SSD,
                                  .main_memory = true,
                                  .ssds = true,
                                  .complete = complete};
    enum ht_status fits = ht_system_check(self, scenario, err);
    if (fits != HT_OK) return fits;
    bool after = ht_setting(settings, "after", 1);
    if (ht_setting(settings, "g_ssd", 0) && !after) return ht_fail(err, HT_BAD_INPUT, "g_ssd=1 is for after=1");
    if (!after && scenario->batch > scenario->micro_batch)
        return ht_fail(err, HT_INFEASIBLE, "after=0 is for one micro-batch: sums of gradients wait in main memory");
    enum ht_status status = decide(&r, err, out);
    const struct ht_numerics *n = &scenario->numerics;
    if (status) return status;
    int64_t bytes = ht_model_state_bytes(n) - ht_dtype_bytes(n->grad);
    if (ht_plan_get(out, "g_ssd")) bytes += ht_dtype_bytes(ht_stepped_gradient(n, ht_equal_rounds(scenario)));
    out->planned_bytes[HT_DISK] = bytes * ht_model_params(&scenario->model);
    return status;
}

/* ---- build ----------------------------------------------------------------------------------------------------- */

struct build {
    struct ht_draft *g;
    struct ht_fates fates;
    bool after, g_ssd;
    int32_t head, mb;
    int32_t turns;             /* of a micro-batch: units 0 .. head forward, head .. 0 backward, the head's as one */
    int32_t *computed;         /* [n_units] last op of each turn of the backward pass */
    int32_t *last;             /* [turns] last compute op of each turn of the micro-batch */
    bool *in_host, *on_device; /* [n_units] P16 is there */
    int32_t next_host, next_device; /* turn whose P16 comes next */
    int32_t pending, read;          /* unit whose states are to be written, or -1; last SR */
};

enum { AHEAD = 1 }; /* turns that P16 comes ahead */

static int32_t unit_of(const struct build *b, int32_t turn)
{
    return turn <= b->head ? turn : 2 * b->head - turn;
}

/* Lists the units whose P16 a turn reads. Returns their number. */
static int32_t reads(const struct build *b, int32_t turn, int32_t units[2])
{
    units[0] = unit_of(b, turn);
    units[1] = 0;
    return units[0] == b->head && b->g->scenario->model.tied ? 2 : 1;
}

/* Returns true if none of a turn's P16 is still there for a turn before. */
static bool are_gone(const struct build *b, int32_t turn, const bool *there)
{
    int32_t units[2], n = reads(b, turn, units);
    for (int32_t i = 0; i < n; i++)
        if (there[units[i]]) return false;
    return true;
}

/* Appends the copies of P16 that begin with a turn: to the GPU for the next one, to main memory for one more. */
static void fetch(struct build *b, int32_t now)
{
    struct ht_draft *g = b->g;
    int32_t units[2], t;
    for (; (t = b->next_host) < b->turns && t <= now + AHEAD + 1 && are_gone(b, t, b->in_host); b->next_host++)
        for (int32_t i = 0, n = reads(b, t, units); i < n; i++) {
            ht_draft_copy(g, g->param[units[i]], HT_DISK, HT_HOST, HT_PRODUCE, false);
            ht_fates_name(g, "DP", units[i], b->mb);
            if (t >= AHEAD + 2) ht_op_after(g->schedule, b->last[t - AHEAD - 2]);
            b->in_host[units[i]] = true;
        }
    for (; (t = b->next_device) < b->next_host && t <= now + AHEAD && are_gone(b, t, b->on_device); b->next_device++)
        for (int32_t i = 0, n = reads(b, t, units); i < n; i++) {
            ht_draft_copy(g, g->param[units[i]], HT_HOST, HT_DEVICE, HT_PRODUCE, true);
            if (t >= AHEAD + 1) ht_op_after(g->schedule, b->last[t - AHEAD - 1]);
            b->in_host[units[i]] = false;
            b->on_device[units[i]] = true;
        }
}

static void drop(struct build *b, int32_t turn)
{
    int32_t units[2], n = reads(b, turn, units);
    for (int32_t i = 0; i < n; i++) {
        ht_op_effect(b->g->schedule, b->g->param[units[i]], HT_DEVICE, HT_RELEASE);
        b->on_device[units[i]] = false;
    }
}

/* Appends SW of the unit that has been stepped. */
static void write(struct build *b)
{
    int32_t rows[4], u = b->pending;
    if (u < 0) return;
    ht_draft_copy_rows(b->g, rows, ht_draft_state_rows(b->g, u, true, rows), HT_HOST, HT_DISK, HT_UPDATE, true);
    ht_fates_name(b->g, "SW", u, b->mb);
    b->pending = -1;
}

/* Appends SR, SI, U and SO of a unit, and the SW that is due. after: op that SR waits for, or -1. */
static void update(struct build *b, int32_t u, int32_t after)
{
    struct ht_draft *g = b->g;
    int32_t rows[5], n = ht_draft_state_rows(g, u, false, rows);
    ht_draft_copy_rows(g, rows, n, HT_DISK, HT_HOST, HT_PRODUCE, false);
    ht_fates_name(g, "SR", u, b->mb);
    ht_op_after(g->schedule, after);
    if (b->g_ssd) {
        ht_draft_copy(g, g->grad[u], HT_DISK, HT_HOST, HT_PRODUCE, true);
        ht_fates_name(g, "GR", u, b->mb);
        ht_op_after(g->schedule, after);
    }
    write(b);
    if (b->after) rows[n++] = g->grad[u];
    ht_draft_copy_rows(g, rows, n, HT_HOST, HT_DEVICE, HT_PRODUCE, true);
    ht_fates_name(g, "SI", u, b->mb);
    ht_draft_step(g, g->lanes->compute, u, 1, true);
    n = ht_draft_state_rows(g, u, true, rows);
    ht_draft_copy_rows(g, rows, n, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    ht_fates_name(g, "SO", u, b->mb);
    b->pending = u;
}

/* Moves a gradient to where it waits for the optimizer. */
static void put_away(struct build *b, int32_t u)
{
    struct ht_draft *g = b->g;
    int32_t fresh = b->mb ? g->grad_mb[ht_draft_at(g, u, b->mb)] : g->grad[u];
    ht_draft_copy(g, fresh, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    if (b->mb) ht_draft_accumulate(g, g->lanes->host, u, b->mb);
    if (!b->g_ssd || b->mb + 1 < g->own_mb) return;
    ht_draft_copy(g, g->grad[u], HT_HOST, HT_DISK, HT_PRODUCE, true);
    ht_fates_name(g, "GW", u, b->mb);
}

static void backward(struct build *b, int32_t turn, int32_t u)
{
    ht_fates_fetch(&b->fates, b->mb, b->head - u, b->computed);
    b->last[turn] = b->computed[b->head - u] = ht_draft_backward(b->g, u, b->mb);
    drop(b, turn);
    if (b->after)
        put_away(b, u);
    else
        update(b, u, u < b->head ? b->computed[b->head - u - 1] : -1);
}

static void micro_batch(struct build *b)
{
    b->next_host = b->next_device = 0;
    for (int32_t turn = 0; turn < b->turns; turn++) {
        int32_t u = unit_of(b, turn);
        fetch(b, turn);
        if (turn <= b->head) b->last[turn] = ht_draft_forward(b->g, u, b->mb, HT_ALL_SUB_OPS);
        if (turn >= b->head) {
            backward(b, turn, u);
            continue;
        }
        drop(b, turn);
        if (u > 0) ht_fates_out(&b->fates, u, b->mb);
    }
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct build b = {.g = g,
                      .after = ht_plan_get(plan, "after"),
                      .g_ssd = ht_plan_get(plan, "g_ssd"),
                      .head = g->n_units - 1,
                      .turns = 2 * g->n_units - 1,
                      .computed = ht_alloc_ids(g->n_units),
                      .last = ht_alloc_ids(2 * g->n_units),
                      .in_host = HT_NEW_ARRAY(bool, g->n_units),
                      .on_device = HT_NEW_ARRAY(bool, g->n_units),
                      .pending = -1};
    ht_fates_init(&b.fates, g, plan);
    for (int32_t u = 0; u < g->n_units; u++) {
        g->realloc_on_step[u] = g->master[u] >= 0; /* the step makes P16 */
        ht_draft_place(g, g->param[u], HT_DISK);
        ht_draft_place_states(g, u, HT_DISK);
    }
    for (b.mb = 0; b.mb < g->own_mb; b.mb++) micro_batch(&b);
    b.mb = g->own_mb - 1;
    int32_t arrived = g->schedule->n_ops - 1;
    for (int32_t u = b.head; u >= 0 && b.after; u--) update(&b, u, arrived);
    write(&b);
    free(b.computed);
    free(b.last);
    free(b.in_host);
    free(b.on_device);
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_program program = {.name = self->name, .disk = true, .emit = emit, .context = plan};
    return ht_build_graph(scenario, &program, err, out);
}

const struct ht_system ht_g10 = {
    .name = "g10",
    .title = "G10",
    .source = "Zhang et al. 2023, MICRO",
    .summary = "states on SSDs, Adam on the device; activations evicted by their inactive periods",
    .knobs = knobs,
    .one_device = true,
    .disk = true,
    .plan = plan,
    .build = build,
};
