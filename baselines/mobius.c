/*
 * Pipelines with everything in host memory: Mobius, and Megatron's interleaved order extended by offloading.
 *
 * Feng et al., "Mobius: Fine Tuning Large-Scale Models on Commodity GPU Servers", ASPLOS 2023, as SysX describes and
 * compares it (its Sec. 2.2, 2.3, Fig. 2). v stages a device. A stage's parameters are fetched while the previous stage
 * computes, and freed after the stage. The forward order is that of GPipe, stage by stage:
 *
 *     h2d       P0 P4                     P0               (device 0 of four, eight stages)
 *     compute   f0 f0 f0 f0 f4 f4 f4 f4 . b4 b4 b4 b4 b0 b0 b0 b0
 *     d2h                                             G4          G0
 *     cpu                                                 V4         V0 | agree | O4 O0
 *
 * The last forward stage of a device stays for its backward. When all devices know that no gradient has overflowed,
 * each device's CPU optimizer steps its stages one after another; the next iteration begins after that.
 *
 * megatron has the order of Narayanan et al. 2021 (SC), Sec. 2.2, and is otherwise the same. A device changes from one
 * of its stages to another every few passes and fetches parameters each time; gradients stay on the device until a
 * stage's last micro-batch. Published Megatron does not offload; SysX compares with this version (its Sec. 5.1,
 * appendix Sec. 1). While a device computes one pass of a pair, the messages of the other pass are on their way, so it
 * waits for no send. Mobius' passes are all of one stage; each waits for its send before the next.
 *
 * Stages are recomputed from their input (recompute = 1), as in all of SysX's experiments but its Fig. 13. There Mobius
 * keeps all activations on the devices (recompute = 0). Activations are never offloaded. segment = n keeps the input of
 * every n-th block and recomputes n blocks at a time, as Megatron-LM itself does.
 *
 * A stage may be recomputed before its gradient arrives (early = 1, as the authors of SysX build Mobius and SysX).
 * Megatron's recomputation is part of the backward pass and waits with it (early = 0).
 *
 * Departures: Mobius' own partition (an integer program over heterogeneous links) and its mapping of stages to PCIe
 * switches are left out: blocks are divided evenly.
 */
#include "baselines/baselines.h"
#include "common/draft/pipe.h"

static const struct ht_knob knobs[] = {
    {"v", "stages a device", .min = 1, .max = -1},
    {"recompute", "1: a block keeps nothing; backwards recompute from their stage's input", .max = 1},
    {"segment", "blocks recomputed at a time, from the input of the first; 0: those of a stage", .max = -1},
    {"early", "1: recomputation may begin before the gradient is there", .max = 1},
    {"head", "1: the forward pass runs the head, for its loss, and the backward pass again", .max = 1},
    {0}};

static struct ht_pipe_style style_of(const struct ht_system *self, const struct ht_plan *plan)
{
    return (struct ht_pipe_style){.order = (enum ht_pipe_order)self->variant,
                                  .v = (int32_t)ht_plan_get(plan, "v"),
                                  .d = 1,
                                  .offload = true,
                                  .own = HT_CONTROL_GATE,
                                  .recompute = ht_plan_get(plan, "recompute"),
                                  .segment = (int32_t)ht_plan_get(plan, "segment"),
                                  .early_recompute = ht_plan_get(plan, "early"),
                                  .forward_head = ht_plan_get(plan, "head"),
                                  .blocking_sends = self->variant != HT_PIPE_INTERLEAVED};
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    int64_t recompute = ht_setting(settings, "recompute", 1);
    int64_t early = ht_setting(settings, "early", recompute && self->variant == HT_PIPE_AFAB);
    int64_t head = ht_setting(settings, "head", 0), segment = ht_setting(settings, "segment", 0);
    if (!recompute && (early || head || segment))
        return ht_fail(err, HT_BAD_INPUT,
                       "%s=%lld is set beside recompute=0; expected recompute=1, since nothing is "
                       "recomputed without it",
                       early  ? "early"
                       : head ? "head"
                              : "segment",
                       (long long)(early || head ? 1 : segment));
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}, .why = "fixed: blocks shared out evenly"};
    ht_pipe_plan_inputs(scenario, out);
    ht_plan_set(out, "v", ht_setting(settings, "v", ht_pipe_stages_each(scenario, 2, ht_scenario_ranks(scenario))));
    ht_plan_set(out, "recompute", recompute);
    if (segment) ht_plan_set(out, "segment", segment);
    ht_plan_set(out, "early", early);
    ht_plan_set(out, "head", head);
    struct ht_pipe_style style = style_of(self, out);
    enum ht_status status = ht_pipe_check(scenario, &style, err);
    if (status) return status;
    out->planned_bytes[HT_DEVICE] = ht_pipe_device_bytes(scenario, &style);
    out->planned_bytes[HT_HOST] = ht_pipe_host_bytes(scenario, &style);
    return HT_OK;
}

static enum ht_status build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                            struct ht_error *err, struct ht_schedule **out)
{
    struct ht_pipe_style style = style_of(self, p);
    return ht_pipe_build(scenario, &style, self->name, err, out);
}

const struct ht_system ht_mobius = {
    .name = "mobius",
    .title = "Mobius",
    .source = "Feng et al. 2023, ASPLOS",
    .summary = "pipeline: interleaved all-forward-all-backward, offloaded, CPU optimizer after all gradients",
    .knobs = knobs,
    .variant = HT_PIPE_AFAB,
    .division = HT_PIPELINES,
    .ranks_control = HT_CONTROL_GATE,
    .plan = plan,
    .build = build,
};

const struct ht_system ht_megatron = {
    .name = "megatron",
    .title = "Megatron with offloading",
    .source = "Narayanan et al. 2021, SC; offloading as in SysX",
    .summary = "pipeline: interleaved 1F1B, offloaded, CPU optimizer after all gradients",
    .knobs = knobs,
    .variant = HT_PIPE_INTERLEAVED,
    .division = HT_PIPELINES,
    .ranks_control = HT_CONTROL_GATE,
    .plan = plan,
    .build = build,
};
