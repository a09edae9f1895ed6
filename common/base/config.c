/*
 * Reads values from a document's tree (config_doc.c): positions in errors, scalars with ranges, and tables.
 */
#include "common/base/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/array.h"
#include "common/base/text.h"

/* ---- errors ---- */

/* Writes the name of a node: "gpus[2]" for the third element of the list 'gpus', the key of a map's entry, empty for
   the root. */
static void write_name(const struct ht_node *at, char *buf, size_t bytes)
{
    char index[64] = "";
    while (at->parent && at->parent->kind == HT_NODE_LIST) {
        size_t i = 0;
        for (const struct ht_node *c = at->parent->child; c != at; c = c->next) i++;
        char inner[64];
        memcpy(inner, index, sizeof(inner));
        snprintf(index, sizeof(index), "[%zu]%.40s", i, inner);
        at = at->parent;
    }
    snprintf(buf, bytes, "%.80s%s", at->parent ? at->key : "", index);
}

static enum ht_status error_at(const struct ht_node *at, uint32_t line, uint32_t column, struct ht_error *err,
                               const char *fmt, va_list ap)
{
    char name[160], text[700];
    const struct ht_node *root = at;
    while (root->parent) root = root->parent;
    write_name(at, name, sizeof(name));
    vsnprintf(text, sizeof(text), fmt, ap);
    if (name[0]) return ht_fail(err, HT_BAD_INPUT, "%s:%u:%u: key '%s': %s", root->key, line, column, name, text);
    return ht_fail(err, HT_BAD_INPUT, "%s:%u:%u: %s", root->key, line, column, text);
}

enum ht_status ht_node_error(const struct ht_node *at, struct ht_error *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    enum ht_status st = error_at(at, at->line, at->column, err, fmt, ap);
    va_end(ap);
    return st;
}

enum ht_status ht_node_key_error(const struct ht_node *at, struct ht_error *err, const char *fmt, ...)
{
    bool keyed = at->parent && at->parent->kind == HT_NODE_MAP;
    va_list ap;
    va_start(ap, fmt);
    enum ht_status st =
        error_at(at, keyed ? at->key_line : at->line, keyed ? at->key_column : at->column, err, fmt, ap);
    va_end(ap);
    return st;
}

size_t ht_edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), row[256]; /* the row above, overwritten from the left */
    if (n > 255 || m > 255) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t up = row[j], best = corner + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            corner = up;
        }
    }
    return row[m];
}

const char *ht_nearest(const char *word, const char *const names[], size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        size_t d = ht_edit_distance(word, names[i]);
        if (d <= best_distance && (!best || d < best_distance)) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

/* ---- nodes ---- */

static const char *kind_name(const struct ht_node *node)
{
    if (node->kind == HT_NODE_MAP) return "a map";
    if (node->kind == HT_NODE_LIST) return "a list";
    return node->text_bytes ? "a value" : "nothing";
}

enum ht_status ht_node_want(const struct ht_node *node, enum ht_node_kind kind, struct ht_error *err)
{
    static const char *const wanted[] = {"a value", "a list", "a map ('key: value' lines)"};
    if (node->kind == kind && (kind != HT_NODE_SCALAR || node->text_bytes)) return HT_OK;
    if (kind == HT_NODE_SCALAR && node->kind == kind) return ht_node_error(node, err, "has no value; expected one");
    return ht_node_error(node, err, "is %s; expected %s", kind_name(node), wanted[kind]);
}

const struct ht_node *ht_node_find(const struct ht_node *map, const char *key)
{
    if (map->kind != HT_NODE_MAP) return NULL;
    HT_EACH_CHILD(map, c)
    if (strcmp(c->key, key) == 0) return c;
    return NULL;
}

enum ht_status ht_node_get(const struct ht_node *map, const char *key, struct ht_error *err, const struct ht_node **out)
{
    enum ht_status st = ht_node_want(map, HT_NODE_MAP, err);
    if (st) return st;
    const struct ht_node *found = ht_node_find(map, key);
    if (!found) return ht_node_error(map, err, "the key '%s' is missing; expected '%s: ...'", key, key);
    *out = found;
    return HT_OK;
}

/* Parses a scalar by kind. Puts the position before the parser's error text. */
static enum ht_status scan_scalar(const struct ht_node *node, enum ht_quantity kind, struct ht_error *err,
                                  int64_t *whole, double *real)
{
    struct ht_error inner;
    if (node->kind != HT_NODE_SCALAR || !node->text_bytes)
        return ht_node_error(node, err, "is %s; expected %s", kind_name(node), ht_quantity_example(kind));
    if (node->quoted && (kind == HT_COUNT_OF || kind == HT_REAL))
        return ht_node_error(node, err, "'%.60s' is in quotes; expected %s", node->text, ht_quantity_example(kind));
    if (whole ? ht_parse_whole(kind, node->text, node->text_bytes, &inner, whole)
              : ht_parse_real(kind, node->text, node->text_bytes, &inner, real))
        return ht_node_error(node, err, "%s", inner.text);
    return HT_OK;
}

static const char *bound_text(enum ht_quantity kind, double v, char buf[HT_QUANTITY_TEXT])
{
    if (kind != HT_REAL) return ht_format_quantity(kind, v, buf);
    snprintf(buf, HT_QUANTITY_TEXT, "%g", v);
    return buf;
}

enum ht_status ht_node_whole(const struct ht_node *node, enum ht_quantity kind, int64_t min, int64_t max,
                             struct ht_error *err, int64_t *out)
{
    int64_t v = 0;
    char lo[HT_QUANTITY_TEXT], hi[HT_QUANTITY_TEXT];
    enum ht_status st = scan_scalar(node, kind, err, &v, NULL);
    if (st) return st;
    if (v >= min && v <= max) {
        *out = v;
        return HT_OK;
    }
    if (max == INT64_MAX)
        return ht_node_error(node, err, "'%.60s' is %s; expected at least %s", node->text,
                             v < 0    ? "negative"
                             : v == 0 ? "zero"
                                      : "too small",
                             bound_text(kind, (double)min, lo));
    return ht_node_error(node, err, "'%.60s' is %s; expected %s to %s", node->text, v < 0 ? "negative" : "out of range",
                         bound_text(kind, (double)min, lo), bound_text(kind, (double)max, hi));
}

enum ht_status ht_node_int(const struct ht_node *node, int64_t min, int64_t max, struct ht_error *err, int64_t *out)
{
    return ht_node_whole(node, HT_COUNT_OF, min, max, err, out);
}

enum ht_status ht_node_real(const struct ht_node *node, enum ht_quantity kind, double min, double max,
                            struct ht_error *err, double *out)
{
    double v = 0;
    char lo[HT_QUANTITY_TEXT], hi[HT_QUANTITY_TEXT];
    enum ht_status st = scan_scalar(node, kind, err, NULL, &v);
    if (st) return st;
    if (v >= min && v <= max) {
        *out = v;
        return HT_OK;
    }
    if (isinf(max))
        return ht_node_error(node, err, "'%.60s' is out of range; expected %s%s", node->text,
                             min > 0 && min < 1e-300 ? "more than " : "at least ",
                             min > 0 && min < 1e-300 ? "0" : bound_text(kind, min, lo));
    return ht_node_error(node, err, "'%.60s' is out of range; expected %s to %s", node->text, bound_text(kind, min, lo),
                         bound_text(kind, max, hi));
}

enum ht_status ht_node_double(const struct ht_node *node, double min, double max, struct ht_error *err, double *out)
{
    return ht_node_real(node, HT_REAL, min, max, err, out);
}

enum ht_status ht_node_bool(const struct ht_node *node, struct ht_error *err, bool *out)
{
    enum ht_status st = ht_node_want(node, HT_NODE_SCALAR, err);
    if (st) return st;
    bool yes = !node->quoted && strcmp(node->text, "true") == 0;
    if (!yes && (node->quoted || strcmp(node->text, "false") != 0))
        return ht_node_error(node, err, "'%.60s' is not a truth value; expected true or false", node->text);
    *out = yes;
    return HT_OK;
}

enum ht_status ht_node_string(const struct ht_node *node, struct ht_error *err, const char **out)
{
    enum ht_status st = ht_node_want(node, HT_NODE_SCALAR, err);
    if (st) return st;
    if (!ht_is_text(node->text))
        return ht_node_error(node, err, "holds a control character or a line end; expected one line of text");
    *out = node->text;
    return HT_OK;
}

/* Writes "a, b or c". */
static void join_names(const char *const names[], int n, char *buf, size_t bytes)
{
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < n && used + 1 < bytes; i++) {
        int w = snprintf(buf + used, bytes - used, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", names[i]);
        used += (size_t)w;
    }
}

enum ht_status ht_node_enum(const struct ht_node *node, const char *const names[], int n_names, struct ht_error *err,
                            int *out)
{
    char all[300];
    join_names(names, n_names, all, sizeof(all));
    if (node->kind != HT_NODE_SCALAR || !node->text_bytes)
        return ht_node_error(node, err, "is %s; expected %s", kind_name(node), all);
    for (int i = 0; i < n_names; i++)
        if (strcmp(node->text, names[i]) == 0) {
            *out = i;
            return HT_OK;
        }
    return ht_node_error(node, err, "'%.60s' is not known here; expected %s", node->text, all);
}

/* ---- tables ---- */

static enum ht_status load_field(const struct ht_node *node, const struct ht_field *f, struct ht_error *err, void *out)
{
    char *at = (char *)out + f->offset;
    bool positive = f->min == 0 && f->max == 0;
    /* 2^63 as a double is beyond int64_t: from there on there is no bound. */
    int64_t lo = positive ? 1 : (int64_t)f->min;
    int64_t hi = positive || f->max >= 0x1p63 ? INT64_MAX : (int64_t)f->max;
    double rlo = positive ? 5e-324 : f->min, rhi = positive ? INFINITY : f->max;
    const char *text = "";
    enum ht_status st;
    switch (f->type) {
    case HT_FIELD_INT:
        return ht_node_whole(node, HT_COUNT_OF, lo, hi, err, (int64_t *)(void *)at);
    case HT_FIELD_BYTES:
        return ht_node_whole(node, HT_BYTES, lo, hi, err, (int64_t *)(void *)at);
    case HT_FIELD_NS:
        return ht_node_whole(node, HT_TIME, lo, hi, err, (int64_t *)(void *)at);
    case HT_FIELD_DOUBLE:
        return ht_node_real(node, HT_REAL, rlo, rhi, err, (double *)(void *)at);
    case HT_FIELD_BYTES_PER_S:
        return ht_node_real(node, HT_BYTES_PER_S, rlo, rhi, err, (double *)(void *)at);
    case HT_FIELD_FLOPS_PER_S:
        return ht_node_real(node, HT_FLOPS_PER_S, rlo, rhi, err, (double *)(void *)at);
    case HT_FIELD_BOOL:
        return ht_node_bool(node, err, (bool *)at);
    case HT_FIELD_ENUM:
        return ht_node_enum(node, f->names, f->n_names, err, (int *)(void *)at);
    case HT_FIELD_STRING:
        if ((st = ht_node_string(node, err, &text))) return st;
        if (node->text_bytes >= f->size)
            return ht_node_error(node, err, "is %u characters long; expected at most %zu", node->text_bytes,
                                 f->size - 1);
        memcpy(at, text, node->text_bytes + 1);
        return HT_OK;
    case HT_FIELD_MAP:
        return ht_config_load(node, f->fields, err, at);
    case HT_FIELD_MAP_NODE:
        if ((st = ht_node_want(node, HT_NODE_MAP, err))) return st;
        break;
    case HT_FIELD_LIST_NODE:
        if ((st = ht_node_want(node, HT_NODE_LIST, err))) return st;
        break;
    case HT_FIELD_ANY_NODE:
        break;
    }
    memcpy(at, &node, sizeof(node));
    return HT_OK;
}

static enum ht_status unknown_key(const struct ht_node *node, const struct ht_field *fields, struct ht_error *err)
{
    const char *names[64];
    char all[400];
    int n = 0;
    for (const struct ht_field *f = fields; f->key && n < 64; f++) names[n++] = f->key;
    const char *near = ht_nearest(node->key, names, (size_t)n);
    if (near) return ht_node_key_error(node, err, "is unknown here; expected '%s'?", near);
    join_names(names, n, all, sizeof(all));
    return ht_node_key_error(node, err, "is unknown here; expected %s", all);
}

/* Reads the fallback like a value of the map in the document. */
static enum ht_status load_fallback(const struct ht_node *map, const struct ht_field *f, struct ht_error *err,
                                    void *out)
{
    struct ht_node node = {.kind = HT_NODE_SCALAR,
                           .line = map->line,
                           .column = map->column,
                           .key = f->key,
                           .text = f->fallback,
                           .text_bytes = (uint32_t)strlen(f->fallback),
                           .parent = map};
    return load_field(&node, f, err, out);
}

enum ht_status ht_config_load(const struct ht_node *map, const struct ht_field *fields, struct ht_error *err, void *out)
{
    enum ht_status st = ht_node_want(map, HT_NODE_MAP, err);
    if (st) return st;
    HT_EACH_CHILD(map, c)
    {
        const struct ht_field *f = fields;
        while (f->key && strcmp(f->key, c->key) != 0) f++;
        if (!f->key) return unknown_key(c, fields, err);
    }
    for (const struct ht_field *f = fields; f->key; f++) {
        const struct ht_node *node = ht_node_find(map, f->key);
        if (node) {
            st = load_field(node, f, err, out);
        } else if (f->required) {
            st = ht_node_error(map, err, "the key '%s' is missing; expected '%s: ...'", f->key, f->key);
        } else if (f->fallback) {
            st = load_fallback(map, f, err, out);
        } else if (f->type >= HT_FIELD_MAP_NODE) {
            memset((char *)out + f->offset, 0, sizeof(node));
        }
        if (st) return st;
    }
    return HT_OK;
}
