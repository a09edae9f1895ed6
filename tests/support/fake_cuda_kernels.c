/* The fake GPU's kernels: the CPU's, enqueued. */
#include "common/model/halves.h"
#include "tests/support/fake_cuda_parts.h"

static void kernel_copy(void *device, void *to, const void *from, int64_t bytes)
{
    struct fake_cuda_context *c = device;
    if (!fake_cuda_fails(c)) fake_cuda_move(c->stream, to, from, bytes, true);
}

/* ---- kernels: the CPU's, with the arguments of the call ---- */

enum kind {
    E_FORWARD,
    E_BACKWARD,
    B_FORWARD,
    B_BACKWARD,
    H_FORWARD,
    H_BACKWARD,
    ZERO,
    WIDEN,
    ROUND,
    SUM,
    ADAMW,
    JUDGE,
    STEP_LOGGED
};

struct call {
    enum kind kind;
    struct ht_unit_args args;
    const void *in[6]; /* in the order of the kernel's arguments */
    void *out[5];
    unsigned sub_ops;
    int64_t params_skip, grad_skip; /* bytes from in[0] and out[1] to the first that a block's kernel touches */
    struct ht_block_acts act;
    float scale;
    enum ht_dtype types[2];
    int64_t n;
    struct ht_adamw_step step;
    struct ht_adamw_row row;
    struct ht_undo undo;
};

static void perform(void *arg)
{
    const struct call *c = arg;
    const struct ht_kernels *k = &ht_cpu_kernels;
    const void *const *in = c->in;
    void *const *out = c->out;
    switch (c->kind) {
    case E_FORWARD:
        k->embedding_forward(NULL, &c->args, in[0], in[1], out[0], out[1]);
        break;
    case E_BACKWARD:
        k->embedding_backward(NULL, &c->args, in[0], in[1], out[0], out[1]);
        break;
    case B_FORWARD:
        k->block_forward(NULL, &c->args, c->sub_ops, in[0], in[1], &c->act, out[0], out[1]);
        break;
    case B_BACKWARD:
        k->block_backward(NULL, &c->args, c->sub_ops, in[0], in[1], &c->act, in[2], out[0], out[1], out[2]);
        break;
    case H_FORWARD:
        k->head_forward(NULL, &c->args, in[0], in[1], in[2], out[0], out[1], in[3], c->scale, out[2], out[3]);
        break;
    case H_BACKWARD:
        k->head_backward(NULL, &c->args, in[0], in[1], in[2], in[3], in[4], out[0], out[1], out[2], out[3]);
        break;
    case ZERO:
        k->zero(NULL, out[0], c->n);
        break;
    case WIDEN:
        k->widen(NULL, out[0], c->n, c->types[0]);
        break;
    case ROUND:
        k->round_copy(NULL, NULL, in[0], out[0], c->types[0], c->n);
        break;
    case SUM:
        k->grad_sum(NULL, NULL, out[0], c->types[0], in[0], c->types[1], c->n);
        break;
    case ADAMW:
        k->adamw(NULL, NULL, &c->step, &c->row);
        break;
    case JUDGE:
        k->grad_check(NULL, NULL, &c->step, in[0], c->types[0], c->n, out[0]);
        break;
    case STEP_LOGGED:
        k->step_logged(NULL, &c->undo, &c->step);
        break;
    }
}

/* Returns the same of a buffer of which a kernel touches nothing before so many bytes. */
static void *real_behind(const void *p, int64_t skip)
{
    void *at = p ? fake_cuda_real((const void *)((uintptr_t)p + (uintptr_t)skip)) : NULL;
    return at ? (void *)((uintptr_t)at - (uintptr_t)skip) : NULL;
}

/* ---- a part's link, which knows the device's pointers ---- */

struct part_link {
    const struct ht_part_link *to;
    struct stream *stream; /* has the result when it has ended */
};

static void sum_parts(void *ctx, void *data, enum ht_dtype type, int64_t n)
{
    const struct part_link *l = ctx;
    l->to->sum(l->to->ctx, fake_cuda_known(data), type, n);
    stream_finish(l->stream);
}

static void gather_parts(void *ctx, const void *mine, void *all, enum ht_dtype type, int64_t n)
{
    const struct part_link *l = ctx;
    l->to->gather(l->to->ctx, fake_cuda_known(mine), fake_cuda_known(all), type, n);
    stream_finish(l->stream);
}

static void scatter_parts(void *ctx, const void *all, void *mine, enum ht_dtype type, int64_t n)
{
    const struct part_link *l = ctx;
    l->to->scatter(l->to->ctx, fake_cuda_known(all), fake_cuda_known(mine), type, n);
    stream_finish(l->stream);
}

/* Runs a part's pass here, since it waits for its stream when it meets the other parts. */
static void perform_part(struct fake_cuda_context *c, struct call *call)
{
    struct part_link to = {call->args.link, c->stream};
    struct ht_part_link link = {&to, sum_parts, gather_parts, scatter_parts};
    stream_finish(c->stream);
    call->args.link = &link;
    perform(call);
}

static void launch(void *device, struct call call)
{
    struct fake_cuda_context *c = device;
    if (fake_cuda_fails(c)) return;
    call.args.pool = NULL;
    for (int i = 0; i < 6; i++) call.in[i] = real_behind(call.in[i], i == 0 ? call.params_skip : 0);
    for (int i = 0; i < 5; i++) call.out[i] = real_behind(call.out[i], i == 1 ? call.grad_skip : 0);
    for (int i = 0; i < HT_N_SUB_OPS; i++) call.act.of[i] = fake_cuda_real(call.act.of[i]);
    call.act.handed = fake_cuda_real(call.act.handed);
    if (call.args.model && ht_model_parts(call.args.model) > 1)
        perform_part(c, &call);
    else
        stream_do(c->stream, perform, &call, sizeof(call));
}

static void embedding_forward(void *device, const struct ht_unit_args *args, const void *input, const void *params,
                              void *out, void *workspace)
{
    launch(device, (struct call){.kind = E_FORWARD, .args = *args, .in = {input, params}, .out = {out, workspace}});
}

static void embedding_backward(void *device, const struct ht_unit_args *args, const void *input, const void *dout,
                               void *grad, void *workspace)
{
    launch(device, (struct call){.kind = E_BACKWARD, .args = *args, .in = {input, dout}, .out = {grad, workspace}});
}

static const unsigned without_params = 1u << HT_SUB_ATTENTION | 1u << HT_SUB_GELU;

/* Returns the bytes before the first parameter of some sub-ops, in a type. */
static int64_t skip_of(const struct ht_unit_args *args, unsigned sub_ops, enum ht_dtype type)
{
    unsigned front = sub_ops & ~without_params ? ht_front(__builtin_ctz(sub_ops & ~without_params)) : 0;
    return front ? ht_sub_ops_params(args->model, 1, front).end * ht_dtype_bytes(type) : 0;
}

static void block_forward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                          const void *x, const struct ht_block_acts *act, void *out, void *workspace)
{
    if (sub_ops && !(sub_ops & ~without_params)) params = act->of[__builtin_ctz(sub_ops)]; /* nothing is read there */
    launch(device, (struct call){.kind = B_FORWARD,
                                 .args = *args,
                                 .in = {params, x},
                                 .out = {out, workspace},
                                 .sub_ops = sub_ops,
                                 .params_skip = skip_of(args, sub_ops, args->dtype),
                                 .act = *act});
}

static void block_backward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                           const void *x, const struct ht_block_acts *act, const void *dout, void *dx, void *grad,
                           void *workspace)
{
    launch(device, (struct call){.kind = B_BACKWARD,
                                 .args = *args,
                                 .in = {params, x, dout},
                                 .out = {dx, grad, workspace},
                                 .sub_ops = sub_ops,
                                 .params_skip = skip_of(args, sub_ops, args->dtype),
                                 .grad_skip = skip_of(args, sub_ops, args->grad_store),
                                 .act = *act});
}

static void head_forward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                         const void *x, void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                         void *workspace)
{
    launch(device, (struct call){.kind = H_FORWARD,
                                 .args = *args,
                                 .in = {params, wte, x, targets},
                                 .out = {act, logits, loss_sum, workspace},
                                 .scale = scale});
}

static void head_backward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                          const void *x, const void *act, const float *dlogits, void *dx, void *grad, void *dwte,
                          void *workspace)
{
    launch(device, (struct call){.kind = H_BACKWARD,
                                 .args = *args,
                                 .in = {params, wte, x, act, dlogits},
                                 .out = {dx, grad, dwte, workspace}});
}

static void zero(void *device, void *at, int64_t bytes)
{
    launch(device, (struct call){.kind = ZERO, .out = {at}, .n = bytes});
}

static void widen(void *device, void *data, int64_t n, enum ht_dtype type)
{
    launch(device, (struct call){.kind = WIDEN, .out = {data}, .types = {type}, .n = n});
}

static void round_copy(void *device, struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n)
{
    (void)pool;
    launch(device, (struct call){.kind = ROUND, .in = {from}, .out = {to}, .types = {type}, .n = n});
}

static void grad_sum(void *device, struct ht_pool *pool, void *acc, enum ht_dtype acc_type, const void *add_,
                     enum ht_dtype add_type, int64_t n)
{
    (void)pool;
    launch(device, (struct call){.kind = SUM, .in = {add_}, .out = {acc}, .types = {acc_type, add_type}, .n = n});
}

static struct ht_adamw_row real_row(const struct ht_adamw_row *row)
{
    struct ht_adamw_row r = *row;
    r.param = fake_cuda_real(r.param);
    r.m = fake_cuda_real(r.m);
    r.v = fake_cuda_real(r.v);
    r.grad = fake_cuda_real(r.grad);
    r.copy = fake_cuda_real(r.copy);
    return r;
}

static void adamw(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const struct ht_adamw_row *row)
{
    (void)pool;
    launch(device, (struct call){.kind = ADAMW, .step = *step, .row = real_row(row)});
}

/* ---- calls that return a result ---- */

void fake_cuda_grad_check(void *context, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                          int64_t n, void *partial)
{
    launch(context,
           (struct call){.kind = JUDGE, .in = {grad}, .out = {partial}, .types = {type}, .n = n, .step = *step});
}

struct ht_grad_partial fake_cuda_partial_of(const void *partial)
{
    return *(const struct ht_grad_partial *)partial;
}

static struct ht_undo real_undo(const struct ht_undo *u)
{
    struct ht_undo r = *u;
    r.pool = NULL;
    r.row = real_row(&u->row);
    r.log = fake_cuda_real(u->log);
    return r;
}

static void step_logged(void *device, const struct ht_undo *u, const struct ht_adamw_step *step)
{
    launch(device, (struct call){.kind = STEP_LOGGED, .step = *step, .undo = real_undo(u)});
}

struct ht_undo_summary fake_cuda_summary_of(const void *header, int64_t n)
{
    return ht_undo_summary(header, ht_undo_log_bytes(n, 0), n); /* reads the header only */
}

/* Waits, and undoes here. */
static bool undo(void *device, const struct ht_undo *u)
{
    struct fake_cuda_context *c = device;
    struct ht_undo here = real_undo(u);
    if (fake_cuda_fails(c)) return false;
    stream_finish(c->stream);
    return ht_adamw_undo_exact(&here);
}

const struct ht_kernels fake_cuda_kernels = {
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .block_forward = block_forward,
    .block_backward = block_backward,
    .head_forward = head_forward,
    .head_backward = head_backward,
    .copy = kernel_copy,
    .zero = zero,
    .widen = widen,
    .round_copy = round_copy,
    .grad_sum = grad_sum,
    .adamw = adamw,
    .step_logged = step_logged,
    .undo = undo,
};
