/*
 * The arena: best fit over holes sorted by size, with its tables outside the mapping.
 *
 *     block[]    every block, live or hole, linked to its neighbours in address order; entries are reused
 *     holes[]    the holes sorted by (bytes, offset): best fit is a binary search
 *     index[]    block of the granule (512 bytes, on disk 4096) at which a live block starts, so that free() finds its
 *                block. A sparse mapping: it costs a page where blocks start and nothing elsewhere.
 *     tail       offset from which on nothing is live; not a hole, so that it is used last
 *
 * The allocator touches nothing inside the arena. Two neighbouring blocks are never both free: free() joins them at
 * once, and a hole that reaches the tail becomes part of it. A schedule keeps tens to hundreds of holes, so moving the
 * sorted array on insertion (24 bytes a hole) is cheaper than any tree. Once the tables have grown to an iteration's
 * needs, no call allocates.
 */
#include "common/mem/arena.h"

#include "common/base/array.h"
#include "common/base/granule.h"
#include "common/base/units.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, (size_t)(n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, (size_t)(n))
#define POISONS        1
#else
#define POISONS        0
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { NONE = -1 };

struct block {
    int64_t offset, bytes; /* multiples of the granule */
    int32_t below, above;  /* neighbours in address order, or NONE; `above` also links unused entries */
    bool live;
};

struct hole {
    int64_t bytes, offset;
    int32_t block;
};

struct ht_arena {
    pthread_mutex_t lock;
    char *base;
    bool given;       /* base is the caller's */
    bool untouchable; /* the bytes are not this process's to touch */
    int64_t granule;
    int64_t usable_bytes;   /* capacity + slack */
    int64_t poisoned_bytes; /* below it, what is not live is poisoned */
    size_t mapped_bytes;    /* the same in whole pages, plus one guard page */
    int32_t *index;         /* [usable_bytes / granule] */
    size_t index_bytes;

    struct block *blocks;
    size_t n_blocks, blocks_cap;
    int32_t unused; /* first unused entry of blocks */
    int32_t last;   /* block below the tail, or NONE */
    int64_t tail;
    struct hole *holes;
    size_t n_holes, holes_cap;

    struct ht_arena_stats stats; /* without largest_hole_bytes, which ht_arena_stats computes */
};

/* ---- creation ---- */

enum { MAP_FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE };

static enum ht_status map(struct ht_arena *a, struct ht_error *err)
{
    int64_t page = sysconf(_SC_PAGESIZE), pages = ht_round_up(a->usable_bytes, page);
    char text[HT_QUANTITY_TEXT];
    a->mapped_bytes = (size_t)(pages + page);
    char *base = mmap(NULL, a->mapped_bytes, PROT_NONE, MAP_FLAGS, -1, 0);
    if (base == MAP_FAILED)
        return ht_fail(err, HT_INFEASIBLE, "cannot map %s of address space for a memory arena: %s",
                       ht_format_quantity(HT_BYTES, (double)a->mapped_bytes, text), strerror(errno));
    a->base = base;
    if (a->untouchable) return HT_OK;
    if (pages && mprotect(a->base, (size_t)pages, PROT_READ | PROT_WRITE))
        return ht_fail(err, HT_INFEASIBLE, "cannot open %s of memory for an arena: %s",
                       ht_format_quantity(HT_BYTES, (double)pages, text), strerror(errno));
    if (pages) (void)madvise(a->base, (size_t)pages, MADV_HUGEPAGE); /* a hint: fewer TLB misses in matrix products */
    return HT_OK;
}

static enum ht_status map_index(struct ht_arena *a, struct ht_error *err)
{
    char text[HT_QUANTITY_TEXT];
    a->index_bytes = (size_t)(a->usable_bytes / a->granule + 1) * sizeof(int32_t);
    void *index = mmap(NULL, a->index_bytes, PROT_READ | PROT_WRITE, MAP_FLAGS, -1, 0);
    if (index == MAP_FAILED)
        return ht_fail(err, HT_INFEASIBLE, "cannot map %s for the index of a memory arena: %s",
                       ht_format_quantity(HT_BYTES, (double)a->index_bytes, text), strerror(errno));
    a->index = index;
    return HT_OK;
}

static void prefault_pages(struct ht_arena *a, int64_t bytes)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    for (int64_t at = 0; at < bytes; at += page) *(volatile char *)(a->base + at) = 0;
}

static enum ht_status create(void *given, bool untouchable, int64_t granule, int64_t capacity_bytes,
                             int64_t slack_bytes, struct ht_error *err, struct ht_arena **out)
{
    char text[HT_QUANTITY_TEXT];
    assert(capacity_bytes >= 0 && slack_bytes >= 0);
    if (capacity_bytes > INT64_MAX / 4 || slack_bytes > INT64_MAX / 4)
        return ht_fail(err, HT_INFEASIBLE, "cannot make a memory arena of %s",
                       ht_format_quantity(HT_BYTES, (double)capacity_bytes + (double)slack_bytes, text));
    struct ht_arena *a = HT_NEW(struct ht_arena);
    a->unused = a->last = NONE;
    a->given = given != NULL;
    a->untouchable = untouchable;
    a->granule = granule;
    a->base = given;
    a->stats.capacity_bytes = ht_round_up(capacity_bytes, granule);
    a->stats.slack_bytes = ht_round_up(slack_bytes, granule);
    a->usable_bytes = a->stats.capacity_bytes + a->stats.slack_bytes;
    pthread_mutex_init(&a->lock, NULL);
    enum ht_status status = given ? HT_OK : map(a, err);
    if (status == HT_OK) status = map_index(a, err);
    if (status)
        ht_arena_destroy(a);
    else
        *out = a;
    return status;
}

/* Poisons the beginning of the tail, 8 to 16 MiB of it. Poison takes a byte of memory for eight: that of an arena as large
   as the machine's memory would cost a short training most of its time. */
static void poison_tail(struct ht_arena *a)
{
    const int64_t ahead = 16 << 20;
    if (!POISONS || a->untouchable || a->poisoned_bytes - a->tail > ahead / 2) return;
    int64_t end = a->tail + ahead < a->usable_bytes ? a->tail + ahead : a->usable_bytes;
    POISON(a->base + a->poisoned_bytes, end - a->poisoned_bytes);
    a->poisoned_bytes = end;
}

enum ht_status ht_arena_create(int64_t capacity_bytes, int64_t slack_bytes, bool prefault, struct ht_error *err,
                               struct ht_arena **out)
{
    enum ht_status status = create(NULL, false, HT_MEMORY_GRANULE, capacity_bytes, slack_bytes, err, out);
    if (status) return status;
    if (prefault) prefault_pages(*out, (*out)->stats.capacity_bytes);
    poison_tail(*out);
    return HT_OK;
}

enum ht_status ht_arena_create_over(void *base, int64_t capacity_bytes, int64_t slack_bytes, struct ht_error *err,
                                    struct ht_arena **out)
{
    assert(base && (uintptr_t)base % HT_MEMORY_GRANULE == 0 && capacity_bytes % HT_MEMORY_GRANULE == 0 &&
           slack_bytes % HT_MEMORY_GRANULE == 0);
    return create(base, true, HT_MEMORY_GRANULE, capacity_bytes, slack_bytes, err, out);
}

enum ht_status ht_arena_create_disk(void *base, int64_t capacity_bytes, int64_t slack_bytes, struct ht_error *err,
                                    struct ht_arena **out)
{
    assert((uintptr_t)base % HT_DISK_GRANULE == 0);
    return create(base, true, HT_DISK_GRANULE, capacity_bytes, slack_bytes, err, out);
}

void *ht_arena_base(const struct ht_arena *a, int64_t *bytes)
{
    if (bytes) *bytes = a->usable_bytes;
    return a->base;
}

void ht_arena_destroy(struct ht_arena *a)
{
    if (!a) return;
    if (a->base && !a->given) {
        if (!a->untouchable) UNPOISON(a->base, a->poisoned_bytes);
        munmap(a->base, a->mapped_bytes);
    }
    if (a->index) munmap(a->index, a->index_bytes);
    pthread_mutex_destroy(&a->lock);
    free(a->blocks);
    free(a->holes);
    free(a);
}

/* ---- the tables ---- */

static int32_t new_block(struct ht_arena *a, struct block b)
{
    int32_t id = a->unused;
    if (id != NONE) {
        a->unused = a->blocks[id].above;
        a->blocks[id] = b;
        return id;
    }
    HT_PUSH(a->blocks, a->n_blocks, a->blocks_cap, b);
    return (int32_t)(a->n_blocks - 1);
}

static void drop_block(struct ht_arena *a, int32_t id)
{
    a->blocks[id] = (struct block){.above = a->unused};
    a->unused = id;
}

/* Returns the first hole that is not smaller than (bytes, offset). */
static size_t find_hole(const struct ht_arena *a, int64_t bytes, int64_t offset)
{
    size_t low = 0, high = a->n_holes;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct hole *h = &a->holes[mid];
        if (h->bytes < bytes || (h->bytes == bytes && h->offset < offset))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void add_hole(struct ht_arena *a, int32_t id)
{
    const struct block *b = &a->blocks[id];
    size_t at = find_hole(a, b->bytes, b->offset);
    HT_RESERVE(a->holes, a->holes_cap, a->n_holes + 1);
    memmove(&a->holes[at + 1], &a->holes[at], (a->n_holes - at) * sizeof(*a->holes));
    a->holes[at] = (struct hole){.bytes = b->bytes, .offset = b->offset, .block = id};
    a->n_holes++;
}

static void remove_hole(struct ht_arena *a, int32_t id)
{
    const struct block *b = &a->blocks[id];
    size_t at = find_hole(a, b->bytes, b->offset);
    assert(at < a->n_holes && a->holes[at].block == id);
    a->n_holes--;
    memmove(&a->holes[at], &a->holes[at + 1], (a->n_holes - at) * sizeof(*a->holes));
}

/* ---- allocation ---- */

/* Cuts `bytes` from a hole, at its low or its high end. Returns the live block. */
static int32_t take_from_hole(struct ht_arena *a, int32_t hole, int64_t bytes, bool low_end)
{
    remove_hole(a, hole);
    struct block *h = &a->blocks[hole];
    if (h->bytes == bytes) {
        h->live = true;
        return hole;
    }
    struct block cut = {.offset = low_end ? h->offset : h->offset + h->bytes - bytes, .bytes = bytes, .live = true};
    cut.below = low_end ? h->below : hole;
    cut.above = low_end ? hole : h->above;
    int32_t id = new_block(a, cut); /* may move the blocks */
    h = &a->blocks[hole];
    h->bytes -= bytes;
    if (low_end) {
        h->offset += bytes;
        h->below = id;
        if (cut.below != NONE) a->blocks[cut.below].above = id;
    } else {
        h->above = id;
        a->blocks[cut.above].below = id; /* a hole always has a neighbour above; else it would be the tail */
    }
    add_hole(a, hole);
    return id;
}

static int32_t take_from_tail(struct ht_arena *a, int64_t bytes)
{
    int32_t id =
        new_block(a, (struct block){.offset = a->tail, .bytes = bytes, .below = a->last, .above = NONE, .live = true});
    if (a->last != NONE) a->blocks[a->last].above = id;
    a->last = id;
    a->tail += bytes;
    if (a->tail > a->stats.extent_bytes) a->stats.extent_bytes = a->tail;
    poison_tail(a);
    return id;
}

/* Returns, among the smallest holes that fit, the lowest, or for transient blocks the highest. NONE: no hole fits. */
static int32_t best_hole(const struct ht_arena *a, int64_t bytes, bool persistent)
{
    size_t at = find_hole(a, bytes, 0);
    if (at == a->n_holes) return NONE;
    if (!persistent) at = find_hole(a, a->holes[at].bytes + 1, 0) - 1;
    return a->holes[at].block;
}

static int32_t alloc_block(struct ht_arena *a, int64_t bytes, bool persistent)
{
    if (bytes > a->stats.capacity_bytes - a->stats.live_bytes) return NONE;
    int32_t hole = best_hole(a, bytes, persistent);
    if (hole != NONE) return take_from_hole(a, hole, bytes, persistent);
    if (bytes <= a->usable_bytes - a->tail) return take_from_tail(a, bytes);
    return NONE;
}

void *ht_arena_alloc(struct ht_arena *a, int64_t bytes, bool persistent)
{
    assert(bytes >= 1);
    if (bytes > a->stats.capacity_bytes) return NULL; /* also keeps the rounding from overflowing */
    void *p = NULL;
    pthread_mutex_lock(&a->lock);
    int32_t id = alloc_block(a, ht_round_up(bytes, a->granule), persistent);
    if (id != NONE) {
        const struct block *b = &a->blocks[id];
        a->index[b->offset / a->granule] = id;
        a->stats.n_allocs++;
        a->stats.live_bytes += b->bytes;
        if (a->stats.live_bytes > a->stats.peak_bytes) a->stats.peak_bytes = a->stats.live_bytes;
        p = a->base + b->offset;
        if (!a->untouchable) UNPOISON(p, bytes);
    }
    pthread_mutex_unlock(&a->lock);
    return p;
}

/* ---- freeing ---- */

/* Joins `id` with the free block above it, whose entry becomes unused. */
static void merge_above(struct ht_arena *a, int32_t id)
{
    struct block *b = &a->blocks[id];
    int32_t above = b->above;
    b->bytes += a->blocks[above].bytes;
    b->above = a->blocks[above].above;
    if (b->above != NONE)
        a->blocks[b->above].below = id;
    else
        a->last = id;
    drop_block(a, above);
}

static void free_block(struct ht_arena *a, int32_t id)
{
    struct block *b = &a->blocks[id];
    b->live = false;
    if (b->above != NONE && !a->blocks[b->above].live) {
        remove_hole(a, b->above);
        merge_above(a, id);
    }
    if (b->below != NONE && !a->blocks[b->below].live) {
        int32_t below = b->below;
        remove_hole(a, below);
        merge_above(a, below);
        id = below;
        b = &a->blocks[id];
    }
    if (id != a->last) {
        add_hole(a, id);
        return;
    }
    a->tail = b->offset;
    a->last = b->below;
    if (a->last != NONE) a->blocks[a->last].above = NONE;
    drop_block(a, id);
}

void ht_arena_free(struct ht_arena *a, void *p)
{
    if (!p) return;
    pthread_mutex_lock(&a->lock);
    int64_t offset = (char *)p - a->base;
    assert(offset >= 0 && offset < a->tail && offset % a->granule == 0);
    int32_t id = a->index[offset / a->granule];
    assert((size_t)id < a->n_blocks && a->blocks[id].live && a->blocks[id].offset == offset);
    int64_t bytes = a->blocks[id].bytes;
    if (!a->untouchable) POISON(p, bytes);
    a->stats.live_bytes -= bytes;
    a->stats.n_frees++;
    free_block(a, id);
    pthread_mutex_unlock(&a->lock);
}

/* ---- statistics ---- */

struct ht_arena_stats ht_arena_stats(const struct ht_arena *a)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&a->lock;
    pthread_mutex_lock(lock);
    struct ht_arena_stats stats = a->stats;
    stats.largest_hole_bytes = a->usable_bytes - a->tail;
    if (a->n_holes && a->holes[a->n_holes - 1].bytes > stats.largest_hole_bytes)
        stats.largest_hole_bytes = a->holes[a->n_holes - 1].bytes;
    pthread_mutex_unlock(lock);
    return stats;
}

const char *ht_arena_explain(const struct ht_arena *a, int64_t bytes, char *buf, size_t n)
{
    struct ht_arena_stats st = ht_arena_stats(a);
    char want[HT_QUANTITY_TEXT], live[HT_QUANTITY_TEXT], cap[HT_QUANTITY_TEXT], hole[HT_QUANTITY_TEXT];
    char slack[HT_QUANTITY_TEXT], more[HT_QUANTITY_TEXT];
    bool over = bytes > st.capacity_bytes - st.live_bytes;
    int64_t more_bytes = over ? bytes - (st.capacity_bytes - st.live_bytes)
                              : ht_round_up(bytes, a->granule) - (a->usable_bytes - a->tail);
    ht_format_quantity(HT_BYTES, (double)bytes, want);
    ht_format_quantity(HT_BYTES, (double)st.live_bytes, live);
    ht_format_quantity(HT_BYTES, (double)st.capacity_bytes, cap);
    ht_format_quantity(HT_BYTES, (double)st.largest_hole_bytes, hole);
    ht_format_quantity(HT_BYTES, (double)st.slack_bytes, slack);
    ht_format_quantity(HT_BYTES, (double)more_bytes, more);
    snprintf(buf, n, "%s do not fit: %s of %s live, largest hole %s, slack %s (%s; %s more %s would do)", want, live,
             cap, hole, slack, over ? "over the budget" : "fragmentation", more, over ? "capacity" : "slack");
    return buf;
}

static double physical_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE);
}

double ht_arena_machine_bytes(void)
{
    return 0.9 * physical_bytes();
}

enum ht_status ht_arena_check_machine(double bytes, const char *what, struct ht_error *err)
{
    double may = ht_arena_machine_bytes();
    if (bytes <= may) return HT_OK;
    return ht_fail(err, HT_INFEASIBLE, "%s can take %.4g GB; of this machine's %.4g GB it may take %.4g GB", what,
                   bytes * 1e-9, physical_bytes() * 1e-9, may * 1e-9);
}
