/*
 * A system: a planner and a schedule builder. Everything else is shared.
 *
 *     scenario, profile --plan--> struct ht_plan --build--> struct ht_schedule --> any executor
 *
 * A system is a const table that names itself. The harness lists the tables; nothing in common/ refers to one.
 */
#ifndef HT_PLAN_SYSTEM_H
#define HT_PLAN_SYSTEM_H

#include "common/plan/scenario.h"
#include "common/plan/variable.h"
#include "common/profile/profile.h"
#include "common/schedule/schedule.h"

/* A quantity that a planner used: a cost, a capacity, a size. */
struct ht_plan_input {
    char name[32];
    const char *unit; /* "s", "bytes", ..; "" for a count. A static string */
    double value;
};

enum { HT_CANDIDATE_TEXT = 128 };

/* A plan that a planner considered, and what became of it. */
struct ht_considered {
    char name[64];               /* "tp 8, pp 4, dp 2, v 2, zero 1" */
    char why[HT_CANDIDATE_TEXT]; /* "taken", or one line: why it fell */
    int64_t least_bytes;         /* that a device needs, at least; 0: not computed */
    double bound_s;              /* of an iteration, at least; 0: not computed */
    double iteration_s;          /* simulated; 0: it was not, or not to its end: */
    double gave_up_s;            /* the simulation gave up, as the iteration surely takes this; 0: it did not */
};

enum { HT_MAX_VARIABLES = 32 };

struct ht_candidate;

/* A plan. Zeroed first, then filled by a planner; freed by ht_plan_free. */
struct ht_plan {
    struct ht_variable variables[HT_MAX_VARIABLES];
    int n_variables;
    struct ht_plan_input *inputs; /* what a reader needs to check the decision by hand */
    int n_inputs;
    size_t inputs_cap;
    struct ht_considered *considered; /* in the order in which the planner came to them; NULL: it does not say */
    size_t n_considered, considered_cap;
    int64_t planned_bytes[HT_N_TIERS]; /* by the paper's own equations, per rank (device) or node; -1: no equation */
    double planned_s;                  /* iteration time by the paper's own model; 0: no model */
    char why[256];                     /* one line: the reason for the decision */
    struct ht_candidate *built;        /* the plan's schedule, where the planner kept it (ht_plan_keep); else NULL */
};

/* Values forced by the user: --set NAME=VALUE. Zeroed, then filled by ht_settings_parse; freed by ht_settings_free. */
struct ht_settings {
    struct ht_variable values[HT_MAX_VARIABLES];
    int n;
    bool any_fit; /* the first plan that fits will do: nobody asks how fast it is */
    /* Called by planners that try many plans, after each of them, from the thread that plans; NULL: nobody listens. */
    void (*progress)(void *ctx, size_t done, size_t of);
    void *progress_ctx;
};

/* Division of the batch over the ranks. */
enum ht_division {
    HT_EQUAL_REPLICAS, /* every rank takes an equal part */
    HT_SHARED_STATES,  /* likewise; the ranks share one copy of the states, in the memory or on the disks of one node */
    HT_PLANNED_REPLICAS, /* every rank takes the part that the plan says */
    HT_PIPELINES,        /* every pipeline takes the part that the plan says; its ranks are stages */
};

struct ht_program;

struct ht_system {
    const char *name;                   /* "zero_offload" */
    const char *title;                  /* "ZeRO-Offload" */
    const char *ranks_title;            /* title on several devices if it differs, else NULL */
    const char *source;                 /* the paper, short */
    const char *summary;                /* one line for `hetbench list systems` */
    const struct ht_knob *knobs;        /* ends with a NULL name; may be NULL */
    int variant;                        /* distinguishes tables that share code */
    enum ht_division division;          /* of the batch over the ranks */
    enum ht_control_mode ranks_control; /* a pipeline's own control over several ranks, which training uses by default;
                                           NONE: it has none */

    bool one_device; /* has no plan for several ranks */
    bool disk;       /* keeps state on the node's SSDs; no plan without them */

    /* Fills the zeroed *out; the caller frees it, also on error. May keep the schedule of the plan in it (ht_plan_keep), if
       it was built for `self` and `scenario`. Settings have been checked against the knobs.
       HT_INFEASIBLE, with the binding constraint, if there is no plan. The verifier has the last word: the schedule of
       a plan may still prove too large. */
    enum ht_status (*plan)(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out);
    const struct ht_program *program; /* for a build that is ht_build_program (common/draft/draft.h), else NULL */
    /* Builds the graph of one iteration, linked and ready for the verifier. */
    enum ht_status (*build)(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);
};

/* ---- helpers for planners -------------------------------------------------------------------------------------- */

/* Returns HT_INFEASIBLE if the cluster lacks what the system's one_device, division and disk ask for. */
enum ht_status ht_system_check(const struct ht_system *system, const struct ht_scenario *scenario,
                               struct ht_error *err);

/* Adds an integer variable. */
void ht_plan_set(struct ht_plan *plan, const char *name, int64_t value);
/* Adds a copy of a vector, elements included, or of a decimal. */
void ht_plan_set_vector(struct ht_plan *plan, const struct ht_variable *v);
/* Adds a vector of n elements, which are copied; of a kind by rank or a list. decimal: they are in parts per billion. */
void ht_plan_set_values(struct ht_plan *plan, const char *name, enum ht_variable_kind kind, int32_t n,
                        const int64_t *values, bool decimal);
int64_t ht_plan_get(const struct ht_plan *plan, const char *name);                        /* 0 when absent */
const struct ht_variable *ht_plan_variable(const struct ht_plan *plan, const char *name); /* NULL when absent */
/* Records a quantity that the decision rests on. */
void ht_plan_input(struct ht_plan *plan, const char *name, const char *unit, double value);
void ht_plan_free(struct ht_plan *plan);

/* Returns the forced value (of a decimal in parts per billion), or `otherwise` if the variable is not forced. */
int64_t ht_setting(const struct ht_settings *settings, const char *name, int64_t otherwise);
/* Returns the forced variable, such as a vector; NULL if it is not forced. */
const struct ht_variable *ht_setting_variable(const struct ht_settings *settings, const char *name);
/* Returns true if the first plan that fits will do. settings may be NULL: none. */
static inline bool ht_settings_any_fit(const struct ht_settings *settings)
{
    return settings && settings->any_fit;
}
void ht_settings_free(struct ht_settings *settings);
/* Reads "c=3" or "m=4,2,1" into settings. HT_BAD_INPUT if the system has no such knob, or the text breaks the grammar
   of variable.h or the knob's range. */
enum ht_status ht_settings_parse(const struct ht_system *system, const struct ht_scenario *scenario, const char *text,
                                 struct ht_error *err, struct ht_settings *settings);

#endif
