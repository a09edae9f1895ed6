/* Enqueues ops on the GPU, and waits for them. */
#include "common/backend/cuda.h"

#include "common/backend/cpu_call.h"
#include "common/backend/cuda_clock.h"
#include "common/backend/cuda_comm.h"
#include "common/backend/cuda_open.h"
#include "common/backend/cuda_results.h"
#include "common/base/array.h"
#include "common/comm/comm.h"
#include "common/exec/core.h"

#include <unistd.h>

static struct ht_cuda_in_flight *in_flight_of(struct ht_cuda_device *d, int32_t iteration, int32_t op)
{
    return &d->in_flight[(int64_t)op * HT_CUDA_TURNS + iteration % HT_CUDA_TURNS];
}

/* Returns true for all ops on streams, of any rank, but UNDO, which has a `when`, so that it is not known beforehand
   whether it runs, and those that talk to other ranks through the host. */
static bool is_async(void *ctx, int32_t op)
{
    const struct ht_cuda_device *d = ctx;
    const struct ht_op *o = &d->s->ops[op];
    if (!ht_cuda_is_stream(d->s->lanes[o->lane].kind) || o->kind == HT_OP_UNDO) return false;
    if (ht_cuda_communicates(d->s, op)) return ht_cuda_comm_is_direct(d, op);
    return d->s->works[o->work].tp <= 1 || ht_cuda_collects(d);
}

static int32_t host_deps(void *ctx, int32_t op, const int32_t **ops)
{
    const struct ht_cuda_device *d = ctx;
    *ops = d->host_deps[op].ops;
    return (int32_t)d->host_deps[op].n;
}

static void keep_buffers(struct ht_cuda_in_flight *f, const struct ht_buffer *buffers, int32_t n)
{
    if (!f->buffers) f->buffers = HT_NEW_ARRAY(struct ht_buffer, n);
    if (!f->host_results) f->host_results = HT_NEW_ARRAY(struct ht_cuda_result, f->results->max_results);
    for (int32_t i = 0; i < n; i++) f->buffers[i] = buffers[i];
    f->n_buffers = n;
}

/* Collects the results of an op that has ended on the device. */
static enum ht_status collect(struct ht_cuda_in_flight *f, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct ht_cuda_device *d = f->d;
    ht_cuda_collect_results(f);
    if (!ht_cuda_is_finalized(d->s, op)) return HT_OK;
    f->why = NULL;
    enum ht_status status =
        ht_cpu_finalize_on(d->cpu, &ht_cuda_collect_kernels, f, iteration, op, f->buffers, f->n_buffers, err);
    return f->why ? ht_cuda_failed_op(d, op, f->why, err) : status;
}

/* Enqueues the op, by the CPU backend's own code with the device's kernels. */
static enum ht_status launch(struct ht_cuda_in_flight *f, int32_t iteration, int32_t op,
                             const struct ht_buffer *buffers, int32_t n, struct ht_error *err)
{
    struct ht_cuda_device *d = f->d;
    char label[64];
    f->n_results = 0;
    f->why = NULL;
    if (ht_cuda_is_finalized(d->s, op)) keep_buffers(f, buffers, n);
    if (d->api->mark_begin) d->api->mark_begin(ht_op_label(d->s, op, label, sizeof(label)));
    enum ht_status status =
        ht_cpu_run_on(d->cpu, &ht_cuda_enqueue_kernels, f, f->lane->comm, iteration, op, buffers, n, err);
    if (d->api->mark_end) d->api->mark_end();
    const char *why = d->api->context_status(f->context); /* the cause, which goes before an error of the op */
    if (!why) why = f->why;
    return why ? ht_cuda_failed_op(d, op, why, err) : status;
}

static const char *prepare(struct ht_cuda_device *d, struct ht_cuda_in_flight *f)
{
    const char *why = d->api->select(d->index);
    if (!why && !f->begin) why = d->api->event_create(&f->begin);
    if (!why && !f->end) why = d->api->event_create(&f->end);
    return why;
}

static enum ht_status enqueue(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                              const struct ht_inst *after, int32_t n_after, struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    struct ht_cuda_in_flight *f = in_flight_of(d, iteration, op);
    void *stream = d->lanes[d->s->ops[op].lane].stream;
    const char *why = prepare(d, f);
    for (int32_t i = 0; i < n_after && !why; i++)
        why = d->api->stream_wait(stream, in_flight_of(d, after[i].iteration, after[i].op)->end);
    if (!why) why = d->api->event_record(f->begin, stream);
    if (why) return ht_cuda_failed_op(d, op, why, err);
    enum ht_status status = launch(f, iteration, op, buffers, n, err);
    if (status) return status;
    return ht_cuda_failed_op(d, op, d->api->event_record(f->end, stream), err);
}

/* Waits for the op's end: polls for POLL_NS, then sleeps until the driver's interrupt, which takes tens of microseconds
   to reach this thread. Copies, gradient checks and small kernels end while it polls. For a longer op an interrupt adds
   little, and host lanes have its core meanwhile. It keeps a core for at most POLL_NS per op. It does not yield in
   between: when all cores are busy, the scheduler returns a yielded core only after others' turns of a millisecond, for
   which a sleeping thread need not wait. Between two polls the driver's locks are free for ASK_NS, since other threads
   enqueue ops meanwhile. Where a stream may wait for another rank's GPU the interrupt may never come: the thread then
   asks now and then, also whether the job has failed. */
static const char *wait_for_end(const struct ht_cuda_device *d, void *event)
{
    enum { POLL_NS = 100000, ASK_NS = 1000, LONGEST_NAP_US = 200 };
    unsigned nap_us = 20;
    bool meets_ranks = d->comm && d->comm->ops->on_gpu;
    int64_t until = ht_cuda_now_ns() + POLL_NS;
    for (;;) {
        bool reached = false;
        const char *why = d->api->event_reached(event, &reached);
        if (why || reached) return why;
        int64_t now = ht_cuda_now_ns();
        if (now < until) {
            while (ht_cuda_now_ns() < now + ASK_NS) continue;
            continue;
        }
        if (!meets_ranks) return d->api->event_finish(event);
        if ((why = ht_cuda_comm_lost(d))) return why;
        usleep(nap_us);
        nap_us = 2 * nap_us < LONGEST_NAP_US ? 2 * nap_us : LONGEST_NAP_US;
    }
}

static enum ht_status wait_op(void *ctx, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    struct ht_cuda_in_flight *f = in_flight_of(d, iteration, op);
    const char *why = wait_for_end(d, f->end);
    if (why && ht_cuda_comm_lost(d)) return ht_fail(err, HT_FAILED, "rank %d: %s", d->rank, why);
    if (why) return ht_cuda_failed_op(d, op, why, err);
    return collect(f, iteration, op, err);
}

/* Returns true if any buffer is on the device. */
static bool on_device(const struct ht_buffer *buffers, int32_t n)
{
    bool any = false;
    for (int32_t i = 0; i < n; i++) any |= buffers[i].tier == HT_DEVICE;
    return any;
}

/* Runs an op that is not enqueued: those that talk to other ranks through the host, UNDO, and those on host lanes, with
   the CPU's kernels, except copies, which may be from or to the device. */
static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct ht_cuda_device *d = ctx;
    const struct ht_cuda_lane *lane = &d->lanes[d->s->ops[op].lane];
    if (ht_cuda_communicates(d->s, op)) return ht_cuda_comm_run(d, iteration, op, buffers, n, err);
    /* On a host or disk lane only a copy from or to the device needs a stream. */
    if (!lane->is_stream && (d->s->ops[op].kind != HT_OP_COPY || !on_device(buffers, n)))
        return ht_cpu_backend.run_op(d->cpu, iteration, op, buffers, n, err);
    struct ht_cuda_in_flight *f = in_flight_of(d, iteration, op), aside = *f;
    bool on_side = !lane->is_stream;
    enum ht_status status = ht_cuda_failed(d->api->select(d->index), "the GPU", err);
    if (status) return status;
    if (on_side) {
        pthread_mutex_lock(&d->side_lock);
        f = &aside;
        f->context = d->side.context;
    }
    status = launch(f, iteration, op, buffers, n, err);
    const char *why = d->api->stream_finish(on_side ? d->side.stream : lane->stream);
    if (on_side) pthread_mutex_unlock(&d->side_lock);
    if (status == HT_OK) status = ht_cuda_failed_op(d, op, why, err);
    return status == HT_OK ? collect(f, iteration, op, err) : status;
}

static bool control(void *ctx, int32_t iteration, int32_t op)
{
    return ht_cpu_backend.control(((struct ht_cuda_device *)ctx)->cpu, iteration, op);
}

static void op_times(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns)
{
    struct ht_cuda_device *d = ctx;
    ht_cuda_clock_times(d, in_flight_of(d, iteration, op), start_ns, end_ns);
}

/* Waits until a stream has ended although the job has failed: the transport aborts what waits for other ranks. Returns
   false if it has not ended by then. */
static bool ends_after_failure(struct ht_cuda_device *d, void *stream, int64_t until_ns)
{
    enum { NAP_US = 100 };
    void *end = NULL;
    bool reached = false;
    const char *why = d->api->event_create(&end);
    if (!why) why = d->api->event_record(end, stream);
    while (!why && !reached && ht_cuda_now_ns() < until_ns) {
        why = d->api->event_reached(end, &reached);
        if (!reached) usleep(NAP_US);
    }
    if (end && (why || reached)) (void)d->api->event_destroy(end);
    return why || reached;
}

static void drain(void *ctx)
{
    enum { PATIENCE_S = 5 };
    struct ht_cuda_device *d = ctx;
    int64_t until = ht_cuda_now_ns() + PATIENCE_S * INT64_C(1000000000);
    for (int32_t i = 0; i < d->s->n_lanes; i++) {
        if (!d->lanes[i].is_stream) continue;
        if (!ht_cuda_comm_lost(d))
            (void)d->api->stream_finish(d->lanes[i].stream);
        else
            d->is_stuck |= !ends_after_failure(d, d->lanes[i].stream, until);
    }
}

static void lane_begin(void *ctx, int32_t lane)
{
    struct ht_cuda_device *d = ctx;
    (void)d->api->select(d->index);
    if (!d->lanes[lane].is_stream) ht_cpu_backend.lane_begin(d->cpu, lane);
}

const struct ht_backend_ops ht_cuda_backend = {
    .name = "cuda",
    .open = ht_cuda_open,
    .lane_begin = lane_begin,
    .run_op = run_op,
    .control = control,
    .issue_ahead = 2,
    .is_async = is_async,
    .host_deps = host_deps,
    .enqueue = enqueue,
    .wait = wait_op,
    .op_times = op_times,
    .drain = drain,
    .close = ht_cuda_close,
};
