/*
 * What a recovery took, in parts that are measured apart:
 *
 *     detection    from the fault to the end of the job's last process. Where the fault's moment is not known, from the job's last
 *                  sign of life; after a stop that was asked for, from then on, the save included
 *     waiting      for as many nodes as are needed at least
 *     planning     the choice of nodes, and what the planner takes in the launcher and then in the ranks, which plan alike. Where the
 *                  plan was made beforehand, the choice is there and they only check it
 *     relaunch     all else until the new ranks have built and proved the job
 *     loading      to their having the state in memory
 *     first step   to the end of the first new step
 */
#ifndef HT_HARNESS_ELASTIC_RECOVERY_H
#define HT_HARNESS_ELASTIC_RECOVERY_H

#include "harness/elastic/incarnation.h"
#include "harness/elastic/journal.h"

#include <stdio.h>

struct ht_recovery {
    bool open;                                /* waits for the first new step */
    char cause[200], before[256], after[256]; /* the nodes */
    int64_t fault_ns, ended_ns;               /* on CLOCK_REALTIME */
    int64_t waiting_ns, choosing_ns;          /* that nodes were waited for; that the choice took */
    int64_t at_step;                          /* the last that had ended */
    bool beforehand, handed_over;             /* the plan was there; `train` got it */
};

/* Adds a recovery to the journal's list when its incarnation has ended a step (whole), or has failed before that. */
void ht_recovery_close(struct ht_recovery *r, const struct ht_incarnation *x, struct ht_journal *j);
/* Prints the list as a table, with medians. */
void ht_recoveries_print(const json_t *list, FILE *out);
/* Prints each part's median and worst. */
void ht_recoveries_print_parts(const json_t *list, FILE *out);

#endif
