/*
 * Enqueues ops on the streams of a device, ahead of their start. Internal to common/exec.
 *
 * Two threads handle an op of a lane that is a stream. The lane's issuer enqueues the op as soon as each of its
 * dependencies has ended or has been enqueued itself; the device then waits by itself for those that have not ended.
 * The lane's own thread waits for the end, once the core says that the op has started, and tells the core.
 *
 *     core        issue F4 (memory)  ............ start F4 ................ finish F4
 *     issuer              '--> enqueue F4 after C4
 *     stream                   [ waits for C4 ][ F4 ............ ]
 *     lane's thread                              wait for F4 ------------------'
 *
 * A lane's ops are enqueued in the order in which they were issued. An op that the backend runs by itself (is_async
 * says no) is treated like an op of any other lane: it runs when the core starts it, and later ops of the lane are
 * enqueued when it has ended. No rank's device waits for an op of another rank by an event: such a dependency must have
 * ended. Ranks wait for one another on their devices only within a group, each of whose members is enqueued by itself.
 */
#ifndef HT_EXEC_RUN_AHEAD_H
#define HT_EXEC_RUN_AHEAD_H

#include "common/exec/core.h"
#include "common/exec/run_slots.h"

#include <pthread.h>

struct ht_ahead;

/* The executor's own objects, borrowed. `lock` guards core and slots; "locked" below means that the caller holds it. */
struct ht_ahead_options {
    const struct ht_schedule *schedule;
    const struct ht_backend_ops *backend;
    void *backend_ctx;
    struct ht_core *core;
    struct ht_slots *slots;
    pthread_mutex_t *lock;
};

/* Creates the issuers, after the backend's open. *out is NULL when the backend has no streams. Returns HT_INFEASIBLE
   when a thread cannot be started. */
enum ht_status ht_ahead_create(const struct ht_ahead_options *options, struct ht_error *err, struct ht_ahead **out);
/* Joins the issuers and drains the streams, after the lanes' threads have ended. Not locked. Accepts NULL. */
void ht_ahead_destroy(struct ht_ahead *a);

/* Returns true when the op is enqueued on a stream, false when it runs like any other. a may be NULL. */
bool ht_ahead_is_async(const struct ht_ahead *a, int32_t op);
/* Returns true when members of groups are enqueued. a may be NULL. */
bool ht_ahead_has_groups(const struct ht_ahead *a);
/* Reports that an op was issued and has its memory. Locked. a may be NULL. */
void ht_ahead_issued(struct ht_ahead *a, struct ht_inst inst);
/* Hands each issuer the op that may be enqueued now; called when ops have ended. Locked. a may be NULL. */
void ht_ahead_advance(struct ht_ahead *a);
/* Blocks until a started op of a stream has ended on the device. Returns the error of its enqueue, if there was one. */
enum ht_status ht_ahead_wait(struct ht_ahead *a, struct ht_inst inst, struct ht_error *err);

#endif
