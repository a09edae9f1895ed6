#include "common/exec/node_link.h"

#include "common/base/array.h"
#include "common/exec/node_mailbox.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADER_BYTES = offsetof(struct ht_node_message, text) };

struct sent {
    struct ht_message transfer;
    struct ht_node_message message;
    struct sent *next;
};

struct ht_node_link {
    const struct ht_schedule *s;
    struct ht_comm *comm;
    struct ht_node *local;
    const int32_t *leaders;
    int32_t node;
    atomic_bool failed; /* a node has failed, and all know */
    struct sent *sent;  /* messages that may still be on their way */
    int32_t own_ended;  /* as sent to the others */
    int32_t *ended;     /* [n_nodes] */

    pthread_mutex_t lock; /* guards the received messages */
    struct ht_node_message *received;
    size_t n_received, received_cap, taken;
    pthread_mutex_t calling; /* held during a call of on_message: */
    void (*on_message)(void *ctx);
    void *on_message_ctx;
};

static void receive(void *ctx, int32_t from, const void *data, int64_t bytes)
{
    struct ht_node_link *p = ctx;
    struct ht_node_message message = {0};
    (void)from;
    memcpy(&message, data, (size_t)bytes < sizeof(message) ? (size_t)bytes : sizeof(message));
    if (message.kind == HT_MESSAGE_FAILED) {
        atomic_store(&p->failed, true);
        ht_node_fail(p->local);
    }
    pthread_mutex_lock(&p->lock);
    HT_PUSH(p->received, p->n_received, p->received_cap, message);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_lock(&p->calling);
    if (p->on_message) p->on_message(p->on_message_ctx);
    pthread_mutex_unlock(&p->calling);
}

struct ht_node_link *ht_node_link_create(struct ht_node *node)
{
    struct ht_node_link *p = HT_NEW(struct ht_node_link);
    p->s = node->s;
    p->comm = node->comm;
    p->leaders = node->leaders;
    p->local = node;
    p->node = node->node;
    p->ended = HT_NEW_ARRAY(int32_t, p->s->n_nodes);
    for (int32_t i = 0; i < p->s->n_nodes; i++) p->ended[i] = i == p->node || p->leaders[i] < 0 ? INT32_MAX : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->calling, NULL);
    ht_comm_listen(p->comm, receive, p);
    return p;
}

/* Frees the messages that have arrived. Returns true when none is left. */
static bool free_arrived(struct ht_node_link *p)
{
    for (struct sent **at = &p->sent; *at;) {
        struct sent *x = *at;
        if (!ht_comm_done(&x->transfer)) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free(x);
    }
    return !p->sent;
}

void ht_node_link_destroy(struct ht_node_link *p)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    if (!p) return;
    for (int i = 0; i < 2000 && !free_arrived(p); i++) nanosleep(&nap, NULL);
    ht_comm_listen(p->comm, NULL, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->calling);
    free(p->received);
    free(p->ended);
    free(p);
}

int32_t ht_node_link_node(const struct ht_node_link *p)
{
    return p->node;
}

void ht_node_link_on_message(struct ht_node_link *p, void (*on_message)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&p->calling);
    p->on_message = on_message;
    p->on_message_ctx = ctx;
    pthread_mutex_unlock(&p->calling);
}

bool ht_node_link_take(struct ht_node_link *p, struct ht_node_message *message)
{
    pthread_mutex_lock(&p->lock);
    bool any = p->taken < p->n_received;
    if (any) *message = p->received[p->taken++];
    if (p->taken == p->n_received) p->taken = p->n_received = 0;
    pthread_mutex_unlock(&p->lock);
    return any;
}

int32_t ht_node_link_ended(struct ht_node_link *p, const struct ht_node_message *message)
{
    int32_t least = INT32_MAX;
    p->ended[message->from] = message->iteration;
    for (int32_t i = 0; i < p->s->n_nodes; i++)
        if (p->ended[i] < least) least = p->ended[i];
    return least;
}

static void send_to_all(struct ht_node_link *p, struct ht_node_message message)
{
    message.from = p->node;
    free_arrived(p);
    for (int32_t i = 0; i < p->s->n_nodes; i++) {
        if (i == p->node || p->leaders[i] < 0) continue;
        struct sent *x = HT_NEW(struct sent);
        x->message = message;
        x->next = p->sent;
        p->sent = x;
        ht_comm_notify(p->comm, p->leaders[i], &x->message,
                       message.kind == HT_MESSAGE_FAILED ? (int64_t)sizeof(message) : (int64_t)HEADER_BYTES,
                       &x->transfer);
    }
}

void ht_node_link_send_ends(struct ht_node_link *p, struct ht_core *core)
{
    struct ht_completion completion;
    if (!p) return;
    while (ht_core_next_completion(core, &completion))
        send_to_all(p, (struct ht_node_message){.kind = HT_MESSAGE_END,
                                                .iteration = completion.inst.iteration,
                                                .op = completion.inst.op,
                                                .ok = completion.ok});
    int32_t ended = ht_core_own_ended(core);
    if (ended == p->own_ended) return;
    p->own_ended = ended;
    send_to_all(p, (struct ht_node_message){.kind = HT_MESSAGE_ENDED, .iteration = ended});
}

void ht_node_link_cut(struct ht_node_link *p, int32_t iterations)
{
    send_to_all(p, (struct ht_node_message){.kind = HT_MESSAGE_CUT, .iteration = iterations});
}

void ht_node_link_fail(struct ht_node_link *p, const char *text)
{
    struct ht_node_message message = {.kind = HT_MESSAGE_FAILED};
    if (atomic_exchange(&p->failed, true)) return;
    strncpy(message.text, text, sizeof(message.text) - 1);
    send_to_all(p, message);
}
