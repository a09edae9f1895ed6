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
#include "harness/sweep/micro_batch.h"

#include <stdlib.h>
#include <string.h>

static bool is_ok(const json_t *row)
{
    return json_object_get(row, "iteration_time_s") != NULL;
}

/* Adds the cell "lane cpu of rank 0", or of a row that does not run "device 0 short by 717 MB". notes: NULL, or the
   reason's number follows. */
static void add_bottleneck(const json_t *row, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT], note[24] = "";
    const char *lane = ht_row_text(row, "lower_bound_of"), *space = ht_row_text(row, "short_of");
    if (lane) {
        ht_table_cell(t, "%s", lane);
        return;
    }
    if (notes) snprintf(note, sizeof(note), " [%zu]", ht_note_of(notes, ht_row_text(row, "reason")));
    if (space)
        ht_table_cell(t, "%s short by %s%s", space,
                      ht_format_quantity(HT_BYTES, ht_row_number(row, "short_bytes"), text), note);
    else
        ht_table_cell(t, "%s%s", strcmp(ht_row_text(row, "status"), "refused") ? "no plan" : "refused", note);
}

/* Adds the cell "8", or "1 to 4" of a system that plans each rank's: its plan has them as m. */
static void add_micro_batch(const json_t *row, struct ht_table *t)
{
    const json_t *one = ht_row_value(row, "micro_batch");
    const json_t *all = json_object_get(json_object_get(json_object_get(row, "plan"), "variables"), "m"), *rank;
    size_t i;
    json_int_t least = 0, most = 0;
    if (json_is_null(one) && json_is_array(all)) json_array_foreach(all, i, rank)
        {
            json_int_t m = json_integer_value(rank);
            least = !i || m < least ? m : least;
            most = m > most ? m : most;
        }
    if (json_is_integer(one)) least = most = json_integer_value(one);
    if (!most)
        ht_table_cell(t, "-");
    else if (least == most)
        ht_table_cell(t, "%lld", (long long)most);
    else
        ht_table_cell(t, "%lld to %lld", (long long)least, (long long)most);
}

static void add_row(const json_t *row, bool priced, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT];
    double per_price = ht_row_number(row, "tokens_per_s_per_1000_usd");
    ht_table_cell(t, "%s", ht_row_text(row, "system"));
    add_micro_batch(row, t);
    if (is_ok(row)) {
        ht_table_cell(t, "%.3g", ht_row_number(row, "samples_per_s"));
        ht_table_cell(t, "%s", ht_format_rounded(HT_TIME, 1e9 * ht_row_number(row, "iteration_time_s"), text));
        ht_table_cell(t, "%.3g", ht_row_number(row, "tflops_per_gpu"));
        if (priced) ht_table_cell(t, per_price > 0 ? "%.3g" : "-", per_price);
        ht_table_cell(t, "%.3g%%", 100 * ht_row_number(row, "mfu"));
    } else {
        ht_table_cell(t, "%s", ht_row_text(row, "status"));
        for (int i = 0; i < 3 + priced; i++) ht_table_cell(t, "-");
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

/* Systems by models by clusters; clusters outermost. */
struct comparison {
    struct ht_row_set set;
    struct ht_model_list models;
    struct ht_words clusters; /* empty: the options' one */
    json_t **rows;
    json_t *fastest; /* [models] of fastest_under, where the rate through host memory is assumed; else NULL. Borrowed */
};

static size_t n_rows(const struct comparison *c)
{
    return c->set.systems.n * c->models.n * (c->clusters.n ? c->clusters.n : 1);
}

static enum ht_status run_row(void *ctx, size_t i, struct ht_error *err)
{
    const struct comparison *c = ctx;
    const char *system = c->set.systems.list[i % c->set.systems.n];
    const struct ht_listed_model *m = &c->models.list[i / c->set.systems.n % c->models.n];
    struct ht_options options = *c->set.options;
    struct ht_evaluation e;
    if (c->clusters.n) options.request.cluster = c->clusters.list[i / c->set.systems.n / c->models.n];
    options.plan.folds = true; /* nothing writes out a graph */
    enum ht_status status = ht_evaluate_best(&options, system, m->name, err, &e);
    if (status == HT_BAD_INPUT) {
        c->rows[i] = ht_refused_row(&options, system, m->name, &m->model, c->set.from, err);
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
    size_t n = n_rows(c);
    double *bytes = HT_NEW_ARRAY(double, n); /* that a row takes while it runs */
    for (size_t i = 0; i < n; i++)
        bytes[i] = ht_evaluation_bytes(c->set.options,
                                       ht_model_units(&c->models.list[i / c->set.systems.n % c->models.n].model));
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
    if (c->set.systems.n < 2 || c->clusters.n > 1 || !assumes_rate(rows)) return HT_OK;
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

/* ---- the tables: one for each model, the fastest system first --------------------------------------------------- */

/* Rows at less than this share of the best rate are named below the table. */
static const double folded_below = 0.5;

static int by_rate(const void *a, const void *b)
{
    double x = ht_row_number(*(json_t *const *)a, "samples_per_s"),
           y = ht_row_number(*(json_t *const *)b, "samples_per_s");
    if (x != y) return x < y ? 1 : -1;
    return strcmp(ht_row_text(*(json_t *const *)a, "system"), ht_row_text(*(json_t *const *)b, "system"));
}

/* Names in one line the rows [begin, end) that `is` picks: "out of memory: ddp [1], whale [1]". */
static void print_folded(json_t *const *rows, size_t n, const char *what, bool (*is)(const json_t *row, double least),
                         double least, struct ht_notes *notes)
{
    const char *between = what;
    for (size_t i = 0; i < n; i++) {
        if (!is(rows[i], least)) continue;
        printf("%s%s", between, ht_row_text(rows[i], "system"));
        if (is_ok(rows[i]))
            printf(" %.3g", ht_row_number(rows[i], "samples_per_s"));
        else if (notes)
            printf(" [%zu]", ht_note_of(notes, ht_row_text(rows[i], "reason")));
        between = ", ";
    }
    if (between != what) putchar('\n');
}

static bool is_slow(const json_t *row, double least)
{
    return is_ok(row) && ht_row_number(row, "samples_per_s") < least;
}

static bool has_no_memory(const json_t *row, double least)
{
    (void)least;
    return !strcmp(ht_row_text(row, "status"), "oom");
}

static bool has_no_plan(const json_t *row, double least)
{
    (void)least;
    return !strcmp(ht_row_text(row, "status"), "infeasible");
}

static bool is_refused(const json_t *row, double least)
{
    (void)least;
    return !strcmp(ht_row_text(row, "status"), "refused");
}

/* Prints the rows of one model, sorted. */
static void print_model(const struct comparison *c, json_t **rows, size_t n, bool priced, struct ht_notes *notes)
{
    double best, least;
    bool all = c->set.options->all;
    qsort(rows, n, sizeof(json_t *), by_rate);
    best = ht_row_number(rows[0], "samples_per_s");
    least = all ? 0 : folded_below * best;
    struct ht_table *table = ht_table_create(
        priced ? "<system|>micro-batch|>samples/s|>iteration|>TFLOP/s per GPU|>tokens/s per $1000|>?MFU|"
                 ">?device memory|>?host memory|<?bottleneck"
               : "<system|>micro-batch|>samples/s|>iteration|>TFLOP/s per GPU|>?MFU|>?device memory|"
                 ">?host memory|<?bottleneck");
    printf("\n%s", ht_row_text(rows[0], "model"));
    if (c->clusters.n > 1 && ht_row_text(rows[0], "cluster")) printf(" on %s", ht_row_text(rows[0], "cluster"));
    printf(": %.3g parameters", ht_row_number(rows[0], "params"));
    if (ht_row_number(rows[0], "seq") > 0) printf(", %.0f tokens a sequence", ht_row_number(rows[0], "seq"));
    putchar('\n');
    for (size_t i = 0; i < n; i++) {
        if (!all && (!is_ok(rows[i]) || is_slow(rows[i], least))) continue;
        add_row(rows[i], priced, table, notes);
        ht_table_mark(table, !is_ok(rows[i])                                   ? HT_MARK_FAULT
                             : ht_row_number(rows[i], "samples_per_s") == best ? HT_MARK_BEST
                                                                               : HT_MARK_NONE);
    }
    if (all || best > 0)
        ht_table_print(table, "  ", stdout);
    else
        ht_table_destroy(table);
    if (all) return;
    print_folded(rows, n, "  below half of the best, in samples/s: ", is_slow, least, notes);
    print_folded(rows, n, "  out of memory: ", has_no_memory, 0, notes);
    print_folded(rows, n, "  no plan that fits: ", has_no_plan, 0, notes);
    print_folded(rows, n, "  refused: ", is_refused, 0, notes);
}

static bool same_table(const json_t *a, const json_t *b)
{
    const char *x = ht_row_text(a, "cluster"), *y = ht_row_text(b, "cluster");
    return !strcmp(ht_row_text(a, "model"), ht_row_text(b, "model")) && (!x || !y || !strcmp(x, y));
}

static void print_rows(const void *ctx, const json_t *rows)
{
    const struct comparison *c = ctx;
    struct ht_notes notes = {0};
    size_t i, n = 0, of_all = json_array_size(rows);
    const json_t *row;
    json_t **list = HT_NEW_ARRAY(json_t *, of_all);
    bool priced = false, why = c->set.options->why;
    json_array_foreach(rows, i, row) priced |= json_object_get(row, "price_usd") != NULL;
    printf("%zu system%s on %zu model%s (simulated)\n", c->set.systems.n, c->set.systems.n == 1 ? "" : "s", c->models.n,
           c->models.n == 1 ? "" : "s");
    ht_rows_print_scenario(rows, c->set.options->request.micro_batch ? NULL : "micro_batch", stdout);
    for (i = 0; i < of_all; i++) {
        list[n++] = json_array_get(rows, i);
        if (i + 1 < of_all && same_table(list[0], json_array_get(rows, i + 1))) continue;
        print_model(c, list, n, priced, why ? &notes : NULL);
        n = 0;
    }
    if (why)
        puts("\nTFLOP/s and MFU: 3 x forward matrix products, against the dense peak of all devices. Memory: the "
             "largest peak of "
             "any device and host; of oom rows the need. Bottleneck: what sets the lower bound of the iteration time.");
    else
        puts("\n--why says why and what the columns are, --all shows all rows");
    ht_notes_print(&notes, stdout);
    if (c->fastest) print_fastest(c);
    ht_notes_free(&notes);
    free(list);
}

/* Checks that all of --clusters are there, before anything is simulated. */
static enum ht_status check_clusters(const struct ht_words *names, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (size_t i = 0; i < names->n && status == HT_OK; i++) {
        struct ht_cluster *cluster = NULL;
        status = ht_cluster_load(names->list[i], err, &cluster);
        ht_cluster_destroy(cluster);
    }
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct comparison c = {0};
    struct ht_row_set_output output = {"compare", &c.set, &c, print_rows, write_csv};
    enum ht_status status = ht_row_set_read(options, options->compare.systems, err, &c.set);
    json_t *root = ht_row_set_root(&c.set);
    ht_words_split(options->compare.clusters ? options->compare.clusters : "", &c.clusters);
    if (status == HT_OK) status = check_clusters(&c.clusters, err);
    if (status == HT_OK) status = ht_model_list_create(c.set.models.list, c.set.models.n, err, &c.models);
    if (status == HT_OK) status = make_rows(&c, "rows", root, err);
    if (status == HT_OK) status = vary_assumed_rate(&c, root, err);
    status = ht_row_set_finish(status, &output, root, err);
    ht_row_set_free(&c.set);
    ht_words_free(&c.clusters);
    ht_model_list_free(&c.models);
    return status;
}

const struct ht_command ht_cmd_compare = {
    .name = "compare",
    .help = "simulate several systems on several models and compare"
            "\vEach system has the micro-batch at which it is fastest, unless --micro-batch gives one.",
    .example = "hetbench compare --models autohete-2b,autohete-4b --cluster autohete-1gpu",
    .groups = HT_OPT_COMPARE | HT_OPT_SCENARIO | HT_OPT_SIM | HT_OPT_WHY | HT_OPT_ALL | HT_OPT_PLOT,
    .run = run,
};
