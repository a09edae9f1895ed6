/*
 * The process between a launcher and mpirun. It starts mpirun, follows the ranks, and ends all of them when one of them
 * or the launcher has died. Only the launcher has the other end of the keeper's socket, so the keeper knows at once.
 *
 *     launcher  -- socket --  keeper  --  mpirun  --  ranks
 *                                '------ a socket each ------'
 *
 * It has a session of its own, which a terminal's signals do not reach, and ignores signals that ask it to end.
 */
#ifndef HT_COMM_LAUNCH_KEEPER_H
#define HT_COMM_LAUNCH_KEEPER_H

#include "common/base/status.h"

#include <stdint.h>

struct ht_keeper_job {
    char **command; /* mpirun's arguments, NULL last */
    int32_t ranks;
    const char *folder; /* for MPI's files; the keeper removes it */
    const char *name;   /* this launcher's, in HT_LAUNCHER_VARIABLE */
};

struct ht_keeper_report {
    struct ht_error outcome;
    int32_t lost; /* the first rank that died without a report; -1: none, or not known */
};

/* Runs the keeper in a child process: does the job, sends the launcher one report, and exits.
   A byte from the launcher is an interrupt: the first is passed on to the ranks, the second ends all. */
_Noreturn void ht_keeper(const struct ht_keeper_job *job, int launcher);

/* Kills the children of this process that were started for the launcher `name`, and those they leave behind, until none
   is left; this process is their subreaper. Gives up after some seconds, because the kernel may hold a process. */
void ht_keeper_end_children(const char *name);
void ht_keeper_remove(const char *folder);

#endif
