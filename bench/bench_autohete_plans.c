/*
 * Holds AutoHete's plans against the best of all plans, as the simulator times them.
 *
 *     build/bench_autohete_plans [MODEL [BATCH [GPUS]]]      default: Table 1's models, batches 8 to 32, 1 and 4 GPUs
 *
 * The sweep has every (c, p, o, e) with p <= o, and `ahead` 1, 2, 4 .. L where parameters are fetched again. A plan
 * counts if its schedule is proved to fit. Plans come in the order of a lower bound, and the sweep ends where the bound
 * reaches the best plan so far, so it leaves out none that could be better. The bound is the larger of two:
 *
 *     device    the same c and e, simulated with nothing on the host and memory without limit, less the o steps
 *     host      the host lane's work, and what it must wait for in each iteration: PF_L F_L head B_L G_L
 *
 * Lanes that share a link can make a schedule faster with more to copy. So a plan may be faster than its bound by a
 * two-hundredth: the sweep goes on that far beyond the best plan, and verifies that none is faster by more.
 *
 * Columns: the plans of autohete (the paper's method) and of autohete_period (ours), and the best one, with seconds of a
 * steady iteration of each; the excess of the two over the best; CPU time of planning, least of 5; how many plans the
 * sweep proved and how many it simulated. Below: median and worst excess of each planner.
 */
#include "autohete/autohete.h"
#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/plan/candidate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/timing.h"

enum { RUNS = 5, SLACK = 200, PLANNERS = 2, MAX_POINTS = 128 };

static const struct ht_system *const planners[PLANNERS] = {&ht_autohete, &ht_autohete_period};

struct point {
    int64_t c, p, o, e, bound_ns;
};

/* A planner's plan. */
struct planned {
    enum ht_status status;
    struct point at;
    int64_t ahead, ns;
    double plan_ms;
};

struct sweep {
    struct ht_scenario scenario, roomy; /* roomy: devices without a limit */
    struct ht_profile *costs;
    struct point best;
    int64_t best_ns, best_ahead;
    int n_proved, n_simulated;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_autohete_plans: %s\n", what);
    exit(1);
}

static struct ht_plan plan_of(const struct point *x, int64_t ahead)
{
    struct ht_plan plan = {0};
    ht_plan_set(&plan, "c", x->c);
    ht_plan_set(&plan, "p", x->p);
    ht_plan_set(&plan, "o", x->o);
    ht_plan_set(&plan, "e", x->e);
    ht_plan_set(&plan, "ahead", ahead);
    return plan;
}

/* Proves a plan and simulates it if it fits; HT_INFEASIBLE if not. */
static enum ht_status simulate(const struct ht_scenario *scenario, const struct ht_profile *costs,
                               const struct ht_plan *plan, int64_t *ns)
{
    struct ht_candidate x;
    struct ht_error err = {0};
    enum ht_status status = ht_candidate_prove(&ht_autohete, scenario, plan, &err, &x);
    if (status == HT_OK) status = ht_candidate_simulate(&x, scenario, costs, &err, ns);
    if (status != HT_OK && status != HT_INFEASIBLE) die(err.text);
    ht_candidate_free(&x);
    return status;
}

/* Simulates a plan if it fits, and keeps the fastest. */
static void try(struct sweep *w, const struct point *x)
{
    int64_t L = w->scenario.model.layers;
    bool refetched = x->p > (x->p == x->o); /* block L keeps its parameters */
    for (int64_t ahead = 1; ahead == 1 || (refetched && ahead <= L); ahead *= 2) {
        struct ht_plan plan = plan_of(x, ahead);
        int64_t ns = 0;
        enum ht_status status = simulate(&w->scenario, w->costs, &plan, &ns);
        ht_plan_free(&plan);
        w->n_proved++;
        if (status != HT_OK) return;
        w->n_simulated++;
        if (ns < x->bound_ns - x->bound_ns / SLACK) die("a plan is faster than its bound");
        if (ns < w->best_ns) {
            w->best = *x;
            w->best_ns = ns;
            w->best_ahead = ahead;
        }
    }
}

static int by_bound(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    return (x->p > y->p) - (x->p < y->p);
}

/* Returns the period of a plan that leaves everything on the device, which has memory without limit. */
static int64_t roomy_ns(const struct sweep *w, int64_t c, int64_t e)
{
    struct ht_plan plan = plan_of(&(struct point){.c = c, .e = e}, 1);
    int64_t ns = 0;
    if (simulate(&w->roomy, w->costs, &plan, &ns) != HT_OK) die("a plan does not fit into memory without limit");
    ht_plan_free(&plan);
    return ns;
}

static void sweep(struct sweep *w)
{
    int64_t L = w->scenario.model.layers;
    struct point *points = HT_NEW_ARRAY(struct point, (L + 1) * (L + 1) * (L + 2));
    size_t n = 0;
    for (int64_t e = 0; e <= 1; e++) {
        struct autohete_profile f;
        struct ht_error err = {0};
        if (autohete_measure(&w->scenario, w->costs, e, &err, &f) != HT_OK) die(err.text);
        int64_t wait_ns =
            f.h2d_ns + f.fp_ns + f.head_ns + (e ? 0 : f.bp_ns) + f.d2h_ns; /* e: the head's G comes first */
        for (int64_t c = 0; c <= L; c++) {
            int64_t device_ns = roomy_ns(w, c, e);
            for (int64_t o = 0; o <= L; o++)
                for (int64_t p = 0; p <= o; p++) {
                    int64_t host_ns = f.ends_host_ns + o * f.cpu_ns + (o > 0) * wait_ns;
                    points[n++] = (struct point){c, p, o, e, ht_max(device_ns - o * f.gpu_ns, host_ns)};
                }
        }
    }
    qsort(points, n, sizeof(*points), by_bound);
    for (size_t i = 0; i < n && points[i].bound_ns - points[i].bound_ns / SLACK < w->best_ns; i++) try(w, &points[i]);
    free(points);
}

/* Plans RUNS times and simulates the plan. The sweep starts from the faster one of the planners. */
static struct planned ask(struct sweep *w, const struct ht_system *system)
{
    const struct ht_settings none = {.n = 0};
    struct planned out = {.status = HT_OK};
    struct ht_error err = {0};
    struct ht_plan plan = {0};
    double ms[RUNS];
    for (int i = 0; i < RUNS && out.status == HT_OK; i++) {
        ht_plan_free(&plan);
        double start = bench_clock_s(CLOCK_THREAD_CPUTIME_ID);
        out.status = system->plan(system, &w->scenario, w->costs, &none, &err, &plan);
        ms[i] = 1e3 * (bench_clock_s(CLOCK_THREAD_CPUTIME_ID) - start);
    }
    if (out.status == HT_OK) {
        if (simulate(&w->scenario, w->costs, &plan, &out.ns) != HT_OK) die("a planner's plan does not fit");
        out.at = (struct point){ht_plan_get(&plan, "c"), ht_plan_get(&plan, "p"), ht_plan_get(&plan, "o"),
                                ht_plan_get(&plan, "e"), 0};
        out.ahead = ht_plan_get(&plan, "ahead");
        out.plan_ms = bench_spread_of(ms, RUNS).low;
        if (out.ns < w->best_ns) {
            w->best = out.at;
            w->best_ns = out.ns;
            w->best_ahead = out.ahead;
        }
    }
    ht_plan_free(&plan);
    return out;
}

static void print_plan(const struct point *x, int64_t ahead, int64_t ns)
{
    printf("%3d %3d %3d %2d %5d %8.4f | ", (int)x->c, (int)x->p, (int)x->o, (int)x->e, (int)ahead, (double)ns / 1e9);
}

static void print_header(void)
{
    printf("%4s %-12s %5s ", "GPUs", "model", "batch");
    for (int i = 0; i < PLANNERS; i++) printf("%-30s| ", planners[i]->name);
    printf("%-30s|\n%23s ", "the best of all plans", "");
    for (int i = 0; i < PLANNERS + 1; i++) printf("%3s %3s %3s %2s %5s %8s | ", "c", "p", "o", "e", "ahead", "s");
    for (int i = 0; i < PLANNERS; i++) printf("%7s ", "excess");
    for (int i = 0; i < PLANNERS; i++) printf("%7s ", "plan ms");
    printf("%6s %9s\n", "proved", "simulated");
}

/* Excess of each planner's plans over the best, percent. */
struct excesses {
    double of[PLANNERS][MAX_POINTS];
    int n[PLANNERS];
};

static void compare(const char *model, int64_t batch, int64_t gpus, struct excesses *all)
{
    char cluster[32];
    snprintf(cluster, sizeof(cluster), "autohete-%dgpu", (int)gpus);
    struct ht_scenario_request request = {.model = model, .cluster = cluster, .batch = batch};
    struct ht_error err = {0};
    struct sweep w = {.best_ns = INT64_MAX};
    struct planned plans[PLANNERS];
    if (ht_scenario_create(&request, &err, &w.scenario) != HT_OK) die(err.text);
    if (ht_scenario_create(&request, &err, &w.roomy) != HT_OK) die(err.text);
    w.roomy.cluster->nodes[0].groups[0].gpu.memory_bytes = (int64_t)1 << 50;
    w.costs = ht_profile_modelled(w.scenario.cluster);
    for (int i = 0; i < PLANNERS; i++) plans[i] = ask(&w, planners[i]);
    sweep(&w);

    printf("%4d %-12s %5d ", (int)gpus, model, (int)batch);
    for (int i = 0; i < PLANNERS; i++)
        if (plans[i].status == HT_OK)
            print_plan(&plans[i].at, plans[i].ahead, plans[i].ns);
        else
            printf("%-30s| ", "none");
    if (w.best_ns == INT64_MAX)
        printf("%-30s| ", "none");
    else
        print_plan(&w.best, w.best_ahead, w.best_ns);
    for (int i = 0; i < PLANNERS; i++) {
        double excess = 1e2 * ((double)plans[i].ns / (double)w.best_ns - 1);
        if (plans[i].status != HT_OK) {
            printf("%7s ", "-");
            continue;
        }
        printf("%6.2f%% ", excess);
        all->of[i][all->n[i]++] = excess;
    }
    for (int i = 0; i < PLANNERS; i++) printf("%7.2f ", plans[i].plan_ms);
    printf("%6d %9d\n", w.n_proved, w.n_simulated);
    fflush(stdout);
    ht_profile_destroy(w.costs);
    ht_scenario_free(&w.scenario);
    ht_scenario_free(&w.roomy);
}

int main(int argc, char **argv)
{
    static const char *const models[] = {"2b", "4b", "6b", "8b", "10b", "12b", "14b", "16b", "18b", "20b", "22b"};
    int64_t batch = argc > 2 ? atoll(argv[2]) : 0, gpus = argc > 3 ? atoll(argv[3]) : 0;
    bool any = false;
    struct excesses all = {0};
    if (argc > 4) {
        fprintf(stderr, "usage: bench_autohete_plans [MODEL [BATCH [GPUS]]]\n");
        return 2;
    }
    print_header();
    for (int64_t g = 1; g <= 4; g += 3)
        for (size_t i = 0; i < HT_COUNT(models); i++)
            for (int64_t b = 8; b <= 32; b += 8) {
                char name[32];
                snprintf(name, sizeof(name), "autohete-%s", models[i]);
                if ((argc < 2 || !strcmp(argv[1], name)) && (!batch || b == batch) && (!gpus || g == gpus))
                    compare(name, b, g, &all), any = true;
            }
    for (int i = 0; i < PLANNERS && any; i++) {
        struct bench_spread e = bench_spread_of(all.of[i], (size_t)all.n[i]);
        printf("%s: excess over the best plan, median %.2f%%, worst %.2f%%, of %d plans\n", planners[i]->name, e.median,
               e.high, all.n[i]);
    }
    if (!any)
        fprintf(stderr, "bench_autohete_plans: no such point: expected autohete-2b .. autohete-22b, a batch of 8, 16, "
                        "24 or 32, 1 or 4 GPUs\n");
    return any ? 0 : 2;
}
