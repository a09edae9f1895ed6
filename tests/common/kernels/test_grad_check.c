/* The gradient check: overflow, the sum of squares, 16-bit types; the same bits for any pool. */
#include <float.h>
#include <stdio.h>

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/kernels/grad_check.h"
#include "common/kernels/grad_sum.h"
#include "tests/common/kernels/guarded.h"

static const struct ht_adamw config = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
static const enum ht_dtype types[] = {HT_F32, HT_F16, HT_BF16};

static void put(void *x, enum ht_dtype type, int64_t i, float value)
{
    if (type == HT_F32) ((float *)x)[i] = value;
    if (type == HT_F16) ((uint16_t *)x)[i] = ht_f32_to_f16(value);
    if (type == HT_BF16) ((uint16_t *)x)[i] = ht_f32_to_bf16(value);
}

static float get(const void *x, enum ht_dtype type, int64_t i)
{
    if (type == HT_F32) return ((const float *)x)[i];
    uint16_t h = ((const uint16_t *)x)[i];
    return type == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

static void *random_array(uint64_t seed, enum ht_dtype type, int64_t n, float a)
{
    float *wide = random_floats(seed, n, a);
    void *x = malloc(4 * (size_t)n + 4);
    for (int64_t i = 0; i < n; i++) put(x, type, i, wide[i]);
    free(wide);
    return x;
}

/* Checks on every path, with the same result. */
static bool fit(struct ht_pool *pool, const struct ht_adamw_step *s, const void *g, enum ht_dtype type, int64_t n)
{
    bool fits = ht_grad_check(pool, s, g, type, n).fits;
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
        if (!ht_simd_at((enum ht_simd_level)level, HT_F32)) continue;
        ck_assert_int_eq(ht_grad_check_at((enum ht_simd_level)level, pool, s, g, type, n).fits, fits);
    }
    return fits;
}

/* 1 - beta2 = 0.001: its square as AdamW forms it overflows from |g| = sqrt(3.4028e38 / 0.001) = 5.833e20 on. In BF16
   the neighbours are 5.765e20 and 5.857e20; F16 ends at 65504. */
START_TEST(test_bad_gradients_are_seen)
{
    enum { N = 3003 };
    struct ht_adamw_step s = ht_adamw_step(&config, 7, 1), eighth = ht_adamw_step(&config, 7, 0.125);
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 5.84e20f, -5.84e20f, FLT_MAX};
    const float good[] = {0, -0.0f, 0x1p-149f, 5.75e20f, -5.75e20f, 1e-30f};
    struct ht_pool *pool = ht_pool_create(3, NULL);
    for (size_t t = 0; t < HT_COUNT(types); t++) {
        enum ht_dtype type = types[t];
        void *g = random_array(1, type, N, 1);
        ck_assert(fit(pool, &s, g, type, N) && fit(NULL, &s, g, type, 0));
        for (int64_t at = 0; at < N; at += 77) {
            float was = get(g, type, at);
            for (size_t k = 0; k < HT_COUNT(bad); k++) {
                put(g, type, at, bad[k]);
                ck_assert(!fit(pool, &s, g, type, N) && !fit(NULL, &s, g, type, N));
                float p = 1, m = 0, v = 1, wide = get(g, type, at);
                ht_adamw_update(&s, &p, &m, &v, &wide, 1);
                ck_assert(!isfinite(v)); /* what the check foresees */
            }
            for (size_t k = 0; k < HT_COUNT(good); k++) {
                put(g, type, at, type == HT_F16 && fabsf(good[k]) > 65504 ? 65504 : good[k]);
                ck_assert(fit(pool, &s, g, type, N));
                float p = 1, m = 0, v = 1, wide = get(g, type, at);
                ht_adamw_update(&s, &p, &m, &v, &wide, 1);
                ck_assert(isfinite(v) && isfinite(p));
            }
            put(g, type, at, 4e21f); /* an eighth of it is 5e20 */
            ck_assert(!fit(pool, &s, g, type, N) && fit(pool, &eighth, g, type, N) == (type != HT_F16));
            put(g, type, at, was);
        }
        free(g);
    }
    ht_pool_destroy(pool);
}
END_TEST

/* Multiples of 1/8 below 64, whose squares and their sum are exact in double: 3, 4 and n - 2 halves give
   9 + 16 + (n - 2) / 4. */
START_TEST(test_sum_by_hand)
{
    const int64_t sizes[] = {2, 3, 15, 16, 17, 1000, 1023, 1025, 16384, 70001};
    struct ht_adamw_step s = ht_adamw_step(&config, 1, 1);
    for (size_t t = 0; t < HT_COUNT(types); t++)
        for (size_t k = 0; k < HT_COUNT(sizes); k++) {
            void *g = malloc(4 * (size_t)sizes[k]);
            for (int64_t i = 0; i < sizes[k]; i++) put(g, types[t], i, i % 2 ? 0.5f : -0.5f);
            put(g, types[t], 0, 3);
            put(g, types[t], sizes[k] - 1, -4);
            struct ht_grad_partial p = ht_grad_check(NULL, &s, g, types[t], sizes[k]);
            ck_assert(p.fits && p.squares == 25 + (double)(sizes[k] - 2) / 4);
            put(g, types[t], sizes[k] / 2, INFINITY);
            p = ht_grad_check(NULL, &s, g, types[t], sizes[k]);
            ck_assert(!p.fits && isinf(p.squares));
            free(g);
        }
}
END_TEST

/* Every path and any number of workers give the same bits; and the norm is that of a plain sum, to rounding. */
START_TEST(test_sum_everywhere)
{
    struct ht_adamw_step s = ht_adamw_step(&config, 1, 1);
    for (size_t t = 0; t < HT_COUNT(types); t++)
        for (int64_t n = 1; n < 200000; n = 3 * n + 1) {
            void *g = random_array(5, types[t], n, 1e-2f);
            double expected = ht_grad_check(NULL, &s, g, types[t], n).squares, plain = 0;
            for (int64_t i = 0; i < n; i++) plain += (double)get(g, types[t], i) * (double)get(g, types[t], i);
            assert_close(expected / plain, 1, 1e-12, "sum", n);
            for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
                if (!ht_simd_at((enum ht_simd_level)level, HT_F32)) continue;
                double squares = ht_grad_check_at((enum ht_simd_level)level, NULL, &s, g, types[t], n).squares;
                ck_assert_mem_eq(&squares, &expected, sizeof(squares));
            }
            for (int threads = 2; threads <= 5; threads++) {
                struct ht_pool *pool = ht_pool_create(threads, NULL);
                double squares = ht_grad_check(pool, &s, g, types[t], n).squares;
                ck_assert_mem_eq(&squares, &expected, sizeof(squares));
                ht_pool_destroy(pool);
            }
            free(g);
        }
}
END_TEST

/* Against one element at a time, for every pair of types. */
START_TEST(test_grad_sum)
{
    const int64_t sizes[] = {0, 1, 31, 33, 1024, 5001};
    struct ht_pool *pool = ht_pool_create(3, NULL);
    for (size_t a = 0; a < HT_COUNT(types); a++)
        for (size_t b = 0; b < HT_COUNT(types); b++)
            for (size_t k = 0; k < HT_COUNT(sizes); k++) {
                int64_t n = sizes[k];
                void *sum = random_array(3, types[a], n, 300), *add = random_array(4, types[b], n, 3);
                void *expected = malloc(4 * (size_t)n + 4);
                for (int64_t i = 0; i < n; i++)
                    put(expected, types[a], i, get(sum, types[a], i) + get(add, types[b], i));
                ht_grad_sum(k % 2 ? pool : NULL, sum, types[a], add, types[b], n);
                if (n) ck_assert_mem_eq(sum, expected, (size_t)(n * ht_dtype_bytes(types[a])));
                free(sum);
                free(add);
                free(expected);
            }
    ht_pool_destroy(pool);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("grad check");
    TCase *t = tcase_create("grad check");
    tcase_add_test(t, test_bad_gradients_are_seen);
    tcase_add_test(t, test_sum_by_hand);
    tcase_add_test(t, test_sum_everywhere);
    tcase_add_test(t, test_grad_sum);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
