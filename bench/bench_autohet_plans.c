/*
 * AutoHet's plans beside the best of all plans, as the simulator times them.
 *
 *     build/bench_autohet_plans [CLUSTERS]      default: 50
 *
 * Random clusters of 2 to 5 GPUs: A100 on one node, H800 or H20 on the other. The model has 8 blocks of one of the paper's; its
 * batch and the GPUs' memory are drawn. The plans are all that AutoHet's builder takes with as many micro-batches in each group:
 * every tensor-parallel degree, every division of the GPUs into groups, every order of each group's GPUs, every number of layers
 * for each stage. GPUs of a kind are on one node, so which of them does not matter.
 *
 * Plans come in the order of a lower bound, the slowest GPU's passes, and the search ends where that reaches the best plan so
 * far, so it leaves out none that could be better. It verifies that no plan is faster than its bound. A plan counts if its
 * schedule is proved to fit. For each way of planning: simulated time over the best plan's, less 1.
 */
#include "autohet/autohet.h"

#include "common/base/array.h"
#include "common/base/rng.h"
#include "common/plan/candidate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/timing.h"

enum { MOST = 5, BLOCKS = 8, SLACK = 200, WAYS = 3 };

/* A pipeline: the kind and the layers of each stage. */
struct group {
    int32_t n, kinds[MOST], units[2]; /* units[k]: stages of kind k */
    int64_t layers[MOST];
    double slowest_s; /* passes of a micro-batch on its slowest stage */
};

struct point {
    int32_t tp, n, groups[MOST];
    double bound_s;
};

struct sweep {
    struct ht_scenario scenario;
    struct ht_profile *costs;
    struct autohet_measured measured;
    int32_t gpus[2]; /* of each kind: ranks 0 .. gpus[0] - 1 are of the first */
    struct group *groups;
    size_t n_groups, cap_groups;
    struct point *points;
    size_t n_points, cap_points;
    int64_t best_ns;
    int n_simulated;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_autohet_plans: %s\n", what);
    exit(1);
}

/* ---- plans ----------------------------------------------------------------------------------------------------- */

static double stage_s(const struct autohet_degree *d, const struct group *g, int32_t q)
{
    int32_t t = d->kind_of[0] == g->kinds[q] ? 0 : 1;
    const struct autohet_type_profile *type = &d->types[t];
    return (double)g->layers[q] * type->layers_s[0] + (q == 0) * type->first_s + (q == g->n - 1) * type->last_s;
}

/* Adds the groups that go on as g does: `left` layers from stage g->n on. */
static void add_groups(struct sweep *w, const struct autohet_degree *d, struct group g, int64_t left)
{
    if (!left) {
        g.slowest_s = 0;
        for (int32_t q = 0; q < g.n; q++) g.slowest_s = fmax(g.slowest_s, stage_s(d, &g, q));
        HT_PUSH(w->groups, w->n_groups, w->cap_groups, g);
        return;
    }
    for (int32_t k = 0; k < 2 && g.n < MOST; k++)
        for (int64_t l = 1; l <= left && g.units[k] < w->gpus[k] / d->tp; l++) {
            struct group longer = g;
            longer.kinds[g.n] = k;
            longer.layers[g.n++] = l;
            longer.n = g.n--;
            longer.units[k]++;
            add_groups(w, d, longer, left - l);
        }
}

/* Adds the points that go on as x does, with groups from `first` on, of the units that are left. */
static void add_points(struct sweep *w, struct point x, int32_t first, int32_t left_0, int32_t left_1)
{
    int64_t batches = ht_scenario_micro_batches(&w->scenario);
    if (!left_0 && !left_1) {
        if (batches % x.n) return;
        x.bound_s *= (double)(batches / x.n);
        HT_PUSH(w->points, w->n_points, w->cap_points, x);
        return;
    }
    for (int32_t i = first; i < (int32_t)w->n_groups; i++) {
        const struct group *g = &w->groups[i];
        if (g->units[0] > left_0 || g->units[1] > left_1) continue;
        struct point more = x;
        more.groups[more.n++] = i;
        more.bound_s = fmax(x.bound_s, g->slowest_s);
        add_points(w, more, i, left_0 - g->units[0], left_1 - g->units[1]);
    }
}

static void set_list(struct ht_plan *plan, const char *name, enum ht_variable_kind kind, int32_t n, int64_t *values)
{
    struct ht_variable v = {.kind = kind, .n = n, .values = values};
    snprintf(v.name, sizeof(v.name), "%s", name);
    ht_plan_set_vector(plan, &v);
}

static struct ht_plan plan_of(const struct sweep *w, const struct point *x)
{
    struct ht_plan plan = {0};
    int64_t pipelines[MOST], l[MOST], blocks[MOST], place[MOST];
    int32_t next[2] = {0, w->gpus[0]}, stages = 0, ranks = 0;
    for (int32_t j = 0; j < x->n; j++) {
        const struct group *g = &w->groups[x->groups[j]];
        pipelines[j] = g->n * x->tp;
        l[j] = ht_scenario_micro_batches(&w->scenario) / x->n;
        for (int32_t q = 0; q < g->n; q++) {
            blocks[stages++] = g->layers[q];
            for (int32_t part = 0; part < x->tp; part++) place[ranks++] = next[g->kinds[q]]++;
        }
    }
    ht_plan_set(&plan, "tp", x->tp);
    set_list(&plan, "pipelines", HT_VARIABLE_LIST, x->n, pipelines);
    set_list(&plan, "l", HT_VARIABLE_LIST, x->n, l);
    set_list(&plan, "blocks", HT_VARIABLE_LIST, stages, blocks);
    set_list(&plan, "place", HT_VARIABLE_RANKS, ranks, place);
    return plan;
}

/* ---- times ----------------------------------------------------------------------------------------------------- */

/* Returns a plan's simulated time, or INT64_MAX if it does not fit. */
static int64_t simulate(const struct sweep *w, const struct ht_plan *plan)
{
    struct ht_candidate x = {0};
    struct ht_error err = {0};
    int64_t ns = INT64_MAX;
    enum ht_status status = autohet_check(&w->scenario, plan, &err);
    if (status == HT_OK) status = ht_candidate_prove(&autohet, &w->scenario, plan, &err, &x);
    if (status == HT_OK) status = ht_candidate_simulate(&x, &w->scenario, w->costs, &err, &ns);
    if (status != HT_OK && status != HT_INFEASIBLE) die(err.text);
    ht_candidate_free(&x);
    return ns;
}

static int by_bound(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return (x->bound_s > y->bound_s) - (x->bound_s < y->bound_s);
}

/* Simulates every plan that could be the best. */
static void sweep(struct sweep *w)
{
    for (int32_t i = 0; i < w->measured.problem.n_degrees; i++) {
        const struct autohet_degree *d = &w->measured.degrees[i];
        size_t first = w->n_groups;
        add_groups(w, d, (struct group){0}, BLOCKS);
        add_points(w, (struct point){.tp = d->tp}, (int32_t)first, w->gpus[0] / d->tp, w->gpus[1] / d->tp);
    }
    qsort(w->points, w->n_points, sizeof(*w->points), by_bound);
    for (size_t i = 0; i < w->n_points && w->points[i].bound_s * (1 - 1.0 / SLACK) < 1e-9 * (double)w->best_ns; i++) {
        struct ht_plan plan = plan_of(w, &w->points[i]);
        int64_t ns = simulate(w, &plan);
        ht_plan_free(&plan);
        w->n_simulated++;
        if (1e-9 * (double)ns < w->points[i].bound_s * (1 - 1.0 / SLACK)) die("a plan is faster than its bound");
        if (ns < w->best_ns) w->best_ns = ns;
    }
}

/* The ways of planning that are held against the best plan. */
static const struct {
    const char *title;
    int64_t choose, simulated, objective;
} ways[WAYS] = {{"the default: the shortest by eq. (1)", 0, 0, 4},
                {"choose=1 simulated=8: the fastest of 8", 1, 8, 4},
                {"the same with objective=1", 1, 8, 1}};

/* Returns the simulated time of a way's plan, INT64_MAX if it finds none. */
static int64_t ask(const struct sweep *w, int way)
{
    const struct ht_settings settings = {.values = {{.name = "choose", .value = ways[way].choose},
                                                    {.name = "simulated", .value = ways[way].simulated},
                                                    {.name = "objective", .value = ways[way].objective}},
                                         .n = 3};
    struct ht_plan plan = {0};
    struct ht_error err = {0};
    int64_t ns = INT64_MAX;
    enum ht_status status = autohet.plan(&autohet, &w->scenario, w->costs, &settings, &err, &plan);
    if (status == HT_OK) ns = simulate(w, &plan);
    if (status != HT_OK && status != HT_INFEASIBLE) die(err.text);
    ht_plan_free(&plan);
    return ns;
}

/* ---- clusters -------------------------------------------------------------------------------------------------- */

static int64_t draw(uint64_t seed, uint64_t what, int64_t least, int64_t most)
{
    return least + (int64_t)ht_random_below(seed, what, (uint64_t)(most - least + 1));
}

static void open_cluster(struct sweep *w, uint64_t seed)
{
    static const char *const models[] = {"autohet-gpt3-3b", "autohet-gpt3-6.7b", "autohet-llama-6.7b",
                                         "autohet-gpt3-13b"};
    static const int64_t batches[] = {4, 6, 8, 12};
    const char *other = draw(seed, 1, 0, 1) ? "h800" : "h20",
               *kind = *other == 'h' && other[1] == '8' ? "h800-80gb" : "h20-96gb";
    int32_t n = (int32_t)draw(seed, 2, 2, MOST);
    char cluster[64], only[64];
    struct ht_error err = {0};
    w->gpus[0] = (int32_t)draw(seed, 3, 1, n - 1);
    w->gpus[1] = n - w->gpus[0];
    snprintf(cluster, sizeof(cluster), "autohet-8a100-8%s", other);
    snprintf(only, sizeof(only), "a100-80gb:%d,%s:%d", w->gpus[0], kind, w->gpus[1]);
    struct ht_scenario_request request = {.model = models[draw(seed, 4, 0, 3)],
                                          .blocks = BLOCKS,
                                          .cluster = cluster,
                                          .only = only,
                                          .batch = batches[draw(seed, 5, 0, 3)],
                                          .micro_batch = 1,
                                          .numerics = "bf16",
                                          .device_memory_bytes = draw(seed, 6, 16, 80) * 1000000000};
    if (ht_scenario_create(&request, &err, &w->scenario) != HT_OK) die(err.text);
    w->costs = ht_profile_modelled(w->scenario.cluster);
    if (autohet_measure(&w->scenario, w->costs, NULL, 0, &(struct ht_pipe_style){.order = HT_PIPE_1F1B}, &err,
                        &w->measured) != HT_OK)
        die(err.text);
}

static void close_cluster(struct sweep *w)
{
    free(w->groups);
    free(w->points);
    autohet_measured_free(&w->measured);
    ht_profile_destroy(w->costs);
    ht_scenario_free(&w->scenario);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints a way's row: n gaps to the best plan, INFINITY where it found none. */
static void print_row(int way, double *gaps, int n)
{
    int none = 0, same = 0;
    for (int i = 0; i < n; i++) {
        none += !isfinite(gaps[i]);
        same += gaps[i] == 0;
    }
    qsort(gaps, (size_t)n, sizeof(*gaps), by_value);
    int last = n - none - 1;
    if (last < 0) die("no way of planning finds a plan; expected more clusters");
    printf("%-40s %7.2f%% %7.2f%% %7.2f%% %9.0f%% %8d\n", ways[way].title, 100 * gaps[last / 2],
           100 * gaps[last * 95 / 100], 100 * gaps[last], 100.0 * same / n, none);
}

int main(int argc, char **argv)
{
    int clusters = argc > 1 ? atoi(argv[1]) : 50, n = 0;
    if (argc > 2 || clusters < 1) {
        fprintf(stderr, "usage: bench_autohet_plans [CLUSTERS]\n");
        return 2;
    }
    double *gaps[WAYS], start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
    size_t plans = 0, simulated = 0;
    for (int i = 0; i < WAYS; i++) gaps[i] = HT_NEW_ARRAY(double, clusters);
    for (int c = 0; c < clusters; c++) {
        struct sweep w = {.best_ns = INT64_MAX};
        int64_t ns[WAYS];
        open_cluster(&w, 1000 + (uint64_t)c);
        for (int i = 0; i < WAYS; i++) {
            ns[i] = ask(&w, i);
            if (ns[i] < w.best_ns) w.best_ns = ns[i];
        }
        sweep(&w);
        plans += w.n_points;
        simulated += (size_t)w.n_simulated;
        for (int i = 0; i < WAYS && w.best_ns < INT64_MAX; i++)
            gaps[i][n] = ns[i] == INT64_MAX ? INFINITY : (double)ns[i] / (double)w.best_ns - 1;
        n += w.best_ns < INT64_MAX;
        close_cluster(&w);
    }
    printf(
        "%d of %d clusters have a plan; %zu plans, of which %zu could be the best and were simulated; %.0f s of CPU\n",
        n, clusters, plans, simulated, bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start);
    printf("%-40s %8s %8s %8s %10s %8s\n", "simulated time over the best plan's", "median", "95%", "worst", "the best",
           "no plan");
    for (int i = 0; i < WAYS; i++) {
        print_row(i, gaps[i], n);
        free(gaps[i]);
    }
    return 0;
}
