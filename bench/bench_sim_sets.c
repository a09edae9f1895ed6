/*
 * Measures one graph simulated for many sets of durations, as --what-if, --break-even, --runs and the range of a training's
 * memory do (harness/result/variations.h): on one processor, and on all.
 *
 *     bench_sim_sets [OPS] [RUNS]      default: 100000 ops, median of 5 runs of 16 sets
 *
 * The graph: bench/pipeline_1f1b.h. Set k has every cost times 1 + k / 64. Timed, by the wall clock, is ht_sim_time of all sets,
 * set-ups included. Both ways must give the same times.
 */
#include "common/base/tasks.h"
#include "common/exec/sim.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "bench/pipeline_1f1b.h"
#include "bench/timing.h"

enum { SETS = 16 };

struct sets {
    const struct pipeline *p;
    int64_t ns[SETS];
};

static enum ht_status run_set(void *ctx, size_t k, struct ht_error *err)
{
    struct sets *sets = ctx;
    const struct ht_schedule *s = sets->p->s;
    int64_t *costs = HT_NEW_ARRAY(int64_t, s->n_ops);
    for (int32_t i = 0; i < s->n_ops; i++) costs[i] = sets->p->costs.ns[i] * (64 + (int64_t)k) / 64;
    struct ht_sim_options options = {.iterations = 1};
    struct ht_sim_question question = {.after = -1};
    enum ht_status status = ht_sim_time(s, costs, &options, question, err, &sets->ns[k]);
    free(costs);
    return status;
}

/* Returns the seconds that all sets take on so many threads; 0: all processors. */
static double time_of(struct sets *sets, int n_threads)
{
    struct ht_error err = {0};
    struct ht_tasks tasks = {
        .name = "bench_sim_sets", .noun = "sets", .n = SETS, .ctx = sets, .run = run_set, .n_threads = n_threads};
    double start = bench_now_s();
    if (ht_tasks_run(&tasks, &err) == HT_OK) return bench_now_s() - start;
    fprintf(stderr, "bench_sim_sets: %s\n", err.text);
    exit(1);
}

int main(int argc, char **argv)
{
    int64_t n_ops = argc > 1 ? atoll(argv[1]) : 100000;
    int runs = argc > 2 ? atoi(argv[2]) : 5;
    if (n_ops < 1000 || n_ops > 2000000 || runs < 1 || runs > 99) {
        fprintf(stderr, "usage: bench_sim_sets [OPS 1000..2000000] [RUNS 1..99]\n");
        return 2;
    }
    struct pipeline p = {.full = true};
    make_pipeline(&p, (int32_t)(n_ops / (RANKS * 8 - 4)) + 1);
    struct sets one = {.p = &p}, all = {.p = &p};
    double one_s[99], all_s[99];
    time_of(&all, 0); /* warm-up */
    for (int i = 0; i < runs; i++) {
        one_s[i] = time_of(&one, 1);
        all_s[i] = time_of(&all, 0);
        if (memcmp(one.ns, all.ns, sizeof(one.ns)) == 0) continue;
        fprintf(stderr, "bench_sim_sets: one processor and all give other times\n");
        return 1;
    }
    cpu_set_t cpus;
    int n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    struct bench_spread a = bench_spread_of(one_s, runs), b = bench_spread_of(all_s, runs);
    double work = 1e-6 * SETS * p.s->n_ops;
    printf("%d ops, %d sets of durations; n = %d\n", p.s->n_ops, SETS, runs);
    printf("one processor   %6.2fe6 ops/s in total (%.2f to %.2f)\n", work / a.median, work / a.high, work / a.low);
    printf("all %-3d         %6.2fe6 ops/s in total (%.2f to %.2f)\n", n_cpus, work / b.median, work / b.high,
           work / b.low);
    printf("ratio           %6.2f\n", a.median / b.median);
    free_pipeline(&p);
    return 0;
}
