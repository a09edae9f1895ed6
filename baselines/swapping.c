/*
 * Model states on the GPU, activations by a policy: Capuchin, Checkmate and FlashNeuron.
 *
 *     compute   F0 F1 F2 .. FL FH | BH  [RL] BL .. [R1] B1 B0 | U0 U1 .. UH
 *     d2h             AO1 AO2 ..                                               swapped activations leave
 *     disk                AW1 ..      ARL ..                                   some by way of main memory for the SSDs
 *     h2d                                  AIL ..                              and come back
 *
 *     capuchin      swaps to main memory, recomputes     Peng et al., ASPLOS 2020    policies/capuchin.c
 *     checkmate     recomputes; swap=1: swaps, too       Jain et al., MLSys 2020     policies/checkmate.c
 *     flashneuron   offloads to the SSDs                 Bae et al., FAST 2021       policies/flashneuron.c
 *
 * All 16 bytes a parameter (parameters, gradients, optimizer states) stay on the GPU, and Adam runs there after the
 * backward pass: what Capuchin and Checkmate assume, and LoHan Sec. III-A says of FlashNeuron. A step needs its
 * gradient alone; with it G is freed.
 *
 * Choices. Activations come back `ahead` turns before their block's backward pass, and from the SSDs one turn earlier;
 * a turn is a unit's backward pass. The planner takes the latest time by which the link has them there. Embedding and
 * head keep what they need on the GPU. With several micro-batches all of this happens for each, and the policy plans
 * for one. The papers' systems have one device. On several, Capuchin and Checkmate shard the states (ZeRO-3,
 * common/draft/zero.c), and each rank does the same with its own activations; FlashNeuron is refused.
 */
#include "baselines/baselines.h"
#include "common/base/array.h"
#include "policies/decide.h"

#include <stdlib.h>

enum variant { CAPUCHIN, CHECKMATE, FLASHNEURON };

static const struct ht_knob knobs[] = {HT_KNOBS_FATES, HT_KNOB_AHEAD, {0}};
static const struct ht_knob checkmate_knobs[] = {
    HT_KNOBS_FATES, HT_KNOB_AHEAD, {"swap", "1: activations may be swapped to main memory", .max = 1}, {0}};

/* ---- plan ------------------------------------------------------------------------------------------------------ */

static void complete(const struct ht_policy_request *r, struct ht_plan *plan)
{
    if (r->self->variant == CHECKMATE) ht_plan_set(plan, "swap", ht_setting(r->settings, "swap", 0));
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *costs, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    struct ht_policy_request r = {.self = self,
                                  .scenario = scenario,
                                  .costs = costs,
                                  .settings = settings,
                                  .title = self->title,
                                  .complete = complete};
    switch ((enum variant)self->variant) {
    case CAPUCHIN:
        r.policy = ht_policy_capuchin;
        r.input = HT_FATE_MAIN;
        r.main_memory = true;
        break;
    case CHECKMATE:
        r.policy = ht_policy_checkmate;
        r.main_memory = ht_setting(settings, "swap", 0);
        r.input = r.main_memory ? HT_FATE_MAIN : HT_FATE_KEPT;
        break;
    case FLASHNEURON:
        r.policy = ht_policy_flashneuron;
        r.input = r.rest = HT_FATE_SSD;
        r.ssds = true;
        break;
    }
    enum ht_status status = ht_policy_decide(&r, err, out, NULL);
    if (!status) out->planned_bytes[HT_DEVICE] = ht_model_state_bytes(&scenario->numerics) * ht_equal_params(scenario);
    return status;
}

/* ---- build ----------------------------------------------------------------------------------------------------- */

struct build {
    struct ht_draft *g;
    struct ht_fates fates;
    int32_t mb;
    int32_t *computed; /* [turns of a micro-batch] last op of each of the backward pass */
};

static unsigned recomputed(const struct build *b, int32_t u)
{
    bool block = u > 0 && u < b->g->n_units - 1;
    return block ? ht_fates_sub_ops(&b->fates, u, HT_FATE_RECOMPUTED) : 0;
}

static void forward_pass(struct build *b)
{
    for (int32_t u = 0; u < b->g->n_units; u++) {
        ht_draft_forward(b->g, u, b->mb, HT_ALL_SUB_OPS & ~recomputed(b, u));
        if (u > 0 && u < b->g->n_units - 1) ht_fates_out(&b->fates, u, b->mb);
    }
}

/* Adds the gradient that has come last: with several ranks that of the unit before. */
static void accumulate(struct build *b, int32_t unit)
{
    int32_t u = ht_draft_wait_reduced(b->g, unit);
    if (u >= 0 && b->mb) ht_draft_accumulate(b->g, b->g->lanes->compute, u, b->mb);
}

static void backward_pass(struct build *b)
{
    struct ht_draft *g = b->g;
    for (int32_t turn = g->n_units - 1; turn < ht_turns(g->n_units); turn++) {
        int32_t u = ht_turn(g->n_units, turn).unit;
        unsigned again = recomputed(b, u);
        ht_fates_fetch(&b->fates, b->mb, turn, b->computed);
        if (again) ht_draft_recompute(g, u, 1, b->mb, again);
        b->computed[turn] = ht_draft_backward(g, u, b->mb);
        accumulate(b, u);
    }
    accumulate(b, -1);
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct build b = {.g = g, .computed = ht_alloc_ids(ht_turns(g->n_units))};
    ht_fates_init(&b.fates, g, plan);
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (b.mb = 0; b.mb < g->own_mb; b.mb++) {
        forward_pass(&b);
        backward_pass(&b);
    }
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
    free(b.computed);
}

static const struct ht_program program = {.emit = emit}, program_with_disk = {.emit = emit, .disk = true};

/* clang-format off */
#define SWAPPING(NAME, TITLE, SOURCE, VARIANT, KNOBS, PROGRAM, SUMMARY)                                                \
    {.name = NAME, .title = TITLE, .source = SOURCE, .summary = SUMMARY, .knobs = KNOBS, .variant = VARIANT,           \
     .one_device = VARIANT == FLASHNEURON, .disk = VARIANT == FLASHNEURON, .plan = plan, .program = PROGRAM,           \
     .build = ht_build_program}
const struct ht_system ht_capuchin = SWAPPING("capuchin", "Capuchin", "Peng et al. 2020, ASPLOS", CAPUCHIN, knobs, &program,
    "states on the device; activations swapped where that hides, then recomputed");
const struct ht_system ht_checkmate = SWAPPING("checkmate", "Checkmate", "Jain et al. 2020, MLSys", CHECKMATE, checkmate_knobs,
    &program, "states on the device; activations kept or recomputed by an integer program");
const struct ht_system ht_flashneuron = SWAPPING("flashneuron", "FlashNeuron", "Bae et al. 2021, FAST", FLASHNEURON, knobs,
    &program_with_disk, "states on the device; activations offloaded to SSDs from the first layer on");
/* clang-format on */
