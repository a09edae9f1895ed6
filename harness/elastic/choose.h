/*
 * Which of the nodes that there are a training uses: all, if the system can plan for them, else as many as it can. Batch and data
 * stay; a batch that does not divide over three nodes may over two. The answers for each single loss are found beforehand, on a
 * thread of their own, while the training goes on.
 *
 * A choice that is found beforehand is also handed to `train`, as --set for each of the plan's variables. They are tried first: only
 * if they lead to the same graph, to the bit, are they handed over. Else `train` plans anew.
 *
 * With --policy the policy chooses instead (policy_plan.h).
 */
#ifndef HT_HARNESS_ELASTIC_CHOOSE_H
#define HT_HARNESS_ELASTIC_CHOOSE_H

#include "harness/elastic/members.h"
#include "harness/run/job.h"

struct ht_choice {
    char of[HT_MEMBER_LIST], use[HT_MEMBER_LIST]; /* the nodes that there are, and those that are used */
    int32_t n_ranks, *rank_node;                  /* [n_ranks]: the number of each rank's node; of the chooser */
    char *sets[HT_MAX_SET];                       /* [n_sets] "c=3", in place of the planner; of the chooser */
    int32_t n_sets, n_tried;                      /* 0: `train` plans by itself; written, and not tried yet */
    uint64_t graph;                               /* ht_schedule_hash of the plan's */
    bool taken;                                   /* the supervisor is about to start it: the thread leaves it alone */
    bool beforehand;                              /* the answer was there when it was asked for */
    enum ht_status status;                        /* with `error`, why no nodes can be used */
    struct ht_error error;
};

struct ht_chooser;
/* Creates a chooser. HT_BAD_INPUT if --policy names none, or one that plans with another system. */
enum ht_status ht_chooser_create(const struct ht_options *options, struct ht_error *err, struct ht_chooser **out);
void ht_chooser_destroy(struct ht_chooser *c); /* accepts NULL */

/* Chooses among these nodes. Waits for the thread if that is at it. Returns the status of the first, largest, choice if there is
   none. */
enum ht_status ht_choose(struct ht_chooser *c, const char *nodes, struct ht_error *err, const struct ht_choice **out);
/* Notes that these nodes are used from now on: a policy moves to others only where those are faster. */
void ht_chooser_keep(struct ht_chooser *c, const char *nodes);
/* Readies a choice for `train` while there is time. Accepts nodes that have none. */
void ht_choose_ready(struct ht_chooser *c, const char *nodes);
/* Begins to choose for each loss of one of these nodes, and to ready these choices and that of all of them. No choice that was returned
   before may be started after this without being asked for again. */
void ht_choose_ahead(struct ht_chooser *c, const char *nodes);

#endif
