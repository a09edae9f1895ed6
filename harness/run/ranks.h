/*
 * Training over several ranks: one process a device, started by hetbench itself (common/comm/launch.h) or by the user's
 * mpirun. Only rank 0 says anything.
 */
#ifndef HT_HARNESS_RUN_RANKS_H
#define HT_HARNESS_RUN_RANKS_H

#include "common/comm/comm.h"
#include "common/comm/hosts.h"
#include "common/exec/node.h"
#include "common/exec/residents.h"
#include "harness/run/job.h"

struct ht_ranks {
    struct ht_comm *comm; /* NULL: there is one rank */
    struct ht_node *node;
    struct ht_hosts hosts; /* with comm */
    int launcher;          /* ht_launch_begin's */
    int events;            /* of --events, open in every process; -1: none */
};

/* Joins the other ranks in a process that mpirun started as one of several. Called before anything is printed. */
enum ht_status ht_ranks_open(struct ht_error *err, struct ht_ranks *out);
/* Return the number of ranks, and this process's. */
int32_t ht_ranks_count(const struct ht_ranks *ranks);
int32_t ht_ranks_me(const struct ht_ranks *ranks);
/* Sets *launch if the job has several ranks and this process is not one of them: then call ht_ranks_launch. Returns
   HT_BAD_INPUT if mpirun started another number of ranks, or ranks of one node on different hosts, if --hosts and
   --hostfile are both given, or one of them for a job of one rank. */
enum ht_status ht_ranks_wanted(const struct ht_ranks *ranks, const struct ht_options *options, const struct ht_job *job,
                               struct ht_error *err, bool *launch);
/* Returns the file of events in the process that prints for all; -1 in others, and if there is none. */
int ht_ranks_events(const struct ht_ranks *ranks);

/* Starts this very command line as the job's ranks, on this machine or on the options' hosts. Blocks until they have
   ended, and says in the file of events who was lost. Returns HT_BAD_INPUT if the hosts cannot be read or have too few slots. */
enum ht_status ht_ranks_launch(const struct ht_ranks *ranks, const struct ht_options *options, const struct ht_job *job,
                               struct ht_error *err);

/* Agrees on a status. All ranks call it at the same point, whatever has happened before. Returns HT_OK when all are
   well, else the same error on all. */
enum ht_status ht_ranks_agree(const struct ht_ranks *ranks, enum ht_status status, struct ht_error *err);

/* Returns this rank's index among those of its host, of *n. */
int32_t ht_ranks_local(const struct ht_ranks *ranks, int32_t *n);

struct ht_engine; /* harness/run/engine.h */
/* Makes the memory that the node's ranks share, and takes that of the engine's GPU. A device's arena has the given size, the
   others the most that any run can use. */
enum ht_status ht_ranks_make_node(struct ht_ranks *ranks, const struct ht_job *job, struct ht_engine *engine,
                                  struct ht_error *err);
/* Frees it; called before the job is freed. After a failure the memory stays until the process ends: messages may be
   under way. */
void ht_ranks_free_node(struct ht_ranks *ranks);
/* Creates the residents: ht_residents_create in the arenas, or ht_residents_create_ranks. */
enum ht_status ht_ranks_make_residents(const struct ht_ranks *ranks, const struct ht_schedule *s,
                                       struct ht_arena **arenas, struct ht_error *err, struct ht_residents **out);
/* Runs the schedule: ht_run, or ht_run_ranks. */
enum ht_status ht_ranks_run(const struct ht_ranks *ranks, const struct ht_schedule *s, const struct ht_run_options *o,
                            struct ht_error *err, struct ht_trace **trace);
/* Sends rank 0's data to all ranks. */
enum ht_status ht_ranks_broadcast(const struct ht_ranks *ranks, int32_t tag, void *data, int64_t bytes,
                                  struct ht_error *err);
/* Gathers every rank's `bytes` of `mine` in `all`, on all ranks. */
enum ht_status ht_ranks_gather(const struct ht_ranks *ranks, int32_t tag, const void *mine, int64_t bytes, void *all,
                               struct ht_error *err);
/* Sums each number over the ranks, on rank 0. */
enum ht_status ht_ranks_sum(const struct ht_ranks *ranks, double *numbers, int64_t n, struct ht_error *err);
/* Gathers the arenas' peaks and extents by space on rank 0, -1 for a space that keeps nothing; other ranks' are
   void. own: the arenas of a process alone. */
enum ht_status ht_ranks_arenas(const struct ht_ranks *ranks, const struct ht_schedule *s, struct ht_arena **own,
                               int64_t *peak_bytes, int64_t *extent_bytes, struct ht_error *err);
/* Gathers the most memory that each rank's process has had resident, shared pages included, as the kernel
   counts it (VmHWM): bytes [ranks], 0 where the kernel does not tell. */
enum ht_status ht_ranks_resident_peaks(const struct ht_ranks *ranks, int64_t *bytes, struct ht_error *err);
/* Returns true in the process that prints for all. */
bool ht_ranks_speaks(const struct ht_ranks *ranks);

/* Leaves the ranks with the command's status and returns the process's. After a failure that left others waiting it
   ends all of them instead of returning. */
enum ht_status ht_ranks_close(struct ht_ranks *ranks, enum ht_status status, struct ht_error *err);

#endif
