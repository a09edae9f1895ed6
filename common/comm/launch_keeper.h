/*
 * The process between a launcher and mpirun. It starts mpirun, follows the ranks, and ends all of them when one has
 * died or the launcher has: it holds one end of a socket whose other end only the launcher has, so it knows at once.
 *
 *     launcher  -- socket --  keeper  --  mpirun  --  ranks
 *                                '------ a socket each ------'
 *
 * It has a session of its own, which a terminal's signals do not reach, and ignores those that ask for an end.
 */
#ifndef HT_COMM_LAUNCH_KEEPER_H
#define HT_COMM_LAUNCH_KEEPER_H

#include "common/base/status.h"

#include <stdint.h>

struct ht_keeper_job {
    char **command; /* mpirun's, NULL last */
    int32_t ranks;
    const char *folder; /* MPI's files; the keeper removes it */
    const char *name;   /* of this launcher, HT_LAUNCHER_VARIABLE */
};

/* In the child: does the job, sends the launcher one struct ht_error with the outcome, and exits. A byte from the
   launcher is an interrupt: the first is passed on to the ranks, the second ends all. */
_Noreturn void ht_keeper(const struct ht_keeper_job *job, int launcher);

/* Kills the children of this process that were started for the launcher `name`, and what they leave behind, until there
   is none; this process is their subreaper. Gives up after some seconds: the kernel may hold a process. */
void ht_keeper_end_children(const char *name);
void ht_keeper_remove(const char *folder);

#endif
