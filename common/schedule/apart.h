/* Blocks whose halves (common/model/halves.h) are divided into different numbers of tensor-parallel parts, or are on different
   numbers of ranks; and what their fronts hand to their backs. */
#ifndef HT_SCHEDULE_APART_H
#define HT_SCHEDULE_APART_H

#include "common/model/halves.h"
#include "common/schedule/schedule.h"

/* Returns true if a tensor holds parameters, their gradient or optimizer states. */
static inline bool ht_is_unit_state(const struct ht_tensor *t)
{
    bool is_state = t->class == HT_PARAM || t->class == HT_MASTER || t->class == HT_MOMENTUM ||
                    t->class == HT_VARIANCE || t->class == HT_GRAD;
    return is_state && t->label.unit >= 0 && t->label.n_units <= 1;
}

/*
 * Returns, for each unit, true where the front of a block is divided into another number of parts than its back, or
 * has states on another number of ranks: a stage ends between them, and the next one is of another width, or has other replicas.
 * Elements of the two are then counted in the flat buffers of different parts, or have different copies, so each half is a unit of
 * its own to whoever counts elements. The caller frees the array.
 */
bool *ht_halves_apart(const struct ht_schedule *s);

/* Returns the half as which a tensor of such a unit counts; 0 for tensors of others. */
unsigned ht_apart_half(const bool *apart, const struct ht_tensor *t);

/* Returns true if a tensor is what a front hands to a back beside the residual, a checkpoint that is labelled with the sub-op
   which makes it, or the gradient of that. */
static inline bool ht_is_handed(const struct ht_tensor *t)
{
    uint32_t of = t->label.sub_ops;
    return (t->class == HT_CHECKPOINT || t->class == HT_ACT_GRAD) && of && !(of & (of - 1));
}

#endif
