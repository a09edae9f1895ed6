/* Trying a plan on its real schedule, for AutoHete's two planners. Internal to plan.c and period.c. */
#ifndef AUTOHETE_PLANNER_H
#define AUTOHETE_PLANNER_H

#include "autohete/autohete.h"
#include "common/plan/candidate.h"

struct autohete_planner {
    const struct ht_scenario *scenario;
    const struct ht_profile *costs;
    const struct autohete_model *model;
    struct autohete_box box;
    const struct ht_variable *sets[3]; /* C, P, O, if forced */
    bool forced;                       /* c, p and o are all forced: no equation decides, only the verifier */
    int64_t e, ahead;                  /* forced values; -1: none */
};

/* A plan whose schedule fits. */
struct autohete_outcome {
    struct autohete_profile f; /* with the capacities for which eq. 6 was solved last */
    struct autohete_choice s;
    int64_t e;
    int solved;                   /* how many times eq. 6 was solved until the plan fitted */
    struct autohete_choice first; /* what eq. 6 gave, before neighbours were tried */
    struct ht_needs needs;        /* of its safe sequence */
    int64_t simulated_ns;         /* steady iteration */
};

/* Proves and simulates a plan: *r for this `ahead`. Fills in needs, also if it does not fit (HT_INFEASIBLE), and
   simulated_ns, exact below limit_ns (ht_candidate_simulate_within). */
enum ht_status autohete_try(const struct autohete_planner *q, int64_t ahead, int64_t limit_ns, struct ht_error *err,
                            struct autohete_outcome *r);

/* Solves eq. 6 for r->f and r->e, and again with less memory until the plan's schedule fits. limit_ns: of the simulations. */
enum ht_status autohete_fit(const struct autohete_planner *q, int64_t limit_ns, struct ht_error *err,
                            struct autohete_outcome *r);

/* Finds the plan by the period of overlapping iterations (period.c). */
enum ht_status autohete_plan_by_period(const struct autohete_planner *q, struct ht_error *err,
                                       struct autohete_outcome *out);
/* Writes why the period's plan is as it is, and its inputs beside those of eqs. 1 to 6. */
void autohete_describe_period(const struct autohete_outcome *r, struct ht_plan *plan);

#endif
