/*
 * Kernels that ops call: the CPU's, or a device's. Internal to common/backend.
 *
 * `device` selects the device: NULL for the CPU, which has a pool instead. On the CPU every call has ended when it
 * returns. On a device with streams it has been enqueued; the data it writes through pointers are valid when the op has
 * ended (the loss and partials, too), and so is a log. Only returned values need a wait: `undo_summary` is called after
 * the op has ended, and a device's ops that call `undo` are not enqueued ahead. Arguments are those of the functions
 * that the comments name. A block's params and grad may have the elements of one half alone, in its passes: then the
 * address is that of the first of them less its offset in the unit, and nothing before that element is touched.
 */
#ifndef HT_BACKEND_KERNELS_H
#define HT_BACKEND_KERNELS_H

#include "common/kernels/grad_check.h"
#include "common/kernels/undo.h"
#include "common/kernels/unit.h"

struct ht_kernels {
    /* common/kernels/unit.h */
    void (*embedding_forward)(void *device, const struct ht_unit_args *args, const void *input, const void *params,
                              void *out, void *workspace);
    void (*embedding_backward)(void *device, const struct ht_unit_args *args, const void *input, const void *dout,
                               void *grad, void *workspace);
    void (*block_forward)(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                          const void *x, const struct ht_block_acts *act, void *out, void *workspace);
    void (*block_backward)(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                           const void *x, const struct ht_block_acts *act, const void *dout, void *dx, void *grad,
                           void *workspace);
    /* loss_sum may be NULL. */
    void (*head_forward)(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                         const void *x, void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                         void *workspace);
    void (*head_backward)(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                          const void *x, const void *act, const float *dlogits, void *dx, void *grad, void *dwte,
                          void *workspace);

    /* Copies between any two memories; on a device `from` must not change until the op has ended. */
    void (*copy)(void *device, void *to, const void *from, int64_t bytes);
    void (*zero)(void *device, void *at, int64_t bytes);
    /* Widens the n 16-bit values in the second half of the memory to FP32 in place. Only for ops between ranks. */
    void (*widen)(void *device, void *data, int64_t n, enum ht_dtype type);
    void (*round_copy)(void *device, struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n);
    void (*grad_sum)(void *device, struct ht_pool *pool, void *acc, enum ht_dtype acc_type, const void *add,
                     enum ht_dtype add_type, int64_t n);
    void (*adamw)(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const struct ht_adamw_row *row);

    /* common/kernels/grad_check.h and undo.h. */
    void (*grad_check)(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                       enum ht_dtype type, int64_t n, struct ht_grad_partial *out);
    /* Adds the check of further elements to *out, which the caller has begun. */
    void (*grad_check_more)(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                            enum ht_dtype type, int64_t n, struct ht_grad_partial *out);
    void (*step_logged)(void *device, const struct ht_undo *u, const struct ht_adamw_step *step);
    bool (*undo)(void *device, const struct ht_undo *u);
    struct ht_undo_summary (*undo_summary)(void *device, const void *log, int64_t log_bytes, int64_t n);
};

extern const struct ht_kernels ht_cpu_kernels;

#endif
