/*
 * Cephalo's planner beside the paper's dynamic program (cephalo/optimize.h).
 *
 *     build/bench_cephalo_planner [SECONDS]      default: the dynamic program runs where it takes up to 30 s
 *
 * Verified first, wherever both run: the planner's plan lasts as long as the dynamic program's, and satisfies the
 * constraints. Then timed, as CPU time of the one thread, the whole call, median of 9 (the dynamic program once): for N
 * GPUs of four kinds with one slope of memory, and for N GPUs that are all different, each with a slope of its own,
 * which the dynamic program has no answer to. Speeds and capacities go up to four times the lowest. The state leaves
 *
 *     loose    half of what the GPUs have beside micro-batches of one sample
 *     tight    2% more than micro-batches of one sample take
 *
 * Where the dynamic program does not run, its time is estimated from the longest that did, by N B^3 log B (Sec. 2.4),
 * and marked with ~. (The paper's own took 327 s for 64 GPUs and B = 512, Table 7.)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/timing.h"
#include "cephalo/optimize.h"
#include "common/base/array.h"
#include "common/base/rng.h"

enum { RUNS = 9, MOST_GPUS = 64, MOST_BATCH = 1024, FOUR = 4 };

struct instance {
    struct cephalo_problem problem;
    struct cephalo_kind kinds[MOST_GPUS];
    int32_t kind_of[MOST_GPUS];
    int64_t tables[MOST_GPUS][3][MOST_BATCH + 1]; /* tf, tb, M */
};

static double draw(int32_t k, uint64_t what, double low, double high)
{
    return low + (high - low) * (double)ht_random_float(what, (uint64_t)k);
}

static void make(struct instance *x, int32_t n_gpus, int32_t n_kinds, int32_t batch, bool tight)
{
    struct cephalo_problem *p = &x->problem;
    *p = (struct cephalo_problem){
        .n_gpus = n_gpus, .n_kinds = n_kinds, .batch = batch, .kind_of = x->kind_of, .kinds = x->kinds};
    for (int32_t k = 0; k < n_kinds; k++) {
        double forward_ns = draw(k, 1, 1e6, 4e6), ratio = draw(k, 2, 2.7, 3.3), base = draw(k, 3, 1e9, 2e9);
        double slope = n_kinds == FOUR ? 2e8 : draw(k, 4, 1e8, 3e8);
        for (int32_t m = 0; m <= batch; m++) { /* half a sample's time to start with, as small batches have (Fig. 5) */
            x->tables[k][0][m] = (int64_t)(forward_ns * (m + 0.5));
            x->tables[k][1][m] = (int64_t)(ratio * forward_ns * (m + 0.5));
            x->tables[k][2][m] = (int64_t)base + (int64_t)slope * m;
        }
        x->kinds[k] = (struct cephalo_kind){batch, x->tables[k][0], x->tables[k][1], x->tables[k][2],
                                            (int64_t)draw(k, 5, 1.2e10, 4.8e10)};
    }
    double least = 0, room = 0;
    for (int32_t i = 0; i < n_gpus; i++) {
        x->kind_of[i] = i % n_kinds;
        least += (double)x->tables[i % n_kinds][2][1];
        room += (double)x->kinds[i % n_kinds].capacity_bytes;
    }
    p->state_bytes = (int64_t)(tight ? room - 1.02 * least : 0.5 * (room - least));
    p->even = (struct cephalo_collectives){10000000, 10000000};
    p->uneven = (struct cephalo_collectives){11500000, 11500000}; /* Sec. 2.3: 15% more */
}

static void die(const char *what)
{
    fprintf(stderr, "bench_cephalo_planner: %s\n", what);
    exit(1);
}

/* Sec. 2.4. */
static double law(double n_gpus, double batch)
{
    return n_gpus * batch * batch * batch * log(batch);
}

static void verify(const struct cephalo_problem *p, const struct cephalo_part *parts)
{
    int64_t batch = 0, bytes = p->state_bytes;
    for (int32_t i = 0; i < p->n_gpus; i++) {
        const struct cephalo_kind *k = &p->kinds[p->kind_of[i]];
        if (k->compute_bytes[parts[i].micro_batch] > k->capacity_bytes) die("a plan breaks constraint II");
        batch += parts[i].micro_batch * parts[i].count;
        bytes += k->compute_bytes[parts[i].micro_batch] - k->capacity_bytes;
    }
    if (batch != p->batch) die("a plan breaks constraint I");
    if (bytes > 0) die("a plan breaks constraint III");
}

/* Seconds of a plan. */
static struct bench_spread time_planner(const struct cephalo_problem *p, enum cephalo_objective objective,
                                        struct cephalo_part *parts)
{
    double s[RUNS];
    struct ht_error err = {0};
    for (int i = -1; i < RUNS; i++) { /* -1: warm-up */
        double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        if (cephalo_optimize(p, objective, &err, parts) != HT_OK) die(err.text);
        if (i >= 0) s[i] = bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
    }
    verify(p, parts);
    return bench_spread_of(s, RUNS);
}

static double time_dp(const struct cephalo_problem *p, int64_t slowest_gpu_ns)
{
    struct cephalo_part parts[MOST_GPUS];
    struct ht_error err = {0};
    double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
    if (cephalo_optimize_dp(p, &err, parts) != HT_OK) die(err.text);
    double took = bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
    verify(p, parts);
    if (cephalo_evaluate(p, parts).slowest_gpu_ns != slowest_gpu_ns) die("the plans do not last equally long");
    return took;
}

int main(int argc, char **argv)
{
    double longest_s = argc > 1 ? atof(argv[1]) : 30, dp_s = 0, dp_law = 0;
    static const int32_t gpus[] = {8, 16, 64}, batches[] = {128, 256, 512, 1024};
    struct instance *x = HT_NEW(struct instance);
    struct cephalo_part parts[MOST_GPUS];
    if (argc > 2 || longest_s <= 0) {
        fprintf(stderr, "usage: bench_cephalo_planner [SECONDS]\n");
        return 2;
    }
    printf("ms: median of %d (fastest to slowest); ~ estimated by N B^3 log B\n", RUNS);
    printf("%4s %5s %-9s %-5s %26s %26s %14s %9s\n", "N", "B", "kinds", "room", "slowest GPU (eq. 4)",
           "layer (eqs. 2, 3)", "Algorithm 1", "ratio");
    for (size_t b = 0; b < HT_COUNT(batches); b++)
        for (size_t g = 0; g < HT_COUNT(gpus); g++)
            for (int c = 0; c < 4; c++) {
                bool different = c / 2, tight = c % 2;
                int32_t n = gpus[g], B = batches[b];
                make(x, n, different ? n : FOUR, B, tight);
                struct bench_spread layer = time_planner(&x->problem, CEPHALO_LAYER, parts);
                struct bench_spread slowest = time_planner(&x->problem, CEPHALO_SLOWEST_GPU, parts);
                printf("%4d %5d %-9s %-5s %9.3f (%.3f to %.3f) %9.3f (%.3f to %.3f)", n, B,
                       different ? "different" : "four", tight ? "tight" : "loose", 1e3 * slowest.median,
                       1e3 * slowest.low, 1e3 * slowest.high, 1e3 * layer.median, 1e3 * layer.low, 1e3 * layer.high);
                if (!different) {
                    double estimate_s = dp_law > 0 ? dp_s * law(n, B) / dp_law : 0;
                    bool run = estimate_s <= longest_s;
                    if (run) {
                        estimate_s = time_dp(&x->problem, cephalo_evaluate(&x->problem, parts).slowest_gpu_ns);
                        if (law(n, B) >= dp_law) dp_s = estimate_s, dp_law = law(n, B);
                    }
                    printf(" %s%12.0f %9.0f", run ? " " : "~", 1e3 * estimate_s, estimate_s / slowest.median);
                }
                putchar('\n');
                fflush(stdout);
            }
    free(x);
    return 0;
}
