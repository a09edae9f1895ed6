/*
 * Starting a program as several ranks, and how the ranks say how it ended.
 *
 *     program ARGS             ht_launch: starts mpirun with the same ARGS, waits
 *       '-- mpirun             a process group of its own, so Ctrl-C reaches the launcher alone, which sends SIGUSR1
 *             |-- rank 0       ht_launched_ranks() > 0; ht_launch_report says how it ended, in the launcher's folder
 *             '-- rank 1 ..
 *
 * Whoever dies takes the others along: mpirun ends all ranks when one is gone, ranks and mpirun ask the kernel for a
 * signal when their parent is, and what mpirun leaves behind the launcher adopts and ends. A second Ctrl-C ends mpirun,
 * and so all, at once. The launcher's folder (in TMPDIR or /tmp) has all of MPI's files and goes with the
 * launcher; nothing is put into /dev/shm.
 *
 * A user's own mpirun works as well: ranks then report by their exit codes.
 */
#ifndef HT_COMM_LAUNCH_H
#define HT_COMM_LAUNCH_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* How many ranks mpirun started this process among; 0 when it was not. */
int32_t ht_launched_ranks(void);

/* Starts `ranks` processes /proc/self/exe with these arguments (argv[0] first, NULL last) and waits for their end.
   What the ranks reported, with their text; HT_FAILED when they ended without a word (one was killed); HT_INFEASIBLE
   when there is no mpirun. No process of theirs is left when it returns. It takes SIGINT and SIGTERM over from
   ht_interrupt_install. */
enum ht_status ht_launch(int32_t ranks, char *const argv[], struct ht_error *err);

/* In a rank, first: its end is tied to mpirun's, and an interrupt that is passed on is taken as one. */
void ht_launch_begin(void);
/* In a rank: how the program ended; the first word of any rank counts. True: a launcher takes it, so the process is to
   exit with 0. False: there is none. */
bool ht_launch_report(enum ht_status status, const struct ht_error *err);

#endif
