/*
 * Parameters on their way to the device and off it, turn by turn, in systems that keep them on disk or in host memory:
 *
 *     disk      P1  P2  P3 ..             read, from the disk to host memory
 *     h2d           P1  P2  P3 ..         fetch, from host memory to the device
 *     compute           F1  F2  F3 ..     the turn's last pass drops them
 *
 * A turn's parameters are its unit's, and with a tied head the token table. They may begin a hop a number of turns ahead,
 * behind those of the turns before, and once no earlier turn has them in the tier to which they go: around the head a
 * unit comes twice within few turns. A system says how far ahead, for which ops the reads wait, and what they are called.
 *
 * On a node whose ranks share the states (ht_draft_turn_to) a read serves all ranks, and each fetches for itself.
 */
#ifndef HT_DRAFT_HOPS_H
#define HT_DRAFT_HOPS_H

#include "common/draft/draft.h"
#include "common/draft/turns.h"

struct ht_hops {
    struct ht_draft *g;
    /* Set by the system after ht_hops_init. */
    int32_t ahead[2];   /* turns that fetches come ahead of a forward turn and of a backward turn; 1 by default */
    int32_t read_ahead; /* turns that reads come ahead of fetches; 1 by default */
    bool *stays;        /* [n_units] the unit is on the device all the time; false by default */
    /* Called behind each read, which is the last op: names it and makes it wait. NULL: parameters are in host memory all
       the time. */
    void (*on_read)(void *system, int32_t turn, int32_t unit);
    void *system;
    int32_t *computed; /* [n_turns * sharers] at ht_hops_at: last compute op of a turn, which the system sets */
    /* Progress of the hops. */
    int32_t n_turns;
    int32_t *fetched;     /* [n_turns * sharers] last copy to the device of what a turn needs; a system may add */
    int32_t last, before; /* last fetch; op for which those wait that begin with the first turn; or -1 */
    int32_t next_read, next_fetch; /* the turn whose parameters come next */
    bool *in_host, *on_device;     /* [n_units] a turn's parameters are there */
};

/* Begins the way of the parameters of all turns of `rounds` rounds. */
void ht_hops_init(struct ht_hops *h, struct ht_draft *g, int32_t rounds);
/* Begins the turns again, for another micro-batch, behind an op or -1, which is the last fetch until there is one. */
void ht_hops_restart(struct ht_hops *h, int32_t before);
void ht_hops_free(struct ht_hops *h);

/* Returns the index of a turn on a sharer in the arrays of ops. */
static inline int32_t ht_hops_at(const struct ht_hops *h, int32_t turn, int32_t sharer)
{
    return turn * h->g->sharers + sharer;
}
/* Returns the turn in whose time the parameters of a turn may come to the device. */
int32_t ht_hops_first(const struct ht_hops *h, int32_t turn);
/* Makes the last op, on a sharer, wait until the turn before this one has ended, as fetches do. */
void ht_hops_not_before(const struct ht_hops *h, int32_t turn, int32_t sharer);

/* Append the reads and the fetches that may begin with turn `now`. */
void ht_hops_read(struct ht_hops *h, int32_t now);
void ht_hops_fetch(struct ht_hops *h, int32_t now);
/* Frees a turn's parameters on the device behind the last op. */
void ht_hops_drop(struct ht_hops *h, int32_t turn);

#endif
