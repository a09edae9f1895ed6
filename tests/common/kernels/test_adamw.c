/* AdamW: one step by hand, against the formula in double, and the same bits on every path, for every split and every
   alignment, in all types. */
#include <float.h>
#include <stdio.h>

#include "common/base/half.h"
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

static uint16_t rounded(float x, enum ht_dtype type)
{
    return type == HT_F16 ? ht_f32_to_f16(x) : ht_f32_to_bf16(x);
}

static float widened(uint16_t x, enum ht_dtype type)
{
    return type == HT_F16 ? ht_f16_to_f32(x) : ht_bf16_to_f32(x);
}

struct types {
    enum ht_dtype grad, copy; /* copy F32: none */
};
static const struct types all_types[] = {{HT_F32, HT_F32},  {HT_F32, HT_F16},  {HT_F32, HT_BF16},
                                         {HT_F16, HT_F32},  {HT_F16, HT_F16},  {HT_F16, HT_BF16},
                                         {HT_BF16, HT_F32}, {HT_BF16, HT_F16}, {HT_BF16, HT_BF16}};

/* Guarded arrays that begin `skew` elements beyond a cache line, the copy and the gradient elsewhere in theirs. */
struct state {
    struct guarded guard[5];
    float *wide; /* the gradients in FP32 */
    struct ht_adamw_row row;
};

static struct state state_new(int64_t n, uint64_t seed, bool positive_v, struct types types, int64_t skew)
{
    struct state s = {.row = {.n = n, .grad_type = types.grad, .copy_type = types.copy}};
    float **arrays[] = {&s.row.param, &s.row.m, &s.row.v};
    for (uint64_t k = 0; k < 3; k++) {
        *arrays[k] = (float *)guarded_new(&s.guard[k], (n + skew) * 4, 0xff) + skew;
        for (int64_t i = 0; i < n; i++) (*arrays[k])[i] = awkward(seed + k, (uint64_t)i);
    }
    for (int64_t i = 0; i < n && positive_v; i++) s.row.v[i] = fabsf(s.row.v[i]);
    s.wide = malloc((size_t)n * 4 + 1);
    void *grad = (float *)guarded_new(&s.guard[3], (n + 2 * skew) * 4, 0xff) + 2 * skew;
    for (int64_t i = 0; i < n; i++) {
        s.wide[i] = awkward(seed + 3, (uint64_t)i);
        if (types.grad == HT_F32) ((float *)grad)[i] = s.wide[i];
        if (types.grad == HT_F32) continue;
        ((uint16_t *)grad)[i] = rounded(s.wide[i], types.grad);
        s.wide[i] = widened(((uint16_t *)grad)[i], types.grad);
    }
    s.row.grad = grad;
    uint16_t *copy = (uint16_t *)guarded_new(&s.guard[4], (n + 3 * skew) * 2, 0xff) + 3 * skew;
    if (types.copy != HT_F32) s.row.copy = copy;
    return s;
}

static void state_free(struct state *s)
{
    for (int k = 0; k < 5; k++) guarded_free(&s->guard[k]);
    free(s->wide);
}

/* Bits equal, but for which NaN. */
static void assert_floats(const float *x, const float *y, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) && isnan(y[i])) continue;
        if (memcmp(x + i, y + i, sizeof(float)) != 0) ck_abort_msg("%s[%d]: %a, not %a", what, (int)i, x[i], y[i]);
    }
}

/* s, stepped, is what the FP32 step of the widened gradients gives, and the copy is that, rounded. */
static void assert_stepped(const struct state *s, const struct state *expected)
{
    const struct ht_adamw_row *r = &s->row, *e = &expected->row;
    assert_floats(r->param, e->param, r->n, "param");
    assert_floats(r->m, e->m, r->n, "m");
    assert_floats(r->v, e->v, r->n, "v");
    for (int64_t i = 0; i < r->n && r->copy; i++) {
        if (isnan(e->param[i]) && isnan(widened(r->copy[i], r->copy_type))) continue;
        if (r->copy[i] != rounded(e->param[i], r->copy_type))
            ck_abort_msg("copy[%d]: %04x of %a", (int)i, r->copy[i], e->param[i]);
    }
}

/* The definition: FP32, one element after another. */
static struct state by_definition(const struct ht_adamw_step *step, int64_t n, uint64_t seed, bool positive_v,
                                  struct types types)
{
    struct state s = state_new(n, seed, positive_v, types, 0);
    const struct ht_adamw_row *r = &s.row;
    ht_adamw_at(HT_SIMD_PORTABLE)(
        step, &(struct ht_adamw_row){.param = r->param, .m = r->m, .v = r->v, .grad = s.wide, .n = n});
    return s;
}

START_TEST(test_same_bits_on_every_path)
{
    const int64_t sizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 129, 143, 1000, 20011};
    const struct types types = all_types[_i];
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
        for (uint64_t seed = 0; seed < 6; seed++) {
            int64_t n = sizes[k];
            struct ht_adamw_step step = ht_adamw_step(&config, 1 + (int64_t)seed, seed % 2 ? 1 : 0.3);
            struct state expected = by_definition(&step, n, seed * 10, seed > 2, types);
            for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
                ht_adamw_fn update = ht_adamw_at((enum ht_simd_level)level);
                for (int64_t skew = 0; update && skew < (n < 200 ? 33 : 3); skew++) {
                    struct state s = state_new(n, seed * 10, seed > 2, types, skew);
                    update(&step, &s.row);
                    assert_stepped(&s, &expected);
                    state_free(&s);
                }
            }
            state_free(&expected);
        }
}
END_TEST

START_TEST(test_same_bits_for_every_split)
{
    enum { N = 1237 };
    const struct types types = all_types[_i];
    struct ht_adamw_step step = ht_adamw_step(&config, 3, 1);
    struct state expected = by_definition(&step, N, 5, true, types);
    for (int threads = 1; threads <= 3; threads++) {
        struct ht_pool *pool = ht_pool_create(threads, NULL);
        struct state s = state_new(N, 5, true, types, 0);
        ht_adamw_update_row(pool, &step, &s.row);
        assert_stepped(&s, &expected);
        state_free(&s);
        ht_pool_destroy(pool);
    }
    for (int64_t cut = 1; cut < N; cut += 97) { /* unaligned on purpose */
        struct state s = state_new(N, 5, true, types, 1);
        struct ht_adamw_row first = ht_adamw_slice(&s.row, 0, cut), rest = ht_adamw_slice(&s.row, cut, N);
        ht_adamw_update_row(NULL, &step, &rest);
        ht_adamw_update_row(NULL, &step, &first);
        assert_stepped(&s, &expected);
        state_free(&s);
    }
    state_free(&expected);
}
END_TEST

/* A step of size 0 leaves p as it is, and the copy is p rounded: every number of 16 bits, what lies just beside it, and
   halfway to the next, where the even one is meant. */
START_TEST(test_copy_rounds)
{
    enum { N = 5 << 16 };
    const enum ht_dtype type = _i ? HT_BF16 : HT_F16;
    const struct ht_adamw_step step = {.grad_scale = 1, .keep = 1, .beta2 = 1, .root = 1, .eps = 1};
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
        ht_adamw_fn update = ht_adamw_at((enum ht_simd_level)level);
        if (!update) continue;
        struct ht_adamw_row row = {.n = N, .copy_type = type};
        row.param = calloc(N, 4), row.m = calloc(N, 4), row.v = calloc(N, 4), row.copy = calloc(N, 2);
        for (uint32_t h = 0; h < 1 << 16; h++) {
            float x = widened((uint16_t)h, type), next = widened((uint16_t)(h + 1), type);
            float *five = row.param + 5 * h;
            five[0] = x, five[1] = nextafterf(x, next), five[2] = x / 2 + next / 2;
            five[3] = nextafterf(five[2], x), five[4] = nextafterf(five[2], next);
        }
        float *zero = calloc(N, 4);
        row.grad = zero;
        update(&step, &row);
        for (int64_t i = 0; i < N; i++)
            if (row.copy[i] != rounded(row.param[i], type))
                ck_abort_msg("path %d: %a becomes %04x", level, row.param[i], row.copy[i]);
        free(zero), free(row.param), free(row.m), free(row.v), free(row.copy);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("adamw");
    TCase *t = tcase_create("adamw");
    tcase_add_test(t, test_by_hand);
    tcase_add_test(t, test_against_double);
    tcase_add_loop_test(t, test_same_bits_on_every_path, 0, 9);
    tcase_add_loop_test(t, test_same_bits_for_every_split, 0, 9);
    tcase_add_loop_test(t, test_copy_rounds, 0, 2);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
