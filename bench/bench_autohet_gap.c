/*
 * AutoHet's plans by eq. (1) beside the best of all groupings, mappings and partitions.
 *
 *     build/bench_autohet_gap [CLUSTERS]      default: 2000
 *
 * Random clusters of 2 to 5 GPUs of two kinds on two nodes, 8 layers, 12 micro-batches; speeds, memory, embedding, head, links and
 * gradients are drawn. The best of all: every division of the GPUs into groups whose number divides the micro-batches,
 * every order of each group's GPUs, and every division of its layers within (4c). Both use the same estimate,
 * so the gap is what grouping by Z, the mapping and eq. (4) lose by it. For each set of choices: median, 95th percentile and worst of T_iter over
 * the best one, less 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autohet/algorithm1.h"
#include "bench/timing.h"
#include "common/base/array.h"
#include "common/base/rng.h"

enum { MOST = 5, LAYERS = 8, BATCHES = 12, KINDS = 2, NODES = 2 };

struct instance {
    struct autohet_problem p;
    struct autohet_degree degree;
    int32_t gpus[NODES * KINDS], n;
    struct autohet_place all[MOST]; /* the GPUs */
    int32_t sort_of[NODES];         /* one for all */
    struct autohet_path inside, between;
    /* the plan at hand */
    int32_t group_of[MOST + 1], sizes[MOST + 1];
    struct autohet_place places[MOST];
    int64_t blocks[MOST], batches[MOST];
    double best_s;
};

static double between(uint64_t seed, uint64_t what, double low, double high)
{
    return low + (high - low) * (double)ht_random_float(seed, what);
}

static void make(struct instance *x, uint64_t seed)
{
    struct autohet_degree *d = &x->degree;
    *x = (struct instance){.p = {.n_kinds = KINDS, .n_nodes = NODES, .n_layers = LAYERS, .n_degrees = 1}};
    x->p.micro_batches = BATCHES;
    x->p.node_gpus = x->gpus;
    x->p.n_sorts = 1;
    x->p.sort_of = x->sort_of;
    x->p.inside = &x->inside;
    x->p.between = &x->between;
    x->p.degrees = d;
    x->p.boundary_bytes = 1;
    x->n = 2 + (int32_t)ht_random_below(seed, 1, MOST - 1);
    *d = (struct autohet_degree){.tp = 1, .kind_of = {0, 1}};
    d->sizes = (struct autohet_sizes){.layer = {10, 2, 4, 0},
                                      .first_bytes = 6,
                                      .last_bytes = 8,
                                      .last_activation_bytes = 0,
                                      .layer_gradient_bytes = between(seed, 2, 0, 4),
                                      .first_gradient_bytes = 2,
                                      .last_gradient_bytes = 2,
                                      .group_bytes = 10 * LAYERS + 2 * LAYERS};
    for (int32_t t = 0; t < KINDS; t++) {
        double layer_s = t ? 1 : between(seed, 3, 1, 3);
        d->types[t] = (struct autohet_type_profile){.unit_power = 1 / layer_s,
                                                    .first_s = 0.05 * layer_s,
                                                    .last_s = 0.6 * layer_s,
                                                    .memory_bytes = (int64_t)between(seed, 4 + (uint64_t)t, 40, 160)};
        for (int32_t k = 0; k < AUTOHET_POWERS; k++) d->types[t].layers_s[k] = layer_s * (1 << k);
    }
    for (int32_t i = 0; i < x->n; i++) {
        int32_t kind = (int32_t)ht_random_below(seed, 10 + (uint64_t)i, KINDS), node = kind;
        if (!ht_random_below(seed, 20 + (uint64_t)i, 4)) node = 1 - node; /* a kind is mostly on one node */
        x->all[i] = (struct autohet_place){kind, node, x->gpus[node * KINDS + kind]++};
    }
    x->inside = (struct autohet_path){200, 0.001};
    x->between = (struct autohet_path){between(seed, 6, 5, 40), 0.001};
}

/* Returns the layers that fit stage q of n at a place. */
static int32_t most_layers(const struct instance *x, const struct autohet_place *place, int32_t n, int32_t q, double k)
{
    struct autohet_memory m = x->degree.sizes.layer;
    if (q == 0) m.fixed_bytes += x->degree.sizes.first_bytes;
    if (q + 1 == n) m.fixed_bytes += x->degree.sizes.last_bytes;
    return autohet_most_layers(&m, (double)x->degree.types[place->type].memory_bytes, n, q, k);
}

/* Divides the layers of group j, of which `left` are left from its stage q on, and of the groups after it in all ways; takes
   the time if it is the best. */
static void divide(struct instance *x, int32_t n_groups, int32_t j, int32_t at, int32_t q, int64_t left)
{
    if (j == n_groups) {
        struct autohet_candidate c = {.degree = &x->degree,
                                      .n_groups = n_groups,
                                      .n_stages = x->n,
                                      .stages = x->sizes,
                                      .micro_batches = x->batches,
                                      .places = x->places,
                                      .blocks = x->blocks};
        autohet_estimate(&x->p, &c);
        x->best_s = fmin(x->best_s, autohet_estimate_s(&c));
        return;
    }
    int32_t n = x->sizes[j];
    x->batches[j] = BATCHES / n_groups;
    int64_t most = most_layers(x, &x->places[at], n, q, (double)x->batches[j]), later = n - q - 1;
    for (int64_t l = later ? 1 : left; l <= left - later && l <= most; l++) {
        x->blocks[at] = l;
        if (later)
            divide(x, n_groups, j, at + 1, q + 1, left - l);
        else
            divide(x, n_groups, j + 1, at + 1, 0, LAYERS);
    }
}

/* Orders the GPUs: places from `at` on are those of group j and the groups after it, in all orders. */
static void order(struct instance *x, int32_t n_groups, int32_t j, int32_t at, uint32_t used)
{
    if (at == x->n) {
        divide(x, n_groups, 0, 0, 0, LAYERS);
        return;
    }
    int32_t end = 0;
    for (int32_t i = 0; i <= j; i++) end += x->sizes[i];
    if (at == end) {
        order(x, n_groups, j + 1, at, used);
        return;
    }
    for (int32_t i = 0; i < x->n; i++) {
        if (used >> i & 1 || x->group_of[i] != j) continue;
        x->places[at] = x->all[i];
        order(x, n_groups, j, at + 1, used | 1u << i);
    }
}

/* Gives GPU i to one of the groups so far, or to a new one. */
static void give(struct instance *x, int32_t i, int32_t n_groups)
{
    if (i == x->n) {
        if (BATCHES % n_groups == 0) order(x, n_groups, 0, 0, 0);
        return;
    }
    for (int32_t j = 0; j <= n_groups; j++) {
        x->group_of[i] = j;
        x->sizes[j]++;
        give(x, i + 1, j == n_groups ? n_groups + 1 : n_groups);
        x->sizes[j]--;
    }
}

/* Returns the plan's time over the best one's, less 1. */
static double gap(const struct instance *x, double grouping_k, enum autohet_objective objective)
{
    struct instance y = *x;
    struct autohet_candidates all;
    y.p.node_gpus = y.gpus;
    y.p.sort_of = y.sort_of;
    y.p.inside = &y.inside;
    y.p.between = &y.between;
    y.p.degrees = &y.degree;
    y.p.grouping_micro_batches = grouping_k;
    y.p.objective = objective;
    if (autohet_algorithm1(&y.p, NULL, &all)) return INFINITY;
    double s = autohet_estimate_s(&all.list[0]);
    autohet_candidates_free(&all);
    return s / x->best_s - 1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int clusters = argc > 1 ? atoi(argv[1]) : 2000, n = 0;
    double *gaps[3], start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
    for (int v = 0; v < 3; v++) gaps[v] = HT_NEW_ARRAY(double, clusters > 0 ? clusters : 1);
    for (int i = 0; i < clusters; i++) {
        struct instance *x = HT_NEW(struct instance);
        make(x, 100 + (uint64_t)i);
        x->p.node_gpus = x->gpus;
        x->best_s = INFINITY;
        give(x, 0, 0);
        if (isfinite(x->best_s)) {
            gaps[0][n] = gap(x, 0, AUTOHET_EQ_4);
            gaps[1][n] = gap(x, 0, AUTOHET_EQ_1);
            gaps[2][n++] = gap(x, 16, AUTOHET_EQ_1);
        }
        free(x);
    }
    static const char *const titles[] = {"the default: K = K_tot / D, eq. (4)", "objective=1: K = K_tot / D, eq. (1)",
                                         "objective=1, K=16"};
    printf("%d of %d clusters have a plan; %.1f s of CPU\n", n, clusters,
           bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start);
    printf("%-38s %8s %8s %8s %10s %8s\n", "T_iter by eq. (1) over the best one's", "median", "95%", "worst",
           "the best", "no plan");
    for (int v = 0; v < 3; v++) {
        int same = 0, none = 0;
        for (int i = 0; i < n; i++) {
            if (gaps[v][i] < -1e-9) {
                fprintf(stderr, "bench_autohet_gap: a plan is better than the best\n");
                return 1;
            }
            same += gaps[v][i] < 1e-9;
            none += !isfinite(gaps[v][i]);
        }
        qsort(gaps[v], (size_t)n, sizeof(double), by_value);
        int last = n - none - 1;
        printf("%-38s %7.2f%% %7.2f%% %7.2f%% %9.1f%% %8d\n", titles[v], 100 * gaps[v][last / 2],
               100 * gaps[v][last * 95 / 100], 100 * gaps[v][last], 100.0 * same / n, none);
        free(gaps[v]);
    }
    return 0;
}
