#include "common/schedule/pools.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/schedule/fold.h"

#include <stdlib.h>

enum { NONE = -1, PIECES = 4 };

/* A piece of a segment. Neighbours in the segment are a list; NONE ends it. */
struct block {
    int64_t bytes, address; /* segments have addresses in the order in which they come */
    int32_t pool;
    int32_t before, after;
    int32_t at; /* index in the pool's list of free blocks; NONE: it is in use */
};

/* Free blocks of a pool, with what a search compares. */
struct free_blocks {
    struct free_block {
        int64_t bytes, address;
        int32_t block;
    } * of;
    size_t n, cap;
};

/* Indices of blocks. */
struct list {
    int32_t *of;
    size_t n, cap;
};

struct ht_pools {
    const struct ht_schedule *s;
    const struct ht_residencies *residencies;
    struct block *blocks;
    size_t n_blocks, blocks_cap;
    struct list spare;           /* numbers of blocks that are none now */
    struct free_blocks *free_of; /* [n_lanes + n_ranks] of each lane's pool, and of one for the residents of a rank */
    struct list *leaving;        /* [n_ranks] */
    int32_t *pool_of;            /* [residencies] */
    int32_t *block_of;           /* [residencies x PIECES]; NONE: it is not there, or has fewer */
    int64_t *bytes;              /* [n_ranks] */
    int64_t next_address;
};

static void push(struct list *l, int32_t block)
{
    HT_PUSH(l->of, l->n, l->cap, block);
}

static int32_t new_block(struct ht_pools *p, struct block b)
{
    if (p->spare.n) {
        int32_t i = p->spare.of[--p->spare.n];
        p->blocks[i] = b;
        return i;
    }
    HT_PUSH(p->blocks, p->n_blocks, p->blocks_cap, b);
    return (int32_t)p->n_blocks - 1;
}

static void add_free(struct ht_pools *p, int32_t i)
{
    struct block *b = &p->blocks[i];
    struct free_blocks *l = &p->free_of[b->pool];
    b->at = (int32_t)l->n;
    HT_PUSH(l->of, l->n, l->cap, ((struct free_block){b->bytes, b->address, i}));
}

static void remove_free(struct ht_pools *p, int32_t i)
{
    struct block *b = &p->blocks[i];
    struct free_blocks *l = &p->free_of[b->pool];
    struct free_block last = l->of[--l->n];
    l->of[b->at] = last;
    p->blocks[last.block].at = b->at;
    b->at = NONE;
}

/* Returns the smallest free block of a pool that has so many bytes, of such the first in memory, or NONE. */
static int32_t best_fit(const struct ht_pools *p, int32_t pool, int64_t bytes)
{
    const struct free_blocks *l = &p->free_of[pool];
    struct free_block best = {INT64_MAX, INT64_MAX, NONE};
    for (size_t i = 0; i < l->n; i++) {
        struct free_block b = l->of[i];
        if (b.bytes < bytes || b.bytes > best.bytes || (b.bytes == best.bytes && b.address > best.address)) continue;
        best = b;
    }
    return best.block;
}

/* Returns to the device the segments of a rank that are free as a whole. */
static void return_segments(struct ht_pools *p, int32_t rank)
{
    const struct ht_schedule *s = p->s;
    for (int32_t pool = 0; pool < s->n_lanes + s->n_ranks; pool++) {
        if ((pool < s->n_lanes ? s->lanes[pool].rank : pool - s->n_lanes) != rank) continue;
        struct free_blocks *l = &p->free_of[pool];
        for (size_t k = l->n; k-- > 0;) {
            int32_t i = l->of[k].block;
            if (p->blocks[i].before != NONE || p->blocks[i].after != NONE) continue;
            remove_free(p, i);
            p->bytes[rank] -= p->blocks[i].bytes;
            push(&p->spare, i);
        }
    }
}

/* Takes a segment from the device, if need be after all that are free have gone back; one that does not fit is taken as
   well, for the verdict. */
static int32_t new_segment(struct ht_pools *p, int32_t pool, int32_t rank, int64_t bytes)
{
    const struct ht_allocator *a = &p->s->allocator;
    int64_t segment = bytes < a->own_bytes ? ht_max(a->shared_bytes, bytes) : ht_round_up(bytes, a->round_bytes);
    if (segment > p->s->capacity_bytes[rank] - p->bytes[rank]) return_segments(p, rank);
    p->bytes[rank] += segment;
    p->next_address += segment;
    return new_block(p, (struct block){segment, p->next_address - segment, pool, NONE, NONE, NONE});
}

/* Cuts a block in use down to so many bytes. Returns the rest, which is in no list; NONE if there is too little of it. */
static int32_t cut(struct ht_pools *p, int32_t i, int64_t bytes)
{
    struct block rest = p->blocks[i];
    if (rest.bytes - bytes < HT_MEMORY_GRANULE) return NONE;
    rest.bytes -= bytes;
    rest.address += bytes;
    rest.before = i;
    int32_t r = new_block(p, rest), after = rest.after;
    p->blocks[i].bytes = bytes;
    p->blocks[i].after = r;
    if (after != NONE) p->blocks[after].before = r;
    return r;
}

/* Joins block i with the one after it; neither is in the list of free ones. */
static void join(struct ht_pools *p, int32_t i)
{
    int32_t gone = p->blocks[i].after;
    p->blocks[i].bytes += p->blocks[gone].bytes;
    p->blocks[i].after = p->blocks[gone].after;
    if (p->blocks[i].after != NONE) p->blocks[p->blocks[i].after].before = i;
    push(&p->spare, gone);
}

static bool is_free(const struct ht_pools *p, int32_t i)
{
    return i != NONE && p->blocks[i].at != NONE;
}

static void give(struct ht_pools *p, int32_t i)
{
    int32_t after = p->blocks[i].after, before = p->blocks[i].before;
    if (is_free(p, after)) {
        remove_free(p, after);
        join(p, i);
    }
    if (is_free(p, before)) {
        remove_free(p, before);
        join(p, before);
        i = before;
    }
    add_free(p, i);
}

/* Gives blocks back. Those that follow one another in memory are joined before. */
static void give_all(struct ht_pools *p, const int32_t *blocks, size_t n)
{
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && p->blocks[blocks[i]].after == blocks[next]; next++) join(p, blocks[i]);
        give(p, blocks[i]);
    }
}

/* Returns how many tensors of a program a row stands for. */
static int pieces_of(const struct ht_tensor *t)
{
    switch (t->class) {
    case HT_CHECKPOINT:
    case HT_ACT_GRAD:
    case HT_STAGING:
    case HT_COMM:
        return 1;
    default:
        return t->sharded ? 1 : PIECES;
    }
}

/* Returns a block of at least so many bytes, no longer in its pool's list. */
static int32_t find_block(struct ht_pools *p, int32_t pool, int32_t rank, int64_t bytes)
{
    int32_t i = best_fit(p, pool, bytes);
    if (i == NONE) return new_segment(p, pool, rank, bytes);
    remove_free(p, i);
    return i;
}

/* Takes equal pieces. What is left of a block is the best fit for the next piece, if it is large enough: nothing smaller was when
   the block was chosen. */
static void take(struct ht_pools *p, int32_t rank, int32_t residency)
{
    const struct ht_tensor *t = &p->s->tensors[p->residencies->rows[residency].tensor];
    int32_t *blocks = &p->block_of[(int64_t)residency * PIECES], rest = NONE;
    int n = pieces_of(t);
    int64_t bytes = ht_live_bytes((t->bytes + n - 1) / n);
    for (int i = 0; i < PIECES; i++) {
        blocks[i] = NONE;
        if (i >= n || !bytes) continue;
        blocks[i] = rest != NONE ? rest : find_block(p, p->pool_of[residency], rank, bytes);
        rest = cut(p, blocks[i], bytes);
        if (rest == NONE || (i + 1 < n && p->blocks[rest].bytes >= bytes)) continue;
        add_free(p, rest);
        rest = NONE;
    }
}

/* Sets the pool of each residency: of the lane that makes it, last if several do. */
static void find_pools(struct ht_pools *p)
{
    const struct ht_schedule *s = p->s;
    for (int64_t i = 0; i < p->residencies->n; i++) p->pool_of[i] = s->n_lanes + p->residencies->rows[i].space;
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t k = s->effects_begin[op]; k < s->effects_begin[op + 1]; k++)
            if (s->effects[k].tier == HT_DEVICE && s->effects[k].flags & HT_PRODUCE)
                p->pool_of[p->residencies->of_effect[k]] = s->ops[op].lane;
}

struct ht_pools *ht_pools_create(const struct ht_schedule *s, const struct ht_residencies *residencies)
{
    if (!s->allocator.own_bytes) return NULL;
    struct ht_pools *p = HT_NEW(struct ht_pools);
    *p = (struct ht_pools){.s = s,
                           .residencies = residencies,
                           .free_of = HT_NEW_ARRAY(struct free_blocks, s->n_lanes + s->n_ranks),
                           .leaving = HT_NEW_ARRAY(struct list, s->n_ranks),
                           .pool_of = HT_NEW_ARRAY(int32_t, residencies->n),
                           .block_of = HT_NEW_ARRAY(int32_t, residencies->n * PIECES),
                           .bytes = HT_NEW_ARRAY(int64_t, s->n_ranks)};
    int32_t *communicators = HT_NEW_ARRAY(int32_t, s->n_ranks);
    ht_count_communicators(s, communicators);
    for (int32_t r = 0; r < s->n_ranks; r++) p->bytes[r] = ht_max(communicators[r] - 1, 0) * s->communicator_bytes[r];
    free(communicators);
    find_pools(p);
    for (int64_t i = 0; i < residencies->n; i++) {
        const struct ht_residency *row = &residencies->rows[i];
        if (row->resident && row->space < s->n_ranks) take(p, row->space, (int32_t)i);
    }
    return p;
}

void ht_pools_destroy(struct ht_pools *p)
{
    if (!p) return;
    for (int32_t i = 0; i < p->s->n_lanes + p->s->n_ranks; i++) free(p->free_of[i].of);
    for (int32_t r = 0; r < p->s->n_ranks; r++) free(p->leaving[r].of);
    free(p->spare.of);
    free(p->blocks);
    free(p->free_of);
    free(p->leaving);
    free(p->pool_of);
    free(p->block_of);
    free(p->bytes);
    free(p);
}

void ht_pools_take(struct ht_pools *p, int32_t op, int64_t k)
{
    p->pool_of[p->residencies->of_effect[k]] = p->s->ops[op].lane;
    take(p, ht_op_rank(p->s, op), p->residencies->of_effect[k]);
}

void ht_pools_granted(struct ht_pools *p, int32_t op)
{
    if (p->s->lanes[p->s->ops[op].lane].kind != HT_LANE_COMPUTE) return;
    struct list *l = &p->leaving[ht_op_rank(p->s, op)];
    give_all(p, l->of, l->n);
    l->n = 0;
}

void ht_pools_return(struct ht_pools *p, int32_t op, int64_t k)
{
    const int32_t *blocks = &p->block_of[(int64_t)p->residencies->of_effect[k] * PIECES];
    bool leaves = p->s->allocator.leaving && p->s->lanes[p->s->ops[op].lane].kind != HT_LANE_COMPUTE;
    size_t n = 0;
    while (n < PIECES && blocks[n] != NONE) n++;
    if (!leaves) give_all(p, blocks, n);
    for (size_t i = 0; leaves && i < n; i++) push(&p->leaving[ht_op_rank(p->s, op)], blocks[i]);
}

int64_t ht_pools_bytes(const struct ht_pools *p, int32_t rank)
{
    return p->bytes[rank];
}

/* ---- communicators ---- */

struct keys {
    uint64_t *list;
    size_t n, cap;
};

static uint64_t mix(uint64_t key, uint64_t more)
{
    key = (key ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return key ^ key >> 29;
}

/* Returns the key of the communicator of ops [first, end): by ranks, and by lane if it is one of collectives. 0: one
   rank has none. Slices are joined over that of the stage's passes. */
static uint64_t communicator(const struct ht_schedule *s, int32_t first, int32_t end)
{
    const struct ht_lane *lane = &s->lanes[s->ops[first].lane];
    bool pair = lane->kind == HT_LANE_P2P, several = ht_joins_copies(s, first);
    bool slices = ht_joins_boundary(&s->ops[first]);
    uint64_t kind = slices ? HT_LANE_COMPUTE : (uint64_t)lane->kind;
    uint64_t key = mix(kind, pair || slices ? 0 : (uint64_t)lane->index), ranks = (uint64_t)ht_joined(s, first).n;
    for (int32_t op = first; op < end; op++) {
        several |= ht_op_rank(s, op) != ht_op_rank(s, first);
        ranks += mix(0, (uint64_t)ht_op_rank(s, op) + 1); /* in any order; no rank counts 0 */
    }
    return several ? mix(key, ranks) : 0;
}

static void add_key(struct keys *keys, uint64_t key)
{
    for (size_t i = keys->n; i-- > 0;)
        if (keys->list[i] == key) return;
    HT_PUSH(keys->list, keys->n, keys->cap, key);
}

void ht_count_communicators(const struct ht_schedule *s, int32_t *n)
{
    struct keys *keys = HT_NEW_ARRAY(struct keys, s->n_ranks);
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        uint64_t key = end > first + 1 || ht_joins_copies(s, first) ? communicator(s, first, end) : 0;
        for (int32_t op = first; op < end && key; op++) add_key(&keys[ht_op_rank(s, op)], key);
    }
    for (int32_t r = 0; r < s->n_ranks; r++) {
        n[r] = (int32_t)keys[r].n;
        free(keys[r].list);
    }
    free(keys);
}
