/*
 * Candidates of a planner: the schedule of a plan, built and proved before the planner chooses, and simulated if it
 * fits.
 *
 *     struct ht_candidate x;
 *     status = ht_candidate_prove(system, scenario, &plan, err, &x);
 *     if (status == HT_OK) status = ht_candidate_simulate(&x, scenario, profile, err, &iteration_ns);
 *     ht_candidate_free(&x);
 *
 * The proof counts the memory of every rank's device and every node, and the simulation uses every rank's own costs. So
 * one plan for equal ranks is checked on the smallest and the slowest of them. Of equal replicas the schedule may have one alone
 * (common/schedule/fold.h).
 */
#ifndef HT_PLAN_CANDIDATE_H
#define HT_PLAN_CANDIDATE_H

#include "common/plan/system.h"
#include "common/schedule/verify.h"

struct ht_candidate {
    struct ht_schedule *schedule; /* NULL if the builder refuses the plan */
    struct ht_proof proof;        /* memory that each space needs; empty if the builder refuses the plan */
};

/* Builds and proves the schedule of a plan. HT_INFEASIBLE if the builder refuses the plan or a space is too small; if a
   space is too small, *out has the schedule and its needs. HT_INTERRUPTED after a signal: planners that prove many
   candidates end. The caller frees *out in any case. */
enum ht_status ht_candidate_prove(const struct ht_system *system, const struct ht_scenario *scenario,
                                  const struct ht_plan *plan, struct ht_error *err, struct ht_candidate *out);
void ht_candidate_free(struct ht_candidate *x);

/* Keeps a proved candidate, which is of the plan's variables, in the plan, in place of one that it has. Takes it out of *x. */
void ht_plan_keep(struct ht_plan *plan, struct ht_candidate *x);
/* Takes the candidate that a plan keeps, if a build with these scenario.folds gives the same schedule. Else returns false, and *out is
   zero. The plan keeps nothing afterwards. The caller frees *out. */
bool ht_plan_take_built(struct ht_plan *plan, bool folds, struct ht_candidate *out);
void ht_plan_drop_built(struct ht_plan *plan);

/* Memory of a schedule, by tier, bytes. */
struct ht_needs {
    int64_t peak_bytes[HT_N_TIERS];  /* need of the tier's fullest space */
    int64_t short_bytes[HT_N_TIERS]; /* the most that a space of the tier lacks; 0: all hold the schedule */
};

/* Returns what a candidate needs; nothing if the builder refuses the plan. */
struct ht_needs ht_candidate_needs(const struct ht_candidate *x);
/* Builds and proves the schedule of a plan and fills *out. Returns HT_OK also if the schedule does not fit, with *err
   unchanged, and an error if the builder refuses the plan or the schedule breaks a rule. */
enum ht_status ht_plan_needs(const struct ht_system *system, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_needs *out);

/* Simulates a proved candidate. *iteration_ns: time of a steady iteration. */
enum ht_status ht_candidate_simulate(const struct ht_candidate *x, const struct ht_scenario *scenario,
                                     const struct ht_profile *profile, struct ht_error *err, int64_t *iteration_ns);
/* The same for who only asks whether it takes less than limit_ns (INT64_MAX: as above). If it does, *iteration_ns is exact,
   else between limit_ns and the time, as the simulation gives up (ht_sim_time). */
enum ht_status ht_candidate_simulate_within(const struct ht_candidate *x, const struct ht_scenario *scenario,
                                            const struct ht_profile *profile, int64_t limit_ns, struct ht_error *err,
                                            int64_t *iteration_ns);

/* Returns how many ops are issued behind the running one on each lane of a cluster's devices: 2 on GPUs, which hides
   the host's latency; 0 on emulated devices. */
int32_t ht_issue_ahead(const struct ht_cluster *cluster);

#endif
