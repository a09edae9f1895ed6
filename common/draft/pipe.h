/*
 * Builds the graph of a training iteration of a pipeline: stages on several ranks, messages between them, and, with
 * offloading, parameters and optimizer in host memory. A struct ht_pipe_style describes a system.
 * common/schedule/pipeline.h has the orders.
 *
 * Units to stages. Backward stage q has an equal share of the blocks (sizes differ by one if the stages do not divide
 * them), or as many as the plan says, also half ones: a stage may end between a block's attention and its MLP, and what
 * the projection keeps is then its message (common/draft/layout.h). Or it ends behind any sub-op of a block: then it sends what
 * that makes as well, a message of its own (common/model/halves.h). A block that one pipeline cuts is passed in halves by
 * all; it is cut once. The first stage also has the embedding, the last one the head. Forward stage i is
 * backward stages d i .. d i + d - 1. The head's forward runs where and when its backward does, so that the logits of
 * only one micro-batch are in memory at a time. Its input X(L+1,j) is a message like others.
 *
 * A pass is a few ops on the rank's compute lane, named after it ("f4.2": forward stage 4, micro-batch 2):
 *
 *     f(i,j)   F u for each of its units                                     one unit's activations at a time
 *     b(q,j)   [R blocks] [F head, B head] B u for each block [B embedding]  all activations of the stage
 *
 * Recomputation (R): of a stage's blocks at once, from its input, as GPipe does; or of one block, or segment of blocks, at
 * a time, each right before its backward, from the inputs that the forward passes leave (Narayanan et al. 2021, Sec. 3.5;
 * Megatron-LM's --recompute-method uniform, with block: of the first blocks of a stage). A micro-batch has between its
 * passes:
 *
 *     whole stage       X of its first block          at most all activations of the stage
 *     segments of n     X of every n-th block         at most those of n blocks and the head
 *     attention alone   X and A of each block, less the attention's (Korthikanti et al., "Reducing Activation
 *                       Recomputation in Large Transformer Models", MLSys 2023, Sec. 5)
 *
 * Tensors, their classes, labels and sizes are those of common/draft/effects.md. Each micro-batch makes a fresh
 * gradient, which is added to the sum on the device at once, unit by unit. Sums go to the host after the last
 * micro-batch.
 *
 * Lanes of a rank (p2p lanes only if there is more than one rank):
 *
 *     compute                                passes
 *     h2d, d2h                               parameters of the next stage; sums of the previous stage
 *     act out, act in, grad out, grad in     X and dX at stage boundaries; with blocking_sends the sender's next pass
 *                                            waits for them. Where messages go through host memory, or with `posts`, they
 *                                            wait for the receiver's pass under way, too: it posts its receives between passes
 *     get, serve R                           parameters from another node's memory: a one-sided read by rank R, i.e. a
 *                                            copy through both NICs and R's port; the owner does nothing
 *     cpu                                    optimizer of all of the rank's stages
 *     slices                                 all-gathers of what came in slices
 *     verdict, agree                         outcome of the iteration: the rank's final check, and the agreement of all
 *                                            ranks (common/draft/control.h)
 *
 * Several pipelines, of the same or of different depth, share the batch (common/draft/layout.h). Each is a draft. After
 * all passes a unit's gradients are all-reduced over the ranks that hold it, from the last unit to the first. If the
 * embedding and a tied head are on different ranks, both ranks hold the table: a whole unit 0 with its states. Its
 * gradients are added up in the same way, even with one pipeline (Megatron-LM's embedding group: Shoeybi et al.,
 * "Megatron-LM", 2019):
 *
 *     reduce   AR(L+1) AR(L) ..               one order for all pipelines; each starts when its sum is there
 *
 * So a tied table's gradient is (h0 + h1 + ..) + (e0 + e1 + ..), with the head's parts h and the embedding's parts e of
 * the micro-batches. On one rank it is (h0 + e0) + (h1 + e1) + .., whose last bits may be others.
 *
 * Or they are reduced after all passes, several units in one all-reduce (a bucket): units that the same ranks hold.
 *
 * ZeRO (Rajbhandari et al., SC 2020, Sec. 5) over the ranks that step a unit, one of each pipeline; P, W, M, V and G are
 * shards. The iteration begins with all-gathers of whole parameters, which stay until their last pass:
 *
 *     ZeRO-1   AG0 AG1 ..  | passes; whole gradients are summed        | RS(L+1) RS(L) .. | U
 *     ZeRO-2   AG0 AG1 ..  | passes; RS(u,j) after B(u,j), shards are summed              | U
 *
 * With 16-bit parameters P is no shard that stays: each gather casts it from W, as in the programs, whose shards are views of
 * the whole parameters or of W.
 *
 * Megatron-LM's distributed optimizer gathers parameters after the steps or, overlapped, in the next forward pass: here
 * always in the latter's place. ZeRO-1 may also all-reduce the sums; then G is whole. ZeRO-2 reduces in the order of
 * passes, which is one order only if all pipelines are alike.
 *
 * Optimizer states of some blocks of a stage may be in host memory, though the device steps them, as Mist does (Zhu et al., "Mist:
 * Efficient Distributed Training of Large Language Models via Memory-Parallelism Co-Optimization", EuroSys 2025). When
 * the passes of the rank have ended, S(u) brings W, M and V of one such block, and they go back (s(u)) before those of the next one come:
 *
 *     h2d      S2          S1                         rank with blocks 1 to 3, of which 1 and 2 are in host memory
 *     compute  U3    U2          U1
 *     d2h               s2          s1
 *
 * With ZeRO and 16-bit parameters W stays on the device until the next iteration's all-gather has read it, and goes to host
 * memory then (W(u)): so every state moves once each way an iteration, and none is on the device during the passes.
 *
 * Tensor parallelism: a stage may be several ranks, one per part. A draft is then one part of all stages of a pipeline.
 * Part q sends its X and dX, which are the same for all parts, to part q of the next stage. Its gradients are
 * all-reduced with those of part q of the other pipelines. Stages may be of different widths (common/draft/layout.h): part q of
 * the next stage gets X from part q mod n of this stage's n, and so backward. X and dX are whole on every part, so a wider
 * stage is sent its input several times, and parts that a narrower one does not need free theirs. What parts have not alike
 * crosses between stages of one width only. A tied table is on two ranks
 * only if the first and the last stage are equally wide.
 *
 * Or X and dX are sent in slices (Narayanan et al. 2021, Sec. 4.1: "scatter/gather"): of n parts each sends one of n, over its
 * own link, and the m parts of the receiving stage gather the whole, each from one of m. Of other widths a part is sent those
 * of n that overlap with its own of m (as the runtime of Aceso does: Liu et al., EuroSys 2024):
 *
 *     part 0   [0, 1/2)  --> [0, 1/2)    part 0   \                 part 0   [0, 1/2)  --> [0, 1/4), [1/4, 1/2)   parts 0, 1
 *     part 1   [1/2, 1)  --> [1/2, 1)    part 1   / all-gather      part 1   [1/2, 1)  --> [1/2, 3/4), [3/4, 1)   parts 2, 3
 *
 * A program gathers between two passes, and nothing computes meanwhile: the all-gather follows the rank's pass before the one
 * that reads the tensor. With sequence parallelism X and dX are slices by themselves.
 *
 * Stages may have replicas of their own (common/draft/layout.h), which share each micro-batch that enters the pipeline. A draft is then one
 * member of all stages: a part, of one replica. The micro-batches of the graph are the shares of the stage that has most replicas. A
 * pass of another stage is of several of them, begins when all have come, and sends when all are made. Its ops go unit by unit, so that as much is in memory as if they
 * were one. A message is one share, to the replica of the next stage that passes it. After all passes gradients are
 * all-reduced over the replicas of the stage.
 *
 *     stage 0     F1.0 F1.1 F2.0 F2.1           B2.0 B2.1 B1.0 B1.1        AR: none
 *     stage 1, replica 0           F3.0 | B3.0                             AR3
 *     stage 1, replica 1           F3.1 | B3.1                             AR3
 *
 * Parameters are in host memory of the node whose rank runs the stage's backward. Every rank that uses them fetches
 * them from there. A rank has two buffers. A visit is a run of passes over the same stage: its parameters are fetched
 * once the visit before the previous one has ended, and freed when it ends.
 *
 *     h2d      P0 P4         P15 ..
 *     compute  f0.0 f0.1 ..  f4.0 f4.1 ..  b15.0 ..
 *
 * So the safe sequence holds the parameters of two stages, the activations and gradients of one, and the checkpoints.
 * While a stage's sum is copied out, the next stage makes its gradients ("prefetching the next stage, performing
 * forward/backward computations of the current stage, and offloading the gradients of the previous stage are thus
 * processed in parallel": SysX, Sec. 4). Both together are the devices' limit, within which lanes run ahead.
 *
 * Ids follow the ideal schedule of ht_pipe_layout, in which messages take no time. Events of one instant are ordered:
 * ends before starts, then by stage. This order also keeps messages from deadlocking: at a timestep all ranks list
 * their sends and receives in one global order (SysX, Sec. 4, "Pipeline schedule").
 */
#ifndef HT_DRAFT_PIPE_H
#define HT_DRAFT_PIPE_H

#include "common/draft/control.h"
#include "common/draft/layout.h"
#include "common/plan/system.h"
#include "common/schedule/pipeline.h"

struct ht_pipe; /* common/draft/pipe_internal.h */

/* Additions of a method to a pipeline; each may be NULL. A hook appends ops and lanes with the functions of
   pipe_internal.h. */
struct ht_pipe_hooks {
    /* Adds a rank's lanes after those of messages; may set a stage's lane for its steps. */
    void (*add_lanes)(struct ht_pipe *g, int32_t rank);
    void (*begin)(struct ht_pipe *g, const struct ht_pipe_pass *x); /* called before the first op of a pass */
    void (*end)(struct ht_pipe *g, const struct ht_pipe_pass *x);   /* called after its boundary has been sent */
};

/* Values of the plan variable recompute: what blocks drop. */
enum { HT_RECOMPUTES_NOTHING, HT_RECOMPUTES_BLOCKS, HT_RECOMPUTES_ATTENTION };

struct ht_pipe_style {
    enum ht_pipe_order order;
    int32_t v, d;
    /* Layout of several pipelines, or of stages in several parts; these keep everything on the devices. NULL: one
       pipeline of all ranks. */
    const struct ht_layout *layout;
    /* Blocks of each backward stage: [n_blocks] of one pipeline after another, or, if all are equally deep, of each of
       them. NULL: as even as possible. */
    const int64_t *blocks;
    int32_t n_blocks;
    bool halves;  /* blocks counts halves of blocks, attention or MLP. Only with a layout, d = 1, and on the devices */
    bool sub_ops; /* the same of sub-ops, HT_N_SUB_OPS a block */
    int32_t (*backward_rank)(const struct ht_pipe_shape *p, int32_t q); /* rank of a backward stage, as in the shape */
    /* Parameters and optimizer are in host memory, and a stage is stepped there when its sum arrives. Else they are on
       the device, and all stages are stepped after all passes. */
    bool offload;
    /* States of several pipelines that keep them on the devices: 0: each has all; 1: ZeRO-1; 2: ZeRO-2. */
    int32_t zero;
    bool reduce_whole; /* ZeRO-1 all-reduces gradients; else it reduce-scatters them */
    /* Gradients are reduced when a rank's passes have ended, all-reduced in buckets of at most so many elements; 0: each
       unit's as soon as its sum is there. */
    int64_t bucket;
    /* [replicas]: 1/n of the gradients that tensor parallelism cuts along the inputs of matrices are rearranged on each rank of
       a pipeline, before their all-reduce and after it, as its degree is another than that of the others (AutoHet, Sec. II-B);
       0: none. NULL: none of any pipeline. For simulation. */
    const int64_t *transposed;
    bool step_units; /* a step is of one unit; else of a stage */
    /* [n_host_blocks] blocks of each backward stage, the first ones, whose optimizer states are in host memory (see above).
       NULL: none. Not with offload, halves or sub_ops. */
    const int64_t *host_blocks;
    int32_t n_host_blocks;
    enum ht_control_mode own; /* the method's own control, used if the scenario asks for none */
    enum ht_undo_kind undo;   /* of its own rollback */
    /* Blocks keep nothing but inputs, and are recomputed. Required, of whole stages at once, if a stage's backward runs on
       another rank than its forward. */
    bool recompute;
    int32_t segment;     /* blocks recomputed at a time, from the input of the first; 0: those of a stage */
    int32_t recomputed;  /* blocks of a stage that are, the first ones; the others keep everything; 0: all */
    bool attention_only; /* a block drops its attention alone, and keeps the rest; segment is 1 */
    /* Sub-ops that each block recomputes, [layers], as bits 1 << HT_SUB_..; segment is 1, and recomputed and attention_only do not count. NULL:
       they do. */
    const int64_t *again;
    /* [n_kept] KiB that a program keeps of a micro-batch, for each block or half of one, between its passes: where it recomputes
       operators that are not whole sub-ops. Not of training, whose tensors are real. NULL: what the sub-ops that stay keep. */
    const int64_t *kept;
    int32_t n_kept;
    bool early_recompute; /* recomputation may begin before the gradient arrives */
    /* The last forward pass runs the head, for its loss, and the backward pass runs it again. Else the head's forward
       runs in its backward pass. Only with recomputation. */
    bool forward_head;
    bool recompute_output; /* the last backward stage recomputes X(L+1,j), too; else the last forward stage sends it */
    bool blocking_sends;   /* a rank's next pass waits for its sends; see the lanes above for what these wait for */
    bool posts;            /* with blocking_sends: messages wait for the receiver's pass under way over any link */
    bool free_messages;    /* messages between ranks cost nothing */
    bool slices;           /* a boundary tensor is sent in slices; not if the parts cut rows */
    /* [n_crossing] tensors of the size of X that a program sends over each boundary, and back, where its stages end between any
       two operators. The graph sends what it sends without, together at the cost of so many. NULL: at its own. */
    const int64_t *crossing;
    int32_t n_crossing;
    struct ht_pipe_hooks hooks;
};

/* Cuts the layout as the style says: blocks in the middle of which a stage ends, into halves; with ZeRO a unit's states,
   in even shards, over the ranks that step it in the pipelines. To be called before the functions below. Returns
   HT_BAD_INPUT if the blocks do not match the stages or the model, or the model's cannot be cut there. */
enum ht_status ht_pipe_lay_out(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                               struct ht_layout *layout, struct ht_error *err);

/* Returns HT_INFEASIBLE, with one line, if the scenario has too few blocks for the stages, micro-batches that the order
   cannot take, a tied table on two ranks of a pipeline that offloads, or asks for an exact undo of steps that keep no
   log. Returns HT_BAD_INPUT if the blocks do not match the stages or the model, or ZeRO the pipelines. */
enum ht_status ht_pipe_check(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                             struct ht_error *err);

/*
 * Builds the graph, linked and ready for the verifier. ht_pipe_check must have passed. Applies the scenario's control
 * (common/draft/control.h), or else the style's own. HT_INFEASIBLE if control cannot handle the graph.
 */
enum ht_status ht_pipe_build(const struct ht_scenario *scenario, const struct ht_pipe_style *style, const char *name,
                             struct ht_error *err, struct ht_schedule **out);

/* Returns the first unit of backward stage q, or the number of units for q = N_sb. For one pipeline of all ranks. */
int32_t ht_pipe_first_unit(const struct ht_scenario *scenario, const struct ht_pipe_style *style, int32_t q);

/* Returns the number of stages for each of `of` devices or stages: `wanted`, or fewer if there is not one block for
   each; at least 1. */
int64_t ht_pipe_stages_each(const struct ht_scenario *scenario, int64_t wanted, int64_t of);
/* Adds what is recomputed to a plan: recompute, segment and c, or again, as the settings have them; else nothing, and of blocks that are
   recomputed one at a time, or with whole_stages all of a stage. HT_BAD_INPUT if the settings contradict each other. The
   style of such a plan follows from it. */
enum ht_status ht_pipe_plan_recomputation(const struct ht_scenario *scenario, const struct ht_settings *settings,
                                          bool whole_stages, struct ht_error *err, struct ht_plan *out);
void ht_pipe_read_recomputation(const struct ht_plan *plan, struct ht_pipe_style *style);
/* Records the inputs from which a plan derives the number of stages. */
void ht_pipe_plan_inputs(const struct ht_scenario *scenario, struct ht_plan *plan);

/* Returns the order's shape for the scenario. */
struct ht_pipe_shape ht_pipe_shape_of(const struct ht_scenario *scenario, const struct ht_pipe_style *style);

/* Computes, over runs of `count` backward stages that begin at a multiple of it, the most parameters (elements) and the
   most that units keep (bytes). */
void ht_pipe_largest_stage(const struct ht_scenario *scenario, const struct ht_pipe_style *style, int32_t count,
                           int64_t *params, int64_t *kept_bytes);
/* Returns the bytes of the checkpoints that a rank holds at most: N_m v d c, where c is the input of a block; with segments
   N_m v d c of each segment of a stage. */
int64_t ht_pipe_checkpoint_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style);
/*
 * Returns the device memory by stages, in bytes, with offloading, of the largest stage i:
 *
 *     3 Psi_i + N_m v d c + A_i           parameters of two stages, a gradient, checkpoints
 *     3 Psi_i + N_m v (d c + A_i)         without recomputation: a device keeps the activations of all its stages
 *
 * Psi: 16-bit (FP32: 32-bit) parameters; A: what the blocks of a stage keep, or those of a segment, or the head. Fresh gradients and scratch are left out.
 * The verifier proves the memory of the schedule itself.
 */
int64_t ht_pipe_device_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style);
/* Returns the host memory, in bytes, of the fullest node: compute copies, master parameters and optimizer states,
   gradients, logs. */
int64_t ht_pipe_host_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style);

#endif
