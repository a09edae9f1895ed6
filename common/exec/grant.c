#include "common/exec/grant.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE (INT64_MIN / 4) /* `best` of a node without ungranted places: survives adding any sum of bytes */

enum { FIRST_WINDOW = 16, FIRST_NUMBERS = 64 };

struct node {
    int64_t sum, best;
};

/* A group granted beyond the frontier: its bytes, and these less what it has released since. */
struct granted {
    int64_t alloc, net; /* alloc -1: not granted */
};

/* Bytes in a space. Few differ, so amounts name them by number. */
struct parcel {
    int64_t bytes;
    int32_t space;
};

/* Says what one issue group asks for, or one op releases, in one space; position: the group's in the space. */
struct amount {
    uint32_t parcel;
    uint32_t position : 31, release : 1;
};

/* A place counts groups over all iterations: iteration * n + position. The window has the places from the frontier on,
   as far as groups have asked for one: place p in slot p & (window - 1). */
struct space {
    int64_t capacity, order, live, peak; /* order: the most that the safe sequence needs */
    int64_t frontier;                    /* place of the oldest ungranted group */
    int64_t ahead;                       /* sum of alloc over groups granted beyond the frontier */
    int64_t wake_live, wake_frontier; /* what was denied may be granted when live is as low, or the frontier as far */
    int32_t n;                        /* issue groups that touch the space */
    int32_t window;                   /* a power of two */
    int64_t *need;                    /* [n], in the grants' needs */
    struct granted *granted;          /* [window] */
    struct node *tree; /* [2 * window]; node 1 is the root, slot i is node window + i; NULL: not needed yet */
    bool changed;
};

struct ht_grants {
    int32_t n_spaces;
    struct space *spaces;
    /* Op after op: what its issue group asks for, listed under its first op, then what the op releases. */
    struct amount *amounts;
    uint32_t *begin; /* [n_ops + 1] of each op's amounts */
    struct parcel *parcels;
    int64_t *needs;   /* space after space */
    int32_t *changed; /* stack of changed spaces */
    int32_t n_changed;
};

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

static void open_window(struct space *sp, int32_t window)
{
    sp->window = window;
    sp->granted = HT_NEW_ARRAY(struct granted, window);
    for (int32_t i = 0; i < window; i++) sp->granted[i].alloc = -1;
}

/* Widens the window until it has the place. */
static void widen(struct space *sp, int64_t place)
{
    struct space old = *sp;
    int32_t window = sp->window;
    while (place - sp->frontier >= window) window *= 2;
    if (window == old.window) return;
    open_window(sp, window);
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
static int64_t last_blocked(struct space *sp, int64_t place, int64_t bytes, int64_t most)
{
    widen(sp, place);
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
static bool is_allowed(struct space *sp, int32_t iteration, const struct amount *t, int64_t bytes, bool waits)
{
    int64_t most = waits ? sp->order : sp->capacity;
    if (bytes == 0) return true;
    if (sp->live + bytes > most) {
        if (most - bytes > sp->wake_live) sp->wake_live = most - bytes;
        return false;
    }
    int64_t place = place_of(sp, iteration, t);
    if (place == sp->frontier || bytes <= most - sp->order - sp->ahead) return true;
    int64_t blocked = last_blocked(sp, place, bytes, most);
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
        if (!is_allowed(&g->spaces[p->space], iteration, t, p->bytes, waits)) return p->space;
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

/* ---- construction ---------------------------------------------------------------------------------------------- */

/* Bytes that the current issue group allocates and frees in one space. */
struct pending {
    int64_t alloc, total_free;
    bool touched;
};

struct walk {
    const struct ht_schedule *s;
    int32_t node;            /* the node whose ops ask, or -1: all */
    struct pending *pending; /* [n_spaces] */
    int32_t *touched;        /* [n_spaces] list of touched spaces */
    int32_t n_touched;
    int64_t *live[2];        /* [n_spaces] in the ok branch and in the bad branch */
    struct parcel *released; /* of one op */
    size_t released_cap;
    /* Hash of parcels: each entry is a number + 1, or 0; a power of two, at least half of it free. */
    uint32_t *numbers, n_numbers, n_parcels;
    size_t parcels_cap;
};

static bool is_here(const struct walk *w, int32_t op)
{
    return w->node < 0 || w->s->rank_node[ht_op_rank(w->s, op)] == w->node;
}

static void add_effects(struct walk *w, int32_t op)
{
    const struct ht_schedule *s = w->s;
    int32_t rank = ht_op_rank(s, op);
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        const struct ht_effect *f = &s->effects[e];
        if (!(f->flags & (HT_PRODUCE | HT_RELEASE))) continue;
        int32_t space = ht_space(s, f->tier, rank);
        struct pending *p = &w->pending[space];
        if (!p->touched) {
            *p = (struct pending){.touched = true};
            w->touched[w->n_touched++] = space;
        }
        int64_t bytes = ht_effect_bytes(s, f);
        if (f->flags & HT_PRODUCE) p->alloc += bytes;
        if (f->flags & HT_RELEASE) p->total_free += bytes;
    }
}

/* Sorts spaces. Insertion is enough: a group touches a few. */
static void sort(int32_t *spaces, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        int32_t x = spaces[i], at = i;
        for (; at > 0 && spaces[at - 1] > x; at--) spaces[at] = spaces[at - 1];
        spaces[at] = x;
    }
}

/* Returns what the group needs in a space, on the worse of the branches on which it runs, and takes it into account. */
static int64_t need_of(struct walk *w, int32_t space, enum ht_when when)
{
    const struct pending *p = &w->pending[space];
    int64_t need = 0;
    for (int bad = 0; bad < 2; bad++) {
        if (when == (bad ? HT_WHEN_OK : HT_WHEN_BAD)) continue;
        int64_t *live = &w->live[bad][space];
        if (*live + p->alloc > need) need = *live + p->alloc;
        *live += p->alloc - p->total_free;
    }
    return need;
}

/* Returns where a parcel's number is, or is to go. */
static uint32_t *find_number(const struct ht_grants *g, const struct walk *w, struct parcel p)
{
    uint64_t hash = ((uint64_t)p.bytes ^ (uint64_t)p.space << 40) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = (uint32_t)(hash >> 40);; i++) {
        uint32_t *number = &w->numbers[i & (w->n_numbers - 1)];
        if (!*number) return number;
        const struct parcel *q = &g->parcels[*number - 1];
        if (q->bytes == p.bytes && q->space == p.space) return number;
    }
}

/* Returns a parcel's number; equal ones have the same. */
static uint32_t number_of(struct ht_grants *g, struct walk *w, struct parcel p)
{
    uint32_t *number = find_number(g, w, p);
    if (*number) return *number - 1;
    HT_PUSH(g->parcels, w->n_parcels, w->parcels_cap, p);
    *number = w->n_parcels;
    if (2 * w->n_parcels < w->n_numbers) return w->n_parcels - 1;
    free(w->numbers);
    w->n_numbers *= 2;
    w->numbers = HT_NEW_ARRAY(uint32_t, w->n_numbers);
    for (uint32_t i = 0; i < w->n_parcels; i++) *find_number(g, w, g->parcels[i]) = i + 1;
    return w->n_parcels - 1;
}

static struct amount amount_of(struct ht_grants *g, struct walk *w, struct parcel p, bool release)
{
    return (struct amount){number_of(g, w, p), (uint32_t)(g->spaces[p.space].n - 1) & INT32_MAX, release};
}

static void list_asks(struct ht_grants *g, struct walk *w, uint32_t *n)
{
    for (int32_t i = 0; i < w->n_touched; i++) {
        int32_t space = w->touched[i];
        g->amounts[(*n)++] = amount_of(g, w, (struct parcel){w->pending[space].alloc, space}, false);
    }
}

static void list_releases(struct ht_grants *g, struct walk *w, int32_t op, uint32_t *n)
{
    const struct ht_schedule *s = w->s;
    int32_t rank = ht_op_rank(s, op), n_released = 0;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        if (!(s->effects[e].flags & HT_RELEASE)) continue;
        struct parcel p = {ht_effect_bytes(s, &s->effects[e]), ht_space(s, s->effects[e].tier, rank)};
        int32_t k = 0;
        while (k < n_released && w->released[k].space != p.space) k++;
        if (k < n_released)
            w->released[k].bytes += p.bytes;
        else
            HT_PUSH(w->released, n_released, w->released_cap, p);
    }
    for (int32_t k = 0; k < n_released; k++) g->amounts[(*n)++] = amount_of(g, w, w->released[k], true);
}

/* Appends the issue group's asks and its members' releases, and its need in each space that it touches. */
static void add_group(struct ht_grants *g, struct walk *w, int32_t first, int32_t n, uint32_t *n_amounts)
{
    const struct ht_schedule *s = w->s;
    bool begun = false; /* asks are listed under the first member on this node */
    w->n_touched = 0;
    for (int32_t op = first; op < first + n; op++)
        if (is_here(w, op)) add_effects(w, op);
    sort(w->touched, w->n_touched);
    for (int32_t i = 0; i < w->n_touched; i++) {
        struct space *sp = &g->spaces[w->touched[i]];
        sp->need[sp->n++] = need_of(w, w->touched[i], s->ops[first].when);
    }
    for (int32_t op = first; op < first + n; op++) {
        bool here = is_here(w, op);
        g->begin[op] = *n_amounts;
        if (here && !begun) list_asks(g, w, n_amounts);
        begun |= here;
        if (here) list_releases(g, w, op, n_amounts);
    }
    for (int32_t i = 0; i < w->n_touched; i++) w->pending[w->touched[i]].touched = false;
}

/* Makes room for needs and amounts. An effect that makes or frees something adds at most one need and one ask; one that
   frees adds at most one release, too. */
static void make_room(struct ht_grants *g, const struct walk *w)
{
    const struct ht_schedule *s = w->s;
    int64_t *count = HT_NEW_ARRAY(int64_t, g->n_spaces), n = 0, n_releases = 0;
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t rank = ht_op_rank(s, op);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            if (!(s->effects[e].flags & (HT_PRODUCE | HT_RELEASE))) continue;
            count[ht_space(s, s->effects[e].tier, rank)]++;
            n++;
            n_releases += (s->effects[e].flags & HT_RELEASE) != 0;
        }
    }
    g->amounts = HT_NEW_ARRAY(struct amount, n + n_releases);
    g->needs = HT_NEW_ARRAY(int64_t, n);
    n = 0;
    for (int32_t i = 0; i < g->n_spaces; n += count[i++]) g->spaces[i].need = g->needs + n;
    free(count);
}

enum ht_status ht_grants_create(const struct ht_schedule *s, int32_t node, struct ht_error *err, struct ht_grants **out)
{
    *out = NULL;
    if (s->effects_begin[s->n_ops] > INT32_MAX)
        return ht_fail(err, HT_BAD_INPUT, "schedule '%s' has %lld effects; expected at most %d", s->name,
                       (long long)s->effects_begin[s->n_ops], INT32_MAX);
    int32_t n_spaces = ht_n_spaces(s);
    struct ht_grants *g = HT_NEW(struct ht_grants);
    g->n_spaces = n_spaces;
    g->spaces = HT_NEW_ARRAY(struct space, n_spaces);
    g->changed = HT_NEW_ARRAY(int32_t, n_spaces);
    g->begin = HT_NEW_ARRAY(uint32_t, (int64_t)s->n_ops + 1);
    struct walk w = {.s = s,
                     .node = node,
                     .pending = HT_NEW_ARRAY(struct pending, n_spaces),
                     .touched = HT_NEW_ARRAY(int32_t, n_spaces),
                     .numbers = HT_NEW_ARRAY(uint32_t, FIRST_NUMBERS),
                     .n_numbers = FIRST_NUMBERS};
    for (int bad = 0; bad < 2; bad++) w.live[bad] = HT_NEW_ARRAY(int64_t, n_spaces);
    uint32_t n_amounts = 0;

    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        g->spaces[ht_space(s, r->tier, r->rank)].live += ht_resident_bytes(s, r);
    }
    for (int32_t i = 0; i < n_spaces; i++) {
        struct space *sp = &g->spaces[i];
        sp->capacity = ht_space_bytes(s, i);
        sp->peak = w.live[0][i] = w.live[1][i] = sp->live;
        sp->wake_live = INT64_MIN;
        sp->wake_frontier = INT64_MAX;
        open_window(sp, FIRST_WINDOW);
    }
    make_room(g, &w);
    for (int32_t op = 0, n; op < s->n_ops; op += n) {
        for (n = 1; s->ops[op].match >= 0 && op + n < s->n_ops && s->ops[op + n].match == s->ops[op].match;) n++;
        add_group(g, &w, op, n, &n_amounts);
    }
    g->begin[s->n_ops] = n_amounts;
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < n_spaces; i++) {
        struct space *sp = &g->spaces[i];
        int64_t most = sp->n || node < 0 ? sp->live : 0; /* a space that no op touches may be another node's */
        for (int32_t p = 0; p < sp->n; p++) most = sp->need[p] > most ? sp->need[p] : most;
        sp->order = most;
        if (most > sp->capacity && status == HT_OK) {
            char name[32];
            status =
                ht_fail(err, HT_INFEASIBLE, "schedule '%s' does not fit %s: the safe sequence needs %lld bytes of %lld",
                        s->name, ht_space_name(s, i, name, sizeof(name)), (long long)most, (long long)sp->capacity);
        }
    }
    free(w.pending);
    free(w.touched);
    free(w.live[0]);
    free(w.live[1]);
    free(w.released);
    free(w.numbers);
    if (status != HT_OK) {
        ht_grants_destroy(g);
        g = NULL;
    }
    *out = g;
    return status;
}

void ht_grants_destroy(struct ht_grants *g)
{
    if (!g) return;
    for (int32_t i = 0; i < g->n_spaces; i++) {
        free(g->spaces[i].granted);
        free(g->spaces[i].tree);
    }
    free(g->spaces);
    free(g->changed);
    free(g->amounts);
    free(g->parcels);
    free(g->needs);
    free(g->begin);
    free(g);
}
