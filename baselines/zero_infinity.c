/*
 * ZeRO-Infinity with everything on disk (Rajbhandari et al., "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme
 * Scale Deep Learning", SC 2021, as DeepSpeed 0.9.3 runs it, which LoHan compares with).
 *
 * 16-bit parameters, FP32 parameters, momentum and variance are on disk. A unit's parameters come by way of the host
 * for its forward pass and again for its backward pass. Inputs of blocks wait in host memory between the passes, and
 * the backward pass recomputes the rest of a block. Gradients leave for the disk. When the backward pass has ended the
 * optimizer goes over sub-groups of units, one after the other: reads states and gradients, steps on the CPU, writes
 * states and 16-bit parameters.
 *
 *     L = 2     forward               backward                                      optimizer
 *     disk in   P0 P1 P2 PH           P2 P1 P0                                      R0    R1    ..
 *     h2d          P0 P1 P2 PH           P2 P1 P0
 *     compute         F0 F1 F2 FH BH        R2 B2 R1 B1 B0
 *     d2h                 X1 X2           GH      G2    G1 G0
 *     disk out                               GH      G2    G1 G0                       W0    W1 ..
 *     cpu                                                                             O0    O1    ..
 *
 * Bytes of M parameters in 16-bit numerics: disk 2 M + 12 M always, and gradients of 2 M from the backward pass to the
 * optimizer; read 2 M + 2 M + (12 + 2) M an iteration, written 2 M + (12 + 2) M. In FP32 numerics P is its own master:
 * disk 12 M, and gradients of 4 M.
 *
 * Variables. sub_group: parameters in a sub-group of the optimizer, DeepSpeed's sub_group_size, whose default is 1e9;
 * sub-groups here are of whole units, at least one. The planner halves 1e9 until the host holds a sub-group's states
 * and gradients, which DeepSpeed leaves to its user. prefetch: units read from disk ahead of the one that goes to the
 * device. grads: where gradients wait, 1 on disk, 0 in host memory. params: where 16-bit parameters are, 1 on disk, 0
 * on the device, which is ZeRO-3 with its optimizer states on disk. pipeline: 1 reads a sub-group ahead of the one that
 * is stepped and writes the one before, DeepSpeed's pipeline_read and pipeline_write; the host then holds three.
 *
 * README.md, "ZeRO-Infinity": the source of each line here, and the departures by number. On several devices all of
 * this holds for a rank's 1/N, and whole parameters are gathered on the way (common/draft/zero.c).
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"
#include "common/base/minmax.h"
#include "common/draft/hops.h"
#include "common/plan/candidate.h"
#include "common/schedule/verify.h"

#include <stdio.h>

static const struct ht_knob knobs[] = {
    {"sub_group", "parameters in a sub-group of the optimizer, whole units", .min = 1, .max = (int64_t)1 << 40},
    {"prefetch", "units read from disk ahead", .min = 1, .max = 1 << 20},
    {"grads", "gradients wait on disk (1) or in host memory (0)", .max = 1},
    {"params", "16-bit parameters are on disk (1) or on the device (0)", .max = 1},
    {"pipeline", "1: sub-groups are read ahead and written behind", .max = 1},
    {0},
};

/* ---- plan ------------------------------------------------------------------------------------------------------- */

/* Returns a plan with the variables as they are set, or as DeepSpeed has them by default. */
static struct ht_plan plan_of(const struct ht_settings *settings, int64_t sub_group)
{
    struct ht_plan p = {0};
    ht_plan_set(&p, "sub_group", sub_group);
    ht_plan_set(&p, "prefetch", ht_setting(settings, "prefetch", 1));
    ht_plan_set(&p, "grads", ht_setting(settings, "grads", 1));
    ht_plan_set(&p, "params", ht_setting(settings, "params", 1));
    ht_plan_set(&p, "pipeline", ht_setting(settings, "pipeline", 0));
    return p;
}

/* Halves DeepSpeed's default until the host holds a sub-group, or until it is the largest unit. */
static enum ht_status fit_sub_group(const struct ht_system *self, const struct ht_scenario *scenario,
                                    const struct ht_settings *settings, struct ht_error *err, int64_t *sub_group)
{
    enum { DEFAULT = 1000000000 };
    int64_t largest = 0;
    for (int64_t u = 0; u < ht_model_units(&scenario->model); u++)
        largest = ht_max(largest, ht_unit_params(&scenario->model, u));
    for (*sub_group = DEFAULT; *sub_group > largest; *sub_group /= 2) {
        struct ht_plan p = plan_of(settings, *sub_group);
        struct ht_needs needs;
        enum ht_status status = ht_plan_needs(self, scenario, &p, err, &needs);
        ht_plan_free(&p);
        if (status != HT_INFEASIBLE && (status || needs.short_bytes[HT_HOST] == 0)) return status;
    }
    *sub_group = largest; /* the verifier reports what is missing */
    return HT_OK;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    const struct ht_numerics *n = &scenario->numerics;
    (void)profile;
    int64_t params = ht_equal_params(scenario) * ht_scenario_ranks_per_node(scenario);
    int64_t grad_bytes = ht_dtype_bytes(ht_stepped_gradient(n, ht_scenario_micro_batches(scenario))) * params;
    int64_t sub_group = ht_setting(settings, "sub_group", 0);
    bool forced = sub_group > 0;
    enum ht_status status = ht_system_check(self, scenario, err);
    if (!status && !forced) status = fit_sub_group(self, scenario, settings, err, &sub_group);
    if (status) return status;
    *out = plan_of(settings, sub_group);
    bool on_disk = ht_plan_get(out, "params"), own_master = n->param == HT_F32;
    ht_plan_input(out, "host_memory", "bytes", (double)ht_scenario_host_bytes(scenario));
    snprintf(out->why, sizeof(out->why), "%sstates on disk; sub_group is %s", on_disk ? "parameters and " : "",
             forced ? "forced" : "1e9, halved until the host holds one");
    out->planned_bytes[HT_DEVICE] = out->planned_bytes[HT_HOST] = -1;
    out->planned_bytes[HT_DISK] =
        (ht_model_state_bytes(n) - ht_dtype_bytes(n->grad)) * params + (ht_plan_get(out, "grads") ? grad_bytes : 0);
    if (!on_disk && !own_master) out->planned_bytes[HT_DISK] -= ht_dtype_bytes(n->param) * params;
    return HT_OK;
}

/* ---- build ------------------------------------------------------------------------------------------------------ */

struct build {
    struct ht_draft *g;
    struct ht_hops params; /* turns are a micro-batch's */
    int64_t sub_group;
    int32_t mb;
    bool grads_on_disk, params_on_disk;
    int32_t input;   /* unit whose input is to leave the device next, or -1 */
    int32_t fresh;   /* unit whose gradient is, or -1 */
    int32_t barrier; /* mark of the iteration's last write, for which the next one waits */
};

static bool is_block(const struct build *b, int32_t u)
{
    return ht_draft_kind(b->g, u) == HT_UNIT_BLOCK;
}

/* Names the read of parameters, which follows the last way to the device. */
static void on_read(void *build, int32_t turn, int32_t u)
{
    struct build *b = build;
    ht_draft_name(b->g, "RP", u, -1);
    ht_op_after(b->g->schedule, b->params.last);
    if (b->mb == 0 && turn == 0) ht_op_after_prev(b->g->schedule, b->barrier);
}

/* Returns true if the unit's input waits in host memory between the passes: a block's, but for the last one's, which is
   needed at once. */
static bool input_leaves(const struct build *b, int32_t u)
{
    return is_block(b, u) && u < b->g->n_units - 2 && b->mb < b->g->own_mb;
}

/* Appends the way of an input off the device. In the order of ids it follows the next unit's pass, beside which it
   runs: what a schedule needs in that order is then what it means to take. Gradients leave in the same way. */
static void offload_input(struct build *b)
{
    struct ht_draft *g = b->g;
    if (b->input >= 0) ht_draft_copy(g, g->x[ht_draft_at(g, b->input, b->mb)], HT_DEVICE, HT_HOST, HT_PRODUCE, true);
    b->input = -1;
}

static int32_t forward(struct build *b, int32_t u)
{
    int32_t op = ht_draft_forward(b->g, u, b->mb, is_block(b, u) ? 0 : HT_ALL_SUB_OPS);
    if (!b->params_on_disk && u == 0 && b->mb == 0) ht_op_after_prev(b->g->schedule, b->barrier);
    return op;
}

/* Appends the way of a block's input back to the device, which begins with the turn before it. */
static void fetch_input(struct build *b, int32_t turn)
{
    struct ht_draft *g = b->g;
    int32_t u = ht_turn(g->n_units, turn).unit;
    if (turn < g->n_units || turn >= b->params.n_turns || !input_leaves(b, u)) return;
    ht_draft_copy(g, g->x[ht_draft_at(g, u, b->mb)], HT_HOST, HT_DEVICE, HT_PRODUCE, true);
    ht_hops_not_before(&b->params, turn - 1, 0);
}

/* Appends the way of a fresh gradient off the device: to the disk, or into the sum. */
static void offload_gradient(struct build *b)
{
    struct ht_draft *g = b->g;
    int32_t u = b->fresh;
    if (u < 0) return;
    b->fresh = -1;
    if (b->mb && b->grads_on_disk) {
        ht_draft_copy(g, g->grad[u], HT_DISK, HT_HOST, HT_PRODUCE, false);
        ht_draft_name(b->g, "RG", u, -1);
    }
    ht_draft_gradient_to_host(g, u, b->mb, HT_PRODUCE);
    if (!b->grads_on_disk) return;
    ht_draft_copy(g, g->grad[u], HT_HOST, HT_DISK, b->mb ? HT_UPDATE : HT_PRODUCE, true);
    ht_draft_name(b->g, "WG", u, -1);
}

static int32_t backward(struct build *b, int32_t u)
{
    if (is_block(b, u)) ht_draft_recompute(b->g, u, 1, b->mb, HT_ALL_SUB_OPS);
    return ht_draft_backward(b->g, u, b->mb);
}

/* Appends the passes of a turn. Beside them the next turn's input and parameters come, and what the turn before has made
   leaves. */
static void pass(struct build *b, int32_t turn)
{
    struct ht_turn x = ht_turn(b->g->n_units, turn);
    fetch_input(b, turn + 1);
    ht_hops_fetch(&b->params, turn);
    ht_hops_read(&b->params, turn);
    if (x.forward) b->params.computed[turn] = forward(b, x.unit);
    if (x.backward) b->params.computed[turn] = backward(b, x.unit);
    ht_hops_drop(&b->params, turn);
    if (x.backward) {
        offload_gradient(b);
        b->fresh = x.unit;
        return;
    }
    offload_input(b);
    if (input_leaves(b, x.unit)) b->input = x.unit;
}

static void micro_batch(struct build *b)
{
    ht_hops_restart(&b->params, b->params.computed[b->params.n_turns - 1]);
    ht_hops_read(&b->params, -2);
    ht_hops_fetch(&b->params, -1);
    ht_hops_read(&b->params, -1);
    for (int32_t turn = 0; turn < b->params.n_turns; turn++) pass(b, turn);
    offload_gradient(b);
}

/* Units [first, end). */
struct group {
    int32_t first, end;
};

/* Appends R of a sub-group behind an op; each of R, C and W is an op a unit: a unit's work does not depend on how the
   others are grouped. Returns the last op. */
static int32_t read_group(struct build *b, struct group of, int32_t after)
{
    struct ht_draft *g = b->g;
    for (int32_t u = of.first; u < of.end; u++) {
        ht_draft_copy_states(g, u, 1, false, HT_DISK, HT_HOST, HT_PRODUCE, false);
        ht_draft_name(b->g, "RS", u, -1);
        ht_op_after(g->schedule, after);
        if (!b->grads_on_disk) continue;
        ht_draft_copy(g, g->grad[u], HT_DISK, HT_HOST, HT_PRODUCE, true);
        ht_draft_name(b->g, "RG", u, -1);
    }
    return g->schedule->n_ops - 1;
}

/* Appends C of a sub-group behind an op. Parameters that stay on the device go there. Returns the last C. */
static int32_t step_group(struct build *b, struct group of, int32_t after)
{
    struct ht_draft *g = b->g;
    int32_t op = -1;
    for (int32_t u = of.first; u < of.end; u++) {
        op = ht_draft_step(g, g->lanes->host, u, 1, true);
        ht_op_after(g->schedule, after);
        if (!b->params_on_disk) ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, g->master[u] >= 0);
    }
    return op;
}

/* Appends W of a sub-group behind an op. Returns the last op. */
static int32_t write_group(struct build *b, struct group of, int32_t after)
{
    struct ht_draft *g = b->g;
    for (int32_t u = of.first; u < of.end; u++) {
        ht_draft_copy_states(g, u, 1, b->params_on_disk, HT_HOST, HT_DISK, HT_UPDATE, true);
        ht_draft_name(b->g, "WS", u, -1);
        ht_op_after(g->schedule, after);
    }
    return g->schedule->n_ops - 1;
}

/* Returns the sub-group from a unit on. */
static struct group group_from(const struct build *b, int32_t first)
{
    struct group of = {first, first};
    int64_t params = 0;
    for (; of.end < b->g->n_units; of.end++) {
        params += ht_unit_params(&b->g->scenario->model, of.end);
        if (of.end > first && params > b->sub_group) break;
    }
    return of;
}

/* Appends the optimizer behind an op: R0 C0 W0 R1 C1 W1 .., each behind the one before. */
static void step_serially(struct build *b, int32_t after)
{
    for (struct group x = group_from(b, 0); x.first < b->g->n_units; x = group_from(b, x.end))
        after = write_group(b, x, step_group(b, x, read_group(b, x, after)));
}

/* Appends the optimizer behind an op: R0 R1 C0 R2 C1 W0 R3 C2 W1 .., each behind its own sub-group's. */
static void step_pipelined(struct build *b, int32_t after)
{
    struct group before = {0, 0}, now = group_from(b, 0), next;
    int32_t read = read_group(b, now, after), stepped_before = -1;
    for (; now.first < b->g->n_units; before = now, now = next) {
        next = group_from(b, now.end);
        int32_t read_next = read_group(b, next, after), stepped = step_group(b, now, read);
        write_group(b, before, stepped_before);
        read = read_next;
        stepped_before = stepped;
    }
    write_group(b, before, stepped_before);
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct ht_schedule *s = g->schedule;
    struct build b = {.g = g,
                      .sub_group = ht_plan_get(plan, "sub_group"),
                      .grads_on_disk = ht_plan_get(plan, "grads"),
                      .params_on_disk = ht_plan_get(plan, "params"),
                      .input = -1,
                      .fresh = -1,
                      .barrier = ht_mark_create(s)};
    g->lanes->disk_read = ht_add_lane(s, "disk in", HT_LANE_DISK, g->rank, HT_FIFO);
    g->lanes->disk_write = ht_add_lane(s, "disk out", HT_LANE_DISK, g->rank, HT_FIFO);
    ht_hops_init(&b.params, g, 1);
    b.params.read_ahead = (int32_t)ht_plan_get(plan, "prefetch");
    b.params.on_read = on_read;
    b.params.system = &b;
    for (int32_t u = 0; u < g->n_units; u++) {
        b.params.stays[u] = !b.params_on_disk;
        g->realloc_on_step[u] = g->master[u] >= 0;
        if (b.params_on_disk || g->master[u] < 0) ht_draft_place(g, g->param[u], HT_DISK);
        if (!b.params_on_disk) ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DISK);
    }
    for (b.mb = 0; b.mb < g->n_mb; b.mb++) micro_batch(&b);
    int32_t after = s->n_ops - 1; /* of a FIFO lane, so that all gradients before it are there, too */
    (ht_plan_get(plan, "pipeline") ? step_pipelined : step_serially)(&b, after);
    ht_mark_set(s, b.barrier);
    ht_hops_free(&b.params);
}

/* Limits each space to what the ops need in the order of ids, which has all that the method means to overlap. So no
   peak exceeds that, however fast the disk is. */
static void limit_memory(struct ht_schedule *s)
{
    struct ht_proof proof = {0};
    struct ht_error ignored;
    (void)ht_schedule_verify(s, &ignored, &proof); /* whether it fits is asked later */
    for (int32_t i = 0; proof.spaces && i < ht_n_spaces(s); i++) s->limit_bytes[i] = proof.spaces[i].peak_bytes;
    ht_proof_free(&proof);
}

static const struct ht_program program = {.emit = emit};

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    enum ht_status status = ht_build_program(self, scenario, plan, err, out);
    if (status == HT_OK) limit_memory(*out);
    return status;
}

const struct ht_system ht_zero_infinity = {
    .name = "zero_infinity",
    .title = "ZeRO-Infinity, NVMe",
    .source = "Rajbhandari et al. 2021, SC",
    .summary = "parameters and optimizer states on disk, sub-groups stepped one after the other",
    .knobs = knobs,
    .disk = true,
    .plan = plan,
    .program = &program,
    .build = build,
};
