/*
 * Runs a job under the simulator's clock, or reads a trace of it from a file.
 */
#ifndef HT_HARNESS_RUN_SIMULATE_H
#define HT_HARNESS_RUN_SIMULATE_H

#include "common/trace/trace.h"
#include "harness/run/job.h"

/* Checks that a trace of so many iterations fits this machine's memory. Returns HT_BAD_INPUT, with the flag,
   otherwise. */
enum ht_status ht_check_events(const struct ht_job *job, const char *flag, int64_t iterations, struct ht_error *err);

/* Checks --bad: whole numbers from 1 to --iterations, of a schedule with a final check, and not beside --replay. */
enum ht_status ht_check_bad(const struct ht_options *options, const struct ht_job *job, struct ht_error *err);

/* Returns [iterations]: which are bad by --bad; NULL if none is. *n: their number. ht_check_bad has passed. The caller
   frees it. */
bool *ht_bad_iterations(const struct ht_options *options, int64_t *n);

/* Simulates a job by its options, or reads --replay. job->answer is HT_OK; ht_check_bad has passed. */
enum ht_status ht_simulate(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                           struct ht_trace **out);

/* Finds the time of a steady iteration of a job by its options, as ht_metrics_compute does, without a trace. The answer is
   exact below limit_ns (INT64_MAX: always), and else between limit_ns and the time, as the simulation gives up. */
enum ht_status ht_iteration_time(const struct ht_options *options, const struct ht_job *job, int64_t limit_ns,
                                 struct ht_error *err, int64_t *iteration_ns);

/* Returns a lower bound of that time, from the graph alone (ht_sim_least_ns). */
int64_t ht_least_iteration_ns(const struct ht_options *options, const struct ht_job *job);

/* The times of an iteration. */
struct ht_times {
    int64_t first_iteration_ns, iteration_ns, lower_bound_ns;
};

/* Reads them off a trace, as ht_metrics_compute does. */
enum ht_status ht_trace_times(const struct ht_trace *trace, const int64_t *cost_ns, int32_t warmup,
                              struct ht_error *err, struct ht_times *out);

/* Writes a trace to --trace's path; does nothing when either is NULL. */
enum ht_status ht_save_trace(const struct ht_trace *trace, const char *path, struct ht_error *err);

#endif
