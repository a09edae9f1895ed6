/* Clusters of unlike machines with measured costs: every rank is simulated with its own. */
#include "common/base/array.h"
#include "harness/run/job.h"
#include "harness/result/result.h"
#include "harness/run/simulate.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MS = 1000000 };

/* Milliseconds of an op on an A100 (0) and on a V100 (1). */
static const struct {
    enum ht_op_kind kind;
    int ms[2];
} prices[] = {
    {HT_OP_FORWARD, {2, 5}}, {HT_OP_BACKWARD, {4, 10}}, {HT_OP_ALL_REDUCE, {3, 3}}, {HT_OP_OPTIMIZER_STEP, {1, 2}}};

static struct ht_job job_of(const struct ht_options *o)
{
    struct ht_error err = {0};
    struct ht_job job;
    ck_assert_msg(ht_job_create(o, "ddp", NULL, HT_JOB_COSTS, &err, &job) == HT_OK, "%s", err.text);
    ck_assert_msg(job.answer == HT_OK, "%s", job.reason);
    return job;
}

/* A profile of the graph's works for one kind of rank, as of a machine that was measured. */
static void write_profile(const char *path, const struct ht_schedule *s, int kind)
{
    static const char *const whose[] = {"device: a100-40gb, host: epyc-7713",
                                        "device: v100-32gb-pcie, host: epyc-7452"};
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "profile: {name: kind %d, source: by hand, %s, costs: [", kind, whose[kind]);
    for (int32_t w = 0; w < s->n_works; w++)
        for (size_t i = 0; i < HT_COUNT(prices); i++) {
            char key[HT_WORK_KEY_MAX];
            if (s->works[w].kind != prices[i].kind) continue;
            fprintf(f, "{work: '%s', time: %d ms}, ", ht_work_key(&s->works[w], key, sizeof(key)), prices[i].ms[kind]);
        }
    fprintf(f, "]}\n");
    ck_assert_int_eq(fclose(f), 0);
}

static void runs(const struct ht_trace *t, int32_t iteration, const char *name, int32_t rank, int64_t begin,
                 int64_t end)
{
    const struct ht_schedule *s = t->schedule;
    int32_t op = 0;
    while (op < s->n_ops && (strcmp(s->ops[op].name, name) != 0 || ht_op_rank(s, op) != rank)) op++;
    ck_assert_msg(op < s->n_ops, "no %s of rank %d", name, rank);
    const struct ht_trace_event *e = &t->events[(int64_t)iteration * s->n_ops + op];
    ck_assert_msg(e->start_ns == begin * MS && e->end_ns == end * MS, "%s of rank %d in iteration %d: [%lld, %lld] ns",
                  name, rank, iteration, (long long)e->start_ns, (long long)e->end_ns);
}

/*
 * A model of one block (units 0, 1, 2), data-parallel without shards on two A100 and two V100, a sequence each. In ms:
 *
 *     A100     F0 0-2   F1 2-4    F2 4-6     B2 6-10    B1 10-14  B0 14-18                 U0 48-49  U1 49-50  U2 50-51
 *     V100     F0 0-5   F1 5-10   F2 10-15   B2 15-25   B1 25-35  B0 35-45                 U0 48-50  U1 50-52  U2 52-54
 *     reduce                                            AR2 25-28      AR1 35-38   AR0 45-48
 *
 * A sum over the ranks begins when the slower ones have theirs. An A100 begins the next iteration at 51, and waits for
 * the sums again; a V100 begins it at 54. So the period is 54.
 */
START_TEST(an_iteration_of_unlike_ranks_by_hand)
{
    static const struct {
        const char *name;
        int64_t a100[2], v100[2];
    } rows[] = {{"F0", {0, 2}, {0, 5}},      {"F2", {4, 6}, {10, 15}},    {"B2", {6, 10}, {15, 25}},
                {"B0", {14, 18}, {35, 45}},  {"AR2", {25, 28}, {25, 28}}, {"AR1", {35, 38}, {35, 38}},
                {"AR0", {45, 48}, {45, 48}}, {"U0", {48, 49}, {48, 50}},  {"U2", {50, 51}, {52, 54}}};
    struct ht_options o = {.request = {.model = "gpt-tiny",
                                       .blocks = 1,
                                       .cluster = HT_SOURCE_DIR "/tests/data/mixed-2x2.yaml",
                                       .batch = 4,
                                       .seq = 16,
                                       .micro_batch = 1},
                           .sim = {.iterations = 4}};
    char paths[2][64];
    struct ht_error err = {0};
    struct ht_trace *t = NULL;
    struct ht_job job = job_of(&o);
    for (int k = 0; k < 2; k++) {
        snprintf(paths[k], sizeof(paths[k]), "/tmp/hetbench-mixed-%d-%d.yaml", (int)getpid(), k);
        write_profile(paths[k], job.schedule, k);
        o.plan.profiles[o.plan.n_profiles++] = paths[k];
    }
    ht_job_free(&job);
    job = job_of(&o);
    ck_assert_str_eq(ht_profile_name(job.profile), "kind 0 + kind 1");
    ck_assert_msg(ht_simulate(&o, &job, &err, &t) == HT_OK, "%s", err.text);
    for (int32_t rank = 0; rank < 4; rank++)
        for (size_t i = 0; i < HT_COUNT(rows); i++) {
            const int64_t *at = rank < 2 ? rows[i].a100 : rows[i].v100;
            runs(t, 0, rows[i].name, rank, at[0], at[1]);
        }
    runs(t, 1, "F0", 0, 51, 53);
    runs(t, 1, "F0", 2, 54, 59);
    for (int32_t k = 0; k < 4; k++) ck_assert_int_eq(t->iteration_end_ns[k], (k + 1) * 54 * MS);
    ht_trace_destroy(t);
    ht_job_free(&job);
    for (int k = 0; k < 2; k++) unlink(paths[k]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mixed");
    TCase *tc = tcase_create("mixed");
    tcase_add_test(tc, an_iteration_of_unlike_ranks_by_hand);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
