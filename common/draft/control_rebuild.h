/* A graph that is rebuilt under control, and questions about its lanes, effects and logs that control.c, which orders
   ops, and control_ops.c, which writes them, have in common. Internal. */
#ifndef HT_DRAFT_CONTROL_REBUILD_H
#define HT_DRAFT_CONTROL_REBUILD_H

#include "common/draft/control.h"

enum { HT_WRITES = HT_PRODUCE | HT_UPDATE }; /* flags of an effect */

/* Kinds of ops in the new graph. */
enum ht_rebuilt {
    HT_KEEP,
    HT_GRAD_CHECK,
    HT_AGREE,
    HT_FINAL_CHECK,
    HT_FREE,
    HT_RECAST,
    HT_FETCH,
    HT_UNDO_STEP,
    HT_REDO,
    HT_COPY_AGAIN
};

/* An op of the new graph. */
struct ht_rebuilt_op {
    enum ht_rebuilt what;
    int32_t at;        /* HT_KEEP: op of the old graph; HT_AGREE, HT_FINAL_CHECK: rank; else index of a step */
    enum ht_tier tier; /* HT_FETCH: source; HT_COPY_AGAIN: target */
};

/* An optimizer step of the old graph. */
struct ht_controlled_step {
    int32_t op, rank; /* op: of the old graph */
    enum ht_tier tier;
    int32_t checked_after;   /* gate: op of the old graph after which all its gradients are final */
    enum ht_tier checked_in; /* gate: tier where they are then */
    int32_t fifo_before;     /* gate: last op of the old graph before it on its FIFO lane that does not move, or -1 */
    int32_t grad_check;      /* op of the new graph */
    int64_t log_bytes;       /* rollback: what its logs add to its work and to its memory traffic, in bytes */
};

struct ht_rebuild {
    const struct ht_schedule *in;
    const struct ht_control *control;
    struct ht_control_style style;
    struct ht_controlled_step *steps;
    int32_t n_steps;
    int32_t *step_of; /* [in ops], or -1 */
    bool *moved;      /* gate: [in ops] op moves behind the final check */
    uint8_t *current; /* rollback: [in tensors] tiers, as bits, that hold at the end what a step wrote */
    struct ht_rebuilt_op *order;
    int64_t n_order;
    size_t steps_cap, order_cap;
    int32_t *new_id; /* [in ops] */
    int32_t *log;    /* [in tensors] of a momentum: row of its log in the new graph, or -1 */
    struct ht_schedule *out;
    int32_t *agreed, *final_check; /* [ranks] ops of the new graph, or -1 */
};

/* Returns the first lane of a kind on a rank, or the last; -1 if the rank has none. */
int32_t ht_rebuild_lane(const struct ht_schedule *s, int32_t rank, enum ht_lane_kind kind);
int32_t ht_rebuild_last_lane(const struct ht_schedule *s, int32_t rank, enum ht_lane_kind kind);
/* Returns the lane of a rank that copies from one tier to another, or -1. */
int32_t ht_rebuild_copy_lane(const struct ht_schedule *s, int32_t rank, enum ht_tier from, enum ht_tier to);

/* Returns true for the effect of a step on a gradient that it reads, or on a momentum. A step has one of each for every
   unit or shard. */
bool ht_rebuild_gradient(const struct ht_schedule *s, const struct ht_effect *e);
bool ht_rebuild_momentum(const struct ht_schedule *s, const struct ht_effect *e);

/* Returns true if a step's effect leaves what it writes in its tier (rollback). */
bool ht_rebuild_writes(const struct ht_effect *e);
/* Returns true if what a step's effect wrote has later been copied to a tier and is still there (rollback). */
bool ht_rebuild_copied(const struct ht_rebuild *r, const struct ht_effect *e, enum ht_tier to);
/* Returns true if the undo must fetch what a step's effect wrote from a tier: the step's own tier has lost
   it, and this is the first tier that has it (rollback). */
bool ht_rebuild_fetched(const struct ht_rebuild *r, const struct ht_effect *e, enum ht_tier from);

/* Returns how many bytes of a log without exceptions are written and read for so many elements; 0 but for rollback. */
int64_t ht_rebuild_log_traffic_bytes(const struct ht_control *control, int64_t elements);

#endif
