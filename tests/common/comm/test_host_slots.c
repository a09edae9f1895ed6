#include "common/comm/host_slots.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const path = "test_host_slots.txt";

/* Reads a host file of this text. */
static enum ht_status read_text(const char *text, struct ht_error *err, struct ht_host_slots *out)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
    enum ht_status status = ht_host_slots_read(path, err, out);
    remove(path);
    return status;
}

START_TEST(files)
{
    static const struct {
        const char *text, *list;
        int slots;
    } cases[] = {
        {"a slots=2\nb slots=3\n", "a:2,b:3", 5},
        {"# hosts\n\n \t\na slots = 2 # two\r\n  b\tslots=1 max_slots=4\nc max-slots=2 slots=2", "a:2,b:1,c:2", 5},
        {"a-1.b_c\na.b slots=2\n", "a-1.b_c:auto,a.b:2", -1}, /* the cores of the first are not known here */
        {"a\nb\na\na\n", "a:3,b:auto", -1},
    };
    struct ht_error err;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct ht_host_slots h;
        ck_assert_msg(read_text(cases[i].text, &err, &h) == HT_OK, "%s", err.text);
        ck_assert_str_eq(h.list, cases[i].list);
        ck_assert_int_eq(h.slots, cases[i].slots);
        ht_host_slots_free(&h);
    }
}
END_TEST

START_TEST(bad_files)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", ".txt: names no host"},
        {"# none\n\n", ".txt: names no host"},
        {"a slots=2\nb slot=2\n", ".txt:2: 'slot=2' is not understood"},
        {"a slots=\n", ".txt:1: 'slots=' is not understood"},
        {"a slots=0\n", ".txt:1: 'slots=0' is not understood"},
        {"a slots=2x\n", ".txt:1: 'slots=2x' is not understood"},
        {"a slots=99999999999999999999\n", ".txt:1: 'slots="},
        {"a slots -2\n", ".txt:1: 'slots -2' is not understood"},
        {"a slots=2 max_slots=1\n", ".txt:1: max_slots 1 is less than slots 2"},
        {"a max_slots=1\n", ".txt:1: max_slots without slots"},
        {"\na slots=1\na slots=1\n", ".txt:3: host a is listed again"},
        {"a\na slots=1\n", ".txt:2: host a is listed again"},
        {"-oProxyCommand=x slots=1\n", ".txt:1: '-oProxyCommand=x' is not a host's name"},
        {"me@a slots=1\n", ".txt:1: 'me@a' is not a host's name"},
        {"a,b slots=1\n", ".txt:1: 'a,b' is not a host's name"},
        {"a:2\n", ".txt:1: 'a:2' is not a host's name"},
    };
    struct ht_error err;
    struct ht_host_slots h;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ck_assert_int_eq(read_text(cases[i].text, &err, &h), HT_BAD_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "'%s' says: %s", cases[i].text, err.text);
    }
}
END_TEST

/* Only files and pipes are read, and never more than 256 KiB. */
START_TEST(what_is_read)
{
    static const char *const others[] = {"/dev/zero", "/dev/null", "/", "/dev/none"};
    struct ht_error err;
    struct ht_host_slots h;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        ck_assert_int_eq(ht_host_slots_read(others[i], &err, &h), HT_BAD_INPUT);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fwrite("a slots=1\n\0b\n", 1, 13, f), 13);
    fclose(f);
    ck_assert_int_eq(ht_host_slots_read(path, &err, &h), HT_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, ".txt:2: has a zero byte"));
    ck_assert_int_eq(truncate(path, 1 << 30), 0);
    ck_assert_int_eq(ht_host_slots_read(path, &err, &h), HT_BAD_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "is larger than 256 kB"));
    remove(path);
    int ends[2];
    char name[64];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "a slots=2\n", 10), 10);
    close(ends[1]);
    snprintf(name, sizeof(name), "/dev/fd/%d", ends[0]);
    ck_assert_int_eq(ht_host_slots_read(name, &err, &h), HT_OK);
    ck_assert_str_eq(h.list, "a:2");
    ht_host_slots_free(&h);
    close(ends[0]);
}
END_TEST

START_TEST(lists)
{
    static const char *const bad[] = {"", "h1,", ":2", "h1:0", "h1:x", "h1:2 ,h2:2", "-x:2", "a b:2", "h1:4097"};
    struct ht_error err;
    struct ht_host_slots h;
    ck_assert_int_eq(ht_host_slots_parse("h1:2,h2", &err, &h), HT_OK);
    ck_assert_str_eq(h.list, "h1:2,h2");
    ck_assert_int_eq(h.slots, 3);
    ht_host_slots_free(&h);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        ck_assert_int_eq(ht_host_slots_parse(bad[i], &err, &h), HT_BAD_INPUT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host_slots");
    TCase *tc = tcase_create("host_slots");
    tcase_add_test(tc, files);
    tcase_add_test(tc, bad_files);
    tcase_add_test(tc, what_is_read);
    tcase_add_test(tc, lists);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
