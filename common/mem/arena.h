/*
 * A memory space of the machine: one mapping, a best-fit allocator, and its own book of what was live.
 *
 * `capacity_bytes` is the budget that live bytes may never pass (live bytes are rounded to 512, as the semantics counts
 * them). Holes between live blocks cost address space, not budget: the mapping is capacity plus a declared slack, and
 * `extent` says how much of it was used. The page behind the mapping is PROT_NONE, so that a kernel that runs past its
 * buffer at the end of the arena faults; under AddressSanitizer every byte outside a live block is poisoned.
 *
 *     | persistent | transient | hole | transient |  tail: never used or free again  | guard |
 *     0                                           ^ grows upwards                    ^ capacity + slack
 */
#ifndef HT_MEM_ARENA_H
#define HT_MEM_ARENA_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ht_arena;

struct ht_arena_stats {
    int64_t capacity_bytes, slack_bytes;
    int64_t live_bytes, peak_bytes; /* rounded to 512: the budget's measure */
    int64_t extent_bytes;           /* highest address ever used, from the start: peak plus fragmentation */
    int64_t largest_hole_bytes;     /* the largest block that the addresses (not the budget) could take now */
    int64_t n_allocs, n_frees;
};

/* capacity_bytes >= 0, slack_bytes >= 0; both are rounded up to 512. Slack is address space until it is used, so it may
   be as large as the capacity: real schedules at the edge of their budget (in memory and ZeRO-Offload, with and without
   checkpointing, 1 and 4 micro-batches) were seen to need up to 22% of it. prefault: touch the capacity's pages now
   (timings want that), else the system gives pages as they are first touched. HT_INFEASIBLE when the mapping is refused. */
enum ht_status ht_arena_create(int64_t capacity_bytes, int64_t slack_bytes, bool prefault, struct ht_error *err,
                               struct ht_arena **out);
/* The same allocator over memory that the caller owns, and that this process may not be able to read: a device's, say.
   `base`, at a multiple of 512, has capacity_bytes + slack_bytes, and outlives the arena. It is never touched, there is
   no guard behind it, and nothing is poisoned. */
enum ht_status ht_arena_create_over(void *base, int64_t capacity_bytes, int64_t slack_bytes, struct ht_error *err,
                                    struct ht_arena **out);
/* Where it lies: capacity and slack, without the guard. *bytes may be NULL. */
void *ht_arena_base(const struct ht_arena *a, int64_t *bytes);
/* Accepts NULL. Blocks still live go with it. */
void ht_arena_destroy(struct ht_arena *a);

/* Thread-safe. 512-byte aligned, bytes >= 1, contents undefined. NULL when the budget would be passed or no hole is
   large enough; ht_arena_explain says which. The smallest hole that fits is taken; persistent blocks from its low end,
   transient ones from its high end, so that in holes the two kinds drift apart. The tail is used when no hole fits. */
void *ht_arena_alloc(struct ht_arena *a, int64_t bytes, bool persistent);
/* Thread-safe. Accepts NULL; anything else must have come from ht_arena_alloc of this arena and be live. */
void ht_arena_free(struct ht_arena *a, void *p);

/* Thread-safe: a consistent snapshot. */
struct ht_arena_stats ht_arena_stats(const struct ht_arena *a);
/* Whether this machine has the memory that arenas are going to touch, with a tenth left over; HT_INFEASIBLE with both
   figures if not. `what` begins the line: "training 'zero_offload'". Without it the system would have to end somebody. */
enum ht_status ht_arena_check_machine(double bytes, const char *what, struct ht_error *err);
/* Why `bytes` cannot be had now, for an error message; into buf:
   "1.2 GB do not fit: 10.1 of 16 GB live, largest hole 0.9 GB, slack 0.5 GB (fragmentation; 0.3 GB more slack would
   do)" */
const char *ht_arena_explain(const struct ht_arena *a, int64_t bytes, char *buf, size_t n);

#endif
