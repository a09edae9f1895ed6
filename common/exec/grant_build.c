/* Creates grants: walks the safe sequence, and lists what each issue group asks for and each op releases. */
#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/exec/grant_state.h"
#include "common/exec/recent.h"
#include "common/schedule/residency.h"

#include <stdlib.h>

enum { FIRST_WINDOW = 16, FIRST_NUMBERS = 64 };

/* Adds up what an op asks for and releases in its space of each tier that it touches. */
struct sums {
    unsigned touches, frees; /* bits of tiers; it touches where it frees, too */
    int64_t alloc[HT_N_TIERS], freed[HT_N_TIERS];
};

/* A space during the walk. */
struct tally {
    int64_t live[2];      /* of the safe sequence so far, in the ok branch and in the bad branch */
    int64_t alloc, freed; /* by the current issue group of several ops */
    bool touched;
};

struct walk {
    const struct ht_schedule *s;
    int32_t node;
    int32_t *space_of;   /* [n_lanes * HT_N_TIERS] each tier's space of the lane's rank */
    struct tally *tally; /* [n_spaces] */
    int32_t *touched;    /* [n_spaces] spaces that the current issue group of several ops touches */
    int32_t n_touched;
    struct sums *members; /* of that group */
    size_t members_cap;
    int32_t *recent; /* common/exec/recent.h */
    /* Hash of parcels: each entry is a number + 1, or 0; a power of two, at least half of it free. */
    uint32_t *numbers, n_numbers, n_parcels;
    size_t parcels_cap;
};

static struct walk begin_walk(const struct ht_schedule *s, int32_t node)
{
    struct walk w = {.s = s,
                     .node = node,
                     .space_of = HT_NEW_ARRAY(int32_t, (int64_t)s->n_lanes * HT_N_TIERS),
                     .tally = HT_NEW_ARRAY(struct tally, ht_n_spaces(s)),
                     .touched = HT_NEW_ARRAY(int32_t, ht_n_spaces(s)),
                     .recent = ht_recent_create()};
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        struct tally *t = &w.tally[ht_space(s, r->tier, r->rank)];
        t->live[0] = t->live[1] += ht_resident_bytes(s, r);
    }
    for (int32_t lane = 0; lane < s->n_lanes; lane++)
        for (int tier = 0; tier < HT_N_TIERS; tier++)
            w.space_of[lane * HT_N_TIERS + tier] = ht_space(s, (enum ht_tier)tier, s->lanes[lane].rank);
    return w;
}

static void end_walk(struct walk *w)
{
    free(w->space_of);
    free(w->tally);
    free(w->touched);
    free(w->members);
    free(w->recent);
    free(w->numbers);
}

/* Returns the spaces in which the op's effects are, by tier. */
static inline const int32_t *spaces_of(const struct walk *w, int32_t op)
{
    return w->space_of + (int64_t)w->s->ops[op].lane * HT_N_TIERS;
}

static inline bool is_here(const struct walk *w, int32_t op)
{
    return w->node < 0 || w->s->rank_node[ht_op_rank(w->s, op)] == w->node;
}

/* Takes the lowest tier of a set. The set may not be empty. */
static inline enum ht_tier take_tier(unsigned *set)
{
    int tier = __builtin_ctz(*set);
    *set &= *set - 1;
    return (enum ht_tier)tier;
}

/* Adds up the effects of an op, and notes if its lane has asked for less so far. */
static inline void sum_op(const struct ht_grants *g, const struct walk *w, int32_t op, struct sums *out)
{
    const struct ht_schedule *s = w->s;
    const struct ht_effect *end = s->effects + s->effects_begin[op + 1];
    out->touches = out->frees = 0;
    for (const struct ht_effect *f = s->effects + s->effects_begin[op]; f < end; f++) {
        if (!(f->flags & (HT_PRODUCE | HT_RELEASE))) continue;
        unsigned bit = 1u << f->tier;
        int64_t bytes = ht_effect_bytes(s, f);
        if (!(out->touches & bit)) out->alloc[f->tier] = out->freed[f->tier] = 0;
        out->touches |= bit;
        if (f->flags & HT_PRODUCE) out->alloc[f->tier] += bytes;
        if (!(f->flags & HT_RELEASE)) continue;
        out->freed[f->tier] += bytes;
        out->frees |= bit;
    }
    int64_t *asked = g->asked + (int64_t)s->ops[op].lane * HT_N_TIERS;
    for (unsigned tiers = out->touches; tiers;) {
        enum ht_tier tier = take_tier(&tiers);
        asked[tier] = ht_max(asked[tier], out->alloc[tier]);
    }
}

/* Adds an op's sums to those of its issue group. */
static void add_member(struct walk *w, const int32_t *spaces, const struct sums *x)
{
    for (unsigned tiers = x->touches; tiers;) {
        enum ht_tier tier = take_tier(&tiers);
        int32_t space = spaces[tier];
        struct tally *t = &w->tally[space];
        if (!t->touched) {
            t->alloc = t->freed = 0;
            t->touched = true;
            w->touched[w->n_touched++] = space;
        }
        t->alloc += x->alloc[tier];
        t->freed += x->freed[tier];
    }
}

/* Adds up what an issue group's ops on this node do, and sorts the spaces that they touch. Insertion is enough: a group
   touches a few. */
static void add_group(const struct ht_grants *g, struct walk *w, int32_t first, int32_t end)
{
    for (int32_t i = 0; i < w->n_touched; i++) w->tally[w->touched[i]].touched = false;
    w->n_touched = 0;
    HT_RESERVE(w->members, w->members_cap, end - first);
    for (int32_t op = first; op < end; op++) {
        if (!is_here(w, op)) continue;
        sum_op(g, w, op, &w->members[op - first]);
        add_member(w, spaces_of(w, op), &w->members[op - first]);
    }
    for (int32_t i = 1; i < w->n_touched; i++) {
        int32_t x = w->touched[i], at = i;
        for (; at > 0 && w->touched[at - 1] > x; at--) w->touched[at] = w->touched[at - 1];
        w->touched[at] = x;
    }
}

/* Adds bytes to what is live on the branches on which an op runs. Returns the most that is live on one of them; 0: less. */
static inline int64_t add_to(int64_t live[2], enum ht_when when, int64_t bytes)
{
    if (when == HT_ALWAYS) {
        live[0] += bytes;
        live[1] += bytes;
        return ht_max(ht_max(live[0], live[1]), 0);
    }
    int64_t most = 0;
    for (int bad = 0; bad < 2; bad++) {
        if (when == (bad ? HT_WHEN_OK : HT_WHEN_BAD)) continue;
        live[bad] += bytes;
        if (live[bad] > most) most = live[bad];
    }
    return most;
}

/* ---- what is asked for and released ---------------------------------------------------------------------------- */

/* Returns where a parcel's number is, or is to go. */
static inline uint32_t *find_number(const struct ht_grants *g, const struct walk *w, struct parcel p)
{
    uint64_t hash = ((uint64_t)p.bytes ^ (uint64_t)p.space << 40) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = (uint32_t)(hash >> 40);; i++) {
        uint32_t *number = &w->numbers[i & (w->n_numbers - 1)];
        if (!*number) return number;
        const struct parcel *q = &g->parcels[*number - 1];
        if (q->bytes == p.bytes && q->space == p.space) return number;
    }
}

static void add_parcel(struct ht_grants *g, struct walk *w, struct parcel p, uint32_t *number)
{
    HT_PUSH(g->parcels, w->n_parcels, w->parcels_cap, p);
    *number = w->n_parcels;
    if (2 * w->n_parcels < w->n_numbers) return;
    free(w->numbers);
    w->n_numbers *= 2;
    w->numbers = HT_NEW_ARRAY(uint32_t, w->n_numbers);
    for (uint32_t i = 0; i < w->n_parcels; i++) *find_number(g, w, g->parcels[i]) = i + 1;
}

/* Appends what the issue group that comes last in the space asks for there, or what an op of it releases. */
static inline void list_amount(struct ht_grants *g, struct walk *w, int32_t space, int64_t bytes, bool release,
                               uint32_t *n)
{
    struct parcel p = {bytes, space};
    uint32_t *found = find_number(g, w, p), number = *found;
    if (!number) {
        add_parcel(g, w, p, found);
        number = w->n_parcels;
    }
    g->amounts[(*n)++] = (struct amount){number - 1, (uint32_t)(g->spaces[space].n - 1) & INT32_MAX, release};
}

/* Counts an issue group among those that touch the space. */
static inline void pass(struct ht_grants *g, struct walk *w, int32_t space, enum ht_when when, int64_t alloc,
                        int64_t freed)
{
    struct space *sp = &g->spaces[space];
    int64_t *live = w->tally[space].live, need = add_to(live, when, alloc);
    add_to(live, when, -freed);
    if (need > sp->order) sp->order = need;
    sp->n++;
}

/* Appends what an op releases. */
static inline void list_releases(struct ht_grants *g, struct walk *w, const int32_t *spaces, const struct sums *x,
                                 uint32_t *n)
{
    for (unsigned tiers = x->frees; tiers;) {
        enum ht_tier tier = take_tier(&tiers);
        list_amount(g, w, spaces[tier], x->freed[tier], true, n);
    }
}

/* Appends what an op alone asks for and releases. It touches at most a space of each tier, and these are in order. */
static void list_alone(struct ht_grants *g, struct walk *w, int32_t op, uint32_t *n)
{
    struct sums x;
    const int32_t *spaces = spaces_of(w, op);
    sum_op(g, w, op, &x);
    for (unsigned tiers = x.touches; tiers;) {
        enum ht_tier tier = take_tier(&tiers);
        int32_t space = spaces[tier];
        pass(g, w, space, w->s->ops[op].when, x.alloc[tier], x.freed[tier]);
        list_amount(g, w, space, x.alloc[tier], false, n);
    }
    list_releases(g, w, spaces, &x, n);
}

/* Appends what the issue group [first, end) asks for, under its first member on this node, and what its members release. */
static void list_group(struct ht_grants *g, struct walk *w, int32_t first, int32_t end, uint32_t *n)
{
    add_group(g, w, first, end);
    for (int32_t i = 0; i < w->n_touched; i++) {
        struct tally *t = &w->tally[w->touched[i]];
        pass(g, w, w->touched[i], w->s->ops[first].when, t->alloc, t->freed);
    }
    bool begun = false;
    for (int32_t op = first; op < end; op++) {
        g->begin[op] = *n;
        if (!is_here(w, op)) continue;
        for (int32_t i = 0; !begun && i < w->n_touched; i++)
            list_amount(g, w, w->touched[i], w->tally[w->touched[i]].alloc, false, n);
        begun = true;
        list_releases(g, w, spaces_of(w, op), &w->members[op - first], n);
    }
}

/* ---- what is like an earlier group ----------------------------------------------------------------------------- */

/* Returns true if two ops of one lane take and free the same in the same tiers. */
static inline bool same_effects(const struct ht_schedule *s, int32_t a, int32_t b)
{
    const struct ht_effect *x = s->effects + s->effects_begin[a], *y = s->effects + s->effects_begin[b];
    int64_t n = s->effects_begin[a + 1] - s->effects_begin[a];
    if (n != s->effects_begin[b + 1] - s->effects_begin[b] || s->ops[a].lane != s->ops[b].lane) return false;
    for (int64_t i = 0; i < n; i++)
        if (x[i].tier != y[i].tier || x[i].flags != y[i].flags ||
            s->tensors[x[i].tensor].bytes != s->tensors[y[i].tensor].bytes)
            return false;
    return true;
}

/* Returns true if the issue group that begins with `like` is to memory what [first, end) is. */
static inline bool is_like(const struct ht_schedule *s, int32_t like, int32_t first, int32_t end)
{
    if (like < 0 || ht_group_end(s, like) - like != end - first) return false;
    for (int32_t i = 0; i < end - first; i++)
        if (!same_effects(s, like + i, first + i)) return false;
    return true;
}

/* Appends for an op what is listed for one that is like it. */
static inline void list_again(struct ht_grants *g, struct walk *w, int32_t like, int32_t op, uint32_t *n)
{
    enum ht_when when = w->s->ops[op].when;
    g->begin[op] = *n;
    for (uint32_t i = g->begin[like]; i < g->begin[like + 1]; i++) {
        struct amount a = g->amounts[i];
        const struct parcel *p = &g->parcels[a.parcel];
        struct space *sp = &g->spaces[p->space];
        int64_t need = add_to(w->tally[p->space].live, when, a.release ? -p->bytes : p->bytes);
        if (!a.release) {
            if (need > sp->order) sp->order = need;
            sp->n++;
        }
        a.position = (uint32_t)(sp->n - 1) & INT32_MAX;
        g->amounts[(*n)++] = a;
    }
}

/* Returns the most amounts that there can be: each effect that makes or frees something adds at most one ask; one that
   frees adds at most one release, too. */
static int64_t most_amounts(const struct ht_schedule *s)
{
    int64_t n = 0;
    for (int64_t e = 0; e < s->effects_begin[s->n_ops]; e++)
        n += ((s->effects[e].flags & (HT_PRODUCE | HT_RELEASE)) != 0) + ((s->effects[e].flags & HT_RELEASE) != 0);
    return n;
}

void ht_grants_open_window(struct space *sp, int32_t window)
{
    sp->window = window;
    sp->net = HT_NEW_ARRAY(int64_t, window);
    for (int32_t i = 0; i < window; i++) sp->net[i] = HT_NOT_GRANTED;
}

/* A space while its needs are listed: where the next one goes, and what is live so far by branch. */
struct need {
    int64_t *next, live[2];
};

void ht_grants_list_needs(struct ht_grants *g)
{
    struct need *at = HT_NEW_ARRAY(struct need, g->n_spaces);
    int64_t n = 0;
    for (int32_t i = 0; i < g->n_spaces; i++) n += g->spaces[i].n;
    g->needs = HT_NEW_ARRAY(int64_t, n);
    n = 0;
    for (int32_t i = 0; i < g->n_spaces; n += g->spaces[i++].n) {
        g->spaces[i].need = at[i].next = g->needs + n;
        at[i].live[0] = at[i].live[1] = g->spaces[i].resident;
    }
    for (int32_t op = 0; op < g->s->n_ops; op++) {
        enum ht_when when = g->s->ops[op].when;
        for (uint32_t i = g->begin[op]; i < g->begin[op + 1]; i++) {
            const struct parcel *p = &g->parcels[g->amounts[i].parcel];
            struct need *x = &at[p->space];
            bool release = g->amounts[i].release;
            int64_t need = add_to(x->live, when, release ? -p->bytes : p->bytes);
            if (!release) *x->next++ = need;
        }
    }
    free(at);
}

enum ht_status ht_grants_create(const struct ht_schedule *s, int32_t node, struct ht_error *err, struct ht_grants **out)
{
    *out = NULL;
    if (s->effects_begin[s->n_ops] > INT32_MAX)
        return ht_fail(err, HT_BAD_INPUT, "schedule '%s' has %lld effects; expected at most %d", s->name,
                       (long long)s->effects_begin[s->n_ops], INT32_MAX);
    int32_t n_spaces = ht_n_spaces(s);
    struct ht_grants *g = HT_NEW(struct ht_grants);
    g->s = s;
    g->n_spaces = n_spaces;
    g->spaces = HT_NEW_ARRAY(struct space, n_spaces);
    g->changed = HT_NEW_ARRAY(int32_t, n_spaces);
    g->begin = HT_NEW_ARRAY(uint32_t, (int64_t)s->n_ops + 1);
    g->amounts = HT_NEW_ARRAY(struct amount, most_amounts(s));
    g->asked = HT_NEW_ARRAY(int64_t, (int64_t)s->n_lanes * HT_N_TIERS);
    struct walk w = begin_walk(s, node);
    w.numbers = HT_NEW_ARRAY(uint32_t, w.n_numbers = FIRST_NUMBERS);
    for (int32_t i = 0; i < n_spaces; i++) {
        struct space *sp = &g->spaces[i];
        sp->capacity = ht_space_bytes(s, i);
        sp->live = sp->peak = sp->resident = w.tally[i].live[0];
        sp->wake_live = INT64_MIN;
        sp->wake_blocked = INT64_MAX;
        sp->last_granted = sp->last_released = -1;
        ht_grants_open_window(sp, FIRST_WINDOW);
    }
    uint32_t n_amounts = 0;
    for (int32_t op = 0, end; op < s->n_ops; op = end) {
        end = ht_group_end(s, op);
        int32_t *recent = ht_recent_of(w.recent, s, op, end), like = *recent;
        g->begin[op] = n_amounts;
        *recent = op;
        if (is_like(s, like, op, end))
            for (int32_t i = op; i < end; i++) list_again(g, &w, like + i - op, i, &n_amounts);
        else if (end > op + 1)
            list_group(g, &w, op, end, &n_amounts);
        else if (is_here(&w, op))
            list_alone(g, &w, op, &n_amounts);
    }
    g->begin[s->n_ops] = n_amounts;
    enum ht_status status = HT_OK;
    for (int32_t i = 0; i < n_spaces; i++) {
        struct space *sp = &g->spaces[i];
        /* A space that no op touches may be another node's. */
        if ((sp->n || node < 0) && sp->live > sp->order) sp->order = sp->live;
        if (sp->order > sp->capacity && status == HT_OK) {
            char name[32];
            status = ht_fail(err, HT_INFEASIBLE,
                             "schedule '%s' does not fit %s: the safe sequence needs %lld bytes of %lld", s->name,
                             ht_space_name(s, i, name, sizeof(name)), (long long)sp->order, (long long)sp->capacity);
        }
    }
    end_walk(&w);
    if (status != HT_OK) {
        ht_grants_destroy(g);
        g = NULL;
    }
    *out = g;
    return status;
}

bool ht_grants_keep_free(struct ht_grants *g, const int32_t *ahead)
{
    const struct ht_schedule *s = g->s;
    int64_t *left = HT_NEW_ARRAY(int64_t, g->n_spaces);
    bool fits = true;
    for (int32_t i = 0; i < g->n_spaces; i++) left[i] = g->spaces[i].capacity - g->spaces[i].order;
    for (int32_t i = 0; fits && i < s->n_lanes * HT_N_TIERS; i++) {
        int32_t lane = i / HT_N_TIERS, space = ht_space(s, (enum ht_tier)(i % HT_N_TIERS), s->lanes[lane].rank);
        if (!ahead[lane] || !g->asked[i]) continue;
        fits = g->asked[i] <= left[space] / ahead[lane];
        left[space] -= fits ? ahead[lane] * g->asked[i] : 0;
    }
    for (int32_t i = 0; fits && i < g->n_spaces; i++) g->spaces[i].capacity = g->spaces[i].order + left[i];
    free(left);
    return fits;
}

void ht_grants_destroy(struct ht_grants *g)
{
    if (!g) return;
    for (int32_t i = 0; i < g->n_spaces; i++) {
        free(g->spaces[i].net);
        free(g->spaces[i].tree);
        free(g->spaces[i].waiters);
    }
    free(g->spaces);
    free(g->changed);
    free(g->woken);
    free(g->amounts);
    free(g->parcels);
    free(g->asked);
    free(g->needs);
    free(g->begin);
    free(g);
}
