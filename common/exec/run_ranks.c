/*
 * ht_run over the ranks of a job; node.h says who does what. The leader runs the executor on a backend that is made
 * here: it passes its own rank's ops to the real backend, and those of other ranks through their boxes. The others
 * serve theirs, a thread a lane.
 */
#include "common/exec/node.h"

#include "common/base/array.h"
#include "common/comm/tags.h"
#include "common/exec/node_mailbox.h"
#include "common/exec/node_link.h"
#include "common/trace/trace.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SPIN_NS = 50000 }; /* as in run.c */

struct leader {
    const struct ht_run_options *o;
    struct ht_node *node;
    bool agreed, opened; /* all ranks know how opening their backends went; well */
    /* [iterations * n_ops] of other ranks' ops: how much later they began and how much earlier they ended, in their own
       rank, than their lane's thread here saw */
    int64_t *later_ns, *earlier_ns;
};

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

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

static enum ht_status run_elsewhere(struct leader *x, int32_t iteration, int32_t op, const struct ht_buffer *buffers,
                                    int32_t n, struct ht_error *err)
{
    const struct ht_schedule *s = x->node->s;
    int32_t rank = rank_of(x, op);
    struct ht_mailbox *box = ht_node_lane_mailbox(x->node, s->ops[op].lane);
    box->iteration = iteration;
    box->op = op;
    for (int32_t i = 0; i < n; i++)
        box->offsets[i] = ht_node_offset(x->node, ht_space(s, (enum ht_tier)buffers[i].tier, rank), buffers[i].data);
    int64_t begin = clock_ns(), at = (int64_t)iteration * s->n_ops + op;
    ht_mailbox_request(box, HT_REQUEST_OP);
    enum ht_status status = ht_mailbox_await(x->node, box, rank, err);
    x->later_ns[at] = box->start_ns - begin;
    x->earlier_ns[at] = clock_ns() - box->end_ns;
    return status;
}

static enum ht_status lead_run_op(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                                  struct ht_error *err)
{
    struct leader *x = ctx;
    enum ht_status status = rank_of(x, op) == x->node->rank
                                ? x->o->backend->run_op(x->o->backend_ctx, iteration, op, buffers, n, err)
                                : run_elsewhere(x, iteration, op, buffers, n, err);
    if (status) ht_node_fail(x->node);
    return status;
}

static bool lead_control(void *ctx, int32_t iteration, int32_t op)
{
    struct leader *x = ctx;
    if (rank_of(x, op) != x->node->rank) return ht_node_lane_mailbox(x->node, x->node->s->ops[op].lane)->ok;
    return !x->o->backend->control || x->o->backend->control(x->o->backend_ctx, iteration, op);
}

static const struct ht_backend_ops leader_backend = {.name = "ranks",
                                                     .open = lead_open,
                                                     .lane_begin = lead_lane_begin,
                                                     .has_dedicated_core = lead_has_dedicated_core,
                                                     .run_op = lead_run_op,
                                                     .control = lead_control,
                                                     .lane_end = lead_lane_end,
                                                     .close = lead_close};

/* The other ranks' ops, as they themselves saw them. */
static void correct_times(const struct leader *x, struct ht_trace *t)
{
    for (int64_t i = 0; i < t->n_events; i++) {
        struct ht_trace_event *e = &t->events[i];
        if (e->grant_seq < 0 || rank_of(x, e->op) == x->node->rank) continue;
        e->start_ns += x->later_ns[i];
        e->end_ns -= x->earlier_ns[i];
        if (e->end_ns < e->start_ns) e->end_ns = e->start_ns;
    }
}

/* All other ranks of the node hear how it ended; their lanes have nothing to do any more. */
static void dismiss(struct leader *x, enum ht_status status, const struct ht_error *err)
{
    const struct ht_schedule *s = x->node->s;
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (s->rank_node[s->lanes[i].rank] == x->node->node && !is_mine(x, i))
            ht_mailbox_request(ht_node_lane_mailbox(x->node, i), HT_REQUEST_END);
    for (int32_t i = 1; i < x->node->n_ranks; i++) {
        struct ht_mailbox *box = ht_node_rank_mailbox(x->node, x->node->ranks[i]);
        box->status = text_status(status, err, box->text);
        ht_mailbox_request(box, HT_REQUEST_END);
    }
}

/* ---- one trace of all nodes ------------------------------------------------------------------------------------- */

struct part {
    int64_t begin_ns, end_ns;
    int32_t iterations;
};

/* As if the run had begun earlier. */
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

/* Adds what another node did. Its grants and releases are numbered after those that are there: no space is of two
 * nodes. */
static void merge(struct ht_trace *t, const struct ht_trace_event *events, const int64_t *peaks,
                  const int64_t *iteration_end_ns, struct part part, int32_t node)
{
    const struct ht_schedule *s = t->schedule;
    int64_t seq = 0;
    if (part.begin_ns < t->begin_ns) begin_earlier(t, t->begin_ns - part.begin_ns);
    int64_t later = part.begin_ns - t->begin_ns;
    for (int64_t i = 0; i < t->n_events; i++)
        if (t->events[i].release_seq >= seq) seq = t->events[i].release_seq + 1;
    for (int64_t i = 0; i < t->n_events; i++) {
        struct ht_trace_event e = events[i];
        if (e.grant_seq < 0 || s->rank_node[ht_op_rank(s, e.op)] != node) continue;
        e.issue_ns += later;
        e.start_ns += later;
        e.end_ns += later;
        e.grant_seq += seq;
        e.release_seq += seq;
        t->events[i] = e;
    }
    for (int32_t k = 0; k < t->iterations; k++)
        if (iteration_end_ns[k] + later > t->iteration_end_ns[k]) t->iteration_end_ns[k] = iteration_end_ns[k] + later;
    if (part.end_ns + later > t->end_ns) t->end_ns = part.end_ns + later;
    for (int32_t r = 0; r < s->n_ranks; r++) {
        if (s->rank_node[r] != node) continue;
        for (int tier = 0; tier < HT_REMOTE; tier++)
            t->peak_bytes[ht_space(s, (enum ht_tier)tier, r)] = peaks[ht_space(s, (enum ht_tier)tier, r)];
    }
}

static enum ht_status pass(struct ht_comm *c, int32_t peer, bool send, void *data, int64_t bytes, struct ht_error *err)
{
    struct ht_message m;
    if (bytes == 0) return HT_OK;
    if (send)
        ht_comm_send(c, peer, HT_TAG_TRACE, data, bytes, &m);
    else
        ht_comm_receive(c, peer, HT_TAG_TRACE, data, bytes, &m);
    return ht_comm_wait(c, &m, err);
}

/* A leader's trace to rank 0 (send), or what rank 0 receives of one. */
static enum ht_status pass_trace(struct ht_node *n, int32_t peer, bool send, struct part *part, struct ht_trace *t,
                                 struct ht_error *err)
{
    enum ht_status status = pass(n->comm, peer, send, part, sizeof(*part), err);
    if (!status && part->iterations != t->iterations)
        status = ht_fail(err, HT_FAILED, "nodes have done %d and %d iterations", part->iterations, t->iterations);
    if (!status) status = pass(n->comm, peer, send, t->events, t->n_events * (int64_t)sizeof(*t->events), err);
    if (!status) status = pass(n->comm, peer, send, t->peak_bytes, ht_n_spaces(n->s) * (int64_t)sizeof(int64_t), err);
    if (!status) status = pass(n->comm, peer, send, t->iteration_end_ns, t->iterations * (int64_t)sizeof(int64_t), err);
    return status;
}

/* Rank 0 gets those of all leaders into its own; theirs go. */
static enum ht_status gather_traces(struct ht_node *n, struct ht_error *err, struct ht_trace **trace)
{
    enum ht_status status = HT_OK;
    struct ht_trace *t = *trace;
    struct part part = {t->begin_ns, t->end_ns, t->iterations};
    if (n->rank != 0) {
        status = pass_trace(n, 0, true, &part, t, err);
        ht_trace_destroy(t);
        *trace = NULL;
        return status;
    }
    for (int32_t i = 0; i < n->n_nodes && !status; i++) {
        if (n->leaders[i] <= 0) continue;
        struct ht_trace *theirs = ht_trace_create(n->s, t->clock, t->iterations);
        status = pass_trace(n, n->leaders[i], false, &part, theirs, err);
        if (!status) merge(t, theirs->events, theirs->peak_bytes, theirs->iteration_end_ns, part, i);
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
    struct leader x = {.o = options, .node = node};
    struct ht_error why = {0};
    x.later_ns = HT_NEW_ARRAY(int64_t, (int64_t)options->iterations * s->n_ops);
    x.earlier_ns = HT_NEW_ARRAY(int64_t, (int64_t)options->iterations * s->n_ops);
    struct ht_run_options o = {.iterations = options->iterations,
                               .backend = &leader_backend,
                               .backend_ctx = &x,
                               .arenas = node->arenas,
                               .peers = several_nodes(node) ? ht_node_link_create(node) : NULL,
                               .residents = options->residents,
                               .iteration_done = options->iteration_done,
                               .hooks_ctx = options->hooks_ctx};
    enum ht_status status = ht_run(s, &o, &why, out);
    if (status != HT_OK && status != HT_INTERRUPTED && o.peers && x.opened) {
        ht_node_link_fail(o.peers, why.text); /* other nodes may have begun, and wait for this one */
        ht_node_fail(node);
    }
    ht_node_link_destroy(o.peers);
    if (*out) correct_times(&x, *out);
    if (*out && o.peers) {
        enum ht_status gathered = gather_traces(node, &why, out);
        if (gathered) status = gathered;
    }
    if (!x.agreed)
        status = ht_agree(node->comm, status, &why);
    else if (x.opened)
        dismiss(&x, status, &why);
    free(x.later_ns);
    free(x.earlier_ns);
    if (err) *err = why;
    return status;
}

/* ---- the others ------------------------------------------------------------------------------------------------- */

struct follower {
    const struct ht_run_options *o;
    struct ht_node *node;
};

struct served_lane {
    struct follower *x;
    int32_t lane;
    pthread_t thread;
    bool up;
};

static void serve_op(struct follower *x, struct ht_mailbox *box, struct ht_buffer *buffers)
{
    const struct ht_schedule *s = x->node->s;
    const struct ht_backend_ops *b = x->o->backend;
    int64_t begin = s->effects_begin[box->op];
    int32_t n = (int32_t)(s->effects_begin[box->op + 1] - begin);
    struct ht_error err = {0};
    for (int32_t i = 0; i < n; i++) {
        const struct ht_effect *f = &s->effects[begin + i];
        char *base = x->node->bases[ht_space(s, (enum ht_tier)f->tier, x->node->rank)];
        buffers[i] = (struct ht_buffer){.tensor = f->tensor,
                                        .tier = f->tier,
                                        .flags = f->flags,
                                        .data = box->offsets[i] < 0 ? NULL : base + box->offsets[i],
                                        .bytes = s->tensors[f->tensor].bytes};
    }
    box->start_ns = clock_ns();
    enum ht_status status = b->run_op(x->o->backend_ctx, box->iteration, box->op, buffers, n, &err);
    box->ok = true;
    if (!status && b->control && s->ops[box->op].kind == HT_OP_VALIDATE)
        box->ok = b->control(x->o->backend_ctx, box->iteration, box->op);
    box->end_ns = clock_ns();
    box->status = text_status(status, &err, box->text);
    ht_mailbox_reply(box);
}

static void *serve_lane(void *arg)
{
    struct served_lane *l = arg;
    struct follower *x = l->x;
    const struct ht_backend_ops *b = x->o->backend;
    struct ht_mailbox *box = ht_node_lane_mailbox(x->node, l->lane);
    struct ht_buffer *buffers = HT_NEW_ARRAY(struct ht_buffer, x->node->mailbox_bytes / 8);
    if (b->lane_begin) b->lane_begin(x->o->backend_ctx, l->lane);
    bool has_dedicated_core = b->has_dedicated_core && b->has_dedicated_core(x->o->backend_ctx, l->lane);
    while (ht_mailbox_take(x->node, box, has_dedicated_core ? SPIN_NS : 0) == HT_REQUEST_OP) serve_op(x, box, buffers);
    if (b->lane_end) b->lane_end(x->o->backend_ctx, l->lane);
    free(buffers);
    return NULL;
}

/* Returns how the run ended, as the leader says. */
static enum ht_status await_end(const struct follower *x, struct ht_error *err)
{
    struct ht_mailbox *box = ht_node_rank_mailbox(x->node, x->node->rank);
    ht_mailbox_take(x->node, box, 0);
    return box->status ? ht_fail(err, box->status, "%.1023s", box->text) : HT_OK;
}

static enum ht_status follow(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_node *node,
                             struct ht_error *err)
{
    struct follower x = {.o = options, .node = node};
    const struct ht_backend_ops *b = options->backend;
    struct served_lane *lanes = HT_NEW_ARRAY(struct served_lane, s->n_lanes);
    enum ht_status mine = b->open ? b->open(options->backend_ctx, s, err) : HT_OK, status = mine;
    int rc = 0;
    for (int32_t i = 0; i < s->n_lanes && !status; i++) {
        if (s->lanes[i].rank != node->rank) continue;
        lanes[i] = (struct served_lane){.x = &x, .lane = i};
        rc = pthread_create(&lanes[i].thread, NULL, serve_lane, &lanes[i]);
        lanes[i].up = rc == 0;
        if (rc)
            status = ht_fail(err, HT_FAILED, "cannot start a thread for lane '%s': %s", s->lanes[i].name, strerror(rc));
    }
    enum ht_status all = ht_agree(node->comm, status, err);
    if (all) { /* the leader does not run, so nobody else ends the lanes */
        for (int32_t i = 0; i < s->n_lanes; i++)
            if (lanes[i].up) ht_mailbox_request(ht_node_lane_mailbox(node, i), HT_REQUEST_END);
    } else {
        all = await_end(&x, err);
    }
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (lanes[i].up) pthread_join(lanes[i].thread, NULL);
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
