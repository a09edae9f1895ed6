#include "common/schedule/bound_order.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

enum { NEVER = HT_ORDER_NEVER };

/* Returns true if an instance on a FIFO lane starts only after one has ended that has these columns. */
static inline bool starts_after(const struct ht_order *o, const int32_t *after, int32_t x, int32_t lead)
{
    return o->position[x] >= 0 && o->position[x] - lead >= after[o->column[ht_order_lane(o, x)]];
}

bool ht_order_is_before(const struct ht_order *o, int32_t a, int32_t b)
{
    const struct ht_schedule *s = o->s;
    const int32_t *after = ht_order_after(o, a);
    if (o->position[b] >= 0) return starts_after(o, after, b, ht_order_lead(o, ht_order_lane(o, b)));
    int32_t op = ht_order_op(o, b), base = b - op;
    for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) {
        int32_t dep = base + s->deps[d];
        if (dep == a || starts_after(o, after, dep, 0)) return true;
    }
    for (int64_t d = s->prev_begin[op]; base && d < s->prev_begin[op + 1]; d++) {
        int32_t dep = s->prev[d];
        if (dep == a || starts_after(o, after, dep, 0)) return true;
    }
    return false;
}

static void lower(int32_t *into, const int32_t *from, int32_t n)
{
    for (int32_t i = 0; i < n; i++) into[i] = from[i] < into[i] ? from[i] : into[i];
}

/* The ops that depend on each op, in compressed rows, in ascending order. */
struct followers {
    int64_t *begin; /* [n_ops + 1] */
    int32_t *op;
};

/* Turns lists of dependencies around. */
static struct followers followers_of(const struct ht_schedule *s, const int64_t *begin, const int32_t *deps)
{
    int64_t n = begin[s->n_ops];
    struct followers f = {HT_NEW_ARRAY(int64_t, (int64_t)s->n_ops + 1), HT_NEW_ARRAY(int32_t, n)};
    for (int64_t d = 0; d < n; d++) f.begin[deps[d]]++;
    for (int32_t op = 0; op < s->n_ops; op++) f.begin[op + 1] += f.begin[op];
    /* Each begin, at its row's end now, moves to the row's begin. */
    for (int32_t op = s->n_ops - 1; op >= 0; op--)
        for (int64_t d = begin[op + 1] - 1; d >= begin[op]; d--) f.op[--f.begin[deps[d]]] = op;
    return f;
}

static void followers_free(struct followers *f)
{
    free(f->begin);
    free(f->op);
}

/* Rows of all FIFO lanes' first positions after an instance, of those which some instance before has yet to read. */
struct rows {
    int32_t m; /* columns: lanes */
    int32_t *at;
    size_t cap;
    int32_t n, *free, n_free; /* rows; those that nobody has */
    size_t free_cap;
    int32_t *row_of;  /* [instances] */
    int32_t *readers; /* [instances] that have yet to read it */
};

static int32_t *row_at(const struct rows *r, int32_t x)
{
    return r->at + (int64_t)r->row_of[x] * r->m;
}

/* Counts the readers of each instance's row: the one before it on its FIFO lane, and those on which it depends. */
static void rows_init(struct rows *r, const struct ht_order *o)
{
    const struct ht_schedule *s = o->s;
    *r = (struct rows){.m = s->n_lanes, .row_of = HT_NEW_ARRAY(int32_t, o->n), .readers = HT_NEW_ARRAY(int32_t, o->n)};
    for (int32_t x = 0; x < o->n; x++) {
        int32_t op = ht_order_op(o, x);
        int64_t readers = (o->position[x] > 0) + s->deps_begin[op + 1] - s->deps_begin[op];
        if (x != op) readers += s->prev_begin[op + 1] - s->prev_begin[op];
        r->readers[x] = (int32_t)readers;
    }
}

static void rows_free(struct rows *r)
{
    free(r->at);
    free(r->free);
    free(r->row_of);
    free(r->readers);
}

static void take_row(struct rows *r, int32_t x)
{
    if (r->n_free) {
        r->row_of[x] = r->free[--r->n_free];
        return;
    }
    HT_RESERVE(r->at, r->cap, ((size_t)r->n + 1) * (size_t)r->m);
    r->row_of[x] = r->n++;
}

static void give_row(struct rows *r, int32_t x)
{
    HT_PUSH(r->free, r->n_free, r->free_cap, r->row_of[x]);
}

/* Begins the row of x with what comes after the next instance on its FIFO lane, and that instance. next: -1 if there is
   none. */
static void begin_row(const struct ht_order *o, struct rows *r, int32_t x, int32_t next)
{
    if (next >= 0 && r->readers[next] == 1) {
        r->row_of[x] = r->row_of[next]; /* nobody else reads it */
    } else {
        take_row(r, x);
        if (next >= 0) memcpy(row_at(r, x), row_at(r, next), sizeof *r->at * (size_t)r->m);
        for (int32_t i = 0; i < r->m && next < 0; i++) row_at(r, x)[i] = NEVER;
    }
    if (next < 0) return;
    r->readers[next]--;
    row_at(r, x)[ht_order_lane(o, x)] = o->position[next];
}

/* Records that x starts after `a` has ended, and so does everything that comes after x. If that is known of an op on x's
   FIFO lane that is not behind x, all of it is known. */
static inline void follows(const struct ht_order *o, struct rows *r, int32_t a, int32_t x)
{
    int32_t *after = row_at(r, a), *first = &after[ht_order_lane(o, x)], position = o->position[x];
    bool known = position >= 0 && *first <= position;
    if (position >= 0 && !known) *first = position;
    if (!known) lower(after, row_at(r, x), r->m);
    if (--r->readers[x] == 0) give_row(r, x);
}

/* Keeps what spaces ask of an instance. */
static void keep_asked(struct ht_order *o, const struct rows *r, int32_t x)
{
    int32_t op = ht_order_op(o, x);
    int32_t *to = o->after + o->begin[op] + (x == op ? 0 : o->begin[o->s->n_ops]);
    const int32_t *row = row_at(r, x);
    for (enum ht_tier t = HT_DEVICE; o->tiers[op] >> t; t++) {
        if (!(o->tiers[op] >> t & 1)) continue;
        int32_t space = ht_space(o->s, t, ht_op_rank(o->s, op));
        for (int32_t i = o->asked_begin[space]; i < o->asked_begin[space + 1]; i++) *to++ = row[o->asked[i]];
    }
}

/* Marks the FIFO lanes by which a space knows when an op that makes something in it is granted: its own, or those of what it
   depends on. */
static void ask(const struct ht_schedule *s, int32_t op, bool *asks)
{
    int32_t lane = s->ops[op].lane;
    if (s->lanes[lane].order == HT_FIFO) {
        asks[lane] = true;
        return;
    }
    for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) asks[s->ops[s->deps[d]].lane] = true;
    for (int64_t d = s->prev_begin[op]; d < s->prev_begin[op + 1]; d++) asks[s->ops[s->prev[d]].lane] = true;
}

/* Finds what each space asks about, and makes room for it. */
static void find_asked(struct ht_order *o)
{
    const struct ht_schedule *s = o->s;
    int32_t n_spaces = ht_n_spaces(s), m = s->n_lanes;
    bool *asks = HT_NEW_ARRAY(bool, (int64_t)n_spaces *m);
    o->tiers = HT_NEW_ARRAY(uint8_t, s->n_ops);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            int32_t space = ht_space(s, (enum ht_tier)f->tier, ht_op_rank(s, op));
            if (f->flags & HT_PRODUCE) ask(s, op, asks + (int64_t)space * m);
            if (f->flags & (HT_PRODUCE | HT_RELEASE)) o->tiers[op] |= (uint8_t)(1u << f->tier);
        }
    o->asked_begin = HT_NEW_ARRAY(int32_t, n_spaces + 1);
    for (int pass = 0; pass < 2; pass++) {
        int32_t n = 0;
        for (int32_t space = 0; space < n_spaces; space++) {
            o->asked_begin[space] = n;
            for (int32_t lane = 0; lane < m; lane++) {
                if (!asks[(int64_t)space * m + lane] || s->lanes[lane].order != HT_FIFO) continue;
                if (pass) o->asked[n] = lane;
                n++;
            }
        }
        o->asked_begin[n_spaces] = n;
        if (!pass) o->asked = HT_NEW_ARRAY(int32_t, n);
    }
    free(asks);
    o->begin = HT_NEW_ARRAY(int64_t, (int64_t)s->n_ops + 1);
    for (int32_t op = 0; op < s->n_ops; op++) {
        o->begin[op + 1] = o->begin[op];
        for (enum ht_tier t = HT_DEVICE; o->tiers[op] >> t; t++)
            if (o->tiers[op] >> t & 1) o->begin[op + 1] += ht_order_columns(o, ht_space(s, t, ht_op_rank(s, op)));
    }
    o->after = ht_realloc(NULL, 2 * (size_t)o->begin[s->n_ops] * sizeof *o->after); /* all of it is written */
    o->column = HT_NEW_ARRAY(int32_t, m);
}

void ht_order_init(struct ht_order *o, const struct ht_schedule *s, int32_t issue_ahead)
{
    *o = (struct ht_order){.s = s, .n = 2 * s->n_ops, .issue_ahead = issue_ahead};
    int32_t m = s->n_lanes, *count = HT_NEW_ARRAY(int32_t, m), *next = ht_alloc_ids(m);
    struct followers own = followers_of(s, s->deps_begin, s->deps), later = followers_of(s, s->prev_begin, s->prev);
    struct rows r;
    o->position = HT_NEW_ARRAY(int32_t, o->n);
    for (int32_t x = 0; x < o->n; x++)
        o->position[x] = s->lanes[ht_order_lane(o, x)].order == HT_FIFO ? count[ht_order_lane(o, x)]++ : -1;
    find_asked(o);
    rows_init(&r, o);
    /* From the last instance to the first, so that the rows of those which come after it are complete. Of these the nearest
       goes first: most of the others then bring nothing new. */
    for (int32_t x = o->n - 1; x >= 0; x--) {
        int32_t op = ht_order_op(o, x), base = x - op, lane = s->ops[op].lane;
        begin_row(o, &r, x, o->position[x] >= 0 ? next[lane] : -1);
        if (o->position[x] >= 0) next[lane] = x;
        for (int64_t i = own.begin[op]; i < own.begin[op + 1]; i++) follows(o, &r, x, base + own.op[i]);
        for (int64_t i = later.begin[op]; !base && i < later.begin[op + 1]; i++)
            follows(o, &r, x, s->n_ops + later.op[i]);
        keep_asked(o, &r, x);
        if (!r.readers[x]) give_row(&r, x);
    }
    rows_free(&r);
    followers_free(&own);
    followers_free(&later);
    free(count);
    free(next);
}

void ht_order_free(struct ht_order *o)
{
    free(o->position);
    free(o->asked_begin);
    free(o->asked);
    free(o->tiers);
    free(o->begin);
    free(o->after);
    free(o->column);
}

void ht_order_turn_to(struct ht_order *o, int32_t space)
{
    o->tier = ht_space_tier(o->s, space);
    for (int32_t i = o->asked_begin[space]; i < o->asked_begin[space + 1]; i++)
        o->column[o->asked[i]] = i - o->asked_begin[space];
}
