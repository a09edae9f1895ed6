/*
 * Merges drafts into a graph. A draft is a graph of some of the ranks, written as if the others did not exist. It has
 * only their lanes, rows and ops, but counts ranks, nodes, capacities, resources, units and micro-batches of the whole.
 * Only collectives cross drafts: the k-th collectives of all drafts are one group, so each draft has all of them, in the
 * same order. In a draft of several ranks a collective's members are a group, which is joined with those of the other
 * drafts. Its other groups, messages among its ranks, stay its own.
 *
 *     draft 0   F0 F1 AG2 B1          F0 f0 F1 f1 f2 (AG2 ag2) B1 b1
 *     draft 1   f0 f1 f2 ag2 b1
 *
 * Drafts of tensor-parallel parts are equal drafts, each with one part of all stages. `parts` consecutive drafts are
 * the parts of one replica; with `parts` 1 a pass over a part is its draft's alone, as in a folded graph (common/schedule/fold.h). Their k-th passes over a part (works of several parts) are a group, with members in the
 * order of the parts: of the first n drafts, if the work has fewer parts, as stages may that are narrower than others.
 * Then messages cross drafts, too: each has one member of a pair (ht_op_across), in the same order, with a row of its own
 * for what is sent. In the graph that is one row, the sender's, also if it is sent on. A collective about a unit joins the drafts of one part, any other collective all drafts. Members
 * of the former are in the order of the drafts, wherever their ranks are, so that sums do not depend on it; those of the
 * latter are in the order of their ranks.
 *
 *     replica 0   part 0   F0 F1 B1 AR1        (F0 f0) (F1 f1) (B1 b1) AR1 of part 0 .. AR1 of part 1
 *                 part 1   f0 f1 b1 ar1
 *
 * The merge takes an op of each draft in turn, together with its group. A draft that comes to a collective waits until
 * all drafts have. So every draft's order is kept, groups have consecutive ids, and edges lead back: the ids are a safe
 * sequence. All drafts have the collectives in one order, so none waits for ever.
 *
 *     ids of ops     in the order in which they are taken: op i of rank r of N equal drafts is op i N + r
 *     rows           the first row of each draft, then the second of each, ..; residents likewise
 *     lanes          one draft's after another's
 *     groups         a collective's number is the round in which it is taken; other groups' follow the rounds. With
 *                    parts, groups across drafts are numbered in the order in which they are taken
 *     resources      those of the first draft; all have the same
 */
#ifndef HT_SCHEDULE_MERGE_H
#define HT_SCHEDULE_MERGE_H

#include "common/schedule/schedule.h"

/*
 * Stages of a pipeline may have replicas of their own (common/draft/layout.h). Then the drafts of the one replica are the
 * members of its stages, `parts` is the most members of a stage, and an op's drafts follow from its rank's stage: passes
 * over parts, and all-gathers of slices, join the `width` drafts from `first` on, collectives about a unit those of one
 * part of all replicas of the stage, every `width`-th draft.
 */
struct ht_merge_stage {
    int32_t first;           /* draft with part 0 of the rank's replica of the stage */
    int32_t width, replicas; /* parts, and replicas, of the stage */
};

/*
 * A draft may stand for others, its images, which do the same on other ranks. The same pointer is then in several places of
 * the drafts, and their images say how they differ. No draft of them has messages to another, or stages with replicas of
 * their own; slices of boundary tensors are equal for all parts.
 */
struct ht_image {
    int32_t *rank_of;           /* [n_ranks] the image of a rank that the draft has; NULL: it is the draft itself */
    int32_t part;               /* the part that the image has of divided tensors */
    int32_t part_offset;        /* that part less the draft's */
    int32_t micro_batch_offset; /* the image's micro-batches less the draft's */
    /* Returns the resource that an image takes in place of one that an op of a rank takes. */
    int32_t (*resource_of)(const struct ht_image *image, int32_t rank, int32_t resource);
    const void *context; /* of resource_of */
};

/* Merges n >= 1 drafts into a graph, which is still to be linked unless all of them are; `parts` (>= 1, divides n) drafts make a replica.
   Edges, priorities and conditions are the drafts'. A single draft keeps the numbers of its groups. HT_FAILED if
   the drafts' collectives or passes over parts differ in number, kind or unit: a bug of the builder; the text names
   both. */
enum ht_status ht_schedule_merge(struct ht_schedule *const *drafts, int32_t n, int32_t parts, struct ht_error *err,
                                 struct ht_schedule **out);

/* The same with the stages of ranks, [ranks]; NULL: stages have no replicas of their own. n must be `parts` with them. */
enum ht_status ht_schedule_merge_stages(struct ht_schedule *const *drafts, int32_t n, int32_t parts,
                                        const struct ht_merge_stage *stages, struct ht_error *err,
                                        struct ht_schedule **out);

/* Merges the drafts and links the graph: each draft before that, if none has rows of another one. Takes ownership of the drafts
   and their array. If status, the result of writing them, is not HT_OK, some drafts may be missing; they are destroyed and status
   is returned. images: [n], or NULL: each draft is in one place. */
enum ht_status ht_schedule_join(struct ht_schedule **drafts, int32_t n, int32_t parts, enum ht_status status,
                                struct ht_error *err, struct ht_schedule **out);
enum ht_status ht_schedule_join_drafts(struct ht_schedule **drafts, const struct ht_image *images, int32_t n,
                                       int32_t parts, const struct ht_merge_stage *stages, enum ht_status status,
                                       struct ht_error *err, struct ht_schedule **out);

#endif
