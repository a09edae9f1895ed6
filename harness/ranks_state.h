/*
 * The training state over several ranks. Rank 0 keeps the files, so that they are those of one rank, written whole or
 * not at all by the same code; each rank has a struct ht_state of its own, of which rank 0 fills all units and the
 * others those that they have a resident of: a pipeline's rank its stages, a node's first rank what its host has. What
 * is not filled is memory never touched, so it costs nothing (persist.h says what the rest does).
 *
 *     rank 0   files --> state ----share---> ranks' states --> their resident tensors --> steps
 *                        ^                                                                  |
 *              files <---+------take-------- what each rank has of its residents <----------'
 */
#ifndef HT_HARNESS_RANKS_STATE_H
#define HT_HARNESS_RANKS_STATE_H

#include "common/backend/cpu.h"
#include "harness/persist.h"
#include "harness/ranks.h"

/* Host memory of all ranks together for the state, by what each of them fills; of one rank, too. */
int64_t ht_ranks_state_bytes(const struct ht_schedule *s, const struct ht_model *model);

/* All ranks get what rank 0 has and they need: units, steps done, where it came from. */
enum ht_status ht_ranks_share_state(const struct ht_ranks *ranks, struct ht_persist *p, struct ht_error *err);

/* Ends a taking: what each rank has taken of its residents, and how often it has stepped them, becomes the state
   again: the whole on rank 0, the units that they need on others. HT_FAILED on all of them when parts differ or are
   missing. */
enum ht_status ht_ranks_take_state(const struct ht_ranks *ranks, const struct ht_schedule *s, const struct ht_cpu *cpu,
                                   struct ht_persist *p, struct ht_error *err);

#endif
