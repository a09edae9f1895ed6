/*
 * Maps the elements of the state to the residents of a schedule that hold them, and to their ranks. All ranks make the
 * same map, so that rank 0 can request a piece by its name.
 *
 *     unit 3, param       | resident 7 on rank 0, whole                      |
 *                         | resident 9 on rank 1, whole                      |      data-parallel: two copies
 *     unit 3, momentum    | resident 8 on rank 0   | resident 10 on rank 1   |      shards
 *     pieces                                       ^ cut here: each copy has all of a piece, or nothing
 *
 * Of a unit in tensor-parallel parts a copy has one part's elements, which in a cut matrix lie between the other
 * parts'. A piece is then of one matrix or vector: either every part has all of it, or each has its share.
 */
#ifndef HT_CKPT_STATE_MAP_H
#define HT_CKPT_STATE_MAP_H

#include "common/ckpt/state.h"
#include "common/schedule/schedule.h"

struct ht_state_copy {
    int32_t resident;          /* row of the schedule's list */
    int32_t rank;              /* that has it (common/exec/residents.h): its device's, or the first one of its node */
    int64_t begin, end;        /* elements; of a tensor-parallel part, all that it has */
    int32_t tp_part, tp_parts; /* of the unit; 0 of 1: the copy has elements of the whole */
    enum ht_dtype type;        /* other than HT_F32: a copy of a master */
    bool stale; /* not to be read: a copy of a master, or one that waits for the optimizer's step elsewhere */
};

struct ht_state_map;

/* Returns whether a tensor is part of the state, or is made from it. */
bool ht_state_holds(const struct ht_tensor *t);
/* Returns the part that such a tensor is of. */
enum ht_state_part ht_state_part_of(const struct ht_tensor *t);

/*
 * Makes the map. A tensor that is resident in several tiers counts where the optimizer steps it, if it is resident
 * there; the others are stale. param: the type that computes. HT_FAILED when a tensor does not fit the model, or when
 * elements are resident nowhere.
 */
enum ht_status ht_state_map_create(const struct ht_schedule *s, const struct ht_model *model, enum ht_dtype param,
                                   struct ht_error *err, struct ht_state_map **out);
void ht_state_map_destroy(struct ht_state_map *map); /* accepts NULL */

/* Gives the copies of a part of a unit, stale ones too, by rank; returns how many. */
int64_t ht_state_map_copies(const struct ht_state_map *map, int64_t unit, enum ht_state_part part,
                            const struct ht_state_copy **out);

/* Returns the beginning of a piece: as much of it as each copy has all of, or nothing, and as a piece may have. */
struct ht_piece ht_state_map_cut(const struct ht_state_map *map, struct ht_piece piece);

/* Returns into how many shares such a piece falls, one a tensor-parallel part; 1: whoever has any of it has all. */
int32_t ht_state_map_shares(const struct ht_state_map *map, struct ht_piece piece);

/* Returns whether a copy has a share of a piece that was cut so; share -1: any of it. */
bool ht_state_has(const struct ht_state_copy *c, struct ht_piece piece, int32_t share);

/* Returns the next elements of a piece that lie next to each other in a copy that has a share of it: those from
   element *at of the unit on, which moves behind them; false: there are no more. */
struct ht_state_run {
    int64_t in_copy, in_piece, count;
};
bool ht_state_next_run(const struct ht_state_map *map, const struct ht_state_copy *c, struct ht_piece piece,
                       int64_t *at, struct ht_state_run *out);

#endif
