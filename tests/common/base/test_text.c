/* Text from outside is shown without control characters, as UTF-8, in whole characters. */
#include "common/base/status.h"
#include "common/base/text.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"

static const struct {
    const char *text, *shown;
} cases[] = {
    {"", ""},
    {"a b'\\\"~", "a b'\\\"~"},
    {"\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80", "\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80"}, /* letters stay */
    {"a\nb\r\tc", "a\\nb\\r\\tc"},
    {"\x1b[31mred\x07\x7f", "\\x1b[31mred\\x07\\x7f"},
    {"\xc2\x9b"
     "31m",
     "\\xc2\\x9b31m"}, /* U+009B, another way to write ESC [ */
    {"\x9b"
     "31m\xff",
     "\\x9b31m\\xff"},                                     /* its raw byte, which is not UTF-8 */
    {"\xc3", "\\xc3"},                                     /* ends within a character */
    {"\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80"}, /* overlong, surrogate */
    {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},                   /* U+2028, a line end */
};

START_TEST(shown)
{
    for (size_t i = 0; i < HT_COUNT(cases); i++) {
        char buf[64], again[64];
        ck_assert_str_eq(ht_shown(cases[i].text, buf, sizeof(buf)), cases[i].shown);
        ck_assert_str_eq(ht_shown(buf, again, sizeof(again)), buf);
        ck_assert_int_eq(ht_is_text(cases[i].text), !strcmp(cases[i].text, cases[i].shown));
        ck_assert(ht_is_text(buf));
    }
}
END_TEST

START_TEST(whole_characters)
{
    char buf[6];
    ck_assert_str_eq(ht_shown("abcd\xc3\xa9", buf, sizeof(buf)), "abcd");
    ck_assert_str_eq(ht_shown("ab\x1b"
                              "c",
                              buf, sizeof(buf)),
                     "ab");
    ck_assert_str_eq(ht_shown("abc\xc3\xa9", buf, sizeof(buf)), "abc\xc3\xa9");
}
END_TEST

START_TEST(errors)
{
    struct ht_error err = {0};
    ck_assert_int_eq(ht_fail(&err, HT_BAD_INPUT, "%s: no '%s'", "\x1b]0;title\x07", "\xc3\xa9\n"), HT_BAD_INPUT);
    ck_assert_str_eq(err.text, "\\x1b]0;title\\x07: no '\xc3\xa9\\n'");
    ht_fail(&err, HT_FAILED, "again: %s", err.text);
    ck_assert_str_eq(err.text, "again: \\x1b]0;title\\x07: no '\xc3\xa9\\n'");
}
END_TEST

START_TEST(names)
{
    static const char *const list[] = {"cpu", "cuda"};
    ck_assert_uint_eq(ht_index_of("cpu", list, 2), 0);
    ck_assert_uint_eq(ht_index_of("cuda", list, 2), 1);
    ck_assert_uint_eq(ht_index_of("cud", list, 2), 2);
    ck_assert_uint_eq(ht_index_of("cuda", list, 1), 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    tcase_add_test(t, shown);
    tcase_add_test(t, whole_characters);
    tcase_add_test(t, errors);
    tcase_add_test(t, names);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
