/* What the files of the pipeline builder share, and what the hooks of a style work on; see pipe.h. */
#ifndef HT_BUILD_PIPE_BUILD_H
#define HT_BUILD_PIPE_BUILD_H

#include "common/build/draft_internal.h"
#include "common/build/pipe.h"

/* Consecutive passes of a rank over the same stage: one stay of its parameters. */
struct ht_pipe_visit {
    int64_t first, last;                 /* passes of the rank */
    int64_t last_forward, last_backward; /* -1: none */
    int32_t forward, backward;           /* stages; -1: none */
    int32_t last_op;                     /* its last compute op, once emitted */
};

/* A pipeline, or one tensor-parallel part of all its stages. Its ranks and micro-batches count from 0; in the graph they are
   the replica's. */
struct ht_pipe {
    struct ht_draft d; /* x, a, dx of a unit are where its forward, its backward run */
    const struct ht_pipe_style *style;
    struct ht_pipe_shape shape;
    int32_t n_forward, n_backward;
    struct ht_control control; /* of the graph */
    int32_t *first;            /* [n_backward + 1] first unit of a backward stage */
    int32_t *stage_of;         /* [n_units] backward stage */
    int32_t *holder, *maker;   /* [n_units + 1], the draft's */
    struct ht_lanes *lanes;    /* [ranks] */
    int32_t *stage_lane;       /* [n_backward] where its optimizer runs; -1: not there yet */
    int32_t *serve;            /* [ranks * ranks]: lane of the owner that the reader has, or -1 */
    /* passes */
    struct ht_pipe_pass *passes;  /* [ranks * n_passes] */
    struct ht_pipe_visit *visits; /* [ranks][n_passes], the first n_visits[rank] used */
    int32_t *n_visits, *visit_of; /* [ranks], [ranks * n_passes] */
    int64_t n_passes;
    /* while ops are appended */
    int32_t match;
    int32_t *computed, *sending; /* [ranks] last compute op; message that the next one waits for, or -1 */
    int32_t *arrival;            /* [n_backward * n_mb] receive that brings what a backward pass starts from, or -1 */
};

static inline int32_t ht_pipe_at(const struct ht_pipe *g, int32_t unit, int32_t mb)
{
    return ht_draft_at(&g->d, unit, mb);
}
static inline const struct ht_replica *ht_pipe_replica(const struct ht_pipe *g)
{
    return &g->d.layout->replicas[g->d.replica];
}
static inline int32_t ht_pipe_rank(const struct ht_pipe *g, int32_t rank)
{
    return ht_layout_rank(g->d.layout, g->d.replica, rank, g->d.part);
}
/* Gives a rank the turn: what is appended next is on its lanes. */
static inline void ht_pipe_turn(struct ht_pipe *g, int32_t rank)
{
    g->d.rank = ht_pipe_rank(g, rank);
    g->d.lanes = &g->lanes[rank];
}
static inline bool ht_pipe_offloads(const struct ht_pipe *g)
{
    return g->style->offload;
}
static inline int32_t ht_pipe_head(const struct ht_pipe *g)
{
    return g->d.n_units - 1;
}
/* Who steps a unit, and in whose node's memory it lies. */
static inline int32_t ht_pipe_owner(const struct ht_pipe *g, int32_t unit)
{
    return ht_pipe_backward_rank(&g->shape, g->stage_of[unit]);
}
static inline int32_t ht_pipe_add_lane(struct ht_pipe *g, const char *name, enum ht_lane_kind kind, int32_t rank)
{
    return ht_add_lane(g->d.schedule, name, kind, ht_pipe_rank(g, rank), HT_FIFO);
}

/* pipe_stages.c. Returns the order's shape in one pipeline. */
struct ht_pipe_shape ht_pipe_replica_shape(const struct ht_pipe_style *y, const struct ht_replica *x);
/* Returns the first unit of backward stage q of pipeline k; of the number of stages the number of units. */
int32_t ht_pipe_first_unit_in(const struct ht_scenario *sc, const struct ht_pipe_style *y, int32_t k, int32_t q);
/* Returns the graph's rank that steps a unit in pipeline k. */
int32_t ht_pipe_holder(const struct ht_pipe *g, int32_t k, int32_t unit);
/* Returns the control of the graph, and how it undoes steps: the method's own and in its own way. On one device a
   scenario's takes its place, and wherever norms are clipped, for which steps have to be made again. */
struct ht_control ht_pipe_control(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                                  enum ht_undo_kind *undo);

/* pipe_passes.c. The first block of a backward stage, and one past its last. */
int32_t ht_pipe_first_block(const struct ht_pipe *g, int32_t q);
int32_t ht_pipe_end_block(const struct ht_pipe *g, int32_t q);
bool ht_pipe_has_head(const struct ht_pipe *g, int32_t q);
/* Does the device need a unit's parameters in a pass of forward stage i, of backward stage q? */
bool ht_pipe_forward_reads(const struct ht_pipe *g, int32_t i, int32_t unit);
bool ht_pipe_backward_reads(const struct ht_pipe *g, int32_t q, int32_t unit);

/* The ops of a pass on the compute lane. n: of the rank's passes. */
void ht_pipe_forward_pass(struct ht_pipe *g, int32_t rank, int64_t n);
void ht_pipe_backward_pass(struct ht_pipe *g, int32_t rank, int64_t n);
/* Is the unit freed on the rank's device after pass n? */
bool ht_pipe_drops(const struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit);
bool ht_pipe_visit_reads(const struct ht_pipe *g, const struct ht_pipe_visit *v, int32_t unit);

/* pipe_transfers.c: copies and messages. */
void ht_pipe_fetch(struct ht_pipe *g, int32_t rank, int32_t visit);
void ht_pipe_send_boundary(struct ht_pipe *g, int32_t from, int32_t to, int32_t tensor, int32_t for_backward);
struct ht_pipe_message {
    int32_t send, receive; /* ops */
};
/* Appends a message of a tensor from one device to another's, on a lane of each, after an op (-1: none); it is freed where
   it was. letter: of the ops' names. */
struct ht_pipe_message ht_pipe_message(struct ht_pipe *g, int32_t from, int32_t to, int32_t out, int32_t in,
                                       int32_t tensor, char letter, int32_t after);
void ht_pipe_offload(struct ht_pipe *g, int32_t q);

/* pipe_transfers.c. Appends this pipeline's members of AR(u): the unit's gradients of all pipelines, and of a tied table those of
   embedding and head, are added up where each has its own. Nothing where there is but one. */
void ht_pipe_all_reduce(struct ht_pipe *g, int32_t unit);

/* pipe_passes.c: the optimizer's step of a backward stage, where its sums are. */
void ht_pipe_step(struct ht_pipe *g, int32_t q);

#endif
