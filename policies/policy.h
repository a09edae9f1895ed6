/*
 * Policies: what becomes of a training pass's activations between their forward and their backward use. Each is a pure
 * function from a description of the pass to a fate for every activation; systems measure the description, build the
 * schedule, and have it proved and simulated.
 *
 *     ht_policy_capuchin      swaps to main memory what hides, then recomputes         Peng et al., ASPLOS 2020
 *     ht_policy_g10           evicts to SSD, then main memory; never recomputes        Zhang et al., MICRO 2023
 *     ht_policy_checkmate     the optimum of an integer program                        Jain et al., MLSys 2020
 *     ht_policy_flashneuron   offloads to SSD in layer order until the rest fits       Bae et al., FAST 2021
 *
 * Each file restates its paper's rule and says where it departs. All of them see only activations: none of them counts
 * the traffic of parameters, gradients and optimizer states.
 *
 * An activation waits on the GPU from made_s to used_s, unless its fate says otherwise. While its block computes it is
 * part of that block's working set, which device_bytes does not include.
 */
#ifndef HT_POLICIES_POLICY_H
#define HT_POLICIES_POLICY_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum ht_fate {
    HT_FATE_RECOMPUTED,
    HT_FATE_MAIN, /* swapped to main memory */
    HT_FATE_SSD,  /* through main memory to the SSDs */
    HT_FATE_KEPT, /* stays on the GPU */
    HT_N_FATES
};

struct ht_activation {
    int32_t block;      /* from 1 */
    int32_t part;       /* enum ht_sub_op that keeps it; HT_SUB_FC2: the block's input */
    double bytes;       /* > 0 */
    double recompute_s; /* time to make it again from its nearest predecessors; INFINITY: it cannot be recomputed */
    double made_s;      /* end of its last use in the forward pass, from the pass's start */
    double used_s;      /* begin of its first use in the backward pass; > made_s */
};

/* One micro-batch's forward and backward pass on one GPU. A rate of 0: there is no such link. */
struct ht_policy_case {
    struct ht_activation *a; /* [n], in the order of the forward pass */
    int32_t n;
    double forward_s, backward_s;                       /* time of the whole passes, without recomputation */
    double out_bytes_per_s, in_bytes_per_s;             /* GPU to main memory and back */
    double ssd_write_bytes_per_s, ssd_read_bytes_per_s; /* main memory to SSDs and back */
    double device_bytes;                                /* GPU memory in which activations may wait */
    double main_bytes;                                  /* main memory, likewise */
};

/* Sums over a policy's fates. */
struct ht_policy_sums {
    double bytes[HT_N_FATES];
    double recompute_s;
};

/* Fill fates [n]. HT_BAD_INPUT if a number of the case makes no sense; the text names it. A policy that runs out of
   means leaves activations on the GPU, more than device_bytes: the schedule's proof then says what does not fit. */
enum ht_status ht_policy_capuchin(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates);
/* HT_INFEASIBLE without SSDs and without main memory, if something must be evicted. */
enum ht_status ht_policy_g10(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates);
/* HT_INFEASIBLE if no choice meets the memory limits, or in a build without GLPK. */
enum ht_status ht_policy_checkmate(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates);
/* HT_INFEASIBLE without SSDs, if something must be offloaded. */
enum ht_status ht_policy_flashneuron(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates);

/* Fill [n] each. used_s: when an activation is used if recomputation of later blocks comes in between. in_s: when a
   swapped one begins to come back, as late as the links allow if the last used take them first; others: used_s. The
   activations of a block stand together, blocks ascend. */
void ht_policy_begins(const struct ht_policy_case *c, const enum ht_fate *fates, double *used_s, double *in_s);
struct ht_policy_sums ht_policy_sum(const struct ht_policy_case *c, const enum ht_fate *fates);
/* Returns what Checkmate's program minimises, s: recomputation, and the time by which swapping exceeds the passes. */
double ht_policy_checkmate_s(const struct ht_policy_case *c, const enum ht_fate *fates);
/* Checks a case's numbers. */
enum ht_status ht_policy_check(const struct ht_policy_case *c, struct ht_error *err);

#endif
