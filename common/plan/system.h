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
#include "common/profile/profile.h"
#include "common/schedule/schedule.h"

/* A decision variable, by the paper's name. */
struct ht_plan_variable {
    char name[24];
    int64_t value;
};

struct ht_plan {
    struct ht_plan_variable variables[16];
    int n_variables;
    int64_t planned_bytes[HT_N_TIERS]; /* what the paper's own equations say is needed per rank (device) and node; -1: it
                                          has none */
    double planned_s;                  /* iteration time by the paper's own model; 0: it has none */
    char why[256];                     /* one line: what the choice rests on */
};

/* Values forced by the user: --set NAME=VALUE. */
struct ht_settings {
    struct ht_plan_variable values[16];
    int n;
};

/* A variable that --set may force. */
struct ht_knob {
    const char *name, *meaning;
    int64_t min, max; /* max -1: the number of transformer blocks */
};

/* Who takes which part of the batch. */
enum ht_division {
    HT_EQUAL_REPLICAS,  /* every rank as much as the others */
    HT_PLANNED_REPLICAS, /* every rank what the plan says */
    HT_ONE_PIPELINE,    /* all ranks all of it, one after the other */
};

struct ht_system {
    const char *name;    /* "zero_offload" */
    const char *title;   /* "ZeRO-Offload" */
    const char *ranks_title; /* on several devices, where that is another one; else NULL */
    const char *source;  /* the paper, short */
    const char *summary; /* one line for `hetbench list systems` */
    const struct ht_knob *knobs; /* ends with a NULL name; may be NULL */
    int variant;         /* what tells tables that share code apart */
    enum ht_division division; /* of the batch over the ranks */
    enum ht_control_mode ranks_control; /* of a pipeline over several ranks: its own, which training takes unless told
                                           otherwise; NONE: it has none */

    /* Decides. HT_INFEASIBLE with the binding constraint when there is no plan; a plan may still prove too large when its
       schedule is verified, which is the last word. Settings have been checked against the knobs. */
    enum ht_status (*plan)(const struct ht_system *self, const struct ht_scenario *scenario,
                           const struct ht_profile *profile, const struct ht_settings *settings, struct ht_error *err,
                           struct ht_plan *out);
    /* Builds the graph of one iteration, linked, ready for the verifier. */
    enum ht_status (*build)(const struct ht_system *self, const struct ht_scenario *scenario,
                            const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);
};

/* ---- helpers for planners -------------------------------------------------------------------------------------- */

void ht_plan_set(struct ht_plan *plan, const char *name, int64_t value);
int64_t ht_plan_get(const struct ht_plan *plan, const char *name); /* 0 when absent */
/* The forced value, or `otherwise`. */
int64_t ht_setting(const struct ht_settings *settings, const char *name, int64_t otherwise);
/* "c=3" into settings; HT_BAD_INPUT when the system has no such knob, the value is no integer or out of range. */
enum ht_status ht_settings_parse(const struct ht_system *system, const struct ht_scenario *scenario, const char *text,
                                 struct ht_error *err, struct ht_settings *settings);

#endif
