/* Training text: which bytes make which batch, and what is no text. */
#include "harness/text.h"

#include "common/base/rng.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/hetbench-text-XXXXXX";

static void write_file(const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void refused(int64_t seq, const char *why)
{
    struct ht_error err;
    struct ht_text text = {0};
    ck_assert_int_eq(ht_text_load(path, seq, &err, &text), HT_BAD_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' lacks '%s'", err.text, why);
    ck_assert_ptr_null(strchr(err.text, '\n'));
    ck_assert_ptr_null(text.bytes);
}

START_TEST(lengths)
{
    /* T = 4: a sequence and its targets are 5 bytes, and two starts at least must be possible: 6 bytes. */
    struct ht_error err;
    struct ht_text text;
    write_file("abcde", 5);
    refused(4, "has 5 bytes; expected at least 6");
    write_file("abcdef", 6);
    ck_assert_int_eq(ht_text_load(path, 4, &err, &text), HT_OK);
    ck_assert_int_eq(text.n_bytes, 6);
    ht_text_free(&text);
    write_file("", 0);
    refused(4, "is empty");
    write_file("abc\0defgh", 9);
    refused(4, "byte 3 is NUL");
}
END_TEST

START_TEST(batches_are_the_rule)
{
    /* 3 sequences of 5 tokens in micro-batches of 1: sequence b of step s begins at random_below(seed, 3 s + b, n - 6).
     */
    enum { B = 3, T = 5, N = 400, SEED = 99 };
    unsigned char bytes[N];
    for (int i = 0; i < N; i++) bytes[i] = (unsigned char)(1 + i * 7 % 255);
    struct ht_text text = {.bytes = bytes, .n_bytes = N};
    struct ht_batches b;
    struct ht_error err;
    ht_batches_init(&b, &text, SEED, B, 1, T);
    for (int32_t step = 0; step < 6; step++)
        for (int32_t j = 0; j < B; j++) {
            const int32_t *x, *y;
            ck_assert_int_eq(ht_batches_get(&b, step, j, &x, &y, &err), HT_OK);
            uint64_t start = ht_random_below(SEED, (uint64_t)(step * B + j), N - T - 1);
            for (int t = 0; t < T; t++) {
                ck_assert_int_eq(x[t], bytes[start + (uint64_t)t]);
                ck_assert_int_eq(y[t], bytes[start + (uint64_t)t + 1]);
            }
        }
    ht_batches_free(&b);
}
END_TEST

START_TEST(micro_batches_tile_the_batch)
{
    /* The same 4 sequences, whether they come as one micro-batch or as four. */
    enum { B = 4, T = 3 };
    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(i + 1);
    struct ht_text text = {.bytes = bytes, .n_bytes = 64};
    struct ht_batches whole, split;
    struct ht_error err;
    ht_batches_init(&whole, &text, 7, B, B, T);
    ht_batches_init(&split, &text, 7, B, 1, T);
    const int32_t *x, *y, *xs, *ys;
    ck_assert_int_eq(ht_batches_get(&whole, 5, 0, &x, &y, &err), HT_OK);
    for (int32_t j = 0; j < B; j++) {
        ck_assert_int_eq(ht_batches_get(&split, 5, j, &xs, &ys, &err), HT_OK);
        ck_assert_mem_eq(xs, x + j * T, T * sizeof(int32_t));
        ck_assert_mem_eq(ys, y + j * T, T * sizeof(int32_t));
    }
    ck_assert_int_eq(ht_batches_get(&whole, 0, 1, &x, &y, &err), HT_FAILED);
    ht_batches_free(&whole);
    ht_batches_free(&split);
}
END_TEST

START_TEST(two_iterations_are_kept)
{
    /* What iteration 4 was given stays as it is while iteration 5 asks for its own. */
    enum { T = 8 };
    unsigned char bytes[256];
    for (int i = 0; i < 256; i++) bytes[i] = (unsigned char)(i ? i : 1);
    struct ht_text text = {.bytes = bytes, .n_bytes = 256};
    struct ht_batches b;
    struct ht_error err;
    ht_batches_init(&b, &text, 3, 1, 1, T);
    const int32_t *x4, *x5, *y;
    int32_t copy[T];
    ck_assert_int_eq(ht_batches_get(&b, 4, 0, &x4, &y, &err), HT_OK);
    memcpy(copy, x4, sizeof(copy));
    ck_assert_int_eq(ht_batches_get(&b, 5, 0, &x5, &y, &err), HT_OK);
    ck_assert_ptr_ne(x4, x5);
    ck_assert_mem_eq(copy, x4, sizeof(copy));
    ht_batches_free(&b);
}
END_TEST

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    Suite *suite = suite_create("text");
    TCase *tc = tcase_create("text");
    tcase_add_test(tc, lengths);
    tcase_add_test(tc, batches_are_the_rule);
    tcase_add_test(tc, micro_batches_tile_the_batch);
    tcase_add_test(tc, two_iterations_are_kept);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    unlink(path);
    return failed ? 1 : 0;
}
