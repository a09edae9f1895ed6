/*
 * Cephalo: Guo et al., "Cephalo: Harnessing Heterogeneous GPU Clusters for Training Transformer Models". Data
 * parallelism on unlike GPUs. Each GPU takes a part of the batch that matches its speed and holds a part of the state
 * that matches its memory. optimize.c, partition.c and profile_model.c compute, plan.c decides with them, schedule.c
 * builds; see README.md.
 */
#ifndef CEPHALO_CEPHALO_H
#define CEPHALO_CEPHALO_H

#include "common/draft/draft.h"
#include "common/plan/system.h"

enum cephalo_variant {
    CEPHALO,    /* the whole method */
    CEPHALO_CB, /* only compute balance: even state, each GPU takes its part of the batch at once, nothing offloaded */
    CEPHALO_MB, /* only memory balance: equal parts of the batch, one sample at a time */
};

extern const struct ht_system cephalo, cephalo_cb, cephalo_mb;

/* Writes the draft of a rank (struct ht_program.emit). plan: must have "offload". */
void cephalo_emit(struct ht_draft *g, const void *plan);
/* Returns the program that calls cephalo_emit. */
struct ht_program cephalo_program(const char *name, const struct ht_layout *layout, const struct ht_plan *plan);
enum ht_status cephalo_build(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);

#endif
