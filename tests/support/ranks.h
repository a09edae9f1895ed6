/* Tests on several ranks: a program that starts itself again under mpirun, as `program rank`. */
#ifndef HT_TESTS_SUPPORT_RANKS_H
#define HT_TESTS_SUPPORT_RANKS_H

#include "common/comm/comm.h"
#include "common/comm/launch.h"

#include <check.h>
#include <stdio.h>

/* Starts `ranks` ranks of this program and asserts that all end well. Passes in a build without MPI. */
static inline void launch_ranks(int32_t ranks)
{
    struct ht_error err = {0};
    char *argv[] = {"test", "rank", NULL};
    if (!ht_comm_has_mpi()) {
        puts("skipped: this build has no MPI");
        return;
    }
    struct ht_launch_loss loss;
    ck_assert_msg(ht_launch(ranks, argv, &loss, &err) == HT_OK, "%s", err.text);
}

/* Runs one rank, and reports to the launcher how it ended. Returns main's exit code. */
static inline int run_as_rank(enum ht_status (*run)(struct ht_comm *comm, struct ht_error *err))
{
    struct ht_comm *comm;
    struct ht_error err = {0};
    int launcher = ht_launch_begin();
    enum ht_status status = ht_launched_connect(&err, &comm);
    if (status) return 1;
    status = run(comm, &err);
    ht_launch_report(launcher, status, &err);
    if (atomic_load(&comm->cancelled)) ht_comm_abort(comm, 1);
    ht_comm_close(comm);
    return 0;
}

#endif
