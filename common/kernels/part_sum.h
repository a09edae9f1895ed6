/* Internal: steps of a pass that a tensor-parallel part may have to sum between. See unit.h. */
#ifndef HT_KERNELS_PART_SUM_H
#define HT_KERNELS_PART_SUM_H

#include "common/kernels/unit.h"

/* Adds up a (B,T,C) over the model's parts, in place. Does nothing for a whole model, or for NULL. */
void ht_sum_parts(const struct ht_unit_args *args, void *data);

/* Runs two steps over rows on the pool: of a whole model at once, each worker going on with its rows; of a part one after
   the other, and between them sums what the first has `made`, a (B,T,C) or NULL. */
void ht_run_rows(const struct ht_unit_args *args, void *arg, ht_pool_fn first, void *made, ht_pool_fn second);

#endif
