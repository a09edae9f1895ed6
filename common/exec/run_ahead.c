#include "common/exec/run_ahead.h"

#include "common/base/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct issuer {
    struct ht_ahead *ahead;
    int32_t lane;
    bool started;
    pthread_t thread;
    pthread_cond_t work, enqueued;
    struct ht_inst *queue; /* issued and not enqueued, oldest first */
    size_t n_queue, queue_cap;
    int64_t cursor; /* how many dependencies of queue[0] are known to be enqueued or ended */
    /* The op that the issuer enqueues. */
    bool busy;
    struct ht_inst inst;
    struct ht_buffer *buffers;
    int32_t n_buffers;
    struct ht_inst *after;
    size_t n_after, after_cap;
    /* The first error of an enqueue. Nothing is enqueued after it. */
    enum ht_status status;
    struct ht_error error;
};

struct ht_ahead {
    struct ht_ahead_options o;
    struct issuer **issuers; /* [n_lanes]; NULL: the lane has no async op */
    bool *is_async;          /* [n_ops] */
    int32_t *enqueued;       /* [n_ops]: the last iteration of which the op was enqueued, or -1 */
    bool has_groups, over;
};

static bool has_ended(const struct ht_ahead *a, struct ht_inst inst)
{
    return inst.iteration < 0 || ht_core_has_ended(a->o.core, inst);
}

/* Returns true when a device of the rank can wait for the op, or need not. */
static bool is_enqueued(const struct ht_ahead *a, struct ht_inst inst, int32_t rank)
{
    bool same = ht_op_rank(a->o.schedule, inst.op) == rank;
    return (same && a->enqueued[inst.op] >= inst.iteration) || has_ended(a, inst);
}

/* Returns true when all host dependencies of the op have ended. */
static bool host_deps_ended(const struct ht_ahead *a, struct ht_inst inst)
{
    const int32_t *ops;
    int32_t n = a->o.backend->host_deps ? a->o.backend->host_deps(a->o.backend_ctx, inst.op, &ops) : 0;
    for (int32_t i = 0; i < n; i++)
        if (!has_ended(a, (struct ht_inst){inst.iteration - 1, ops[i]})) return false;
    return true;
}

/* Writes the i-th dependency, counting those in this iteration, then those in the previous one. Returns false past the
   last. */
static bool dependency(const struct ht_schedule *s, struct ht_inst inst, int64_t i, struct ht_inst *out)
{
    int64_t same = s->deps_begin[inst.op + 1] - s->deps_begin[inst.op];
    int64_t prev = inst.iteration ? s->prev_begin[inst.op + 1] - s->prev_begin[inst.op] : 0;
    if (i < same)
        *out = (struct ht_inst){inst.iteration, s->deps[s->deps_begin[inst.op] + i]};
    else if (i < same + prev)
        *out = (struct ht_inst){inst.iteration - 1, s->prev[s->prev_begin[inst.op] + i - same]};
    else
        return false;
    return true;
}

static void drop_oldest(struct issuer *x)
{
    x->n_queue--;
    memmove(x->queue, x->queue + 1, sizeof(*x->queue) * x->n_queue);
    x->cursor = 0;
}

/* Lists the ops that the stream has to wait for. Ops of its own lane come before it anyway. */
static void list_after(struct issuer *x)
{
    const struct ht_schedule *s = x->ahead->o.schedule;
    struct ht_inst d;
    x->n_after = 0;
    for (int64_t i = 0; dependency(s, x->inst, i, &d); i++)
        if (s->ops[d.op].lane != x->lane && !has_ended(x->ahead, d)) HT_PUSH(x->after, x->n_after, x->after_cap, d);
}

static void hand_over(struct issuer *x)
{
    struct ht_ahead *a = x->ahead;
    x->inst = x->queue[0];
    drop_oldest(x);
    enum ht_status status = ht_slots_resolve(a->o.slots, x->inst, x->buffers, &x->n_buffers, &x->error);
    if (status) {
        x->status = status;
        pthread_cond_broadcast(&x->enqueued);
        return;
    }
    list_after(x);
    x->busy = true;
    pthread_cond_signal(&x->work);
}

static void advance(struct issuer *x)
{
    struct ht_ahead *a = x->ahead;
    int32_t rank = a->o.schedule->lanes[x->lane].rank;
    struct ht_inst d;
    while (!x->busy && !x->status && x->n_queue) {
        if (!a->is_async[x->queue[0].op]) {
            if (!has_ended(a, x->queue[0])) return;
            drop_oldest(x);
            continue;
        }
        for (; dependency(a->o.schedule, x->queue[0], x->cursor, &d); x->cursor++)
            if (!is_enqueued(a, d, rank)) return;
        if (!host_deps_ended(a, x->queue[0])) return;
        hand_over(x);
    }
}

void ht_ahead_advance(struct ht_ahead *a)
{
    for (int32_t lane = 0; a && lane < a->o.schedule->n_lanes; lane++)
        if (a->issuers[lane]) advance(a->issuers[lane]);
}

bool ht_ahead_is_async(const struct ht_ahead *a, int32_t op)
{
    return a && a->is_async[op];
}

bool ht_ahead_has_groups(const struct ht_ahead *a)
{
    return a && a->has_groups;
}

void ht_ahead_issued(struct ht_ahead *a, struct ht_inst inst)
{
    struct issuer *x = a ? a->issuers[a->o.schedule->ops[inst.op].lane] : NULL;
    if (x) HT_PUSH(x->queue, x->n_queue, x->queue_cap, inst);
}

enum ht_status ht_ahead_wait(struct ht_ahead *a, struct ht_inst inst, struct ht_error *err)
{
    struct issuer *x = a->issuers[a->o.schedule->ops[inst.op].lane];
    pthread_mutex_lock(a->o.lock);
    /* The op has started, so everything before it has ended, and its issuer can enqueue it. */
    while (a->enqueued[inst.op] < inst.iteration && !x->status) pthread_cond_wait(&x->enqueued, a->o.lock);
    bool enqueued = a->enqueued[inst.op] >= inst.iteration;
    if (!enqueued) *err = x->error;
    enum ht_status status = enqueued ? HT_OK : x->status;
    pthread_mutex_unlock(a->o.lock);
    return enqueued ? a->o.backend->wait(a->o.backend_ctx, inst.iteration, inst.op, err) : status;
}

static void *issuer_main(void *arg)
{
    struct issuer *x = arg;
    struct ht_ahead *a = x->ahead;
    pthread_mutex_lock(a->o.lock);
    for (;;) {
        while (!x->busy && !a->over) pthread_cond_wait(&x->work, a->o.lock);
        if (!x->busy) break;
        pthread_mutex_unlock(a->o.lock);
        struct ht_error error = {0};
        enum ht_status status = a->o.backend->enqueue(a->o.backend_ctx, x->inst.iteration, x->inst.op, x->buffers,
                                                      x->n_buffers, x->after, (int32_t)x->n_after, &error);
        pthread_mutex_lock(a->o.lock);
        x->busy = false;
        if (status) {
            x->status = status;
            x->error = error;
        } else {
            a->enqueued[x->inst.op] = x->inst.iteration;
        }
        pthread_cond_broadcast(&x->enqueued);
        ht_ahead_advance(a);
    }
    pthread_mutex_unlock(a->o.lock);
    return NULL;
}

static struct issuer *make_issuer(struct ht_ahead *a, int32_t lane)
{
    struct issuer *x = HT_NEW(struct issuer);
    x->ahead = a;
    x->lane = lane;
    x->buffers = HT_NEW_ARRAY(struct ht_buffer, ht_slots_max_effects(a->o.slots));
    pthread_cond_init(&x->work, NULL);
    pthread_cond_init(&x->enqueued, NULL);
    return x;
}

enum ht_status ht_ahead_create(const struct ht_ahead_options *options, struct ht_error *err, struct ht_ahead **out)
{
    const struct ht_schedule *s = options->schedule;
    const struct ht_backend_ops *b = options->backend;
    *out = NULL;
    if (!b->enqueue) return HT_OK;
    struct ht_ahead *a = HT_NEW(struct ht_ahead);
    a->o = *options;
    a->issuers = HT_NEW_ARRAY(struct issuer *, s->n_lanes);
    a->is_async = HT_NEW_ARRAY(bool, s->n_ops);
    a->enqueued = HT_NEW_ARRAY(int32_t, s->n_ops);
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t lane = s->ops[op].lane;
        a->enqueued[op] = -1;
        a->is_async[op] = b->is_async(options->backend_ctx, op);
        a->has_groups |= a->is_async[op] && s->ops[op].match >= 0;
        if (a->is_async[op] && !a->issuers[lane]) a->issuers[lane] = make_issuer(a, lane);
    }
    for (int32_t lane = 0; lane < s->n_lanes; lane++) {
        struct issuer *x = a->issuers[lane];
        if (!x) continue;
        int rc = pthread_create(&x->thread, NULL, issuer_main, x);
        x->started = rc == 0;
        if (x->started) continue;
        ht_ahead_destroy(a);
        return ht_fail(err, HT_INFEASIBLE, "cannot start a thread for lane '%s': %s", s->lanes[lane].name,
                       strerror(rc));
    }
    *out = a;
    return HT_OK;
}

void ht_ahead_destroy(struct ht_ahead *a)
{
    if (!a) return;
    pthread_mutex_lock(a->o.lock);
    a->over = true;
    for (int32_t i = 0; i < a->o.schedule->n_lanes; i++)
        if (a->issuers[i]) pthread_cond_signal(&a->issuers[i]->work);
    pthread_mutex_unlock(a->o.lock);
    for (int32_t i = 0; i < a->o.schedule->n_lanes; i++) {
        struct issuer *x = a->issuers[i];
        if (x && x->started) pthread_join(x->thread, NULL);
    }
    /* After a run that ended early, enqueued ops may still use memory that is about to be freed. */
    if (a->o.backend->drain) a->o.backend->drain(a->o.backend_ctx);
    for (int32_t i = 0; i < a->o.schedule->n_lanes; i++) {
        struct issuer *x = a->issuers[i];
        if (!x) continue;
        pthread_cond_destroy(&x->work);
        pthread_cond_destroy(&x->enqueued);
        free(x->queue);
        free(x->buffers);
        free(x->after);
        free(x);
    }
    free(a->issuers);
    free(a->is_async);
    free(a->enqueued);
    free(a);
}
