/*
 * StrongHold (Sun et al., "STRONGHOLD: Fast and Affordable Billion-scale Deep Learning Model Training", SC 2022).
 *
 * A working window of m blocks is on the device and moves along with the computation. While block i computes, block i+m
 * is prefetched; once i ends, its memory is free (backward: i-m). Gradients go to the host as they appear, and the CPU
 * steps the optimizer there while the backward pass goes on. The first m blocks, on which the window comes to rest,
 * have their optimizer states on the device and are stepped there. The next iteration begins when the last CPU step
 * ends.
 *
 *     L = 4, m = 1
 *     compute  F0 | F1 F2 F3 F4 FH | BH B4 B3 B2 B1 U1 B0 U0 UH |            | F0
 *     h2d           P2 P3 P4       |       P3 P2                |            |
 *     d2h                          |          G4 G3 G2          |            |
 *     cpu                          |             O4 O3 O2 ..............     |
 *
 * Tensors of block i, M_p parameters, bytes in 16-bit numerics:
 *
 *     i <= m   states, 12 M_p: device. Every op that reads the 16-bit copy casts it from the master parameters. The
 *              window fetches nothing from the host for these blocks, and leaves nothing behind.
 *     i > m    states, 12 M_p, and 16-bit parameters, 2 M_p: host. On the device: 2 M_p of parameters from the prefetch
 *              to the end of F_i (last m blocks: of B_i, since the window turns around on them), and again from the
 *              prefetch to the end of B_i; 2 M_p of gradient from B_i until it has been copied.
 *
 * In FP32 numerics blocks 1..m keep their parameters, which are their own master copy, on the device.
 *
 * The choice of m. The system's abstract says that it finds the least data to keep on the device. To hide the transfers
 * the window needs m_hide = ceil(t_h2d / t_fp): the prefetch of block i+m begins with F_i and ends before its turn, m
 * forwards later. But each further block in the window saves a gradient copy and a CPU step, and in the published
 * comparisons its throughput grows with device memory. So the planner takes the largest m that the verifier accepts, by
 * bisection (device memory grows with m, host memory falls). Both m and m_hide are in the plan. least = 1 takes m_hide.
 * The published programs take a window from the user: 4 blocks unless told otherwise (github.com/strongh2/sc22-ae,
 * examples/run.sh and SHv0/examples/pretrain_gpt_1gpu_offloading.sh), which is m = 4.
 *
 * README.md, "StrongHold": the source of each line here, and the departures by number.
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"

#include "common/base/minmax.h"
#include "common/draft/cost_query.h"
#include "common/plan/candidate.h"

#include <stdio.h>

static const struct ht_knob knobs[] = {
    HT_KNOB_C,
    {"m", "blocks in the working window", .min = 1, .max = -1},
    {"least", "1: the least window that hides a block's way to the device, m_hide, in place of the largest", .max = 1},
    {"e", "optimizer states of embedding and head: 0 on the device, 1 on the host", .max = 1},
    {0},
};

/* ---- build ----------------------------------------------------------------------------------------------------- */

struct build {
    struct ht_draft *g;
    int32_t L, m, c;
    bool ends_on_host;
    int32_t compute; /* last op of the compute lane */
    int32_t barrier; /* mark: last op of an iteration's work on the host */
};

static bool is_block(const struct build *b, int32_t u)
{
    return u >= 1 && u <= b->L;
}

/* Returns true if the unit is stepped on the host. */
static bool on_host(const struct build *b, int32_t u)
{
    return is_block(b, u) ? u > b->m : b->ends_on_host;
}

/* Returns true if the window fetches the block. fetched_twice: and drops it in between; the last m blocks stay from the
   forward to the backward pass. */
static bool fetched(const struct build *b, int32_t u)
{
    return is_block(b, u) && u > b->m;
}
static bool fetched_twice(const struct build *b, int32_t u)
{
    return fetched(b, u) && u <= b->L - b->m;
}

static bool last(const struct build *b, int32_t mb)
{
    return mb == b->g->n_mb - 1;
}

static void place_residents(struct build *b)
{
    struct ht_draft *g = b->g;
    for (int32_t u = 0; u < g->n_units; u++) {
        bool host = on_host(b, u), resting = is_block(b, u) && !host;
        g->cast_on_use[u] = resting && g->master[u] >= 0;
        if (!fetched(b, u) && !g->cast_on_use[u]) ht_draft_place(g, g->param[u], HT_DEVICE);
        if (host) ht_draft_place(g, g->param[u], HT_HOST);
        ht_draft_place_states(g, u, host ? HT_HOST : HT_DEVICE);
    }
}

/* Appends the fetch of a unit, which begins with the next compute op. */
static void prefetch(struct build *b, int32_t u)
{
    ht_draft_copy(b->g, b->g->param[u], HT_HOST, HT_DEVICE, HT_PRODUCE, false);
    ht_op_after(b->g->schedule, b->compute);
}

static void drop(struct build *b, int32_t u)
{
    ht_op_effect(b->g->schedule, b->g->param[u], HT_DEVICE, HT_RELEASE);
}

static void forward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = 0; u < b->g->n_units; u++) {
        if (is_block(b, u) && fetched(b, u + b->m)) prefetch(b, u + b->m);
        b->compute = ht_draft_forward(b->g, u, mb, ht_kept(b->g, u, b->c));
        if (fetched_twice(b, u)) drop(b, u);
        if (u == 0 && mb == 0) ht_op_after_prev(b->g->schedule, b->barrier);
    }
}

static void update_on_host(struct build *b, int32_t u, int32_t mb)
{
    struct ht_draft *g = b->g;
    ht_draft_gradient_to_host(g, u, mb, HT_PRODUCE);
    if (!last(b, mb)) return;
    ht_draft_step(g, g->lanes->host, u, 1, true);
    if (!is_block(b, u)) ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, false);
    ht_mark_set(g->schedule, b->barrier);
}

static void backward_pass(struct build *b, int32_t mb)
{
    for (int32_t u = b->g->n_units - 1; u >= 0; u--) {
        if (is_block(b, u) && fetched_twice(b, u - b->m)) prefetch(b, u - b->m);
        b->compute = ht_backward_step(b->g, u, mb, b->c);
        if (fetched(b, u)) drop(b, u);
        if (on_host(b, u))
            update_on_host(b, u, mb);
        else
            b->compute = ht_draft_update_on_device(b->g, u, mb, b->compute);
    }
    b->compute = ht_draft_update_on_device(b->g, -1, mb, b->compute);
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct build b = {.g = g,
                      .L = (int32_t)g->scenario->model.layers,
                      .m = (int32_t)ht_plan_get(plan, "m"),
                      .c = (int32_t)ht_plan_get(plan, "c"),
                      .ends_on_host = ht_plan_get(plan, "e"),
                      .compute = -1,
                      .barrier = ht_mark_create(g->schedule)};
    place_residents(&b);
    for (int32_t j = 0; j < g->n_mb; j++) {
        forward_pass(&b, j);
        backward_pass(&b, j);
    }
}

static const struct ht_program program = {.emit = emit};

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static struct ht_plan plan_of(int64_t c, int64_t m, int64_t e)
{
    struct ht_plan p = {0};
    ht_plan_set(&p, "c", c);
    ht_plan_set(&p, "m", m);
    ht_plan_set(&p, "e", e);
    return p;
}

/* A window. need_bytes, next_bytes: device bytes of its safe sequence, and of that of one block more; 0: not
   computed. */
struct window {
    int64_t m, need_bytes, next_bytes;
};

/* Finds the largest m in 1 .. L whose window the device holds; 0 if none does. */
static enum ht_status largest_window(const struct ht_system *self, const struct ht_scenario *scenario, int64_t c,
                                     int64_t e, struct ht_error *err, struct window *w)
{
    int64_t low = 0, high = scenario->model.layers; /* low fits (or is 0); nothing above high fits */
    *w = (struct window){0};
    while (low < high) {
        int64_t mid = low + (high - low + 1) / 2;
        struct ht_plan p = plan_of(c, mid, e);
        struct ht_needs needs;
        enum ht_status status = ht_plan_needs(self, scenario, &p, err, &needs);
        if (status) return status;
        bool fits = needs.short_bytes[HT_DEVICE] == 0;
        *(fits ? &w->need_bytes : &w->next_bytes) = needs.peak_bytes[HT_DEVICE];
        if (fits)
            low = mid;
        else
            high = mid - 1;
    }
    w->m = low;
    return HT_OK;
}

/* Returns m_hide, the least m with m t_fp >= t_h2d. */
static int64_t hiding_window(int64_t fp_ns, int64_t h2d_ns)
{
    int64_t m = fp_ns > 0 ? (h2d_ns + fp_ns - 1) / fp_ns : 0;
    return m < 1 ? 1 : m;
}

/* Computes model data by the window's own equation: 4 M_p (parameters and gradients) and 12 M_p of states for each of
   its m blocks. The host has 16 bytes for each parameter that it steps. */
static void plan_bytes(const struct ht_scenario *scenario, int64_t m, int64_t e, struct ht_plan *out)
{
    int64_t window = 0, ends = 0, rest = 0;
    for (int64_t u = 0; u < ht_model_units(&scenario->model); u++) {
        bool end = ht_model_unit_kind(&scenario->model, u) != HT_UNIT_BLOCK;
        *(end ? &ends : u <= m ? &window : &rest) += ht_equal_shard(scenario, u);
    }
    int64_t all = ht_model_state_bytes(&scenario->numerics), states = ht_optimizer_state_bytes(&scenario->numerics);
    out->planned_bytes[HT_DEVICE] = all * window + (e ? all - states : all) * ends;
    out->planned_bytes[HT_HOST] = all * (rest + (e ? ends : 0)) * ht_scenario_ranks_per_node(scenario);
}

/* Records the inputs from which m and m_hide follow. */
static void record_inputs(const struct ht_scenario *scenario, const struct window *w, int64_t fp_ns, int64_t h2d_ns,
                          struct ht_plan *out)
{
    ht_plan_input(out, "device_memory", "bytes", (double)ht_scenario_device_bytes(scenario));
    if (w->need_bytes) ht_plan_input(out, "need_of_m", "bytes", (double)w->need_bytes);
    if (w->next_bytes) ht_plan_input(out, "need_of_m_plus_1", "bytes", (double)w->next_bytes);
    if (!fp_ns) return;
    ht_plan_input(out, "t_fp", "s", (double)fp_ns / 1e9);
    ht_plan_input(out, "t_h2d", "s", (double)h2d_ns / 1e9);
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    int64_t c = ht_checkpointed_blocks(self, scenario, settings), least = ht_setting(settings, "least", 0);
    int64_t forced_m = ht_setting(settings, "m", 0), forced_e = ht_setting(settings, "e", -1), fp_ns = 0, h2d_ns = 0;
    int64_t e = forced_e >= 0 ? forced_e : 0;
    enum ht_status status = HT_OK;
    if (forced_m && least) return ht_fail(err, HT_BAD_INPUT, "m is set beside least=1; expected one of them");
    if (least && !profile) return ht_fail(err, HT_BAD_INPUT, "least=1 needs the costs of a block; expected a profile");
    if (profile) {
        struct ht_cost_query q = ht_query_slowest(scenario, profile, err);
        int64_t block_bytes = ht_equal_shard(scenario, 1) * ht_dtype_bytes(scenario->numerics.param);
        fp_ns = ht_query_pass(&q, HT_OP_FORWARD, 1);
        if (scenario->model.layers > 1)
            h2d_ns = ht_query_copy(&q, HT_LANE_H2D, block_bytes); /* a single block is never fetched */
        status = q.status;
    }
    if (status) return status;
    int64_t m_hide = profile ? hiding_window(fp_ns, h2d_ns) : 0;
    struct window w = {.m = least ? ht_min(m_hide, scenario->model.layers) : forced_m};
    if (!w.m) {
        status = largest_window(self, scenario, c, e, err, &w);
        if (!status && w.m == 0 && forced_e < 0) {
            e = 1;
            status = largest_window(self, scenario, c, e, err, &w);
        }
    }
    if (status) return status;
    bool too_small = w.m == 0;
    if (too_small) w = (struct window){.m = 1, .need_bytes = w.next_bytes}; /* the verifier reports what is missing */
    *out = plan_of(c, w.m, e);
    out->planned_bytes[HT_DISK] = out->planned_bytes[HT_REMOTE] = 0;
    plan_bytes(scenario, w.m, e, out);
    if (profile) ht_plan_set(out, "m_hide", m_hide);
    record_inputs(scenario, &w, fp_ns, h2d_ns, out);
    snprintf(out->why, sizeof(out->why), "%s%s",
             least       ? "m is the least window that hides a block's way to the device"
             : forced_m  ? "m is forced"
             : too_small ? "not even a window of one block fits the device"
                         : "m is the largest window that fits the device",
             w.m < m_hide ? ", too small to hide a block's way to the device" : "");
    return HT_OK;
}

/* clang-format off */
#define STRONGHOLD(NAME, TITLE, VARIANT, SUMMARY)                                                                      \
    {.name = NAME, .title = TITLE, .source = "Sun et al. 2022, SC", .summary = SUMMARY, .knobs = knobs,                \
     .variant = VARIANT, .plan = plan, .program = &program, .build = ht_build_program}
const struct ht_system ht_stronghold = STRONGHOLD("stronghold", "StrongHold", 0,
    "a window of blocks on the device, CPU steps during the backward pass");
const struct ht_system ht_stronghold_ckpt = STRONGHOLD("stronghold_ckpt", "StrongHold, full checkpointing", 1,
    "StrongHold with every block recomputed");
/* clang-format on */
