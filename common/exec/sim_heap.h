/*
 * A 4-ary heap of the ends of running issue groups, by time and then by id, in which an entry can be moved.
 *
 * It has one slot per lane, since a lane runs one op at a time. So the heap is small and stays in cache however large
 * the graph is.
 */
#ifndef HT_EXEC_SIM_HEAP_H
#define HT_EXEC_SIM_HEAP_H

#include "common/base/array.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct ht_sim_entry {
    int64_t time_ns, id; /* id: orders issue groups as the safe sequence does; the user chooses it */
    int32_t slot;
};

struct ht_sim_heap {
    struct ht_sim_entry *entries;
    int32_t *at; /* [n_slots]: index into entries, or -1 */
    int32_t n;
};

static inline void ht_sim_heap_init(struct ht_sim_heap *h, int32_t n_slots)
{
    h->entries = HT_NEW_ARRAY(struct ht_sim_entry, n_slots);
    h->at = HT_NEW_ARRAY(int32_t, n_slots);
    h->n = 0;
    for (int32_t i = 0; i < n_slots; i++) h->at[i] = -1;
}

static inline void ht_sim_heap_free(struct ht_sim_heap *h)
{
    free(h->entries);
    free(h->at);
}

/* Compares without branches, which would be hard to predict. */
static inline bool ht_sim_heap_before(const struct ht_sim_entry *a, const struct ht_sim_entry *b)
{
    return (a->time_ns < b->time_ns) | ((a->time_ns == b->time_ns) & (a->id < b->id));
}

static inline void ht_sim_heap_place(struct ht_sim_heap *h, int32_t i, struct ht_sim_entry e)
{
    h->entries[i] = e;
    h->at[e.slot] = i;
}

static inline void ht_sim_heap_up(struct ht_sim_heap *h, int32_t i, struct ht_sim_entry e)
{
    for (; i > 0 && ht_sim_heap_before(&e, &h->entries[(i - 1) / 4]); i = (i - 1) / 4)
        ht_sim_heap_place(h, i, h->entries[(i - 1) / 4]);
    ht_sim_heap_place(h, i, e);
}

/* Picks the first of four children by a mask: which one it is cannot be predicted, and compilers branch on `?:`. */
static inline void ht_sim_heap_down(struct ht_sim_heap *h, int32_t i, struct ht_sim_entry e)
{
    for (int32_t child; (child = 4 * i + 1) < h->n; i = child) {
        int32_t last = child + 4 < h->n ? child + 4 : h->n;
        for (int32_t c = child + 1; c < last; c++)
            child ^= (child ^ c) & -(int32_t)ht_sim_heap_before(&h->entries[c], &h->entries[child]);
        if (!ht_sim_heap_before(&h->entries[child], &e)) break;
        ht_sim_heap_place(h, i, h->entries[child]);
    }
    ht_sim_heap_place(h, i, e);
}

/* Adds the slot's entry, or moves it. */
static inline void ht_sim_heap_set(struct ht_sim_heap *h, struct ht_sim_entry e)
{
    int32_t i = h->at[e.slot];
    if (i < 0) {
        ht_sim_heap_up(h, h->n++, e);
    } else if (ht_sim_heap_before(&e, &h->entries[i])) {
        ht_sim_heap_up(h, i, e);
    } else {
        ht_sim_heap_down(h, i, e);
    }
}

static inline struct ht_sim_entry ht_sim_heap_pop(struct ht_sim_heap *h)
{
    struct ht_sim_entry top = h->entries[0], last = h->entries[--h->n];
    h->at[top.slot] = -1;
    if (h->n) ht_sim_heap_down(h, 0, last);
    return top;
}

#endif
