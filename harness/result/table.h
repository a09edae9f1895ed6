/*
 * Tables for people: a header, columns as wide as their contents, numbers to the right.
 *
 *     struct ht_table *t = ht_table_create("<lane|<kind|>busy per iteration|>?share");
 *     ht_table_cell(t, "%s", "gpu"); ...       cells go left to right, row after row
 *     ht_table_print(t, "  ", stdout);
 *
 * On a terminal (common/base/terminal.h) a table is fitted to its width: columns with '?' are left out, the last one first,
 * until the others' cells fit whole, or their words where they are long texts; then headers and cells are broken at blanks,
 * the widest column first. A line below says what was left out. Without a width all is printed, a line a row.
 */
#ifndef HT_HARNESS_RESULT_TABLE_H
#define HT_HARNESS_RESULT_TABLE_H

#include <stdint.h>
#include <stdio.h>

struct ht_table;

enum ht_mark { HT_MARK_NONE, HT_MARK_BEST, HT_MARK_FAULT }; /* colours, where there are any: none, green, red */

/* Creates a table of columns between '|'; each begins with '<' (left) or '>' (right), then '?' if it may be left out. */
struct ht_table *ht_table_create(const char *header);
void ht_table_cell(struct ht_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a cell "39.1 GB", or "-" for less than 0 and "no limit" for INT64_MAX. */
void ht_table_bytes(struct ht_table *t, int64_t bytes);
/* Marks the row of the last cell. */
void ht_table_mark(struct ht_table *t, enum ht_mark mark);
/* Prints a table and destroys it. */
void ht_table_print(struct ht_table *t, const char *indent, FILE *out);
/* The same, fitted to so many columns; 0: no limit. */
void ht_table_print_fitted(struct ht_table *t, const char *indent, int columns, FILE *out);
void ht_table_destroy(struct ht_table *t); /* accepts NULL */

#endif
