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
 * The merge takes an op of each draft in turn, and with it all of its group; a draft that stands before a collective
 * waits until all do. So every draft's order is kept, groups have consecutive ids, and edges lead back: the ids are a
 * safe sequence. All drafts go through the collectives in one order, so none waits for ever.
 *
 *     ids of ops     as they are taken: op i of rank r of N equal drafts is op i N + r
 *     rows           the first row of each draft, then the second of each, ..; residents likewise
 *     lanes          one draft's after the other's
 *     groups         a collective's number is the round in which it is taken; other groups' follow the rounds
 *     resources      those of the first draft; all have the same
 */
#ifndef HT_SCHEDULE_MERGE_H
#define HT_SCHEDULE_MERGE_H

#include "common/schedule/schedule.h"

/* Merges n >= 1 drafts, unlinked, into a graph to be linked. Edges, priorities and conditions are the drafts'. One draft
   keeps the numbers of its groups. HT_FAILED when the drafts' collectives differ in number,
   kind or unit: the builder's bug, told with both. */
enum ht_status ht_schedule_merge(struct ht_schedule *const *drafts, int32_t n, struct ht_error *err,
                                 struct ht_schedule **out);

/* Makes the graph: merges the drafts and links it. Takes the drafts and their array over, all or, where writing them has
   ended with another status than HT_OK, some of them; that status is then the result. */
enum ht_status ht_schedule_join(struct ht_schedule **drafts, int32_t n, enum ht_status status, struct ht_error *err,
                                struct ht_schedule **out);

#endif
