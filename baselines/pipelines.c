/*
 * Pipelines that keep everything on the devices.
 *
 *     gpipe         all forwards, then all backwards            f0 f1 f2 f3 . . . b0 b1 b2 b3
 *     dapple        one forward, one backward in turn           f0 f1 . b0 f2 b1 f3 b2 . b3
 *     interleaved   the same over v stages a device, so that the pipeline fills v times as fast
 *
 * GPipe: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", NeurIPS 2019.
 * DAPPLE: Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models", PPoPP 2021. Interleaved:
 * Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021,
 * Sec. 2.2.
 *
 * Every device holds its stages' parameters, optimizer states and gradients, and steps them once its backwards are
 * done. What SysX calls N_m M_a and N_g M_a (Sec. 2.1) are the activations that the first device comes to hold. GPipe's
 * own paper recomputes them: recompute=1. DAPPLE's planner of uneven stages and its data parallelism are left out:
 * blocks are shared out evenly.
 *
 * GPipe and DAPPLE send before they go on; between the two passes of a turn the interleaved order receives what it
 * needs next, as Megatron-LM does with overlapped point-to-point communication, and waits for no send.
 */
#include "baselines/baselines.h"
#include "common/plan/pipe.h"

#define RECOMPUTE                                                                                                      \
    {                                                                                                                  \
        "recompute", "1: a block keeps nothing; backwards recompute from their stage's input", .max = 1                \
    }

static const struct ht_knob knobs[] = {RECOMPUTE, {0}};
static const struct ht_knob chunk_knobs[] = {{"v", "stages a device", .min = 1, .max = -1}, RECOMPUTE, {0}};

static struct ht_pipe_style style_of(const struct ht_system *self, int64_t v, int64_t recompute)
{
    return (struct ht_pipe_style){.order = (enum ht_pipe_order)self->variant,
                                  .v = (int32_t)v,
                                  .d = 1,
                                  .recompute = recompute,
                                  .blocking_sends = self->variant != HT_PIPE_INTERLEAVED};
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    bool chunks = self->variant == HT_PIPE_INTERLEAVED;
    int64_t most = scenario->model.layers / ht_scenario_ranks(scenario);
    int64_t v = chunks ? ht_setting(settings, "v", most < 2 ? 1 : 2) : 1, r = ht_setting(settings, "recompute", 0);
    struct ht_pipe_style style = style_of(self, v, r);
    enum ht_status status = ht_pipe_check(scenario, &style, err);
    if (status) return status;
    *out = (struct ht_plan){.planned_bytes = {-1, 0, 0, 0}, .why = "fixed: blocks shared out evenly"};
    ht_plan_input(out, "L", "", (double)scenario->model.layers);
    ht_plan_input(out, "devices", "", (double)ht_scenario_ranks(scenario));
    ht_plan_set(out, "v", v);
    ht_plan_set(out, "recompute", r);
    return HT_OK;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                            struct ht_error *err, struct ht_schedule **out)
{
    struct ht_pipe_style style = style_of(self, ht_plan_get(p, "v"), ht_plan_get(p, "recompute"));
    return ht_pipe_build(scenario, &style, self->name, err, out);
}

const struct ht_system ht_gpipe = {.name = "gpipe",
                                   .title = "GPipe",
                                   .source = "Huang et al. 2019, NeurIPS",
                                   .summary = "pipeline: all forwards, then all backwards",
                                   .knobs = knobs,
                                   .variant = HT_PIPE_AFAB,
                                   .division = HT_ONE_PIPELINE,
                                   .plan = plan,
                                   .build = build};

const struct ht_system ht_dapple = {.name = "dapple",
                                    .title = "DAPPLE (1F1B)",
                                    .source = "Fan et al. 2021, PPoPP",
                                    .summary = "pipeline: one forward, one backward in turn",
                                    .knobs = knobs,
                                    .variant = HT_PIPE_1F1B,
                                    .division = HT_ONE_PIPELINE,
                                    .plan = plan,
                                    .build = build};

const struct ht_system ht_interleaved = {.name = "interleaved",
                                         .title = "Interleaved 1F1B",
                                         .source = "Narayanan et al. 2021, SC",
                                         .summary = "pipeline: 1F1B over several stages a device",
                                         .knobs = chunk_knobs,
                                         .variant = HT_PIPE_INTERLEAVED,
                                         .division = HT_ONE_PIPELINE,
                                         .plan = plan,
                                         .build = build};
