/*
 * A memory space of the machine: one mapping, a best-fit allocator, and its own record of live bytes.
 *
 * `capacity_bytes` is the budget of live bytes, each block rounded up to 512 (on disk 4096) as the semantics counts
 * them (common/base/granule.h). Holes between live blocks cost address space, not budget: the mapping is capacity plus
 * a declared slack, and `extent` says how much of it was used. The page after the mapping is PROT_NONE, so a kernel
 * that runs past its buffer at the end of the arena faults. Under AddressSanitizer every byte outside a live block is
 * poisoned, but of the tail only the first 8 MiB or more.
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
    int64_t live_bytes, peak_bytes; /* rounded up to the granule, as the budget counts them */
    int64_t extent_bytes;           /* highest offset ever used: peak plus fragmentation */
    int64_t largest_hole_bytes;     /* largest block that fits the addresses (not the budget) now */
    int64_t n_allocs, n_frees;
};

/* Creates an arena. capacity_bytes >= 0 and slack_bytes >= 0 are rounded up to 512. Slack is address space until it is
   used, so it may be as large as the capacity: real schedules at the edge of their budget (in memory and ZeRO-Offload,
   with and without checkpointing, 1 and 4 micro-batches) needed up to 22% of it. prefault: touches the capacity's pages
   now, for timings; else the system gives pages as they are first touched. Returns HT_INFEASIBLE when the mapping is
   refused. */
enum ht_status ht_arena_create(int64_t capacity_bytes, int64_t slack_bytes, bool prefault, struct ht_error *err,
                               struct ht_arena **out);
/* Creates an arena over memory that the caller owns and that this process may not be able to read, such as a device's.
   `base`, a multiple of 512, has capacity_bytes + slack_bytes, and outlives the arena. The arena never touches it, puts
   no guard behind it, and poisons nothing. */
enum ht_status ht_arena_create_over(void *base, int64_t capacity_bytes, int64_t slack_bytes, struct ht_error *err,
                                    struct ht_arena **out);
/* Creates an arena of addresses that stand for bytes of files (common/mem/disk.h); whoever touches one faults. Blocks
   are multiples of HT_DISK_GRANULE, to which both sizes are rounded up. base: a multiple of it with capacity_bytes +
   slack_bytes of addresses, the caller's, that outlive the arena; NULL: the arena reserves addresses. */
enum ht_status ht_arena_create_disk(void *base, int64_t capacity_bytes, int64_t slack_bytes, struct ht_error *err,
                                    struct ht_arena **out);
/* Returns the first byte of the arena; *bytes (may be NULL) is capacity and slack, without the guard. */
void *ht_arena_base(const struct ht_arena *a, int64_t *bytes);
/* Destroys the arena with all blocks still live. Accepts NULL. */
void ht_arena_destroy(struct ht_arena *a);

/* Allocates bytes >= 1, aligned to the granule, with undefined contents. Returns NULL when the budget would be exceeded
   or no hole is large enough; ht_arena_explain says which. Takes the smallest hole that fits: persistent blocks from
   its low end, transient ones from its high end, so that the two kinds drift apart. Takes from the tail when no hole
   fits. Thread-safe. */
void *ht_arena_alloc(struct ht_arena *a, int64_t bytes, bool persistent);
/* Frees a live block of this arena. Accepts NULL. Thread-safe. */
void ht_arena_free(struct ht_arena *a, void *p);

/* Returns a consistent snapshot. Thread-safe. */
struct ht_arena_stats ht_arena_stats(const struct ht_arena *a);
/* Returns the bytes of this machine's memory that arenas may take: all but a tenth. */
double ht_arena_machine_bytes(void);
/* Checks that this machine has the memory that arenas are going to touch, with a tenth left over. Returns HT_INFEASIBLE
   with the figures if not; otherwise the system would have to kill a process. `what` begins the line: "training
   'zero_offload'". */
enum ht_status ht_arena_check_machine(double bytes, const char *what, struct ht_error *err);
/* Writes to buf why `bytes` cannot be allocated now: "1.2 GB do not fit: 10.1 of 16 GB live, largest hole 0.9 GB, slack
   0.5 GB (fragmentation; 0.3 GB more slack would do)". Returns buf. */
const char *ht_arena_explain(const struct ht_arena *a, int64_t bytes, char *buf, size_t n);

#endif
