#include "common/exec/emu.h"

#include "common/base/array.h"
#include "common/schedule/residency.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { OVERRAN_PERCENT_ALLOWED = 1 };

struct ht_emu {
    struct ht_emu_options o;
    struct ht_backend_ops ops;
    int64_t *cost_ns;
    struct ht_pacer_table *table, *own_table;
    struct ht_pacer *pacer; /* serves own_table */
    pthread_mutex_t lock;   /* guards overruns */
    struct ht_emu_overruns overruns;
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

static void record_overrun(struct ht_emu *e, int32_t op, int64_t late_ns)
{
    double share = (double)late_ns / ((double)e->cost_ns[op] * e->o.scale);
    pthread_mutex_lock(&e->lock);
    e->overruns.n_ops++;
    e->overruns.n_overran += late_ns > 0;
    if (share > e->overruns.worst) {
        e->overruns.worst = share;
        e->overruns.worst_op = op;
    }
    pthread_mutex_unlock(&e->lock);
}

static enum ht_status run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err)
{
    struct ht_emu *e = ctx;
    const struct ht_schedule *s = e->o.schedule;
    /* A member of a group without a cost of its own still ends with the others. */
    bool held = e->cost_ns[op] > 0 || s->ops[op].match >= 0 || s->uses_begin[op] < s->uses_begin[op + 1];
    if (!held) return e->o.inner->run_op(e->o.inner_ctx, iteration, op, buffers, n, err);
    int32_t lane = s->ops[op].lane;
    ht_pacer_begin(e->table, lane, iteration, op);
    enum ht_status status = e->o.inner->run_op(e->o.inner_ctx, iteration, op, buffers, n, err);
    if (status) { /* the run is over */
        ht_pacer_cancel(e->table);
        return status;
    }
    int64_t late_ns = ht_pacer_end(e->table, lane, e->o.cancelled);
    if (e->cost_ns[op] > 0) record_overrun(e, op, late_ns);
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
    e->ops.has_dedicated_core = NULL; /* lanes wait for the clock, so none should spin */
    e->overruns.worst_op = -1;
    pthread_mutex_init(&e->lock, NULL);
    e->cost_ns = HT_NEW_ARRAY(int64_t, s->n_ops);
    memcpy(e->cost_ns, options->cost_ns, (size_t)s->n_ops * sizeof(*e->cost_ns));
    e->table = options->table;
    enum ht_status status = HT_OK;
    if (!e->table) {
        void *memory = ht_alloc_aligned(64, (size_t)ht_pacer_table_bytes(s->n_lanes));
        e->table = e->own_table = ht_pacer_table_init(memory, s->n_lanes);
        status = ht_pacer_start(s, e->cost_ns, options->scale, e->table, NULL, err, &e->pacer);
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
    ht_pacer_stop(e->pacer);
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

static bool is_valid(const struct ht_emu_overruns *v)
{
    return v->n_overran * 100 <= v->n_ops * OVERRAN_PERCENT_ALLOWED;
}

struct ht_emu_overruns ht_emu_overruns(const struct ht_emu *e)
{
    struct ht_emu_overruns v = e->overruns;
    v.valid = is_valid(&v);
    return v;
}

void ht_emu_add_overruns(struct ht_emu_overruns *v, const struct ht_emu_overruns *other)
{
    v->n_ops += other->n_ops;
    v->n_overran += other->n_overran;
    if (other->worst > v->worst) {
        v->worst = other->worst;
        v->worst_op = other->worst_op;
    }
    v->valid = is_valid(v);
}

/* ---- the fitting scale ------------------------------------------------------------------------------------------ */

/* Returns the time from the last begin to the last end of the group's ops; INT64_MAX when it was skipped. */
static int64_t group_ns(const struct ht_trace_event *events, int32_t first, int32_t end)
{
    int64_t begin_ns = 0, end_ns = 0;
    for (int32_t op = first; op < end; op++) {
        if (events[op].grant_seq < 0) return INT64_MAX;
        if (events[op].start_ns > begin_ns) begin_ns = events[op].start_ns;
        if (events[op].end_ns > end_ns) end_ns = events[op].end_ns;
    }
    return end_ns - begin_ns;
}

double ht_emu_fitting_scale(const struct ht_trace *t, const int64_t *cost_ns)
{
    const struct ht_schedule *s = t->schedule;
    double scale = 0;
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        int64_t shortest = INT64_MAX, modelled = 0;
        end = ht_group_end(s, first);
        for (int32_t op = first; op < end; op++)
            if (cost_ns[op] > modelled) modelled = cost_ns[op];
        for (int32_t k = 0; k < t->iterations; k++) {
            int64_t ns = group_ns(t->events + (int64_t)k * s->n_ops, first, end);
            if (ns < shortest) shortest = ns;
        }
        if (modelled == 0 || shortest == INT64_MAX) continue;
        if ((double)shortest / (double)modelled > scale) scale = (double)shortest / (double)modelled;
    }
    return scale;
}
