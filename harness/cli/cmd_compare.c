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

/* Adds the cell "lane cpu of rank 0", or of a row that does not run "device 0 short by 717 MB [1]" with its note. */
static void add_bottleneck(const json_t *row, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT];
    const char *lane = ht_row_text(row, "lower_bound_of"), *space = ht_row_text(row, "short_of");
    if (lane) {
        ht_table_cell(t, "%s", lane);
        return;
    }
    size_t note = ht_note_of(notes, ht_row_text(row, "reason"));
    if (space)
        ht_table_cell(t, "%s short by %s [%zu]", space,
                      ht_format_quantity(HT_BYTES, ht_row_number(row, "short_bytes"), text), note);
    else
        ht_table_cell(t, "%s [%zu]", strcmp(ht_row_text(row, "status"), "refused") ? "no plan" : "refused", note);
}

static void add_row(const json_t *row, bool priced, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT];
    const json_t *micro_batch = ht_row_value(row, "micro_batch");
    ht_table_cell(t, "%s", ht_row_text(row, "model"));
    ht_table_cell(t, "%.4g", ht_row_number(row, "params"));
    if (ht_row_number(row, "seq") > 0)
        ht_table_cell(t, "%.0f", ht_row_number(row, "seq"));
    else
        ht_table_cell(t, "-");
    ht_table_cell(t, "%s", ht_row_text(row, "system"));
    if (json_is_integer(micro_batch))
        ht_table_cell(t, "%lld", (long long)json_integer_value(micro_batch));
    else
        ht_table_cell(t, "%s", json_is_null(micro_batch) ? "plan" : "-");
    ht_table_cell(t, "%s", ht_row_text(row, "status"));
    if (json_object_get(row, "iteration_time_s")) {
        ht_table_cell(t, "%.4g", ht_row_number(row, "samples_per_s"));
        ht_table_cell(t, "%s", ht_format_quantity(HT_TIME, 1e9 * ht_row_number(row, "iteration_time_s"), text));
        ht_table_cell(t, "%.4g", ht_row_number(row, "tflops_per_gpu"));
        ht_table_cell(t, "%.3g%%", 100 * ht_row_number(row, "mfu"));
        if (priced) ht_table_cell(t, "%.4g", ht_row_number(row, "tokens_per_s_per_1000_usd"));
    } else {
        for (int i = 0; i < 4 + priced; i++) ht_table_cell(t, "-");
    }
    ht_row_bytes(row, "device_peak_bytes", t);
    ht_row_bytes(row, "host_peak_bytes", t);
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
    struct ht_row_set set;
    struct ht_model_list models;
    json_t **rows;
    json_t *fastest; /* [models] of fastest_under, where the rate through host memory is assumed; else NULL. Borrowed */
};

static enum ht_status run_row(void *ctx, size_t i, struct ht_error *err)
{
    const struct comparison *c = ctx;
    const char *system = c->set.systems.list[i % c->set.systems.n];
    const struct ht_listed_model *m = &c->models.list[i / c->set.systems.n];
    struct ht_evaluation e;
    enum ht_status status = ht_evaluate(c->set.options, system, m->name, err, &e);
    if (status == HT_BAD_INPUT) {
        c->rows[i] = ht_refused_row(c->set.options, system, m->name, &m->model, c->set.from, err);
        return HT_OK;
    }
    if (status != HT_OK) return status;
    c->rows[i] = ht_evaluation_row(&e, c->set.from);
    ht_evaluation_free(&e);
    return HT_OK;
}

/* Makes all rows, and moves them to root's "rows". */
static enum ht_status make_rows(struct comparison *c, const char *noun, json_t *root, struct ht_error *err)
{
    size_t n = c->models.n * c->set.systems.n;
    double *bytes = HT_NEW_ARRAY(double, n); /* that a row takes while it runs */
    for (size_t i = 0; i < n; i++)
        bytes[i] = ht_evaluation_bytes(c->set.options, ht_model_units(&c->models.list[i / c->set.systems.n].model));
    struct ht_tasks tasks = {.name = "compare", .noun = noun, .n = n, .bytes = bytes, .ctx = c, .run = run_row};
    c->rows = HT_NEW_ARRAY(json_t *, n);
    enum ht_status status = ht_row_set_make(&tasks, c->rows, NULL, root, err);
    free(c->rows);
    free(bytes);
    return status;
}

/* ---- what an assumed rate decides ------------------------------------------------------------------------------- */

/* Returns the system with the highest throughput among the rows of model m; null where none runs. */
static json_t *fastest_of(const struct comparison *c, const json_t *rows, size_t m)
{
    const json_t *best = NULL;
    for (size_t i = 0; i < c->set.systems.n; i++) {
        const json_t *row = json_array_get(rows, m * c->set.systems.n + i);
        if (ht_row_number(row, "samples_per_s") > (best ? ht_row_number(best, "samples_per_s") : 0)) best = row;
    }
    return best ? json_string(ht_row_text(best, "system")) : json_null();
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
    struct ht_options scaled = *c->set.options;
    struct comparison x = *c;
    json_t *root = json_object();
    char noun[48];
    snprintf(noun, sizeof(noun), "rows at %s the assumed rate", key);
    scaled.request.through_host_scale = factor;
    x.set.options = &scaled;
    enum ht_status status = make_rows(&x, noun, root, err);
    for (size_t m = 0; m < c->models.n && status == HT_OK; m++)
        json_object_set_new(json_array_get(out, m), key, fastest_of(c, json_object_get(root, "rows"), m));
    json_decref(root);
    return status;
}

/* Sets root's "assumed_rate": the fastest system of each model at half, once and double the assumed rate through host
   memory. Rows with the assumed rate itself are root's. */
static enum ht_status vary_assumed_rate(struct comparison *c, json_t *root, struct ht_error *err)
{
    const json_t *rows = json_object_get(root, "rows");
    if (c->set.systems.n < 2 || !assumes_rate(rows)) return HT_OK;
    json_t *fastest = json_array();
    for (size_t m = 0; m < c->models.n; m++)
        json_array_append_new(fastest,
                              json_pack("{s:s,s:o}", "model", c->models.list[m].name, "once", fastest_of(c, rows, m)));
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
    printf("%zu system%s on %zu model%s (simulated)\n", c->set.systems.n, c->set.systems.n == 1 ? "" : "s", c->models.n,
           c->models.n == 1 ? "" : "s");
    ht_rows_print_scenario(rows, NULL, stdout);
    puts("TFLOP/s and MFU: 3 x forward matrix products, against the dense peak of all devices. Memory: the largest "
         "peak of any\ndevice and host; of oom rows the need. Bottleneck: what sets the lower bound of the "
         "iteration time.\n");
    ht_table_print(table, "", stdout);
    ht_notes_print(&notes, stdout);
    if (c->fastest) print_fastest(c);
    ht_notes_free(&notes);
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct comparison c = {0};
    struct ht_row_set_output output = {"compare", &c.set, &c, print_rows, write_csv};
    enum ht_status status = ht_row_set_read(options, options->compare.systems, err, &c.set);
    json_t *root = ht_row_set_root(&c.set);
    if (status == HT_OK) status = ht_model_list_create(c.set.models.list, c.set.models.n, err, &c.models);
    if (status == HT_OK) status = make_rows(&c, "rows", root, err);
    if (status == HT_OK) status = vary_assumed_rate(&c, root, err);
    status = ht_row_set_finish(status, &output, root, err);
    ht_row_set_free(&c.set);
    ht_model_list_free(&c.models);
    return status;
}

const struct ht_command ht_cmd_compare = {
    .name = "compare",
    .help = "simulate several systems on several models and compare",
    .groups = HT_OPT_COMPARE | HT_OPT_SCENARIO | HT_OPT_SIM,
    .run = run,
};
