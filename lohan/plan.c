/*
 * LoHan's planner (Sec. IV-B and IV-D): which activations are swapped, and where to.
 *
 *     profile, MEM_avail --> Algorithm 1 --> the swapped layers --> main memory or SSD --> [proof: MEM_avail again]
 *
 * MEM_avail is what the profiling iteration leaves of main memory: the one that swaps only the blocks' inputs, all of
 * them to the SSDs, and recomputes the rest (Sec. IV-B). Here its graph is built and proved, not run; its peak has the
 * P16 buffers and the optimizer's two state buffers. If the plan's own graph then lacks main memory, MEM_avail is
 * lowered by that and Algorithm 1 runs again; at 0 with less to swap.
 *
 * If the GPU is too small [ours], case 2 first swaps no layers without operations, which by the equations costs nothing.
 * If it still is, nothing is prefetched, first in the backward pass, then in both. Before that lohan_halves passes blocks
 * in halves, which takes less memory and no more work, and then swaps proj as the inputs are, the authors' two checkpoints
 * a block: else the attention's half is made again before the MLP's, to have proj. `why` says what was given up.
 *
 * A plan names the fate of every activation: vectors of one element a block, by sub-op. `input` is the block's input.
 * Forced elements replace what Algorithm 1 says.
 *
 * Several micro-batches [ours]: eqs. 1 to 5 are about one of them, with its part of the model states' traffic.
 *
 * Several GPUs [ours]: all do the same with their parts of the batch. A_G2M and A_ssd are of each. Main memory and the
 * SSDs hold those of all, and the states once. No unit stays on the GPUs, which would each need its states.
 */
#include "lohan/planner.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/plan/candidate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 64 };
#define MOST (INT64_C(1) << 56) /* bytes, parameters, bytes or operations per second */

/* clang-format off */
#define AGAIN(NAME) {NAME, "by block: 1 a recomputation repeats it, 2 its own output is swapped, so not", .max = LOHAN_OWN_COPY, .kind = HT_VARIABLE_LIST}
#define COMMON                                                                                                         \
    HT_KNOBS_FATES,                                                                                                 \
    {"A_G2M", "bytes of activations that each GPU swaps, at most", .max = MOST},                                        \
    {"A_ssd", "bytes of them that go on to the SSDs, at least", .max = MOST},                                          \
    {"alpha", "share of A_G2M that goes on to the SSDs, at least; gives A_ssd", .max = 1, .decimal = true},            \
    {"MEM_avail", "bytes of main memory that activations may take", .max = MOST},                                      \
    {"THP_G", "measured throughput of the GPU, FLOP/s", .min = 1, .max = MOST},                                   \
    {"BW_G", "bytes per second between GPU and main memory", .min = 1, .max = MOST},                                   \
    {"BW_S2M", "bytes per second from the SSDs", .min = 1, .max = MOST},                                               \
    {"BW_M2S", "bytes per second to the SSDs", .min = 1, .max = MOST},                                                 \
    {"adam", "1: T_Adam is a term of eq. 5, too", .max = 1},                                                           \
    {"literal", "1: Algorithm 1 as printed", .max = 1},                                                                \
    {"prefetch_f", "turns that parameters come ahead of a forward pass", .max = 64},                                   \
    {"prefetch_b", "turns that parameters and activations come ahead of a backward pass", .max = 64},                  \
    {"group", "parameters that a group of gradients has at least; 0: a unit", .max = MOST},                            \
    {"resident", "units of fewer parameters stay on the GPU; with one GPU only", .max = MOST},                          \
    {"serial", "1: R, C and W in sequence; 0: W overlaps with the next C", .max = 1},                                  \
    {"after", "1: no R, C or W before the end of the backward pass", .max = 1},                                        \
    {"blocks", "1: the GPU waits for each W; needs serial=1 and after=0", .max = 1},                                   \
    {"g_ssd", "1: gradients wait on the SSDs; needs after=1", .max = 1},                                               \
    AGAIN("again_fc2"), AGAIN("again_proj")
#define HALVES {"halves", "1: a block's passes are two ops each, attention and MLP", .max = 1}
/* clang-format on */
static const struct ht_knob knobs[] = {COMMON, {0}};
static const struct ht_knob halves_knobs[] = {COMMON, HALVES, {0}};
static const struct ht_knob artifact_knobs[] = {
    COMMON, HALVES, {"swap_ratio", "share of the forward time that swapping fills", .max = 1, .decimal = true}, {0}};

static bool is_after(const struct lohan_planner *q)
{
    return ht_setting(q->settings, "after", lohan_is(q, LOHAN_ZERO));
}
static bool is_serial(const struct lohan_planner *q)
{
    return ht_setting(q->settings, "serial", lohan_is(q, LOHAN_ZERO) || lohan_is(q, LOHAN_NAIVE));
}

/* ---- the plan --------------------------------------------------------------------------------------------------- */

/* Fills the plan's variables. */
static void set_variables(const struct lohan_planner *q, struct ht_plan *out)
{
    const struct ht_settings *forced = q->settings;
    bool art = lohan_is(q, LOHAN_ARTIFACT);
    for (int part = 0; part < HT_N_PARTS; part++)
        ht_plan_set_values(out, ht_part_names[part], HT_VARIABLE_LIST, q->blocks, q->fates[part], false);
    for (int k = 0; k < LOHAN_N_REPEATED; k++)
        ht_plan_set_values(out, lohan_repeated_names[k], HT_VARIABLE_LIST, q->blocks, q->again[k], false);
    ht_plan_set(out, "A_G2M", q->swapped_bytes);
    ht_plan_set(out, "A_ssd", q->ssd_bytes);
    ht_plan_set(out, "prefetch_f", q->prefetch_f);
    ht_plan_set(out, "prefetch_b", q->prefetch_b);
    if (art || lohan_is(q, LOHAN_HALVES)) ht_plan_set(out, "halves", q->halves);
    ht_plan_set(out, "group", ht_setting(forced, "group", art ? 700000000 : 0));
    ht_plan_set(out, "resident", ht_setting(forced, "resident", art && q->profile.gpus == 1 ? 20000000 : 0));
    ht_plan_set(out, "serial", is_serial(q));
    ht_plan_set(out, "after", is_after(q));
    ht_plan_set(out, "blocks", ht_setting(forced, "blocks", 0));
    ht_plan_set(out, "g_ssd", q->g_ssd);
    if (art) {
        struct ht_variable v = {.name = "swap_ratio", .value = q->swap_ratio, .decimal = true};
        ht_plan_set_vector(out, &v);
    }
}

/* Finds what the plan of the fates needs. Returns an error only if there is no schedule of it. */
static enum ht_status prove(const struct lohan_planner *q, struct ht_error *err, struct ht_needs *out)
{
    struct ht_plan plan = {0};
    set_variables(q, &plan);
    enum ht_status status = ht_plan_needs(q->self, q->scenario, &plan, err, out);
    ht_plan_free(&plan);
    return status;
}

/* Finds MEM_avail by the profiling iteration. Lets gradients wait on the SSDs if they do not fit main memory. */
static enum ht_status find_mem_avail(struct lohan_planner *q, struct ht_error *err)
{
    int64_t forced = ht_setting(q->settings, "MEM_avail", -1);
    struct ht_needs needs = {0};
    lohan_set_inputs_alone(q, HT_FATE_SSD);
    q->g_ssd = ht_setting(q->settings, "g_ssd", 0);
    enum ht_status status = prove(q, err, &needs);
    if (!status && needs.short_bytes[HT_HOST] && is_after(q) && !ht_setting_variable(q->settings, "g_ssd")) {
        q->g_ssd = 1;
        status = prove(q, err, &needs);
    }
    int64_t left = ht_max(0, ht_scenario_host_bytes(q->scenario) - needs.peak_bytes[HT_HOST]);
    q->profile.mem_bytes = (double)(forced >= 0 ? forced : left);
    return status;
}

/* Chooses, and lowers MEM_avail as long as the schedule lacks main memory: activations on their way to the SSDs take
   room there, too. If even MEM_avail = 0 does not help, swaps less. */
static enum ht_status decide(struct lohan_planner *q, struct ht_error *err, struct ht_needs *needs)
{
    bool corrects = lohan_by_algorithm1(q) && !ht_setting_variable(q->settings, "MEM_avail");
    bool amount = !ht_setting_variable(q->settings, "A_G2M");
    q->most_bytes = INFINITY;
    lohan_choose(q);
    double profiled = q->profile.mem_bytes;
    enum ht_status status = prove(q, err, needs);
    for (int round = 0; round < ROUNDS && corrects && !status && needs->short_bytes[HT_HOST]; round++) {
        if (q->profile.mem_bytes > 0)
            q->profile.mem_bytes = fmax(0, q->profile.mem_bytes - (double)needs->short_bytes[HT_HOST]);
        else if (amount && (double)q->prefix_bytes > q->profile.inter_bytes)
            q->most_bytes = (double)q->prefix_bytes * 9 / 10;
        else
            break;
        lohan_choose(q);
        status = prove(q, err, needs);
    }
    q->lowered_bytes = profiled - q->profile.mem_bytes;
    return status;
}

/* Remedies for a GPU that is too small, in their order: what is given up, the variable that forbids it if it is forced,
   and the value that it takes. */
static const struct {
    const char *name, *text;
    int64_t value;
} remedies[] = {
    {"A_G2M", "no layers without operations are swapped", 1},
    {"halves", "blocks in halves", 1},
    {"proj", "two checkpoints a block", 1},
    {"prefetch_b", "prefetch_b=0", 0},
    {"prefetch_f", "prefetch_f=0", 0},
};

/* Returns true if a variable may take the value that needs less of the GPU, which it has not yet. */
static bool may_change(const struct lohan_planner *q, const char *name, const int64_t *value, int64_t to)
{
    bool possible = *value != to && !ht_setting_variable(q->settings, name);
    bool amount = possible && lohan_by_algorithm1(q) && !ht_setting_variable(q->settings, "A_G2M");
    if (value == &q->shortest) return amount && q->amount.which == 2;
    if (value == &q->halves) return possible && lohan_is(q, LOHAN_HALVES) && !ht_arch_gated(q->scenario->model.arch);
    if (value == &q->checkpoints_proj) return amount && q->halves;
    return possible;
}

static enum ht_status decide_anew(struct lohan_planner *q, struct ht_error *err, struct ht_needs *needs)
{
    enum ht_status status = find_mem_avail(q, err);
    return status ? status : decide(q, err, needs);
}

/* Decides again while the GPU is too small: in case 2 without layers that have no operations, lohan_halves in halves and
   with two checkpoints a block, then with less and less prefetching, first in the backward pass, where activations come,
   too. A step for which main memory is too small is taken back. */
static enum ht_status fit_device(struct lohan_planner *q, struct ht_error *err)
{
    int64_t *const values[] = {&q->shortest, &q->halves, &q->checkpoints_proj, &q->prefetch_b, &q->prefetch_f};
    struct ht_needs needs = {0};
    enum ht_status status = decide_anew(q, err, &needs);
    for (size_t i = 0; i < HT_COUNT(values) && !status && needs.short_bytes[HT_DEVICE]; i++) {
        int64_t before = *values[i], host_short = needs.short_bytes[HT_HOST];
        if (!may_change(q, remedies[i].name, values[i], remedies[i].value)) continue;
        *values[i] = remedies[i].value;
        q->remedies |= 1u << i;
        status = decide_anew(q, err, &needs);
        if (status || !needs.short_bytes[HT_HOST] || host_short) continue;
        *values[i] = before;
        q->remedies &= ~(1u << i);
        status = decide_anew(q, err, &needs);
    }
    return status;
}

/* Returns true if an amount or a fate is forced. */
static bool any_forced(const struct lohan_planner *q)
{
    bool any = ht_setting_variable(q->settings, "A_G2M") || ht_setting_variable(q->settings, "A_ssd") ||
               ht_setting_variable(q->settings, "alpha");
    for (int part = 0; part < HT_N_PARTS; part++) any |= ht_setting_variable(q->settings, ht_part_names[part]) != NULL;
    return any;
}

static void record(const struct lohan_planner *q, struct ht_plan *out)
{
    struct lohan_profile p = q->profile;
    double all = 0, params = (double)ht_model_params(&q->scenario->model), swapped = (double)q->swapped_bytes;
    double micro_batches = (double)ht_equal_rounds(q->scenario);
    for (int32_t i = 0; i < q->n; i++) all += q->layers[i].bytes;
    ht_plan_input(out, "P", "", params);
    ht_plan_input(out, "A_interBlock", "bytes", p.inter_bytes);
    ht_plan_input(out, "A_all", "bytes", all);
    ht_plan_input(out, "MEM_avail", "bytes", p.mem_bytes);
    ht_plan_input(out, "alpha", "", swapped > 0 ? (double)q->ssd_bytes / swapped : 0);
    ht_plan_input(out, "FLOP_f", "FLOP", p.forward_flops);
    ht_plan_input(out, "FLOP_r", "FLOP", q->recomputed_flops);
    p.mem_bytes = q->profile.gpus * (swapped - (double)q->ssd_bytes); /* eqs. 4 and 5 with the plan's own A_ssd */
    if (q->timed) {
        ht_plan_input(out, "THP_G", "FLOP/s", p.flops_per_s);
        ht_plan_input(out, "BW_G", "B/s", p.link_bytes_per_s);
        ht_plan_input(out, "BW_S2M", "B/s", p.ssd_read_bytes_per_s);
        ht_plan_input(out, "BW_M2S", "B/s", p.ssd_write_bytes_per_s);
        ht_plan_input(out, "T_Adam", "s", q->adam_s);
        ht_plan_input(out, "T_f", "s", lohan_forward_s(&p, swapped));
        ht_plan_input(out, "T_b", "s", lohan_backward_s(&p, swapped, q->recomputed_flops));
        if (lohan_by_algorithm1(q)) ht_plan_input(out, "case", "", q->amount.which);
        out->planned_s = lohan_iteration_s(&p, swapped, q->recomputed_flops) * micro_batches;
    }
    out->planned_bytes[HT_DISK] =
        (int64_t)(p.write_bytes * micro_batches + q->profile.gpus * (double)q->ssd_bytes); /* 14P + A_ssd */
}

/* Appends what the plan gave up to fit the GPU and main memory, if it did not fit at once. */
static void describe_mending(const struct lohan_planner *q, char *text, size_t size)
{
    char bytes[HT_QUANTITY_TEXT];
    size_t used = strlen(text);
    for (unsigned i = 0, any = 0; i < HT_COUNT(remedies); i++)
        if (q->remedies >> i & 1) {
            snprintf(text + used, size - used, "%s%s", any++ ? ", " : "; to fit the GPU: ", remedies[i].text);
            used += strlen(text + used);
        }
    ht_format_quantity(HT_BYTES, q->lowered_bytes, bytes);
    if (q->lowered_bytes > 0) snprintf(text + used, size - used, "; to fit main memory: MEM_avail less %s", bytes);
}

static void describe(const struct lohan_planner *q, struct ht_plan *out)
{
    static const char *const binds[] = {"main memory bounds it", "transfers bind at A_interBlock",
                                        "the GPU binds until nothing is left to recompute",
                                        "T_iter is least between A_interBlock and A_all"};
    char swapped[HT_QUANTITY_TEXT], ssd[HT_QUANTITY_TEXT];
    ht_format_quantity(HT_BYTES, (double)q->swapped_bytes, swapped);
    ht_format_quantity(HT_BYTES, (double)q->ssd_bytes, ssd);
    if (!lohan_by_algorithm1(q) || any_forced(q))
        snprintf(out->why, sizeof out->why, "%s: %s swapped, %s of it to SSD",
                 !q->timed || any_forced(q) ? "forced"
                 : lohan_is(q, LOHAN_DS)    ? "fixed, the blocks' inputs"
                                            : "two checkpoints a block, and more by swap_ratio",
                 swapped, ssd);
    else
        snprintf(out->why, sizeof out->why, "case %d, %s: %s swapped (%d of %d layers), %s of it to SSD",
                 (int)q->amount.which, binds[q->amount.which], swapped, (int)q->amount.n, (int)q->n, ssd);
    describe_mending(q, out->why, sizeof out->why);
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

/* Checks that a forced vector has an element a block. */
static enum ht_status check_length(const struct lohan_planner *q, const char *name, struct ht_error *err)
{
    const struct ht_variable *v = ht_setting_variable(q->settings, name);
    if (!v || v->n == q->blocks) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s has %d elements; expected %d, one a block", name, (int)v->n, (int)q->blocks);
}

static enum ht_status check(const struct lohan_planner *q, struct ht_error *err)
{
    enum ht_status status = ht_system_check(q->self, q->scenario, err);
    for (int part = 0; part < HT_N_PARTS && !status; part++) status = check_length(q, ht_part_names[part], err);
    for (int k = 0; k < LOHAN_N_REPEATED && !status; k++) status = check_length(q, lohan_repeated_names[k], err);
    if (status) return status;
    if (ht_setting(q->settings, "blocks", 0) && (!is_serial(q) || is_after(q)))
        return ht_fail(err, HT_BAD_INPUT, "blocks=1 is for serial=1 and after=0");
    if (ht_setting(q->settings, "g_ssd", 0) && !is_after(q))
        return ht_fail(err, HT_BAD_INPUT, "g_ssd=1 is for after=1");
    if (ht_setting(q->settings, "halves", 0) && ht_arch_gated(q->scenario->model.arch))
        return ht_fail(err, HT_BAD_INPUT, "halves=1 is not for a DiT, whose halves share the vectors that norm1 makes");
    if (ht_setting(q->settings, "resident", 0) && ht_scenario_ranks(q->scenario) > 1)
        return ht_fail(err, HT_BAD_INPUT, "resident is for one GPU; the cluster has %lld",
                       (long long)ht_scenario_ranks(q->scenario));
    return ht_layout_check_equal(q->scenario, err);
}

/* Returns true if every activation's fate is forced, so that no rate is asked for. */
static bool all_forced(const struct lohan_planner *q)
{
    bool all = true;
    for (int part = 0; part < HT_N_PARTS; part++) all &= ht_setting_variable(q->settings, ht_part_names[part]) != NULL;
    return all;
}

/* Replaces rates that are forced. Micro-batches of a GPU share the traffic of the model states. Eq. 5 as printed has no
   Adam. */
static void force_rates(struct lohan_planner *q)
{
    struct lohan_profile *p = &q->profile;
    double micro_batches = (double)ht_equal_rounds(q->scenario);
    p->flops_per_s = (double)ht_setting(q->settings, "THP_G", (int64_t)p->flops_per_s);
    p->link_bytes_per_s = (double)ht_setting(q->settings, "BW_G", (int64_t)p->link_bytes_per_s);
    p->ssd_read_bytes_per_s = (double)ht_setting(q->settings, "BW_S2M", (int64_t)p->ssd_read_bytes_per_s);
    p->ssd_write_bytes_per_s = (double)ht_setting(q->settings, "BW_M2S", (int64_t)p->ssd_write_bytes_per_s);
    p->read_bytes /= micro_batches;
    p->write_bytes /= micro_batches;
    q->adam_s = p->adam_s / micro_batches;
    p->adam_s = ht_setting(q->settings, "adam", 0) ? q->adam_s : 0;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *costs, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    bool gated = ht_arch_gated(scenario->model.arch);
    struct lohan_planner q = {.self = self,
                              .scenario = scenario,
                              .settings = settings,
                              .timed = costs != NULL,
                              .blocks = (int32_t)scenario->model.layers,
                              .swap_ratio = ht_setting(settings, "swap_ratio", HT_PPB * 3 / 10),
                              .halves = ht_setting(settings, "halves", self->variant == LOHAN_ARTIFACT && !gated),
                              .prefetch_f = ht_setting(settings, "prefetch_f", 1),
                              .prefetch_b = ht_setting(settings, "prefetch_b", self->variant != LOHAN_ARTIFACT)};
    for (int tier = 0; tier < HT_N_TIERS; tier++) out->planned_bytes[tier] = -1;
    enum ht_status status = check(&q, err);
    if (!status && !costs && !all_forced(&q) && self->variant != LOHAN_DS)
        status = ht_fail(err, HT_BAD_INPUT, "%s needs the costs of a block; expected a profile", self->name);
    if (status) return status;
    q.layers = HT_NEW_ARRAY(struct lohan_layer, q.blocks * HT_N_PARTS);
    q.n = lohan_layers(scenario, q.layers);
    for (int k = 0; k < LOHAN_N_REPEATED; k++) {
        q.again[k] = HT_NEW_ARRAY(int64_t, q.blocks);
        q.again_flops[k] = ht_sub_op_flops(&scenario->model, lohan_repeated[k], scenario->micro_batch, scenario->seq);
    }
    for (int part = 0; part < HT_N_PARTS; part++) q.fates[part] = HT_NEW_ARRAY(int64_t, q.blocks);
    status = lohan_measure(scenario, costs, err, &q.profile);
    q.profile.gpus = (double)ht_scenario_ranks(scenario);
    if (!status) {
        force_rates(&q);
        status = fit_device(&q, err);
    }
    if (!status) {
        set_variables(&q, out);
        record(&q, out);
        describe(&q, out);
    }
    for (int part = 0; part < HT_N_PARTS; part++) free(q.fates[part]);
    for (int k = 0; k < LOHAN_N_REPEATED; k++) free(q.again[k]);
    free(q.layers);
    return status;
}

/* clang-format off */
#define LOHAN_SYSTEM(NAME, TITLE, VARIANT, KNOBS, SUMMARY)                                                             \
    {.name = NAME, .title = TITLE, .source = "Liao et al., LoHan", .summary = SUMMARY, .knobs = KNOBS,                 \
     .variant = VARIANT, .division = HT_SHARED_STATES, .disk = true, .plan = plan,                \
     .program = &lohan_program, .build = ht_build_program}
const struct ht_system lohan = LOHAN_SYSTEM("lohan", "LoHan", LOHAN, knobs,
    "model states on SSDs, out-of-core CPU steps during the backward pass, planned activation swapping");
const struct ht_system lohan_halves = LOHAN_SYSTEM("lohan_halves", "LoHan, blocks in halves", LOHAN_HALVES, halves_knobs,
    "LoHan with blocks in halves where the GPU is too small");
const struct ht_system lohan_naive = LOHAN_SYSTEM("lohan_naive", "LoHan Naive", LOHAN_NAIVE, knobs,
    "LoHan with each gradient's read, step and write in sequence");
const struct ht_system lohan_zero = LOHAN_SYSTEM("lohan_zero", "LoHan+ZeRO", LOHAN_ZERO, knobs,
    "LoHan with the optimizer after the backward pass");
const struct ht_system lohan_cpuact = LOHAN_SYSTEM("lohan_cpuact", "LoHan+CpuAct", LOHAN_CPUACT, knobs,
    "LoHan with activations swapped to main memory only");
const struct ht_system lohan_ds = LOHAN_SYSTEM("lohan_ds", "LoHan+DS", LOHAN_DS, knobs,
    "LoHan with only the blocks' inputs swapped, to main memory");
const struct ht_system lohan_artifact = LOHAN_SYSTEM("lohan_artifact", "LoHan, the authors' program", LOHAN_ARTIFACT, artifact_knobs,
    "what LoHan's authors' program does: fixed checkpoints, a hand-set amount to swap, larger groups");
/* clang-format on */
