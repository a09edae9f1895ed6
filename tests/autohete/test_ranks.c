/* AutoHete's equations on several ranks, by hand. */
#include "autohete/autohete.h"
#include "common/base/array.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>

static struct ht_scenario scenario_of(int64_t ranks)
{
    struct ht_scenario_request r = {.model = "autohete-10b", .cluster = "autohete-4gpu", .batch = 8};
    struct ht_scenario s = scenario_from(&r);
    use_gpus(&s, ranks);
    s.batch = s.micro_batch * ranks; /* equal passes */
    return s;
}

static struct autohete_profile profile_of(const struct ht_scenario *sc, bool on_host)
{
    struct ht_profile *costs = ht_profile_modelled(sc->cluster);
    struct autohete_profile f;
    struct ht_error err = {0};
    ck_assert_msg(autohete_measure(sc, costs, on_host, &err, &f) == HT_OK, "%s", err.text);
    ht_profile_destroy(costs);
    return f;
}

/*
 * 10B: width C = 6144, L = 25, M_p = 12 C^2 + 13 C, which 4 divides. On N = 4 ranks, as printed:
 *
 *     2 M'_a c + 2 M_a (L - c + 1) + (2 M_p / 4) (L - p) + 2 x 2 M_p + (12 M_p / 4) (L - o) + M_gc
 *
 * M_gc of the E = V C + T C + 2 C parameters of embedding and head, stepped on the device: shards of copy, states and
 * gradient, 16 E / 4; gathered copy and whole gradient, 4 E; and the head's input twice, kept activations, logits,
 * scratch.
 */
START_TEST(eq_1_per_rank)
{
    struct ht_scenario sc = scenario_of(4);
    const struct ht_model *m = &sc.model;
    struct autohete_profile f = profile_of(&sc, false);
    int64_t L = m->layers, C = m->width, b = sc.micro_batch, T = sc.seq, head = L + 1;
    int64_t M_p = 12 * C * C + 13 * C, E = m->vocab * C + T * C + 2 * C;
    int64_t input = 2 * b * T * C, kept = input + ht_unit_activation_bytes(m, 1, b, T, HT_F16);
    int64_t forward = ht_unit_workspace_bytes(m, head, b, T, HT_F16, false);
    int64_t backward = ht_unit_workspace_bytes(m, head, b, T, HT_F16, true);
    int64_t M_gc = 4 * E + 4 * E + 2 * input + ht_unit_activation_bytes(m, head, b, T, HT_F16) +
                   ht_logits_bytes(m, b, T) + (forward > backward ? forward : backward);
    ck_assert_int_eq(M_p % 4, 0);
    ck_assert_int_eq((m->vocab * C + T * C) % 4, 0);
    for (int64_t c = 0; c <= L; c += 5)
        for (int64_t p = 0; p <= L; p += 5) {
            struct autohete_choice s = {c, p, L - 5 > p ? L - 5 : p};
            int64_t expected =
                input * c + kept * (L - c + 1) + M_p / 2 * (L - p) + 4 * M_p + 3 * M_p * (L - s.o) + M_gc;
            ck_assert_int_eq(autohete_device_bytes(&f, s), expected);
        }
    ht_scenario_free(&sc);
}
END_TEST

/* Eq. 2 is the node's: 14 M_p o for any number of ranks. */
START_TEST(eq_2_of_the_node)
{
    for (int64_t ranks = 1; ranks <= 4; ranks *= 2) {
        struct ht_scenario sc = scenario_of(ranks);
        struct autohete_profile f = profile_of(&sc, false);
        int64_t C = sc.model.width;
        ck_assert_int_eq(f.host_bytes, 14 * (12 * C * C + 13 * C));
        ht_scenario_free(&sc);
    }
}
END_TEST

/* Equal passes and CPU steps; a rank's copies and device steps are of a quarter. */
START_TEST(times_per_rank)
{
    struct ht_scenario one = scenario_of(1), four = scenario_of(4);
    struct autohete_profile f = profile_of(&one, false), g = profile_of(&four, false);
    ck_assert_int_eq(g.fp_ns, f.fp_ns);
    ck_assert_double_eq_tol((double)g.cpu_ns / (double)f.cpu_ns, 1, 0.01);
    ck_assert_double_eq_tol((double)g.h2d_ns / (double)f.h2d_ns, 0.25, 0.01);
    ck_assert_double_eq_tol((double)g.d2h_ns / (double)f.d2h_ns, 0.25, 0.01);
    ck_assert_double_eq_tol((double)g.gpu_ns / (double)f.gpu_ns, 0.25, 0.02);
    ht_scenario_free(&one);
    ht_scenario_free(&four);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *t = tcase_create("equations");
    tcase_add_test(t, eq_1_per_rank);
    tcase_add_test(t, eq_2_of_the_node);
    tcase_add_test(t, times_per_rank);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
