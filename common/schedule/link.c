/*
 * Adds the edges that the effects demand.
 *
 * In a residency an access is SHARED (only NEED) or EXCLUSIVE (with PRODUCE, UPDATE or RELEASE). For each residency we
 * remember the last exclusive op and the shared ones since, and walk the ops in id order:
 *
 *     shared      waits for the last exclusive op                                        (read after write)
 *     exclusive   waits for every shared op since the last exclusive one                 (write or free after read)
 *                 or, if there was none, for that exclusive op itself                    (write after write, or free)
 *
 *     X1 --> S1 --> X2        S2 on S1's FIFO lane comes after S1: X1 needs no edge to S2, and X2
 *       '--> S3 ----^         only one from S2, the last of that lane.
 *            S1, S2 (same lane): X1 --> S1 .. S2 --> X2
 *
 * Using the lane pays: 64 micro-batches that read a parameter on one lane take two edges, not 128.
 *
 * Members of a group start together, so all of them wait by the state before the group.
 *
 * Branches. An op whose `when` is false does nothing, so nothing may rely on it. If any op has a `when`, the walk is
 * done once for the ops active on the ok branch and once for the bad branch, and the edges of both are added. So a
 * reader after a conditional writer waits for it and for the writer before it.
 *
 * The boundary. A residency that is resident there lasts from one iteration to the next. The first accesses of an
 * iteration wait, by the same rules, for the last ones of the iteration before (any of its branches with any of this
 * one's). At most two iterations are in flight, so one back is enough. Other residencies have a separate instance per
 * iteration.
 *
 * The verifier does not use this file: it derives its obligations from the sorted accesses of each residency.
 */
#include "common/schedule/schedule.h"

#include "common/base/array.h"
#include "common/schedule/build.h"
#include "common/schedule/residency.h"

#include <stdlib.h>
#include <string.h>

struct reader {
    int32_t op, next;
};

/* State of a residency. Readers on a FIFO lane are one row, the last reader; those on PRIORITY lanes are all kept. */
struct state {
    int32_t writer;                    /* last exclusive op, or -1 */
    int32_t fifo_readers, any_readers; /* since the writer; heads of lists, or -1 */
};

/* An access with no exclusive one before it in its iteration. */
struct head {
    int32_t residency, op;
    bool exclusive, after_readers;
};

struct edge {
    int32_t op, before;
};

struct edges {
    struct edge *rows;
    int64_t n;
    size_t cap;
};

struct walk {
    const struct ht_schedule *s;
    const struct ht_residencies *residencies;
    enum ht_when branch;
    struct state *states; /* [residencies] */
    struct reader *readers;
    int64_t n_readers;
    size_t readers_cap;
    struct head *heads;
    int64_t n_heads;
    size_t heads_cap;
};

static bool same_fifo(const struct ht_schedule *s, int32_t a, int32_t b)
{
    int32_t lane = s->ops[a].lane;
    return lane == s->ops[b].lane && s->lanes[lane].order == HT_FIFO;
}

static void need(struct edges *edges, const struct ht_schedule *s, int32_t op, int32_t before)
{
    struct edge edge = {.op = op, .before = before};
    if (!same_fifo(s, op, before)) HT_PUSH(edges->rows, edges->n, edges->cap, edge);
}

static void need_readers(const struct walk *w, struct edges *edges, const struct state *st, int32_t op)
{
    for (int32_t r = st->fifo_readers; r >= 0; r = w->readers[r].next) need(edges, w->s, op, w->readers[r].op);
    for (int32_t r = st->any_readers; r >= 0; r = w->readers[r].next) need(edges, w->s, op, w->readers[r].op);
}

/* Returns the row of readers on op's FIFO lane, or -1. */
static int32_t lane_reader(const struct walk *w, const struct state *st, int32_t op)
{
    for (int32_t r = st->fifo_readers; r >= 0; r = w->readers[r].next)
        if (w->s->ops[w->readers[r].op].lane == w->s->ops[op].lane) return r;
    return -1;
}

static bool is_exclusive(struct ht_effect e)
{
    return (e.flags & (HT_PRODUCE | HT_UPDATE | HT_RELEASE)) != 0;
}

static inline void wait_for(struct walk *w, struct edges *edges, int32_t op, int32_t residency, bool exclusive)
{
    const struct state *st = &w->states[residency];
    bool readers = st->fifo_readers >= 0 || st->any_readers >= 0;
    if (!exclusive && lane_reader(w, st, op) >= 0) return;
    if (exclusive && readers)
        need_readers(w, edges, st, op);
    else if (st->writer >= 0)
        need(edges, w->s, op, st->writer);
    if (st->writer < 0 && w->residencies->rows[residency].resident) {
        struct head head = {.residency = residency, .op = op, .exclusive = exclusive, .after_readers = readers};
        HT_PUSH(w->heads, w->n_heads, w->heads_cap, head);
    }
}

static inline void apply(struct walk *w, int32_t op, int32_t residency, bool exclusive)
{
    struct state *st = &w->states[residency];
    if (exclusive) {
        *st = (struct state){.writer = op, .fifo_readers = -1, .any_readers = -1};
        return;
    }
    bool fifo = w->s->lanes[w->s->ops[op].lane].order == HT_FIFO;
    int32_t row = fifo ? lane_reader(w, st, op) : -1;
    if (row >= 0) {
        w->readers[row].op = op;
        return;
    }
    int32_t *list = fifo ? &st->fifo_readers : &st->any_readers;
    struct reader reader = {.op = op, .next = *list};
    *list = (int32_t)w->n_readers;
    HT_PUSH(w->readers, w->n_readers, w->readers_cap, reader);
}

/* Makes an op wait by the state before it, or enters its accesses into the state, or both. */
static inline void access(struct walk *w, struct edges *edges, int32_t op, bool waits, bool enters)
{
    const struct ht_schedule *s = w->s;
    if (!ht_active(&s->ops[op], w->branch)) return;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
        int32_t residency = w->residencies->of_effect[e];
        bool exclusive = is_exclusive(s->effects[e]);
        if (waits) wait_for(w, edges, op, residency, exclusive);
        if (enters) apply(w, op, residency, exclusive);
    }
}

static void walk_branch(struct walk *w, struct edges *edges)
{
    const struct ht_schedule *s = w->s;
    w->states = HT_NEW_ARRAY(struct state, w->residencies->n);
    for (int64_t i = 0; i < w->residencies->n; i++)
        w->states[i] = (struct state){.writer = -1, .fifo_readers = -1, .any_readers = -1};
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        bool alone = end == first + 1; /* an op has one access to a residency */
        for (int32_t op = first; op < end; op++) access(w, edges, op, true, alone);
        for (int32_t op = first; op < end && !alone; op++) access(w, edges, op, false, true);
    }
}

/* Adds the edges from the heads of one walk to the iteration before, which took the branch of another walk. */
static void cross(const struct walk *before, const struct walk *now, struct edges *edges)
{
    for (int64_t i = 0; i < now->n_heads; i++) {
        const struct head *h = &now->heads[i];
        const struct state *st = &before->states[h->residency];
        bool readers = st->fifo_readers >= 0 || st->any_readers >= 0;
        if (h->exclusive && readers)
            need_readers(before, edges, st, h->op);
        else if (st->writer >= 0 && !(h->exclusive && h->after_readers))
            need(edges, now->s, h->op, st->writer);
    }
}

/* Appends the edges to the lists, each once. */
static void merge(const struct ht_schedule *s, const struct edges *edges, int32_t **list, int64_t *begin, size_t *cap)
{
    if (edges->n == 0) return;
    int32_t n = s->n_ops;
    int64_t *slot = HT_NEW_ARRAY(int64_t, (int64_t)n + 1); /* ends of the edges by op, counting sort */
    int32_t *sorted = HT_NEW_ARRAY(int32_t, edges->n);
    int32_t *seen = HT_NEW_ARRAY(int32_t, n); /* last op that has it, + 1 */
    for (int64_t i = 0; i < edges->n; i++) slot[edges->rows[i].op + 1]++;
    for (int32_t i = 0; i < n; i++) slot[i + 1] += slot[i];
    for (int64_t i = 0; i < edges->n; i++) sorted[slot[edges->rows[i].op]++] = edges->rows[i].before;

    size_t want = (size_t)(begin[n] + edges->n);
    int32_t *all = HT_NEW_ARRAY(int32_t, want);
    int64_t used = 0;
    for (int32_t op = 0; op < n; op++) {
        int64_t old_begin = begin[op];
        begin[op] = used;
        for (int64_t k = old_begin; k < begin[op + 1]; k++) {
            all[used++] = (*list)[k];
            if ((*list)[k] < n) seen[(*list)[k]] = op + 1;
        }
        /* slot[op] has moved to the end of op's edges, slot[op - 1] to their begin */
        for (int64_t k = op ? slot[op - 1] : 0; k < slot[op]; k++)
            if (seen[sorted[k]] != op + 1) {
                seen[sorted[k]] = op + 1;
                all[used++] = sorted[k];
            }
    }
    begin[n] = used;
    free(*list);
    *list = all;
    *cap = want;
    free(slot);
    free(sorted);
    free(seen);
}

void ht_schedule_link(struct ht_schedule *s)
{
    struct ht_residencies residencies;
    struct edges here = {0}, back = {0};
    struct walk walks[2] = {0};
    ht_marks_resolve(s);
    ht_builder_end(s);
    ht_residencies_init(&residencies, s);
    int n_walks = ht_has_branches(s) ? 2 : 1;
    for (int i = 0; i < n_walks; i++) {
        walks[i].s = s;
        walks[i].residencies = &residencies;
        walks[i].branch = i == 0 ? HT_WHEN_OK : HT_WHEN_BAD;
        walk_branch(&walks[i], &here);
    }
    for (int i = 0; i < n_walks; i++)
        for (int k = 0; k < n_walks; k++) cross(&walks[i], &walks[k], &back);
    merge(s, &here, &s->deps, s->deps_begin, &s->deps_cap);
    merge(s, &back, &s->prev, s->prev_begin, &s->prev_cap);
    for (int i = 0; i < n_walks; i++) {
        free(walks[i].states);
        free(walks[i].readers);
        free(walks[i].heads);
    }
    free(here.rows);
    free(back.rows);
    ht_residencies_free(&residencies);
}
