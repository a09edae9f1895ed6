/*
 * --events FILE: a line of JSON for each thing that happens in a training, for whoever supervises it. Lines are appended, each at
 * once, with the time (CLOCK_REALTIME, since ranks may be on several hosts):
 *
 *     {"at_ns": 1732641600000000000, "event": "ranks", "n": 4}       MPI has started on all of them
 *     {.., "event": "plan", "ns": 1000}                                the planner took so long; said by the launcher and by rank 0
 *     {.., "event": "planned", "step_ns": 1000}                        the job is planned and proved; an iteration's predicted time
 *     {.., "event": "loaded", "step": 12, "run": "18a2..", "from": "18a1.."}
 *                                                                      the state of this step is in memory; the numbers of this
 *                                                                      run's versions, and of the one that was loaded
 *     {.., "event": "pulse", "ops": 4711}                              rank 0 has ended so many ops; four times a second at most
 *     {.., "event": "moved"}                                           rank 0 has loaded or saved some more of the state; likewise
 *     {.., "event": "step", "step": 13}                                has ended
 *     {.., "event": "saving", "step": 16}, {.., "event": "saved", "step": 16}
 *                                                                      a save begins, and is whole in the nodes' first stores
 *     {.., "event": "safe", "step": 16}                                the save is whole in all stores and on --replicas' other nodes
 *     {.., "event": "broken"}                                          there are steps, and none that could be resumed is whole
 *     {.., "event": "fault"}                                           a drill's (drill.h)
 *     {.., "event": "lost", "rank": 2}, {.., "event": "lost", "host": "b"}
 *                                                                      the launcher's: why all of them were ended
 */
#ifndef HT_HARNESS_RUN_EVENTS_H
#define HT_HARNESS_RUN_EVENTS_H

#include "common/base/status.h"

#include <stdbool.h>

/* Opens the file for appending. *fd is -1 for the path NULL. HT_BAD_INPUT if it cannot be written. */
enum ht_status ht_events_open(const char *path, struct ht_error *err, int *fd);
void ht_events_close(int fd);
/* Appends an event; `members` is what its JSON has beside time and name ("" or NULL: nothing), in printf's form. Does nothing for
   the descriptor -1. */
void ht_events_say(int fd, const char *event, const char *members, ...) __attribute__((format(printf, 3, 4)));

#endif
