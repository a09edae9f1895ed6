/* Linking: the edges of graphs worked out by hand, and thousands of random ones against the verifier and an oracle. */
#include "tests/common/schedule/random_graph.h"

#include <check.h>

enum { RANDOM_GRAPHS = 10000 };

struct fixture {
    struct ht_schedule *s;
    int32_t gpu, cpu, prio, t, work;
};

/* A rank with a FIFO lane each for gpu and cpu, a PRIORITY lane, and one tensor. */
static struct fixture start(bool resident)
{
    struct fixture f = {.s = ht_schedule_create("f", 1, 1, NULL)};
    struct ht_tensor t = {.class = HT_PARAM, .label = {.unit = -1, .micro_batch = -1}, .bytes = 8};
    struct ht_work w = {.custom = "w"};
    f.gpu = ht_add_lane(f.s, "gpu", HT_LANE_COMPUTE, 0, HT_FIFO);
    f.cpu = ht_add_lane(f.s, "cpu", HT_LANE_HOST, 0, HT_FIFO);
    f.prio = ht_add_lane(f.s, "prio", HT_LANE_HOST, 0, HT_PRIORITY);
    f.t = ht_add_tensor(f.s, t);
    f.work = ht_add_work(f.s, &w);
    if (resident) ht_add_resident(f.s, f.t, HT_HOST, 0);
    return f;
}

static int32_t op(struct fixture *f, int32_t lane, unsigned flags)
{
    int32_t id = ht_add_op(f->s, HT_OP_ACCUMULATE, lane, (struct ht_label){.unit = -1, .micro_batch = -1}, f->work);
    if (flags) ht_op_effect(f->s, f->t, HT_HOST, flags);
    return id;
}

static void expect_edges(const int32_t *list, const int64_t *begin, int32_t id, int n, const int32_t *want)
{
    ck_assert_int_eq(begin[id + 1] - begin[id], n);
    for (int i = 0; i < n; i++) ck_assert_int_eq(list[begin[id] + i], want[i]);
}

#define DEPS(id, ...)                                                                                                  \
    do {                                                                                                               \
        const int32_t want_[] = {__VA_ARGS__};                                                                         \
        expect_edges(f.s->deps, f.s->deps_begin, id, (int)(sizeof want_ / 4), want_);                                  \
    } while (0)
#define PREV(id, ...)                                                                                                  \
    do {                                                                                                               \
        const int32_t want_[] = {__VA_ARGS__};                                                                         \
        expect_edges(f.s->prev, f.s->prev_begin, id, (int)(sizeof want_ / 4), want_);                                  \
    } while (0)
#define NO_DEPS(id) ck_assert_int_eq(f.s->deps_begin[(id) + 1], f.s->deps_begin[id])
#define NO_PREV(id) ck_assert_int_eq(f.s->prev_begin[(id) + 1], f.s->prev_begin[id])

/*  0 gpu   produce
 *  1 cpu   need       after 0
 *  2 cpu   need       1 stands for it
 *  3 prio  need       after 0
 *  4 gpu   update     after 2 (the last reader of cpu) and 3
 *  5 cpu   release    after 4: nobody read in between
 * The tensor is not resident: nothing crosses the boundary. */
START_TEST(within)
{
    struct fixture f = start(false);
    op(&f, f.gpu, HT_PRODUCE);
    op(&f, f.cpu, HT_NEED);
    op(&f, f.cpu, HT_NEED);
    op(&f, f.prio, HT_NEED);
    op(&f, f.gpu, HT_UPDATE);
    op(&f, f.cpu, HT_RELEASE);
    ht_schedule_link(f.s);
    NO_DEPS(0);
    DEPS(1, 0);
    NO_DEPS(2);
    DEPS(3, 0);
    DEPS(4, 2, 3);
    DEPS(5, 4);
    ck_assert_int_eq(f.s->prev_begin[6], 0);
    ck_assert_int_eq(ht_schedule_verify(f.s, NULL, NULL), HT_OK);
    ht_schedule_link(f.s); /* again: nothing to add */
    ck_assert_int_eq(f.s->deps_begin[6], 5);
    ht_schedule_destroy(f.s);
}
END_TEST

/*  0 gpu   need       after 3 of the previous iteration, which wrote last
 *  1 gpu   need       0 stands for it
 *  2 prio  need       after 3 of the previous one
 *  3 prio  update     after 1 and 2; after 4 of the previous one, which read what 3 wrote there
 *  4 cpu   need       after 3 */
START_TEST(across)
{
    struct fixture f = start(true);
    op(&f, f.gpu, HT_NEED);
    op(&f, f.gpu, HT_NEED);
    op(&f, f.prio, HT_NEED);
    op(&f, f.prio, HT_UPDATE);
    op(&f, f.cpu, HT_NEED);
    ht_schedule_link(f.s);
    PREV(0, 3);
    NO_PREV(1);
    PREV(2, 3);
    DEPS(3, 1, 2);
    PREV(3, 4);
    DEPS(4, 3);
    NO_PREV(4);
    ht_schedule_destroy(f.s);
}
END_TEST

/* One op that updates on a PRIORITY lane follows itself; on a FIFO lane the lane sees to it. */
START_TEST(itself)
{
    struct fixture f = start(true);
    op(&f, f.prio, HT_UPDATE);
    ht_schedule_link(f.s);
    PREV(0, 0);
    ht_schedule_destroy(f.s);
    f = start(true);
    op(&f, f.gpu, HT_UPDATE);
    ht_schedule_link(f.s);
    NO_PREV(0);
    ht_schedule_destroy(f.s);
}
END_TEST

/* Freed and fetched again: 0 frees after 2 of the previous iteration, 1 produces after 0, 2 reads after 1. */
START_TEST(free_and_fetch)
{
    struct fixture f = start(true);
    op(&f, f.gpu, HT_RELEASE);
    op(&f, f.prio, HT_PRODUCE);
    op(&f, f.cpu, HT_NEED);
    ht_schedule_link(f.s);
    NO_DEPS(0);
    PREV(0, 2);
    DEPS(1, 0);
    DEPS(2, 1);
    ht_schedule_destroy(f.s);
}
END_TEST

/*  0 gpu  validate
 *  1 prio update, when bad     after 0 (by hand)
 *  2 cpu  need                 after 1, and after 3 of the previous iteration for when 1 is skipped
 *  3 prio update               after 2; nothing crosses to it but through 1 and 2 */
START_TEST(branches)
{
    struct fixture f = start(true);
    int32_t v = op(&f, f.gpu, 0);
    f.s->ops[v].kind = HT_OP_VALIDATE;
    op(&f, f.prio, HT_UPDATE);
    ht_op_when(f.s, HT_WHEN_BAD);
    ht_op_after(f.s, v);
    op(&f, f.cpu, HT_NEED);
    op(&f, f.prio, HT_UPDATE);
    ht_schedule_link(f.s);
    DEPS(1, 0);
    PREV(1, 3);
    DEPS(2, 1);
    PREV(2, 3);
    DEPS(3, 2);
    NO_PREV(3);
    ck_assert_int_eq(ht_schedule_verify(f.s, NULL, NULL), HT_OK);
    ht_schedule_destroy(f.s);
}
END_TEST

/* Random graphs: linked ones verify and are safe by the oracle; without any one edge that linking added they are
   refused; unlinked ones that are unsafe are refused. */
START_TEST(random_graphs)
{
    int64_t edges = 0, ops = 0, branched = 0, unsafe = 0;
    for (uint64_t seed = 0; seed < RANDOM_GRAPHS; seed++) {
        struct ht_error err = {0};
        struct ht_schedule *bare = random_build(seed), *s = random_build(seed);
        ht_schedule_link(s);
        ck_assert_msg(ht_schedule_verify(s, &err, NULL) == HT_OK, "seed %d: %s", (int)seed, err.text);
        ck_assert_msg(oracle_safe(s), "seed %d: verified but not safe", (int)seed);
        if (!oracle_safe(bare)) {
            unsafe++;
            ck_assert_msg(ht_schedule_verify(bare, &err, NULL) == HT_FAILED, "seed %d: unsafe but verified", (int)seed);
        }
        ops += s->n_ops;
        branched += s->ops[s->n_ops - 1].when != HT_ALWAYS;
        for (int32_t i = 0; i < s->n_ops; i++) {
            int64_t own = bare->deps_begin[i + 1] - bare->deps_begin[i];
            for (int64_t k = s->deps_begin[i] + own; k < s->deps_begin[i + 1]; k++, edges++) {
                struct ht_schedule *cut = sample_cut(s, CUT_DEP, k);
                ck_assert_msg(ht_schedule_verify(cut, &err, NULL) == HT_FAILED, "seed %d: op %d does not need op %d",
                              (int)seed, i, s->deps[k]);
                ck_assert_ptr_nonnull(strstr(err.text, "without an edge from"));
                ht_schedule_destroy(cut);
            }
            for (int64_t k = s->prev_begin[i]; k < s->prev_begin[i + 1]; k++, edges++) {
                struct ht_schedule *cut = sample_cut(s, CUT_PREV, k);
                ck_assert_msg(ht_schedule_verify(cut, &err, NULL) == HT_FAILED,
                              "seed %d: op %d does not need op %d of the previous iteration", (int)seed, i, s->prev[k]);
                ht_schedule_destroy(cut);
            }
        }
        ht_schedule_destroy(bare);
        ht_schedule_destroy(s);
    }
    ck_assert_int_gt(unsafe, RANDOM_GRAPHS / 2);
    printf("%d graphs, %lld ops, %lld edges cut, %lld ending in a branch, %lld unsafe before linking\n", RANDOM_GRAPHS,
           (long long)ops, (long long)edges, (long long)branched, (long long)unsafe);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule/link");
    TCase *c = tcase_create("link");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, within);
    tcase_add_test(c, across);
    tcase_add_test(c, itself);
    tcase_add_test(c, free_and_fetch);
    tcase_add_test(c, branches);
    tcase_add_test(c, random_graphs);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
