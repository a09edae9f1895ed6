#include "harness/cli/job_report.h"

#include "common/base/array.h"
#include "common/schedule/residency.h"
#include "harness/cli/drawing.h"

#include <stdlib.h>

/* Returns true if micro-batches of a default size may be why a job does not fit a GPU: its states alone do. */
static bool may_be_the_default(const struct ht_job *job)
{
    const struct ht_schedule *s = job->schedule;
    if (!job->default_micro_batch || job->scenario.micro_batch == 1 || job->lacks != 1 + HT_DEVICE ||
        job->system->division == HT_PLANNED_REPLICAS)
        return false;
    int64_t *held = HT_NEW_ARRAY(int64_t, s ? ht_n_spaces(s) : 0);
    bool fits = true;
    for (int32_t i = 0; s && i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        int32_t space = ht_space(s, r->tier, r->rank);
        held[space] += ht_resident_bytes(s, r);
        fits = fits && held[space] <= s->capacity_bytes[space];
    }
    free(held);
    return fits;
}

/* Says why a job has no plan that fits; where a default may be the reason, also that. */
static enum ht_status answer_of(const struct ht_job *job, struct ht_error *err)
{
    char advice[128] = "";
    if (job->answer == HT_OK) return HT_OK;
    if (may_be_the_default(job))
        snprintf(advice, sizeof(advice),
                 "; micro-batches of %lld sequences are the default: --micro-batch 1 holds less",
                 (long long)job->scenario.micro_batch);
    return ht_fail(err, job->answer, "%s%s", job->reason, advice);
}

enum ht_status ht_job_report(const struct ht_options *options, void (*print)(const struct ht_job *job),
                             void (*add)(const struct ht_job *job, json_t *root), struct ht_error *err)
{
    struct ht_job job;
    struct ht_result result = {0};
    struct ht_options shown = *options;
    shown.plan.progress = true;
    enum ht_status status = ht_job_create(&shown, NULL, NULL, HT_JOB_BOUNDED, err, &job);
    if (status != HT_OK) return status;
    status = ht_result_create(&job, NULL, NULL, 0, err, &result);
    if (status == HT_OK) status = ht_job_dump(&job, options->plan.dump, err);
    if (status == HT_OK) status = ht_draw_plan(&result, options->draw, err);
    if (status == HT_OK) status = ht_plot_result(&result, options->plot, err);
    if (status == HT_OK && options->json) {
        json_t *root = ht_result_json(&result);
        if (add) add(&job, root);
        status = ht_json_print(root, "result", err);
    } else if (status == HT_OK) {
        ht_job_print(&job, stdout);
        print(&job);
        ht_memory_print(&result, stdout);
    }
    if (status == HT_OK) status = answer_of(&job, err);
    ht_result_free(&result);
    ht_job_free(&job);
    return status;
}

enum ht_status ht_result_show(const struct ht_result *r, bool json, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    if (json)
        status = ht_json_print(ht_result_json(r), "result", err);
    else
        ht_result_print(r, stdout);
    return status == HT_OK ? answer_of(r->job, err) : status;
}
