/* Rows of results as files: DIR/NAME.json and, made from the same JSON, DIR/NAME.csv. */
#ifndef HT_HARNESS_RESULT_ROWS_H
#define HT_HARNESS_RESULT_ROWS_H

#include "common/base/status.h"

#include <jansson.h>
#include <stdio.h>

/* Returns a row's value for a column: its own key, else its scenario's; `model`, `params` and `plan_why` of the
   parts. */
const json_t *ht_row_value(const json_t *row, const char *column);

/* Writes a text in double quotes. */
void ht_csv_text(const char *text, FILE *out);

/* Writes a header and a line for each row. Strings are quoted, whole numbers as they are, reals with all digits,
   booleans yes and no, null is empty. A column plan_NAME for each plan variable of the rows stands behind the others, with
   values as --set takes them. */
void ht_rows_csv(const json_t *rows, const char *const *columns, size_t n_columns,
                 const json_t *(*value_of)(const json_t *row, const char *column), FILE *out);

/* Makes the folder and writes both files, each whole or not at all. write_csv gets root's "rows". schema: the document's name. */
enum ht_status ht_rows_write(json_t *root, const char *schema, const char *dir, const char *name,
                             void (*write_csv)(const json_t *rows, FILE *out), struct ht_error *err);

#endif
