/* The critical path of a trace: the chain of ops that delayed each other, from the window's end back to its
   beginning. */
#ifndef HT_TRACE_CRITICAL_H
#define HT_TRACE_CRITICAL_H

#include "common/trace/trace.h"

/* The steady part of a run, and how many iterations ended in it. */
struct ht_window {
    int64_t begin_ns, end_ns;
    int32_t iterations;
};

/* Adds up, over the whole window, the path's time on each lane's ops and its time between ops: sum of critical_ns +
   *wait_ns = end_ns - begin_ns. */
void ht_critical_path(const struct ht_trace *t, const struct ht_window *w, int64_t *critical_ns /* [n_lanes] */,
                      int64_t *wait_ns);

/* Finds for each event the one that determined when it started (see critical.c); -1: none, or the event was skipped. */
void ht_trace_causes(const struct ht_trace *t, int64_t *causes /* [n_events] */);

#endif
