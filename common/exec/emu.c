#include "common/exec/emu.h"

#include "common/base/array.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { OVERRAN_PERCENT_ALLOWED = 1 };

struct ht_emu {
    struct ht_emu_options o;
    struct ht_backend_ops ops;
    int64_t *cost_ns;
    struct ht_broker_table *table, *own_table;
    struct ht_broker *broker; /* of own_table */
    pthread_mutex_t lock;     /* of the verdict */
    struct ht_emu_verdict verdict;
};

static enum ht_status open_emu(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    struct ht_emu *e = ctx;
    return e->o.inner->open ? e->o.inner->open(e->o.inner_ctx, s, err) : HT_OK;
}

static void lane_begin(void *ctx, int32_t lane)
{
    struct ht_emu *e = ctx;
    if (e->o.inner->lane_begin) e->o.inner->lane_begin(e->o.inner_ctx, lane);
}

static void lane_end(void *ctx, int32_t lane)
{
    struct ht_emu *e = ctx;
    if (e->o.inner->lane_end) e->o.inner->lane_end(e->o.inner_ctx, lane);
}

static bool control(void *ctx, int32_t iteration, int32_t op)
{
    struct ht_emu *e = ctx;
    return !e->o.inner->control || e->o.inner->control(e->o.inner_ctx, iteration, op);
}

static void close_emu(void *ctx)
{
    struct ht_emu *e = ctx;
    if (e->o.inner->close) e->o.inner->close(e->o.inner_ctx);
}

static void take_down(struct ht_emu *e, int32_t op, int64_t late_ns)
{
    double share = (double)late_ns / ((double)e->cost_ns[op] * e->o.scale);
    pthread_mutex_lock(&e->lock);
    e->verdict.n_ops++;
    e->verdict.n_overran += late_ns > 0;
    if (share > e->verdict.worst) {
        e->verdict.worst = share;
        e->verdict.worst_op = op;
    }
    pthread_mutex_unlock(&e->lock);
}

static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct ht_emu *e = ctx;
    const struct ht_schedule *s = e->o.schedule;
    /* A member of a group that costs nothing itself still ends with the others. */
    bool held = e->cost_ns[op] > 0 || s->ops[op].match >= 0 || s->uses_begin[op] < s->uses_begin[op + 1];
    if (!held) return e->o.inner->run_op(e->o.inner_ctx, iteration, op, buffers, n, err);
    int32_t lane = s->ops[op].lane;
    ht_broker_begin(e->table, lane, iteration, op);
    enum ht_status status = e->o.inner->run_op(e->o.inner_ctx, iteration, op, buffers, n, err);
    if (status) return status; /* the run is over */
    int64_t late_ns = ht_broker_end(e->table, lane);
    if (e->cost_ns[op] > 0) take_down(e, op, late_ns);
    return HT_OK;
}

enum ht_status ht_emu_create(const struct ht_emu_options *options, struct ht_error *err, struct ht_emu **out)
{
    *out = NULL;
    struct ht_emu *e = HT_NEW(struct ht_emu);
    const struct ht_schedule *s = options->schedule;
    e->o = *options;
    e->ops = *options->inner;
    e->ops.open = open_emu;
    e->ops.lane_begin = lane_begin;
    e->ops.lane_end = lane_end;
    e->ops.run_op = run_op;
    e->ops.control = control;
    e->ops.close = close_emu;
    e->ops.owns_core = NULL; /* lanes wait for the clock; none is to spin */
    e->verdict.worst_op = -1;
    pthread_mutex_init(&e->lock, NULL);
    e->cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    memcpy(e->cost_ns, options->cost_ns, (size_t)s->n_ops * sizeof(*e->cost_ns));
    e->table = options->table;
    enum ht_status status = HT_OK;
    if (!e->table) {
        size_t bytes = ((size_t)ht_broker_table_bytes(s->n_lanes) + 63) & ~(size_t)63;
        void *memory = aligned_alloc(64, bytes);
        if (!memory) abort();
        memset(memory, 0, bytes);
        e->table = e->own_table = ht_broker_table_init(memory, s->n_lanes);
        status = ht_broker_start(s, e->cost_ns, options->scale, e->table, err, &e->broker);
    }
    if (status != HT_OK) {
        ht_emu_destroy(e);
        return status;
    }
    *out = e;
    return HT_OK;
}

void ht_emu_destroy(struct ht_emu *e)
{
    if (!e) return;
    ht_broker_stop(e->broker);
    free(e->own_table);
    free(e->cost_ns);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

const struct ht_backend_ops *ht_emu_backend(const struct ht_emu *e)
{
    return &e->ops;
}

static void rescale(const struct ht_emu *e, int64_t *ns)
{
    *ns = (int64_t)((double)*ns / e->o.scale);
}

void ht_emu_rescale(const struct ht_emu *e, struct ht_trace *t)
{
    rescale(e, &t->end_ns);
    for (int32_t k = 0; k < t->iterations; k++) rescale(e, &t->iteration_end_ns[k]);
    for (int64_t i = 0; i < t->n_events; i++) {
        rescale(e, &t->events[i].issue_ns);
        rescale(e, &t->events[i].start_ns);
        rescale(e, &t->events[i].end_ns);
    }
    t->clock = HT_CLOCK_EMU;
}

struct ht_emu_verdict ht_emu_verdict(const struct ht_emu *e)
{
    struct ht_emu_verdict v = e->verdict;
    v.valid = v.n_overran * 100 <= v.n_ops * OVERRAN_PERCENT_ALLOWED;
    return v;
}
