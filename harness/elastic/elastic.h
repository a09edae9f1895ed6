/*
 * The supervisor of a training that outlives its nodes. Each incarnation is an ordinary `hetbench train .. --resume` over the nodes
 * that there are; anybody can repeat one by hand, as its log begins with its command. The state goes from one to the next through
 * node stores (common/store/store.h): the new ranks read what survives, in whatever layout it is.
 *
 *                    enough nodes            its first step                     exit status 0
 *     WAITING  ------------------->  STARTING  ----------->  TRAINING  ----------------------------->  the end
 *        ^                              |                     |      |
 *        |       a loss, a failure, a hang                    |      |  a join, a notice, Ctrl-C
 *        +------------------------------+---------------------+      v
 *        +-------------------------------------------------------  STOPPING: it saves and ends
 *
 * What the decisions rest on, beside these states, is in the journal, so a supervisor that was killed goes on where it was.
 */
#ifndef HT_HARNESS_ELASTIC_ELASTIC_H
#define HT_HARNESS_ELASTIC_ELASTIC_H

#include "harness/run/options.h"

/* Trains to the last step, whatever is lost on the way. own_group: of the options that are not the training's. Returns HT_OK after
   the last step; the error that came again and again at one step; HT_INFEASIBLE if there are too few nodes for too long;
   HT_INTERRUPTED after Ctrl-C, with the state saved. */
enum ht_status ht_elastic_run(const struct ht_options *options, unsigned own_group, struct ht_error *err);

#endif
