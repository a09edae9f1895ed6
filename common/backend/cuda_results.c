/*
 * Calls the device's kernels for ops: uploads token ids or images before them, and copies losses, partials of the
 * gradient check and headers of logs back after them.
 *
 *     on the host (pinned), on the device:   input: tokens (B,T) int32, or images | targets, int32 | loss, double
 *     on the host only:                      result 0 | result 1 ..
 *
 * A gradient check writes to its lane's one partial, from which the result is copied. All copies are on the op's own
 * stream, so only the thread that waits for the op waits for them, and the memory is free again when the op has ended.
 */
#include "common/backend/cuda_results.h"

#include "common/backend/cuda_parts.h"
#include "common/base/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns where the loss is: behind the input and the targets. */
static int64_t loss_at(const struct ht_cuda_results *a)
{
    return ht_cuda_aligned(a->input_bytes) + ht_cuda_aligned(a->targets_bytes);
}

static int64_t result_bytes(const struct ht_cuda_device *d)
{
    int64_t most = d->api->partial_result_bytes;
    if (d->api->log_header_bytes > most) most = d->api->log_header_bytes;
    return ht_cuda_aligned(most);
}

static int64_t device_bytes(const struct ht_cuda_results *a)
{
    return loss_at(a) ? loss_at(a) + HT_CUDA_ALIGN : 0;
}

static int64_t host_bytes(const struct ht_cuda_device *d, const struct ht_cuda_results *a)
{
    return device_bytes(a) + a->max_results * result_bytes(d);
}

/* Returns true when the op uses the input or targets, or leaves a loss. */
static bool needs_results(const struct ht_schedule *s, int32_t op)
{
    enum ht_op_kind kind = s->ops[op].kind;
    return kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_BACKWARD;
}

/* Counts the gradients that the op checks, or the logs that it writes. */
static int32_t count_results(const struct ht_schedule *s, int32_t op)
{
    enum ht_op_kind kind = s->ops[op].kind;
    int32_t n = 0;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        enum ht_tensor_class class = s->tensors[s->effects[e].tensor].class;
        /* A part behind the first checks the pieces between what all parts have (check_row in cpu_optimizer.c). */
        int32_t pieces = s->tensors[s->effects[e].tensor].part ? HT_MAX_PARAM_PARTS : 1;
        n += kind == HT_OP_VALIDATE ? (class == HT_GRAD) * pieces : kind == HT_OP_OPTIMIZER_STEP && class == HT_STAGING;
    }
    return n;
}

int64_t ht_cuda_results_plan(struct ht_cuda_device *d)
{
    const struct ht_schedule *s = d->s;
    int64_t n = (int64_t)s->n_ops * HT_CUDA_TURNS, total = 0;
    d->results = HT_NEW_ARRAY(struct ht_cuda_results, n);
    for (int64_t i = 0; i < n; i++) {
        int32_t op = (int32_t)(i / HT_CUDA_TURNS);
        const struct ht_work *w = &s->works[s->ops[op].work];
        const struct ht_label *l = &s->ops[op].label;
        bool at_an_end = l->unit == 0 || l->unit + l->n_units == ht_model_units(&d->model);
        if (!d->lanes[s->ops[op].lane].is_stream) continue;
        if (needs_results(s, op) && at_an_end) {
            int64_t targets = w->batch * ht_model_head_rows(&d->model, w->seq);
            if (l->unit == 0) d->results[i].input_bytes = w->batch * ht_model_sample_bytes(&d->model, w->seq);
            if (l->unit > 0 || l->n_units > 1) d->results[i].targets_bytes = targets * (int64_t)sizeof(int32_t);
        }
        d->results[i].max_results = count_results(s, op);
        total += device_bytes(&d->results[i]);
    }
    return total;
}

enum ht_status ht_cuda_results_create(struct ht_cuda_device *d, char *on_device, struct ht_error *err)
{
    int64_t n = (int64_t)d->s->n_ops * HT_CUDA_TURNS, total = 0;
    for (int64_t i = 0; i < n; i++) total += host_bytes(d, &d->results[i]);
    if (total == 0) return HT_OK;
    enum ht_status status =
        ht_cuda_failed(d->api->host_malloc(&d->results_on_host, total), "pinned memory for token ids and losses", err);
    int64_t at = 0;
    for (int64_t i = 0; i < n && status == HT_OK; i++) {
        d->results[i].on_host = (char *)d->results_on_host + at;
        d->results[i].on_device = on_device;
        at += host_bytes(d, &d->results[i]);
        on_device += device_bytes(&d->results[i]);
    }
    return status;
}

void ht_cuda_results_destroy(struct ht_cuda_device *d)
{
    if (d->results_on_host) (void)d->api->host_free(d->results_on_host);
    d->results_on_host = NULL;
    free(d->results);
    d->results = NULL;
}

/* Uploads data: 0 the input, 1 targets. Returns their address on the device. */
static const void *upload(struct ht_cuda_in_flight *f, const void *data, int which)
{
    const struct ht_cuda_results *a = f->results;
    int64_t at = which ? ht_cuda_aligned(a->input_bytes) : 0, bytes = which ? a->targets_bytes : a->input_bytes;
    memcpy(a->on_host + at, data, (size_t)bytes);
    f->d->api->kernels->copy(f->context, a->on_device + at, a->on_host + at, bytes);
    return a->on_device + at;
}

/* Adds a result that the op's kernels are about to leave. Returns its index. */
static int32_t add_result(struct ht_cuda_in_flight *f, struct ht_cuda_result result)
{
    assert(f->n_results < f->results->max_results);
    f->host_results[f->n_results] = result;
    return f->n_results++;
}

void ht_cuda_collect_results(struct ht_cuda_in_flight *f)
{
    if (f->loss_to) memcpy(f->loss_to, f->results->on_host + loss_at(f->results), sizeof(double));
    f->loss_to = NULL;
    for (int32_t i = 0; i < f->n_results; i++) {
        struct ht_grad_partial *to = f->host_results[i].to, partial;
        if (!to) continue;
        partial = f->d->api->partial_of(f->results->on_host + i * result_bytes(f->d));
        if (f->host_results[i].adds) {
            partial.fits &= to->fits;
            partial.squares += to->squares;
        }
        *to = partial;
    }
}

/* ---- kernels that enqueue
   ----------------------------------------------------------------------------------------- */

/* Returns the lane's scratch, or the graph's workspace. */
static void *scratch(const struct ht_cuda_in_flight *f, void *workspace)
{
    return f->scratch ? f->scratch : workspace;
}

static const struct ht_kernels *kernels_of(const struct ht_cuda_in_flight *f)
{
    return f->d->api->kernels;
}

static void embedding_forward(void *device, const struct ht_unit_args *args, const void *input, const void *params,
                              void *out, void *workspace)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_pass pass;
    kernels_of(f)->embedding_forward(f->context, ht_cuda_pass_args(&pass, f, args), upload(f, input, 0), params, out,
                                     scratch(f, workspace));
}

static void embedding_backward(void *device, const struct ht_unit_args *args, const void *input, const void *dout,
                               void *grad, void *workspace)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_pass pass;
    kernels_of(f)->embedding_backward(f->context, ht_cuda_pass_args(&pass, f, args), upload(f, input, 0), dout, grad,
                                      scratch(f, workspace));
}

static void block_forward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                          const void *x, const struct ht_block_acts *act, void *out, void *workspace)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_pass pass;
    kernels_of(f)->block_forward(f->context, ht_cuda_pass_args(&pass, f, args), sub_ops, params, x, act, out,
                                 scratch(f, workspace));
}

static void block_backward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                           const void *x, const struct ht_block_acts *act, const void *dout, void *dx, void *grad,
                           void *workspace)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_pass pass;
    kernels_of(f)->block_backward(f->context, ht_cuda_pass_args(&pass, f, args), sub_ops, params, x, act, dout, dx,
                                  grad, scratch(f, workspace));
}

static void head_forward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                         const void *x, void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                         void *workspace)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_pass pass;
    int64_t at = loss_at(f->results);
    kernels_of(f)->head_forward(f->context, ht_cuda_pass_args(&pass, f, args), params, wte, x, act, logits,
                                (const int32_t *)upload(f, targets, 1), scale, (double *)(f->results->on_device + at),
                                scratch(f, workspace));
    kernels_of(f)->copy(f->context, f->results->on_host + at, f->results->on_device + at, sizeof(double));
    f->loss_to = loss_sum;
}

static void head_backward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                          const void *x, const void *act, const float *dlogits, void *dx, void *grad, void *dwte,
                          void *workspace)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_pass pass;
    kernels_of(f)->head_backward(f->context, ht_cuda_pass_args(&pass, f, args), params, wte, x, act, dlogits, dx, grad,
                                 dwte, scratch(f, workspace));
}

static void copy(void *device, void *to, const void *from, int64_t bytes)
{
    struct ht_cuda_in_flight *f = device;
    kernels_of(f)->copy(f->context, to, from, bytes);
}

static void zero(void *device, void *at, int64_t bytes)
{
    struct ht_cuda_in_flight *f = device;
    kernels_of(f)->zero(f->context, at, bytes);
}

static void widen(void *device, void *data, int64_t n, enum ht_dtype type)
{
    struct ht_cuda_in_flight *f = device;
    kernels_of(f)->widen(f->context, data, n, type);
}

static void round_copy(void *device, struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n)
{
    struct ht_cuda_in_flight *f = device;
    kernels_of(f)->round_copy(f->context, pool, from, to, type, n);
}

static void grad_sum(void *device, struct ht_pool *pool, void *acc, enum ht_dtype acc_type, const void *add,
                     enum ht_dtype add_type, int64_t n)
{
    struct ht_cuda_in_flight *f = device;
    kernels_of(f)->grad_sum(f->context, pool, acc, acc_type, add, add_type, n);
}

static void adamw(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const struct ht_adamw_row *row)
{
    struct ht_cuda_in_flight *f = device;
    kernels_of(f)->adamw(f->context, pool, step, row);
}

static void check(struct ht_cuda_in_flight *f, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                  int64_t n, struct ht_cuda_result result)
{
    const struct ht_cuda_api *api = f->d->api;
    int64_t at = add_result(f, result) * result_bytes(f->d);
    api->grad_check(f->context, step, grad, type, n, f->partial);
    api->kernels->copy(f->context, f->results->on_host + at, f->partial, api->partial_result_bytes);
}

static void grad_check(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                       enum ht_dtype type, int64_t n, struct ht_grad_partial *out)
{
    (void)pool;
    check(device, step, grad, type, n, (struct ht_cuda_result){.to = out});
}

static void grad_check_more(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                            enum ht_dtype type, int64_t n, struct ht_grad_partial *out)
{
    (void)pool;
    check(device, step, grad, type, n, (struct ht_cuda_result){.to = out, .adds = true});
}

static void step_logged(void *device, const struct ht_undo *u, const struct ht_adamw_step *step)
{
    struct ht_cuda_in_flight *f = device;
    const struct ht_cuda_api *api = f->d->api;
    int64_t at = add_result(f, (struct ht_cuda_result){.log = u->log}) * result_bytes(f->d);
    api->kernels->step_logged(f->context, u, step);
    api->kernels->copy(f->context, f->results->on_host + at, u->log, api->log_header_bytes);
}

static bool undo(void *device, const struct ht_undo *u)
{
    struct ht_cuda_in_flight *f = device;
    return kernels_of(f)->undo(f->context, u);
}

const struct ht_kernels ht_cuda_enqueue_kernels = {
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
};

/* ---- kernels that finalize
   ---------------------------------------------------------------------------------------- */

static struct ht_undo_summary collected_summary(void *device, const void *log, int64_t log_bytes, int64_t n)
{
    const struct ht_cuda_in_flight *f = device;
    int32_t i = 0;
    (void)log_bytes;
    while (i < f->n_results && f->host_results[i].log != log) i++;
    if (i == f->n_results) return (struct ht_undo_summary){.state = HT_UNDO_EMPTY};
    return f->d->api->summary_of(f->results->on_host + i * result_bytes(f->d), n);
}

/* Checks the gradients of a step that was refused, which is rare. The op's own result has been collected, so its memory
   is free. */
static void collected_grad_check(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const void *grad,
                                 enum ht_dtype type, int64_t n, struct ht_grad_partial *out)
{
    struct ht_cuda_in_flight *f = device;
    struct ht_cuda_device *d = f->d;
    (void)pool;
    pthread_mutex_lock(&d->side_lock);
    d->api->grad_check(d->side.context, step, grad, type, n, d->side.partial);
    const char *why = d->api->context_status(d->side.context);
    if (!why) why = d->api->copy(f->results->on_host, d->side.partial, d->api->partial_result_bytes, d->side.stream);
    if (!why) why = d->api->stream_finish(d->side.stream);
    *out = why ? (struct ht_grad_partial){0} : d->api->partial_of(f->results->on_host);
    f->why = why;
    pthread_mutex_unlock(&d->side_lock);
}

const struct ht_kernels ht_cuda_collect_kernels = {.grad_check = collected_grad_check,
                                                   .undo_summary = collected_summary};
