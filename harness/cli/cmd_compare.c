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
    json_t *fastest; /* [models] of fastest_under, where the rate through host memory is assumed; else NULL. Borrowed */
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

/* ---- what an assumed rate decides ------------------------------------------------------------------------------- */

/* Returns the system with the highest throughput among a model's rows; null where none runs. */
static json_t *fastest_of(json_t *const *rows, size_t n)
{
    const json_t *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (rows[i] && number_of(rows[i], "samples_per_s") > (best ? number_of(best, "samples_per_s") : 0))
            best = rows[i];
    return best ? json_string(text_of(best, "system")) : json_null();
}

static bool assumes_rate(const json_t *rows)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) if (json_is_true(ht_row_value(row, "through_host_assumed"))) return true;
    return false;
}

/* Adds to each model of `out` the fastest system, under the key, with the assumed rate multiplied. */
static enum ht_status fastest_under(const struct comparison *c, double factor, const char *key, json_t *out,
                                    struct ht_error *err)
{
    struct ht_options scaled = *c->options;
    struct comparison x = *c;
    size_t n = c->models.n * c->systems.n;
    double *bytes = estimate(c, n);
    char noun[48];
    snprintf(noun, sizeof(noun), "rows at %s the assumed rate", key);
    struct ht_tasks tasks = {.name = "compare", .noun = noun, .n = n, .bytes = bytes, .ctx = &x, .run = run_row};
    scaled.request.through_host_scale = factor;
    x.options = &scaled;
    x.rows = HT_NEW_ARRAY(json_t *, n);
    enum ht_status status = ht_tasks_run(&tasks, err);
    for (size_t m = 0; m < c->models.n && status == HT_OK; m++)
        json_object_set_new(json_array_get(out, m), key, fastest_of(x.rows + m * c->systems.n, c->systems.n));
    for (size_t i = 0; i < n; i++) json_decref(x.rows[i]);
    free(x.rows);
    free(bytes);
    return status;
}

/* Sets root's "assumed_rate": the fastest system of each model at half, once and double the assumed rate through host
   memory. Rows with the assumed rate itself are root's. */
static enum ht_status vary_assumed_rate(struct comparison *c, json_t *root, struct ht_error *err)
{
    const json_t *rows = json_object_get(root, "rows");
    if (c->systems.n < 2 || !assumes_rate(rows)) return HT_OK;
    json_t *fastest = json_array(), **own = HT_NEW_ARRAY(json_t *, c->systems.n);
    for (size_t m = 0; m < c->models.n; m++) {
        for (size_t i = 0; i < c->systems.n; i++) own[i] = json_array_get(rows, m * c->systems.n + i);
        json_array_append_new(
            fastest, json_pack("{s:s,s:o}", "model", c->models.list[m].name, "once", fastest_of(own, c->systems.n)));
    }
    free(own);
    enum ht_status status = fastest_under(c, 0.5, "half", fastest, err);
    if (status == HT_OK) status = fastest_under(c, 2, "double", fastest, err);
    json_object_set_new(root, "assumed_rate",
                        json_pack("{s:s,s:O,s:o}", "rate", "through_host_bytes_per_s", "value",
                                  ht_row_value(json_array_get(rows, 0), "through_host_bytes_per_s"), "fastest",
                                  fastest));
    if (status == HT_OK)
        c->fastest = fastest;
    else
        json_object_del(root, "assumed_rate");
    return status;
}

static const char *said(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void print_fastest(const struct comparison *c)
{
    size_t i, changed = 0;
    const json_t *model;
    json_array_foreach(c->fastest, i, model)
    {
        const char *half = said(model, "half"), *once = said(model, "once"), *twice = said(model, "double");
        if (!half || !once || !twice || (!strcmp(half, once) && !strcmp(once, twice))) continue;
        if (!changed++) puts("\nThe assumed rate through host memory decides (--through-host takes yours):");
        printf("  %s: fastest is %s at half of it, %s at it, %s at double\n", said(model, "model"), half, once, twice);
    }
    if (!changed) puts("\nAt half and at double of the assumed rate through host memory the same systems are fastest.");
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
    if (c->fastest) print_fastest(c);
    ht_table_destroy(table);
    ht_notes_free(&notes);
}

static enum ht_status read_request(const struct ht_options *options, struct ht_error *err, struct comparison *c)
{
    const struct ht_system *ignored;
    struct ht_words models;
    ht_words_split(options->compare.models ? options->compare.models : "", &models);
    ht_words_split(options->compare.systems ? options->compare.systems : "", &c->systems);
    if (!options->compare.systems)
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
    if (status == HT_OK) status = vary_assumed_rate(&c, root, err);
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
