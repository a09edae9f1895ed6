/*
 * The rows of compare and maxsize: what both do with them once they are made.
 *
 * A row whose input is refused (a model that the system does not take, a cost that cannot be simulated) is an answer:
 * its status is "refused", and the others are computed. Ctrl-C keeps the finished rows.
 */
#ifndef HT_HARNESS_CLI_ROW_SET_H
#define HT_HARNESS_CLI_ROW_SET_H

#include "common/base/tasks.h"
#include "common/model/model_list.h"
#include "harness/cli/lists.h"
#include "harness/result/table.h"
#include "harness/run/options.h"

#include <jansson.h>
#include <stdio.h>

/* The systems and models that rows are asked for. */
struct ht_row_set {
    const struct ht_options *options;
    struct ht_words systems, models;
    json_t *from; /* provenance */
};

/* Reads the request; systems: a list with commas, NULL for all. Free it also after an error. */
enum ht_status ht_row_set_read(const struct ht_options *options, const char *systems, struct ht_error *err,
                               struct ht_row_set *out);
void ht_row_set_free(struct ht_row_set *set);

/* Return a row's text, NULL if it has none, and its number, or 0; add a cell of its bytes. */
const char *ht_row_text(const json_t *row, const char *key);
double ht_row_number(const json_t *row, const char *key);
void ht_row_bytes(const json_t *row, const char *key, struct ht_table *t);

/* Runs the tasks, which fill rows[n], and moves the finished rows to root's "rows", in the order that arrange (NULL: none)
   puts them in; those that were not finished are NULL. root's "complete" says whether these are all. Returns HT_BAD_INPUT when every row is refused. */
enum ht_status ht_row_set_make(const struct ht_tasks *tasks, json_t **rows, void (*arrange)(void *ctx, json_t **rows),
                               json_t *root, struct ht_error *err);

struct ht_row_set_output {
    const char *name; /* of the command and its files: NAME.json, NAME.csv */
    const struct ht_row_set *set;
    const void *ctx;
    void (*print)(const void *ctx, const json_t *rows); /* the table */
    void (*write_csv)(const json_t *rows, FILE *out);
};

/* Shows the rows, as a table or as JSON, and writes the files of --out; nothing when `made` is an error, or an
   interrupt before the first row. Takes root over, which ht_row_set_root has made. Returns `made`, or what failed. */
json_t *ht_row_set_root(const struct ht_row_set *set);
enum ht_status ht_row_set_finish(enum ht_status made, const struct ht_row_set_output *output, json_t *root,
                                 struct ht_error *err);

#endif
