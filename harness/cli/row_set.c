#include "harness/cli/row_set.h"

#include "harness/cli/drawing.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "harness/result/provenance.h"
#include "harness/result/result.h"
#include "harness/result/rows.h"

#include <string.h>

enum ht_status ht_row_set_read(const struct ht_options *options, const char *systems, struct ht_error *err,
                               struct ht_row_set *out)
{
    const char *models = options->compare.models;
    *out = (struct ht_row_set){.options = options, .from = ht_provenance_json()};
    ht_words_split(models ? models : "", &out->models);
    enum ht_status status = ht_words_of_systems(systems, options->all, err, &out->systems);
    if (!out->models.n)
        return ht_fail(err, HT_BAD_INPUT, "--models is missing; expected a list such as A,B or 'autohete-*'");
    if (options->request.cluster && options->compare.clusters)
        return ht_fail(err, HT_BAD_INPUT, "expected --cluster, --gpus or --clusters, not two of them");
    if (!options->request.cluster && !options->compare.clusters) return ht_fail(err, HT_BAD_INPUT, HT_NO_CLUSTER);
    return status;
}

void ht_row_set_free(struct ht_row_set *set)
{
    ht_words_free(&set->systems);
    ht_words_free(&set->models);
    json_decref(set->from);
}

const char *ht_row_text(const json_t *row, const char *key)
{
    return json_string_value(ht_row_value(row, key));
}

double ht_row_number(const json_t *row, const char *key)
{
    return json_number_value(ht_row_value(row, key));
}

void ht_row_bytes(const json_t *row, const char *key, struct ht_table *t)
{
    const json_t *bytes = ht_row_value(row, key);
    char text[HT_QUANTITY_TEXT];
    bool known = json_is_integer(bytes) && json_integer_value(bytes) >= 0;
    ht_table_cell(t, "%s", known ? ht_format_rounded(HT_BYTES, json_number_value(bytes), text) : "-");
}

/* Returns HT_BAD_INPUT, with the first row's reason, when all are refused. Names its system and model if others have
   another reason. */
static enum ht_status check_refused(const json_t *rows, struct ht_error *err)
{
    size_t i;
    const json_t *row, *first = json_array_get(rows, 0), *reason = json_object_get(first, "reason");
    bool same = true;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(ht_row_text(row, "status"), "refused") != 0) return HT_OK;
        same &= json_equal(json_object_get(row, "reason"), reason);
    }
    if (!first) return HT_OK;
    if (same) return ht_fail(err, HT_BAD_INPUT, "%.1000s", json_string_value(reason));
    return ht_fail(err, HT_BAD_INPUT, "%s on %s: %.900s", ht_row_text(first, "system"), ht_row_text(first, "model"),
                   json_string_value(reason));
}

enum ht_status ht_row_set_make(const struct ht_tasks *tasks, json_t **rows, void (*arrange)(void *ctx, json_t **rows),
                               json_t *root, struct ht_error *err)
{
    json_t *list = json_array();
    enum ht_status status = ht_tasks_run(tasks, err);
    if (arrange) arrange(tasks->ctx, rows);
    for (size_t i = 0; i < tasks->n; i++)
        if (rows[i]) json_array_append_new(list, rows[i]), rows[i] = NULL;
    json_object_set_new(root, "complete", json_boolean(status == HT_OK));
    json_object_set_new(root, "rows", list);
    return status == HT_OK ? check_refused(list, err) : status;
}

json_t *ht_row_set_root(const struct ht_row_set *set)
{
    json_t *root = json_pack("{s:s}", "obtained", "simulated");
    json_object_update(root, set->from);
    return root;
}

enum ht_status ht_row_set_finish(enum ht_status made, const struct ht_row_set_output *output, json_t *root,
                                 struct ht_error *err)
{
    const struct ht_options *o = output->set->options;
    const json_t *rows = json_object_get(root, "rows");
    size_t n = json_array_size(rows);
    bool partial = made == HT_INTERRUPTED;
    struct ht_error why = partial ? *err : (struct ht_error){0};
    enum ht_status written = HT_OK, shown = HT_OK;
    if (made != HT_OK && !(partial && n)) {
        if (partial) ht_fail(err, HT_INTERRUPTED, "%.900s; nothing was written", why.text);
        json_decref(root);
        return made;
    }
    if (!o->json) {
        output->print(output->ctx, rows);
        if (partial) printf("\npartial: %s; the rows above are finished\n", why.text);
    }
    if (o->out) written = ht_rows_write(root, output->name, o->out, output->name, output->write_csv, err);
    if (written == HT_OK && !partial) written = ht_plot(root, NULL, o->plot, err);
    if (o->json)
        shown = ht_json_print(root, output->name, written == HT_OK ? err : NULL);
    else
        json_decref(root);
    if (written != HT_OK || shown != HT_OK) return written != HT_OK ? written : shown;
    if (partial && o->out)
        ht_fail(err, HT_INTERRUPTED, "%.500s; %.400s has the finished rows", why.text, o->out);
    else if (partial)
        ht_fail(err, HT_INTERRUPTED, "%.900s; the finished rows are shown", why.text);
    return made;
}
