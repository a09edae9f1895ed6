/*
 * Measures the cost of steps of AdamW that can be undone.
 *
 *     build/bench_undo [threads [parameters]]
 *
 * Verified first: the logged step gives the plain step's bits, and its undo gives back every bit. Then, in each of 9
 * rounds, one plain step and its arithmetic reversal, one logged step and its exact undo, and a copy, in turn, so that
 * all see the same machine: median, slowest and fastest. GB/s count what has to be moved for each parameter:
 *
 *     plain step        28   p, m, v, g read; p, m, v written
 *     arithmetic        28   the same
 *     logged step       31   and 3 of the log written
 *     exact undo        31   and 3 of the log read
 *     copy               8   one float read and written
 *
 * With BF16 gradients (2 bytes less read) and a fused BF16 copy (2 more written, by the undo too) they are the same.
 *
 * The state is that of training at step 1001 with gradients N(0, 1e-3^2).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/timing.h"
#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/kernels/convert.h"
#include "common/kernels/undo.h"

enum { ROUNDS = 9, STEP = 1001 };
enum what { PLAIN, ARITHMETIC, LOGGED, EXACT, COPY, N_WHAT };
static const char *const names[N_WHAT] = {"plain step", "arithmetic reversal", "logged step", "exact undo", "copy"};
static const double moved_bytes[N_WHAT] = {28, 28, 31, 31, 8};

static double normal(uint64_t seed, uint64_t i)
{
    double u = (double)ht_random_float(seed, 2 * i) + 0x1p-25, w = (double)ht_random_float(seed, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * w);
}

/* Written once, so that the pages are there. */
static float *floats(int64_t n)
{
    size_t bytes = ((size_t)n * sizeof(float) + 63) / 64 * 64;
    float *x = aligned_alloc(64, bytes);
    if (!x) abort();
    memset(x, 0, bytes);
    return x;
}

static void fill(const struct ht_undo *u, float *grad)
{
    double weight = 1 - pow(0.999, STEP - 1);
    for (int64_t j = 0; j < u->row.n; j++) {
        uint64_t i = (uint64_t)j;
        u->row.param[j] = (float)(0.02 * normal(1, i));
        u->row.m[j] = (float)(2.29e-4 * normal(2, i));
        u->row.v[j] = (float)(weight * 1e-6 * (1 + 0.03 * normal(3, i)));
        grad[j] = (float)(1e-3 * normal(4, i));
    }
}

static int same(const struct ht_undo *u, float *const *x)
{
    size_t bytes = (size_t)u->row.n * sizeof(float);
    return !memcmp(u->row.param, x[0], bytes) && !memcmp(u->row.m, x[1], bytes) && !memcmp(u->row.v, x[2], bytes);
}

/* Returns 1 when something is wrong. */
static int verify(const struct ht_undo *u, const struct ht_adamw_step *s)
{
    float *x[3] = {floats(u->row.n), floats(u->row.n), floats(u->row.n)}, *const before[3] = {u->row.param, u->row.m,
                                                                                              u->row.v};
    for (int k = 0; k < 3; k++) memcpy(x[k], before[k], (size_t)u->row.n * sizeof(float));
    int wrong = !ht_adamw_step_logged(u, s);
    struct ht_undo_summary summary = ht_undo_summary(u->log, u->log_bytes, u->row.n);
    printf("log: %.4f bytes a parameter, %.5f exceptions a parameter; room for %.2f\n",
           (double)summary.used_bytes / (double)u->row.n, (double)summary.exceptions / (double)u->row.n,
           (double)ht_undo_usual_exceptions(u->row.n) / (double)u->row.n);
    wrong |= !ht_adamw_undo_exact(u) || !same(u, x);
    ht_adamw_step_logged(u, s);
    struct ht_adamw_row plain = u->row;
    plain.param = x[0], plain.m = x[1], plain.v = x[2];
    ht_adamw_update_row(u->pool, s, &plain);
    wrong |= !same(u, x);
    ht_adamw_undo_exact(u);
    for (int k = 0; k < 3; k++) free(x[k]);
    printf("%s\n", wrong ? "WRONG" : "verified: the plain step's bits, and every bit back");
    return wrong;
}

static void copy_share(void *arg, int worker, int n_workers)
{
    float **x = arg; /* from, to, and the end of from */
    struct ht_range r = ht_range_split(x[2] - x[0], 16, worker, n_workers);
    memcpy(x[1] + r.begin, x[0] + r.begin, (size_t)(r.end - r.begin) * sizeof(float));
}

static void carry_out(enum what what, const struct ht_undo *u, const struct ht_adamw_step *s, float **copied)
{
    switch (what) {
    case PLAIN:
        ht_adamw_update_row(u->pool, s, &u->row);
        break;
    case ARITHMETIC:
        ht_adamw_undo_arithmetic(u, s);
        break;
    case LOGGED:
        ht_adamw_step_logged(u, s);
        break;
    case EXACT:
        ht_adamw_undo_exact(u);
        break;
    default:
        ht_pool_run(u->pool, copy_share, copied);
        break;
    }
}

static void measure(const struct ht_undo *u, const struct ht_adamw_step *s, float **copied)
{
    double seconds[N_WHAT][ROUNDS];
    for (int r = -1; r < ROUNDS; r++) /* one round to warm up */
        for (int w = 0; w < N_WHAT; w++) {
            double start_s = bench_now_s();
            carry_out((enum what)w, u, s, copied);
            if (r >= 0) seconds[w][r] = bench_now_s() - start_s;
        }
    struct bench_spread spread[N_WHAT];
    for (int w = 0; w < N_WHAT; w++) spread[w] = bench_spread_of(seconds[w], ROUNDS);
    double n = (double)u->row.n, copy_bytes_per_s = moved_bytes[COPY] * n / spread[COPY].median;
    for (int w = 0; w < N_WHAT; w++) {
        double bytes = moved_bytes[w] * n;
        printf("%-20s %6.2f GB/s (%.2f to %.2f), %.2f ns a parameter, %.2f of the plain step's time, %.2f of a copy's "
               "rate\n",
               names[w], bytes / spread[w].median * 1e-9, bytes / spread[w].high * 1e-9, bytes / spread[w].low * 1e-9,
               spread[w].median / n * 1e9, spread[w].median / spread[PLAIN].median,
               bytes / spread[w].median / copy_bytes_per_s);
    }
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? atoi(argv[1]) : 2;
    int64_t n = argc > 2 ? atoll(argv[2]) : 1 << 24;
    if (n_threads < 1 || n < 1 || n > INT64_C(1) << 32) {
        fprintf(stderr, "usage: %s [threads [parameters]]\n", argv[0]);
        return 2;
    }
    struct ht_pool *pool = ht_pool_create(n_threads, NULL);
    if (!pool) {
        perror("ht_pool_create");
        return 1;
    }
    const struct ht_adamw config = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
    struct ht_adamw_step s = ht_adamw_step(&config, STEP, 1);
    float *grad = floats(n), *target = floats(n), *copied[3] = {grad, target, grad + n};
    int64_t log_bytes = ht_undo_log_bytes(n, ht_undo_usual_exceptions(n));
    struct ht_undo u = {.pool = pool,
                        .row = {.param = floats(n), .m = floats(n), .v = floats(n), .grad = grad, .n = n},
                        .log = floats((log_bytes + 3) / 4),
                        .log_bytes = log_bytes};
    uint16_t *half = (uint16_t *)floats((n + 1) / 2), *copy = (uint16_t *)floats((n + 1) / 2);
    fill(&u, grad);
    printf("%d threads, %lld parameters\nFP32\n", n_threads, (long long)n);
    int wrong = verify(&u, &s);
    measure(&u, &s, copied);
    puts("BF16 gradients and copy");
    fill(&u, grad);
    ht_round_copy(pool, grad, half, HT_BF16, n);
    u.row.grad = half, u.row.grad_type = HT_BF16;
    u.row.copy = copy, u.row.copy_type = HT_BF16;
    wrong |= verify(&u, &s);
    measure(&u, &s, copied);
    void *all[] = {grad, target, u.row.param, u.row.m, u.row.v, u.log, half, copy};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    ht_pool_destroy(pool);
    return wrong;
}
