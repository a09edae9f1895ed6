/* Functions shared by the files that write drafts. Internal to common/draft; see draft.h. */
#ifndef HT_DRAFT_DRAFT_INTERNAL_H
#define HT_DRAFT_DRAFT_INTERNAL_H

#include "common/draft/blocking.h"
#include "common/draft/draft_extra.h"

#define HT_NO_LANES                                                                                                    \
    (struct ht_lanes)                                                                                                  \
    {                                                                                                                  \
        -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1                                                 \
    }

/* Scratch of a pass over a kind of unit, or what it keeps. */
struct ht_draft_scratch {
    const struct ht_scenario *scenario; /* with the model, or the part of it; NULL: none known */
    unsigned sub_ops;
    int64_t bytes;
};

/* State that a draft keeps for itself. In the flags of a program see struct ht_program. */
struct ht_draft_state {
    struct ht_scenario
        *of_part; /* owned copies of the scenario with one part's model if tp > 1, else NULL: one, or of each
                                     stage if these are of different widths */
    struct ht_layout *own_layout; /* the layout if ht_draft_begin made it, else NULL */
    struct ht_lanes *all_lanes;   /* [sharers]; NULL in a pipeline */

    /* Gathering, see zero.c. */
    enum ht_gather keeps;
    bool reduce_once; /* false without sharding or with one round */
    const bool
        *hands_whole; /* [n_units]: of a back, each part has all columns of what its front hands; NULL: its own */
    bool by_matrix;   /* rows of fresh gradients have the bytes of the largest matrix: they are added up one by one */
    bool blocks_gathers;
    bool one_communicator; /* false without sharding */
    int32_t *full_param;   /* [n_units + 1] all shards gathered; this, full_grad and full_sum are -1 without shards */
    int32_t *full_grad;    /* [(n_units + 1) * n_mb] fresh gradient before it is scattered */
    int32_t *full_sum;     /* [n_units + 1] with reduce_once: sum over the rank's micro-batches, of which 0 writes it */
    bool *gathered;        /* [n_units + 1] full_param is on the device */
    int32_t computed;      /* last compute op of a pass, or -1 */
    int32_t slot, ahead;   /* op before the current slot, and op before the previous slot; or -1 */
    int32_t pending_reduce;     /* unit last passed to ht_draft_wait_reduced, or -1 */
    int32_t held_unit, held_mb; /* RS(u,j) that is held back until the next unit's AG is appended; or -1 */

    struct ht_draft_scratch scratch[HT_UNIT_HEAD + 1]
                                   [2]; /* of the last passes over each kind of unit, forward and backward */
    struct ht_draft_scratch kept[HT_UNIT_HEAD + 1]; /* by the last whole unit of each kind */

    struct ht_blocking_edges edges;
    bool ends_blocked; /* the mark of these is to be set to the iteration's last op */
    int32_t followed;  /* edges.waited when the last kernel was appended; -2 before the first */
};

/* Begins the draft of a replica's part, without lanes and rows (draft.c). */
void ht_draft_init(struct ht_draft *g, const struct ht_scenario *scenario, const struct ht_layout *layout,
                   int32_t replica, int32_t part, const char *name);
/* Adds the draft's rows on `rank`, or where `holder`, `forward_rank` and `table` say. */
void ht_draft_add_rows(struct ht_draft *g);
/* Makes the scenario with the part's model of the stage of a rank that of the draft; rank -1 changes nothing. */
void ht_draft_turn_to_stage(struct ht_draft *g, int32_t rank);
/* Frees all but the graph and returns it. */
struct ht_schedule *ht_draft_free(struct ht_draft *g);

/* Returns the unit of the model that an index of the draft's arrays stands for, or of which it is a half; its sub-ops:
   those of a half, or all; its elements. */
int32_t ht_draft_unit(const struct ht_draft *g, int32_t index);
unsigned ht_draft_sub_ops(const struct ht_draft *g, int32_t index);
int64_t ht_draft_params(const struct ht_draft *g, int32_t index);
/* Returns the shard that a rank has of a unit; that its holder has of it. */
const struct ht_shard *ht_draft_shard_of(const struct ht_draft *g, int32_t unit, int32_t rank);
const struct ht_shard *ht_draft_shard(const struct ht_draft *g, int32_t unit);
/* Returns true if the unit is a tied embedding's, and the head has already summed its gradients of all micro-batches. */
bool ht_draft_head_has_summed(const struct ht_draft *g, int32_t unit);
/* Adds a row of the current rank. */
int32_t ht_draft_row(struct ht_draft *g, enum ht_tensor_class class, int32_t unit, int32_t mb, int64_t bytes);

/* Appends full_sum(u) += G(u,j) on the current rank; with reduce_once. */
int32_t ht_draft_add_to_sum(struct ht_draft *g, int32_t unit, int32_t mb);

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
