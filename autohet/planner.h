/*
 * AutoHet's planner as pure functions. The paper prints no formula that could be read here: its equations are rebuilt
 * from its prose, and README.md says where a choice is ours.
 *
 * A unit is tp GPUs of one type on one node, treated as one entity (Sec. III-C). Units of a type are interchangeable
 * until they are mapped to nodes. Types are numbered by rising power. A group is a pipeline that has the whole model;
 * groups are data-parallel.
 */
#ifndef HT_AUTOHET_PLANNER_H
#define HT_AUTOHET_PLANNER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { AUTOHET_MAX_TYPES = 8 };

/* ---- equations.c ----------------------------------------------------------------------------------------------- */

/* Returns the time of a pipeline's passes by eq. (1), s, without T_sync: sum_p t_p + (K - 1) max_p t_p. times: [stages],
   forward and backward of one micro-batch with the stage's communication, s. */
double autohet_pipeline_s(const double *times, int32_t stages, double micro_batches);
/* Returns T_sync of eq. (1), s: `bytes` over the lowest bandwidth among the groups' links. */
double autohet_sync_s(double bytes, double lowest_bytes_per_s);
/* Returns rho of eq. (2): (P - 1) / (K + P - 1), the share that a pipeline of P equal stages waits. */
double autohet_bubble_ratio(int32_t stages, double micro_batches);
/* Returns G of eq. (2): (1 - rho) times the power of a group's units. */
double autohet_effective_power(double power, int32_t stages, double micro_batches);

enum { AUTOHET_POWERS = 16 }; /* profiled numbers of layers: 1, 2, 4, .. 2^15 */
/* Returns the time of n layers by eq. (5), s: the sum of the profiles at the powers of two that make up n. profile: at
   2^k; n < 2^16. */
double autohet_composed_s(const double profile[AUTOHET_POWERS], int32_t n);
/* Fits a + b n to the profiles at 1, 2, .. 2^(powers - 1) by least squares [ours]. Eq. (5) counts the fixed part a once
   a power of two in n instead of once. */
struct autohet_line {
    double fixed_s, layer_s;
};
struct autohet_line autohet_fit(const double *profile, int32_t powers);
/* Returns the number of layers that are profiled for a model of `layers`: powers of two up to it. */
int32_t autohet_profiled_powers(int32_t layers);

/* ---- group.c, group_milp.c: Algorithm 1, lines 3 to 8 ---------------------------------------------------------- */

struct autohet_unit_type {
    double power; /* g, relative; > 0 */
    int64_t memory_bytes;
    int32_t count;
};

struct autohet_grouping_problem {
    int32_t n_types;
    struct autohet_unit_type types[AUTOHET_MAX_TYPES]; /* by rising power */
    int32_t n_groups;                                  /* D */
    double micro_batches;                              /* K of eq. (2) */
    double min_bytes;                                  /* M_min, of a group */
    int32_t max_stages;                                /* of a group: the model's layers [ours] */
};

struct autohet_grouping {
    int32_t n_groups, n_types;
    int32_t *counts; /* [n_groups * n_types], owned */
    double z;        /* smallest effective power of a group */
    bool proved;     /* no grouping has a larger one */
};

/* Returns a group's units of a type. */
static inline int32_t autohet_count(const struct autohet_grouping *g, int32_t group, int32_t type)
{
    return g->counts[group * g->n_types + type];
}

/* Solves eq. (3) for D groups: maximises the smallest effective power such that each group has M_min and all units are
   assigned. Of equally good groupings it takes the first, groups and groupings compared by the counts of the strongest
   type, then of the next; groups fall, so the most even grouping is the first. HT_INFEASIBLE if no grouping is possible. The caller
   frees *out. */
enum ht_status autohet_group(const struct autohet_grouping_problem *problem, struct ht_error *err,
                             struct autohet_grouping *out);
/* Solves the same with GLPK, by eq. (3) row by row: the reference. Equally good groupings may differ. */
enum ht_status autohet_group_milp(const struct autohet_grouping_problem *problem, struct ht_error *err,
                                  struct autohet_grouping *out);
void autohet_grouping_free(struct autohet_grouping *g);
/* Returns G of a group with these counts. */
double autohet_group_power(const struct autohet_grouping_problem *problem, const int32_t *counts);

/* ---- map.c: line 10 -------------------------------------------------------------------------------------------- */

struct autohet_place {
    int32_t type, node;
    int32_t unit; /* of the node's units of this type, from 0 */
};

/* Maps the groups' units to nodes and stages. node_units: [n_nodes * n_types]. power: [n_types], for the order of the
   groups. places: [units of all groups], of one group's stages after the other's. */
void autohet_map(const struct autohet_grouping *groups, const double *power, int32_t n_nodes, const int32_t *node_units,
                 struct autohet_place *places);

/* Assigns the groups' units in the nodes' order instead, group by group: what the breakdown has without mapping. */
void autohet_map_in_order(const struct autohet_grouping *groups, int32_t n_nodes, const int32_t *node_units,
                          struct autohet_place *places);

/* ---- partition.c: line 12 -------------------------------------------------------------------------------------- */

struct autohet_stage {
    double layer_s; /* tau: forward and backward of a layer, one micro-batch */
    double fixed_s; /* beside the layers: embedding, head, messages */
    int32_t most;   /* layers that fit, by (4c) */
};
enum autohet_objective {
    AUTOHET_EQ_1, /* the least time by eq. (1) [ours: exact for the estimate that ranks plans] */
    AUTOHET_EQ_4, /* the least time of the slowest stage, and then by eq. (1) */
};
/* Divides `layers` over a pipeline's stages, at least one each. Exact. HT_INFEASIBLE if they do not fit. blocks:
   [stages]. */
enum ht_status autohet_partition(const struct autohet_stage *stages, int32_t n, int32_t layers, double micro_batches,
                                 enum autohet_objective objective, struct ht_error *err, int64_t *blocks);
/* Divides them as evenly as possible, later stages the larger ones, or says HT_INFEASIBLE: what the breakdown has without
   partition. */
enum ht_status autohet_equal_layers(const struct autohet_stage *stages, int32_t n, int32_t layers, struct ht_error *err,
                                    int64_t *blocks);
/* Memory of a stage, bytes. */
struct autohet_memory {
    double layer_bytes, activation_bytes;       /* of a layer: states; kept for one micro-batch */
    double fixed_bytes, fixed_activation_bytes; /* the same beside the layers */
};
/* Returns the layers that fit by (4c): the largest l with l (layer + in_flight activation) + fixed <= memory, where
   in_flight = min(K, P - p) micro-batches. */
int32_t autohet_most_layers(const struct autohet_memory *m, double memory_bytes, int32_t stages, int32_t stage,
                            double micro_batches);
/* Returns the bytes of a stage by (4c): l (layer + in_flight activation) + fixed. */
double autohet_stage_bytes(const struct autohet_memory *m, int64_t layers, int32_t stages, int32_t stage,
                           double micro_batches);

#endif
