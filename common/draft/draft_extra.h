/*
 * What only some systems need of a draft (draft.h): activations cut by sub-op, blocks passed in halves, ops that a system
 * writes by itself, programs that wait for what they enqueue, ranks that share states, and drafts that planners look into.
 */
#ifndef HT_DRAFT_DRAFT_EXTRA_H
#define HT_DRAFT_DRAFT_EXTRA_H

#include "common/draft/control.h"
#include "common/draft/draft.h"

/* ---- drafts and ranks --------------------------------------------------------------------------------------------- */

/* Begins the draft of a program's first rank: lanes, resources and all tensor rows. Planners append ops to it to find
   out what is live. */
void ht_draft_begin(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_program *program);
/* Frees the index arrays and returns the draft, linked. Its collectives lack their peers. */
struct ht_schedule *ht_draft_end(struct ht_draft *g);

/* Makes the rank of a micro-batch the current one, or with mb -1 the first rank. Without sharers it does nothing. */
void ht_draft_turn_to(struct ht_draft *g, int32_t mb);

/* ---- activations by sub-op ---------------------------------------------------------------------------------------- */

/* Cuts A(u,j) of a block into n rows: row i keeps what the sub-ops of mask sub_ops[i] keep. One row can stay, another
   be copied, a third recomputed. The masks are disjoint and cover all sub-ops. No op may refer to A(u,j) yet. */
void ht_draft_cut(struct ht_draft *g, int32_t unit, int32_t mb, const unsigned *sub_ops, int32_t n);

/* Append one half of F(u,j) or B(u,j) of a block, HT_ATTENTION_HALF or HT_MLP_HALF: forward the attention's half first,
   backward the MLP's. Between the backward ones dX(u,j) holds the gradient of proj, and G has that of the MLP's
   parameters. A(u,j) is cut so that proj is a row of its own and no other row is of both halves: each half makes and
   frees its own rows, and the MLP's half of B frees proj. With HT_ALL_SUB_OPS they append the whole pass, of any unit.
   Not for shards of parameters. */
int32_t ht_draft_forward_half(struct ht_draft *g, int32_t unit, int32_t mb, unsigned half, unsigned keep);
int32_t ht_draft_backward_half(struct ht_draft *g, int32_t unit, int32_t mb, unsigned half);

/* ---- ops of a system's own ---------------------------------------------------------------------------------------- */

/* Returns the label of a unit and of the replica's micro-batch mb, numbered over all replicas. mb -1: no
   micro-batch. */
struct ht_label ht_draft_label(const struct ht_draft *g, int32_t unit, int32_t mb);

/* Returns the last op that the emitters of passes have appended on the compute lane, sums of whole gradients included. */
int32_t ht_draft_computed(const struct ht_draft *g);
/* Appends an op that only frees a row in host memory, on the current rank's host lane. It takes no time. */
int32_t ht_draft_release(struct ht_draft *g, int32_t row);
/* Appends a copy of this many bytes; the caller adds the effects on its rows. */
int32_t ht_draft_transfer(struct ht_draft *g, struct ht_label about, enum ht_tier from, enum ht_tier to, int64_t bytes);

/* ---- waiting ------------------------------------------------------------------------------------------------------- */

/* Says for which ops the program waits from here on, across iterations, too; nothing by default. A builder that has not
   overlapped anything (HT_BLOCKS_ALL) has the next iteration wait for this one's last op. */
void ht_draft_blocks(struct ht_draft *g, enum ht_blocking blocking);
/* Makes the last op wait as ht_draft_blocks has said. Builders call it after each op of their own. */
void ht_draft_chain(struct ht_draft *g);
/* Makes the host wait for the last op, a kernel, if the draft has HT_BLOCKS_HOST: the host reads its result. */
void ht_draft_block(struct ht_draft *g);

#endif
