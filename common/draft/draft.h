/*
 * Drafts: the page that the author of a system reads. A system decides where tensors live and in which order ops are
 * appended; the emitters here know what each op reads and writes, which is the same for all systems.
 *
 * A system is a program that writes the draft of one rank, a device and its host: the rank's tensors, and the ops of a
 * training iteration with their effects, works and resource use. The program runs once for every rank of the cluster.
 * With several ranks the job is data-parallel with ZeRO-3: every rank works on its own part of the batch and owns a shard
 * of each unit's parameters, gradient and optimizer state, as the layout says (layout.h). P, G, M, V and W below are then
 * these shards. The emitters of passes add the collectives that gather whole parameters and scatter whole gradients
 * (zero.c). A program need not know about them; the ids, edges and residents that it handles are those of its draft.
 *
 * A program whose ranks share the states (`shares_states`) writes one draft of all ranks of a node. P, W, M, V and G(u) are
 * then whole and exist once, in the node's memory or on its disk; a rank's device may have a copy of P(u). Activations
 * and fresh gradients belong to the rank of their micro-batch, which the program makes the current one
 * (ht_draft_turn_to) before it appends an op of that rank. The disk lanes are the first rank's.
 *
 * Names as in common/draft/effects.md:  X(u,j) input of unit u for micro-batch j,  A(u,j) kept activations,
 * dX(u,j) gradient of X(u,j),  P(u), G(u), M(u), V(u), W(u) parameters, gradient, momentum, variance, FP32 master.
 *
 * Beyond this page: turns.h and hops.h (parameters on their way over disk, host and device), draft_extra.h (what few
 * systems need), pipe.h (pipelines), cost_query.h (costs, for planners).
 */
#ifndef HT_DRAFT_DRAFT_H
#define HT_DRAFT_DRAFT_H

#include "common/draft/layout.h"
#include "common/draft/links.h"
#include "common/plan/system.h"

/* Time for which a rank keeps the whole parameters that it has gathered. */
enum ht_gather {
    HT_GATHER_PASS,      /* for one pass; the head's from its forward to its backward: ZeRO-3 */
    HT_GATHER_VISIT,     /* for the passes of all micro-batches over a unit, which the program runs one after another:
                            layered gradient accumulation (Cephalo, Sec. 2.2) */
    HT_GATHER_ITERATION, /* from a unit's first pass of the iteration to its last: ZeRO-2 */
};

/* Lanes of a rank; -1 where there is none. */
struct ht_lanes {
    int32_t compute, h2d, d2h, host;
    int32_t gather, reduce;                          /* collectives; the same lane with one communicator */
    int32_t act_out, act_in, grad_out, grad_in, get; /* messages of a pipeline, see common/draft/pipe.h */
    int32_t slices;                                  /* all-gathers of what came in slices */
    int32_t own_out, own_in;                         /* messages that only the system's method has */
    int32_t disk_read, disk_write;                   /* one lane if the node's array is simplex */
};

struct ht_draft {
    const struct ht_scenario *scenario; /* with tensor parallelism its model is one part */
    const struct ht_layout *layout;
    struct ht_schedule *schedule;
    int32_t n_units, n_mb;  /* units 0 .. L+1; micro-batches of the replica that has most */
    int32_t own_mb;         /* micro-batches of this replica; later passes append only their collectives */
    int32_t sharers;        /* ranks that share the states of this draft and take its micro-batches in turn; else 1 */
    int32_t rounds;         /* micro-batches of a rank: n_mb / sharers */
    int64_t micro_batch;    /* sequences of each */
    bool sharded;           /* there are several ranks, and P, G, .. are shards; else they are whole */
    int32_t replica;        /* of this draft */
    int32_t member;         /* of each stage that this draft is of (layout.h) */
    int32_t part;           /* that it is in the current stage */
    int32_t first_mb;       /* micro-batch that the current rank passes first: its gradient begins the sum */
    int32_t rank;           /* current rank */
    struct ht_lanes *lanes; /* of the current rank */
    struct ht_links *links; /* [n_ranks], see common/draft/links.h */

    /* Rows: [n_units + 1], or [(n_units + 1) * n_mb] at ht_draft_at; -1 where a unit has no such row. */
    int32_t *param, *master, *momentum, *variance;
    int32_t *grad;              /* the accumulator, which is also the first micro-batch's fresh gradient */
    int32_t *grad_mb;           /* fresh gradient of a later micro-batch j */
    int32_t *x, *dx;            /* by unit and micro-batch */
    int32_t *handed, *dhanded;  /* likewise: of a back, what its front hands beside the residual, and its gradient */
    int32_t (*a)[HT_N_SUB_OPS]; /* likewise: row of each sub-op; one for all unless A(u,j) is cut */
    int32_t *logits;            /* [n_mb] */

    /* Storage of a unit's 16-bit P when there is W; [n_units + 1], false unless the builder sets it.
       cast_on_use: no persistent copy on the device. Each op that reads P casts the resident W and drops the result.
       realloc_on_step: freed after its last reader. The step allocates it anew, so P and G can share memory. */
    bool *cast_on_use, *realloc_on_step;
    /* Steps on the host leave 16-bit P alone: the builder has it cast from W where it is needed (RESTORE). */
    bool steps_leave_copy;

    /* In a pipeline, [n_units]: the rank that runs a unit's backward and steps it, and the rank that runs its forward.
       table: index of a tied head's token table: 0, or n_units if the head is on another rank than the embedding and
       has its own unit 0. The index stands for a unit in the arrays above and as an argument of emitters. */
    const int32_t *holder, *forward_rank;
    int32_t table;
    struct ht_draft_state *state; /* what the emitters keep in mind (draft_internal.h) */
};

/* A system's way to write the draft of a rank. If the rank lacks a micro-batch that other ranks have, its passes append
   only the collectives in which the others need its shards. */
struct ht_program {
    const char *name;               /* of the graph */
    const struct ht_layout *layout; /* NULL: equal ranks */
    enum ht_lane_order h2d_order, d2h_order, host_order;
    enum ht_gather keeps;
    /* Whole gradients are summed on each rank and reduce-scattered once an iteration, not once a micro-batch. */
    bool reduce_once;
    bool blocks_gathers; /* a unit is gathered when the passes over the unit before it have ended, not beside them */
    /* All-gathers and reduce-scatters share a communicator, so they run one at a time, in the order in which PyTorch's
       FSDP issues them (common/draft/zero.c). Else each kind has a communicator of its own. */
    bool one_communicator;
    bool disk; /* has lanes to the node's SSDs: one, or one for reads and one for writes if these do not share the
                  array's time */
    enum ht_lane_order disk_order;
    bool shares_states; /* one draft has all ranks, which share one copy of the states; the cluster has one node */
    void (*emit)(struct ht_draft *g, const void *context);
    const void *context;
};

/* Runs the program for every rank, applies the scenario's control to each draft (common/draft/control.h), merges
   the drafts and links the graph. HT_INFEASIBLE if control cannot handle the draft; HT_FAILED if the drafts do not
   match. */
enum ht_status ht_build_graph(const struct ht_scenario *scenario, const struct ht_program *program,
                              struct ht_error *err, struct ht_schedule **out);

/* Builds the graph of a system's own program, with its name and the plan as context: the `build` of a system whose plan
   decides nothing about the ranks. */
enum ht_status ht_build_program(const struct ht_system *self, const struct ht_scenario *scenario,
                                const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Makes a row resident in a tier of its rank. */
void ht_draft_place(struct ht_draft *g, int32_t tensor, enum ht_tier tier);
/* Makes a unit's optimizer state resident in a tier: W (P in FP32 numerics, which have no W), M and V. */
void ht_draft_place_states(struct ht_draft *g, int32_t unit, enum ht_tier tier);
/* Lists the rows that an optimizer step of a unit reads beside the gradient: W (P in FP32 numerics), M and V. With the
   compute copy: those that it leaves, P, W, M and V. Returns their number. */
int32_t ht_draft_state_rows(const struct ht_draft *g, int32_t unit, bool compute_copy, int32_t rows[4]);

enum ht_unit_kind ht_draft_kind(const struct ht_draft *g, int32_t unit);
static inline int32_t ht_draft_at(const struct ht_draft *g, int32_t unit, int32_t mb)
{
    return unit * g->n_mb + mb;
}

/* Returns the gradient row that B(u,j) writes where gradients are whole: of the rank's first micro-batch the sum itself. */
static inline int32_t ht_draft_fresh_gradient(const struct ht_draft *g, int32_t unit, int32_t mb)
{
    return mb != g->first_mb ? g->grad_mb[ht_draft_at(g, unit, mb)] : g->grad[unit];
}

/* ---- ops; each returns the op's id ----------------------------------------------------------------------------- */

/* Appends F(u,j), with AG(u) before it if there are shards. keep: sub-ops whose rows of A(u,j) stay for the backward
   pass; the other rows are scratch, to be recomputed. */
int32_t ht_draft_forward(struct ht_draft *g, int32_t unit, int32_t mb, unsigned keep);
/* Appends R(u,j), which makes A(u,j) again for n units in one op. It also makes the inputs of all units but the first,
   and the head's logits. sub_ops: all sub-ops; or for n = 1 those of some rows of a block, made from the rows that
   ht_sub_ops_read names. */
int32_t ht_draft_recompute(struct ht_draft *g, int32_t unit, int32_t n, int32_t mb, unsigned sub_ops);
/* Appends B(u,j): makes dX(u,j) and the fresh gradient, frees A(u,j), X(u,j) and dX(u+1,j). With shards RS(u,j)
   follows. Returns the id of B. */
int32_t ht_draft_backward(struct ht_draft *g, int32_t unit, int32_t mb);
/*
 * Returns the unit whose gradient a builder should use next on the compute lane. With one rank that is `unit`. With
 * several it is the unit of the call before (-1: none): `unit`'s gradient is being scattered while the next backward
 * runs, and the lane would stand still waiting for it. Pass -1 at the end of a pass to get the last one.
 */
int32_t ht_draft_wait_reduced(struct ht_draft *g, int32_t unit);
/* Appends AR(u) after a unit's last micro-batch, on the device, if several replicas have whole gradients. G(u) becomes
   the sum over all replicas (Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
   2020). */
void ht_draft_all_reduce(struct ht_draft *g, int32_t unit);
/* Appends G(u) += G(u,mb) on a lane (device or host) and frees the fresh gradient there. mb > 0. Returns -1 and appends
   nothing if neither the rank nor its shard has that micro-batch, and with reduce_once, where ht_draft_backward adds up
   whole gradients. */
int32_t ht_draft_accumulate(struct ht_draft *g, int32_t lane, int32_t unit, int32_t mb);
/* Appends the way of G(u,mb) to host memory, and behind micro-batch 0 its addition to the sum there. to_flags: of
   micro-batch 0's copy, HT_PRODUCE or, where G(u) is resident, HT_UPDATE. Returns the last op. */
int32_t ht_draft_gradient_to_host(struct ht_draft *g, int32_t unit, int32_t mb, unsigned to_flags);
/* Appends, on the compute lane, the addition to the sum of the gradient that ht_draft_wait_reduced names, and its step
   with the last micro-batch. Returns the last op, or `before` if it appends no op. */
int32_t ht_draft_update_on_device(struct ht_draft *g, int32_t unit, int32_t mb, int32_t before);
/* Appends the optimizer step of n units on the compute lane or a host lane; it reads G(u) in that lane's tier. On the
   host it also writes the 16-bit copy of P, if there is one. release_grad: the step frees the gradients. */
int32_t ht_draft_step(struct ht_draft *g, int32_t lane, int32_t unit, int32_t n, bool release_grad);
/* Appends a copy of rows between device and host, or host and disk, on the lane of its direction. to_flags: HT_PRODUCE or
   HT_UPDATE. release_from: the copy frees its sources. n >= 1; the rows' units ascend. */
int32_t ht_draft_copy_rows(struct ht_draft *g, const int32_t *rows, int32_t n, enum ht_tier from, enum ht_tier to,
                           unsigned to_flags, bool release_from);
int32_t ht_draft_copy(struct ht_draft *g, int32_t row, enum ht_tier from, enum ht_tier to, unsigned to_flags,
                      bool release_from);
/* Appends a copy of the rows that ht_draft_state_rows lists for n units. */
int32_t ht_draft_copy_states(struct ht_draft *g, int32_t unit, int32_t n, bool compute_copy, enum ht_tier from,
                             enum ht_tier to, unsigned to_flags, bool release_from);
/* Names the last op by letters, unit and, with several of them, micro-batch; mb -1: none. */
void ht_draft_name(struct ht_draft *g, const char *letters, int32_t unit, int32_t mb);

#endif
