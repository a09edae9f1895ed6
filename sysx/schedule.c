/*
 * The schedule: an all-forward-all-backward pipeline whose backward stages go round the GPUs the other way.
 *
 *     forward stage i    GPU  i mod N_g               backward stage q = d i + k    GPU  N_g - 1 - q mod N_g
 *
 *     N_g = 2, v = 1, d = 2, two micro-batches (Figs. 5(c) and 7(b)); b q: backward stage q
 *
 *     GPU 0   compute  f0 f0 b3 b3 b1 b1           c(0,0) is wanted on GPU 1 and sent when f0 is done; c(0,1) stays
 *             cpu 3               O3  O3           a step as soon as its gradient is there
 *             cpu 1                     O1  O1
 *     GPU 1   compute     f1 f1 b2 b2 b0 b0
 *             cpu 2                  O2  O2
 *             cpu 0                        O0  O0  | agree | bad: undo 3, undo 2, undo 1, undo 0
 *
 * All of it is built by common/plan/pipe.h; here is only what SysX and its configurations (Table 3) choose.
 *
 * Departures and choices. The assignment is deduced: the captions of Figs. 5 and 8 name stages and GPUs, and "falling
 * q, round the GPUs from the last" is what fits them all. The loss: its backward runs on GPU 0, which gets the last
 * forward stage's output as a message (strict = 1) or makes it again from the checkpoint (strict = 0); the paper does
 * not say. The verdict: every stage's gradients are judged before its step, the ranks agree once all have stepped, and
 * then each undoes its steps or not. Bit-exact undo takes a log of about 4 bytes a parameter, which the paper's
 * arithmetic reversal (log = 0) does not.
 */
#include "sysx/sysx.h"

struct ht_pipe_style sysx_style(enum sysx_variant variant, const struct sysx_choice *c)
{
    bool at_once = variant >= SYSX_CFG3;
    return (struct ht_pipe_style){
        .order = HT_PIPE_AFAB,
        .decoupled = true,
        .v = (int32_t)c->v,
        .d = (int32_t)c->d,
        .offload = true,
        .own = at_once ? HT_CONTROL_ROLLBACK : HT_CONTROL_GATE,
        .undo = c->log ? HT_UNDO_LASTING : HT_UNDO_UNLOGGED,
        .recompute = true,
        .lane_per_stage = at_once,
        .early_checkpoints = variant >= SYSX_CFG2,
        .early_recompute = c->early,
        .forward_head = c->head,
        .strict_loss = c->strict,
        .blocking_sends = true,
        .free_messages = variant == SYSX_CFG4,
    };
}

enum ht_status sysx_build(const struct ht_system *self, const struct ht_scenario *scenario, const struct ht_plan *p,
                          struct ht_error *err, struct ht_schedule **out)
{
    struct sysx_choice c = {.v = ht_plan_get(p, "v"),
                            .d = ht_plan_get(p, "d"),
                            .early = ht_plan_get(p, "early"),
                            .head = ht_plan_get(p, "head"),
                            .strict = ht_plan_get(p, "strict"),
                            .log = ht_plan_get(p, "log")};
    struct ht_pipe_style style = sysx_style((enum sysx_variant)self->variant, &c);
    return ht_pipe_build(scenario, &style, self->name, err, out);
}
