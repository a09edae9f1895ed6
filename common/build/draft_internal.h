/* What the files that write drafts share. Internal to common/build; see draft.h. */
#ifndef HT_BUILD_DRAFT_BUILD_H
#define HT_BUILD_DRAFT_BUILD_H

#include "common/build/draft.h"

/* draft.c: begins the draft of a replica's part, without lanes and rows; then its rows, of `rank`, or where `holder`, `maker` and `table` say;
   frees all but the graph, and returns that. */
void ht_draft_init(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_layout *layout,
                   int32_t replica, int32_t part, const char *name);
void ht_draft_add_rows(struct ht_draft *g);
struct ht_schedule *ht_draft_free(struct ht_draft *g);

/* Returns the unit that an index of the draft's arrays means. */
int32_t ht_draft_unit(const struct ht_draft *g, int32_t index);
/* Returns what the unit's holder has of it. */
const struct ht_shard *ht_draft_shard(const struct ht_draft *g, int32_t unit);
/* Does the embedding begin a gradient of its own, though the model is tied? When the head has a table of its own, and when it
   has added up the head's gradients of all micro-batches before. */
bool ht_draft_begins_anew(const struct ht_draft *g, int32_t unit);
/* Adds a row of the rank whose turn it is. */
int32_t ht_draft_row(struct ht_draft *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes);

/* zero.c. The next gathering begins a new slot. */
void ht_zero_begin_slot(struct ht_draft *g);
/* Appends AG(u) for a pass of micro-batch mb, unless its parameters are there. */
void ht_zero_all_gather(struct ht_draft *g, int32_t unit, int32_t mb);
/* Appends RS(u,j), or with reduce_once after the last one RS(u). */
void ht_zero_reduce_scatter(struct ht_draft *g, int32_t unit, int32_t mb);
/* Appends a rank's member of AR(u), of so many. crosses: as ht_charge_collective. */
void ht_zero_all_reduce(struct ht_draft *g, int32_t unit, int32_t members, bool crosses);

#endif
