/*
 * Folded graphs: a graph of some replicas that stands for all of them.
 *
 * Data-parallel replicas that are equal do the same at the same time. A folded graph has the lanes, tensors and ops of the
 * first of them alone, its first *copy*. It counts ranks, nodes, spaces, resources and micro-batches of the whole.
 * Collectives have their members of the first copy; the members in the other copies are images of these.
 *
 *     the whole   rank 0  F0 B0 AR     node 0         folded, 3 copies   rank 0  F0 B0 AR
 *                 rank 1  F1 B1 AR     node 1
 *                 rank 2  F2 B2 AR     node 2
 *
 * Simulated times and memory are those of the whole graph, exactly. Copies share no space. They may share nodes whose
 * memory and disks no op touches, and then resources, but each as many copies as any other of its kind: 8 pipelines of
 * the first, second, .. GPU of some nodes share each node's NIC. So what a copy does depends on its own past, on the
 * others' equal flows, and on when collectives start. They start when all copies have come to them. By induction over the
 * events all copies are in the same state at every instant:
 *
 *   order    the merge takes ops from all drafts in turn, so ids of a copy are in the same order in both graphs. Dispatch
 *            goes by ids, and asks for a collective after all that can be issued before it, in every copy
 *   memory   a space counts the issue groups that touch it, all of one copy
 *   sharing  the flow of a collective takes the same of each copy's resources. In the whole graph it connects them, but
 *            they have equal shares at every level, so filling one copy gives the same rates. Of a resource that several
 *            copies share a collective takes nothing, except of NICs, which it passes once a node, from a rank of the first
 *            copy on it. All other flows count there as often as there are copies (ht_fold_times)
 *   cost     of a collective: from its work, which has all ranks, and from the nodes of all copies
 *
 * The builder finds that copies are equal from what it builds them of (common/draft/fold.h). The verifier proves the first
 * copy. It counts a collective as one of all copies, and demands one between a gradient and its step.
 *
 * Folded graphs are for times and memory. Whatever writes out or runs a graph takes the whole one.
 */
#ifndef HT_SCHEDULE_FOLD_H
#define HT_SCHEDULE_FOLD_H

#include "common/schedule/schedule.h"

/* Elements [begin, end) of a unit that a rank holds. */
struct ht_fold_shard {
    int64_t begin, end;
};

struct ht_fold {
    int32_t copies;   /* at least 2 */
    int32_t *rank_of; /* [n_ranks] rank of the first copy whose image a rank is; its own number in the first copy */
    int32_t
        *image; /* [copies * n_ranks] image in a copy of a rank of the first copy; -1: the rank is of another copy */
    int32_t *node_of;     /* [n_nodes] likewise */
    int32_t *resource_of; /* [n_resources] likewise; -1: no rank has the resource */
    int32_t *times;       /* [n_resources] copies that share a resource of the first copy */
    bool shares_nodes;    /* copies share nodes */
    struct ht_fold_shard
        *shards; /* [n_units * n_ranks] of states that all ranks share; NULL: each copy has all states */
};

void ht_fold_destroy(struct ht_fold *f); /* accepts NULL */

/* Returns the number of copies that a graph stands for; 1: it is not folded. */
static inline int32_t ht_copies(const struct ht_schedule *s)
{
    return s->fold ? s->fold->copies : 1;
}

/* Returns true if a group has members in all copies: if it is a collective of a folded graph, over replicas. */
static inline bool ht_joins_copies(const struct ht_schedule *s, int32_t op)
{
    return s->fold && s->lanes[s->ops[op].lane].kind == HT_LANE_COLLECTIVE && !ht_joins_boundary(&s->ops[op]);
}

/* Returns the micro-batches of the first copy: 0, 1, .. */
static inline int32_t ht_copy_micro_batches(const struct ht_schedule *s)
{
    return s->n_micro_batches / ht_copies(s);
}

/* Returns how many flows of the whole graph the flow of an op stands for on a resource: one a copy that shares it. */
static inline int32_t ht_fold_times(const struct ht_schedule *s, int32_t op, int32_t resource)
{
    return s->fold && !ht_joins_copies(s, op) ? s->fold->times[resource] : 1;
}

/* Returns the node of an op's image in a copy. */
static inline int32_t ht_fold_node(const struct ht_schedule *s, int32_t op, int32_t copy)
{
    int32_t rank = ht_op_rank(s, op);
    return s->rank_node[copy ? s->fold->image[(int64_t)copy * s->n_ranks + rank] : rank];
}

/* Returns the space of the first copy that stands for a space. */
int32_t ht_fold_space(const struct ht_schedule *s, int32_t space);
/* Returns the resource that stands for a resource. */
int32_t ht_fold_resource(const struct ht_schedule *s, int32_t resource);
/* Returns the rank of lane i of the whole graph: of ht_copies times n_lanes lanes, one copy's after another's. It is an image of
   lane i modulo n_lanes. */
int32_t ht_fold_lane_rank(const struct ht_schedule *s, int32_t i);

/* Returns NULL if the ops and residents of a folded graph keep to the first copy, else what does not. */
const char *ht_fold_leaves(const struct ht_schedule *s);

#endif
