/*
 * The real executor: one worker thread a lane, decisions by common/exec/core.h under one lock, data by a backend.
 */
#ifndef HT_EXEC_RUN_H
#define HT_EXEC_RUN_H

#include "common/trace/trace.h"

/* Where a tensor's bytes are for an op: what the executor hands to the backend. */
struct ht_buffer {
    int32_t tensor;
    uint8_t tier, flags; /* of the effect */
    void *data;
    int64_t bytes;
};

/*
 * A backend carries out ops. The executor calls, in this order: open once; then, for each lane thread, lane_begin,
 * run_op for each of the lane's ops, lane_end; then close. run_op may be called from several lane threads at once, for
 * different lanes. A backend never decides anything.
 */
struct ht_backend_ops {
    const char *name;
    enum ht_status (*open)(void *ctx, const struct ht_schedule *s, struct ht_error *err);
    void (*lane_begin)(void *ctx, int32_t lane); /* optional: pin the thread, make a stream */
    /* Performs one op on resolved buffers (one per effect, in the effects' order). */
    enum ht_status (*run_op)(void *ctx, int32_t iteration, int32_t op, const struct ht_buffer *buffers, int32_t n,
                             struct ht_error *err);
    bool (*control)(void *ctx, int32_t iteration, int32_t op); /* optional: a validate op's verdict, after run_op */
    void (*lane_end)(void *ctx, int32_t lane);                 /* optional */
    void (*close)(void *ctx);                                  /* optional */
};

/* Memory of one space, from common/mem: alloc returns NULL when fragmentation leaves no hole (the bytes themselves fit). */
struct ht_run_options {
    int32_t iterations;
    const struct ht_backend_ops *backend;
    void *backend_ctx;
    struct ht_arena **arenas; /* [ht_n_spaces]; NULL where the schedule keeps nothing */
    /* Resident tensors are allocated before the start and handed to `init` once each; then `iteration_done` is called after
       each iteration, in order, from a lane thread; a status other than HT_OK stops the run (HT_INTERRUPTED for Ctrl-C). */
    enum ht_status (*init)(void *ctx, int32_t space, struct ht_buffer buffer, struct ht_error *err);
    enum ht_status (*iteration_done)(void *ctx, int32_t iteration, struct ht_error *err);
};

/* Runs; on success and on HT_INTERRUPTED the trace holds what was done (iterations that ended). */
enum ht_status ht_run(const struct ht_schedule *s, const struct ht_run_options *options, struct ht_error *err,
                      struct ht_trace **out);

#endif
