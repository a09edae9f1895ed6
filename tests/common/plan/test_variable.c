/* Knobs of every kind: values that --set accepts, its refusals, and printed values that read back. */
#include "common/plan/system.h"

#include "common/base/array.h"
#include "tests/support/draw.h"
#include "tests/support/scenario.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct ht_knob knobs[] = {
    {"c", "a number", .max = -1},
    {"s", "a signed number", .min = -3, .max = INT64_MAX},
    {"r", "a decimal number", .min = -1, .max = 1, .decimal = true},
    {"m", "an integer a rank", .min = 1, .max = 64, .kind = HT_VARIABLE_BY_RANK},
    {"share", "a decimal a rank", .max = 1, .kind = HT_VARIABLE_BY_RANK, .decimal = true},
    {"a", "a list", .min = -1000, .max = INT64_MAX, .kind = HT_VARIABLE_LIST},
    {"w", "a list of decimals", .min = -9, .max = 1000000, .kind = HT_VARIABLE_LIST, .decimal = true},
    {"C", "a set of blocks", .kind = HT_VARIABLE_BLOCKS},
    {"place", "ranks", .kind = HT_VARIABLE_RANKS},
    {0},
};
static const struct ht_system all_kinds = {.name = "all_kinds", .knobs = knobs};

/* Twelve blocks on this many devices. */
static struct ht_scenario scenario_of(int64_t ranks)
{
    struct ht_scenario_request r = {
        .model = "gpt-tiny", .blocks = 12, .cluster = "local", .ranks = ranks, .batch = ranks};
    return scenario_from(&r);
}

/* Parses a value as --set does. */
static struct ht_variable set(const struct ht_scenario *sc, const char *text)
{
    struct ht_settings settings = {0};
    struct ht_error err = {0};
    ck_assert_msg(ht_settings_parse(&all_kinds, sc, text, &err, &settings) == HT_OK, "%s", err.text);
    ck_assert_int_eq(settings.n, 1);
    struct ht_variable v = ht_variable_copy(&settings.values[0]);
    ht_settings_free(&settings);
    return v;
}

static char *printed(const struct ht_variable *v)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    ht_variable_print(v, f);
    ck_assert_int_eq(fclose(f), 0);
    return text;
}

/* The elements, and how they are printed. */
static void gives(const struct ht_scenario *sc, const char *text, const char *shown, int32_t n, const int64_t *values)
{
    struct ht_variable v = set(sc, text);
    char *again = printed(&v);
    ck_assert_str_eq(again, shown);
    ck_assert_int_eq(v.n, n);
    for (int32_t i = 0; i < n; i++) ck_assert_int_eq(v.values[i], values[i]);
    free(again);
    ht_variable_free(&v);
}
#define GIVES(text, shown, ...)                                                                                        \
    gives(&sc, text, shown, (int32_t)HT_COUNT(((const int64_t[]){__VA_ARGS__})), (const int64_t[]){__VA_ARGS__})

START_TEST(numbers)
{
    struct ht_scenario sc = scenario_of(1);
    static const struct {
        const char *text, *shown;
        int64_t value;
    } good[] = {{"c=12", "12", 12},
                {"s=-3", "-3", -3},
                {"s=9223372036854775807", "9223372036854775807", INT64_MAX},
                {"s=-0", "0", 0},
                {"r=0.25", "0.25", 250000000},
                {"r=-0.000000001", "-0.000000001", -1},
                {"r=1", "1", HT_PPB},
                {"r=0.50", "0.5", 500000000}};
    for (size_t i = 0; i < HT_COUNT(good); i++) {
        struct ht_variable v = set(&sc, good[i].text);
        char *shown = printed(&v);
        ck_assert_int_eq(v.value, good[i].value);
        ck_assert_str_eq(shown, good[i].shown);
        free(shown);
    }
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(vectors)
{
    struct ht_scenario sc = scenario_of(4);
    GIVES("m=4,2,1,1", "4,2,1,1", 4, 2, 1, 1);
    GIVES("m=3", "3,3,3,3", 3, 3, 3, 3);
    GIVES("m=4 x 3, 1", "4,4,4,1", 4, 4, 4, 1);
    GIVES("share=0,0.3,0.7,0", "0,0.3,0.7,0", 0, 300000000, 700000000, 0); /* and the sum is exactly 1 */
    GIVES("a=7", "7", 7);
    GIVES("a=-5 , 0", "-5,0", -5, 0);
    GIVES("a=1,1,1,1,1,1,1,1", "1,1,1,1,1,1,1,1", 1, 1, 1, 1, 1, 1, 1, 1);
    GIVES("a=1,1,1,1,1,2,3,3,4", "1 x 5, 2, 3 x 2, 4", 1, 1, 1, 1, 1, 2, 3, 3, 4);
    GIVES("w=0.1,999999.999999999", "0.1,999999.999999999", 100000000, 999999999999999);
    GIVES("C=9,1-5", "1-5,9", 1, 2, 3, 4, 5, 9);
    GIVES("C=12", "12", 12);
    GIVES("C=3,4", "3-4", 3, 4);
    gives(&sc, "C=none", "none", 0, NULL);
    GIVES("place=2-3,0-1", "2-3,0-1", 2, 3, 0, 1);
    GIVES("place=3,2,1", "3,2,1", 3, 2, 1);
    GIVES("place=0,1,2", "0-2", 0, 1, 2);
    ht_scenario_free(&sc);
    sc = scenario_of(64);
    struct ht_variable v = set(&sc, "m=4 x 16, 2 x 48");
    char *shown = printed(&v);
    ck_assert_int_eq(v.n, 64);
    ck_assert(v.values[15] == 4 && v.values[16] == 2 && v.values[63] == 2);
    ck_assert_str_eq(shown, "4 x 16, 2 x 48");
    free(shown);
    ht_variable_free(&v);
    ht_scenario_free(&sc);
}
END_TEST

START_TEST(errors_name_the_element)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"m=4,x", "--set 'm=4,x': element 2 'x' is not an integer"},
        {"m=4,2,1", "--set 'm=4,2,1': m has 3 elements; expected 4, one a rank"},
        {"m=1,1,1,1,1", "--set 'm=1,1,1,1,1': m has 5 elements; expected 4, one a rank"},
        {"m=1,65,1,1", "--set 'm=1,65,1,1': element 2 of m is out of range; expected 1 to 64"},
        {"m=0", "--set 'm=0': element 1 of m is out of range; expected 1 to 64"},
        {"m=1,,1,1", "--set 'm=1,,1,1': element 2 is empty"},
        {"m=1,1,1,1,", "--set 'm=1,1,1,1,': element 5 is empty"},
        {"m=,1,1,1", "--set 'm=,1,1,1': element 1 is empty"},
        {"m=0x10,1,1,1", "--set 'm=0x10,1,1,1': element 1 '0x10' is not an integer"},
        {"m=1 x 0", "--set 'm=1 x 0': element 1 '1 x 0' is not VALUE x COUNT"},
        {"m=1 x y", "--set 'm=1 x y': element 1 '1 x y' is not VALUE x COUNT"},
        {"m=99 x 4", "--set 'm=99 x 4': element 1 of m is out of range; expected 1 to 64"},
        {"m=1.5,1,1,1", "--set 'm=1.5,1,1,1': element 1 '1.5' is not an integer"},
        {"m=+1,1,1,1", "--set 'm=+1,1,1,1': element 1 '+1' is not an integer"},
        {"m=1e2,1,1,1", "--set 'm=1e2,1,1,1': element 1 '1e2' is not an integer"},
        {"m=1;1;1;1", "--set 'm=1;1;1;1': element 1 '1;1;1;1' is not an integer"},
        {"a=9223372036854775808", "--set 'a=9223372036854775808': element 1 of a is out of range; expected -1000 to "
                                  "9223372036854775807"},
        {"a=1,-99999999999999999999", "element 2 of a is out of range"},
        {"a=1 x 65537", "--set 'a=1 x 65537': a has more than 65536 elements"},
        {"a=1 x 65536,1", "a has more than 65536 elements"},
        {"share=0,nan,0,1", "--set 'share=0,nan,0,1': element 2 'nan' is not a decimal number such as 0.25"},
        {"share=inf", "element 1 'inf' is not a decimal number"},
        {"share=0x1p-1", "element 1 '0x1p-1' is not a decimal number"},
        {"share=1e-1", "element 1 '1e-1' is not a decimal number"},
        {"share=0.,1,0,0", "element 1 '0.' is not a decimal number"},
        {"share=.5", "element 1 '.5' is not a decimal number"},
        {"share=0.5.5", "element 1 '0.5.5' is not a decimal number"},
        {"share=1.000000001", "element 1 of share is out of range; expected 0 to 1"},
        {"share=-0.1", "element 1 of share is out of range"},
        {"share=0.1234567890", "element 1 '0.1234567890' has more than 9 digits after the point"},
        {"share=99999999999", "element 1 of share is out of range; expected 0 to 1"},
        {"r=x", "--set 'r=x': 'x' is not a decimal number such as 0.25"},
        {"c=13", "--set 'c=13': c is out of range; expected 0 to 12"},
        {"c=1,2", "--set 'c=1,2': '1,2' is not an integer"},
        {"c= 1", "--set 'c= 1': ' 1' is not an integer"},
        {"C=5-1", "--set 'C=5-1': element 1 '5-1' runs backwards; expected 1-5"},
        {"C=1-5,3", "--set 'C=1-5,3': block 3 is named twice"},
        {"C=0-2", "--set 'C=0-2': element 1 of C is out of range; expected 1 to 12"},
        {"C=1,11-13", "--set 'C=1,11-13': element 2 of C is out of range; expected 1 to 12"},
        {"C=1-", "--set 'C=1-': element 1 '1-' is not a block or a range such as 1-5"},
        {"C=-1", "--set 'C=-1': element 1 '-1' is not a block or a range such as 1-5"},
        {"C=1--2", "--set 'C=1--2': element 1 of C is out of range"},
        {"C=1-2-3", "--set 'C=1-2-3': element 1 '2-3' is not an integer"},
        {"C=none,1", "--set 'C=none,1': element 1 'none' is not an integer"},
        {"C=1,", "--set 'C=1,': element 2 is empty"},
        {"place=0-4", "--set 'place=0-4': element 1 of place is out of range; expected 0 to 3"},
        {"place=3-2", "--set 'place=3-2': element 1 '3-2' runs backwards; expected 2-3"},
        {"place=0,2-", "--set 'place=0,2-': element 2 '2-' is not a device or a range such as 1-5"},
        {"m", "--set 'm' is not NAME=VALUE"},
        {"m=", "--set 'm=' is not NAME=VALUE"},
        {"sh=1", "--set 'sh=1': all_kinds has no variable 'sh'; it has: c, s, r, m, share, a, w, C, place"},
        {"shares=1", "has no variable 'shares'"},
    };
    struct ht_scenario sc = scenario_of(4);
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_settings settings = {0};
        struct ht_error err = {0};
        ck_assert_int_eq(ht_settings_parse(&all_kinds, &sc, bad[i].text, &err, &settings), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "'%s' does not hold '%s'", err.text, bad[i].says);
        ck_assert_int_eq(settings.n, 0);
    }
    struct ht_settings settings = {0};
    struct ht_error err = {0};
    ck_assert_int_eq(ht_settings_parse(&all_kinds, &sc, "m=1", &err, &settings), HT_OK);
    ck_assert_int_eq(ht_settings_parse(&all_kinds, &sc, "m=2", &err, &settings), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "--set 'm=2': m is set twice");
    ck_assert_int_eq(ht_setting_variable(&settings, "m")->values[3], 1);
    ck_assert_ptr_null(ht_setting_variable(&settings, "share"));
    ck_assert_ptr_null(ht_setting_variable(NULL, "m"));
    ht_settings_free(&settings);
    ht_scenario_free(&sc);
}
END_TEST

/* A plan's vectors are its own. */
START_TEST(plans_hold_copies)
{
    int64_t m[] = {4, 2};
    struct ht_plan plan = {0};
    ht_plan_set(&plan, "c", 3);
    ht_plan_set_vector(&plan, &(struct ht_variable){"m", .kind = HT_VARIABLE_BY_RANK, .n = 2, .values = m});
    ht_plan_set_vector(&plan, &(struct ht_variable){"r", .value = HT_PPB / 4, .decimal = true});
    m[1] = 9;
    ck_assert_int_eq(plan.n_variables, 3);
    ck_assert(ht_plan_variable(&plan, "r")->decimal && ht_plan_get(&plan, "r") == 250000000);
    ck_assert_int_eq(ht_plan_get(&plan, "c"), 3);
    ck_assert_int_eq(ht_plan_variable(&plan, "m")->values[1], 2);
    ck_assert_ptr_null(ht_plan_variable(&plan, "l"));
    ht_plan_free(&plan);
    ck_assert_int_eq(plan.n_variables, 0);
}
END_TEST

/* ---- random values --------------------------------------------------------------------------------------------- */

static int64_t random_number(struct draw *d, const struct ht_knob *k)
{
    int64_t one = k->decimal ? HT_PPB : 1, min = k->min * one, max = (k->max < 0 ? 12 : k->max) * one;
    int64_t span = max < 1000000 * one ? max - min + 1 : 1000000 * one; /* small numbers, and both ends */
    int64_t coarse = k->decimal && below(d, 2) ? HT_PPB / 4 : 1;
    return below(d, 20) == 0 ? max : min + pick(d, 0, span - 1) / coarse * coarse;
}

/* Draws a variable of any number of elements, with runs. */
static struct ht_variable random_variable(struct draw *d, const struct ht_knob *k, int64_t ranks)
{
    struct ht_variable v = {.kind = k->kind, .decimal = k->decimal};
    snprintf(v.name, sizeof(v.name), "%s", k->name);
    if (k->kind == HT_VARIABLE_NUMBER) v.value = random_number(d, k);
    if (k->kind == HT_VARIABLE_NUMBER) return v;
    int64_t n = k->kind == HT_VARIABLE_BY_RANK ? ranks : k->kind == HT_VARIABLE_BLOCKS ? 12 : 1 + below(d, 40);
    v.values = HT_NEW_ARRAY(int64_t, n);
    for (int64_t i = 0; i < n; i++) {
        if (k->kind == HT_VARIABLE_BLOCKS && below(d, 2)) continue;
        v.values[v.n] = k->kind == HT_VARIABLE_BLOCKS  ? i + 1
                        : k->kind == HT_VARIABLE_RANKS ? below(d, ranks)
                        : i && below(d, 3)             ? v.values[i - 1]
                                                       : random_number(d, k);
        v.n++;
    }
    return v;
}

static void assert_same(const struct ht_variable *a, const struct ht_variable *b, const char *text)
{
    ck_assert_str_eq(a->name, b->name);
    ck_assert_msg(a->kind == b->kind && a->decimal == b->decimal && a->n == b->n && a->value == b->value, "%s", text);
    for (int32_t i = 0; i < a->n; i++) ck_assert_msg(a->values[i] == b->values[i], "%s: element %d", text, i);
}

START_TEST(printed_values_read_back)
{
    for (uint64_t seed = 0; seed < 5000; seed++) {
        struct draw d = {.seed = seed};
        const struct ht_knob *k = &knobs[below(&d, HT_COUNT(knobs) - 1)];
        struct ht_knob_range range = {.ranks = 1 + below(&d, 20), .blocks = 12};
        struct ht_variable v = random_variable(&d, k, range.ranks), again;
        struct ht_error err = {0};
        char *text = printed(&v);
        ck_assert_msg(ht_variable_parse(k, range, text, &err, &again) == HT_OK, "%s", err.text);
        assert_same(&v, &again, text);
        free(text);
        ht_variable_free(&v);
        ht_variable_free(&again);
    }
}
END_TEST

/* Text made of what the grammar is made of: accepted or refused in one line; what is accepted reads back the same. */
START_TEST(any_text_is_read_or_refused)
{
    static const char *const pieces[] = {
        "1", "4",  "12", "0.5", ",", "-",  " x ",  " ",   ".",   "x",
        "0", "99", "e",  "\n",  "=", "+1", "none", "1-3", "0x2", "9223372036854775807"};
    const struct ht_knob_range range = {.ranks = 3, .blocks = 12};
    int read = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        struct draw d = {.seed = seed};
        const struct ht_knob *k = &knobs[below(&d, HT_COUNT(knobs) - 1)];
        char text[256] = "";
        for (int64_t n = 1 + below(&d, 8); n; n--) strcat(text, pieces[below(&d, HT_COUNT(pieces))]);
        struct ht_variable v = {0}, again;
        struct ht_error err = {0};
        enum ht_status status = ht_variable_parse(k, range, text, &err, &v);
        ck_assert_msg(status == HT_OK || status == HT_BAD_INPUT, "%s=%s", k->name, text);
        if (status == HT_BAD_INPUT) {
            ck_assert_msg(!strncmp(err.text, "--set '", 7) && !strchr(err.text, '\n') && !v.values, "%s", err.text);
            continue;
        }
        read++;
        char *shown = printed(&v);
        ck_assert_msg(ht_variable_parse(k, range, shown, &err, &again) == HT_OK, "%s: %s", text, err.text);
        assert_same(&v, &again, text);
        free(shown);
        ht_variable_free(&v);
        ht_variable_free(&again);
    }
    ck_assert_int_gt(read, 500);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("variable");
    TCase *t = tcase_create("variable");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, numbers);
    tcase_add_test(t, vectors);
    tcase_add_test(t, errors_name_the_element);
    tcase_add_test(t, plans_hold_copies);
    tcase_add_test(t, printed_values_read_back);
    tcase_add_test(t, any_text_is_read_or_refused);
    suite_add_tcase(suite, t);
    SRunner *r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
