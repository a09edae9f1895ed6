/* AdamW: one step by hand, against the formula in double, and the same bits on every path and for every split. */
#include <float.h>
#include <stdio.h>

#include "common/kernels/adamw.h"
#include "tests/common/kernels/guarded.h"

static const struct ht_adamw config = {.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

/* First step, p = 1, g = 2, lr = 0.5, decay 0.1, betas 1/2 and 3/4, eps = 1, all exact in binary but for the decay:
     p = 1 (1 - 0.05) = 0.95
     m = 0 + 1/2 (2 - 0) = 1            v = 0 + 1/4 2 2 = 1
     bias corrections 1/2 and 1/4:      step size 0.5 / 0.5 = 1, root 1/2
     p = 0.95 - 1 * 1 / (1 / (1/2) + 1) = 0.95 - 1/3 */
START_TEST(test_by_hand)
{
    struct ht_adamw c = {.lr = 0.5, .beta1 = 0.5, .beta2 = 0.75, .eps = 1, .weight_decay = 0.1};
    struct ht_adamw_step s = ht_adamw_step(&c, 1, 1);
    float p = 1, m = 0, v = 0, g = 2;
    ht_adamw_update(&s, &p, &m, &v, &g, 1);
    ck_assert(m == 1 && v == 1);
    ck_assert_double_eq_tol(p, 0.95 - 1.0 / 3, 1e-7);
}
END_TEST

START_TEST(test_against_double)
{
    enum { N = 1001, STEPS = 5 };
    float *p = random_floats(1, N, 1), *m = random_floats(2, N, 0), *v = random_floats(3, N, 0);
    double dp[N], dm[N] = {0}, dv[N] = {0};
    for (int i = 0; i < N; i++) dp[i] = p[i];
    for (int step = 1; step <= STEPS; step++) {
        float *g = random_floats(10 + (uint64_t)step, N, 4);
        struct ht_adamw_step s = ht_adamw_step(&config, step, 0.125);
        ht_adamw_update_pool(NULL, &s, p, m, v, g, N);
        for (int i = 0; i < N; i++) {
            double gi = g[i] * 0.125;
            dp[i] *= 1 - config.lr * config.weight_decay;
            dm[i] = config.beta1 * dm[i] + (1 - config.beta1) * gi;
            dv[i] = config.beta2 * dv[i] + (1 - config.beta2) * gi * gi;
            double mh = dm[i] / (1 - pow(config.beta1, step)), vh = dv[i] / (1 - pow(config.beta2, step));
            dp[i] -= config.lr * mh / (sqrt(vh) + config.eps);
            assert_close(p[i], dp[i], 1e-6, "param", i);
            assert_close(m[i], dm[i], 1e-6, "m", i);
            assert_close(v[i], dv[i], 1e-6, "v", i);
        }
        free(g);
    }
    free(p);
    free(m);
    free(v);
}
END_TEST

/* A float that is likely to be awkward: special, denormal, huge, or any bits at all. */
static float awkward(uint64_t seed, uint64_t i)
{
    static const float special[] = {0.0f,    -0.0f,    INFINITY, -INFINITY, NAN,
                                    FLT_MAX, -FLT_MAX, FLT_MIN,  0x1p-149f, 1e-40f};
    uint64_t r = ht_random(seed, i);
    if (r % 8 == 0) return special[(r >> 8) % (sizeof(special) / sizeof(special[0]))];
    if (r % 8 == 1) return (float)(int8_t)(r >> 8) * 0x1p-149f;
    if (r % 8 < 5) return (float)(int32_t)(r >> 32) * 0x1p-31f;
    uint32_t bits = (uint32_t)(r >> 32);
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static void assert_same(const float *x, const float *y, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) && isnan(y[i])) continue;
        ck_assert_msg(memcmp(x + i, y + i, sizeof(float)) == 0, "%s[%d]: %a, not %a", what, (int)i, x[i], y[i]);
    }
}

struct state {
    struct guarded guard[3];
    float *p, *m, *v, *g;
};

static struct state state_new(int64_t n, uint64_t seed, bool positive_v)
{
    struct state s;
    float **arrays[] = {&s.p, &s.m, &s.v};
    for (uint64_t k = 0; k < 3; k++) {
        *arrays[k] = guarded_new(&s.guard[k], n * (int64_t)sizeof(float), 0xff);
        for (int64_t i = 0; i < n; i++) (*arrays[k])[i] = awkward(seed + k, (uint64_t)i);
    }
    for (int64_t i = 0; i < n && positive_v; i++) s.v[i] = fabsf(s.v[i]);
    s.g = malloc((size_t)n * sizeof(float) + 1);
    for (int64_t i = 0; i < n; i++) s.g[i] = awkward(seed + 3, (uint64_t)i);
    return s;
}

static void state_free(struct state *s)
{
    for (int k = 0; k < 3; k++) guarded_free(&s->guard[k]);
    free(s->g);
}

START_TEST(test_same_bits_on_every_path)
{
    const int64_t sizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 127, 129, 143, 1000, 20011};
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            int64_t n = sizes[k];
            struct ht_adamw_step step = ht_adamw_step(&config, 1 + (int64_t)seed, seed % 2 ? 1 : 0.3);
            struct state expected = state_new(n, seed * 10, seed > 2);
            ht_adamw_at(HT_SIMD_PORTABLE)(&step, expected.p, expected.m, expected.v, expected.g, n);
            for (int level = 1; level < HT_N_SIMD_LEVELS; level++) {
                ht_adamw_fn update = ht_adamw_at((enum ht_simd_level)level);
                if (!update) continue;
                struct state s = state_new(n, seed * 10, seed > 2);
                update(&step, s.p, s.m, s.v, s.g, n);
                assert_same(s.p, expected.p, n, "param");
                assert_same(s.m, expected.m, n, "m");
                assert_same(s.v, expected.v, n, "v");
                state_free(&s);
            }
            state_free(&expected);
        }
}
END_TEST

START_TEST(test_same_bits_for_every_split)
{
    enum { N = 1237 };
    struct ht_adamw_step step = ht_adamw_step(&config, 3, 1);
    struct state expected = state_new(N, 5, true);
    ht_adamw_update(&step, expected.p, expected.m, expected.v, expected.g, N);
    for (int threads = 1; threads <= 3; threads++) {
        struct ht_pool *pool = ht_pool_create(threads, NULL);
        struct state s = state_new(N, 5, true);
        ht_adamw_update_pool(pool, &step, s.p, s.m, s.v, s.g, N);
        assert_same(s.p, expected.p, N, "param");
        assert_same(s.v, expected.v, N, "v");
        state_free(&s);
        ht_pool_destroy(pool);
    }
    for (int64_t cut = 1; cut < N; cut += 97) { /* unaligned on purpose */
        struct state s = state_new(N, 5, true);
        ht_adamw_update(&step, s.p, s.m, s.v, s.g, cut);
        ht_adamw_update(&step, s.p + cut, s.m + cut, s.v + cut, s.g + cut, N - cut);
        assert_same(s.p, expected.p, N, "param");
        assert_same(s.m, expected.m, N, "m");
        assert_same(s.v, expected.v, N, "v");
        state_free(&s);
    }
    state_free(&expected);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("adamw");
    TCase *t = tcase_create("adamw");
    tcase_add_test(t, test_by_hand);
    tcase_add_test(t, test_against_double);
    tcase_add_test(t, test_same_bits_on_every_path);
    tcase_add_test(t, test_same_bits_for_every_split);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
