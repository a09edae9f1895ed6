/* Lines are broken to a width, and the width is that of COLUMNS. */
#include "common/base/terminal.h"

#include "common/base/array.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int columns;
    const char *text, *shown;
} cases[] = {
    {10, "", ""},
    {10, "no end", "no end"},
    {10, "0123456789\n", "0123456789\n"},
    {10, "aaa bbb ccc ddd\n", "aaa bbb\n  ccc ddd\n"},
    {10, "  aaa bbb ccc\n", "  aaa bbb\n    ccc\n"}, /* 2 columns further in than the line's beginning */
    {10, "aaa  \n\nb\n", "aaa\n\nb\n"},
    {10, "aaa        bbb\n", "aaa\n  bbb\n"},
    {10, "0123456789abcdefghij\n", "0123456789\n  abcdefgh\n  ij\n"}, /* no blank: anywhere, */
    {10, "m=1,2,3,4,5,6\n", "m=1,2,3,4,\n  5,6\n"},                   /* or behind a comma */
    {10, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n",
     "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\n"}, /* 10 characters, 19 bytes */
    {10, "\33[1mbold\33[0m plain\n", "\33[1mbold\33[0m plain\n"},                    /* colours take no column */
};

/* Passes text through in pieces of so many bytes. */
static char *wrapped(const char *text, int columns, size_t piece)
{
    char *shown = NULL;
    size_t n;
    FILE *to = open_memstream(&shown, &n), *out = ht_wrap_open(to, columns);
    for (size_t left = strlen(text), at = 0; left; left -= at, text += at) {
        at = left < piece ? left : piece;
        fwrite(text, 1, at, out);
        fflush(out);
    }
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_int_eq(fclose(to), 0);
    return shown;
}

START_TEST(lines_are_broken)
{
    for (size_t i = 0; i < HT_COUNT(cases); i++)
        for (size_t piece = 1; piece < 5; piece++) {
            char *shown = wrapped(cases[i].text, cases[i].columns, piece);
            ck_assert_str_eq(shown, cases[i].shown);
            free(shown);
        }
}
END_TEST

START_TEST(paragraphs)
{
    char *shown = NULL;
    size_t n;
    FILE *to = open_memstream(&shown, &n);
    ht_print_wrapped("hetbench sim a --model b", 2, "    ", " \\", 16, to); /* behind two characters */
    ht_print_wrapped("a\nb c", 0, "- ", "", 80, to);
    ht_print_wrapped("unlimited width", 0, "", "", 0, to);
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_str_eq(shown, "hetbench sim \\\n    a --model b\na\n- b c\nunlimited width\n");
    free(shown);
}
END_TEST

START_TEST(a_stream_that_cannot_be_written)
{
    FILE *full = fopen("/dev/full", "w"), *out = ht_wrap_open(full, 40);
    fputs("lost\n", out);
    ck_assert_int_eq(fflush(out), EOF);
    ck_assert_int_eq(fclose(out), EOF);
    fclose(full);
}
END_TEST

START_TEST(width_of_the_terminal)
{
    static const struct {
        const char *columns;
        int width;
    } given[] = {{"80", 80}, {"200", 200}, {"7", HT_LEAST_COLUMNS}};
    for (size_t i = 0; i < HT_COUNT(given); i++) {
        setenv("COLUMNS", given[i].columns, 1);
        ck_assert_int_eq(ht_terminal_columns(), given[i].width);
    }
    unsetenv("COLUMNS");
    int without = ht_terminal_columns(); /* the terminal's, if the test has one */
    static const char *const nonsense[] = {"", "0", "-3", "8o", "wide"};
    for (size_t i = 0; i < HT_COUNT(nonsense); i++) {
        setenv("COLUMNS", nonsense[i], 1);
        ck_assert_int_eq(ht_terminal_columns(), without);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("terminal");
    TCase *tc = tcase_create("terminal");
    tcase_add_test(tc, lines_are_broken);
    tcase_add_test(tc, paragraphs);
    tcase_add_test(tc, a_stream_that_cannot_be_written);
    tcase_add_test(tc, width_of_the_terminal);
    suite_add_tcase(s, tc);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
