/*
 * Conversions: every 16-bit number to FP32 and back, FP32 of all kinds to 16 bit, on every set of instructions: the
 * bits of base/half.h, which test_safetensors.c holds to the definitions.
 */
#include <stdio.h>

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/kernels/convert.h"
#include "common/kernels/simd.h"
#include "tests/common/kernels/guarded.h"

enum { N16 = 1 << 16, N32 = 1 << 20 };

static float expected_float(uint16_t h, enum ht_dtype t)
{
    return t == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

static uint16_t expected_half(float x, enum ht_dtype t)
{
    return t == HT_F16 ? ht_f32_to_f16(x) : ht_f32_to_bf16(x);
}

#define EACH_LEVEL_AND_TYPE(simd, t)                                                                                   \
    for (int level_ = 0; level_ < HT_N_SIMD_LEVELS; level_++)                                                          \
        for (const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level_, HT_F32); simd; simd = NULL)           \
            for (enum ht_dtype t = HT_F16; t <= HT_BF16; t++)

START_TEST(test_every_half)
{
    uint16_t *h = HT_NEW_ARRAY(uint16_t, N16), *back = HT_NEW_ARRAY(uint16_t, N16);
    float *x = HT_NEW_ARRAY(float, N16);
    for (int i = 0; i < N16; i++) h[i] = (uint16_t)i;
    EACH_LEVEL_AND_TYPE(simd, t)
    {
        simd->widen(h, t, x, N16);
        simd->narrow(x, t, back, N16);
        for (int i = 0; i < N16; i++) {
            ck_assert_uint_eq(ht_float_bits(x[i]), ht_float_bits(expected_float(h[i], t)));
            if (isnan(x[i])) ck_assert(isnan(expected_float(back[i], t)));
            if (!isnan(x[i])) ck_assert_uint_eq(back[i], h[i]);
        }
    }
    free(h);
    free(back);
    free(x);
}
END_TEST

/* Random bits: all exponents, NaNs and infinities; then neighbours of the halfway points between two 16-bit numbers. */
static void fill(float *x, enum ht_dtype t)
{
    for (uint64_t i = 0; i < N32; i++) {
        x[i] = ht_bits_float((uint32_t)ht_random(1, i));
        if (i % 2) continue;
        uint16_t h = (uint16_t)ht_random(2, i);
        double halfway = ((double)expected_float(h, t) + (double)expected_float((uint16_t)(h + 1), t)) / 2;
        x[i] = (float)halfway;
        if (i % 3) x[i] = nextafterf(x[i], i % 4 ? INFINITY : -INFINITY);
    }
}

START_TEST(test_rounding)
{
    float *x = HT_NEW_ARRAY(float, N32);
    uint16_t *h = HT_NEW_ARRAY(uint16_t, N32);
    EACH_LEVEL_AND_TYPE(simd, t)
    {
        fill(x, t);
        simd->narrow(x, t, h, N32);
        for (int i = 0; i < N32; i++)
            if (h[i] != expected_half(x[i], t))
                ck_abort_msg("%s of %a: %04x, not %04x", ht_dtype_name(t), x[i], h[i], expected_half(x[i], t));
    }
    free(x);
    free(h);
}
END_TEST

/* Any number of workers, any length, nothing beyond the end. */
START_TEST(test_copies)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct ht_pool *pool = ht_pool_create(threads, NULL);
        for (int64_t n = 0; n < 300; n += 1 + n / 7) {
            float *x = random_floats(3, n, 2);
            for (enum ht_dtype t = HT_F32; t <= HT_BF16; t++) {
                struct guarded g16, g32;
                void *to = guarded_new(&g16, n * ht_dtype_bytes(t), 0xff);
                float *back = guarded_new(&g32, n * 4, 0xff);
                ht_round_copy(pool, x, to, t, n);
                ht_widen_copy(pool, to, t, back, n);
                for (int64_t i = 0; i < n; i++)
                    ck_assert(back[i] == (t == HT_F32 ? x[i] : expected_float(expected_half(x[i], t), t)));
                guarded_free(&g16);
                guarded_free(&g32);
            }
            free(x);
        }
        ht_pool_destroy(pool);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("convert");
    TCase *t = tcase_create("convert");
    tcase_add_test(t, test_every_half);
    tcase_add_test(t, test_rounding);
    tcase_add_test(t, test_copies);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
