/*
 * Starts a program as several ranks, and collects how they ended.
 *
 *     program ARGS                  ht_launch: waits, passes interrupts on
 *       '-- the keeper              a session of its own, so Ctrl-C reaches the launcher alone (launch_keeper.h)
 *             '-- mpirun            with the same ARGS
 *                   |-- rank 0      ht_launched_ranks finds N; ht_launch_report says how it ended
 *                   '-- rank 1 ..
 *
 * When one process dies, the others end. The keeper has a socket to each rank and to the launcher, so it knows at once
 * that one has died, and kills all. After a failure that a rank reports, others may report, too: mpirun has some seconds
 * to end them. The kernel kills mpirun when the
 * keeper dies, and the ranks when mpirun does. The launcher adopts and kills ranks that have not asked the kernel for
 * that yet. A second Ctrl-C ends all at once.
 *
 * The folder hetbench-ranks-* in TMPDIR or /tmp has all of MPI's files; nothing is put into /dev/shm. The keeper
 * removes it, or the launcher when the keeper was killed, or the next launch when both were.
 *
 * The ranks write to the launcher's own standard output and standard error. What mpirun prints is shown, as one line,
 * only when no rank reported more.
 *
 * A user's own mpirun works as well: ranks then report by their exit codes.
 *
 * Without Open MPI, or with HT_LAUNCH=local in the environment, this program itself is in mpirun's place
 * (launch_local.c), and the ranks' messages go over sockets (local.c): on one host only.
 */
#ifndef HT_COMM_LAUNCH_H
#define HT_COMM_LAUNCH_H

#include "common/comm/comm.h"

#include <stdbool.h>
#include <stdint.h>

/* Finds how many ranks a launcher started with this process: Open MPI's mpirun, or Slurm's srun, which starts them by
   PMIx. 0: no launcher did. Returns HT_BAD_INPUT if a launcher started several processes but MPI cannot join them. */
enum ht_status ht_launched_ranks(struct ht_error *err, int32_t *ranks);
/* Returns true when ht_launch started this process, and not a user's own mpirun. */
bool ht_launched_here(void);
/* Connects the ranks of the job: those that ht_launched_ranks finds, two or more. */
enum ht_status ht_launched_connect(struct ht_error *err, struct ht_comm **out);

/* Who was lost, when a job ended because of that. */
struct ht_launch_loss {
    int32_t rank;   /* that was killed; -1: not known, or none */
    char host[256]; /* over several hosts: the rank's, or the host that was lost itself; "": not known, or none */
};

/* Starts /proc/self/exe in `ranks` processes with these arguments (argv[0] first, NULL last) and waits for their end.
   Returns the first error that a rank reported, with its text; HT_FAILED when one died without a report; HT_INFEASIBLE
   when a rank ran out of memory. Fills in *loss. All their processes have ended when it returns. Takes SIGINT,
   SIGTERM and SIGHUP over from ht_interrupt_install. */
enum ht_status ht_launch(int32_t ranks, char *const argv[], struct ht_launch_loss *loss, struct ht_error *err);

struct ht_launch_where {
    const char *hosts; /* those of ht_host_slots */
    int64_t start_s;   /* ends the job when its start has not gone on for so long: mpirun waits for ever for a host
                          that is lost while it starts there */
};

/* Starts this program over several hosts (launch_hosts.c). Every host sees it, and all files that it names, under the
   same path. Returns the first error that a rank reported; HT_FAILED, naming the host, when a rank was killed or a host
   lost; HT_INFEASIBLE when mpirun is missing. */
enum ht_status ht_launch_hosts(int32_t ranks, const struct ht_launch_where *where, char *const argv[],
                               struct ht_launch_loss *loss, struct ht_error *err);

/* Runs Open MPI's daemon on a host, for mpirun: this program as `program HT_LAUNCH_GUARD SECONDS orted ..`. words:
   [SECONDS, orted, ..], NULL last. Ends the daemon when its connection to mpirun has not lived for so long, or has been
   silent for 5 s. Returns the exit code. */
#define HT_LAUNCH_GUARD "guard-daemon"
int ht_launch_guard(char *const *words);

/* Is in mpirun's place: starts this program as ranks and waits for them, as `program HT_LAUNCH_LOCAL N ARGS..`. words:
   [N, ARGS..], NULL last. Returns the exit code. */
#define HT_LAUNCH_LOCAL "start-ranks"
int ht_launch_local(char **words);

/* Begins a rank: ties its end to mpirun's and takes interrupts that the launcher passes on. Called first. Returns the
   connection to the launcher, or -1 in a process that no launcher started. Ends the process if the launcher has already
   gone. */
int ht_launch_begin(void);
/* Makes the launcher's standard output and standard error this rank's, or tells a launcher on another host that the
   ranks have begun. Called when MPI has started. Before, both streams are mpirun's, and what it prints there is of use
   to it alone. */
void ht_launch_take_streams(int launcher);
/* Reports how this rank ended, with HT_OK, too. Called last; a rank that ends without it counts as killed. Returns true
   when a launcher prints the error, so that the process should exit with 0; false when there is no launcher. */
bool ht_launch_report(int launcher, enum ht_status status, const struct ht_error *err);

#endif
