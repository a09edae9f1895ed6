/*
 * Candidates of a planner: the schedule of a plan, built and proved before the planner settles on it, and simulated
 * where it fits.
 *
 *     struct ht_candidate x;
 *     status = ht_candidate_prove(system, scenario, &plan, err, &x);
 *     if (status == HT_OK) status = ht_candidate_simulate(&x, scenario, profile, err, &iteration_ns);
 *     ht_candidate_free(&x);
 *
 * The proof counts every rank's device and every node's memory as the cluster has them, and the simulation every rank's
 * own costs. So a plan for ranks that are all alike is a plan for the smallest and the slowest of them.
 */
#ifndef HT_PLAN_CANDIDATE_H
#define HT_PLAN_CANDIDATE_H

#include "common/plan/system.h"
#include "common/schedule/verify.h"

struct ht_candidate {
    struct ht_schedule *schedule; /* NULL where the builder refuses the plan */
    struct ht_proof proof;        /* what each space needs; empty then */
};

/* Builds and proves the schedule of a plan. HT_INFEASIBLE where the builder refuses the plan, or where a space is too
   small: the schedule and what it needs are then there. *out is to be freed in any case. */
enum ht_status ht_candidate_prove(const struct ht_system *system, const struct ht_scenario *scenario,
                                  const struct ht_plan *plan, struct ht_error *err, struct ht_candidate *out);
void ht_candidate_free(struct ht_candidate *x);

/* Returns the bytes that the fullest space of a tier needs. */
int64_t ht_candidate_peak_bytes(const struct ht_candidate *x, enum ht_tier tier);
/* Returns the bytes that a space of the tier lacks, of the one that lacks most; 0 when all hold the schedule. */
int64_t ht_candidate_short_bytes(const struct ht_candidate *x, enum ht_tier tier);

/* Simulates a candidate that was proved. *iteration_ns: of a steady iteration. */
enum ht_status ht_candidate_simulate(const struct ht_candidate *x, const struct ht_scenario *scenario,
                                     const struct ht_profile *profile, struct ht_error *err, int64_t *iteration_ns);

/* Returns how many ops wait issued behind a lane's running one on a cluster's devices: 2 on GPUs, so that the host's
   latency is hidden, 0 on emulated devices. */
int32_t ht_issue_ahead(const struct ht_cluster *cluster);

#endif
