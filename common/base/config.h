/*
 * Input documents: YAML or JSON, read into a tree of nodes that know where they were written, and tables that turn a
 * map into a struct. An error is one line with the position, the key, what is wrong and what was expected:
 *
 *     my.yaml:12:11: key 'memory': '40' has no unit; expected a size such as '40 GB' or '512 MiB'
 *
 * and the status HT_BAD_INPUT. A file has one document. Anchors, aliases, tags and merge keys are refused: nothing here
 * needs them, and with them a small file can become a huge tree. Duplicate keys and nesting beyond HT_DOC_MAX_DEPTH are
 * refused, too.
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

/* A node and its strings are valid until its document is destroyed. */
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

/* Reads a file; "-" is not special. Reads `*.json` strictly as JSON, everything else as YAML. */
enum ht_status ht_doc_open(const char *path, struct ht_error *err, struct ht_doc **out);
/* Parses `bytes` of text, which is copied as needed; `name` stands for the file in errors. */
enum ht_status ht_doc_parse(const char *text, size_t bytes, const char *name, struct ht_error *err,
                            struct ht_doc **out);
void ht_doc_destroy(struct ht_doc *doc); /* accepts NULL */
/* Keeps a document that several share: from now on ht_doc_destroy leaves it alone. */
void ht_doc_keep(struct ht_doc *doc);
const struct ht_node *ht_doc_root(const struct ht_doc *doc);
const char *ht_doc_name(const struct ht_doc *doc);

/* Fills *err with "name:line:col: key 'k': <text>" for this node and returns HT_BAD_INPUT. The text should end with
   what was expected. A list element is named after its list: key 'gpus[2]'; the root has no key. */
enum ht_status ht_node_error(const struct ht_node *at, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Fills *err like ht_node_error, with the position of the key instead of the value (unknown key). */
enum ht_status ht_node_key_error(const struct ht_node *at, struct ht_error *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the entry of a map, or NULL (also when `map` is not a map). Linear in the map's size. */
const struct ht_node *ht_node_find(const struct ht_node *map, const char *key);
/* Finds an entry that must exist: an absent key is an error at the map. */
enum ht_status ht_node_get(const struct ht_node *map, const char *key, struct ht_error *err,
                           const struct ht_node **out);
enum ht_status ht_node_want(const struct ht_node *node, enum ht_node_kind kind, struct ht_error *err);

/* Read scalars and check min <= value <= max. *out is unchanged on error. */
enum ht_status ht_node_int(const struct ht_node *node, int64_t min, int64_t max, struct ht_error *err, int64_t *out);
enum ht_status ht_node_double(const struct ht_node *node, double min, double max, struct ht_error *err, double *out);
enum ht_status ht_node_bool(const struct ht_node *node, struct ht_error *err, bool *out); /* true or false */
/* Reads a string that is fit for a terminal: not empty, one line, no control characters. */
enum ht_status ht_node_string(const struct ht_node *node, struct ht_error *err, const char **out);
enum ht_status ht_node_enum(const struct ht_node *node, const char *const names[], int n_names, struct ht_error *err,
                            int *out); /* index into names */
/* Reads HT_BYTES, or HT_TIME in nanoseconds. */
enum ht_status ht_node_whole(const struct ht_node *node, enum ht_quantity kind, int64_t min, int64_t max,
                             struct ht_error *err, int64_t *out);
/* Reads a rate in base units. */
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

/* One key of a document type. A table ends with an entry whose key is NULL. min == max == 0 means "positive": [1,
   INT64_MAX] for integers, (0, inf) for reals. */
struct ht_field {
    const char *key;
    enum ht_field_type type;
    size_t offset; /* into the struct to fill */
    bool required;
    const char *fallback; /* read for an absent optional scalar, written as in a document: "128 GB". NULL: the struct
                             keeps its value */
    double min, max;
    size_t size;              /* HT_FIELD_STRING: bytes of the array */
    const char *const *names; /* HT_FIELD_ENUM */
    int n_names;
    const struct ht_field *fields; /* HT_FIELD_MAP */
};

/* The place of a field in a struct; with its type: text, a real number, a node of any kind. */
#define HT_FIELD_AT(in, m)   .offset = offsetof(in, m)
#define HT_FIELD_TEXT(in, m) .type = HT_FIELD_STRING, HT_FIELD_AT(in, m), .size = sizeof(((in *)0)->m)
#define HT_FIELD_REAL(in, m) .type = HT_FIELD_DOUBLE, HT_FIELD_AT(in, m)
#define HT_FIELD_NODE(in, m) .type = HT_FIELD_ANY_NODE, HT_FIELD_AT(in, m)

/*
 * Fills in *out from a map by a table. Reports unknown keys (with the nearest known one), missing required keys and
 * scalar errors as above, and stops at the first one. Sets node fields of absent keys to NULL.
 */
enum ht_status ht_config_load(const struct ht_node *map, const struct ht_field *fields, struct ht_error *err,
                              void *out);

/* Returns the nearest of n names to `word`, for "did you mean"; NULL when none is within an edit distance of a third of
   its length. */
const char *ht_nearest(const char *word, const char *const names[], size_t n);

/* Returns how many insertions, deletions and replacements turn a into b (Levenshtein); SIZE_MAX beyond 255
   characters. */
size_t ht_edit_distance(const char *a, const char *b);

#endif
