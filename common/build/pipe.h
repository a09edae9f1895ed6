/*
 * Builds the graph of a training iteration of a pipeline: stages on several ranks, messages between them, and, with
 * offloading, parameters and optimizer in host memory. What a system is, is a struct ht_pipe_style; the orders stand in
 * common/schedule/pipeline.h.
 *
 * Units to stages. Backward stage q holds an equal share of the blocks (sizes differ by one where they do not
 * divide), or as many as the plan says, the first one the embedding too, the last one the head; forward stage i is
 * backward stages d i .. d i + d - 1. The head runs forward where and when its backward does, so that the logits of
 * one micro-batch are held at a time: what reaches it is X(L+1,j), a message like others.
 *
 * A pass is a few ops on the rank's compute lane, named after it ("f4.2": forward stage 4, micro-batch 2):
 *
 *     f(i,j)   F u for each of its units                                  a unit's activations at a time
 *     b(q,j)   [R blocks] [F head, B head] B u for each block [B embedding]   all activations of the stage
 *
 * Tensors, their classes, labels and sizes are those of common/backend/cpu.h. A gradient is made fresh for each
 * micro-batch and goes into the sum on the device at once, unit by unit; sums leave for the host after the last one.
 *
 * Lanes of a rank (p2p lanes only where there is more than one rank):
 *
 *     compute                                passes
 *     h2d, d2h                               parameters of the next stage; sums of the stage before
 *     act out, act in, grad out, grad in     X and DX at stage boundaries; with blocking_sends the sender's next pass waits
 *     get, serve R                           parameters from another node's memory: a one-sided read by rank R, that is a
 *                                            copy through both NICs and R's port; its owner does nothing
 *     cpu                                    optimizer of all of the rank's stages
 *     verdict, agree                         whether the iteration was good: of the rank, and of all (common/build/control.h)
 *
 * Several pipelines, of the same or of different depth, share the batch (common/build/layout.h). Each is a draft; once all
 * passes are there, a unit's gradients are all-reduced over the ranks that hold it, units falling. A tied table that the
 * embedding has on one rank and the head on another is held by both, whole unit 0 with its states, and its gradients are
 * added up in the same way, also of one pipeline (Megatron-LM's embedding group: Shoeybi et al., "Megatron-LM", 2019):
 *
 *     reduce   AR(L+1) AR(L) ..               the one order of all pipelines; each starts when its sum is there
 *
 * Tensor parallelism: a stage may be several ranks, a part each. A draft is then one part of all stages of a pipeline; part q
 * sends its X and DX, which all parts have alike, to part q of the next stage, and its gradients are all-reduced with those of
 * part q of the other pipelines.
 *
 * Parameters lie in host memory of the node whose rank runs the stage backward, and are fetched from there by every rank
 * that uses them. A rank has two buffers: a visit (consecutive passes over the same stage) is fetched once the visit
 * before last has ended, and freed when it ends.
 *
 *     h2d      P0 P4         P15 ..
 *     compute  f0.0 f0.1 ..  f4.0 f4.1 ..  b15.0 ..
 *
 * Ids follow the ideal schedule of ht_pipe_layout with messages that take no time: at one instant first what ends (by
 * stage), then what starts. That is also what keeps messages from deadlocking: at a timestep all ranks list their sends
 * and receives in one global order (SysX, Sec. 4, "Pipeline schedule").
 */
#ifndef HT_BUILD_PIPE_H
#define HT_BUILD_PIPE_H

#include "common/build/control.h"
#include "common/build/layout.h"
#include "common/plan/system.h"
#include "common/schedule/pipeline.h"

struct ht_pipe; /* common/build/pipe_internal.h */

/* What a method adds to a pipeline; each may be NULL. A hook appends ops and lanes by the functions of pipe_internal.h. */
struct ht_pipe_hooks {
    void (*add_lanes)(struct ht_pipe *g,
                      int32_t rank); /* behind those of messages; stages may get one for their steps */
    void (*begin)(struct ht_pipe *g, const struct ht_pipe_pass *x); /* before the first op of a pass */
    void (*end)(struct ht_pipe *g, const struct ht_pipe_pass *x);   /* its boundary has been sent */
};

struct ht_pipe_style {
    enum ht_pipe_order order;
    int32_t v, d;
    const struct ht_layout *layout; /* of several pipelines, or of stages in several parts, which keep everything on the
                                       devices; NULL: one of all ranks */
    const int64_t *blocks;          /* [n_blocks] of each backward stage, of one pipeline after the other, or, where all
                                       are as deep, of each of them; NULL: as even as can be */
    int32_t n_blocks;
    int32_t (*backward_rank)(const struct ht_pipe_shape *p, int32_t q); /* where backward stages run, as in the shape */
    bool offload; /* parameters and optimizer in host memory; a stage is stepped there once its sum is. Else on
                                 the device, after all passes */
    enum ht_control_mode own; /* the method's own control, in the graph where the scenario asks for none */
    enum ht_undo_kind undo;   /* of its own rollback */
    bool recompute;       /* a block keeps nothing; a backward stage recomputes from its input. Stages whose backward
                                 runs elsewhere need it */
    bool early_recompute; /* may begin before the gradient is there */
    bool forward_head; /* the last forward pass runs the head, for its loss, and the backward pass runs it again; else
                                 the head runs forward in its backward pass. Only with recomputation */
    bool recompute_output; /* the last backward stage recomputes X(L+1,j), too; else the last forward stage sends it */
    bool blocking_sends;
    bool free_messages; /* between ranks: cost nothing */
    struct ht_pipe_hooks hooks;
};

/* HT_INFEASIBLE, with one line, when the scenario has too few blocks for the stages, micro-batches that the order cannot
   take, a tied table on two ranks of pipelines that offload, or asks for an exact undo of steps that keep no log. HT_BAD_INPUT for blocks that are
   not the stages' or the model's. */
enum ht_status ht_pipe_check(const struct ht_scenario *scenario, const struct ht_pipe_style *style,
                             struct ht_error *err);

/*
 * Linked, ready for the verifier. ht_pipe_check has passed. The scenario's control (common/build/control.h), or else the
 * style's own, is put into a graph whose stages are stepped as if all gradients were good. HT_INFEASIBLE where it has no
 * treatment.
 */
enum ht_status ht_pipe_build(const struct ht_scenario *scenario, const struct ht_pipe_style *style, const char *name,
                             struct ht_error *err, struct ht_schedule **out);

/* Returns the first unit of backward stage q; of N_sb the number of units. For one pipeline of all ranks. */
int32_t ht_pipe_first_unit(const struct ht_scenario *scenario, const struct ht_pipe_style *style, int32_t q);

/* Returns how many stages each of so many devices or stages is given: as many as wanted, or fewer where there is not a block
   for each; at least 1. */
int64_t ht_pipe_stages_each(const struct ht_scenario *scenario, int64_t wanted, int64_t of);
/* Records what the number of stages follows from. */
void ht_pipe_plan_inputs(const struct ht_scenario *scenario, struct ht_plan *plan);

/* The order's shape on the scenario. */
struct ht_pipe_shape ht_pipe_shape_of(const struct ht_scenario *scenario, const struct ht_pipe_style *style);

/* Most parameters (elements) of `count` backward stages from a multiple of it on, and of what their units keep (bytes). */
void ht_pipe_largest_stage(const struct ht_scenario *scenario, const struct ht_pipe_style *style, int32_t count,
                           int64_t *params, int64_t *kept_bytes);
/* Checkpoints that a rank comes to hold: N_m v d c, where c is the input of a block. */
int64_t ht_pipe_checkpoint_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style);
/*
 * Device memory by stages, in bytes, with recomputation and offloading, of the largest stage i:
 *
 *     3 Psi_i + N_m v d c + A_i           parameters of two stages, a gradient, checkpoints
 *
 * Psi: 16-bit (FP32: 32-bit) parameters, A: what the blocks of a stage keep. Fresh gradients and scratch are left out:
 * what is proved is the schedule.
 */
int64_t ht_pipe_device_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style);
/* Host memory of the fullest node: compute copies, master parameters and optimizer states, gradients, logs. */
int64_t ht_pipe_host_bytes(const struct ht_scenario *scenario, const struct ht_pipe_style *style);

#endif
