/* Tests quantiles by hand, and schedules that run one op at a time. tests/harness tests the measurements. */
#include "common/backend/measure.h"
#include "common/schedule/verify.h"
#include "tests/support/random_graph.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* 40, 10, 20 sorted: 10 20 40. The median is 20; a quarter lies half way between 10 and 20, three quarters half way
   between 20 and 40. */
START_TEST(quantiles)
{
    int64_t ns[] = {40, 10, 20};
    struct ht_sample row = {.ns = ns, .n = 3};
    struct ht_samples samples = {.rows = &row, .n = 1};
    ht_samples_sort(&samples);
    ck_assert_int_eq(ht_sample_quantile(&row, 0), 10);
    ck_assert_int_eq(ht_sample_quantile(&row, 0.25), 15);
    ck_assert_int_eq(ht_sample_quantile(&row, 0.5), 20);
    ck_assert_int_eq(ht_sample_quantile(&row, 0.75), 30);
    ck_assert_int_eq(ht_sample_quantile(&row, 1), 40);
    row.n = 1;
    ck_assert_int_eq(ht_sample_quantile(&row, 0.5), 10);
}
END_TEST

static bool waits_for(const struct ht_schedule *s, int32_t op, int32_t before)
{
    for (int64_t i = s->deps_begin[op]; i < s->deps_begin[op + 1]; i++)
        if (s->deps[i] == before) return true;
    return false;
}

/* The serial schedule has the same ops, works and effects. Each op waits for the one before it, the first for the last
   op of the previous iteration. The verifier accepts it. */
START_TEST(one_at_a_time)
{
    struct random_graph_options options = random_graph_everything();
    options.max_ranks = 1;
    options.groups = options.may_oom = false;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ht_error err = {0};
        struct ht_schedule *s = random_graph(seed, options, NULL), *t = ht_schedule_one_at_a_time(s);
        ck_assert_msg(ht_schedule_verify(t, &err, NULL) == HT_OK, "seed %llu: %s", (unsigned long long)seed, err.text);
        ck_assert_int_eq(t->n_ops, s->n_ops);
        for (int32_t op = 0; op < s->n_ops; op++) {
            char a[HT_WORK_KEY_MAX], b[HT_WORK_KEY_MAX];
            ck_assert_str_eq(ht_work_key(&s->works[s->ops[op].work], a, sizeof(a)),
                             ht_work_key(&t->works[t->ops[op].work], b, sizeof(b)));
            ck_assert_int_eq(t->ops[op].lane, s->ops[op].lane);
            ck_assert_int_eq(t->effects_begin[op + 1], s->effects_begin[op + 1]);
            ck_assert(op == 0 || waits_for(t, op, op - 1));
        }
        ck_assert_int_ge(t->prev_begin[1], 1);
        ht_schedule_destroy(s);
        ht_schedule_destroy(t);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("measure");
    TCase *tc = tcase_create("measure");
    tcase_add_test(tc, quantiles);
    tcase_add_test(tc, one_at_a_time);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
