/*
 * SysX's planner: decides the stages, v forward stages per GPU and d backward stages per forward stage.
 *
 * The paper says how stages are made (Sec. 3.1, eq. 4) and what its own runs used (appendix, Fig. 3: two forward and
 * six backward stages a GPU), but not how to choose. We take its v = 2, d = 3. With recomputation a backward takes as
 * long as three forwards, so a third of it lasts as long as a forward, which leaves no bubble between the passes (Sec.
 * 3.1). There are fewer stages if the model has too few blocks.
 *
 * Departure: stages may differ by one block in size; the paper's are always equal.
 */
#include "sysx/sysx.h"

#include <stdio.h>

/* clang-format off */
#define V      {"v", "forward stages per GPU", .min = 1, .max = -1}
#define D      {"d", "backward stages per forward stage", .min = 1, .max = -1}
#define EARLY  {"early", "1: recomputation may begin before the gradient is there", .max = 1}
#define HEAD   {"head", "1: the forward pass runs the head, for its loss, and the backward pass again", .max = 1}
#define STRICT {"strict", "0: the last backward stage recomputes the head's input, no message brings it", .max = 1}
#define LOG    {"log", "0: steps are undone by arithmetic, which keeps no log and is not exact (simulation only)", .max = 1}
/* clang-format on */

static const struct ht_knob cfg0_knobs[] = {V, EARLY, HEAD, STRICT, {0}},
                            synchronous_knobs[] = {V, D, EARLY, HEAD, STRICT, {0}};
static const struct ht_knob knobs[] = {V, D, EARLY, HEAD, STRICT, LOG, {0}};

/* Returns the device memory by stages, counted as in ht_pipe_device_bytes. It is the larger of two: the parameters of
   two forward stages i; or those of two of the finer backward stages k, a gradient, another gradient that is copied
   out, and what the blocks of one stage keep. The checkpoints come on top:  max(2 Psi_i, 4 Psi_k + A_k) + N_m v d c */
static int64_t device_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style)
{
    int64_t forward, backward, kept, e = ht_dtype_bytes(scenario->numerics.param);
    ht_pipe_largest_stage(scenario, style, style->d, &forward, &kept);
    ht_pipe_largest_stage(scenario, style, 1, &backward, &kept);
    int64_t stages = 2 * e * forward > 4 * e * backward + kept ? 2 * e * forward : 4 * e * backward + kept;
    return stages + ht_pipe_checkpoint_bytes(scenario, style);
}

static enum ht_status plan(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out)
{
    (void)profile;
    int64_t ranks = ht_scenario_ranks(scenario);
    struct sysx_choice c = {.d = 1};
    c.v = ht_setting(settings, "v", ht_pipe_stages_each(scenario, 2, ranks));
    if (self->variant != SYSX_CFG0) c.d = ht_setting(settings, "d", ht_pipe_stages_each(scenario, 3, ranks * c.v));
    c.early = ht_setting(settings, "early", 1);
    c.head = ht_setting(settings, "head", 0);
    c.strict = ht_setting(settings, "strict", 1);
    c.log = self->variant >= SYSX_CFG3 && ht_setting(settings, "log", 1);
    struct ht_pipe_style style = sysx_style((enum sysx_variant)self->variant, &c);
    enum ht_status status = ht_pipe_check(scenario, &style, err);
    if (status) return status;
    *out = (struct ht_plan){.planned_bytes = {-1, -1, 0, 0}};
    out->planned_bytes[HT_DEVICE] = device_bytes(scenario, &style);
    out->planned_bytes[HT_HOST] = ht_pipe_host_bytes(scenario, &style);
    ht_pipe_plan_inputs(scenario, out);
    ht_plan_set(out, "v", c.v);
    ht_plan_set(out, "d", c.d);
    ht_plan_set(out, "early", c.early);
    ht_plan_set(out, "head", c.head);
    ht_plan_set(out, "strict", c.strict);
    if (self->variant >= SYSX_CFG3) ht_plan_set(out, "log", c.log);
    snprintf(out->why, sizeof out->why, "%lld forward and %lld backward stages over %lld GPUs, %lld micro-batches%s",
             (long long)(c.v * ranks), (long long)(c.v * c.d * ranks), (long long)ranks,
             (long long)ht_scenario_micro_batches(scenario),
             ht_scenario_micro_batches(scenario) < ranks ? ": fewer than GPUs, so that they wait between passes" : "");
    return HT_OK;
}

/* clang-format off */
#define SYSX(NAME, TITLE, VARIANT, KNOBS, SUMMARY)                                                                       \
    {.name = NAME, .title = TITLE, .source = "Ryu et al., SysX", .summary = SUMMARY, .knobs = KNOBS, .variant = VARIANT,       \
     .division = HT_PIPELINES, .ranks_control = VARIANT >= SYSX_CFG3 ? HT_CONTROL_ROLLBACK : HT_CONTROL_GATE,                             \
     .plan = plan, .build = sysx_build}
const struct ht_system sysx = SYSX("sysx", "SysX", SYSX_CFG3, knobs,
    "pipeline: passes of a stage on different GPUs, fine backward stages, CPU optimizer at once");
const struct ht_system sysx_cfg0 = SYSX("sysx_cfg0", "SysX CFG0", SYSX_CFG0, cfg0_knobs,
    "SysX, decoupled pass assignment alone");
const struct ht_system sysx_cfg1 = SYSX("sysx_cfg1", "SysX CFG1", SYSX_CFG1, synchronous_knobs, "CFG0 and fine backward stages");
const struct ht_system sysx_cfg2 = SYSX("sysx_cfg2", "SysX CFG2", SYSX_CFG2, synchronous_knobs, "CFG1 and checkpoints sent early");
const struct ht_system sysx_cfg3 = SYSX("sysx_cfg3", "SysX CFG3", SYSX_CFG3, knobs,
    "CFG2 and the asynchronous optimizer: all of SysX");
const struct ht_system sysx_cfg4 = SYSX("sysx_cfg4", "SysX CFG4", SYSX_CFG4, knobs,
    "CFG3 with messages between GPUs that cost nothing: a bound");
/* clang-format on */
