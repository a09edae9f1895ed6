/* What the two halves of ht_control_apply share: control.c decides the order, control_ops.c writes the ops. Internal.
 */
#ifndef HT_PLAN_CONTROL_REBUILD_H
#define HT_PLAN_CONTROL_REBUILD_H

#include "common/plan/control.h"

/* One op of the new graph, in order. `at`: an op of the old graph, or a step. */
enum ht_rebuilt { HT_KEEP, HT_JUDGE, HT_AGREE, HT_VERDICT, HT_FREE, HT_RECAST, HT_FETCH, HT_UNDO_STEP, HT_REDO, HT_SEND_ON };

struct ht_rebuilt_op {
    enum ht_rebuilt what;
    int32_t at;
    enum ht_tier tier; /* HT_FETCH: where from; HT_SEND_ON: where to */
};

struct ht_controlled_step {
    int32_t op;                  /* of the old graph */
    int32_t grad, momentum, log; /* tensors; log -1 for gate */
    enum ht_tier tier;
    int32_t judged_after; /* op of the old graph whose result V(u) reads, and where; gate */
    enum ht_tier judged_in;
    int32_t place; /* op of the old graph before it on its FIFO lane that does not move with it, or -1; gate */
    int32_t judge; /* op of the new graph */
    /* Of the old graph after the step, by effect of the step (its number in the list) as bits; rollback. */
    uint32_t away;                     /* moved out of the step's tier */
    uint32_t carried[HT_N_TIERS];      /* copied to there since, and still there at the iteration's end */
    uint32_t fetched_from[HT_N_TIERS]; /* of `away`, where the undo gets it from */
};

struct ht_rebuild {
    const struct ht_schedule *in;
    const struct ht_control *control;
    bool blocking;
    struct ht_controlled_step *steps;
    int32_t n_steps;
    int32_t *step_of; /* [in ops], or -1 */
    bool *moved;      /* [in ops] behind the verdict; gate */
    struct ht_rebuilt_op *order;
    int64_t n_order;
    size_t steps_cap, order_cap;
    int32_t *new_id; /* [in ops] */
    int32_t host;    /* lane of the verdict */
    int32_t talk;    /* last collective lane, where the ranks agree; -1: there is one rank */
    struct ht_schedule *out;
    int32_t agreed, verdict; /* ops of the new graph; agreed: -1 with one rank */
};

/* The first lane of a kind, or -1. */
int32_t ht_rebuild_lane(const struct ht_schedule *s, enum ht_lane_kind kind);
/* The lane that works in a tier: compute or host; -1 for others. */
int32_t ht_rebuild_lane_in(const struct ht_schedule *s, enum ht_tier tier);
/* The lane that copies from one tier to another, or -1. */
int32_t ht_rebuild_copy_lane(const struct ht_schedule *s, enum ht_tier from, enum ht_tier to);

/* Writes r->order into r->out. */
void ht_rebuild_write(struct ht_rebuild *r);

#endif
