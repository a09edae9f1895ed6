/* Algorithm 1 of AutoHet: grouping, mapping and partition for every number of groups and tensor-parallel degree. */
#ifndef HT_AUTOHET_ALGORITHM1_H
#define HT_AUTOHET_ALGORITHM1_H

#include "autohet/planner.h"

#include <stddef.h>

/* Costs that profiling gives of a GPU type at a tensor-parallel degree (Sec. III-D). */
struct autohet_type_profile {
    double unit_power;               /* g of a unit */
    int64_t memory_bytes;            /* of a GPU */
    double layers_s[AUTOHET_POWERS]; /* forward and backward of 1, 2, 4, .. layers, one micro-batch */
    double first_s, last_s;          /* the same of what only the first and the last stage have */
};

/* Bytes of one tensor-parallel part. */
struct autohet_sizes {
    struct autohet_memory layer; /* of a layer, and what every stage has beside its layers */
    struct autohet_shared {
        double layer_bytes, first_bytes, last_bytes, group_bytes;
    } shared; /* of which each of D groups has 1 / D beside the rest [ours] */
    double first_bytes, first_activation_bytes, last_bytes, last_activation_bytes; /* embedding; head */
    double layer_gradient_bytes, first_gradient_bytes, last_gradient_bytes;
    double group_bytes; /* M_min: of a whole model, over all parts */
};

struct autohet_degree {
    int32_t tp;
    struct autohet_type_profile types[AUTOHET_MAX_TYPES]; /* by rising unit_power */
    int32_t kind_of[AUTOHET_MAX_TYPES];                   /* the GPU kind of each type: a column of node_gpus */
    struct autohet_sizes sizes;
};

struct autohet_path {
    double bytes_per_s, latency_s;
};

struct autohet_problem {
    int32_t n_kinds, n_nodes, n_sorts, n_layers, n_degrees;
    int64_t micro_batches;                /* K_tot, of all groups */
    double grouping_micro_batches;        /* K of eq. (2) for every D; 0: K_tot / D */
    int32_t groups;                       /* D; 0: every one */
    bool uneven;                          /* D need not divide K_tot [ours] */
    enum autohet_objective objective;     /* of the partition */
    bool fitted;                          /* times of layers by the clean fit; else by eq. (5) */
    bool in_order;                        /* no mapping: each group's GPUs in the nodes' order */
    bool equal_layers;                    /* no partition */
    bool by_power;                        /* ranked by (3a), D Z, instead of eq. (1): a reading of the paper */
    const int32_t *node_gpus;             /* [n_nodes * n_kinds] */
    const int32_t *sort_of;               /* [n_nodes]: nodes of a sort have the same paths */
    const struct autohet_path *inside;    /* [n_sorts] between GPUs of a node */
    const struct autohet_path *between;   /* [n_sorts * n_sorts] between GPUs of two nodes */
    const struct autohet_degree *degrees; /* [n_degrees] */
    double boundary_bytes;                /* X of one micro-batch between stages, for each part */
};

/* A plan. Vectors have one element a group, or a stage of one group after the other. */
struct autohet_candidate {
    const struct autohet_degree *degree;
    int32_t n_groups, n_stages;
    int32_t *stages;              /* [n_groups] */
    int64_t *micro_batches;       /* [n_groups] */
    struct autohet_place *places; /* [n_stages] */
    int64_t *blocks;              /* [n_stages] */
    double z;                     /* smallest effective power */
    double passes_s, sync_s;      /* eq. (1): the slowest group; T_sync */
    bool proved;                  /* the grouping is the best */
};

struct autohet_candidates {
    struct autohet_candidate *list; /* [n], the shortest time by eq. (1) first */
    int32_t n;
    size_t cap;
};

/* Runs Algorithm 1: lines 2 to 12, and the ranking of lines 14 to 16. HT_INFEASIBLE if there is no plan. The caller
   frees *out. */
enum ht_status autohet_algorithm1(const struct autohet_problem *problem, struct ht_error *err,
                                  struct autohet_candidates *out);
void autohet_candidates_free(struct autohet_candidates *c);

/* Returns the iteration time of a plan by eq. (1). */
static inline double autohet_estimate_s(const struct autohet_candidate *c)
{
    return c->passes_s + c->sync_s;
}

/* Returns the time of so many layers on a type, forward and backward, by eq. (5) or the clean fit. */
double autohet_layers_s(const struct autohet_problem *problem, const struct autohet_type_profile *type, int64_t layers);
/* Returns the memory of a stage of one of `groups` groups, of one part, by layer and beside the layers. */
struct autohet_memory autohet_stage_memory(const struct autohet_sizes *sizes, int32_t groups, int32_t stages,
                                           int32_t stage);
/* Returns the bytes of a plan's fullest GPU by (4c). */
double autohet_plan_bytes(const struct autohet_candidate *c);
/* Returns what a stage takes beside its layers: embedding, head, messages. */
double autohet_beside_s(const struct autohet_problem *problem, const struct autohet_degree *degree,
                        const struct autohet_place *places, int32_t stages, int32_t stage);
/* Computes passes_s and sync_s of a candidate. */
void autohet_estimate(const struct autohet_problem *problem, struct autohet_candidate *c);

#endif
