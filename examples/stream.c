/*
 * Streaming parameters: the host keeps everything about the blocks, and the device borrows one block's parameters when
 * it needs them. A teaching example; docs/write-your-own-system.md walks through it.
 *
 *     compute       F0 F1 F2 .. FH | BH BL .. B1 B0 |
 *     h2d        P1 P2 P3 ..       | PL .. P1       |          P0 PH        a block is fetched twice an iteration
 *     d2h                          |  GH GL .. G1 G0|
 *     cpu                                           | O0 O1 .. OH
 *
 * The builder does not decide how far fetching runs ahead: a copy is issued when its memory is granted, which is as
 * early as the device's budget allows.
 */
#include "common/draft/draft.h"
#include "examples/examples.h"

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)self, (void)scenario, (void)profile, (void)settings, (void)err;
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}, .why = "nothing to decide: every block is streamed"};
    return HT_OK;
}

/* Returns true if the unit's parameters are on the device only while it needs them. Embedding and head stay there. */
static bool is_streamed(const struct ht_draft *g, int32_t unit)
{
    return ht_draft_kind(g, unit) == HT_UNIT_BLOCK;
}

static void place(struct ht_draft *g)
{
    for (int32_t u = 0; u < g->n_units; u++) {
        if (!is_streamed(g, u)) ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place(g, g->param[u], HT_HOST);
        ht_draft_place(g, g->grad[u], HT_HOST);
        ht_draft_place_states(g, u, HT_HOST);
    }
}

static void fetch(struct ht_draft *g, int32_t unit)
{
    if (is_streamed(g, unit)) ht_draft_copy(g, g->param[unit], HT_HOST, HT_DEVICE, HT_PRODUCE, false);
}

/* Frees the parameters when the last op ends, which is the last to read them. */
static void drop(struct ht_draft *g, int32_t unit)
{
    if (is_streamed(g, unit)) ht_op_effect(g->schedule, g->param[unit], HT_DEVICE, HT_RELEASE);
}

/* Writes one rank's iteration; it runs once for every rank. */
static void emit(struct ht_draft *g, const void *plan)
{
    (void)plan;
    place(g);
    for (int32_t j = 0; j < g->n_mb; j++) {
        for (int32_t u = 0; u < g->n_units; u++) {
            fetch(g, u);
            ht_draft_forward(g, u, j, HT_ALL_SUB_OPS);
            drop(g, u);
        }
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            fetch(g, u);
            ht_draft_backward(g, u, j);
            drop(g, u);
            ht_draft_gradient_to_host(g, u, j, HT_UPDATE);
        }
    }
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_step(g, g->lanes->host, u, 1, false);
        if (!is_streamed(g, u)) ht_draft_copy(g, g->param[u], HT_HOST, HT_DEVICE, HT_UPDATE, false);
    }
}

static const struct ht_program program = {.emit = emit};

const struct ht_system ht_example_stream = {
    .name = "example_stream",
    .title = "Streaming parameters (example)",
    .source = "docs/write-your-own-system.md",
    .summary = "blocks live on the host, the device borrows them one at a time",
    .plan = plan,
    .program = &program,
    .build = ht_build_program,
};
