/* Functions shared by the files that write drafts. Internal to common/draft; see draft.h. */
#ifndef HT_DRAFT_DRAFT_INTERNAL_H
#define HT_DRAFT_DRAFT_INTERNAL_H

#include "common/draft/draft.h"

/* Begins the draft of a replica's part, without lanes and rows (draft.c). */
void ht_draft_init(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_layout *layout,
                   int32_t replica, int32_t part, const char *name);
/* Adds the draft's rows on `rank`, or where `holder`, `forward_rank` and `table` say. */
void ht_draft_add_rows(struct ht_draft *g);
/* Frees all but the graph and returns it. */
struct ht_schedule *ht_draft_free(struct ht_draft *g);

/* Returns the unit that an index of the draft's arrays stands for. */
int32_t ht_draft_unit(const struct ht_draft *g, int32_t index);
/* Returns the shard that a unit's holder has of it. */
const struct ht_shard *ht_draft_shard(const struct ht_draft *g, int32_t unit);
/* Returns true if the unit is a tied embedding's, and the head has already summed its gradients of all micro-batches. */
bool ht_draft_head_has_summed(const struct ht_draft *g, int32_t unit);
/* Adds a row of the current rank. */
int32_t ht_draft_row(struct ht_draft *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes);

/* Begins a new slot with the next all-gather (zero.c). */
void ht_zero_begin_slot(struct ht_draft *g);
/* Appends AG(u) for a pass of micro-batch mb, unless its whole parameters are on the device. */
void ht_zero_all_gather(struct ht_draft *g, int32_t unit, int32_t mb);
/* Appends RS(u,j); with reduce_once RS(u), after the last micro-batch only. With one communicator it may hold the op back
   until ht_zero_end_gathers. */
void ht_zero_reduce_scatter(struct ht_draft *g, int32_t unit, int32_t mb);
/* Appends the reduce-scatter that is held back, if there is one: the all-gathers of the next pass are in front of it. */
void ht_zero_end_gathers(struct ht_draft *g);

/* The ranks of a collective, in its order of members. */
struct ht_zero_group {
    const int32_t *ranks; /* NULL: all */
    int32_t n;
    bool crosses; /* of the current rank, as for ht_charge_collective */
};
/* Append the current rank's member of AG(u), of RS(u,j), or of the AR of n units. The draft's builder says which ranks
   they have; the functions above have all of them. */
void ht_zero_all_gather_over(struct ht_draft *g, int32_t unit, bool takes_part, const struct ht_zero_group *group);
void ht_zero_reduce_scatter_over(struct ht_draft *g, int32_t unit, int32_t mb, const struct ht_zero_group *group);
void ht_zero_all_reduce(struct ht_draft *g, int32_t unit, int32_t n, const struct ht_zero_group *group);

#endif
