/* hetbench compare: systems by models, one row each. A row that does not fit says so, and the others go on. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"
#include "common/base/units.h"
#include "harness/result/evaluate.h"
#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/result/table.h"
#include "harness/run/output.h"
#include "harness/run/registry.h"

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

/* Reasons of rows that do not run: each is listed once, whole, below the table. */
struct notes {
    char **list;
    size_t n, cap;
};

/* Its number, from 1. */
static size_t note_of(struct notes *notes, const char *reason)
{
    for (size_t i = 0; i < notes->n; i++)
        if (!strcmp(notes->list[i], reason)) return i + 1;
    HT_PUSH(notes->list, notes->n, notes->cap, ht_strdup(reason));
    return notes->n;
}

static void notes_print(const struct notes *notes, FILE *out)
{
    for (size_t i = 0; i < notes->n; i++) fprintf(out, "%s[%zu] %s\n", i ? "" : "\n", i + 1, notes->list[i]);
}

static void notes_free(struct notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) free(notes->list[i]);
    free(notes->list);
}

/* "lane cpu of rank 0"; of what does not run "device 0 short by 717 MB [1]", with the note that has the reason. */
static void add_binding(const struct ht_result *r, struct ht_table *t, struct notes *notes)
{
    const struct ht_memory_row *oom = ht_result_oom(r);
    char text[HT_QUANTITY_TEXT];
    if (r->has_metrics) {
        ht_table_cell(t, "%s", r->metrics.lower_bound_of);
        return;
    }
    size_t note = note_of(notes, r->job->reason);
    if (oom)
        ht_table_cell(t, "%s short by %s [%zu]", oom->name,
                      ht_format_quantity(HT_BYTES, (double)oom->short_bytes, text), note);
    else
        ht_table_cell(t, "no plan [%zu]", note);
}

static void add_row(const struct ht_result *r, struct ht_table *t, struct notes *notes)
{
    const struct ht_job *job = r->job;
    char text[HT_QUANTITY_TEXT];
    ht_table_cell(t, "%s", job->scenario.model.name);
    ht_table_cell(t, "%.4g", (double)ht_model_params(&job->scenario.model));
    ht_table_cell(t, "%lld", (long long)job->scenario.seq);
    ht_table_cell(t, "%s", job->system->name);
    if (job->system->division == HT_PLANNED_REPLICAS)
        ht_table_cell(t, "plan");
    else
        ht_table_cell(t, "%lld", (long long)job->scenario.micro_batch);
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
    add_binding(r, t, notes);
}

/* The rows' JSON is the one source of both files. */
static void write_csv(const json_t *rows, FILE *out)
{
    /* clang-format off */
    static const char *const columns[] = {
        "model", "params", "system", "device_peak_bytes", "host_peak_bytes", "status", "samples_per_s",
        "tokens_per_s", "iteration_time_s", "tflops_per_gpu", "mfu", "lower_bound_s", "lower_bound_of",
        "bubble_ratio", "reason", "short_of", "short_bytes", "plan_why", "cluster", "gpus_text", "batch",
        "micro_batch", "seq", "numerics_text", "parallelism", "rate_note",
    };
    /* clang-format on */
    ht_rows_csv(rows, columns, HT_COUNT(columns), ht_row_value, out);
}

static enum ht_status write_files(const json_t *root, const char *dir, struct ht_error *err)
{
    enum ht_status status = ht_make_directory(dir, err);
    if (status == HT_OK) status = ht_rows_write(root, dir, "compare", write_csv, err);
    return status;
}

/* Runs one system on one model. */
static enum ht_status run_one(const struct ht_options *options, const char *system, const char *model,
                              struct ht_table *table, struct notes *notes, json_t *from, json_t *rows,
                              struct ht_error *err)
{
    struct ht_evaluation e;
    enum ht_status status = ht_evaluate(options, system, model, err, &e);
    if (status != HT_OK) return status;
    add_row(&e.result, table, notes);
    json_array_append_new(rows, ht_evaluation_row(&e, from));
    ht_evaluation_free(&e);
    return HT_OK;
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
    struct ht_table *table = ht_table_create(
        "<model|>parameters|>tokens|<system|>micro-batch|<status|>samples/s|>iteration|>TFLOP/s per GPU|"
        ">MFU|>device memory|>host memory|<what binds");
    struct notes notes = {0};
    json_t *root = json_pack("{s:s}", "obtained", "simulated"), *from = ht_provenance_json(), *rows = json_array();
    json_object_update(root, from);
    json_object_set_new(root, "rows", rows);
    enum ht_status status = check_request(options, &models, &systems, err);
    size_t n = models.n * systems.n;
    for (size_t i = 0; i < n && status == HT_OK; i++) {
        if (ht_interrupted())
            status = ht_fail(err, HT_INTERRUPTED, "interrupted after %zu of %zu rows; nothing was written", i, n);
        else
            status = run_one(options, systems.list[i % systems.n], models.list[i / systems.n], table, &notes, from,
                             rows, err);
    }
    if (status == HT_OK && options->out) status = write_files(root, options->out, err);
    if (status == HT_OK && !options->json) {
        printf("%zu system%s on %zu model%s (simulated)\n", systems.n, systems.n == 1 ? "" : "s", models.n,
               models.n == 1 ? "" : "s");
        ht_rows_print_scenario(rows, stdout);
        puts("TFLOP/s and MFU: 3 x forward matrix products, against the dense peak of all devices. Memory: the largest "
             "peak of "
             "any\ndevice and host; of oom rows what they would need. What binds: what sets the lower bound of the "
             "iteration "
             "time.\n");
        ht_table_print(table, "", stdout);
        notes_print(&notes, stdout);
    }
    if (status == HT_OK && options->json)
        status = ht_json_print(root, err);
    else
        json_decref(root);
    json_decref(from);
    ht_table_destroy(table);
    notes_free(&notes);
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
