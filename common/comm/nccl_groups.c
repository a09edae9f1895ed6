/* Rounds of the NCCL transport: messages and collectives as NCCL's groups, and the communicators of teams. */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/nccl_state.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { YIELDS = 50 }; /* polls without a nap */

/* ---- communicators ---------------------------------------------------------------------------------------------- */

bool ht_nccl_is_cancelled(const struct ht_nccl *x)
{
    return atomic_load(&x->over->cancelled) || atomic_load(&x->comm->cancelled);
}

const char *ht_nccl_settle(struct ht_nccl *x, void *nccl)
{
    double end_s = ht_now_s() + x->deadline_s;
    bool busy = true;
    int polls = 0;
    const char *why = NULL;
    while (!why && busy) {
        why = x->api->state(nccl, &busy);
        if (!why && busy && ht_now_s() > end_s) why = "the other ranks did not come in time";
        if (!why && busy && ht_nccl_is_cancelled(x)) why = "the job has failed elsewhere";
        if (busy && !why && ++polls < YIELDS)
            sched_yield();
        else if (busy && !why)
            usleep(HT_NCCL_POLL_US);
    }
    return why;
}

void ht_nccl_finish(struct ht_nccl *x, void *nccl)
{
    if (!nccl) return;
    const char *why = x->api->finalize(nccl);
    if (!why) why = ht_nccl_settle(x, nccl);
    (void)(why ? x->api->abort(nccl) : x->api->destroy(nccl));
}

static void abort_all(struct ht_nccl *x)
{
    for (size_t i = 0; i < x->n_teams; i++)
        if (x->teams[i].nccl) (void)x->api->abort(x->teams[i].nccl);
    for (size_t i = 0; i < x->n_teams; i++) x->teams[i].nccl = NULL;
    if (!x->nccl) return;
    (void)x->api->abort(x->nccl);
    (void)x->api->stream_finish(x->stream);
    x->nccl = NULL;
}

static void *abort_main(void *arg)
{
    struct ht_nccl *x = arg;
    (void)x->api->select(x->device);
    abort_all(x);
    atomic_store(&x->aborted, true);
    return NULL;
}

bool ht_nccl_abort(struct ht_nccl *x)
{
    pthread_t thread;
    x->failed = true;
    double end_s = ht_now_s() + HT_NCCL_ABORT_S;
    if (pthread_create(&thread, NULL, abort_main, x)) {
        abort_main(x);
        return true;
    }
    while (!atomic_load(&x->aborted) && ht_now_s() < end_s) usleep(HT_NCCL_POLL_US);
    bool ended = atomic_load(&x->aborted);
    if (ended)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    return ended;
}

void ht_nccl_fail_all(struct ht_nccl *x, const char *what, const char *why)
{
    bool first = !x->failed;
    if (first) snprintf(x->why, sizeof(x->why), "NCCL: %s: %s", what, why);
    x->failed = true;
    atomic_store(&x->has_why, true);
    if (first && !ht_nccl_abort(x)) ht_comm_cancel(x->comm);
    bool cancelled = ht_nccl_is_cancelled(x);
    for (size_t i = 0; i < x->n_pending && !cancelled; i++) ht_message_end(x->pending[i].m, false);
    x->n_pending = 0;
    for (struct ht_nccl_group *g = x->oldest; g; g = g->next) {
        for (int32_t i = 0; i < g->n && !cancelled; i++) ht_message_end(g->messages[i], false);
        g->n = 0;
    }
}

uint64_t ht_nccl_team_hash(const int32_t *ranks, int32_t n)
{
    uint64_t h = 14695981039346656037U; /* FNV-1a over the numbers */
    for (int32_t i = 0; i < n; i++) h = (h ^ (uint64_t)ranks[i]) * 1099511628211U;
    return h;
}

/* Returns true for all ranks in their order. */
static bool is_everybody(const struct ht_nccl *x, const struct ht_team *team)
{
    for (int32_t i = 0; i < team->n; i++)
        if (team->ranks[i] != i) return false;
    return team->n == x->comm->size;
}

/* Finds the team's communicator, or creates it by the id of its round. Returns the error of that. */
static const char *communicator_of(struct ht_nccl *x, const struct ht_team *team, const struct ht_nccl_letter *round,
                                   void **nccl)
{
    *nccl = x->nccl;
    if (is_everybody(x, team)) return NULL;
    for (size_t i = 0; i < x->n_teams; i++) {
        bool same =
            x->teams[i].n == team->n && !memcmp(x->teams[i].ranks, team->ranks, (size_t)team->n * sizeof(int32_t));
        *nccl = x->teams[i].nccl;
        if (same) return NULL;
    }
    struct ht_nccl_team made = {.ranks = HT_NEW_ARRAY(int32_t, team->n), .n = team->n};
    memcpy(made.ranks, team->ranks, (size_t)team->n * sizeof(int32_t));
    const char *why = round->has_unique ? x->api->create(round->unique, team->me, team->n, &made.nccl)
                                        : "a team without a communicator";
    if (!why) why = ht_nccl_settle(x, made.nccl);
    HT_PUSH(x->teams, x->n_teams, x->cap_teams, made);
    *nccl = made.nccl;
    return why;
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */

static bool is_even(const struct ht_comm_collective *what)
{
    for (int32_t i = 1; i < what->team.n; i++)
        if (what->counts[i] != what->counts[0]) return false;
    return true;
}

/* Broadcasts each piece from its rank, or adds it up there. */
static const char *add_pieces(struct ht_nccl *x, const struct ht_nccl_group *g, const struct ht_comm_collective *what)
{
    int64_t each = ht_comm_type_bytes(what->type), at = 0;
    const char *why = NULL;
    for (int32_t i = 0; i < what->team.n && !why; at += what->counts[i++] * each) {
        bool mine = i == what->team.me;
        if (!what->counts[i]) continue;
        if (what->kind == HT_COMM_GATHER)
            why = x->api->broadcast(g->nccl, mine ? what->from : NULL, (char *)what->to + at, what->counts[i],
                                    what->type, i, g->stream);
        else
            why = x->api->reduce(g->nccl, (const char *)what->from + at, mine ? what->to : NULL, what->counts[i],
                                 what->type, i, g->stream);
    }
    return why;
}

static const char *add_collective(struct ht_nccl *x, const struct ht_nccl_group *g,
                                  const struct ht_comm_collective *what)
{
    const struct ht_nccl_api *api = x->api;
    if (what->kind == HT_COMM_REDUCE) return api->all_reduce(g->nccl, what->to, what->counts[0], what->type, g->stream);
    if (!is_even(what)) return add_pieces(x, g, what);
    return (what->kind == HT_COMM_GATHER ? api->all_gather : api->reduce_scatter)(
        g->nccl, what->from, what->to, what->counts[0], what->type, g->stream);
}

/* Returns a hash of what all ranks of a collective have to agree on. */
static int64_t signature(const struct ht_comm_collective *what)
{
    uint64_t h = (uint64_t)what->kind * 8 + (uint64_t)what->type;
    int32_t n = what->kind == HT_COMM_REDUCE ? 1 : what->team.n;
    for (int32_t i = 0; i < n; i++) h = (h ^ (uint64_t)what->counts[i]) * 1099511628211U;
    return (int64_t)h;
}

struct ht_nccl_want ht_nccl_want_of(struct ht_nccl *x, struct ht_message *m)
{
    struct ht_nccl_want w = {.id = x->next_id++,
                             .bytes = m->bytes,
                             .rank = x->comm->rank,
                             .peer = m->peer,
                             .tag = m->tag,
                             .receive = m->receive};
    if (m->peer >= 0) return w;
    const struct ht_nccl_call *call = (struct ht_nccl_call *)m;
    w.bytes = signature(&call->what);
    w.members = call->what.team.n;
    w.team = ht_nccl_team_hash(call->ranks, call->what.team.n);
    return w;
}

static struct ht_nccl_call *copy_call(const struct ht_comm_collective *what)
{
    struct ht_nccl_call *call = HT_NEW(struct ht_nccl_call);
    int32_t n = what->team.n, n_counts = what->kind == HT_COMM_REDUCE ? 1 : n;
    call->m = (struct ht_message){.peer = -1, .tag = what->tag};
    call->what = *what;
    call->what.team.ranks = call->ranks = HT_NEW_ARRAY(int32_t, n);
    call->what.counts = call->counts = HT_NEW_ARRAY(int64_t, n_counts);
    memcpy(call->ranks, what->team.ranks, (size_t)n * sizeof(int32_t));
    memcpy(call->counts, what->counts, (size_t)n_counts * sizeof(int64_t));
    return call;
}

/* After a cancel the progress thread may still have the call, which then stays. */
enum ht_status ht_nccl_collective(struct ht_comm *c, const struct ht_comm_collective *what, struct ht_error *err)
{
    struct ht_nccl *x = c->impl;
    struct ht_error why = {0};
    int64_t total = 0;
    for (int32_t i = 0; i < (what->kind == HT_COMM_REDUCE ? 1 : what->team.n); i++) total += what->counts[i];
    if (!total) return HT_OK;
    struct ht_nccl_call *call = copy_call(what);
    call->m.stream = c->stream;
    ht_nccl_post(x, &call->m);
    enum ht_status status = ht_comm_wait(c, &call->m, &why);
    if (status)
        ht_fail(err, status, "rank %d: a collective of %d ranks failed: %s", c->rank, what->team.n,
                atomic_load(&x->has_why) ? x->why : "the job has failed elsewhere, or its ranks disagree about it");
    if (!ht_comm_done(&call->m)) return status;
    free(call->ranks);
    free(call->counts);
    free(call);
    return status;
}

/* ---- groups ----------------------------------------------------------------------------------------------------- */

static struct ht_message *take_pending(struct ht_nccl *x, int64_t id)
{
    for (size_t i = 0; i < x->n_pending; i++) {
        if (x->pending[i].id != id) continue;
        struct ht_message *m = x->pending[i].m;
        x->n_pending--;
        memmove(&x->pending[i], &x->pending[i + 1], (x->n_pending - i) * sizeof(*x->pending));
        return m;
    }
    return NULL;
}

static const char *add_message(struct ht_nccl *x, struct ht_nccl_group *g, struct ht_message *m)
{
    if (m->peer < 0) return add_collective(x, g, &((struct ht_nccl_call *)m)->what);
    return m->receive ? x->api->receive(g->nccl, m->data, m->bytes, m->peer, g->stream)
                      : x->api->send(g->nccl, m->data, m->bytes, m->peer, g->stream);
}

static const char *take_event(struct ht_nccl *x, void **event)
{
    if (!x->n_events) return x->api->event_create(event);
    *event = x->events[--x->n_events];
    return NULL;
}

static void give_event(struct ht_nccl *x, void *event)
{
    if (event) HT_PUSH(x->events, x->n_events, x->cap_events, event);
}

void ht_nccl_free_events(struct ht_nccl *x)
{
    for (size_t i = 0; i < x->n_events; i++) (void)x->api->event_destroy(x->events[i]);
    free(x->events);
}

/* Returns the i-th message's stream, unless it is the group's or that of a message before. */
static void *other_stream(const struct ht_nccl_group *g, int32_t i)
{
    void *stream = g->messages[i]->stream;
    for (int32_t k = 0; k < i; k++)
        if (g->messages[k]->stream == stream) return NULL;
    return stream == g->stream ? NULL : stream;
}

/* Chooses the group's stream, the transport's own if a message ends with the group. Lets it wait for the group before,
   and for what the other streams have to do first. */
static const char *begin_on_streams(struct ht_nccl *x, struct ht_nccl_group *g, const struct ht_nccl_group *last)
{
    const char *why = NULL;
    g->stream = g->messages[0]->stream;
    for (int32_t i = 0; i < g->n; i++)
        if (!g->messages[i]->stream) g->stream = x->stream;
    if (last && last->stream != g->stream) why = x->api->stream_wait(g->stream, last->event);
    for (int32_t i = 0; i < g->n && !why; i++) {
        void *other = other_stream(g, i), **before = &g->before[g->n_before];
        if (!other) continue;
        why = take_event(x, before);
        if (!why) g->n_before++;
        if (!why) why = x->api->event_record(*before, other);
        if (!why) why = x->api->stream_wait(g->stream, *before);
    }
    return why;
}

/* Lets the other streams wait for the group, and ends the messages of views. */
static const char *end_on_streams(struct ht_nccl *x, struct ht_nccl_group *g)
{
    int32_t left = 0;
    const char *why = x->api->event_record(g->event, g->stream);
    for (int32_t i = 0; i < g->n && !why; i++)
        if (other_stream(g, i)) why = x->api->stream_wait(other_stream(g, i), g->event);
    if (why) return why;
    for (int32_t i = 0; i < g->n; i++) {
        if (g->messages[i]->stream)
            ht_message_end(g->messages[i], true);
        else
            g->messages[left++] = g->messages[i];
    }
    g->n = left;
    return NULL;
}

/* Issues a group. It is ended whatever becomes of its parts: an open one would take in the thread's later calls. */
static void issue(struct ht_nccl *x, struct ht_nccl_group *g, const struct ht_nccl_group *last,
                  const struct ht_nccl_letter *round)
{
    const struct ht_nccl_api *api = x->api;
    char text[HT_NCCL_WHY_BYTES];
    bool collective = g->messages[0]->peer < 0;
    const char *why = take_event(x, &g->event);
    g->nccl = x->nccl;
    if (!why) why = begin_on_streams(x, g, last);
    if (!why && collective)
        why = communicator_of(x, &((struct ht_nccl_call *)g->messages[0])->what.team, round, &g->nccl);
    if (!why) why = api->group_begin();
    if (!why) {
        for (int32_t i = 0; i < g->n && !why; i++) why = add_message(x, g, g->messages[i]);
        if (why) snprintf(text, sizeof(text), "%s", why); /* the next call overwrites it */
        const char *end = api->group_end();
        why = why ? text : end ? end : ht_nccl_settle(x, g->nccl);
    }
    if (!why) why = end_on_streams(x, g);
    if (why) ht_nccl_fail_all(x, collective ? "a collective" : "a group of messages", why);
}

void ht_nccl_begin_round(struct ht_nccl *x, const struct ht_nccl_letter *round)
{
    struct ht_nccl_group *g = HT_NEW(struct ht_nccl_group);
    for (int32_t i = 0; i < round->n; i++) {
        struct ht_message *m = take_pending(x, round->parts[i].id);
        if (m && round->parts[i].alike)
            g->messages[g->n++] = m;
        else if (m)
            ht_message_end(m, false);
    }
    if (!g->n) {
        free(g);
        return;
    }
    const struct ht_nccl_group *last = x->newest;
    if (x->newest)
        x->newest->next = g;
    else
        x->oldest = g;
    x->newest = g;
    issue(x, g, last, round);
}

bool ht_nccl_poll_groups(struct ht_nccl *x)
{
    bool any = false, reached = true;
    while (x->oldest) {
        struct ht_nccl_group *g = x->oldest;
        bool busy;
        const char *why = x->failed ? NULL : x->api->event_query(g->event, &reached);
        if (!x->failed && !why) why = x->api->state(g->nccl, &busy);
        if (why) ht_nccl_fail_all(x, "messages under way", why);
        if (!x->failed && !reached) break;
        for (int32_t i = 0; i < g->n; i++) ht_message_end(g->messages[i], true);
        x->oldest = g->next;
        if (!x->oldest) x->newest = NULL;
        give_event(x, g->event);
        for (int32_t i = 0; i < g->n_before; i++) give_event(x, g->before[i]);
        free(g);
        any = true;
    }
    return any;
}
