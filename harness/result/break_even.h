/*
 * The bandwidth that would suffice: the same plan and graph are simulated again with one rate scaled, everything else
 * as it was.
 *
 *     T(x)   iteration time when the rate is x times what the cluster has
 *     T(oo)  the same at 2^20 times: the iteration when this is free
 *     break-even rate: the smallest at which T(x) <= 1.01 T(oo). A faster one buys less than 1%.
 *
 * Two rates are scaled, one at a time:
 *
 *     PCIe       cost of every op on the copy lanes but for the link's latency; capacity of the PCIe resources
 *     CPU Adam   cost of every optimizer step on the host; for x > 1 also capacity of DRAM, which it streams through
 *
 * The plan stays as it is: the question is what these decisions would need. (A planner may decide otherwise on other
 * hardware; `hetbench plan --cluster FILE` answers that.) T need not fall everywhere when a rate grows, as list
 * schedules have anomalies (Graham 1969), so what bisection finds is a break-even point, in practice the only one.
 */
#ifndef HT_HARNESS_RESULT_BREAK_EVEN_H
#define HT_HARNESS_RESULT_BREAK_EVEN_H

#include "harness/run/job.h"

#include <jansson.h>

enum ht_rate { HT_RATE_PCIE, HT_RATE_CPU_ADAM, HT_N_RATES };
extern const char *const ht_rate_names[HT_N_RATES]; /* "pcie", "cpu_adam" */

/* Simulates with one rate scaled by x > 0: the iteration time in nanoseconds. The job is unchanged when it returns. */
enum ht_status ht_scaled_time(struct ht_job *job, const struct ht_options *options, enum ht_rate rate, double x,
                              struct ht_error *err, int64_t *iteration_ns);

/* Makes {"pcie": {..}, "cpu_adam": {..}}: the present rate (`now`) and the one that suffices (`needed`), in bytes per
   second for PCIe and parameters per second for Adam; T(oo); and T over a grid of scales as `curve`. null for a rate
   that no op uses. */
enum ht_status ht_break_even(struct ht_job *job, const struct ht_options *options, struct ht_error *err, json_t **out);

#endif
