/*
 * A system: a planner and a schedule builder. Nothing else about it is its own.
 *
 *     scenario, profile --plan--> struct ht_plan --build--> struct ht_schedule --> any executor
 *
 * A system is a const table that names itself. The harness lists the tables; nothing in common/ does.
 */
#ifndef HT_PLAN_SYSTEM_H
#define HT_PLAN_SYSTEM_H

#include "common/plan/scenario.h"
#include "common/plan/variable.h"
#include "common/profile/profile.h"
#include "common/schedule/schedule.h"

/* A quantity that a planner was given: a cost, a capacity, a size. */
struct ht_plan_input {
    char name[32];
    const char *unit; /* "s", "bytes", ..; "": a count. Static */
    double value;
};

/* What a planner has computed besides, for its own builder. A builder that gets none computes it again from the plan's
   variables. */
struct ht_plan_payload {
    void *data;
    void (*destroy)(void *data);
};

enum { HT_MAX_VARIABLES = 16 };

/* Zeroed, then made by a planner; freed by ht_plan_free. */
struct ht_plan {
    struct ht_variable variables[HT_MAX_VARIABLES];
    int n_variables;
    struct ht_plan_input *inputs; /* with the decision, what a reader needs to check it by hand */
    int n_inputs;
    size_t inputs_cap;
    struct ht_plan_payload payload;    /* owned; holds for the scenario that was planned for */
    int64_t planned_bytes[HT_N_TIERS]; /* by the paper's own equations, per rank (device) and node; -1: it has none */
    double planned_s;                  /* iteration time by the paper's own model; 0: it has none */
    char why[256];                     /* one line: what the choice rests on */
};

/* Values forced by the user: --set NAME=VALUE. Zeroed, then filled by ht_settings_parse; freed by ht_settings_free. */
struct ht_settings {
    struct ht_variable values[HT_MAX_VARIABLES];
    int n;
};

/* Who takes which part of the batch. */
enum ht_division {
    HT_EQUAL_REPLICAS,   /* every rank as much as the others */
    HT_PLANNED_REPLICAS, /* every rank what the plan says */
    HT_PIPELINES,        /* a pipeline what the plan says; its ranks are stages, which all of it passes */
};

struct ht_system {
    const char *name;                   /* "zero_offload" */
    const char *title;                  /* "ZeRO-Offload" */
    const char *ranks_title;            /* on several devices, where that is another one; else NULL */
    const char *source;                 /* the paper, short */
    const char *summary;                /* one line for `hetbench list systems` */
    const struct ht_knob *knobs;        /* ends with a NULL name; may be NULL */
    int variant;                        /* what tells tables that share code apart */
    enum ht_division division;          /* of the batch over the ranks */
    enum ht_control_mode ranks_control; /* of a pipeline over several ranks: its own, which training takes unless told
                                           otherwise; NONE: it has none */

    /* Decides. HT_INFEASIBLE with the binding constraint when there is no plan; a plan may still prove too large when its
       schedule is verified, which is the last word. Settings have been checked against the knobs. *out is zero before;
       the caller frees it, also on error. */
    enum ht_status (*plan)(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out);
    /* Builds the graph of one iteration, linked, ready for the verifier. */
    enum ht_status (*build)(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);
};

/* ---- helpers for planners -------------------------------------------------------------------------------------- */

void ht_plan_set(struct ht_plan *plan, const char *name, int64_t value);
/* Copies a vector, elements included, or a decimal. */
void ht_plan_set_vector(struct ht_plan *plan, const struct ht_variable *v);
int64_t ht_plan_get(const struct ht_plan *plan, const char *name);                        /* 0 when absent */
const struct ht_variable *ht_plan_variable(const struct ht_plan *plan, const char *name); /* NULL when absent */
/* Records what the decision rests on. */
void ht_plan_input(struct ht_plan *plan, const char *name, const char *unit, double value);
void ht_plan_free(struct ht_plan *plan);

/* Returns the forced value, of a decimal in parts per billion; or `otherwise`. */
int64_t ht_setting(const struct ht_settings *settings, const char *name, int64_t otherwise);
/* Returns the forced variable, such as a vector; NULL when there is none. */
const struct ht_variable *ht_setting_variable(const struct ht_settings *settings, const char *name);
void ht_settings_free(struct ht_settings *settings);
/* Reads "c=3" or "m=4,2,1" into settings. HT_BAD_INPUT when the system has no such knob, or variable.h's grammar or the
   knob's range is broken. */
enum ht_status ht_settings_parse(const struct ht_system *system, const struct ht_scenario *scenario, const char *text,
                                 struct ht_error *err, struct ht_settings *settings);

#endif
