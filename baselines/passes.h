/* The forward pass and the steps of the backward pass, with the first c blocks checkpointed. */
#ifndef HT_BASELINES_PASSES_H
#define HT_BASELINES_PASSES_H

#include "common/draft/draft.h"
#include "common/plan/system.h"

#define HT_KNOB_C                                                                                                      \
    {                                                                                                                  \
        "c", "blocks with activation checkpointing, the first ones", .max = -1                                         \
    }

/* Returns the forced c. Otherwise a system of full checkpointing (variant 1) checkpoints all blocks, others none. */
static inline int64_t ht_checkpointed_blocks(const struct ht_system *self, const struct ht_scenario *scenario,
                                             const struct ht_settings *settings)
{
    return ht_setting(settings, "c", self->variant ? scenario->model.layers : 0);
}

/* Returns true for blocks 1 .. c, which drop their activations. */
static inline bool ht_is_checkpointed(const struct ht_draft *g, int32_t unit, int32_t c)
{
    return unit <= c && ht_draft_kind(g, unit) == HT_UNIT_BLOCK;
}

/* Returns the sub-ops whose activations stay from the forward pass to the backward pass: all or none. */
static inline unsigned ht_kept(const struct ht_draft *g, int32_t unit, int32_t c)
{
    return ht_is_checkpointed(g, unit, c) ? 0 : HT_ALL_SUB_OPS;
}

/* Writes the draft of in_memory (struct ht_program.emit): everything stays on the device. plan: must have "c". */
void ht_train_in_memory(struct ht_draft *g, const void *plan);

/* Appends the forward pass of a micro-batch. barrier: op of the previous iteration for which the very first forward
   waits, or a mark (ht_mark_create); or -1. */
static inline void ht_forward_pass(struct ht_draft *g, int32_t mb, int32_t c, int32_t barrier)
{
    for (int32_t u = 0; u < g->n_units; u++) {
        ht_draft_forward(g, u, mb, ht_kept(g, u, c));
        if (u == 0 && mb == 0) ht_op_after_prev(g->schedule, barrier);
    }
}

/* Appends a unit's recomputation, if it is checkpointed, and its backward. Returns B's id. */
static inline int32_t ht_backward_step(struct ht_draft *g, int32_t unit, int32_t mb, int32_t c)
{
    if (ht_is_checkpointed(g, unit, c)) ht_draft_recompute(g, unit, 1, mb, HT_ALL_SUB_OPS);
    return ht_draft_backward(g, unit, mb);
}

#endif
