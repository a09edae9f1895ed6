/* Claims: the arithmetic of rows by hand, and ledgers that are wrong in one place. */
#include "common/base/array.h"
#include "harness/claims/check.h"

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
    /* 0.1 and 3 of -1, 0, 0.1, 3; what does not run does not count */
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_POSITIVE, (const double[]){-1, 0.1, N, 0, 3}, 5), 0.5);
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_POSITIVE, (const double[]){N}, 1)));
    /* -0.5 and -0.5 of 2.0, 1.5, 1.0; 4, 2 and 0.5 of 1, 5, 7, 7.5: it levels off by 3.5 */
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_INCREMENT, v, 4), -0.5);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_INCREMENT, (const double[]){1, 5, 7, 7.5}, 4), 0.5);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_BEND, (const double[]){1, 5, 7, 7.5}, 4), -3.5);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_BEND, v, 4), 0);
    ck_assert_double_eq(ht_claim_reduce(HT_CLAIM_INCREMENT, (const double[]){1.0 / 3, 1.0 / 3 - 1e-16}, 2), 0);
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_INCREMENT, (const double[]){N, 7}, 2)));
    ck_assert(isnan(ht_claim_reduce(HT_CLAIM_BEND, (const double[]){N, 7, 8}, 3)));
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
    refused_row("setup: s", "key 'systems' is missing");
    refused_row("unchecked: why, setup: s", "l.yaml:7:47: key 'setup': not allowed");
    refused_row("setup: t, systems: [A], metric: throughput, kind: max, value: 1, tolerance: ratio",
                "unknown setup 't'");
    refused_row("setup: s, systems: [C], metric: throughput, kind: max, value: 1, tolerance: ratio",
                "unknown system 'C'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: max, value: 1, tolerance: ratoi",
                "expected 'ratio'");
    refused_row("setup: s, systems: [A], metric: thruput, kind: max, value: 1, tolerance: ratio", "key 'metric'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: top, value: 1, tolerance: ratio", "key 'kind'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: max, value: x, tolerance: ratio", "key 'value'");
    refused_row("setup: s, systems: [A], metric: throughput, kind: largest, value: 1, tolerance: ratio", "'fits'");
    refused_row("setup: s, systems: [A], metric: fits, kind: largest, value: gpt-tiny, tolerance: ratio",
                "is not among the models");
    refused_row("setup: s, systems: [A], metric: plan, kind: max, value: 1, tolerance: ratio", "variable");
    static const char *const variables[] = {"m[",    "m[]", "m[x]",    "m[1",           "m[1]x",
                                            "m[-1]", "[1]", "m[1][2]", "m[9999999999]", "a_name_of_twenty_four_ch"};
    for (size_t i = 0; i < HT_COUNT(variables); i++) {
        char row[256], says[128];
        snprintf(row, sizeof(row),
                 "setup: s, systems: [A], metric: plan, variable: '%s', kind: max, value: 1, tolerance: ratio",
                 variables[i]);
        snprintf(says, sizeof(says), "key 'variable': invalid plan variable '%s'", variables[i]);
        refused_row(row, says);
    }
    refused_row("unchecked: why, variable: o", "not allowed");
    refused_row("setup: s, systems: [A], metric: throughput, kind: difference, over: batches, value: 1, "
                "tolerance: ratio",
                "expected two");
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

/* Gives a row that names `variable` the value of a plan's variable. Returns the status. */
static enum ht_status observe(const struct ht_plan *plan, const char *variable, struct ht_error *err, double *out)
{
    char text[2048], row[256];
    struct ht_ledger l;
    struct ht_observation o = {.sight = HT_SEEN, .plan = *plan};
    snprintf(row, sizeof(row),
             "setup: s, systems: [A], metric: plan, variable: '%s', kind: max, value: 1, tolerance: ratio", variable);
    snprintf(text, sizeof(text), top, row);
    ck_assert_msg(load(text, err, &l) == HT_OK, "%s", err->text);
    enum ht_status status = ht_observed(&o, &l.claims[0], err, out);
    ht_ledger_free(&l);
    return status;
}

/* m = 4, 2, 1 and share = 0, 0.3, 0.7 by rank; c = 5. */
START_TEST(elements)
{
    int64_t m[] = {4, 2, 1}, share[] = {0, 300000000, 700000000};
    struct ht_plan plan = {0};
    ht_plan_set(&plan, "c", 5);
    ht_plan_set_vector(&plan, &(struct ht_variable){"m", .kind = HT_VARIABLE_BY_RANK, .n = 3, .values = m});
    ht_plan_set_vector(
        &plan, &(struct ht_variable){"share", .kind = HT_VARIABLE_BY_RANK, .decimal = true, .n = 3, .values = share});
    static const struct {
        const char *variable;
        double value;
    } good[] = {{"c", 5}, {"m[0]", 4}, {"m[2]", 1}, {"share[1]", 0.3}, {"m[0]*c/m[2]/share[1]", 4 * 5 / 0.3}};
    for (size_t i = 0; i < HT_COUNT(good); i++) {
        struct ht_error err = {0};
        double value = 0;
        ck_assert_msg(observe(&plan, good[i].variable, &err, &value) == HT_OK, "%s", err.text);
        ck_assert_double_eq(value, good[i].value);
    }
    static const struct {
        const char *variable, *says;
    } bad[] = {{"m[3]", "key 'variable': element 3 of m is out of range; the plan has 3 elements, counted from 0"},
               {"m", "key 'variable': names a vector of 3 elements; expected one of them, such as 'm[0]'"},
               {"c[0]", "key 'variable': names an element of c, which is one number; expected 'c'"}};
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        double value = 0;
        ck_assert_int_eq(observe(&plan, bad[i].variable, &err, &value), HT_BAD_INPUT);
        ck_assert_msg(!strncmp(err.text, "l.yaml:7:", 9) && strstr(err.text, bad[i].says), "%s", err.text);
    }
    struct ht_error err = {0};
    double value = 0;
    ck_assert_int_eq(observe(&plan, "nothing[1]", &err, &value), HT_OK); /* another system may have it */
    ck_assert(isnan(value));
    ht_plan_free(&plan);
}
END_TEST

/* ---- scenarios ------------------------------------------------------------------------------------------------- */

static const char wide[] =
    "paper: P\n"                                                                                               /* 1 */
    "tolerances: {exact: {absolute: 0, why: x}}\n"                                                             /* 2 */
    "systems: {A: [mobius], B: [sysx log=0], C: [megatron]}\n"                                                 /* 3 */
    "setups:\n"                                                                                                /* 4 */
    "  s:\n"                                                                                                   /* 5 */
    "    models: [{name: sysx-10b, cluster: sysx-1node}, {name: sysx-30b, cluster: sysx-2node}]\n"             /* 6 */
    "    batches_per_node: [16, 32]\n"                                                                         /* 7 */
    "    seq: [1024, 2048]\n"                                                                                  /* 8 */
    "    micro_batch: 2\n"                                                                                     /* 9 */
    "    accumulate: 16\n"                                                                                     /* 10 */
    "claims:\n"                                                                                                /* 11 */
    "  c: {where: w, statement: t, setup: s, systems: [A, B], metric: gpu_time, value: 1, tolerance: exact,\n" /* 12 */
    "    %s}\n";                                                                                               /* 13 */

static void load_wide(const char *row, struct ht_ledger *l)
{
    char text[2048];
    struct ht_error err = {0};
    snprintf(text, sizeof(text), wide, row);
    ck_assert_msg(load(text, &err, l) == HT_OK, "%s", err.text);
}

static void refused_wide(const char *row, const char *expected)
{
    char text[2048];
    snprintf(text, sizeof(text), wide, row);
    refused(text, expected);
}

/* A model on its own cluster, so many sequences a node, two steps over other lists, a row's own choice of entries. */
START_TEST(scenarios)
{
    struct ht_ledger l;
    int at[HT_N_CLAIM_AXES] = {0};
    load_wide("kind: average, over: [models, seq], then: {kind: spread, over: systems}, at: {batches: 32}", &l);
    const struct ht_claim *c = &l.claims[0];
    const struct ht_claim_setup *s = c->setup;
    ck_assert_int_eq(s->n[HT_CLAIM_MODELS], 2);
    ck_assert_str_eq(s->clusters[1], "sysx-2node");
    ck_assert_int_eq(s->n_nodes[1], 2);
    ck_assert_str_eq(s->accumulate, "16");
    ck_assert_int_eq(s->n[HT_CLAIM_SEQS], 2);
    ck_assert_int_eq(s->values[HT_CLAIM_MICRO_BATCHES][0], 2);
    ck_assert_int_eq(c->n_steps, 2);
    ck_assert_uint_eq(c->steps[0].over, 1u << HT_CLAIM_MODELS | 1u << HT_CLAIM_SEQS);
    ck_assert_uint_eq(c->steps[1].over, 1u << HT_CLAIM_BY_SYSTEM);
    ck_assert_int_eq(c->entries.n[HT_CLAIM_BATCHES], 1);
    ck_assert_int_eq(c->entries.at[HT_CLAIM_BATCHES][0], 1);
    /* 32 sequences a node of two nodes */
    struct ht_claim_point p = {{0}};
    p.at[HT_CLAIM_MODELS] = 1;
    p.at[HT_CLAIM_BATCHES] = 1;
    ck_assert_int_eq(ht_claim_batch(s, p), 64);
    int n = 1;
    while (ht_claim_next(&c->entries, (1u << HT_N_CLAIM_AXES) - 1, at)) n++;
    ck_assert_int_eq(n, 2 * 2 * 2); /* models, lengths, systems; one batch */
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) ck_assert_int_eq(at[axis], 0);
    ht_ledger_free(&l);
    load_wide("kind: value, at: {models: [sysx-30b], seq: [2048]}", &l);
    ck_assert_int_eq(l.claims[0].entries.n[HT_CLAIM_MODELS], 1);
    ck_assert_int_eq(l.claims[0].entries.at[HT_CLAIM_MODELS][0], 1);
    ht_ledger_free(&l);

    refused_wide("kind: average, over: nodes", "l.yaml:13:");
    refused_wide("kind: average, over: [models, models]", "repeated list");
    refused_wide("kind: average, over: []", "empty list");
    refused_wide("kind: steps, over: [models, seq]", "several lists in 'over'");
    refused_wide("kind: average, then: {kind: max, over: models}", "list of the first step");
    refused_wide("kind: average, then: {kind: max}", "over");
    refused_wide("kind: average, then: {kind: largest, over: seq}", "key 'then': not allowed");
    refused_wide("kind: average, then: {kind: difference, over: micro_batch}", "expected two");
    refused_wide("kind: average, at: {seq: 512}", "l.yaml:13:30: key 'seq': '512' is not among the seq of setup 's'");
    refused_wide("kind: average, at: {settings: x}", "unknown list");
    refused_wide("kind: average, at: {models: []}", "has 0 entries");
    refused_wide("kind: average, fails_in: device", "not allowed with this metric");
    refused_wide("kind: value", "key 'kind': made of 2 values");
    refused_wide("kind: average, then: {kind: value, over: seq}", "key 'kind': made of 2 values");
}
END_TEST

static void refused_setup(const char *setup, const char *expected)
{
    char text[1024];
    snprintf(text, sizeof(text), "paper: P\ntolerances: {}\nsystems: {}\nsetups:\n  s: {%s}\nclaims: {}\n", setup);
    refused(text, expected);
}

/* A row may divide by what another system reaches at other entries of the first step's lists. */
START_TEST(versus_at)
{
    struct ht_ledger l;
    load_wide(
        "kind: max, over: [models, seq], at: {models: sysx-10b}, versus_reduced: C, versus_at: {models: [sysx-30b]}",
        &l);
    const struct ht_claim *c = &l.claims[0];
    ck_assert_int_eq(c->entries.n[HT_CLAIM_MODELS], 1);
    ck_assert_int_eq(c->entries.at[HT_CLAIM_MODELS][0], 0);
    ck_assert_int_eq(c->versus_entries.n[HT_CLAIM_MODELS], 1);
    ck_assert_int_eq(c->versus_entries.at[HT_CLAIM_MODELS][0], 1);
    ck_assert_int_eq(c->versus_entries.n[HT_CLAIM_SEQS], 2); /* as the row */
    ht_ledger_free(&l);
    refused_wide("kind: max, versus_at: {models: [sysx-30b]}", "key 'versus_at': needs 'versus_reduced'");
    refused_wide("kind: max, versus: C, versus_at: {models: [sysx-30b]}", "key 'versus_at': needs 'versus_reduced'");
    refused_wide("kind: max, versus_reduced: C, versus_at: {seq: 512}",
                 "key 'seq': not a list of the first step's 'over'");
    refused_wide("kind: max, versus_reduced: C, versus_at: {models: gpt-tiny}", "'gpt-tiny' is not among the models");
    refused_wide("kind: value, at: {models: sysx-10b}, versus_reduced: C, versus_at: {models: [sysx-10b, sysx-30b]}",
                 "key 'kind': made of 2 values");
}
END_TEST

START_TEST(setups)
{
    refused_setup("models: [gpt-tiny], cluster: local, search: depth", "key 'search'");
    refused_setup("models: [gpt-tiny], cluster: local, search: batch, batches: [1]",
                  "key 'batches': not allowed beside 'search: batch'");
    refused_setup("models: [gpt-tiny], cluster: local, search: batch, batches_per_node: [1]",
                  "key 'batches_per_node': not allowed beside 'search: batch'");
    refused_setup("models: [gpt-tiny], cluster: local, search: seq, seq: 64",
                  "key 'seq': not allowed beside 'search: seq'");
    refused_setup("models: [gpt-tiny], cluster: local, search: model, train_steps: 2",
                  "key 'train_steps': not allowed beside 'search: model'");
    refused_setup(
        "unit_times: {devices: 2, blocks: 4, forward: 1, backward: 1, fetch: 0, offload: 0, step: 0, read: x}",
        "key 'read'");
    refused_setup(
        "unit_times: {devices: 2, blocks: 4, forward: 1, backward: 1, fetch: 0, offload: 0, step: 0}, search: batch",
        "key 'search': not allowed beside 'unit_times'");
    refused_setup("cluster: local", "key 'models' is missing");
    refused_setup("models: [gpt-tiny]", "key 'models[0]': has no cluster");
    refused_setup("models: [gpt-tiny], cluster: local, settings: [{C: '-3,4'}]",
                  "not a number or a short set of blocks");
    refused_setup("models: [gpt-tiny], cluster: local, settings: [{C: '1-x'}]",
                  "not a number or a short set of blocks");
    refused_setup("models: [gpt-tiny], cluster: local, settings: [{c: -1}]", "'-1' is negative");
    refused_setup("models: [gpt-tiny], cluster: local, settings: [{C: '1-2,11-12,21-22'}]", "a short set of blocks");
    refused_setup("models: [{name: gpt-tiny}]", "cluster");
    char long_name[400];
    snprintf(long_name, sizeof(long_name), "models: [./%0300d.yaml], cluster: local", 0);
    refused_setup(long_name, "key 'models[0]': is too long");
    refused_setup("models: [{name: gpt-tiny, cluster: nowhere}]", "l.yaml:5:42: key 'cluster': unknown cluster");
    refused_setup("models: [{name: gpt-tiny, cluster: sysx-1node}], train_steps: 2", "cluster for simulation only");
    refused_setup("models: [gpt-tiny], cluster: local, batches: [1], batches_per_node: [1]", "beside 'batches'");
    refused_setup("models: [gpt-tiny], cluster: local, seq: [64, 1000000]", "key 'models[0]': sequence length");
    refused_setup("models: [gpt-tiny], cluster: local, seq: long", "key 'seq'");
    refused_setup("models: [gpt-tiny], cluster: local, micro_batch: [0]", "key 'micro_batch[0]'");
    refused_setup("models: [gpt-tiny], cluster: local, numerics: fp8", "key 'numerics'");
    refused_setup("models: [gpt-tiny], cluster: local, accumulate: 32", "key 'accumulate'");
    refused_setup("models: [gpt-tiny], cluster: local, numerics: fp32, accumulate: 16",
                  "key 'accumulate': needs 16-bit");
    refused_setup("models: [gpt-tiny], recovery: autohet-z",
                  "l.yaml:5:37: key 'recovery': unknown recovery 'autohet-z'");
    refused_setup("models: [gpt-tiny], recovery: autohet-a, cluster: local",
                  "key 'cluster': not allowed beside 'recovery'");
    refused_setup("models: [gpt-tiny], recovery: autohet-a, seq: 8", "key 'seq': not allowed beside 'recovery'");
    refused_setup("models: [{name: gpt-tiny, cluster: local}], recovery: autohet-a",
                  "key 'cluster': not allowed beside 'recovery'");
    refused_setup("recovery: autohet-a", "key 'models' is missing");
    refused_setup("unit_times: {devices: 2}", "blocks");
    refused_setup("unit_times: {devices: 2, blocks: 4, forward: -1, backward: 1, fetch: 0, offload: 0, step: 0}",
                  "key 'forward'");
    refused_setup("unit_times: {devices: 2, blocks: 4, forward: 1, backward: 1, fetch: 0, offload: 0, step: 0}, "
                  "cluster: local",
                  "key 'cluster': not allowed beside 'unit_times'");
}
END_TEST

/* Rows end to end, in units of time, by hand: SysX, Fig. 5. The ordinary pipeline takes 9 T_f, of which a GPU computes
   2 x (1 + 2) = 6: a third is lost. Decoupled passes take 8, fine backward stages 7; 9 / 7 between systems. Both send
   two checkpoints a micro-batch. Without transfers and steps an iteration is all GPU time. */
START_TEST(units_of_time)
{
    static const char text[] = "paper: P\n"
                               "tolerances: {exact: {absolute: 1.0e-9, why: x}}\n"
                               "systems: {plain: [mobius v=1], decoupled: [sysx v=1 d=1], fine: [sysx v=1 d=2]}\n"
                               "setups:\n"
                               "  five: {unit_times: {devices: 2, blocks: 4, forward: 0.5, backward: 1, fetch: 0, "
                               "offload: 0, step: 0}, batches: [2],\n"
                               "    micro_batch: 1}\n"
                               "claims:\n"
                               "  a: {where: w, statement: t, setup: five, systems: [plain], metric: iteration_time, "
                               "kind: value, value: 9, tolerance: exact}\n"
                               "  b: {where: w, statement: t, setup: five, systems: [decoupled], metric: "
                               "iteration_time, kind: value, value: 8, tolerance: exact}\n"
                               "  c: {where: w, statement: t, setup: five, systems: [fine], metric: iteration_time, "
                               "kind: value, value: 7, tolerance: exact}\n"
                               "  d: {where: w, statement: t, setup: five, systems: [plain], metric: bubble_ratio, "
                               "kind: value, value: 0.333333333, tolerance: exact}\n"
                               "  e: {where: w, statement: t, setup: five, systems: [plain, decoupled, fine], metric: "
                               "iteration_time, kind: spread,\n"
                               "    over: systems, value: 1.285714286, tolerance: exact}\n"
                               "  f: {where: w, statement: t, setup: five, systems: [fine], metric: gpu_share, kind: "
                               "value, value: 1, tolerance: exact}\n"
                               "  g: {where: w, statement: t, setup: five, systems: [fine], versus: decoupled, metric: "
                               "remote_checkpoints, kind: value,\n"
                               "    value: 1, tolerance: exact}\n"
                               "  h: {where: w, statement: t, setup: five, systems: [plain], metric: fits, kind: "
                               "value, value: 1, tolerance: exact}\n"
                               "  wrong: {where: w, statement: t, setup: five, systems: [plain, fine], metric: "
                               "turn_idle, kind: value, value: 0,\n"
                               "    tolerance: exact}\n";
    struct ht_ledger l;
    struct ht_error err = {0};
    struct ht_observations seen = {0};
    const struct ht_claim *claims[16];
    ck_assert_msg(load(text, &err, &l) == HT_OK, "%s", err.text);
    for (int64_t i = 0; i < l.n_claims; i++) claims[i] = &l.claims[i];
    ck_assert(ht_claims_gather(claims, (size_t)l.n_claims, &seen, &err) == HT_OK);
    ck_assert_uint_eq(seen.n, 3); /* each scenario once */
    for (int64_t i = 0; i < l.n_claims; i++) {
        struct ht_outcome o;
        ck_assert(ht_claim_check(claims[i], &seen, &err, &o) == HT_OK);
        bool right = strcmp(claims[i]->id, "wrong") != 0;
        ck_assert_msg(o.verdict == (right ? HT_CLAIM_WITHIN : HT_CLAIM_OUTSIDE), "%s: %s %s (%s)", claims[i]->id,
                      ht_claim_verdict_names[o.verdict], o.ours_text, o.why);
        ck_assert(!ht_outcome_has_figure(&o));
        /* GPU 0's forwards are done at 2, GPU 1's at 3; its first backward lasts until 5, and only then can b0 begin.
         */
        if (!right) ck_assert_double_eq(o.ours, 3);
        ht_outcome_free(&o);
    }
    ck_assert_uint_eq(seen.n, 3);
    ht_observations_free(&seen);
    ht_ledger_free(&l);
}
END_TEST

/* Lists of a node's memory and disks, and a ratio of what two systems reach over a list. */
START_TEST(nodes)
{
    static const char text[] =
        "paper: P\n"
        "tolerances: {one: {relative: 0.01, why: x}}\n"
        "systems: {A: [zero_offload_ckpt], B: [in_memory_ckpt]}\n"
        "setups:\n"
        "  s: {cluster: lohan-4090, models: [gpt2-124m, lohan-6b], batches: [1], iterations: 1,\n"
        "      host_memory: [64 GB, 256 GB], ssds: [2]}\n"
        "claims:\n"
        "  a: {where: w, statement: t, setup: s, systems: [A], metric: fits, kind: smallest, over: host_memory,\n"
        "      at: {models: lohan-6b}, value: 256 GB, fails_in: host, tolerance: one}\n"
        "  b: {where: w, statement: t, setup: s, systems: [A], versus_reduced: B, metric: parameters, kind: max,\n"
        "      at: {host_memory: 256 GB}, value: 47.0, tolerance: one}\n" /* 5.849e9 / 124.4e6: B has no room for 6B */
        /* the same, of 6B alone: B takes the small model */
        "  f: {where: w, statement: t, setup: s, systems: [A], versus_reduced: B, versus_at: {models: gpt2-124m},\n"
        "      metric: parameters, kind: max, at: {models: lohan-6b, host_memory: 256 GB}, value: 47.0, tolerance: "
        "one}\n"
        "  c: {where: w, statement: t, setup: s, systems: [A], metric: priced_throughput, kind: value, per: one,\n"
        "      at: {models: gpt2-124m, host_memory: 64 GB}, compare: above, value: 0, tolerance: one}\n"
        /* 12 inputs of 1024 x 768 FP16; 16 inputs and what the statistics and scores keep */
        "  d: {where: w, statement: t, setup: s, systems: [A], metric: boundaries, kind: value, value: 18874368,\n"
        "      at: {models: gpt2-124m, host_memory: 64 GB}, tolerance: one}\n"
        "  e: {where: w, statement: t, setup: s, systems: [A], metric: recomputed, kind: value, value: 0.5,\n"
        "      at: {models: gpt2-124m, host_memory: 64 GB}, compare: at-most, tolerance: one}\n";
    struct ht_ledger l;
    struct ht_error err = {0};
    struct ht_observations seen = {0};
    ck_assert_msg(load(text, &err, &l) == HT_OK, "%s", err.text);
    ck_assert_int_eq(l.setups[0].n[HT_CLAIM_HOST_MEMORY], 2);
    ck_assert_int_eq(l.setups[0].values[HT_CLAIM_HOST_MEMORY][1], 256000000000);
    ck_assert_int_eq(l.setups[0].values[HT_CLAIM_SSDS][0], 2);
    for (int64_t i = 0; i < l.n_claims; i++) {
        struct ht_outcome o;
        ck_assert(ht_claim_check(&l.claims[i], &seen, &err, &o) == HT_OK);
        ck_assert_msg(o.verdict == HT_CLAIM_WITHIN, "%s: %s %s (%s)", l.claims[i].id, ht_claim_verdict_names[o.verdict],
                      o.ours_text, o.why);
        if (!strcmp(l.claims[i].id, "f")) ck_assert_str_eq(o.values[1].where, "B gpt2-124m");
        ht_outcome_free(&o);
    }
    ht_observations_free(&seen);
    ht_ledger_free(&l);
    refused_setup("models: [gpt-tiny], cluster: autohete-1gpu, ssds: 2", "has no SSDs");
    refused_setup("models: [gpt-tiny], cluster: lohan-4090, ssds: [65]", "key 'ssds[0]': '65' is out of range");
    refused_setup("models: [gpt-tiny], cluster: lohan-4090, host_memory: [64]",
                  "key 'host_memory[0]': '64' has no unit");
    refused_wide("kind: average, versus: A, versus_reduced: B", "key 'versus_reduced': not allowed beside 'versus'");
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
    tcase_add_test(cases, elements);
    tcase_add_test(cases, scenarios);
    tcase_add_test(cases, setups);
    tcase_add_test(cases, units_of_time);
    tcase_add_test(cases, nodes);
    tcase_add_test(cases, versus_at);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
