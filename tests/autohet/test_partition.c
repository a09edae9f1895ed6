/* Partition and mapping: worked examples, and all divisions of random pipelines. */
#include "autohet/planner.h"

#include "tests/support/draw.h"
#include "tests/support/sanitized.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PIPELINES = SANITIZED ? 100 : 1000 };

/*
 * tau (1, 1, .5, .5), L = 32, K = 16. (5, 5, 11, 11): 15 * 5.5 + 5 + 5 + 5.5 + 5.5 = 103.5; an equal split is 15 * 8 + 24
 * = 144. With at most 9 on the last two: (7, 7, 9, 9), 15 * 7 + 23 = 128.
 */
START_TEST(example)
{
    struct autohet_stage s[] = {{1, 0, 32}, {1, 0, 32}, {0.5, 0, 32}, {0.5, 0, 32}};
    const int64_t want[] = {5, 5, 11, 11}, capped[] = {7, 7, 9, 9};
    int64_t l[4];
    for (int o = AUTOHET_EQ_1; o <= AUTOHET_EQ_4; o++) {
        s[2].most = s[3].most = 32;
        ck_assert_int_eq(autohet_partition(s, 4, 32, 16, (enum autohet_objective)o, NULL, l), HT_OK);
        ck_assert(!memcmp(l, want, sizeof(l)));
        s[2].most = s[3].most = 9;
        ck_assert_int_eq(autohet_partition(s, 4, 32, 16, (enum autohet_objective)o, NULL, l), HT_OK);
        ck_assert(!memcmp(l, capped, sizeof(l)));
    }
    s[0].most = 13; /* 13 + 32 + 9 + 9 hold them, 13 + 0 + 9 + 9 do not */
    s[1].most = 0;
    struct ht_error err = {0};
    ck_assert_int_eq(autohet_partition(s, 4, 32, 16, AUTOHET_EQ_1, &err, l), HT_INFEASIBLE);
    ck_assert_str_eq(err.text, "32 layers do not fit the memory of a pipeline of 4 stages");
}
END_TEST

/* Few micro-batches: eq. (1) leaves a weak first stage fewer layers than eq. (4). tau (2, 1), L = 6, K = 1: all but one
   on the second, 2 + 5 = 7; eq. (4) takes (2, 4), whose sum is 8. */
START_TEST(objectives_differ)
{
    const struct autohet_stage s[] = {{2, 0, 6}, {1, 0, 6}};
    int64_t l[2];
    ck_assert_int_eq(autohet_partition(s, 2, 6, 1, AUTOHET_EQ_1, NULL, l), HT_OK);
    ck_assert(l[0] == 1 && l[1] == 5);
    ck_assert_int_eq(autohet_partition(s, 2, 6, 1, AUTOHET_EQ_4, NULL, l), HT_OK);
    ck_assert(l[0] == 2 && l[1] == 4);
}
END_TEST

/* (4c), P = 4, K = 3, 100 bytes: 10 are fixed and 2 more a micro-batch; a layer has 5 and 3 more. Stage 0: 3 in flight,
   (100 - 10 - 6) / (5 + 9) = 6. Stage 3: 1 in flight, 88 / 8 = 11. */
START_TEST(memory)
{
    const struct autohet_memory m = {5, 3, 10, 2};
    ck_assert_int_eq(autohet_most_layers(&m, 100, 4, 0, 3), 6);
    ck_assert_int_eq(autohet_most_layers(&m, 100, 4, 3, 3), 11);
    ck_assert_int_eq(autohet_most_layers(&m, 11, 4, 0, 3), 0);
}
END_TEST

struct exhaustive {
    const struct autohet_stage *s;
    int32_t n;
    double k, least, slowest, least_of_slowest; /* of eq. (1); of eq. (4), and eq. (1) among these */
    int64_t l[6];
};

static void divide(struct exhaustive *x, int32_t stage, int32_t left)
{
    if (stage == x->n - 1) x->l[stage] = left;
    if (stage == x->n - 1 && left >= 1) {
        double sum = 0, worst = 0;
        for (int32_t p = 0; p < x->n; p++) {
            double t = x->s[p].fixed_s + (double)x->l[p] * x->s[p].layer_s;
            if (x->l[p] > x->s[p].most) return;
            sum += t;
            worst = fmax(worst, t);
        }
        double s = sum + (x->k - 1) * worst;
        x->least = fmin(x->least, s);
        if (worst < x->slowest - 1e-9) x->slowest = worst, x->least_of_slowest = s;
        if (worst < x->slowest + 1e-9) x->least_of_slowest = fmin(x->least_of_slowest, s);
    }
    if (stage >= x->n - 1) return;
    for (int32_t l = 1; l <= left; l++) {
        x->l[stage] = l;
        divide(x, stage + 1, left - l);
    }
}

static double seconds(const struct autohet_stage *s, const int64_t *l, int32_t n, double k, double *worst)
{
    double t[6];
    *worst = 0;
    for (int32_t p = 0; p < n; p++) {
        t[p] = s[p].fixed_s + (double)l[p] * s[p].layer_s;
        *worst = fmax(*worst, t[p]);
    }
    return autohet_pipeline_s(t, n, k);
}

START_TEST(as_exhaustive_search)
{
    struct draw d = {.seed = 34};
    int feasible = 0;
    for (int i = 0; i < PIPELINES; i++) {
        struct autohet_stage s[6];
        struct exhaustive x = {.s = s, .least = INFINITY, .slowest = INFINITY};
        int32_t layers = (int32_t)pick(&d, 1, 14);
        int64_t l[6];
        double worst;
        x.n = (int32_t)pick(&d, 1, 5);
        x.k = (double)pick(&d, 1, 20);
        for (int32_t p = 0; p < x.n; p++)
            s[p] = (struct autohet_stage){(double)pick(&d, 1, 8) / 4, (double)pick(&d, 0, 4) / 4,
                                          (int32_t)pick(&d, 0, 14)};
        divide(&x, 0, layers);
        enum ht_status status = autohet_partition(s, x.n, layers, x.k, AUTOHET_EQ_1, NULL, l);
        ck_assert_msg(status == (isfinite(x.least) ? HT_OK : HT_INFEASIBLE), "%d", i);
        if (status) continue;
        feasible++;
        ck_assert_double_eq_tol(seconds(s, l, x.n, x.k, &worst), x.least, 1e-9);
        ck_assert_int_eq(autohet_partition(s, x.n, layers, x.k, AUTOHET_EQ_4, NULL, l), HT_OK);
        ck_assert_double_eq_tol(seconds(s, l, x.n, x.k, &worst), x.least_of_slowest, 1e-9);
        ck_assert_double_eq_tol(worst, x.slowest, 1e-9);
    }
    ck_assert_int_ge(feasible, PIPELINES / 3);
}
END_TEST

/* Writes a group's places as "type@node.unit ". */
static const char *written(const struct autohet_place *p, int n, char *buf)
{
    buf[0] = 0;
    for (int i = 0; i < n; i++) sprintf(buf + strlen(buf), "%c%d.%d ", "AH"[p[i].type], p[i].node, p[i].unit);
    return buf;
}

/*
 * Nodes of 4 A100 and 4 H800. Four groups {A,H}: (i) and (ii) hold, so the four A100 are the groups' first stages and the
 * four H800 their second ones; each ring is in one node. Groups {A,A}, {A,A}, {H,H}, {H,H}: (i) fails at once, and what
 * remains is assigned in order, each pipeline in one node. Groups {A,A,A,H}, {A,H,H,H}: one stage of A100 in common; then
 * (i) fails for A100, so H800 are not tried although (i) and (ii) hold for them.
 */
START_TEST(mapping)
{
    static const struct {
        int32_t n_groups, counts[8];
        const char *want;
    } cases[] = {
        {4, {1, 1, 1, 1, 1, 1, 1, 1}, "A0.0 H1.0 A0.1 H1.1 A0.2 H1.2 A0.3 H1.3 "},
        {4, {0, 2, 0, 2, 2, 0, 2, 0}, "H1.0 H1.1 H1.2 H1.3 A0.0 A0.1 A0.2 A0.3 "},
        {2, {1, 3, 3, 1}, "A0.0 H1.1 H1.2 H1.3 A0.1 A0.2 A0.3 H1.0 "},
    };
    const double power[] = {1, 2};
    const int32_t nodes[] = {4, 0, 0, 4};
    for (int i = 0; i < 3; i++) {
        int32_t counts[8];
        struct autohet_place places[8];
        char text[128];
        memcpy(counts, cases[i].counts, sizeof(counts));
        struct autohet_grouping g = {.n_groups = cases[i].n_groups, .n_types = 2, .counts = counts};
        autohet_map(&g, power, 2, nodes, places);
        ck_assert_str_eq(written(places, 8, text), cases[i].want);
    }
}
END_TEST

static void add(TCase *t)
{
    tcase_add_test(t, example);
    tcase_add_test(t, objectives_differ);
    tcase_add_test(t, memory);
    tcase_add_test(t, as_exhaustive_search);
    tcase_add_test(t, mapping);
}

int main(void)
{
    return run_suite("autohet partition", add);
}
