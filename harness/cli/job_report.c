#include "harness/cli/job_report.h"

#include "harness/cli/drawing.h"

static enum ht_status answer_of(const struct ht_job *job, struct ht_error *err)
{
    return job->answer == HT_OK ? HT_OK : ht_fail(err, job->answer, "%s", job->reason);
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
