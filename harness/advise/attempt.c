/*
 * One way: its micro-batches are tried one after the other, the largest first.
 *
 * At each micro-batch as little is recomputed as fits. Systems whose planner compares amounts of recomputation are left
 * alone. Others go up a ladder until one fits:
 *
 *     recompute   nothing; attention alone, where its probabilities are kept; whole blocks
 *     c           none; a quarter, half, three quarters of the blocks; all of them, unless a system of its own does that
 */
#include "harness/advise/internal.h"

#include "common/base/array.h"
#include "harness/run/registry.h"
#include "harness/run/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RUNGS = 5 };

struct ladder {
    char rungs[MAX_RUNGS][24]; /* as --set takes them */
    int n;
};

void ht_way_apply(const struct ht_search *s, const struct ht_way *way, struct ht_options *o)
{
    *o = ht_search_options(s, way->cards, way->numerics);
    o->request.batch = way->batch;
    o->request.micro_batch = way->micro_batch;
    if (*way->set && o->plan.n_set < HT_MAX_SET) o->plan.set[o->plan.n_set++] = way->set;
}

/* Returns an equal part of the default batch: a power of two up to 8, else a multiple of 8. Three cards that had 22 sequences
   each could take them in micro-batches of 2 at most. */
static int64_t default_part(int64_t n_gpus)
{
    int64_t part = 1;
    while (part < 8 && part * n_gpus < HT_ADVISE_BATCH) part *= 2;
    return part < 8 ? part : (HT_ADVISE_BATCH + 8 * n_gpus - 1) / (8 * n_gpus) * 8;
}

/* Returns the batch on so many cards: what was asked for, raised to a multiple of the cards where each takes an equal part;
   or about 64. */
static int64_t batch_for(const struct ht_search *s, const struct ht_system *system, int64_t n_gpus)
{
    int64_t asked = s->options->request.batch;
    bool equal = system->division == HT_EQUAL_REPLICAS || system->division == HT_SHARED_STATES;
    if (!equal) return asked ? asked : HT_ADVISE_BATCH;
    return asked ? (asked + n_gpus - 1) / n_gpus * n_gpus : default_part(n_gpus) * n_gpus;
}

/* ---- skipping -------------------------------------------------------------------------------------------------- */

/* Returns the lowest rate that counts: among the best three, or the best on its kinds of cards in its numerics; and above
   what the way has. */
static double least_that_counts(struct ht_search *s, const struct ht_way *way)
{
    size_t ways[HT_ADVISE_BEST];
    pthread_mutex_lock(&s->lock);
    size_t n = ht_search_best(s, ways, HT_ADVISE_BEST);
    double third = n == HT_ADVISE_BEST ? s->ways[ways[n - 1]].tokens_per_s : 0;
    double least = fmin(third, ht_search_best_with(s, s->cards[way->cards].kinds, way->numerics));
    pthread_mutex_unlock(&s->lock);
    return least > way->tokens_per_s ? least : nextafter(way->tokens_per_s, INFINITY);
}

/* Counts a micro-batch of a way. Which ones are skipped depends on what other threads have found by then; how many are
   compared does not. */
static void count_compared(struct ht_search *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_compared++;
    pthread_mutex_unlock(&s->lock);
}

/* Returns the most that the cards allow the way at a micro-batch. */
static double most_of(const struct ht_search *s, const struct ht_way *way, const struct ht_system *system,
                      int64_t micro_batch)
{
    size_t numerics = way->numerics == s->numerics[0] ? 0 : 1;
    return ht_ceiling_of(&s->ceilings[way->cards * s->n_numerics + numerics], system->division, micro_batch);
}

/* ---- one plan -------------------------------------------------------------------------------------------------- */

static void keep_if_faster(struct ht_search *s, struct ht_way *way, const struct ht_way *tried, double rate)
{
    pthread_mutex_lock(&s->lock);
    if (rate > way->tokens_per_s) {
        way->tokens_per_s = rate;
        way->micro_batch = tried->micro_batch;
        snprintf(way->set, sizeof(way->set), "%s", tried->set);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Returns tokens per second, as ht_result_create computes them. */
static double rate_of(const struct ht_job *job, int64_t iteration_ns)
{
    return (double)job->scenario.batch / ((double)iteration_ns * 1e-9) * (double)job->scenario.seq;
}

/* Returns the shortest iteration whose rate is below `least`; INT64_MAX: none. */
static int64_t limit_of(const struct ht_job *job, double least)
{
    double ns = rate_of(job, 1) / least;
    if (ns > 0x1p62) return INT64_MAX;
    int64_t limit = (int64_t)ns;
    while (limit < 1 || rate_of(job, limit) >= least) limit++;
    return limit;
}

/* Simulates a plan that fits, until it surely counts nowhere. Durations that cannot be simulated are the way's answer. */
static enum ht_status simulate(struct ht_search *s, struct ht_way *way, const struct ht_way *tried,
                               const struct ht_options *o, const struct ht_job *job, bool exhaustive,
                               struct ht_error *err)
{
    int64_t limit = exhaustive ? INT64_MAX : limit_of(job, least_that_counts(s, way));
    int64_t ns = ht_least_iteration_ns(o, job);
    enum ht_status status = HT_OK;
    if (exhaustive || ns < limit) {
        status = ht_check_bad(o, job, err);
        if (status == HT_OK) status = ht_iteration_time(o, job, limit, err, &ns);
    }
    if (status == HT_BAD_INPUT) {
        snprintf(way->reason, sizeof(way->reason), "%.500s", err->text);
        return HT_OK;
    }
    if (status != HT_OK) return status;
    if (ns < limit) keep_if_faster(s, way, tried, ns > 0 ? rate_of(job, ns) : 0);
    return HT_OK;
}

/* Returns by how much the tier that binds is too small, in the space that lacks the most; 0 if another tier is, too. */
static int64_t short_bytes_of(const struct ht_job *job)
{
    int64_t most = 0;
    for (int32_t i = 0; i < job->proof.n_spaces && job->schedule; i++) {
        int64_t lacks = ht_footprint_short_bytes(job->schedule, i, &job->proof.spaces[i]);
        if (lacks && 1 + (int)ht_space_tier(job->schedule, i) != job->lacks) return 0;
        if (lacks > most) most = lacks;
    }
    return most;
}

/* Notes why a way does not fit: the reason of the plan that lacks the least, of those with a number. */
static void note_reason(struct ht_way *way, const struct ht_job *job)
{
    int64_t lacks = short_bytes_of(job);
    if (way->short_bytes && (!lacks || lacks > way->short_bytes)) return;
    snprintf(way->reason, sizeof(way->reason), "%.500s", job->reason);
    way->lacks = job->lacks;
    way->short_bytes = lacks;
}

/* Plans, proves and simulates the way at the micro-batch and recomputation of `tried`. Sets *fits, and *own to the value
   of a variable in the plan, -1 if there is no plan. */
static enum ht_status attempt(struct ht_search *s, struct ht_way *way, const struct ht_way *tried, bool exhaustive,
                              const char *variable, struct ht_error *err, bool *fits, int64_t *own)
{
    struct ht_options o;
    struct ht_job job;
    *fits = false;
    *own = -1;
    ht_way_apply(s, tried, &o);
    enum ht_status status = ht_job_create(&o, way->system, NULL, HT_JOB_PRICED, err, &job);
    if (status == HT_BAD_INPUT) {
        if (!*way->reason) snprintf(way->reason, sizeof(way->reason), "%.500s", err->text);
        return HT_OK;
    }
    if (status != HT_OK) return status;
    *fits = job.answer == HT_OK;
    way->fits |= *fits;
    if (variable && job.plan.n_variables) *own = ht_plan_get(&job.plan, variable);
    if (*fits)
        status = simulate(s, way, tried, &o, &job, exhaustive, err);
    else
        note_reason(way, &job);
    ht_job_free(&job);
    return status;
}

/* ---- the ladder ------------------------------------------------------------------------------------------------ */

/* Returns the variable that says what a system recomputes, or NULL if it has none, its planner compares its values, or it
   is forced. */
static const struct ht_knob *recomputation_of(const struct ht_search *s, const struct ht_system *system)
{
    const struct ht_knob *found = NULL;
    for (const struct ht_knob *k = system->knobs; k && k->name; k++)
        if (!strcmp(k->name, "recompute") || (!found && !strcmp(k->name, "c"))) found = k;
    for (int64_t i = 0; found && i < s->options->plan.n_set; i++)
        if (!strncmp(s->options->plan.set[i], "recompute=", 10) || !strncmp(s->options->plan.set[i], "c=", 2))
            return NULL;
    return found && found->planned ? NULL : found;
}

__attribute__((format(printf, 2, 3))) static void add_rung(struct ladder *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (l->n < MAX_RUNGS) vsnprintf(l->rungs[l->n++], sizeof(l->rungs[0]), fmt, ap);
    va_end(ap);
}

/* Returns true if a system that recomputes all blocks and else is the same is tried as well. */
static bool has_twin_that_recomputes(const struct ht_search *s, const char *system)
{
    char name[80];
    snprintf(name, sizeof(name), "%s_ckpt", system);
    for (size_t i = 0; i < s->n_systems; i++)
        if (!strcmp(s->systems[i], name)) return true;
    return false;
}

/* Lists what to try beside a plan whose variable has the value `own`: the other rungs, the least recomputation first. */
static struct ladder ladder_of(const struct ht_knob *knob, int64_t own, const struct ht_model *model, bool fits,
                               bool all_elsewhere)
{
    struct ladder l = {.n = 0};
    bool counts = !strcmp(knob->name, "c");
    if (own > 0) { /* as it is, the system recomputes */
        if (!counts) add_rung(&l, "recompute=0");
        return l;
    }
    if (fits) return l;
    if (counts) {
        int64_t last = 0;
        for (int64_t i = 1; i <= (all_elsewhere ? 3 : 4); i++) {
            int64_t c = (model->layers * i + 3) / 4;
            if (c > last && !(all_elsewhere && c == model->layers)) add_rung(&l, "c=%lld", (long long)c);
            last = c;
        }
        return l;
    }
    if (knob->max > 1 && !model->flash) add_rung(&l, "recompute=2");
    add_rung(&l, "recompute=1");
    return l;
}

/* Returns the rung after rung i of n: the highest comes first, since where it does not fit none does; then the others from
   below. -1: none. */
static int next_rung(int i, int n)
{
    int next = i == n - 1 ? 0 : i + 1;
    return next < n - 1 ? next : -1;
}

static enum ht_status try_micro_batch(struct ht_search *s, struct ht_way *way, const struct ht_knob *knob,
                                      const struct ht_model *model, int64_t micro_batch, bool exhaustive,
                                      struct ht_error *err)
{
    struct ht_way tried = *way;
    bool fits;
    int64_t own;
    tried.micro_batch = micro_batch;
    *tried.set = '\0';
    enum ht_status status = attempt(s, way, &tried, exhaustive, knob ? knob->name : NULL, err, &fits, &own);
    if (status != HT_OK || !knob) return status;
    struct ladder l = ladder_of(knob, own, model, fits, has_twin_that_recomputes(s, way->system));
    fits = l.n > 0;
    for (int i = l.n - 1; i >= 0 && fits && status == HT_OK; i = next_rung(i, l.n)) {
        snprintf(tried.set, sizeof(tried.set), "%s", l.rungs[i]);
        status = attempt(s, way, &tried, exhaustive, NULL, err, &fits, &own);
        if (i < l.n - 1) fits = !fits; /* behind the highest: on until one fits */
    }
    return status;
}

/* ---- a way ----------------------------------------------------------------------------------------------------- */

/* Loads the model as the software holds it. */
static enum ht_status load_model(const struct ht_search *s, const struct ht_way *way, struct ht_error *err,
                                 struct ht_model *out)
{
    struct ht_scenario scenario;
    struct ht_options o = ht_search_options(s, way->cards, way->numerics);
    o.request.micro_batch = 0;
    enum ht_status status = ht_scenario_create(&o.request, err, &scenario);
    if (status != HT_OK) return status;
    *out = scenario.model;
    ht_scenario_free(&scenario);
    return HT_OK;
}

/* Tries the micro-batches that were asked for, or all powers of two that fit the batch, the largest first. A system that
   plans each rank's part is asked for its own first: Cephalo chooses, FSDP takes one that is too large for much. */
enum ht_status ht_way_try(struct ht_search *s, struct ht_way *way, bool exhaustive, struct ht_error *err)
{
    const struct ht_system *system;
    struct ht_model model;
    int64_t n_gpus = s->cards[way->cards].n_gpus, list[HT_MAX_MICRO_BATCHES];
    enum ht_status status = ht_system_find(way->system, err, &system);
    if (status == HT_OK) status = load_model(s, way, err, &model);
    if (status != HT_OK) return status;
    const struct ht_knob *knob = recomputation_of(s, system);
    way->batch = batch_for(s, system, n_gpus);
    size_t n = ht_micro_batches(system, way->batch, n_gpus, list);
    if (s->options->request.micro_batch) list[0] = s->options->request.micro_batch, n = 1;
    for (size_t i = 0; i < n && status == HT_OK; i++) {
        count_compared(s);
        if (exhaustive || most_of(s, way, system, list[i]) >= least_that_counts(s, way))
            status = try_micro_batch(s, way, knob, &model, list[i], exhaustive, err);
        else
            way->fits = true;
    }
    return status;
}
