#include "common/exec/grant.h"

#include "common/base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE (INT64_MIN / 4) /* `best` of a node without ungranted positions: survives adding any sum of bytes */

struct node {
    int64_t sum, best;
};

/* Bytes of one issue group, or of one op's release, in one space. */
struct amount {
    int32_t space, position;
    int64_t bytes;
};

struct space {
    int64_t capacity, order, live, peak; /* order: the most that the safe sequence needs */
    int32_t n;                           /* issue groups that touch the space */
    int32_t leaves;                      /* power of two >= n */
    int64_t *need;                       /* [n] */
    struct node *tree[2];                /* [2 * leaves]; node 1 is the root, leaf p is node leaves + p */
    uint8_t *granted[2];                 /* [n]; cleared when the frontier passes */
    int64_t *net[2];                     /* [n] of groups granted beyond the frontier */
    int64_t frontier;                    /* iteration * n + position of the oldest ungranted group */
    int64_t ahead;                       /* sum of net over groups granted beyond the frontier */
    bool changed;
};

struct ht_grants {
    int32_t n_spaces;
    struct space *spaces;
    struct amount *asks;     /* per issue group, listed under its first op */
    int64_t *asks_begin;     /* [n_ops + 1] */
    struct amount *releases; /* per op */
    int64_t *releases_begin;
    int32_t *changed; /* stack of changed spaces */
    int32_t n_changed;
};

static struct node join(struct node l, struct node r)
{
    int64_t through = l.best + r.sum;
    return (struct node){l.sum + r.sum, through > r.best ? through : r.best};
}

static void set_leaf(struct space *sp, int slot, int32_t position, struct node value)
{
    struct node *t = sp->tree[slot];
    int32_t i = sp->leaves + position;
    t[i] = value;
    for (i /= 2; i >= 1; i /= 2) t[i] = join(t[2 * i], t[2 * i + 1]);
}

/* Joins positions [from, to) of one tree, left to right. */
static struct node query(const struct space *sp, int slot, int32_t from, int32_t to)
{
    const struct node *t = sp->tree[slot];
    struct node left = {0, NONE}, right = {0, NONE};
    for (int32_t a = from + sp->leaves, b = to + sp->leaves; a < b; a /= 2, b /= 2) {
        if (a & 1) left = join(left, t[a++]);
        if (b & 1) right = join(t[--b], right);
    }
    return join(left, right);
}

static void mark_changed(struct ht_grants *g, int32_t space)
{
    if (g->spaces[space].changed) return;
    g->spaces[space].changed = true;
    g->changed[g->n_changed++] = space;
}

/* Returns true when t's group may have its bytes: equation (*) of the header. */
static bool is_allowed(const struct space *sp, int32_t iteration, const struct amount *t, bool waits)
{
    int64_t most = waits ? sp->order : sp->capacity;
    if (t->bytes == 0) return true;
    if (sp->live + t->bytes > most) return false;
    int64_t at = (int64_t)iteration * sp->n + t->position;
    if (at == sp->frontier) return true;
    int32_t f_iteration = (int32_t)(sp->frontier / sp->n), f_position = (int32_t)(sp->frontier % sp->n);
    struct node between;
    if (f_iteration == iteration)
        between = query(sp, iteration & 1, f_position, t->position);
    else
        between = join(query(sp, f_iteration & 1, f_position, sp->n), query(sp, iteration & 1, 0, t->position));
    int64_t beyond = sp->ahead - between.sum;
    return between.best + beyond + t->bytes <= most;
}

/* Grants `bytes` to t's group; moves the frontier past all groups granted by now. */
static void grant(struct ht_grants *g, int32_t iteration, const struct amount *t, int64_t bytes)
{
    struct space *sp = &g->spaces[t->space];
    sp->live += bytes;
    if (sp->live > sp->peak) sp->peak = sp->live;
    int64_t at = (int64_t)iteration * sp->n + t->position;
    if (at != sp->frontier) {
        int slot = iteration & 1;
        sp->granted[slot][t->position] = 1;
        sp->net[slot][t->position] = bytes;
        sp->ahead += bytes;
        set_leaf(sp, slot, t->position, (struct node){bytes, NONE});
        mark_changed(g, t->space); /* it no longer limits the groups behind it */
        return;
    }
    for (;;) {
        sp->frontier++;
        int slot = (int)(sp->frontier / sp->n) & 1;
        int32_t position = (int32_t)(sp->frontier % sp->n);
        if (!sp->granted[slot][position]) break;
        sp->granted[slot][position] = 0;
        sp->ahead -= sp->net[slot][position];
        set_leaf(sp, slot, position, (struct node){0, sp->need[position]});
    }
    mark_changed(g, t->space);
}

int32_t ht_grants_ask(struct ht_grants *g, int32_t iteration, int32_t first, bool waits)
{
    const struct amount *end = g->asks + g->asks_begin[first + 1];
    for (const struct amount *t = g->asks + g->asks_begin[first]; t < end; t++)
        if (!is_allowed(&g->spaces[t->space], iteration, t, waits)) return t->space;
    for (const struct amount *t = g->asks + g->asks_begin[first]; t < end; t++) grant(g, iteration, t, t->bytes);
    return -1;
}

void ht_grants_fetch(const struct ht_grants *g, int32_t next, int32_t later)
{
    __builtin_prefetch(&g->asks_begin[later]);
    __builtin_prefetch(&g->releases_begin[later]);
    __builtin_prefetch(&g->asks[g->asks_begin[next]]);
    __builtin_prefetch(&g->releases[g->releases_begin[next]]);
}

void ht_grants_skip(struct ht_grants *g, int32_t iteration, int32_t first)
{
    const struct amount *end = g->asks + g->asks_begin[first + 1];
    for (const struct amount *t = g->asks + g->asks_begin[first]; t < end; t++) grant(g, iteration, t, 0);
}

void ht_grants_release(struct ht_grants *g, int32_t iteration, int32_t op)
{
    const struct amount *end = g->releases + g->releases_begin[op + 1];
    for (const struct amount *t = g->releases + g->releases_begin[op]; t < end; t++) {
        struct space *sp = &g->spaces[t->space];
        sp->live -= t->bytes;
        if ((int64_t)iteration * sp->n + t->position > sp->frontier) {
            int slot = iteration & 1;
            sp->net[slot][t->position] -= t->bytes;
            sp->ahead -= t->bytes;
            set_leaf(sp, slot, t->position, (struct node){sp->net[slot][t->position], NONE});
        }
        mark_changed(g, t->space);
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
    int64_t *live[2]; /* [n_spaces] in the ok branch and in the bad branch */
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

/* Sorts by space. Insertion is enough: a group touches a few spaces. */
static void sort(struct amount *t, int32_t n)
{
    for (int32_t i = 1; i < n; i++) {
        struct amount x = t[i];
        int32_t at = i;
        for (; at > 0 && t[at - 1].space > x.space; at--) t[at] = t[at - 1];
        t[at] = x;
    }
}

/* Appends the issue group's asks and its members' releases, and its need in each space that it touches. */
static void add_group(struct ht_grants *g, struct walk *w, int32_t first, int32_t n, size_t *asks_cap, int64_t *n_asks,
                      size_t *releases_cap, int64_t *n_releases, size_t *need_caps)
{
    const struct ht_schedule *s = w->s;
    int64_t begin_asks = *n_asks;
    bool begun = false; /* asks are listed under the first member on this node */
    w->n_touched = 0;
    for (int32_t op = first; op < first + n; op++)
        if (is_here(w, op)) add_effects(w, op);
    enum ht_when when = s->ops[first].when;
    for (int32_t i = 0; i < w->n_touched; i++) {
        struct space *sp = &g->spaces[w->touched[i]];
        struct pending *p = &w->pending[w->touched[i]];
        struct amount t = {w->touched[i], sp->n, p->alloc};
        HT_PUSH(g->asks, *n_asks, *asks_cap, t);
        int64_t need = 0;
        for (int bad = 0; bad < 2; bad++) {
            if (when == (bad ? HT_WHEN_OK : HT_WHEN_BAD)) continue;
            int64_t *live = &w->live[bad][w->touched[i]];
            if (*live + p->alloc > need) need = *live + p->alloc;
            *live += p->alloc - p->total_free;
        }
        HT_PUSH(sp->need, sp->n, need_caps[w->touched[i]], need);
    }
    if (w->n_touched) sort(g->asks + begin_asks, w->n_touched);
    for (int32_t op = first; op < first + n; op++) {
        begun |= is_here(w, op);
        g->asks_begin[op + 1] = begun ? *n_asks : begin_asks;
        int32_t rank = ht_op_rank(s, op);
        int64_t begin = *n_releases;
        for (int64_t e = s->effects_begin[op]; is_here(w, op) && e < s->effects_begin[op + 1]; e++) {
            if (!(s->effects[e].flags & HT_RELEASE)) continue;
            int32_t space = ht_space(s, s->effects[e].tier, rank);
            int64_t bytes = ht_effect_bytes(s, &s->effects[e]), k = begin;
            while (k < *n_releases && g->releases[k].space != space) k++;
            if (k < *n_releases) {
                g->releases[k].bytes += bytes;
            } else {
                struct amount t = {space, g->spaces[space].n - 1, bytes};
                HT_PUSH(g->releases, *n_releases, *releases_cap, t);
            }
        }
        g->releases_begin[op + 1] = *n_releases;
    }
    for (int32_t i = 0; i < w->n_touched; i++) w->pending[w->touched[i]].touched = false;
}

static void build_trees(struct space *sp)
{
    sp->leaves = 1;
    while (sp->leaves < sp->n) sp->leaves *= 2;
    for (int slot = 0; slot < 2; slot++) {
        struct node *t = sp->tree[slot] = HT_NEW_ARRAY(struct node, 2 * (size_t)sp->leaves);
        for (int32_t p = 0; p < sp->leaves; p++) t[sp->leaves + p] = (struct node){0, p < sp->n ? sp->need[p] : NONE};
        for (int32_t i = sp->leaves - 1; i >= 1; i--) t[i] = join(t[2 * i], t[2 * i + 1]);
        sp->granted[slot] = HT_NEW_ARRAY(uint8_t, sp->n);
        sp->net[slot] = HT_NEW_ARRAY(int64_t, sp->n);
    }
}

enum ht_status ht_grants_create(const struct ht_schedule *s, int32_t node, struct ht_error *err, struct ht_grants **out)
{
    int32_t n_spaces = ht_n_spaces(s);
    struct ht_grants *g = HT_NEW(struct ht_grants);
    g->n_spaces = n_spaces;
    g->spaces = HT_NEW_ARRAY(struct space, n_spaces);
    g->changed = HT_NEW_ARRAY(int32_t, n_spaces);
    g->asks_begin = HT_NEW_ARRAY(int64_t, s->n_ops + 1);
    g->releases_begin = HT_NEW_ARRAY(int64_t, s->n_ops + 1);
    struct walk w = {.s = s,
                     .node = node,
                     .pending = HT_NEW_ARRAY(struct pending, n_spaces),
                     .touched = HT_NEW_ARRAY(int32_t, n_spaces)};
    for (int bad = 0; bad < 2; bad++) w.live[bad] = HT_NEW_ARRAY(int64_t, n_spaces);
    size_t *need_caps = HT_NEW_ARRAY(size_t, n_spaces), asks_cap = 0, releases_cap = 0;
    int64_t n_asks = 0, n_releases = 0;
    /* At most one of each per effect. Memory that is not used is never touched. */
    HT_RESERVE(g->asks, asks_cap, s->effects_begin[s->n_ops]);
    HT_RESERVE(g->releases, releases_cap, s->effects_begin[s->n_ops]);

    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        g->spaces[ht_space(s, r->tier, r->rank)].live += ht_resident_bytes(s, r);
    }
    for (int32_t i = 0; i < n_spaces; i++) {
        struct space *sp = &g->spaces[i];
        sp->capacity = ht_space_bytes(s, i);
        sp->peak = w.live[0][i] = w.live[1][i] = sp->live;
    }
    for (int32_t op = 0, n; op < s->n_ops; op += n) {
        for (n = 1; s->ops[op].match >= 0 && op + n < s->n_ops && s->ops[op + n].match == s->ops[op].match;) n++;
        add_group(g, &w, op, n, &asks_cap, &n_asks, &releases_cap, &n_releases, need_caps);
    }
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
        build_trees(sp);
    }
    free(w.pending);
    free(w.touched);
    free(w.live[0]);
    free(w.live[1]);
    free(need_caps);
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
        free(g->spaces[i].need);
        for (int slot = 0; slot < 2; slot++) {
            free(g->spaces[i].tree[slot]);
            free(g->spaces[i].granted[slot]);
            free(g->spaces[i].net[slot]);
        }
    }
    free(g->spaces);
    free(g->changed);
    free(g->asks);
    free(g->asks_begin);
    free(g->releases);
    free(g->releases_begin);
    free(g);
}
