/*
 * common/comm/nccl_real.c and the transport above it, with ranks in processes of their own: this program again, under
 * mpirun, over MPI and a stand-in for NCCL and CUDA that is as strict as they are (nccl.h). What real NCCL and a GPU
 * do beyond it is not tested here.
 */
#include "common/base/array.h"
#include "common/comm/nccl.h"
#include "common/comm/tags.h"
#include "tests/support/nccl_on_cpu/nccl.h"
#include "tests/support/nccl_on_cpu/on_cpu.h"
#include "tests/support/ranks.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUIRE(x, ...)                                                                                                \
    do {                                                                                                               \
        if (x) break;                                                                                                  \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #x);                                                        \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        abort();                                                                                                       \
    } while (0)

enum { MOST = 3, N = 12, LONGEST = 40000 };

static struct ht_nccl_on_cpu *const gpu = &ht_nccl_on_cpu;

/* Creates the transport; rank r has GPU r + 1, so that a context on GPU 0 is a mistake. */
static struct ht_comm *connect_on(struct ht_comm *over, int device, enum ht_status expected, struct ht_error *err)
{
    const struct ht_nccl_api *api;
    struct ht_comm *c = NULL;
    REQUIRE(ht_nccl_api_real(&api, err) == HT_OK, "%s", err->text);
    enum ht_status status = ht_comm_nccl(over, api, device, 60, err, &c);
    REQUIRE(status == expected, "%d: %s", (int)status, err->text);
    return c;
}

static void close_whole(struct ht_comm *c)
{
    ht_comm_close(c);
    REQUIRE(gpu->objects == 0 && gpu->kernels == 0, "%d %d", (int)gpu->objects, (int)gpu->kernels);
}

static int64_t length(int32_t from, int32_t to, int i)
{
    return 1 + (from * 31 + to * 17 + i * 7001) % LONGEST;
}

/* Each rank's region of the GPU's memory for message i with a peer. */
static char *place(int32_t peer, int i, bool receive)
{
    return gpu->memory + (((int64_t)peer * N + i) * 2 + receive) * LONGEST;
}

/* Posts all messages of all pairs, those of odd ranks from the last peer to the first. */
static void exchange(struct ht_comm *c, enum ht_status expected, const char *why)
{
    struct ht_error err = {0};
    struct ht_message m[MOST * N * 2];
    int n = 0;
    (void)cudaSetDevice(0); /* as in a thread that has selected none */
    for (int i = 0; i < N; i++)
        for (int32_t k = 0; k < c->size; k++) {
            int32_t peer = c->rank % 2 ? c->size - 1 - k : k;
            if (peer == c->rank) continue;
            memset(place(peer, i, false), c->rank * 64 + i + 1, (size_t)length(c->rank, peer, i));
            memset(place(peer, i, true), 0, LONGEST);
            ht_comm_send(c, peer, i % 3, place(peer, i, false), length(c->rank, peer, i), &m[n++]);
            ht_comm_receive(c, peer, i % 3, place(peer, i, true), length(peer, c->rank, i), &m[n++]);
        }
    for (int i = 0; i < n; i++) {
        enum ht_status status = ht_comm_wait(c, &m[i], &err);
        REQUIRE(status == expected && (!why || strstr(err.text, why)), "%d: %s", (int)status, err.text);
        REQUIRE(!status || gpu->kernels == 0, "a message has ended, and a kernel still uses its buffer");
    }
    for (int32_t peer = 0; peer < c->size && !expected; peer++)
        for (int i = 0; i < N && peer != c->rank; i++)
            for (int64_t k = 0; k <= length(peer, c->rank, i) && k < LONGEST; k++) {
                char e = k < length(peer, c->rank, i) ? (char)(peer * 64 + i + 1) : 0;
                REQUIRE(place(peer, i, true)[k] == e, "message %d of rank %d, byte %lld", i, peer, (long long)k);
            }
}

/* Fills n floats with whole numbers, whose sums are exact in any order. */
static float value(int32_t rank, int64_t k)
{
    return (float)((rank + 1) * 1000 + k % 977);
}

static void fill(float *x, int32_t rank, int64_t n)
{
    for (int64_t k = 0; k < n; k++) x[k] = value(rank, k);
}

/* Sums and gathers `counts` over a team, into memory behind the terms and in place. */
static void collectives_of(struct ht_comm *c, struct ht_team team, const int64_t *counts)
{
    struct ht_error err = {0};
    float *all = (float *)gpu->memory, *mine = all + 60000, *gathered = all + 90000;
    int64_t n = 0, at = 0;
    for (int32_t i = 0; i < team.n; i++) n += counts[i], at += i < team.me ? counts[i] : 0;
    for (int in_place = 0; in_place < 2; in_place++) {
        float *piece = in_place ? all + at : mine;
        fill(all, c->rank, n);
        REQUIRE(!ht_comm_reduce_scatter(c, team, 7, all, piece, counts, HT_COMM_F32, &err), "%s", err.text);
        for (int64_t k = 0; k < counts[team.me]; k++) {
            float sum = 0;
            for (int32_t i = 0; i < team.n; i++) sum += value(team.ranks[i], at + k);
            REQUIRE(piece[k] == sum, "element %lld: %g, expected %g", (long long)k, (double)piece[k], (double)sum);
        }
        REQUIRE(!ht_comm_all_gather(c, team, 7, piece, gathered, counts, HT_COMM_F32, &err), "%s", err.text);
    }
    fill(all, c->rank, n);
    REQUIRE(!ht_comm_all_reduce(c, team, 7, all, n, HT_COMM_F32, &err), "%s", err.text);
    REQUIRE(!memcmp(all, gathered, (size_t)n * sizeof(float)), "all_reduce differs from reduce_scatter, all_gather");
}

/* Collectives of all, even and uneven, and of two ranks, beside a message of the third. */
static void collectives(struct ht_comm *c)
{
    int32_t all[MOST] = {0, 1, 2}, few[2] = {2, 0};
    struct ht_error err = {0};
    struct ht_message m;
    collectives_of(c, (struct ht_team){.ranks = all, .n = 3, .me = c->rank}, (int64_t[]){4000, 4000, 4000});
    collectives_of(c, (struct ht_team){.ranks = all, .n = 3, .me = c->rank}, (int64_t[]){5000, 0, 7000});
    for (int i = 0; i < 2 && c->rank != 1; i++)
        collectives_of(c, (struct ht_team){.ranks = few, .n = 2, .me = c->rank == 0}, (int64_t[]){3000, 3001 - i});
    if (c->rank == 1) /* a message beside: nobody waits for a collective of others */
        ht_comm_send(c, 0, 9, place(0, 0, false), 8, &m);
    if (c->rank == 0) ht_comm_receive(c, 1, 9, place(1, 0, true), 8, &m);
    if (c->rank < 2) REQUIRE(!ht_comm_wait(c, &m, &err), "%s", err.text);
}

struct lane {
    struct ht_comm *c;
    int32_t tag;
    useconds_t after_us;
    float *data;
};

struct late_fill {
    atomic_bool go;
    float *data;
    int32_t rank;
    int64_t n;
};

static void *reduce_on_lane(void *arg)
{
    const struct lane *l = arg;
    int32_t all[MOST] = {0, 1, 2};
    struct ht_error err = {0};
    struct ht_team team = {.ranks = all, .n = 3, .me = l->c->rank};
    usleep(l->after_us);
    fill(l->data, l->c->rank, 1000);
    REQUIRE(!ht_comm_all_reduce(l->c, team, l->tag, l->data, 1000, HT_COMM_F32, &err), "%s", err.text);
    for (int64_t k = 0; k < 1000; k++)
        REQUIRE(l->data[k] == value(0, k) + value(1, k) + value(2, k), "%lld", (long long)k);
    return NULL;
}

/* Two lanes of each rank begin in opposite orders. Groups issued so would wait for one another (`cross`). */
static void lanes_in_any_order(struct ht_comm *c)
{
    struct lane lanes[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        lanes[i] = (struct lane){c, 30 + i, i == c->rank % 2 ? 0 : 30000, (float *)gpu->memory + i * 2000};
        REQUIRE(!pthread_create(&threads[i], NULL, reduce_on_lane, &lanes[i]), "a thread");
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* Work of a stream that takes as long as the test wants. */
static void fill_late(void *arg)
{
    struct late_fill *f = arg;
    while (!f->go) usleep(100);
    fill(f->data, f->rank, f->n);
}

static void *reduce_on_stream(void *arg)
{
    const struct lane *l = arg;
    int32_t all[MOST] = {0, 1, 2};
    struct ht_error err = {0};
    struct ht_team team = {.ranks = all, .n = 3, .me = l->c->rank},
                   two = {.ranks = all + 1, .n = 2, .me = l->c->rank - 1};
    struct late_fill late = {.data = l->data, .rank = l->c->rank, .n = 1000};
    float *copied = l->data + 1000;
    cudaStream_t stream;
    REQUIRE(!cudaSetDevice(l->c->rank + 1) && !cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    struct ht_comm *view = ht_comm_on_stream(l->c, stream);
    usleep(l->after_us);
    for (int round = 0; round < 3; round++) {
        struct ht_message m[2];
        int n = 0;
        int32_t next = (view->rank + 1) % 3, last = (view->rank + 2) % 3;
        late.go = false;
        ht_on_cpu_enqueue(stream, fill_late, &late);
        REQUIRE(!ht_comm_all_reduce(view, team, l->tag, l->data, 1000, HT_COMM_F32, &err), "%s", err.text);
        if (view->rank) /* a communicator of two, beside that of all */
            REQUIRE(!ht_comm_all_reduce(view, two, l->tag + 1, l->data + 3000, 8, HT_COMM_F32, &err), "%s", err.text);
        ht_comm_send(view, next, l->tag, l->data, 4000, &m[n++]);
        ht_comm_receive(view, last, l->tag, copied, 4000, &m[n++]);
        for (int i = 0; i < n; i++) REQUIRE(!ht_comm_wait(view, &m[i], &err), "%s", err.text);
        late.go = true; /* all of that was issued behind work that had not ended */
        REQUIRE(!cudaStreamSynchronize(stream), "a stream");
        for (int64_t k = 0; k < 1000; k++)
            REQUIRE(copied[k] == value(0, k) + value(1, k) + value(2, k), "%lld", (long long)k);
    }
    ht_comm_close(view);
    REQUIRE(!cudaStreamDestroy(stream), "a stream");
    return NULL;
}

/* As lanes_in_any_order, on streams of the lanes. The host does not wait for the GPU in between, and rounds of three lanes,
   two of them of a communicator of their own, do not wait for one another in a circle. */
static void lanes_on_streams(struct ht_comm *c)
{
    struct lane lanes[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        lanes[i] = (struct lane){c, 40 + 2 * i, 10000 * ((i + c->rank) % 3), (float *)gpu->memory + i * 4000};
        REQUIRE(!pthread_create(&threads[i], NULL, reduce_on_stream, &lanes[i]), "a thread");
    }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

/* A link that breaks lets streams end that wait for peers, and says why. */
static void break_on_stream(struct ht_comm *c)
{
    struct ht_message m[2];
    struct ht_error err = {0};
    cudaStream_t stream;
    REQUIRE(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    struct ht_comm *view = ht_comm_on_stream(c, stream);
    gpu->stall = true;
    ht_comm_send(view, (c->rank + 1) % 3, 0, place(1, 0, false), 8, &m[0]);
    ht_comm_receive(view, (c->rank + 2) % 3, 0, place(2, 0, true), 8, &m[1]);
    for (int i = 0; i < 2; i++) REQUIRE(!ht_comm_wait(view, &m[i], &err), "%s", err.text);
    REQUIRE(!c->ops->reason(c), "a reason before the failure");
    gpu->break_link = true;
    REQUIRE(!cudaStreamSynchronize(stream) && gpu->kernels == 0, "a stream");
    REQUIRE(strstr(c->ops->reason(c), "the link is broken"), "%s", c->ops->reason(c));
    ht_comm_send(view, (c->rank + 1) % 3, 0, place(1, 0, false), 8, &m[0]);
    REQUIRE(ht_comm_wait(view, &m[0], &err) == HT_FAILED && strstr(err.text, "the link is broken"), "%s", err.text);
    gpu->break_link = gpu->stall = false;
    ht_comm_close(view);
    REQUIRE(!cudaStreamDestroy(stream), "a stream");
}

/* Issues two collectives of unlike lengths to NCCL itself, in an order of this rank's own: on one stream, or on one each,
   of one communicator or of two. */
static enum ht_status cross_on(struct ht_comm *over, bool two_streams, bool two_communicators, struct ht_error *err)
{
    const struct ht_nccl_api *api;
    void *nccl[2], *stream[2], *event[2];
    bool busy = true, reached[2];
    int32_t all[MOST] = {0, 1, 2};
    struct ht_team team = {.ranks = all, .n = over->size, .me = over->rank};
    REQUIRE(ht_nccl_api_real(&api, err) == HT_OK, "%s", err->text);
    for (int i = 0; i < 2; i++) {
        char id[HT_NCCL_ID_BYTES] = "";
        REQUIRE(!api->select(over->rank + 1) && !api->stream_create(&stream[i]) && !api->event_create(&event[i]),
                "CUDA");
        if (over->rank == 0) REQUIRE(!api->unique_id(id), "an id");
        REQUIRE(!ht_comm_broadcast(over, team, 1, 0, id, sizeof(id), err), "%s", err->text);
        REQUIRE(!api->create(id, over->rank, over->size, &nccl[i]), "a communicator");
        for (busy = true; busy;) REQUIRE(!api->state(nccl[i], &busy), "a communicator");
    }
    for (int i = 0; i < 2; i++) {
        int which = i == over->rank % 2;
        void *of = nccl[two_communicators && which], *on = stream[two_streams && which];
        REQUIRE(!api->group_begin(), "a group");
        REQUIRE(!api->all_reduce(of, gpu->memory, which ? 100 : 200, HT_COMM_F32, on), "a collective");
        REQUIRE(!api->group_end(), "a group");
        for (busy = true; busy;) REQUIRE(!api->state(of, &busy), "a group");
        if (i == 0) usleep(20000); /* the GPU begins with it */
    }
    for (int i = 0; i < 2; i++) REQUIRE(!api->event_record(event[i], stream[i]), "an event");
    usleep(100000);
    for (int i = 0; i < 2; i++) REQUIRE(!api->event_query(event[i], &reached[i]), "an event");
    REQUIRE(!reached[0] && (two_streams ? !reached[1] : reached[1]), "collectives in unlike orders have met");
    REQUIRE(!ht_comm_barrier(over, team, 2, err), "%s", err->text);
    for (int i = 0; i < 2; i++) REQUIRE(!api->abort(nccl[i]), "an abort");
    for (int i = 0; i < 2; i++) REQUIRE(!api->stream_finish(stream[i]), "a stream");
    REQUIRE(gpu->kernels == 0, "an abort");
    for (int i = 0; i < 2; i++) REQUIRE(!api->event_destroy(event[i]) && !api->stream_destroy(stream[i]), "the end");
    REQUIRE(gpu->objects == 0, "the end");
    return HT_OK;
}

static enum ht_status cross(struct ht_comm *over, struct ht_error *err)
{
    enum ht_status status = cross_on(over, false, false, err);
    if (!status) status = cross_on(over, true, false, err);
    return status ? status : cross_on(over, true, true, err);
}

/* Ranks that disagree about a collective's pieces fail alike, and the transport goes on. */
static void disagree(struct ht_comm *c)
{
    int32_t all[MOST] = {0, 1, 2};
    struct ht_error err = {0};
    struct ht_team team = {.ranks = all, .n = 3, .me = c->rank};
    float *x = (float *)gpu->memory;
    REQUIRE(ht_comm_all_reduce(c, team, 8, x, 100 + (c->rank == 2), HT_COMM_F32, &err) == HT_FAILED &&
                strstr(err.text, "a collective of 3 ranks failed"),
            "%s", err.text);
    collectives(c);
}

/* What a job survives: messages, two GPUs that are one, a send that fails, a link that breaks with kernels under way. */
static enum ht_status run_all(struct ht_comm *over, struct ht_error *err)
{
    (void)err;
    struct ht_error why = {0};
    int32_t ranks[MOST] = {0, 1, 2}, *x = (int32_t *)gpu->memory;
    struct ht_team team = {.ranks = ranks, .n = over->size, .me = over->rank};
    struct ht_comm *c = connect_on(over, over->rank + 1, HT_OK, &why);
    exchange(c, HT_OK, NULL);
    REQUIRE(gpu->groups > 0, "no group was issued");
    int64_t counts[MOST] = {5000, 0, 7000};
    for (int64_t k = 0; k < counts[c->rank]; k++) x[20000 + k] = (int32_t)(c->rank * 100000 + k);
    REQUIRE(!ht_comm_all_gather(c, team, 1, x + 20000, x, counts, HT_COMM_F32, &why), "%s", why.text);
    for (int64_t r = 0, k = 0; r < c->size; r++)
        for (int64_t i = 0; i < counts[r]; i++, k++) REQUIRE(x[k] == r * 100000 + i, "%lld", (long long)k);
    collectives(c);
    lanes_in_any_order(c);
    lanes_on_streams(c);
    disagree(c);
    close_whole(c);
    REQUIRE(gpu->contexts == 1U << (over->rank + 1), "contexts on GPUs %x", (unsigned)gpu->contexts);

    /* Ranks 1 and 2 share a GPU. NCCL tells only them; rank 0 would wait for ever. */
    c = connect_on(over, over->rank ? 1 : 0, HT_INFEASIBLE, &why);
    REQUIRE(!c && strstr(why.text, over->rank ? "Duplicate GPU" : "failed on rank"), "%s", why.text);
    REQUIRE(gpu->objects == 0, "%d objects are left", (int)gpu->objects);

    c = connect_on(over, over->rank + 1, HT_OK, &why);
    gpu->fail_sends = true;
    exchange(c, HT_FAILED, "failed: NCCL: a group of messages: internal error: a send fails as told");
    gpu->fail_sends = false;
    close_whole(c);

    c = connect_on(over, over->rank + 1, HT_OK, &why);
    gpu->stall = true;
    struct ht_message m[2];
    int32_t next = (over->rank + 1) % over->size, last = (over->rank + over->size - 1) % over->size;
    ht_comm_send(c, next, 0, place(next, 0, false), 8, &m[0]);
    ht_comm_receive(c, last, 0, place(last, 0, true), 8, &m[1]);
    while (!gpu->kernels) usleep(100);
    gpu->break_link = true;
    for (int i = 0; i < 2; i++) {
        REQUIRE(ht_comm_wait(c, &m[i], &why) == HT_FAILED && strstr(why.text, "the link is broken"), "%s", why.text);
        REQUIRE(gpu->kernels == 0, "a message has ended, and a kernel still uses its buffer");
    }
    gpu->break_link = gpu->stall = false;
    close_whole(c);

    c = connect_on(over, over->rank + 1, HT_OK, &why);
    break_on_stream(c);
    close_whole(c);
    return HT_OK;
}

/* Rank 0 ends the job with kernels under way that no peer ends, where ncclCommAbort hangs. */
static enum ht_status run_abort(struct ht_comm *over, struct ht_error *err, struct ht_comm **out)
{
    struct ht_message m;
    struct ht_comm *c = connect_on(over, over->rank + 1, HT_OK, err);
    gpu->stall = gpu->abort_hangs = true;
    if (c->rank == 0)
        ht_comm_send(c, 1, 0, place(1, 0, false), 8, &m);
    else
        ht_comm_receive(c, 0, 0, place(0, 0, true), 8, &m);
    while (!gpu->kernels) usleep(100);
    if (c->rank == 1) pause();
    *out = c;
    return ht_fail(err, HT_FAILED, "a kernel was under way");
}

/* Rank 1 never comes. */
static enum ht_status run_late(struct ht_comm *over, struct ht_error *err, struct ht_comm **out)
{
    const struct ht_nccl_api *api;
    REQUIRE(ht_nccl_api_real(&api, err) == HT_OK, "%s", err->text);
    if (over->rank == 0) return ht_comm_nccl(over, api, 1, 0.2, err, out);
    char id[HT_NCCL_ID_BYTES], mine = 1, ok[2];
    int64_t counts[2] = {1, 1};
    int32_t ranks[2] = {0, 1};
    struct ht_team team = {.ranks = ranks, .n = 2, .me = 1};
    REQUIRE(!ht_comm_all_gather(over, team, HT_TAG_NCCL, &mine, ok, counts, HT_COMM_BYTE, err), "%s", err->text);
    REQUIRE(!ht_comm_broadcast(over, team, HT_TAG_NCCL, 0, id, sizeof(id), err), "%s", err->text);
    pause();
    return HT_OK;
}

/* Reports how rank 0 failed, and ends the job through the transport, if there is one. */
static int fail_as_rank(enum ht_status (*run)(struct ht_comm *over, struct ht_error *err, struct ht_comm **out))
{
    struct ht_comm *over, *c = NULL;
    struct ht_error err = {0};
    int launcher = ht_launch_begin();
    if (ht_comm_mpi(&err, &over)) return 1;
    enum ht_status status = run(over, &err, &c);
    ht_launch_report(launcher, status, &err);
    ht_comm_abort(c ? c : over, 1);
}

static enum ht_status launch(int32_t ranks, const char *name, struct ht_error *err)
{
    char *argv[] = {"test", "rank", (char *)name, NULL};
    struct ht_launch_loss loss;
    return ht_launch(ranks, argv, &loss, err);
}

START_TEST(test_all)
{
    struct ht_error err = {0};
    ck_assert_msg(launch(3, "all", &err) == HT_OK, "%s", err.text);
}
END_TEST

START_TEST(test_cross)
{
    struct ht_error err = {0};
    ck_assert_msg(launch(3, "cross", &err) == HT_OK, "%s", err.text);
}
END_TEST

START_TEST(test_abort)
{
    struct ht_error err = {0};
    ck_assert_int_eq(launch(2, "abort", &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, "a kernel was under way") != NULL, "%s", err.text);
}
END_TEST

START_TEST(test_late)
{
    struct ht_error err = {0};
    ck_assert_int_eq(launch(2, "late", &err), HT_FAILED);
    ck_assert_msg(strstr(err.text, "not connected to the other ranks within 0.2 s; rank 1 has not answered") != NULL,
                  "%s", err.text);
}
END_TEST

int main(int argc, char **argv)
{
    const char *as = argc > 2 && !strcmp(argv[1], "rank") ? argv[2] : "";
    if (!strcmp(as, "all")) return run_as_rank(run_all);
    if (!strcmp(as, "cross")) return run_as_rank(cross);
    if (!strcmp(as, "abort")) return fail_as_rank(run_abort);
    if (!strcmp(as, "late")) return fail_as_rank(run_late);
    if (!ht_comm_has_mpi()) {
        puts("skipped: this build has no MPI");
        return 77;
    }
    Suite *s = suite_create("nccl_ranks");
    TCase *tc = tcase_create("nccl_ranks");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_all);
    tcase_add_test(tc, test_cross);
    tcase_add_test(tc, test_abort);
    tcase_add_test(tc, test_late);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
