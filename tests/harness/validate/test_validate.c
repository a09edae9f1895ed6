/* Sets of measurements and predictions: errors by hand, lists, rows left out, and every kind of damage in one line. */
#include "harness/validate/validate.h"

#include "harness/validate/csv.h"
#include "tests/support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static const char *at(const char *name, char buf[128])
{
    snprintf(buf, 128, "%s/%s", folder, name);
    return buf;
}

static void put(const char *name, const char *text)
{
    char path[128];
    FILE *f = fopen(at(name, path), "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/validate-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void end(void)
{
    static const char *const names[] = {"measured.csv", "predicted.csv", "sets.yaml"};
    char path[128];
    for (int i = 0; i < 3; i++) unlink(at(names[i], path));
    rmdir(folder);
}

#define HEAD                                                                                                           \
    "one:\n  title: one\n  source: nobody\n  measured: measured.csv\n  predicted: predicted.csv\n  script: none\n"     \
    "  key: [id, n]\n"
#define SETS                                                                                                           \
    HEAD "  rename: {b0: b}\n  where: [\"of=us\"]\n  compare: {time: ours}\n  memory: {peak: bytes}\n"                 \
         "  left_out: {time: without}\n  machine: gpu\n  fitted: [\"n=1\"]\n  all_ran: true\n"
#define PREDICTED                                                                                                      \
    "id,n,gpu,of,ours,without,bytes,status,lanes\n"                                                                    \
    "a,1,l4,us,110,120,10;30,ok,compute=0.7;reduce=0.3\n"                                                              \
    "a,1,l4,them,1,1,1;1,ok,compute=1\n"                                                                               \
    "b,2,a100,us,150,150,\"5;\",ok,send=0.6;compute=0.4\n"                                                             \
    "c,3,a100,us,,,,oom,\n"                                                                                            \
    "d,3,a100,us,,,,not_built,\n"
#define MEASURED "id,n,time,peak\na,1,100,20;20\nb0,2,200,;10\nc,3,7,9\n"

static enum ht_status validate(struct ht_error *err, struct ht_validation *v)
{
    char path[128];
    return ht_validate(folder, at("sets.yaml", path), err, v);
}

static bool any(const struct ht_residual *r, const void *ctx)
{
    const enum ht_residual_part *part = ctx;
    return r->part == *part && !r->memory;
}

/* Row a was fitted: 110 for 100; without it 120. Row b was not: 150 for 200. Memory of a: 10 and 30 for 20; of b the first stage was not
   measured, and the second is not predicted. c is predicted OOM, but ran; d is not built, so nothing is judged of it. */
START_TEST(by_hand)
{
    struct ht_validation v;
    struct ht_error err = {0};
    enum ht_residual_part fitted = HT_PART_FITTED, left_out = HT_PART_LEFT_OUT;
    put("sets.yaml", SETS);
    put("measured.csv", MEASURED);
    put("predicted.csv", PREDICTED);
    ck_assert_msg(!validate(&err, &v), "%s", err.text);
    const struct ht_validation_set *s = &v.sets[0];
    ck_assert(v.n_sets == 1 && s->n_predicted == 4 && s->n_ok == 2 && s->n_oom == 1 && s->n_other == 1);
    ck_assert(s->n_open == 3 && s->n_met == 2 && s->n_ran == 3 && s->n_right == 2);
    ck_assert_uint_eq(v.n_residuals, 5);
    struct ht_errors f = ht_errors_of(&v, any, &fitted), l = ht_errors_of(&v, any, &left_out);
    ck_assert(f.n == 1 && fabs(f.mean - 0.1) < 1e-12 && fabs(f.worst - 0.1) < 1e-12);
    ck_assert(l.n == 2 && fabs(l.mean - (0.2 + 0.25) / 2) < 1e-12 && fabs(l.worst - 0.25) < 1e-12);
    ck_assert(fabs(l.bias - (0.2 - 0.25) / 2) < 1e-12);
    ck_assert_str_eq(v.residuals[1].quantity, "peak 0");
    ck_assert(v.residuals[1].memory && fabs(ht_residual_error(&v.residuals[1]) + 0.5) < 1e-12);
    ck_assert_str_eq(v.residuals[4].binds, "send");
    ck_assert_str_eq(v.residuals[4].row, "b 2");
    ck_assert_str_eq(v.residuals[4].machine, "a100");
    ht_validation_free(&v);
}
END_TEST

static const struct damage {
    const char *sets, *measured, *predicted, *says;
} damages[] = {
    {SETS, "", PREDICTED, "measured.csv: is empty; expected a header"},
    {SETS, "id,n,time,peak\na,1,100\n", PREDICTED, "measured.csv:2: has 3 cells; expected 4, as the header"},
    {SETS, "id,n,time,time\n", PREDICTED, "measured.csv:1: column 'time' is there twice"},
    {SETS, "id,n,time,peak\na,1,\"100,2\n", PREDICTED, "measured.csv:2: a quote does not end its cell"},
    {SETS, "id,n,time,peak\na,1,1x,2;2\n", PREDICTED,
     "measured.csv:2: column 'time': '1x'; expected a positive number"},
    {SETS, "id,n,time,peak\na,1,-1,2;2\n", PREDICTED,
     "measured.csv:2: column 'time': '-1'; expected a positive number"},
    {SETS, "id,n,time,peak\na,1,nan,2;2\n", PREDICTED,
     "measured.csv:2: column 'time': 'nan'; expected a positive number"},
    {SETS, "id,n,time,peak\na,1,1,2\n", PREDICTED, "column 'bytes' has not as many entries as"},
    {SETS, "id,n,time,peak\nz,1,1,2\n", PREDICTED, "measured.csv:2: 'z 1' is no row of"},
    {SETS, "id,m,time,peak\na,1,1,2\n", PREDICTED, "measured.csv:1: lacks column 'n'; it has: id, m, time, peak"},
    {SETS, MEASURED, "id,n,gpu,of,ours,without,bytes\n", "predicted.csv:1: lacks column 'status'"},
    {HEAD "  compare: {time: ours}\n  fitted: []\n", MEASURED, PREDICTED, "expected either machine or on"},
    {HEAD "  compare: {time: ours}\n  fitted: [n]\n  machine: gpu\n", MEASURED, PREDICTED,
     "'n'; expected column=value, or *"},
    {"- one\n", MEASURED, PREDICTED, "sets.yaml:1:1"},
};

START_TEST(damaged)
{
    const struct damage *d = &damages[_i];
    struct ht_validation v;
    struct ht_error err = {0};
    put("sets.yaml", d->sets);
    put("measured.csv", d->measured);
    put("predicted.csv", d->predicted);
    ck_assert_int_eq(validate(&err, &v), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, d->says), "'%s' lacks '%s'", err.text, d->says);
    ht_validation_free(&v);
}
END_TEST

START_TEST(missing)
{
    struct ht_validation v;
    struct ht_error err = {0};
    put("sets.yaml", SETS);
    ck_assert_int_eq(validate(&err, &v), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "measured.csv: No such file"), "%s", err.text);
    ht_validation_free(&v);
}
END_TEST

/* Quotes, doubled quotes, commas in them, CR before LF, and a last line without an end. */
START_TEST(cells)
{
    struct ht_csv csv;
    struct ht_error err = {0};
    char path[128];
    put("measured.csv", "a,b\r\n\"1,2\",\"say \"\"x\"\"\"\r\n,end");
    ck_assert_msg(!ht_csv_open(at("measured.csv", path), &err, &csv), "%s", err.text);
    ck_assert(csv.n_columns == 2 && csv.n_rows == 2);
    ck_assert_str_eq(ht_csv_cell(&csv, 0, 0), "1,2");
    ck_assert_str_eq(ht_csv_cell(&csv, 0, 1), "say \"x\"");
    ck_assert_str_eq(ht_csv_cell(&csv, 1, 0), "");
    ck_assert_str_eq(ht_csv_cell(&csv, 1, 1), "end");
    ck_assert_uint_eq(ht_csv_find(&csv, "b"), 1);
    ck_assert_uint_eq(ht_csv_find(&csv, "c"), 2);
    ht_csv_free(&csv);
}
END_TEST

/* The files of the tree: every open row of every set has a prediction that can be compared, or a status that says why not. */
START_TEST(of_the_tree)
{
    struct ht_validation v;
    struct ht_error err = {0};
    ck_assert_msg(!ht_validate(HT_SOURCE_DIR, NULL, &err, &v), "%s", err.text);
    ck_assert_uint_ge(v.n_sets, 4);
    for (size_t i = 0; i < v.n_sets; i++) {
        const struct ht_validation_set *s = &v.sets[i];
        ck_assert_msg(s->n_met > 0 && s->n_right <= s->n_ran && s->n_ok + s->n_oom + s->n_other == s->n_predicted, "%s",
                      s->name);
    }
    ht_validation_free(&v);
}
END_TEST

static void add(TCase *t)
{
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, by_hand);
    tcase_add_loop_test(t, damaged, 0, (int)(sizeof damages / sizeof *damages));
    tcase_add_test(t, missing);
    tcase_add_test(t, cells);
    tcase_add_test(t, of_the_tree);
}

int main(void)
{
    return run_suite("validate", add);
}
