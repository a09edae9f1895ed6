/* A graph that is rebuilt under control, and questions about its lanes, effects and logs that control.c, which orders
   ops, and control_ops.c, which writes them, have in common. Internal. */
#ifndef HT_BUILD_CONTROL_REBUILD_H
#define HT_BUILD_CONTROL_REBUILD_H

#include "common/build/control.h"

enum { HT_WRITES = HT_PRODUCE | HT_UPDATE }; /* flags of an effect */

/* One op of the new graph, in order. `at`: an op of the old graph, a rank (agreement, verdict), or a step. */
enum ht_rebuilt {
    HT_KEEP,
    HT_JUDGE,
    HT_AGREE,
    HT_FINAL_CHECK,
    HT_FREE,
    HT_RECAST,
    HT_FETCH,
    HT_UNDO_STEP,
    HT_REDO,
    HT_SEND_ON
};

struct ht_rebuilt_op {
    enum ht_rebuilt what;
    int32_t at;
    enum ht_tier tier; /* HT_FETCH: where from; HT_SEND_ON: where to */
};

struct ht_controlled_step {
    int32_t op, rank; /* op: of the old graph */
    enum ht_tier tier;
    int32_t checked_after; /* op of the old graph after which all its gradients are final, and where they are; gate */
    enum ht_tier checked_in;
    int32_t place;      /* op of the old graph before it on its FIFO lane that does not move with it, or -1; gate */
    int32_t grad_check; /* op of the new graph */
    /* Rollback: what its logs add to its work, and to what it takes of shared memory. */
    int64_t work_bytes, moved_bytes;
};

struct ht_rebuild {
    const struct ht_schedule *in;
    const struct ht_control *control;
    struct ht_control_style style;
    struct ht_controlled_step *steps;
    int32_t n_steps;
    int32_t *step_of; /* [in ops], or -1 */
    bool *moved;      /* [in ops] behind the verdict; gate */
    uint8_t *current; /* [in tensors] the tiers, as bits, that have at the end what a step wrote; rollback */
    struct ht_rebuilt_op *order;
    int64_t n_order;
    size_t steps_cap, order_cap;
    int32_t *new_id; /* [in ops] */
    int32_t *log;    /* [in tensors] of a momentum: its log, a row of the new graph; or -1 */
    struct ht_schedule *out;
    int32_t *agreed, *final_check; /* [ranks] ops of the new graph; -1 where there is none */
};

/* The first lane of a kind on a rank, and the last; or -1. */
int32_t ht_rebuild_lane(const struct ht_schedule *s, int32_t rank, enum ht_lane_kind kind);
int32_t ht_rebuild_last_lane(const struct ht_schedule *s, int32_t rank, enum ht_lane_kind kind);
/* The lane of a rank that copies from one tier to another, or -1. */
int32_t ht_rebuild_copy_lane(const struct ht_schedule *s, int32_t rank, enum ht_tier from, enum ht_tier to);

/* Is an effect of a step that on a gradient, by which it goes, or on a momentum, one for each of its units or shards? */
bool ht_rebuild_gradient(const struct ht_schedule *s, const struct ht_effect *e);
bool ht_rebuild_momentum(const struct ht_schedule *s, const struct ht_effect *e);

/* What becomes of the tensor of a step's effect; rollback. Is it written there for good? Has it been copied to a tier
   since? Must the undo get it from there, having been moved away altogether? */
bool ht_rebuild_writes(const struct ht_effect *e);
bool ht_rebuild_carried(const struct ht_rebuild *r, const struct ht_effect *e, enum ht_tier to);
bool ht_rebuild_fetched(const struct ht_rebuild *r, const struct ht_effect *e, enum ht_tier from);

/* Returns how many bytes of a log without exceptions are written and read for so many elements; 0 but for rollback. */
int64_t ht_rebuild_log_traffic_bytes(const struct ht_control *control, int64_t elements);

#endif
