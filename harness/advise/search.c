/* The search: which cards, numerics and systems make ways, and which ways are the best. */
#include "harness/advise/internal.h"

#include "common/base/array.h"
#include "common/base/tasks.h"
#include "harness/run/job.h"
#include "harness/run/registry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cards ------------------------------------------------------------------------------------------------- */

/* Returns true if the cluster of the options has cards that are not to be used. */
static bool cuts_cards(const struct ht_search *s)
{
    return s->options->request.only || (s->options->request.ranks && !s->cluster->local);
}

static void add_cards(struct ht_search *s, size_t *cap, const struct ht_device_kind *kinds, int64_t n, uint64_t mask,
                      int64_t count)
{
    struct ht_cards c = {.kinds = mask, .alike = true};
    size_t used = 0;
    bool all = mask == (UINT64_C(1) << n) - 1 && !count;
    for (int64_t k = 0; k < n; k++) {
        if (!(mask >> k & 1)) continue;
        int64_t of_kind = count ? count : kinds[k].count;
        c.n_gpus += of_kind;
        c.alike &= kinds[k].gpu->f16_flops_per_s == kinds[k].gpu->bf16_flops_per_s &&
                   kinds[k].gpu->lacks_f16 == kinds[k].gpu->lacks_bf16;
        if (all || used >= sizeof(c.only)) continue;
        bool counted = count || cuts_cards(s);
        used += (size_t)snprintf(c.only + used, sizeof(c.only) - used, counted ? "%s%s:%lld" : "%s%s", used ? "," : "",
                                 kinds[k].gpu->name, (long long)of_kind);
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
    if (s->cluster->local) n = 0; /* which has its devices by --ranks */
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

/* ---- the search ------------------------------------------------------------------------------------------------ */

struct run {
    struct ht_search *search;
    bool exhaustive;
};

/* A way in BF16 on cards where it is as fast as in FP16 has its answer there. */
static bool has_twin(const struct ht_search *s, const struct ht_way *way)
{
    return s->cards[way->cards].alike && way->numerics != s->numerics[0];
}

enum ht_status ht_search_try(struct ht_search *s, size_t way, bool exhaustive, struct ht_error *err)
{
    return has_twin(s, &s->ways[way]) ? HT_OK : ht_way_try(s, &s->ways[way], exhaustive, err);
}

static enum ht_status run_way(void *ctx, size_t i, struct ht_error *err)
{
    struct run *r = ctx;
    return ht_search_try(r->search, i, r->exhaustive, err);
}

/* Reads the systems, all but ablations without a list. */
static enum ht_status list_systems(const char *list, struct ht_error *err, struct ht_search *out)
{
    size_t cap = 0;
    const struct ht_system *system;
    for (size_t i = 0; !list && (system = ht_system_at(i)); i++)
        if (!ht_system_is_ablation(system)) HT_PUSH(out->systems, out->n_systems, cap, system->name);
    for (const char *word = list, *end; word && *word; word = *end ? end + 1 : end) {
        char name[64];
        end = word + strcspn(word, ",");
        snprintf(name, sizeof(name), "%.*s", (int)(end - word), word);
        if (ht_system_find(name, err, &system) != HT_OK) return HT_BAD_INPUT;
        HT_PUSH(out->systems, out->n_systems, cap, system->name);
    }
    return HT_OK;
}

/* Emulated devices have no 16-bit units. */
static void list_numerics(struct ht_search *s)
{
    const char *asked = s->options->request.numerics;
    if (!asked && ht_cluster_gpu_of(s->cluster, 0)->cores > 0) asked = "fp32";
    s->n_numerics = asked ? 1 : 2;
    s->numerics[0] = asked ? asked : "fp16";
    s->numerics[1] = "bf16";
}

static void list_ways(struct ht_search *s)
{
    s->n_ways = s->n_cards * s->n_numerics * s->n_systems;
    s->ways = HT_NEW_ARRAY(struct ht_way, s->n_ways);
    for (size_t i = 0; i < s->n_ways; i++) {
        s->ways[i].system = s->systems[i % s->n_systems];
        s->ways[i].numerics = s->numerics[i / s->n_systems % s->n_numerics];
        s->ways[i].cards = i / s->n_systems / s->n_numerics;
    }
}

enum ht_status ht_search_create(const struct ht_options *options, const struct ht_cluster *cluster, const char *systems,
                                struct ht_error *err, struct ht_search *out)
{
    *out = (struct ht_search){.options = options, .cluster = cluster};
    pthread_mutex_init(&out->lock, NULL);
    enum ht_status status = list_systems(systems, err, out);
    if (status != HT_OK) {
        ht_search_free(out);
        return status;
    }
    list_cards(out);
    list_numerics(out);
    list_ways(out);
    return HT_OK;
}

void ht_search_free(struct ht_search *s)
{
    pthread_mutex_destroy(&s->lock);
    free(s->cards);
    free(s->systems);
    free(s->ways);
    free(s->ceilings);
}

enum ht_status ht_search_cluster(const struct ht_options *options, struct ht_error *err, struct ht_cluster **out)
{
    struct ht_scenario scenario;
    struct ht_scenario_request request = ht_job_request(options, NULL);
    request.batch = request.micro_batch = 0;
    request.software = NULL; /* each scenario takes its part of the memory */
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    *out = scenario.cluster;
    scenario.cluster = NULL;
    ht_scenario_free(&scenario);
    return HT_OK;
}

struct ht_options ht_search_options(const struct ht_search *s, size_t cards, const char *numerics)
{
    struct ht_options o = *s->options;
    struct ht_scenario_request *r = &o.request;
    if (!s->cluster->local) { /* it has all of these */
        r->made = s->cluster;
        r->only_nodes = NULL;
        r->device_memory_bytes = r->host_memory_bytes = r->ssds = r->ranks = 0;
        r->through_host_bytes_per_s = r->through_host_scale = 0;
    }
    r->only = *s->cards[cards].only ? s->cards[cards].only : NULL;
    r->numerics = numerics;
    if (!r->batch) r->batch = HT_ADVISE_BATCH;
    return o;
}

void ht_search_take_cards(struct ht_search *s, uint64_t kinds)
{
    size_t n = 1;
    for (size_t i = 1; i < s->n_cards; i++) /* all of some kinds come before parts of one */
        if (s->cards[i].kinds == kinds && kinds != s->cards[0].kinds && n < 2) s->cards[n++] = s->cards[i];
    s->n_cards = n;
    free(s->ways);
    list_ways(s);
}

enum ht_status ht_search_find_ceilings(struct ht_search *s, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (!s->ceilings) s->ceilings = HT_NEW_ARRAY(struct ht_ceiling, s->n_cards * s->n_numerics);
    for (size_t i = 0; i < s->n_cards * s->n_numerics && status == HT_OK; i++) {
        struct ht_options o = ht_search_options(s, i / s->n_numerics, s->numerics[i % s->n_numerics]);
        o.request.micro_batch = 0;
        status = ht_ceiling_compute(&o, err, &s->ceilings[i]);
    }
    return status;
}

enum ht_status ht_search_run(struct ht_search *s, bool exhaustive, struct ht_error *err)
{
    struct run r = {s, exhaustive};
    struct ht_tasks tasks = {.name = "advise", .noun = "ways", .n = s->n_ways, .ctx = &r, .run = run_way};
    enum ht_status status = ht_search_find_ceilings(s, err);
    return status == HT_OK ? ht_tasks_run(&tasks, err) : status;
}

/* ---- the best -------------------------------------------------------------------------------------------------- */

size_t ht_search_best(const struct ht_search *s, size_t *ways, size_t n)
{
    size_t found = 0;
    for (; found < n; found++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < s->n_ways; i++) {
            bool taken = s->ways[i].tokens_per_s <= 0;
            for (size_t k = 0; k < found; k++) taken |= !strcmp(s->ways[ways[k]].system, s->ways[i].system);
            if (!taken && (best == SIZE_MAX || s->ways[i].tokens_per_s > s->ways[best].tokens_per_s)) best = i;
        }
        if (best == SIZE_MAX) break;
        ways[found] = best;
    }
    return found;
}

/* Returns whether a way's rate is one in these numerics. */
static bool is_in(const struct ht_search *s, const struct ht_way *way, const char *numerics)
{
    bool stands_for_both = s->cards[way->cards].alike && s->n_numerics > 1;
    return !numerics || stands_for_both || !strcmp(way->numerics, numerics);
}

double ht_search_best_with(const struct ht_search *s, uint64_t kinds, const char *numerics)
{
    double best = 0;
    for (size_t i = 0; i < s->n_ways; i++)
        if (s->cards[s->ways[i].cards].kinds == kinds && is_in(s, &s->ways[i], numerics))
            best = fmax(best, s->ways[i].tokens_per_s);
    return best;
}

double ht_search_best_within(const struct ht_search *s, uint64_t kinds, const char *numerics)
{
    double best = 0;
    for (size_t i = 0; i < s->n_ways; i++)
        if (!(s->cards[s->ways[i].cards].kinds & ~kinds) && is_in(s, &s->ways[i], numerics))
            best = fmax(best, s->ways[i].tokens_per_s);
    return best;
}
