#include "common/exec/node_mailbox.h"

#include "common/base/clock.h"
#include "common/base/futex.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

enum { POLL_NS = 100000000 };

static struct ht_mailbox *mailbox_at(const struct ht_node *n, int64_t i)
{
    return (struct ht_mailbox *)((char *)n->mailboxes.base + 64 + i * n->mailbox_bytes);
}

struct ht_mailbox *ht_node_lane_mailbox(const struct ht_node *n, int32_t lane)
{
    return mailbox_at(n, lane);
}

struct ht_mailbox *ht_node_issuer_mailbox(const struct ht_node *n, int32_t lane)
{
    return mailbox_at(n, (int64_t)n->s->n_lanes + n->s->n_ranks + lane);
}

struct ht_mailbox *ht_node_rank_mailbox(const struct ht_node *n, int32_t rank)
{
    return mailbox_at(n, (int64_t)n->s->n_lanes + rank);
}

int64_t ht_node_offset(const struct ht_node *n, int32_t space, const void *data)
{
    return data ? (const char *)data - n->bases[space] : -1;
}

static bool is_gone(const struct ht_node *n, int32_t rank)
{
    return kill(n->pids[rank], 0) && errno == ESRCH;
}

/* Sets the word to `asleep` and blocks until it changes or the other process is gone. Returns the word. */
static unsigned sleep_on(const struct ht_node *n, atomic_uint *word, unsigned none, unsigned asleep, int32_t other)
{
    unsigned seen = none;
    if (!atomic_compare_exchange_strong_explicit(word, &seen, asleep, memory_order_acq_rel, memory_order_acquire))
        return seen;
    for (;;) {
        ht_futex_wait_shared(word, asleep, POLL_NS);
        seen = atomic_load_explicit(word, memory_order_acquire);
        if (atomic_load(n->failed)) ht_comm_cancel(n->comm);
        if (seen != asleep || is_gone(n, other)) return seen;
    }
}

void ht_mailbox_request(struct ht_mailbox *mailbox, enum ht_request request)
{
    atomic_store_explicit(&mailbox->reply, HT_REPLY_NONE, memory_order_relaxed);
    if (atomic_exchange_explicit(&mailbox->request, request, memory_order_acq_rel) == HT_REQUEST_ASLEEP)
        ht_futex_wake_shared(&mailbox->request, 1);
}

enum ht_status ht_mailbox_await(const struct ht_node *n, struct ht_mailbox *mailbox, int32_t rank, struct ht_error *err)
{
    unsigned reply = sleep_on(n, &mailbox->reply, HT_REPLY_NONE, HT_REPLY_ASLEEP, rank);
    if (reply != HT_REPLY_DONE) return ht_fail(err, HT_FAILED, "rank %d (process %d) is gone", rank, n->pids[rank]);
    return mailbox->status ? ht_fail(err, mailbox->status, "%s", mailbox->text) : HT_OK;
}

enum ht_request ht_mailbox_take(const struct ht_node *n, struct ht_mailbox *mailbox, int64_t spin_ns)
{
    unsigned request = atomic_load_explicit(&mailbox->request, memory_order_acquire);
    if (spin_ns) {
        int64_t until = ht_now_ns() + spin_ns;
        while (request == HT_REQUEST_NONE && ht_now_ns() < until)
            request = atomic_load_explicit(&mailbox->request, memory_order_acquire);
    }
    if (request == HT_REQUEST_NONE)
        request = sleep_on(n, &mailbox->request, HT_REQUEST_NONE, HT_REQUEST_ASLEEP, n->leader);
    if (request <= HT_REQUEST_ASLEEP) { /* the leader is gone */
        mailbox->status = HT_FAILED;
        snprintf(mailbox->text, sizeof(mailbox->text), "rank %d (process %d) is gone", n->leader, n->pids[n->leader]);
        return HT_REQUEST_END;
    }
    atomic_store_explicit(&mailbox->request, HT_REQUEST_NONE, memory_order_relaxed);
    return (enum ht_request)request;
}

void ht_mailbox_reply(struct ht_mailbox *mailbox)
{
    if (atomic_exchange_explicit(&mailbox->reply, HT_REPLY_DONE, memory_order_acq_rel) == HT_REPLY_ASLEEP)
        ht_futex_wake_shared(&mailbox->reply, 1);
}

void ht_node_fail(struct ht_node *n)
{
    atomic_store(n->failed, true);
    ht_comm_cancel(n->comm);
}
