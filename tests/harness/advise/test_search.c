/* The search against trying everything, on small machines that are drawn. */
#include "harness/advise/advise.h"

#include "common/base/array.h"
#include "harness/run/registry.h"
#include "tests/support/draw.h"
#include "tests/support/sanitized.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = SANITIZED ? 4 : 20 };

/* Draws a machine of up to three kinds of cards, whose memory the model may or may not fit. */
static void draw_machine(uint64_t seed, struct ht_options *o, char *parts, size_t bytes)
{
    static const char *const kinds[] = {"rtx4090", "a100-40gb", "t4", "v100-16gb"};
    static const char *const models[] = {"gpt-mini", "gpt-tiny", "llama-tiny"};
    struct draw d = {.seed = seed};
    size_t used = (size_t)snprintf(parts, bytes, "gpus=");
    int n = 1 + below(&d, 3), first = below(&d, 4);
    for (int k = 0; k < n; k++) {
        const char *between = k == 0 ? "" : below(&d, 3) ? "," : "/";
        used +=
            (size_t)snprintf(parts + used, bytes - used, "%s%s:%d", between, kinds[(first + k) % 4], 1 + below(&d, 2));
    }
    used += (size_t)snprintf(parts + used, bytes - used, ";ram=%s", below(&d, 2) ? "64GB" : "40MB");
    snprintf(parts + used, bytes - used, "%s", below(&d, 2) ? ";ssd=970-evo-plus-2tb:1" : "");
    o->request.model = models[below(&d, 3)];
    o->request.cluster = parts;
    o->request.batch = 4 << below(&d, 2);
    o->request.device_memory_bytes = INT64_C(4000000) << below(&d, 7);
}

/* Draws a sixth of the systems; all of them with HT_ALL_SYSTEMS in the environment. */
static void draw_systems(uint64_t seed, char *list, size_t bytes)
{
    struct draw d = {.seed = ~seed};
    size_t used = 0;
    for (size_t i = 0; ht_system_at(i) && used < bytes; i++)
        if (!ht_system_is_ablation(ht_system_at(i)) && (!below(&d, 6) || !used || getenv("HT_ALL_SYSTEMS")))
            used += (size_t)snprintf(list + used, bytes - used, "%s%s", used ? "," : "", ht_system_at(i)->name);
}

static double rate(const struct ht_search *s, const size_t *best, size_t n, size_t i)
{
    return i < n ? s->ways[best[i]].tokens_per_s : 0;
}

START_TEST(equals_all)
{
    struct ht_error err = {0};
    int64_t skipped = 0, run = 0, none = 0, recomputing = 0;
    for (uint64_t seed = 1; seed <= CASES; seed++) {
        struct ht_options o = ht_options_default();
        struct ht_cluster *c;
        struct ht_search quick, all;
        char parts[256], systems[1024];
        size_t of_quick[3], of_all[3];
        o.sim.iterations = 3;
        o.sim.warmup = 1;
        draw_machine(seed, &o, parts, sizeof(parts));
        draw_systems(seed, systems, sizeof(systems));
        ck_assert_msg(!ht_search_cluster(&o, &err, &c), "%s: %s", parts, err.text);
        ck_assert(!ht_search_create(&o, c, systems, &err, &quick) && !ht_search_create(&o, c, systems, &err, &all));
        ck_assert_msg(!ht_search_run(&quick, false, &err), "%s: %s", parts, err.text);
        ck_assert_msg(!ht_search_run(&all, true, &err), "%s: %s", parts, err.text);
        size_t n = ht_search_best(&quick, of_quick, 3), m = ht_search_best(&all, of_all, 3);
        ck_assert_msg(n == m, "seed %d: %zu of %zu", (int)seed, n, m);
        for (size_t i = 0; i < 3; i++)
            ck_assert_msg(rate(&quick, of_quick, n, i) == rate(&all, of_all, m, i), "seed %d, %s", (int)seed, parts);
        for (uint64_t kinds = 1; kinds < 8; kinds++)
            for (size_t i = 0; i < quick.n_numerics; i++) {
                const char *numerics = quick.numerics[i];
                ck_assert(ht_search_best_with(&quick, kinds, numerics) == ht_search_best_with(&all, kinds, numerics));
                ck_assert(ht_search_best_within(&quick, kinds, numerics) ==
                          ht_search_best_within(&all, kinds, numerics));
            }
        ck_assert_int_eq(quick.n_compared, all.n_compared);
        for (size_t i = 0; i < all.n_ways; i++) {
            ck_assert_msg(quick.ways[i].fits || !all.ways[i].fits, "seed %d, way %zu", (int)seed, i);
            recomputing += all.ways[i].set[0] != '\0';
            skipped += quick.ways[i].tokens_per_s < all.ways[i].tokens_per_s;
            run += quick.ways[i].tokens_per_s > 0;
        }
        none += !n;
        ht_search_free(&quick);
        ht_search_free(&all);
        ht_cluster_destroy(c);
    }
    ck_assert_int_gt(skipped, 0); /* the rule is at work, */
    ck_assert_int_gt(run, CASES);
    ck_assert_int_gt(recomputing, 0);
    ck_assert_int_lt(none, CASES / 2); /* and most machines train something */
}
END_TEST

/* rtx4090:2 and four t4: all, each kind, halves and single cards. */
START_TEST(subsets)
{
    struct ht_error err = {0};
    struct ht_options o = ht_options_default();
    struct ht_search s;
    struct ht_cluster *c;
    static const char *const want[] = {"", "t4", "rtx4090", "rtx4090:1", "t4:2", "t4:1"};
    o.request.model = "gpt-mini";
    ck_assert(!ht_cluster_load("gpus=rtx4090:2,t4:4;ram=1GB", &err, &c));
    ck_assert(!ht_search_create(&o, c, "in_memory", &err, &s));
    ck_assert_uint_eq(s.n_cards, HT_COUNT(want));
    for (size_t i = 0; i < HT_COUNT(want); i++) ck_assert_str_eq(s.cards[i].only, want[i]);
    char text[512];
    s.ways[2].batch = 8;
    s.ways[2].micro_batch = 2;
    o.request.cluster = "cephalo-a";
    ht_way_command(&s, &s.ways[2], text, sizeof(text));
    ck_assert_str_eq(text,
                     "hetbench sim in_memory --model gpt-mini --cluster cephalo-a --only t4 --batch 8 --micro-batch 2");
    ht_search_free(&s);
    ck_assert(ht_search_create(&o, c, "in_memory,in_memry", &err, &s) == HT_BAD_INPUT);
    ht_cluster_destroy(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("search");
    TCase *t = tcase_create("search");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, equals_all);
    tcase_add_test(t, subsets);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
