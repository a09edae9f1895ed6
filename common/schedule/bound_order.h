/*
 * The order that edges and FIFO lanes imply over two iterations, for the bound of memory (bound.h).
 *
 * Of an instance it is known at which position of each FIFO lane ops start after it has ended. All of that is needed only while
 * instances before it are looked at. What is kept is asked for by the spaces in which its op makes or frees something: each asks
 * about the lanes that make something in it.
 */
#ifndef HT_SCHEDULE_BOUND_ORDER_H
#define HT_SCHEDULE_BOUND_ORDER_H

#include "common/schedule/schedule.h"

enum { HT_ORDER_NEVER = INT32_MAX };

/* Instance i of op o is i * n_ops + o. */
struct ht_order {
    const struct ht_schedule *s;
    int32_t n;         /* instances */
    int32_t *position; /* [n] in its FIFO lane over both iterations; -1 on PRIORITY lanes */
    int32_t issue_ahead;
    int32_t *asked_begin; /* [spaces + 1] */
    int32_t *asked;       /* [asked_begin[spaces]] FIFO lanes that each space asks about */
    uint8_t *tiers;       /* [n_ops] bit t: the op makes or frees something there */
    int64_t *begin;       /* [n_ops + 1] its columns in `after`: those of each of its tiers */
    int32_t *after;       /* [2 * begin[n_ops]] first positions that start after the instance has ended */
    enum ht_tier tier;    /* of the space at hand */
    int32_t *column;      /* [n_lanes] of a lane that the space at hand asks about */
};

/* Returns the op of an instance. */
static inline int32_t ht_order_op(const struct ht_order *o, int32_t x)
{
    return x < o->s->n_ops ? x : x - o->s->n_ops;
}

static inline int32_t ht_order_lane(const struct ht_order *o, int32_t x)
{
    return o->s->ops[ht_order_op(o, x)].lane;
}

static inline int32_t ht_order_lead(const struct ht_order *o, int32_t lane)
{
    enum ht_lane_kind k = o->s->lanes[lane].kind;
    return o->issue_ahead && k != HT_LANE_HOST && k != HT_LANE_DISK ? o->issue_ahead + 1 : 0;
}

static inline int32_t ht_order_columns(const struct ht_order *o, int32_t space)
{
    return o->asked_begin[space + 1] - o->asked_begin[space];
}

/* Returns what the space at hand asks of an instance, which makes or frees something in it. */
static inline const int32_t *ht_order_after(const struct ht_order *o, int32_t x)
{
    int32_t op = ht_order_op(o, x);
    const int32_t *row = o->after + o->begin[op] + (x == op ? 0 : o->begin[o->s->n_ops]);
    for (enum ht_tier t = HT_DEVICE; t < o->tier; t++)
        if (o->tiers[op] >> t & 1) row += ht_order_columns(o, ht_space(o->s, t, ht_op_rank(o->s, op)));
    return row;
}

/* Returns true if a has surely ended when b is granted its memory. Both are of the space at hand. */
bool ht_order_is_before(const struct ht_order *o, int32_t a, int32_t b);

/* Finds the order. issue_ahead as in ht_schedule_bound. */
void ht_order_init(struct ht_order *o, const struct ht_schedule *s, int32_t issue_ahead);
void ht_order_free(struct ht_order *o);

/* Makes a space the one at hand. */
void ht_order_turn_to(struct ht_order *o, int32_t space);

#endif
