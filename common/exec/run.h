/*
 * The real executor: one worker thread a lane, decisions by common/exec/core.h under one lock, data by a backend.
 *
 * Whoever ends an op also decides what its end made possible: under the lock it frees what the op released, tells the
 * core, and hands every lane that can go on its next op ready to run. So a lane is woken only to run an op, and takes
 * the lock once an op.
 *
 *     lane "gpu"    run F3 | lock: free, finish F3, start F4 here and C3 on "d2h" | unlock, wake d2h | run F4 ...
 *     lane "d2h"    asleep                                                            '--> run C3 | lock: ...
 *
 * Instances. A place (tensor, space) may hold several at once: of two iterations that are in flight, or, where lanes
 * are issued ahead, of one that is about to go and of the one that comes after it. Memory comes from the space's arena
 * when the core grants it and goes back just before the core is told that the op has ended, both under the lock: so an
 * arena's peak is the core's peak, to the byte.
 */
#ifndef HT_EXEC_RUN_H
#define HT_EXEC_RUN_H

#include "common/trace/trace.h"

struct ht_arena;
struct ht_node_link; /* common/exec/node_link.h */
struct ht_residents; /* common/exec/residents.h */
struct ht_inst;      /* common/exec/core.h: (iteration, op) */

/* Where a tensor's bytes are for an op: what the executor hands to the backend. */
struct ht_buffer {
    int32_t tensor;
    uint8_t tier, flags; /* of the effect */
    void *data;          /* 512-byte aligned; NULL only when bytes is 0 */
    int64_t bytes;
};

/*
 * A backend carries out ops. The executor calls, in this order: open once; then, for each lane thread, lane_begin,
 * run_op for each of the lane's ops, lane_end; then close (whenever open succeeded). run_op may be called from several
 * lane threads at once, for different lanes. A backend never decides anything.
 */
struct ht_backend_ops {
    const char *name;
    enum ht_status (*open)(void *ctx, const struct ht_schedule *s, struct ht_error *err); /* optional */
    void (*lane_begin)(void *ctx, int32_t lane); /* optional: pin the thread, make a stream */
    /* optional: after lane_begin. True: the thread shares its core with no other lane, so that it may stay awake for
       some microseconds while it waits; this saves a hand-off the wake-up. On a shared core that would hold up the
       others. */
    bool (*has_dedicated_core)(void *ctx, int32_t lane);
    /* Performs one op on resolved buffers (one per effect, in the effects' order). */
    enum ht_status (*run_op)(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err);
    bool (*control)(void *ctx, int32_t iteration, int32_t op); /* optional: a validate op's verdict, after run_op */

    /*
     * Optional, for devices whose lanes are streams (common/exec/run_ahead.h). Such lanes may be issued ahead.
     *
     * is_async   fixed from open on: is this op enqueued, and not run by run_op?
     * awaits     optional, fixed from open on: how many ops of the previous iteration have to have ended, not only been
     *            enqueued, when this op is enqueued, and which: what they leave is looked at on the host (a loss scale).
     *            It depends on them, be it through others.
     * enqueue    puts the op behind all that was enqueued on its lane, and lets it wait on the device for the ops in
     *            `after`, which have been enqueued on other lanes. Returns at once. From a thread of the lane's own.
     * wait       returns when the op has ended on the device. From the lane's thread, as run_op is.
     * op_times   optional, after wait: when it began and ended there, on CLOCK_MONOTONIC.
     * drain      optional, before close and after all lanes have ended: waits for all that was enqueued.
     */
    int32_t issue_ahead; /* k of the semantics: 2, or 0 without these */
    bool (*is_async)(void *ctx, int32_t op);
    int32_t (*host_deps)(void *ctx, int32_t op, const int32_t **ops);
    enum ht_status (*enqueue)(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                              const struct ht_inst *after, int32_t n_after, struct ht_error *err);
    enum ht_status (*wait)(void *ctx, int32_t iteration, int32_t op, struct ht_error *err);
    void (*op_times)(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns);
    void (*drain)(void *ctx);

    void (*lane_end)(void *ctx, int32_t lane); /* optional */
    void (*close)(void *ctx);                  /* optional */
};

struct ht_run_options {
    int32_t iterations; /* >= 1 */
    const struct ht_backend_ops *backend;
    void *backend_ctx;
    struct ht_arena **arenas;   /* [ht_n_spaces]; NULL where the schedule keeps nothing */
    struct ht_node_link *peers; /* only this node's ops are run, the others are heard of; NULL: there is one node */
    /* What the run begins with, and leaves what it ends with, in these arenas; after another status than HT_OK they are
       good for ht_residents_destroy only. NULL: residents of undefined contents, which end with the run. */
    struct ht_residents *residents;

    /* Optional: each iteration in order, one at a time, from a lane thread; the next iteration may be running already.
       A status other than HT_OK stops the run and is what ht_run returns (HT_INTERRUPTED reads as Ctrl-C). */
    enum ht_status (*iteration_done)(void *ctx, int32_t iteration, struct ht_error *err);
    void *hooks_ctx; /* of iteration_done */
};

/*
 * Runs a verified schedule. Every way out leaves the arenas as they were found, but for given residents, and no thread
 * behind.
 *
 * HT_OK           *out is the trace.
 * HT_INTERRUPTED  Ctrl-C (common/base/interrupt.h) or iteration_done asked to stop: no op was started any more,
 *                 those in flight ended well. *out is the trace of the iterations that ended, trace->iterations.
 * HT_FAILED       an op failed, be it after Ctrl-C, or an arena had no hole for bytes that fit (fragmentation);
 *                 *out is NULL.
 * Others          what iteration_done, the backend's open or ht_core_create said (HT_INFEASIBLE: OOM); *out is NULL.
 */
enum ht_status ht_run(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_error *err,
                      struct ht_trace **out);

#endif
