#include "common/base/units.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

struct whole_case {
    enum ht_quantity kind;
    const char *text;
    int64_t want;
};

static const struct whole_case good[] = {
    {HT_COUNT_OF, "8", 8},
    {HT_COUNT_OF, "-3", -3},
    {HT_COUNT_OF, "9223372036854775807", INT64_MAX},
    {HT_BYTES, "40 gb", 40000000000},
    {HT_BYTES, "40G", 40000000000},
    {HT_BYTES, "512mi", 536870912},
    {HT_BYTES, "3 k", 3000},
    {HT_BYTES, "40 GB", 40000000000},  /* 40 * 10^9 */
    {HT_BYTES, "40 GiB", 42949672960}, /* 40 * 2^30 */
    {HT_BYTES, "512MiB", 536870912},   /* 512 * 2^20 */
    {HT_BYTES, "1.5 kB", 1500},
    {HT_BYTES, "0.5 KiB", 512},
    {HT_BYTES, "1.50000000000000000000 kB", 1500}, /* trailing zeros cost nothing */
    {HT_BYTES, "0 B", 0},
    {HT_BYTES, "8191 PiB", 8191 * (INT64_C(1) << 50)}, /* 2^63 - 2^50: the last that fits */
    {HT_TIME, "10 us", 10000},
    {HT_TIME, "1.5 ms", 1500000},
    {HT_TIME, "2 s", 2000000000},
    {HT_TIME, "0.25 ms", 250000},
};

struct bad_case {
    enum ht_quantity kind;
    const char *text, *says; /* a part of the message */
};

static const struct bad_case bad[] = {
    {HT_COUNT_OF, "", "is not a number; expected a whole number"},
    {HT_COUNT_OF, "3e9", "is written with an exponent"},
    {HT_COUNT_OF, "8.0", "is not a whole number"},
    {HT_COUNT_OF, "8 GB", "has 'GB' after the number"},
    {HT_COUNT_OF, "0x10", "has 'x10' after the number"},
    {HT_COUNT_OF, " 8", "is not a number"},
    {HT_COUNT_OF, "+8", "is not a number"},
    {HT_COUNT_OF, "eight", "is not a number"},
    {HT_COUNT_OF, "9223372036854775808", "is too large"},
    {HT_COUNT_OF, "99999999999999999999999999999999999999999999999999", "too many digits"},
    {HT_BYTES, "40", "'40' has no unit; expected a size such as '40 GB' or '512 MiB'"},
    {HT_BYTES, "40 XB", "has the unknown unit 'XB'"},
    {HT_BYTES, "40 g i", "has the unknown unit 'g i'"},
    {HT_BYTES, "40 GBB", "has the unknown unit 'GBB'"},
    {HT_BYTES, "40 GB ", "has the unknown unit 'GB '"},
    {HT_BYTES, "40 GB/s", "has the wrong unit 'GB/s'; expected a size"},
    {HT_BYTES, "-40 GB", "is negative"},
    {HT_BYTES, "1.5 B", "is not a whole number of bytes"},
    {HT_BYTES, "8192 PiB", "is too large"}, /* 2^63 */
    {HT_BYTES, "3e9 B", "is written with an exponent"},
    {HT_BYTES, "1. GB", "has no digits after the point"},
    {HT_BYTES, ".5 GB", "is not a number"},
    {HT_BYTES, "nan GB", "is not a number"},
    {HT_TIME, "0.5 ns", "is finer than a nanosecond"},
    {HT_TIME, "10 GB", "has the wrong unit 'GB'; expected a time"},
};

START_TEST(whole_good)
{
    struct ht_error err = {0};
    for (size_t i = 0; i < HT_COUNT(good); i++) {
        int64_t v = -77;
        ck_assert_msg(!ht_parse_whole(good[i].kind, good[i].text, strlen(good[i].text), &err, &v), "%s", err.text);
        ck_assert_msg(v == good[i].want, "%s gives %lld", good[i].text, (long long)v);
    }
}
END_TEST

START_TEST(whole_bad)
{
    for (size_t i = 0; i < HT_COUNT(bad); i++) {
        struct ht_error err = {0};
        int64_t v = -77;
        ck_assert_int_eq(ht_parse_whole(bad[i].kind, bad[i].text, strlen(bad[i].text), &err, &v), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "'%s' says: %s", bad[i].text, err.text);
        ck_assert_int_eq(v, -77);
    }
}
END_TEST

START_TEST(rates)
{
    struct ht_error err = {0};
    double v = 0;
    ck_assert(!ht_parse_real(HT_BYTES_PER_S, "25 GB/s", 7, &err, &v));
    ck_assert_double_eq(v, 25e9);
    ck_assert(!ht_parse_real(HT_BYTES_PER_S, "200 Gbit/s", 10, &err, &v));
    ck_assert_double_eq(v, 25e9); /* 200e9 / 8 */
    ck_assert(!ht_parse_real(HT_FLOPS_PER_S, "312 TFLOP/s", 11, &err, &v));
    ck_assert_double_eq(v, 312e12);
    ck_assert(!ht_parse_real(HT_FLOPS_PER_S, "3.12e14 FLOP/s", 14, &err, &v));
    ck_assert_double_eq(v, 312e12);
    ck_assert(!ht_parse_real(HT_TIME, "10 us", 5, &err, &v));
    ck_assert_double_eq_tol(v, 1e-5, 1e-20);
    ck_assert(!ht_parse_real(HT_REAL, "-0.85", 5, &err, &v));
    ck_assert_double_eq(v, -0.85);
    /* Sparse-sounding or misspelt units, infinities, and what does not fit a double. */
    ck_assert_int_eq(ht_parse_real(HT_FLOPS_PER_S, "312 TFLOPS", 10, &err, &v), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, "unknown unit 'TFLOPS'; expected a rate such as '312 TFLOP/s'") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(ht_parse_real(HT_REAL, "inf", 3, &err, &v), HT_BAD_INPUT);
    ck_assert_int_eq(ht_parse_real(HT_REAL, "1e400", 5, &err, &v), HT_BAD_INPUT);
    ck_assert_int_eq(ht_parse_real(HT_REAL, "1e", 2, &err, &v), HT_BAD_INPUT);
    ck_assert_int_eq(ht_parse_real(HT_REAL, "1e99999999999", 13, &err, &v), HT_BAD_INPUT);
    ck_assert_int_eq(ht_parse_real(HT_BYTES_PER_S, "-1 GB/s", 7, &err, &v), HT_BAD_INPUT);
    ck_assert_double_eq(v, -0.85);
}
END_TEST

START_TEST(flags)
{
    struct ht_error err = {0};
    int64_t v = 0;
    ck_assert(!ht_flag_bytes("--device-memory", "16 GiB", &err, &v));
    ck_assert_int_eq(v, INT64_C(16) << 30);
    ck_assert_int_eq(ht_flag_bytes("--device-memory", "16", &err, &v), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "--device-memory: '16' has no unit; expected a size such as '40 GB' or '512 MiB'");
    ck_assert_int_eq(ht_flag_bytes("--device-memory", "0 GB", &err, &v), HT_BAD_INPUT);
    ck_assert_int_eq(ht_flag_count("--steps", "0", 1, 100, &err, &v), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "--steps: 0 is out of range; expected 1 to 100");
    ck_assert(!ht_flag_count("--steps", "100", 1, 100, &err, &v));
    ck_assert_int_eq(v, 100);
}
END_TEST

START_TEST(format)
{
    char b[HT_QUANTITY_TEXT];
    ck_assert_str_eq(ht_format_quantity(HT_BYTES, 39.0625e9, b), "39.06 GB");
    ck_assert_str_eq(ht_format_quantity(HT_BYTES, 512, b), "512 B");
    ck_assert_str_eq(ht_format_quantity(HT_BYTES, 0, b), "0 B");
    ck_assert_str_eq(ht_format_quantity(HT_BYTES, 999.96e6, b), "1 GB");
    ck_assert_str_eq(ht_format_quantity(HT_TIME, 1215000, b), "1.215 ms");
    ck_assert_str_eq(ht_format_quantity(HT_TIME, 90e9, b), "90 s");
    ck_assert_str_eq(ht_format_quantity(HT_FLOPS_PER_S, 312e12, b), "312 TFLOP/s");
    ck_assert_str_eq(ht_format_quantity(HT_BYTES_PER_S, 25e9, b), "25 GB/s");
    ck_assert_str_eq(ht_format_quantity(HT_COUNT_OF, 8, b), "8");
    ck_assert_str_eq(ht_format_quantity(HT_REAL, 0.85, b), "0.85");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("units");
    TCase *t = tcase_create("units");
    tcase_add_test(t, whole_good);
    tcase_add_test(t, whole_bad);
    tcase_add_test(t, rates);
    tcase_add_test(t, flags);
    tcase_add_test(t, format);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
