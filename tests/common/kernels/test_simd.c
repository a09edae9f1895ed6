/*
 * The element-wise and reducing loops: each against double, on poisoned and guarded outputs of odd sizes, and the same
 * bits on every set of instructions.
 */
#include <float.h>
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/simd.h"
#include "tests/common/kernels/guarded.h"

static const int64_t sizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 100, 257, 1000};

/* Runs `body` for every level that this CPU has, with `simd` and `n` set. */
#define FOR_LEVELS_AND_SIZES(simd, n)                                                                                  \
    for (int level_ = 0; level_ < HT_N_SIMD_LEVELS; level_++)                                                          \
        for (size_t size_ = 0; size_ < HT_COUNT(sizes); size_++)                                                       \
            for (const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level_, HT_F32); simd; simd = NULL)       \
                for (int64_t n = sizes[size_], once_ = 1; once_; once_ = 0)

static float *output(struct guarded *g, int64_t n)
{
    return guarded_new(g, n * (int64_t)sizeof(float), 0xff);
}

static double ulps(float got, double expected)
{
    float near = (float)expected;
    float ulp = nextafterf(fabsf(near), INFINITY) - fabsf(near);
    return fabs((double)got - expected) / ulp;
}

/* Over the whole range, denormal results included, within 2 ulp. */
START_TEST(test_exp)
{
    enum { N = 100003 };
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
        const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level, HT_F32);
        if (!simd) continue;
        float *x = random_floats(1, N, 103), *y = malloc(N * sizeof(float));
        double worst = 0;
        for (int i = 0; i < N; i++) x[i] = x[i] > 88.7f ? x[i] - 88.7f : x[i];
        simd->exp(x, y, N);
        for (int i = 0; i < N; i++) worst = fmax(worst, ulps(y[i], exp(x[i])));
        printf("exp: within %.2f ulp\n", worst);
        ck_assert_double_le(worst, 2);
        const float special[] = {-INFINITY, -200, INFINITY, 200, NAN, 0, -0.0f, FLT_MAX, -FLT_MAX, 1e-40f};
        const float expected[] = {0, 0, INFINITY, INFINITY, NAN, 1, 1, INFINITY, 0, 1};
        simd->exp(special, y, HT_COUNT(special));
        for (size_t i = 0; i < HT_COUNT(special); i++)
            ck_assert_msg(isnan(expected[i]) ? isnan(y[i]) : y[i] == expected[i], "exp(%g) = %g", special[i], y[i]);
        free(x);
        free(y);
    }
}
END_TEST

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

START_TEST(test_gelu)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gy, gd;
        float *x = random_floats(1, n, 12), *y = output(&gy, n), *d = output(&gd, n);
        for (int64_t i = 0; i < n; i++) d[i] = 1;
        simd->gelu(x, y, n);
        simd->gelu_backward(x, d, n);
        for (int64_t i = 0; i < n; i++) {
            double h = 1e-5, slope = (gelu(x[i] + h) - gelu(x[i] - h)) / (2 * h);
            assert_close(y[i], gelu(x[i]), 5e-7, "gelu", i);
            assert_close(d[i], slope, 2e-6, "gelu'", i);
        }
        guarded_free(&gy);
        guarded_free(&gd);
        free(x);
    }
}
END_TEST

START_TEST(test_norm)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gy, gd;
        float *x = random_floats(1, n, 3), *w = random_floats(2, n, 2), *b = random_floats(3, n, 1);
        float *dy = random_floats(4, n, 1), *res = random_floats(5, n, 1);
        float *y = output(&gy, n), *dx = output(&gd, n), mean, rstd;
        for (int64_t i = 0; i < n; i++) x[i] += 5; /* a mean that is far from 0 */
        simd->norm(x, w, b, y, &mean, &rstd, n);
        double m = 0, v = 0, m1 = 0, m2 = 0;
        for (int64_t i = 0; i < n; i++) m += (double)x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) v += (x[i] - m) * (x[i] - m) / (double)n;
        double r = 1 / sqrt(v + 1e-5);
        if (n == 1) r = rstd; /* the variance of one element is nothing but rounding */
        assert_close(mean, m, 1e-6, "mean", 0);
        assert_close(rstd, r, 1e-5, "rstd", 0);
        for (int64_t i = 0; i < n; i++) assert_close(y[i], (x[i] - m) * r * w[i] + b[i], 1e-5, "y", i);
        for (int64_t i = 0; i < n; i++) {
            m1 += (double)dy[i] * w[i] / (double)n;
            m2 += (double)dy[i] * w[i] * (x[i] - m) * r / (double)n;
        }
        for (int residual = 0; residual < 2; residual++) {
            simd->norm_backward(x, w, dy, mean, rstd, residual ? res : NULL, dx, n);
            for (int64_t i = 0; i < n && n > 1; i++) {
                double expected = r * ((double)dy[i] * w[i] - m1 - (x[i] - m) * r * m2) + (residual ? res[i] : 0);
                assert_close(dx[i], expected, 2e-5, "dx", i);
            }
        }
        memcpy(y, res, (size_t)n * sizeof(float)); /* in place on the residual: the same bits */
        simd->norm_backward(x, w, dy, mean, rstd, y, y, n);
        ck_assert_mem_eq(y, dx, (size_t)n * sizeof(float));
        guarded_free(&gy);
        guarded_free(&gd);
        float *inputs[] = {x, w, b, dy, res};
        for (size_t i = 0; i < HT_COUNT(inputs); i++) free(inputs[i]);
    }
}
END_TEST

START_TEST(test_column_sums)
{
    enum { ROWS = 37, GAP = 5 };
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gw, gb, gs;
        int64_t stride = n + GAP;
        float *x = random_floats(1, ROWS * stride, 1), *dy = random_floats(2, ROWS * stride, 1);
        float *mean = random_floats(3, ROWS, 1), *rstd = random_floats(4, ROWS, 2);
        float *dw = output(&gw, n), *db = output(&gb, n), *sum = output(&gs, n);
        for (int64_t c = 0; c < n; c++) dw[c] = db[c] = sum[c] = 0.5f; /* added to */
        simd->norm_weight_grad(x, dy, mean, rstd, ROWS, stride, n, dw, db);
        simd->column_sum(dy, ROWS, stride, n, sum);
        for (int64_t c = 0; c < n; c++) {
            double w = 0.5, b = 0.5;
            for (int64_t r = 0; r < ROWS; r++) {
                double d = dy[r * stride + c];
                w += d * ((double)x[r * stride + c] - mean[r]) * rstd[r];
                b += d;
            }
            assert_close(dw[c], w, 1e-5, "dweight", c);
            assert_close(db[c], b, 1e-5, "dbias", c);
            assert_close(sum[c], b, 1e-5, "sum", c);
        }
        guarded_free(&gw);
        guarded_free(&gb);
        guarded_free(&gs);
        float *inputs[] = {x, dy, mean, rstd};
        for (size_t i = 0; i < HT_COUNT(inputs); i++) free(inputs[i]);
    }
}
END_TEST

START_TEST(test_softmax)
{
    enum { TAIL = 3 };
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gs, ga, gd;
        float *raw = random_floats(1, n, 40), *dp0 = random_floats(2, n, 1), scale = 0.3f;
        float *s = output(&gs, n + TAIL), *again = output(&ga, n + TAIL), *dp = output(&gd, n);
        memcpy(s, raw, (size_t)n * sizeof(float));
        memcpy(again, raw, (size_t)n * sizeof(float));
        memcpy(dp, dp0, (size_t)n * sizeof(float));
        float lse = simd->softmax(s, n, n + TAIL, scale);
        simd->softmax_again(again, n, n + TAIL, scale, lse);
        simd->softmax_backward(s, dp, 0.25f, scale, n);
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += exp((double)scale * raw[i]);
        assert_close(lse, log(sum), 1e-6, "log-sum-exp", 0);
        for (int64_t i = 0; i < n; i++) {
            assert_close(s[i], exp((double)scale * raw[i]) / sum, 1e-6, "softmax", i);
            assert_close(again[i], s[i], 3e-6, "again", i);
            assert_close(dp[i], (double)s[i] * ((double)dp0[i] - 0.25) * scale, 1e-6, "backward", i);
        }
        for (int64_t i = n; i < n + TAIL; i++) ck_assert(s[i] == 0 && again[i] == 0);
        guarded_free(&gs);
        guarded_free(&ga);
        guarded_free(&gd);
        free(raw);
        free(dp0);
    }
}
END_TEST

START_TEST(test_cross_entropy)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        for (float range = 1; range <= 1000; range *= 10) {
            struct guarded gl;
            float *raw = random_floats(1, n, range), *logits = output(&gl, n), scale = 0.01f;
            int64_t target = n / 2;
            memcpy(logits, raw, (size_t)n * sizeof(float));
            double loss = simd->cross_entropy(logits, n, target, scale), max = raw[0], sum = 0;
            for (int64_t i = 0; i < n; i++) max = fmax(max, raw[i]);
            for (int64_t i = 0; i < n; i++) sum += exp(raw[i] - max);
            assert_close(loss, log(sum) + max - raw[target], 1e-6, "loss", 0);
            for (int64_t i = 0; i < n; i++)
                assert_close(logits[i], (exp(raw[i] - max) / sum - (i == target)) * scale, 1e-7, "dlogits", i);
            guarded_free(&gl);
            free(raw);
        }
    }
}
END_TEST

START_TEST(test_dot_and_add)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gz;
        float *x = random_floats(1, n, 1), *y = random_floats(2, n, 1), *z = output(&gz, n);
        double dot = 0;
        for (int64_t i = 0; i < n; i++) dot += (double)x[i] * y[i];
        assert_close(simd->dot(x, y, n), dot, 1e-5, "dot", 0);
        simd->add(x, y, z, n);
        for (int64_t i = 0; i < n; i++) ck_assert(z[i] == x[i] + y[i]);
        simd->add(x, y, x, n);
        ck_assert_mem_eq(x, z, (size_t)n * sizeof(float));
        guarded_free(&gz);
        free(x);
        free(y);
    }
}
END_TEST

/* Everything above in a row into one array; the levels must agree in every bit. */
static void fingerprint(const struct ht_simd *simd, int64_t n, float *out)
{
    enum { ROWS = 5 };
    float *x = random_floats(1, ROWS * n, 6), *y = random_floats(2, ROWS * n, 2), *w = random_floats(3, n, 1);
    float mean[ROWS], rstd[ROWS];
    for (int r = 0; r < ROWS; r++) simd->norm(x + r * n, w, y, out + r * n, &mean[r], &rstd[r], n);
    out += ROWS * n;
    simd->norm_backward(x, w, y, mean[0], rstd[0], x, out, n);
    simd->norm_weight_grad(x, y, mean, rstd, ROWS, n, n, out + n, out + 2 * n);
    simd->column_sum(x, ROWS, n, n, out + 3 * n);
    simd->gelu(x, out + 4 * n, n);
    memcpy(out + 5 * n, y, (size_t)n * sizeof(float));
    simd->gelu_backward(x, out + 5 * n, n);
    simd->exp(x, out + 6 * n, n);
    memcpy(out + 7 * n, x, (size_t)n * sizeof(float));
    out[10 * n] = simd->softmax(out + 7 * n, n, n, 0.5f);
    memcpy(out + 8 * n, y, (size_t)n * sizeof(float));
    simd->softmax_backward(out + 7 * n, out + 8 * n, 0.1f, 0.5f, n);
    memcpy(out + 9 * n, x, (size_t)n * sizeof(float));
    out[10 * n + 1] = (float)simd->cross_entropy(out + 9 * n, n, 0, 0.1f);
    out[10 * n + 2] = simd->dot(x, y, n);
    free(x);
    free(y);
    free(w);
}

START_TEST(test_same_bits_on_every_level)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        int64_t total = 15 * n + 3;
        float *expected = calloc((size_t)total, sizeof(float)), *got = calloc((size_t)total, sizeof(float));
        fingerprint(ht_simd_at(HT_SIMD_PORTABLE, HT_F32), n, expected);
        fingerprint(simd, n, got);
        for (int64_t i = 0; i < total; i++)
            ck_assert_msg(memcmp(got + i, expected + i, sizeof(float)) == 0, "n %d, level %d, value %d: %a, not %a",
                          (int)n, level_, (int)i, got[i], expected[i]);
        free(expected);
        free(got);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("simd");
    TCase *t = tcase_create("simd");
    tcase_add_test(t, test_exp);
    tcase_add_test(t, test_gelu);
    tcase_add_test(t, test_norm);
    tcase_add_test(t, test_column_sums);
    tcase_add_test(t, test_softmax);
    tcase_add_test(t, test_cross_entropy);
    tcase_add_test(t, test_dot_and_add);
    tcase_add_test(t, test_same_bits_on_every_level);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
