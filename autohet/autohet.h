/*
 * AutoHet: "Diving into 3D Parallelism with Heterogeneous Spot Instance GPUs: Design and Implications"
 * (arXiv:2512.20953). Pipelines of any depth over unlike GPUs, data-parallel with each other, with one tensor-parallel
 * degree. equations.c to algorithm1.c are the planner as pure functions; measure.c takes their input from a scenario;
 * plan.c decides with them; schedule.c builds. See README.md.
 */
#ifndef HT_AUTOHET_AUTOHET_H
#define HT_AUTOHET_AUTOHET_H

#include "autohet/algorithm1.h"
#include "common/draft/pipe.h"
#include "common/plan/system.h"

enum autohet_variant {
    AUTOHET,             /* the whole method */
    AUTOHET_MAPPED,      /* +GROUP, +MAP: grouping and mapping, equal layers */
    AUTOHET_GROUPED,     /* +GROUP: grouping, stages in the nodes' order, equal layers */
    AUTOHET_ONE_PIPELINE /* the breakdown's baseline: one pipeline of all GPUs in the nodes' order, equal layers */
};

extern const struct ht_system autohet, autohet_mapped, autohet_grouped, autohet_one_pipeline;

/* A scenario as Algorithm 1 takes it. */
struct autohet_measured {
    struct autohet_problem problem; /* its arrays are those below */
    int32_t *node_gpus, *sort_of;
    struct autohet_path *inside, *between;
    struct autohet_degree *degrees;
    int32_t n_ranks;
    int32_t *kind_of;    /* [n_ranks] */
    int32_t *node_begin; /* [n_nodes + 1], the first rank of each node */
};

/* Reads costs and sizes off the profile and the model (Sec. III-D). powers: g of each rank in parts per billion, or NULL:
   as profiled. reserve: bytes of every GPU that the plan may not use. style: what is recomputed and shared. Returns the profile's error. The caller frees *out,
   also on error. */
enum ht_status autohet_measure(const struct ht_scenario *scenario, const struct ht_profile *profile,
                               const int64_t *powers, int64_t reserve_bytes, const struct ht_pipe_style *style,
                               struct ht_error *err, struct autohet_measured *out);
void autohet_measured_free(struct autohet_measured *m);
/* Returns the first rank of a place. */
int32_t autohet_first_rank(const struct autohet_measured *m, const struct autohet_degree *degree,
                           const struct autohet_place *place);

/* Checks that the plan's graph can be built; builds it. */
enum ht_status autohet_check(const struct ht_scenario *scenario, const struct ht_plan *plan, struct ht_error *err);
enum ht_status autohet_build(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);

#endif
