/*
 * LLaMA's loops: each against double on poisoned and guarded outputs of odd sizes, the same bits on every set of
 * instructions; and rotation of rows, whatever the split over workers.
 */
#include <stdio.h>

#include "common/base/array.h"
#include "common/kernels/rotary.h"
#include "common/kernels/simd.h"
#include "tests/common/kernels/guarded.h"

static const int64_t sizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 100, 257, 1000};

/* Runs the body for every level that this CPU has, with `simd` and `n` set. */
#define FOR_LEVELS_AND_SIZES(simd, n)                                                                                  \
    for (int level_ = 0; level_ < HT_N_SIMD_LEVELS; level_++)                                                          \
        for (size_t size_ = 0; size_ < HT_COUNT(sizes); size_++)                                                       \
            for (const struct ht_simd *simd = ht_simd_at((enum ht_simd_level)level_, HT_F32); simd; simd = NULL)       \
                for (int64_t n = sizes[size_], once_ = 1; once_; once_ = 0)

static float *output(struct guarded *g, int64_t n)
{
    return guarded_new(g, n * (int64_t)sizeof(float), 0xff);
}

START_TEST(test_rms_norm)
{
    const float eps = 1e-3f; /* large, so that leaving it out shows */
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gy, gd;
        float *x = random_floats(1, n, 0.1f), *w = random_floats(2, n, 2), *dy = random_floats(3, n, 1);
        float *res = random_floats(4, n, 1), *y = output(&gy, n), *dx = output(&gd, n), rrms;
        simd->rms_norm(x, w, eps, y, &rrms, n);
        double square = 0, dot = 0;
        for (int64_t i = 0; i < n; i++) square += (double)x[i] * x[i] / (double)n;
        double r = 1 / sqrt(square + eps);
        assert_close(rrms, r, 1e-6, "1/rms", 0);
        for (int64_t i = 0; i < n; i++) assert_close(y[i], x[i] * r * w[i], 1e-6, "y", i);
        for (int64_t i = 0; i < n; i++) dot += (double)dy[i] * w[i] * x[i] / (double)n;
        for (int residual = 0; residual < 2; residual++) {
            simd->rms_norm_backward(x, w, dy, rrms, residual ? res : NULL, dx, n);
            for (int64_t i = 0; i < n; i++) /* r dy w + dr/dx sum(dy w x) */
                assert_close(dx[i], r * dy[i] * w[i] - r * r * r * x[i] * dot + (residual ? res[i] : 0), 5e-6, "dx", i);
        }
        memcpy(y, res, (size_t)n * sizeof(float)); /* in place on the residual: the same bits */
        simd->rms_norm_backward(x, w, dy, rrms, y, y, n);
        ck_assert_mem_eq(y, dx, (size_t)n * sizeof(float));
        guarded_free(&gy);
        guarded_free(&gd);
        float *inputs[] = {x, w, dy, res};
        for (size_t i = 0; i < HT_COUNT(inputs); i++) free(inputs[i]);
    }
}
END_TEST

START_TEST(test_rms_norm_weight_grad)
{
    enum { ROWS = 37, GAP = 5 };
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gw;
        int64_t stride = n + GAP;
        float *x = random_floats(1, ROWS * stride, 1), *dy = random_floats(2, ROWS * stride, 1);
        float *rrms = random_floats(3, ROWS, 2), *dw = output(&gw, n);
        for (int64_t c = 0; c < n; c++) dw[c] = 0.5f; /* added to */
        simd->rms_norm_weight_grad(x, dy, rrms, ROWS, stride, n, dw);
        for (int64_t c = 0; c < n; c++) {
            double w = 0.5;
            for (int64_t r = 0; r < ROWS; r++) w += (double)dy[r * stride + c] * x[r * stride + c] * rrms[r];
            assert_close(dw[c], w, 1e-5, "dweight", c);
        }
        guarded_free(&gw);
        float *inputs[] = {x, dy, rrms};
        for (size_t i = 0; i < HT_COUNT(inputs); i++) free(inputs[i]);
    }
}
END_TEST

static double silu(double x)
{
    return x / (1 + exp(-x));
}

START_TEST(test_swiglu)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        struct guarded gy, gg, gd;
        float *gate = random_floats(1, n, 12), *up = random_floats(2, n, 2), *dy = random_floats(3, n, 1);
        float *y = output(&gy, n), *dgate = output(&gg, n), *d = output(&gd, n);
        gate[0] = _i ? 200.0f : -200.0f; /* both exponentials saturate: no NaN */
        memcpy(d, dy, (size_t)n * sizeof(float));
        simd->swiglu(gate, up, y, n);
        simd->swiglu_backward(gate, up, dgate, d, n);
        for (int64_t i = 0; i < n; i++) {
            double h = 1e-5, slope = (silu(gate[i] + h) - silu(gate[i] - h)) / (2 * h);
            assert_close(y[i], silu(gate[i]) * up[i], 1e-6, "swiglu", i);
            assert_close(dgate[i], dy[i] * up[i] * slope, 2e-6, "dgate", i);
            assert_close(d[i], dy[i] * silu(gate[i]), 1e-6, "dup", i);
        }
        struct guarded *guards[] = {&gy, &gg, &gd};
        for (size_t i = 0; i < HT_COUNT(guards); i++) guarded_free(guards[i]);
        float *inputs[] = {gate, up, dy};
        for (size_t i = 0; i < HT_COUNT(inputs); i++) free(inputs[i]);
    }
}
END_TEST

/* All of the above into one array; the levels must agree in every bit. */
static void fingerprint(const struct ht_simd *simd, int64_t n, float *out)
{
    enum { ROWS = 5 };
    float *x = random_floats(1, ROWS * n, 6), *y = random_floats(2, ROWS * n, 2), *w = random_floats(3, n, 1);
    float rrms[ROWS];
    for (int r = 0; r < ROWS; r++) simd->rms_norm(x + r * n, w, 1e-5f, out + r * n, &rrms[r], n);
    out += ROWS * n;
    simd->rms_norm_backward(x, w, y, rrms[0], x, out, n);
    simd->rms_norm_weight_grad(x, y, rrms, ROWS, n, n, out + n);
    simd->swiglu(x, y, out + 2 * n, n);
    memcpy(out + 3 * n, w, (size_t)n * sizeof(float));
    simd->swiglu_backward(x, y, out + 4 * n, out + 3 * n, n);
    memcpy(out + 5 * n, x, (size_t)n * 2 * sizeof(float));
    simd->rotate(w, y, out + 5 * n, out + 6 * n, n);
    free(x);
    free(y);
    free(w);
}

START_TEST(test_same_bits_on_every_level)
{
    FOR_LEVELS_AND_SIZES(simd, n)
    {
        int64_t total = 12 * n;
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

/* Heads of 2, 6, 128 and 266 elements (one, three, 64 and 133 frequencies: three rounds), rows that are longer than the
   heads. Positions up to 4096 show an angle that was computed in FP32. */
static const struct {
    int64_t batch, seq, heads, head_size, gap;
} turns[] = {{3, 5, 1, 2, 0}, {2, 7, 3, 6, 5}, {1, 4097, 1, 128, 1}, {1, 9, 2, 266, 3}};

START_TEST(test_rotation)
{
    int64_t D = turns[_i].head_size, T = turns[_i].seq, rows = turns[_i].batch * T;
    int64_t used = turns[_i].heads * D, stride = used + turns[_i].gap, n = rows * stride;
    struct ht_rotary rotary = {.seq = T, .heads = turns[_i].heads, .head_size = D, .stride = stride, .theta = 500};
    float *x = random_floats(1, n, 1);
    struct guarded gy, gz;
    float *y = output(&gy, n), *z = output(&gz, n);
    memcpy(y, x, (size_t)n * sizeof(float));
    memcpy(z, x, (size_t)n * sizeof(float));
    ht_rows_rotate(ht_simd(), &rotary, false, y, (struct ht_range){0, rows});
    for (int worker = 0; worker < 3; worker++)
        ht_rows_rotate(ht_simd(), &rotary, false, z, ht_range_split(rows, 4, worker, 3));
    ck_assert_mem_eq(y, z, (size_t)n * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < stride; i++) {
            int64_t d = i % D, half = D / 2;
            double angle = (double)(r % T) * pow(500, -2.0 * (double)(d % half) / (double)D);
            double at = x[r * stride + i], partner = i < used ? x[r * stride + (d < half ? i + half : i - half)] : 0;
            double expected = at * cos(angle) + (d < half ? -partner : partner) * sin(angle);
            if (i < used) assert_close(y[r * stride + i], expected, 2.5e-7, "rotated", r * stride + i);
            if (i >= used) ck_assert(y[r * stride + i] == x[r * stride + i]); /* not of a head: as before */
        }
    ht_rows_rotate(ht_simd(), &rotary, true, y, (struct ht_range){0, rows});
    for (int64_t i = 0; i < n; i++) assert_close(y[i], x[i], 5e-7, "rotated back", i);
    guarded_free(&gy);
    guarded_free(&gz);
    free(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("simd_llama");
    TCase *t = tcase_create("simd_llama");
    tcase_add_test(t, test_rms_norm);
    tcase_add_test(t, test_rms_norm_weight_grad);
    tcase_add_loop_test(t, test_swiglu, 0, 2);
    tcase_add_test(t, test_same_bits_on_every_level);
    tcase_add_loop_test(t, test_rotation, 0, HT_COUNT(turns));
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
