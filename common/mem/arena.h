/*
 * A memory space of the machine: one mapping, a best-fit allocator, and its own book of what was live.
 *
 * `capacity_bytes` is the budget that live bytes may never pass (live bytes are rounded to 512, as the semantics counts
 * them). Holes between live blocks cost address space, not budget: the mapping is capacity plus a declared slack, and
 * `extent` says how much of it was touched. Pages beyond it are PROT_NONE, so that a kernel that runs past its buffer at
 * the end of the arena faults.
 */
#ifndef HT_MEM_ARENA_H
#define HT_MEM_ARENA_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ht_arena;

struct ht_arena_stats {
    int64_t capacity_bytes, slack_bytes;
    int64_t live_bytes, peak_bytes;     /* rounded to 512: the budget's measure */
    int64_t extent_bytes;               /* highest address ever used, from the start: peak plus fragmentation */
    int64_t largest_hole_bytes;
    int64_t n_allocs, n_frees;
};

/* Thread-safe. prefault: touch all pages now (timings want that). guard: in debug builds put PROT_NONE after the end. */
enum ht_status ht_arena_create(int64_t capacity_bytes, int64_t slack_bytes, bool prefault, struct ht_error *err,
                               struct ht_arena **out);
void ht_arena_destroy(struct ht_arena *a);
/* 512-byte aligned; NULL when there is no hole, or when the budget would be passed (`why` in stats tells). Persistent
   blocks are placed from the bottom, transient ones from the top of the used extent, so that they do not mix. */
void *ht_arena_alloc(struct ht_arena *a, int64_t bytes, bool persistent);
void ht_arena_free(struct ht_arena *a, void *p);
struct ht_arena_stats ht_arena_stats(const struct ht_arena *a);

#endif
