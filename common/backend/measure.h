/*
 * What each work of a schedule costs on this machine, found by running it.
 *
 * The schedule is run by the real executor on the CPU or the CUDA backend, on the lanes, threads, cores and arenas that training
 * uses, with one difference: every op also waits for the one before it, so that exactly one runs at a time. A duration
 * is then what the work costs alone, as a profile means it, and is found with the caches as an iteration leaves them:
 * running one op over and over would time it on data that is still in the nearest cache.
 *
 *     training      compute  F0 F1 F2 B2 B1 B0          measuring   F0 F1 F2 B2    B1    B0
 *                   d2h                  G2 G1 G0                               G2    G1    G0
 *
 * What runs at the same time as what, and what that does to the times, is the executors' business and no part of a
 * cost.
 */
#ifndef HT_BACKEND_MEASURE_H
#define HT_BACKEND_MEASURE_H

#include "common/backend/cuda.h"

#include <stddef.h>

/* All durations found of one work. */
struct ht_sample {
    char key[HT_WORK_KEY_MAX];
    int64_t *ns; /* ascending after ht_samples_sort */
    size_t n, cap;
};

/* Zero-initialised: none. Filled by any number of ht_measure, whose schedules may share works. */
struct ht_samples {
    struct ht_sample *rows;
    size_t n, cap;
};
void ht_samples_free(struct ht_samples *s);
/* Rows by key, each row's durations ascending. Idempotent. */
void ht_samples_sort(struct ht_samples *s);
/* The q-quantile, 0 <= q <= 1, of a sorted row: linear between its neighbours, rounded to whole nanoseconds. */
int64_t ht_sample_quantile(const struct ht_sample *row, double q);

struct ht_measure_options {
    struct ht_model model; /* of the schedule: its units are the model's */
    struct ht_numerics numerics;
    int64_t tokens_per_iteration;
    struct ht_cpu_split split;
    bool on_gpu; /* on the CUDA backend, timed by its events; beside it the host's cores of the split */
    const struct ht_cuda_api *api; /* of it; NULL: this build's */
    int gpu;                       /* which */
    int32_t warmup;                /* iterations left out: >= 0; two let every buffer be touched once */
    int32_t iterations;            /* measured: >= 1 */
    /* Optional: after every iteration, those of the warm-up included. A status other than HT_OK ends the measuring. */
    enum ht_status (*progress)(void *ctx, int32_t done, struct ht_error *err);
    void *progress_ctx;
};

/* Runs a verified schedule of one rank and adds the duration of every op to its work's row; works that are free are
   left out. Capacities do not count: the arenas are as large as the safe sequence needs. HT_INTERRUPTED on Ctrl-C;
   then, and on errors, *samples is unchanged. HT_INFEASIBLE: the backend has no kernels for the model or the
   numerics, there is no GPU, or it is too small, or the schedule has several ranks. */
enum ht_status ht_measure(const struct ht_schedule *s, const struct ht_measure_options *options, struct ht_error *err,
                          struct ht_samples *samples);

/* The same schedule of one rank and no groups, op for op, with an edge from each op to the next and from the last to
   the next iteration's first; without limits on memory and without resources, for which nothing contends. The caller
   destroys it. */
struct ht_schedule *ht_schedule_one_at_a_time(const struct ht_schedule *s);

#endif
