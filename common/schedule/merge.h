/*
 * Drafts to a graph. A draft is a graph of some of the ranks, written as if the others did not exist: it has their lanes,
 * rows and ops alone, but counts ranks, nodes, capacities, resources, units and micro-batches of the whole. Drafts share
 * no tensors. What crosses drafts is a collective: the k-th collectives of all drafts are one group, so each draft calls
 * all of them, in the same order. A draft of several ranks has a collective's members as a group of its own; these become
 * one with those of the others. Its other groups, messages among its ranks, stay its own.
 *
 *     draft 0   F0 F1 AG2 B1          F0 f0 F1 f1 f2 (AG2 ag2) B1 b1
 *     draft 1   f0 f1 f2 ag2 b1
 *
 * Drafts of tensor-parallel parts are equal drafts, each of the ranks of one part of all stages: `parts` consecutive drafts
 * are the parts of one replica. Their k-th passes over a part (works of several parts) are a group, members in the order
 * of the parts; a collective about a unit is of the drafts of the same part, any other of all drafts.
 *
 *     replica 0   part 0   F0 F1 B1 AR1        (F0 f0) (F1 f1) (B1 b1) AR1 of part 0 .. AR1 of part 1
 *                 part 1   f0 f1 b1 ar1
 *
 * The merge takes an op of each draft in turn, and with it all of its group; a draft that stands before a collective
 * waits until all do. So every draft's order is kept, groups have consecutive ids, and edges lead back: the ids are a
 * safe sequence. All drafts go through the collectives in one order, so none waits for ever.
 *
 *     ids of ops     as they are taken: op i of rank r of N equal drafts is op i N + r
 *     rows           the first row of each draft, then the second of each, ..; residents likewise
 *     lanes          one draft's after the other's
 *     groups         a collective's number is the round in which it is taken; other groups' follow the rounds. With parts
 *                    groups across drafts are numbered as they are taken
 *     resources      those of the first draft; all have the same
 */
#ifndef HT_SCHEDULE_MERGE_H
#define HT_SCHEDULE_MERGE_H

#include "common/schedule/schedule.h"

/* Merges n >= 1 drafts, unlinked, into a graph to be linked; `parts` (>= 1, divides n) of them a replica. Edges,
   priorities and conditions are the drafts'. One draft keeps the numbers of its groups. HT_FAILED when the drafts'
   collectives or passes over parts differ in number, kind or unit: the builder's bug, told with both. */
enum ht_status ht_schedule_merge(struct ht_schedule *const *drafts, int32_t n, int32_t parts, struct ht_error *err,
                                 struct ht_schedule **out);

/* Makes the graph: merges the drafts and links it. Takes the drafts and their array over, all or, where writing them has
   ended with another status than HT_OK, some of them; that status is then the result. */
enum ht_status ht_schedule_join(struct ht_schedule **drafts, int32_t n, int32_t parts, enum ht_status status,
                                struct ht_error *err, struct ht_schedule **out);

#endif
