/*
 * The last issue group on the same lanes with the same work. Most groups are like that one; whoever lists them compares first. A
 * small cache: what it forgets is listed anew.
 */
#ifndef HT_EXEC_RECENT_H
#define HT_EXEC_RECENT_H

#include "common/base/array.h"
#include "common/schedule/schedule.h"

enum { HT_RECENT = 4096 };

/* Returns an empty cache; the caller frees it. */
static inline int32_t *ht_recent_create(void)
{
    return ht_alloc_ids(HT_RECENT);
}

/* Returns where the first op of the last group like [first, end) is, -1: none, and where `first` is to go. */
static inline int32_t *ht_recent_of(int32_t *recent, const struct ht_schedule *s, int32_t first, int32_t end)
{
    uint32_t lanes = (uint32_t)s->ops[first].lane * 0x9e3779b1u + (uint32_t)s->ops[end - 1].lane * 0xc2b2ae3du;
    return &recent[(lanes ^ (uint32_t)s->ops[first].work * 0x85ebca6bu) >> 20];
}

#endif
