#include "common/comm/comm.h"

#include "common/base/array.h"
#include "common/base/futex.h"
#include "common/comm/sum.h"
#include "common/comm/tags.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum word { IN_FLIGHT, DONE, FAILED, SLEEPING };
enum { POLL_NS = 100000000 }; /* how often a sleeper checks for a cancel */

/* ---- messages --------------------------------------------------------------------------------------------------- */

void ht_message_end(struct ht_message *m, bool ok)
{
    /* After the exchange the waiter may go on and reuse the message. */
    atomic_uint *word = &m->word;
    if (atomic_exchange_explicit(word, ok ? DONE : FAILED, memory_order_acq_rel) == SLEEPING) ht_futex_wake(word, 1);
}

static void post(struct ht_comm *c, struct ht_message *m, bool receive, int32_t peer, int32_t tag, void *data,
                 int64_t bytes)
{
    assert(peer >= 0 && peer < c->size && peer != c->rank && tag >= 0 && tag <= HT_TAG_NOTIFY);
    m->receive = receive;
    m->peer = peer;
    m->tag = tag;
    m->data = data;
    m->bytes = bytes;
    m->parts = 0;
    m->next = NULL;
    m->stream = c->stream;
    atomic_store_explicit(&m->word, IN_FLIGHT, memory_order_relaxed);
    /* After a cancel no thread waits for the message, so its memory may be gone before the transport uses it. */
    if (tag != HT_TAG_NOTIFY && ht_comm_is_cancelled(c)) return;
    c->ops->post(c, m);
}

void ht_comm_send(struct ht_comm *c, int32_t to, int32_t tag, const void *data, int64_t bytes, struct ht_message *m)
{
    post(c, m, false, to, tag, (void *)data, bytes);
}

void ht_comm_receive(struct ht_comm *c, int32_t from, int32_t tag, void *data, int64_t bytes, struct ht_message *m)
{
    post(c, m, true, from, tag, data, bytes);
}

void ht_comm_notify(struct ht_comm *c, int32_t to, const void *data, int64_t bytes, struct ht_message *m)
{
    assert(bytes >= 1 && bytes <= HT_COMM_NOTIFY_BYTES);
    post(c, m, false, to, HT_TAG_NOTIFY, (void *)data, bytes);
}

void ht_comm_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    c->ops->listen(c, fn, ctx);
}

bool ht_comm_done(const struct ht_message *m)
{
    unsigned word = atomic_load_explicit(&m->word, memory_order_acquire);
    return word == DONE || word == FAILED;
}

enum ht_status ht_comm_wait(struct ht_comm *c, struct ht_message *m, struct ht_error *err)
{
    unsigned word = atomic_load_explicit(&m->word, memory_order_acquire);
    const char *why;
    while (word == IN_FLIGHT || word == SLEEPING) {
        if (ht_comm_is_cancelled(c)) {
            why = c->ops->reason ? c->ops->reason(c) : NULL;
            return ht_fail(err, HT_FAILED, "rank %d gave up waiting for rank %d%s%s", c->rank, m->peer, why ? ": " : "",
                           why ? why : "");
        }
        if (word == IN_FLIGHT && !atomic_compare_exchange_strong_explicit(&m->word, &word, SLEEPING,
                                                                          memory_order_acq_rel, memory_order_acquire))
            continue;
        ht_futex_wait_for(&m->word, SLEEPING, POLL_NS);
        word = atomic_load_explicit(&m->word, memory_order_acquire);
    }
    if (word == DONE) return HT_OK;
    why = c->ops->reason ? c->ops->reason(c) : NULL;
    return ht_fail(err, HT_FAILED, "rank %d: a message %s rank %d failed%s%s", c->rank, m->receive ? "from" : "to",
                   m->peer, why ? ": " : "", why ? why : "");
}

void ht_comm_cancel(struct ht_comm *c)
{
    atomic_store_explicit(&(c->base ? c->base : c)->cancelled, true, memory_order_release);
}

bool ht_comm_is_cancelled(const struct ht_comm *c)
{
    return atomic_load_explicit(&(c->base ? c->base : c)->cancelled, memory_order_acquire);
}

struct ht_comm *ht_comm_on_stream(struct ht_comm *c, void *stream)
{
    if (!c->ops->has_streams) return NULL;
    struct ht_comm *view = HT_NEW(struct ht_comm);
    *view =
        (struct ht_comm){.ops = c->ops, .rank = c->rank, .size = c->size, .impl = c->impl, .base = c, .stream = stream};
    return view;
}

void ht_comm_close(struct ht_comm *c)
{
    if (!c) return;
    if (!c->base) c->ops->close(c, true, 0);
    free(c);
}

_Noreturn void ht_comm_abort(struct ht_comm *c, int code)
{
    if (c) c->ops->close(c, false, code);
    _exit(code);
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */

int64_t ht_comm_type_bytes(enum ht_comm_type t)
{
    static const int64_t bytes[] = {1, 4, 2, 2, 8};
    return bytes[t];
}

/* Waits for all messages, even when one has failed, because their memory is the caller's. After a cancel the transport
   still uses it, so it must stay; a process that cancels ends before the memory goes. */
static enum ht_status wait_all(struct ht_comm *c, struct ht_message *m, int32_t n, struct ht_error *err)
{
    enum ht_status first = HT_OK;
    for (int32_t i = 0; i < n; i++) {
        enum ht_status status = ht_comm_wait(c, &m[i], first ? NULL : err);
        if (!first) first = status;
    }
    return first;
}

/* Frees messages that have ended. After a cancel they may still be in flight, and are never freed. */
static void free_messages(struct ht_comm *c, void *messages)
{
    if (!ht_comm_is_cancelled(c)) free(messages);
}

static int64_t offset_of(const int64_t *counts, int32_t i)
{
    int64_t offset = 0;
    for (int32_t k = 0; k < i; k++) offset += counts[k];
    return offset;
}

static bool has_whole(struct ht_team team, int32_t i)
{
    return !team.without || !team.without[i];
}

static bool on_gpu(const struct ht_comm *c, const void *p)
{
    return c->ops->on_gpu && c->ops->on_gpu(c, p);
}

static enum ht_status copy(struct ht_comm *c, void *to, const void *from, int64_t bytes, struct ht_error *err)
{
    if (!bytes || to == from) return HT_OK;
    if (!on_gpu(c, to) && !on_gpu(c, from))
        memmove(to, from, (size_t)bytes);
    else if (!c->ops->copy(c, to, from, bytes))
        return ht_fail(err, HT_FAILED, "rank %d: a copy on the GPU failed", c->rank);
    return HT_OK;
}

/* Returns true for a collective that the transport carries out itself. */
static bool is_native(const struct ht_comm *c, struct ht_team team, const void *a, const void *b)
{
    bool whole = c->ops->collective && team.n > 1;
    for (int32_t i = 0; i < team.n; i++) whole &= has_whole(team, i);
    return whole && (on_gpu(c, a) || on_gpu(c, b));
}

/*
 * Sends each rank's piece to every other rank: N (N - 1) messages, of which the longest takes as long as the whole. A
 * rank sends and receives as many bytes as in a ring.
 */
enum ht_status ht_comm_all_gather(struct ht_comm *c, struct ht_team team, int32_t tag, const void *mine, void *all,
                                  const int64_t *counts, enum ht_comm_type type, struct ht_error *err)
{
    int64_t each = ht_comm_type_bytes(type);
    bool whole = has_whole(team, team.me);
    if (is_native(c, team, mine, all))
        return c->ops->collective(c, &(struct ht_comm_collective){HT_COMM_GATHER, team, tag, mine, all, counts, type},
                                  err);
    const char *from = whole ? (char *)all + offset_of(counts, team.me) * each : mine;
    enum ht_status copied = whole ? copy(c, (char *)from, mine, counts[team.me] * each, err) : HT_OK;
    if (copied) return copied;
    struct ht_message *m = HT_NEW_ARRAY(struct ht_message, 2 * team.n);
    int32_t n = 0;
    for (int32_t i = 0; i < team.n; i++)
        if (i != team.me && counts[i] && whole)
            ht_comm_receive(c, team.ranks[i], tag, (char *)all + offset_of(counts, i) * each, counts[i] * each,
                            &m[n++]);
    for (int32_t i = 0; i < team.n; i++)
        if (i != team.me && counts[team.me] && has_whole(team, i))
            ht_comm_send(c, team.ranks[i], tag, from, counts[team.me] * each, &m[n++]);
    enum ht_status status = wait_all(c, m, n, err);
    free_messages(c, m);
    return status;
}

enum { STAGE_BYTES = 1 << 18 };

/* Sends piece i of every rank to rank i, in stages. The pieces received in a stage are added up in the team's order. */
enum ht_status ht_comm_reduce_scatter(struct ht_comm *c, struct ht_team team, int32_t tag, const void *all, void *mine,
                                      const int64_t *counts, enum ht_comm_type type, struct ht_error *err)
{
    int64_t each = ht_comm_type_bytes(type), stage = STAGE_BYTES / each, count = counts[team.me], longest = 0;
    bool whole = has_whole(team, team.me);
    const char *own = whole ? (const char *)all + offset_of(counts, team.me) * each : NULL;
    if (is_native(c, team, mine, all))
        return c->ops->collective(c, &(struct ht_comm_collective){HT_COMM_SCATTER, team, tag, all, mine, counts, type},
                                  err);
    if (on_gpu(c, all) || on_gpu(c, mine)) {
        if (team.n == 1) return copy(c, mine, own, count * each, err);
        return ht_fail(err, HT_INFEASIBLE, "rank %d: %s does not add up buffers on GPUs; bring them to the host first",
                       c->rank, c->ops->name);
    }
    for (int32_t i = 0; i < team.n; i++) longest += i != team.me ? (counts[i] + stage - 1) / stage : 0;
    struct ht_message *sends = HT_NEW_ARRAY(struct ht_message, longest), *m = HT_NEW_ARRAY(struct ht_message, team.n);
    char *staging = ht_alloc(team.n > 1 && count ? (size_t)((team.n - 1) * STAGE_BYTES) : 0);
    const void **terms = HT_NEW_ARRAY(const void *, team.n);
    int32_t n_sends = 0;
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < team.n; i++)
        for (int64_t at = 0; whole && i != team.me && at < counts[i]; at += stage) {
            int64_t n = counts[i] - at < stage ? counts[i] - at : stage;
            ht_comm_send(c, team.ranks[i], tag, (const char *)all + (offset_of(counts, i) + at) * each, n * each,
                         &sends[n_sends++]);
        }
    for (int64_t at = 0; at < count && !status; at += stage) {
        int64_t n = count - at < stage ? count - at : stage;
        int32_t n_m = 0, n_terms = 0;
        for (int32_t i = 0; i < team.n; i++) {
            if (!has_whole(team, i)) continue;
            terms[n_terms++] = i == team.me ? own + at * each : staging + (int64_t)n_m * STAGE_BYTES;
            if (i != team.me) ht_comm_receive(c, team.ranks[i], tag, (void *)terms[n_terms - 1], n * each, &m[n_m++]);
        }
        status = wait_all(c, m, n_m, err);
        if (!status && n_terms) ht_comm_sum((char *)mine + at * each, terms, n_terms, n, type);
        if (!n_terms) memset((char *)mine + at * each, 0, (size_t)(n * each));
    }
    enum ht_status sent = wait_all(c, sends, n_sends, status ? NULL : err);
    free_messages(c, sends);
    free_messages(c, m);
    free_messages(c, staging);
    free(terms);
    return status ? status : sent;
}

enum ht_status ht_comm_all_reduce(struct ht_comm *c, struct ht_team team, int32_t tag, void *data, int64_t count,
                                  enum ht_comm_type type, struct ht_error *err)
{
    if (is_native(c, team, data, NULL))
        return c->ops->collective(c, &(struct ht_comm_collective){HT_COMM_REDUCE, team, tag, data, data, &count, type},
                                  err);
    int64_t *counts = HT_NEW_ARRAY(int64_t, team.n);
    for (int32_t i = 0; i < team.n; i++) counts[i] = count / team.n + (i < count % team.n);
    char *mine = (char *)data + offset_of(counts, team.me) * ht_comm_type_bytes(type);
    enum ht_status status = ht_comm_reduce_scatter(c, team, tag, data, mine, counts, type, err);
    if (!status) status = ht_comm_all_gather(c, team, tag, mine, data, counts, type, err);
    free(counts);
    return status;
}

enum ht_status ht_comm_broadcast(struct ht_comm *c, struct ht_team team, int32_t tag, int32_t root, void *data,
                                 int64_t bytes, struct ht_error *err)
{
    struct ht_message *m = HT_NEW_ARRAY(struct ht_message, team.n);
    int32_t n = 0;
    if (team.me != root && bytes) ht_comm_receive(c, team.ranks[root], tag, data, bytes, &m[n++]);
    for (int32_t i = 0; i < team.n && team.me == root && bytes; i++)
        if (i != root) ht_comm_send(c, team.ranks[i], tag, data, bytes, &m[n++]);
    enum ht_status status = wait_all(c, m, n, err);
    free_messages(c, m);
    return status;
}

enum ht_status ht_comm_barrier(struct ht_comm *c, struct ht_team team, int32_t tag, struct ht_error *err)
{
    char *seen = HT_NEW_ARRAY(char, team.n);
    int64_t *counts = HT_NEW_ARRAY(int64_t, team.n);
    for (int32_t i = 0; i < team.n; i++) counts[i] = 1;
    enum ht_status status = ht_comm_all_gather(c, team, tag, &seen[team.me], seen, counts, HT_COMM_BYTE, err);
    free_messages(c, seen);
    free(counts);
    return status;
}

/* ---- a job of one rank ------------------------------------------------------------------------------------------ */

static void self_post(struct ht_comm *c, struct ht_message *m)
{
    (void)c;
    ht_message_end(m, false); /* there is no other rank */
}

static void self_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    (void)c, (void)fn, (void)ctx; /* no notification ever comes */
}

static void self_close(struct ht_comm *c, bool clean, int code)
{
    (void)c, (void)clean, (void)code;
}

static const struct ht_comm_ops self_ops = {
    .name = "self", .post = self_post, .listen = self_listen, .close = self_close};

struct ht_comm *ht_comm_self(void)
{
    struct ht_comm *c = HT_NEW(struct ht_comm);
    c->ops = &self_ops;
    c->size = 1;
    return c;
}
