/*
 * A trace: one event for each op and iteration, from whichever clock ran the schedule.
 *
 * The simulator and the real executor fill in the same struct, so metrics, plots and replay do not know which it was.
 * `clock` says it in every file that is written from the trace.
 */
#ifndef HT_TRACE_TRACE_H
#define HT_TRACE_TRACE_H

#include "common/schedule/schedule.h"

#include <stdio.h>

enum ht_clock { HT_CLOCK_SIM, HT_CLOCK_EMU, HT_CLOCK_RUN };

struct ht_trace_event {
    int64_t issue_ns, start_ns, end_ns; /* since the run began; issue is when memory was granted */
    int64_t grant_seq, release_seq;     /* order of all grants and releases; -1: skipped (`when` false) */
};

struct ht_trace {
    enum ht_clock clock;
    const struct ht_schedule *schedule; /* borrowed */
    int32_t iterations;
    struct ht_trace_event *events; /* [iterations * n_ops], event of (k, op) at k * n_ops + op */
    int64_t n_events;
    int64_t end_ns;            /* of the whole run */
    int64_t *iteration_end_ns; /* [iterations]: when the last op of each ended */
    int64_t *peak_bytes;       /* [ht_n_spaces]: as the semantics counts them */
    int64_t begin_ns;          /* of a real run: on CLOCK_MONOTONIC; else 0 */
    int64_t clock_error_ns;    /* of a run over several hosts: how far their clocks may be apart; else 0 */
    bool exact;                /* simulated without jitter: time beyond an op's cost is waiting */
};

/* Returns the op of an event, and its iteration. event: its index. */
static inline int32_t ht_trace_op(const struct ht_trace *t, int64_t event)
{
    return (int32_t)(event % t->schedule->n_ops);
}
static inline int32_t ht_trace_iteration(const struct ht_trace *t, int64_t event)
{
    return (int32_t)(event / t->schedule->n_ops);
}

struct ht_trace *ht_trace_create(const struct ht_schedule *s, enum ht_clock clock, int32_t iterations);
void ht_trace_destroy(struct ht_trace *t);

/* Appends a later run of the same schedule: its iterations, times and order continue t's, as if it had begun when t
   ended. */
void ht_trace_append(struct ht_trace *t, const struct ht_trace *later);

/* ---- replay.c -------------------------------------------------------------------------------------------------- */

/* Replays the trace's grants and releases in their order. Computes the peak of every space, to the byte as in the
   run. */
enum ht_status ht_trace_replay(const struct ht_trace *t, struct ht_error *err, int64_t *peak_bytes /* [n_spaces] */);

/* Computes a space's memory over time by tensor class: one sample after each change. The caller frees *samples. */
struct ht_memory_sample {
    int64_t time_ns;
    int64_t by_class[HT_N_TENSOR_CLASSES];
};
int64_t ht_trace_memory(const struct ht_trace *t, int32_t space, struct ht_memory_sample **samples);

/* Computes each space's bytes by tensor class at the first moment of its peak, which is the trace's `peak_bytes`. */
void ht_trace_peaks(const struct ht_trace *t, int64_t (*by_class)[HT_N_TENSOR_CLASSES] /* [n_spaces] */);

/* ---- metrics.c ------------------------------------------------------------------------------------------------- */

struct ht_metrics {
    int64_t iteration_ns;       /* steady state: (end of the last but one - end of warm-up) / iterations between; of the
                                   last when it is the only one, which is not steady, since nothing follows it */
    int64_t first_iteration_ns; /* cold start */
    int32_t warmup;
    int64_t *lane_busy_ns;    /* [n_lanes] per steady iteration */
    double *resource_busy;    /* [n_resources] share of capacity used in the steady state */
    int64_t lower_bound_ns;   /* largest of: busiest lane, busiest resource, longest dependency chain (per iteration);
                                 never above iteration_ns */
    char lower_bound_of[64];  /* "lane gpu of rank 0", "resource dram", "dependency chain" */
    int64_t *critical_ns;     /* [n_lanes]: time of the critical path on each lane, per steady iteration */
    int64_t critical_wait_ns; /* its time outside all lanes (contention counts as busy) */
    double bubble_ratio;      /* 1 - mean over compute lanes of busy / iteration */
    int64_t passes_ns;        /* first forward to last backward over all compute lanes, per steady iteration; 0: none */
    int64_t fill_ns, drain_ns; /* before the passes, since the end of the iteration before; after them, to the end of
                                  the last copy from a device. In the rest of the iteration the devices wait for the
                                  host */
};
/* Returns the last iteration of the steady window: the last but one, or the last where it is the only one after the warm-up. */
int32_t ht_metrics_last_iteration(int32_t iterations, int32_t warmup);
/* Computes the metrics. cost_ns: [n_ops] uncontended costs; NULL for a real run, which uses the events' own
   durations. */
enum ht_status ht_metrics_compute(const struct ht_trace *t, const int64_t *cost_ns, int32_t warmup,
                                  struct ht_error *err, struct ht_metrics *out);
void ht_metrics_free(struct ht_metrics *m);

/* ---- perfetto.c ------------------------------------------------------------------------------------------------ */

/* Writes Chrome trace-event JSON, one event a line: a track per lane ("rank 0 gpu"), counters per memory space and
   tensor class. Each op's args have its iteration, op id, grant_seq and release_seq, so that the file can be
   replayed. */
enum ht_status ht_trace_write(const struct ht_trace *t, FILE *out, struct ht_error *err);
/* Reads a file that ht_trace_write wrote for this schedule (its hash is in the file). Returns HT_BAD_INPUT for any
   other. */
enum ht_status ht_trace_read(const char *path, const struct ht_schedule *s, struct ht_error *err,
                             struct ht_trace **out);

#endif
