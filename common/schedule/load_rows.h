/* The loader of graph files, and readers for parts of rows that tables (load.c) and ops (load_ops.c) share.
   Internal. */
#ifndef HT_SCHEDULE_LOAD_ROWS_H
#define HT_SCHEDULE_LOAD_ROWS_H

#include "common/base/config.h"
#include "common/schedule/schedule.h"
#include "common/schedule/symbols.h"

struct ht_loader {
    struct ht_schedule *s;
    struct ht_error *err;
    struct ht_symbols ops, tensors, resources, works;
    struct ht_symbols lanes;      /* "gpu"; ambiguous if several ranks have one */
    struct ht_symbols lanes_full; /* "gpu@1" */
    char *lane_names;             /* storage of lanes_full */
    bool works_listed;            /* else every name of a work is a custom name */
};

/* Rows of field tables: key, type or range, struct and member. */
// clang-format off
#define HT_ROW(k, t, row, member, ...) \
    {.key = k, .type = HT_FIELD_##t, .offset = offsetof(struct row, member) __VA_OPT__(,) __VA_ARGS__}
#define HT_ROW_INT(k, row, member, low, high) HT_ROW(k, INT, row, member, .min = (double)(low), .max = (double)(high))
#define HT_ROW_ENUM(k, row, member, table, n, need) \
    HT_ROW(k, ENUM, row, member, .required = need, .names = table, .n_names = n)
// clang-format on

/* Iterates over the elements of a list. A single scalar or map counts as a list of itself; NULL counts as an empty
   list. */
const struct ht_node *ht_first_element(const struct ht_node *node);
const struct ht_node *ht_next_element(const struct ht_node *node, const struct ht_node *element);
#define HT_EACH_ELEMENT(node, e)                                                                                       \
    for (const struct ht_node *e = ht_first_element(node); e; e = ht_next_element((node), e))

/* Label fields as files have them. unit -1, n_units -1, mb -1, sub_ops NULL: absent. */
struct ht_label_row {
    int64_t unit, n_units, mb;
    const struct ht_node *sub_ops;
};
#define HT_LABEL_ABSENT                                                                                                \
    {                                                                                                                  \
        .unit = -1, .n_units = -1, .mb = -1                                                                            \
    }
enum ht_status ht_load_label(struct ht_loader *l, const struct ht_label_row *row, struct ht_label *out);
enum ht_status ht_load_sub_ops(struct ht_loader *l, const struct ht_node *node, uint32_t *out);

/* Reads a name that is new in `table` (NULL: any), of at most max - 1 printable characters, not a number. */
enum ht_status ht_load_name(struct ht_loader *l, const struct ht_node *node, size_t max, struct ht_symbols *table,
                            int32_t value, const char **out);
/* Reads a reference "name" or "12" to one of n rows; `text` is (part of) the node's. `what`: "tensor". */
enum ht_status ht_load_reference(struct ht_loader *l, const struct ht_node *node, const char *text, const char *what,
                                 const struct ht_symbols *table, int32_t n, int32_t *out);
/* Reads "p1@device" and, if rank is not NULL, "p1@device:1"; *rank is unchanged if none is written. */
enum ht_status ht_load_residency(struct ht_loader *l, const struct ht_node *node, const char *text, int32_t *tensor,
                                 enum ht_tier *tier, int32_t *rank);
/* Reads "4096", "4 MB", and for cores "5 ms". */
enum ht_status ht_load_amount(struct ht_loader *l, const struct ht_node *node, bool cores, int64_t min, int64_t max,
                              int64_t *out);

#endif
