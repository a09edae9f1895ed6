#include "harness/validate/validate.h"

#include "common/base/array.h"
#include "common/base/builtin.h"
#include "harness/validate/csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

HT_EMBED(ht_validate_sets, "harness/validate/sets.yaml");
static const struct ht_builtin builtin = {"builtin:harness/validate/sets.yaml", ht_validate_sets, ht_validate_sets_end};

const char *const ht_residual_part_names[HT_N_PARTS] = {"fitted", "left out"};

/* A set as its file has it. */
struct entry {
    char title[96], source[96], script[64], measured[128], predicted[128], machine[32], on[32];
    bool all_ran;
    const struct ht_node *key, *rename, *where, *compare, *memory, *left_out, *fitted;
};

#define TEXT(field) HT_FIELD_TEXT(struct entry, field)
#define LIST(field) .type = HT_FIELD_LIST_NODE, HT_FIELD_AT(struct entry, field)
#define MAP(field)  .type = HT_FIELD_MAP_NODE, HT_FIELD_AT(struct entry, field)
static const struct ht_field fields[] = {
    {.key = "title", TEXT(title), .required = true},
    {.key = "source", TEXT(source), .required = true},
    {.key = "measured", TEXT(measured), .required = true},
    {.key = "predicted", TEXT(predicted), .required = true},
    {.key = "script", TEXT(script), .required = true},
    {.key = "key", LIST(key), .required = true},
    {.key = "rename", MAP(rename)},
    {.key = "where", LIST(where)},
    {.key = "compare", MAP(compare), .required = true},
    {.key = "memory", MAP(memory)},
    {.key = "left_out", MAP(left_out)},
    {.key = "machine", TEXT(machine)},
    {.key = "on", TEXT(on)},
    {.key = "fitted", LIST(fitted), .required = true},
    {.key = "all_ran", .type = HT_FIELD_BOOL, HT_FIELD_AT(struct entry, all_ran), .fallback = "false"},
    {0},
};

/* What a set is read with. */
struct reader {
    struct ht_validation *out;
    struct entry e;
    struct ht_csv measured, predicted;
    size_t set, status, lanes; /* columns of `predicted`; lanes: n_columns if there is none */
};

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Sets *holds to whether a row meets one of the conditions "column=value", or "*". */
static enum ht_status meets(const struct ht_csv *csv, size_t row, const struct ht_node *conditions,
                            struct ht_error *err, bool *holds)
{
    *holds = false;
    HT_EACH_CHILD(conditions, c)
    {
        const char *text, *eq;
        char name[64];
        size_t column;
        enum ht_status status = ht_node_string(c, err, &text);
        if (status) return status;
        if (!strcmp(text, "*")) {
            *holds = true;
            continue;
        }
        eq = strchr(text, '=');
        if (!eq || (size_t)(eq - text) >= sizeof name)
            return ht_node_error(c, err, "'%s'; expected column=value, or *", text);
        snprintf(name, sizeof name, "%.*s", (int)(eq - text), text);
        status = ht_csv_column(csv, name, err, &column);
        if (status) return status;
        *holds |= !strcmp(ht_csv_cell(csv, row, column), eq + 1);
    }
    return HT_OK;
}

/* Returns the cell, or what a map has in its place. */
static const char *renamed(const struct ht_node *rename, const char *cell)
{
    const struct ht_node *other = rename ? ht_node_find(rename, cell) : NULL;
    return other && other->kind == HT_NODE_SCALAR ? other->text : cell;
}

/* Writes a row's key, "a b c", with the names of the predictions. */
static enum ht_status key_of(const struct ht_csv *csv, size_t row, const struct ht_node *key,
                             const struct ht_node *rename, struct ht_error *err, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = '\0';
    HT_EACH_CHILD(key, c)
    {
        const char *name;
        size_t column;
        enum ht_status status = ht_node_string(c, err, &name);
        if (!status) status = ht_csv_column(csv, name, err, &column);
        if (status) return status;
        if (at < bytes)
            at += (size_t)snprintf(buf + at, bytes - at, "%s%s", at ? " " : "",
                                   renamed(rename, ht_csv_cell(csv, row, column)));
    }
    return at < bytes
               ? HT_OK
               : ht_fail(err, HT_BAD_INPUT, "%s:%zu: a key longer than %zu characters", csv->path, row + 2, bytes - 1);
}

/* Finds the prediction of an open row. */
static enum ht_status find(struct reader *r, size_t open, const char *key, struct ht_error *err, size_t *found)
{
    char other[sizeof r->out->residuals->row];
    for (size_t row = 0; row < r->predicted.n_rows; row++) {
        bool counts = true;
        enum ht_status status = r->e.where ? meets(&r->predicted, row, r->e.where, err, &counts) : HT_OK;
        if (!status) status = key_of(&r->predicted, row, r->e.key, NULL, err, other, sizeof other);
        if (status) return status;
        if (counts && !strcmp(key, other)) {
            *found = row;
            return HT_OK;
        }
    }
    return ht_fail(err, HT_BAD_INPUT, "%s:%zu: '%s' is no row of %s; expected one of its configurations",
                   r->measured.path, open + 2, key, r->predicted.path);
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

/* Reads the number before ';' or the end, and moves behind it. NaN where it is left blank. */
static enum ht_status number(const struct ht_csv *csv, size_t row, const char *column, const char **at,
                             struct ht_error *err, double *value)
{
    const char *begin = *at, *end = begin + strcspn(begin, ";");
    char *read;
    *at = *end ? end + 1 : NULL;
    *value = NAN;
    if (end == begin) return HT_OK;
    errno = 0;
    *value = strtod(begin, &read);
    if (read == end && !errno && isfinite(*value) && *value > 0) return HT_OK;
    return ht_fail(err, HT_BAD_INPUT, "%s:%zu: column '%s': '%.*s'; expected a positive number", csv->path, row + 2,
                   column, (int)(end - begin), begin);
}

/* Adds the residuals of a cell, one for each entry of a list. */
static enum ht_status add_cell(struct reader *r, const struct ht_residual *like, size_t open, const char *measured_name,
                               size_t row, const char *predicted_name, struct ht_error *err)
{
    size_t a, b, n = 0;
    enum ht_status status = ht_csv_column(&r->measured, measured_name, err, &a);
    if (!status) status = ht_csv_column(&r->predicted, predicted_name, err, &b);
    if (status) return status;
    const char *m = ht_csv_cell(&r->measured, open, a), *p = ht_csv_cell(&r->predicted, row, b);
    bool list = strchr(m, ';') != NULL;
    if (!*p) return HT_OK; /* nothing is predicted */
    while (m && p && !status) {
        struct ht_residual x = *like;
        status = number(&r->measured, open, measured_name, &m, err, &x.measured);
        if (!status) status = number(&r->predicted, row, predicted_name, &p, err, &x.predicted);
        snprintf(x.quantity, sizeof x.quantity, list ? "%.30s %zu" : "%.30s", measured_name, n++);
        if (!status && x.measured > 0 && x.predicted > 0)
            HT_PUSH(r->out->residuals, r->out->n_residuals, r->out->cap_residuals, x);
    }
    if (!status && (m || p))
        return ht_fail(err, HT_BAD_INPUT, "%s:%zu: column '%s' has not as many entries as %s:%zu", r->predicted.path,
                       row + 2, predicted_name, r->measured.path, open + 2);
    return status;
}

/* Adds the residuals of a map of columns. */
static enum ht_status add_map(struct reader *r, const struct ht_node *map, const struct ht_residual *like, size_t open,
                              size_t row, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    for (const struct ht_node *c = map ? map->child : NULL; c && !status; c = c->next) {
        const char *predicted;
        status = ht_node_string(c, err, &predicted);
        if (!status) status = add_cell(r, like, open, c->key, row, predicted, err);
    }
    return status;
}

static void take_lanes(const struct reader *r, size_t row, struct ht_residual *x)
{
    if (r->lanes == r->predicted.n_columns) return;
    snprintf(x->lanes, sizeof x->lanes, "%s", ht_csv_cell(&r->predicted, row, r->lanes));
    snprintf(x->binds, sizeof x->binds, "%.*s", (int)strcspn(x->lanes, "="), x->lanes);
}

/* Adds what an open row says. */
static enum ht_status add_open(struct reader *r, size_t open, struct ht_error *err)
{
    struct ht_validation_set *set = &r->out->sets[r->set];
    struct ht_residual x = {.set = r->set};
    size_t row = 0, machine;
    bool fitted = false;
    enum ht_status status = key_of(&r->measured, open, r->e.key, r->e.rename, err, x.row, sizeof x.row);
    if (!status) status = find(r, open, x.row, err, &row);
    if (!status) status = meets(&r->measured, open, r->e.fitted, err, &fitted);
    snprintf(x.machine, sizeof x.machine, "%s", r->e.on);
    if (!status && *r->e.machine) {
        status = ht_csv_column(&r->predicted, r->e.machine, err, &machine);
        if (!status) snprintf(x.machine, sizeof x.machine, "%.31s", ht_csv_cell(&r->predicted, row, machine));
    }
    if (status) return status;
    const char *said = ht_csv_cell(&r->predicted, row, r->status);
    bool ok = !strcmp(said, "ok"), judged = ok || !strcmp(said, "oom");
    set->n_open++, set->n_met += ok;
    if (!r->e.all_ran) set->n_ran += judged, set->n_right += ok;
    take_lanes(r, row, &x);
    x.part = fitted ? HT_PART_FITTED : HT_PART_LEFT_OUT;
    status = add_map(r, r->e.compare, &x, open, row, err);
    x.memory = true, x.part = HT_PART_LEFT_OUT; /* no factor is set to memory */
    if (!status) status = add_map(r, r->e.memory, &x, open, row, err);
    x.memory = false;
    return status || !fitted ? status : add_map(r, r->e.left_out, &x, open, row, err);
}

/* Counts the predictions by what they say. */
static enum ht_status count(struct reader *r, struct ht_error *err)
{
    struct ht_validation_set *set = &r->out->sets[r->set];
    for (size_t row = 0; row < r->predicted.n_rows; row++) {
        bool counts = true;
        enum ht_status status = r->e.where ? meets(&r->predicted, row, r->e.where, err, &counts) : HT_OK;
        if (status) return status;
        const char *said = ht_csv_cell(&r->predicted, row, r->status);
        bool ok = !strcmp(said, "ok"), oom = !strcmp(said, "oom");
        if (!counts) continue;
        set->n_predicted++, set->n_ok += ok, set->n_oom += oom, set->n_other += !ok && !oom;
        if (r->e.all_ran) set->n_ran += ok || oom, set->n_right += ok;
    }
    return HT_OK;
}

/* ---- sets ------------------------------------------------------------------------------------------------------ */

static enum ht_status open_csv(const char *root, const char *path, struct ht_error *err, struct ht_csv *out)
{
    char full[4096];
    snprintf(full, sizeof full, "%s/%s", root, path);
    return ht_csv_open(full, err, out);
}

static enum ht_status read_set(const char *root, const struct ht_node *node, struct ht_error *err,
                               struct ht_validation *out)
{
    struct reader r = {.out = out, .set = out->n_sets};
    struct ht_validation_set set = {0};
    enum ht_status status = ht_config_load(node, fields, err, &r.e);
    if (!status && !*r.e.machine == !*r.e.on) status = ht_node_error(node, err, "expected either machine or on");
    if (status) return status;
    snprintf(set.name, sizeof set.name, "%.31s", node->key);
    memcpy(set.title, r.e.title, sizeof set.title);
    memcpy(set.source, r.e.source, sizeof set.source);
    memcpy(set.script, r.e.script, sizeof set.script);
    HT_PUSH(out->sets, out->n_sets, out->cap_sets, set);
    status = open_csv(root, r.e.measured, err, &r.measured);
    if (!status) status = open_csv(root, r.e.predicted, err, &r.predicted);
    if (!status) status = ht_csv_column(&r.predicted, "status", err, &r.status);
    if (!status) {
        r.lanes = ht_csv_find(&r.predicted, "lanes");
        status = count(&r, err);
    }
    for (size_t open = 0; open < r.measured.n_rows && !status; open++) status = add_open(&r, open, err);
    ht_csv_free(&r.measured);
    ht_csv_free(&r.predicted);
    return status;
}

enum ht_status ht_validate(const char *root, const char *sets, struct ht_error *err, struct ht_validation *out)
{
    struct ht_doc *doc = NULL;
    *out = (struct ht_validation){0};
    enum ht_status status = sets ? ht_doc_open(sets, err, &doc) : ht_builtin_open(&builtin, err, &doc);
    if (status) return status;
    status = ht_node_want(ht_doc_root(doc), HT_NODE_MAP, err);
    for (const struct ht_node *c = status ? NULL : ht_doc_root(doc)->child; c && !status; c = c->next)
        status = read_set(root, c, err, out);
    ht_doc_destroy(doc);
    return status;
}

void ht_validation_free(struct ht_validation *v)
{
    free(v->sets);
    free(v->residuals);
    *v = (struct ht_validation){0};
}

double ht_residual_error(const struct ht_residual *r)
{
    return r->predicted / r->measured - 1;
}

struct ht_errors ht_errors_of(const struct ht_validation *v, bool (*of)(const struct ht_residual *r, const void *ctx),
                              const void *ctx)
{
    struct ht_errors e = {0};
    for (size_t i = 0; i < v->n_residuals; i++) {
        double error = ht_residual_error(&v->residuals[i]);
        if (!of(&v->residuals[i], ctx)) continue;
        e.n++;
        e.mean += fabs(error);
        e.bias += error;
        e.worst = fmax(e.worst, fabs(error));
    }
    if (e.n) e.mean /= (double)e.n, e.bias /= (double)e.n;
    return e;
}
