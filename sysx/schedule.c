/*
 * SysX's schedule: an all-forward-all-backward pipeline whose backward stages go round the GPUs in the opposite
 * direction.
 *
 *     forward stage i    GPU  i mod N_g               backward stage q = d i + k    GPU  N_g - 1 - q mod N_g
 *
 *     N_g = 2, v = 1, d = 2, two micro-batches (Figs. 5(c) and 7(b)); b q: backward stage q
 *
 *     GPU 0   compute  f0 f0 b3 b3 b1 b1           c(0,0) is needed on GPU 1 and sent when f0 ends; c(0,1) stays
 *             cpu 3               O3  O3           a step starts as soon as its gradient is there
 *             cpu 1                     O1  O1
 *     GPU 1   compute     f1 f1 b2 b2 b0 b0
 *             cpu 2                  O2  O2
 *             cpu 0                        O0  O0  | agree | bad: undo 3, undo 2, undo 1, undo 0
 *
 * Passes, messages at stage boundaries and offloading are those of any pipeline (common/draft/pipe.h). SysX and its
 * configurations (Table 3) add what is here: the ranks of backward stages, the checkpoints that these need from other
 * GPUs, an optimizer lane for each of them, and steps at once, which are undone on an overflow
 * (common/draft/control.h).
 *
 * Departures and choices. We deduced the assignment: the captions of Figs. 5 and 8 name stages and GPUs, and only
 * "falling q, round the GPUs from the last" fits them all. Loss: its backward runs on GPU 0, which receives the last
 * forward stage's output as a message (strict = 1) or recomputes it from the checkpoint (strict = 0); the paper does
 * not say which. Final check: every stage's gradients are checked before its step, the ranks agree once all have
 * stepped, and then each rank keeps or undoes its steps. A bit-exact undo takes a log of about 4 bytes a parameter; the
 * paper's arithmetic reversal (log = 0) takes none.
 */
#include "common/draft/pipe_internal.h"
#include "sysx/sysx.h"

#include <stdio.h>

int32_t sysx_backward_rank(const struct ht_pipe_shape *p, int32_t q)
{
    return p->ranks - 1 - q % p->ranks;
}

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

static void add_checkpoint_lanes(struct ht_pipe *g, int32_t rank)
{
    if (g->shape.ranks == 1) return;
    g->lanes[rank].own_out = ht_pipe_add_lane(g, "ckpt out", HT_LANE_P2P, rank);
    g->lanes[rank].own_in = ht_pipe_add_lane(g, "ckpt in", HT_LANE_P2P, rank);
}

/* Adds the lanes of checkpoints and one optimizer lane per backward stage, so that a late stage delays no other (Sec.
   4, "CPU optimizer"). */
static void add_all_lanes(struct ht_pipe *g, int32_t rank)
{
    add_checkpoint_lanes(g, rank);
    for (int32_t q = g->n_backward - 1; q >= 0; q--) {
        char name[24];
        if (ht_pipe_backward_rank(&g->shape, q) != rank) continue;
        snprintf(name, sizeof name, "cpu %d", q);
        g->stage_lane[q] = ht_pipe_add_lane(g, name, HT_LANE_HOST, rank);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------------------------- */

/* Sends the input of backward stage q from the rank of its forward stage to the rank that recomputes from it. */
static void send_checkpoint(struct ht_pipe *g, int32_t q, int32_t micro_batch, int32_t after)
{
    int32_t from = ht_pipe_forward_rank(&g->shape, q / g->shape.d), to = ht_pipe_backward_rank(&g->shape, q);
    if (!ht_pipe_is_remote(&g->shape, q)) return;
    ht_pipe_message(g, from, to, g->lanes[from].own_out, g->lanes[to].own_in,
                    g->d.x[ht_pipe_at(g, ht_pipe_first_block(g, q), micro_batch)], 'C', after);
}

/* Sends a checkpoint when its backward stage is next on its GPU (CFG0, CFG1). */
static void send_when_wanted(struct ht_pipe *g, const struct ht_pipe_pass *x)
{
    if (!x->forward)
        send_checkpoint(g, x->stage, x->micro_batch, g->computed[ht_pipe_backward_rank(&g->shape, x->stage)]);
}

/* Sends a checkpoint when it is made (CFG2 and later). */
static void send_early(struct ht_pipe *g, const struct ht_pipe_pass *x)
{
    for (int32_t k = 0; x->forward && k < g->shape.d; k++)
        send_checkpoint(g, g->shape.d * x->stage + k, x->micro_batch, -1);
}

/* ---- the system ------------------------------------------------------------------------------------------------ */

struct ht_pipe_style sysx_style(enum sysx_variant variant, const struct sysx_choice *c)
{
    bool at_once = variant >= SYSX_CFG3, early = variant >= SYSX_CFG2;
    return (struct ht_pipe_style){
        .order = HT_PIPE_AFAB,
        .v = (int32_t)c->v,
        .d = (int32_t)c->d,
        .backward_rank = sysx_backward_rank,
        .offload = true,
        .own = at_once ? HT_CONTROL_ROLLBACK : HT_CONTROL_GATE,
        .undo = c->log ? HT_UNDO_LASTING : HT_UNDO_UNLOGGED,
        .recompute = true,
        .early_recompute = c->early,
        .forward_head = c->head,
        .recompute_output = !c->strict,
        .blocking_sends = true,
        .free_messages = variant == SYSX_CFG4,
        .hooks = {.add_lanes = at_once ? add_all_lanes : add_checkpoint_lanes,
                  .begin = early ? NULL : send_when_wanted,
                  .end = early ? send_early : NULL},
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
