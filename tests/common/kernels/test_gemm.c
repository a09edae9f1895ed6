/* Matrix products: against a triple loop in double, poisoned and guarded, and the same bits however they are cut. */
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/simd.h"
#include "tests/common/kernels/guarded.h"

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

static double expected_at(const struct problem *p, int64_t i, int64_t j)
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

/* Rows and columns cut at odd places give the same bits as the whole. */
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

int main(void)
{
    Suite *s = suite_create("gemm");
    TCase *t = tcase_create("gemm");
    tcase_add_test(t, test_against_double);
    tcase_add_test(t, test_cut_into_panels);
    tcase_add_test(t, test_avx2_is_avx512);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
