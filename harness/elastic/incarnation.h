/*
 * An incarnation: one `hetbench train .. --resume`, from its start to the end of its last process. What it does is read from its file
 * of events (harness/run/events.h); what it prints goes to a log.
 *
 * All its processes have the variable HETBENCH_ELASTIC, and the kernel kills the first of them with the supervisor, which ends the
 * others (common/comm/launch.h). A supervisor that starts again ends what is still there before it goes on.
 */
#ifndef HT_HARNESS_ELASTIC_INCARNATION_H
#define HT_HARNESS_ELASTIC_INCARNATION_H

#include "common/base/status.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HT_ELASTIC_VARIABLE "HETBENCH_ELASTIC"

enum { HT_RUN_NAME = 24 };

struct ht_incarnation {
    char events[PATH_MAX], log[PATH_MAX];
    pid_t pid;
    int fd;
    char line[1024]; /* of the events, not ended yet */
    size_t n_line;

    /* times on CLOCK_REALTIME, 0: not yet */
    int64_t started_ns, ranks_ns, planned_ns, loaded_ns, first_ns, last_ns, fault_ns, ended_ns; /* last: sign of life */
    int64_t plan_ns; /* that the planner took in the launcher and in rank 0, one after the other */
    /* the steps that it began with, last ended, last saved in the nodes' first stores, and last in all stores; -1: none */
    int64_t from, step, saved, safe;
    bool broken; /* the stores had no whole step to go on from */
    char run[HT_RUN_NAME], from_run[HT_RUN_NAME];
    double predicted_s, longest_s; /* an iteration's, predicted and as measured until now */
    int64_t step_ns;               /* when the last step ended */
    bool saving, saved_last;       /* the last event was that a save begins, or is whole */
    char last_event[16];
    double silent_s; /* the longest time without an event until the job was planned */
    bool stopping;
    double heard_s, stopped_s; /* the last event was read, the stop was asked for; on ht_now_s's clock */
    int32_t lost_rank;         /* -1: none */
    char lost_host[256];       /* "": none */
    int waited;                /* waitpid's, once ended_ns is set */
};

/* Writes the path of an incarnation's file of events. */
void ht_incarnation_events(const char *folder, int64_t number, char path[PATH_MAX]);
/* Starts `argv` (NULL last) for the supervisor whose folder `folder` is. number: the incarnation's. */
enum ht_status ht_incarnation_start(struct ht_incarnation *x, const char *folder, int64_t number, char *const *argv,
                                    struct ht_error *err);
/* Reads new events. */
void ht_incarnation_read(struct ht_incarnation *x);
/* Returns true once the process that was started has ended. */
bool ht_incarnation_has_ended(struct ht_incarnation *x);
/* Asks it to save and end. */
void ht_incarnation_stop(struct ht_incarnation *x);
/* Visits the processes of a folder's incarnations, this one apart. Returns their number. */
int32_t ht_incarnation_each(const char *folder, void (*visit)(void *ctx, pid_t pid), void *ctx);
/* Kills what is left of a folder's incarnations, and waits until it is gone. Returns the number of processes that were killed. */
int32_t ht_incarnation_clear(const char *folder);
void ht_incarnation_close(struct ht_incarnation *x);

/* Returns the exit status, or HT_FAILED if a signal ended it. *err gets its last line on standard error. */
enum ht_status ht_incarnation_status(const struct ht_incarnation *x, struct ht_error *err);

#endif
