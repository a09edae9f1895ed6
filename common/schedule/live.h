/*
 * What is live while the safe sequence runs (ops one at a time in id order): of a planner's own graph, how much memory
 * is taken at each op, and by which classes of tensors.
 *
 *     op        F1   F2   B2   B1
 *     live      2    3    4    2        what ops before it have left, and what it allocates itself
 */
#ifndef HT_SCHEDULE_LIVE_H
#define HT_SCHEDULE_LIVE_H

#include "common/schedule/schedule.h"

#define HT_ALL_CLASSES  ((1u << HT_N_TENSOR_CLASSES) - 1)
#define HT_CLASS(class) (1u << (class))

/* Writes into bytes[n_ops] what is live in a space while each op runs, counted as in memory (ht_live_bytes): of the
   tensor classes in the mask, residents included. Of ops with a `when` those for good gradients count. */
void ht_schedule_live(const struct ht_schedule *s, int32_t space, uint32_t classes, int64_t *bytes);

#endif
