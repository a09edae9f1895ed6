/*
 * Messages and collectives on one rank (self), two and four (this program again, under mpirun). Every number is a whole
 * one that the test works out by itself; sums of 16-bit types are checked against the stated order of additions.
 */
#include "common/base/array.h"
#include "common/base/half.h"
#include "common/comm/sum.h"
#include "tests/support/ranks.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(x, ...)                                                                                                \
    do {                                                                                                               \
        if (x) break;                                                                                                  \
        fprintf(stderr, "rank %d: %s:%d: %s: ", c->rank, __FILE__, __LINE__, #x);                                      \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        ht_comm_abort(c, 1);                                                                                           \
    } while (0)

enum { MOST = 4, ALL_GATHER = 1, REDUCE_SCATTER, ALL_REDUCE, BROADCAST, RING, LONG_ONE };

static int32_t everybody[MOST] = {0, 1, 2, 3};

static struct ht_team world(const struct ht_comm *c)
{
    return (struct ht_team){.ranks = everybody, .n = c->size, .me = c->rank};
}

/* Element k of what rank r has to say: its FP32 value is exact in every type, and sums of them are not. */
static float value(int32_t r, int64_t k)
{
    return (float)((k * 7 + r * 13) % 31 - 15) * (r % 2 ? 0.125f : 64.0f);
}

static void put(void *data, int64_t k, float x, enum ht_comm_type type)
{
    if (type == HT_COMM_F32) ((float *)data)[k] = x;
    if (type == HT_COMM_F16) ((uint16_t *)data)[k] = ht_f32_to_f16(x);
    if (type == HT_COMM_BF16) ((uint16_t *)data)[k] = ht_f32_to_bf16(x);
    if (type == HT_COMM_F64) ((double *)data)[k] = x;
}

static double get(const void *data, int64_t k, enum ht_comm_type type)
{
    if (type == HT_COMM_F32) return ((const float *)data)[k];
    if (type == HT_COMM_F16) return ht_f16_to_f32(((const uint16_t *)data)[k]);
    if (type == HT_COMM_BF16) return ht_bf16_to_f32(((const uint16_t *)data)[k]);
    return ((const double *)data)[k];
}

/* As comm.h states it. */
static double sum_of(int32_t n, int64_t k, enum ht_comm_type type)
{
    char rounded[8] = {0};
    float sum = value(0, k);
    for (int32_t r = 1; r < n; r++) sum += value(r, k);
    put(rounded, 0, sum, type);
    return get(rounded, 0, type);
}

static const enum ht_comm_type types[] = {HT_COMM_F32, HT_COMM_F16, HT_COMM_BF16, HT_COMM_F64};

/* Uneven, with zeros; the last one's pieces are longer than a stage. */
static const int64_t shapes[][MOST] = {{3, 0, 5, 1}, {0, 7, 0, 0},       {0, 0, 0, 0},
                                       {1, 1, 1, 1}, {1000, 1, 513, 77}, {70001, 140003, 0, 65536}};

static void try_shape(struct ht_comm *c, const int64_t *counts, enum ht_comm_type type)
{
    struct ht_error err = {0};
    int64_t total = 0, begin = 0, each = ht_comm_type_bytes(type);
    for (int32_t r = 0; r < c->size; r++) total += counts[r];
    for (int32_t r = 0; r < c->rank; r++) begin += counts[r];
    char *all = ht_alloc((size_t)(total * each)), *mine = ht_alloc((size_t)(counts[c->rank] * each));

    for (int64_t k = 0; k < counts[c->rank]; k++) put(mine, k, value(c->rank, begin + k), type);
    REQUIRE(ht_comm_all_gather(c, world(c), ALL_GATHER, mine, all, counts, type, &err) == HT_OK, "%s", err.text);
    for (int64_t k = 0, r = 0, left = counts[0]; k < total; k++, left--) {
        while (left == 0) left = counts[++r];
        REQUIRE(get(all, k, type) == (double)value((int32_t)r, k), "element %lld", (long long)k);
    }

    for (int64_t k = 0; k < total; k++) put(all, k, value(c->rank, k), type);
    REQUIRE(ht_comm_reduce_scatter(c, world(c), REDUCE_SCATTER, all, mine, counts, type, &err) == HT_OK, "%s",
            err.text);
    for (int64_t k = 0; k < counts[c->rank]; k++)
        REQUIRE(get(mine, k, type) == sum_of(c->size, begin + k, type), "element %lld", (long long)k);
    for (int64_t k = 0; k < total; k++) REQUIRE(get(all, k, type) == (double)value(c->rank, k), "was changed");

    REQUIRE(ht_comm_all_reduce(c, world(c), ALL_REDUCE, all, total, type, &err) == HT_OK, "%s", err.text);
    for (int64_t k = 0; k < total; k++)
        REQUIRE(get(all, k, type) == sum_of(c->size, k, type), "element %lld is %g, not %g", (long long)k,
                get(all, k, type), sum_of(c->size, k, type));
    free(all);
    free(mine);
}

/* Ranks of the bits of `mask` have no whole array: they send their piece and get their piece of the others' sum. */
static void try_without(struct ht_comm *c, const int64_t *counts, unsigned mask, enum ht_comm_type type)
{
    struct ht_error err = {0};
    bool without[MOST], whole = !(mask >> c->rank & 1);
    int64_t total = 0, begin = 0, each = ht_comm_type_bytes(type);
    int32_t first = 0;
    for (int32_t r = 0; r < c->size; r++) without[r] = mask >> r & 1;
    while (first < c->size && without[first]) first++;
    for (int32_t r = 0; r < c->size; r++) total += counts[r];
    for (int32_t r = 0; r < c->rank; r++) begin += counts[r];
    struct ht_team team = world(c);
    team.without = without;
    char *all = whole ? ht_alloc((size_t)(total * each)) : NULL, *mine = ht_alloc((size_t)(counts[c->rank] * each));
    for (int64_t k = 0; k < counts[c->rank]; k++) put(mine, k, value(c->rank, begin + k), type);
    REQUIRE(ht_comm_all_gather(c, team, ALL_GATHER, mine, all, counts, type, &err) == HT_OK, "%s", err.text);
    for (int64_t k = 0, r = 0, left = counts[0]; whole && k < total; k++, left--) {
        while (left == 0) left = counts[++r];
        REQUIRE(get(all, k, type) == (double)value((int32_t)r, k), "element %lld", (long long)k);
    }
    for (int64_t k = 0; whole && k < total; k++) put(all, k, value(c->rank, k), type);
    REQUIRE(ht_comm_reduce_scatter(c, team, REDUCE_SCATTER, all, mine, counts, type, &err) == HT_OK, "%s", err.text);
    for (int64_t k = 0; k < counts[c->rank]; k++) {
        char rounded[8] = {0};
        float sum = first < c->size ? value(first, begin + k) : 0;
        for (int32_t r = first + 1; r < c->size; r++) sum += without[r] ? 0 : value(r, begin + k);
        put(rounded, 0, sum, type);
        REQUIRE(get(mine, k, type) == get(rounded, 0, type), "element %lld", (long long)k);
    }
    free(all);
    free(mine);
}

static void try_broadcast(struct ht_comm *c)
{
    struct ht_error err = {0};
    for (int32_t root = 0; root < c->size; root++) {
        int32_t said = c->rank == root ? 100 + root : -1;
        REQUIRE(ht_comm_broadcast(c, world(c), BROADCAST, root, &said, sizeof(said), &err) == HT_OK, "%s", err.text);
        REQUIRE(said == 100 + root, "%d", said);
        REQUIRE(ht_comm_broadcast(c, world(c), BROADCAST, root, NULL, 0, &err) == HT_OK, "%s", err.text);
    }
}

/* Many messages at once to both neighbours, waited for in another order; those of one tag stay in theirs. */
static void try_messages(struct ht_comm *c)
{
    enum { N = 200 };
    static struct ht_message out[N], in[N];
    static int64_t sent[N], got[N];
    struct ht_error err = {0};
    int32_t to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    for (int i = 0; i < N; i++) {
        sent[i] = c->rank * 1000 + i;
        ht_comm_receive(c, from, RING, &got[i], sizeof(got[i]), &in[i]);
        ht_comm_send(c, to, RING, &sent[i], sizeof(sent[i]), &out[i]);
    }
    for (int i = N - 1; i >= 0; i--) {
        REQUIRE(ht_comm_wait(c, &in[i], &err) == HT_OK && ht_comm_wait(c, &out[i], &err) == HT_OK, "%s", err.text);
        REQUIRE(ht_comm_done(&in[i]), "waited for");
    }
    for (int i = 0; i < N; i++) REQUIRE(got[i] == from * 1000 + i, "message %d is %lld", i, (long long)got[i]);

    int64_t n = 1 << 20; /* a long one, both ways at once */
    int64_t *mine = HT_NEW_ARRAY(int64_t, n), *theirs = HT_NEW_ARRAY(int64_t, n);
    for (int64_t k = 0; k < n; k++) mine[k] = k ^ c->rank;
    ht_comm_send(c, to, LONG_ONE, mine, n * 8, &out[0]);
    ht_comm_receive(c, from, LONG_ONE, theirs, n * 8, &in[0]);
    REQUIRE(ht_comm_wait(c, &in[0], &err) == HT_OK && ht_comm_wait(c, &out[0], &err) == HT_OK, "%s", err.text);
    for (int64_t k = 0; k < n; k++) REQUIRE(theirs[k] == (k ^ from), "element %lld", (long long)k);
    free(mine);
    free(theirs);
}

struct heard {
    atomic_int n, wrong;
    int next[MOST];
};

static void on_note(void *ctx, int32_t from, const void *data, int64_t bytes)
{
    struct heard *h = ctx;
    int said = -1;
    if (bytes == sizeof(said)) memcpy(&said, data, sizeof(said));
    if (said != h->next[from]++) atomic_fetch_add(&h->wrong, 1);
    atomic_fetch_add(&h->n, 1);
}

static void try_notes(struct ht_comm *c)
{
    enum { N = 50 };
    static struct ht_message out[N];
    static int said[N];
    static struct heard heard;
    struct ht_error err = {0};
    ht_comm_listen(c, on_note, &heard);
    REQUIRE(ht_comm_barrier(c, world(c), 0, &err) == HT_OK, "%s", err.text);
    for (int i = 0; i < N; i++) {
        said[i] = i;
        ht_comm_notify(c, (c->rank + 1) % c->size, &said[i], sizeof(said[i]), &out[i]);
    }
    for (int i = 0; i < N; i++) REQUIRE(ht_comm_wait(c, &out[i], &err) == HT_OK, "%s", err.text);
    while (atomic_load(&heard.n) < N) usleep(1000);
    REQUIRE(heard.wrong == 0, "%d notes out of order", heard.wrong);
}

static atomic_int listening; /* 1: the listener handles a notification, 2: it has returned */

static void on_long_note(void *ctx, int32_t from, const void *data, int64_t bytes)
{
    (void)ctx, (void)from, (void)data, (void)bytes;
    atomic_store(&listening, 1);
    usleep(50000);
    atomic_store(&listening, 2);
}

/* Setting the next listener, or none, waits until the called one has returned, so that its context may be freed. */
static void try_listener_leaves(struct ht_comm *c)
{
    static struct ht_message out;
    static const char said;
    struct ht_error err = {0};
    ht_comm_listen(c, on_long_note, NULL);
    REQUIRE(ht_comm_barrier(c, world(c), 0, &err) == HT_OK, "%s", err.text);
    ht_comm_notify(c, (c->rank + 1) % c->size, &said, sizeof(said), &out);
    while (!atomic_load(&listening)) usleep(1000);
    ht_comm_listen(c, NULL, NULL);
    REQUIRE(atomic_load(&listening) == 2, "the listener is still being called");
    REQUIRE(ht_comm_wait(c, &out, &err) == HT_OK, "%s", err.text);
}

/* A team of some ranks, while the others do something else. */
static void try_team(struct ht_comm *c)
{
    struct ht_error err = {0};
    int32_t odd[] = {1, 3}, even[] = {0, 2};
    float x = (float)(c->rank + 1);
    struct ht_team team = {.ranks = c->rank % 2 ? odd : even, .n = 2, .me = c->rank / 2};
    if (c->size < 4) return;
    REQUIRE(ht_comm_all_reduce(c, team, ALL_REDUCE + 10, &x, 1, HT_COMM_F32, &err) == HT_OK, "%s", err.text);
    REQUIRE(x == (c->rank % 2 ? 6.0f : 4.0f), "%g", (double)x);
}

static void try_all(struct ht_comm *c)
{
    struct ht_error err = {0};
    for (size_t s = 0; s < HT_COUNT(shapes); s++)
        for (size_t t = 0; t < HT_COUNT(types); t++) {
            try_shape(c, shapes[s], types[t]);
            for (unsigned mask = 1; mask < 1U << c->size; mask++) try_without(c, shapes[s], mask, types[t]);
        }
    try_broadcast(c);
    REQUIRE(ht_comm_barrier(c, world(c), 0, &err) == HT_OK, "%s", err.text);
    if (c->size == 1) return;
    try_messages(c);
    try_team(c);
    try_notes(c);
    try_listener_leaves(c);
}

/* In a rank. */
static int rank_main(bool killed)
{
    struct ht_comm *c = NULL;
    struct ht_error err = {0};
    int launcher = ht_launch_begin();
    enum ht_status status = ht_launched_connect(&err, &c);
    if (!status) {
        if (killed && c->rank == 1) raise(SIGKILL);
        if (!killed) try_all(c);
        status = ht_comm_barrier(c, world(c), 0, &err);
        ht_comm_close(c);
    }
    ht_launch_report(launcher, status, &err);
    return 0;
}

START_TEST(test_self)
{
    struct ht_comm *c = ht_comm_self();
    try_all(c);
    ht_comm_close(c);
}
END_TEST

START_TEST(test_ranks)
{
    launch_ranks(_i);
}
END_TEST

/* The same without mpirun. */
START_TEST(test_local_ranks)
{
    struct ht_error err = {0};
    struct ht_launch_loss loss;
    char *argv[] = {"test_comm", "rank", NULL};
    setenv("HT_LAUNCH", "local", 1);
    ck_assert_msg(ht_launch(_i, argv, &loss, &err) == HT_OK, "%s", err.text);
    unsetenv("HT_LAUNCH");
}
END_TEST

START_TEST(test_sum_order)
{
    /* From the left 2^24 + 1 is 2^24 again (ties to even), and so the second 1 is lost as well; from the right both
       ones count. In BF16, with 8 bits, 256 + 1 + 1 is 258 when it is rounded once, and 256 when after each addition.
     */
    float big = 0x1p24f, small = 1, sum;
    const void *terms[] = {&big, &small, &small}, *turned[] = {&small, &small, &big};
    ht_comm_sum(&sum, terms, 3, 1, HT_COMM_F32);
    ck_assert_float_eq(sum, 0x1p24f);
    ht_comm_sum(&sum, turned, 3, 1, HT_COMM_F32);
    ck_assert_float_eq(sum, 0x1p24f + 2);
    uint16_t half[] = {ht_f32_to_bf16(256), ht_f32_to_bf16(1)};
    const void *halves[] = {&half[0], &half[1], &half[1]};
    ht_comm_sum(half, halves, 3, 1, HT_COMM_BF16);
    ck_assert_float_eq(ht_bf16_to_f32(half[0]), 258);
}
END_TEST

/* A killed rank ends the others, which wait for it. A child that the launcher had before is not taken for a rank. The
   launcher learns how the ranks ended even if it began with SIGCHLD ignored. */
START_TEST(test_killed)
{
    bool local = _i == 1;
    struct ht_error err = {0};
    char *argv[] = {"test_comm", "rank", "killed", NULL};
    int status;
    if (!local && !ht_comm_has_mpi()) {
        puts("skipped: this build has no MPI");
        return;
    }
    if (local) setenv("HT_LAUNCH", "local", 1);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    signal(SIGCHLD, SIG_IGN);
    struct ht_launch_loss loss;
    ck_assert_int_eq(ht_launch(3, argv, &loss, &err), HT_FAILED);
    unsetenv("HT_LAUNCH");
    ck_assert_msg(strstr(err.text, "rank 1 was killed by signal 9"), "%s", err.text);
    ck_assert_int_eq(waitpid(child, &status, WNOHANG), 0);
    ck_assert_int_eq(kill(child, SIGKILL), 0); /* it has handlers of the test runner */
    ck_assert_int_eq(waitpid(child, &status, 0), child);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], HT_LAUNCH_LOCAL)) return ht_launch_local(argv + 2);
    if (argc > 1 && !strcmp(argv[1], "rank")) return rank_main(argc > 2);
    Suite *s = suite_create("comm");
    TCase *tc = tcase_create("comm");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_self);
    tcase_add_test(tc, test_sum_order);
    tcase_add_loop_test(tc, test_killed, 0, 2);
    tcase_add_loop_test(tc, test_ranks, 2, 3);
    tcase_add_loop_test(tc, test_ranks, 4, 5);
    tcase_add_loop_test(tc, test_local_ranks, 2, 5);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
