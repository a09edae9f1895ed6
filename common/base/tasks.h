/*
 * Independent tasks over the machine's processors: points of an experiment, rows of a comparison, simulations of one graph.
 *
 * Tasks start in the order of their estimated memory, the largest first, so that no long one is left over at the end. A
 * task waits until its estimate fits the budget beside those that run; one that is larger than the budget runs alone.
 *
 * An error ends the run: no task starts any more, those that run finish. The first error is returned, and Ctrl-C is one
 * (HT_INTERRUPTED), but a real error replaces it.
 *
 * A run of more than 2 s shows on stderr how far it is: on a terminal in one line that is rewritten and wiped out at the
 * end, else in a line every 5 s. It says how much time is left if the rest takes as long, for its estimated memory, as what
 * is done. A quick run says nothing.
 *
 * Tasks of a task run on its thread, one after the other, and show nothing: the processors have work already.
 */
#ifndef HT_BASE_TASKS_H
#define HT_BASE_TASKS_H

#include "common/base/status.h"

#include <stddef.h>

struct ht_tasks {
    const char *name, *noun; /* of the progress: "NAME: 3 of 14 NOUN" */
    size_t n;
    const double *bytes; /* [n] estimated memory of each task; NULL: none, and tasks start in their own order */
    void *ctx;           /* passed to the functions below */

    /* Runs task i. Several threads call it at once, each i once. */
    enum ht_status (*run)(void *ctx, size_t i, struct ht_error *err);
    /* Records that task i has succeeded. Called under a lock, one call at a time; an error counts as one of run.
       NULL: nothing to do. */
    enum ht_status (*finished)(void *ctx, size_t i, struct ht_error *err);

    int n_threads;       /* 0: one for each processor that the process may use */
    double memory_bytes; /* the budget; 0: half of the machine's memory */
};

/* Runs all tasks and returns when none is running. HT_INTERRUPTED says in *err how many have succeeded. */
enum ht_status ht_tasks_run(const struct ht_tasks *tasks, struct ht_error *err);

/* Writes "NAME: 3 of 14 NOUN, about 40 s left" into buf and returns it. share: of the work that is done, 0 to 1. */
enum { HT_PROGRESS_TEXT = 160 };
const char *ht_progress_text(const struct ht_tasks *tasks, size_t n_done, double share, double elapsed_s,
                             char buf[HT_PROGRESS_TEXT]);

#endif
