/*
 * The exact undo gives back every bit: of ordinary training and of the worst that can be in memory, at every step
 * count, on every path, for every pool. The arithmetic reversal comes as near as was published, and no nearer.
 */
#include <float.h>
#include <stdio.h>

#include "common/base/array.h"
#include "common/base/half.h"
#include "common/kernels/undo.h"
#include "tests/common/kernels/guarded.h"

static const struct ht_adamw config = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};

/* ---- what is stepped ---- */

enum content { TRAINED, HOSTILE, ANY_BITS, TINY, HUGE_GRADS, BAD_GRADS, ZERO_STATE, N_CONTENTS };
static const char *const content_names[N_CONTENTS] = {"trained",        "hostile",       "any bits",  "tiny",
                                                      "huge gradients", "bad gradients", "zero state"};

static float normal(uint64_t seed, uint64_t i)
{
    double u = (double)ht_random_float(seed, 2 * i) + 0x1p-25, w = (double)ht_random_float(seed, 2 * i + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * w));
}

static float any_bits(uint64_t seed, uint64_t i)
{
    uint32_t bits = (uint32_t)(ht_random(seed, i) >> 32);
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* A float that is likely to be awkward. */
static float awkward(uint64_t seed, uint64_t i)
{
    static const float special[] = {0.0f,     -0.0f,   INFINITY,  -INFINITY, NAN,     -NAN,   FLT_MAX,
                                    -FLT_MAX, FLT_MIN, 0x1p-149f, 1e-40f,    2.6e19f, -5e20f, 1};
    uint64_t r = ht_random(seed, i);
    if (r % 8 < 2) return special[(r >> 8) % HT_COUNT(special)];
    if (r % 8 == 2) return (float)(int8_t)(r >> 8) * 0x1p-149f;
    if (r % 8 < 5) return (float)(int32_t)(r >> 32) * 0x1p-31f;
    return any_bits(seed, i);
}

/* Root mean square of the gradients of ordinary training here. */
static const float rms = 1e-3f;

/* After t - 1 steps with gradients N(0, rms^2): m has the variance (1-b1)/(1+b1) of them, v their mean square, each as
   far as t - 1 steps bring them; at t = 2 both come from one gradient. */
static void trained(uint64_t seed, uint64_t i, int64_t t, float *p, float *m, float *v)
{
    float first = rms * normal(seed, 4 * i);
    *p = 0.02f * normal(seed, 4 * i + 1);
    *m = t == 1 ? 0 : t == 2 ? 0.1f * first : 0.229f * rms * normal(seed, 4 * i + 2);
    double weight = 1 - pow(0.999, (double)(t - 1));
    *v = t == 2 ? 0.001f * first * first : (float)(weight * rms * rms * (1 + 0.03 * (double)normal(seed, 4 * i + 3)));
}

struct arrays {
    int64_t n;
    float *x[4], *before[4]; /* p, m, v, g */
    struct guarded guard[3], log_guard, copy_guard;
    uint16_t *half; /* gradients in 16 bits; x[3] is then the same, widened */
    struct ht_undo u;
};

static struct arrays arrays_new(enum content c, int64_t n, uint64_t seed, int64_t t, int64_t exceptions)
{
    struct arrays a = {.n = n};
    size_t bytes = (size_t)n * sizeof(float);
    for (int k = 0; k < 4; k++) {
        a.x[k] = k < 3 ? guarded_new(&a.guard[k], (int64_t)bytes, 0xff) : malloc(bytes + 1);
        a.before[k] = malloc(bytes + 1);
    }
    for (int64_t j = 0; j < n; j++) {
        uint64_t i = (uint64_t)j;
        float p, m, v, g = rms * normal(seed + 1, i);
        trained(seed, i, t, &p, &m, &v);
        if (c == HOSTILE || c == ANY_BITS) {
            float (*draw)(uint64_t, uint64_t) = c == HOSTILE ? awkward : any_bits;
            p = draw(seed + 2, i), m = draw(seed + 3, i), v = draw(seed + 4, i), g = draw(seed + 5, i);
            if (seed % 2) v = fabsf(v);
        }
        if (c == TINY) p *= 0x1p-130f, m *= 0x1p-125f, v *= 0x1p-118f, g *= 0x1p-60f;
        if (c == HUGE_GRADS) g = ldexpf(g, (int)(ht_random(seed + 6, i) % 138));
        if (c == BAD_GRADS && ht_random(seed + 7, i) % 4) g = i % 3 ? NAN : INFINITY;
        if (c == ZERO_STATE) m = 0, v = 0, p = i % 2 ? 0.0f : -0.0f;
        a.x[0][j] = p, a.x[1][j] = m, a.x[2][j] = v, a.x[3][j] = g;
    }
    for (int k = 0; k < 4; k++) memcpy(a.before[k], a.x[k], bytes);
    int64_t log_bytes = ht_undo_log_bytes(n, exceptions);
    a.u = (struct ht_undo){.row = {.param = a.x[0], .m = a.x[1], .v = a.x[2], .grad = a.x[3], .n = n},
                           .log = guarded_new(&a.log_guard, log_bytes, 0xff),
                           .log_bytes = log_bytes};
    return a;
}

static uint16_t rounded(float x, enum ht_dtype type)
{
    return type == HT_F16 ? ht_f32_to_f16(x) : ht_f32_to_bf16(x);
}

/* Sets the type of the gradients, and of the copy, unless copy_type is F32. */
static void use_types(struct arrays *a, enum ht_dtype grad_type, enum ht_dtype copy_type)
{
    if (copy_type != HT_F32) {
        a->u.row.copy = guarded_new(&a->copy_guard, 2 * a->n, 0xff);
        a->u.row.copy_type = copy_type;
    }
    if (grad_type == HT_F32) return;
    a->half = malloc(2 * (size_t)a->n + 1);
    for (int64_t i = 0; i < a->n; i++) {
        a->half[i] = rounded(a->x[3][i], grad_type);
        a->x[3][i] = grad_type == HT_F16 ? ht_f16_to_f32(a->half[i]) : ht_bf16_to_f32(a->half[i]);
        a->before[3][i] = a->x[3][i];
    }
    a->u.row.grad = a->half;
    a->u.row.grad_type = grad_type;
}

static void assert_copy(const struct arrays *a, const float *param)
{
    for (int64_t i = 0; i < a->n && a->u.row.copy; i++)
        if (a->u.row.copy[i] != rounded(param[i], a->u.row.copy_type))
            ck_abort_msg("copy[%d] of %a: %04x", (int)i, param[i], a->u.row.copy[i]);
}

static void arrays_free(struct arrays *a)
{
    if (a->u.row.copy) guarded_free(&a->copy_guard);
    free(a->half);
    for (int k = 0; k < 3; k++) guarded_free(&a->guard[k]);
    guarded_free(&a->log_guard);
    free(a->x[3]);
    for (int k = 0; k < 4; k++) free(a->before[k]);
}

static void assert_as_before(const struct arrays *a, const char *when)
{
    static const char *const names[4] = {"p", "m", "v", "g"};
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0; i < a->n; i++)
            if (memcmp(a->x[k] + i, a->before[k] + i, sizeof(float)) != 0)
                ck_abort_msg("%s: %s[%d]: %a, not %a", when, names[k], (int)i, a->x[k][i], a->before[k][i]);
}

/* Bits equal, but for which NaN. */
static void assert_same(const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof(float)) != 0 && !(isnan(x[i]) && isnan(y[i])))
            ck_abort_msg("[%d]: %a, not %a", (int)i, x[i], y[i]);
}

/* ---- the exact undo ---- */

struct types {
    enum ht_dtype grad, copy;
};
static const struct types all_types[] = {{HT_F32, HT_F32},  {HT_F32, HT_F16},  {HT_F32, HT_BF16},
                                         {HT_F16, HT_F32},  {HT_F16, HT_F16},  {HT_F16, HT_BF16},
                                         {HT_BF16, HT_F32}, {HT_BF16, HT_F16}, {HT_BF16, HT_BF16}};

/* Steps with the log, compares with the plain step, undoes. */
static void there_and_back(enum content c, int64_t n, uint64_t seed, int64_t t, double scale, struct types types,
                           const struct ht_undo_path *forth, const struct ht_undo_path *back, struct ht_pool *pool)
{
    struct arrays a = arrays_new(c, n, seed, t, 3 * n), plain = arrays_new(c, n, seed, t, 0);
    struct ht_adamw_step s = ht_adamw_step(&config, t, scale);
    use_types(&a, types.grad, types.copy);
    ht_adamw_update(&s, plain.x[0], plain.x[1], plain.x[2], a.x[3], n);
    a.u.pool = pool;
    a.u.path = forth;
    ck_assert(ht_adamw_step_logged(&a.u, &s));
    for (int k = 0; k < 3; k++) assert_same(a.x[k], plain.x[k], n);
    assert_copy(&a, a.x[0]);
    struct ht_undo_summary summary = ht_undo_summary(a.u.log, a.u.log_bytes, n);
    ck_assert_int_eq(summary.state, HT_UNDO_STEPPED);
    ck_assert_int_eq(summary.used_bytes, ht_undo_log_bytes(n, summary.exceptions));
    a.u.path = back;
    ck_assert(ht_adamw_undo_exact(&a.u));
    assert_as_before(&a, content_names[c]);
    assert_copy(&a, a.before[0]);
    ck_assert_int_eq(ht_undo_summary(a.u.log, a.u.log_bytes, n).state, HT_UNDO_EMPTY);
    ck_assert(!ht_adamw_undo_exact(&a.u)); /* once */
    assert_as_before(&a, content_names[c]);
    arrays_free(&a);
    arrays_free(&plain);
}

START_TEST(test_every_bit_comes_back)
{
    const int64_t steps[] = {1, 2, 3, 10, 1001, 1000000, INT64_C(1) << 40};
    for (size_t k = 0; k < HT_COUNT(steps); k++)
        for (uint64_t seed = 0; seed < 2; seed++)
            there_and_back((enum content)_i, 100003, 10 * seed + seed, steps[k], seed ? 1 : 0x1p-3, all_types[k], NULL,
                           NULL, NULL);
}
END_TEST

START_TEST(test_every_path_and_size)
{
    const int64_t sizes[] = {0, 1, 2, 7, 15, 17, 63, 1000, 1023, 1024, 1025, 2049, 5000};
    const struct ht_undo_path *portable = ht_undo_path_at(HT_SIMD_PORTABLE);
    for (int level = 0; level < HT_N_SIMD_LEVELS; level++) {
        const struct ht_undo_path *path = ht_undo_path_at((enum ht_simd_level)level);
        for (size_t k = 0; path && k < HT_COUNT(sizes); k++)
            for (int c = 0; c < N_CONTENTS; c++) /* a log is read by another path than wrote it */
                for (size_t i = 0; i < HT_COUNT(all_types); i++) {
                    there_and_back((enum content)c, sizes[k], k, 1 + level, 1, all_types[i], path, portable, NULL);
                    there_and_back((enum content)c, sizes[k], k + 1, 1 + level, 1, all_types[i], portable, path, NULL);
                }
    }
}
END_TEST

START_TEST(test_every_pool)
{
    for (int threads = 1; threads <= 4; threads++) {
        struct ht_pool *pool = ht_pool_create(threads, NULL);
        for (int c = 0; c < N_CONTENTS; c++)
            there_and_back((enum content)c, 50021, 3, 2, 1, all_types[(c + threads) % 9], NULL, NULL, pool);
        ht_pool_destroy(pool);
    }
}
END_TEST

/* A unit in pieces, each with a log of its own, at unaligned places: the same as the whole. */
START_TEST(test_pieces)
{
    enum { N = 7001 };
    for (int64_t cut = 1; cut < N; cut += 613) {
        struct arrays a = arrays_new(HOSTILE, N, 5, 2, 3 * N), whole = arrays_new(HOSTILE, N, 5, 2, 3 * N);
        struct ht_adamw_step s = ht_adamw_step(&config, 2, 1);
        struct types types = all_types[cut % 9];
        use_types(&a, types.grad, types.copy);
        use_types(&whole, types.grad, types.copy);
        ck_assert(ht_adamw_step_logged(&whole.u, &s));
        int64_t first_bytes = ht_undo_log_bytes(cut, 3 * cut), rest_bytes = ht_undo_log_bytes(N - cut, 3 * N);
        struct ht_undo first = a.u, rest = a.u;
        first.row = ht_adamw_slice(&a.u.row, 0, cut), rest.row = ht_adamw_slice(&a.u.row, cut, N);
        first.log = malloc((size_t)first_bytes), first.log_bytes = first_bytes;
        rest.log = malloc((size_t)rest_bytes), rest.log_bytes = rest_bytes;
        ck_assert(ht_adamw_step_logged(&rest, &s) && ht_adamw_step_logged(&first, &s));
        for (int k = 0; k < 3; k++) assert_same(a.x[k], whole.x[k], N);
        assert_copy(&a, a.x[0]);
        ck_assert(ht_adamw_undo_exact(&first) && ht_adamw_undo_exact(&rest));
        assert_as_before(&a, "pieces");
        assert_copy(&a, a.before[0]);
        free(first.log);
        free(rest.log);
        arrays_free(&a);
        arrays_free(&whole);
    }
}
END_TEST

/* One room too few, and nothing has happened; the summary says what would have done. */
START_TEST(test_refused_when_the_log_is_full)
{
    enum { N = 20011 };
    struct ht_adamw_step s = ht_adamw_step(&config, 2, 1);
    struct ht_pool *pools[] = {NULL, ht_pool_create(3, NULL)};
    for (int c = 0; c < N_CONTENTS; c++) {
        struct types types = all_types[(c + 4) % 9];
        struct arrays a = arrays_new((enum content)c, N, 9, 2, 3 * N);
        use_types(&a, types.grad, types.copy);
        ck_assert(ht_adamw_step_logged(&a.u, &s));
        int64_t needed = ht_undo_summary(a.u.log, a.u.log_bytes, N).exceptions;
        arrays_free(&a);
        for (int64_t room = needed, k = 0; k < 6 && room >= 0; room -= k < 2 ? 1 : room / 2, k++) {
            a = arrays_new((enum content)c, N, 9, 2, room);
            use_types(&a, types.grad, types.copy);
            a.u.pool = pools[k % 2];
            ck_assert_int_eq(ht_adamw_step_logged(&a.u, &s), room == needed);
            struct ht_undo_summary summary = ht_undo_summary(a.u.log, a.u.log_bytes, N);
            ck_assert_int_eq(summary.exceptions, needed);
            ck_assert_int_eq(summary.state, room == needed ? HT_UNDO_STEPPED : HT_UNDO_REFUSED);
            if (room < needed) assert_as_before(&a, "refused");
            assert_copy(&a, a.x[0]);
            ck_assert(ht_adamw_undo_exact(&a.u)); /* of a refused step: nothing to do */
            assert_as_before(&a, "undone");
            assert_copy(&a, a.before[0]);
            arrays_free(&a);
            if (room == 0) break;
        }
    }
    ht_pool_destroy(pools[1]);
}
END_TEST

START_TEST(test_what_is_no_log)
{
    struct arrays a = arrays_new(TRAINED, 100, 1, 5, 10);
    struct ht_adamw_step s = ht_adamw_step(&config, 5, 1);
    ck_assert(!ht_adamw_undo_exact(&a.u)); /* never written */
    ck_assert_int_eq(ht_undo_summary(a.u.log, a.u.log_bytes, 100).state, HT_UNDO_EMPTY);
    ck_assert(ht_adamw_step_logged(&a.u, &s));
    struct ht_undo fewer = a.u;
    fewer.row.n = 99; /* a log of other elements */
    ck_assert(!ht_adamw_undo_exact(&fewer));
    ck_assert(ht_adamw_undo_exact(&a.u));
    assert_as_before(&a, "undone");
    arrays_free(&a);
}
END_TEST

/* ---- how large the log is ---- */

/* n = 2500: 3 blocks, header 64 + 4 * 3 + 3 * 2500 = 7576; 4 for each exception, of which there are at most 7500. */
START_TEST(test_bytes)
{
    ck_assert_int_eq(ht_undo_log_bytes(2500, 0), 7576);
    ck_assert_int_eq(ht_undo_log_bytes(2500, 10), 7616);
    ck_assert_int_eq(ht_undo_log_bytes(2500, 1 << 20), 7576 + 4 * 7500);
    ck_assert_int_eq(ht_undo_log_bytes(1, 0), 64 + 4 + 4);
    ck_assert_int_eq(ht_undo_log_bytes(0, 5), 64);
    ck_assert_int_eq(ht_undo_usual_exceptions(4000), 1016);
    ck_assert_int_eq(ht_undo_usual_exceptions(1), 3);
}
END_TEST

/* Training from the first step on, gradients of steady size: how many values do not fit into a byte, of 3 n. */
START_TEST(test_exceptions_of_training)
{
    enum { N = 1 << 18, STEPS = 12 };
    struct arrays a = arrays_new(ZERO_STATE, N, 11, 1, ht_undo_usual_exceptions(N));
    for (int64_t i = 0; i < N; i++) a.x[0][i] = 0.02f * normal(12, (uint64_t)i);
    for (int t = 1; t <= STEPS; t++) {
        struct ht_adamw_step s = ht_adamw_step(&config, t, 1);
        for (int64_t i = 0; i < N; i++) a.x[3][i] = rms * normal(100 + (uint64_t)t, (uint64_t)i);
        for (int k = 0; k < 4; k++) memcpy(a.before[k], a.x[k], N * sizeof(float));
        ck_assert(ht_adamw_step_logged(&a.u, &s));
        struct ht_undo_summary summary = ht_undo_summary(a.u.log, a.u.log_bytes, N);
        double bytes = (double)summary.used_bytes / N;
        printf("step %2d: %.4f exceptions an element, log %.4f bytes an element\n", t, (double)summary.exceptions / N,
               bytes);
        ck_assert_double_le(bytes, t <= 3 ? 3.6 : 3.1);
        ck_assert(ht_adamw_undo_exact(&a.u));
        assert_as_before(&a, "training");
        ck_assert(ht_adamw_step_logged(&a.u, &s));
    }
    arrays_free(&a);
}
END_TEST

/* ---- the arithmetic reversal ---- */

/* p = 0.5, m = 0.01, v = 1e-4, g = 0.02, lr = 1e-3, betas 0.9 and 0.999, eps = 1e-8, no decay, t = 10:
     m' = 0.9 * 0.01 + 0.1 * 0.02        = 0.011
     v' = 0.999 * 1e-4 + 0.001 * 4e-4    = 1.003e-4
     c1 = 1 - 0.9^10   = 0.6513215599    c2 = 1 - 0.999^10 = 9.9551197903e-3
     m'/c1 = 0.0168887268    sqrt(v'/c2) = sqrt(0.0100752177) = 0.1003753845
     update = 1e-3 * 0.0168887268 / 0.1003753945 = 1.6825576991e-4,    p' = 0.499831744230
   and back: p' + update = 0.5, (0.011 - 0.002) / 0.9 = 0.01, (1.003e-4 - 4e-7) / 0.999 = 1e-4. */
START_TEST(test_by_hand)
{
    double p = 0.5, m = 0.01, v = 1e-4, g = 0.02, c1 = 1 - pow(0.9, 10), c2 = 1 - pow(0.999, 10);
    double m1 = 0.9 * m + 0.1 * g, v1 = 0.999 * v + 0.001 * g * g;
    double update = 1e-3 * (m1 / c1) / (sqrt(v1 / c2) + 1e-8), p1 = p - update;
    ck_assert_double_eq_tol(m1, 0.011, 1e-15);
    ck_assert_double_eq_tol(v1, 1.003e-4, 1e-15);
    ck_assert_double_eq_tol(update, 1.6825576991e-4, 1e-14);
    ck_assert_double_eq_tol(p1, 0.499831744230, 1e-12);
    ck_assert_double_eq_tol(p1 + 1e-3 * (m1 / c1) / (sqrt(v1 / c2) + 1e-8), 0.5, 1e-15);
    ck_assert_double_eq_tol((m1 - 0.1 * g) / 0.9, 0.01, 1e-15);
    ck_assert_double_eq_tol((v1 - 0.001 * g * g) / 0.999, 1e-4, 1e-15);

    /* The kernels on the same numbers, to FP32's rounding: 2^-24 of each value, a few times over. */
    struct ht_adamw c = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    struct ht_adamw_step s = ht_adamw_step(&c, 10, 1);
    float fp = 0.5f, fm = 0.01f, fv = 1e-4f, fg = 0.02f;
    struct ht_undo u = {.row = {.param = &fp, .m = &fm, .v = &fv, .grad = &fg, .n = 1}};
    ht_adamw_update(&s, &fp, &fm, &fv, &fg, 1);
    ck_assert_double_eq_tol(fp, p1, 1e-7);
    ck_assert_double_eq_tol(fm, 0.011, 2e-9);
    ck_assert_double_eq_tol(fv, 1.003e-4, 2e-11);
    ht_adamw_undo_arithmetic(&u, &s);
    ck_assert_double_eq_tol(fp, 0.5, 1e-7);
    ck_assert_double_eq_tol(fm, 0.01, 4e-9);
    ck_assert_double_eq_tol(fv, 1e-4, 4e-11);
}
END_TEST

struct deviation {
    double exact[3];   /* share of p, m, v that is restored to the bit */
    double reciprocal; /* of p, if it is multiplied by 1 / keep instead of divided by keep */
    double largest_p;
    double v_999; /* relative error of v that one in a thousand exceeds */
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct deviation measure(int64_t t, const struct ht_adamw *c)
{
    enum { N = 200000 };
    struct arrays a = arrays_new(TRAINED, N, 21, t, 0);
    struct ht_adamw_step s = ht_adamw_step(c, t, 1);
    struct deviation d = {.largest_p = 0};
    double *relative = HT_NEW_ARRAY(double, N);
    ht_adamw_update(&s, a.x[0], a.x[1], a.x[2], a.x[3], N);
    int64_t by_reciprocal = 0;
    for (int64_t i = 0; i < N; i++) {
        float p = a.x[0][i] + s.step_size * a.x[1][i] / (sqrtf(a.x[2][i]) / s.root + s.eps);
        by_reciprocal += p * (1 / s.keep) == a.before[0][i];
    }
    d.reciprocal = (double)by_reciprocal / N;
    ht_adamw_undo_arithmetic(&a.u, &s);
    for (int k = 0; k < 3; k++) {
        int64_t equal = 0;
        for (int64_t i = 0; i < N; i++) equal += memcmp(a.x[k] + i, a.before[k] + i, sizeof(float)) == 0;
        d.exact[k] = (double)equal / N;
    }
    for (int64_t i = 0; i < N; i++) {
        double off = fabs((double)a.x[0][i] - (double)a.before[0][i]);
        if (off > d.largest_p) d.largest_p = off;
        relative[i] = fabs((double)a.x[2][i] / (double)a.before[2][i] - 1);
    }
    qsort(relative, N, sizeof(*relative), ascending);
    d.v_999 = relative[N - N / 1000];
    printf("t = %d, decay %g, lr %g: exact p %.1f%% (%.1f%% by the reciprocal), m %.1f%%, v %.1f%%; p off by at most "
           "%.1e; v, 99.9th percentile %.1e\n",
           (int)t, c->weight_decay, c->lr, 100 * d.exact[0], 100 * d.reciprocal, 100 * d.exact[1], 100 * d.exact[2],
           d.largest_p, d.v_999);
    free(relative);
    arrays_free(&a);
    return d;
}

/*
 * Known of 200,000 random elements in FP32 at t = 1001: p exact in 99 to 99.7% without decay and in 82% with (one
 * product and one quotient more), never off by more than 1.5e-8 at |p| of 0.02; m in 69%, v in 99.8%. At t = 2, v is
 * the square of one gradient: exact in 49%, one in a thousand off by more than 1e-2.
 *
 * Here p comes out at 97.4% with decay and without. The product p keep is a float, and p' + update gives it back but
 * for the digits that the step lost; dividing it by keep gives p, unless the product was almost half a unit off. A
 * product with 1 / keep, which is itself rounded, gives p less often: 86% here, 30% at a learning rate of 3e-4. So the
 * 82% is a property of the division, not of AdamW. m is exact in 50% (m' is formed as m + (1 - beta1)(g - m), not
 * from two products, and shares depend on how values are drawn). The bounds allow for that and still show a wrong
 * formula, which leaves next to nothing exact, or a reversal in double, which leaves everything.
 */
START_TEST(test_deviation)
{
    struct ht_adamw plain = config;
    plain.weight_decay = 0;
    struct deviation w = measure(1001, &config), adam = measure(1001, &plain), second = measure(2, &config);
    ck_assert(w.exact[0] > 0.95 && w.exact[0] < 0.995);
    ck_assert(w.reciprocal > 0.75 && w.reciprocal < 0.92);
    ck_assert(adam.exact[0] > 0.95 && adam.exact[0] < 0.999);
    ck_assert(w.exact[1] > 0.4 && w.exact[1] < 0.8);
    ck_assert(w.exact[2] > 0.99 && w.exact[2] < 0.9999);
    ck_assert(w.largest_p > 1e-10 && w.largest_p < 1.5e-8);
    ck_assert(second.exact[2] > 0.4 && second.exact[2] < 0.6);
    ck_assert(second.v_999 > 1e-3 && second.v_999 < 1e-1);
}
END_TEST

/* A huge finite gradient wipes small m and v out; an infinite one leaves NaN. The exact undo of the same is above. */
START_TEST(test_arithmetic_loses)
{
    struct ht_adamw_step s = ht_adamw_step(&config, 1001, 1);
    float p[2] = {0.02f, 0.02f}, m[2] = {1e-4f, 1e-4f}, v[2] = {1e-6f, 1e-6f}, g[2] = {1e6f, INFINITY};
    struct ht_undo u = {.row = {.param = p, .m = m, .v = v, .grad = g, .n = 2}};
    ht_adamw_update(&s, p, m, v, g, 2);
    ht_adamw_undo_arithmetic(&u, &s);
    ck_assert(m[0] != 1e-4f && v[0] == 0);
    ck_assert(isnan(m[1]) && isnan(v[1]) && isnan(p[1]));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("undo");
    TCase *t = tcase_create("undo");
    tcase_add_loop_test(t, test_every_bit_comes_back, 0, N_CONTENTS);
    tcase_add_test(t, test_every_path_and_size);
    tcase_add_test(t, test_every_pool);
    tcase_add_test(t, test_pieces);
    tcase_add_test(t, test_refused_when_the_log_is_full);
    tcase_add_test(t, test_what_is_no_log);
    tcase_add_test(t, test_bytes);
    tcase_add_test(t, test_exceptions_of_training);
    tcase_add_test(t, test_by_hand);
    tcase_add_test(t, test_deviation);
    tcase_add_test(t, test_arithmetic_loses);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
