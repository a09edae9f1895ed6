/* Finds what a training has left behind: processes, files in /dev/shm, mounts, temporary files. In a cell (cell.h) all processes, files
   and mounts are its own; elsewhere processes are known by their TMPDIR, mounts by their path, and /dev/shm is not looked at. */
#ifndef HT_HARNESS_ELASTIC_LEFT_H
#define HT_HARNESS_ELASTIC_LEFT_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Checks a folder whose processes had DIR/tmp as their TMPDIR. nodes: "0,2", the nodes of its last incarnation: stores of others may
   have half-written files, which their next training removes; NULL: none. mount: one in the
   folder that may stay; NULL: none. Processes that are about to end have grace_ms; those that do not
   are killed. HT_FAILED says what is left. */
enum ht_status ht_left_check(const char *dir, const char *nodes, const char *mount, bool sealed, int64_t grace_ms,
                             struct ht_error *err);

#endif
