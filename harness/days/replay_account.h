/*
 * What a replay's incarnations did, from their files of events (harness/run/events.h) in their order: which steps count in the end,
 * how long they and the saves took, and what stopping and starting took.
 */
#ifndef HT_HARNESS_DAYS_REPLAY_ACCOUNT_H
#define HT_HARNESS_DAYS_REPLAY_ACCOUNT_H

#include "common/base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Times on CLOCK_REALTIME. */
struct ht_step_time {
    int64_t step, ns; /* from the end of the step before it, of a save in between, or of loading: see MIN_STEPS */
};
struct ht_replay_account {
    int64_t end_ns;              /* later events do not count */
    struct ht_step_time *useful; /* [n_useful] by step: those that no later incarnation has done again */
    size_t n_useful, useful_cap;
    int64_t useful_ns, lost_steps, lost_ns;
    int64_t saves, stall_ns; /* from the end of the step before */
    int64_t last_step;       /* that any incarnation has ended, after the end as well */
    int64_t *saved_ns;       /* [saves] their ends, ascending */
    size_t n_saved, saved_cap;
    int64_t starts; /* incarnations with at least MIN_STEPS steps, */
    int64_t
        first_excess_ns; /* and by how much their first steps were longer than the mean of their others, in all: no step's time */
};

/* Takes an incarnation's file of events. A line that is no event is left out. HT_FAILED if it cannot be read. */
enum ht_status ht_replay_account_take(struct ht_replay_account *a, const char *path, struct ht_error *err);
void ht_replay_account_free(struct ht_replay_account *a);

/* Parts of recoveries, in seconds: means. A part that nothing was measured of is 0. */
struct ht_replay_parts {
    double detect_s, plan_s;   /* after losses */
    double relaunch_s, load_s; /* the former with what first steps take longer than others */
    double stop_s, stall_s;    /* of processes after the save of a change; of a save */
    int64_t losses, changes;   /* recoveries */
    int64_t saves;
};
/* Returns the means over two lists, of one's recoveries and the other's. */
struct ht_replay_parts ht_replay_parts_of_both(const struct ht_replay_parts *a, const struct ht_replay_parts *b);
/* Finds the parts of a supervisor's list of recoveries. Multiplied by `speed`. */
struct ht_replay_parts ht_replay_parts(const struct ht_replay_account *a, const json_t *recoveries, double speed);

#endif
