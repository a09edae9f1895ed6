#include "harness/advise/advise.h"

#include "common/base/array.h"
#include "harness/run/registry.h"
#include "harness/run/simulate.h"
#include "harness/sweep/micro_batch.h"
#include "harness/sweep/tasks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cards ------------------------------------------------------------------------------------------------- */

static void add_cards(struct ht_search *s, size_t *cap, const struct ht_device_kind *kinds, int64_t n, uint64_t mask,
                      int64_t count)
{
    struct ht_cards c = {.kinds = mask};
    size_t used = 0;
    bool all = mask == (UINT64_C(1) << n) - 1 && !count;
    for (int64_t k = 0; k < n; k++) {
        if (!(mask >> k & 1)) continue;
        int64_t of_kind = count ? count : kinds[k].count;
        c.n_gpus += of_kind;
        if (all || used >= sizeof(c.only)) continue;
        used += (size_t)snprintf(c.only + used, sizeof(c.only) - used, count ? "%s%s:%lld" : "%s%s", used ? "," : "",
                                 kinds[k].gpu->name, (long long)count);
    }
    HT_PUSH(s->cards, s->n_cards, *cap, c);
}

/* Lists subsets of the cards: all of them, and all of some kinds; of up to four kinds every choice, of more all but one
   kind and each kind alone. Of each kind with several cards also half of them and a single one. */
static void list_cards(struct ht_search *s)
{
    struct ht_device_kind *kinds = HT_NEW_ARRAY(struct ht_device_kind, s->cluster->n_gpus);
    int64_t n = ht_cluster_kinds(s->cluster, kinds);
    uint64_t all = (UINT64_C(1) << n) - 1;
    size_t cap = 0;
    add_cards(s, &cap, kinds, n, all, 0);
    for (uint64_t mask = all - 1; n <= 4 && mask; mask--) add_cards(s, &cap, kinds, n, mask, 0);
    for (int64_t k = 0; k < n; k++) {
        uint64_t one = UINT64_C(1) << k;
        if (n > 4) {
            add_cards(s, &cap, kinds, n, all & ~one, 0);
            add_cards(s, &cap, kinds, n, one, 0);
        }
        if (kinds[k].count > 3) add_cards(s, &cap, kinds, n, one, kinds[k].count / 2);
        if (kinds[k].count > 1) add_cards(s, &cap, kinds, n, one, 1);
    }
    free(kinds);
}

/* ---- one way --------------------------------------------------------------------------------------------------- */

void ht_way_apply(const struct ht_search *s, const struct ht_way *way, struct ht_options *o)
{
    const struct ht_cards *cards = &s->cards[way->cards];
    *o = *s->options;
    o->request.made = s->cluster;
    o->request.only = *cards->only ? cards->only : NULL;
    o->request.batch = way->batch;
    o->request.micro_batch = way->micro_batch;
}

/* Returns the batch on so many cards: what was asked for, or 64; raised to a multiple of the cards where each takes an
   equal part. */
static int64_t batch_for(const struct ht_search *s, const struct ht_system *system, int64_t n_gpus)
{
    int64_t asked = s->options->request.batch ? s->options->request.batch : HT_ADVISE_BATCH;
    bool equal = system->division == HT_EQUAL_REPLICAS || system->division == HT_SHARED_STATES;
    return equal ? (asked + n_gpus - 1) / n_gpus * n_gpus : asked;
}

/* Returns tokens per second, as ht_result_create computes them. */
static double rate_of(const struct ht_job *job, int64_t iteration_ns)
{
    return (double)job->scenario.batch / ((double)iteration_ns * 1e-9) * (double)job->scenario.seq;
}

/* Takes a rate that was found: the best of its cards, and the third best of all systems. */
static void take_rate(struct ht_search *s, struct ht_way *way)
{
    size_t ways[3];
    pthread_mutex_lock(&s->lock);
    s->n_simulated++;
    if (way->tokens_per_s > s->best[way->cards]) s->best[way->cards] = way->tokens_per_s;
    s->third = ht_search_best(s, ways, 3) == 3 ? s->ways[ways[2]].tokens_per_s : 0;
    pthread_mutex_unlock(&s->lock);
}

/* Returns the shortest iteration that counts nowhere: its rate is not above the way's, or below both the third best and the
   best of its cards. INT64_MAX: every one counts. */
static int64_t limit_of(struct ht_search *s, const struct ht_way *way, const struct ht_job *job)
{
    pthread_mutex_lock(&s->lock);
    double third = s->third < s->best[way->cards] ? s->third : s->best[way->cards];
    pthread_mutex_unlock(&s->lock);
    double least = third > way->tokens_per_s ? third : nextafter(way->tokens_per_s, INFINITY); /* that counts */
    double ns = way->tokens_per_s > 0 || third > 0 ? rate_of(job, 1) / least : INFINITY;
    if (ns > 0x1p62) return INT64_MAX;
    int64_t limit = (int64_t)ns;
    while (limit < 1 || rate_of(job, limit) >= least) limit++;
    return limit;
}

static void count_skipped(struct ht_search *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_skipped++;
    pthread_mutex_unlock(&s->lock);
}

/* Simulates a job that fits, unless it counts nowhere, and keeps its rate if it is the way's best. */
static enum ht_status simulate(struct ht_search *s, struct ht_way *way, const struct ht_options *o,
                               const struct ht_job *job, bool exhaustive, struct ht_error *err)
{
    int64_t limit = exhaustive ? INT64_MAX : limit_of(s, way, job), ns = ht_least_iteration_ns(o, job);
    enum ht_status status = HT_OK;
    if (exhaustive || ns < limit) {
        status = ht_check_bad(o, job, err);
        if (status == HT_OK) status = ht_iteration_time(o, job, limit, err, &ns);
    }
    if (status == HT_OK && ns >= limit) {
        count_skipped(s);
    } else if (status == HT_OK) {
        if (ns > 0 && rate_of(job, ns) > way->tokens_per_s) {
            pthread_mutex_lock(&s->lock);
            way->tokens_per_s = rate_of(job, ns);
            way->micro_batch = o->request.micro_batch;
            pthread_mutex_unlock(&s->lock);
        }
        take_rate(s, way);
    }
    return status;
}

/* Tries one micro-batch, and keeps it if it is the way's fastest. Bad input of a system is its answer. */
static enum ht_status try_micro_batch(struct ht_search *s, struct ht_way *way, int64_t micro_batch, bool exhaustive,
                                      struct ht_error *err)
{
    struct ht_options o;
    struct ht_job job;
    struct ht_way tried = *way;
    tried.micro_batch = micro_batch;
    ht_way_apply(s, &tried, &o);
    enum ht_status status = ht_job_create(&o, way->system, NULL, HT_JOB_PRICED, err, &job);
    if (status == HT_BAD_INPUT) {
        if (!*way->reason) snprintf(way->reason, sizeof(way->reason), "%.500s", err->text);
        return HT_OK;
    }
    if (status != HT_OK) return status;
    way->fits |= job.answer == HT_OK;
    if (job.answer != HT_OK) { /* the smallest micro-batch comes last, so its reason stays */
        snprintf(way->reason, sizeof(way->reason), "%.500s", job.reason);
        way->lacks = job.lacks;
    } else {
        status = simulate(s, way, &o, &job, exhaustive, err);
        if (status == HT_BAD_INPUT) { /* durations that cannot be simulated */
            snprintf(way->reason, sizeof(way->reason), "%.500s", err->text);
            status = HT_OK;
        }
    }
    ht_job_free(&job);
    return status;
}

/* Tries the micro-batches that were asked for, or all powers of two that fit the batch, the largest first. A system that
   plans each rank's part is asked for its own first: Cephalo chooses, FSDP takes one that is too large for much. */
static enum ht_status try_way(struct ht_search *s, struct ht_way *way, bool exhaustive, struct ht_error *err)
{
    const struct ht_system *system;
    enum ht_status status = ht_system_find(way->system, err, &system);
    if (status != HT_OK) return status;
    int64_t n_gpus = s->cards[way->cards].n_gpus, list[HT_MAX_MICRO_BATCHES];
    way->batch = batch_for(s, system, n_gpus);
    if (s->options->request.micro_batch)
        return try_micro_batch(s, way, s->options->request.micro_batch, exhaustive, err);
    size_t n = ht_micro_batches(system, way->batch, n_gpus, list);
    for (size_t i = 0; i < n && status == HT_OK; i++) status = try_micro_batch(s, way, list[i], exhaustive, err);
    return status;
}

/* ---- the search ------------------------------------------------------------------------------------------------ */

struct run {
    struct ht_search *search;
    bool exhaustive;
};

static enum ht_status run_way(void *ctx, size_t i, struct ht_error *err)
{
    struct run *r = ctx;
    return try_way(r->search, &r->search->ways[i], r->exhaustive, err);
}

enum ht_status ht_search_create(const struct ht_options *options, const struct ht_cluster *cluster, const char *systems,
                                struct ht_error *err, struct ht_search *out)
{
    *out = (struct ht_search){.options = options, .cluster = cluster};
    size_t cap = 0;
    const struct ht_system *system;
    pthread_mutex_init(&out->lock, NULL);
    for (size_t i = 0; !systems && (system = ht_system_at(i)); i++)
        if (!ht_system_is_ablation(system)) HT_PUSH(out->systems, out->n_systems, cap, system->name);
    for (const char *word = systems, *end; word && *word; word = *end ? end + 1 : end) {
        char name[64];
        end = word + strcspn(word, ",");
        snprintf(name, sizeof(name), "%.*s", (int)(end - word), word);
        if (ht_system_find(name, err, &system) != HT_OK) {
            ht_search_free(out);
            return HT_BAD_INPUT;
        }
        HT_PUSH(out->systems, out->n_systems, cap, system->name);
    }
    list_cards(out);
    out->best = HT_NEW_ARRAY(double, out->n_cards);
    out->ways = HT_NEW_ARRAY(struct ht_way, out->n_cards * out->n_systems);
    for (size_t i = 0; i < out->n_cards * out->n_systems; i++) {
        out->ways[i].cards = i / out->n_systems;
        out->ways[i].system = out->systems[i % out->n_systems];
    }
    return HT_OK;
}

void ht_search_free(struct ht_search *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s->cards);
    free(s->systems);
    free(s->ways);
    free(s->best);
}

enum ht_status ht_search_run(struct ht_search *s, bool exhaustive, struct ht_error *err)
{
    struct run r = {s, exhaustive};
    struct ht_tasks tasks = {
        .name = "advise", .noun = "ways", .n = s->n_cards * s->n_systems, .ctx = &r, .run = run_way};
    return ht_tasks_run(&tasks, err);
}

size_t ht_search_best(const struct ht_search *s, size_t *ways, size_t n)
{
    size_t found = 0;
    for (; found < n; found++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < s->n_cards * s->n_systems; i++) {
            bool taken = s->ways[i].tokens_per_s <= 0;
            for (size_t k = 0; k < found; k++) taken |= !strcmp(s->ways[ways[k]].system, s->ways[i].system);
            if (!taken && (best == SIZE_MAX || s->ways[i].tokens_per_s > s->ways[best].tokens_per_s)) best = i;
        }
        if (best == SIZE_MAX) break;
        ways[found] = best;
    }
    return found;
}

double ht_search_best_of(const struct ht_search *s, uint64_t kinds)
{
    double best = 0;
    for (size_t i = 0; i < s->n_cards * s->n_systems; i++)
        if (!(s->cards[s->ways[i].cards].kinds & ~kinds) && s->ways[i].tokens_per_s > best)
            best = s->ways[i].tokens_per_s;
    return best;
}
