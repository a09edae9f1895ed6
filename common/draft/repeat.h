/*
 * Ops that a draft writes for each micro-batch alike. The first of them are written in full; when two in a row differ by
 * their micro-batch alone, the next ones are copies of the second:
 *
 *     F5 of micro-batch 1     reads X5.1 (row 20)   P5 (row 3)   makes X6.1 (row 60)
 *     F5 of micro-batch 2     reads X5.2 (row 23)   P5 (row 3)   makes X6.2 (row 64)
 *     F5 of micro-batch 7     reads row 23 + 5 * 3  row 3        makes row 64 + 5 * 4
 *
 * A row found so is taken if it says that it is what the second's row is, of the micro-batch at hand. Else the op is written in
 * full. Rows of a draft differ in class, label or rank, but for the scratch that a pass adds itself, of which a copy adds its own.
 *
 * Edges, the group and the name are left to who appends the op.
 */
#ifndef HT_DRAFT_REPEAT_H
#define HT_DRAFT_REPEAT_H

#include "common/draft/draft_internal.h"

struct ht_repeat {
    int n;              /* ops noted, up to 2 */
    bool alike;         /* the two of them differ by their micro-batch alone */
    int64_t key;        /* of who notes them: with another one it starts again */
    int32_t op[2];      /* the last two */
    int32_t mb[2];      /* of the replica */
    int32_t scratch[2]; /* rows that they added, or -1 */
};

/* Appends the op of a micro-batch as a copy; returns false, with nothing appended, if it has to be written. r: NULL: it has. */
bool ht_repeat_op(struct ht_draft *g, struct ht_repeat *r, int64_t key, int32_t mb);
/* Notes the last op, which was written in full, when the schedule had n_tensors rows. Effects may still be added, the same for all
   micro-batches. */
void ht_repeat_note(struct ht_draft *g, struct ht_repeat *r, int64_t key, int32_t mb, int32_t n_tensors);

#endif
