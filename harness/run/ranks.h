/*
 * Training over several ranks: one process a device, started by hetbench itself (common/comm/launch.h) or by the user's
 * mpirun. Only rank 0 says anything.
 */
#ifndef HT_HARNESS_RUN_RANKS_H
#define HT_HARNESS_RUN_RANKS_H

#include "common/comm/comm.h"
#include "common/exec/node.h"
#include "common/exec/residents.h"
#include "harness/run/job.h"

struct ht_ranks {
    struct ht_comm *comm; /* NULL: there is one rank */
    struct ht_node *node;
    int launcher; /* ht_launch_begin's */
};

/* In a process that mpirun started as one of several: joins the others. Before anything is printed. */
enum ht_status ht_ranks_open(struct ht_error *err, struct ht_ranks *out);
/* Is the job one of several ranks, and this process not one of them? Then ht_ranks_launch is next. HT_BAD_INPUT when
   mpirun started another number of them. */
enum ht_status ht_ranks_wanted(const struct ht_ranks *ranks, const struct ht_job *job, struct ht_error *err,
                               bool *launch);
/* This very command line, as the job's ranks; returns when they have ended. */
enum ht_status ht_ranks_launch(const struct ht_job *job, struct ht_error *err);

/* Every rank calls it at the same point of its way, whatever has happened so far: HT_OK if all are well, else the same
   error on all of them. */
enum ht_status ht_ranks_agree(const struct ht_ranks *ranks, enum ht_status status, struct ht_error *err);

/* What the node's ranks share: a device's arena has the size that was given, the others' the most that any run can use.
 */
enum ht_status ht_ranks_make_node(struct ht_ranks *ranks, const struct ht_job *job, struct ht_error *err);
/* Before the job goes. After a failure its memory stays until the process ends: messages may be under way. */
void ht_ranks_free_node(struct ht_ranks *ranks);
/* ht_residents_create in the arenas, or ht_residents_create_ranks. */
enum ht_status ht_ranks_make_residents(const struct ht_ranks *ranks, const struct ht_schedule *s,
                                       struct ht_arena **arenas, struct ht_error *err, struct ht_residents **out);
/* ht_run, or ht_run_ranks. */
enum ht_status ht_ranks_run(const struct ht_ranks *ranks, const struct ht_schedule *s, const struct ht_run_options *o,
                            struct ht_error *err, struct ht_trace **trace);
/* Rank 0 gets the sum over the ranks of each number. */
enum ht_status ht_ranks_sum(const struct ht_ranks *ranks, double *numbers, int64_t n, struct ht_error *err);
/* Of every space; -1 where nothing is kept. Rank 0 gets those of all nodes, other ranks need not look at theirs. */
enum ht_status ht_ranks_arenas(const struct ht_ranks *ranks, const struct ht_schedule *s, int64_t *peak_bytes,
                               int64_t *extent_bytes, struct ht_error *err);
/* Rank 0 gets the most memory that each rank's process has had resident, shared pages included, as the kernel counts it
   (VmHWM): bytes [ranks]; 0 where it is not told. */
enum ht_status ht_ranks_resident_peaks(const struct ht_ranks *ranks, int64_t *bytes, struct ht_error *err);
/* Does this process speak for all? */
bool ht_ranks_speaks(const struct ht_ranks *ranks);

/* The end, with the command's status; what the process is to return. After a failure that left others waiting it does
   not return, but ends all. */
enum ht_status ht_ranks_close(struct ht_ranks *ranks, enum ht_status status, struct ht_error *err);

#endif
