/*
 * Hazards and closure, place by place.
 *
 * 1. The effects are sorted by place (counting sort), so that each place shows its accesses in id order.
 * 2. Walking a place's accesses in a branch tells whether the tensor is there when it should be, and which pairs of ops
 *    must be ordered: the obligations (later, earlier).
 * 3. The obligations are sorted by their later op; with that op's edges marked in an array, each is one look.
 *
 * An obligation is met by an edge or by a FIFO lane that both ops are on. What is carried over the boundary gives the
 * same obligations between the end of one iteration and the beginning of the next, for every pair of branches.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

enum reason { READ, OVERWRITE, FREE, PRODUCE_AGAIN };

struct obligation {
    int32_t later, earlier, place;
    uint8_t reason;        /* what `later` does */
    uint8_t earlier_wrote; /* or freed; else it read */
};

struct obligations {
    struct obligation *rows;
    int64_t n;
    size_t cap;
};

struct ops {
    int32_t *rows;
    int64_t n;
    size_t cap;
};

/* One place in one branch. */
struct place_walk {
    struct ops first_readers;          /* before any write, one per FIFO lane */
    int32_t first_writer, last_writer; /* -1: none; an op that frees counts as a writer */
    enum reason first_reason;
    struct ops last_readers; /* since the last writer, the last one per FIFO lane */
    bool present;
};

struct checker {
    const struct ht_schedule *s;
    const struct ht_residencies *places;
    int64_t *begin;      /* accesses of place p are [begin[p], begin[p + 1]) */
    int64_t *access;     /* effect rows, sorted by place */
    int32_t *op_of;      /* op of an effect row */
    int32_t *step_of;    /* first op of an op's group */
    int64_t *lane_stamp; /* epoch in which the lane read last, and */
    int64_t *lane_row;   /* its row in last_readers */
    int64_t epoch;
    struct obligations here, back;
    /* of the complaints about what is there, the one with the smallest op so far */
    int32_t found_op, found_place;
    const char *found_what;
    enum ht_when found_branch;
};

static void checker_init(struct checker *c, const struct ht_schedule *s, const struct ht_residencies *p)
{
    int64_t n = s->effects_begin[s->n_ops];
    *c = (struct checker){.s = s, .places = p, .found_op = INT32_MAX};
    c->begin = HT_NEW_ARRAY(int64_t, p->n + 2);
    c->access = HT_NEW_ARRAY(int64_t, n);
    c->op_of = HT_NEW_ARRAY(int32_t, n);
    c->step_of = HT_NEW_ARRAY(int32_t, s->n_ops);
    c->lane_stamp = HT_NEW_ARRAY(int64_t, s->n_lanes);
    c->lane_row = HT_NEW_ARRAY(int64_t, s->n_lanes);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            c->op_of[e] = op;
            c->begin[p->of_effect[e] + 2]++;
        }
    for (int64_t i = 0; i < p->n; i++) c->begin[i + 2] += c->begin[i + 1];
    for (int64_t e = 0; e < n; e++) c->access[c->begin[p->of_effect[e] + 1]++] = e;
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_step_end(s, first);
        for (int32_t op = first; op < end; op++) c->step_of[op] = first;
    }
}

static void checker_free(struct checker *c)
{
    free(c->begin);
    free(c->access);
    free(c->op_of);
    free(c->step_of);
    free(c->lane_stamp);
    free(c->lane_row);
    free(c->here.rows);
    free(c->back.rows);
}

static void oblige(struct obligations *list, int32_t later, int32_t earlier, int32_t place, enum reason reason,
                   bool earlier_wrote)
{
    struct obligation o = {
        .later = later, .earlier = earlier, .place = place, .reason = (uint8_t)reason, .earlier_wrote = earlier_wrote};
    HT_PUSH(list->rows, list->n, list->cap, o);
}

static void complain(struct checker *c, int32_t op, int32_t place, const char *what, enum ht_when branch)
{
    if (op >= c->found_op) return;
    c->found_op = op;
    c->found_place = place;
    c->found_what = what;
    c->found_branch = branch;
}

static void check_presence(struct checker *c, struct place_walk *w, int32_t op, int32_t place, unsigned flags,
                           enum ht_when branch)
{
    if (flags & HT_PRODUCE) {
        if (w->present) complain(c, op, place, "produces what is already there:", branch);
    } else if (!w->present) {
        complain(c, op, place,
                 flags & HT_NEED     ? "reads what is not there:"
                 : flags & HT_UPDATE ? "updates what is not there:"
                                     : "releases what is not there:",
                 branch);
    }
    w->present = !(flags & HT_RELEASE);
}

static void note_read(struct checker *c, struct place_walk *w, int32_t op, int32_t place)
{
    int32_t lane = c->s->ops[op].lane;
    bool fifo = c->s->lanes[lane].order == HT_FIFO;
    if (fifo && c->lane_stamp[lane] == c->epoch) { /* an earlier reader of the lane has met the writer already */
        w->last_readers.rows[c->lane_row[lane]] = op;
        return;
    }
    if (w->last_writer >= 0)
        oblige(&c->here, op, w->last_writer, place, READ, true);
    else
        HT_PUSH(w->first_readers.rows, w->first_readers.n, w->first_readers.cap, op);
    if (fifo) {
        c->lane_stamp[lane] = c->epoch;
        c->lane_row[lane] = w->last_readers.n;
    }
    HT_PUSH(w->last_readers.rows, w->last_readers.n, w->last_readers.cap, op);
}

static void note_write(struct checker *c, struct place_walk *w, int32_t op, int32_t place, unsigned flags)
{
    enum reason reason = flags & HT_PRODUCE ? PRODUCE_AGAIN : flags & HT_UPDATE ? OVERWRITE : FREE;
    for (int64_t i = 0; i < w->last_readers.n; i++) oblige(&c->here, op, w->last_readers.rows[i], place, reason, false);
    if (w->last_readers.n == 0 && w->last_writer >= 0) oblige(&c->here, op, w->last_writer, place, reason, true);
    if (w->first_writer < 0) {
        w->first_writer = op;
        w->first_reason = reason;
    }
    w->last_writer = op;
    w->last_readers.n = 0;
    c->epoch++;
}

static void walk_place(struct checker *c, struct place_walk *w, int32_t place, enum ht_when branch)
{
    int32_t step = -1; /* of the access before, and whether it wrote */
    bool step_wrote = false;
    w->first_readers.n = w->last_readers.n = 0;
    w->first_writer = w->last_writer = -1;
    w->present = c->places->rows[place].resident;
    c->epoch++;
    for (int64_t i = c->begin[place]; i < c->begin[place + 1]; i++) {
        int32_t op = c->op_of[c->access[i]];
        unsigned flags = c->s->effects[c->access[i]].flags;
        bool writes = (flags & ~(unsigned)HT_NEED) != 0;
        if (!ht_active(&c->s->ops[op], branch)) continue;
        if (c->step_of[op] == step && (writes || step_wrote))
            complain(c, op, place, "together with another member of its group touches", branch);
        step_wrote = writes || (c->step_of[op] == step && step_wrote);
        step = c->step_of[op];
        check_presence(c, w, op, place, flags, branch);
        if (writes)
            note_write(c, w, op, place, flags);
        else
            note_read(c, w, op, place);
    }
}

/* From the end of an iteration that went one way to the beginning of the next, which goes another. */
static void cross(struct checker *c, const struct place_walk *before, const struct place_walk *now, int32_t place)
{
    if (before->last_writer >= 0)
        for (int64_t i = 0; i < now->first_readers.n; i++)
            oblige(&c->back, now->first_readers.rows[i], before->last_writer, place, READ, true);
    if (now->first_writer < 0) return;
    for (int64_t i = 0; i < before->last_readers.n; i++)
        oblige(&c->back, now->first_writer, before->last_readers.rows[i], place, now->first_reason, false);
    /* readers on either side of the boundary stand between the two writers */
    if (before->last_readers.n == 0 && now->first_readers.n == 0 && before->last_writer >= 0)
        oblige(&c->back, now->first_writer, before->last_writer, place, now->first_reason, true);
}

static void collect(struct checker *c)
{
    struct place_walk walks[2] = {0};
    int n = ht_n_branches(c->s);
    for (int32_t place = 0; place < c->places->n; place++) {
        for (int b = 0; b < n; b++) walk_place(c, &walks[b], place, ht_branch(b));
        if (!c->places->rows[place].resident) continue;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) cross(c, &walks[a], &walks[b], place);
    }
    for (int b = 0; b < n; b++) {
        free(walks[b].first_readers.rows);
        free(walks[b].last_readers.rows);
    }
}

static enum ht_status unmet(const struct checker *c, const struct obligation *o, bool back, struct ht_error *err)
{
    static const char *const did[] = {
        [READ] = "reads", [OVERWRITE] = "overwrites", [FREE] = "releases", [PRODUCE_AGAIN] = "produces"};
    struct ht_phrase earlier = ht_phrase_op(c->s, o->earlier);
    return ht_broken_op(c->s, o->later, err, "%s %s without an edge from %s%s, which %s", did[o->reason],
                        ht_phrase_residency(c->s, &c->places->rows[o->place]).text, earlier.text,
                        back ? " of the previous iteration" : "",
                        o->earlier_wrote ? "wrote or released it" : "reads it");
}

/* Step 3. `list` and `begin` are the edges (deps or prev). */
static enum ht_status settle(const struct checker *c, const struct obligations *obligations, const int32_t *list,
                             const int64_t *begin, bool back, struct ht_error *err)
{
    const struct ht_schedule *s = c->s;
    enum ht_status status = HT_OK;
    int64_t *slot = HT_NEW_ARRAY(int64_t, (int64_t)s->n_ops + 2);
    int64_t *sorted = HT_NEW_ARRAY(int64_t, obligations->n);
    int32_t *mark = HT_NEW_ARRAY(int32_t, s->n_ops);
    for (int64_t i = 0; i < obligations->n; i++) slot[obligations->rows[i].later + 2]++;
    for (int32_t i = 0; i < s->n_ops; i++) slot[i + 2] += slot[i + 1];
    for (int64_t i = 0; i < obligations->n; i++) sorted[slot[obligations->rows[i].later + 1]++] = i;
    for (int32_t op = 0; op < s->n_ops && !status; op++) {
        if (slot[op] == slot[op + 1]) continue;
        for (int64_t k = begin[op]; k < begin[op + 1]; k++) mark[list[k]] = op + 1;
        for (int64_t k = slot[op]; k < slot[op + 1] && !status; k++) {
            const struct obligation *o = &obligations->rows[sorted[k]];
            int32_t lane = s->ops[op].lane;
            if (mark[o->earlier] == op + 1) continue;
            if (s->ops[o->earlier].lane == lane && s->lanes[lane].order == HT_FIFO) continue;
            status = unmet(c, o, back, err);
        }
    }
    free(slot);
    free(sorted);
    free(mark);
    return status;
}

enum ht_status ht_rule_hazards(const struct ht_schedule *s, const struct ht_residencies *p, struct ht_error *err)
{
    struct checker c;
    enum ht_status status = HT_OK;
    checker_init(&c, s, p);
    collect(&c);
    if (c.found_op != INT32_MAX)
        status = ht_broken_op(s, c.found_op, err, "%s %s%s", c.found_what,
                              ht_phrase_residency(s, &p->rows[c.found_place]).text,
                              ht_branch_description(s, c.found_branch));
    if (!status) status = settle(&c, &c.here, s->deps, s->deps_begin, false, err);
    if (!status) status = settle(&c, &c.back, s->prev, s->prev_begin, true, err);
    checker_free(&c);
    return status;
}

/* Presence was checked access by access, so the last active one that changes it says how an iteration ends. */
enum ht_status ht_rule_closure(const struct ht_schedule *s, const struct ht_residencies *p, struct ht_error *err)
{
    enum ht_status status = HT_OK;
    bool *present = HT_NEW_ARRAY(bool, p->n);
    for (int32_t i = 0; i < s->n_residents && !status; i++) {
        if (present[p->of_resident[i]])
            status = ht_broken(s, err, "lists %s twice as resident",
                               ht_phrase_residency(s, &p->rows[p->of_resident[i]]).text);
        present[p->of_resident[i]] = true;
    }
    for (int b = 0; b < ht_n_branches(s) && !status; b++) {
        for (int64_t i = 0; i < p->n; i++) present[i] = p->rows[i].resident;
        for (int32_t op = 0; op < s->n_ops; op++) {
            if (!ht_active(&s->ops[op], ht_branch(b))) continue;
            for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
                present[p->of_effect[e]] = !(s->effects[e].flags & HT_RELEASE);
        }
        for (int64_t i = 0; i < p->n && !status; i++)
            if (present[i] != p->rows[i].resident)
                status = ht_broken(s, err, "%s is %s at the end of an iteration but %s at its start%s",
                                   ht_phrase_residency(s, &p->rows[i]).text, present[i] ? "there" : "gone",
                                   present[i] ? "not" : "there", ht_branch_description(s, ht_branch(b)));
    }
    free(present);
    return status;
}
