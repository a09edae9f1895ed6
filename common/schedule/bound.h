/*
 * An upper bound, from the graph alone, on the memory that any run of a schedule can hold, whatever the durations are.
 *
 * At the moment when op x is granted its memory, a tensor that op a allocates and op r frees can be live unless r has
 * surely ended by then (r before x), or a cannot have been granted yet (x before a). "Before" is what edges and FIFO
 * lanes imply. The bound of a space is the largest sum over all x of what can be live there, over two consecutive
 * iterations (no more are ever in flight). It never exceeds the space (capacity and limit): the memory rule sees to
 * that.
 *
 *     lanes:   compute  F1 F2 B2 B1        gradient of block 2: made by B2, freed by G2
 *              d2h            G2 G1        at B1, G2 may still be running: both gradients count
 *
 * What edges imply is kept per op as the first position of every FIFO lane that starts after it. Ops of PRIORITY lanes
 * have no position. For them the relation is found only through their direct dependencies, which can only raise the
 * bound.
 */
#ifndef HT_SCHEDULE_BOUND_H
#define HT_SCHEDULE_BOUND_H

#include "common/schedule/schedule.h"

/* Computes the bound of each space: bytes[ht_n_spaces]. issue_ahead as in the executors: memory is granted that much
   earlier. Takes O(edges x lanes), and for each space O(tensors x lanes x log ops), or O(tensors x ops) for tensors
   that PRIORITY lanes make. If any of these exceeds 2^28 steps, the bound is the space. */
void ht_schedule_bound(const struct ht_schedule *s, int32_t issue_ahead, int64_t *bytes);

#endif
