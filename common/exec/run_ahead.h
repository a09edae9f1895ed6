/*
 * Lanes that are streams of a device: who hands them their ops, ahead of time. Internal to common/exec.
 *
 * An op of such a lane has two threads. Its issuer enqueues it on the stream as soon as everything that it depends on
 * has ended or has been enqueued itself ("posted"): the device then waits by itself for what has not ended. The lane's
 * own thread waits for the end, when the core says that the op has started, and tells the core.
 *
 *     core        issue F4 (memory)  ............ start F4 ................ finish F4
 *     issuer              '--> enqueue F4 after C4
 *     stream                   [ waits for C4 ][ F4 ............ ]
 *     lane's thread                              wait for F4 ------------------'
 *
 * Ops of a lane are posted in the order in which they were issued. An op that the backend wants to run by itself
 * (is_async says no), or one of a group, is no different from an op of any other lane: it is run when the core starts
 * it, and what comes after it on its lane is posted when it has ended.
 */
#ifndef HT_EXEC_RUN_AHEAD_H
#define HT_EXEC_RUN_AHEAD_H

#include "common/exec/core.h"
#include "common/exec/run_slots.h"

#include <pthread.h>

struct ht_ahead;

/* The executor's own parts, borrowed. `lock` guards core and slots; "locked" below means that the caller holds it. */
struct ht_ahead_options {
    const struct ht_schedule *schedule;
    const struct ht_backend_ops *backend;
    void *backend_ctx;
    struct ht_core *core;
    struct ht_slots *slots;
    pthread_mutex_t *lock;
};

/* After the backend's open. *out NULL: the backend has no streams. HT_FAILED when a thread cannot be started. */
enum ht_status ht_ahead_create(const struct ht_ahead_options *options, struct ht_error *err, struct ht_ahead **out);
/* Joins the issuers and drains the streams; the lanes' threads are gone by then. Not locked. Accepts NULL. */
void ht_ahead_destroy(struct ht_ahead *a);

/* Is the op posted to a stream? If not, it is run as any other. a may be NULL. */
bool ht_ahead_takes(const struct ht_ahead *a, int32_t op);
/* Locked: an op has been issued and has its memory. a may be NULL, as in the next. */
void ht_ahead_issued(struct ht_ahead *a, struct ht_inst inst);
/* Locked: ops have ended; what may be posted now is handed to its issuer. */
void ht_ahead_look(struct ht_ahead *a);
/* Of a started op that is posted: returns when it has ended on the device. An error of enqueue shows here. */
enum ht_status ht_ahead_wait(struct ht_ahead *a, struct ht_inst inst, struct ht_error *err);

#endif
