/*
 * One op as the CPU backend sees it: its buffers, looked up by class and label. Internal to common/backend.
 *
 * The same code serves for checking and for running. When the backend is opened, every op is "called" with check_only
 * set and buffers without data: its lookups then prove that the effects are there and have the right sizes, and it
 * returns before the kernel. So a run's lookups cannot fail.
 */
#ifndef HT_BACKEND_CPU_CALL_H
#define HT_BACKEND_CPU_CALL_H

#include "common/backend/cpu.h"
#include "common/backend/cpu_control.h"
#include "common/backend/kernels.h"
#include "common/kernels/convert.h"

/* What is known of a row of momentum. Ops on one row run one after the other, so it needs no lock. */
struct ht_cpu_row {
    int64_t steps; /* made, net of undone ones */
    bool left_out; /* the last step, since its log was too small and its gradients bad; until it is undone */
};

struct ht_cpu_call {
    const struct ht_cpu_options *options;
    const struct ht_schedule *s;
    int32_t iteration, id;
    const struct ht_op *op;
    const struct ht_buffer *buffers;
    int32_t n_buffers;
    enum ht_tier tier; /* where the op works */
    const struct ht_kernels *kernels;
    void *device;             /* for them */
    struct ht_unit_args args; /* model, shape and the lane's pool */
    struct ht_model part;     /* of a pass over tensor-parallel parts: this member's model, */
    struct ht_part_link link; /* and its way to the others */
    bool check_only;
    bool has_sums;           /* G(u) is a sum over micro-batches, made by ACCUMULATE */
    struct ht_cpu_row *rows; /* of each tensor; for momentum */
    struct ht_cpu_control *control;
    bool *ok; /* validate writes it */
    struct ht_error *err;
    enum ht_status status; /* of the first lookup that failed */
};

/* What an effect must allow. A tensor that an op of several units both writes and reads counts as readable. */
enum { HT_CPU_READ = HT_NEED | HT_UPDATE, HT_CPU_WRITE = HT_PRODUCE | HT_UPDATE };

/* The buffer of (class, unit, micro_batch) in the op's tier with one of the flags, or NULL. */
const struct ht_buffer *ht_cpu_look(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit,
                                    int32_t micro_batch, unsigned flags);
/* Its data; it must be there and have exactly these bytes, else c->status is set. */
void *ht_cpu_find(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch, unsigned flags,
                  int64_t bytes);
/* Notes where the rows of A(unit, j) with one of the flags keep what these sub-ops do; c->status is set unless each is in
   exactly one of them, and each row has the bytes of its sub-ops. */
void ht_cpu_find_acts(struct ht_cpu_call *c, int32_t unit, unsigned flags, unsigned sub_ops,
                      struct ht_block_acts *acts);
/* Scratch of at least these bytes; NULL when bytes is 0. */
void *ht_cpu_workspace(struct ht_cpu_call *c, int64_t bytes);

/* Of the elements of such a tensor: parameters, gradients, optimizer state. */
enum ht_dtype ht_cpu_dtype(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t micro_batch);

/* What the iteration's loss, and so each of its gradients, is multiplied by. */
static inline double ht_cpu_loss_scale(const struct ht_cpu_call *c)
{
    return ht_cpu_slot(c->control, c->iteration)->loss_scale;
}

/* Is this buffer a row of `class` that the op is about, in its tier, with one of the flags? */
bool ht_cpu_concerns(const struct ht_cpu_call *c, const struct ht_buffer *b, enum ht_tensor_class class,
                     unsigned flags);

/* Elements [begin, end) that a tensor holds of the flat parameters of the unit, or of its part of it. */
struct ht_range ht_cpu_elements(const struct ht_cpu_call *c, int32_t tensor);
/* Data of these elements of (class, unit), micro_batch as above, in whichever shard holds them. */
void *ht_cpu_find_elements(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch,
                           unsigned flags, struct ht_range elements);

/* The same, and NULL where nothing of (class, unit) is among the effects with one of the flags. */
void *ht_cpu_elements_if_any(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch,
                             unsigned flags, struct ht_range elements);

/* Runs an op with other kernels than the CPU's; the backend is open. What the host makes of it when it has ended is for
   the other one: with the same buffers, and kernels of which only judge and undo_summary are called, and waited for. */
enum ht_status ht_cpu_finalize_on(struct ht_cpu *cpu, const struct ht_kernels *kernels, void *device, int32_t iteration,
                                  int32_t op, const struct ht_buffer *buffers, int32_t n, struct ht_error *err);
enum ht_status ht_cpu_run_on(struct ht_cpu *cpu, const struct ht_kernels *kernels, void *device, int32_t iteration,
                             int32_t op, const struct ht_buffer *buffers, int32_t n, struct ht_error *err);

/* Records an error of this op ("schedule 'x': op 12 (B3): ..."), if it is the first; returns its status. */
enum ht_status ht_cpu_complain(struct ht_cpu_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- cpu_units.c: what passes through units ---- */
enum ht_status ht_cpu_forward(struct ht_cpu_call *c);
enum ht_status ht_cpu_recompute(struct ht_cpu_call *c);
enum ht_status ht_cpu_backward(struct ht_cpu_call *c);

/* ---- cpu_state.c: copies and gradients ---- */
enum ht_status ht_cpu_copy(struct ht_cpu_call *c);
enum ht_status ht_cpu_accumulate(struct ht_cpu_call *c);
enum ht_status ht_cpu_restore(struct ht_cpu_call *c);
/* After a backward op: overwrites what options->faults say. */
void ht_cpu_inject(const struct ht_cpu_call *c);

/* ---- cpu_comm.c: between ranks ---- */
enum ht_status ht_cpu_all_gather(struct ht_cpu_call *c);
enum ht_status ht_cpu_reduce_scatter(struct ht_cpu_call *c);
enum ht_status ht_cpu_all_reduce(struct ht_cpu_call *c);
enum ht_status ht_cpu_pass(struct ht_cpu_call *c); /* SEND and RECEIVE */
/* struct ht_part_link of a pass; ctx: its call, whose status an error goes to. */
void ht_cpu_sum_parts(void *ctx, void *data, enum ht_dtype type, int64_t n);
void ht_cpu_gather_parts(void *ctx, const float *mine, float *all, int64_t n);

/* ---- cpu_optimizer.c ---- */
enum ht_status ht_cpu_step(struct ht_cpu_call *c);
enum ht_status ht_cpu_undo(struct ht_cpu_call *c);
enum ht_status ht_cpu_validate(struct ht_cpu_call *c);
enum ht_status ht_cpu_finalize_step(struct ht_cpu_call *c); /* of a step, and of VALIDATE, when they have ended */
enum ht_status ht_cpu_finalize_validate(struct ht_cpu_call *c);

#endif
