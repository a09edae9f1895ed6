#include "harness/claims/observe.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/rng.h"
#include "harness/result/evaluate.h"
#include "harness/run/registry.h"
#include "harness/run/train.h"
#include "harness/sweep/maxsize.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)HT_CLAIM_LIST <= (int)HT_MAX_BAD, "a setup's bad iterations are options");

/* ---- one observation ------------------------------------------------------------------------------------------- */

static struct ht_options options_of(const struct ht_claim_setup *s, struct ht_claim_point p)
{
    int set = p.at[HT_CLAIM_SETTINGS], model = p.at[HT_CLAIM_MODELS];
    struct ht_options o = ht_options_default();
    o.sim.iterations = s->iterations;
    o.sim.warmup = s->iterations > 4 ? 2 : 0;
    o.training.steps = s->train_steps;
    o.plan.n_set = s->n_settings[set];
    o.request = (struct ht_scenario_request){.model = s->models[model],
                                             .cluster = s->clusters[model],
                                             .batch = ht_claim_batch(s, p),
                                             .micro_batch = ht_claim_value_of(s, HT_CLAIM_MICRO_BATCHES, p),
                                             .seq = ht_claim_value_of(s, HT_CLAIM_SEQS, p),
                                             .device_memory_bytes = ht_claim_value_of(s, HT_CLAIM_MEMORY, p),
                                             .host_memory_bytes = ht_claim_value_of(s, HT_CLAIM_HOST_MEMORY, p),
                                             .ssds = ht_claim_value_of(s, HT_CLAIM_SSDS, p),
                                             .numerics = s->numerics[0] ? s->numerics : NULL,
                                             .accumulate = s->accumulate[0] ? s->accumulate : NULL,
                                             .software = ht_claim_software(s),
                                             .blocks = s->units.blocks,
                                             .ranks = s->units.devices};
    o.sim.n_bad = s->n_bad;
    memcpy(o.sim.bad, s->bad, sizeof(s->bad));
    for (int i = 0; i < s->n_settings[set]; i++) o.plan.set[i] = s->settings[set][i];
    return o;
}

/* Returns bytes drawn from a fixed seed, as a text or as images: no claim is about the data. */
static struct ht_tokens make_data(const struct ht_model *m)
{
    enum { N_BYTES = 1 << 16, N_IMAGES = 64 };
    struct ht_tokens t = {.n = N_BYTES, .fd = -1};
    if (m->arch == HT_ARCH_VIT)
        t = (struct ht_tokens){.format = HT_TOKENS_IMAGES,
                               .n = N_IMAGES,
                               .vocab = m->classes,
                               .image_bytes = ht_model_sample_bytes(m, m->max_seq),
                               .fd = -1};
    int64_t bytes = ht_tokens_bytes(&t), record = bytes / t.n;
    t.bytes = ht_alloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++) t.bytes[i] = (unsigned char)(1 + ht_random_below(1, (uint64_t)i, 255));
    for (int64_t i = 0; i < t.n && m->arch == HT_ARCH_VIT; i++) { /* labels, of one byte or two */
        t.bytes[i * record] = (unsigned char)(i % (m->classes < N_IMAGES ? m->classes : N_IMAGES));
        if (m->classes > 256) t.bytes[i * record + 1] = 0;
    }
    return t;
}

/* Trains for real. */
static enum ht_status train(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                            struct ht_observation *o)
{
    struct ht_tokens data = make_data(&job->scenario.model);
    struct ht_training t;
    struct ht_persist nothing = {0};
    struct ht_ranks one = {0};
    enum ht_status status = ht_train(options, job, &data, &nothing, &one, err, &t);
    if (status == HT_OK) {
        o->losses = t.losses;
        o->n_losses = t.steps;
        t.losses = NULL;
        o->metric[HT_CLAIM_LOSS_DIFFERENCE] = 0; /* to itself */
        ht_training_free(&t);
    }
    free(data.bytes);
    return status;
}

static void no_fit(const struct ht_job *job, struct ht_observation *o)
{
    o->sight = HT_SEEN_NO_FIT;
    snprintf(o->why, sizeof(o->why), "%.500s", job->reason);
    const struct ht_schedule *s = job->schedule;
    for (int32_t i = 0; s && job->proof.spaces && i < ht_n_spaces(s); i++)
        if (!job->proof.spaces[i].fits && !o->fails_in) o->fails_in = 1 + ht_space_tier(s, i);
    if (!o->fails_in) o->fails_in = job->lacks; /* the planner has refused */
}

static enum ht_status simulate(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                               struct ht_observation *o)
{
    struct ht_result r;
    enum ht_status status = ht_evaluate_job(options, job, err, &r);
    if (status != HT_OK) return status;
    ht_observe_result(job, &r, o->metric);
    ht_result_free(&r);
    return HT_OK;
}

/* Returns false, and says so in the observation, when the system leaves devices of the cluster unused. */
static bool covers_cluster(const struct ht_job *job, struct ht_observation *o)
{
    int64_t devices = job->scenario.cluster->n_gpus;
    bool refuses = job->system->one_device && devices > 1;
    if (!refuses && (!job->schedule || job->schedule->n_ranks == devices)) return true;
    o->sight = HT_SEEN_NOT_THERE;
    snprintf(o->why, sizeof(o->why), "%s does not run on all %lld devices yet", job->system->name, (long long)devices);
    return false;
}

/* Puts the largest size that fits into the options. Returns HT_INFEASIBLE with the reason if none fits. */
static enum ht_status find_size(const struct ht_claim_setup *setup, const char *system, struct ht_error *err,
                                struct ht_options *options)
{
    static const enum ht_size_of sizes[] = {[HT_CLAIM_SEARCH_MODEL] = HT_SIZE_MODEL,
                                            [HT_CLAIM_SEARCH_BATCH] = HT_SIZE_BATCH,
                                            [HT_CLAIM_SEARCH_SEQ] = HT_SIZE_SEQ};
    const char *model = options->request.model;
    struct ht_family family;
    struct ht_maxsize found;
    enum ht_status status = ht_family_create(&model, 1, err, &family);
    if (status != HT_OK) return status;
    status = ht_maxsize_find(options, system, sizes[setup->search], &family, err, &found);
    if (status == HT_OK && !found.found) {
        status = ht_fail(err, HT_INFEASIBLE, "no size fits: %s", found.reason);
        err->lacks = found.lacks;
    }
    if (status == HT_OK) ht_size_apply(&found.size, &options->request);
    options->request.model = model; /* the family has the same name */
    ht_family_free(&family);
    return status;
}

/* Gives a system with states on disk a folder for them, where it trains; in units of time its name is enough. folder: "" if
   there is none to remove. */
static enum ht_status lend_disk(const struct ht_claim_setup *setup, const struct ht_system *system,
                                struct ht_error *err, struct ht_options *options, char folder[64])
{
    folder[0] = '\0';
    if (!system->disk || !(setup->train_steps || setup->units.devices)) return HT_OK;
    options->platform.disk = "disk";
    if (!setup->train_steps) return HT_OK;
    snprintf(folder, 64, "/tmp/hetbench-claims-XXXXXX");
    options->platform.disk = mkdtemp(folder);
    if (options->platform.disk) return HT_OK;
    folder[0] = '\0';
    return ht_fail(err, HT_FAILED, "/tmp: no folder can be made: %s", strerror(errno));
}

/* Plans, proves and simulates (or trains) a scenario of fixed size. */
static enum ht_status look(const struct ht_claim_setup *setup, const char *system, const struct ht_options *options,
                           struct ht_error *err, struct ht_observation *o)
{
    struct ht_job job = {0};
    enum ht_job_extent extent = setup->train_steps ? HT_JOB_TRAINABLE : HT_JOB_TIMED;
    enum ht_status status = ht_job_create(options, system, NULL, extent, err, &job);
    if (status == HT_OK && setup->units.devices) ht_price_in_units(&setup->units, &job);
    if (status == HT_OK && covers_cluster(&job, o)) {
        if (job.schedule) {
            ht_observe_tensors(job.schedule, o->metric);
            ht_observe_activations(&job, o->metric);
            ht_observe_units(&job, o->unit);
        }
        o->metric[HT_CLAIM_PLAN_TIME] = (double)job.planning_ns * 1e-9;
        o->metric[HT_CLAIM_PARAMETERS] = (double)ht_model_params(&job.scenario.model);
        o->metric[HT_CLAIM_BATCH] = (double)job.scenario.batch;
        o->metric[HT_CLAIM_SEQ] = (double)job.scenario.seq;
        if (job.answer != HT_OK)
            no_fit(&job, o);
        else
            status = setup->train_steps ? train(options, &job, err, o) : simulate(options, &job, err, o);
    }
    o->plan = job.plan;
    job.plan = (struct ht_plan){0};
    ht_job_free(&job);
    return status;
}

/* Prices a recovery; what is wrong is in the observation. */
static enum ht_status look_recovery(const char *variant, const struct ht_claim_setup *setup,
                                    struct ht_claim_point point, struct ht_observation *o)
{
    struct ht_error err;
    enum ht_status status = ht_look_recovery(variant, setup, point, &err, o);
    if (status == HT_OK) return HT_OK;
    o->sight = status == HT_BAD_INPUT ? HT_SEEN_NOT_THERE : HT_SEEN_BROKEN;
    snprintf(o->why, sizeof(o->why), "%.500s", err.text);
    return HT_OK;
}

enum ht_status ht_look(const char *variant, const struct ht_claim_setup *setup, struct ht_claim_point point,
                       struct ht_error *err, struct ht_observation *o)
{
    ht_observation_key(variant, setup, point, o->key);
    for (int i = 0; i < HT_N_CLAIM_METRICS; i++) o->metric[i] = NAN;
    for (size_t i = 0; i < HT_COUNT(o->unit); i++) o->unit[i] = NAN;
    if (setup->recovery[0]) return look_recovery(variant, setup, point, o);
    struct ht_options options = options_of(setup, point);
    char words[HT_CLAIM_NAME];
    snprintf(words, sizeof(words), "%s", variant);
    const char *system = ht_variant_of(words, &options);
    const struct ht_system *known;
    enum ht_status status = ht_system_find(system, err, &known);
    if (status != HT_OK) {
        o->sight = HT_SEEN_NOT_THERE;
        snprintf(o->why, sizeof(o->why), "there is no system '%s' yet", system);
        return HT_OK;
    }
    char folder[64];
    status = lend_disk(setup, known, err, &options, folder);
    if (status == HT_OK && setup->search) status = find_size(setup, system, err, &options);
    if (status == HT_OK) status = look(setup, system, &options, err, o);
    if (folder[0]) rmdir(folder);
    if (status == HT_OK || status == HT_INTERRUPTED) return status;
    /* The ledger's names exist and its numbers are in range, so a refusal means that the system cannot do it. */
    o->sight = status == HT_INFEASIBLE && setup->search ? HT_SEEN_NO_FIT
               : status == HT_BAD_INPUT                 ? HT_SEEN_NOT_THERE
                                                        : HT_SEEN_BROKEN;
    o->fails_in = o->sight == HT_SEEN_NO_FIT ? err->lacks : 0;
    snprintf(o->why, sizeof(o->why), "%.500s", err->text);
    return HT_OK;
}

double ht_look_bytes(const struct ht_claim_setup *setup, struct ht_claim_point point)
{
    enum { RECOVERY_BYTES = 64 << 20 }; /* the lists of some thousand copies */
    struct ht_options options = options_of(setup, point);
    if (setup->recovery[0]) return RECOVERY_BYTES;
    return ht_evaluation_bytes(&options, setup->n_units[point.at[HT_CLAIM_MODELS]]);
}

/* ---- observations ----------------------------------------------------------------------------------------------- */

void ht_observation_key(const char *variant, const struct ht_claim_setup *s, struct ht_claim_point p,
                        char key[HT_OBSERVATION_KEY])
{
    const struct ht_claim_units *u = &s->units;
    const char *software = ht_claim_software(s);
    int model = p.at[HT_CLAIM_MODELS], at;
    at = snprintf(
        key, HT_OBSERVATION_KEY, "%s|%s|%s|%s|%s|%s|%lld|%lld|%lld|%lld|%lld|%lld|%lld|%lld|", variant,
        s->models[model], s->clusters[model], s->numerics, s->accumulate, software ? software : "",
        (long long)ht_claim_batch(s, p), (long long)ht_claim_value_of(s, HT_CLAIM_MEMORY, p),
        (long long)ht_claim_value_of(s, HT_CLAIM_SEQS, p), (long long)ht_claim_value_of(s, HT_CLAIM_MICRO_BATCHES, p),
        (long long)ht_claim_value_of(s, HT_CLAIM_HOST_MEMORY, p), (long long)ht_claim_value_of(s, HT_CLAIM_SSDS, p),
        (long long)s->iterations, (long long)s->train_steps);
    for (int i = 0; i < s->n_settings[p.at[HT_CLAIM_SETTINGS]] && at < HT_OBSERVATION_KEY; i++)
        at += snprintf(key + at, HT_OBSERVATION_KEY - (size_t)at, " %s", s->settings[p.at[HT_CLAIM_SETTINGS]][i]);
    for (int64_t i = 0; i < s->n_bad && at < HT_OBSERVATION_KEY; i++)
        at += snprintf(key + at, HT_OBSERVATION_KEY - (size_t)at, " bad=%s", s->bad[i]);
    if (s->search && at < HT_OBSERVATION_KEY)
        at += snprintf(key + at, HT_OBSERVATION_KEY - (size_t)at, "|search %s", ht_claim_search_names[s->search]);
    if (u->devices && at < HT_OBSERVATION_KEY)
        snprintf(key + at, HT_OBSERVATION_KEY - (size_t)at, "|%lld %lld %g %g %g %g %g %g %g", (long long)u->devices,
                 (long long)u->blocks, u->forward, u->backward, u->fetch, u->offload, u->step, u->read, u->write);
}

const struct ht_observation *ht_observation_of(const struct ht_observations *seen, const char *key)
{
    for (size_t i = 0; i < seen->n; i++)
        if (!strcmp(seen->list[i]->key, key)) return seen->list[i];
    return NULL;
}

enum ht_status ht_observe(struct ht_observations *seen, const char *variant, const struct ht_claim_setup *setup,
                          struct ht_claim_point point, struct ht_error *err, const struct ht_observation **out)
{
    char key[HT_OBSERVATION_KEY];
    ht_observation_key(variant, setup, point, key);
    *out = ht_observation_of(seen, key);
    if (*out) return HT_OK;
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted after %zu scenarios", seen->n);
    struct ht_observation *o = HT_NEW(struct ht_observation);
    enum ht_status status = ht_look(variant, setup, point, err, o);
    if (status != HT_OK) {
        ht_observation_destroy(o);
        return status;
    }
    HT_PUSH(seen->list, seen->n, seen->cap, o);
    *out = o;
    return HT_OK;
}

void ht_observation_destroy(struct ht_observation *o)
{
    ht_plan_free(&o->plan);
    free(o->losses);
    free(o);
}

void ht_observations_free(struct ht_observations *seen)
{
    for (size_t i = 0; i < seen->n; i++) ht_observation_destroy(seen->list[i]);
    free(seen->list);
    *seen = (struct ht_observations){0};
}

/* Reads the variable that a factor names. */
static enum ht_status observed_variable(const struct ht_variable *v, const struct ht_claim *c,
                                        const struct ht_claim_factor *f, struct ht_error *err, double *out)
{
    bool vector = v->kind != HT_VARIABLE_NUMBER;
    if (f->element >= 0 && !vector)
        return ht_node_error(c->variable_node, err, "names an element of %s, which is one number; expected '%s'",
                             v->name, v->name);
    if (f->element < 0 && vector)
        return ht_node_error(c->variable_node, err,
                             "names a vector of %d elements; expected one of them, such as '%s[0]'", v->n, v->name);
    if (f->element >= v->n && vector)
        return ht_node_error(c->variable_node, err,
                             "element %lld of %s is out of range; the plan has %d elements, counted from 0",
                             (long long)f->element, v->name, v->n);
    *out = (double)(vector ? v->values[f->element] : v->value) / (double)(v->decimal ? HT_PPB : 1);
    return HT_OK;
}

enum ht_status ht_observed(const struct ht_observation *o, const struct ht_claim *claim, struct ht_error *err,
                           double *out)
{
    *out = NAN;
    if (o->sight != HT_SEEN) return HT_OK;
    if (claim->metric != HT_CLAIM_PLAN_VARIABLE) {
        *out = o->metric[claim->metric] / o->unit[claim->unit];
        return HT_OK;
    }
    double product = 1, value = 0;
    for (int i = 0; i < claim->n_factors; i++) {
        const struct ht_claim_factor *f = &claim->factors[i];
        const struct ht_variable *v = ht_plan_variable(&o->plan, f->variable);
        if (!v) return HT_OK;
        enum ht_status status = observed_variable(v, claim, f, err, &value);
        if (status) return status;
        product = f->divides ? product / value : product * value;
    }
    *out = product;
    return HT_OK;
}
