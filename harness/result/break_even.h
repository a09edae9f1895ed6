/*
 * The bandwidth that would suffice: the same plan and graph are simulated again with one rate scaled, everything else
 * as it was.
 *
 *     T(x)   iteration time when the rate is x times what the cluster has
 *     T(oo)  the same at 2^20 times: the iteration when this is free
 *     break-even rate: the smallest at which T(x) <= 1.01 T(oo). A faster one buys less than 1%.
 *
 * Two rates are scaled, one at a time (harness/result/scaled.h): those of PCIe and of CPU Adam.
 *
 * The plan stays as it is: the question is what these decisions would need. (A planner may decide otherwise on other
 * hardware; `hetbench plan --cluster FILE` answers that.) T need not fall everywhere when a rate grows, as list
 * schedules have anomalies (Graham 1969), so what bisection finds is a break-even point, in practice the only one.
 */
#ifndef HT_HARNESS_RESULT_BREAK_EVEN_H
#define HT_HARNESS_RESULT_BREAK_EVEN_H

#include "harness/run/job.h"

#include <jansson.h>

/* Makes {"pcie": {..}, "cpu_adam": {..}}: the present rate (`now`) and the one that suffices (`needed`), in bytes per
   second for PCIe and parameters per second for Adam; T(oo); and T over a grid of scales as `curve`. null for a rate
   that no op uses. */
enum ht_status ht_break_even(const struct ht_job *job, const struct ht_options *options, struct ht_error *err,
                             json_t **out);

#endif
