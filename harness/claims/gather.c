/* All scenarios that claims ask for, over the machine's processors. */
#include "harness/claims/observe.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct errand {
    const char *variant;
    const struct ht_claim_setup *setup;
    struct ht_claim_point point;
    struct ht_observation *found;
    double passes; /* of micro-batches through units: time and memory grow with them */
};

/* A graph over 32 devices comes to about 48 kB for each of them, over fewer devices to less. */
static const double pass_bytes = 64e3;

struct gathering {
    struct errand *errands;
    size_t n, cap;
    double memory;        /* that may be taken; one scenario may exceed it, alone */
    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t freed;
    size_t next, done;
    double taken;
    int running;
    enum ht_status status;
    struct ht_error *err;
    double shown_s;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- what has to be seen --------------------------------------------------------------------------------------- */

static double passes_of(const struct ht_claim_setup *s, struct ht_claim_point p)
{
    int64_t micro_batch = s->micro_batches[p.at[HT_CLAIM_MICRO_BATCHES]];
    return (double)ht_claim_batch(s, p) / (double)(micro_batch ? micro_batch : 1) *
           (double)s->n_units[p.at[HT_CLAIM_MODELS]];
}

static void add(struct gathering *g, const struct ht_observations *seen, const struct ht_claim_system *system,
                const struct ht_claim_setup *setup, struct ht_claim_point point)
{
    for (int v = 0; v < system->n_variants; v++) {
        char key[HT_OBSERVATION_KEY];
        ht_observation_key(system->variants[v], setup, point, key);
        bool known = ht_observation_of(seen, key) != NULL;
        for (size_t i = 0; i < g->n && !known; i++) known = !strcmp(g->errands[i].found->key, key);
        if (known) continue;
        struct errand e = {.variant = system->variants[v], .setup = setup, .point = point};
        e.passes = passes_of(setup, point);
        e.found = HT_NEW(struct ht_observation);
        memcpy(e.found->key, key, sizeof(key));
        HT_PUSH(g->errands, g->n, g->cap, e);
    }
}

static void add_claim(struct gathering *g, const struct ht_observations *seen, const struct ht_claim *c)
{
    int at[HT_N_CLAIM_AXES] = {0};
    if (c->unchecked[0] || c->setup->train_steps) return;
    do {
        struct ht_claim_point point;
        for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) point.at[axis] = c->at[axis][at[axis]];
        add(g, seen, c->systems[at[HT_CLAIM_BY_SYSTEM]], c->setup, point);
        if (c->versus) add(g, seen, c->versus, c->setup, point);
    } while (ht_claim_next(c, (1u << HT_N_CLAIM_AXES) - 1, at));
}

static int larger_first(const void *a, const void *b)
{
    double x = ((const struct errand *)a)->passes, y = ((const struct errand *)b)->passes;
    return (x < y) - (x > y);
}

/* ---- seeing ---------------------------------------------------------------------------------------------------- */

/* Under the lock. A quick run says nothing. */
static void show(struct gathering *g)
{
    bool terminal = isatty(STDERR_FILENO);
    double now = now_s();
    if (now - g->shown_s < (terminal ? 0.2 : 5)) return;
    g->shown_s = now;
    fprintf(stderr, "%sreproduce: %zu of %zu scenarios%s", terminal ? "\r\033[K" : "", g->done, g->n,
            terminal ? "" : "\n");
}

static void *work(void *arg)
{
    struct gathering *g = arg;
    pthread_mutex_lock(&g->lock);
    while (g->status == HT_OK && g->next < g->n) {
        struct errand *e = &g->errands[g->next++];
        struct ht_error err = {0};
        double bytes = e->passes * pass_bytes;
        while (g->running && g->taken + bytes > g->memory) pthread_cond_wait(&g->freed, &g->lock);
        g->taken += bytes;
        g->running++;
        pthread_mutex_unlock(&g->lock);
        enum ht_status status = ht_interrupted() ? ht_fail(&err, HT_INTERRUPTED, "interrupted")
                                                 : ht_look(e->variant, e->setup, e->point, &err, e->found);
        pthread_mutex_lock(&g->lock);
        if (status != HT_OK && g->status == HT_OK) {
            g->status = status;
            *g->err = err;
        }
        g->taken = --g->running ? g->taken - bytes : 0; /* no rounding stays */
        pthread_cond_broadcast(&g->freed);
        g->done++;
        show(g);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static void work_together(struct gathering *g)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = cpus < 1 ? 1 : cpus > MOST ? MOST : (size_t)cpus, n = 0;
    if (wanted > g->n) wanted = g->n;
    while (n + 1 < wanted && pthread_create(&threads[n], NULL, work, g) == 0) n++;
    work(g); /* the caller is one of them */
    for (size_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

enum ht_status ht_claims_gather(const struct ht_claim *const *claims, size_t n, struct ht_observations *seen,
                                struct ht_error *err)
{
    double ram = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
    struct gathering g = {.err = err, .shown_s = now_s(), .memory = 0.5 * ram};
    double began = g.shown_s;
    for (size_t i = 0; i < n; i++) add_claim(&g, seen, claims[i]);
    if (g.n) qsort(g.errands, g.n, sizeof(*g.errands), larger_first);
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.freed, NULL);
    work_together(&g);
    pthread_cond_destroy(&g.freed);
    pthread_mutex_destroy(&g.lock);
    if (g.shown_s > began && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (g.status == HT_INTERRUPTED) ht_fail(err, HT_INTERRUPTED, "interrupted after %zu of %zu scenarios", g.done, g.n);
    for (size_t i = 0; i < g.n; i++) {
        if (g.status == HT_OK)
            HT_PUSH(seen->list, seen->n, seen->cap, g.errands[i].found);
        else
            ht_observation_destroy(g.errands[i].found);
    }
    free(g.errands);
    return g.status;
}
