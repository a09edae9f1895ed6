#include "harness/sweep/maxsize.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/mem/arena.h"
#include "harness/run/disks.h"
#include "harness/result/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_size_names[HT_N_SIZES] = {"model", "batch", "seq"};

/* ---- families -------------------------------------------------------------------------------------------------- */

static double params_of(const struct ht_model *model, int64_t blocks)
{
    struct ht_model m = *model;
    m.layers = blocks;
    return (double)ht_model_params(&m);
}

static int by_params(const void *a, const void *b)
{
    const struct ht_family_model *x = a, *y = b;
    double p = params_of(&x->model, x->model.layers), q = params_of(&y->model, y->model.layers);
    return p < q ? -1 : p > q ? 1 : strcmp(x->name, y->name);
}

/* Returns the most blocks that keep the model below so many parameters, at least its own, of those that are tried. */
static int64_t most_blocks_below(const struct ht_model *m, double params)
{
    int64_t blocks = m->layers;
    double block = params_of(m, 2) - params_of(m, 1);
    blocks += (int64_t)((params - params_of(m, blocks)) / block);
    while (blocks > m->layers && params_of(m, blocks) >= params) blocks--;
    return ht_min(blocks, ht_max(m->layers, HT_MOST_BLOCKS));
}

enum ht_status ht_family_create(const char *const *names, size_t n, struct ht_error *err, struct ht_family *out)
{
    struct ht_family f = {0};
    struct ht_model_list all;
    enum ht_status status = ht_model_list_create(names, n, err, &all);
    if (status != HT_OK) return status;
    for (size_t i = 0; i < all.n; i++) {
        struct ht_family_model m = {.name = ht_strdup(all.list[i].name), .model = all.list[i].model};
        HT_PUSH(f.models, f.n, f.cap, m);
    }
    ht_model_list_free(&all);
    qsort(f.models, f.n, sizeof(*f.models), by_params);
    for (size_t i = 0; i < f.n; i++) {
        struct ht_family_model *m = &f.models[i];
        const struct ht_model *next = i + 1 < f.n ? &f.models[i + 1].model : NULL;
        m->least_blocks = i ? m->model.layers : 1;
        m->most_blocks = next ? most_blocks_below(&m->model, params_of(next, next->layers)) : HT_MOST_BLOCKS;
    }
    *out = f;
    return HT_OK;
}

void ht_family_free(struct ht_family *f)
{
    for (size_t i = 0; i < f->n; i++) free((char *)f->models[i].name);
    free(f->models);
    *f = (struct ht_family){0};
}

/* ---- search ---------------------------------------------------------------------------------------------------- */

struct search {
    const struct ht_options *options;
    const char *system;
    enum ht_size_of of;
    const char *model;
    int64_t step;  /* of batch and sequence */
    int64_t usual; /* size: the model's own blocks; of batch and sequence the smallest */
    struct ht_maxsize *out;
};

void ht_size_apply(const struct ht_size *size, struct ht_scenario_request *request)
{
    if (size->model) request->model = size->model;
    if (size->blocks) request->blocks = size->blocks;
    if (size->batch) request->batch = size->batch;
    if (size->seq) request->seq = request->max_seq = size->seq;
}

static struct ht_size size_at(const struct search *s, int64_t k)
{
    struct ht_size size = {.model = s->model};
    if (s->of == HT_SIZE_MODEL) size.blocks = k;
    if (s->of == HT_SIZE_BATCH) size.batch = k * s->step;
    if (s->of == HT_SIZE_SEQ) size.seq = k * s->step;
    return size;
}

/* Records why a size does not fit. job NULL: there is none. */
static void note_misfit(struct search *s, const struct ht_size *size, const struct ht_job *job, const char *why,
                        const char *reason, int lacks)
{
    struct ht_maxsize *out = s->out;
    struct ht_result result;
    struct ht_error ignored;
    out->limited = true;
    out->next = *size;
    out->lacks = lacks;
    out->short_of[0] = '\0';
    out->short_bytes = 0;
    snprintf(out->status, sizeof(out->status), "%s", why);
    snprintf(out->reason, sizeof(out->reason), "%s", reason);
    if (!job || ht_result_create(job, NULL, NULL, 0, &ignored, &result) != HT_OK) return;
    const struct ht_memory_row *oom = ht_result_oom(&result);
    if (oom) {
        snprintf(out->short_of, sizeof(out->short_of), "%s", oom->name);
        out->short_bytes = oom->short_bytes;
    }
    ht_result_free(&result);
}

/* Checks that this machine has what training there takes: its main memory is the emulated devices', too. */
static enum ht_status check_here(const struct ht_options *o, const struct ht_job *job, struct ht_error *err)
{
    char need[HT_QUANTITY_TEXT], room[HT_QUANTITY_TEXT];
    double memory = 0, disk = 0, have = o->platform.disk ? ht_disks_room(o->platform.disk) : INFINITY;
    for (int32_t i = 0; i < job->proof.n_spaces; i++)
        *(ht_disks_is_space(job->schedule, i) ? &disk : &memory) += (double)job->proof.spaces[i].peak_bytes;
    if (disk > have)
        return ht_fail(err, HT_INFEASIBLE, "training takes %s on disk; the directories have room for %s",
                       ht_format_quantity(HT_BYTES, disk, need), ht_format_quantity(HT_BYTES, have, room));
    return ht_arena_check_machine(memory, "training", err);
}

enum fit {
    FITS,
    LACKS_MEMORY,
    REFUSED, /* for another reason; bad input is one, since a size may be beyond what a scenario takes */
};

/* Finds whether size k fits. Records why it does not, but not a refusal where `refusals` is false. */
static enum ht_status probe(struct search *s, int64_t k, bool refusals, struct ht_error *err, enum fit *fit)
{
    struct ht_options options = *s->options;
    struct ht_size size = size_at(s, k);
    struct ht_job job;
    if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
    ht_size_apply(&size, &options.request);
    options.plan.any_fit = true;
    s->out->n_probes++;
    enum ht_status status = ht_job_create(&options, s->system, NULL, HT_JOB_PROVED, err, &job);
    if (status == HT_BAD_INPUT || status == HT_INFEASIBLE) {
        *fit = err->lacks ? LACKS_MEMORY : REFUSED;
        if (err->lacks || refusals)
            note_misfit(s, &size, NULL, status == HT_BAD_INPUT ? "refused" : "infeasible", err->text, err->lacks);
        return HT_OK;
    }
    if (status != HT_OK) return status;
    if (job.answer != HT_OK) {
        *fit = job.lacks ? LACKS_MEMORY : REFUSED;
        if (job.lacks || refusals) note_misfit(s, &size, &job, job.status, job.reason, job.lacks);
    } else if (job.scenario.cluster->local && check_here(&options, &job, err) != HT_OK) {
        *fit = LACKS_MEMORY;
        note_misfit(s, &size, NULL, "beyond this machine", err->text, 1 + HT_HOST);
    } else {
        *fit = FITS;
        s->out->found = true;
        s->out->size = size;
    }
    ht_job_free(&job);
    return HT_OK;
}

/* Finds a size of first .. last that fits. Sets *size to it, or to 0 if none does, and *misfit to the smallest size above
   it that is known to lack memory, or to last + 1. Of sizes that are refused it records the usual one, whose
   reason is not that it is small, unless a size is known to lack memory. */
static enum ht_status find_fit(struct search *s, int64_t first, int64_t last, struct ht_error *err, int64_t *size,
                               int64_t *misfit)
{
    int64_t refused = first - 1, stride = 1;
    *size = 0;
    *misfit = last + 1;
    while (!*size && refused + 1 < *misfit) {
        int64_t k = *misfit <= last ? refused + (*misfit - refused) / 2 : ht_min(refused + stride, last);
        enum fit fit;
        if (*misfit > last && refused < s->usual && s->usual < k) k = s->usual;
        enum ht_status status = probe(s, k, k <= s->usual && !s->out->lacks, err, &fit);
        if (status != HT_OK) return status;
        if (fit == FITS) *size = k;
        if (fit == LACKS_MEMORY) *misfit = k;
        if (fit == REFUSED) {
            refused = k;
            stride *= 2;
        }
    }
    return HT_OK;
}

/* Finds the largest size of first .. last that fits, if one does. Every misfit recorded is smaller than those before it,
   so the last one is the next size. */
static enum ht_status climb(struct search *s, int64_t first, int64_t last, struct ht_error *err)
{
    int64_t largest, misfit, stride = 1;
    enum ht_status status = find_fit(s, first, last, err, &largest, &misfit);
    while (status == HT_OK && largest && largest + 1 < misfit) {
        int64_t k = misfit <= last ? largest + (misfit - largest) / 2 : ht_min(largest + stride, last);
        enum fit fit;
        status = probe(s, k, true, err, &fit);
        if (fit == FITS) {
            largest = k;
            stride *= 2;
        } else {
            misfit = k;
        }
    }
    return status;
}

static enum ht_status find_model(struct search *s, const struct ht_family *family, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (size_t i = family->n; i-- > 0 && status == HT_OK && !s->out->found;) {
        const struct ht_family_model *m = &family->models[i];
        s->model = m->name;
        s->usual = m->model.layers;
        status = climb(s, m->least_blocks, m->most_blocks, err);
    }
    return status;
}

/* Returns the sequences of a step: one micro-batch on each device. */
static enum ht_status batch_step(const struct ht_options *o, const char *model, struct ht_error *err, int64_t *step)
{
    struct ht_scenario_request request = o->request;
    struct ht_scenario scenario;
    request.model = model;
    request.batch = request.micro_batch = 1;
    if (!request.cluster) return ht_fail(err, HT_BAD_INPUT, HT_NO_CLUSTER);
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    *step = ht_scenario_ranks(&scenario) * (o->request.micro_batch ? o->request.micro_batch : 1);
    ht_scenario_free(&scenario);
    return HT_OK;
}

enum ht_status ht_maxsize_find(const struct ht_options *options, const char *system, enum ht_size_of of,
                               const struct ht_family *family, struct ht_error *err, struct ht_maxsize *out)
{
    struct search s = {.options = options, .system = system, .of = of, .step = HT_SEQ_STEP, .usual = 1, .out = out};
    *out = (struct ht_maxsize){0};
    s.model = family->models[0].name;
    enum ht_status status = of == HT_SIZE_BATCH ? batch_step(options, s.model, err, &s.step) : HT_OK;
    if (status == HT_OK)
        status = of == HT_SIZE_MODEL ? find_model(&s, family, err) : climb(&s, 1, HT_MOST_SEQUENCES / s.step, err);
    if (status != HT_OK || out->found || strcmp(out->status, "refused") != 0) return status;
    return ht_fail(err, HT_BAD_INPUT, "%s", out->reason);
}
