/*
 * Which of the nodes that there are a training uses: all, if the system can plan for them, else as many as it can. Batch and data
 * stay; a batch that does not divide over three nodes may over two. The answers for each single loss are found beforehand, on a
 * thread of their own, while the training goes on.
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
/* Begins to choose for each loss of one of these nodes. */
void ht_choose_ahead(struct ht_chooser *c, const char *nodes);

#endif
