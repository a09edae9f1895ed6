/*
 * The real executor: one worker thread for each lane. common/exec/core.h decides under one lock, a backend touches
 * data.
 *
 * The thread that ends an op also acts on what its end made possible. Under the lock it frees what the op released,
 * tells the core, and gives every lane that can go on its next op, ready to run. So a lane is woken only to run an op,
 * and takes the lock once for each op.
 *
 *     lane "gpu"    run F3 | lock: free, finish F3, start F4 here and C3 on "d2h" | unlock, wake d2h | run F4 ...
 *     lane "d2h"    asleep                                                            '--> run C3 | lock: ...
 *
 * Instances. A residency (tensor, space) may have several instances at once: those of two iterations in flight, or,
 * where lanes are issued ahead, one that is about to be freed and its successor. Memory comes from the space's arena
 * when the core grants it, and goes back just before the core learns that the op has ended, both under the lock. So an
 * arena's peak equals the core's peak, to the byte.
 */
#ifndef HT_EXEC_RUN_H
#define HT_EXEC_RUN_H

#include "common/trace/trace.h"

struct ht_arena;
struct ht_node_link; /* common/exec/node_link.h */
struct ht_residents; /* common/exec/residents.h */
struct ht_inst;      /* common/exec/core.h: (iteration, op) */

/* A tensor's bytes for one op, which the executor hands to the backend. */
struct ht_buffer {
    int32_t tensor;
    uint8_t tier, flags; /* of the effect */
    void *data;          /* 512-byte aligned; NULL only when bytes is 0 */
    int64_t bytes;
};

/*
 * Functions that carry out ops. The executor calls open once; then, on each lane's thread, lane_begin, run_op for each
 * of the lane's ops, and lane_end; then close, if open succeeded. It may call run_op on several lanes' threads at once.
 * A backend decides nothing.
 */
struct ht_backend_ops {
    const char *name;
    enum ht_status (*open)(void *ctx, const struct ht_schedule *s, struct ht_error *err); /* optional */
    void (*lane_begin)(void *ctx, int32_t lane); /* optional: pins the thread, creates a stream */
    /* optional, after lane_begin. Returns true when the thread shares its core with no other lane. It then spins for
       some microseconds before it sleeps, which saves a hand-over the wake-up; on a shared core that would delay the
       other lanes. */
    bool (*has_dedicated_core)(void *ctx, int32_t lane);
    /* Runs one op. buffers: one for each effect, in the effects' order. */
    enum ht_status (*run_op)(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err);
    /* optional, after run_op of a validate op. Returns false when the op found the iteration bad. */
    bool (*control)(void *ctx, int32_t iteration, int32_t op);

    /*
     * Optional, for devices whose lanes are streams (common/exec/run_ahead.h). Such lanes may be issued ahead.
     *
     * is_async   says that the op is enqueued, instead of run by run_op; does not change after open.
     * host_deps  optional: returns the ops of the previous iteration that must have ended, not only been enqueued,
     *            before this op is enqueued, because the host reads what they leave (a loss scale). Sets *ops, returns
     *            their number; does not change after open. The op depends on each of them, directly or through others.
     * enqueue    enqueues the op on its lane's stream and makes it wait on the device for the ops in `after`, which
     *            were enqueued on other lanes of its rank. Returns at once, or, for a member of a group, when the other
     *            members are enqueued, too. Called on a thread of the lane's own.
     * wait       blocks until the op has ended on the device. Called on the lane's thread, as run_op is.
     * op_times   optional, after wait: when the op began and ended on the device, on CLOCK_MONOTONIC.
     * give_up    optional: the run has failed, and other members of an enqueued op's group may never be enqueued. Lets
     *            enqueue and wait return and drain end. Must be short; called once, on any thread.
     * drain      optional, after all lanes have ended and before close: blocks until all enqueued ops have ended.
     */
    int32_t issue_ahead; /* most issued ops behind the running one: 2, or 0 without these functions */
    bool (*is_async)(void *ctx, int32_t op);
    int32_t (*host_deps)(void *ctx, int32_t op, const int32_t **ops);
    enum ht_status (*enqueue)(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                              const struct ht_inst *after, int32_t n_after, struct ht_error *err);
    enum ht_status (*wait)(void *ctx, int32_t iteration, int32_t op, struct ht_error *err);
    void (*op_times)(void *ctx, int32_t iteration, int32_t op, int64_t *start_ns, int64_t *end_ns);
    void (*give_up)(void *ctx);
    void (*drain)(void *ctx);

    void (*lane_end)(void *ctx, int32_t lane); /* optional */
    void (*close)(void *ctx);                  /* optional */
};

struct ht_run_options {
    int32_t iterations; /* >= 1 */
    const struct ht_backend_ops *backend;
    void *backend_ctx;
    struct ht_arena **arenas;  /* [ht_n_spaces]; NULL for a space without tensors */
    struct ht_node_link *link; /* runs this node's ops only; NULL: there is one node */
    /* Tensors that the run begins with, and whose last contents it leaves in these arenas. After a status other than
       HT_OK, or HT_INTERRUPTED with `ends_whole`, only ht_residents_destroy may use them. NULL: residents have undefined contents and end with the run. */
    struct ht_residents *residents;

    /* Ctrl-C lets the iterations that have begun end, so that the residents are those of the last one: after HT_INTERRUPTED
       they may be read, too. Otherwise a run of one node stops at once, unless it enqueues members of groups. */
    bool ends_whole;
    /* Optional: called for each ended iteration in order, one call at a time, from a lane's thread; the next
       iteration may be running. A status other than HT_OK stops the run, and ht_run returns it (HT_INTERRUPTED acts
       as Ctrl-C). */
    enum ht_status (*iteration_done)(void *ctx, int32_t iteration, struct ht_error *err);
    void *hooks_ctx; /* for iteration_done */
};

/*
 * Runs a verified schedule. Whatever the status, it joins all threads and frees all arena memory but the given
 * residents'.
 *
 * HT_OK           *out is the trace.
 * HT_INTERRUPTED  Ctrl-C (common/base/interrupt.h) or iteration_done stopped the run: no further op was started, with
 *                 `ends_whole` no further iteration, and those in flight ended well. *out is the trace of the iterations that ended, trace->iterations.
 * HT_FAILED       An op failed, even after Ctrl-C, or an arena had no hole for bytes that fit (fragmentation). *out is
 *                 NULL.
 * others          The status of iteration_done, of the backend's open, or of ht_core_create (HT_INFEASIBLE: OOM). *out
 *                 is NULL.
 */
enum ht_status ht_run(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_error *err,
                      struct ht_trace **out);

#endif
