/*
 * The CPU kernels one by one.
 *
 *     build/bench_kernels [threads [f32|f16|bf16]]
 *
 * Matrix products: GFLOP/s of one thread, beside OpenBLAS (cblas_sgemm, one thread) where it is installed; the peak is
 * 64 FLOPs a cycle with two AVX-512 multiply-adds (32 with AVX2), at whatever clock the core holds. AdamW: GB/s, 28
 * bytes a parameter (reads p, m, v, g; writes p, m, v), against a copy, 8 bytes a float (its write-allocate is not
 * counted, nor is AdamW's, which has none). The rest: ns an element. Each is warmed up once and timed 9 times: median,
 * slowest and fastest; products are verified first. In f16 and bf16 factors, products and rows are stored in 16 bit;
 * OpenBLAS multiplies in FP32 all the same, and the rounding to 16 bit is timed against a copy too, 6 bytes a number.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/timing.h"
#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/kernels/adamw.h"
#include "common/kernels/convert.h"
#include "common/kernels/simd.h"

#ifdef HT_HAVE_OPENBLAS
#include <cblas.h>
#endif

enum { REPEATS = 9, N_STATE = 1 << 24, ROW = 1024 };

typedef void (*bench_fn)(void *arg);
struct timing {
    double median_s, fastest_s, slowest_s;
};

static struct timing measure(bench_fn fn, void *arg, int calls)
{
    double s[REPEATS];
    fn(arg);
    for (int r = 0; r < REPEATS; r++) {
        double start_s = bench_now_s();
        for (int c = 0; c < calls; c++) fn(arg);
        s[r] = (bench_now_s() - start_s) / calls;
    }
    struct bench_spread spread = bench_spread_of(s, REPEATS);
    return (struct timing){spread.median, spread.low, spread.high};
}

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 2 * ht_random_float(1, (uint64_t)i) - 1;
}

/* x as `type`, in a new array; what was rounded stays in x. */
static void *stored(float *x, int64_t n, enum ht_dtype type)
{
    void *s = HT_NEW_ARRAY(float, n);
    ht_round_copy(NULL, x, s, type, n);
    ht_widen_copy(NULL, s, type, x, n);
    return s;
}

/* ---- matrix products, one thread ---- */

static void run_gemm(void *arg)
{
    ht_simd()->gemm(arg);
}

#ifdef HT_HAVE_OPENBLAS
static void run_openblas(void *arg)
{
    const struct ht_gemm *g = arg;
    cblas_sgemm(CblasRowMajor, g->a_transposed ? CblasTrans : CblasNoTrans, g->b_transposed ? CblasTrans : CblasNoTrans,
                (int)g->m, (int)g->n, (int)g->k, 1, g->a, (int)g->a_stride, g->b, (int)g->b_stride, 0, g->c,
                (int)g->c_stride);
}
#endif

static int bench_gemm(enum ht_dtype type, int64_t m, int64_t n, int64_t k, bool ta, bool tb, const char *what)
{
    float *a = HT_NEW_ARRAY(float, m *k), *b = HT_NEW_ARRAY(float, n *k), *c = HT_NEW_ARRAY(float, m *n);
    fill(a, m * k);
    fill(b, n * k);
    void *stored_a = stored(a, m * k, type), *stored_b = stored(b, n * k, type), *stored_c = stored(c, m * n, type);
    struct ht_gemm g = {.a_transposed = ta,
                        .b_transposed = tb,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a = stored_a,
                        .a_stride = ta ? m : k,
                        .a_type = type,
                        .b = stored_b,
                        .b_stride = tb ? k : n,
                        .b_type = type,
                        .c = stored_c,
                        .c_stride = n,
                        .c_stored = {type, type}};
    double rounding = type == HT_F32 ? 0 : type == HT_F16 ? 0x1p-11 : 0x1p-8;
    run_gemm(&g);
    ht_widen_copy(NULL, stored_c, type, c, m * n);
    int wrong = 0;
    for (int64_t i = 0; i < m; i += m / 7 + 1)
        for (int64_t j = 0; j < n; j += n / 5 + 1) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += (double)(ta ? a[p * m + i] : a[i * k + p]) * (double)(tb ? b[j * k + p] : b[p * n + j]);
            if (!(fabs(sum - c[i * n + j]) <= 1e-6 * (double)k + rounding * fabs(sum))) wrong = 1;
        }
    double flops = 2.0 * (double)m * (double)n * (double)k;
    struct timing t = measure(run_gemm, &g, (int)(2e8 / flops) + 1);
    printf("gemm %-16s %4d x %4d x %4d  %6.1f GFLOP/s (%.1f to %.1f)", what, (int)m, (int)n, (int)k,
           flops / t.median_s * 1e-9, flops / t.slowest_s * 1e-9, flops / t.fastest_s * 1e-9);
#ifdef HT_HAVE_OPENBLAS
    struct ht_gemm f32 = g;
    f32.a = a;
    f32.b = b;
    f32.c = c;
    struct timing ref = measure(run_openblas, &f32, (int)(2e8 / flops) + 1);
    printf("  OpenBLAS %6.1f (%.1f to %.1f), ratio %.2f", flops / ref.median_s * 1e-9, flops / ref.slowest_s * 1e-9,
           flops / ref.fastest_s * 1e-9, ref.median_s / t.median_s);
#endif
    printf("%s\n", wrong ? "  WRONG" : "");
    void *arrays[] = {a, b, c, stored_a, stored_b, stored_c};
    for (size_t i = 0; i < HT_COUNT(arrays); i++) free(arrays[i]);
    return wrong;
}

/* ---- memory-bound, on the pool ---- */

struct states {
    struct ht_pool *pool;
    struct ht_adamw_step step;
    enum ht_dtype type; /* of the rounded copy */
    float *p, *m, *v, *g;
};

static void run_adamw(void *arg)
{
    struct states *s = arg;
    ht_adamw_update_pool(s->pool, &s->step, s->p, s->m, s->v, s->g, N_STATE);
}

static void copy_share(void *arg, int worker, int n_workers)
{
    struct states *s = arg;
    struct ht_range r = ht_range_split(N_STATE, 16, worker, n_workers);
    memcpy(s->m + r.begin, s->g + r.begin, (size_t)(r.end - r.begin) * sizeof(float));
}

static void run_copy(void *arg)
{
    ht_pool_run(((struct states *)arg)->pool, copy_share, arg);
}

/* m is overwritten; g's numbers are FP32. */
static void run_round(void *arg)
{
    struct states *s = arg;
    ht_round_copy(s->pool, s->g, s->m, s->type, N_STATE);
}

static void bench_states(struct ht_pool *pool, enum ht_dtype type)
{
    struct ht_adamw config = {.lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    struct states s = {.pool = pool, .step = ht_adamw_step(&config, 1, 1), .type = type};
    float **arrays[] = {&s.p, &s.m, &s.v, &s.g};
    for (size_t i = 0; i < HT_COUNT(arrays); i++) {
        *arrays[i] = HT_NEW_ARRAY(float, N_STATE);
        fill(*arrays[i], N_STATE);
    }
    for (int64_t i = 0; i < N_STATE; i++) s.v[i] = fabsf(s.v[i]);
    struct timing adamw = measure(run_adamw, &s, 1), copy = measure(run_copy, &s, 1);
    printf("%-28s %7.1f GB/s (%.1f to %.1f), %.2f ns a parameter, %.2f of a copy's %.1f GB/s\n", "AdamW",
           28e-9 * N_STATE / adamw.median_s, 28e-9 * N_STATE / adamw.slowest_s, 28e-9 * N_STATE / adamw.fastest_s,
           adamw.median_s / N_STATE * 1e9, 28 / adamw.median_s / (8 / copy.median_s), 8e-9 * N_STATE / copy.median_s);
    struct timing round = measure(run_round, &s, 1);
    if (type != HT_F32)
        printf("FP32 to %-20s %7.1f GB/s (%.1f to %.1f), %.2f of a copy's\n", ht_dtype_name(type),
               6e-9 * N_STATE / round.median_s, 6e-9 * N_STATE / round.slowest_s, 6e-9 * N_STATE / round.fastest_s,
               6 / round.median_s / (8 / copy.median_s));
    for (size_t i = 0; i < HT_COUNT(arrays); i++) free(*arrays[i]);
}

/* ---- element-wise, one thread, in cache ---- */

struct row {
    const struct ht_simd *simd;
    float x[ROW], y[ROW], w[ROW], mean, rstd; /* x, y, w: as simd stores them, the logits of cross-entropy FP32 */
};

static void run_exp(void *arg)
{
    struct row *r = arg;
    r->simd->exp(r->w, r->y, ROW);
}
static void run_gelu(void *arg)
{
    struct row *r = arg;
    r->simd->gelu(r->x, r->y, ROW);
}
static void run_norm(void *arg)
{
    struct row *r = arg;
    r->simd->norm(r->x, r->w, r->w, r->y, &r->mean, &r->rstd, ROW);
}
static void run_cross_entropy(void *arg)
{
    struct row *r = arg;
    r->simd->cross_entropy(r->y, ROW, 0, 1);
}

static void bench_row(const char *name, bench_fn fn, struct row *r)
{
    struct timing t = measure(fn, r, 20000);
    printf("%-28s %7.3f ns an element (%.3f to %.3f)\n", name, t.median_s / ROW * 1e9, t.fastest_s / ROW * 1e9,
           t.slowest_s / ROW * 1e9);
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? atoi(argv[1]) : 2;
    enum ht_dtype type = HT_F32;
    const char *wanted = argc > 2 ? argv[2] : "f32";
    while (type <= HT_BF16 && strcmp(wanted, ht_dtype_name(type)) != 0) type++;
    if (n_threads < 1 || type > HT_BF16) {
        fprintf(stderr, "usage: %s [threads [f32|f16|bf16]]\n", argv[0]);
        return 2;
    }
    int wrong = 0;
#ifdef HT_HAVE_OPENBLAS
    openblas_set_num_threads(1);
    printf("one thread; OpenBLAS: %s\n", openblas_get_config());
#else
    printf("one thread\n");
#endif
    wrong |= bench_gemm(type, 512, 1024, 256, false, true, "forward  x W^T");
    wrong |= bench_gemm(type, 512, 256, 1024, false, false, "backward dy W");
    wrong |= bench_gemm(type, 512, 256, 1024, true, false, "gradient dy^T x");
    wrong |= bench_gemm(type, 512, 8192, 256, false, true, "logits   x W^T");
    wrong |= bench_gemm(type, 64, 256, 64, false, true, "scores   q k^T");
    wrong |= bench_gemm(type, 64, 64, 256, false, false, "values   p v");
    struct row *r = HT_NEW(struct row);
    r->simd = ht_simd_for(type);
    fill(r->w, ROW);
    bench_row("exp", run_exp, r); /* from here on as stored */
    fill(r->y, ROW);
    ht_round_copy(NULL, r->y, r->x, type, ROW);
    ht_round_copy(NULL, r->y, r->w, type, ROW);
    bench_row("GELU", run_gelu, r);
    bench_row("norm, width 1024", run_norm, r);
    fill(r->y, ROW);
    bench_row("cross-entropy, 1024 logits", run_cross_entropy, r);
    free(r);
    struct ht_pool *pool = ht_pool_create(n_threads, NULL);
    if (!pool) {
        perror("ht_pool_create");
        return 1;
    }
    printf("%d threads, %d million parameters\n", n_threads, N_STATE >> 20);
    bench_states(pool, type);
    ht_pool_destroy(pool);
    return wrong;
}
