/* hetbench compare: a row for each system and model. A row that does not fit says so, and the others go on. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "harness/cli/lists.h"
#include "harness/cli/row_set.h"
#include "harness/result/evaluate.h"
#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/result/table.h"
#include "harness/run/registry.h"

#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *row, const char *key)
{
    return json_string_value(ht_row_value(row, key));
}

static double number_of(const json_t *row, const char *key)
{
    return json_number_value(ht_row_value(row, key));
}

/* Adds the cell "lane cpu of rank 0", or of a row that does not run "device 0 short by 717 MB [1]" with its note. */
static void add_bottleneck(const json_t *row, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT];
    const char *lane = text_of(row, "lower_bound_of"), *space = text_of(row, "short_of");
    if (lane) {
        ht_table_cell(t, "%s", lane);
        return;
    }
    size_t note = ht_note_of(notes, text_of(row, "reason"));
    if (space)
        ht_table_cell(t, "%s short by %s [%zu]", space,
                      ht_format_quantity(HT_BYTES, number_of(row, "short_bytes"), text), note);
    else
        ht_table_cell(t, "%s [%zu]", strcmp(text_of(row, "status"), "refused") ? "no plan" : "refused", note);
}

static void add_peak(const json_t *row, const char *key, struct ht_table *t)
{
    const json_t *peak = ht_row_value(row, key);
    ht_table_bytes(t, json_is_integer(peak) ? json_integer_value(peak) : -1);
}

static void add_row(const json_t *row, bool priced, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT];
    const json_t *micro_batch = ht_row_value(row, "micro_batch");
    ht_table_cell(t, "%s", text_of(row, "model"));
    ht_table_cell(t, "%.4g", number_of(row, "params"));
    if (number_of(row, "seq") > 0)
        ht_table_cell(t, "%.0f", number_of(row, "seq"));
    else
        ht_table_cell(t, "-");
    ht_table_cell(t, "%s", text_of(row, "system"));
    if (json_is_integer(micro_batch))
        ht_table_cell(t, "%lld", (long long)json_integer_value(micro_batch));
    else
        ht_table_cell(t, "%s", json_is_null(micro_batch) ? "plan" : "-");
    ht_table_cell(t, "%s", text_of(row, "status"));
    if (json_object_get(row, "iteration_time_s")) {
        ht_table_cell(t, "%.4g", number_of(row, "samples_per_s"));
        ht_table_cell(t, "%s", ht_format_quantity(HT_TIME, 1e9 * number_of(row, "iteration_time_s"), text));
        ht_table_cell(t, "%.4g", number_of(row, "tflops_per_gpu"));
        ht_table_cell(t, "%.3g%%", 100 * number_of(row, "mfu"));
        if (priced) ht_table_cell(t, "%.4g", number_of(row, "tokens_per_s_per_1000_usd"));
    } else {
        for (int i = 0; i < 4 + priced; i++) ht_table_cell(t, "-");
    }
    add_peak(row, "device_peak_bytes", t);
    add_peak(row, "host_peak_bytes", t);
    add_bottleneck(row, t, notes);
}

/* Writes compare.csv. Like the table it is made from the rows' JSON. */
static void write_csv(const json_t *rows, FILE *out)
{
    /* clang-format off */
    static const char *const columns[] = {
        "model", "params", "system", "device_peak_bytes", "host_peak_bytes", "status", "samples_per_s",
        "tokens_per_s", "iteration_time_s", "tflops_per_gpu", "mfu", "price_usd", "tokens_per_s_per_1000_usd",
        "tflops_per_1000_usd", "lower_bound_s", "lower_bound_of",
        "bubble_ratio", "reason", "short_of", "short_bytes", "plan_why", "cluster", "gpus_text", "batch",
        "micro_batch", "seq", "numerics_text", "parallelism", "rate_note",
    };
    /* clang-format on */
    ht_rows_csv(rows, columns, HT_COUNT(columns), ht_row_value, out);
}

/* Systems by models; models outermost. */
struct comparison {
    const struct ht_options *options;
    struct ht_words systems;
    struct ht_model_list models;
    json_t *from; /* provenance */
    json_t **rows;
};

static enum ht_status run_row(void *ctx, size_t i, struct ht_error *err)
{
    const struct comparison *c = ctx;
    const char *system = c->systems.list[i % c->systems.n];
    const struct ht_listed_model *m = &c->models.list[i / c->systems.n];
    struct ht_evaluation e;
    enum ht_status status = ht_evaluate(c->options, system, m->name, err, &e);
    if (status == HT_BAD_INPUT) {
        c->rows[i] = ht_refused_row(c->options, system, m->name, &m->model, c->from, err);
        return HT_OK;
    }
    if (status != HT_OK) return status;
    c->rows[i] = ht_evaluation_row(&e, c->from);
    ht_evaluation_free(&e);
    return HT_OK;
}

/* Returns the memory that each row takes while it runs, estimated. */
static double *estimate(const struct comparison *c, size_t n)
{
    double *bytes = HT_NEW_ARRAY(double, n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = ht_evaluation_bytes(c->options, ht_model_units(&c->models.list[i / c->systems.n].model));
    return bytes;
}

static enum ht_status run_rows(struct comparison *c, json_t *root, struct ht_error *err)
{
    size_t n = c->models.n * c->systems.n;
    double *bytes = estimate(c, n);
    struct ht_tasks tasks = {.name = "compare", .noun = "rows", .n = n, .bytes = bytes, .ctx = c, .run = run_row};
    c->rows = HT_NEW_ARRAY(json_t *, n);
    enum ht_status status = ht_row_set_make(&tasks, c->rows, NULL, root, err);
    free(c->rows);
    free(bytes);
    return status;
}

static void print_rows(const void *ctx, const json_t *rows)
{
    const struct comparison *c = ctx;
    struct ht_notes notes = {0};
    size_t i;
    const json_t *row;
    bool priced = false;
    json_array_foreach(rows, i, row) priced |= json_object_get(row, "price_usd") != NULL;
    struct ht_table *table = ht_table_create(
        priced ? "<model|>parameters|>tokens|<system|>micro-batch|<status|>samples/s|>iteration|>TFLOP/s per GPU|"
                 ">MFU|>tokens/s per $1000|>device memory|>host memory|<bottleneck"
               : "<model|>parameters|>tokens|<system|>micro-batch|<status|>samples/s|>iteration|>TFLOP/s per GPU|"
                 ">MFU|>device memory|>host memory|<bottleneck");
    json_array_foreach(rows, i, row) add_row(row, priced, table, &notes);
    printf("%zu system%s on %zu model%s (simulated)\n", c->systems.n, c->systems.n == 1 ? "" : "s", c->models.n,
           c->models.n == 1 ? "" : "s");
    ht_rows_print_scenario(rows, NULL, stdout);
    puts("TFLOP/s and MFU: 3 x forward matrix products, against the dense peak of all devices. Memory: the largest "
         "peak of any\ndevice and host; of oom rows the need. Bottleneck: what sets the lower bound of the "
         "iteration time.\n");
    ht_table_print(table, "", stdout);
    ht_notes_print(&notes, stdout);
    ht_table_destroy(table);
    ht_notes_free(&notes);
}

static enum ht_status read_request(const struct ht_options *options, struct ht_error *err, struct comparison *c)
{
    const struct ht_system *ignored;
    struct ht_words models;
    ht_words_split(options->models ? options->models : "", &models);
    ht_words_split(options->systems ? options->systems : "", &c->systems);
    if (!options->systems)
        for (size_t i = 0; ht_system_at(i); i++)
            HT_PUSH(c->systems.list, c->systems.n, c->systems.cap, ht_system_at(i)->name);
    enum ht_status status = HT_OK;
    if (!models.n)
        status = ht_fail(err, HT_BAD_INPUT, "--models is missing; expected a list such as A,B or 'autohete-*'");
    else if (!c->systems.n)
        status = ht_fail(err, HT_BAD_INPUT, "the list of systems is empty; expected A,B or none for all");
    else if (!options->request.cluster)
        status = ht_fail(err, HT_BAD_INPUT, "--cluster is missing; hetbench list clusters shows those there are");
    for (size_t s = 0; s < c->systems.n && status == HT_OK; s++)
        status = ht_system_find(c->systems.list[s], err, &ignored);
    if (status == HT_OK) status = ht_model_list_create(models.list, models.n, err, &c->models);
    ht_words_free(&models);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct comparison c = {.options = options, .from = ht_provenance_json()};
    struct ht_row_set_output output = {"compare", options, &c, print_rows, write_csv};
    json_t *root = json_pack("{s:s}", "obtained", "simulated");
    json_object_update(root, c.from);
    enum ht_status status = read_request(options, err, &c);
    if (status == HT_OK) status = run_rows(&c, root, err);
    status = ht_row_set_finish(status, &output, root, err);
    json_decref(c.from);
    ht_words_free(&c.systems);
    ht_model_list_free(&c.models);
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
