/* Matrix products: against a triple loop in double, poisoned and guarded, and the same bits however they are cut. */
#include <stdio.h>

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/kernels/convert.h"
#include "common/kernels/simd.h"
#include "tests/common/kernels/guarded.h"
#include "tests/support/sanitized.h"

/* Around the tile (4x8, 6x16, 8x32) and block (96, 384, 256) sizes, and beyond them. */
static const int64_t sizes[][3] = {{0, 3, 4},    {3, 0, 4},      {1, 1, 1},       {2, 3, 0},
                                   {4, 8, 5},    {6, 16, 7},     {8, 32, 256},    {7, 31, 9},
                                   {9, 33, 257}, {13, 100, 30},  {97, 65, 40},    {200, 50, 300},
                                   {5, 385, 11}, {96, 384, 256}, {101, 391, 263}, {1, 900, 520}};

/* Rows of A, B, C are this many floats longer than they need to be. */
enum { SLACK = 3 };

struct problem {
    struct ht_gemm g;
    float *a, *b, *c0; /* c0: (m, c_stride) old contents when adding */
};

static struct problem make(const int64_t size[3], int variant)
{
    struct problem p = {.g = {.a_transposed = variant & 1,
                              .b_transposed = variant >> 1 & 1,
                              .add = variant >> 2 & 1,
                              .m = size[0],
                              .n = size[1],
                              .k = size[2]}};
    struct ht_gemm *g = &p.g;
    g->a_stride = (g->a_transposed ? g->m : g->k) + SLACK;
    g->b_stride = (g->b_transposed ? g->k : g->n) + SLACK;
    g->c_stride = g->n + SLACK;
    g->a = p.a = random_floats(1, (g->a_transposed ? g->k : g->m) * g->a_stride, 1);
    g->b = p.b = random_floats(2, (g->b_transposed ? g->n : g->k) * g->b_stride, 1);
    p.c0 = random_floats(3, g->m * g->c_stride, 1);
    return p;
}

static void destroy(struct problem *p)
{
    free(p->a);
    free(p->b);
    free(p->c0);
}

UNSANITIZED static double expected_at(const struct problem *p, int64_t i, int64_t j)
{
    const struct ht_gemm *g = &p->g;
    double sum = g->add ? p->c0[i * g->c_stride + j] : 0;
    for (int64_t q = 0; q < g->k; q++) {
        double a = g->a_transposed ? p->a[q * g->a_stride + i] : p->a[i * g->a_stride + q];
        double b = g->b_transposed ? p->b[j * g->b_stride + q] : p->b[q * g->b_stride + j];
        sum += a * b;
    }
    return sum;
}

static float *new_c(const struct problem *p, struct guarded *guard)
{
    int64_t bytes = p->g.m * p->g.c_stride * (int64_t)sizeof(float);
    float *c = guarded_new(guard, bytes, 0xff);
    if (p->g.add) memcpy(c, p->c0, (size_t)bytes);
    return c;
}

START_TEST(test_against_double)
{
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
        const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level, HT_F32);
        if (!simd) continue;
        for (size_t s = 0; s < HT_COUNT(sizes); s++)
            for (int variant = 0; variant < 8; variant++) {
                struct problem p = make(sizes[s], variant);
                struct guarded guard;
                float *c = p.g.c = new_c(&p, &guard);
                simd->gemm(&p.g);
                for (int64_t i = 0; i < p.g.m; i++) {
                    for (int64_t j = 0; j < p.g.n; j++)
                        assert_close(c[i * p.g.c_stride + j], expected_at(&p, i, j), 2e-5, "c", i * p.g.n + j);
                    for (int64_t j = p.g.n; j < p.g.c_stride && !p.g.add; j++) /* between the rows: untouched */
                        ck_assert(isnan(c[i * p.g.c_stride + j]));
                }
                guarded_free(&guard);
                destroy(&p);
            }
    }
}
END_TEST

/* Rows and columns cut at odd positions give the same bits as the whole. */
START_TEST(test_cut_into_panels)
{
    const int64_t size[3] = {101, 391, 263};
    for (int variant = 0; variant < 8; variant++) {
        struct problem p = make(size, variant);
        struct guarded whole_guard, cut_guard;
        float *whole = new_c(&p, &whole_guard), *cut = new_c(&p, &cut_guard);
        p.g.c = whole;
        ht_simd()->gemm(&p.g);
        const int64_t rows[] = {0, 1, 37, 101}, columns[] = {0, 130, 135, 391};
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++) {
                struct ht_gemm g = p.g;
                g.m = rows[r + 1] - rows[r];
                g.n = columns[c + 1] - columns[c];
                g.a = p.a + (g.a_transposed ? rows[r] : rows[r] * g.a_stride);
                g.b = p.b + (g.b_transposed ? columns[c] * g.b_stride : columns[c]);
                g.c = cut + rows[r] * g.c_stride + columns[c];
                ht_simd()->gemm(&g);
            }
        ck_assert_mem_eq(whole, cut, (size_t)(p.g.m * p.g.c_stride) * sizeof(float));
        guarded_free(&whole_guard);
        guarded_free(&cut_guard);
        destroy(&p);
    }
}
END_TEST

START_TEST(test_avx2_is_avx512)
{
    const struct ht_simd *narrow = ht_simd_at(HT_SIMD_AVX2, HT_F32), *wide = ht_simd_at(HT_SIMD_AVX512, HT_F32);
    if (!narrow || !wide) return;
    for (size_t s = 0; s < HT_COUNT(sizes); s++)
        for (int variant = 0; variant < 8; variant++) {
            struct problem p = make(sizes[s], variant);
            struct guarded a, b;
            float *x = new_c(&p, &a), *y = new_c(&p, &b);
            p.g.c = x;
            narrow->gemm(&p.g);
            p.g.c = y;
            wide->gemm(&p.g);
            ck_assert_mem_eq(x, y, (size_t)(p.g.m * p.g.c_stride) * sizeof(float));
            guarded_free(&a);
            guarded_free(&b);
            destroy(&p);
        }
}
END_TEST

/* ---- 16 bit ---- */

UNSANITIZED static float rounded(float x, enum ht_dtype t)
{
    if (t == HT_F32) return x;
    return t == HT_F16 ? ht_f16_to_f32(ht_f32_to_f16(x)) : ht_bf16_to_f32(ht_f32_to_bf16(x));
}

/* x as `type`, in a new array; what was rounded stays in x. */
static void *in_type(float *x, int64_t n, enum ht_dtype type)
{
    void *h = malloc((size_t)(n + 1) * 4);
    ht_round_copy(NULL, x, h, type, n);
    for (int64_t i = 0; i < n; i++) x[i] = rounded(x[i], type);
    return h;
}

/* Every pair of types, C rounded and kept in every way, chains that start from a residual, a bias or both: the bits of
   the product in FP32 of the same numbers, rounded at the end. */
static void check_types(const struct ht_simd *simd, const int64_t size[3], int variant, int types)
{
    static const struct ht_stored stored[] = {
        {HT_F32, HT_F32}, {HT_F16, HT_F16}, {HT_BF16, HT_BF16}, {HT_F16, HT_F32}, {HT_BF16, HT_F32}};
    struct problem p = make(size, variant & 3);
    struct ht_gemm wide = p.g, g = p.g;
    g.a_type = (enum ht_dtype)(types % 3);
    g.b_type = (enum ht_dtype)(types / 3 % 3);
    g.c_stored = stored[types / 9];
    void *a = in_type(p.a, (g.a_transposed ? g.k : g.m) * g.a_stride, g.a_type);
    void *b = in_type(p.b, (g.b_transposed ? g.n : g.k) * g.b_stride, g.b_type);
    float *bias = random_floats(4, g.n, 1), *sum = random_floats(5, g.m * g.c_stride, 1);
    void *residual = in_type(p.c0, g.m * g.c_stride, g.a_type), *bias16 = in_type(bias, g.n, g.b_type);
    struct guarded guard;
    void *c = guarded_new(&guard, g.m * g.c_stride * ht_dtype_bytes(g.c_stored.as), 0xff);
    g.a = a;
    g.b = b;
    g.c = c;
    g.residual = variant & 4 ? residual : NULL;
    g.bias = variant & 8 ? bias16 : NULL;
    simd->gemm(&g);
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.n; j++)
            sum[i * g.c_stride + j] = g.residual && g.bias ? p.c0[i * g.c_stride + j] + bias[j]
                                      : g.residual         ? p.c0[i * g.c_stride + j]
                                      : g.bias             ? bias[j]
                                                           : 0;
    wide.add = g.residual || g.bias;
    wide.c = sum;
    simd->gemm(&wide);
    for (int64_t i = 0; i < g.m; i++)
        for (int64_t j = 0; j < g.c_stride; j++) {
            float got, expected = rounded(sum[i * g.c_stride + j], g.c_stored.round);
            simd->widen(ht_element(c, g.c_stored.as, i * g.c_stride + j), g.c_stored.as, &got, 1);
            if (j < g.n ? got != expected : !isnan(got)) /* between the rows: untouched */
                ck_abort_msg("types %d, variant %d, c[%d,%d]: %a, not %a", types, variant, (int)i, (int)j, got,
                             expected);
        }
    guarded_free(&guard);
    void *buffers[] = {a, b, bias, sum, residual, bias16};
    for (size_t i = 0; i < HT_COUNT(buffers); i++) free(buffers[i]);
    destroy(&p);
}

static const int64_t typed_sizes[][3] = {{0, 3, 4},    {2, 3, 0},    {1, 1, 1},       {7, 31, 9},     {9, 33, 257},
                                         {97, 65, 40}, {5, 385, 11}, {101, 391, 263}, {387, 34, 300}, {96, 384, 256}};

START_TEST(test_types)
{
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
        const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level, HT_F32);
        for (int types = 0; types < 45 && simd; types++)
            for (int k = 0; k < 3; k++) /* three of the sizes and variants at a time; all meet in the end */
                check_types(simd, typed_sizes[(size_t)(types + 3 * k + _i) % HT_COUNT(typed_sizes)],
                            (types + 5 * k + 7 * _i) % 16, types);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gemm");
    TCase *t = tcase_create("gemm");
    tcase_add_test(t, test_against_double);
    tcase_add_test(t, test_cut_into_panels);
    tcase_add_test(t, test_avx2_is_avx512);
    tcase_add_loop_test(t, test_types, 0, SANITIZED ? 3 : 10);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
