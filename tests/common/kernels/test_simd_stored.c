/*
 * The loops over 16-bit arrays: on every set of instructions the same bits as the portable ones over the same numbers
 * in FP32 (which test_simd.c and test_simd_llama.c hold to double), rounded by base/half.h. Outputs are poisoned and
 * guarded.
 */
#include "common/base/array.h"
#include "common/base/half.h"
#include "common/kernels/convert.h"
#include "common/kernels/simd.h"
#include "tests/common/kernels/guarded.h"

/* Around a vector (4, 8, 16), the 16 lanes and the span of 256. */
static const int64_t sizes[] = {1, 3, 15, 16, 17, 33, 100, 255, 256, 257, 512, 700};
enum { ROWS = 3, GAP = 5, N_ARRAYS = 16 };

static uint16_t narrow(float x, enum ht_dtype t)
{
    return t == HT_F16 ? ht_f32_to_f16(x) : ht_f32_to_bf16(x);
}

static float widen(uint16_t h, enum ht_dtype t)
{
    return t == HT_F16 ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

/* Arrays of the same numbers in 16 bit and in FP32, freed together. */
struct arrays {
    enum ht_dtype type;
    int n;
    struct guarded guards[N_ARRAYS];
    uint16_t *half[N_ARRAYS];
    float *wide[N_ARRAYS];
    int64_t elements[N_ARRAYS];
};

/* Numbers in (-a, a), or for a = 0 poison. Returns its index. */
static int array(struct arrays *s, int64_t n, float a)
{
    int k = s->n++;
    s->half[k] = guarded_new(&s->guards[k], n * 2, 0xff);
    s->wide[k] = random_floats((uint64_t)k, n, a);
    s->elements[k] = n;
    for (int64_t i = 0; i < n && a > 0; i++) {
        s->half[k][i] = narrow(s->wide[k][i], s->type);
        s->wide[k][i] = widen(s->half[k][i], s->type);
    }
    return k;
}

/* Checks that the 16-bit output is the FP32 output rounded. */
static void same(const struct arrays *s, int k, const char *what)
{
    for (int64_t i = 0; i < s->elements[k]; i++)
        if (s->half[k][i] != narrow(s->wide[k][i], s->type))
            ck_abort_msg("%s in %s, element %d of %d: %04x, not %04x", what, ht_dtype_name(s->type), (int)i,
                         (int)s->elements[k], s->half[k][i], narrow(s->wide[k][i], s->type));
}

static void free_arrays(struct arrays *s)
{
    for (int k = 0; k < s->n; k++) {
        guarded_free(&s->guards[k]);
        free(s->wide[k]);
    }
}

#define H(k) a.half[k]
#define W(k) a.wide[k]

static void check_elements(const struct ht_simd *simd, const struct ht_simd *ref, int64_t n)
{
    struct arrays a = {.type = simd->stored};
    int x = array(&a, n, 5), y = array(&a, n, 2), out = array(&a, n, 0), out2 = array(&a, n, 0), d = array(&a, n, 1);
    simd->gelu(H(x), H(out), n);
    ref->gelu(W(x), W(out), n);
    same(&a, out, "gelu");
    simd->add(H(x), H(y), H(out), n);
    ref->add(W(x), W(y), W(out), n);
    same(&a, out, "add");
    simd->swiglu(H(x), H(y), H(out), n);
    ref->swiglu(W(x), W(y), W(out), n);
    same(&a, out, "swiglu");
    ck_assert(simd->dot(H(x), H(y), n) == ref->dot(W(x), W(y), n));
    simd->swiglu_backward(H(x), H(y), H(out2), H(d), n);
    ref->swiglu_backward(W(x), W(y), W(out2), W(d), n);
    same(&a, out2, "swiglu backward, gate");
    same(&a, d, "swiglu backward, up");
    int e = array(&a, n, 1), low = array(&a, n, 1), high = array(&a, n, 1);
    simd->gelu_backward(H(x), H(e), n);
    ref->gelu_backward(W(x), W(e), n);
    same(&a, e, "gelu backward");
    simd->rotate(W(x), W(y), H(low), H(high), n);
    ref->rotate(W(x), W(y), W(low), W(high), n);
    same(&a, low, "rotate, low");
    same(&a, high, "rotate, high");
    float *dp = random_floats(9, n, 1), *expected = random_floats(9, n, 1);
    simd->softmax_backward(H(x), dp, 0.25f, 0.3f, n);
    ref->softmax_backward(W(x), expected, 0.25f, 0.3f, n);
    ck_assert_mem_eq(dp, expected, (size_t)n * sizeof(float));
    free(dp);
    free(expected);
    free_arrays(&a);
}

static void check_norms(const struct ht_simd *simd, const struct ht_simd *ref, int64_t n)
{
    struct arrays a = {.type = simd->stored};
    int x = array(&a, n, 3), w = array(&a, n, 2), b = array(&a, n, 1), dy = array(&a, n, 1), more = array(&a, n, 1);
    int y = array(&a, n, 0), rms = array(&a, n, 0), dx = array(&a, n, 0);
    float got[3], expected[3];
    simd->norm(H(x), H(w), H(b), H(y), &got[0], &got[1], n);
    ref->norm(W(x), W(w), W(b), W(y), &expected[0], &expected[1], n);
    same(&a, y, "norm");
    simd->rms_norm(H(x), H(w), 1e-5f, H(rms), &got[2], n);
    ref->rms_norm(W(x), W(w), 1e-5f, W(rms), &expected[2], n);
    same(&a, rms, "rms norm");
    ck_assert_mem_eq(got, expected, sizeof(got)); /* the statistics are FP32 */
    for (int residual = 0; residual < 2; residual++) {
        simd->norm_backward(H(x), H(w), H(dy), got[0], got[1], residual ? H(more) : NULL, H(dx), n);
        ref->norm_backward(W(x), W(w), W(dy), got[0], got[1], residual ? W(more) : NULL, W(dx), n);
        same(&a, dx, "norm backward");
        simd->rms_norm_backward(H(x), H(w), H(dy), got[2], residual ? H(more) : NULL, H(dx), n);
        ref->rms_norm_backward(W(x), W(w), W(dy), got[2], residual ? W(more) : NULL, W(dx), n);
        same(&a, dx, "rms norm backward");
    }
    simd->rms_norm_backward(H(x), H(w), H(dy), got[2], H(more), H(more), n); /* in place on the residual */
    ck_assert_mem_eq(H(more), H(dx), (size_t)n * 2);
    free_arrays(&a);
}

static void check_columns(const struct ht_simd *simd, const struct ht_simd *ref, int64_t n)
{
    struct arrays a = {.type = simd->stored};
    int64_t stride = n + GAP;
    int x = array(&a, ROWS * stride, 3), dy = array(&a, ROWS * stride, 1);
    float mean[ROWS] = {0.5f, -1, 2}, rstd[ROWS] = {1, 2, 0.3f};
    float *got = random_floats(1, 4 * n, 1), *expected = random_floats(1, 4 * n, 1);
    simd->norm_weight_grad(H(x), H(dy), mean, rstd, ROWS, stride, n, got, got + n);
    ref->norm_weight_grad(W(x), W(dy), mean, rstd, ROWS, stride, n, expected, expected + n);
    simd->rms_norm_weight_grad(H(x), H(dy), rstd, ROWS, stride, n, got + 2 * n);
    ref->rms_norm_weight_grad(W(x), W(dy), rstd, ROWS, stride, n, expected + 2 * n);
    simd->column_sum(H(x), ROWS, stride, n, got + 3 * n);
    ref->column_sum(W(x), ROWS, stride, n, expected + 3 * n);
    ck_assert_mem_eq(got, expected, (size_t)(4 * n) * sizeof(float)); /* added in FP32 */
    free(got);
    free(expected);
    free_arrays(&a);
}

static void check_store(const struct ht_simd *simd, int64_t n)
{
    float *x = random_floats(4, n, 3);
    for (enum ht_dtype t = HT_F16; t <= HT_BF16; t++) {
        struct guarded g16, g32;
        uint16_t *h = guarded_new(&g16, n * 2, 0xff);
        float *y = guarded_new(&g32, n * 4, 0xff);
        simd->store(x, (struct ht_stored){t, t}, h, n);
        simd->store(x, (struct ht_stored){t, HT_F32}, y, n);
        for (int64_t i = 0; i < n; i++) ck_assert(h[i] == narrow(x[i], t) && y[i] == widen(h[i], t));
        guarded_free(&g16);
        guarded_free(&g32);
    }
    free(x);
}

START_TEST(test_all)
{
    const struct ht_simd *ref = ht_simd_at(HT_SIMD_PORTABLE, HT_F32);
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++)
        for (enum ht_dtype t = HT_F16; t <= HT_BF16; t++) {
            const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level, t);
            for (size_t s = 0; s < HT_COUNT(sizes) && simd; s++) {
                ck_assert_int_eq(simd->stored, t);
                check_elements(simd, ref, sizes[s]);
                check_norms(simd, ref, sizes[s]);
                check_columns(simd, ref, sizes[s]);
                check_store(simd, sizes[s]);
            }
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("simd_stored");
    TCase *t = tcase_create("simd_stored");
    tcase_add_test(t, test_all);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
