/*
 * Starting a program as several ranks, and how the ranks say how it ended.
 *
 *     program ARGS                  ht_launch: waits, passes interrupts on
 *       '-- the keeper              a session of its own, so Ctrl-C reaches the launcher alone (launch_keeper.h)
 *             '-- mpirun            with the same ARGS
 *                   |-- rank 0      ht_launched_ranks() > 0; ht_launch_report says how it ended
 *                   '-- rank 1 ..
 *
 * Each process takes the others along when it dies. The keeper knows at once that a rank or the launcher has died, since each holds
 * a socket to it: it gives mpirun some seconds to end the others, then kills all. The kernel kills mpirun when the
 * keeper dies, and the ranks when mpirun does; those that have not asked for that yet the launcher adopts and kills. A
 * second Ctrl-C ends all at once.
 *
 * The folder in TMPDIR or /tmp, hetbench-ranks-*, has all of MPI's files; nothing is put into /dev/shm. The keeper
 * removes it, or the launcher when the keeper was killed, or the next launch when both were.
 *
 * The ranks write to the launcher's own standard output and standard error. What mpirun prints is shown, as one line,
 * only when no rank has said more.
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
/* Whether ht_launch did, and not a user's own mpirun. */
bool ht_launched_here(void);

/* Starts `ranks` processes /proc/self/exe with these arguments (argv[0] first, NULL last) and waits for their end.
   Returns the first error that a rank reported, with its text; HT_FAILED when one died without a report; HT_INFEASIBLE
   when there is no mpirun, and when a rank ran out of memory. No process of theirs is left when it returns. Takes SIGINT,
   SIGTERM and SIGHUP over from ht_interrupt_install. */
enum ht_status ht_launch(int32_t ranks, char *const argv[], struct ht_error *err);

/* In a rank, first: ties its end to mpirun's and takes interrupts that the launcher passes on. Returns the connection
   to the launcher; -1: there is none. Ends the process when the launcher has gone already. */
int ht_launch_begin(void);
/* In a rank, when MPI has started: makes the launcher's standard output and standard error this process's. Before, both
   are mpirun's, which prints what is of use to it alone. */
void ht_launch_take_streams(int launcher);
/* In a rank, last: reports how the program ended, HT_OK as well; a rank that ends without it counts as killed. True: a
   launcher prints it, so the process is to exit with 0. False: there is none. */
bool ht_launch_report(int launcher, enum ht_status status, const struct ht_error *err);

#endif
