/*
 * The ends of running issue groups, of which the first is wanted: by time, then by id.
 *
 * Slots, one a lane since a lane runs one op at a time, play a tournament. Its leaves are the slots' ends; a node above
 * holds the slot that ends first below it. A changed end plays again only up to where it changes nothing: most new ends
 * lose at once. The tree is small and stays in cache however large the graph is.
 */
#ifndef HT_EXEC_SIM_ENDS_H
#define HT_EXEC_SIM_ENDS_H

#include "common/base/array.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define HT_SIM_NO_END INT64_MAX /* time of a slot that runs nothing, or whose end is not known */

struct ht_sim_end {
    int64_t time_ns, id; /* id: orders issue groups as the safe sequence does; the user chooses it */
};

struct ht_sim_ends {
    struct ht_sim_end *of_slot; /* [n_leaves] */
    int32_t *first;   /* [2 * n_leaves]: slots; node 1 is the root, node i has 2 i and 2 i + 1, leaves come last */
    int32_t n_leaves; /* a power of two */
};

static inline unsigned __int128 ht_sim_ends_key(struct ht_sim_end e)
{
    return (unsigned __int128)(uint64_t)e.time_ns << 64 | (uint64_t)e.id;
}

static inline void ht_sim_ends_init(struct ht_sim_ends *e, int32_t n_slots)
{
    for (e->n_leaves = 1; e->n_leaves < n_slots;) e->n_leaves *= 2;
    e->of_slot = HT_NEW_ARRAY(struct ht_sim_end, e->n_leaves);
    e->first = HT_NEW_ARRAY(int32_t, 2 * (int64_t)e->n_leaves);
    for (int32_t i = 0; i < e->n_leaves; i++) {
        e->of_slot[i].time_ns = HT_SIM_NO_END;
        e->first[e->n_leaves + i] = i;
    }
    for (int32_t i = e->n_leaves - 1; i >= 1; i--) e->first[i] = e->first[2 * i];
}

static inline void ht_sim_ends_free(struct ht_sim_ends *e)
{
    free(e->of_slot);
    free(e->first);
}

/* Returns when the first one ends; HT_SIM_NO_END: none does. */
static inline int64_t ht_sim_ends_next_ns(const struct ht_sim_ends *e)
{
    return e->of_slot[e->first[1]].time_ns;
}

/* Lets the slot that has won so far, with its end, play against another one: the winner remains. No branch: who wins cannot be
   predicted. */
static inline void ht_sim_ends_play(const struct ht_sim_ends *e, uint32_t other, uint32_t *winner,
                                    struct ht_sim_end *end)
{
    struct ht_sim_end x = e->of_slot[other];
    bool before = ht_sim_ends_key(x) < ht_sim_ends_key(*end);
    *winner = before ? other : *winner;
    end->time_ns = before ? x.time_ns : end->time_ns;
    end->id = before ? x.id : end->id;
}

/* Sets the slot's end, or moves it. */
static inline void ht_sim_ends_set(struct ht_sim_ends *e, int32_t slot, struct ht_sim_end end)
{
    e->of_slot[slot] = end;
    uint32_t winner = (uint32_t)slot;
    for (uint32_t i = (uint32_t)e->n_leaves + winner; i > 1; i >>= 1) {
        ht_sim_ends_play(e, (uint32_t)e->first[i ^ 1], &winner, &end);
        if ((uint32_t)e->first[i >> 1] == winner && winner != (uint32_t)slot) return;
        e->first[i >> 1] = (int32_t)winner;
    }
}

/* Takes the first end. Returns its slot. There must be one. */
static inline int32_t ht_sim_ends_take(struct ht_sim_ends *e, struct ht_sim_end *end)
{
    const struct ht_sim_end none = {.time_ns = HT_SIM_NO_END};
    uint32_t slot = (uint32_t)e->first[1], winner = slot;
    struct ht_sim_end first = none;
    *end = e->of_slot[slot];
    e->of_slot[slot] = none;
    for (uint32_t i = (uint32_t)e->n_leaves + slot; i > 1; i >>= 1) { /* it had won all the way up */
        ht_sim_ends_play(e, (uint32_t)e->first[i ^ 1], &winner, &first);
        e->first[i >> 1] = (int32_t)winner;
    }
    return (int32_t)slot;
}

#endif
