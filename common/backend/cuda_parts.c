/*
 * Tensor-parallel parts on GPUs. Over a transport with collectives of its own (NCCL) the link gets the tensors on the
 * GPUs: each exchange is part of the stream, between the kernels before it and those behind it, and the host goes on as
 * soon as all parts have enqueued it. Sums have the transport's order.
 *
 * Else, or if the backend is to keep the ranks' order of sums, a pass stops where it needs the other parts: what its
 * stream has been given ends, the numbers go to the lane's pinned memory, the CPU backend's link exchanges them by
 * messages, and the result goes back.
 *
 *     kernels | -> pinned | all-reduce in the ranks' order | -> GPU | kernels
 *
 * So parts on GPUs add up as parts on the CPU do. The host waits within the op, which is not enqueued ahead.
 */
#include "common/backend/cuda_parts.h"

#include "common/backend/cuda_comm.h"
#include "common/comm/comm.h"

/* Ends what the stream has been given, unless the exchange is part of the stream. Returns false after a failure, of this
   exchange or before. */
static bool arrive(struct ht_cuda_in_flight *f, bool direct)
{
    if (!f->why) f->why = f->d->api->context_status(f->context);
    if (!f->why && !direct) f->why = f->d->api->stream_finish(f->lane->stream);
    return !f->why;
}

static void copy(struct ht_cuda_in_flight *f, void *to, const void *from, int64_t bytes)
{
    if (!f->why) f->why = f->d->api->copy(to, from, bytes, f->lane->stream);
}

static void sum(void *ctx, void *data, enum ht_dtype type, int64_t n)
{
    const struct ht_cuda_pass *p = ctx;
    int64_t bytes = n * ht_dtype_bytes(type);
    bool direct = ht_cuda_collects(p->f->d);
    void *here = direct ? data : p->f->lane->staging;
    if (!direct) copy(p->f, here, data, bytes);
    if (!arrive(p->f, direct)) return;
    p->between->sum(p->between->ctx, here, type, n);
    if (!direct) copy(p->f, data, here, bytes);
}

/* Gathers pieces of n elements, or scatters them. */
static void move(const struct ht_cuda_pass *p, const void *from, int64_t from_bytes, void *to, int64_t to_bytes,
                 enum ht_dtype type, int64_t n, bool gathers)
{
    bool direct = ht_cuda_collects(p->f->d);
    char *staging = p->f->lane->staging;
    const void *from_here = direct ? from : staging;
    void *to_here = direct ? to : staging + ht_cuda_aligned(from_bytes);
    if (!direct) copy(p->f, staging, from, from_bytes);
    if (!arrive(p->f, direct)) return;
    (gathers ? p->between->gather : p->between->scatter)(p->between->ctx, from_here, to_here, type, n);
    if (!direct) copy(p->f, to, to_here, to_bytes);
}

static void gather(void *ctx, const void *mine, void *all, enum ht_dtype type, int64_t n)
{
    const struct ht_cuda_pass *p = ctx;
    int64_t bytes = n * ht_dtype_bytes(type);
    move(p, mine, bytes, all, bytes * ht_model_parts(p->args.model), type, n, true);
}

static void scatter(void *ctx, const void *all, void *mine, enum ht_dtype type, int64_t n)
{
    const struct ht_cuda_pass *p = ctx;
    int64_t bytes = n * ht_dtype_bytes(type);
    move(p, all, bytes * ht_model_parts(p->args.model), mine, bytes, type, n, false);
}

const struct ht_unit_args *ht_cuda_pass_args(struct ht_cuda_pass *pass, struct ht_cuda_in_flight *f,
                                             const struct ht_unit_args *args)
{
    if (ht_model_parts(args->model) == 1) return args;
    *pass = (struct ht_cuda_pass){.f = f, .between = args->link, .link = {pass, sum, gather, scatter}, .args = *args};
    pass->args.link = &pass->link;
    return &pass->args;
}

struct ht_model ht_cuda_pass_model(const struct ht_cuda_device *d, int32_t op)
{
    const struct ht_work *w = &d->s->works[d->s->ops[op].work];
    struct ht_model m = d->model;
    if (w->tp <= 1) return m;
    m = ht_model_part(&d->model, 0, w->tp);
    m.sequence = w->sequence;
    return m;
}

int64_t ht_cuda_pass_staged_bytes(const struct ht_cuda_device *d, int32_t op)
{
    enum ht_op_kind kind = d->s->ops[op].kind;
    const struct ht_work *w = &d->s->works[d->s->ops[op].work];
    bool passes = kind == HT_OP_FORWARD || kind == HT_OP_RECOMPUTE || kind == HT_OP_BACKWARD;
    if (!passes || w->tp <= 1) return 0;
    struct ht_model m = ht_cuda_pass_model(d, op);
    int64_t rows = w->batch * w->seq, row = m.width * ht_dtype_bytes(d->param), pair = 2 * (int64_t)sizeof(float);
    int64_t stream = ht_cuda_aligned(rows * row) + ht_cuda_aligned(ht_model_rows(&m, rows) * row);
    int64_t head = ht_cuda_aligned(rows * pair) + ht_cuda_aligned(w->tp * rows * pair); /* log-sum-exp and logit */
    int64_t norm = ht_cuda_aligned(m.width * (int64_t)sizeof(float)), most = stream > head ? stream : head;
    return most > norm ? most : norm;
}
