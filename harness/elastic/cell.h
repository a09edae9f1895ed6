/*
 * A cell: a process with PID, mount and IPC namespaces of its own, its own /proc and an empty /dev/shm. Nothing of the machine's other
 * programs is in it, so all that is found there was left by the cell's own; and with its first process the kernel ends all others and
 * removes its mounts. It may mount file systems.
 *
 * Cells need root, or a kernel that lets users make user namespaces, and the right to mount.
 */
#ifndef HT_HARNESS_ELASTIC_CELL_H
#define HT_HARNESS_ELASTIC_CELL_H

#include "common/base/status.h"

#include <stdbool.h>

/* Runs a function as the first process of a cell, or here where no cell can be made. sealed: it is in a cell. Returns the function's
   status and error. Output of both is this process's. Ctrl-C reaches the function. */
typedef enum ht_status (*ht_cell_program)(void *ctx, bool sealed, struct ht_error *err);
enum ht_status ht_cell_run(ht_cell_program program, void *ctx, struct ht_error *err);

/* Waits for processes that have ended below the first process of a cell. */
void ht_cell_reap(void);

#endif
