/*
 * The NCCL transport. A progress thread makes every call of NCCL but the first and the last. Ranks exchange letters of
 * one size about their messages over the transport beneath: wants go to rank 0, rounds come from it. A rank that closes
 * sends bye and stays until all have; then no letter is outstanding.
 */
#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/nccl_state.h"
#include "common/comm/tags.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    YIELDS = 50, /* polls without a nap */
    SHORTEST_NAP_NS = 5000,
    LONGEST_NAP_NS = 200000,
};

struct sent {
    struct ht_message m;
    struct ht_nccl_letter letter;
    struct sent *next;
};

/* Receive buffer for letters from one rank. */
struct inbox {
    struct ht_message m;
    struct ht_nccl_letter letter;
    bool awaited;
};

/* ---- letters ---------------------------------------------------------------------------------------------------- */

static void send_letter(struct ht_nccl *x, int32_t to, const struct ht_nccl_letter *letter)
{
    struct sent *s = HT_NEW(struct sent);
    s->letter = *letter;
    s->next = x->sent;
    x->sent = s;
    ht_comm_send(x->over, to, HT_TAG_NCCL, &s->letter, sizeof(s->letter), &s->m);
}

static void free_sent(struct ht_nccl *x)
{
    for (struct sent **at = &x->sent; *at;) {
        struct sent *s = *at;
        if (ht_comm_done(&s->m)) {
            *at = s->next;
            free(s);
        } else {
            at = &s->next;
        }
    }
}

static void await_letter(struct ht_nccl *x, int32_t from)
{
    struct inbox *b = &x->inboxes[from];
    b->awaited = true;
    ht_comm_receive(x->over, from, HT_TAG_NCCL, &b->letter, sizeof(b->letter), &b->m);
}

/* ---- the order -------------------------------------------------------------------------------------------------- */

/* Gives the team's communicator an id in its first round. Everybody's is there from the start. */
static void name_team(struct ht_nccl *x, uint64_t team, struct ht_nccl_letter *round)
{
    for (size_t i = 0; i < x->n_known; i++)
        if (x->known[i] == team) return;
    HT_PUSH(x->known, x->n_known, x->cap_known, team);
    const char *why = x->api->unique_id(round->unique);
    round->has_unique = !why;
    if (why) ht_nccl_fail_all(x, "a communicator's id", why);
}

/* Sends each rank its parts of a round before this rank issues its own, since that may block until the others have
   come. */
static void send_round(struct ht_nccl *x, const struct ht_nccl_match *matches, size_t n)
{
    struct ht_nccl_letter l = {0}, own = {0};
    if (matches[0].ends[0].peer < 0) name_team(x, matches[0].ends[0].team, &l);
    for (int32_t rank = x->comm->size - 1; rank >= 0; rank--) {
        l.n = 0;
        for (size_t i = 0; i < n; i++)
            for (int32_t e = 0; e < matches[i].n; e++)
                if (matches[i].ends[e].rank == rank)
                    l.parts[l.n++] = (struct ht_nccl_part){.id = matches[i].ends[e].id, .alike = matches[i].alike};
        if (rank == 0)
            own = l;
        else if (l.n)
            send_letter(x, rank, &l);
    }
    ht_nccl_begin_round(x, &own);
}

/* Makes rounds of the matches, on rank 0: as many messages as a letter holds, or a collective alone. */
static void make_rounds(struct ht_nccl *x)
{
    struct ht_nccl_order *o = &x->order;
    for (size_t at = 0, end; at < o->n_matches; at = end) {
        bool collective = o->matches[at].ends[0].peer < 0;
        for (end = at + 1; !collective && end < o->n_matches && end - at < HT_NCCL_MOST; end++)
            if (o->matches[end].ends[0].peer < 0) break;
        send_round(x, o->matches + at, end - at);
    }
    for (size_t i = 0; i < o->n_matches; i++) free(o->matches[i].ends);
    o->n_matches = 0;
}

/* Sends rank 0 the wants of the messages posted here. */
static void send_wants(struct ht_nccl *x, struct ht_message *posted)
{
    struct ht_nccl_letter l = {0};
    for (struct ht_message *m = posted, *next; m; m = next) {
        next = m->next;
        if (x->failed) {
            ht_message_end(m, false);
            continue;
        }
        struct ht_nccl_want w = ht_nccl_want_of(x, m);
        struct ht_nccl_pending p = {w.id, m};
        HT_PUSH(x->pending, x->n_pending, x->cap_pending, p);
        if (x->comm->rank == 0) {
            ht_nccl_order_add(&x->order, w);
            continue;
        }
        l.wants[l.n++] = w;
        if (l.n == HT_NCCL_MOST) {
            send_letter(x, 0, &l);
            l.n = 0;
        }
    }
    if (l.n) send_letter(x, 0, &l);
}

static void read_letter(struct ht_nccl *x, int32_t from)
{
    const struct ht_nccl_letter *l = &x->inboxes[from].letter;
    bool bye = l->bye;
    if (x->comm->rank == 0)
        for (int32_t i = 0; i < l->n; i++) ht_nccl_order_add(&x->order, l->wants[i]);
    else
        ht_nccl_begin_round(x, l);
    if (bye && x->comm->rank == 0) x->left++;
    if (bye && x->comm->rank != 0) x->all_left = true;
    if (!bye) await_letter(x, from);
}

static bool read_letters(struct ht_nccl *x)
{
    int32_t n = x->comm->rank == 0 ? x->comm->size : 1;
    bool any = false;
    for (int32_t from = 0; from < n; from++) {
        struct inbox *b = &x->inboxes[from];
        if (!b->awaited || !ht_comm_done(&b->m)) continue;
        b->awaited = false;
        any = true;
        struct ht_error err;
        if (ht_comm_wait(x->over, &b->m, &err) == HT_OK)
            read_letter(x, from);
        else
            ht_nccl_fail_all(x, "a letter about messages", err.text);
    }
    return any;
}

/* Sends bye, once. Rank 0 waits for all byes and then answers all. Returns true when all ranks close. */
static bool leave(struct ht_nccl *x)
{
    struct ht_nccl_letter bye = {.bye = true};
    if (x->comm->rank != 0 && !x->sent_bye) send_letter(x, 0, &bye);
    x->sent_bye = true;
    if (x->comm->rank == 0 && !x->all_left && x->left == x->comm->size - 1) {
        for (int32_t rank = 1; rank < x->comm->size; rank++) send_letter(x, rank, &bye);
        x->all_left = true;
    }
    return x->all_left && !x->sent;
}

/* ---- the progress thread ---------------------------------------------------------------------------------------- */

/* Waits for a post, for a short time, because a letter may always come. Locked. */
static void nap(struct ht_nccl *x, int idle)
{
    if (x->first) return;
    if (idle < YIELDS) {
        pthread_mutex_unlock(&x->lock);
        sched_yield();
        pthread_mutex_lock(&x->lock);
        return;
    }
    int64_t ns = (int64_t)SHORTEST_NAP_NS * (idle - YIELDS + 1);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ns < LONGEST_NAP_NS ? ns : LONGEST_NAP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&x->changed, &x->lock, &until);
}

static void *thread_main(void *arg)
{
    struct ht_nccl *x = arg;
    int idle = 0;
    const char *why = x->api->select(x->device);
    if (why) ht_nccl_fail_all(x, "the progress thread", why);
    for (int32_t rank = 0; rank < x->comm->size; rank++)
        if (x->comm->rank == 0 ? rank != 0 : rank == 0) await_letter(x, rank);
    for (bool done = false; !done;) {
        pthread_mutex_lock(&x->lock);
        nap(x, idle);
        struct ht_message *posted = x->first;
        bool closing = x->closing;
        x->first = x->last = NULL;
        pthread_mutex_unlock(&x->lock);
        idle = idle < 1000 ? idle + 1 : idle;
        if (posted) idle = 0;
        if (ht_nccl_is_cancelled(x)) {
            posted = NULL; /* nobody waits for them, and their memory may be gone */
            ht_comm_cancel(x->comm);
            if (!x->failed) ht_nccl_fail_all(x, "messages under way", "the job has failed elsewhere");
        }
        send_wants(x, posted);
        if (read_letters(x)) idle = 0;
        make_rounds(x);
        if (ht_nccl_poll_groups(x)) idle = 0;
        free_sent(x);
        done = closing && !posted && !x->n_pending && !x->oldest && leave(x);
    }
    return NULL;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

/* Selects the device first: CUDA makes a context on the thread's device, which is GPU 0 unless one was selected. */
static bool nccl_on_gpu(const struct ht_comm *c, const void *p)
{
    const struct ht_nccl *x = c->impl;
    return !x->api->select(x->device) && x->api->on_gpu(p);
}

static bool nccl_copy(struct ht_comm *c, void *to, const void *from, int64_t bytes)
{
    struct ht_nccl *x = c->impl;
    if (c->stream) return !x->api->select(x->device) && !x->api->copy(to, from, bytes, c->stream);
    pthread_mutex_lock(&x->copy_lock);
    const char *why = x->api->select(x->device);
    if (!why) why = x->api->copy(to, from, bytes, x->copies);
    if (!why) why = x->api->stream_finish(x->copies);
    pthread_mutex_unlock(&x->copy_lock);
    return !why;
}

void ht_nccl_post(struct ht_nccl *x, struct ht_message *m)
{
    pthread_mutex_lock(&x->lock);
    if (x->last)
        x->last->next = m;
    else
        x->first = m;
    x->last = m;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static void nccl_post(struct ht_comm *c, struct ht_message *m)
{
    struct ht_nccl *x = c->impl;
    if (m->tag == HT_TAG_NOTIFY || !m->bytes || !nccl_on_gpu(c, m->data))
        x->over->ops->post(x->over, m);
    else
        ht_nccl_post(x, m);
}

static void nccl_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    struct ht_nccl *x = c->impl;
    ht_comm_listen(x->over, fn, ctx);
}

static const char *nccl_reason(const struct ht_comm *c)
{
    const struct ht_nccl *x = c->impl;
    return atomic_load(&x->has_why) ? x->why : NULL;
}

/* Frees all, unless an abort that hangs uses it until the process ends. */
static void release(struct ht_nccl *x)
{
    if (x->failed && !atomic_load(&x->aborted)) return;
    for (size_t i = 0; i < x->n_teams; i++) {
        ht_nccl_finish(x, x->teams[i].nccl);
        free(x->teams[i].ranks);
    }
    ht_nccl_finish(x, x->nccl);
    ht_nccl_free_events(x);
    if (x->stream) (void)x->api->stream_destroy(x->stream);
    if (x->copies) (void)x->api->stream_destroy(x->copies);
    pthread_mutex_destroy(&x->copy_lock);
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->changed);
    ht_nccl_order_free(&x->order);
    free(x->pending);
    free(x->teams);
    free(x->known);
    free(x->inboxes);
    free(x);
}

static void nccl_close(struct ht_comm *c, bool clean, int code)
{
    struct ht_nccl *x = c->impl;
    if (!clean) ht_comm_abort(x->over, code);
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    if (c->size > 1) pthread_join(x->thread, NULL);
    release(x);
}

static const struct ht_comm_ops nccl_ops = {.name = "nccl",
                                            .post = nccl_post,
                                            .listen = nccl_listen,
                                            .close = nccl_close,
                                            .on_gpu = nccl_on_gpu,
                                            .copy = nccl_copy,
                                            .reason = nccl_reason,
                                            .has_streams = true};
static const struct ht_comm_ops nccl_collective_ops = {.name = "nccl",
                                                       .post = nccl_post,
                                                       .listen = nccl_listen,
                                                       .close = nccl_close,
                                                       .on_gpu = nccl_on_gpu,
                                                       .copy = nccl_copy,
                                                       .collective = ht_nccl_collective,
                                                       .reason = nccl_reason,
                                                       .has_streams = true};

/* ---- the start -------------------------------------------------------------------------------------------------- */

/* Agrees with all ranks on success, so that none waits for one that has given up. `why` NULL: this rank succeeded. */
static enum ht_status agree(struct ht_comm *over, const char *why, const char *what, struct ht_error *err)
{
    int64_t *counts = HT_NEW_ARRAY(int64_t, over->size);
    int32_t *ranks = HT_NEW_ARRAY(int32_t, over->size);
    char *ok = HT_NEW_ARRAY(char, over->size), mine = why == NULL;
    for (int32_t i = 0; i < over->size; i++) {
        counts[i] = 1;
        ranks[i] = i;
    }
    struct ht_team all = {.ranks = ranks, .n = over->size, .me = over->rank};
    enum ht_status status = ht_comm_all_gather(over, all, HT_TAG_NCCL, &mine, ok, counts, HT_COMM_BYTE, err);
    if (!status && why) status = ht_fail(err, HT_INFEASIBLE, "rank %d: NCCL: %s: %s", over->rank, what, why);
    for (int32_t i = 0; i < over->size && !status; i++)
        if (!ok[i]) status = ht_fail(err, HT_INFEASIBLE, "rank %d: NCCL: %s: failed on rank %d", over->rank, what, i);
    free(counts);
    free(ranks);
    free(ok);
    return status;
}

/* A rank's message about its communicator. */
struct word {
    char mine, other;
    struct ht_message out, in;
};

/* Returns a rank that has reported a failure, else -1. Sets *silent to a rank whose exchange is incomplete, else -1. */
static int32_t hear(const struct ht_nccl *x, const struct word *words, int32_t *silent)
{
    int32_t failed = -1;
    *silent = -1;
    for (int32_t i = 0; i < x->over->size; i++) {
        if (i == x->over->rank) continue;
        bool heard = ht_comm_done(&words[i].in);
        if (heard && !words[i].other) failed = i;
        if (!heard || !ht_comm_done(&words[i].out)) *silent = i;
    }
    return failed;
}

/*
 * Creates the communicator without waiting inside NCCL, where a rank would hang that waits for one that has died, or
 * for two that share a GPU. Each rank says how it went to all others, and gives up when one has failed or when NCCL
 * has taken too long. Nobody can take back a message to a rank that never answers: the job cannot go on then. Nor can it
 * beside an abort that hangs: ncclCommAbort may be called while a communicator is being created, but does not return before
 * NCCL's own thread has stopped creating it.
 */
static enum ht_status create(struct ht_nccl *x, const char *id, struct ht_error *err)
{
    int32_t n = x->over->size, me = x->over->rank, failed = -1, silent;
    struct word *words = HT_NEW_ARRAY(struct word, n);
    double begin_s = ht_now_s();
    char text[sizeof(x->why)] = "";
    bool busy = true, hangs = false;
    for (int32_t i = 0; i < n; i++)
        if (i != me) ht_comm_receive(x->over, i, HT_TAG_NCCL, &words[i].other, 1, &words[i].in);
    const char *why = x->api->create(id, me, n, &x->nccl);
    while (!why && busy && failed < 0) {
        why = x->api->state(x->nccl, &busy);
        failed = hear(x, words, &silent);
        if (!why && busy && ht_now_s() - begin_s > x->deadline_s) {
            snprintf(text, sizeof(text), "not connected to the other ranks within %g s", x->deadline_s);
            why = text;
        }
        if (!why && busy) usleep(HT_NCCL_POLL_US);
    }
    if (why && why != text) snprintf(text, sizeof(text), "%s", why);
    bool good = !why && !busy && failed < 0;
    for (int32_t i = 0; i < n; i++) {
        words[i].mine = good;
        if (i != me) ht_comm_send(x->over, i, HT_TAG_NCCL, &words[i].mine, 1, &words[i].out);
    }
    while (failed = hear(x, words, &silent), silent >= 0 && ht_now_s() - begin_s < 2 * x->deadline_s)
        usleep(HT_NCCL_POLL_US);
    if ((!good || failed >= 0) && x->nccl) hangs = !ht_nccl_abort(x);
    if (silent >= 0 || hangs) ht_comm_cancel(x->over);
    if (silent >= 0)
        return ht_fail(err, HT_FAILED, "rank %d: NCCL: a communicator: %s%srank %d has not answered", me, text,
                       *text ? "; " : "", silent);
    free(words);
    if (hangs)
        return ht_fail(err, HT_FAILED, "rank %d: NCCL: a communicator: %s%sits abort has not ended within %d s", me,
                       text, *text ? "; " : "", HT_NCCL_ABORT_S);
    if (*text) return ht_fail(err, HT_INFEASIBLE, "rank %d: NCCL: a communicator: %s", me, text);
    if (failed >= 0) return ht_fail(err, HT_INFEASIBLE, "rank %d: NCCL: a communicator: failed on rank %d", me, failed);
    return HT_OK;
}

static enum ht_status connect_ranks(struct ht_nccl *x, struct ht_error *err)
{
    char id[HT_NCCL_ID_BYTES] = "";
    const struct ht_nccl_api *api = x->api;
    const char *why = api ? NULL : "NCCL is not available";
    if (!why) why = api->select(x->device);
    if (!why) why = api->stream_create(&x->stream);
    if (!why) why = api->stream_create(&x->copies);
    if (!why && x->over->rank == 0) why = api->unique_id(id);
    enum ht_status status = agree(x->over, why, "the start", err);
    if (status) return status;
    int32_t *ranks = HT_NEW_ARRAY(int32_t, x->over->size);
    for (int32_t i = 0; i < x->over->size; i++) ranks[i] = i;
    struct ht_team all = {.ranks = ranks, .n = x->over->size, .me = x->over->rank};
    status = ht_comm_broadcast(x->over, all, HT_TAG_NCCL, 0, id, sizeof(id), err);
    free(ranks);
    return status ? status : create(x, id, err);
}

enum ht_status ht_comm_nccl(struct ht_comm *over, const struct ht_nccl_api *api, int device, double deadline_s,
                            struct ht_error *err, struct ht_comm **out)
{
    struct ht_comm *c = HT_NEW(struct ht_comm);
    struct ht_nccl *x = HT_NEW(struct ht_nccl);
    int32_t *ranks = HT_NEW_ARRAY(int32_t, over->size);
    pthread_condattr_t attr;
    *out = NULL;
    bool has_collectives = api && api->all_reduce;
    *c = (struct ht_comm){
        .ops = has_collectives ? &nccl_collective_ops : &nccl_ops, .rank = over->rank, .size = over->size, .impl = x};
    x->comm = c;
    x->over = over;
    x->api = api;
    x->device = device;
    x->deadline_s = deadline_s;
    x->inboxes = HT_NEW_ARRAY(struct inbox, over->size);
    pthread_mutex_init(&x->copy_lock, NULL);
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &attr);
    pthread_condattr_destroy(&attr);
    for (int32_t i = 0; i < over->size; i++) ranks[i] = i;
    HT_PUSH(x->known, x->n_known, x->cap_known, ht_nccl_team_hash(ranks, over->size));
    free(ranks);
    enum ht_status status = connect_ranks(x, err);
    int rc = !status && c->size > 1 ? pthread_create(&x->thread, NULL, thread_main, x) : 0;
    if (rc) status = ht_fail(err, HT_INFEASIBLE, "cannot start the progress thread: %s", strerror(rc));
    if (status) {
        release(x);
        free(c);
        return status;
    }
    *out = c;
    return HT_OK;
}
