/* Pipeline orders against the papers' figures and closed forms. */
#include "common/schedule/pipeline.h"

#include "common/base/array.h"
#include "common/base/rng.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Backward stages round the ranks from the last one, by falling number, as SysX has them (sysx/schedule.c). */
static int32_t round_back(const struct ht_pipe_shape *p, int32_t q)
{
    return p->ranks - 1 - q % p->ranks;
}

static struct ht_pipe_pass *orders(const struct ht_pipe_shape *p)
{
    struct ht_pipe_pass *passes = HT_NEW_ARRAY(struct ht_pipe_pass, p->ranks * ht_pipe_passes(p));
    for (int32_t r = 0; r < p->ranks; r++) ht_pipe_rank_order(p, r, passes + r * ht_pipe_passes(p));
    return passes;
}

static int64_t length(struct ht_pipe_shape p, int64_t forward, int64_t backward)
{
    struct ht_pipe_pass *passes = orders(&p);
    int64_t n = ht_pipe_layout(&p, forward, backward, passes);
    free(passes);
    return n;
}

/* Writes the order of a rank: "f0.0 f0.1 b0.0". */
static void check_order(struct ht_pipe_shape p, int32_t rank, const char *want)
{
    char text[2048] = "";
    struct ht_pipe_pass *passes = orders(&p), *mine = passes + rank * ht_pipe_passes(&p);
    for (int64_t k = 0; k < ht_pipe_passes(&p); k++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%c%d.%d", k ? " " : "", mine[k].forward ? 'f' : 'b', mine[k].stage,
                 mine[k].micro_batch);
    }
    ck_assert_str_eq(text, want);
    free(passes);
}

/* Fig. 2 of SysX (Mobius): S(0,4) on GPU 0. Fig. 5(c), where backward stages go round the other way: 3, 1 on GPU 0 and
   2, 0 on GPU 1. */
START_TEST(assignment)
{
    struct ht_pipe_shape fig2 = {4, 4, 2, 1, HT_PIPE_AFAB, NULL}, fig5c = {2, 2, 1, 2, HT_PIPE_AFAB, round_back};
    for (int q = 0; q < 8; q++) ck_assert_int_eq(ht_pipe_backward_rank(&fig2, q), q % 4);
    check_order(fig5c, 0, "f0.0 f0.1 b3.0 b3.1 b1.0 b1.1");
    check_order(fig5c, 1, "f1.0 f1.1 b2.0 b2.1 b0.0 b0.1");
}
END_TEST

/* Per micro-batch: N_g = 2, v = 1: 2 of 2 and 2 of 4 (Sec. 3.1: as many for d = 2); N_g = 4, v = 2: 8, 12, 24. */
START_TEST(remote_checkpoints)
{
    static const int cases[][4] = {{2, 1, 1, 2}, {2, 1, 2, 2}, {4, 2, 1, 8}, {4, 2, 2, 12}, {4, 2, 3, 24}};
    for (size_t c = 0; c < HT_COUNT(cases); c++) {
        struct ht_pipe_shape p = {cases[c][0], 4, cases[c][1], cases[c][2], HT_PIPE_AFAB, round_back};
        int n = 0;
        for (int32_t q = 0; q < ht_pipe_backward_stages(&p); q++) n += ht_pipe_is_remote(&p, q);
        ck_assert_int_eq(n, cases[c][3]);
        p.backward_rank = NULL;
        for (int32_t q = 0; q < ht_pipe_backward_stages(&p); q++) ck_assert(!ht_pipe_is_remote(&p, q));
    }
}
END_TEST

/* DAPPLE, SysX Fig. 1(b): N_g - r forwards first; rank 0 never holds more than N_g activations, GPipe's N_m. */
START_TEST(one_forward_one_backward)
{
    struct ht_pipe_shape p = {3, 4, 1, 1, HT_PIPE_1F1B, NULL};
    check_order(p, 0, "f0.0 f0.1 f0.2 b0.0 f0.3 b0.1 b0.2 b0.3");
    check_order(p, 2, "f2.0 b2.0 f2.1 b2.1 f2.2 b2.2 f2.3 b2.3");
    for (p.micro_batches = 1; p.micro_batches < 9; p.micro_batches++) {
        struct ht_pipe_pass *passes = orders(&p);
        for (int32_t r = 0; r < p.ranks; r++) {
            int held = 0, most = 0, want = p.micro_batches < p.ranks - r ? p.micro_batches : p.ranks - r;
            for (int64_t k = 0; k < ht_pipe_passes(&p); k++) {
                held += passes[r * ht_pipe_passes(&p) + k].forward ? 1 : -1;
                if (held > most) most = held;
            }
            ck_assert_int_eq(most, want);
        }
        free(passes);
    }
}
END_TEST

/* Counts how often rank r of 4 changes between its two chunks, the first one included: it fetches parameters as
   often. */
START_TEST(interleaved)
{
    static const int switches[3][4] = {{3, 3, 3, 3}, {11, 19, 13, 5}, {23, 47, 33, 9}};
    struct ht_pipe_shape small = {2, 2, 2, 1, HT_PIPE_INTERLEAVED, NULL};
    check_order(small, 0, "f0.0 f0.1 f2.0 f2.1 b2.0 b2.1 b0.0 b0.1");
    small.micro_batches = 4;
    check_order(small, 1, "f1.0 f1.1 f3.0 b3.0 f3.1 b3.1 f1.2 b1.0 f1.3 b1.1 f3.2 b3.2 f3.3 b3.3 b1.2 b1.3");
    for (int k = 0; k < 3; k++) {
        struct ht_pipe_shape p = {4, 4 << k, 2, 1, HT_PIPE_INTERLEAVED, NULL};
        struct ht_pipe_pass *passes = orders(&p);
        for (int32_t r = 0; r < 4; r++) {
            int n = 1;
            for (int64_t i = 1; i < ht_pipe_passes(&p); i++) {
                const struct ht_pipe_pass *x = &passes[r * ht_pipe_passes(&p) + i];
                n += x->stage != x[-1].stage;
            }
            ck_assert_int_eq(n, switches[k][r]);
        }
        free(passes);
    }
}
END_TEST

/* Fig. 5: 9, 8, 7. Figs. 2 and 8: 33, 30, 27. Eq. 2 with 4 and 4: 21. N_m = 2 on four GPUs stalls: 27 and 25. */
START_TEST(figures)
{
    ck_assert_int_eq(length((struct ht_pipe_shape){2, 2, 1, 1, HT_PIPE_AFAB, NULL}, 1, 2), 9);
    ck_assert_int_eq(length((struct ht_pipe_shape){2, 2, 1, 1, HT_PIPE_AFAB, round_back}, 1, 2), 8);
    ck_assert_int_eq(length((struct ht_pipe_shape){2, 2, 1, 2, HT_PIPE_AFAB, round_back}, 1, 1), 7);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 4, 2, 1, HT_PIPE_AFAB, NULL}, 1, 2), 33);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 4, 2, 1, HT_PIPE_AFAB, round_back}, 1, 2), 30);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 4, 2, 2, HT_PIPE_AFAB, round_back}, 1, 1), 27);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 4, 1, 1, HT_PIPE_AFAB, NULL}, 1, 2), 21);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 4, 1, 1, HT_PIPE_1F1B, NULL}, 1, 2), 21);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 2, 2, 1, HT_PIPE_AFAB, NULL}, 1, 2), 27);
    ck_assert_int_eq(length((struct ht_pipe_shape){4, 2, 2, 2, HT_PIPE_AFAB, round_back}, 1, 1), 25);
}
END_TEST

/* Fig. 8: GPU r starts forward at r and backward at 8 + r, and ends at 24 + r: one skew for all. */
START_TEST(one_skew)
{
    struct ht_pipe_shape p = {4, 4, 2, 2, HT_PIPE_AFAB, round_back};
    struct ht_pipe_pass *passes = orders(&p);
    ht_pipe_layout(&p, 1, 1, passes);
    for (int32_t r = 0; r < 4; r++) {
        const struct ht_pipe_pass *mine = passes + r * ht_pipe_passes(&p);
        ck_assert_int_eq(mine[0].start, r);
        ck_assert_int_eq(mine[8].start, 8 + r);
        ck_assert(!mine[8].forward && mine[8].stage == 15 - r);
        ck_assert_int_eq(mine[23].end, 24 + r);
    }
    free(passes);
}
END_TEST

/* T_f = d, T_b' = 2 or 3, so that a whole backward is two or three times a forward. */
START_TEST(closed_forms)
{
    static const int32_t ranks[] = {2, 3, 4, 8};
    for (size_t k = 0; k < HT_COUNT(ranks); k++)
        for (int32_t more = 0; more < 6; more++)
            for (int32_t v = 1; v <= 3; v++)
                for (int32_t d = 1; d <= 3; d++)
                    for (int64_t b = 2; b <= 3; b++) {
                        int32_t n = ranks[k], n_m = n + more;
                        struct ht_pipe_shape sysx = {n, n_m, v, d, HT_PIPE_AFAB, round_back};
                        struct ht_pipe_shape mobius = {n, n_m, v, 1, HT_PIPE_AFAB, NULL};
                        struct ht_pipe_shape turns = {n, n_m, 1, 1, HT_PIPE_1F1B, NULL};
                        struct ht_pipe_shape chunks = {n, n * (more + 1), v, 1, HT_PIPE_INTERLEAVED, NULL};
                        ck_assert_int_eq(length(sysx, d, b), n_m * (v * d + v * d * b) + (n - 1) * (d > b ? d : b));
                        ck_assert_int_eq(length(mobius, d, d * b), (v * n_m + n - 1) * (d + d * b));
                        ck_assert_int_eq(length(turns, d, d * b), (n_m + n - 1) * (d + d * b));
                        ck_assert_int_eq(length(chunks, d, d * b), (v * n * (more + 1) + n - 1) * (d + d * b));
                    }
}
END_TEST

/* For any shape and durations every pass runs once, and no rank waits for ever. */
START_TEST(random_shapes)
{
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct ht_pipe_shape p = {.ranks = 1 + (int32_t)ht_random_below(seed, 0, 6),
                                  .micro_batches = 1 + (int32_t)ht_random_below(seed, 1, 9),
                                  .v = 1 + (int32_t)ht_random_below(seed, 2, 3),
                                  .d = 1 + (int32_t)ht_random_below(seed, 3, 3),
                                  .order = (enum ht_pipe_order)ht_random_below(seed, 4, 3)};
        if (p.order == HT_PIPE_AFAB && ht_random_below(seed, 5, 2)) p.backward_rank = round_back;
        if (p.order != HT_PIPE_AFAB) p.d = 1;
        if (p.order == HT_PIPE_1F1B) p.v = 1;
        if (p.order == HT_PIPE_INTERLEAVED) p.micro_batches *= p.ranks;
        int32_t n_m = p.micro_batches, n_f = ht_pipe_forward_stages(&p), n_b = ht_pipe_backward_stages(&p);
        int *seen = HT_NEW_ARRAY(int, (n_f + n_b) * n_m);
        struct ht_pipe_pass *passes = orders(&p);
        for (int64_t k = 0; k < p.ranks * ht_pipe_passes(&p); k++) {
            const struct ht_pipe_pass *x = &passes[k];
            int32_t rank = (int32_t)(k / ht_pipe_passes(&p));
            ck_assert_int_eq(x->forward ? ht_pipe_forward_rank(&p, x->stage) : ht_pipe_backward_rank(&p, x->stage),
                             rank);
            ck_assert_int_eq(seen[(x->forward ? x->stage : n_f + x->stage) * n_m + x->micro_batch]++, 0);
        }
        ck_assert_int_gt(ht_pipe_layout(&p, 1 + (int64_t)ht_random_below(seed, 6, 4),
                                        1 + (int64_t)ht_random_below(seed, 7, 4), passes),
                         0);
        free(passes);
        free(seen);
    }
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("pipeline");
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, assignment);
    tcase_add_test(tc, remote_checkpoints);
    tcase_add_test(tc, one_forward_one_backward);
    tcase_add_test(tc, interleaved);
    tcase_add_test(tc, figures);
    tcase_add_test(tc, one_skew);
    tcase_add_test(tc, closed_forms);
    tcase_add_test(tc, random_shapes);
    Suite *suite = suite_create("pipeline orders");
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
