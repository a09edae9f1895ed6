/*
 * What a program's allocator takes of a device for a schedule's tensors (`struct ht_allocator`), while the safe sequence
 * runs: PyTorch's, c10/cuda/CUDACachingAllocator.cpp.
 *
 * A tensor gets a block of a segment. Each stream (a lane that makes tensors) has a pool of segments. A new tensor gets
 * the smallest free block of its pool that is large enough, and what it does not need stays a free block. If there is
 * none, the device gives a new segment. If it cannot, all segments without a live block go back to it first. If it still
 * cannot, that is the OOM: what is free then lies between live blocks, or in other sizes than are asked for.
 *
 *     gpu   |A1 A2 ..|A3 .|        segments of activations, gradients, scratch
 *     h2d   |P1|P2|..|             of parameters: their free blocks are not for activations
 *
 * Departures. A row of the schedule's table stands for several tensors, whose sizes it does not have: a block's
 * parameters are four matrices, its activations some ten tensors, logits and their copies two to four. Such a row is
 * taken as four equal ones; a shard, a checkpoint, a gradient of one and a buffer is one tensor. Tensors of up to 1 MiB have no segments of their own kind.
 */
#ifndef HT_SCHEDULE_POOLS_H
#define HT_SCHEDULE_POOLS_H

#include "common/schedule/residency.h"

struct ht_pools;

/* Creates the pools of a schedule, with its residents. A resident that an op makes anew is in the pool of that op's
   lane, any other in one of its own. NULL if the schedule names no allocator. */
struct ht_pools *ht_pools_create(const struct ht_schedule *s, const struct ht_residencies *residencies);
void ht_pools_destroy(struct ht_pools *p);

/* Takes memory for effect k of an op, which PRODUCEs a tensor on the op's device. */
void ht_pools_take(struct ht_pools *p, int32_t op, int64_t k);
/* Ends an op's grant: what was leaving its device is free once an op of the compute lane has its memory. */
void ht_pools_granted(struct ht_pools *p, int32_t op);
/* Returns memory of effect k of an op, which RELEASEs a tensor on the op's device. */
void ht_pools_return(struct ht_pools *p, int32_t op, int64_t k);

/* Returns what the program has of a rank's device now: its segments, and its communicators but the first. More than the
   device's capacity once a tensor did not fit. */
int64_t ht_pools_bytes(const struct ht_pools *p, int32_t rank);

/* Counts the communicators of each rank: n[n_ranks]. A group of ranks on a lane of collectives is one, so is a pair of
   ranks that exchange messages, in either direction (PyTorch, ProcessGroupNCCL.cpp, getKeySendRecv), and the
   tensor-parallel ranks of a pass. */
void ht_count_communicators(const struct ht_schedule *s, int32_t *n);

#endif
