#include "tests/support/reference_sim.h"

#include "common/base/array.h"
#include "common/base/rng.h"

#include <stdlib.h>

typedef __int128 wide;

/* An op in an iteration ("instance"). Its index iteration * n_ops + op is also its position in the safe sequence. */
enum state { WAITING, ISSUED, RUNNING, DONE, SKIPPED };

struct instance {
    enum state state;
    bool granted;  /* its memory was granted; SKIPPED ones count as granted, with nothing */
    bool arrived;  /* member of a group: its lane could issue it but for the other members */
    bool at_start; /* member of a group: its lane could start it but for the other members */
    bool go;       /* member of a group: may start, since all members could */
    /* of running groups, under the first member */
    int64_t end_ns; /* of a group without a flow */
    bool flow;
    wide left, cap, largest, rate, speed;
};

struct ref {
    const struct ht_schedule *s;
    const struct ht_sim_options *o;
    const int64_t *cost_ns;
    int64_t n; /* instances */
    struct instance *x;
    struct ht_trace_event *events;
    int64_t *alloc, *freed; /* [n_ops * n_spaces]: bytes that an op produces and releases */
    int64_t *need;          /* [n_ops * n_spaces]: of the group that begins with op, in its worse branch */
    int64_t *live, *peak;   /* [n_spaces] */
    int64_t *order;         /* [n_spaces]: the most that the safe sequence needs */
    bool *ok;               /* [iterations] */
    int64_t now_ns, seq;
    int32_t oldest;                 /* first iteration that has not ended */
    int64_t from, to;               /* instances of this and the next iteration: no others are in flight */
    int32_t *lane_begin, *lane_ops; /* each lane's ops, ascending */
};

static int n_spaces(const struct ref *r)
{
    return ht_n_spaces(r->s);
}
static int32_t op_of(const struct ref *r, int64_t i)
{
    return (int32_t)(i % r->s->n_ops);
}
static int32_t iteration_of(const struct ref *r, int64_t i)
{
    return (int32_t)(i / r->s->n_ops);
}
static const struct ht_op *op_at(const struct ref *r, int64_t i)
{
    return &r->s->ops[op_of(r, i)];
}
static bool over(const struct ref *r, int64_t i)
{
    return r->x[i].state == DONE || r->x[i].state == SKIPPED;
}

static int32_t first_member(const struct ht_schedule *s, int32_t op)
{
    int32_t match = s->ops[op].match;
    while (match >= 0 && op > 0 && s->ops[op - 1].match == match) op--;
    return op;
}

static int32_t members(const struct ht_schedule *s, int32_t first)
{
    int32_t n = 1, match = s->ops[first].match;
    while (match >= 0 && first + n < s->n_ops && s->ops[first + n].match == match) n++;
    return n;
}

static bool iteration_over(const struct ref *r, int32_t k)
{
    for (int64_t i = (int64_t)k * r->s->n_ops; i < (int64_t)(k + 1) * r->s->n_ops; i++)
        if (!over(r, i)) return false;
    return true;
}

static void look_at_iterations(struct ref *r)
{
    while (r->oldest < r->o->iterations && iteration_over(r, r->oldest)) r->oldest++;
    r->from = (int64_t)r->oldest * r->s->n_ops;
    r->to = r->from + 2 * r->s->n_ops < r->n ? r->from + 2 * r->s->n_ops : r->n;
}

static bool is_open(const struct ref *r, int32_t k)
{
    return k < r->o->iterations && k <= r->oldest + 1;
}

static bool dependencies_done(const struct ref *r, int64_t i)
{
    const struct ht_schedule *s = r->s;
    int32_t op = op_of(r, i);
    for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++)
        if (!over(r, i - op + s->deps[d])) return false;
    for (int64_t d = s->prev_begin[op]; iteration_of(r, i) > 0 && d < s->prev_begin[op + 1]; d++)
        if (!over(r, i - op - s->n_ops + s->prev[d])) return false;
    return true;
}

/* Returns the bytes that may be live in a space: its capacity, unless the method declares less. */
static int64_t room_of(const struct ht_schedule *s, int space)
{
    int64_t room = s->capacity_bytes[space];
    if (s->limit_bytes[space] < room) room = s->limit_bytes[space];
    return room;
}

static bool when_false(const struct ref *r, int64_t i)
{
    enum ht_when when = (enum ht_when)op_at(r, i)->when;
    return (when == HT_WHEN_OK && !r->ok[iteration_of(r, i)]) || (when == HT_WHEN_BAD && r->ok[iteration_of(r, i)]);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Computes the safe sequence's need at each issue group, with residents at its start, in the worse of its two
   branches. */
static bool safe_sequence(struct ref *r)
{
    const struct ht_schedule *s = r->s;
    int spaces = n_spaces(r);
    bool fits = true;
    for (int32_t i = 0; i < s->n_residents; i++)
        r->live[ht_space(s, s->residents[i].tier, s->residents[i].rank)] += ht_resident_bytes(s, &s->residents[i]);
    for (int32_t op = 0; op < s->n_ops; op++)
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            int64_t at = (int64_t)op * spaces + ht_space(s, f->tier, ht_op_rank(s, op));
            if (f->flags & HT_PRODUCE) r->alloc[at] += ht_effect_bytes(s, f);
            if (f->flags & HT_RELEASE) r->freed[at] += ht_effect_bytes(s, f);
        }
    for (int space = 0; space < spaces; space++) {
        r->peak[space] = r->order[space] = r->live[space];
        if (r->live[space] > room_of(s, space)) fits = false;
        for (int bad = 0; bad < 2; bad++) {
            int64_t level = r->live[space];
            for (int32_t first = 0, n; first < s->n_ops; first += n) {
                n = members(s, first);
                if (s->ops[first].when == (bad ? HT_WHEN_OK : HT_WHEN_BAD)) continue;
                for (int32_t op = first; op < first + n; op++) level += r->alloc[(int64_t)op * spaces + space];
                int64_t *need = &r->need[(int64_t)first * spaces + space];
                if (level > *need) *need = level;
                if (level > r->order[space]) r->order[space] = level;
                if (level > room_of(s, space)) fits = false;
                for (int32_t op = first; op < first + n; op++) level -= r->freed[(int64_t)op * spaces + space];
            }
        }
    }
    return fits;
}

/* Counts the issued or running ops of the lane. *oldest: the first of them in the order of issue (FIFO: the smallest
   instance). */
static int32_t queued(const struct ref *r, int32_t lane, int64_t *oldest)
{
    int32_t n = 0;
    *oldest = -1;
    for (int64_t base = r->from; base < r->to; base += r->s->n_ops)
        for (int32_t at = r->lane_begin[lane]; at < r->lane_begin[lane + 1]; at++) {
            int64_t i = base + r->lane_ops[at];
            if (r->x[i].state != ISSUED && r->x[i].state != RUNNING) continue;
            if (*oldest < 0) *oldest = i;
            n++;
        }
    return n;
}

/* Returns true when the issue group that begins with instance `first` may have its memory: common/exec/grant.h,
   equation (*), word for word. A group that could not start yet may have no more than the safe sequence needs. */
static bool may_have(const struct ref *r, int64_t first, int32_t n)
{
    int spaces = n_spaces(r);
    bool waits = false;
    for (int64_t i = first, oldest; i < first + n; i++)
        waits = waits || !dependencies_done(r, i) || queued(r, op_at(r, i)->lane, &oldest);
    for (int space = 0; space < spaces; space++) {
        int64_t want = 0, capacity = waits ? r->order[space] : room_of(r->s, space);
        for (int64_t i = first; i < first + n; i++) want += r->alloc[(int64_t)op_of(r, i) * spaces + space];
        if (want == 0) continue;
        if (r->live[space] + want > capacity) return false;
        int64_t extra = 0; /* net of granted groups after w */
        for (int64_t w = r->to - 1; w >= r->from; w--) {
            int64_t at = (int64_t)op_of(r, w) * spaces + space;
            if (r->x[w].granted && r->x[w].state != SKIPPED) {
                extra += r->alloc[at];
                if (r->x[w].state == DONE) extra -= r->freed[at];
            }
            if (w >= first || r->x[w].granted || first_member(r->s, op_of(r, w)) != op_of(r, w)) continue;
            if (r->need[at] + extra + want > capacity) return false;
        }
    }
    return true;
}

static void grant(struct ref *r, int64_t first, int32_t n)
{
    int spaces = n_spaces(r);
    for (int64_t i = first; i < first + n; i++) {
        r->x[i].granted = true;
        r->events[i].grant_seq = r->seq++;
        for (int space = 0; space < spaces; space++) {
            r->live[space] += r->alloc[(int64_t)op_of(r, i) * spaces + space];
            if (r->live[space] > r->peak[space]) r->peak[space] = r->live[space];
        }
    }
}

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

static int32_t room_behind(const struct ref *r, int32_t lane)
{
    const struct ht_lane *l = &r->s->lanes[lane];
    return l->order == HT_FIFO && l->kind != HT_LANE_HOST && l->kind != HT_LANE_DISK ? r->o->issue_ahead : 0;
}

/* Returns the lane's next op. FIFO: the first op not issued. PRIORITY: the best ready op that is not in `denied`. -1:
   none. */
static int64_t next_on(const struct ref *r, int32_t lane, const bool *denied)
{
    int64_t best = -1;
    for (int64_t base = r->from; base < r->to; base += r->s->n_ops)
        for (int32_t at = r->lane_begin[lane]; at < r->lane_begin[lane + 1]; at++) {
            int64_t i = base + r->lane_ops[at];
            if (r->x[i].state != WAITING) continue;
            if (r->s->lanes[lane].order == HT_FIFO) return is_open(r, iteration_of(r, i)) ? i : -1;
            if (!is_open(r, iteration_of(r, i)) || !dependencies_done(r, i) || (denied && denied[i])) continue;
            if (best < 0 ||
                (iteration_of(r, i) == iteration_of(r, best) && op_at(r, i)->priority < op_at(r, best)->priority))
                best = i;
        }
    return best;
}

/* Returns the op that the lane would issue next, or -1. (For a PRIORITY lane its best, though another may be the first
   to get memory.) */
static int64_t candidate(const struct ref *r, int32_t lane)
{
    int64_t oldest;
    return queued(r, lane, &oldest) > room_behind(r, lane) ? -1 : next_on(r, lane, NULL);
}

static void skip(struct ref *r, int64_t i)
{
    r->x[i].state = SKIPPED;
    r->x[i].granted = true;
    look_at_iterations(r);
}

static void issue(struct ref *r, int64_t i)
{
    r->x[i].state = ISSUED;
    r->events[i].issue_ns = r->now_ns;
}

static bool issue_fifo(struct ref *r, int32_t lane, bool *acted)
{
    for (;;) {
        int64_t oldest, i;
        int32_t n = queued(r, lane, &oldest);
        if (n > room_behind(r, lane) || (i = next_on(r, lane, NULL)) < 0) return false;
        if (!r->x[i].granted) {
            bool conditional = op_at(r, i)->when != HT_ALWAYS;
            if ((room_behind(r, lane) == 0 || conditional) && !dependencies_done(r, i)) return false;
            if (when_false(r, i)) {
                skip(r, i);
                *acted = true;
                continue;
            }
            int32_t op = op_of(r, i), first = first_member(r->s, op), size = members(r->s, first);
            if (size > 1 && !r->x[i].arrived) r->x[i].arrived = *acted = true;
            for (int64_t m = i - op + first; m < i - op + first + size; m++)
                if (size > 1 && !r->x[m].arrived) return false;
            if (!may_have(r, i - op + first, size)) return false;
            grant(r, i - op + first, size);
        }
        issue(r, i);
        return *acted = true;
    }
}

static bool issue_priority(struct ref *r, int32_t lane, bool *acted)
{
    int64_t oldest, i;
    if (queued(r, lane, &oldest)) return false;
    bool *denied = HT_NEW_ARRAY(bool, r->n), issued = false;
    while (!issued && (i = next_on(r, lane, denied)) >= 0) {
        if (when_false(r, i)) {
            skip(r, i);
            *acted = true;
        } else if (may_have(r, i, 1)) {
            grant(r, i, 1);
            issue(r, i);
            issued = *acted = true;
        } else {
            denied[i] = true;
        }
    }
    free(denied);
    return issued;
}

/* ---- sharing --------------------------------------------------------------------------------------------------- */

static wide longest(const struct ref *r, int32_t first)
{
    wide cost = 0;
    for (int32_t op = first; op < first + members(r->s, first); op++)
        if (r->cost_ns[op] > cost) cost = r->cost_ns[op];
    return cost;
}

static wide ceil_div(wide a, wide b)
{
    return (a + b - 1) / b;
}

/* Returns the issue group's whole charge on a resource; cores are busy for as long as its longest member. */
static wide amount_on(const struct ref *r, int32_t first, int32_t resource)
{
    wide amount = 0;
    for (int32_t op = first; op < first + members(r->s, first); op++)
        for (int64_t u = r->s->uses_begin[op]; u < r->s->uses_begin[op + 1]; u++)
            if (r->s->uses[u].resource == resource) amount += r->s->uses[u].amount;
    return r->s->resources[resource].kind == HT_RES_CORES ? amount * longest(r, first) : amount;
}

static void set_going(struct ref *r, int64_t i)
{
    const struct ht_schedule *s = r->s;
    int32_t first = op_of(r, i);
    wide cost = longest(r, first), need = 0, largest = 0, most_cores = 0;
    for (int32_t k = 0; k < s->n_resources; k++) {
        bool cores = s->resources[k].kind == HT_RES_CORES;
        wide amount = amount_on(r, first, k), alone = ceil_div(amount * 1000000000, s->resources[k].capacity_per_s);
        if (amount > largest) largest = amount;
        if (cores && amount > most_cores) most_cores = amount;
        if (!cores && alone > need) need = alone;
    }
    if (need > cost) cost = need;
    /* The rate of a use of cores does not depend on its duration. */
    wide cap = cost ? largest * 1000000000 / cost : 0;
    if (r->o->jitter_percent && cost > 0) {
        wide range = (wide)r->o->jitter_percent * 10000;
        wide u = (wide)ht_random_below(r->o->seed, (uint64_t)i, (uint64_t)(2 * range + 1)) - range;
        cost = cost * (1000000 + u) / 1000000;
        if (cost < 1) cost = 1;
        if (cost < need) cost = need;
    }
    struct instance *x = &r->x[i];
    x->flow = largest > 0;
    x->end_ns = r->now_ns + (int64_t)cost;
    if (!x->flow) return;
    x->left = cost << 20;
    x->cap = most_cores == largest ? cap : largest * 1000000000 / cost;
    x->largest = largest;
}

static wide weight_on(const struct ref *r, int64_t i, int32_t resource)
{
    return ceil_div(amount_on(r, op_of(r, i), resource) << 16, r->x[i].largest);
}

static bool flows_now(const struct ref *r, int64_t i)
{
    return r->x[i].state == RUNNING && r->x[i].flow && first_member(r->s, op_of(r, i)) == op_of(r, i);
}

static void share(struct ref *r)
{
    const struct ht_schedule *s = r->s;
    wide *left = HT_NEW_ARRAY(wide, s->n_resources), *level_of = HT_NEW_ARRAY(wide, s->n_resources);
    bool *frozen = HT_NEW_ARRAY(bool, r->n);
    for (int32_t k = 0; k < s->n_resources; k++) left[k] = s->resources[k].capacity_per_s;
    for (;;) {
        wide level = (wide)1 << 100;
        bool any = false;
        for (int32_t k = 0; k < s->n_resources; k++) {
            wide weights = 0;
            for (int64_t i = r->from; i < r->to; i++)
                if (flows_now(r, i) && !frozen[i]) weights += weight_on(r, i, k);
            level_of[k] = weights ? (left[k] << 16) / weights : (wide)1 << 100;
            if (level_of[k] < level) level = level_of[k];
        }
        for (int64_t i = r->from; i < r->to; i++)
            if (flows_now(r, i) && !frozen[i]) {
                any = true;
                if (r->x[i].cap < level) level = r->x[i].cap;
            }
        if (!any) break;
        for (int64_t i = r->from; i < r->to; i++) {
            if (!flows_now(r, i) || frozen[i]) continue;
            bool held = r->x[i].cap == level;
            for (int32_t k = 0; k < s->n_resources; k++) held = held || (weight_on(r, i, k) && level_of[k] == level);
            if (!held) continue;
            frozen[i] = true;
            r->x[i].rate = level > 1 ? level : 1;
            for (int32_t k = 0; k < s->n_resources; k++) {
                left[k] -= ceil_div(r->x[i].rate * weight_on(r, i, k), 1 << 16);
                if (left[k] < 0) left[k] = 0;
            }
        }
    }
    for (int64_t i = r->from; i < r->to; i++) {
        struct instance *x = &r->x[i];
        if (!flows_now(r, i)) continue;
        x->speed = x->rate >= x->cap ? (wide)1 << 20 : (x->rate << 20) / x->cap;
        if (x->speed < 1) x->speed = 1;
        x->end_ns = r->now_ns + (int64_t)ceil_div(x->left, x->speed);
    }
    free(left);
    free(level_of);
    free(frozen);
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static void start(struct ref *r, int32_t lane, bool *acted)
{
    int64_t i;
    if (!queued(r, lane, &i) || r->x[i].state != ISSUED || !dependencies_done(r, i)) return;
    int32_t op = op_of(r, i), first = first_member(r->s, op), size = members(r->s, first);
    if (size > 1 && !r->x[i].go) {
        if (!r->x[i].at_start) r->x[i].at_start = *acted = true;
        for (int64_t m = i - op + first; m < i - op + first + size; m++)
            if (!r->x[m].at_start) return;
        for (int64_t m = i - op + first; m < i - op + first + size; m++) r->x[m].go = true;
    }
    *acted = true;
    r->x[i].state = RUNNING;
    r->events[i].start_ns = r->now_ns;
    if (op == first) set_going(r, i);
}

/* Starts everything that can start. Then, while any lane can issue anything, lets the one with the smallest candidate
   do so. */
static void dispatch(struct ref *r)
{
    int32_t n = r->s->n_lanes;
    for (bool acted = true; acted;) {
        acted = false;
        for (int32_t lane = 0; lane < n; lane++) start(r, lane, &acted);
        for (int64_t after = -1; !acted;) {
            int32_t lane = -1;
            int64_t best = -1;
            for (int32_t l = 0; l < n; l++) {
                int64_t key = candidate(r, l);
                if (key > after && (best < 0 || key < best)) {
                    best = key;
                    lane = l;
                }
            }
            if (lane < 0) break;
            after = best;
            if (r->s->lanes[lane].order == HT_FIFO)
                issue_fifo(r, lane, &acted);
            else
                issue_priority(r, lane, &acted);
        }
    }
}

static void finish(struct ref *r, int64_t i)
{
    int spaces = n_spaces(r);
    r->x[i].state = DONE;
    r->events[i].end_ns = r->now_ns;
    r->events[i].release_seq = r->seq++;
    for (int space = 0; space < spaces; space++) r->live[space] -= r->freed[(int64_t)op_of(r, i) * spaces + space];
    if (op_at(r, i)->kind == HT_OP_VALIDATE && r->o->bad) r->ok[iteration_of(r, i)] = !r->o->bad[iteration_of(r, i)];
}

static bool step_to_next_end(struct ref *r)
{
    int64_t next = INT64_MAX;
    for (int64_t i = r->from; i < r->to; i++)
        if (r->x[i].state == RUNNING && first_member(r->s, op_of(r, i)) == op_of(r, i) && r->x[i].end_ns < next)
            next = r->x[i].end_ns;
    if (next == INT64_MAX) return false;
    for (int64_t i = r->from; i < r->to; i++)
        if (flows_now(r, i)) r->x[i].left -= r->x[i].speed * (next - r->now_ns);
    r->now_ns = next;
    for (int64_t i = r->from; i < r->to; i++) {
        int32_t op = op_of(r, i);
        if (r->x[i].state != RUNNING || first_member(r->s, op) != op || r->x[i].end_ns != next) continue;
        for (int64_t m = i; m < i + members(r->s, op); m++) finish(r, m);
    }
    look_at_iterations(r);
    return true;
}

static void list_lanes(struct ref *r)
{
    r->lane_begin = HT_NEW_ARRAY(int32_t, r->s->n_lanes + 1);
    r->lane_ops = HT_NEW_ARRAY(int32_t, r->s->n_ops);
    int32_t n = 0;
    for (int32_t lane = 0; lane < r->s->n_lanes; lane++) {
        r->lane_begin[lane] = n;
        for (int32_t op = 0; op < r->s->n_ops; op++)
            if (r->s->ops[op].lane == lane) r->lane_ops[n++] = op;
    }
    r->lane_begin[r->s->n_lanes] = n;
}

struct reference_result reference_run(const struct ht_schedule *s, const int64_t *cost_ns,
                                      const struct ht_sim_options *options)
{
    struct ref r = {.s = s, .o = options, .cost_ns = cost_ns, .n = (int64_t)options->iterations * s->n_ops};
    int64_t cells = (int64_t)s->n_ops * n_spaces(&r);
    r.x = HT_NEW_ARRAY(struct instance, r.n);
    r.events = HT_NEW_ARRAY(struct ht_trace_event, r.n);
    r.alloc = HT_NEW_ARRAY(int64_t, cells);
    r.freed = HT_NEW_ARRAY(int64_t, cells);
    r.need = HT_NEW_ARRAY(int64_t, cells);
    r.live = HT_NEW_ARRAY(int64_t, n_spaces(&r));
    r.peak = HT_NEW_ARRAY(int64_t, n_spaces(&r));
    r.order = HT_NEW_ARRAY(int64_t, n_spaces(&r));
    r.ok = HT_NEW_ARRAY(bool, options->iterations);
    list_lanes(&r);
    for (int64_t i = 0; i < r.n; i++) r.events[i] = (struct ht_trace_event){.grant_seq = -1, .release_seq = -1};
    for (int32_t k = 0; k < options->iterations; k++) r.ok[k] = true;

    struct reference_result result = {.answer = REFERENCE_DONE, .events = r.events, .peak_bytes = r.peak};
    if (safe_sequence(&r)) {
        look_at_iterations(&r);
        do {
            dispatch(&r);
            share(&r);
        } while (step_to_next_end(&r));
        for (int64_t i = 0; i < r.n; i++)
            if (!over(&r, i)) result.answer = REFERENCE_STALLED;
    } else {
        result.answer = REFERENCE_OOM;
    }
    result.end_ns = r.now_ns;
    free(r.lane_begin);
    free(r.lane_ops);
    free(r.x);
    free(r.alloc);
    free(r.freed);
    free(r.need);
    free(r.live);
    free(r.order);
    free(r.ok);
    return result;
}

void reference_free(struct reference_result *r)
{
    free(r->events);
    free(r->peak_bytes);
}
