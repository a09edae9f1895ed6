/*
 * Planning with a policy: measures the pass by a profile, proves how much memory is left for activations, asks the
 * policy, and has its plan proved. If the plan's own schedule lacks memory, because what is swapped passes through
 * buffers, the budgets are lowered by that and the policy is asked again. If it fits, the GPU's budget is raised as
 * long as it does. All GPUs have one plan, and equal parts of their node's main memory.
 */
#ifndef HT_POLICIES_DECIDE_H
#define HT_POLICIES_DECIDE_H

#include "common/plan/candidate.h"
#include "policies/fates.h"
#include "common/profile/profile.h"

typedef enum ht_status (*ht_policy)(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates);

/* A system's call of a policy. */
struct ht_policy_request {
    const struct ht_system *self;
    const struct ht_scenario *scenario;
    const struct ht_profile *costs;
    const struct ht_settings *settings; /* NULL, or fates that are forced and replace the policy's */
    ht_policy policy;
    const char *title;        /* of the policy, for the plan's reason */
    enum ht_fate input, rest; /* fates of the blocks' inputs and of all else in the plan by which memory is found */
    bool main_memory;         /* activations may be swapped to main memory and stay there */
    bool ssds;                /* and to SSDs */
    /* Sets the system's other variables in a plan that has its fates. */
    void (*complete)(const struct ht_policy_request *request, struct ht_plan *plan);
    const void *context; /* for complete */
};

/* Fills a plan's fates, `ahead` (turns of the backward pass that a block's activations come before it, by the times of
   ht_policy_begins), inputs and reason. HT_BAD_INPUT without costs or if a forced vector is not of one element a
   block; otherwise what ht_system_check, the policy or the builder return. *needs, unless NULL: what the schedule needs. */
enum ht_status ht_policy_decide(const struct ht_policy_request *request, struct ht_error *err, struct ht_plan *out,
                                struct ht_needs *needs);

/* Fills a case from the profile, the budgets excepted: the blocks' activations, the times of one micro-batch's passes,
   and the links' rates. The caller frees out->a. */
enum ht_status ht_policy_measure(const struct ht_scenario *scenario, const struct ht_profile *costs, bool ssds,
                                 struct ht_error *err, struct ht_policy_case *out);

#endif
