/* What the files of the pipeline builder share, and what the hooks of a style work on; see pipe.h. */
#ifndef HT_BUILD_PIPE_BUILD_H
#define HT_BUILD_PIPE_BUILD_H

#include "common/build/links.h"
#include "common/build/pipe.h"

/* Lanes of a rank; -1 where there is none. */
struct ht_pipe_lanes {
    int32_t compute, h2d, d2h;
    int32_t act_out, act_in, grad_out, grad_in, get, reduce;
    int32_t own_out, own_in; /* messages of a method's own */
    int32_t host;
};

/* Consecutive passes of a rank over the same stage: one stay of its parameters. */
struct ht_pipe_visit {
    int64_t first, last;                 /* passes of the rank */
    int64_t last_forward, last_backward; /* -1: none */
    int32_t forward, backward;           /* stages; -1: none */
    int32_t last_op;                     /* its last compute op, once emitted */
};

/* A pipeline. Its ranks and micro-batches count from 0; in the graph they are the replica's. */
struct ht_pipe {
    const struct ht_scenario *scenario;
    const struct ht_pipe_style *style;
    struct ht_replica replica;
    bool sums; /* gradients are sums of micro-batches, in this pipeline or another */
    struct ht_pipe_shape shape;
    struct ht_schedule *s;
    int32_t n_units, n_mb, n_forward, n_backward;
    struct ht_control control; /* of the graph */
    int32_t *first;      /* [n_backward + 1] first unit of a backward stage */
    int32_t *stage_of;   /* [n_units] backward stage */
    struct ht_pipe_lanes *lanes; /* [ranks] */
    struct ht_ports *ports; /* [ranks] */
    int32_t *stage_lane; /* [n_backward] where its optimizer runs; -1: not there yet */
    int32_t *serve;      /* [ranks * ranks]: lane of the owner that the reader has, or -1 */
    /* tensors, as in common/build/single.h */
    int32_t *param, *master, *momentum, *variance, *grad;       /* [n_units] */
    int32_t *grad_mb, *x, *a, *dx;                              /* [n_units * n_mb] */
    int32_t *logits;                                            /* [n_mb] */
    int32_t *scratch;                                           /* [ranks * 2 * HT_UNIT_KINDS]: workspaces; -1: not made */
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

enum { HT_PIPE_UNIT_KINDS = 3 };

static inline int64_t ht_pipe_at(const struct ht_pipe *g, int32_t unit, int32_t mb) { return (int64_t)unit * g->n_mb + mb; }
static inline int32_t ht_pipe_rank(const struct ht_pipe *g, int32_t rank) { return g->replica.first_rank + rank; }
static inline bool ht_pipe_offloads(const struct ht_pipe *g) { return g->style->offload; }
static inline int32_t ht_pipe_head(const struct ht_pipe *g) { return g->n_units - 1; }
/* Who steps a unit, and in whose node's memory it lies. */
static inline int32_t ht_pipe_owner(const struct ht_pipe *g, int32_t unit)
{
    return ht_pipe_backward_rank(&g->shape, g->stage_of[unit]);
}
/* pipe.c. Returns the graph's rank that steps a unit in pipeline k. */
int32_t ht_pipe_holder(const struct ht_pipe *g, int32_t k, int32_t unit);
/* The first block of a backward stage, and one past its last. */
int32_t ht_pipe_first_block(const struct ht_pipe *g, int32_t q);
int32_t ht_pipe_end_block(const struct ht_pipe *g, int32_t q);
bool ht_pipe_has_head(const struct ht_pipe *g, int32_t q);
/* Does the device need a unit's parameters in a pass of forward stage i, of backward stage q? */
bool ht_pipe_forward_reads(const struct ht_pipe *g, int32_t i, int32_t unit);
bool ht_pipe_backward_reads(const struct ht_pipe *g, int32_t q, int32_t unit);

/* pipe_rows.c: lanes, resources, tensors, residents. */
int32_t ht_pipe_add_lane(struct ht_pipe *g, const char *name, enum ht_lane_kind kind, int32_t rank); /* FIFO */
void ht_pipe_add_rows(struct ht_pipe *g);
void ht_pipe_free_rows(struct ht_pipe *g);
int32_t ht_pipe_scratch(struct ht_pipe *g, int32_t rank, int32_t unit, bool backward); /* tensor, or -1 */

/* pipe_passes.c: the ops of a pass on the compute lane. n: of the rank's passes. */
void ht_pipe_forward_pass(struct ht_pipe *g, int32_t rank, int64_t n);
void ht_pipe_backward_pass(struct ht_pipe *g, int32_t rank, int64_t n);
/* Is the unit freed on the rank's device after pass n? */
bool ht_pipe_drops(const struct ht_pipe *g, int32_t rank, int64_t n, int32_t unit);
bool ht_pipe_visit_reads(const struct ht_pipe *g, const struct ht_pipe_visit *v, int32_t unit);

/* pipe_moves.c: copies and messages. */
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

/* pipe_moves.c. Appends this pipeline's member of AR(u): the unit's gradients of all pipelines are added up where each has
   its own. */
void ht_pipe_all_reduce(struct ht_pipe *g, int32_t unit);

/* pipe_passes.c: the optimizer's step of a backward stage, where its sums are. */
void ht_pipe_step(struct ht_pipe *g, int32_t q);

#endif
