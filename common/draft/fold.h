/*
 * Equal replicas, and equal parts: when may a graph be folded (common/schedule/fold.h)?
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
 *
 * The same is compared of the tensor-parallel parts of a replica, which may be of any number of replicas, equal or not. All parts
 * of a stage have to be on one node.
 *
 * A copy has as few consecutive replicas as it takes for the copies to be equal, and one part of each if parts are. Copies may
 * share nodes if each node, port and link is shared by as many copies as its images are. Clusters whose nodes are connected by
 * links of their own are not folded.
 */
#ifndef HT_DRAFT_FOLD_H
#define HT_DRAFT_FOLD_H

#include "common/draft/layout.h"
#include "common/schedule/fold.h"

/* Says how a builder writes graphs. */
struct ht_fold_builder {
    void *context;
    /* Writes the graph of the first n replicas, or of part 0 of each of them. */
    enum ht_status (*write)(void *context, int32_t n, bool one_part, struct ht_error *err, struct ht_schedule **out);
    /* Returns why drafts of equal replicas, or of equal parts of the first n replicas, differ all the same, or NULL. NULL: they
       do not. The second is not called without tensor parallelism. */
    const char *(*differ)(void *context);
    const char *(*parts_differ)(void *context, int32_t n);
};

/* Builds a graph: folded if the scenario lets copies be left out and they are equal, else of all replicas, with the
   reason in not_folded. */
enum ht_status ht_fold_build(const struct ht_scenario *scenario, const struct ht_layout *layout,
                             const struct ht_fold_builder *builder, struct ht_error *err, struct ht_schedule **out);

#endif
