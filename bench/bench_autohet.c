/*
 * AutoHet's planner (autohet/algorithm1.h) beside GLPK on the linear program of eq. (3).
 *
 *     build/bench_autohet [GPUS]      default: 16, 24, 32, 64, 128, 256 and 512
 *
 * Clusters of three kinds in nodes of 8: 3/8 A100, 3/8 H800, 2/8 H20, with the paper's powers (1, 2, 148/312), LLaMA 6.7B's sizes,
 * 128 micro-batches for up to 64 GPUs and two a GPU beyond. Algorithm 1 as a whole: every tp, every D that divides the
 * micro-batches, and with uneven=1 every D. CPU time of the one thread, median of 3.
 *
 * Verified first: no grouping's Z is above the ceiling K S / (D (K - 1) + M) that eq. (2) implies, every plan has all layers
 * and all GPUs; where GLPK ends within its 10 s, Z is the same. GLPK groups at tp 8, where there are fewest units, for D = 2
 * and 4: ht_milp_solve once each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "autohet/algorithm1.h"
#include "bench/timing.h"
#include "common/base/array.h"

enum { RUNS = 3, KINDS = 3, DEGREES = 4, MOST_NODES = 64, LAYERS = 32 };

static const double powers[KINDS] = {148.0 / 312, 1, 2};
static const int64_t memory[KINDS] = {96000000000, 85900000000, 85900000000};

struct cluster {
    struct autohet_problem p;
    int32_t gpus[MOST_NODES * KINDS];
    int32_t sort_of[MOST_NODES]; /* one for all */
    struct autohet_path inside, between;
    struct autohet_degree degrees[DEGREES];
};

static void die(const char *what)
{
    fprintf(stderr, "bench_autohet: %s\n", what);
    exit(1);
}

static void make_degree(struct autohet_degree *d, int32_t tp)
{
    *d = (struct autohet_degree){.tp = tp, .kind_of = {0, 1, 2}};
    d->sizes = (struct autohet_sizes){.layer = {3.6e9 / tp, 1.6e9 / tp, 1e9 / tp, 0},
                                      .first_bytes = 2.6e9 / tp,
                                      .last_bytes = 3e9 / tp,
                                      .layer_gradient_bytes = 0.8e9 / tp,
                                      .first_gradient_bytes = 0.5e9 / tp,
                                      .last_gradient_bytes = 0.5e9 / tp,
                                      .group_bytes = 138e9};
    for (int32_t t = 0; t < KINDS; t++) {
        struct autohet_type_profile *type = &d->types[t];
        double layer_s = 0.013 / powers[t] * (1.0 / tp + 0.05 * (tp > 1)); /* exchanges inside a part */
        type->unit_power = 1 / layer_s;
        type->memory_bytes = memory[t];
        type->first_s = 0.1 * layer_s;
        type->last_s = 0.6 * layer_s;
        for (int32_t k = 0; k < AUTOHET_POWERS; k++) type->layers_s[k] = layer_s * (1 << k);
    }
}

static void make(struct cluster *c, int32_t gpus)
{
    int32_t nodes = gpus / 8;
    *c = (struct cluster){.p = {.n_kinds = KINDS, .n_nodes = nodes, .n_layers = LAYERS, .n_degrees = DEGREES}};
    c->p.micro_batches = gpus <= 64 ? 128 : 2 * gpus;
    c->p.objective = AUTOHET_EQ_4;
    c->p.node_gpus = c->gpus;
    c->p.n_sorts = 1;
    c->p.sort_of = c->sort_of;
    c->p.inside = &c->inside;
    c->p.between = &c->between;
    c->p.degrees = c->degrees;
    c->p.boundary_bytes = 16.8e6;
    for (int32_t i = 0; i < nodes; i++) c->gpus[i * KINDS + (i < nodes * 2 / 8 ? 0 : i < nodes * 5 / 8 ? 1 : 2)] = 8;
    c->inside = (struct autohet_path){2.3e11, 5e-6};
    c->between = (struct autohet_path){2.5e10, 5e-6};
    for (int32_t i = 0; i < DEGREES; i++) make_degree(&c->degrees[i], 1 << i);
}

/* Plans, and checks all plans. Returns their number and in *unproved how many groupings are not proved. */
static int32_t plan(const struct cluster *c, int32_t *unproved)
{
    struct autohet_candidates all;
    struct ht_error err;
    if (autohet_algorithm1(&c->p, &err, &all)) die(err.text);
    *unproved = 0;
    for (int32_t i = 0; i < all.n; i++) {
        const struct autohet_candidate *x = &all.list[i];
        double power = 0, k = (double)c->p.micro_batches / x->n_groups;
        for (int32_t s = 0; s < x->n_stages; s++) power += x->degree->types[x->places[s].type].unit_power;
        if (x->z > k * power / (x->n_groups * (k - 1) + x->n_stages) * (1 + 1e-9))
            die("a grouping is above the ceiling");
        if (x->n_stages * x->degree->tp != 8 * c->p.n_nodes) die("a plan does not have all GPUs");
        for (int32_t j = 0, at = 0; j < x->n_groups; at += x->stages[j++]) {
            int64_t layers = 0;
            for (int32_t q = 0; q < x->stages[j]; q++) layers += x->blocks[at + q];
            if (layers != LAYERS) die("a group does not have all layers");
        }
        *unproved += !x->proved;
    }
    int32_t n = all.n;
    autohet_candidates_free(&all);
    return n;
}

/* Groups the units at tp 8 with both. Returns the seconds, in *ours and *glpk; *glpk is negative if GLPK gave up. */
static void group_both(const struct cluster *c, int32_t n_groups, double *ours, double *glpk)
{
    const struct autohet_degree *d = &c->degrees[DEGREES - 1];
    struct autohet_grouping_problem p = {
        .n_types = KINDS, .n_groups = n_groups, .max_stages = LAYERS, .min_bytes = d->sizes.group_bytes};
    struct autohet_grouping a, b;
    p.micro_batches = (double)c->p.micro_batches / n_groups;
    for (int32_t t = 0; t < KINDS; t++) {
        p.types[t] = (struct autohet_unit_type){powers[t], 8 * memory[t], 0};
        for (int32_t i = 0; i < c->p.n_nodes; i++) p.types[t].count += c->gpus[i * KINDS + t] / 8;
    }
    double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
    if (autohet_group(&p, NULL, &a)) die("a grouping is not there");
    *ours = bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
    start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
    enum ht_status status = autohet_group_milp(&p, NULL, &b);
    *glpk = status ? -1 : bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
    if (!status && fabs(a.z - b.z) > 1e-6 * a.z) die("GLPK's grouping is another");
    if (!status) autohet_grouping_free(&b);
    autohet_grouping_free(&a);
}

static void measure(int32_t gpus)
{
    struct cluster *c = HT_NEW(struct cluster);
    double seconds[2];
    int32_t plans[2], unproved[2];
    make(c, gpus);
    for (int u = 0; u < 2; u++) {
        double runs[RUNS];
        c->p.uneven = u;
        for (int r = 0; r < RUNS; r++) {
            double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
            plans[u] = plan(c, &unproved[u]);
            runs[r] = bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start;
        }
        seconds[u] = bench_spread_of(runs, RUNS).median;
    }
    printf("%5d %9.4f %6d %9d   %9.4f %6d %9d  ", gpus, seconds[0], plans[0], unproved[0], seconds[1], plans[1],
           unproved[1]);
    for (int32_t d = 2; d <= 4; d += 2) {
        double ours, glpk;
        if (d > gpus / 8) continue;
        group_both(c, d, &ours, &glpk);
        if (glpk < 0)
            printf("   %9.6f   gave up", ours);
        else
            printf("   %9.6f %9.4f", ours, glpk);
    }
    printf("\n");
    fflush(stdout);
    free(c);
}

int main(int argc, char **argv)
{
    static const int32_t sizes[] = {16, 24, 32, 64, 128, 256, 512};
    printf("             default, D divides the micro-batches             every D           tp 8, D = 2          tp 8, "
           "D = 4\n");
    printf(" GPUs         s  plans  unproved           s  plans  unproved        ours s    GLPK s        ours s    "
           "GLPK s\n");
    for (size_t i = 0; i < HT_COUNT(sizes); i++)
        if (argc < 2 || atoi(argv[1]) == sizes[i]) measure(sizes[i]);
    return 0;
}
