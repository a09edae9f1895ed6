/* Grouping: the paper's three plans, all groupings of small clusters, GLPK, and the sizes that Sec. V-B plans. */
#include "autohet/planner.h"

#include "common/solve/milp.h"
#include "tests/autohet/groupings.h"
#include "tests/support/draw.h"
#include "tests/support/sanitized.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLUSTERS = SANITIZED ? 100 : 1000, SOLVED = SANITIZED ? 10 : 60 };

static struct autohet_grouping_problem two_types(int32_t a, double a_power, int32_t b, double b_power, double gb)
{
    return (struct autohet_grouping_problem){
        .n_types = 2,
        .types = {{a_power, (int64_t)(gb * 1e9), a}, {b_power, (int64_t)(gb * 1e9), b}},
        .n_groups = 2,
        .micro_batches = 8,
        .min_bytes = 107e9,
        .max_stages = 32};
}

static void expect(const struct autohet_grouping_problem *p, double z, const char *counts)
{
    struct autohet_grouping g;
    struct ht_error err = {0};
    char text[128] = "";
    ck_assert_msg(!autohet_group(p, &err, &g), "%s", err.text);
    for (int32_t j = 0; j < g.n_groups; j++)
        for (int32_t t = 0; t < g.n_types; t++)
            sprintf(text + strlen(text), "%d%s", autohet_count(&g, j, t), t + 1 < g.n_types ? "," : " ");
    ck_assert_str_eq(text, counts);
    ck_assert_double_eq_tol(g.z, z, 1e-4);
    ck_assert(g.proved);
    autohet_grouping_free(&g);
}

/*
 * Groups as "weaker,stronger". A100 1, H800 2, H20 148/312; 107 GB a group; K_tot = 16, D = 2, K = 8.
 *
 *     4A100+2H800, tp 2: units A A of power 2, H of 4, 160 GB each. {H}, {A,A}: 8 * 4 / 9 = 3.5556; D Z = 7.11
 *     1A100+4H20: {A100,H20}, {3 H20}: min(8 * 1.4744 / 9, 8 * 1.4231 / 10) = 1.1385
 *     5A100+3H800: {A,H,H}: 8 * 5 / 10, {A,A,A,A,H}: 8 * 6 / 12; 4.0
 */
START_TEST(published_plans)
{
    struct autohet_grouping_problem p = two_types(2, 2, 1, 4, 160);
    expect(&p, 3.5556, "0,1 2,0 ");
    p = two_types(4, 148 / 312.0, 1, 1, 80);
    expect(&p, 1.1385, "1,1 3,0 ");
    p = two_types(5, 1, 3, 2, 80);
    expect(&p, 4.0, "1,2 4,1 ");
    p = two_types(2, 2, 1, 4, 160);
    p.n_groups = 3, p.micro_batches = 16 / 3.0; /* {H}, {A}, {A}: 2; D Z = 6.0 */
    expect(&p, 2.0, "0,1 1,0 1,0 ");
}
END_TEST

/* With the same K for every D, eq. (3a) alone has the paper's plans: 16 * 4 / 17 twice is 7.53 against 16 * 8 / 18 = 7.11
   of one group; 2.53 against 2.32. With K_tot / D it has a tie at 7.11, and 2.277 against 2.318. */
START_TEST(which_k)
{
    struct autohet_grouping g[4];
    struct autohet_grouping_problem p = two_types(2, 2, 1, 4, 160), q = two_types(4, 148 / 312.0, 1, 1, 80);
    p.micro_batches = q.micro_batches = 16;
    for (int i = 0; i < 4; i++) {
        struct autohet_grouping_problem *of = i < 2 ? &p : &q;
        of->n_groups = 1 + i % 2;
        ck_assert_int_eq(autohet_group(of, NULL, &g[i]), HT_OK);
    }
    ck_assert_double_eq_tol(g[0].z, 7.11, 0.005);
    ck_assert_double_eq_tol(2 * g[1].z, 7.53, 0.005);
    ck_assert_double_eq_tol(g[2].z, 2.32, 0.005);
    ck_assert_double_eq_tol(2 * g[3].z, 2.53, 0.005);
    for (int i = 0; i < 4; i++) autohet_grouping_free(&g[i]);
}
END_TEST

static struct autohet_grouping_problem drawn(struct draw *d)
{
    struct autohet_grouping_problem p = {.n_types = (int32_t)pick(d, 1, 3)};
    double power = 0.2;
    for (int32_t t = 0; t < p.n_types; t++) {
        power += 0.1 * (double)pick(d, 1, 12); /* steps of a tenth, so that powers tie */
        p.types[t] = (struct autohet_unit_type){power, pick(d, 1, 6) * 20, (int32_t)pick(d, 1, 4)};
    }
    p.n_groups = (int32_t)pick(d, 1, 5);
    p.micro_batches = (double)pick(d, 1, 12); /* with 1 or 2 a weak unit may take more from its group than it brings */
    p.min_bytes = (double)pick(d, 0, 12) * 20;
    p.max_stages = (int32_t)pick(d, 2, 12);
    return p;
}

START_TEST(as_exhaustive_search)
{
    struct draw d = {.seed = 32};
    int feasible = 0;
    for (int i = 0; i < CLUSTERS; i++) {
        struct autohet_grouping_problem p = drawn(&d);
        struct exhaustive x = {.p = &p};
        struct autohet_grouping g;
        give(&x, 0, 0, 0);
        enum ht_status status = autohet_group(&p, NULL, &g);
        ck_assert_msg(status == (x.z > 0 ? HT_OK : HT_INFEASIBLE), "%d: %g", i, x.z);
        if (status) continue;
        feasible++;
        ck_assert_msg(fabs(g.z - x.z) < 1e-9 && g.proved, "%d: %g, best %g", i, g.z, x.z);
        ck_assert_msg(!memcmp(g.counts, x.best, (size_t)(p.n_groups * p.n_types) * sizeof(int32_t)), "%d", i);
        autohet_grouping_free(&g);
    }
    ck_assert_int_ge(feasible, CLUSTERS / 4);
    ck_assert_int_le(feasible, CLUSTERS - CLUSTERS / 10);
}
END_TEST

START_TEST(as_glpk)
{
    struct draw d = {.seed = 33};
    if (!ht_milp_available()) return;
    for (int i = 0; i < SOLVED; i++) {
        struct autohet_grouping_problem p = drawn(&d);
        struct autohet_grouping g, m;
        p.n_groups = (int32_t)pick(&d, 1, 3);
        for (int32_t t = 0; t < p.n_types; t++) p.types[t].memory_bytes <<= 30;
        p.min_bytes *= 1 << 30;
        enum ht_status a = autohet_group(&p, NULL, &g), b = autohet_group_milp(&p, NULL, &m);
        ck_assert_msg(a == b, "%d: %d, GLPK %d", i, a, b);
        if (a) continue;
        ck_assert_msg(fabs(g.z - m.z) < 1e-6, "%d: %g, GLPK %g", i, g.z, m.z);
        autohet_grouping_free(&g);
        autohet_grouping_free(&m);
    }
}
END_TEST

/* 24 + 24 + 16 units, power 1, 2, 0.474: every D is found, most of them proved, and Z is near the ceiling K S / (D (K - 1) +
   M), which no grouping exceeds. */
START_TEST(sixty_four)
{
    int proved = 0;
    struct autohet_grouping_problem p = {
        .n_types = 3, .types = {{0.474, 96, 16}, {1, 80, 24}, {2, 80, 24}}, .min_bytes = 107, .max_stages = 32};
    for (p.n_groups = 2; p.n_groups <= 32; p.n_groups++) {
        struct autohet_grouping g;
        p.micro_batches = 128.0 / p.n_groups;
        ck_assert_int_eq(autohet_group(&p, NULL, &g), HT_OK);
        double ceiling = p.micro_batches * 79.584 / (p.n_groups * (p.micro_batches - 1) + 64);
        ck_assert_msg(g.z <= ceiling * (1 + 1e-9) && g.z > 0.75 * ceiling, "D = %d: %g of %g", p.n_groups, g.z,
                      ceiling);
        proved += g.proved;
        autohet_grouping_free(&g);
    }
    ck_assert_int_ge(proved, 20);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, published_plans);
    tcase_add_test(t, which_k);
    tcase_add_test(t, as_exhaustive_search);
    tcase_add_test(t, as_glpk);
    tcase_add_test(t, sixty_four);
}

int main(void)
{
    return run_suite("autohet grouping", add);
}
