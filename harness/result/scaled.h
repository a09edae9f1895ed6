/*
 * The same plan and graph, simulated again with one rate scaled and everything else as it was. A rate x times as high
 * divides the costs of its ops by x:
 *
 *     gpu        ops on the compute lanes, the all-reduces of tensor-parallel parts within them too
 *     links      messages and collectives that no NIC carries: NVLink, or PCIe within a node
 *     network    groups of messages and collectives that a NIC carries for one of their members
 *     pcie       copies between host and device, but for the link's latency
 *     cpu_adam   optimizer steps on the host
 *     disk       reads and writes
 *
 * The capacities of the links themselves are multiplied by x. Of what an op passes besides, DRAM and PCIe, they are for x > 1
 * alone: slower ops do not make memory slower for others; faster ones need a memory that keeps up.
 *
 * Times of several scales are found on all processors, over one graph.
 */
#ifndef HT_HARNESS_RESULT_SCALED_H
#define HT_HARNESS_RESULT_SCALED_H

#include "harness/run/job.h"

enum ht_rate {
    HT_RATE_GPU,
    HT_RATE_LINKS,
    HT_RATE_NETWORK,
    HT_RATE_PCIE,
    HT_RATE_CPU_ADAM,
    HT_RATE_DISK,
    HT_N_RATES,
};
extern const char *const ht_rate_names[HT_N_RATES]; /* "gpu", "links" .. */

/* Returns true if an op of the job has a cost by this rate. */
bool ht_rate_is_used(const struct ht_job *job, enum ht_rate rate);

struct ht_scaled {
    enum ht_rate rate;
    double scale; /* > 0 */
    int64_t ns;   /* filled: the time of a steady iteration */
};

/* Finds the times of n scaled rates, by the options of `sim`. */
enum ht_status ht_scaled_times(const struct ht_job *job, const struct ht_options *options, size_t n,
                               struct ht_scaled *points, struct ht_error *err);

/* Returns the memory that a simulation of the job for a time takes, as tasks estimate it. */
double ht_simulation_bytes(const struct ht_job *job);

#endif
