/* hetbench compare: systems by models, one row each. A row that does not fit says so, and the others go on. */
#include "harness/commands.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/units.h"
#include "harness/output.h"
#include "harness/provenance.h"
#include "harness/result.h"
#include "harness/registry.h"
#include "harness/rows.h"
#include "harness/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct words {
    char *text; /* the words, cut at the commas */
    const char **list;
    size_t n, cap;
};

static void words_of(const char *commas, struct words *out)
{
    *out = (struct words){.text = ht_strdup(commas)};
    char *save = NULL;
    for (char *w = strtok_r(out->text, ",", &save); w; w = strtok_r(NULL, ",", &save))
        HT_PUSH(out->list, out->n, out->cap, w);
}

static void words_free(struct words *w)
{
    free(w->list);
    free(w->text);
}

/* "OOM at forward of block 21 on device 0, short by 365 MB": the reason without who holds what. */
static const char *short_reason(const char *reason, char *buf, size_t n)
{
    const char *tail = strstr(reason, ", short by ");
    snprintf(buf, n, "%.*s%s", (int)strcspn(reason, ":"), reason, tail ? tail : "");
    return buf;
}

static void add_row(const struct ht_result *r, struct ht_table *t)
{
    const struct ht_job *job = r->job;
    char text[HT_QUANTITY_TEXT], reason[256];
    ht_table_cell(t, "%s", job->scenario.model.name);
    ht_table_cell(t, "%.4g", (double)ht_model_params(&job->scenario.model));
    ht_table_cell(t, "%s", job->system->name);
    ht_table_cell(t, "%s", job->status);
    if (r->has_metrics) {
        ht_table_cell(t, "%.4g", r->samples_per_s);
        ht_table_cell(t, "%s", ht_format_quantity(HT_TIME, (double)r->metrics.iteration_ns, text));
        ht_table_cell(t, "%.4g", ht_result_tflops(r, r->useful_flops));
        ht_table_cell(t, "%.3g%%", 100 * ht_result_mfu(r));
    } else {
        for (int i = 0; i < 4; i++) ht_table_cell(t, "-");
    }
    ht_table_bytes(t, ht_result_peak(r, HT_DEVICE));
    ht_table_bytes(t, ht_result_peak(r, HT_HOST));
    if (r->has_metrics)
        ht_table_cell(t, "bound by %s", r->metrics.lower_bound_of);
    else
        ht_table_cell(t, "%s", short_reason(job->reason, reason, sizeof(reason)));
}

static const char *const csv_columns[] = {"status",         "samples_per_s", "tokens_per_s",  "iteration_time_s",
                                          "tflops_per_gpu", "mfu",           "lower_bound_s", "lower_bound_of",
                                          "bubble_ratio",   "reason"};

/* The rows' JSON is the one source of both files. */
static void write_csv(const json_t *rows, FILE *out)
{
    fputs("model,params,system,device_peak_bytes,host_peak_bytes", out);
    for (size_t c = 0; c < HT_COUNT(csv_columns); c++) fprintf(out, ",%s", csv_columns[c]);
    putc('\n', out);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        const json_t *model = json_object_get(json_object_get(row, "scenario"), "model");
        ht_csv_value(json_object_get(model, "name"), out);
        fprintf(out, ",%lld,", (long long)json_integer_value(json_object_get(model, "params")));
        ht_csv_value(json_object_get(row, "system"), out);
        static const char *const peaks[] = {"device_peak_bytes", "host_peak_bytes"};
        for (size_t p = 0; p < HT_COUNT(peaks); p++) {
            const json_t *bytes = json_object_get(row, peaks[p]);
            putc(',', out);
            ht_csv_value(bytes, out);
        }
        for (size_t c = 0; c < HT_COUNT(csv_columns); c++) {
            const json_t *v = json_object_get(row, csv_columns[c]);
            putc(',', out);
            ht_csv_value(v, out);
        }
        putc('\n', out);
    }
}

static enum ht_status write_files(const json_t *root, const char *dir, struct ht_error *err)
{
    enum ht_status status = ht_make_directory(dir, err);
    if (status == HT_OK) status = ht_rows_write(root, dir, "compare", write_csv, err);
    return status;
}

/* One system on one model. */
static enum ht_status run_one(const struct ht_options *options, const char *system, const char *model,
                              struct ht_table *table, json_t *rows, struct ht_error *err)
{
    struct ht_job job;
    struct ht_result result = {0};
    struct ht_trace *trace = NULL;
    enum ht_status status = ht_job_create(options, system, model, HT_JOB_COSTS, err, &job);
    if (status != HT_OK) return status;
    if (job.answer == HT_OK) status = ht_simulate(options, &job, err, &trace);
    if (status == HT_OK) status = ht_result_create(&job, trace, job.cost_ns, (int32_t)options->warmup, err, &result);
    if (status == HT_OK) {
        add_row(&result, table);
        json_t *row = ht_result_json(&result);
        for (int tier = HT_DEVICE; tier <= HT_HOST; tier++) {
            int64_t peak = ht_result_peak(&result, (enum ht_tier)tier);
            json_object_set_new(row, tier == HT_DEVICE ? "device_peak_bytes" : "host_peak_bytes",
                                peak < 0 ? json_null() : json_integer(peak));
        }
        json_array_append_new(rows, row);
    }
    ht_result_free(&result);
    ht_job_free(&job);
    return status;
}

static enum ht_status check_request(const struct ht_options *options, const struct words *models,
                                    const struct words *systems, struct ht_error *err)
{
    const struct ht_system *ignored;
    if (!models->n) return ht_fail(err, HT_BAD_INPUT, "compare: --models is missing; expected a list such as A,B");
    if (!options->request.cluster)
        return ht_fail(err, HT_BAD_INPUT, "--cluster is missing; hetbench list clusters shows those there are");
    enum ht_status status = HT_OK;
    for (size_t s = 0; s < systems->n && status == HT_OK; s++) status = ht_system_find(systems->list[s], err, &ignored);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct words models, systems;
    words_of(options->models ? options->models : "", &models);
    words_of(options->systems ? options->systems : "", &systems);
    if (!options->systems)
        for (size_t i = 0; ht_system_at(i); i++) HT_PUSH(systems.list, systems.n, systems.cap, ht_system_at(i)->name);
    struct ht_table *table =
        ht_table_create("<model|>parameters|<system|<status|>samples/s|>iteration|>TFLOP/s per GPU|"
                        ">MFU|>device memory|>host memory|<what binds");
    json_t *root = json_pack("{s:s}", "obtained", "simulated"), *from = ht_provenance_json(), *rows = json_array();
    json_object_update(root, from);
    json_decref(from);
    json_object_set_new(root, "rows", rows);
    enum ht_status status = check_request(options, &models, &systems, err);
    size_t n = models.n * systems.n;
    for (size_t i = 0; i < n && status == HT_OK; i++) {
        if (ht_interrupted())
            status = ht_fail(err, HT_INTERRUPTED, "interrupted after %zu of %zu rows; nothing was written", i, n);
        else
            status = run_one(options, systems.list[i % systems.n], models.list[i / systems.n], table, rows, err);
    }
    if (status == HT_OK && options->out) status = write_files(root, options->out, err);
    if (status == HT_OK && !options->json) {
        printf("cluster %s, batch %lld (simulated)\n"
               "TFLOP/s and MFU: 3 x forward matrix products, dense peak. Memory: the peak, or what oom rows would "
               "need.\n\n",
               options->request.cluster, (long long)(options->request.batch ? options->request.batch : 8));
        ht_table_print(table, "", stdout);
    }
    if (status == HT_OK && options->json)
        status = ht_json_print(root, err);
    else
        json_decref(root);
    ht_table_destroy(table);
    words_free(&models);
    words_free(&systems);
    return status;
}

const struct ht_command ht_cmd_compare = {
    .name = "compare",
    .args = NULL,
    .help = "simulate several systems on several models and compare",
    .groups = HT_OPT_COMPARE | HT_OPT_SCENARIO | HT_OPT_SIM,
    .min_words = 0,
    .max_words = 0,
    .run = run,
};
