/*
 * The memory rule at work: asks, grants and releases. The core does these for every op, so they are here to be inlined;
 * what few ops need is in grant.c. Internal to common/exec.
 */
#ifndef HT_EXEC_GRANT_RULE_H
#define HT_EXEC_GRANT_RULE_H

#include "common/exec/grant_state.h"

static inline void ht_grants_mark_changed(struct ht_grants *g, struct space *sp)
{
    if (sp->changed) return;
    sp->changed = true;
    g->changed[g->n_changed++] = (int32_t)(sp - g->spaces);
}

/* Takes one who may now be granted what it was denied, or returns -1. */
static inline int32_t ht_grants_next_woken(struct ht_grants *g)
{
    return g->n_changed || g->n_woken ? ht_grants_wake(g) : -1;
}

static inline int64_t ht_grants_place(const struct space *sp, int32_t iteration, const struct amount *t)
{
    return (int64_t)iteration * sp->n + t->position;
}

/* Returns true when t's group may have its bytes: equation (*) of grant.h. Otherwise writes what may change that. */
static inline bool ht_grants_allow(struct ht_grants *g, struct space *sp, int32_t iteration, const struct amount *t,
                                   int64_t bytes, bool waits, struct waiter *waiter)
{
    int64_t most = waits ? sp->order : sp->capacity;
    if (bytes == 0) return true;
    if (sp->live + bytes > most) {
        *waiter = (struct waiter){.live = most - bytes, .blocked = INT64_MAX};
        return false;
    }
    if (bytes <= most - sp->order - sp->ahead) return true;
    int64_t place = ht_grants_place(sp, iteration, t);
    if (place == sp->frontier) return true;
    *waiter = (struct waiter){.live = INT64_MIN, .blocked = ht_grants_last_blocked(g, sp, place, bytes, most)};
    return waiter->blocked < 0;
}

/* Grants `bytes` to t's group. */
static inline void ht_grants_grant(struct ht_grants *g, struct space *sp, int32_t iteration, const struct amount *t,
                                   int64_t bytes)
{
    int64_t place = ht_grants_place(sp, iteration, t);
    sp->live += bytes;
    if (sp->live > sp->peak) sp->peak = sp->live;
    if (place == sp->frontier)
        ht_grants_advance(sp);
    else
        ht_grants_put(sp, place, bytes);
    if (place < sp->wake_blocked && sp->frontier <= sp->wake_blocked) return;
    /* It no longer limits the groups behind it. */
    if (place > sp->last_granted) sp->last_granted = place;
    ht_grants_mark_changed(g, sp);
}

/* Asks for the memory of the issue group that begins with op `first` (the op, or the node's members of its group), all
   or nothing. waits: it could not start yet. Returns -1 when granted; otherwise the space that denied it, which then wakes
   `who` when the answer may have changed. again: `who` asks for one group at a time. */
static inline int32_t ht_grants_ask(struct ht_grants *g, int32_t iteration, int32_t first, bool waits, int32_t who,
                                    bool again)
{
    const struct amount *begin = g->amounts + g->begin[first], *end = g->amounts + g->begin[first + 1], *asks = begin;
    for (; asks < end && !asks->release; asks++) {
        const struct parcel *p = &g->parcels[asks->parcel];
        struct waiter waiter;
        if (ht_grants_allow(g, &g->spaces[p->space], iteration, asks, p->bytes, waits, &waiter)) continue;
        waiter.who = who;
        ht_grants_wait(&g->spaces[p->space], waiter, again);
        return p->space;
    }
    for (const struct amount *t = begin; t < asks; t++) {
        const struct parcel *p = &g->parcels[t->parcel];
        ht_grants_grant(g, &g->spaces[p->space], iteration, t, p->bytes);
    }
    return -1;
}

/* Skips an issue group whose `when` is false: it will neither ask nor release. */
static inline void ht_grants_skip(struct ht_grants *g, int32_t iteration, int32_t first)
{
    const struct amount *end = g->amounts + g->begin[first + 1];
    for (const struct amount *t = g->amounts + g->begin[first]; t < end && !t->release; t++)
        ht_grants_grant(g, &g->spaces[g->parcels[t->parcel].space], iteration, t, 0);
}

/* Frees what an ended op releases. */
static inline void ht_grants_release(struct ht_grants *g, int32_t iteration, int32_t op)
{
    const struct amount *begin = g->amounts + g->begin[op];
    for (const struct amount *t = g->amounts + g->begin[op + 1]; t-- > begin && t->release;) { /* they come last */
        const struct parcel *p = &g->parcels[t->parcel];
        struct space *sp = &g->spaces[p->space];
        int64_t place = ht_grants_place(sp, iteration, t);
        bool beyond = place > sp->frontier;
        sp->live -= p->bytes;
        if (beyond) ht_grants_less(sp, place, p->bytes);
        if (beyond && place > sp->wake_blocked && place > sp->last_released) sp->last_released = place;
        if (sp->live <= sp->wake_live || sp->last_released >= 0) ht_grants_mark_changed(g, sp);
    }
}

/* Prefetches the data of ops that ask soon: first `next`, then `later`. */
static inline void ht_grants_fetch(const struct ht_grants *g, int32_t next, int32_t later)
{
    __builtin_prefetch(&g->begin[later]);
    __builtin_prefetch(&g->amounts[g->begin[next]]);
}

#endif
