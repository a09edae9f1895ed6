/*
 * ZeRO-Offload (Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021).
 *
 * Compute parameters stay on the device. Gradients go to the host as the backward pass makes them. The CPU steps the
 * optimizer once all of them have arrived. Updated parameters come back unit by unit while the CPU steps the next one.
 *
 *     compute   F0 .. FH | BH BL .. B1 B0 |                     | F0 ..
 *     d2h                |  GH GL .. G1 G0 |                    |
 *     cpu                                  | O0 O1 O2 .. OH     |
 *     h2d                                  |    P0 P1 P2 .. PH  |
 *
 * Residencies (Sec. 3 and 4.1 of that paper): 2M bytes of FP16 parameters on the device; FP32 parameters, momentum,
 * variance and the FP16 gradients, 14M bytes, on the host. In FP32 numerics the host's parameters are the master copy
 * and the device holds a second copy of them.
 *
 * README.md, "ZeRO-Offload": the departures by number. On several devices it is ZeRO-3.
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"

static const struct ht_knob knobs[] = {HT_KNOB_C, {0}};

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile, (void)err;
    const struct ht_numerics *n = &scenario->numerics;
    int64_t params = ht_equal_params(scenario), ranks = ht_scenario_ranks_per_node(scenario);
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0},
                            .why = "fixed: parameters on the device, gradients and optimizer on the host"};
    out->planned_bytes[HT_DEVICE] = ht_dtype_bytes(n->param) * params;             /* 2M */
    out->planned_bytes[HT_HOST] = (12 + ht_dtype_bytes(n->grad)) * params * ranks; /* 14M */
    ht_plan_set(out, "c", ht_checkpointed_blocks(self, scenario, settings));
    return HT_OK;
}

static void place_residents(struct ht_draft *g)
{
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place(g, g->param[u], HT_HOST);
        ht_draft_place(g, g->grad[u], HT_HOST);
        ht_draft_place_states(g, u, HT_HOST);
    }
}

static void emit(struct ht_draft *g, const void *plan)
{
    int32_t c = (int32_t)ht_plan_get(plan, "c");
    int32_t last_copy = ht_mark_create(g->schedule); /* optimizer.step() returns after it; the next iteration waits */
    place_residents(g);
    for (int32_t j = 0; j < g->n_mb; j++) {
        ht_forward_pass(g, j, c, last_copy);
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            ht_backward_step(g, u, j, c);
            ht_draft_gradient_to_host(g, u, j, HT_UPDATE);
        }
    }
    int32_t all_gradients = g->schedule->n_ops - 1; /* of a FIFO lane, so that all before it are done too */
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_step(g, g->lanes->host, u, 1, false);
        if (u == 0) ht_op_after(g->schedule, all_gradients);
        ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, false);
    }
    ht_mark_set(g->schedule, last_copy);
}

static const struct ht_program program = {.emit = emit};

/* clang-format off */
#define ZERO_OFFLOAD(NAME, TITLE, VARIANT, SUMMARY)                                                                    \
    {.name = NAME, .title = TITLE, .source = "Ren et al. 2021, USENIX ATC", .summary = SUMMARY, .knobs = knobs,        \
     .variant = VARIANT, .plan = plan, .program = &program, .build = ht_build_program}
const struct ht_system ht_zero_offload = ZERO_OFFLOAD("zero_offload", "ZeRO-Offload", 0,
    "gradients and optimizer on the host, parameters on the device");
const struct ht_system ht_zero_offload_ckpt = ZERO_OFFLOAD("zero_offload_ckpt", "ZeRO-Offload, full checkpointing", 1,
    "ZeRO-Offload with every block recomputed");
/* clang-format on */
