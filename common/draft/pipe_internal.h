/* State and functions shared by the files of the pipeline builder, and used by the hooks of a style; see pipe.h. */
#ifndef HT_DRAFT_PIPE_INTERNAL_H
#define HT_DRAFT_PIPE_INTERNAL_H

#include "common/draft/draft_internal.h"
#include "common/draft/pipe.h"
#include "common/draft/repeat.h"
#include "common/schedule/merge.h"

/* A run of consecutive passes of a rank over the same stage, during which its parameters stay. */
struct ht_pipe_visit {
    int64_t first, last;                 /* passes of the rank */
    int64_t last_forward, last_backward; /* -1: none */
    int32_t forward, backward;           /* stages; -1: none */
    int32_t last_op;                     /* its last compute op, once appended */
};

/* Rows of slices of a tensor, consecutive. */
struct ht_pipe_slices {
    int32_t first, n;
};

/* The ranks that step each unit. */
struct ht_pipe_holders {
    const struct ht_layout *layout;
    int32_t n_units;
    bool tied;
    int32_t *stage; /* [n_replicas * n_units] the rank of the pipeline, as ht_layout_rank counts its stages */
};

/* Ops that are about a unit and a micro-batch, as they repeat. */
enum ht_pipe_repeat {
    HT_REPEAT_FORWARD,
    HT_REPEAT_RECOMPUTE,
    HT_REPEAT_BACKWARD,
    HT_REPEAT_ACCUMULATE,
    HT_REPEAT_SEND, /* of a unit's input; HT_REPEAT_RECEIVE the other member, + 2: of its gradient */
    HT_REPEAT_RECEIVE,
    HT_N_REPEATS = HT_REPEAT_RECEIVE + 3
};

/* A pipeline, or one member of each of its stages: a tensor-parallel part, of one replica of the stage. Ranks and micro-batches count
   from 0 here; in the graph they are those of the replica. */
struct ht_pipe {
    struct ht_draft d; /* x of a unit is on the rank of its forward; a and dx are on the rank of its backward */
    const struct ht_pipe_style *style;
    const struct ht_pipe_holders *holders;
    struct ht_pipe_shape shape;
    int32_t n_forward, n_backward;
    struct ht_control control;      /* of the graph */
    int32_t *first;                 /* [n_backward + 1] first unit of a backward stage */
    int32_t *stage_of;              /* [n_units] backward stage */
    bool *hands_whole;              /* [n_units] a back whose front is in another number of parts */
    int32_t *holder, *forward_rank; /* [n_units + 1], see struct ht_draft */
    struct ht_lanes *lanes;         /* [ranks] */
    int32_t *stage_lane;            /* [n_backward] lane of its optimizer; -1: not added yet */
    int32_t *serve;                 /* [ranks * ranks] lane of the owner that serves a reader, or -1 */
    /* passes */
    struct ht_pipe_pass *passes;  /* [ranks * n_passes] */
    struct ht_pipe_visit *visits; /* [ranks][n_passes], the first n_visits[rank] used */
    int32_t *n_visits, *visit_of; /* [ranks], [ranks * n_passes] */
    int64_t n_passes;
    /* while ops are appended */
    int32_t match;
    int32_t *computed, *sending;      /* [ranks] last compute op; message that the next compute op waits for, or -1 */
    int32_t *made;                    /* [ranks] op that made the last of what the last pass sends on */
    int32_t *arrival;                 /* [n_backward * n_mb] op that has a backward pass's input, or -1 */
    int32_t *came;                    /* [n_forward * n_mb] the same of a forward pass */
    const struct ht_pipe_pass *begun; /* pass of several micro-batches whose first op is to come; NULL: none */
    struct ht_repeat *repeats;        /* [HT_N_REPEATS * (n_units + 1)]; NULL: all ops are written in full */
    int32_t *kept; /* [n_units * n_mb] what the program keeps of a block beside what stays here, or -1 */
    struct ht_pipe_slices *slices; /* [rows before the passes] of a tensor, received and not joined yet; n 0: none */
};

static inline int32_t ht_pipe_at(const struct ht_pipe *g, int32_t unit, int32_t mb)
{
    return ht_draft_at(&g->d, unit, mb);
}
/* Returns how an op about a unit repeats; NULL: not. */
static inline struct ht_repeat *ht_pipe_repeats(const struct ht_pipe *g, enum ht_pipe_repeat kind, int32_t unit)
{
    return g->repeats ? &g->repeats[(int32_t)kind * (g->d.n_units + 1) + unit] : NULL;
}
static inline const struct ht_replica *ht_pipe_replica(const struct ht_pipe *g)
{
    return &g->d.layout->replicas[g->d.replica];
}
static inline int32_t ht_pipe_rank(const struct ht_pipe *g, int32_t rank)
{
    return ht_layout_rank(g->d.layout, g->d.replica, rank, g->d.member);
}
/* Returns the parts of a rank's stages, and their replicas; true if the draft has a member of them. */
static inline int32_t ht_pipe_width(const struct ht_pipe *g, int32_t rank)
{
    return ht_layout_width(g->d.layout, rank);
}
static inline int32_t ht_pipe_replicas(const struct ht_pipe *g, int32_t rank)
{
    return ht_layout_stage_replicas(g->d.layout, rank);
}
static inline bool ht_pipe_takes_part(const struct ht_pipe *g, int32_t rank)
{
    return g->d.member < ht_pipe_width(g, rank) * ht_pipe_replicas(g, rank);
}
/* Returns the first micro-batch of a pass on a rank of the draft, and one past the last. The order and struct ht_pipe_pass count
   those that enter the pipeline. */
static inline int32_t ht_pipe_first_mb(const struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    return x->micro_batch * g->d.layout->per_pass + ht_layout_first_passed(g->d.layout, rank, g->d.member);
}
static inline int32_t ht_pipe_end_mb(const struct ht_pipe *g, int32_t rank, const struct ht_pipe_pass *x)
{
    return ht_pipe_first_mb(g, rank, x) + ht_layout_passed(g->d.layout, rank);
}
/* Makes a rank the current one: ops are appended to its lanes. */
static inline void ht_pipe_turn(struct ht_pipe *g, int32_t rank)
{
    g->d.rank = ht_pipe_rank(g, rank);
    g->d.lanes = &g->lanes[rank];
    ht_draft_turn_to_stage(&g->d, g->d.rank);
}
static inline bool ht_pipe_offloads(const struct ht_pipe *g)
{
    return g->style->offload;
}
/* Returns true if boundary tensors are sent in slices. */
static inline bool ht_pipe_sends_slices(const struct ht_pipe *g)
{
    return g->style->slices && g->d.layout->tp > 1 && !g->d.layout->sequence;
}
static inline int32_t ht_pipe_head(const struct ht_pipe *g)
{
    return g->d.n_units - 1;
}
/* Returns true if the pass of a unit in front reads its output, a back's input, again. */
static inline bool ht_pipe_reads_again(const struct ht_pipe *g, int32_t unit)
{
    unsigned sub_ops = ht_draft_sub_ops(&g->d, unit);
    return ht_is_back(sub_ops) && ht_front_reads_residual(g->d.scenario->model.dropout, sub_ops);
}
/* Returns true if what a stage sends before a unit stays on its rank until the stage's backward pass, as the software has it. */
static inline bool ht_pipe_keeps_output(const struct ht_pipe *g, int32_t unit)
{
    int32_t q = g->stage_of[unit] - 1;
    return g->d.scenario->model.held.outputs && !g->style->recompute_output && q >= 0 &&
           ht_pipe_forward_rank(&g->shape, q / g->shape.d) == ht_pipe_backward_rank(&g->shape, q);
}
/* Returns true if a unit is a half of a block. */
static inline bool ht_pipe_is_half(const struct ht_pipe *g, int32_t unit)
{
    return ht_is_half(ht_draft_sub_ops(&g->d, unit));
}
/* Returns the rank that steps a unit and whose node's memory holds it. */
static inline int32_t ht_pipe_owner(const struct ht_pipe *g, int32_t unit)
{
    return ht_pipe_backward_rank(&g->shape, g->stage_of[unit]);
}
static inline int32_t ht_pipe_add_lane(struct ht_pipe *g, const char *name, enum ht_lane_kind kind, int32_t rank)
{
    return ht_add_lane(g->d.schedule, name, kind, ht_pipe_rank(g, rank), HT_FIFO);
}

/*
 * The files of the builder; each calls only those below it:
 *
 *                     pipe.c                  the graph: passes in the order of the ideal schedule
 *       pipe_passes.c         pipe_images.c   drafts that are written once
 *     pipe_gradients.c   pipe_transfers.c
 *                 pipe_stages.c               who has and reads which units
 */

/* ---- pipe_stages.c --------------------------------------------------------------------------------------------- */

/* Returns the order's shape in one pipeline. */
struct ht_pipe_shape ht_pipe_replica_shape(const struct ht_pipe_style *y, const struct ht_replica *x);
/* Returns the first unit of backward stage q of pipeline k; of the number of stages the number of units. */
int32_t ht_pipe_first_unit_in(const struct ht_scenario *sc, const struct ht_pipe_style *y, int32_t k, int32_t q);
/* Returns true if pipelines a and b have the same units in every stage, and rearrange the same of their gradients. */
bool ht_pipe_are_alike(const struct ht_scenario *sc, const struct ht_pipe_style *style, const struct ht_layout *l,
                       int32_t a, int32_t b);
/* Finds the ranks that step each unit; the caller frees the array. */
struct ht_pipe_holders ht_pipe_find_holders(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                                            const struct ht_layout *layout);
/* Lists the graph's ranks that have a part of a unit, one of each pipeline, or of each replica of its stage, after the other, and for a
   tied table the head's rank, too; returns how many. ranks: room for ht_pipe_most_holders. */
static inline int32_t ht_pipe_most_holders(const struct ht_layout *l)
{
    return 2 * l->n_replicas * l->members;
}
int32_t ht_pipe_group(const struct ht_pipe_holders *h, int32_t unit, int32_t part, int32_t *ranks);
/* Returns true if the same ranks have both units. */
bool ht_pipe_same_group(const struct ht_pipe_holders *h, int32_t a, int32_t b);
/* Returns the control of the graph and how it undoes steps. The method's own control undoes steps in its own way. The
   scenario's control replaces it on one device, and whenever norms are clipped, which needs steps to be redone. */
struct ht_control ht_pipe_control(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                                  enum ht_undo_kind *undo);

/* The first block of a backward stage, and one past its last. */
int32_t ht_pipe_first_block(const struct ht_pipe *g, int32_t q);
int32_t ht_pipe_end_block(const struct ht_pipe *g, int32_t q);
/* Returns one past the last block of a backward stage that is recomputed. */
int32_t ht_pipe_end_recomputed(const struct ht_pipe *g, int32_t q);
/* Returns the sub-ops of a unit that are recomputed. */
unsigned ht_pipe_dropped(const struct ht_pipe *g, int32_t unit);
/* Returns those whose activations stay, without what is the residual of the back. */
unsigned ht_pipe_kept(const struct ht_pipe *g, int32_t unit);
/* Returns true if the optimizer states of a unit are in host memory during the passes, and its steps on the device. */
bool ht_pipe_states_in_host(const struct ht_pipe *g, int32_t unit);
/* Returns true if the head is in a backward stage, or if passes of a forward stage run it. */
bool ht_pipe_has_head(const struct ht_pipe *g, int32_t q);
bool ht_pipe_forward_has_head(const struct ht_pipe *g, int32_t i);
/* Returns true if a pass of forward stage i, of backward stage q, or of a visit reads a unit's parameters on the
   device. */
bool ht_pipe_forward_reads(const struct ht_pipe *g, int32_t i, int32_t unit);
bool ht_pipe_backward_reads(const struct ht_pipe *g, int32_t q, int32_t unit);
bool ht_pipe_visit_reads(const struct ht_pipe *g, const struct ht_pipe_visit *v, int32_t unit);

/* Returns true if reduce-scatters follow the backward passes, once a micro-batch. */
static inline bool ht_pipe_scatters(const struct ht_pipe *g)
{
    return g->d.sharded && g->style->zero == 2;
}

/* ---- pipe_images.c --------------------------------------------------------------------------------------------- */

struct ht_pipe_images;
/* Returns true if a layout's drafts may be images of each other. */
bool ht_pipe_may_have_images(const struct ht_scenario *sc, const struct ht_pipe_style *style,
                             const struct ht_layout *l);
struct ht_pipe_images *ht_pipe_images_create(const struct ht_scenario *sc, const struct ht_pipe_style *style,
                                             const struct ht_pipe_holders *holders);
void ht_pipe_images_destroy(struct ht_pipe_images *x); /* accepts NULL */
/* Returns true if a draft, by its number, is an image of another one. */
bool ht_pipe_is_image(const struct ht_pipe_images *x, int32_t draft, int32_t of);
/* Returns true if each stage of a pipeline is on one node. */
bool ht_pipe_stages_keep_to_nodes(const struct ht_pipe_images *x, int32_t pipeline);
/* Returns how it differs, which stays valid as long as x does; the caller frees rank_of. */
struct ht_image ht_pipe_image(const struct ht_pipe_images *x, int32_t draft, int32_t of);

/* ---- pipe_passes.c --------------------------------------------------------------------------------------------- */

/* Append the ops of a pass to the compute lane. n: of the rank's passes. */
void ht_pipe_forward_pass(struct ht_pipe *g, int32_t rank, int64_t n);
void ht_pipe_backward_pass(struct ht_pipe *g, int32_t rank, int64_t n);

/* ---- pipe_transfers.c ------------------------------------------------------------------------------------------ */

/* Appends the copies and messages that bring the parameters of a rank's visit. */
void ht_pipe_fetch(struct ht_pipe *g, int32_t rank, int32_t visit);
/* Appends the messages of a unit's input of a micro-batch, or of its gradient, and of what a front hands beside it, unless both
   ranks are the same: each part of the receiver's stage gets a tensor from part q mod n of the n of the sender's, or, in
   slices, from those whose slices it needs. for_backward: the backward stage that waits for it, or -1. */
void ht_pipe_send_boundary(struct ht_pipe *g, int32_t from, int32_t to, int32_t unit, int32_t mb, int32_t for_backward,
                           bool gradient);
/* Appends the rank's member of the all-gather of a boundary tensor before the pass that reads it, if it came in slices.
   for_backward: as above. */
void ht_pipe_join_boundary(struct ht_pipe *g, int32_t rank, int32_t tensor, int32_t for_backward);
/* Returns true if the draft's part passes a boundary tensor from one rank to another, and no part of the other's has it from
   this one. */
bool ht_pipe_keeps_boundary(const struct ht_pipe *g, int32_t from, int32_t to);
struct ht_pipe_message {
    int32_t send, receive; /* ops */
};
/* Appends a message of a tensor from one device to another, on a lane of each, after an op (-1: none). The sender's
   copy is freed. letter: of the ops' names. */
struct ht_pipe_message ht_pipe_message(struct ht_pipe *g, int32_t from, int32_t to, int32_t out, int32_t in,
                                       int32_t tensor, char letter, int32_t after);
/* Appends the copy of a backward stage's sums to the host. */
void ht_pipe_offload(struct ht_pipe *g, int32_t q);

/* ---- pipe_gradients.c ------------------------------------------------------------------------------------------ */

/* Append this pipeline's members of collectives over the ranks that have a unit, if there are several. */
void ht_pipe_all_gather(struct ht_pipe *g, int32_t unit);
void ht_pipe_reduce_scatter(struct ht_pipe *g, int32_t unit, int32_t mb);
/* Appends the reductions of all units after the passes, from the last one to the first: of gradients of all pipelines, and
   for a tied table of those of embedding and head. */
void ht_pipe_reduce(struct ht_pipe *g);
/* Appends the rearrangement of a unit's gradient on the rank at hand, if the style asks for it. Returns whether it does. */
bool ht_pipe_transpose(struct ht_pipe *g, int32_t unit);
/* Appends those of all units, after their all-reduces. */
void ht_pipe_transpose_back(struct ht_pipe *g);
/* Appends the move of a unit's master to host memory, if it is there during the passes and gathers have read it. */
void ht_pipe_send_master(struct ht_pipe *g, int32_t unit);
/* Appends the optimizer step of a backward stage, or of each of its units, in the tier of its sums, with the moves of states that
   are in host memory. */
void ht_pipe_step(struct ht_pipe *g, int32_t q);

#endif
