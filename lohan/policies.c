/*
 * LoHan's rivals for activations (Sec. V-E): model states on the SSDs, CPU Adam in the optimized order and LoHan's
 * schedule, but the policies of others in place of Algorithm 1.
 *
 *     lohan_cap   Capuchin: swapped to main memory where that hides, then recomputed       policies/capuchin.c
 *     lohan_g10   G10: evicted to the SSDs by inactive periods, never recomputed           policies/g10.c
 *     lohan_cm    Checkmate: recomputed or swapped to main memory, an integer program      policies/checkmate.c
 *
 * "only considering the optimal activation swapping and recomputation" (Sec. VI) is what they do: none of them counts
 * the traffic of parameters, gradients and model states, which shares the links with the activations that they move. So
 * they plan with 2P = 0 and 14P = 0 and are simulated, or run, with all of it. Memory is proved with all of it, too.
 *
 * LoHan+G10 "keeps or swaps activations to SSDs": main memory takes none, unless main=1, as G10 itself would.
 *
 * Unlike LoHan's own plans, these may swap much of some blocks and nothing of others. So activations come back `ahead`
 * turns before their block's backward pass, by block (policies/decide.h), and parameters prefetch_b as in LoHan.
 */
#include "lohan/lohan.h"

#include "common/base/array.h"
#include "policies/decide.h"

#include <string.h>

enum policy_variant { CAP, G10, CM };

/* clang-format off */
#define COMMON HT_KNOBS_FATES, HT_KNOB_AHEAD, \
    {"prefetch_f", "turns that parameters come ahead of a forward pass", .max = 64}, \
    {"prefetch_b", "turns that parameters and activations come ahead of a backward pass", .max = 64}
/* clang-format on */
static const struct ht_knob knobs[] = {COMMON, {0}};
static const struct ht_knob g10_knobs[] = {
    COMMON, {"main", "1: activations may wait in main memory, too", .max = 1}, {0}};

/* Turns that parameters come ahead of a pass. */
struct lead {
    int64_t forward, backward;
};

static void complete(const struct ht_policy_request *r, struct ht_plan *plan)
{
    const struct lead *lead = r->context;
    ht_plan_set(plan, "prefetch_f", ht_setting(r->settings, "prefetch_f", lead->forward));
    ht_plan_set(plan, "prefetch_b", ht_setting(r->settings, "prefetch_b", lead->backward));
    if (r->self->variant == G10) ht_plan_set(plan, "main", ht_setting(r->settings, "main", 0));
}

/* Plans with less and less prefetching while the GPU is too small for what it brings ahead, as LoHan does. If nothing
   fits, the plan is the last one. */
static enum ht_status fit_device(struct ht_policy_request *r, struct ht_error *err, struct ht_plan *out)
{
    static const struct lead leads[] = {{1, 1}, {1, 0}, {0, 0}};
    enum ht_status status = HT_OK;
    for (size_t k = 0; k < HT_COUNT(leads) && !status; k++) {
        struct ht_plan plan = {0};
        struct ht_needs needs;
        memcpy(plan.planned_bytes, out->planned_bytes, sizeof plan.planned_bytes);
        r->context = &leads[k];
        status = ht_policy_decide(r, err, &plan, &needs);
        ht_plan_free(out);
        *out = plan;
        if (!status && !needs.short_bytes[HT_DEVICE]) break;
    }
    return status;
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *costs, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    static const ht_policy policies[] = {[CAP] = ht_policy_capuchin, [G10] = ht_policy_g10, [CM] = ht_policy_checkmate};
    bool g10 = self->variant == G10;
    struct ht_policy_request r = {.self = self,
                                  .scenario = scenario,
                                  .costs = costs,
                                  .settings = settings,
                                  .policy = policies[self->variant],
                                  .title = self->title,
                                  .input = g10 ? HT_FATE_SSD : HT_FATE_MAIN,
                                  .rest = g10 ? HT_FATE_SSD : HT_FATE_RECOMPUTED,
                                  .main_memory = !g10 || ht_setting(settings, "main", 0),
                                  .ssds = g10,
                                  .complete = complete};
    return fit_device(&r, err, out);
}

/* clang-format off */
#define SYSTEM(NAME, TITLE, VARIANT, KNOBS, SUMMARY)                                                                   \
    {.name = NAME, .title = TITLE, .source = "Liao et al., LoHan", .summary = SUMMARY, .knobs = KNOBS,                 \
     .variant = VARIANT, .division = HT_SHARED_STATES, .disk = true, .plan = plan,                \
     .program = &lohan_program, .build = ht_build_program}
const struct ht_system lohan_cap = SYSTEM("lohan_cap", "LoHan+Cap", CAP, knobs,
    "LoHan with Capuchin's policy for activations, main memory only");
const struct ht_system lohan_g10 = SYSTEM("lohan_g10", "LoHan+G10", G10, g10_knobs,
    "LoHan with G10's policy for activations: SSDs, no recomputation");
const struct ht_system lohan_cm = SYSTEM("lohan_cm", "LoHan+CM", CM, knobs,
    "LoHan with Checkmate's program for activations: recomputation or main memory");
/* clang-format on */
