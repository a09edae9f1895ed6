/*
 * Maps the elements of the state to the residents of a schedule that hold them, and to their ranks. All ranks make the
 * same map, so that rank 0 can request a piece by its name.
 *
 *     unit 3, param       | resident 7 on rank 0, whole                      |
 *                         | resident 9 on rank 1, whole                      |      data-parallel: two copies
 *     unit 3, momentum    | resident 8 on rank 0   | resident 10 on rank 1   |      shards
 *     pieces                                       ^ cut here: each copy has all of a piece, or nothing
 *
 * For a unit in tensor-parallel parts a copy has one part's elements, or a shard of them. In a cut matrix they lie
 * between those of the other parts. A piece then belongs to one matrix or vector: either every part has all of it, or
 * each has its share. A shard's ends cut pieces, so that it has all of its part's share or nothing. The halves of a block may
 * be divided into different numbers of parts; a piece is of one of them, as copies' ends cut pieces.
 */
#ifndef HT_CKPT_STATE_MAP_H
#define HT_CKPT_STATE_MAP_H

#include "common/ckpt/state.h"
#include "common/schedule/schedule.h"

struct ht_state_copy {
    int32_t resident;          /* row of the schedule's list */
    int32_t rank;              /* that has it (common/exec/residents.h): its device's, or the first of its node */
    int64_t begin, end;        /* elements of the unit, or of a tensor-parallel part of it */
    int32_t tp_part, tp_parts; /* of the unit; 0 of 1: the copy has elements of the whole */
    enum ht_dtype type;        /* other than HT_F32: a rounded copy of a master */
    bool stale;                /* must not be read: a rounded copy, or a copy that the optimizer does not step */
};

struct ht_state_map;

/* Returns true if a tensor is part of the state, or is made from it. */
bool ht_state_holds(const struct ht_tensor *t);
/* Returns the part to which such a tensor belongs. */
enum ht_state_part ht_state_part_of(const struct ht_tensor *t);

/*
 * Creates the map. If a tensor is resident in several tiers, the copy that the optimizer steps is current and the
 * others are stale. param: type of the compute parameters. HT_FAILED if a tensor does not fit the model, or if elements
 * are resident nowhere.
 */
enum ht_status ht_state_map_create(const struct ht_schedule *s, const struct ht_model *model, enum ht_dtype param,
                                   struct ht_error *err, struct ht_state_map **out);
void ht_state_map_destroy(struct ht_state_map *map); /* accepts NULL */

/* Returns the number of copies of a part of a unit and sets *out to them, by rank. Includes stale copies. */
int64_t ht_state_map_copies(const struct ht_state_map *map, int64_t unit, enum ht_state_part part,
                            const struct ht_state_copy **out);

/* Returns the beginning of a piece that each copy has in full or not at all, at most HT_PIECE_ELEMENTS. */
struct ht_piece ht_state_map_cut(const struct ht_state_map *map, struct ht_piece piece);

/* Returns the number of shares of such a piece: one per tensor-parallel part, or 1 if each copy with any of it has
   all. */
int32_t ht_state_map_shares(const struct ht_state_map *map, struct ht_piece piece);

/* Returns true if a copy has a share of a piece that was cut so, which may be empty; share -1: any share. */
bool ht_state_has(const struct ht_state_map *map, const struct ht_state_copy *c, struct ht_piece piece, int32_t share);

/* Finds the next run of elements of a piece that are adjacent in a copy that has a share of it, from element *at of the
   unit on. Moves *at behind the run. Returns false if there are no more. */
struct ht_state_run {
    int64_t in_copy, in_piece, count;
};
bool ht_state_next_run(const struct ht_state_map *map, const struct ht_state_copy *c, struct ht_piece piece,
                       int64_t *at, struct ht_state_run *out);

#endif
