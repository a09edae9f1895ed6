#include "common/exec/pacer_link.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/comm/tags.h"
#include "common/exec/node_clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PING_NS = 1000000000, DRIFT_PPM = 100 }; /* clocks drift apart by at most so much */

struct sent {
    struct ht_message transfer;
    struct ht_pacer_message message;
    struct sent *next;
};

/* The link to one other host. Rank 0 has one to each, the others to rank 0. */
struct peer {
    struct ht_pacer_link *link;
    int32_t rank;
    bool said_over; /* guarded by the link's lock */
    struct ht_message transfer;
    struct ht_pacer_message message;
    pthread_t thread;
};

struct ht_pacer_link {
    struct ht_comm *comm;
    const struct ht_hosts *hosts;
    struct peer *peers; /* [hosts->n] of each host; rank 0 uses all but its own, the others the first */
    atomic_bool over;
    int64_t pinged_ns;

    pthread_mutex_t lock; /* guards what follows */
    struct ht_node_offset offset;
    struct sent *sent; /* messages that may still be on their way */
    struct ht_pacer_message *received;
    size_t n_received, received_cap, taken;

    pthread_mutex_t calling; /* held during a call of on_message: */
    void (*on_message)(void *ctx);
    void *on_message_ctx;
};

/* Returns the range of peers in use. */
static void peers_of(const struct ht_pacer_link *l, int32_t *begin, int32_t *end)
{
    *begin = ht_pacer_link_decides(l) ? 1 : 0;
    *end = ht_pacer_link_decides(l) ? l->hosts->n : 1;
}

/* ---- sending --------------------------------------------------------------------------------------------------- */

/* Frees the messages that have arrived. Locked. Returns true when none is left. */
static bool free_arrived(struct ht_pacer_link *l)
{
    for (struct sent **at = &l->sent; *at;) {
        struct sent *x = *at;
        if (!ht_comm_done(&x->transfer)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free(x);
    }
    return !l->sent;
}

static void send_to(struct peer *p, struct ht_pacer_message message)
{
    struct ht_pacer_link *l = p->link;
    struct sent *x = HT_NEW(struct sent);
    x->message = message;
    pthread_mutex_lock(&l->lock);
    free_arrived(l);
    bool last = p->said_over;
    if (message.kind == HT_PACER_OVER) p->said_over = true;
    if (!last) {
        x->next = l->sent;
        l->sent = x;
        ht_comm_send(l->comm, p->rank, HT_TAG_PACER, &x->message, sizeof(x->message), &x->transfer);
    }
    pthread_mutex_unlock(&l->lock);
    if (last) free(x);
}

/* Returns how far rank 0's clock is ahead of this host's. */
static int64_t ahead_ns(struct ht_pacer_link *l)
{
    pthread_mutex_lock(&l->lock);
    int64_t ahead = l->offset.ahead_ns;
    pthread_mutex_unlock(&l->lock);
    return ahead;
}

void ht_pacer_link_begin(struct ht_pacer_link *l, int32_t iteration, int32_t op, int64_t begin_ns)
{
    send_to(&l->peers[0],
            (struct ht_pacer_message){
                .kind = HT_PACER_BEGIN, .iteration = iteration, .op = op, .at_ns = begin_ns + ahead_ns(l)});
}

void ht_pacer_link_end(struct ht_pacer_link *l, const int32_t *ranks, int32_t n, int32_t iteration, int32_t first,
                       int64_t end_ns)
{
    struct ht_pacer_message message = {.kind = HT_PACER_END, .iteration = iteration, .op = first, .at_ns = end_ns};
    for (int32_t host = 1; host < l->hosts->n; host++) {
        bool any = false;
        for (int32_t i = 0; i < n; i++) any |= l->hosts->of[ranks[i]] == host;
        if (any) send_to(&l->peers[host], message);
    }
}

void ht_pacer_link_tick(struct ht_pacer_link *l)
{
    int64_t now = ht_now_ns();
    if (ht_pacer_link_decides(l) || now - l->pinged_ns < PING_NS) return;
    l->pinged_ns = now;
    send_to(&l->peers[0], (struct ht_pacer_message){.kind = HT_PACER_PING, .asked_ns = now});
}

void ht_pacer_link_over(struct ht_pacer_link *l)
{
    int32_t begin, end;
    peers_of(l, &begin, &end);
    for (int32_t i = begin; i < end; i++) send_to(&l->peers[i], (struct ht_pacer_message){.kind = HT_PACER_OVER});
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* Takes a comparison if it is more exact than what is known by now: the known error grows with its age. */
static void take_clock(struct ht_pacer_link *l, const struct ht_pacer_message *m)
{
    struct ht_node_offset found = ht_node_offset_of(m->asked_ns, ht_now_ns(), m->at_ns);
    pthread_mutex_lock(&l->lock);
    int64_t age_ns = found.at_ns - l->offset.at_ns;
    if (found.error_ns <= l->offset.error_ns + age_ns / 1000000 * DRIFT_PPM) l->offset = found;
    pthread_mutex_unlock(&l->lock);
}

static void queue(struct ht_pacer_link *l, struct ht_pacer_message m)
{
    pthread_mutex_lock(&l->lock);
    if (m.kind == HT_PACER_END) m.at_ns -= l->offset.ahead_ns;
    HT_PUSH(l->received, l->n_received, l->received_cap, m);
    pthread_mutex_unlock(&l->lock);
}

static void wake(struct ht_pacer_link *l)
{
    pthread_mutex_lock(&l->calling);
    if (l->on_message) l->on_message(l->on_message_ctx);
    pthread_mutex_unlock(&l->calling);
}

static void *receive(void *arg)
{
    struct peer *p = arg;
    struct ht_pacer_link *l = p->link;
    bool on = true;
    while (on) {
        ht_comm_receive(l->comm, p->rank, HT_TAG_PACER, &p->message, sizeof(p->message), &p->transfer);
        if (ht_comm_wait(l->comm, &p->transfer, NULL)) break;
        switch ((enum ht_pacer_message_kind)p->message.kind) {
        case HT_PACER_PING:
            p->message.kind = HT_PACER_PONG;
            p->message.at_ns = ht_now_ns();
            send_to(p, p->message);
            continue;
        case HT_PACER_PONG:
            take_clock(l, &p->message);
            continue;
        case HT_PACER_OVER:
            on = false;
            break;
        case HT_PACER_BEGIN:
        case HT_PACER_END:
            queue(l, p->message);
            break;
        }
        if (on) wake(l);
    }
    send_to(p, (struct ht_pacer_message){.kind = HT_PACER_OVER});
    atomic_store(&l->over, true);
    wake(l);
    return NULL;
}

bool ht_pacer_link_decides(const struct ht_pacer_link *l)
{
    return l->comm->rank == 0;
}

void ht_pacer_link_on_message(struct ht_pacer_link *l, void (*on_message)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&l->calling);
    l->on_message = on_message;
    l->on_message_ctx = ctx;
    pthread_mutex_unlock(&l->calling);
}

bool ht_pacer_link_take(struct ht_pacer_link *l, struct ht_pacer_message *message)
{
    pthread_mutex_lock(&l->lock);
    bool any = l->taken < l->n_received;
    if (any) *message = l->received[l->taken++];
    if (l->taken == l->n_received) l->taken = l->n_received = 0;
    pthread_mutex_unlock(&l->lock);
    return any;
}

bool ht_pacer_link_is_over(const struct ht_pacer_link *l)
{
    return atomic_load(&l->over);
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

static void free_link(struct ht_pacer_link *l)
{
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->calling);
    free(l->received);
    free(l->peers);
    free(l);
}

/* Ends the links to the peers [begin, end). */
static void end_peers(struct ht_pacer_link *l, int32_t begin, int32_t end)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    for (int32_t i = begin; i < end; i++) send_to(&l->peers[i], (struct ht_pacer_message){.kind = HT_PACER_OVER});
    for (int32_t i = begin; i < end; i++) pthread_join(l->peers[i].thread, NULL);
    for (;;) {
        pthread_mutex_lock(&l->lock);
        bool none = free_arrived(l);
        pthread_mutex_unlock(&l->lock);
        if (none || atomic_load(&l->comm->cancelled)) return;
        nanosleep(&nap, NULL);
    }
}

enum ht_status ht_pacer_link_create(struct ht_comm *comm, const struct ht_hosts *hosts, struct ht_error *err,
                                    struct ht_pacer_link **out)
{
    struct ht_node_clock clock = {0};
    int32_t begin, end, *first = HT_NEW_ARRAY(int32_t, hosts->n);
    *out = NULL;
    for (int32_t r = comm->size - 1; r >= 0; r--) first[hosts->of[r]] = r;
    enum ht_status status = ht_node_clock_compare(comm, first, hosts->n, 0, &clock, err);
    struct ht_pacer_link *l = HT_NEW(struct ht_pacer_link);
    l->comm = comm;
    l->hosts = hosts;
    l->offset = clock.offsets[0];
    l->pinged_ns = ht_now_ns();
    l->peers = HT_NEW_ARRAY(struct peer, hosts->n);
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->calling, NULL);
    peers_of(l, &begin, &end);
    for (int32_t i = begin; i < end; i++) {
        l->peers[i].link = l;
        l->peers[i].rank = first[i];
    }
    for (int32_t i = begin; i < end && !status; i++) {
        int rc = pthread_create(&l->peers[i].thread, NULL, receive, &l->peers[i]);
        if (!rc) continue;
        status = ht_fail(err, HT_FAILED, "cannot start a thread for host %s: %s", hosts->hosts[i].name, strerror(rc));
        ht_pacer_link_over(l);
        end_peers(l, begin, i);
    }
    free(first);
    if (status && !atomic_load(&comm->cancelled)) free_link(l);
    if (!status) *out = l;
    return status;
}

void ht_pacer_link_destroy(struct ht_pacer_link *l)
{
    int32_t begin, end;
    if (!l) return;
    peers_of(l, &begin, &end);
    end_peers(l, begin, end);
    if (!atomic_load(&l->comm->cancelled)) free_link(l);
}
