/*
 * Drafts: the tensors of a model on some of the ranks, and the ops of a training iteration with their effects, works
 * and resource use. A system decides where tensors live and in which order ops are appended. The emitters here know
 * what each op reads and writes, which is the same for all systems.
 *
 * A draft is the graph of one rank, or of the ranks of one pipeline (common/draft/pipe.h). Emitters append to the lanes
 * of the current rank (`rank`). With tensor parallelism a draft has one part of each stage and ignores the others.
 * common/schedule/merge.h merges drafts and joins the passes of the parts.
 *
 * A system that is not a pipeline is a program that writes the draft of one rank: a device and its host. The program
 * runs once for every rank of the cluster. With several ranks the job is data-parallel with ZeRO-3: every rank works on
 * its own part of the batch and owns a shard of each unit's parameters, gradient and optimizer state, as the layout
 * says (common/draft/layout.h). P, G, M, V and W below are then these shards. The emitters of passes add the
 * collectives that gather whole parameters and scatter whole gradients (common/draft/zero.c). A program need not know
 * about them; the ids, edges and residents that it handles are those of its draft.
 *
 * A program whose ranks share the states (`shares_states`) writes one draft of all ranks of a node. P, W, M, V and G(u) are
 * then whole and exist once, in the node's memory or on its disk; a rank's device may have a copy of P(u). Activations
 * and fresh gradients belong to the rank of their micro-batch, which the program makes the current one
 * (ht_draft_turn_to) before it appends an op of that rank. The disk lanes are the first rank's.
 *
 * Names as in common/draft/effects.md:  X(u,j) input of unit u for micro-batch j,  A(u,j) kept activations,
 * dX(u,j) gradient of X(u,j),  P(u), G(u), M(u), V(u), W(u) parameters, gradient, momentum, variance, FP32 master.
 */
#ifndef HT_DRAFT_DRAFT_H
#define HT_DRAFT_DRAFT_H

#include "common/draft/control.h"
#include "common/draft/layout.h"
#include "common/draft/links.h"

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
    int32_t own_out, own_in;                         /* messages that only the system's method has */
    int32_t disk_read, disk_write;                   /* one lane if the node's array is simplex */
};
#define HT_NO_LANES                                                                                                    \
    (struct ht_lanes)                                                                                                  \
    {                                                                                                                  \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1                                                     \
    }

struct ht_draft {
    const struct ht_scenario *scenario;
    struct ht_scenario *of_part; /* owned copy of the scenario with one part's model if tp > 1, else NULL */
    const struct ht_layout *layout;
    struct ht_layout *own_layout; /* the layout if ht_draft_begin made it, else NULL */
    int32_t replica, part;        /* of this draft; the scenario's model is that part */
    struct ht_schedule *schedule;
    int32_t n_units, n_mb;  /* units 0 .. L+1; micro-batches of the replica that has most */
    int32_t own_mb;         /* micro-batches of this replica; later passes append only their collectives */
    int32_t sharers;        /* ranks that share the states of this draft and take its micro-batches in turn; else 1 */
    int32_t rounds;         /* micro-batches of a rank: n_mb / sharers */
    int64_t micro_batch;    /* sequences of each */
    bool sharded;           /* there are several ranks, and P, G, .. are shards; else they are whole */
    enum ht_gather keeps;   /* as in struct ht_program */
    bool reduce_once;       /* as in struct ht_program; false without sharding or with one round */
    bool blocks_gathers;    /* as in struct ht_program */
    bool one_communicator;  /* as in struct ht_program; false without sharding */
    int32_t rank;           /* current rank */
    struct ht_lanes *lanes; /* of the current rank */
    struct ht_lanes *all_lanes; /* [sharers]; NULL in a pipeline */
    struct ht_links *links;     /* [n_ranks], see common/draft/links.h */
    /* In a pipeline, [n_units]: the rank that runs a unit's backward and steps it, and the rank that runs its forward.
       NULL in the draft of one rank. */
    const int32_t *holder, *forward_rank;
    /* Index of a tied head's token table: 0, or n_units if the head is on another rank than the embedding and has
       its own unit 0. The index stands for a unit in the arrays of parameters and gradients and as an argument of
       emitters. */
    int32_t table;
    /* tensors: [n_units + 1], or [(n_units + 1) * n_mb] at u * n_mb + j; -1 where there is none */
    int32_t *param, *master, *momentum, *variance;
    int32_t *grad;              /* the accumulator, which is also micro-batch 0's fresh gradient */
    int32_t *grad_mb;           /* fresh gradient of micro-batch j > 0 */
    int32_t *x, *dx;            /* [(n_units + 1) * n_mb] */
    int32_t (*a)[HT_N_SUB_OPS]; /* [(n_units + 1) * n_mb]: row of each sub-op; one for all unless A(u,j) is cut */
    int32_t *logits;            /* [n_mb] */
    int32_t *full_param;        /* all shards gathered; this, full_grad and full_sum are -1 without shards */
    int32_t *full_grad;         /* fresh gradient before it is scattered */
    int32_t *full_sum;          /* with reduce_once: sum over the rank's micro-batches; its first writes it */
    /* Storage of a unit's 16-bit P when there is W; [n_units + 1], false unless the builder sets it.
       cast_on_use: no persistent copy on the device. Each op that reads P casts the resident W and drops the result.
       realloc_on_step: freed after its last reader. The step allocates it anew, so P and G can share memory. */
    bool *cast_on_use;
    bool *realloc_on_step;
    /* Steps on the host leave 16-bit P alone: the builder has it cast from W where it is needed (RESTORE). */
    bool steps_leave_copy;
    /* State of the gathering, see common/draft/zero.c. */
    bool *gathered;             /* [n_units + 1]: full_param is on the device */
    int32_t computed;           /* last compute op of a pass, or -1 */
    int32_t slot, ahead;        /* op before the current slot, and op before the previous slot; or -1 */
    int32_t pending_reduce;     /* unit last passed to ht_draft_wait_reduced, or -1 */
    int32_t held_unit, held_mb; /* RS(u,j) that is held back until the next unit's AG is appended; or -1 */
    /* Set by a builder that does not overlap everything. The iteration's first ops wait for the op of the iteration
       before that the mark `blocking_prev` names (-1 if there is no such mark). With HT_BLOCKS_HOST that is the last op
       for which the host waits, and the draft sets the mark. */
    enum ht_blocking blocking;
    int32_t blocking_prev;
    int32_t blocked;  /* HT_BLOCKS_HOST: the last op for which the host has waited; -1 before the iteration's first */
    int32_t followed; /* `blocked` when the last kernel was appended; -2 before the first */
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
    bool disk; /* has lanes to the node's SSDs: one, or one for reads and one for writes if these do not share
                            the array's time */
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

/* Begins the draft of a program's first rank: lanes, resources and all tensor rows. Planners append ops to it to find
   out what is live. */
void ht_draft_begin(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_program *program);
/* Frees the index arrays and returns the draft, linked. Its collectives lack their peers. */
struct ht_schedule *ht_draft_end(struct ht_draft *g);

/* Makes the rank of a micro-batch the current one, or with mb -1 the first rank. Without sharers it does nothing. */
void ht_draft_turn_to(struct ht_draft *g, int32_t mb);

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Makes a row resident in a tier of its rank. */
void ht_draft_place(struct ht_draft *g, int32_t tensor, enum ht_tier tier);
/* Makes a unit's optimizer state resident in a tier: W (P in FP32 numerics, which have no W), M and V. */
void ht_draft_place_states(struct ht_draft *g, int32_t unit, enum ht_tier tier);
/* Lists the rows that an optimizer step of a unit reads beside the gradient: W (P in FP32 numerics), M and V. With the
   compute copy: those that it leaves, P, W, M and V. Returns their number. */
int32_t ht_draft_state_rows(const struct ht_draft *g, int32_t unit, bool compute_copy, int32_t rows[4]);

/* Returns the label of a unit and of the replica's micro-batch mb, numbered over all replicas. mb -1: no
   micro-batch. */
struct ht_label ht_draft_label(const struct ht_draft *g, int32_t unit, int32_t mb);

/* Cuts A(u,j) of a block into n rows: row i keeps what the sub-ops of mask sub_ops[i] keep. One row can stay, another
   be copied, a third recomputed. The masks are disjoint and cover all sub-ops. No op may refer to A(u,j) yet. */
void ht_draft_cut(struct ht_draft *g, int32_t unit, int32_t mb, const unsigned *sub_ops, int32_t n);

enum ht_unit_kind ht_draft_kind(const struct ht_draft *g, int32_t unit);
static inline int32_t ht_draft_at(const struct ht_draft *g, int32_t unit, int32_t mb)
{
    return unit * g->n_mb + mb;
}

/* ---- ops; each returns the op's id ----------------------------------------------------------------------------- */

/* Appends F(u,j), with AG(u) before it if there are shards. keep: sub-ops whose rows of A(u,j) stay for the backward
   pass; the other rows are scratch, to be recomputed. */
int32_t ht_draft_forward(struct ht_draft *g, int32_t unit, int32_t mb, unsigned keep);
/* Append one half of F(u,j) or B(u,j) of a block, HT_ATTENTION_HALF or HT_MLP_HALF: forward the attention's half first,
   backward the MLP's. Between the backward ones dX(u,j) holds the gradient of proj, and G has that of the MLP's
   parameters. A(u,j) is cut so that proj is a row of its own and no other row is of both halves: each half makes and
   frees its own rows, and the MLP's half of B frees proj. Not for shards of parameters. */
int32_t ht_draft_forward_half(struct ht_draft *g, int32_t unit, int32_t mb, unsigned half, unsigned keep);
int32_t ht_draft_backward_half(struct ht_draft *g, int32_t unit, int32_t mb, unsigned half);
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
   nothing if neither the rank nor its shard has that micro-batch. With reduce_once, where ht_draft_backward calls it,
   both gradients are whole. */
int32_t ht_draft_accumulate(struct ht_draft *g, int32_t lane, int32_t unit, int32_t mb);
/* Appends the optimizer step of n units on the compute lane or a host lane; it reads G(u) in that lane's tier. On the
   host it also writes the 16-bit copy of P, if there is one. release_grad: the step frees the gradients. */
int32_t ht_draft_step(struct ht_draft *g, int32_t lane, int32_t unit, int32_t n, bool release_grad);
/* Appends a copy of rows between device and host, or host and disk, on the copy lane of its direction. to_flags: HT_PRODUCE or HT_UPDATE.
   release_from: the copy frees its sources. n >= 1; the rows' units ascend. */
int32_t ht_draft_copy_rows(struct ht_draft *g, const int32_t *rows, int32_t n, enum ht_tier from, enum ht_tier to,
                           unsigned to_flags, bool release_from);
int32_t ht_draft_copy(struct ht_draft *g, int32_t row, enum ht_tier from, enum ht_tier to, unsigned to_flags,
                      bool release_from);
/* Appends an op that only frees a row in host memory, on the current rank's host lane. It takes no time. */
int32_t ht_draft_release(struct ht_draft *g, int32_t row);
/* Appends a copy of this many bytes; the caller adds the effects on its rows. */
int32_t ht_draft_transfer(struct ht_draft *g, struct ht_label about, enum ht_tier from, enum ht_tier to, int64_t bytes);
/* Makes the last op wait as the draft's `blocking` says. Builders call it after each op of their own. */
void ht_draft_chain(struct ht_draft *g);
/* Makes the host wait for the last op, a kernel, in a draft with HT_BLOCKS_HOST: the host reads its result. */
void ht_draft_block(struct ht_draft *g);

#endif
