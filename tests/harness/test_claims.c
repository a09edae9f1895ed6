/* Claims: the arithmetic of rows by hand, and ledgers that are wrong in one place. */
#include "harness/claims_check.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N NAN

START_TEST(reduce)
{
    /* gains over four models, of which the third does not run: 2.0, 1.5, -, 1.0 */
    const double v[] = {2.0, 1.5, N, 1.0};
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_AVERAGE, v, 4), 1.5); /* 4.5 / 3 */
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_MAX, v, 4), 2.0);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_MIN, v, 4), 1.0);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_SPREAD, v, 4), 2.0);
    /* steps 1.5 / 2 = 0.75 and 1 / 1.5 = 0.667 */
    ck_assert_double_eq_tol(ht_claim_reduce(HT_CLAIM_STEPS, v, 4), 2.0 / 3, 1e-12);
    /* the middle one of 2.0, 1.5, 1.0 is left out: 1 / 2 */
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_HALVES, v, 4), 0.5);
    /* (3 + 4) / 2 over (1 + 2) / 2 */
    ck_assert_double_eq_tol(ht_claim_reduce(HT_CLAIM_HALVES, (const double[]){1, 2, 3, 4}, 4), 7.0 / 3, 1e-12);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_DIFFERENCE, (const double[]){5, 3}, 2), 2);
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_DIFFERENCE, (const double[]){5, N}, 2)));
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_AVERAGE, (const double[]){N, N}, 2)));
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_STEPS, (const double[]){N, 7}, 2)));
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_VALUE, (const double[]){1, 2}, 2)));
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_VALUE, (const double[]){N, 7}, 2), 7);
}
END_TEST

START_TEST(boundary)
{
    bool hole;
    ck_assert_int_eq(ht_claim_boundary(HT_CLAIM_LARGEST, (const bool[]){1, 1, 0, 0}, 4, &hole), 1);
    ck_assert(!hole);
    ck_assert_int_eq(ht_claim_boundary(HT_CLAIM_LARGEST, (const bool[]){1, 0, 1, 0}, 4, &hole), 2);
    ck_assert(hole);
    ck_assert_int_eq(ht_claim_boundary(HT_CLAIM_LARGEST, (const bool[]){0, 0}, 2, &hole), -1);
    ck_assert(!hole);
    ck_assert_int_eq(ht_claim_boundary(HT_CLAIM_SMALLEST, (const bool[]){0, 0, 1, 1}, 4, &hole), 2);
    ck_assert(!hole);
    ck_assert_int_eq(ht_claim_boundary(HT_CLAIM_SMALLEST, (const bool[]){0, 1, 0, 1}, 4, &hole), 1);
    ck_assert(hole);
    ck_assert_int_eq(ht_claim_boundary(HT_CLAIM_SMALLEST, (const bool[]){0, 0}, 2, &hole), -1);
}
END_TEST

static bool good(enum ht_claim_compare compare, double value, double relative, double absolute, double ours)
{
    struct ht_claim_tolerance t = {.relative = relative, .absolute = absolute};
    struct ht_claim c = {.compare = compare, .value = value, .tolerance = &t};
    double badness;
    return ht_claim_good(&c, ours, &badness);
}

START_TEST(verdict)
{
    /* 2 +- 15%: 1.7 to 2.3, the ends included */
    ck_assert(good(HT_CLAIM_ABOUT, 2, 0.15, -1, 1.7) && good(HT_CLAIM_ABOUT, 2, 0.15, -1, 2.3));
    ck_assert(!good(HT_CLAIM_ABOUT, 2, 0.15, -1, 1.69) && !good(HT_CLAIM_ABOUT, 2, 0.15, -1, 2.31));
    ck_assert(good(HT_CLAIM_ABOUT, 13, -1, 1, 12) && !good(HT_CLAIM_ABOUT, 13, -1, 1, 11));
    ck_assert(good(HT_CLAIM_ABOUT, 0, -1, 0, 0) && !good(HT_CLAIM_ABOUT, 0, -1, 0, 1e-300));
    ck_assert(good(HT_CLAIM_AT_LEAST, 1, 0.01, -1, 0.99) && !good(HT_CLAIM_AT_LEAST, 1, 0.01, -1, 0.98));
    ck_assert(good(HT_CLAIM_AT_MOST, 1, -1, 0, 1) && !good(HT_CLAIM_AT_MOST, 1, -1, 0, 1.001));
    ck_assert(!good(HT_CLAIM_ABOVE, 1, -1, 0, 1) && good(HT_CLAIM_ABOVE, 1, -1, 0, 1.001));
    ck_assert(!good(HT_CLAIM_BELOW, 1, -1, 0, 1) && good(HT_CLAIM_BELOW, 1, -1, 0, 0.999));
    for (int compare = HT_CLAIM_ABOUT; compare <= HT_CLAIM_BELOW; compare++)
        ck_assert(!good((enum ht_claim_compare)compare, 1, 1, -1, NAN));
}
END_TEST

static const char top[] = "paper: P\n"                                                        /* 1 */
                          "tolerances: {ratio: {relative: 0.15, why: x}}\n"                   /* 2 */
                          "systems: {A: [in_memory], B: [zero_offload, zero_offload_ckpt]}\n" /* 3 */
                          "setups:\n"                                                         /* 4 */
                          "  s: {models: [gpt2-124m, autohete-2b], cluster: autohete-1gpu}\n" /* 5 */
                          "claims:\n"                                                         /* 6 */
                          "  c: {where: w, statement: t, %s}\n";                              /* 7 */
#define RATIO "setup: s, systems: [A], versus: B, metric: throughput, kind: average, value: 1.3, tolerance: ratio"
#define FITS  "setup: s, systems: [A], metric: fits, kind: largest, value: gpt2-124m, tolerance: ratio"

static enum ht_status load(const char *text, struct ht_error *err, struct ht_ledger *ledger)
{
    struct ht_doc *doc;
    enum ht_status status = ht_doc_parse(text, strlen(text), "l.yaml", err, &doc);
    return status == HT_OK ? ht_ledger_load(doc, err, ledger) : status;
}

static void refused(const char *text, const char *expected)
{
    struct ht_error err = {0};
    struct ht_ledger ledger;
    ck_assert_int_eq(load(text, &err, &ledger), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, expected), "'%s' does not hold '%s'", err.text, expected);
    ck_assert_ptr_null(strchr(err.text, '\n'));
    ck_assert_ptr_null(ledger.claims);
}

static void refused_row(const char *row, const char *expected)
{
    char text[2048];
    snprintf(text, sizeof(text), top, row);
    refused(text, expected);
}

START_TEST(ledger)
{
    char text[2048];
    struct ht_error err = {0};
    struct ht_ledger l;
    snprintf(text, sizeof(text), top, FITS);
    ck_assert_msg(load(text, &err, &l) == HT_OK, "%s", err.text);
    ck_assert_int_eq(l.n_claims, 1);
    ck_assert_double_eq(l.claims[0].value, 0); /* the first of the list */
    ck_assert_int_eq(l.claims[0].setup->n[HT_CLAIM_MODELS], 2);
    ck_assert_int_eq(l.claims[0].setup->n[HT_CLAIM_BATCHES], 1);
    ht_ledger_free(&l);
    snprintf(text, sizeof(text), top, "unchecked: not yet");
    ck_assert_msg(load(text, &err, &l) == HT_OK, "%s", err.text);
    ht_ledger_free(&l);

    refused_row(RATIO ", tolerances: ratio", "l.yaml:7:");
    refused_row("setup: s", "lacks the key 'systems'");
    refused_row("unchecked: why, setup: s", "l.yaml:7:47: key 'setup': has no place");
    refused_row("setup: t, systems: [A], metric: throughput, kind: max, value: 1, tolerance: ratio", "names no setup");
    refused_row("setup: s, systems: [C], metric: throughput, kind: max, value: 1, tolerance: ratio", "names no system");
    refused_row("setup: s, systems: [A], metric: throughput, kind: max, value: 1, tolerance: ratoi",
                "expected 'ratio'");
    refused_row("setup: s, systems: [A], metric: thruput, kind: max, value: 1, tolerance: ratio", "key 'metric'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: top, value: 1, tolerance: ratio", "key 'kind'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: max, value: x, tolerance: ratio", "key 'value'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: largest, value: 1, tolerance: ratio", "'fits'");
    refused_row("setup: s, systems: [A], metric: fits, kind: largest, value: gpt-tiny, tolerance: ratio",
                "is not among the models");
    refused_row("setup: s, systems: [A], metric: plan, kind: max, value: 1, tolerance: ratio", "variable");
    refused_row("setup: s, systems: [A], metric: throughput, kind: difference, over: batches, value: 1, "
                "tolerance: ratio",
                "needs a list of two");
    refused("paper: P\n", "l.yaml:");
    refused("[]", "l.yaml:");
    refused("paper: P\ntolerances: {a: {why: x}}\nsystems: {}\nsetups: {}\nclaims: {}\n", "l.yaml:2:14: key 'a'");
    refused("paper: P\ntolerances: {}\nsystems: {}\nsetups: {s: {models: [gpt-tiy], cluster: local}}\nclaims: {}\n",
            "l.yaml:4:23: key 'models[0]'");
    refused("paper: P\ntolerances: {}\nsystems: {}\nsetups: {s: {models: [gpt-tiny], cluster: nowhere}}\nclaims: {}\n",
            "key 'cluster'");
    refused("paper: P\ntolerances: {}\nsystems: {}\n"
            "setups: {s: {models: [autohete-2b], cluster: autohete-1gpu, memory: [1 TB]}}\nclaims: {}\n",
            "key 'cluster'");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claims");
    TCase *cases = tcase_create("all");
    tcase_add_test(cases, reduce);
    tcase_add_test(cases, boundary);
    tcase_add_test(cases, verdict);
    tcase_add_test(cases, ledger);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
