/*
 * Input documents: YAML or JSON into a read-only tree of nodes that know where they were written, and tables that turn
 * a map into a struct. Every complaint is one line with the place, the key, what is wrong and what was expected:
 *
 *     my.yaml:12:11: key 'memory': '40' has no unit; expected a size such as '40 GB' or '512 MiB'
 *
 * and the status HT_BAD_INPUT. One document a file. Anchors, aliases, tags and merge keys are refused (nothing here
 * needs them, and they are how a small file becomes a huge tree), as are duplicate keys and nesting beyond
 * HT_DOC_MAX_DEPTH.
 *
 * Reading is linear: events of libfyaml go straight into one arena of nodes, and strings into another.
 */
#ifndef HT_BASE_CONFIG_H
#define HT_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/units.h"

#define HT_DOC_MAX_BYTES ((size_t)256 << 20)
#define HT_DOC_MAX_DEPTH 32

enum ht_node_kind { HT_NODE_SCALAR, HT_NODE_LIST, HT_NODE_MAP };

/* A node is valid, with its strings, until its document is destroyed. */
struct ht_node {
    enum ht_node_kind kind;
    bool quoted;                   /* scalar written in quotes or as a block: a string, never a number */
    uint32_t line, column;         /* of the value, from 1 */
    uint32_t key_line, key_column; /* of the key, when the parent is a map */
    uint32_t n_children;
    uint32_t text_bytes;          /* scalar: strlen(text); no text contains a NUL */
    const char *key;              /* when the parent is a map, else NULL */
    const char *text;             /* scalar: NUL-terminated, else NULL */
    const struct ht_node *parent; /* NULL at the root */
    const struct ht_node *child;  /* first element or entry, in the order of the file */
    const struct ht_node *next;   /* next element or entry of the parent */
};

#define HT_EACH_CHILD(node, c) for (const struct ht_node *c = (node)->child; c; c = c->next)

struct ht_doc;

/* Reads a file; "-" is not special. `*.json` is read strictly as JSON, everything else as YAML. */
enum ht_status ht_doc_open(const char *path, struct ht_error *err, struct ht_doc **out);
/* Reads `bytes` of text, which is copied as needed; `name` stands for the file in errors. */
enum ht_status ht_doc_parse(const char *text, size_t bytes, const char *name, struct ht_error *err,
                            struct ht_doc **out);
void ht_doc_destroy(struct ht_doc *doc);
const struct ht_node *ht_doc_root(const struct ht_doc *doc);
const char *ht_doc_name(const struct ht_doc *doc);

/* Fills *err with "name:line:col: key 'k': <text>" for this node and returns HT_BAD_INPUT. The text should end with
   what was expected. A list element is named after its list: key 'gpus[2]'; the root has no key. */
enum ht_status ht_node_error(const struct ht_node *at, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same at the key instead of the value (unknown key). */
enum ht_status ht_node_key_error(const struct ht_node *at, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The entry of a map, or NULL (also when `map` is not a map). Linear in the map's size. */
const struct ht_node *ht_node_find(const struct ht_node *map, const char *key);
/* The same, required: an absent key is an error at the map. */
enum ht_status ht_node_get(const struct ht_node *map, const char *key, struct ht_error *err,
                           const struct ht_node **out);
enum ht_status ht_node_want(const struct ht_node *node, enum ht_node_kind kind, struct ht_error *err);

/* Scalars, range-checked: min <= value <= max. *out is unchanged on error. */
enum ht_status ht_node_int(const struct ht_node *node, int64_t min, int64_t max, struct ht_error *err, int64_t *out);
enum ht_status ht_node_double(const struct ht_node *node, double min, double max, struct ht_error *err, double *out);
enum ht_status ht_node_bool(const struct ht_node *node, struct ht_error *err, bool *out); /* true or false */
/* Not empty, one line without control characters: it may be shown. */
enum ht_status ht_node_string(const struct ht_node *node, struct ht_error *err, const char **out);
enum ht_status ht_node_enum(const struct ht_node *node, const char *const names[], int n_names, struct ht_error *err,
                            int *out); /* index into names */
/* HT_BYTES and HT_TIME (nanoseconds) as integers. */
enum ht_status ht_node_whole(const struct ht_node *node, enum ht_quantity kind, int64_t min, int64_t max,
                             struct ht_error *err, int64_t *out);
/* Rates as reals in base units. */
enum ht_status ht_node_real(const struct ht_node *node, enum ht_quantity kind, double min, double max,
                            struct ht_error *err, double *out);

/* ---- tables ---- */

enum ht_field_type {
    HT_FIELD_INT,         /* int64_t, in [min, max] */
    HT_FIELD_DOUBLE,      /* double, in [min, max] */
    HT_FIELD_BOOL,        /* bool */
    HT_FIELD_STRING,      /* char[size], as of ht_node_string; longer is an error */
    HT_FIELD_ENUM,        /* int (any enum), index into names */
    HT_FIELD_BYTES,       /* int64_t bytes, in [min, max] */
    HT_FIELD_NS,          /* int64_t nanoseconds, in [min, max] */
    HT_FIELD_BYTES_PER_S, /* double */
    HT_FIELD_FLOPS_PER_S, /* double */
    HT_FIELD_MAP,         /* struct at offset, filled by the table `fields` */
    HT_FIELD_MAP_NODE,    /* const struct ht_node *: a map, left to the caller */
    HT_FIELD_LIST_NODE,   /* const struct ht_node *: a list, left to the caller */
    HT_FIELD_ANY_NODE,    /* const struct ht_node *: anything, left to the caller */
};

/* One key of a document type. A table ends with a row whose key is NULL.
   min == max == 0 stands for "positive": [1, INT64_MAX] for integers, (0, inf) for reals. */
struct ht_field {
    const char *key;
    enum ht_field_type type;
    size_t offset; /* into the struct to fill */
    bool required;
    const char *fallback; /* what an absent optional scalar reads as, in the document's own words: "128 GB".
                             NULL: the struct keeps what it held */
    double min, max;
    size_t size;              /* HT_FIELD_STRING: bytes of the array */
    const char *const *names; /* HT_FIELD_ENUM */
    int n_names;
    const struct ht_field *fields; /* HT_FIELD_MAP */
};

/*
 * Fills *out from a map by a table. Unknown keys (the nearest known one is named), missing required keys and every
 * scalar error are reported as above; the first one ends the reading. Node fields of absent keys are set to NULL.
 */
enum ht_status ht_config_load(const struct ht_node *map, const struct ht_field *fields, struct ht_error *err,
                              void *out);

/* The nearest of n names to `word`, or NULL when none is near (edit distance over a third of its length): for "did you
   mean". */
const char *ht_nearest(const char *word, const char *const names[], size_t n);

/* Insertions, deletions and replacements that turn a into b (Levenshtein); SIZE_MAX beyond 255 characters. */
size_t ht_edit_distance(const char *a, const char *b);

#endif
