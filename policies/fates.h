/*
 * Fates in a plan and in a schedule. A plan has a vector of one element a block for each part of a block; the emitters
 * here cut a block's activations accordingly, and copy them out and back. They serve systems that take the policies of
 * policy.h.
 *
 *     d2h   AO   swapped activations leave the GPU after the block's forward pass
 *     disk  AW   some go on from main memory to the SSDs
 *     disk  AR   and come back
 *     h2d   AI   before the block's backward pass
 */
#ifndef HT_POLICIES_FATES_H
#define HT_POLICIES_FATES_H

#include "common/draft/draft.h"
#include "common/draft/turns.h"
#include "common/plan/system.h"
#include "policies/policy.h"

/* A block's activations by part: what a sub-op keeps, or the block's input, which stands in fc2's place. */
enum { HT_PART_INPUT = HT_SUB_FC2, HT_N_PARTS = HT_N_SUB_OPS };
extern const char *const ht_part_names[HT_N_PARTS]; /* "norm1", .., "input" */
/* Returns the sub-ops whose activations are a part. DiT's fc2, which keeps what its gate scales, goes with gelu.
   part: not HT_PART_INPUT. */
unsigned ht_part_sub_ops(const struct ht_model *m, int part);
/* Returns the bytes of a part of a block and a micro-batch. */
double ht_part_bytes(const struct ht_scenario *sc, int part);

/* clang-format off */
#define HT_KNOB_FATE(NAME, MIN) \
    {NAME, "by block: 0 recomputed, 1 main memory, 2 SSD, 3 kept on the GPU", .min = MIN, .max = HT_FATE_KEPT, .kind = HT_VARIABLE_LIST}
/* Knobs of all parts. A block's input is never recomputed. */
#define HT_KNOBS_FATES \
    {"input", "a block's input, by block: 1 main memory, 2 SSD, 3 kept on the GPU", .min = HT_FATE_MAIN, .max = HT_FATE_KEPT, .kind = HT_VARIABLE_LIST}, \
    HT_KNOB_FATE("norm1", 0), HT_KNOB_FATE("qkv", 0), HT_KNOB_FATE("attention", 0), HT_KNOB_FATE("proj", 0), \
    HT_KNOB_FATE("norm2", 0), HT_KNOB_FATE("fc1", 0), HT_KNOB_FATE("gelu", 0)
#define HT_KNOB_AHEAD \
    {"ahead", "turns that a block's activations come ahead of its backward pass, by block", .max = 1 << 20, .kind = HT_VARIABLE_LIST}
/* clang-format on */

struct ht_fates {
    struct ht_draft *g;
    const struct ht_variable *of[HT_N_PARTS]; /* of L elements each */
    const struct ht_variable *ahead;          /* likewise; NULL if the plan has none */
    bool halves;                              /* blocks are passed in halves, and so are their rows cut */
    int32_t next_read, next_in;               /* of ht_fates_fetch */
};

/* Reads a plan's fates and cuts the activations of all blocks. No op may refer to them yet. */
void ht_fates_init(struct ht_fates *f, struct ht_draft *g, const struct ht_plan *plan);
/* Returns the fate of a part of a block. */
enum ht_fate ht_fate_of(const struct ht_fates *f, int32_t unit, int part);
/* Lists a block's tensors with this fate: its input, and the row of its sub-ops; in halves the rows of the attention's
   sub-ops, of proj, and of the MLP's. Returns their number. */
enum { HT_MAX_FATE_ROWS = 4 };
int32_t ht_fates_rows(const struct ht_fates *f, int32_t unit, int32_t mb, enum ht_fate fate,
                      int32_t rows[HT_MAX_FATE_ROWS]);
/* Returns the sub-ops of a block that have this fate. fc2, which keeps nothing, is with others, in halves with those of
   its own; DiT's with gelu. */
unsigned ht_fates_sub_ops(const struct ht_fates *f, int32_t unit, enum ht_fate fate);

/* Appends AO, and AW if something goes to the SSDs, behind the block's forward pass. */
void ht_fates_out(const struct ht_fates *f, int32_t unit, int32_t mb);
/* Append AW, AR. Return its id, or -1 if nothing goes to the SSDs. */
int32_t ht_fates_write(const struct ht_fates *f, int32_t unit, int32_t mb);
int32_t ht_fates_read(const struct ht_fates *f, int32_t unit, int32_t mb);
/* Appends AI, behind AR. Returns its id, or -1 if nothing is swapped. */
int32_t ht_fates_in(const struct ht_fates *f, int32_t unit, int32_t mb);
/*
 * Appends the fetches that begin with turn `now` of a micro-batch's backward pass (common/draft/turns.h): AI `ahead`
 * turns before a block's, AR one more. They wait for the turn before: computed[t] is the last op of turn t. The plan
 * must have `ahead`. Call for the head's turn first.
 */
void ht_fates_fetch(struct ht_fates *f, int32_t mb, int32_t now, const int32_t *computed);
/* Names the last op by letters, unit and, with several of them, micro-batch. */
void ht_fates_name(const struct ht_draft *g, const char *letters, int32_t unit, int32_t mb);

#endif
