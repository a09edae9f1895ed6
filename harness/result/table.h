/*
 * Tables for people: a header, columns as wide as their contents, numbers to the right.
 *
 *     struct ht_table *t = ht_table_create("<lane|<kind|>busy per iteration|>share");
 *     ht_table_cell(t, "%s", "gpu"); ...       cells go left to right, row after row
 *     ht_table_print(t, "  ", stdout);
 */
#ifndef HT_HARNESS_RESULT_TABLE_H
#define HT_HARNESS_RESULT_TABLE_H

#include <stdint.h>
#include <stdio.h>

struct ht_table;

/* Creates a table of columns between '|'; each begins with '<' (left) or '>' (right). */
struct ht_table *ht_table_create(const char *header);
void ht_table_cell(struct ht_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a cell "39.06 GB", or "-" for less than 0 and "no limit" for INT64_MAX. */
void ht_table_bytes(struct ht_table *t, int64_t bytes);
/* Prints a table and destroys it. */
void ht_table_print(struct ht_table *t, const char *indent, FILE *out);
void ht_table_destroy(struct ht_table *t); /* accepts NULL */

#endif
