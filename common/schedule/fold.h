/*
 * Folded graphs: a graph of some replicas, or of one tensor-parallel part of them, that stands for all.
 *
 * Data-parallel replicas that are equal do the same at the same time, and so do the parts of a stage. A folded graph has the
 * lanes, tensors and ops of the first of them alone, its first *copy*. It counts ranks, nodes, spaces, resources and
 * micro-batches of the whole. Groups over copies have their members of the first copy; those in the others are images of these:
 * of a collective about a unit in the same part of all replicas, of any other in all copies, of a pass in all parts.
 *
 *     the whole   rank 0  F0 B0 AR     node 0         folded, 3 copies   rank 0  F0 B0 AR
 *                 rank 1  F1 B1 AR     node 1
 *                 rank 2  F2 B2 AR     node 2
 *
 *     the whole   replica 0  part 0  rank 0  F0 B0 AR0      folded, 4 copies   rank 0  F0 B0 AR0      copy 0
 *                            part 1  rank 1  F0 B0 AR1      of 2 parts                                copy 1: part 1
 *                 replica 1  part 0  rank 2  F1 B1 AR0                                                copy 2: replica 1
 *                            part 1  rank 3  F1 B1 AR1                                                copy 3: both
 *
 * Simulated times and memory are those of the whole graph, exactly. Copies share no space. They may share nodes whose
 * memory and disks no op touches, and then resources, but each as many copies as any other of its kind: 8 pipelines of
 * the first, second, .. GPU of some nodes share each node's NIC. So what a copy does depends on its own past, on the
 * others' equal flows, and on when groups over copies start. They start when all of their copies have come to them. By induction
 * over the events all copies are in the same state at every instant:
 *
 *   order    the merge takes ops from all drafts in turn, so ids of a copy are in the same order in both graphs. Dispatch
 *            goes by ids, and asks for a group after all that can be issued before it, in every copy. (Without the other parts a
 *            round of the merge takes passes with all else, not behind it: that changes the order of ops of different
 *            replicas, which share no space)
 *   memory   a space counts the issue groups that touch it, all of one copy
 *   sharing  the flow of a group over copies takes the same of each copy's resources. In the whole graph it connects them, but
 *            they have equal shares at every level, so filling one copy gives the same rates. Of a resource that several of
 *            its copies share a group takes nothing, except that a collective passes NICs once a node, from a rank of the
 *            first copy on it. All other flows count there as often as there are of them: one for each of the copies that share
 *            the resource and that no group joins (ht_fold_times)
 *   cost     of a group: from its work, which has all ranks, and from the nodes of its copies
 *
 * The builder finds that copies are equal from what it builds them of (common/draft/fold.h). The verifier proves the first
 * copy. It counts a group as one of its copies, and demands a collective over replicas between a gradient and its step.
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
    int32_t parts;    /* copy c is tensor-parallel part c % parts of replica c / parts; 1: copies are replicas */
    int32_t *rank_of; /* [n_ranks] rank of the first copy whose image a rank is; its own number in the first copy */
    int32_t *image;   /* [copies * n_ranks] image in a copy of a rank of the first copy; -1: it is of another copy */
    int32_t *node_of; /* [n_nodes] likewise */
    int32_t *resource_of; /* [n_resources] likewise; -1: no rank has the resource */
    int32_t *times;       /* [n_resources] copies that share a resource of the first copy */
    int32_t *part_times;  /* [n_resources] those of them that are parts of one replica */
    int32_t *pipeline_of; /* [n_ranks] of a rank of the first copy: its replica */
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

/* Returns how many copies differ in their replicas. */
static inline int32_t ht_replica_copies(const struct ht_schedule *s)
{
    return s->fold ? s->fold->copies / s->fold->parts : 1;
}

/* Copies 0, step, 2 step, .. in which a group has members. */
struct ht_joined {
    int32_t n, step;
};

/* Returns the copies that an op's group joins; n 1: it is not over copies. */
static inline struct ht_joined ht_joined(const struct ht_schedule *s, int32_t op)
{
    const struct ht_op *o = &s->ops[op];
    const struct ht_work *w = &s->works[o->work];
    const struct ht_fold *f = s->fold;
    if (!f) return (struct ht_joined){1, 1};
    if (ht_joins_boundary(o)) return (struct ht_joined){w->ranks > 1 ? f->parts : 1, 1};
    if (s->lanes[o->lane].kind == HT_LANE_COLLECTIVE)
        return o->label.unit < 0 ? (struct ht_joined){f->copies, 1}
                                 : (struct ht_joined){f->copies / f->parts, f->parts};
    return (struct ht_joined){w->tp > 1 ? f->parts : 1, 1};
}

/* Returns true if a group has members in several copies. */
static inline bool ht_joins_copies(const struct ht_schedule *s, int32_t op)
{
    return ht_joined(s, op).n > 1;
}

/* Returns the micro-batches of the first copy: 0, 1, .. */
static inline int32_t ht_copy_micro_batches(const struct ht_schedule *s)
{
    return s->n_micro_batches / ht_replica_copies(s);
}

/* Returns how many flows of the whole graph the flow of an op stands for on a resource: one for each of the copies that share it,
   or for each group of them. */
static inline int32_t ht_fold_times(const struct ht_schedule *s, int32_t op, int32_t resource)
{
    const struct ht_fold *f = s->fold;
    if (!f) return 1;
    struct ht_joined j = ht_joined(s, op);
    if (j.n == 1) return f->times[resource];
    if (j.n == f->copies) return 1;
    return j.step > 1 ? f->part_times[resource] : f->times[resource] / f->part_times[resource];
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
/* A lane of the whole graph. */
struct ht_fold_lane {
    int32_t of, rank; /* the graph's lane whose image it is, and its own rank */
};
/* Lists the lanes of the whole graph, [copies * n_lanes]; the caller frees the list. */
struct ht_fold_lane *ht_fold_lanes(const struct ht_schedule *s);

/* Returns NULL if the ops and residents of a folded graph keep to the first copy, else what does not. */
const char *ht_fold_leaves(const struct ht_schedule *s);

#endif
