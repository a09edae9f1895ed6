#include "harness/sweep/recoveries.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "common/model/zoo.h"
#include "harness/result/provenance.h"
#include "harness/result/rows.h"
#include "harness/run/output.h"
#include "harness/sweep/builtin.h"
#include "harness/sweep/sweep.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

struct file {
    struct ht_recoveries e;
    const struct ht_node *models, *cases;
    int figure;
};

#define AT(m) HT_FIELD_AT(struct file, m)
static const char *const figure_names[] = {"recovery"};
static const struct ht_field fields[] = {
    {.key = "name", HT_FIELD_TEXT(struct file, e.name)},
    {.key = "title", HT_FIELD_TEXT(struct file, e.title)},
    {.key = "source", HT_FIELD_TEXT(struct file, e.source)},
    {.key = "figure", .type = HT_FIELD_ENUM, AT(figure), .names = figure_names, .n_names = 1, .required = true},
    {.key = "models", .type = HT_FIELD_LIST_NODE, AT(models), .required = true},
    {.key = "recoveries", .type = HT_FIELD_LIST_NODE, AT(cases), .required = true},
    {.key = "whole_files", .type = HT_FIELD_BOOL, AT(e.how.whole_files), .fallback = "false"},
    {.key = "serial", .type = HT_FIELD_BOOL, AT(e.how.serial), .fallback = "false"},
    {.key = "once", .type = HT_FIELD_BOOL, AT(e.once), .fallback = "false"},
    {.key = "param_bytes", .type = HT_FIELD_INT, AT(e.how.param_bytes), .fallback = "6", .min = 1, .max = 64},
    {0},
};
#undef AT

static enum ht_status read_models(const struct ht_node *list, struct ht_error *err, struct ht_recoveries *e)
{
    struct ht_model model;
    struct ht_error why;
    if (list->n_children < 1 || list->n_children > HT_RECOVERY_MODELS_MAX)
        return ht_node_error(list, err, "the list has %u entries; expected 1 to %d", list->n_children,
                             HT_RECOVERY_MODELS_MAX);
    HT_EACH_CHILD(list, node)
    {
        const char **model_name = &e->models[e->n_models++];
        enum ht_status status = ht_node_string(node, err, model_name);
        if (status != HT_OK) return status;
        if (ht_model_load(*model_name, &why, &model) != HT_OK) return ht_node_error(node, err, "%.800s", why.text);
    }
    return HT_OK;
}

static enum ht_status read_case(const struct ht_node *map, struct ht_error *err, struct ht_priced_case *out)
{
    struct entry {
        const struct ht_node *name, *label;
        double paper;
    } entry = {0};
    static const struct ht_field keys[] = {
        {.key = "name", HT_FIELD_NODE(struct entry, name), .required = true},
        {.key = "label", HT_FIELD_NODE(struct entry, label)},
        {.key = "paper", HT_FIELD_REAL(struct entry, paper)},
        {0},
    };
    struct ht_error why;
    enum ht_status status = ht_node_want(map, HT_NODE_MAP, err);
    if (status == HT_OK) status = ht_config_load(map, keys, err, &entry);
    if (status == HT_OK) status = ht_node_string(entry.name, err, &out->name);
    out->label = out->name;
    out->paper = entry.paper;
    if (status == HT_OK && entry.label) status = ht_node_string(entry.label, err, &out->label);
    if (status == HT_OK && ht_recovery_case_load(out->name, &why, &out->c) != HT_OK)
        return ht_node_error(entry.name, err, "%.800s", why.text);
    return status;
}

static enum ht_status read_cases(const struct ht_node *list, struct ht_error *err, struct ht_recoveries *e)
{
    if (list->n_children < 1 || list->n_children > HT_RECOVERIES_MAX)
        return ht_node_error(list, err, "the list has %u entries; expected 1 to %d", list->n_children,
                             HT_RECOVERIES_MAX);
    HT_EACH_CHILD(list, node)
    {
        enum ht_status status = read_case(node, err, &e->cases[e->n_cases++]);
        if (status != HT_OK) return status;
    }
    return HT_OK;
}

static enum ht_status open_map(const char *name_or_path, struct ht_error *err, struct ht_doc **doc,
                               const struct ht_node **map)
{
    *doc = NULL;
    *map = NULL;
    if (!ht_is_path(name_or_path)) return ht_experiment_find(name_or_path, err, doc, map);
    enum ht_status status = ht_doc_open(name_or_path, err, doc);
    if (status == HT_OK) *map = ht_doc_root(*doc);
    return status;
}

bool ht_is_recoveries(const char *name_or_path)
{
    struct ht_error ignored;
    struct ht_doc *doc;
    const struct ht_node *map;
    bool is = open_map(name_or_path, &ignored, &doc, &map) == HT_OK && ht_node_find(map, "recoveries");
    ht_doc_destroy(doc);
    return is;
}

enum ht_status ht_recoveries_load(const char *name_or_path, struct ht_error *err, struct ht_recoveries *out)
{
    struct file *f = HT_NEW(struct file);
    struct ht_doc *doc;
    const struct ht_node *map;
    enum ht_status status = open_map(name_or_path, err, &doc, &map);
    if (status == HT_OK) status = ht_config_load(map, fields, err, f);
    if (status == HT_OK) status = ht_experiment_read_name(map, err, f->e.name, sizeof(f->e.name));
    if (status == HT_OK) status = read_models(f->models, err, &f->e);
    if (status == HT_OK) status = read_cases(f->cases, err, &f->e);
    *out = status == HT_OK ? f->e : (struct ht_recoveries){0};
    if (status == HT_OK)
        out->doc = doc;
    else
        ht_doc_destroy(doc);
    free(f);
    return status;
}

void ht_recoveries_free(struct ht_recoveries *e)
{
    ht_doc_destroy(e->doc);
    e->doc = NULL;
}

/* ---- pricing ---- */

static json_t *row_of(const struct ht_recoveries *e, const struct ht_priced_case *c, const char *model,
                      const struct ht_recovery_outcome *r, bool stores)
{
    const struct ht_store_price *p = stores ? &r->price.stores : &r->price.remote;
    json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:I,s:f,s:f}", "recovery", c->name, "label", c->label, "model", model,
                          "from", stores ? "stores" : "remote", "params", (json_int_t)r->params, "recovery_time_s",
                          (double)p->ns * 1e-9, "speed_up", (double)r->price.remote.ns / (double)p->ns);
    json_object_set_new(o, "paper_speed_up", stores && c->paper > 0 ? json_real(c->paper) : json_null());
    static const char *const keys[HT_N_PATHS] = {"memory_bytes", "disk_bytes", "peer_bytes", "remote_bytes"};
    for (int i = 0; i < HT_N_PATHS; i++) json_object_set_new(o, keys[i], json_integer(p->bytes[i]));
    json_object_set_new(o, "state_bytes", json_integer(r->state_bytes));
    json_object_set_new(o, "whole_files", json_boolean(e->how.whole_files));
    json_object_set_new(o, "param_bytes", json_integer(e->how.param_bytes));
    json_object_set_new(o, "serial", json_boolean(e->how.serial));
    json_object_set_new(o, "once", json_boolean(e->once));
    return o;
}

static enum ht_status add_rows(const struct ht_recoveries *e, const struct ht_priced_case *c, const char *name,
                               struct ht_error *err, json_t *rows)
{
    struct ht_model model;
    struct ht_recovery_outcome r;
    enum ht_status status = ht_model_load(name, err, &model);
    if (status == HT_OK) status = ht_recovery_case_price(&c->c, &model, e->how, e->once, err, &r);
    if (status != HT_OK) return status;
    json_array_append_new(rows, row_of(e, c, name, &r, true));
    json_array_append_new(rows, row_of(e, c, name, &r, false));
    ht_recovery_outcome_free(&r);
    return HT_OK;
}

static const json_t *value_of(const json_t *row, const char *column)
{
    return json_object_get(row, column);
}

static void write_csv(const json_t *rows, FILE *out)
{
    /* clang-format off */
    static const char *const columns[] = {
        "recovery", "label", "model", "from", "params", "recovery_time_s", "speed_up", "paper_speed_up", "disk_bytes", "peer_bytes",
        "remote_bytes", "state_bytes", "whole_files", "param_bytes", "serial", "once", "obtained", "commit",
    };
    /* clang-format on */
    ht_rows_csv(rows, columns, HT_COUNT(columns), value_of, out);
}

enum ht_status ht_recoveries_run(const struct ht_recoveries *e, const char *dir, struct ht_error *err, json_t **out)
{
    json_t *old = NULL, *rows = json_array();
    *out = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b}", "experiment", e->name, "title", e->title[0] ? e->title : e->name,
                     "source", e->source, "obtained", "simulated", "figure", "recovery", "complete", 1);
    ht_provenance_add(*out);
    json_object_set_new(*out, "rows", rows);
    enum ht_status status = ht_directory_check(dir, err);
    if (status == HT_OK) status = ht_sweep_open_results(dir, e->name, err, &old);
    json_decref(old);
    for (int64_t m = 0; m < e->n_models; m++)
        for (int64_t i = 0; i < e->n_cases && status == HT_OK; i++)
            status = add_rows(e, &e->cases[i], e->models[m], err, rows);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        json_object_set(row, "obtained", json_object_get(*out, "obtained"));
        json_object_set(row, "commit", json_object_get(*out, "commit"));
    }
    return status == HT_OK ? ht_rows_write(*out, "recoveries", dir, "results", write_csv, err) : status;
}
