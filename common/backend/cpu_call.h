/*
 * One op in the CPU backend: its buffers, found by class and label. Internal to common/backend.
 *
 * The same code checks and runs. When the backend is opened, every op is "called" with check_only set and buffers
 * without data: its lookups then prove that the effects exist and have the right sizes, and it returns before the
 * kernel. So a run's lookups cannot fail.
 */
#ifndef HT_BACKEND_CPU_CALL_H
#define HT_BACKEND_CPU_CALL_H

#include "common/backend/cpu.h"
#include "common/backend/cpu_control.h"
#include "common/backend/kernels.h"
#include "common/kernels/convert.h"

/* State of a momentum tensor. Ops on one tensor run one after the other, so it needs no lock. */
struct ht_cpu_row {
    int64_t steps; /* made, net of undone ones */
    bool left_out; /* the last step was left out (overflow and a log that is too small) and is not undone yet */
};

struct ht_cpu_call {
    const struct ht_cpu_options *options;
    const struct ht_schedule *s;
    int32_t iteration, id;
    const struct ht_op *op;
    const struct ht_buffer *buffers;
    int32_t n_buffers;
    enum ht_tier tier; /* the op's tier */
    const struct ht_kernels *kernels;
    void *device;             /* passed to the kernels */
    struct ht_comm *comm;     /* for messages about tensors: options->comm, or a view of it */
    struct ht_unit_args args; /* model, shape and the lane's pool */
    struct ht_model part;     /* in a pass over tensor-parallel parts: this member's model, */
    struct ht_part_link link; /* and its link to the others */
    bool check_only;
    bool has_sums;           /* G(u) is a sum over micro-batches, made by ACCUMULATE */
    struct ht_cpu_row *rows; /* [n_tensors]; used for momentum */
    struct ht_cpu_control *control;
    bool *ok; /* written by validate */
    struct ht_error *err;
    enum ht_status status; /* of the first failed lookup */
};

/* Flags that an effect must have. A tensor that an op of several units both writes and reads counts as readable. */
enum { HT_CPU_READ = HT_NEED | HT_UPDATE, HT_CPU_WRITE = HT_PRODUCE | HT_UPDATE };

/* Returns the buffer of (class, unit, micro_batch) in the op's tier with one of the flags, or NULL. */
const struct ht_buffer *ht_cpu_lookup(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit,
                                      int32_t micro_batch, unsigned flags);
/* Returns the data of such a buffer. Sets c->status unless it exists and has exactly these bytes. */
void *ht_cpu_find(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch, unsigned flags,
                  int64_t bytes);
/* Returns true if the op reads what a front hands of a sub-op, 1 << HT_SUB_..; returns the data of that, a checkpoint, or of its
   gradient (common/model/halves.h). Sets c->status likewise. */
bool ht_cpu_has_handed(const struct ht_cpu_call *c, int32_t unit, unsigned handed);
void *ht_cpu_find_handed(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, unsigned handed,
                         unsigned flags);
/* Fills in the addresses in which the tensors A(unit, j) with one of the flags keep these sub-ops. Sets c->status
   unless each sub-op is in exactly one of them, and each has the bytes of its sub-ops. */
void ht_cpu_find_acts(struct ht_cpu_call *c, int32_t unit, unsigned flags, unsigned sub_ops,
                      struct ht_block_acts *acts);
/* Returns scratch of at least these bytes; NULL when bytes is 0. */
void *ht_cpu_workspace(struct ht_cpu_call *c, int64_t bytes);

/* Returns the element type of such a tensor: parameters, gradients, optimizer state. */
enum ht_dtype ht_cpu_dtype(const struct ht_cpu_call *c, enum ht_tensor_class class, int32_t micro_batch);

/* Returns the factor of the iteration's loss, and so of each gradient. */
static inline double ht_cpu_loss_scale(const struct ht_cpu_call *c)
{
    return ht_cpu_slot(c->control, c->iteration)->loss_scale;
}

/* Returns true when the buffer is a `class` tensor of the op's units, in its tier, with one of the flags. */
bool ht_cpu_concerns(const struct ht_cpu_call *c, const struct ht_buffer *b, enum ht_tensor_class class,
                     unsigned flags);

/* Returns the elements [begin, end) of the unit's (or its part's) flat parameters that a tensor holds. */
struct ht_range ht_cpu_elements(const struct ht_cpu_call *c, int32_t tensor);
/* Returns the data of these elements of (class, unit), micro_batch as above, in whichever shard holds them. */
void *ht_cpu_find_elements(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch,
                           unsigned flags, struct ht_range elements);

/* Returns such data, or NULL when no effect with one of the flags is of (class, unit). */
void *ht_cpu_elements_if_any(struct ht_cpu_call *c, enum ht_tensor_class class, int32_t unit, int32_t micro_batch,
                             unsigned flags, struct ht_range elements);

/* Runs an op with other kernels than the CPU's, with the backend open. comm: a view of the ranks' for the stream that
   the kernels are enqueued on; NULL: options->comm. ht_cpu_finalize_on does the host's part after
   the op has ended: with the same buffers, and calling only grad_check and undo_summary of kernels that wait. */
enum ht_status ht_cpu_finalize_on(struct ht_cpu *cpu, const struct ht_kernels *kernels, void *device, int32_t iteration,
                                  int32_t op, const struct ht_buffer *buffers, int32_t n, struct ht_error *err);
enum ht_status ht_cpu_run_on(struct ht_cpu *cpu, const struct ht_kernels *kernels, void *device, struct ht_comm *comm,
                             int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err);

/* Records an error of this op ("schedule 'x': op 12 (B3): ..."), if it is the first. Returns its status. */
enum ht_status ht_cpu_fail(struct ht_cpu_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- cpu_units.c: passes over units ---- */
enum ht_status ht_cpu_forward(struct ht_cpu_call *c);
enum ht_status ht_cpu_recompute(struct ht_cpu_call *c);
enum ht_status ht_cpu_backward(struct ht_cpu_call *c);

/* ---- cpu_state.c: copies and gradients ---- */
enum ht_status ht_cpu_copy(struct ht_cpu_call *c);
enum ht_status ht_cpu_accumulate(struct ht_cpu_call *c);
enum ht_status ht_cpu_restore(struct ht_cpu_call *c);
/* Injects options->faults after a backward op. */
void ht_cpu_inject(const struct ht_cpu_call *c);

/* ---- cpu_comm.c: between ranks ---- */
enum ht_status ht_cpu_all_gather(struct ht_cpu_call *c);
enum ht_status ht_cpu_reduce_scatter(struct ht_cpu_call *c);
/* Returns true if every member of a reduce-scatter's group has a whole gradient. */
bool ht_cpu_scatters_whole(const struct ht_schedule *s, int32_t op);
enum ht_status ht_cpu_all_reduce(struct ht_cpu_call *c);
enum ht_status ht_cpu_send_receive(struct ht_cpu_call *c); /* SEND and RECEIVE */
/* Functions of a pass's struct ht_part_link; ctx: its call, which gets the status of an error. */
void ht_cpu_sum_parts(void *ctx, void *data, enum ht_dtype type, int64_t n);
void ht_cpu_gather_parts(void *ctx, const void *mine, void *all, enum ht_dtype type, int64_t n);
void ht_cpu_scatter_parts(void *ctx, const void *all, void *mine, enum ht_dtype type, int64_t n);

/* ---- cpu_optimizer.c ---- */
enum ht_status ht_cpu_step(struct ht_cpu_call *c);
enum ht_status ht_cpu_undo(struct ht_cpu_call *c);
enum ht_status ht_cpu_validate(struct ht_cpu_call *c);
enum ht_status ht_cpu_finalize_step(struct ht_cpu_call *c); /* of a step, and of VALIDATE, after their end */
enum ht_status ht_cpu_finalize_validate(struct ht_cpu_call *c);

#endif
