/*
 * In-memory training: parameters, gradients, optimizer states and activations all stay on the device.
 *
 *     compute   F0 F1 .. FL FH | BH [RL] BL .. [R1] B1 B0 | U0 U1 .. UH
 *
 * The only variable is c, the number of blocks (the first ones) whose activations are dropped and recomputed: 0 for
 * in_memory, all for in_memory_ckpt. The losses of every other system are compared with those of this one. On several
 * devices it is ZeRO-3: each device keeps a shard of the states (common/draft/draft.h).
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"

#include <stdio.h>

static const struct ht_knob knobs[] = {HT_KNOB_C, {0}};

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile, (void)err;
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}};
    if (ht_scenario_ranks(scenario) > 1)
        snprintf(out->why, sizeof(out->why), "ZeRO-3: nothing is offloaded, states are sharded over %lld devices",
                 (long long)ht_scenario_ranks(scenario));
    else
        snprintf(out->why, sizeof(out->why), "nothing is offloaded");
    out->planned_bytes[HT_DEVICE] = ht_model_state_bytes(&scenario->numerics) * ht_equal_params(scenario);
    ht_plan_set(out, "c", ht_checkpointed_blocks(self, scenario, settings));
    return HT_OK;
}

static void accumulate(struct ht_draft *g, int32_t unit, int32_t mb)
{
    int32_t u = ht_draft_wait_reduced(g, unit);
    if (u < 0) return;
    if (mb) ht_draft_accumulate(g, g->lanes->compute, u, mb);
    if (mb + 1 == g->n_mb) ht_draft_all_reduce(g, u);
}

void ht_train_in_memory(struct ht_draft *g, const void *plan)
{
    int32_t c = (int32_t)ht_plan_get(plan, "c");
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (int32_t j = 0; j < g->n_mb; j++) {
        ht_forward_pass(g, j, c, -1);
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            ht_backward_step(g, u, j, c);
            accumulate(g, u, j);
        }
        accumulate(g, -1, j);
    }
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
}

static const struct ht_program program = {.emit = ht_train_in_memory};

/* clang-format off */
#define IN_MEMORY(NAME, TITLE, RANKS_TITLE, VARIANT, SOURCE, SUMMARY)                                                  \
    {.name = NAME, .title = TITLE, .ranks_title = RANKS_TITLE, .source = SOURCE, .summary = SUMMARY, .knobs = knobs,   \
     .variant = VARIANT, .plan = plan, .program = &program, .build = ht_build_program}
const struct ht_system ht_in_memory = IN_MEMORY("in_memory", "In memory", "In memory, ZeRO-3", 0,
    "plain training; the reference of every comparison",
    "everything on the device; on several devices ZeRO-3 (sharded states)");
const struct ht_system ht_in_memory_ckpt = IN_MEMORY("in_memory_ckpt", "In memory, full checkpointing",
    "In memory, ZeRO-3, full checkpointing", 1, "Chen et al. 2016 (checkpointing)",
    "in_memory with every block recomputed");
/* clang-format on */
