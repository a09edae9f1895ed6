/*
 * The CPU backend: ops of a schedule as kernels on this machine's cores.
 *
 * The "device" is an arena and a set of cores of its own; host memory is another arena, host work runs on the other
 * cores, and a copy between the two is a real one. Copy and disk lanes run on the host's cores.
 *
 *
 * What a backend expects of an op's effects
 * -----------------------------------------
 *
 * Tensors are recognised by class and label. u is a unit, j a micro-batch; "-" is label.micro_batch -1. All have
 * label.n_units 1. Sizes are those of common/model/model.h for numerics.param.
 *
 *     name      class        label   bytes                                   what
 *     X(u,j)    CHECKPOINT   u, j    ht_unit_input_bytes                     input of unit u, 1 <= u <= L+1
 *     A(u,j)    ACTIVATION   u, j    ht_unit_activation_bytes; of a row of   kept by unit u, 1 <= u <= L+1. A block's
 *                                    some sub-ops                            may be several rows: each has what the
 *                                    ht_sub_ops_activation_bytes             sub-ops of its label keep, laid out as
 *                                                                            ht_block_activations says
 *     DX(u,j)   ACT_GRAD     u, j    as X(u,j)                               gradient of X(u,j)
 *     LOGITS    LOGITS       L+1, j  ht_logits_bytes                         forward leaves their gradient in them
 *     P(u)      PARAM        u, -    ht_unit_params, or a shard, of          parameters: what is computed with
 *                                    numerics.param
 *     W(u)      MASTER       u, -    as P(u), FP32; only where param is      parameters: what is stepped. In FP32
 *                                    16-bit                                  numerics P(u) stands for W(u) below
 *     M, V(u)   MOMENTUM,    u, -    as W(u), or a shard                     optimizer state
 *               VARIANCE
 *     G(u)      GRAD         u, -    as P(u), of numerics.accumulate if      gradient: what the optimizer reads
 *                                    there are several micro-batches of a
 *                                    data-parallel rank, else of
 *                                    numerics.grad
 *     G(u,j)    GRAD         u, j    as P(u), of numerics.grad               fresh gradient of one micro-batch
 *     LOG(u)    STAGING      u, -    ht_undo_log_bytes, or more              undo log, for just the elements of M(u)
 *                                                                            or of one shard of it
 *     SCRATCH   WORKSPACE    any     at least ht_unit_workspace_bytes        scratch of one op (forward and recompute:
 *                                                                            backward = false); needed only where that
 *                                                                            is not 0
 *
 * A shard covers elements [shard_begin, shard_end) of the unit's flat buffer. A gradient that a backward op writes is
 * G(u,j) if the op has that among its effects, else G(u): so the first micro-batch may write the accumulator itself.
 *
 * An op works in one tier: COMPUTE lanes on the device, HOST lanes in host memory. All of its tensors are looked up
 * there. Shapes (B, T) are those of the op's row of works. N: NEED, P: PRODUCE, U: UPDATE; RELEASE may join any of
 * them.
 *
 *     op                     reads                              writes
 *     FORWARD 0              N P(0)                             P X(1,j)
 *     FORWARD 1..L           N P(u), X(u,j)                     P X(u+1,j), A(u,j), SCRATCH
 *     FORWARD L+1            N P(L+1), P(0) if tied, X(L+1,j)   P A(L+1,j), LOGITS(L+1,j), SCRATCH; the loss is taken
 *                                                               down. LOGITS P | RELEASE: for the loss alone
 *     RECOMPUTE 1..L         N P(u); what ht_sub_ops_read       P or U A(u,j) of the label's sub_ops, which is what
 *                            names: X(u,j), A(u,j) of others    is filled in again; SCRATCH if attention is
 *     RECOMPUTE L+1          as FORWARD L+1                     as FORWARD L+1, but for the loss
 *     BACKWARD L+1           N P(L+1), P(0) if tied, X(L+1,j),  P DX(L+1,j), G(L+1), SCRATCH; if tied G(0), of
 *                            A(L+1,j), LOGITS(L+1,j)            which all but the token table is 0
 *     BACKWARD 1..L          N P(u), X(u,j), A(u,j), DX(u+1,j)  P DX(u,j), G(u), SCRATCH
 *     BACKWARD 0             N DX(1,j)                          tied: U G(0); P G(0) when not, or when
 *                                                               the head writes another row; SCRATCH
 *     ACCUMULATE u           N G(u,j)                           U G(u): G(u) += G(u,j)
 *     ACCUMULATE             nothing: RELEASE is its only       nothing: bookkeeping, after a branch
 *                            effect, on any tensors
 *     OPTIMIZER_STEP u       N G(u)                             U W(u), M(u), V(u): AdamW; P or U P(u) if it is there;
 *                                                               to be undone: P or U LOG(u)
 *     UNDO u                 N G(u), LOG(u)                     U W(u), M(u), V(u): as before the step, bit for bit;
 *                                                               P or U P(u) if it is there
 *     RESTORE u              N W(u)                             P or U P(u): made again from the master
 *     VALIDATE u             N G(u)                             nothing: a partial for the verdict
 *     VALIDATE (unit -1)     nothing, or gradients as above     nothing: the verdict
 *     COPY                   N a tensor in one tier             P or U it in another tier: copied
 *     ALL_GATHER u           N a shard of P(u) by each rank;    P or U C(u), all of P(u), on each
 *                            or N W(u) and P P(u), as below
 *     REDUCE_SCATTER u       N a whole G(u,j) by each rank,     P or U a shard of G(u), or of some G(u,j), by each
 *                            each its own j                     rank: of the sum over the ranks
 *     ALL_REDUCE                                                U any tensors, alike on each rank: their sums
 *     SEND                   N any tensors                      nothing
 *     RECEIVE                nothing                            P or U tensors of the sizes that are sent, in that order
 *
 * C(u) is of class COMM with the label u, -; every pass that reads P(u) takes C(u) instead where it has no P(u).
 *
 * Those of several ranks are a group each, one member a rank, ranks ascending but in pairs, on COLLECTIVE or P2P lanes (a SEND and a
 * RECEIVE make a group of two). Sums are as common/comm/comm.h says: from the left, ranks ascending. The shards of a group
 * lie one after the other in the order of ranks, of any sizes, also 0; a shard may be padded. Sums of 16-bit gradients over
 * ranks are rounded once, to that type (numerics.reduce, which is as numerics.grad), also where they are then kept in FP32.
 *
 * Tensor parallelism: FORWARD, RECOMPUTE or BACKWARD whose work is of n parts is a group of n on compute lanes, ranks ascending.
 * Member q computes with part q of n of the model (common/model/model.h): P, W, M, V, G, A, LOGITS and SCRATCH have its sizes,
 * and shards count within it; X and DX are whole and alike on all. What the members sum on the way is theirs alone
 * (common/kernels/unit.h), as a collective with the group's number. The first takes the loss down.
 *
 * A written tensor may be PRODUCEd or UPDATEd (a buffer that is kept and overwritten); every write is in full, but for
 * those of BACKWARD 0 into a tied G(0) as said, and of a recomputation that UPDATEs a row of more sub-ops than it
 * runs. Forward drops rows of A(u,j) by P | RELEASE. COPY runs on any lane.
 *
 * Where A(u,j) is several rows, FORWARD writes and BACKWARD reads all of them; each sub-op is in exactly one. One may be
 * kept, another copied to the host and back, a third recomputed: by one op or by several, each after what it reads.
 *
 * RECOMPUTE u writes X(u+1,j) too when it is among what the op writes, and fc2 among the sub-ops: so a segment of blocks
 * can be recomputed from its first input.
 *
 * Of 16-bit parameters a pass may keep no copy between ops: with N W(u) and P P(u), or P | RELEASE, instead of N P(u) it
 * first rounds W(u) to P(u), which AutoHete does for what it steps on the device.
 *
 * label.n_units > 1: the op does its units in order (BACKWARD: in reverse), with all of their effects; one SCRATCH
 * serves all. A tensor between two of its units that nobody else needs is P | RELEASE. OPTIMIZER_STEP, UNDO, RESTORE,
 * VALIDATE and ACCUMULATE go by the tensors, so they may also hold several shards of a unit: every M row is stepped
 * with the W, P, V and G rows of its unit that cover its elements.
 *
 * Steps count by themselves: a row of M is at step t + 1 when it has been stepped t times, net of undone steps. So an
 * iteration that was skipped, because its steps ran `when: ok` only or were undone, does not count. The learning rate
 * goes by the iteration.
 *
 * Control
 * -------
 *
 * Gradients carry the loss scale. A partial says whether every gradient of its rows is finite, and the square of every
 * unscaled one (common/kernels/grad_check.h), and gives the sum of squares. The verdict, one a schedule, comes after
 * all partials, which cover each element of the model once. Gradients are bad if a partial says so; else the norm gives
 * the clip factor. Either way the next iteration's loss scale follows (common/kernels/scaler.h).
 *
 *     control                 what the executor is told              the steps that wait for the verdict
 *     steps `when: ok`        bad: gradients are                     scaled by factor / loss scale
 *     steps, then UNDO        bad: gradients are, or factor < 1      scaled by factor / loss scale; when gradients are
 *     and steps `when: bad`                                          bad they do nothing, but for P(u), made from W(u)
 *
 * Steps that do not wait are scaled by 1 / loss scale. They have to be undone when the factor is less than 1; so a
 * schedule with UNDO and with clipping needs steps `when: bad`.
 *
 * Squares are summed in double, each row in a fixed number of parts, rows in the order of the model's elements. The
 * norm does not depend on places, lanes or cores; its last bits may depend on how units are cut into rows.
 *
 * What LOG(u) has beyond ht_undo_log_bytes(elements, 0) is room for exceptions (common/kernels/undo.h), of which bad
 * gradients make many. When they do not fit, a step with bad gradients (which VALIDATE will find, too) is left out, and
 * its UNDO has nothing to do; without an UNDO the row's next step is HT_FAILED. A step with good gradients that does
 * not fit is left out, too, and the verdict is bad, where the verdict waits for all steps and all are undone when it is:
 * steps `when: bad` make them again or, in a schedule without any, UNDO itself does, with the same gradients and without
 * a log. Where the verdict does not wait it is HT_FAILED at once, with the bytes that it needs. LOG(u) may stay resident
 * (U), or be made by the step (P) and released once it is of no use.
 *
 * Micro-batch gradients are accumulated as ((G(u,0) + G(u,1)) + G(u,2)) ..., in FP32 and rounded to the type of G(u)
 * each time: a system whose graph keeps this order gets the same bits as any other.
 *
 * Everything is checked when the executor opens the backend: a missing effect, a wrong size, an op that this backend
 * has no kernel for, or a verdict that comes too early is HT_FAILED with the op's title, before anything runs.
 */
#ifndef HT_BACKEND_CPU_H
#define HT_BACKEND_CPU_H

#include "common/exec/run.h"
#include "common/kernels/adamw.h"
#include "common/kernels/scaler.h"
#include "common/model/model.h"

/* Which CPUs are the device's and which the host's. */
enum { HT_CPU_MAX_CORES = 256 };
struct ht_cpu_split {
    int n_device, n_host; /* >= 1 each */
    int device[HT_CPU_MAX_CORES], host[HT_CPU_MAX_CORES];
    bool shared; /* there is one core for both; then nothing is pinned */
};

/* Splits the CPUs that this process may use: device_cores for the device (0: three quarters, at least one, and one is
   left for the host), the others for the host. A single CPU is shared. HT_BAD_INPUT when there are not that many. */
enum ht_status ht_cpu_split_cores(int device_cores, struct ht_error *err, struct ht_cpu_split *out);

/* What became of an iteration. */
enum ht_cpu_outcome {
    HT_CPU_OK,      /* stepped; clipped, if the steps waited for the verdict */
    HT_CPU_SKIPPED, /* its gradients were bad: nothing was stepped, or what was is undone */
    HT_CPU_REDONE,  /* stepped, undone, stepped again with the clip factor */
};
struct ht_cpu_iteration {
    double loss_scale;  /* of this iteration */
    double norm;        /* of the unscaled gradients; infinite or NaN if they are */
    double clip_factor; /* at most 1; 1 when skipped */
    enum ht_cpu_outcome outcome;
};

/* A fault for tests and drills: right after the backward op of (unit, micro_batch) one element of the gradient that it
   wrote is overwritten. Iterations count as ht_cpu_set_first_iteration says. */
enum ht_cpu_fault_kind {
    HT_CPU_FAULT_INFINITE,
    HT_CPU_FAULT_NAN,
    HT_CPU_FAULT_HUGE, /* 1e30: finite, its square is not; F16: its largest number, whose square is finite */
};
struct ht_cpu_fault {
    int32_t iteration, unit, micro_batch;
    int64_t element; /* taken modulo the elements of the gradient */
    enum ht_cpu_fault_kind kind;
};

struct ht_comm; /* common/comm/comm.h */

/* The same for one of `ranks` processes on this machine: each device has device_cores of its own (0: an equal share of
   all but one), the host all that are left over. Where there are not enough for that, nothing is pinned. */
enum ht_status ht_cpu_split_for_rank(int device_cores, int rank, int ranks, struct ht_error *err,
                                     struct ht_cpu_split *out);

struct ht_cpu_options {
    struct ht_model model;        /* no dropout */
    struct ht_numerics numerics;  /* grad as param; accumulate FP32 or as param */
    int64_t tokens_per_iteration; /* of the whole batch, all micro-batches: gradients are of the mean loss over it */
    uint64_t seed;                /* of the initial parameters */
    struct ht_adamw adamw;
    /* Optional: the learning rate of an iteration (from 0) instead of adamw.lr. */
    double (*learning_rate)(void *data_ctx, int32_t iteration);
    /* (B,T) token ids and targets of a micro-batch, valid until the iteration has ended. A pure function of its
       arguments, called from compute lanes, several times for the same micro-batch. */
    enum ht_status (*data)(void *data_ctx, int32_t iteration, int32_t micro_batch, const int32_t **tokens,
                           const int32_t **targets, struct ht_error *err);
    void *data_ctx;
    /* [iterations * n_micro_batches], the caller's: the head's forward writes the sum over the micro-batch's tokens of
       -log p(target) to losses[iteration * n_micro_batches + j]. May be NULL. */
    double *losses;
    /* Loss scale and clipping. A dynamic scale, and clipping, need a schedule with a verdict. */
    struct ht_control_options control;
    /* [iterations], the caller's, indexed as losses: what the verdict of each was. May be NULL; only written when the
       schedule has a verdict. */
    struct ht_cpu_iteration *outcomes;
    const struct ht_cpu_fault *faults; /* [n_faults], the caller's */
    int32_t n_faults;
    struct ht_comm *comm;             /* of the schedule's ranks, when each is a process; NULL: there is one */
    const struct ht_cpu_split *split; /* copied. NULL: one thread each for device and host, not pinned */
};

struct ht_cpu;

/* HT_INFEASIBLE for a model or numerics without kernels here; HT_FAILED when threads cannot be made. */
enum ht_status ht_cpu_create(const struct ht_cpu_options *options, struct ht_error *err, struct ht_cpu **out);
void ht_cpu_destroy(struct ht_cpu *cpu); /* accepts NULL */

/* What the next run's iteration 0 is to data, learning_rate, losses and the optimizer's step count: a training may be
   cut into several runs, or resumed. 0 at first. */
void ht_cpu_set_first_iteration(struct ht_cpu *cpu, int32_t iteration);

/* What a checkpoint keeps of the control: between runs, or when a run has ended all iterations that it began. */
struct ht_scaler ht_cpu_control_get(const struct ht_cpu *cpu);
void ht_cpu_control_set(struct ht_cpu *cpu, struct ht_scaler scaler);

/* How often elements [begin, end) of a unit have been stepped, net of undone steps: what AdamW's bias corrections go
   by. Between runs, as above. Where nothing has been run or set it is the first iteration's number; -1: not the same
   for all of these elements. */
int64_t ht_cpu_row_steps(const struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end);
void ht_cpu_set_row_steps(struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end, int64_t steps);

/* The table for ht_run_options.backend; backend_ctx is the struct ht_cpu. One run at a time. */
extern const struct ht_backend_ops ht_cpu_backend;

/* Fills a resident's buffer with initial values. Parameters by ht_unit_init, equal in every place; optimizer state 0;
   anything else NaN, so that what is read before it is written shows. */
enum ht_status ht_cpu_init(const struct ht_cpu *cpu, const struct ht_tensor *t, struct ht_buffer buffer,
                           struct ht_error *err);

#endif
