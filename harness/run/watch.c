#include "harness/run/watch.h"

#include "common/base/clock.h"
#include "common/schedule/schedule.h"
#include "harness/run/events.h"

enum { PULSE_NS = 250000000 };

/* Says that ops end, unless that was said a moment ago. */
static void pulse(struct ht_watch *w)
{
    int64_t now = ht_now_ns();
    int_fast64_t said = atomic_load_explicit(&w->said_ns, memory_order_relaxed);
    int_fast64_t n = atomic_fetch_add_explicit(&w->n_ended, 1, memory_order_relaxed) + 1;
    if (w->events < 0 || now - said < PULSE_NS || !atomic_compare_exchange_strong(&w->said_ns, &said, now)) return;
    ht_events_say(w->events, "pulse", "\"ops\": %lld", (long long)n);
}

/* Meets the drill if this op is the one. */
static enum ht_status meet(struct ht_watch *w, int32_t iteration, struct ht_error *err)
{
    int64_t step = (int64_t)w->first_iteration + iteration + 1;
    if (w->drill.kind == HT_DRILL_NONE || w->drill.where != HT_DRILL_AT_OP || step < w->drill.step) return HT_OK;
    if (atomic_fetch_add(&w->n_begun, 1) != (w->n_ops ? w->drill.op % w->n_ops : 0)) return HT_OK;
    return ht_drill_meet(&w->drill, HT_DRILL_AT_OP, w->rank, step, err);
}

static enum ht_status watch_open(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    struct ht_watch *w = ctx;
    return w->inner->open(w->inner_ctx, s, err);
}

static void watch_lane_begin(void *ctx, int32_t lane)
{
    struct ht_watch *w = ctx;
    w->inner->lane_begin(w->inner_ctx, lane);
}

static bool watch_has_dedicated_core(void *ctx, int32_t lane)
{
    struct ht_watch *w = ctx;
    return w->inner->has_dedicated_core(w->inner_ctx, lane);
}

static enum ht_status watch_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                                   struct ht_error *err)
{
    struct ht_watch *w = ctx;
    enum ht_status status = meet(w, iteration, err);
    if (status == HT_OK) status = w->inner->run_op(w->inner_ctx, iteration, op, buffers, n, err);
    pulse(w);
    return status;
}

static bool watch_control(void *ctx, int32_t iteration, int32_t op)
{
    struct ht_watch *w = ctx;
    return w->inner->control(w->inner_ctx, iteration, op);
}

static bool watch_is_async(void *ctx, int32_t op)
{
    struct ht_watch *w = ctx;
    return w->inner->is_async(w->inner_ctx, op);
}

static int32_t watch_host_deps(void *ctx, int32_t op, const int32_t **ops)
{
    struct ht_watch *w = ctx;
    return w->inner->host_deps(w->inner_ctx, op, ops);
}

static enum ht_status watch_enqueue(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers,
                                    int32_t n, const struct ht_inst *after, int32_t n_after, struct ht_error *err)
{
    struct ht_watch *w = ctx;
    enum ht_status status = meet(w, iteration, err);
    return status ? status : w->inner->enqueue(w->inner_ctx, iteration, op, buffers, n, after, n_after, err);
}

static enum ht_status watch_wait(void *ctx, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct ht_watch *w = ctx;
    enum ht_status status = w->inner->wait(w->inner_ctx, iteration, op, err);
    pulse(w);
    return status;
}

static void watch_op_times(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns)
{
    struct ht_watch *w = ctx;
    w->inner->op_times(w->inner_ctx, iteration, op, start_ns, end_ns);
}

static void watch_drain(void *ctx)
{
    struct ht_watch *w = ctx;
    w->inner->drain(w->inner_ctx);
}

static void watch_lane_end(void *ctx, int32_t lane)
{
    struct ht_watch *w = ctx;
    w->inner->lane_end(w->inner_ctx, lane);
}

static void watch_close(void *ctx)
{
    struct ht_watch *w = ctx;
    w->inner->close(w->inner_ctx);
}

void ht_watch_begin(struct ht_watch *w)
{
    const struct ht_backend_ops *b = w->inner;
    const struct ht_schedule *s = w->schedule;
    w->n_ops = 0;
    for (int32_t op = 0; op < s->n_ops; op++) w->n_ops += ht_op_rank(s, op) == w->rank && s->ops[op].when == HT_ALWAYS;
    /* an optional function stays one */
    w->ops = (struct ht_backend_ops){.name = b->name,
                                     .open = b->open ? watch_open : NULL,
                                     .lane_begin = b->lane_begin ? watch_lane_begin : NULL,
                                     .has_dedicated_core = b->has_dedicated_core ? watch_has_dedicated_core : NULL,
                                     .run_op = watch_run_op,
                                     .control = b->control ? watch_control : NULL,
                                     .issue_ahead = b->issue_ahead,
                                     .is_async = b->is_async ? watch_is_async : NULL,
                                     .host_deps = b->host_deps ? watch_host_deps : NULL,
                                     .enqueue = b->enqueue ? watch_enqueue : NULL,
                                     .wait = b->wait ? watch_wait : NULL,
                                     .op_times = b->op_times ? watch_op_times : NULL,
                                     .drain = b->drain ? watch_drain : NULL,
                                     .lane_end = b->lane_end ? watch_lane_end : NULL,
                                     .close = b->close ? watch_close : NULL};
}

const struct ht_backend_ops *ht_watch_backend(const struct ht_watch *w)
{
    return &w->ops;
}
