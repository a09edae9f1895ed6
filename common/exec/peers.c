#include "common/exec/peers.h"

#include "common/base/array.h"
#include "common/exec/node_desk.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHORT_NOTE_BYTES = offsetof(struct ht_note, text) };

struct sent {
    struct ht_message message;
    struct ht_note note;
    struct sent *next;
};

struct ht_peers {
    const struct ht_schedule *s;
    struct ht_comm *comm;
    struct ht_node *home;
    const int32_t *leaders;
    int32_t node;
    atomic_bool failed; /* somewhere, and everybody knows */
    struct sent *sent;  /* some of them have arrived */
    int32_t own_ended;  /* as told */
    int32_t *ended;     /* [n_nodes] */

    pthread_mutex_t lock; /* of what is heard */
    struct ht_note *heard;
    size_t n_heard, heard_cap, taken;
    pthread_mutex_t calling; /* held while `news` is called: */
    void (*news)(void *ctx);
    void *news_ctx;
};

static void hear(void *ctx, int32_t from, const void *data, int64_t bytes)
{
    struct ht_peers *p = ctx;
    struct ht_note note = {0};
    (void)from;
    memcpy(&note, data, (size_t)bytes < sizeof(note) ? (size_t)bytes : sizeof(note));
    if (note.kind == HT_NOTE_FAILED) {
        atomic_store(&p->failed, true);
        ht_node_fail(p->home);
    }
    pthread_mutex_lock(&p->lock);
    HT_PUSH(p->heard, p->n_heard, p->heard_cap, note);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_lock(&p->calling);
    if (p->news) p->news(p->news_ctx);
    pthread_mutex_unlock(&p->calling);
}

struct ht_peers *ht_peers_create(struct ht_node *node)
{
    struct ht_peers *p = HT_NEW(struct ht_peers);
    p->s = node->s;
    p->comm = node->comm;
    p->leaders = node->leaders;
    p->home = node;
    p->node = node->node;
    p->ended = HT_NEW_ARRAY(int32_t, p->s->n_nodes);
    for (int32_t i = 0; i < p->s->n_nodes; i++) p->ended[i] = i == p->node || p->leaders[i] < 0 ? INT32_MAX : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->calling, NULL);
    ht_comm_listen(p->comm, hear, p);
    return p;
}

/* Frees what has arrived; true if nothing is left. */
static bool collect(struct ht_peers *p)
{
    for (struct sent **at = &p->sent; *at;) {
        struct sent *x = *at;
        if (!ht_comm_done(&x->message)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free(x);
    }
    return !p->sent;
}

void ht_peers_destroy(struct ht_peers *p)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    if (!p) return;
    for (int i = 0; i < 2000 && !collect(p); i++) nanosleep(&nap, NULL);
    ht_comm_listen(p->comm, NULL, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->calling);
    free(p->heard);
    free(p->ended);
    free(p);
}

int32_t ht_peers_node(const struct ht_peers *p)
{
    return p->node;
}

void ht_peers_on_news(struct ht_peers *p, void (*news)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&p->calling);
    p->news = news;
    p->news_ctx = ctx;
    pthread_mutex_unlock(&p->calling);
}

bool ht_peers_take(struct ht_peers *p, struct ht_note *note)
{
    pthread_mutex_lock(&p->lock);
    bool any = p->taken < p->n_heard;
    if (any) *note = p->heard[p->taken++];
    if (p->taken == p->n_heard) p->taken = p->n_heard = 0;
    pthread_mutex_unlock(&p->lock);
    return any;
}

int32_t ht_peers_ended(struct ht_peers *p, const struct ht_note *note)
{
    int32_t least = INT32_MAX;
    p->ended[note->from] = note->iteration;
    for (int32_t i = 0; i < p->s->n_nodes; i++)
        if (p->ended[i] < least) least = p->ended[i];
    return least;
}

static void tell(struct ht_peers *p, struct ht_note note)
{
    note.from = p->node;
    collect(p);
    for (int32_t i = 0; i < p->s->n_nodes; i++) {
        if (i == p->node || p->leaders[i] < 0) continue;
        struct sent *x = HT_NEW(struct sent);
        x->note = note;
        x->next = p->sent;
        p->sent = x;
        ht_comm_note(p->comm, p->leaders[i], &x->note,
                     note.kind == HT_NOTE_FAILED ? (int64_t)sizeof(note) : (int64_t)SHORT_NOTE_BYTES, &x->message);
    }
}

void ht_peers_look(struct ht_peers *p, struct ht_core *core)
{
    struct ht_told told;
    if (!p) return;
    while (ht_core_next_told(core, &told))
        tell(p, (struct ht_note){
                    .kind = HT_NOTE_END, .iteration = told.inst.iteration, .op = told.inst.op, .ok = told.ok});
    int32_t ended = ht_core_own_ended(core);
    if (ended == p->own_ended) return;
    p->own_ended = ended;
    tell(p, (struct ht_note){.kind = HT_NOTE_ENDED, .iteration = ended});
}

void ht_peers_cut(struct ht_peers *p, int32_t iterations)
{
    tell(p, (struct ht_note){.kind = HT_NOTE_CUT, .iteration = iterations});
}

void ht_peers_fail(struct ht_peers *p, const char *text)
{
    struct ht_note note = {.kind = HT_NOTE_FAILED};
    if (atomic_exchange(&p->failed, true)) return;
    strncpy(note.text, text, sizeof(note.text) - 1);
    tell(p, note);
}
