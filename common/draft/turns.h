/*
 * Turns: the order in which the passes of a micro-batch go over a model's units. The head's forward and backward follow
 * each other and are one turn. Rounds of micro-batches follow one another.
 *
 *     turn      0   1  ..  L    H     H+1 ..  2H-1  2H  | 2H+1 ..        H = L + 1, the head
 *     unit      0   1  ..  L    H      L  ..   1    0   |  0
 *     passes    F   F  ..  F   F B     B  ..   B    B   |  F
 */
#ifndef HT_DRAFT_TURNS_H
#define HT_DRAFT_TURNS_H

#include <stdbool.h>
#include <stdint.h>

struct ht_turn {
    int32_t unit, round;
    bool forward, backward; /* which passes it has; the head's has both */
};

/* Returns the number of turns of a round. */
static inline int32_t ht_turns(int32_t n_units)
{
    return 2 * n_units - 1;
}

static inline struct ht_turn ht_turn(int32_t n_units, int32_t turn)
{
    int32_t head = n_units - 1, t = turn % ht_turns(n_units);
    return (struct ht_turn){.unit = t <= head ? t : 2 * head - t,
                            .round = turn / ht_turns(n_units),
                            .forward = t <= head,
                            .backward = t >= head};
}

/* Returns the turn in which the round of a turn passes its unit forward. */
static inline int32_t ht_turn_forward(int32_t n_units, int32_t turn)
{
    return turn - turn % ht_turns(n_units) + ht_turn(n_units, turn).unit;
}

#endif
