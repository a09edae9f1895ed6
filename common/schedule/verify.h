/*
 * The verifier: proves what every executor relies on, in time linear in the schedule's edges.
 *
 *   shape      Ids are in range; dependencies point back; lanes of groups are FIFO; members are consecutive and
 *              independent; the members' communicators and byte counts match; op kinds are on lanes that can run them;
 *              a copy copies something. What crosses a boundary in shards is gathered whole.
 *   hazards    Per residency: what is read, updated or released exists, what is produced does not. Every reader has a
 *              direct edge (or the same FIFO lane) from the last op that wrote or freed. Every such op has an edge
 *              from every reader since the one before it, or, if there was none, from that one. On a FIFO lane the
 *              first reader's edge and the last reader's stand for all of that lane. The same holds across the
 *              iteration boundary for residents.
 *   control    A `when` op has an edge from a final check. That is a validate op that reads the gradients that it
 *              checks, or has an edge from every validate op of its rank that checks a unit's gradient. These cover
 *              all gradients that are stepped. The next iteration's head, which reads the loss scale, waits for the
 *              final check of its rank. Everything below holds on both branches.
 *   coverage   The micro-batches tile the batch. Each passes every unit forward and backward once (besides
 *              recomputation), in order, with all of its sequences. A pass is of whole units, or of one half of a
 *              block: forward the attention half first, backward the MLP half. Each reads and writes its part of the
 *              residual stream. Sub-op masks add up: however a block's activations are cut into tensors, a backward pass
 *              reads each sub-op's once, and a recomputation reads what ht_sub_ops_read names.
 *   updates    Every momentum tensor is stepped once (or, on the bad branch, none is), with a gradient that has every
 *              micro-batch once. Both halves of a backward pass write the same one, or each its own. The shards of a unit tile it, alike
 *              for momentum, variance and master parameters. A fragment (n_units 0) without a step passes.
 *   closure    The residents at the end are those at the start.
 *   memory     The safe sequence (ops one at a time in id order) fits every space: its capacity, and the limit that the
 *              method declares. What the program takes of a device for it (pools.h) fits its capacity. If not, that is
 *              the OOM.
 *
 * A broken rule is HT_FAILED ("schedule 'x': op 12 (B3): reads activation 3 without an edge from op 7 (F3)"): a bug of
 * the builder, or HT_BAD_INPUT if the graph came from a file (the caller maps it). OOM is HT_INFEASIBLE.
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

/* The bytes that the safe sequence needs in a space, and the classes of tensors at its peak. */
struct ht_footprint {
    int64_t peak_bytes;                    /* of the safe sequence: tensors */
    int64_t program_bytes;                 /* what the program takes for them (pools.h); at least peak_bytes */
    int32_t peak_op;                       /* op at the peak; -1: at the boundary */
    int64_t by_class[HT_N_TENSOR_CLASSES]; /* at the peak, the op's own allocations included */
    bool fits;
    int32_t first_oom_op;      /* first op that does not fit; -1: none, or even the residents do not fit */
    int64_t oom_needs_bytes;   /* bytes that it (its group) needed in this space */
    int64_t oom_held_bytes;    /* bytes in use before it */
    int64_t oom_program_bytes; /* what the program takes with it */
    int64_t oom_held_by_class[HT_N_TENSOR_CLASSES];
};

struct ht_proof {
    bool proved[HT_N_RULES];
    int32_t n_spaces;
    struct ht_footprint *spaces; /* [n_spaces] */
};

/* Verifies a schedule. Stops at the first broken rule with its text. On HT_OK and HT_INFEASIBLE fills in `proof` (may
   be NULL), which the caller frees. */
enum ht_status ht_schedule_verify(const struct ht_schedule *s, struct ht_error *err, struct ht_proof *proof);
void ht_proof_free(struct ht_proof *v);
const char *ht_rule_name(enum ht_rule r);

/* Declares what the method takes of each device: the need of the safe sequence, and `beyond_bytes` for what it overlaps
   beside that. Ops that run ahead then stay within it (common/exec/README.md, Memory). For a whole graph: merging and
   control keep no limits. */
void ht_schedule_limit_devices(struct ht_schedule *s, int64_t beyond_bytes);

/* Returns the bytes by which the need of the whole safe sequence exceeds a space; 0 if it fits. Every "short by" in
   reports is this number. */
int64_t ht_footprint_short_bytes(const struct ht_schedule *s, int32_t space, const struct ht_footprint *f);

/* Returns the space of the first op that cannot be given its memory, which the OOM message is about; -1: all fit. */
int32_t ht_footprints_first_oom(const struct ht_footprint *spaces, int32_t n_spaces);

/* Describes a space in one line. "OOM at backward of block 17 on device 0: needs 1.2 GB, 38.9 GB of 40 GB held
   (activations 21.4 GB, ...); the iteration needs 52.3 GB, short by 12.3 GB", for the first op that cannot be given its
   memory; or, if it fits, "device 0: peak 38.9 GB of 40 GB at backward of block 17 (activations 21.4 GB, ...)". */
void ht_footprint_describe(const struct ht_schedule *s, int32_t space, const struct ht_footprint *f, char *buf,
                           size_t n);

#endif
