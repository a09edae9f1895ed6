/*
 * How far an answer hangs on what was assumed: the same plan and graph simulated with other durations, on all processors.
 *
 *     --runs N       N runs of --jitter, with seeds one after the other: how far the time of an iteration spreads
 *     --what-if      each rate (harness/result/scaled.h) half and twice as high
 *     --break-even   the rates of PCIe and CPU Adam that would suffice (harness/result/break_even.h)
 *
 * The plan stays as it is; a planner may decide otherwise on other hardware.
 */
#ifndef HT_HARNESS_RESULT_VARIATIONS_H
#define HT_HARNESS_RESULT_VARIATIONS_H

#include "harness/run/job.h"

#include <jansson.h>
#include <stdio.h>

/* Checks the options of variations by themselves: HT_BAD_INPUT for runs without jitter, or anything beside --replay. */
enum ht_status ht_check_variations(const struct ht_options *options, struct ht_error *err);

/* Makes an object of what the options ask for, NULL if that is nothing: "runs" {"jitter_percent", "seed", "mean_s",
   "least_s", "p5_s", "median_s", "p95_s", "most_s", "without_s", "iteration_s": [..]}, in seconds of a steady iteration;
   "what_if" [{"rate", "half_s", "double_s"}], rates that no op has left out; "break_even". */
enum ht_status ht_variations(const struct ht_job *job, const struct ht_options *options, struct ht_error *err,
                             json_t **out);

/* Writes them for people. iteration_s: the time that they differ from. */
void ht_variations_print(const json_t *variations, double iteration_s, FILE *out);

#endif
