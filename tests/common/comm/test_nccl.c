/*
 * The NCCL transport on a fake: ranks are threads, a GPU's memory is an arena. The fake is as strict as NCCL may be: a
 * group blocks its rank until every peer has issued its part, sends meet receives in the order of their issue and must
 * be as long, and events are reached late. Ranks that issue in orders of their own wait for ever there. With NCCL and a
 * GPU here the transport also runs on them, at size 1.
 */
#include "common/base/array.h"
#include "common/comm/nccl.h"
#include "common/comm/nccl_order.h"
#include "common/comm/tags.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HT_HAVE_NCCL
#include <cuda_runtime_api.h>
#endif

#define REQUIRE(x, ...)                                                                                                \
    do {                                                                                                               \
        if (x) break;                                                                                                  \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #x);                                                        \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        abort();                                                                                                       \
    } while (0)

enum { MOST = 4, ARENA_BYTES = 1 << 20, LATE = 3, DEADLINE_S = 60 };

/* ---- the transport beneath: ranks in one process ---- */

static atomic_int aborted;

static pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ht_message *wire[MOST]; /* open messages of each rank, oldest first */
static struct {
    ht_comm_listener fn;
    void *ctx;
} listeners[MOST];

static void wire_post(struct ht_comm *c, struct ht_message *m)
{
    pthread_mutex_lock(&wire_lock);
    if (m->tag == HT_TAG_NOTIFY) {
        listeners[m->peer].fn(listeners[m->peer].ctx, c->rank, m->data, m->bytes);
        ht_message_end(m, true);
        pthread_mutex_unlock(&wire_lock);
        return;
    }
    struct ht_message **at = &wire[m->peer], *other;
    while (*at && ((*at)->peer != c->rank || (*at)->tag != m->tag || (*at)->receive == m->receive)) at = &(*at)->next;
    if ((other = *at)) {
        struct ht_message *to = m->receive ? m : other, *from = m->receive ? other : m;
        *at = other->next;
        REQUIRE(to->bytes == from->bytes, "%lld %lld", (long long)to->bytes, (long long)from->bytes);
        if (to->bytes) memcpy(to->data, from->data, (size_t)to->bytes);
        ht_message_end(m, true);
        ht_message_end(other, true);
    } else {
        at = &wire[c->rank];
        while (*at) at = &(*at)->next;
        m->next = NULL;
        *at = m;
    }
    pthread_mutex_unlock(&wire_lock);
}

static void wire_listen(struct ht_comm *c, ht_comm_listener fn, void *ctx)
{
    pthread_mutex_lock(&wire_lock);
    listeners[c->rank].fn = fn;
    listeners[c->rank].ctx = ctx;
    pthread_mutex_unlock(&wire_lock);
}

static void wire_close(struct ht_comm *c, bool clean, int code)
{
    (void)c;
    if (!clean) _exit(code);
}

static const struct ht_comm_ops wire_ops = {
    .name = "wire", .post = wire_post, .listen = wire_listen, .close = wire_close};

/* ---- the fake ---- */

static _Alignas(64) char arena[MOST][ARENA_BYTES];
static atomic_int made; /* streams, events, communicators that are there */
static atomic_int groups, copies, fail_rank = -1;
static atomic_int bad_creation = -1, hanging_abort = -1; /* ranks */

struct member {
    int32_t rank, size;
    int looks; /* at its state, since it became busy */
};

struct event {
    bool recorded;
    int looks;
};

/* A part of a group, in its channel until the other end has come. */
struct part {
    struct member *nccl;
    char *data;
    int64_t bytes;
    int32_t peer;
    bool receive, met;
    struct part *next;
};

static _Thread_local struct part parts[64];
static _Thread_local int n_parts = -1; /* -1: no group is open */
static pthread_mutex_t channel_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t channel_news = PTHREAD_COND_INITIALIZER;
static struct part *channels[MOST][MOST][2]; /* from, to, receive: issued and not met */

static const char *fake_select(int device)
{
    return device == 0 ? NULL : "there is one device";
}

static bool fake_on_gpu(const void *p)
{
    return (const char *)p >= arena[0] && (const char *)p < arena[0] + sizeof(arena);
}

static const char *fake_copy(void *to, const void *from, int64_t bytes, void *stream)
{
    (void)stream;
    copies++;
    memmove(to, from, (size_t)bytes);
    return NULL;
}

static const char *make(void **p)
{
    *p = HT_NEW(struct event);
    made++;
    return NULL;
}

static const char *unmake(void *p)
{
    free(p);
    made--;
    return NULL;
}

static const char *unmake_event(void *event)
{
    REQUIRE(((struct event *)event)->looks > LATE || fail_rank >= 0, "its group was not done");
    return unmake(event);
}

static const char *fake_finish(void *stream)
{
    (void)stream;
    return NULL;
}

static const char *fake_record(void *event, void *stream)
{
    (void)stream;
    *(struct event *)event = (struct event){.recorded = true};
    return NULL;
}

static const char *fake_wait(void *stream, void *event)
{
    (void)stream;
    REQUIRE(((struct event *)event)->recorded, "waited for before it was recorded");
    return NULL;
}

static const char *fake_query(void *event, bool *reached)
{
    struct event *e = event;
    REQUIRE(e->recorded, "asked before it was recorded");
    *reached = ++e->looks > LATE;
    return NULL;
}

static const char *fake_id(char id[HT_NCCL_ID_BYTES])
{
    snprintf(id, HT_NCCL_ID_BYTES, "rank 0's");
    return NULL;
}

static const char *fake_create(const char id[HT_NCCL_ID_BYTES], int32_t rank, int32_t size, void **nccl)
{
    struct member *m = HT_NEW(struct member);
    REQUIRE(!strcmp(id, "rank 0's"), "%s", id);
    *m = (struct member){.rank = rank, .size = size};
    *nccl = m;
    made++;
    return NULL;
}

static const char *fake_finalize(void *nccl)
{
    ((struct member *)nccl)->looks = 0;
    return NULL;
}

static const char *fake_abort(void *nccl)
{
    REQUIRE(n_parts == -1, "a group is open");
    while (((struct member *)nccl)->rank == hanging_abort) usleep(1000);
    aborted++;
    return unmake(nccl);
}

static const char *fake_state(void *nccl, bool *busy)
{
    struct member *m = nccl;
    *busy = ++m->looks < LATE;
    return m->rank == bad_creation ? "as told" : NULL;
}

static const char *fake_begin(void)
{
    REQUIRE(n_parts == -1, "a group in a group");
    n_parts = 0;
    groups++;
    return NULL;
}

static void meet(struct part *p)
{
    int32_t me = p->nccl->rank, from = p->receive ? p->peer : me, to = p->receive ? me : p->peer;
    struct part **others = &channels[from][to][!p->receive], **mine = &channels[from][to][p->receive];
    if (*others) {
        struct part *o = *others, *in = p->receive ? p : o, *out = p->receive ? o : p;
        *others = o->next;
        REQUIRE(o->bytes == p->bytes, "%lld %lld", (long long)o->bytes, (long long)p->bytes);
        memcpy(in->data, out->data, (size_t)p->bytes);
        p->met = o->met = true;
        pthread_cond_broadcast(&channel_news);
        return;
    }
    while (*mine) mine = &(*mine)->next;
    *mine = p;
}

static const char *fake_end(void)
{
    pthread_mutex_lock(&channel_lock);
    for (int i = 0; i < n_parts; i++) meet(&parts[i]);
    for (int i = 0; i < n_parts; i++)
        while (!parts[i].met) pthread_cond_wait(&channel_news, &channel_lock);
    pthread_mutex_unlock(&channel_lock);
    n_parts = -1;
    return NULL;
}

static const char *add(void *nccl, void *data, int64_t bytes, int32_t peer, bool receive)
{
    if (((struct member *)nccl)->rank == fail_rank) return "as told";
    REQUIRE(n_parts >= 0 && n_parts < 64 && bytes > 0 && fake_on_gpu(data), "%d %lld", n_parts, (long long)bytes);
    parts[n_parts++] = (struct part){.nccl = nccl, .data = data, .bytes = bytes, .peer = peer, .receive = receive};
    return NULL;
}

static const char *fake_send(void *nccl, const void *data, int64_t bytes, int32_t to, void *stream)
{
    (void)stream;
    return add(nccl, (void *)data, bytes, to, false);
}

static const char *fake_receive(void *nccl, void *data, int64_t bytes, int32_t from, void *stream)
{
    (void)stream;
    return add(nccl, data, bytes, from, true);
}

static const struct ht_nccl_api fake = {.select = fake_select,
                                        .on_gpu = fake_on_gpu,
                                        .copy = fake_copy,
                                        .stream_create = make,
                                        .stream_destroy = unmake,
                                        .stream_finish = fake_finish,
                                        .stream_wait = fake_wait,
                                        .event_create = make,
                                        .event_destroy = unmake_event,
                                        .event_record = fake_record,
                                        .event_query = fake_query,
                                        .unique_id = fake_id,
                                        .create = fake_create,
                                        .finalize = fake_finalize,
                                        .destroy = unmake,
                                        .abort = fake_abort,
                                        .state = fake_state,
                                        .group_begin = fake_begin,
                                        .group_end = fake_end,
                                        .send = fake_send,
                                        .receive = fake_receive};

/* ---- ranks ---- */

struct rank {
    struct ht_comm over, *c;
    void (*run)(struct ht_comm *c);
    pthread_t thread;
};

static int32_t everybody[MOST] = {0, 1, 2, 3};

static struct ht_team world(const struct ht_comm *c)
{
    return (struct ht_team){.ranks = everybody, .n = c->size, .me = c->rank};
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct ht_error err = {0};
    REQUIRE(ht_comm_nccl(&r->over, &fake, 0, DEADLINE_S, &err, &r->c) == HT_OK, "%s", err.text);
    r->run(r->c);
    ht_comm_close(r->c);
    return NULL;
}

static void with_ranks(int32_t n, void (*run)(struct ht_comm *c))
{
    static struct rank ranks[MOST];
    for (int32_t i = 0; i < n; i++) {
        ranks[i] = (struct rank){.over = {.ops = &wire_ops, .rank = i, .size = n}, .run = run};
        REQUIRE(!pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), "a thread");
    }
    for (int32_t i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
    ck_assert_int_eq(made, 0);
    for (int32_t i = 0; i < n; i++) ck_assert_ptr_null(wire[i]);
}

/* ---- what ranks do ---- */

static int64_t length(int32_t from, int32_t to, int i)
{
    return 1 + (from * 31 + to * 17 + i * 7) % 97;
}

/* All talk to all at once, in an order that each rank draws for itself; of a tag messages stay in order. */
static void run_order(struct ht_comm *c)
{
    enum { N = 60, TAGS = 3, LONGEST = 128 };
    struct ht_error err = {0};
    unsigned seed = (unsigned)c->rank + 1;
    int sent[MOST] = {0}, got[MOST] = {0}, n = 0, total = 2 * N * (c->size - 1);
    struct ht_message *m = HT_NEW_ARRAY(struct ht_message, total);
    char *at = arena[c->rank];
    char *in[MOST][N];
    while (n < total) {
        int32_t peer = (int32_t)(rand_r(&seed) % (unsigned)c->size);
        bool receive = rand_r(&seed) % 2;
        int i = receive ? got[peer] : sent[peer];
        if (peer == c->rank || i == N) continue;
        if (receive) {
            in[peer][got[peer]++] = at;
            ht_comm_receive(c, peer, i % TAGS, at, length(peer, c->rank, i), &m[n++]);
        } else {
            sent[peer]++;
            memset(at, c->rank * 64 + i, (size_t)length(c->rank, peer, i));
            ht_comm_send(c, peer, i % TAGS, at, length(c->rank, peer, i), &m[n++]);
        }
        at += LONGEST;
        if (n % 50 == 0) usleep(300);
    }
    for (int i = 0; i < total; i++) REQUIRE(ht_comm_wait(c, &m[i], &err) == HT_OK, "%s", err.text);
    for (int32_t peer = 0; peer < c->size; peer++)
        for (int i = 0; i < N && peer != c->rank; i++)
            for (int64_t k = 0; k <= length(peer, c->rank, i); k++) {
                char expected = k < length(peer, c->rank, i) ? (char)(peer * 64 + i) : 0;
                REQUIRE(in[peer][i][k] == expected, "rank %d: message %d of %d", c->rank, i, peer);
            }
    free(m);
}

static const int64_t shapes[][MOST] = {{3, 0, 5, 1}, {0, 7, 0, 0},       {0, 0, 0, 0},
                                       {1, 1, 1, 1}, {1000, 1, 513, 77}, {7001, 14003, 0, 6553}};

/* Buffers on GPUs and in host memory, with uneven pieces and empty ones. */
static void run_collectives(struct ht_comm *c)
{
    struct ht_error err = {0};
    int32_t *gpu = (int32_t *)arena[c->rank], *mine = gpu + ARENA_BYTES / 8;
    for (size_t s = 0; s < HT_COUNT(shapes); s++) {
        const int64_t *counts = shapes[s];
        for (int64_t k = 0; k < counts[c->rank]; k++) mine[k] = (int32_t)(c->rank * 100000 + k);
        REQUIRE(ht_comm_all_gather(c, world(c), 1, mine, gpu, counts, HT_COMM_F32, &err) == HT_OK, "%s", err.text);
        for (int64_t r = 0, k = 0; r < c->size; r++)
            for (int64_t i = 0; i < counts[r]; i++, k++) REQUIRE(gpu[k] == r * 100000 + i, "%lld", (long long)k);
    }
    for (int32_t root = 0; root < c->size; root++) {
        gpu[0] = c->rank == root ? 7 + root : -1;
        REQUIRE(ht_comm_broadcast(c, world(c), 2, root, gpu, 4, &err) == HT_OK, "%s", err.text);
        REQUIRE(gpu[0] == 7 + root, "%d", gpu[0]);
        REQUIRE(ht_comm_broadcast(c, world(c), 2, root, c->rank ? (void *)gpu : NULL, 0, &err) == HT_OK, "%s",
                err.text);
    }
    float x[3] = {1, (float)c->rank, 2};
    REQUIRE(ht_comm_all_reduce(c, world(c), 3, x, 3, HT_COMM_F32, &err) == HT_OK, "%s", err.text);
    REQUIRE(x[0] == (float)c->size && x[1] == (float)(c->size * (c->size - 1)) / 2, "%g %g", (double)x[0],
            (double)x[1]);
    float *y = (float *)gpu;
    y[0] = 5;
    enum ht_status status = ht_comm_all_reduce(c, world(c), 4, y, 1, HT_COMM_F32, &err);
    REQUIRE(status == (c->size == 1 ? HT_OK : HT_INFEASIBLE) && y[0] == 5, "%d %g", (int)status, (double)y[0]);
    REQUIRE(c->size == 1 || strstr(err.text, "nccl does not add up buffers on GPUs"), "%s", err.text);
}

static atomic_int heard;

static void on_note(void *ctx, int32_t from, const void *data, int64_t bytes)
{
    (void)ctx;
    if (bytes == HT_COMM_NOTIFY_BYTES && *(const char *)data == 10 + from) heard++;
}

static void run_notes(struct ht_comm *c)
{
    struct ht_error err = {0};
    struct ht_message m;
    char note[HT_COMM_NOTIFY_BYTES] = {(char)(10 + c->rank)};
    ht_comm_listen(c, on_note, NULL);
    REQUIRE(ht_comm_barrier(c, world(c), 0, &err) == HT_OK, "%s", err.text);
    ht_comm_notify(c, (c->rank + 1) % c->size, note, sizeof(note), &m);
    REQUIRE(ht_comm_wait(c, &m, &err) == HT_OK, "%s", err.text);
    while (heard < c->size) usleep(100);
}

/* A message of no bytes says that the peer is there; where its ends point does not matter. */
static void run_empty(struct ht_comm *c)
{
    struct ht_error err = {0};
    struct ht_message m;
    if (c->rank == 0)
        ht_comm_send(c, 1, 0, arena[0], 0, &m);
    else
        ht_comm_receive(c, 0, 0, NULL, 0, &m);
    REQUIRE(ht_comm_wait(c, &m, &err) == HT_OK, "%s", err.text);
}

/* Ends that disagree about the length fail at both ranks, and the transport goes on. */
static void run_unlike(struct ht_comm *c)
{
    struct ht_error err = {0};
    struct ht_message bad, good;
    char *at = arena[c->rank];
    if (c->rank == 0) {
        at[200] = 9;
        ht_comm_send(c, 1, 0, at, 100, &bad);
        ht_comm_send(c, 1, 0, at + 200, 1, &good);
    } else {
        ht_comm_receive(c, 0, 0, at, 99, &bad);
        ht_comm_receive(c, 0, 0, at + 200, 1, &good);
    }
    REQUIRE(ht_comm_wait(c, &bad, &err) == HT_FAILED, "went well");
    REQUIRE(ht_comm_wait(c, &good, &err) == HT_OK && at[200] == 9, "%s", err.text);
}

/* NCCL's first failure is every message's at its rank, after its communicator was aborted with no group open; the peer, whose part waits on its GPU, ends with the job. */
static void run_failure(struct ht_comm *c)
{
    struct ht_error err = {0};
    struct ht_message m[2];
    for (int i = 0; i < 2; i++) {
        if (c->rank == 0)
            ht_comm_send(c, 1, 0, arena[0], 8, &m[i]);
        else
            ht_comm_receive(c, 0, 0, arena[1], 8, &m[i]);
        if (c->rank == 0) REQUIRE(ht_comm_wait(c, &m[i], &err) == HT_FAILED, "went well");
        if (c->rank == 0) REQUIRE(strstr(err.text, "a message to rank 1 failed: NCCL: "), "%s", err.text);
        if (c->rank == 0) REQUIRE(strstr(err.text, "as told") && aborted == 1, "%d %s", (int)aborted, err.text);
    }
    if (c->rank == 0) ht_comm_abort(c, 42);
    ht_comm_wait(c, &m[0], &err); /* until the job ends */
}

static void *cancel(void *c)
{
    usleep(50000);
    ht_comm_cancel(c);
    return NULL;
}

/* No rank sends: the wait ends when it is cancelled, nothing was issued, and the job ends with the code. The communicators
   are aborted, since kernels of theirs might wait for a peer, and streams for them. */
static void run_cancel(struct ht_comm *c)
{
    struct ht_error err = {0};
    struct ht_message m;
    pthread_t thread;
    ht_comm_receive(c, !c->rank, 0, arena[c->rank], 8, &m);
    REQUIRE(!pthread_create(&thread, NULL, cancel, c), "a thread");
    REQUIRE(ht_comm_wait(c, &m, &err) == HT_FAILED && strstr(err.text, "gave up"), "%s", err.text);
    REQUIRE(groups == 0, "%d groups", (int)groups);
    pthread_join(thread, NULL);
    while (aborted < 2) usleep(100);
    if (c->rank == 1) pause();
    ht_comm_abort(c, 43);
}

/* ---- tests ---- */

START_TEST(test_order)
{
    with_ranks(2 + _i % 3, run_order);
    ck_assert_int_gt(groups, 0);
}
END_TEST

START_TEST(test_collectives)
{
    with_ranks(1 + _i, run_collectives);
    ck_assert_int_eq(groups > 0, _i > 0);
    ck_assert_int_gt(copies, 0);
}
END_TEST

START_TEST(test_notes)
{
    with_ranks(3, run_notes);
}
END_TEST

START_TEST(test_empty)
{
    with_ranks(2, run_empty);
}
END_TEST

START_TEST(test_unlike)
{
    with_ranks(2, run_unlike);
}
END_TEST

START_TEST(test_failure)
{
    fail_rank = 0;
    with_ranks(2, run_failure);
}
END_TEST

START_TEST(test_cancel)
{
    with_ranks(2, run_cancel);
}
END_TEST

static void *without(void *arg)
{
    struct rank *r = arg;
    struct ht_error err = {0};
    bool first = r->over.rank == 0;
    REQUIRE(ht_comm_nccl(&r->over, first ? &fake : NULL, 0, DEADLINE_S, &err, &r->c) == HT_INFEASIBLE, "went well");
    REQUIRE(strstr(err.text, first ? "failed on rank 1" : "NCCL is not available"), "%s", err.text);
    return NULL;
}

/* A rank without NCCL: none waits for it. */
START_TEST(test_without)
{
    struct rank ranks[2] = {{.over = {.ops = &wire_ops, .rank = 0, .size = 2}},
                            {.over = {.ops = &wire_ops, .rank = 1, .size = 2}}};
    for (int i = 0; i < 2; i++) ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, without, &ranks[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(ranks[i].thread, NULL);
    ck_assert_int_eq(made, 0);
}
END_TEST

/* Creates the transport of two ranks, each on a thread. */
static void create_two(void *(*main)(void *), struct rank ranks[2])
{
    for (int i = 0; i < 2; i++) ranks[i] = (struct rank){.over = {.ops = &wire_ops, .rank = i, .size = 2}};
    for (int i = 0; i < 2; i++) ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, main, &ranks[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(ranks[i].thread, NULL);
}

static void *refused(void *arg)
{
    struct rank *r = arg;
    struct ht_error err = {0};
    bool bad = r->over.rank == bad_creation, hangs = r->over.rank == hanging_abort;
    enum ht_status status = ht_comm_nccl(&r->over, &fake, 0, DEADLINE_S, &err, &r->c);
    REQUIRE(status == (hangs ? HT_FAILED : HT_INFEASIBLE) && r->over.cancelled == hangs, "%d %s", (int)status,
            err.text);
    REQUIRE(strstr(err.text, bad ? "a communicator: as told" : "failed on rank 1"), "%s", err.text);
    REQUIRE(!strstr(err.text, "its abort has not ended") == !hangs, "%s", err.text);
    return NULL;
}

/* A communicator that cannot be created is aborted on both ranks, while the other one is still being created there. */
START_TEST(test_creation)
{
    struct rank ranks[2];
    bad_creation = 1;
    create_two(refused, ranks);
    ck_assert_int_eq(aborted, 2);
    ck_assert_int_eq(made, 0);
}
END_TEST

/* An abort that hangs ends the job of its rank, and holds up nobody. */
START_TEST(test_creation_hangs)
{
    struct rank ranks[2];
    bad_creation = hanging_abort = 1;
    create_two(refused, ranks);
    ck_assert_int_eq(aborted, 1);
    _exit(44); /* the abort goes on */
}
END_TEST

/* The oldest end that fits; another tag, another pair and another direction do not. */
START_TEST(test_matches)
{
    struct ht_nccl_order o = {0};
    struct ht_nccl_want send = {.id = 1, .bytes = 8, .rank = 0, .peer = 1, .tag = 5}, w;
    ht_nccl_order_add(&o, send);
    send.id = 2;
    ht_nccl_order_add(&o, send);
    w = (struct ht_nccl_want){.id = 3, .bytes = 8, .rank = 1, .peer = 0, .tag = 6, .receive = true};
    ht_nccl_order_add(&o, w);
    w = (struct ht_nccl_want){.id = 4, .bytes = 8, .rank = 2, .peer = 0, .tag = 5, .receive = true};
    ht_nccl_order_add(&o, w);
    w = (struct ht_nccl_want){.id = 5, .bytes = 8, .rank = 1, .peer = 0, .tag = 5};
    ht_nccl_order_add(&o, w);
    ck_assert_uint_eq(o.n_matches, 0);
    w.receive = true;
    w.id = 6;
    ht_nccl_order_add(&o, w);
    ck_assert_uint_eq(o.n_matches, 1);
    ck_assert_uint_eq(o.n_open, 4);
    ck_assert_int_eq(o.matches[0].ends[0].id, 1);
    ck_assert_int_eq(o.matches[0].ends[1].id, 6);
    ck_assert(o.matches[0].alike);
    w.bytes = 9;
    ht_nccl_order_add(&o, w);
    ck_assert_int_eq(o.matches[1].ends[0].id, 2);
    ck_assert(!o.matches[1].alike);
    ht_nccl_order_free(&o);
}
END_TEST

/* NCCL itself, where it and a GPU are: a communicator of one, through which an all_gather on the GPU is a copy. */
START_TEST(test_real)
{
    const struct ht_nccl_api *api = NULL;
    struct ht_error err = {0};
    enum ht_status status = ht_nccl_api_real(&api, &err);
    const char *why = status ? err.text : api->select(0);
    if (why) {
        ck_assert(!status || status == HT_INFEASIBLE);
        printf("skipped with NCCL itself: %s\n", why);
        fflush(stdout);
        return;
    }
#ifdef HT_HAVE_NCCL
    struct ht_comm *self = ht_comm_self(), *c = NULL;
    float here[3] = {1, 2, 3}, back[3] = {0}, *x = NULL, *y = NULL;
    int64_t count = 3;
    ck_assert_msg(ht_comm_nccl(self, api, 0, HT_NCCL_DEADLINE_S, &err, &c) == HT_OK, "%s", err.text);
    ck_assert(!cudaMalloc((void **)&x, sizeof(here)) && !cudaMalloc((void **)&y, sizeof(here)));
    ck_assert(api->on_gpu(x) && !api->on_gpu(here));
    ck_assert(!cudaMemcpy(x, here, sizeof(here), cudaMemcpyDefault));
    ck_assert_msg(ht_comm_all_gather(c, world(c), 1, x, y, &count, HT_COMM_F32, &err) == HT_OK, "%s", err.text);
    ck_assert(!cudaMemcpy(back, y, sizeof(back), cudaMemcpyDefault));
    ck_assert_mem_eq(back, here, sizeof(here));
    ck_assert(!cudaFree(x) && !cudaFree(y));
    ht_comm_close(c);
    ht_comm_close(self);
#endif
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nccl");
    TCase *tc = tcase_create("nccl");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_matches);
    tcase_add_loop_test(tc, test_order, 0, 12);
    tcase_add_loop_test(tc, test_collectives, 0, 4);
    tcase_add_test(tc, test_notes);
    tcase_add_test(tc, test_empty);
    tcase_add_test(tc, test_unlike);
    tcase_add_exit_test(tc, test_failure, 42);
    tcase_add_exit_test(tc, test_cancel, 43);
    tcase_add_test(tc, test_without);
    tcase_add_test(tc, test_creation);
    tcase_add_exit_test(tc, test_creation_hangs, 44);
    suite_add_tcase(s, tc);
    tc = tcase_create("real"); /* CK_RUN_CASE=real */
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_real);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
