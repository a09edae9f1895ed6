/*
 * The verifier: proves what every executor relies on, in time linear in the schedule's edges.
 *
 *   shape      ids in range; dependencies point back; lanes of groups are FIFO; members consecutive and independent;
 *              the members' communicators and byte counts fit together; op kinds on lanes that can run them; a copy
 *              copies something
 *   hazards    per place: what is read, updated or released is there, what is produced is not. Every reader has a direct
 *              edge (or the same FIFO lane) from the last op that wrote or freed; every such op has one from every reader
 *              since the one before it, or, if there was none, from that one. On a FIFO lane the first reader's edge and
 *              the last reader's stand for all of that lane. The same across the iteration boundary for what is resident
 *              there
 *   control    a `when` op has an edge from a verdict, a validate op that reads what it judges or has an edge from every
 *              validate op of its rank that judges a unit's gradient; these cover all gradients that are stepped. Both
 *              branches are walked for everything below
 *   coverage   the micro-batches tile the batch; each passes every unit forward and backward once (recomputation apart),
 *              with as many sequences as it has; sub-op masks add up. Whatever rows a block's activations are cut into, a
 *              backward pass reads each sub-op's once, and a recomputation what ht_sub_ops_read names
 *   updates    every momentum row is stepped once (or, in the bad branch, all of them not at all), with a gradient that
 *              has every micro-batch once; the shards of a unit tile it, alike for momentum, variance and master parameters. A
 *              fragment (n_units 0) without a step is let be
 *   closure    what is resident at the end is what was resident at the start
 *   memory     the safe sequence (ops one at a time in id order) fits every space: if not, that is the OOM
 *
 * A broken rule is HT_FAILED ("schedule 'x': op 12 (B3): reads activation 3 without an edge from op 7 (F3)"): a builder's
 * bug, or HT_BAD_INPUT when the graph came from a file (the caller maps it). OOM is HT_INFEASIBLE.
 */
#ifndef HT_SCHEDULE_VERIFY_H
#define HT_SCHEDULE_VERIFY_H

#include "common/schedule/schedule.h"

enum ht_rule {
    HT_RULE_SHAPE,
    HT_RULE_HAZARD,
    HT_RULE_CONTROL,
    HT_RULE_COVERAGE,
    HT_RULE_UPDATE,
    HT_RULE_CLOSURE,
    HT_RULE_MEMORY,
    HT_N_RULES
};

/* Bytes that the safe sequence needs, and who holds them at its worst point. */
struct ht_footprint {
    int64_t peak_bytes;                    /* of the safe sequence */
    int32_t peak_op;                       /* where; -1: at the boundary */
    int64_t by_class[HT_N_TENSOR_CLASSES]; /* at that point, the op's own allocations included */
    bool fits;
    int32_t first_oom_op;    /* first op that does not fit; -1: none, or the residents already do not */
    int64_t oom_needs_bytes; /* what it (its group) asked for in this space, */
    int64_t oom_held_bytes;  /* what was held before, */
    int64_t oom_held_by_class[HT_N_TENSOR_CLASSES]; /* and by whom */
};

struct ht_proof {
    bool proved[HT_N_RULES];
    int32_t n_spaces;
    struct ht_footprint *spaces; /* [n_spaces] */
};

/* Stops at the first broken rule with its text. On HT_OK and HT_INFEASIBLE `verdict` (may be NULL) is filled; free it. */
enum ht_status ht_schedule_verify(const struct ht_schedule *s, struct ht_error *err, struct ht_proof *proof);
void ht_proof_free(struct ht_proof *v);
const char *ht_rule_name(enum ht_rule r);

/* Returns the need of the whole safe sequence minus the capacity, in bytes; 0 when it fits. Every "short by" is this. */
int64_t ht_footprint_short_bytes(const struct ht_footprint *f, int64_t capacity_bytes);

/* The space whose op is the first that cannot be given its memory, which the OOM's line is about; -1: all fit. */
int32_t ht_footprints_first_oom(const struct ht_footprint *spaces, int32_t n_spaces);

/* "OOM at backward of block 17 on device 0: needs 1.2 GB, 38.9 GB of 40 GB held (activations 21.4 GB, ...); the
   iteration needs 52.3 GB, short by 12.3 GB", or, if it fits, "device 0: peak 38.9 GB of 40 GB at backward of block 17
   (activations 21.4 GB, ...)". The op is the first one that cannot be given its memory. */
void ht_footprint_describe(const struct ht_schedule *s, int32_t space, const struct ht_footprint *f, char *buf,
                           size_t n);

#endif
