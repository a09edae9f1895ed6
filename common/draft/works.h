/* Works of a scenario's ops. Builders put them into graphs, and planners ask for their costs by the same keys. */
#ifndef HT_DRAFT_WORKS_H
#define HT_DRAFT_WORKS_H

#include "common/plan/scenario.h"
#include "common/schedule/schedule.h"

/* Returns a work about one unit with the fields that all such works share: its kind, the model's shape, the
   micro-batch, the types. n_units is 1; bytes and params are 0. */
struct ht_work ht_scenario_work(const struct ht_scenario *s, enum ht_op_kind kind, enum ht_lane_kind where,
                                int64_t unit);

/* Returns the work of adding a micro-batch's gradient to the sum, for `params` of a unit's parameters. */
struct ht_work ht_accumulate_work(const struct ht_scenario *s, enum ht_lane_kind where, int64_t unit, int64_t params);
/* Returns the work of an optimizer step on `params` of a unit's parameters. micro_batches: of a rank; with more than
   one the step reads the sum, in its own type. */
struct ht_work ht_step_work(const struct ht_scenario *s, enum ht_lane_kind where, int64_t unit, int64_t params,
                            int64_t micro_batches);
struct ht_work ht_copy_work(enum ht_lane_kind where, int64_t bytes);
/* Returns the work of a copy on a disk lane: to the disk (write) or from it. */
struct ht_work ht_disk_work(bool write, int64_t bytes);
/* Returns the work of a collective of so many ranks that passes `elements` each way through each rank. */
struct ht_work ht_collective_work(enum ht_op_kind kind, int32_t ranks, enum ht_dtype dtype, int64_t elements);
/* Returns the same of uneven shards, where even ones of the same unit would pass `even` elements. */
struct ht_work ht_uneven_collective_work(enum ht_op_kind kind, int32_t ranks, enum ht_dtype dtype, int64_t elements,
                                         int64_t even);

/* Returns the bytes of memory traffic per parameter of an optimizer step on gradients of a type. The step reads master
   parameters, momentum, variance and gradient; it writes the first three, and the 16-bit copy if there is one. The
   software may do more beside it. */
int64_t ht_step_traffic_bytes(const struct ht_scenario *s, enum ht_dtype grad);

/* Returns the elements of a gradient of `params` elements that pass a member of an all-reduce each way. A ring does a reduce-scatter
   and an all-gather: (n - 1) / n of the elements, twice, in parts rounded up (Patarasuk and Yuan, "Bandwidth Optimal
   All-reduce Algorithms for Clusters of Workstations", JPDC 69(2), 2009). members >= 1. */
int64_t ht_all_reduce_elements(int64_t params, int64_t members);

#endif
