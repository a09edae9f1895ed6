/* hetbench experiment: a built-in experiment or a user's file, into DIR/results.json and DIR/results.csv. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "harness/days/days.h"
#include "harness/result/heading.h"
#include "harness/result/result.h"
#include "harness/sweep/recoveries.h"
#include "harness/sweep/sweep.h"
#include "harness/result/table.h"

#include <stdlib.h>
#include <string.h>

/* Writes a budget in GiB where it is a whole number of them. */
static const char *memory_text(int64_t bytes, char text[HT_QUANTITY_TEXT])
{
    static const int64_t gib = (int64_t)1 << 30;
    if (bytes == 0) return "all";
    if (bytes % gib) return ht_format_quantity(HT_BYTES, (double)bytes, text);
    snprintf(text, HT_QUANTITY_TEXT, "%lld GiB", (long long)(bytes / gib));
    return text;
}

/* Writes where the results go. */
static void results_dir(const struct ht_options *options, const char *name, char *dir, size_t n)
{
    if (options->out)
        snprintf(dir, n, "%s", options->out);
    else
        snprintf(dir, n, "results/%s", name);
}

static bool shows(const struct ht_experiment *e, int axis)
{
    return e->n[axis] > 1 || axis == e->along || (axis == HT_AXIS_BATCHES && e->per_node);
}

/* Returns true if one model stands on several clusters. */
static bool several_clusters(const struct ht_experiment *e)
{
    for (int64_t i = 1; i < e->n[HT_AXIS_MODELS]; i++)
        for (int64_t j = 0; j < i; j++)
            if (!strcmp(e->models[i], e->models[j])) return true;
    return false;
}

/* Adds a point's scenario: a cell for each list that is shown, and one for the cluster where that is not the model's. */
static void scenario_cells(const struct ht_experiment *e, const struct ht_point *p, struct ht_table *t)
{
    for (int axis = 0; axis < HT_N_AXES; axis++) {
        if (!shows(e, axis)) continue;
        char text[HT_QUANTITY_TEXT];
        int64_t value = e->values[axis][p->at[axis]];
        if (axis == HT_AXIS_BATCHES) value = ht_experiment_batch(e, p->at);
        if (axis == HT_AXIS_MODELS) {
            ht_table_cell(t, "%s", e->models[p->at[axis]]);
            if (several_clusters(e)) ht_table_cell(t, "%s", e->clusters[p->at[axis]]);
        } else if (axis == HT_AXIS_MIXES)
            ht_table_cell(t, "%s", e->mixes[p->at[axis]]);
        else if (axis == HT_AXIS_MEMORY || axis == HT_AXIS_HOST_MEMORY)
            ht_table_cell(t, "%s", memory_text(value, text));
        else
            ht_table_cell(t, "%lld", (long long)value);
    }
}

/* Prints a row for each scenario with a column for each series: useful TFLOP/s of its chosen variant, or the status. */
static void print(const struct ht_experiment *e, const json_t *root)
{
    char header[2048] = "";
    size_t at = 0;
    for (int axis = 0; axis < HT_N_AXES; axis++) {
        static const char *const titles[] = {"<model",       ">batch",       ">device memory", ">tokens",
                                             ">micro-batch", ">host memory", ">SSDs",          "<devices"};
        if (!shows(e, axis)) continue;
        at += (size_t)snprintf(header + at, sizeof(header) - at, "%s%s%s", at ? "|" : "", titles[axis],
                               axis == HT_AXIS_MODELS && several_clusters(e) ? "|<cluster" : "");
    }
    for (int64_t i = 0; i < e->n_series; i++)
        at += (size_t)snprintf(header + at, sizeof(header) - at, "|>%.64s", e->series[i].label);
    struct ht_table *t = ht_table_create(header);
    const json_t *rows = json_object_get(root, "rows");
    size_t r = 0;
    for (int64_t i = 0; i < ht_experiment_points(e); i++) {
        struct ht_point p = ht_experiment_point(e, i);
        if (p.series == 0 && p.variant == 0) scenario_cells(e, &p, t);
        const json_t *row = json_array_get(rows, r++);
        if (!json_is_true(json_object_get(row, "chosen"))) continue;
        const json_t *rate = json_object_get(row, "tflops_per_gpu");
        if (json_is_number(rate))
            ht_table_cell(t, "%.3g", json_number_value(rate));
        else
            ht_table_cell(t, "%s", json_string_value(json_object_get(row, "status")));
    }
    printf("%s: %s (simulated)\n", e->name, e->title);
    ht_rows_print_scenario(rows, NULL, stdout);
    puts("useful TFLOP/s per GPU (3 x forward matrix products)\n");
    ht_table_print(t, "", stdout);
}

/* Runs an experiment of days on spot instances. */
static enum ht_status run_days(const struct ht_options *o, struct ht_error *err)
{
    char dir[4096], shown[4096];
    json_t *root, *study;
    size_t i;
    struct ht_days_heading heading;
    ht_days_heading(o->words[0], &heading);
    results_dir(o, heading.name, dir, sizeof(dir));
    enum ht_status status = ht_days_run(o->words[0], dir, o->day.plans, err, &root);
    json_array_foreach(json_object_get(root, "rows"), i, study)
    {
        if (status != HT_OK || o->json) break;
        if (i) putchar('\n');
        ht_study_print(study, stdout);
    }
    ht_shown(dir, shown, sizeof(shown));
    if (status == HT_OK && !o->json)
        printf("\n%s/results.json, %s/results.csv; hetbench report %s draws them\n", shown, shown, shown);
    if (status == HT_OK && o->json) return ht_json_print(root, "days", err);
    json_decref(root);
    return status;
}

/* ---- on recovery ---- */

/* Prints a row for each recovery and model. */
static void print_recoveries(const struct ht_recoveries *e, const json_t *root)
{
    struct ht_table *t = ht_table_create("<recovery|<model|>by the stores|>by the remote store|>speed-up|>paper");
    const json_t *rows = json_object_get(root, "rows");
    for (size_t i = 0; i + 1 < json_array_size(rows); i += 2) {
        const json_t *stores = json_array_get(rows, i), *remote = json_array_get(rows, i + 1);
        const json_t *paper = json_object_get(stores, "paper_speed_up");
        ht_table_cell(t, "%s", json_string_value(json_object_get(stores, "label")));
        ht_table_cell(t, "%s", json_string_value(json_object_get(stores, "model")));
        ht_table_cell(t, "%.4g s", json_number_value(json_object_get(stores, "recovery_time_s")));
        ht_table_cell(t, "%.4g s", json_number_value(json_object_get(remote, "recovery_time_s")));
        ht_table_cell(t, "%.3f", json_number_value(json_object_get(stores, "speed_up")));
        if (json_is_number(paper))
            ht_table_cell(t, "%.3g", json_number_value(paper));
        else
            ht_table_cell(t, "-");
    }
    printf("%s: %s (simulated)\n\n", e->name, e->title);
    ht_table_print(t, "", stdout);
}

static enum ht_status run_recoveries(const struct ht_options *options, struct ht_error *err)
{
    struct ht_recoveries *e = ht_alloc(sizeof(*e));
    json_t *root = NULL;
    char dir[4096], shown[sizeof(dir)];
    enum ht_status status = ht_recoveries_load(options->words[0], err, e);
    if (status == HT_OK) {
        results_dir(options, e->name, dir, sizeof(dir));
        status = ht_recoveries_run(e, dir, err, &root);
    }
    if (status == HT_OK && !options->json) {
        print_recoveries(e, root);
        ht_shown(dir, shown, sizeof(shown));
        printf("\n%s/results.json, %s/results.csv; hetbench report %s draws them\n", shown, shown, shown);
    }
    if (status == HT_OK && options->json) {
        status = ht_json_print(root, "recoveries", err);
        root = NULL;
    }
    json_decref(root);
    ht_recoveries_free(e);
    free(e);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    if (ht_days_are(options->words[0])) return run_days(options, err);
    struct ht_experiment *e = ht_alloc(sizeof(*e));
    struct ht_sweep_stats stats;
    json_t *root = NULL;
    char dir[4096];
    if (ht_is_recoveries(options->words[0])) {
        free(e);
        return run_recoveries(options, err);
    }
    enum ht_status status = ht_experiment_load(options->words[0], err, e);
    if (status == HT_OK) {
        results_dir(options, e->name, dir, sizeof(dir));
        status = ht_sweep_run(e, dir, err, &stats, &root);
    }
    if (status == HT_OK && !options->json) {
        char shown[sizeof(dir)];
        ht_shown(dir, shown, sizeof(shown));
        print(e, root);
        printf("\n%lld points: %lld simulated, %lld taken over from before\n%s/results.json, %s/results.csv; "
               "hetbench report %s draws them\n",
               (long long)stats.points, (long long)stats.simulated, (long long)stats.reused, shown, shown, shown);
    }
    if (status == HT_OK && options->json) {
        status = ht_json_print(root, "experiment", err);
        root = NULL;
    }
    json_decref(root);
    ht_experiment_free(e);
    free(e);
    return status;
}

const struct ht_command ht_cmd_experiment = {
    .name = "experiment",
    .args = "NAME|FILE",
    .help = "simulate an experiment: systems by models, batches, budgets; resumable\v"
            "Names: hetbench list experiments. Rows that DIR has already, from the same program and commit, "
            "are not simulated again.",
    .example = "hetbench experiment autohete-fig3a",
    .groups = HT_OPT_EXPERIMENT,
    .min_words = 1,
    .max_words = 1,
    .run = run,
};
