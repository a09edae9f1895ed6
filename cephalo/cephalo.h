/*
 * Cephalo: Guo et al., "Cephalo: Harnessing Heterogeneous GPU Clusters for Training Transformer Models". Data parallelism
 * on GPUs that are not alike: each takes a part of the batch that it is fast enough for and holds a part of the state
 * that it has room for. optimize.c, partition.c and profile_model.c are the method's arithmetic, plan.c asks them,
 * schedule.c builds; see README.md.
 */
#ifndef CEPHALO_CEPHALO_H
#define CEPHALO_CEPHALO_H

#include "common/build/draft.h"
#include "common/plan/system.h"

enum cephalo_variant {
    CEPHALO,    /* all of it */
    CEPHALO_CB, /* compute balance alone: the state is even, and each GPU takes its part of the batch at once */
    CEPHALO_MB, /* memory balance alone: all take as much of the batch, a sample at a time */
};

extern const struct ht_system cephalo, cephalo_cb, cephalo_mb;

/* schedule.c. Writes the draft of a rank (struct ht_program.emit). plan: has "offload". */
void cephalo_emit(struct ht_draft *g, const void *plan);
/* Returns the program that it is. */
struct ht_program cephalo_program(const char *name, const struct ht_layout *layout, const struct ht_plan *plan);
enum ht_status cephalo_build(const struct ht_system *self, const struct ht_scenario *scenario,
                             const struct ht_plan *plan, struct ht_error *err, struct ht_schedule **out);

#endif
