/* Works of a scenario's ops: the keys under which their costs are asked, the same for builders and planners. */
#ifndef HT_BUILD_WORKS_H
#define HT_BUILD_WORKS_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* What every work about a unit shares: its kind, the model's shape, the micro-batch, the types. n_units 1, no bytes and no
   parameters. */
struct ht_work ht_scenario_work(const struct ht_scenario *s, enum ht_op_kind kind, enum ht_lane_kind where,
                                int64_t unit);

/* Adding a micro-batch's gradient to the sum, and the optimizer step: of so many of a unit's parameters. micro_batches: of a
   rank; with several of them sums are stepped. */
struct ht_work ht_accumulate_work(const struct ht_scenario *s, enum ht_lane_kind where, int64_t unit, int64_t params);
struct ht_work ht_step_work(const struct ht_scenario *s, enum ht_lane_kind where, int64_t unit, int64_t params,
                            int64_t micro_batches);
struct ht_work ht_copy_work(enum ht_lane_kind where, int64_t bytes);
/* A collective of so many ranks, through each of which `elements` pass each way. */
struct ht_work ht_collective_work(enum ht_op_kind kind, int32_t ranks, enum ht_dtype dtype, int64_t elements);

/* Memory traffic per parameter of an optimizer step on gradients of a type: master parameters, momentum, variance and
   gradient are read; the first three are written, and the 16-bit copy if there is one. */
int64_t ht_step_traffic_bytes(const struct ht_numerics *n, enum ht_dtype grad);

/* Returns the elements of a unit's gradient that pass a member of an all-reduce each way. A ring reduces and gathers: (n - 1) / n of
   them, twice, in parts rounded up (Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
   Workstations", JPDC 69(2), 2009). members >= 1. */
int64_t ht_all_reduce_elements(const struct ht_scenario *s, int64_t unit, int64_t members);

#endif
