/*
 * A local day (replay_map.h) that happens to real processes: a supervisor (`hetbench elastic --policy ..`) trains under the emulated
 * clock, and from outside, at the day's times divided by `speed`,
 *
 *     joined      the file of hosts names the node
 *     lost        it no longer does; then the node's ranks are killed, SIGKILL, and its stores removed
 *     notice      the file of notices names it, for policies that save on notice
 *
 * In DIR:  store/ remote/   of the supervisor
 *          hosts, notice    that it reads
 *          elastic.txt      that it prints
 *          events-K.jsonl   of its incarnations, all of them
 *          tmp/             TMPDIR
 */
#ifndef HT_HARNESS_DAYS_REPLAY_RUN_H
#define HT_HARNESS_DAYS_REPLAY_RUN_H

#include "harness/days/replay_account.h"
#include "harness/days/replay_map.h"
#include "harness/elastic/policy.h"
#include "harness/run/options.h"

#include <jansson.h>

struct ht_replay_run {
    const struct ht_options *options; /* of the training: `given` has what the supervisor is to be given */
    const struct ht_policy *policy;
    const struct ht_local_day *day;
    const char *dir;           /* is made */
    double speed;              /* modelled seconds a second */
    int32_t keep_nodes;        /* of a policy that keeps its shape */
    int64_t steps;             /* more than it can do in the day */
    double remote_bytes_per_s; /* modelled, of all nodes together; 0: no limit */
    const int32_t *node_gpus;  /* [day->n_local] */

    struct ht_replay_account account; /* out */
    json_t *recoveries;               /* out: the supervisor's, at the day's end */
    int64_t incarnations, kills;      /* out; kills: of processes */
    double wall_s;                    /* out */
};

/* Runs it to the day's end; the supervisor is then asked to save and end. The caller frees it with ht_replay_run_free. */
enum ht_status ht_replay_run(struct ht_replay_run *r, struct ht_error *err);
/* Goes on for one step with all nodes and no clock, so that DIR/losses.csv has all losses, and compares them (drills.h) with those of
   trainings of the same layouts without kills. *steps: their number. */
enum ht_status ht_replay_check(const struct ht_replay_run *r, struct ht_error *err, int64_t *steps);
void ht_replay_run_free(struct ht_replay_run *r);

#endif
