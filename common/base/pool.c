/*
 * One generation counter starts a run, one counter of unfinished workers ends it. Both are futex words: a waiter spins
 * on the word for a while and then sleeps on it.
 *
 *     caller                                   worker
 *     fn, arg = ...; unfinished = n - 1
 *     generation++ (release), wake        -->  sees a new generation (acquire)
 *     fn(arg, 0, n)                            fn(arg, i, n)
 *     waits for unfinished == 0 (acquire) <--  unfinished-- (release), the last one wakes
 */
#include "common/base/pool.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/array.h"

/* Tens of microseconds: longer than the gap between two kernels of a block, much shorter than a scheduler's time slice.
 */
enum { SPINS = 4000 };

struct worker {
    struct ht_pool *pool;
    pthread_t thread;
    int index;
};

struct ht_pool {
    _Alignas(64) atomic_uint generation;
    _Alignas(64) atomic_uint unfinished;
    ht_pool_fn fn; /* NULL tells the workers to end */
    void *arg;
    int n_threads;
    struct worker *workers; /* n_threads; [0] is the caller */
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until *word is not `seen`. Returns the new value. */
static unsigned wait_while(atomic_uint *word, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(word, memory_order_acquire);
        if (now != seen) return now;
        relax();
    }
    for (;;) {
        unsigned now = atomic_load_explicit(word, memory_order_acquire);
        if (now != seen) return now;
        futex_wait(word, seen);
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct ht_pool *p = w->pool;
    unsigned generation = 0;
    for (;;) {
        generation = wait_while(&p->generation, generation);
        if (!p->fn) return NULL;
        p->fn(p->arg, w->index, p->n_threads);
        if (atomic_fetch_sub_explicit(&p->unfinished, 1, memory_order_acq_rel) == 1) futex_wake_all(&p->unfinished);
    }
}

static void start(struct ht_pool *p, ht_pool_fn fn, void *arg)
{
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->unfinished, (unsigned)p->n_threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    futex_wake_all(&p->generation);
}

/* Starts worker `index`. Returns 0 or an errno. */
static int start_worker(struct ht_pool *p, int index, const int *cpus)
{
    struct worker *w = &p->workers[index];
    *w = (struct worker){.pool = p, .index = index};
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc) return rc;
    if (cpus) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)cpus[index], &set);
        rc = pthread_attr_setaffinity_np(&attr, sizeof(set), &set);
    }
    if (!rc) rc = pthread_create(&w->thread, &attr, work, w);
    pthread_attr_destroy(&attr);
    return rc;
}

struct ht_pool *ht_pool_create(int n_threads, const int *cpus)
{
    assert(n_threads >= 1);
    int rc;
    struct ht_pool *p = ht_alloc_aligned(_Alignof(struct ht_pool), sizeof(*p));
    *p = (struct ht_pool){.n_threads = 1, .workers = HT_NEW_ARRAY(struct worker, n_threads)};
    while (p->n_threads < n_threads) {
        rc = start_worker(p, p->n_threads, cpus);
        if (rc) {
            ht_pool_destroy(p);
            errno = rc;
            return NULL;
        }
        p->n_threads++;
    }
    return p;
}

void ht_pool_destroy(struct ht_pool *p)
{
    if (!p) return;
    if (p->n_threads > 1) start(p, NULL, NULL);
    for (int i = 1; i < p->n_threads; i++) pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p);
}

void ht_pool_run(struct ht_pool *p, ht_pool_fn fn, void *arg)
{
    int n = ht_pool_threads(p);
    if (n == 1) {
        fn(arg, 0, 1);
        return;
    }
    start(p, fn, arg);
    fn(arg, 0, n);
    unsigned left = atomic_load_explicit(&p->unfinished, memory_order_acquire);
    while (left) left = wait_while(&p->unfinished, left);
}

int ht_pool_threads(const struct ht_pool *p)
{
    return p ? p->n_threads : 1;
}

int ht_pool_pin_self(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    return -pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}
