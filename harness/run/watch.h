/*
 * A watched backend: a wrapper that says four times a second that ops end (events.h), so that a supervisor notices a training that
 * hangs, and meets a drill at its op (drill.h).
 */
#ifndef HT_HARNESS_RUN_WATCH_H
#define HT_HARNESS_RUN_WATCH_H

#include "common/exec/run.h"
#include "harness/run/drill.h"

#include <stdatomic.h>

struct ht_watch {
    const struct ht_schedule *schedule;
    int32_t rank;
    int events; /* -1: not rank 0, or nobody listens */
    struct ht_drill drill;
    const struct ht_backend_ops *inner;
    void *inner_ctx;
    int32_t first_iteration; /* of the executor's present run, in the whole training */
    int64_t n_ops;           /* that this rank has in each iteration */
    struct ht_backend_ops ops;
    atomic_int_fast64_t n_ended, n_begun; /* begun: of the drill's step */
    atomic_int_fast64_t said_ns;
};

/* Wraps a backend. The fields up to inner_ctx are the caller's. The watch must stay where it is, as the backend's context. */
void ht_watch_begin(struct ht_watch *w);
/* Returns the wrapped backend. */
const struct ht_backend_ops *ht_watch_backend(const struct ht_watch *w);

#endif
