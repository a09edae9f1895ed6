/* The CPU's table of kernels. */
#include "common/backend/kernels.h"
#include "common/base/half.h"
#include "common/kernels/convert.h"
#include "common/kernels/grad_sum.h"

#include <string.h>

static void embedding_forward(void *device, const struct ht_unit_args *args, const void *input, const void *params,
                              void *out, void *workspace)
{
    (void)device;
    ht_embedding_forward(args, input, params, out, workspace);
}

static void embedding_backward(void *device, const struct ht_unit_args *args, const void *input, const void *dout,
                               void *grad, void *workspace)
{
    (void)device;
    ht_embedding_backward(args, input, dout, grad, workspace);
}

static void block_forward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                          const void *x, const struct ht_block_acts *act, void *out, void *workspace)
{
    (void)device;
    ht_block_forward(args, sub_ops, params, x, act, out, workspace);
}

static void block_backward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                           const void *x, const struct ht_block_acts *act, const void *dout, void *dx, void *grad,
                           void *workspace)
{
    (void)device;
    ht_block_backward(args, sub_ops, params, x, act, dout, dx, grad, workspace);
}

static void head_forward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                         const void *x, void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                         void *workspace)
{
    double unused;
    (void)device;
    ht_head_forward(args, params, wte, x, act, logits, targets, scale, loss_sum ? loss_sum : &unused, workspace);
}

static void head_backward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                          const void *x, const void *act, const float *dlogits, void *dx, void *grad, void *dwte,
                          void *workspace)
{
    (void)device;
    ht_head_backward(args, params, wte, x, act, dlogits, dx, grad, dwte, workspace);
}

static void copy(void *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
}

static void zero(void *device, void *at, int64_t bytes)
{
    (void)device;
    memset(at, 0, (size_t)bytes);
}

static void round_copy(void *device, struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n)
{
    (void)device;
    ht_round_copy(pool, from, to, type, n);
}

/* None is overwritten before it is read. */
static void widen(void *device, void *data, int64_t n, enum ht_dtype type)
{
    char *to = data, *from = to + 2 * n;
    (void)device;
    for (int64_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, sizeof(x));
        float wide = type == HT_F16 ? ht_f16_to_f32(x) : ht_bf16_to_f32(x);
        memcpy(to + 4 * i, &wide, sizeof(wide));
    }
}

static void grad_sum(void *device, struct ht_pool *pool, void *acc, enum ht_dtype acc_type, const void *add,
                     enum ht_dtype add_type, int64_t n)
{
    (void)device;
    ht_grad_sum(pool, acc, acc_type, add, add_type, n);
}

static void adamw(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const struct ht_adamw_row *row)
{
    (void)device;
    ht_adamw_update_row(pool, step, row);
}

static void grad_check(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                       enum ht_dtype type, int64_t n, struct ht_grad_partial *out)
{
    (void)device;
    *out = ht_grad_check(pool, step, grad, type, n);
}

static void step_logged(void *device, const struct ht_undo *u, const struct ht_adamw_step *step)
{
    (void)device;
    (void)ht_adamw_step_logged(u, step); /* the log has the result */
}

static bool undo(void *device, const struct ht_undo *u)
{
    (void)device;
    return ht_adamw_undo_exact(u);
}

static struct ht_undo_summary undo_summary(void *device, const void *log, int64_t log_bytes, int64_t n)
{
    (void)device;
    return ht_undo_summary(log, log_bytes, n);
}

static void grad_check_more(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                            enum ht_dtype type, int64_t n, struct ht_grad_partial *out)
{
    struct ht_grad_partial more;
    ht_cpu_kernels.grad_check(device, pool, step, grad, type, n, &more);
    out->fits &= more.fits;
    out->squares += more.squares;
}

const struct ht_kernels ht_cpu_kernels = {
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .block_forward = block_forward,
    .block_backward = block_backward,
    .head_forward = head_forward,
    .head_backward = head_backward,
    .copy = copy,
    .zero = zero,
    .widen = widen,
    .round_copy = round_copy,
    .grad_sum = grad_sum,
    .adamw = adamw,
    .grad_check = grad_check,
    .grad_check_more = grad_check_more,
    .step_logged = step_logged,
    .undo = undo,
    .undo_summary = undo_summary,
};
