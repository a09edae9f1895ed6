/* The memory rule at work: asks, grants and releases, with the window and its tree. grant_build.c creates what it reads. */
#include "common/exec/grant_state.h"

#include "common/base/array.h"

#include <stdlib.h>

#define NONE (INT64_MIN / 4) /* `best` of a node without ungranted places: survives adding any sum of bytes */

/* ---- window and tree ------------------------------------------------------------------------------------------- */

static struct granted *granted_at(const struct space *sp, int64_t place)
{
    return &sp->granted[place & (sp->window - 1)];
}

static struct node join(struct node l, struct node r)
{
    int64_t through = l.best + r.sum;
    return (struct node){l.sum + r.sum, through > r.best ? through : r.best};
}

static struct node leaf(const struct space *sp, int64_t place)
{
    const struct granted *x = granted_at(sp, place);
    return x->alloc < 0 ? (struct node){0, sp->need[place % sp->n]} : (struct node){x->net, NONE};
}

/* Updates the tree, if there is one, after a change of a place's group. */
static void update(struct space *sp, int64_t place)
{
    struct node *t = sp->tree;
    if (!t) return;
    int64_t i = sp->window + (place & (sp->window - 1));
    t[i] = leaf(sp, place);
    for (i /= 2; i >= 1; i /= 2) t[i] = join(t[2 * i], t[2 * i + 1]);
}

static void plant(struct space *sp)
{
    struct node *t = sp->tree = HT_NEW_ARRAY(struct node, 2 * (size_t)sp->window);
    for (int64_t p = sp->frontier; p < sp->frontier + sp->window; p++)
        t[sp->window + (p & (sp->window - 1))] = leaf(sp, p);
    for (int32_t i = sp->window - 1; i >= 1; i--) t[i] = join(t[2 * i], t[2 * i + 1]);
}

/* Widens the window until it has the place. */
static void widen(struct space *sp, int64_t place)
{
    struct space old = *sp;
    int32_t window = sp->window;
    while (place - sp->frontier >= window) window *= 2;
    if (window == old.window) return;
    ht_grants_open_window(sp, window);
    for (int64_t p = old.frontier; p < old.frontier + old.window; p++) *granted_at(sp, p) = *granted_at(&old, p);
    free(old.granted);
    free(old.tree);
    if (old.tree) plant(sp);
}

/* A search for the last ungranted slot whose need, with what is granted behind it, exceeds `room`. */
struct search {
    const struct node *tree;
    int64_t room, extra; /* extra: sum of net behind what is still to be searched */
    int32_t from, to;    /* slots */
};

/* Searches the slots [low, high) of a node, last to first. Returns the slot, or -1. */
static int32_t search_node(struct search *q, int32_t node, int32_t low, int32_t high)
{
    if (high <= q->from || low >= q->to) return -1;
    if (low >= q->from && high <= q->to && q->tree[node].best + q->extra <= q->room) {
        q->extra += q->tree[node].sum;
        return -1;
    }
    if (high - low == 1) return low;
    int32_t middle = low + (high - low) / 2, found = search_node(q, 2 * node + 1, middle, high);
    return found >= 0 ? found : search_node(q, 2 * node, low, middle);
}

/* Searches places [from, to) of the window, which may go over its last slot. Returns the place, or -1. */
static int64_t search_places(struct search *q, const struct space *sp, int64_t from, int64_t to)
{
    int64_t first = from & (sp->window - 1), end = first + (to - from), over = end - sp->window;
    int32_t slot = -1;
    if (over > 0) {
        q->from = 0, q->to = (int32_t)over;
        slot = search_node(q, 1, 0, sp->window);
    }
    if (slot < 0) {
        q->from = (int32_t)first, q->to = (int32_t)(over > 0 ? sp->window : end);
        slot = search_node(q, 1, 0, sp->window);
    }
    return slot < 0 ? -1 : from + ((slot - first) & (sp->window - 1));
}

/* Returns the last ungranted place before `place` whose group could not run beside `bytes` more; -1: none. */
static int64_t last_blocked(struct ht_grants *g, struct space *sp, int64_t place, int64_t bytes, int64_t most)
{
    widen(sp, place);
    if (!sp->need) ht_grants_list_needs(g);
    if (!sp->tree) plant(sp);
    struct search q = {.tree = sp->tree, .room = INT64_MAX};
    search_places(&q, sp, place, sp->frontier + sp->window);
    q.room = most - bytes;
    return search_places(&q, sp, sp->frontier, place);
}

/* ---- asking, granting, releasing ------------------------------------------------------------------------------- */

static void mark_changed(struct ht_grants *g, struct space *sp)
{
    sp->wake_live = INT64_MIN;
    sp->wake_frontier = INT64_MAX;
    if (sp->changed) return;
    sp->changed = true;
    g->changed[g->n_changed++] = (int32_t)(sp - g->spaces);
}

static int64_t place_of(const struct space *sp, int32_t iteration, const struct amount *t)
{
    return (int64_t)iteration * sp->n + t->position;
}

/* Returns true when t's group may have its bytes: equation (*) of the header. Otherwise notes when that may change. */
static bool is_allowed(struct ht_grants *g, struct space *sp, int32_t iteration, const struct amount *t, int64_t bytes,
                       bool waits)
{
    int64_t most = waits ? sp->order : sp->capacity;
    if (bytes == 0) return true;
    if (sp->live + bytes > most) {
        if (most - bytes > sp->wake_live) sp->wake_live = most - bytes;
        return false;
    }
    int64_t place = place_of(sp, iteration, t);
    if (place == sp->frontier || bytes <= most - sp->order - sp->ahead) return true;
    int64_t blocked = last_blocked(g, sp, place, bytes, most);
    if (blocked >= 0 && blocked < sp->wake_frontier) sp->wake_frontier = blocked + 1;
    return blocked < 0;
}

/* Moves the frontier past its place and all granted places behind. */
static void advance(struct space *sp)
{
    do {
        struct granted *passed = granted_at(sp, sp->frontier);
        if (passed->alloc > 0) sp->ahead -= passed->alloc;
        passed->alloc = -1;
        update(sp, sp->frontier++ + sp->window);
    } while (granted_at(sp, sp->frontier)->alloc >= 0);
}

/* Grants `bytes` to t's group. */
static void grant(struct ht_grants *g, int32_t iteration, const struct amount *t, int64_t bytes)
{
    struct space *sp = &g->spaces[g->parcels[t->parcel].space];
    int64_t place = place_of(sp, iteration, t);
    sp->live += bytes;
    if (sp->live > sp->peak) sp->peak = sp->live;
    if (place == sp->frontier) {
        advance(sp);
    } else {
        widen(sp, place);
        *granted_at(sp, place) = (struct granted){bytes, bytes};
        sp->ahead += bytes;
        update(sp, place);
    }
    /* It no longer limits the groups behind it. */
    if (place >= sp->wake_frontier - 1 || sp->frontier >= sp->wake_frontier) mark_changed(g, sp);
}

int32_t ht_grants_ask(struct ht_grants *g, int32_t iteration, int32_t first, bool waits)
{
    const struct amount *begin = g->amounts + g->begin[first], *end = g->amounts + g->begin[first + 1];
    for (const struct amount *t = begin; t < end && !t->release; t++) {
        const struct parcel *p = &g->parcels[t->parcel];
        if (!is_allowed(g, &g->spaces[p->space], iteration, t, p->bytes, waits)) return p->space;
    }
    for (const struct amount *t = begin; t < end && !t->release; t++)
        grant(g, iteration, t, g->parcels[t->parcel].bytes);
    return -1;
}

void ht_grants_fetch(const struct ht_grants *g, int32_t next, int32_t later)
{
    __builtin_prefetch(&g->begin[later]);
    __builtin_prefetch(&g->amounts[g->begin[next]]);
}

void ht_grants_skip(struct ht_grants *g, int32_t iteration, int32_t first)
{
    const struct amount *end = g->amounts + g->begin[first + 1];
    for (const struct amount *t = g->amounts + g->begin[first]; t < end && !t->release; t++) grant(g, iteration, t, 0);
}

void ht_grants_release(struct ht_grants *g, int32_t iteration, int32_t op)
{
    const struct amount *t = g->amounts + g->begin[op], *end = g->amounts + g->begin[op + 1];
    while (t < end && !t->release) t++;
    for (; t < end; t++) {
        const struct parcel *p = &g->parcels[t->parcel];
        struct space *sp = &g->spaces[p->space];
        int64_t place = place_of(sp, iteration, t);
        bool beyond = place > sp->frontier;
        sp->live -= p->bytes;
        if (beyond) {
            granted_at(sp, place)->net -= p->bytes;
            update(sp, place);
        }
        if (sp->live <= sp->wake_live || (beyond && sp->wake_frontier < INT64_MAX)) mark_changed(g, sp);
    }
}

int32_t ht_grants_next_changed(struct ht_grants *g)
{
    if (!g->n_changed) return -1;
    int32_t space = g->changed[--g->n_changed];
    g->spaces[space].changed = false;
    return space;
}

int64_t ht_grants_peak(const struct ht_grants *g, int32_t space)
{
    return g->spaces[space].peak;
}
