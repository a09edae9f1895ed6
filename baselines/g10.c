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
#include "common/draft/hops.h"
#include "policies/decide.h"

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
    struct ht_hops params; /* P16, a turn ahead; turns are a micro-batch's */
    bool after, g_ssd;
    int32_t mb;
    int32_t pending; /* unit whose states are to be written, or -1 */
};

/* Names DP, which waits until the turn before the last two in whose time it may run has ended. */
static void on_read(void *build, int32_t turn, int32_t unit)
{
    struct build *b = build;
    ht_fates_name(b->g, "DP", unit, b->mb);
    ht_hops_not_before(&b->params, ht_hops_first(&b->params, turn) - 1, 0);
}

/* Appends SW of the unit that has been stepped. */
static void write(struct build *b)
{
    if (b->pending < 0) return;
    ht_draft_copy_states(b->g, b->pending, 1, true, HT_HOST, HT_DISK, HT_UPDATE, true);
    ht_fates_name(b->g, "SW", b->pending, b->mb);
    b->pending = -1;
}

/* Appends SR, SI, U and SO of a unit, and the SW that is due. after: op that SR waits for, or -1. */
static void update(struct build *b, int32_t u, int32_t after)
{
    struct ht_draft *g = b->g;
    int32_t rows[5], n = ht_draft_state_rows(g, u, false, rows);
    ht_draft_copy_states(g, u, 1, false, HT_DISK, HT_HOST, HT_PRODUCE, false);
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
    ht_draft_copy_states(g, u, 1, true, HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    ht_fates_name(g, "SO", u, b->mb);
    b->pending = u;
}

/* Moves a gradient to where it waits for the optimizer. */
static void put_away(struct build *b, int32_t u)
{
    struct ht_draft *g = b->g;
    ht_draft_gradient_to_host(g, u, b->mb, HT_PRODUCE);
    if (!b->g_ssd || b->mb + 1 < g->own_mb) return;
    ht_draft_copy(g, g->grad[u], HT_HOST, HT_DISK, HT_PRODUCE, true);
    ht_fates_name(g, "GW", u, b->mb);
}

static void backward(struct build *b, int32_t turn, int32_t u)
{
    int32_t *computed = b->params.computed;
    ht_fates_fetch(&b->fates, b->mb, turn, computed);
    computed[turn] = ht_draft_backward(b->g, u, b->mb);
    ht_hops_drop(&b->params, turn);
    if (b->after)
        put_away(b, u);
    else
        update(b, u, u + 1 < b->g->n_units ? computed[turn - 1] : -1);
}

static void micro_batch(struct build *b)
{
    ht_hops_restart(&b->params, -1);
    for (int32_t turn = 0; turn < b->params.n_turns; turn++) {
        struct ht_turn x = ht_turn(b->g->n_units, turn);
        ht_hops_read(&b->params, turn);
        ht_hops_fetch(&b->params, turn);
        if (x.forward) b->params.computed[turn] = ht_draft_forward(b->g, x.unit, b->mb, HT_ALL_SUB_OPS);
        if (x.backward) {
            backward(b, turn, x.unit);
            continue;
        }
        ht_hops_drop(&b->params, turn);
        if (x.unit > 0) ht_fates_out(&b->fates, x.unit, b->mb);
    }
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct build b = {.g = g, .after = ht_plan_get(plan, "after"), .g_ssd = ht_plan_get(plan, "g_ssd"), .pending = -1};
    ht_fates_init(&b.fates, g, plan);
    ht_hops_init(&b.params, g, 1);
    b.params.on_read = on_read;
    b.params.system = &b;
    for (int32_t u = 0; u < g->n_units; u++) {
        g->realloc_on_step[u] = g->master[u] >= 0; /* the step makes P16 */
        ht_draft_place(g, g->param[u], HT_DISK);
        ht_draft_place_states(g, u, HT_DISK);
    }
    for (b.mb = 0; b.mb < g->own_mb; b.mb++) micro_batch(&b);
    b.mb = g->own_mb - 1;
    int32_t arrived = g->schedule->n_ops - 1;
    for (int32_t u = g->n_units - 1; u >= 0 && b.after; u--) update(&b, u, arrived);
    write(&b);
    ht_hops_free(&b.params);
}

static const struct ht_program program = {.disk = true, .emit = emit};

const struct ht_system ht_g10 = {
    .name = "g10",
    .title = "G10",
    .source = "Zhang et al. 2023, MICRO",
    .summary = "states on SSDs, Adam on the device; activations evicted by their inactive periods",
    .knobs = knobs,
    .one_device = true,
    .disk = true,
    .plan = plan,
    .program = &program,
    .build = ht_build_program,
};
