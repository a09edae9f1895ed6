/*
 * Data parallelism over unlike GPUs, each of which takes as many micro-batches as its speed allows. A teaching example;
 * docs/write-your-own-system.md walks through it, and says what it leaves to improve.
 *
 *     slow   F F F | B B B |           1 micro-batch     l = 1
 *     fast   F  F  F | B B  B |        3 micro-batches   l = 3
 *
 * States are cut evenly over the GPUs, as in ZeRO-3: a unit's parameters are gathered for each pass, its gradients are
 * scattered behind it. So the slow GPU holds as much as the fast one, and waits in each collective of a round that it
 * has no micro-batch of.
 */
#include "common/base/array.h"
#include "common/draft/cost_query.h"
#include "common/draft/draft.h"
#include "common/draft/layout.h"
#include "examples/examples.h"

#include <stdlib.h>

static const struct ht_knob knobs[] = {
    {"m", "sequences of a micro-batch of each rank", .min = 1, .max = 1 << 20, .kind = HT_VARIABLE_BY_RANK},
    {"l", "micro-batches of each rank", .max = 1 << 20, .kind = HT_VARIABLE_BY_RANK},
    {"share", "weights of the shares of the states that the ranks hold", .max = 1000, .kind = HT_VARIABLE_BY_RANK,
     .decimal = true},
    {0},
};

/* Returns the time that a rank takes for a micro-batch: a block's passes, which stand for all of them. */
static int64_t rank_ns(const struct ht_scenario *scenario, const struct ht_profile *profile, int32_t rank,
                       struct ht_error *err, enum ht_status *status)
{
    struct ht_cost_query q = {
        .scenario = scenario, .profile = profile, .rank = rank, .micro_batches = 1, .err = err, .status = *status};
    int64_t ns = ht_query_pass(&q, HT_OP_FORWARD, 1) + ht_query_pass(&q, HT_OP_BACKWARD, 1);
    *status = q.status;
    return ns;
}

/* Gives each micro-batch to the rank that would be done with it first. ns, l: [ranks] */
static void divide(int64_t micro_batches, int32_t ranks, const int64_t *ns, int64_t *l)
{
    for (int64_t i = 0; i < micro_batches; i++) {
        int32_t first = 0;
        for (int32_t r = 1; r < ranks; r++)
            if ((l[r] + 1) * ns[r] < (l[first] + 1) * ns[first]) first = r;
        l[first]++;
    }
}

/* Adds a vector by rank to the plan, or the one that --set forces in its place. */
static void set(const struct ht_settings *settings, const char *name, int32_t ranks, const int64_t *values,
                bool decimal, struct ht_plan *out)
{
    const struct ht_variable *forced = ht_setting_variable(settings, name);
    if (forced)
        ht_plan_set_vector(out, forced);
    else
        ht_plan_set_values(out, name, HT_VARIABLE_BY_RANK, ranks, values, decimal);
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)self;
    int32_t ranks = (int32_t)ht_scenario_ranks(scenario);
    int64_t *ns = HT_NEW_ARRAY(int64_t, ranks), *m = HT_NEW_ARRAY(int64_t, ranks);
    int64_t *l = HT_NEW_ARRAY(int64_t, ranks), *share = HT_NEW_ARRAY(int64_t, ranks);
    struct ht_layout *layout = NULL;
    enum ht_status status = HT_OK;
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}, .why = "micro-batches go to the rank that is done first"};
    for (int32_t r = 0; r < ranks; r++) {
        ns[r] = rank_ns(scenario, profile, r, err, &status);
        m[r] = scenario->micro_batch;
        share[r] = HT_PPB / ranks; /* equal weights */
    }
    if (status == HT_OK) divide(scenario->batch / scenario->micro_batch, ranks, ns, l);
    set(settings, "m", ranks, m, false, out);
    set(settings, "l", ranks, l, false, out);
    set(settings, "share", ranks, share, true, out);
    if (status == HT_OK)
        status = ht_layout_planned(scenario, HT_SHARD_ALL, out, err, &layout); /* do they make the batch? */
    ht_layout_destroy(layout);
    free(ns), free(m), free(l), free(share);
    return status;
}

/* Adds up the gradient of the unit that has been reduced last, which is `unit` or an earlier one; -1: of the last. */
static void accumulate(struct ht_draft *g, int32_t unit, int32_t mb)
{
    int32_t u = ht_draft_wait_reduced(g, unit);
    if (u >= 0 && mb) ht_draft_accumulate(g, g->lanes->compute, u, mb);
}

/* Writes one rank's iteration: ZeRO-3, with everything on the device. g->n_mb: rounds, of which a rank may have fewer. */
static void emit(struct ht_draft *g, const void *plan)
{
    (void)plan;
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_place(g, g->param[u], HT_DEVICE);
        ht_draft_place_states(g, u, HT_DEVICE);
    }
    for (int32_t j = 0; j < g->n_mb; j++) {
        for (int32_t u = 0; u < g->n_units; u++) ht_draft_forward(g, u, j, HT_ALL_SUB_OPS);
        for (int32_t u = g->n_units - 1; u >= 0; u--) {
            ht_draft_backward(g, u, j);
            accumulate(g, u, j);
        }
        accumulate(g, -1, j);
    }
    for (int32_t u = 0; u < g->n_units; u++) ht_draft_step(g, g->lanes->compute, u, 1, true);
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out)
{
    struct ht_layout *layout;
    enum ht_status status = ht_layout_planned(scenario, HT_SHARD_ALL, plan, err, &layout);
    if (status != HT_OK) return status;
    struct ht_program program = {.name = self->name, .layout = layout, .emit = emit, .context = plan};
    status = ht_build_graph(scenario, &program, err, out);
    ht_layout_destroy(layout);
    return status;
}

const struct ht_system ht_example_by_speed = {
    .name = "example_by_speed",
    .title = "Micro-batches by speed (example)",
    .source = "docs/write-your-own-system.md",
    .summary = "sharded states, micro-batches to unlike GPUs by their speed",
    .knobs = knobs,
    .division = HT_PLANNED_REPLICAS,
    .plan = plan,
    .build = build,
};
