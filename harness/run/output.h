/*
 * Files that are either whole or not there: written beside their place under a temporary name, moved there when done.
 * A command that fails or is interrupted leaves nothing behind; one that is killed, or that ends because the system has no
 * memory, may leave a file that ends in ".partial".
 *
 * Links are followed first: the link stays and its target is replaced, or made where it does not exist. A file that is
 * replaced keeps its mode, and its owner as far as we may set it; other hard links to it keep the old contents. What is
 * no plain file is written to and never replaced: devices, pipes, and the process's own descriptors (/dev/stdout,
 * /dev/fd/N), also when a plain file is behind them.
 */
#ifndef HT_HARNESS_RUN_OUTPUT_H
#define HT_HARNESS_RUN_OUTPUT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

enum { HT_PATH_BYTES = 4096 };

/* Where a path leads. */
struct ht_target {
    char path[HT_PATH_BYTES]; /* with its last component no link, unless it is a descriptor's */
    int fd;                   /* the descriptor of this process that the path names, or -1 */
    bool descriptor;          /* it names a descriptor, of this process or another */
    bool exists;
    struct stat st; /* where it exists */
};

struct ht_output {
    FILE *file; /* write here */
    char path[HT_PATH_BYTES];
    char target[HT_PATH_BYTES], partial[HT_PATH_BYTES]; /* partial is empty: the target is written to directly */
};

/* Follows links. HT_BAD_INPUT when they go in a circle or the path is too long; a missing file is no error. */
enum ht_status ht_target_find(const char *path, struct ht_error *err, struct ht_target *out);

/* HT_BAD_INPUT when the path cannot be written: it is what the user named. */
enum ht_status ht_output_open(const char *path, struct ht_error *err, struct ht_output *out);
/* Whether it could be opened, so that hours of work do not end in a path with a typing error. Leaves nothing behind. */
enum ht_status ht_output_check(const char *path, struct ht_error *err);
/* Whether a rank that is to be started could write it; it opens what this process has open anew, by the descriptor's
   number in mpirun. That is no way to write a plain file, which others may be writing. path may be NULL. */
enum ht_status ht_output_check_ranks(const char *path, struct ht_error *err);
/* Moves the file to its place; HT_FAILED (and nothing left) when any write failed. */
enum ht_status ht_output_commit(struct ht_output *out, struct ht_error *err);
void ht_output_discard(struct ht_output *out);

/* Writes out standard output: HT_FAILED when that or an earlier write failed, unless `status` is an error already. */
enum ht_status ht_flush_stdout(enum ht_status status, struct ht_error *err);

/* mkdir -p. */
enum ht_status ht_make_directory(const char *path, struct ht_error *err);

#endif
