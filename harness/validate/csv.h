/* CSV files with a header: cells as text. Cells may be in double quotes, within which commas and doubled quotes stand. */
#ifndef HT_HARNESS_VALIDATE_CSV_H
#define HT_HARNESS_VALIDATE_CSV_H

#include "common/base/status.h"

#include <stddef.h>

struct ht_csv {
    char *path, *text; /* owned; cells point into text */
    char **cells;      /* [(1 + n_rows) * n_columns], the header first */
    size_t n_columns, n_rows;
};

/* Reads a file. HT_BAD_INPUT if it is missing, empty, has a NUL, an open quote, a name twice in its header, or a line with more or
   fewer cells than the header: path and line. The caller frees *out, which is zero on error. */
enum ht_status ht_csv_open(const char *path, struct ht_error *err, struct ht_csv *out);
void ht_csv_free(struct ht_csv *csv);

/* Finds a column; HT_BAD_INPUT with the path and the columns that there are. */
enum ht_status ht_csv_column(const struct ht_csv *csv, const char *name, struct ht_error *err, size_t *column);
/* Returns the column, or n_columns if the file lacks it. */
size_t ht_csv_find(const struct ht_csv *csv, const char *name);
/* Returns a cell of a row, from 0. */
const char *ht_csv_cell(const struct ht_csv *csv, size_t row, size_t column);

#endif
