/*
 * Threads and hand-over of the real executor.
 *
 * One mutex guards the core, the slots and the fields of struct run that say so. A lane's thread waits at its own futex
 * word for one of two commands:
 *
 *     WAITING --> (spin) --> ASLEEP       by the lane, before it sleeps on the word
 *     WAITING, ASLEEP --> GO              by the thread that ended the op this lane waited for; lane->inst and
 *                                         lane->buffers are filled in, so the lane runs the op without any lock
 *     WAITING, ASLEEP --> EXIT            when the run is over
 *
 * Words are set under the lock, but sleepers are woken after it is released, so that they do not run into it. A lane
 * that has just ended an op needs no command for its next one: it gives itself the op in the same critical section.
 *
 * A run is over when the core is done, when something failed, or when it is interrupted. From then on nothing is
 * issued. Idle lanes get EXIT; busy lanes end their op and find out by themselves.
 */
#include "common/exec/run.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/futex.h"
#include "common/base/interrupt.h"
#include "common/exec/core.h"
#include "common/exec/node_link.h"
#include "common/exec/run_ahead.h"
#include "common/exec/run_slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 50000 }; /* measured: bench/bench_exec.c */
enum word { WAITING, ASLEEP, GO, EXIT };

struct run;

struct lane {
    _Alignas(64) atomic_uint word;
    _Alignas(64) struct run *run;
    int32_t id;
    bool has_dedicated_core;
    bool busy;                 /* has an op to run; under the lock */
    struct ht_inst inst;       /* the op to run */
    struct ht_buffer *buffers; /* and its effects */
    int32_t n_buffers;
    struct lane **wake; /* [n_lanes] scratch: lanes to wake when the lock is released */
    int32_t n_wake;
    pthread_t thread;
    struct ht_error error; /* of the op */
};

struct run {
    const struct ht_schedule *s;
    const struct ht_run_options *o;
    struct ht_trace *trace;
    int64_t begin_ns;
    struct lane *lanes;    /* [n_lanes], and two that only wake others: */
    struct lane *main;     /* for the calling thread */
    struct lane *receiver; /* for the thread that receives other nodes' messages */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t all_begun;
    int32_t n_begun; /* lanes whose thread has begun */
    struct ht_core *core;
    struct ht_slots *slots;
    struct ht_ahead *ahead; /* NULL: no lane is a stream */
    int32_t n_busy;
    bool over, cut;        /* cut: interrupted with other nodes; all agree on the iterations to finish */
    struct ht_error error; /* why it is over; HT_OK: everything is done */
    int32_t n_reported;    /* iterations 0 .. n_reported - 1 have ended and were reported to iteration_done */
    bool reporting;        /* a thread is in iteration_done */
};

static int64_t now_ns(const struct run *r)
{
    return ht_now_ns() - r->begin_ns;
}

static struct ht_trace_event *event_of(struct run *r, struct ht_inst i)
{
    return &r->trace->events[(int64_t)i.iteration * r->s->n_ops + i.op];
}

/* ---- commands to lanes ------------------------------------------------------------------------------------------ */

/* Sets a lane's word; lists the lane in by->wake when it sleeps. Locked. */
static void command(struct lane *by, struct lane *to, enum word word)
{
    if (atomic_exchange_explicit(&to->word, word, memory_order_acq_rel) == ASLEEP) by->wake[by->n_wake++] = to;
}

/* Wakes the listed lanes, after the lock is released. A lane may have seen its command already; then the wake-up is
   spurious. */
static void wake_sleepers(struct lane *by)
{
    for (int32_t i = 0; i < by->n_wake; i++) ht_futex_wake(&by->wake[i]->word, 1);
    by->n_wake = 0;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until the word changes, for about twice what waking a sleeper costs. Only for a lane with a core of its own. */
static unsigned spin(struct lane *l)
{
    enum { CHECKS_A_LOOK = 64 };
    int64_t until = ht_now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < CHECKS_A_LOOK; i++) {
            unsigned word = atomic_load_explicit(&l->word, memory_order_acquire);
            if (word != WAITING) return word;
            relax();
        }
    } while (ht_now_ns() < until);
    return WAITING;
}

/* Blocks until the lane gets GO or EXIT, and returns it. */
static enum word wait_for_command(struct lane *l)
{
    unsigned word = l->has_dedicated_core ? spin(l) : WAITING;
    if (word == WAITING &&
        atomic_compare_exchange_strong_explicit(&l->word, &word, ASLEEP, memory_order_acq_rel, memory_order_acquire))
        word = ASLEEP;
    while (word == ASLEEP) {
        ht_futex_wait(&l->word, ASLEEP);
        word = atomic_load_explicit(&l->word, memory_order_acquire);
    }
    if (word == GO) atomic_store_explicit(&l->word, WAITING, memory_order_relaxed);
    return word;
}

/* ---- decisions, under the lock --------------------------------------------------------------------------------- */

/* Ends the run: nothing is issued any more. `why` NULL: everything is done. Keeps the first error, but a real error
   replaces HT_INTERRUPTED. */
static void end_run(struct run *r, struct lane *self, const struct ht_error *why)
{
    bool first = r->error.status == HT_OK, worse = why && r->error.status == HT_INTERRUPTED;
    if (why && (first || (worse && why->status != HT_INTERRUPTED))) r->error = *why;
    if (r->over) return;
    r->over = true;
    if (why && ht_ahead_has_groups(r->ahead) && r->o->backend->give_up) r->o->backend->give_up(r->o->backend_ctx);
    if (r->o->link && why) ht_node_link_fail(r->o->link, why->text);
    for (int32_t i = 0; i < r->s->n_lanes; i++)
        if (!r->lanes[i].busy && &r->lanes[i] != self) command(self, &r->lanes[i], EXIT);
}

static void fail(struct run *r, struct lane *self, enum ht_status status, const struct ht_error *why)
{
    struct ht_error e = *why;
    e.status = status;
    end_run(r, self, &e);
}

/* Returns true if Ctrl-C cuts the run between two iterations. Stopping at once would leave a collective that has begun on another
   node, or is enqueued on one rank alone, waiting for ever. */
static bool cuts(const struct run *r)
{
    return r->o->link || r->o->ends_whole || ht_ahead_has_groups(r->ahead);
}

/* Stops after the iterations that any node can have opened. */
static void cut(struct run *r)
{
    int32_t iterations = ht_core_own_ended(r->core) + 2;
    if (r->cut || (r->o->link && ht_node_link_node(r->o->link) != r->s->rank_node[0])) return;
    if (iterations >= r->o->iterations + 2) return; /* this node is done, and all others know */
    r->cut = true;
    ht_core_cut(r->core, iterations);
    if (r->o->link) ht_node_link_cut(r->o->link, iterations);
}

/* Gives an issued op its buffers, and a lane the op that starts. The core may issue an op ahead for a busy lane. */
static enum ht_status serve(struct run *r, struct lane *self, const struct ht_turn *turn, int64_t now,
                            struct ht_error *err)
{
    enum ht_status status = HT_OK;
    struct lane *l = &r->lanes[turn->lane];
    if (turn->issued) {
        event_of(r, turn->inst)->issue_ns = now;
        event_of(r, turn->inst)->grant_seq = turn->grant_seq;
        status = ht_slots_allocate(r->slots, turn->inst, err);
        if (status) return status;
        ht_ahead_issued(r->ahead, turn->inst);
    }
    if (!turn->started) return HT_OK;
    l->inst = turn->inst;
    status = ht_slots_resolve(r->slots, l->inst, l->buffers, &l->n_buffers, err);
    if (status) return status;
    l->busy = true;
    r->n_busy++;
    if (l != self) command(self, l, GO);
    return HT_OK;
}

/* Gives every lane that can go on its next op. */
static void dispatch(struct run *r, struct lane *self, int64_t now)
{
    struct ht_error err = {0};
    if (r->over) return;
    if (ht_interrupted() && cuts(r)) {
        cut(r);
    } else if (ht_interrupted()) {
        err.status = HT_INTERRUPTED;
        end_run(r, self, &err);
        return;
    }
    for (struct ht_turn turn; ht_core_turn(r->core, &turn);) {
        enum ht_status status = serve(r, self, &turn, now, &err);
        if (status) {
            fail(r, self, status, &err);
            return;
        }
    }
    ht_node_link_send_ends(r->o->link, r->core);
    if (ht_core_done(r->core)) {
        end_run(r, self, NULL);
    } else if (r->n_busy == 0 && !r->o->link) {
        char text[768];
        ht_core_describe_stall(r->core, text, sizeof(text));
        ht_fail(&err, HT_FAILED, "schedule '%s' stalled: %s", r->s->name, text);
        end_run(r, self, &err);
    }
}

/* Reports ended iterations in order. Only one thread does at a time; it releases the lock for the callback. */
static void report(struct run *r, struct lane *self)
{
    if (r->reporting) return;
    r->reporting = true;
    while (r->n_reported < ht_core_ended(r->core)) {
        if (r->error.status != HT_OK && r->error.status != HT_INTERRUPTED) break;
        if (r->o->iteration_done) {
            struct ht_error err = {0};
            pthread_mutex_unlock(&r->lock);
            wake_sleepers(self);
            enum ht_status status = r->o->iteration_done(r->o->hooks_ctx, r->n_reported, &err);
            pthread_mutex_lock(&r->lock);
            if (status == HT_INTERRUPTED && cuts(r))
                cut(r);
            else if (status)
                fail(r, self, status, &err);
        }
        r->n_reported++;
    }
    r->reporting = false;
}

/* ---- other nodes ----------------------------------------------------------------------------------------------- */

static void handle_message(struct run *r, struct lane *self, const struct ht_node_message *message)
{
    struct ht_error err = {.status = HT_FAILED};
    switch (message->kind) {
    case HT_MESSAGE_END:
        ht_core_remote_end(r->core, (struct ht_inst){message->iteration, message->op}, message->ok);
        break;
    case HT_MESSAGE_ENDED:
        ht_core_remote_ended(r->core, ht_node_link_ended(r->o->link, message));
        break;
    case HT_MESSAGE_CUT:
        r->cut = true;
        ht_core_cut(r->core, message->iteration);
        break;
    default:
        memcpy(err.text, message->text, sizeof(err.text));
        end_run(r, self, &err);
    }
}

static void handle_messages(struct run *r, struct lane *self)
{
    struct ht_node_message message;
    pthread_mutex_lock(&r->lock);
    while (ht_node_link_take(r->o->link, &message)) handle_message(r, self, &message);
    dispatch(r, self, now_ns(r));
    ht_ahead_advance(r->ahead);
    report(r, self);
    pthread_mutex_unlock(&r->lock);
    wake_sleepers(self);
}

/* Called on the progress thread. */
static void on_message(void *ctx)
{
    struct run *r = ctx;
    handle_messages(r, r->receiver);
}

/* ---- a lane's thread ------------------------------------------------------------------------------------------- */

/* Ends the lane's op and acts on what that made possible. Returns true when the lane has another op to run. */
static bool end_op(struct lane *l, enum ht_status status, bool ok, int64_t now)
{
    struct run *r = l->run;
    struct ht_inst inst = l->inst;
    bool more = false;
    pthread_mutex_lock(&r->lock);
    l->busy = false;
    r->n_busy--;
    if (status) {
        fail(r, l, status, &l->error);
    } else {
        if (r->s->ops[inst.op].kind == HT_OP_VALIDATE) ht_core_set_control(r->core, inst.iteration, ok);
        if (now > r->trace->iteration_end_ns[inst.iteration]) r->trace->iteration_end_ns[inst.iteration] = now;
        ht_slots_release(r->slots, inst);
        event_of(r, inst)->release_seq = ht_core_finish(r->core, inst);
        dispatch(r, l, now);
        ht_ahead_advance(r->ahead); /* even if the run is over: ops that have started must be enqueued */
        more = l->busy;             /* from now on the lane gets its next op only by GO */
        report(r, l);
    }
    bool awaited = l->busy && r->s->ops[l->inst.op].match >= 0; /* its group has begun */
    if (r->over && !awaited) {
        if (l->busy) r->n_busy--; /* the op it was given never begins */
        l->busy = more = false;
        atomic_store_explicit(&l->word, EXIT, memory_order_relaxed);
    }
    pthread_mutex_unlock(&r->lock);
    wake_sleepers(l);
    return more;
}

/* Takes the op's times from the device, limited to what the host knows for certain. */
static void take_times(struct run *r, struct ht_inst inst, struct ht_trace_event *event, int64_t now)
{
    int64_t start, end;
    r->o->backend->op_times(r->o->backend_ctx, inst.iteration, inst.op, &start, &end);
    start -= r->begin_ns;
    end -= r->begin_ns;
    if (end > now) { /* the clocks differ a little; the duration is right */
        start -= end - now;
        end = now;
    }
    if (start < event->issue_ns) start = event->issue_ns;
    event->start_ns = start < end ? start : end;
    event->end_ns = end > event->start_ns ? end : event->start_ns;
}

/* Runs the lane's op and ends it. Returns true when the lane has another op to run. */
static bool run_op(struct lane *l)
{
    struct run *r = l->run;
    const struct ht_backend_ops *b = r->o->backend;
    struct ht_trace_event *event = event_of(r, l->inst);
    struct ht_inst inst = l->inst;
    bool ok = true, ahead = ht_ahead_is_async(r->ahead, inst.op);
    event->start_ns = now_ns(r);
    enum ht_status status =
        ahead ? ht_ahead_wait(r->ahead, inst, &l->error)
              : b->run_op(r->o->backend_ctx, inst.iteration, inst.op, l->buffers, l->n_buffers, &l->error);
    if (!status && b->control && r->s->ops[inst.op].kind == HT_OP_VALIDATE)
        ok = b->control(r->o->backend_ctx, inst.iteration, inst.op);
    int64_t now = event->end_ns = now_ns(r);
    if (ahead && !status && b->op_times) take_times(r, l->inst, event, now);
    return end_op(l, status, ok, now);
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct run *r = l->run;
    const struct ht_backend_ops *b = r->o->backend;
    if (b->lane_begin) b->lane_begin(r->o->backend_ctx, l->id);
    l->has_dedicated_core = b->has_dedicated_core && b->has_dedicated_core(r->o->backend_ctx, l->id);
    pthread_mutex_lock(&r->lock);
    r->n_begun++;
    pthread_cond_signal(&r->all_begun);
    pthread_mutex_unlock(&r->lock);
    while (wait_for_command(l) == GO)
        while (run_op(l)) continue;
    if (b->lane_end) b->lane_end(r->o->backend_ctx, l->id);
    return NULL;
}

/* ---- the run --------------------------------------------------------------------------------------------------- */

static void lay_out_lanes(struct run *r)
{
    int32_t n = r->s->n_lanes;
    r->lanes = ht_alloc_aligned(_Alignof(struct lane), sizeof(struct lane) * ((size_t)n + 2));
    for (int32_t i = 0; i < n + 2; i++) {
        struct lane *l = &r->lanes[i];
        l->run = r;
        l->id = i;
        l->buffers = HT_NEW_ARRAY(struct ht_buffer, ht_slots_max_effects(r->slots));
        l->wake = HT_NEW_ARRAY(struct lane *, n);
    }
    r->main = &r->lanes[n];
    r->receiver = &r->lanes[n + 1];
}

static void free_lanes(struct run *r)
{
    for (int32_t i = 0; r->lanes && i < r->s->n_lanes + 2; i++) {
        free(r->lanes[i].buffers);
        free(r->lanes[i].wake);
    }
    free(r->lanes);
}

/* Starts the lanes' threads, runs everything, joins them. The result is in r->error. */
static void run_threads(struct run *r)
{
    struct lane *self = r->main;
    struct ht_error err = {0};
    int32_t n = 0;
    for (; n < r->s->n_lanes; n++) {
        int rc = pthread_create(&r->lanes[n].thread, NULL, lane_main, &r->lanes[n]);
        if (rc == 0) continue;
        ht_fail(&err, HT_INFEASIBLE, "cannot start a thread for lane '%s': %s", r->s->lanes[n].name, strerror(rc));
        break;
    }
    pthread_mutex_lock(&r->lock);
    while (r->n_begun < n) pthread_cond_wait(&r->all_begun, &r->lock);
    r->begin_ns = r->trace->begin_ns = ht_now_ns();
    if (err.status)
        end_run(r, self, &err);
    else
        dispatch(r, self, 0);
    ht_ahead_advance(r->ahead);
    report(r, self); /* in case the schedule has no ops */
    pthread_mutex_unlock(&r->lock);
    wake_sleepers(self);
    if (r->o->link) {
        ht_node_link_on_message(r->o->link, on_message, r);
        handle_messages(r, self); /* messages that came before */
    }
    for (int32_t i = 0; i < n; i++) pthread_join(r->lanes[i].thread, NULL);
}

/* Renumbers the grants and releases of the kept events 0, 1, 2 .. in their order, as a whole run has them. */
static void renumber(struct ht_trace *t)
{
    int64_t n_seq = 0, n = 0;
    for (int64_t i = 0; i < t->n_events; i++)
        if (t->events[i].release_seq >= n_seq) n_seq = t->events[i].release_seq + 1;
    int64_t *rank = HT_NEW_ARRAY(int64_t, n_seq + 1);
    for (int64_t i = 0; i < t->n_events; i++)
        if (t->events[i].grant_seq >= 0) rank[t->events[i].grant_seq] = rank[t->events[i].release_seq] = 1;
    for (int64_t i = 0; i < n_seq; i++)
        if (rank[i]) rank[i] = n++;
    for (int64_t i = 0; i < t->n_events; i++) {
        if (t->events[i].grant_seq < 0) continue;
        t->events[i].grant_seq = rank[t->events[i].grant_seq];
        t->events[i].release_seq = rank[t->events[i].release_seq];
    }
    free(rank);
}

/* Cuts the trace to the iterations that ended. */
static void finish_trace(struct run *r)
{
    struct ht_trace *t = r->trace;
    t->iterations = r->n_reported;
    t->n_events = (int64_t)r->n_reported * r->s->n_ops;
    if (r->n_reported < r->o->iterations) renumber(t);
    t->end_ns = 0;
    for (int32_t k = 0; k < r->n_reported; k++)
        if (t->iteration_end_ns[k] > t->end_ns) t->end_ns = t->iteration_end_ns[k];
    for (int32_t i = 0; i < ht_n_spaces(r->s); i++) t->peak_bytes[i] = ht_core_peak_bytes(r->core, i);
}

/* Runs the schedule between the backend's open and close. */
static enum ht_status run_open(struct run *r, struct ht_error *err)
{
    enum ht_status status = r->o->residents ? HT_OK : ht_slots_allocate_residents(r->slots, err);
    if (status) return status;
    struct ht_ahead_options ahead = {.schedule = r->s,
                                     .backend = r->o->backend,
                                     .backend_ctx = r->o->backend_ctx,
                                     .core = r->core,
                                     .slots = r->slots,
                                     .lock = &r->lock};
    status = ht_ahead_create(&ahead, err, &r->ahead);
    if (status) return status;
    run_threads(r);
    if (r->o->link) ht_node_link_on_message(r->o->link, NULL, NULL);
    if (r->cut && !r->error.status) r->error.status = HT_INTERRUPTED;
    ht_ahead_destroy(r->ahead);
    finish_trace(r);
    bool whole = r->error.status == HT_OK || (r->error.status == HT_INTERRUPTED && r->o->ends_whole);
    if (whole && r->o->residents) ht_residents_settle(r->o->residents);
    if (r->error.status == HT_OK) return HT_OK;
    if (r->error.status == HT_INTERRUPTED && !r->error.text[0])
        ht_fail(&r->error, HT_INTERRUPTED, "interrupted after %d of %d iterations", r->n_reported, r->o->iterations);
    if (err) *err = r->error;
    return r->error.status;
}

enum ht_status ht_run(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_error *err,
                      struct ht_trace **out)
{
    const struct ht_backend_ops *b = options->backend;
    struct run r = {.s = s, .o = options};
    *out = NULL;
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.all_begun, NULL);
    int32_t node = options->link ? ht_node_link_node(options->link) : -1;
    struct ht_core_options core = {
        .iterations = options->iterations, .issue_ahead = b->issue_ahead, .one_node = node >= 0, .node = node};
    enum ht_status status = ht_core_create(s, core, err, &r.core);
    if (status) goto out;
    if (options->residents)
        r.slots = options->residents->slots;
    else
        status = ht_slots_create(s, node, options->arenas, err, &r.slots);
    if (status) goto out;
    r.trace = ht_trace_create(s, HT_CLOCK_RUN, options->iterations);
    lay_out_lanes(&r);
    status = b->open ? b->open(options->backend_ctx, s, err) : HT_OK;
    if (status) goto out;
    status = run_open(&r, err);
    if (b->close) b->close(options->backend_ctx);
    if (status == HT_OK || status == HT_INTERRUPTED) {
        *out = r.trace;
        r.trace = NULL;
    }
out:
    free_lanes(&r);
    ht_trace_destroy(r.trace);
    if (!options->residents) ht_slots_destroy(r.slots);
    ht_core_destroy(r.core);
    pthread_cond_destroy(&r.all_begun);
    pthread_mutex_destroy(&r.lock);
    return status;
}
