/*
 * A pool of workers that run one function together: the cores of the CPU "device".
 *
 *     ht_pool_run(pool, scale_rows, &args);      calls scale_rows(&args, worker, n_workers) once on every worker
 *
 * The caller is worker 0, so a pool of one creates no threads. Work is split statically by (worker, n_workers) with
 * ht_range_split, never stolen: for a given number of workers every result has the same bits in every run.
 *
 * Idle workers spin for some tens of microseconds, since kernels come in quick succession, and then sleep.
 */
#ifndef HT_BASE_POOL_H
#define HT_BASE_POOL_H

#include <stdint.h>

struct ht_pool;
typedef void (*ht_pool_fn)(void *arg, int worker, int n_workers);

/* Creates a pool of n_threads >= 1 workers, the caller of ht_pool_run included. cpus: NULL, or n_threads CPU numbers;
   worker i > 0 is pinned to cpus[i]. cpus[0] is the caller's, which may pin itself with ht_pool_pin_self. Returns NULL
   with errno set when a thread cannot be created or pinned. */
struct ht_pool *ht_pool_create(int n_threads, const int *cpus);
void ht_pool_destroy(struct ht_pool *pool); /* accepts NULL */

/* Runs fn on all workers and returns when all have returned; their writes are visible to the caller. One caller at a
   time, not from within fn. A NULL pool is a pool of one. */
void ht_pool_run(struct ht_pool *pool, ht_pool_fn fn, void *arg);
int ht_pool_threads(const struct ht_pool *pool);

/* Pins the calling thread. Returns 0 or -errno. */
int ht_pool_pin_self(int cpu);

/* A half-open range of indices. */
struct ht_range {
    int64_t begin, end;
};

/* Returns a worker's share of [0, n). Shares are contiguous; their sizes are multiples of `grain`, except the last, and
   differ by at most one grain. */
static inline struct ht_range ht_range_split(int64_t n, int64_t grain, int worker, int n_workers)
{
    int64_t grains = (n + grain - 1) / grain;
    int64_t begin = grains * worker / n_workers * grain, end = grains * (worker + 1) / n_workers * grain;
    return (struct ht_range){.begin = begin < n ? begin : n, .end = end < n ? end : n};
}

#endif
