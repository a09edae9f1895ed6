/* hetbench maxsize: the largest model, batch or sequence that fits, of one system or of all. */
#include "harness/cli/commands.h"

#include "common/base/array.h"
#include "common/base/text.h"
#include "common/base/units.h"
#include "common/mem/arena.h"
#include "harness/cli/lists.h"
#include "harness/cli/row_set.h"
#include "harness/result/evaluate.h"
#include "harness/result/heading.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/result/table.h"
#include "harness/run/disks.h"
#include "harness/run/registry.h"
#include "harness/sweep/maxsize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A row for each system; of batch and sequence, for each model and system, models outermost. Rows of one model are ordered
   by size, the largest first. */
struct request {
    struct ht_row_set set;
    enum ht_size_of of;
    struct ht_family *families; /* [n_families] of one model each, unless `of` is the model */
    size_t n_families;
    json_t **rows;
};

/* Returns the family's model of this name; its first one for NULL, where the search never came to a size. */
static const struct ht_family_model *find_model(const struct ht_family *family, const char *name)
{
    size_t i = family->n - 1;
    while (name && i > 0 && strcmp(family->models[i].name, name) != 0) i--;
    return &family->models[name ? i : 0];
}

/* Returns the number that a size stands for: parameters, sequences or tokens. */
static double amount_of(const struct ht_size *size, const struct ht_family *family)
{
    if (size->batch || size->seq) return (double)(size->batch + size->seq);
    struct ht_model m = find_model(family, size->model)->model;
    m.layers = size->blocks;
    return (double)ht_model_params(&m);
}

static json_t *size_json(const struct ht_size *size, const struct ht_family *family)
{
    json_t *root = json_pack("{s:s}", "model", size->model);
    if (size->blocks) json_object_set_new(root, "blocks", json_integer(size->blocks));
    if (size->batch) json_object_set_new(root, "batch", json_integer(size->batch));
    if (size->seq) json_object_set_new(root, "seq", json_integer(size->seq));
    json_object_set_new(root, "amount", json_real(amount_of(size, family)));
    return root;
}

/* Returns the row of a size that fits, simulated, or of the smallest one, which does not. A size that fits may still
   have costs that cannot be simulated: its row is then refused, and has no rates. */
static enum ht_status row_of(const struct request *r, const char *system, const struct ht_family *family,
                             const struct ht_maxsize *found, struct ht_error *err, json_t **row)
{
    struct ht_options options = *r->set.options;
    struct ht_evaluation e;
    const struct ht_size *size = found->found ? &found->size : &found->next;
    const struct ht_family_model *m = find_model(family, size->model);
    ht_size_apply(size, &options.request);
    enum ht_status status = ht_evaluate(&options, system, m->name, err, &e);
    if (status == HT_OK) {
        *row = ht_evaluation_row(&e, r->set.from);
        ht_evaluation_free(&e);
    } else if (status == HT_BAD_INPUT) {
        *row = ht_refused_row(&options, system, m->name, &m->model, r->set.from, err);
    } else {
        return status;
    }
    json_object_set_new(*row, "of", json_string(ht_size_names[r->of]));
    json_object_set_new(*row, "largest", found->found ? size_json(&found->size, family) : json_null());
    json_object_set_new(*row, "amount", found->found ? json_real(amount_of(size, family)) : json_integer(0));
    if (found->found && size->blocks) json_object_set_new(*row, "blocks", json_integer(size->blocks));
    json_object_set_new(*row, "probes", json_integer(found->n_probes));
    if (!found->limited) return HT_OK;
    json_object_set_new(*row, "next", size_json(&found->next, family));
    json_object_set_new(*row, "next_amount", json_real(amount_of(&found->next, family)));
    json_object_set_new(*row, "next_status", json_string(found->status));
    json_object_set_new(*row, "next_reason", ht_json_text(found->reason));
    if (found->short_of[0]) {
        json_object_set_new(*row, "next_short_of", json_string(found->short_of));
        json_object_set_new(*row, "next_short_bytes", json_integer(found->short_bytes));
    }
    return HT_OK;
}

static enum ht_status run_row(void *ctx, size_t i, struct ht_error *err)
{
    const struct request *r = ctx;
    const char *system = r->set.systems.list[i % r->set.systems.n];
    const struct ht_family *family = &r->families[i / r->set.systems.n];
    struct ht_maxsize found;
    enum ht_status status = ht_maxsize_find(r->set.options, system, r->of, family, err, &found);
    return status == HT_OK || status == HT_BAD_INPUT ? row_of(r, system, family, &found, err, &r->rows[i]) : status;
}

/* ---- output ---------------------------------------------------------------------------------------------------- */

static void add_amount(double amount, enum ht_size_of of, struct ht_table *t)
{
    ht_table_cell(t, of == HT_SIZE_MODEL ? "%.3g" : "%.0f", amount);
}

/* Writes " [1]", the number of a reason; "" without notes. */
static const char *note_text(struct ht_notes *notes, const char *reason, char buf[24])
{
    buf[0] = '\0';
    if (notes) snprintf(buf, 24, " [%zu]", ht_note_of(notes, reason));
    return buf;
}

/* Adds the next size and what it lacks: "13.2e9", "host of node 0 short by 3.1 GB [1]". notes: NULL for none. */
static void add_limit(const json_t *row, enum ht_size_of of, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT], note[24];
    const json_t *next = json_object_get(row, "next");
    const char *space = ht_row_text(row, "next_short_of");
    if (!next) {
        bool asked = json_is_object(json_object_get(row, "largest"));
        ht_table_cell(t, "-");
        if (asked)
            ht_table_cell(t, "nothing up to the largest size tried");
        else
            ht_table_cell(t, "refused%s", note_text(notes, ht_row_text(row, "reason"), note));
        return;
    }
    add_amount(json_number_value(json_object_get(next, "amount")), of, t);
    note_text(notes, ht_row_text(row, "next_reason"), note);
    if (space)
        ht_table_cell(t, "%s short by %s%s", space,
                      ht_format_quantity(HT_BYTES, ht_row_number(row, "next_short_bytes"), text), note);
    else
        ht_table_cell(t, "%s%s", ht_row_text(row, "next_status"), note);
}

static void add_row(const json_t *row, enum ht_size_of of, struct ht_table *t, struct ht_notes *notes)
{
    char text[HT_QUANTITY_TEXT], note[24];
    const json_t *largest = json_object_get(row, "largest");
    bool found = json_is_object(largest);
    ht_table_cell(t, "%s", ht_row_text(row, "system"));
    ht_table_cell(t, "%s", ht_row_text(row, "model"));
    if (found)
        add_amount(ht_row_number(row, "amount"), of, t);
    else
        ht_table_cell(t, "none");
    add_limit(row, of, t, notes);
    if (json_object_get(row, "iteration_time_s") && found) {
        ht_table_cell(t, "%.3g", ht_row_number(row, "tflops_per_gpu"));
        ht_table_cell(t, "%s", ht_format_rounded(HT_TIME, 1e9 * ht_row_number(row, "iteration_time_s"), text));
    } else if (found) { /* it fits, but is refused as a simulation */
        ht_table_cell(t, "refused%s", note_text(notes, ht_row_text(row, "reason"), note));
        ht_table_cell(t, "-");
    } else {
        for (int i = 0; i < 2; i++) ht_table_cell(t, "-");
    }
    if (of == HT_SIZE_MODEL && found)
        ht_table_cell(t, "%lld", (long long)json_integer_value(json_object_get(largest, "blocks")));
    else if (of == HT_SIZE_MODEL)
        ht_table_cell(t, "-");
    for (int i = 0; i < 2; i++) {
        if (found)
            ht_row_bytes(row, i ? "host_peak_bytes" : "device_peak_bytes", t);
        else
            ht_table_cell(t, "-");
    }
    if (!found) ht_table_mark(t, HT_MARK_FAULT);
}

/* Names the systems of which nothing fits, in a line for each model. */
static void print_none(const json_t *rows, bool several_models)
{
    size_t i, n = 0;
    const json_t *row, *before = NULL;
    json_array_foreach(rows, i, row)
    {
        if (json_is_object(json_object_get(row, "largest"))) continue;
        bool same = before && !strcmp(ht_row_text(before, "model"), ht_row_text(row, "model"));
        if (n++ && (same || !several_models))
            printf(", %s", ht_row_text(row, "system"));
        else if (several_models)
            printf("%snothing fits of %s: %s", n > 1 ? "\n" : "", ht_row_text(row, "model"),
                   ht_row_text(row, "system"));
        else
            printf("nothing fits: %s", ht_row_text(row, "system"));
        before = row;
    }
    if (n) putchar('\n');
}

static void print_rows(const void *ctx, const json_t *rows)
{
    const struct request *r = ctx;
    static const char *const headers[HT_N_SIZES] = {
        "<system|<?model|>parameters|>next|<which lacks|>TFLOP/s per GPU|>?iteration|>?blocks|>?device memory|>?host "
        "memory",
        "<system|<model|>sequences|>next|<which lacks|>TFLOP/s per GPU|>?iteration|>?device memory|>?host memory",
        "<system|<model|>tokens|>next|<which lacks|>TFLOP/s per GPU|>?iteration|>?device memory|>?host memory",
    };
    static const char *const nouns[HT_N_SIZES] = {"model of the family", "batch", "sequence"};
    struct ht_table *table = ht_table_create(headers[r->of]);
    struct ht_notes notes = {0};
    size_t i;
    const json_t *row;
    const struct ht_options *o = r->set.options;
    json_array_foreach(rows, i, row) if (o->all || json_is_object(json_object_get(row, "largest")))
        add_row(row, r->of, table, o->why ? &notes : NULL);
    printf("largest %s that fits, of %zu system%s (proved; rates simulated)\n", nouns[r->of], r->set.systems.n,
           r->set.systems.n == 1 ? "" : "s");
    ht_rows_print_scenario(rows, ht_size_names[r->of], stdout);
    puts("Next: the next larger size, and the memory that its schedule lacks.\n");
    ht_table_print(table, "", stdout);
    if (!o->all) print_none(rows, r->n_families > 1);
    if (!o->why) puts("\n--why says why, --all shows all rows");
    ht_notes_print(&notes, stdout);
    ht_notes_free(&notes);
}

static void write_csv(const json_t *rows, FILE *out)
{
    /* clang-format off */
    static const char *const columns[] = {
        "of", "system", "model", "params", "blocks", "amount", "status", "iteration_time_s", "samples_per_s", "tflops_per_gpu",
        "device_peak_bytes", "host_peak_bytes", "next_amount", "next_status", "next_short_of", "next_short_bytes", "next_reason",
        "cluster", "gpus_text", "batch", "micro_batch", "seq", "numerics_text", "probes",
    };
    /* clang-format on */
    ht_rows_csv(rows, columns, HT_COUNT(columns), ht_row_value, out);
}

/* ---- the command ----------------------------------------------------------------------------------------------- */

static enum ht_status read_request(const struct ht_options *o, struct ht_error *err, struct request *r)
{
    const char *of = o->compare.of ? o->compare.of : "model";
    r->of = (enum ht_size_of)ht_index_of(of, ht_size_names, HT_N_SIZES);
    if (r->of == HT_N_SIZES)
        return ht_fail(err, HT_BAD_INPUT, "--of: unknown size '%s'; expected model, batch or seq", of);
    if ((r->of == HT_SIZE_BATCH && o->request.batch) || (r->of == HT_SIZE_SEQ && o->request.seq))
        return ht_fail(err, HT_BAD_INPUT, "--%s is given, and --of %s looks for it: expected one of the two", of, of);
    struct ht_disks disks;
    enum ht_status status = ht_disks_read(&o->platform, err, &disks); /* are the directories there? */
    if (status == HT_OK) ht_disks_free(&disks);
    if (status != HT_OK) return status;
    struct ht_family all;
    status = ht_family_create(r->set.models.list, r->set.models.n, err, &all);
    if (status != HT_OK) return status;
    r->n_families = r->of == HT_SIZE_MODEL ? 1 : all.n;
    r->families = HT_NEW_ARRAY(struct ht_family, r->n_families);
    if (r->of == HT_SIZE_MODEL) {
        r->families[0] = all;
        return HT_OK;
    }
    for (size_t i = 0; i < all.n && status == HT_OK; i++)
        status = ht_family_create(&all.models[i].name, 1, err, &r->families[i]);
    ht_family_free(&all);
    return status;
}

/* Cluster local, unless --host-memory says otherwise: the host's main memory is what training may take of this machine's,
   without the emulated devices'. */
static enum ht_status budget_here(struct ht_options *o, const char *model, struct ht_error *err)
{
    struct ht_scenario_request request = o->request;
    struct ht_scenario scenario;
    if (strcmp(request.cluster, "local") != 0 || request.host_memory_bytes) return HT_OK;
    request.model = model;
    request.batch = request.micro_batch = 0;
    enum ht_status status = ht_scenario_create(&request, err, &scenario);
    if (status != HT_OK) return status;
    double devices = (double)(ht_scenario_device_bytes(&scenario) * ht_scenario_ranks(&scenario));
    o->request.host_memory_bytes = (int64_t)fmax(1, ht_arena_machine_bytes() - devices);
    ht_scenario_free(&scenario);
    return HT_OK;
}

/* Orders rows by falling size; what fits nothing comes last, and rows that were not finished behind it. */
static int by_size(const void *a, const void *b)
{
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    double p = x ? ht_row_number(x, "amount") : -1, q = y ? ht_row_number(y, "amount") : -1;
    if (p != q) return p < q ? 1 : -1;
    return x && y ? strcmp(ht_row_text(x, "system"), ht_row_text(y, "system")) : 0;
}

static void arrange(void *ctx, json_t **rows)
{
    const struct request *r = ctx;
    for (size_t i = 0; i < r->n_families; i++)
        qsort(rows + i * r->set.systems.n, r->set.systems.n, sizeof(*rows), by_size);
}

static enum ht_status run_rows(struct request *r, json_t *root, struct ht_error *err)
{
    size_t n = r->n_families * r->set.systems.n;
    struct ht_tasks tasks = {.name = "maxsize", .noun = "rows", .n = n, .ctx = r, .run = run_row};
    r->rows = HT_NEW_ARRAY(json_t *, n);
    enum ht_status status = ht_row_set_make(&tasks, r->rows, arrange, root, err);
    free(r->rows);
    return status;
}

static enum ht_status run(const struct ht_options *options, struct ht_error *err)
{
    struct ht_options own = *options;
    struct request r = {0};
    struct ht_row_set_output output = {"maxsize", &r.set, &r, print_rows, write_csv};
    enum ht_status status = ht_row_set_read(&own, options->n_words ? options->words[0] : NULL, err, &r.set);
    json_t *root = ht_row_set_root(&r.set);
    if (status == HT_OK) status = read_request(options, err, &r);
    if (status == HT_OK) status = budget_here(&own, r.families[0].models[0].name, err);
    if (status == HT_OK) status = run_rows(&r, root, err);
    status = ht_row_set_finish(status, &output, root, err);
    for (size_t i = 0; i < r.n_families; i++) ht_family_free(&r.families[i]);
    free(r.families);
    ht_row_set_free(&r.set);
    return status;
}

const struct ht_command ht_cmd_maxsize = {
    .name = "maxsize",
    .args = "[SYSTEM,..]",
    .help =
        "find the largest model, batch or sequence that fits, and what the next one lacks"
        "\vA size fits when the system has a plan for it and the verifier proves the plan's memory. Without SYSTEM all "
        "but ablations are asked. Of a model: --models lists a family, and between two of its models lie those of the "
        "smaller one's "
        "width with more blocks. Of a batch: in steps of the devices. Of a sequence: in steps of 64 tokens; the "
        "model's positions grow along.",
    .example =
        "hetbench maxsize zero_offload,lohan --models 'lohan-*' --gpus rtx4090:1 --ram 256GB --ssd 990-pro-2tb:4",
    .groups = HT_OPT_MAXSIZE | HT_OPT_SCENARIO | HT_OPT_WHY | HT_OPT_ALL,
    .max_words = 1,
    .run = run,
};
