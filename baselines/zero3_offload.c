/*
 * ZeRO-3 with parameters offloaded (Rajbhandari et al., "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale
 * Deep Learning", SC 2021, with the CPU as the only other tier).
 *
 * Like ZeRO-Offload, but nothing stays on the device. The parameters of a unit come from the host while the unit before
 * it computes, and are dropped after the unit.
 *
 *     h2d       P0 P1 P2 .. PH          PL .. P1 P0         | P0 ..      each once the unit before last has left
 *     compute      F0 F1 .. FL FH | BH BL .. B1 B0          |
 *     d2h                         |    GH GL .. G1 G0       |
 *     cpu                                                O0 .. OH
 *
 * On several devices all of this holds for a rank's 1/N, and whole parameters are gathered on the way
 * (common/draft/zero.c).
 *
 * README.md, "ZeRO-Infinity": the departures by number.
 */
#include "baselines/baselines.h"
#include "baselines/passes.h"
#include "common/draft/hops.h"

static const struct ht_knob knobs[] = {HT_KNOB_C, {0}};

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile, (void)err;
    int64_t each = ht_model_state_bytes(&scenario->numerics);
    *out =
        (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}, .why = "fixed: everything on the host, a unit fetched ahead"};
    out->planned_bytes[HT_HOST] = each * ht_equal_params(scenario) * ht_scenario_ranks_per_node(scenario); /* 16M */
    ht_plan_set(out, "c", ht_checkpointed_blocks(self, scenario, settings));
    return HT_OK;
}

struct build {
    struct ht_draft *g;
    struct ht_hops params; /* a turn ahead; turns are a micro-batch's */
    int32_t c, mb;
};

static void passes(struct build *b, int32_t turn)
{
    struct ht_turn x = ht_turn(b->g->n_units, turn);
    int32_t *op = &b->params.computed[turn];
    if (x.forward) *op = ht_draft_forward(b->g, x.unit, b->mb, ht_kept(b->g, x.unit, b->c));
    if (x.backward) *op = ht_backward_step(b->g, x.unit, b->mb, b->c);
    ht_hops_drop(&b->params, turn);
    if (x.backward) ht_draft_gradient_to_host(b->g, x.unit, b->mb, HT_UPDATE);
}

static void emit(struct ht_draft *g, const void *plan)
{
    struct build b = {.g = g, .c = (int32_t)ht_plan_get(plan, "c")};
    int32_t last_step = ht_mark_create(g->schedule); /* the next iteration starts after it */
    ht_hops_init(&b.params, g, 1);
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_HOST);
        ht_draft_place(g, g->grad[u], HT_HOST);
        ht_draft_place_states(g, u, HT_HOST);
    }
    for (b.mb = 0; b.mb < g->n_mb; b.mb++) {
        ht_hops_restart(&b.params, b.params.computed[b.params.n_turns - 1]);
        ht_hops_fetch(&b.params, -1);
        if (b.mb == 0) ht_op_after_prev(g->schedule, last_step);
        for (int32_t turn = 0; turn < b.params.n_turns; turn++) {
            ht_hops_fetch(&b.params, turn);
            passes(&b, turn);
        }
    }
    ht_hops_free(&b.params);
    int32_t all_gradients = g->schedule->n_ops - 1; /* of a FIFO lane, so that all before it are done too */
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_step(g, g->lanes->host, u, 1, false);
        if (u == 0) ht_op_after(g->schedule, all_gradients);
    }
    ht_mark_set(g->schedule, last_step);
}

static const struct ht_program program = {.emit = emit};

/* clang-format off */
#define ZERO3(NAME, TITLE, VARIANT, SUMMARY)                                                                           \
    {.name = NAME, .title = TITLE, .source = "Rajbhandari et al. 2021, SC (ZeRO-Infinity)", .summary = SUMMARY,        \
     .knobs = knobs, .variant = VARIANT, .plan = plan, .program = &program, .build = ht_build_program}
const struct ht_system ht_zero3_offload = ZERO3("zero3_offload", "ZeRO-3, offloaded", 0,
    "everything on the host, parameters fetched unit by unit");
const struct ht_system ht_zero3_offload_ckpt = ZERO3("zero3_offload_ckpt", "ZeRO-3, offloaded, full checkpointing", 1,
    "the same with every block recomputed");
/* clang-format on */
