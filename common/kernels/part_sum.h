/* Steps of a pass between which a tensor-parallel part may have to sum (unit.h). Internal to common/kernels. */
#ifndef HT_KERNELS_PART_SUM_H
#define HT_KERNELS_PART_SUM_H

#include "common/kernels/rows.h"
#include "common/kernels/unit.h"

/* Adds up a (B,T,C) over the model's parts, in place. Does nothing for a whole model, or for NULL. */
void ht_sum_parts(const struct ht_unit_args *args, void *data);

/* Returns the part's own rows of B T; a whole model has all. */
struct ht_range ht_own_rows(const struct ht_unit_args *args);
/* Gathers the parts' rows to (B,T,C); adds up the parts' (B,T,C), of which each part gets its rows. */
void ht_gather_rows(const struct ht_unit_args *args, const void *mine, void *all);
void ht_scatter_rows(const struct ht_unit_args *args, const void *all, void *mine);
/* Adds `rows` rows of a term, in place. */
void ht_add_rows(const struct ht_unit_args *args, void *to, const void *term, int64_t rows);
/* Adds up a norm's gradients, weight and bias (or NULL), which are of each part's own rows. */
void ht_sum_norm_grads(const struct ht_unit_args *args, void *weight, void *bias);

/* Runs two steps over rows on the pool. For a whole model a worker goes on with its rows at once. For a part, one step
   runs after the other; in between it sums `made`, a (B,T,C) from the first step, or NULL. */
void ht_run_rows(const struct ht_unit_args *args, void *arg, ht_pool_fn first, void *made, ht_pool_fn second);

#endif
