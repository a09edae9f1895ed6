/*
 * Equal replicas: when may a graph be folded (common/schedule/fold.h)?
 *
 * A draft is a function of the scenario, the layout, the cluster and the number of its replica. What it takes from the
 * last three is compared here, so equal replicas have equal drafts but for the numbers of ranks, resources and
 * micro-batches:
 *
 *     layout     as many ranks and micro-batches, of one size; shards padded to one size
 *     ranks      devices and nodes of one kind, of the same capacities; in the same order
 *     links      resources of the same kinds and capacities, one for one (common/draft/links.h), so that the ranks share
 *                nodes, ports and memory in the same way
 *
 * Replicas that share a node are of one copy: it has as many consecutive replicas as it takes to share no node with
 * others. Clusters whose nodes are connected by links of their own are not folded.
 */
#ifndef HT_DRAFT_FOLD_H
#define HT_DRAFT_FOLD_H

#include "common/draft/layout.h"
#include "common/schedule/fold.h"

/* Returns how the replicas fold, or NULL with the reason in *why. *each: replicas of a copy; all of them if they do not
   fold. The caller checks what else its drafts depend on. */
struct ht_fold *ht_fold_find(const struct ht_scenario *scenario, const struct ht_layout *layout, int32_t *each,
                             const char **why);

/* Gives the graph of the first copy its fold, if the graph was built (status). Frees the fold otherwise, and the graph,
   too, if that leaves the copy: then *graph is NULL, and *why the reason. Returns status. fold NULL: does nothing. */
enum ht_status ht_fold_finish(struct ht_fold *fold, enum ht_status status, const char **why,
                              struct ht_schedule **graph);

#endif
