/*
 * Output files appear whole or not at all: they are written under a temporary name beside the target and moved there
 * when done. A command that fails or is interrupted leaves nothing behind; one that is killed, or that ends because the
 * system has no memory, may leave a file that ends in ".partial".
 *
 * Links are followed first: the link stays and its target is replaced, or made where it does not exist. A file that is
 * replaced keeps its mode, and its owner as far as we may set it; other hard links to it keep the old contents.
 * Devices, pipes and the process's own descriptors (/dev/stdout, /dev/fd/N) are written to and never replaced, also
 * when a plain file is behind them.
 */
#ifndef HT_HARNESS_RUN_OUTPUT_H
#define HT_HARNESS_RUN_OUTPUT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

enum { HT_PATH_BYTES = 4096 };

/* The target of a path. */
struct ht_target {
    char path[HT_PATH_BYTES]; /* its last component is not a link, unless it is a descriptor's */
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

/* Follows links. HT_BAD_INPUT when they go in a circle or the path is too long; a missing file is not an error. */
enum ht_status ht_target_find(const char *path, struct ht_error *err, struct ht_target *out);

/* Opens a path to write. Returns HT_BAD_INPUT when it cannot be written, as the user named it. */
enum ht_status ht_output_open(const char *path, struct ht_error *err, struct ht_output *out);
/* Checks that a path could be opened, so that hours of work do not end in a mistyped path. Leaves nothing behind. */
enum ht_status ht_output_check(const char *path, struct ht_error *err);
/* The same, for a file that others replace: devices, pipes and descriptors are refused, too. */
enum ht_status ht_output_check_plain(const char *path, struct ht_error *err);
/* Checks that a rank still to be started could write a path. A rank reopens this process's descriptors by their numbers
   in mpirun; a plain file behind one is refused, since others may be writing it. path may be NULL. */
enum ht_status ht_output_check_ranks(const char *path, struct ht_error *err);
/* Moves the file to its target. Returns HT_FAILED, with nothing left, when any write failed. */
enum ht_status ht_output_commit(struct ht_output *out, struct ht_error *err);
void ht_output_discard(struct ht_output *out);
/* Commits the file if it was written well; else discards it and puts its path before the error. */
enum ht_status ht_output_end(struct ht_output *out, enum ht_status written, struct ht_error *err);

/* Flushes standard output. Returns HT_FAILED when that or an earlier write failed, unless `status` is an error
   already. */
enum ht_status ht_flush_stdout(enum ht_status status, struct ht_error *err);

/* Checks that the directory can be written, or made with its parents; makes nothing. Returns HT_BAD_INPUT if not. */
enum ht_status ht_directory_check(const char *path, struct ht_error *err);
/* Makes a directory and its parents (mkdir -p). */
enum ht_status ht_make_directory(const char *path, struct ht_error *err);

#endif
