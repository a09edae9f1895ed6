/* Steps of a pass between which a tensor-parallel part may have to sum (unit.h). Internal to common/kernels. */
#ifndef HT_KERNELS_PART_SUM_H
#define HT_KERNELS_PART_SUM_H

#include "common/kernels/unit.h"

/* Adds up a (B,T,C) over the model's parts, in place. Does nothing for a whole model, or for NULL. */
void ht_sum_parts(const struct ht_unit_args *args, void *data);

/* Runs two steps over rows on the pool. For a whole model a worker goes on with its rows at once. For a part, one step
   runs after the other; in between it sums `made`, a (B,T,C) from the first step, or NULL. */
void ht_run_rows(const struct ht_unit_args *args, void *arg, ht_pool_fn first, void *made, ht_pool_fn second);

#endif
