/*
 * Drafts: the tensors of a model on some of the ranks, and the ops of a training iteration with their effects, works and
 * resource use. A system decides what lives where and in which order ops are appended; what a forward pass reads and
 * writes is the same for all and stands here.
 *
 * A draft is the graph of one rank, or of the ranks of one pipeline (common/build/pipe.h); emitters append to the lanes of the
 * rank whose turn it is. Where stages are cut by tensor parallelism a draft is of one part of each, as if there were no other.
 * Drafts are merged (common/schedule/merge.h), which joins the parts' passes.
 *
 * A system that is not a pipeline is a program that writes the draft of one rank, a device and its host. It runs once
 * for every rank of the cluster. With several ranks the job is data-parallel with ZeRO-3: every rank works on
 * its own share of the batch, and owns a shard of each unit's parameters, gradient and optimizer state; the layout
 * says which (common/build/layout.h). What is called P, G, M, V, W below are then these shards. The passes themselves
 * add the collectives that turn shards into whole parameters and whole gradients into shards (common/build/zero.c).
 * A program need not know; ids, edges and residents that it handles are the draft's.
 *
 * Names as in common/backend/cpu.h:  X(u,j) input of unit u for micro-batch j,  A(u,j) kept activations,
 * D(u,j) gradient of X(u,j),  P(u), G(u), M(u), V(u), W(u) parameters, gradient, momentum, variance, FP32 master.
 */
#ifndef HT_BUILD_DRAFT_H
#define HT_BUILD_DRAFT_H

#include "common/build/layout.h"
#include "common/build/links.h"

/* How long a rank keeps whole parameters that it has gathered. */
enum ht_gather {
    HT_GATHER_PASS,      /* from each pass to its end, the head's from forward to backward: ZeRO-3 */
    HT_GATHER_VISIT,     /* for passes of all micro-batches, which the program runs one after the other, unit by unit:
                            layered gradient accumulation (Cephalo, Sec. 2.2) */
    HT_GATHER_ITERATION, /* from a unit's first pass of the iteration to its last: ZeRO-2 */
};

/* Lanes of a rank; -1 where there is none. */
struct ht_lanes {
    int32_t compute, h2d, d2h, host;
    int32_t gather, reduce;                          /* collectives */
    int32_t act_out, act_in, grad_out, grad_in, get; /* messages of a pipeline, see common/build/pipe.h */
    int32_t own_out, own_in;                         /* messages of a method's own */
};
#define HT_NO_LANES                                                                                                    \
    (struct ht_lanes)                                                                                                  \
    {                                                                                                                  \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1                                                             \
    }

struct ht_draft {
    const struct ht_scenario *scenario;
    struct ht_scenario *of_part; /* the scenario where there are several parts, else NULL */
    const struct ht_layout *layout;
    struct ht_layout *own_layout; /* the layout where ht_draft_begin has made it, else NULL */
    int32_t replica, part;        /* whose draft this is; the scenario's model is that part */
    struct ht_schedule *schedule;
    int32_t n_units, n_mb;  /* units 0 .. L+1; micro-batches of the replica that has most */
    int32_t own_mb;         /* micro-batches of this one: passes of others append their collectives alone */
    int64_t micro_batch;    /* sequences of each */
    bool sharded;           /* there are several ranks, and each has a shard; else P, G, .. are whole */
    enum ht_gather keeps;   /* see struct ht_program */
    bool reduce_once;       /* likewise; false where nothing is sharded or in one round */
    int32_t rank;           /* whose turn it is */
    struct ht_lanes *lanes; /* its lanes */
    struct ht_links *links; /* [n_ranks], see common/build/links.h */
    /* Of a pipeline, [n_units]: the rank that steps a unit and runs its backward, and the one that runs its forward. NULL:
       the draft is one rank's. */
    const int32_t *holder, *maker;
    /* The index of a tied head's token table: 0, or n_units where the head is on another rank than the embedding and has a
       unit 0 of its own. It stands for a unit in the arrays of parameters and gradients and wherever an emitter takes one. */
    int32_t table;
    /* tensors: [n_units + 1], or [(n_units + 1) * n_mb] at u * n_mb + j; -1 where there is none */
    int32_t *param, *master, *momentum, *variance;
    int32_t *grad;              /* the accumulator, which is also micro-batch 0's fresh gradient */
    int32_t *grad_mb;           /* fresh gradient of micro-batch j > 0 */
    int32_t *x, *dx;            /* by unit and micro-batch */
    int32_t (*a)[HT_N_SUB_OPS]; /* the same: the row of what each sub-op keeps, of all of them unless A(u,j) is cut */
    int32_t *logits;            /* [n_mb] */
    int32_t *full_param; /* all shards gathered. Like full_grad and full_sum only where there are shards, else -1 */
    int32_t *full_grad;  /* fresh gradient before it is scattered */
    int32_t *full_sum;   /* with reduce_once, sum of the rank's own ones; micro-batch 0 writes it */
    /* How the 16-bit P of a unit is kept, where there is W; [n_units + 1], false until a builder says otherwise. */
    bool *
        cast_on_use; /* no persistent copy on the device: each op that reads it casts the resident W and drops the result */
    bool *realloc_on_step; /* freed after its last reader; the step allocates it anew, so P and G can share memory */
    /* Gathering; see common/build/zero.c. */
    bool *gathered;         /* [n_units + 1]: full_param is there */
    int32_t computed;       /* last compute op of a pass, or -1 */
    int32_t slot, ahead;    /* op before the slot at hand, and before the slot before it; or -1 */
    int32_t pending_reduce; /* unit last given to ht_draft_wait_reduced, or -1 */
    /* A builder's choice: nothing overlaps. Every op waits for the one before it, the iteration's first for the op of
       the iteration before that the mark `blocking_prev` names (-1: none). */
    bool blocking;
    int32_t blocking_prev;
};

/* A system's way to write the draft of a rank. With several ranks, a pass of a micro-batch that the rank lacks appends
   what the others' passes need of it: its shards. */
struct ht_program {
    const char *name;               /* of the graph */
    const struct ht_layout *layout; /* NULL: equal ranks */
    enum ht_lane_order h2d_order, d2h_order, host_order;
    enum ht_gather keeps;
    /* Whole gradients are summed on each rank and reduce-scattered once an iteration, not once a micro-batch. */
    bool reduce_once;
    void (*emit)(struct ht_draft *g, const void *context);
    const void *context;
};

/* Runs the program for every rank, puts the scenario's control into each draft (common/build/control.h), merges and links.
   HT_INFEASIBLE where control has no treatment for the draft; HT_FAILED where drafts do not fit together. */
enum ht_status ht_build_graph(const struct ht_scenario *scenario, const struct ht_program *program,
                              struct ht_error *err, struct ht_schedule **out);

/* Begins the first rank's draft of a program: lanes, resources and all tensor rows. Planners append ops to it and read what is
   live off it. */
void ht_draft_begin(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_program *program);
/* Frees the index arrays and hands out the draft, linked. Its collectives lack their peers. */
struct ht_schedule *ht_draft_end(struct ht_draft *g);

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Makes a row resident in a tier of its rank. */
void ht_draft_place(struct ht_draft *g, int32_t tensor, enum ht_tier tier);
/* Optimizer state of a unit (W where there is one, M, V; in FP32 numerics P stands for W) resident in a tier. */
void ht_draft_place_states(struct ht_draft *g, int32_t unit, enum ht_tier tier);

/* Returns the label of a unit and of the replica's micro-batch mb, which it counts over all replicas; mb -1: of none. */
struct ht_label ht_draft_label(const struct ht_draft *g, int32_t unit, int32_t mb);

/* Cuts A(u,j) of a block into n rows, row i of what sub_ops[i] keep: one can stay, another be copied, a third recomputed.
   The masks are disjoint and have all sub-ops; no op is about A(u,j) yet. */
void ht_draft_cut(struct ht_draft *g, int32_t unit, int32_t mb, const unsigned *sub_ops, int32_t n);

enum ht_unit_kind ht_draft_kind(const struct ht_draft *g, int32_t unit);
static inline int32_t ht_draft_at(const struct ht_draft *g, int32_t unit, int32_t mb)
{
    return unit * g->n_mb + mb;
}

/* ---- ops; each returns the op's id ----------------------------------------------------------------------------- */

/* Appends F(u,j), and before it AG(u) where there are shards. keep: sub-ops of the rows of A(u,j) that stay for the backward
   pass; the others are scratch, to be recomputed. */
int32_t ht_draft_forward(struct ht_draft *g, int32_t unit, int32_t mb, unsigned keep);
/* Appends R(u,j), which makes A(u,j) again, of n units in one op: the inputs of all but the first are made as well. The head's
   makes its logits. sub_ops: all, or of one block those of some of its rows, made from what ht_sub_ops_read names. */
int32_t ht_draft_recompute(struct ht_draft *g, int32_t unit, int32_t n, int32_t mb, unsigned sub_ops);
/* Appends B(u,j): makes D(u,j) and the fresh gradient, frees A(u,j), X(u,j), D(u+1,j). Where there are shards
   RS(u,j) follows and is the last op; the returned id is B's. */
int32_t ht_draft_backward(struct ht_draft *g, int32_t unit, int32_t mb);
/*
 * For builders that use gradients on the compute lane as they appear: the unit whose turn it is. With one rank that is
 * `unit`. With several, the one given before (-1: none), since `unit`'s gradient is being scattered while the next
 * backward runs, for which the lane would stand still. -1 at the end of a pass gives the last one.
 */
int32_t ht_draft_wait_reduced(struct ht_draft *g, int32_t unit);
/* Where several replicas have whole gradients, appends AR(u) after a unit's last micro-batch, on the device: G(u) becomes the
   sum of all replicas' (Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020). */
void ht_draft_all_reduce(struct ht_draft *g, int32_t unit);
/* Appends G(u) += G(u,mb) on a lane (device or host) and frees the fresh gradient there; appends nothing, and returns -1,
   if neither the rank nor its shard has that micro-batch. mb > 0. With reduce_once, where ht_draft_backward calls it,
   both are whole. */
int32_t ht_draft_accumulate(struct ht_draft *g, int32_t lane, int32_t unit, int32_t mb);
/* Appends the optimizer step of n units on the compute or a host lane, reading G(u) where that lane works. release_grad:
   the gradients are freed afterwards. On the host it also writes the 16-bit copy of P when there is one. */
int32_t ht_draft_step(struct ht_draft *g, int32_t lane, int32_t unit, int32_t n, bool release_grad);
/* Appends a copy of rows between device and host on the copy lane of its direction. to_flags: HT_PRODUCE or
   HT_UPDATE; release_from: the sources are freed afterwards. n >= 1; the rows' units ascend. */
int32_t ht_draft_copy_rows(struct ht_draft *g, const int32_t *rows, int32_t n, enum ht_tier from, enum ht_tier to,
                           unsigned to_flags, bool release_from);
int32_t ht_draft_copy(struct ht_draft *g, int32_t row, enum ht_tier from, enum ht_tier to, unsigned to_flags,
                      bool release_from);
/* Appends a copy of so many bytes, whose rows the builder adds. */
int32_t ht_draft_transfer(struct ht_draft *g, struct ht_label about, enum ht_tier from, enum ht_tier to, int64_t bytes);
/* With `blocking`, the last op's wait for the one before it; a builder calls this for ops of its own. */
void ht_draft_chain(struct ht_draft *g);

#endif
