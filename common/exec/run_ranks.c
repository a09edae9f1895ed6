/*
 * ht_run over the ranks of a job; node.h describes the roles. The leader runs the executor on a backend defined here,
 * which passes its own rank's ops to the real backend, and those of other ranks through their mailboxes. The other
 * ranks serve their mailboxes, one thread for each lane.
 */
#include "common/exec/node.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/tags.h"
#include "common/exec/node_clock.h"
#include "common/exec/node_link.h"
#include "common/exec/node_mailbox.h"
#include "common/trace/trace.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPIN_NS = 50000 }; /* as in run.c */

struct leader {
    const struct ht_run_options *o;
    struct ht_node *node;
    pthread_mutex_t lock;
    struct ht_error first; /* the first failure of an op, of any rank; others give up because of it. Under the lock */
    bool has_given_up;     /* for another reason, before any op failed. Under the lock, too */
    bool agreed, opened;   /* agreed: all ranks know whether all backends opened; opened: they did */
    /* [iterations * n_ops] for other ranks' ops: how much later they began and how much earlier they ended, on their
       own rank, than their lane's thread here saw */
    int64_t *later_ns, *earlier_ns;
};

static enum ht_status text_status(enum ht_status status, const struct ht_error *err, char text[1024])
{
    if (status) memcpy(text, err->text, sizeof(err->text));
    return status;
}

/* ---- the leader: a backend for the whole node -------------------------------------------------------------------- */

static int32_t rank_of(const struct leader *x, int32_t op)
{
    return ht_op_rank(x->node->s, op);
}

static enum ht_status lead_open(void *ctx, const struct ht_schedule *s, struct ht_error *err)
{
    struct leader *x = ctx;
    const struct ht_backend_ops *b = x->o->backend;
    enum ht_status mine = b->open ? b->open(x->o->backend_ctx, s, err) : HT_OK;
    enum ht_status all = ht_agree(x->node->comm, mine, err);
    x->agreed = true;
    x->opened = all == HT_OK;
    if (all && !mine && b->close) b->close(x->o->backend_ctx);
    return all;
}

static bool is_mine(const struct leader *x, int32_t lane)
{
    return x->node->s->lanes[lane].rank == x->node->rank;
}

static void lead_lane_begin(void *ctx, int32_t lane)
{
    struct leader *x = ctx;
    if (is_mine(x, lane) && x->o->backend->lane_begin) x->o->backend->lane_begin(x->o->backend_ctx, lane);
}

static bool lead_has_dedicated_core(void *ctx, int32_t lane)
{
    struct leader *x = ctx;
    return is_mine(x, lane) && x->o->backend->has_dedicated_core &&
           x->o->backend->has_dedicated_core(x->o->backend_ctx, lane);
}

static void lead_lane_end(void *ctx, int32_t lane)
{
    struct leader *x = ctx;
    if (is_mine(x, lane) && x->o->backend->lane_end) x->o->backend->lane_end(x->o->backend_ctx, lane);
}

static void lead_close(void *ctx)
{
    struct leader *x = ctx;
    if (x->o->backend->close) x->o->backend->close(x->o->backend_ctx);
}

/* Ends all communication after a failure of an op, whose rank the error then names. Returns the status. */
static enum ht_status checked(struct leader *x, int32_t op, enum ht_status status, struct ht_error *err)
{
    if (!status) return HT_OK;
    struct ht_error why = *err;
    if (strncmp(why.text, "rank ", 5) != 0) ht_fail(err, status, "rank %d: %.1000s", rank_of(x, op), why.text);
    pthread_mutex_lock(&x->lock);
    if (!x->first.status && !x->has_given_up) x->first = *err;
    pthread_mutex_unlock(&x->lock);
    ht_node_fail(x->node);
    return status;
}

static bool is_own(const struct leader *x, int32_t op)
{
    return rank_of(x, op) == x->node->rank;
}

/* Writes the op and its buffers for another rank. */
static void write_op(const struct leader *x, struct ht_mailbox *mailbox, int32_t iteration, int32_t op,
                     const struct ht_buffer *buffers, int32_t n)
{
    mailbox->iteration = iteration;
    mailbox->op = op;
    for (int32_t i = 0; i < n; i++)
        mailbox->offsets[i] = ht_node_offset(
            x->node, ht_space(x->node->s, (enum ht_tier)buffers[i].tier, rank_of(x, op)), buffers[i].data);
}

static enum ht_status run_remotely(struct leader *x, int32_t iteration, int32_t op, const struct ht_buffer *buffers,
                                   int32_t n, struct ht_error *err)
{
    const struct ht_schedule *s = x->node->s;
    struct ht_mailbox *mailbox = ht_node_lane_mailbox(x->node, s->ops[op].lane);
    write_op(x, mailbox, iteration, op, buffers, n);
    int64_t begin = ht_now_ns(), at = (int64_t)iteration * s->n_ops + op;
    ht_mailbox_request(mailbox, HT_REQUEST_OP);
    enum ht_status status = ht_mailbox_await(x->node, mailbox, rank_of(x, op), err);
    x->later_ns[at] = mailbox->start_ns - begin;
    x->earlier_ns[at] = ht_now_ns() - mailbox->end_ns;
    return status;
}

static enum ht_status lead_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                                  struct ht_error *err)
{
    struct leader *x = ctx;
    enum ht_status status = is_own(x, op) ? x->o->backend->run_op(x->o->backend_ctx, iteration, op, buffers, n, err)
                                          : run_remotely(x, iteration, op, buffers, n, err);
    return checked(x, op, status, err);
}

static bool lead_control(void *ctx, int32_t iteration, int32_t op)
{
    struct leader *x = ctx;
    if (!is_own(x, op)) return ht_node_lane_mailbox(x->node, x->node->s->ops[op].lane)->ok;
    return !x->o->backend->control || x->o->backend->control(x->o->backend_ctx, iteration, op);
}

/* ---- streams of all ranks ---- */

static bool lead_is_async(void *ctx, int32_t op)
{
    struct leader *x = ctx;
    return x->o->backend->is_async(x->o->backend_ctx, op);
}

static int32_t lead_host_deps(void *ctx, int32_t op, const int32_t **ops)
{
    struct leader *x = ctx;
    return x->o->backend->host_deps(x->o->backend_ctx, op, ops);
}

static enum ht_status lead_enqueue(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                                   const struct ht_inst *after, int32_t n_after, struct ht_error *err)
{
    struct leader *x = ctx;
    if (is_own(x, op))
        return checked(x, op, x->o->backend->enqueue(x->o->backend_ctx, iteration, op, buffers, n, after, n_after, err),
                       err);
    struct ht_mailbox *mailbox = ht_node_issuer_mailbox(x->node, x->node->s->ops[op].lane);
    write_op(x, mailbox, iteration, op, buffers, n);
    mailbox->n_after = n_after;
    if (n_after) memcpy(mailbox->offsets + n, after, (size_t)n_after * sizeof(*after));
    ht_mailbox_request(mailbox, HT_REQUEST_ENQUEUE);
    return checked(x, op, ht_mailbox_await(x->node, mailbox, rank_of(x, op), err), err);
}

static enum ht_status lead_wait(void *ctx, int32_t iteration, int32_t op, struct ht_error *err)
{
    struct leader *x = ctx;
    if (is_own(x, op)) return checked(x, op, x->o->backend->wait(x->o->backend_ctx, iteration, op, err), err);
    struct ht_mailbox *mailbox = ht_node_lane_mailbox(x->node, x->node->s->ops[op].lane);
    mailbox->iteration = iteration;
    mailbox->op = op;
    ht_mailbox_request(mailbox, HT_REQUEST_WAIT);
    return checked(x, op, ht_mailbox_await(x->node, mailbox, rank_of(x, op), err), err);
}

/* Ranks of a node share its CLOCK_MONOTONIC. */
static void lead_op_times(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns)
{
    struct leader *x = ctx;
    const struct ht_mailbox *mailbox = ht_node_lane_mailbox(x->node, x->node->s->ops[op].lane);
    if (is_own(x, op)) {
        x->o->backend->op_times(x->o->backend_ctx, iteration, op, start_ns, end_ns);
        return;
    }
    *start_ns = mailbox->start_ns;
    *end_ns = mailbox->end_ns;
}

static void lead_give_up(void *ctx)
{
    struct leader *x = ctx;
    pthread_mutex_lock(&x->lock);
    x->has_given_up = !x->first.status;
    pthread_mutex_unlock(&x->lock);
    ht_node_fail(x->node);
}

static void lead_drain(void *ctx)
{
    struct leader *x = ctx;
    x->o->backend->drain(x->o->backend_ctx);
}

static const struct ht_backend_ops leader_backend = {.name = "ranks",
                                                     .open = lead_open,
                                                     .lane_begin = lead_lane_begin,
                                                     .has_dedicated_core = lead_has_dedicated_core,
                                                     .run_op = lead_run_op,
                                                     .control = lead_control,
                                                     .lane_end = lead_lane_end,
                                                     .close = lead_close};

/* Returns the table for a node whose ranks have the backend `b`; an optional function stays one. */
static struct ht_backend_ops leader_table(const struct ht_backend_ops *b)
{
    struct ht_backend_ops table = leader_backend;
    if (!b->enqueue) return table;
    table.issue_ahead = b->issue_ahead;
    table.is_async = lead_is_async;
    table.host_deps = b->host_deps ? lead_host_deps : NULL;
    table.enqueue = lead_enqueue;
    table.wait = lead_wait;
    table.op_times = b->op_times ? lead_op_times : NULL;
    table.give_up = lead_give_up;
    table.drain = b->drain ? lead_drain : NULL;
    return table;
}

/* Corrects the times of other ranks' ops to those that the ranks measured. */
static void correct_times(const struct leader *x, struct ht_trace *t)
{
    for (int64_t i = 0; i < t->n_events; i++) {
        struct ht_trace_event *e = &t->events[i];
        if (e->grant_seq < 0 || rank_of(x, ht_trace_op(t, i)) == x->node->rank) continue;
        e->start_ns += x->later_ns[i];
        e->end_ns -= x->earlier_ns[i];
        if (e->end_ns < e->start_ns) e->end_ns = e->start_ns;
    }
}

static void end_lane(const struct ht_node *n, int32_t lane)
{
    ht_mailbox_request(ht_node_lane_mailbox(n, lane), HT_REQUEST_END);
    ht_mailbox_request(ht_node_issuer_mailbox(n, lane), HT_REQUEST_END);
}

/* Tells all other ranks of the node how the run ended, and ends their lanes. */
static void end_other_ranks(struct leader *x, enum ht_status status, const struct ht_error *err)
{
    const struct ht_schedule *s = x->node->s;
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (s->rank_node[s->lanes[i].rank] == x->node->node && !is_mine(x, i)) end_lane(x->node, i);
    for (int32_t i = 1; i < x->node->n_ranks; i++) {
        struct ht_mailbox *mailbox = ht_node_rank_mailbox(x->node, x->node->ranks[i]);
        mailbox->status = text_status(status, err, mailbox->text);
        ht_mailbox_request(mailbox, HT_REQUEST_END);
    }
}

/* ---- one trace of all nodes ------------------------------------------------------------------------------------- */

struct trace_header {
    int64_t begin_ns, end_ns, clock_error_ns;
    int32_t iterations;
};

/* Moves the begin of the trace `ns` earlier. */
static void begin_earlier(struct ht_trace *t, int64_t ns)
{
    for (int64_t i = 0; i < t->n_events; i++) {
        struct ht_trace_event *e = &t->events[i];
        if (e->grant_seq < 0) continue;
        e->issue_ns += ns;
        e->start_ns += ns;
        e->end_ns += ns;
    }
    for (int32_t k = 0; k < t->iterations; k++) t->iteration_end_ns[k] += ns;
    t->end_ns += ns;
    t->begin_ns -= ns;
}

/* Adds another node's events. Its grants and releases are numbered after those in the trace; no space belongs to two
   nodes. */
static void merge(struct ht_trace *t, const struct ht_trace_event *events, const int64_t *peaks,
                  const int64_t *iteration_end_ns, struct trace_header header, int32_t node)
{
    const struct ht_schedule *s = t->schedule;
    int64_t seq = 0;
    if (header.begin_ns < t->begin_ns) begin_earlier(t, t->begin_ns - header.begin_ns);
    int64_t later = header.begin_ns - t->begin_ns;
    for (int64_t i = 0; i < t->n_events; i++)
        if (t->events[i].release_seq >= seq) seq = t->events[i].release_seq + 1;
    for (int64_t i = 0; i < t->n_events; i++) {
        struct ht_trace_event e = events[i];
        if (e.grant_seq < 0 || s->rank_node[ht_op_rank(s, ht_trace_op(t, i))] != node) continue;
        e.issue_ns += later;
        e.start_ns += later;
        e.end_ns += later;
        e.grant_seq += seq;
        e.release_seq += seq;
        t->events[i] = e;
    }
    for (int32_t k = 0; k < t->iterations; k++)
        if (iteration_end_ns[k] + later > t->iteration_end_ns[k]) t->iteration_end_ns[k] = iteration_end_ns[k] + later;
    if (header.end_ns + later > t->end_ns) t->end_ns = header.end_ns + later;
    if (header.clock_error_ns > t->clock_error_ns) t->clock_error_ns = header.clock_error_ns;
    for (int32_t r = 0; r < s->n_ranks; r++) {
        if (s->rank_node[r] != node) continue;
        for (int tier = 0; tier < HT_REMOTE; tier++)
            t->peak_bytes[ht_space(s, (enum ht_tier)tier, r)] = peaks[ht_space(s, (enum ht_tier)tier, r)];
    }
}

static enum ht_status transfer(struct ht_comm *c, int32_t peer, bool send, void *data, int64_t bytes,
                               struct ht_error *err)
{
    struct ht_message m;
    if (bytes == 0) return HT_OK;
    if (send)
        ht_comm_send(c, peer, HT_TAG_TRACE, data, bytes, &m);
    else
        ht_comm_receive(c, peer, HT_TAG_TRACE, data, bytes, &m);
    return ht_comm_wait(c, &m, err);
}

/* Sends a leader's trace to rank 0 (send), or receives it there. */
static enum ht_status transfer_trace(struct ht_node *n, int32_t peer, bool send, struct trace_header *header,
                                     struct ht_trace *t, struct ht_error *err)
{
    enum ht_status status = transfer(n->comm, peer, send, header, sizeof(*header), err);
    if (!status && header->iterations != t->iterations)
        status = ht_fail(err, HT_FAILED, "nodes ended %d and %d iterations; expected the same number",
                         header->iterations, t->iterations);
    if (!status) status = transfer(n->comm, peer, send, t->events, t->n_events * (int64_t)sizeof(*t->events), err);
    if (!status)
        status = transfer(n->comm, peer, send, t->peak_bytes, ht_n_spaces(n->s) * (int64_t)sizeof(int64_t), err);
    if (!status)
        status = transfer(n->comm, peer, send, t->iteration_end_ns, t->iterations * (int64_t)sizeof(int64_t), err);
    return status;
}

/* Collects the traces of all leaders in rank 0's own, on its clock. Frees the others. */
static enum ht_status gather_traces(struct ht_node *n, struct ht_node_clock *clock, struct ht_error *err,
                                    struct ht_trace **trace)
{
    struct ht_trace *t = *trace;
    struct trace_header header;
    enum ht_status status = ht_node_clock_compare(n->comm, n->leaders, n->n_nodes, 1, clock, err);
    if (n->rank != 0) {
        if (!status) ht_node_clock_move(clock, t);
        header = (struct trace_header){t->begin_ns, t->end_ns, ht_node_clock_error_ns(clock), t->iterations};
        if (!status) status = transfer_trace(n, 0, true, &header, t, err);
        ht_trace_destroy(t);
        *trace = NULL;
        return status;
    }
    for (int32_t i = 0; i < n->n_nodes && !status; i++) {
        if (n->leaders[i] <= 0) continue;
        struct ht_trace *theirs = ht_trace_create(n->s, t->clock, t->iterations);
        status = transfer_trace(n, n->leaders[i], false, &header, theirs, err);
        if (!status) merge(t, theirs->events, theirs->peak_bytes, theirs->iteration_end_ns, header, i);
        ht_trace_destroy(theirs);
    }
    return status;
}

static bool several_nodes(const struct ht_node *n)
{
    for (int32_t i = 0; i < n->n_nodes; i++)
        if (n->leaders[i] >= 0 && i != n->node) return true;
    return false;
}

static enum ht_status lead(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_node *node,
                           struct ht_error *err, struct ht_trace **out)
{
    struct leader x = {.o = options, .node = node, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct ht_backend_ops table = leader_table(options->backend);
    struct ht_error why = {0};
    x.later_ns = HT_NEW_ARRAY(int64_t, (int64_t)options->iterations * s->n_ops);
    x.earlier_ns = HT_NEW_ARRAY(int64_t, (int64_t)options->iterations * s->n_ops);
    struct ht_run_options o = {.iterations = options->iterations,
                               .backend = &table,
                               .backend_ctx = &x,
                               .arenas = node->arenas,
                               .link = several_nodes(node) ? ht_node_link_create(node) : NULL,
                               .residents = options->residents,
                               .ends_whole = options->ends_whole,
                               .iteration_done = options->iteration_done,
                               .hooks_ctx = options->hooks_ctx};
    struct ht_node_clock clock = {0};
    enum ht_status status = HT_OK;
    if (o.link) status = ht_node_clock_compare(node->comm, node->leaders, node->n_nodes, 0, &clock, &why);
    if (status == HT_OK) status = ht_run(s, &o, &why, out);
    if (status != HT_OK && status != HT_INTERRUPTED && x.first.status) why = x.first, status = why.status;
    if (status != HT_OK && status != HT_INTERRUPTED && o.link && x.opened) {
        ht_node_link_fail(o.link, why.text); /* other nodes may have begun and wait for this one */
        ht_node_fail(node);
    }
    ht_node_link_destroy(o.link);
    if (*out) correct_times(&x, *out);
    if (*out && o.link) {
        enum ht_status gathered = gather_traces(node, &clock, &why, out);
        if (gathered) status = gathered;
    }
    if (!x.agreed)
        status = ht_agree(node->comm, status, &why);
    else if (x.opened)
        end_other_ranks(&x, status, &why);
    free(x.later_ns);
    free(x.earlier_ns);
    if (err) *err = why;
    return status;
}

/* ---- the other ranks -------------------------------------------------------------------------------------------- */

struct follower {
    const struct ht_run_options *o;
    struct ht_node *node;
    atomic_uint served; /* requests so far */
};

/* A lane has two threads: one runs its ops, or waits for them; the issuer enqueues them. */
struct served_lane {
    struct follower *x;
    int32_t lane;
    bool issues;
    pthread_t thread;
    bool started;
};

/* Fills in the op's buffers. Returns their number. */
static int32_t read_buffers(const struct follower *x, const struct ht_mailbox *mailbox, struct ht_buffer *buffers)
{
    const struct ht_schedule *s = x->node->s;
    int64_t begin = s->effects_begin[mailbox->op];
    int32_t n = (int32_t)(s->effects_begin[mailbox->op + 1] - begin);
    for (int32_t i = 0; i < n; i++) {
        const struct ht_effect *f = &s->effects[begin + i];
        char *base = x->node->bases[ht_space(s, (enum ht_tier)f->tier, x->node->rank)];
        buffers[i] = (struct ht_buffer){.tensor = f->tensor,
                                        .tier = f->tier,
                                        .flags = f->flags,
                                        .data = mailbox->offsets[i] < 0 ? NULL : base + mailbox->offsets[i],
                                        .bytes = s->tensors[f->tensor].bytes};
    }
    return n;
}

/* The leader orders the requests to this rank's threads. A race detector does not see into its process: `served` tells it. */
static void serve(struct follower *x, struct ht_mailbox *mailbox, enum ht_request request, struct ht_buffer *buffers)
{
    (void)atomic_load_explicit(&x->served, memory_order_acquire);
    const struct ht_backend_ops *b = x->o->backend;
    void *ctx = x->o->backend_ctx;
    int32_t iteration = mailbox->iteration, op = mailbox->op;
    struct ht_error err = {0};
    enum ht_status status;
    mailbox->start_ns = ht_now_ns();
    if (request == HT_REQUEST_ENQUEUE) {
        int32_t n = read_buffers(x, mailbox, buffers);
        struct ht_inst *after = HT_NEW_ARRAY(struct ht_inst, mailbox->n_after);
        memcpy(after, mailbox->offsets + n, (size_t)mailbox->n_after * sizeof(*after));
        status = b->enqueue(ctx, iteration, op, buffers, n, after, mailbox->n_after, &err);
        free(after);
    } else if (request == HT_REQUEST_WAIT) {
        status = b->wait(ctx, iteration, op, &err);
    } else {
        status = b->run_op(ctx, iteration, op, buffers, read_buffers(x, mailbox, buffers), &err);
    }
    mailbox->ok = true;
    if (!status && b->control && request != HT_REQUEST_ENQUEUE && x->node->s->ops[op].kind == HT_OP_VALIDATE)
        mailbox->ok = b->control(ctx, iteration, op);
    mailbox->end_ns = ht_now_ns();
    if (!status && b->op_times && request == HT_REQUEST_WAIT)
        b->op_times(ctx, iteration, op, &mailbox->start_ns, &mailbox->end_ns);
    mailbox->status = text_status(status, &err, mailbox->text);
    atomic_fetch_add_explicit(&x->served, 1, memory_order_release);
    ht_mailbox_reply(mailbox);
}

static void *serve_lane(void *arg)
{
    struct served_lane *l = arg;
    struct follower *x = l->x;
    const struct ht_backend_ops *b = x->o->backend;
    struct ht_mailbox *mailbox =
        l->issues ? ht_node_issuer_mailbox(x->node, l->lane) : ht_node_lane_mailbox(x->node, l->lane);
    struct ht_buffer *buffers = HT_NEW_ARRAY(struct ht_buffer, x->node->mailbox_bytes / 8);
    enum ht_request request;
    bool has_dedicated_core = false;
    if (!l->issues && b->lane_begin) b->lane_begin(x->o->backend_ctx, l->lane);
    if (!l->issues) has_dedicated_core = b->has_dedicated_core && b->has_dedicated_core(x->o->backend_ctx, l->lane);
    while ((request = ht_mailbox_take(x->node, mailbox, has_dedicated_core ? SPIN_NS : 0)) != HT_REQUEST_END)
        serve(x, mailbox, request, buffers);
    if (!l->issues && b->lane_end) b->lane_end(x->o->backend_ctx, l->lane);
    free(buffers);
    return NULL;
}

/* Starts the lane's threads, an issuer only where ops are enqueued. */
static enum ht_status start_lane(struct served_lane two[2], struct ht_error *err)
{
    struct follower *x = two->x;
    for (int i = 0; i < (x->o->backend->enqueue ? 2 : 1); i++) {
        two[i].issues = i;
        int rc = pthread_create(&two[i].thread, NULL, serve_lane, &two[i]);
        two[i].started = rc == 0;
        if (rc)
            return ht_fail(err, HT_FAILED, "cannot start a thread for lane '%s': %s", x->node->s->lanes[two->lane].name,
                           strerror(rc));
    }
    return HT_OK;
}

/* Blocks until the leader sends END, and returns its status. */
static enum ht_status await_end(const struct follower *x, struct ht_error *err)
{
    struct ht_mailbox *mailbox = ht_node_rank_mailbox(x->node, x->node->rank);
    ht_mailbox_take(x->node, mailbox, 0);
    return mailbox->status ? ht_fail(err, mailbox->status, "%.1023s", mailbox->text) : HT_OK;
}

static enum ht_status follow(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_node *node,
                             struct ht_error *err)
{
    struct follower x = {.o = options, .node = node};
    const struct ht_backend_ops *b = options->backend;
    struct served_lane *lanes = HT_NEW_ARRAY(struct served_lane, 2 * (int64_t)s->n_lanes);
    enum ht_status mine = b->open ? b->open(options->backend_ctx, s, err) : HT_OK, status = mine;
    for (int32_t i = 0; i < s->n_lanes && !status; i++) {
        if (s->lanes[i].rank != node->rank) continue;
        lanes[2 * i] = lanes[2 * i + 1] = (struct served_lane){.x = &x, .lane = i};
        status = start_lane(&lanes[2 * i], err);
    }
    enum ht_status all = ht_agree(node->comm, status, err);
    if (all) { /* the leader does not run, so this rank ends its own lanes */
        for (int32_t i = 0; i < s->n_lanes; i++)
            if (lanes[2 * i].started) end_lane(node, i);
    } else {
        all = await_end(&x, err);
    }
    for (int32_t i = 0; i < 2 * s->n_lanes; i++)
        if (lanes[i].started) pthread_join(lanes[i].thread, NULL);
    if (!mine && b->drain) b->drain(options->backend_ctx);
    if (!mine && b->close) b->close(options->backend_ctx);
    free(lanes);
    return all;
}

enum ht_status ht_run_ranks(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_node *node,
                            struct ht_error *err, struct ht_trace **out)
{
    *out = NULL;
    assert(s == node->s && options->iterations >= 1);
    return ht_node_leads(node) ? lead(s, options, node, err, out) : follow(s, options, node, err);
}
