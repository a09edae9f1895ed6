/*
 * Hazards: proves that no op reads, writes or frees a tensor before the ops that must come first have ended.
 * Closure: proves that the tensors that are resident when an iteration ends are those that were when it began.
 *
 * 1. A counting sort by residency gives each residency its accesses in id order.
 * 2. A walk over a residency's accesses in one branch checks that the tensor is present where an op expects it, and notes
 *    whether it stays. It also collects obligations: pairs (later, earlier) of ops that must run in this order. A FIFO lane that has both meets one.
 * 3. The obligations are sorted by their later op. With that op's edges marked in an array, each is checked in constant
 *    time.
 *
 * Residents give the same obligations between the end of one iteration and the beginning of the next, for every pair of branches.
 */
#include "common/schedule/rules.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

enum reason { READ, OVERWRITE, FREE, PRODUCE_AGAIN };

struct obligation {
    int32_t later, earlier, residency;
    uint8_t reason;        /* enum reason: the access of `later` */
    uint8_t earlier_wrote; /* `earlier` wrote or freed; if 0, it read */
};

struct obligations {
    struct obligation *rows;
    int64_t n;
    size_t cap;
};

/* An op and its lane. */
struct at {
    int32_t op, lane;
};

struct ats {
    struct at *rows;
    int64_t n;
    size_t cap;
};

/* An op's access to a residency. */
struct access {
    struct at at;
    int32_t group; /* the first op of the op's group */
    uint8_t flags, when;
};

/* The accesses of one residency in one branch. */
struct residency_walk {
    struct ats first_readers;            /* before any write, one per FIFO lane */
    struct at first_writer, last_writer; /* op -1: none; an op that frees counts as a writer */
    enum reason first_reason;
    struct ats last_readers; /* since the last writer, the last one per FIFO lane */
    bool present;
};

struct checker {
    const struct ht_schedule *s;
    struct ht_residencies *residencies;
    int64_t *begin;          /* accesses of residency p are [begin[p], begin[p + 1]) */
    struct access *accesses; /* [effects] sorted by residency */
    int64_t *lane_stamp;     /* [lanes] epoch in which the lane last read */
    int64_t *lane_row;       /* [lanes] the index of that reader in last_readers */
    int64_t epoch;
    struct obligations here, back; /* to ops of this iteration, and of the previous one */
    /* The violation of presence that has the smallest op so far. */
    int32_t found_op, found_residency;
    const char *found_verb, *found_why; /* "reads", "which does not hold it" */
    enum ht_when found_branch;
};

static void checker_init(struct checker *c, const struct ht_schedule *s, struct ht_residencies *p)
{
    int64_t n = s->effects_begin[s->n_ops];
    *c = (struct checker){.s = s, .residencies = p, .found_op = INT32_MAX};
    c->begin = HT_NEW_ARRAY(int64_t, p->n + 2);
    c->accesses = ht_realloc(NULL, (size_t)n * sizeof *c->accesses); /* each is written */
    c->lane_stamp = HT_NEW_ARRAY(int64_t, s->n_lanes);
    c->lane_row = HT_NEW_ARRAY(int64_t, s->n_lanes);
    for (int64_t e = 0; e < n; e++) c->begin[p->of_effect[e] + 2]++;
    for (int64_t i = 0; i < p->n; i++) c->begin[i + 2] += c->begin[i + 1];
    for (int32_t first = 0, end; first < s->n_ops; first = end) {
        end = ht_group_end(s, first);
        for (int32_t op = first; op < end; op++)
            for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
                c->accesses[c->begin[p->of_effect[e] + 1]++] =
                    (struct access){{op, s->ops[op].lane}, first, s->effects[e].flags, s->ops[op].when};
    }
}

static void checker_free(struct checker *c)
{
    free(c->begin);
    free(c->accesses);
    free(c->lane_stamp);
    free(c->lane_row);
    free(c->here.rows);
    free(c->back.rows);
}

/* Adds an obligation, unless the two ops' FIFO lane meets it. */
static void add_obligation(const struct ht_schedule *s, struct obligations *list, struct at later, struct at earlier,
                           int32_t residency, enum reason reason, bool earlier_wrote)
{
    struct obligation o = {.later = later.op,
                           .earlier = earlier.op,
                           .residency = residency,
                           .reason = (uint8_t)reason,
                           .earlier_wrote = earlier_wrote};
    if (earlier.lane == later.lane && s->lanes[later.lane].order == HT_FIFO) return;
    HT_PUSH(list->rows, list->n, list->cap, o);
}

/* Records a violation of presence, unless one with a smaller op is known. */
static void report(struct checker *c, int32_t op, int32_t residency, const char *verb, const char *why,
                   enum ht_when branch)
{
    if (op >= c->found_op) return;
    c->found_op = op;
    c->found_residency = residency;
    c->found_verb = verb;
    c->found_why = why;
    c->found_branch = branch;
}

/* Checks that an op finds the tensor unless it produces it, and follows whether it stays. */
static void check_presence(struct checker *c, struct residency_walk *w, int32_t op, int32_t residency, unsigned flags,
                           enum ht_when branch)
{
    if (flags & HT_PRODUCE) {
        if (w->present) report(c, op, residency, "produces", "which already holds it", branch);
    } else if (!w->present) {
        const char *verb = flags & HT_NEED ? "reads" : flags & HT_UPDATE ? "updates" : "releases";
        report(c, op, residency, verb, "which does not hold it", branch);
    }
    w->present = !(flags & HT_RELEASE);
}

/* Obliges a reader to follow the last writer. */
static void note_read(struct checker *c, struct residency_walk *w, struct at at, int32_t residency)
{
    bool fifo = c->s->lanes[at.lane].order == HT_FIFO;
    if (fifo && c->lane_stamp[at.lane] == c->epoch) { /* an earlier reader of the lane follows the writer */
        w->last_readers.rows[c->lane_row[at.lane]] = at;
        return;
    }
    if (w->last_writer.op >= 0)
        add_obligation(c->s, &c->here, at, w->last_writer, residency, READ, true);
    else
        HT_PUSH(w->first_readers.rows, w->first_readers.n, w->first_readers.cap, at);
    if (fifo) {
        c->lane_stamp[at.lane] = c->epoch;
        c->lane_row[at.lane] = w->last_readers.n;
    }
    HT_PUSH(w->last_readers.rows, w->last_readers.n, w->last_readers.cap, at);
}

/* Obliges a writer to follow all readers since the last writer, or that writer if there are none. */
static void note_write(struct checker *c, struct residency_walk *w, struct at at, int32_t residency, unsigned flags)
{
    enum reason reason = flags & HT_PRODUCE ? PRODUCE_AGAIN : flags & HT_UPDATE ? OVERWRITE : FREE;
    for (int64_t i = 0; i < w->last_readers.n; i++)
        add_obligation(c->s, &c->here, at, w->last_readers.rows[i], residency, reason, false);
    if (w->last_readers.n == 0 && w->last_writer.op >= 0)
        add_obligation(c->s, &c->here, at, w->last_writer, residency, reason, true);
    if (w->first_writer.op < 0) {
        w->first_writer = at;
        w->first_reason = reason;
    }
    w->last_writer = at;
    w->last_readers.n = 0;
    c->epoch++;
}

static void walk_residency(struct checker *c, struct residency_walk *w, int32_t residency, enum ht_when branch)
{
    int32_t group = -1; /* of the previous access */
    bool group_wrote = false;
    w->first_readers.n = w->last_readers.n = 0;
    w->first_writer.op = w->last_writer.op = -1;
    w->present = c->residencies->rows[residency].resident;
    c->epoch++;
    for (int64_t i = c->begin[residency]; i < c->begin[residency + 1]; i++) {
        const struct access *x = &c->accesses[i];
        bool writes = (x->flags & ~(unsigned)HT_NEED) != 0, joins = x->group == group;
        if (x->when != HT_ALWAYS && x->when != branch) continue;
        if (joins && (writes || group_wrote))
            report(c, x->at.op, residency, "accesses",
                   "which another member of its group accesses, and one of them writes", branch);
        group_wrote = writes || (joins && group_wrote);
        group = x->group;
        check_presence(c, w, x->at.op, residency, x->flags, branch);
        if (writes)
            note_write(c, w, x->at, residency, x->flags);
        else
            note_read(c, w, x->at, residency);
    }
}

/* Adds the obligations from the end of an iteration in one branch to the beginning of the next one in another. */
static void cross(struct checker *c, const struct residency_walk *before, const struct residency_walk *now,
                  int32_t residency)
{
    if (before->last_writer.op >= 0)
        for (int64_t i = 0; i < now->first_readers.n; i++)
            add_obligation(c->s, &c->back, now->first_readers.rows[i], before->last_writer, residency, READ, true);
    if (now->first_writer.op < 0) return;
    for (int64_t i = 0; i < before->last_readers.n; i++)
        add_obligation(c->s, &c->back, now->first_writer, before->last_readers.rows[i], residency, now->first_reason,
                       false);
    /* a reader on either side of the boundary already orders the two writers */
    if (before->last_readers.n == 0 && now->first_readers.n == 0 && before->last_writer.op >= 0)
        add_obligation(c->s, &c->back, now->first_writer, before->last_writer, residency, now->first_reason, true);
}

/* Returns true if one op makes the tensor and frees it, and no other has an access to it: then nothing is to be proved. */
static bool is_scratch(const struct checker *c, int32_t residency)
{
    int64_t i = c->begin[residency];
    return c->begin[residency + 1] == i + 1 && c->accesses[i].flags == (HT_PRODUCE | HT_RELEASE) &&
           !c->residencies->rows[residency].resident;
}

static void collect(struct checker *c, int n)
{
    struct residency_walk walks[2] = {0};
    for (int32_t residency = 0; residency < c->residencies->n; residency++) {
        struct ht_residency *row = &c->residencies->rows[residency];
        if (is_scratch(c, residency)) continue;
        for (int b = 0; b < n; b++) {
            walk_residency(c, &walks[b], residency, ht_branch(b));
            row->stays[b] = walks[b].present;
        }
        if (!row->resident) continue;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) cross(c, &walks[a], &walks[b], residency);
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
                        ht_phrase_residency(c->s, &c->residencies->rows[o->residency]).text, earlier.text,
                        back ? " of the previous iteration" : "",
                        o->earlier_wrote ? "wrote or released it" : "reads it");
}

/* Checks that the edges in `list` (deps or prev) meet all obligations that FIFO lanes do not (step 3). */
static enum ht_status check_obligations(const struct checker *c, const struct obligations *obligations,
                                        const int32_t *list, const int64_t *begin, bool back, struct ht_error *err)
{
    const struct ht_schedule *s = c->s;
    enum ht_status status = HT_OK;
    if (!obligations->n) return HT_OK;
    int64_t *slot = HT_NEW_ARRAY(int64_t, (int64_t)s->n_ops + 2);
    int64_t *sorted = ht_realloc(NULL, (size_t)obligations->n * sizeof *sorted); /* each is written */
    int32_t *mark = HT_NEW_ARRAY(int32_t, s->n_ops);
    for (int64_t i = 0; i < obligations->n; i++) slot[obligations->rows[i].later + 2]++;
    for (int32_t i = 0; i < s->n_ops; i++) slot[i + 2] += slot[i + 1];
    for (int64_t i = 0; i < obligations->n; i++) sorted[slot[obligations->rows[i].later + 1]++] = i;
    for (int32_t op = 0; op < s->n_ops && !status; op++) {
        if (slot[op] == slot[op + 1]) continue;
        for (int64_t k = begin[op]; k < begin[op + 1]; k++) mark[list[k]] = op + 1;
        for (int64_t k = slot[op]; k < slot[op + 1] && !status; k++) {
            const struct obligation *o = &obligations->rows[sorted[k]];
            if (mark[o->earlier] != op + 1) status = unmet(c, o, back, err);
        }
    }
    free(slot);
    free(sorted);
    free(mark);
    return status;
}

enum ht_status ht_rule_hazards(const struct ht_schedule *s, struct ht_residencies *p, int n_branches,
                               struct ht_error *err)
{
    struct checker c;
    enum ht_status status = HT_OK;
    checker_init(&c, s, p);
    collect(&c, n_branches);
    if (c.found_op != INT32_MAX)
        status = ht_broken_op(s, c.found_op, err, "%s %s, %s%s", c.found_verb,
                              ht_phrase_residency(s, &p->rows[c.found_residency]).text, c.found_why,
                              ht_branch_description(s, c.found_branch));
    if (!status) status = check_obligations(&c, &c.here, s->deps, s->deps_begin, false, err);
    if (!status) status = check_obligations(&c, &c.back, s->prev, s->prev_begin, true, err);
    checker_free(&c);
    return status;
}

enum ht_status ht_rule_closure(const struct ht_schedule *s, const struct ht_residencies *p, int n_branches,
                               struct ht_error *err)
{
    enum ht_status status = HT_OK;
    bool *listed = HT_NEW_ARRAY(bool, p->n);
    for (int32_t i = 0; i < s->n_residents && !status; i++) {
        if (listed[p->of_resident[i]])
            status = ht_broken(s, err, "lists %s twice as resident",
                               ht_phrase_residency(s, &p->rows[p->of_resident[i]]).text);
        listed[p->of_resident[i]] = true;
    }
    free(listed);
    for (int b = 0; b < n_branches && !status; b++)
        for (int64_t i = 0; i < p->n && !status; i++) {
            const struct ht_residency *row = &p->rows[i];
            if (row->stays[b] != row->resident)
                status = ht_broken(s, err, "%s is resident at the %s of an iteration but not at its %s%s",
                                   ht_phrase_residency(s, row).text, row->resident ? "start" : "end",
                                   row->resident ? "end" : "start", ht_branch_description(s, ht_branch(b)));
        }
    return status;
}
