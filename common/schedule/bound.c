#include "common/schedule/bound.h"

#include "common/base/array.h"
#include "common/schedule/bound_order.h"
#include "common/schedule/fold.h"
#include "common/schedule/residency.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = HT_ORDER_NEVER };
#define TOO_MUCH ((int64_t)1 << 28) /* steps */

/* A span of a tensor's life in a space. from = -1: live from the start; to = -1: to the end. */
struct life {
    int32_t from, to;
    int64_t bytes;
};

struct lives {
    struct life *rows;
    int32_t n;
    size_t cap;
};

static void add_life(struct lives *l, int32_t from, int32_t to, int64_t bytes)
{
    HT_PUSH(l->rows, l->n, l->cap, ((struct life){from, to, bytes}));
}

/* Splits every tensor's presence in every space into lives. A conditional release does not end a life for sure. */
static void collect(const struct ht_schedule *s, struct lives *lives)
{
    struct ht_residencies residencies;
    ht_residencies_init(&residencies, s);
    int32_t *open = ht_alloc_ids(residencies.n); /* each residency's unfinished life, or -1 */
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        int32_t space = ht_space(s, r->tier, r->rank);
        open[residencies.of_resident[i]] = lives[space].n;
        add_life(&lives[space], -1, -1, ht_resident_bytes(s, r));
    }
    for (int32_t x = 0; x < 2 * s->n_ops; x++) {
        int32_t op = x % s->n_ops;
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            int32_t residency = residencies.of_effect[e], space = residencies.rows[residency].space;
            int32_t *at = &open[residency];
            if (f->flags & HT_PRODUCE) {
                *at = lives[space].n;
                add_life(&lives[space], x, -1, ht_effect_bytes(s, f));
            }
            if ((f->flags & HT_RELEASE) && *at >= 0) {
                if (s->ops[op].when == HT_ALWAYS) lives[space].rows[*at].to = x;
                *at = -1;
            }
        }
    }
    free(open);
    ht_residencies_free(&residencies);
}

/* ---- largest sum of what can be live at once ------------------------------------------------------------------- */

/* An instance of a lane that makes something in a space, in order of position; the bound is the largest sum over
   these. */
struct site {
    int32_t x, position;
    int64_t change; /* bytes of what can be live from here on, but not at the site before */
};

/* Returns true if x has surely ended when `other` is granted. On a FIFO lane, with this column, that is at `position` or behind it. */
static inline bool has_ended(const struct ht_order *o, int32_t x, int32_t other, int32_t column, int32_t position)
{
    if (o->position[other] < 0) return ht_order_is_before(o, x, other);
    return ht_order_after(o, x)[column] <= position;
}

/* Returns how many of n sites of a FIFO lane, from the first on, have surely ended when `other` is granted; it is at
   least `low`. It doubles its steps from there, since the sites' rows of `after` lie far apart. */
static int32_t count_ended(const struct ht_order *o, const struct site *sites, int32_t n, int32_t other, int32_t low)
{
    int32_t high = low, lane = ht_order_lane(o, other), column = o->column[lane];
    int32_t position = o->position[other] < 0 ? -1 : o->position[other] - ht_order_lead(o, lane);
    for (int32_t step = 1; high < n && has_ended(o, sites[high].x, other, column, position); step *= 2) {
        low = high + 1;
        high = n - low > step ? low + step : n;
    }
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (has_ended(o, sites[middle].x, other, column, position))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns how many of n sites of a FIFO lane, from the first on, are granted before `other` has surely ended. It doubles its steps
   from `guess` on, down or up. */
static int32_t count_granted(const struct ht_order *o, const struct site *sites, int32_t n, int32_t other,
                             int32_t guess)
{
    int32_t lane = ht_order_lane(o, sites[0].x), low = guess, high = guess;
    int32_t first = ht_order_after(o, other)[o->column[lane]], lead = ht_order_lead(o, lane);
    for (int32_t step = 1; low > 0 && sites[low - 1].position - lead >= first; step *= 2) {
        high = low - 1;
        low = high > step ? high - step : 0;
    }
    for (int32_t step = 1; high < n && sites[high].position - lead < first; step *= 2) {
        low = high + 1;
        high = n - low > step ? low + step : n;
    }
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (sites[middle].position - lead < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the largest sum at the sites of a FIFO lane. A tensor can be live at consecutive sites: not before it can
   have been made, nor after it must have been freed. So each life is two changes. Scratch, [n_lanes]: ended, for each FIFO lane
   the sites that had ended at the last life which the lane began; lives come in the order of their lanes. granted: those that were
   granted before the last life which the lane ended. */
static int64_t most_on_fifo(const struct ht_order *o, const struct lives *l, struct site *sites, int32_t n,
                            int32_t *ended, int32_t *granted)
{
    int64_t live = 0, most = 0;
    memset(granted, 0, sizeof *granted * (size_t)o->s->n_lanes);
    memset(ended, 0, sizeof *ended * (size_t)o->s->n_lanes);
    for (int32_t k = 0; k < l->n; k++) {
        const struct life *t = &l->rows[k];
        int32_t begin = 0;
        if (t->from >= 0) {
            int32_t *known = &ended[ht_order_lane(o, t->from)];
            begin = count_ended(o, sites, n, t->from, o->position[t->from] >= 0 ? *known : 0);
            *known = begin;
        }
        int32_t end = n;
        if (t->to >= 0) {
            int32_t *guess = &granted[ht_order_lane(o, t->to)];
            end = *guess = count_granted(o, sites, n, t->to, *guess);
        }
        if (begin >= end) continue;
        sites[begin].change += t->bytes;
        if (end < n) sites[end].change -= t->bytes;
    }
    for (int32_t i = 0; i < n; i++) {
        live += sites[i].change;
        if (live > most) most = live;
    }
    return most;
}

/* ---- priority lanes -------------------------------------------------------------------------------------------- */

/* Lives listed by an instance, in compressed rows. */
struct listing {
    int32_t *begin; /* [n + 1] */
    int32_t *life;
};

/* Columns that tell for all lives at once whether each is over, or yet to come, at an instance of a PRIORITY lane (ht_order_is_before).
   Such an instance is granted when its dependencies have ended, so what counts is their positions. */
struct marks {
    const struct ht_order *o;
    const struct lives *l;
    int32_t *
        *over; /* [n_lanes][l->n] first position of a FIFO lane at which a life is surely over; NULL: not asked for */
    int32_t *
        *to_come;  /* [n_lanes][l->n] last position that has surely ended when a life begins, or -1; NULL: all are -1 */
    int32_t *last; /* [n_lanes] largest of to_come */
    struct listing by_end, by_dependency; /* lives that end with an instance; that begin with one which depends on it */
};

/* Returns the i-th dependency of an instance: of its own iteration, then of the one before; -1 after the last. */
static int32_t dependency(const struct ht_order *o, int32_t x, int64_t i)
{
    const struct ht_schedule *s = o->s;
    int32_t op = ht_order_op(o, x), base = x - op;
    int64_t own = s->deps_begin[op + 1] - s->deps_begin[op];
    if (i < own) return base + s->deps[s->deps_begin[op] + i];
    int64_t d = s->prev_begin[op] + i - own;
    return base && d < s->prev_begin[op + 1] ? s->prev[d] : -1;
}

static void add_to_listing(struct listing *list, bool count, int32_t x, int32_t life)
{
    if (count)
        list->begin[x + 1]++;
    else
        list->life[list->begin[x]++] = life;
}

/* Fills the listings: counts in a first pass, lists in a second one. */
static void list_lives(struct marks *m)
{
    const struct ht_order *o = m->o;
    struct listing *all[] = {&m->by_end, &m->by_dependency};
    for (int i = 0; i < 2; i++) all[i]->begin = HT_NEW_ARRAY(int32_t, o->n + 1);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t k = 0; k < m->l->n; k++) {
            const struct life *t = &m->l->rows[k];
            if (t->to >= 0) add_to_listing(&m->by_end, !pass, t->to, k);
            if (t->from < 0 || o->position[t->from] >= 0) continue;
            for (int64_t i = 0, d; (d = dependency(o, t->from, i)) >= 0; i++)
                add_to_listing(&m->by_dependency, !pass, (int32_t)d, k);
        }
        for (int i = 0; i < 2; i++) {
            if (pass == 0) {
                for (int32_t x = 0; x < o->n; x++) all[i]->begin[x + 1] += all[i]->begin[x];
                all[i]->life = HT_NEW_ARRAY(int32_t, all[i]->begin[o->n]);
            } else { /* each begin has moved to its row's end */
                for (int32_t x = o->n; x > 0; x--) all[i]->begin[x] = all[i]->begin[x - 1];
                all[i]->begin[0] = 0;
            }
        }
    }
}

static void add_to_come(struct marks *m, int32_t life, int32_t lane, int32_t position)
{
    if (!m->to_come[lane]) {
        m->to_come[lane] = HT_NEW_ARRAY(int32_t, m->l->n);
        for (int32_t k = 0; k < m->l->n; k++) m->to_come[lane][k] = -1;
    }
    int32_t *at = &m->to_come[lane][life];
    if (position > *at) *at = position;
    if (position > m->last[lane]) m->last[lane] = position;
}

static void marks_init(struct marks *m, const struct ht_order *o, const struct lives *l)
{
    int32_t n_lanes = o->s->n_lanes;
    *m = (struct marks){.o = o,
                        .l = l,
                        .over = HT_NEW_ARRAY(int32_t *, n_lanes),
                        .to_come = HT_NEW_ARRAY(int32_t *, n_lanes),
                        .last = ht_alloc_ids(n_lanes)};
    list_lives(m);
    for (int32_t k = 0; k < l->n; k++) {
        int32_t from = l->rows[k].from;
        if (from < 0) continue;
        if (o->position[from] >= 0) {
            int32_t lane = ht_order_lane(o, from);
            add_to_come(m, k, lane, o->position[from] - ht_order_lead(o, lane));
            continue;
        }
        for (int64_t i = 0, d; (d = dependency(o, from, i)) >= 0; i++)
            if (o->position[d] >= 0) add_to_come(m, k, ht_order_lane(o, (int32_t)d), o->position[d]);
    }
}

static void marks_free(struct marks *m)
{
    for (int32_t lane = 0; lane < m->o->s->n_lanes; lane++) {
        free(m->over[lane]);
        free(m->to_come[lane]);
    }
    free(m->over);
    free(m->to_come);
    free(m->last);
    free(m->by_end.begin);
    free(m->by_end.life);
    free(m->by_dependency.begin);
    free(m->by_dependency.life);
}

static const int32_t *over_on(struct marks *m, int32_t lane)
{
    if (m->over[lane]) return m->over[lane];
    int32_t *over = m->over[lane] = HT_NEW_ARRAY(int32_t, m->l->n);
    for (int32_t k = 0; k < m->l->n; k++) {
        int32_t to = m->l->rows[k].to;
        over[k] = to < 0 ? NEVER : ht_order_after(m->o, to)[m->o->column[lane]];
    }
    return over;
}

static void mark_listed(const struct listing *list, int32_t x, int32_t *gone)
{
    for (int32_t i = list->begin[x]; i < list->begin[x + 1]; i++) gone[list->life[i]] = 1;
}

/* Sets gone[k] for every life that is surely over, or yet to come, when x is granted. */
static void mark(struct marks *m, int32_t x, int32_t *gone)
{
    const struct ht_order *o = m->o;
    int32_t n = m->l->n, n_lanes = o->s->n_lanes;
    const int32_t *after = ht_order_after(o, x);
    memset(gone, 0, sizeof *gone * (size_t)n);
    for (int64_t i = 0, d; (d = dependency(o, x, i)) >= 0; i++) {
        int32_t position = o->position[d];
        mark_listed(&m->by_end, (int32_t)d, gone);
        if (position < 0) continue;
        const int32_t *over = over_on(m, ht_order_lane(o, (int32_t)d));
        for (int32_t k = 0; k < n; k++) gone[k] |= over[k] <= position;
    }
    for (int32_t lane = 0; lane < n_lanes; lane++) {
        const int32_t *to_come = m->to_come[lane];
        int32_t first = to_come ? after[o->column[lane]] : 0;
        if (!to_come || first > m->last[lane]) continue;
        for (int32_t k = 0; k < n; k++) gone[k] |= to_come[k] >= first;
    }
    mark_listed(&m->by_dependency, x, gone);
}

/* Returns the largest sum at the sites of a PRIORITY lane. */
static int64_t most_on_priority(const struct ht_order *o, const struct lives *l, const struct site *sites, int32_t n)
{
    int64_t most = 0;
    if ((int64_t)n * l->n > TOO_MUCH) return INT64_MAX;
    struct marks m;
    marks_init(&m, o, l);
    int32_t *gone = HT_NEW_ARRAY(int32_t, l->n);
    for (int32_t i = 0; i < n; i++) {
        int64_t live = 0;
        mark(&m, sites[i].x, gone);
        for (int32_t k = 0; k < l->n; k++) live += gone[k] ? 0 : l->rows[k].bytes;
        if (live > most) most = live;
    }
    free(gone);
    marks_free(&m);
    return most;
}

/* Returns the bound of a space. Lives begin in the order of instances, as do a FIFO lane's positions. */
static int64_t bound_of(const struct ht_order *o, const struct lives *l, int64_t capacity)
{
    const struct ht_schedule *s = o->s;
    struct site *sites = HT_NEW_ARRAY(struct site, l->n);
    bool *done = HT_NEW_ARRAY(bool, s->n_lanes);
    int32_t *ended = HT_NEW_ARRAY(int32_t, s->n_lanes), *granted = HT_NEW_ARRAY(int32_t, s->n_lanes);
    int64_t most = 0;
    for (int32_t i = 0; i < l->n; i++) most += l->rows[i].from < 0 ? l->rows[i].bytes : 0;
    for (int32_t i = 0; i < l->n; i++) {
        int32_t n = 0, lane = l->rows[i].from < 0 ? -1 : ht_order_lane(o, l->rows[i].from);
        if (lane < 0 || done[lane]) continue;
        done[lane] = true;
        for (int32_t k = i; k < l->n; k++) {
            int32_t x = l->rows[k].from;
            if (ht_order_lane(o, x) == lane && (n == 0 || sites[n - 1].x != x))
                sites[n++] = (struct site){x, o->position[x], 0};
        }
        int64_t found = s->lanes[lane].order == HT_FIFO ? most_on_fifo(o, l, sites, n, ended, granted)
                                                        : most_on_priority(o, l, sites, n);
        if (found > most) most = found;
    }
    free(sites);
    free(done);
    free(ended);
    free(granted);
    return most < capacity ? most : capacity;
}

void ht_schedule_bound(const struct ht_schedule *s, int32_t issue_ahead, int64_t *bytes)
{
    int32_t n_spaces = ht_n_spaces(s);
    int64_t copies = ht_copies(s), n_lanes = copies * s->n_lanes; /* a folded graph's bounds are those of the whole */
    for (int32_t i = 0; i < n_spaces; i++) bytes[i] = ht_space_bytes(s, i);
    if (2 * copies * s->n_ops * (n_lanes + 1) > TOO_MUCH || copies * s->n_tensors * n_spaces > TOO_MUCH) return;
    struct ht_order o;
    ht_order_init(&o, s, issue_ahead);
    struct lives *lives = HT_NEW_ARRAY(struct lives, n_spaces);
    collect(s, lives);
    for (int32_t i = 0; i < n_spaces; i++) {
        ht_order_turn_to(&o, i);
        bytes[i] = bound_of(&o, &lives[i], ht_space_bytes(s, i));
        free(lives[i].rows);
    }
    free(lives);
    ht_order_free(&o);
}
