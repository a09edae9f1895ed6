/* Rows of results as files: DIR/NAME.json and, made from the same JSON, DIR/NAME.csv. */
#ifndef HT_HARNESS_ROWS_H
#define HT_HARNESS_ROWS_H

#include "common/base/status.h"

#include <jansson.h>
#include <stdio.h>

/* One cell: strings in quotes, whole numbers as they are, reals with all digits, booleans yes and no, null empty. */
void ht_csv_value(const json_t *value, FILE *out);

/* Both files, each whole or not at all. write_csv gets root's "rows". */
enum ht_status ht_rows_write(const json_t *root, const char *dir, const char *name,
                             void (*write_csv)(const json_t *rows, FILE *out), struct ht_error *err);

#endif
