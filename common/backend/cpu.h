/*
 * The CPU backend: runs ops of a schedule as kernels on this machine's cores.
 *
 * The "device" is an arena and a set of cores of its own. Host memory is another arena, host work runs on the other
 * cores, and a copy between the two is a real one. Copy and disk lanes run on the host's cores.
 *
 * Contract: an op's effects
 * -------------------------
 *
 * A backend finds tensors by class and label. u is a unit, j a micro-batch; "-" is label.micro_batch -1. All have
 * label.n_units 1. Sizes are those of common/model/model.h for numerics.param.
 *
 *     name      class        label   bytes                                   contents
 *     X(u,j)    CHECKPOINT   u, j    ht_unit_input_bytes                     input of unit u, 1 <= u <= L+1
 *     A(u,j)    ACTIVATION   u, j    ht_unit_activation_bytes; of a part by  kept by unit u, 1 <= u <= L+1. A block's
 *                                    some sub-ops                            may be several tensors: each has what
 *                                    ht_sub_ops_activation_bytes             the sub-ops of its label keep, laid out
 *                                                                            by ht_block_activations
 *     dX(u,j)   ACT_GRAD     u, j    as X(u,j)                               gradient of X(u,j)
 *     LOGITS    LOGITS       L+1, j  ht_logits_bytes                         forward leaves their gradient in them
 *     P(u)      PARAM        u, -    ht_unit_params, or a shard, of          parameters that passes compute with
 *                                    numerics.param
 *     W(u)      MASTER       u, -    as P(u), FP32; only where param is      parameters that the optimizer steps. In
 *                                    16-bit                                  FP32 numerics P(u) stands for W(u) below
 *     M, V(u)   MOMENTUM,    u, -    as W(u), or a shard                     optimizer state
 *               VARIANCE
 *     G(u)      GRAD         u, -    as P(u), of numerics.accumulate if      gradient that the optimizer reads
 *                                    there are several micro-batches of a
 *                                    data-parallel rank, else of
 *                                    numerics.grad
 *     G(u,j)    GRAD         u, j    as P(u), of numerics.grad               fresh gradient of one micro-batch
 *     LOG(u)    STAGING      u, -    ht_undo_log_bytes, or more              undo log, of exactly the elements of M(u)
 *                                                                            or of one shard of it
 *     SCRATCH   WORKSPACE    any     at least ht_unit_workspace_bytes        scratch of one op (forward and recompute:
 *                                                                            backward = false); needed only where that
 *                                                                            is not 0
 *
 * A shard covers elements [shard_begin, shard_end) of the unit's flat buffer. A gradient that a backward op writes is
 * G(u,j) if the op has that among its effects, else G(u); so the first micro-batch may write the accumulator itself.
 *
 * An op works in one tier, and all of its tensors are there: COMPUTE lanes on the device, HOST lanes in host memory.
 * The op's work has the shape (B, T). N: NEED, P: PRODUCE, U: UPDATE; RELEASE may join any of them.
 *
 *     op                     reads                              writes
 *     FORWARD 0              N P(0)                             P X(1,j)
 *     FORWARD 1..L           N P(u), X(u,j)                     P X(u+1,j), A(u,j), SCRATCH
 *     FORWARD L+1            N P(L+1), P(0) if tied, X(L+1,j)   P A(L+1,j), LOGITS(L+1,j), SCRATCH; records the loss.
 *                                                               LOGITS P | RELEASE: computes the loss alone
 *     RECOMPUTE 1..L         N P(u); those that                 P or U A(u,j) of the label's sub_ops, which it
 *                            ht_sub_ops_read names: X(u,j),     recomputes; SCRATCH if attention is among them
 *                            A(u,j) of others
 *     RECOMPUTE L+1          as FORWARD L+1                     as FORWARD L+1, without the loss
 *     BACKWARD L+1           N P(L+1), P(0) if tied, X(L+1,j),  P dX(L+1,j), G(L+1), SCRATCH; if tied G(0),
 *                            A(L+1,j), LOGITS(L+1,j)            which is 0 outside the token table
 *     BACKWARD 1..L          N P(u), X(u,j), A(u,j), dX(u+1,j)  P dX(u,j), G(u), SCRATCH
 *     BACKWARD 0             N dX(1,j)                          tied: U G(0); P G(0) when not, or when
 *                                                               the head writes another tensor; SCRATCH
 *     ACCUMULATE u           N G(u,j)                           U G(u): G(u) += G(u,j)
 *     ACCUMULATE             nothing: RELEASE is its only       nothing: bookkeeping, after a branch
 *                            effect, on any tensors
 *     OPTIMIZER_STEP u       N G(u)                             U W(u), M(u), V(u): AdamW; P or U P(u) if it is among
 *                                                               the effects; a step to be undone: P or U LOG(u)
 *     UNDO u                 N G(u), LOG(u)                     U W(u), M(u), V(u): as before the step, bit for bit;
 *                                                               P or U P(u) if it is among the effects
 *     RESTORE u              N W(u)                             P or U P(u): rounded from the master again
 *     VALIDATE u             N G(u)                             nothing: a partial for the final check
 *     VALIDATE (unit -1)     nothing, or gradients as above     nothing: the final check
 *     COPY                   N a tensor in one tier             P or U it in another tier: copies it
 *     ALL_GATHER u           N a shard of P(u) by each rank;    P or U C(u), all of P(u), on each
 *                            or N W(u) and P P(u), as below
 *     REDUCE_SCATTER u       N a whole G(u,j) by each rank,     P or U a shard of G(u), or of some G(u,j), by each
 *                            each its own j                     rank: of the sum over the ranks
 *     ALL_REDUCE                                                U any tensors, equal on each rank: their sums
 *     SEND                   N any tensors                      nothing
 *     RECEIVE                nothing                            P or U tensors of the sent sizes, in that order
 *
 * C(u) is of class COMM with the label u, -. A pass that reads P(u) takes C(u) instead when it has no P(u).
 *
 * An op of several ranks is a group on COLLECTIVE or P2P lanes, with one member for each rank. Ranks are ascending; a
 * SEND and its RECEIVE are a group of two, in any order of ranks. Sums are from the left, ranks ascending
 * (common/comm/comm.h). The shards of a group lie one after the other in the order of ranks, of any sizes, also 0; a
 * shard may be padded. Sums of 16-bit gradients over ranks are rounded once, to that type (numerics.reduce, which
 * equals numerics.grad), also when they are then kept in FP32.
 *
 * Tensor parallelism: FORWARD, RECOMPUTE or BACKWARD whose work has n parts is a group of n on compute lanes, ranks
 * ascending. Member q computes with part q of n of the model (common/model/model.h): P, W, M, V, G, A, LOGITS and
 * SCRATCH have its sizes, and shards count within it; X and dX are whole and equal on all. The sums that the members
 * exchange during the pass (common/kernels/unit.h) are no effects; they use the group's number as their tag. The first
 * member records the loss.
 *
 * A written tensor may be PRODUCEd or UPDATEd (a buffer that is kept and overwritten). Every write is in full, with two
 * exceptions: BACKWARD 0 into a tied G(0), as above, and a recomputation that UPDATEs a tensor of more sub-ops than it
 * runs. FORWARD drops a tensor of A(u,j) by P | RELEASE. COPY runs on any lane.
 *
 * When A(u,j) is several tensors, FORWARD writes and BACKWARD reads all of them; each sub-op is in exactly one. One may
 * be kept, another copied to the host and back, a third recomputed, by one op or by several, each after those that it
 * reads.
 *
 * RECOMPUTE u also writes X(u+1,j) when the op has that effect, and fc2 among its sub-ops; so a segment of blocks can
 * be recomputed from its first input.
 *
 * Cast on use: a pass need not keep a copy of 16-bit parameters between ops. With N W(u) and P P(u), or P | RELEASE,
 * instead of N P(u) it first rounds W(u) to P(u). AutoHete does this for units that it steps on the device.
 *
 * label.n_units > 1: the op runs its units in order (BACKWARD: in reverse), with all of their effects; one SCRATCH
 * serves all. A tensor between two of its units that no other op needs is P | RELEASE. OPTIMIZER_STEP, UNDO, RESTORE,
 * VALIDATE and ACCUMULATE find their work by the tensors, so they may also have several shards of a unit: every M is
 * stepped with the W, P, V and G of its unit that cover its elements.
 *
 * The backend counts steps itself: a tensor M is at step t + 1 when it has been stepped t times, net of undone steps.
 * So a skipped iteration, whose steps ran only `when: ok` or were undone, does not count. The learning rate depends on
 * the iteration.
 *
 * Control
 * -------
 *
 * Gradients carry the loss scale. A partial says whether every gradient of its tensors is finite, and the square of
 * every unscaled one (common/kernels/grad_check.h), and has the sum of squares. The final check, one in each schedule,
 * comes after all partials, which cover each element of the model once. If a partial found an overflow, the gradients
 * are bad; else the norm gives the clip factor. Either way the final check sets the next iteration's loss scale
 * (common/kernels/scaler.h).
 *
 *     control                 outcome for the executor               steps that wait for the final check
 *     steps `when: ok`        bad: on overflow                       scaled by factor / loss scale
 *     steps, then UNDO        bad: on overflow, or factor < 1        scaled by factor / loss scale; on overflow they
 *     and steps `when: bad`                                          do nothing but round P(u) from W(u)
 *
 * Steps that do not wait are scaled by 1 / loss scale. They have to be undone when the factor is less than 1; so a
 * schedule with UNDO and with clipping needs steps `when: bad`.
 *
 * Squares are summed in double, each tensor in a fixed number of parts, tensors in the order of the model's elements.
 * The norm does not depend on memory, lanes or cores; its last bits may depend on how units are cut into tensors.
 *
 * The bytes of LOG(u) beyond ht_undo_log_bytes(elements, 0) are room for exceptions (common/kernels/undo.h), of which
 * overflowed gradients make many. When the exceptions of a step do not fit:
 *
 *   - With overflow (which VALIDATE will find, too) the step is left out, and its UNDO has nothing to do. Without an
 *     UNDO the next step of this tensor is HT_FAILED.
 *   - Without overflow the step is left out, too, if the final check waits for all steps and all are undone in the bad
 *     branch. The outcome is then bad: steps `when: bad` make them again, or, in a schedule without any, UNDO itself
 *     does, with the same gradients and without a log.
 *   - Without overflow, and if the final check does not wait, it is HT_FAILED at once, with the bytes that it needs.
 *
 * LOG(u) may stay resident (U), or be produced by the step (P) and released after its last use.
 *
 * Micro-batch gradients are accumulated as ((G(u,0) + G(u,1)) + G(u,2)) ..., in FP32 and rounded to the type of G(u)
 * each time: a system whose graph keeps this order gets the same bits as any other.
 *
 * Opening the backend checks everything: a missing effect, a wrong size, an op without a kernel in this backend, or a
 * final check that comes too early is HT_FAILED with the op's label, before anything runs.
 */
#ifndef HT_BACKEND_CPU_H
#define HT_BACKEND_CPU_H

#include "common/exec/run.h"
#include "common/kernels/adamw.h"
#include "common/kernels/scaler.h"
#include "common/model/model.h"

/* The device's and the host's CPUs. */
enum { HT_CPU_MAX_CORES = 256 };
struct ht_cpu_split {
    int n_device, n_host; /* >= 1 each */
    int device[HT_CPU_MAX_CORES], host[HT_CPU_MAX_CORES];
    bool shared; /* one core for both; then no thread is pinned */
};

/* Splits the CPUs that this process may use: device_cores for the device (0: three quarters, at least one, leaving one
   for the host), the others for the host. A single CPU is shared. Returns HT_BAD_INPUT when the process has not that
   many. */
enum ht_status ht_cpu_split_cores(int device_cores, struct ht_error *err, struct ht_cpu_split *out);

/* The outcome of an iteration. */
enum ht_cpu_outcome {
    HT_CPU_OK,      /* stepped; clipped, if the steps waited for the final check */
    HT_CPU_SKIPPED, /* overflow: nothing was stepped, or all steps were undone */
    HT_CPU_REDONE,  /* stepped, undone, stepped again with the clip factor */
};
struct ht_cpu_iteration {
    double loss_scale;  /* of this iteration */
    double norm;        /* norm of the unscaled gradients; infinite or NaN if they are */
    double clip_factor; /* at most 1; 1 when skipped */
    enum ht_cpu_outcome outcome;
};

/* A fault for tests and drills: after the backward op of (unit, micro_batch), overwrites one element of the gradient
   that it wrote. Iterations count from ht_cpu_set_first_iteration. */
enum ht_cpu_fault_kind {
    HT_CPU_FAULT_INFINITE,
    HT_CPU_FAULT_NAN,
    HT_CPU_FAULT_HUGE, /* 1e30: finite, but its square is not; F16: its largest number, whose square is finite */
};
struct ht_cpu_fault {
    int32_t iteration, unit, micro_batch;
    int64_t element; /* taken modulo the elements of the gradient */
    enum ht_cpu_fault_kind kind;
};

struct ht_comm; /* common/comm/comm.h */

/* Splits the CPUs for one of `ranks` processes on this machine: each device has device_cores of its own (0: an equal
   share of all but one), the host has the rest. With too few CPUs no thread is pinned. */
enum ht_status ht_cpu_split_for_rank(int device_cores, int rank, int ranks, struct ht_error *err,
                                     struct ht_cpu_split *out);

struct ht_cpu_options {
    struct ht_model model;        /* no dropout */
    struct ht_numerics numerics;  /* grad as param; accumulate FP32 or as param */
    int64_t tokens_per_iteration; /* of the whole batch, all micro-batches; gradients are of the mean loss over them */
    uint64_t seed;                /* of the initial parameters */
    struct ht_adamw adamw;
    /* Optional: returns the learning rate of an iteration (from 0), instead of adamw.lr. */
    double (*learning_rate)(void *data_ctx, int32_t iteration);
    /* Returns (B,T) token ids and targets of a micro-batch, valid until the iteration has ended. A pure function of its
       arguments, called from compute lanes, several times for the same micro-batch. */
    enum ht_status (*data)(void *data_ctx, int32_t iteration, int32_t micro_batch, const int32_t **tokens,
                           const int32_t **targets, struct ht_error *err);
    void *data_ctx;
    /* [iterations * n_micro_batches], the caller's; may be NULL. The head's forward op writes the sum over the
       micro-batch's tokens of -log p(target) to losses[iteration * n_micro_batches + j]. */
    double *losses;
    /* Loss scale and clipping. A dynamic scale, and clipping, need a schedule with a final check. */
    struct ht_control_options control;
    /* [iterations], the caller's, indexed as losses: each iteration's outcome. May be NULL; only written when the
       schedule has a final check. */
    struct ht_cpu_iteration *outcomes;
    const struct ht_cpu_fault *faults; /* [n_faults], the caller's */
    int32_t n_faults;
    struct ht_comm *comm;             /* of the schedule's ranks, when each is a process; NULL: one process */
    const struct ht_cpu_split *split; /* copied. NULL: one thread each for device and host, not pinned */
};

struct ht_cpu;

/* Creates the backend. Returns HT_INFEASIBLE for a model or numerics without kernels here; HT_FAILED when threads
   cannot be created. */
enum ht_status ht_cpu_create(const struct ht_cpu_options *options, struct ht_error *err, struct ht_cpu **out);
void ht_cpu_destroy(struct ht_cpu *cpu); /* accepts NULL */

/* Sets the iteration that data, learning_rate, losses and the optimizer's step count get for the next run's iteration
   0, for a training that is cut into several runs, or resumed. Initially 0. */
void ht_cpu_set_first_iteration(struct ht_cpu *cpu, int32_t iteration);

/* Get and set the state of the loss scaler, which a checkpoint keeps. Call them between runs, when a run has ended all
   iterations that it began. */
struct ht_scaler ht_cpu_control_get(const struct ht_cpu *cpu);
void ht_cpu_control_set(struct ht_cpu *cpu, struct ht_scaler scaler);

/* Returns how often elements [begin, end) of a unit have been stepped, net of undone steps, which AdamW's bias
   corrections use; -1: not the same for all of them. Before any run or set it is the first iteration's number. Call it
   between runs, as above. */
int64_t ht_cpu_row_steps(const struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end);
void ht_cpu_set_row_steps(struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end, int64_t steps);

/* Table for ht_run_options.backend; backend_ctx is the struct ht_cpu. One run at a time. */
extern const struct ht_backend_ops ht_cpu_backend;

/* Fills a resident's buffer with initial values: parameters by ht_unit_init, equal in every residency; optimizer state
   0; anything else NaN, so that a read before the first write shows. */
enum ht_status ht_cpu_init(const struct ht_cpu *cpu, const struct ht_tensor *t, struct ht_buffer buffer,
                           struct ht_error *err);

#endif
