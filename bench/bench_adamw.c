/*
 * AdamW against the memory it has to move.
 *
 *     build/bench_adamw [threads [parameters]]
 *
 * For each pair of types (gradient, 16-bit copy) the step and its bound: a loop that reads and writes the same arrays
 * with the same pages, prefetches, stores and threads, and adds where the step divides and takes roots. Verified first:
 * the step's bits are those of the plain FP32 step, rounded. Then in each of 9 rounds every case once, the
 * bound right after, so that both see the same machine: medians, slowest and fastest, and the ratio round by round.
 * Bytes for each parameter:
 *
 *     step, FP32                   28   p, m, v, g read; p, m, v written
 *     step, FP32, 16-bit copy      30   and 2 written
 *     step, 16-bit, 16-bit copy    28   g is 2
 *     three passes                 40   g widened (6), an FP32 step (28), p rounded (6): what the fused step spares
 *     partial                    4, 2   g read: finite, fits, sum of squares
 *
 * What others reach: DeepSpeed's CPU Adam (csrc/adam, AVX-512, OpenMP), built and run on a machine with two Xeon cores
 * (AVX-512, AMX) whose bound was 53.1 GB/s: FP32 47.9 GB/s or 1.71e9 parameters/s on two threads, 0.90 of the bound;
 * with its separate pass that writes a BF16 copy, 34 bytes a parameter, 1.20e9 parameters/s, 0.77 of the bound. It is
 * not on this machine, so rates are compared for each byte a second that the FP32 bound reaches.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench/timing.h"
#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/kernels/convert.h"
#include "common/kernels/grad_check.h"

enum { ROUNDS = 9, PASSES = 3, AHEAD_BYTES = 512 };

/* Parameters a second for each byte a second of the bound: above. */
static const double deepspeed_per_byte = 1.71e9 / 53.1e9, deepspeed_copy_per_byte = 1.20e9 / 53.1e9;

/* Huge pages, as the arenas ask for; touched, so that they are there. */
static void *array(int64_t bytes)
{
    size_t size = ((size_t)bytes + (2u << 20)) & ~(size_t)((2u << 20) - 1);
    void *x = aligned_alloc(2u << 20, size);
    if (!x) abort();
    (void)madvise(x, size, MADV_HUGEPAGE);
    memset(x, 0, size);
    return x;
}

/* ---- the bound ---- */

#if defined(__x86_64__)
#define WIDE        __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE_WIDE static inline __attribute__((always_inline, target("avx512f,avx512bw,avx512vl")))

INLINE_WIDE __m512 touch16(const struct ht_adamw_row *r, int64_t i)
{
    __m512 g;
    if (r->grad_type == HT_F32) {
        g = _mm512_loadu_ps((const float *)r->grad + i);
    } else {
        g = _mm512_castsi512_ps(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)((const uint16_t *)r->grad + i))));
    }
    float *const x[3] = {r->param, r->m, r->v};
    for (int k = 0; k < 3; k++) {
        _mm_prefetch((const char *)(x[k] + i) + AHEAD_BYTES, _MM_HINT_T0);
        g = _mm512_add_ps(_mm512_loadu_ps(x[k] + i), g);
        _mm512_storeu_ps(x[k] + i, g);
    }
    return g;
}

/* n a multiple of 32, the copy aligned to a cache line. */
WIDE static void touch(const struct ht_adamw_row *r)
{
    int grad_bytes = r->grad_type == HT_F32 ? 4 : 2;
    for (int64_t i = 0; i + 32 <= r->n; i += 32) {
        _mm_prefetch((const char *)r->grad + i * grad_bytes + AHEAD_BYTES, _MM_HINT_T0);
        if (grad_bytes == 4) _mm_prefetch((const char *)r->grad + i * grad_bytes + AHEAD_BYTES + 64, _MM_HINT_T0);
        __m512 low = touch16(r, i), high = touch16(r, i + 16);
        if (!r->copy) continue;
        __m512i both =
            _mm512_inserti64x4(_mm512_castps_si512(low), _mm512_castsi512_si256(_mm512_castps_si512(high)), 1);
        _mm512_stream_si512((__m512i *)(r->copy + i), both);
    }
    _mm_sfence();
}

INLINE_WIDE __m512i xor_of(const char *x, int64_t bytes)
{
    __m512i any = _mm512_setzero_si512();
    for (int64_t i = 0; i + 64 <= bytes; i += 64) {
        _mm_prefetch(x + i + AHEAD_BYTES, _MM_HINT_T0);
        any = _mm512_xor_si512(any, _mm512_loadu_si512(x + i));
    }
    return any;
}

WIDE static int64_t read_all(const void *x, int64_t bytes)
{
    return _mm512_reduce_add_epi64(xor_of(x, bytes));
}

static bool have_bound(void)
{
    return ht_adamw_at(HT_SIMD_AVX512) != NULL;
}
#else
static void touch(const struct ht_adamw_row *r)
{
    (void)r;
}
static int64_t read_all(const void *x, int64_t bytes)
{
    return (int64_t)bytes + *(const char *)x;
}
static bool have_bound(void)
{
    return false;
}
#endif

struct touched {
    const struct ht_adamw_row *row;
    int64_t seen; /* so that reads are not dropped */
};

static void touch_share(void *arg, int worker, int n_workers)
{
    const struct touched *t = arg;
    struct ht_range r = ht_range_split(t->row->n, 32, worker, n_workers);
    struct ht_adamw_row row = ht_adamw_slice(t->row, r.begin, r.end);
    touch(&row);
}

static void read_share(void *arg, int worker, int n_workers)
{
    struct touched *t = arg;
    struct ht_range r = ht_range_split(t->row->n, 32, worker, n_workers);
    struct ht_adamw_row row = ht_adamw_slice(t->row, r.begin, r.end);
    int64_t seen = read_all(row.grad, row.n * ht_dtype_bytes(row.grad_type));
    __atomic_fetch_add(&t->seen, seen, __ATOMIC_RELAXED);
}

/* ---- cases ---- */

enum what { STEP, THREE_PASSES, PARTIAL };

static const struct kase {
    const char *name;
    enum what what;
    enum ht_dtype grad, copy; /* copy F32: none */
} cases[] = {
    {"step, FP32", STEP, HT_F32, HT_F32},
    {"step, FP32, BF16 copy", STEP, HT_F32, HT_BF16},
    {"step, BF16, BF16 copy", STEP, HT_BF16, HT_BF16},
    {"step, F16, F16 copy", STEP, HT_F16, HT_F16},
    {"three passes, BF16", THREE_PASSES, HT_BF16, HT_BF16},
    {"partial, FP32", PARTIAL, HT_F32, HT_F32},
    {"partial, BF16", PARTIAL, HT_BF16, HT_F32},
    {"partial, F16", PARTIAL, HT_F16, HT_F32},
};
enum { N_CASES = HT_COUNT(cases) };

struct data {
    struct ht_pool *pool;
    struct ht_adamw_row row; /* FP32 */
    void *grad[3];           /* by type */
    uint16_t *copy;
    float *wide;
    struct ht_adamw_step step;
    double checksum;
};

static struct ht_adamw_row row_of(const struct data *d, const struct kase *c)
{
    struct ht_adamw_row row = d->row;
    row.grad = d->grad[c->grad];
    row.grad_type = c->grad;
    row.copy = c->copy == HT_F32 ? NULL : d->copy;
    row.copy_type = c->copy;
    return row;
}

static double moved_bytes(const struct kase *c)
{
    double grad = (double)ht_dtype_bytes(c->grad);
    if (c->what == PARTIAL) return grad;
    return 24 + (c->what == THREE_PASSES ? 16 : grad + (c->copy == HT_F32 ? 0 : 2));
}

static void carry_out(struct data *d, const struct kase *c)
{
    struct ht_adamw_row row = row_of(d, c);
    switch (c->what) {
    case STEP:
        ht_adamw_update_row(d->pool, &d->step, &row);
        break;
    case THREE_PASSES:
        ht_widen_copy(d->pool, row.grad, row.grad_type, d->wide, row.n);
        ht_adamw_update_pool(d->pool, &d->step, row.param, row.m, row.v, d->wide, row.n);
        ht_round_copy(d->pool, row.param, row.copy, row.copy_type, row.n);
        break;
    case PARTIAL:
        d->checksum += ht_grad_check(d->pool, &d->step, row.grad, row.grad_type, row.n).squares;
        break;
    }
}

/* Runs the bound on the same arrays; three passes take those of the fused step. */
static void carry_out_bound(struct data *d, const struct kase *c)
{
    struct ht_adamw_row row = row_of(d, c);
    struct touched t = {.row = &row};
    ht_pool_run(d->pool, c->what == PARTIAL ? read_share : touch_share, &t);
    d->checksum += (double)(t.seen & 1);
}

static double normal(uint64_t seed, uint64_t i)
{
    double u = (double)ht_random_float(seed, 2 * i) + 0x1p-25, w = (double)ht_random_float(seed, 2 * i + 1);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * w);
}

/* As in training: at step 1001 with gradients N(0, 1e-3^2). The bounds spoil it, which changes no time. */
static void fill(struct data *d)
{
    float *grad = d->grad[HT_F32];
    for (int64_t j = 0; j < d->row.n; j++) {
        uint64_t i = (uint64_t)j & 0xfffff;
        d->row.param[j] = (float)(0.02 * normal(1, i));
        d->row.m[j] = (float)(2.29e-4 * normal(2, i));
        d->row.v[j] = (float)(0.63e-6 * (1 + 0.03 * normal(3, i)));
        grad[j] = (float)(1e-3 * normal(4, i));
    }
    ht_round_copy(d->pool, grad, d->grad[HT_F16], HT_F16, d->row.n);
    ht_round_copy(d->pool, grad, d->grad[HT_BF16], HT_BF16, d->row.n);
}

/* Compares each case of a step, on the first elements, with the FP32 step of widened gradients, rounded. Returns 1 if
   one differs. */
static int verify(const struct data *d)
{
    enum { N = 1 << 16 };
    float *x[2][3], *wide = array(4 * N);
    uint16_t *expected = array(2 * N), *copy = array(2 * N);
    int wrong = 0;
    for (int i = 0; i < 6; i++) x[i / 3][i % 3] = array(4 * N);
    for (int c = 0; c < (int)N_CASES; c++) {
        if (cases[c].what != STEP) continue;
        float *const from[3] = {d->row.param, d->row.m, d->row.v};
        for (int i = 0; i < 6; i++) memcpy(x[i / 3][i % 3], from[i % 3], 4 * N);
        struct ht_adamw_row row = row_of(d, &cases[c]);
        row.param = x[0][0], row.m = x[0][1], row.v = x[0][2], row.n = N;
        if (row.copy) row.copy = copy;
        ht_adamw_update_row(d->pool, &d->step, &row);
        ht_widen_copy(NULL, row.grad, row.grad_type, wide, N);
        ht_adamw_update(&d->step, x[1][0], x[1][1], x[1][2], wide, N);
        for (int k = 0; k < 3; k++) wrong |= memcmp(x[0][k], x[1][k], 4 * N) != 0;
        if (row.copy) ht_round_copy(NULL, x[1][0], expected, row.copy_type, N);
        if (row.copy) wrong |= memcmp(expected, copy, 2 * N) != 0;
    }
    for (int i = 0; i < 6; i++) free(x[i / 3][i % 3]);
    free(wide);
    free(expected);
    free(copy);
    puts(wrong ? "WRONG" : "verified: every step's bits are the plain step's, rounded");
    return wrong;
}

static double timed(struct data *d, const struct kase *c, void (*fn)(struct data *d, const struct kase *c))
{
    double start_s = bench_now_s();
    for (int pass = 0; pass < PASSES; pass++) fn(d, c);
    return (bench_now_s() - start_s) / PASSES;
}

static void print_case(const struct kase *c, double n, struct bench_spread own, struct bench_spread bound,
                       struct bench_spread share)
{
    double bytes = moved_bytes(c) * n;
    printf("%-22s %6.2f GB/s (%.2f to %.2f), %5.2fe9 parameters/s; bound %5.2fe9; share %.3f (%.3f to %.3f)\n", c->name,
           bytes / own.median * 1e-9, bytes / own.high * 1e-9, bytes / own.low * 1e-9, n / own.median * 1e-9,
           n / bound.median * 1e-9, share.median, share.low, share.high);
}

/* Each case right before its bound: their ratio is taken round by round, then the median of the ratios. */
static void measure(struct data *d)
{
    static double own[N_CASES][ROUNDS], bound[N_CASES][ROUNDS], share[N_CASES][ROUNDS];
    struct bench_spread spread[N_CASES];
    for (int r = -1; r < ROUNDS; r++) /* one to warm up */
        for (int c = 0; c < (int)N_CASES; c++) {
            double own_s = timed(d, &cases[c], carry_out), bound_s = timed(d, &cases[c], carry_out_bound);
            if (r >= 0) own[c][r] = own_s, bound[c][r] = bound_s, share[c][r] = bound_s / own_s;
        }
    for (int c = 0; c < (int)N_CASES; c++) {
        spread[c] = bench_spread_of(own[c], ROUNDS);
        print_case(&cases[c], (double)d->row.n, spread[c], bench_spread_of(bound[c], ROUNDS),
                   bench_spread_of(share[c], ROUNDS));
    }
    printf("16-bit gradient and copy: %.2f of the FP32 step's time; in three passes %.2f of it\n",
           spread[2].median / spread[0].median, spread[4].median / spread[0].median);
    double n = (double)d->row.n, bandwidth = 28 * n / bench_spread_of(bound[0], ROUNDS).median;
    printf("parameters for each byte of the bound's bandwidth, beside DeepSpeed's (see the source): FP32 %.2f, with a "
           "BF16 "
           "copy %.2f, with BF16 gradients too %.2f\n",
           n / spread[0].median / bandwidth / deepspeed_per_byte,
           n / spread[1].median / bandwidth / deepspeed_copy_per_byte,
           n / spread[2].median / bandwidth / deepspeed_copy_per_byte);
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? atoi(argv[1]) : 2;
    int64_t n = argc > 2 ? atoll(argv[2]) : 1 << 27; /* 2 GiB of FP32 streams: far beyond any L3 */
    if (n_threads < 1 || n < 1 << 16 || n % 32 || n > INT64_C(1) << 32) {
        fprintf(stderr, "usage: %s [threads [parameters]]   parameters: a multiple of 32, 65536 at least\n", argv[0]);
        return 2;
    }
    if (!have_bound()) {
        puts("the bound is measured with AVX-512, which this processor does not have");
        return 0;
    }
    const struct ht_adamw config = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
    struct data d = {.pool = ht_pool_create(n_threads, NULL), .step = ht_adamw_step(&config, 1001, 1)};
    if (!d.pool) {
        perror("ht_pool_create");
        return 1;
    }
    d.row = (struct ht_adamw_row){.param = array(4 * n), .m = array(4 * n), .v = array(4 * n), .n = n};
    for (int t = 0; t < 3; t++) d.grad[t] = array(n * ht_dtype_bytes((enum ht_dtype)t));
    d.copy = array(2 * n);
    d.wide = array(4 * n);
    fill(&d);
    printf("%d threads, %lld parameters\n", n_threads, (long long)n);
    int wrong = verify(&d);
    measure(&d);
    void *all[] = {d.row.param, d.row.m, d.row.v, d.grad[0], d.grad[1], d.grad[2], d.copy, d.wide};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
    ht_pool_destroy(d.pool);
    return wrong;
}
