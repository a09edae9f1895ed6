/*
 * Files that are either whole or not there: written beside their place under a temporary name, moved there when done.
 * A command that fails or is interrupted leaves nothing behind.
 */
#ifndef HT_HARNESS_OUTPUT_H
#define HT_HARNESS_OUTPUT_H

#include "common/base/status.h"

#include <stdio.h>

struct ht_output {
    FILE *file; /* write here */
    char path[4096], partial[4128];
};

/* HT_BAD_INPUT when the path cannot be written: it is what the user named. */
enum ht_status ht_output_open(const char *path, struct ht_error *err, struct ht_output *out);
/* Whether it could be opened, so that hours of work do not end in a path with a typing error. Leaves nothing behind. */
enum ht_status ht_output_check(const char *path, struct ht_error *err);
/* Moves the file to its place; HT_FAILED (and nothing left) when any write failed. */
enum ht_status ht_output_commit(struct ht_output *out, struct ht_error *err);
void ht_output_discard(struct ht_output *out);

/* Writes out standard output: HT_FAILED when that or an earlier write failed, unless `status` is an error already. */
enum ht_status ht_flush_stdout(enum ht_status status, struct ht_error *err);

/* mkdir -p. */
enum ht_status ht_make_directory(const char *path, struct ht_error *err);

#endif
