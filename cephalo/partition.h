/*
 * Cephalo's partition of the training state (Guo et al., Sec. 2.4 "Training State Partition"; Sec. 3.3 "Uneven
 * Parameter Sharding"): how much of it each GPU holds, and which elements of which unit.
 */
#ifndef CEPHALO_PARTITION_H
#define CEPHALO_PARTITION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/*
 * Divides state_bytes so that the fullest GPU is as empty as possible, by (compute + state) / capacity. held[n] add up
 * to state_bytes. The paper gives out chunks, each to the GPU that is least full (Sec. 2.4). With ever smaller chunks
 * this becomes water filling: a level u with
 *
 *     sum_i max(0, u capacity_i - compute_i) = state
 *
 * which is solved exactly and rounded to bytes by the largest fraction. HT_INFEASIBLE if compute and state exceed all
 * capacities together (constraint III), i.e. u > 1. Requires compute_bytes[i] <= capacity_bytes[i] (constraint II).
 */
enum ht_status cephalo_partition_state(int32_t n, const int64_t *compute_bytes, const int64_t *capacity_bytes,
                                       int64_t state_bytes, struct ht_error *err, int64_t *held);

/*
 * Cuts units into shards that have these weights over all units together. Keeps uneven units few, since their
 * collectives take longer. elements[n_units]: of each unit. weights[n_gpus], e.g. held bytes; not all 0. shards[n_units
 * * n_gpus]: elements of each unit on each GPU, in GPU order. even[n_units]: the unit is cut into N shards of one size,
 * except shorter ones at the end as in ht_layout_equal.
 *
 * In an even unit every GPU has 1/N, so even units have at most N min_i r_i of all elements. Units are made even from
 * the largest to the smallest while they fit (of equal ones the first). Each other unit is given to the GPU that lacks
 * most, then to the next, and so on; of equals to the first. Sec. 3.3's example, two units and a ratio of 3:1: rows
 * (1/2, 1/2) and (1, 0).
 *
 * A GPU's elements add up to its weight's part of all of them, rounded. Shards of one size shift this: up by less than
 * one element per even unit, or down, at the end of the unit, by less than N.
 */
void cephalo_partition_units(int32_t n_gpus, const int64_t *weights, int32_t n_units, const int64_t *elements,
                             int64_t *shards, bool *even);

#endif
