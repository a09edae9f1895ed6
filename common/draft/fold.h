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
 * A copy has as few consecutive replicas as it takes for the copies to be equal. Copies may share nodes if each node, port and
 * link is shared by as many copies as its images are. Clusters whose nodes are connected by links of their own are not folded.
 */
#ifndef HT_DRAFT_FOLD_H
#define HT_DRAFT_FOLD_H

#include "common/draft/layout.h"
#include "common/schedule/fold.h"

/* Says how a builder writes graphs. */
struct ht_fold_builder {
    void *context;
    /* Writes the graph of the first n replicas. */
    enum ht_status (*write)(void *context, int32_t n, struct ht_error *err, struct ht_schedule **out);
    /* Returns why drafts of equal replicas differ all the same, or NULL. NULL: they do not. */
    const char *(*differ)(void *context);
};

/* Builds a graph: folded if the scenario lets replicas be left out and they are equal, else of all replicas, with the
   reason in not_folded. */
enum ht_status ht_fold_build(const struct ht_scenario *scenario, const struct ht_layout *layout,
                             const struct ht_fold_builder *builder, struct ht_error *err, struct ht_schedule **out);

#endif
