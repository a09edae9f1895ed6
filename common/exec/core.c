/* The state machine of core.h: issues ops, gives them memory, starts them, and takes their ends. */
#include "common/exec/core.h"

#include "common/base/array.h"
#include "common/exec/core_state.h"
#include "common/exec/grant_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inlines what each op runs several times, and what has too many callers for the compiler to do so by itself. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static uint64_t key_of(int32_t iteration, int32_t op)
{
    return (uint64_t)(uint32_t)iteration << 32 | (uint32_t)op;
}

static struct slot *slot_of(struct ht_core *c, int32_t iteration)
{
    return &c->slots[iteration & 1];
}

static bool is_open(const struct ht_core *c, int32_t iteration)
{
    return iteration < c->open_end;
}

/* Notes which iterations are open, after a change of their number or of the oldest. */
static void set_open_end(struct ht_core *c)
{
    c->open_end = c->oldest < c->iterations - 1 ? c->oldest + 2 : c->iterations;
}

/* ---- ready lanes: a heap by next candidate ---------------------------------------------------------------------- */

/* Says what a lane would do in its turn. */
enum candidate { NOTHING, START, ISSUE };

/* Returns the lane's candidate, and its place in the safe sequence. START: the lane is idle and its first issued op waits for
   nothing, except perhaps other members of its group. */
static inline enum candidate candidate_of(const struct ht_core *c, const struct lane *l, uint64_t *key)
{
    if (l->n_queue && !l->running) {
        struct issued first = l->queue[0];
        struct op_state state = c->slots[first.iteration & 1].ops[first.op];
        if (!state.pending && state.state != AT_START) {
            *key = key_of(first.iteration, first.op);
            return START;
        }
    }
    if (l->n_queue > l->ahead) return NOTHING;
    if (l->fifo) {
        if (l->next_op < 0 || !is_open(c, l->iteration)) return NOTHING;
        if (l->ahead == 0 && c->slots[l->iteration & 1].ops[l->next_op].pending) return NOTHING;
        *key = key_of(l->iteration, l->next_op);
        return ISSUE;
    }
    if (!l->n_heap) return NOTHING;
    *key = key_of(l->heap[0].iteration, l->heap[0].op);
    return ISSUE;
}

static __attribute__((noinline)) void grow_ready(struct ht_core *c)
{
    HT_RESERVE(c->ready_lanes, c->ready_cap, c->n_ready + 2);
}

/* Readies a lane with a candidate. */
static inline void push_ready(struct ht_core *c, int32_t lane, uint64_t key)
{
    struct lane *l = &c->lanes[lane];
    if (l->is_ready && l->ready_key == key) return;
    l->is_ready = true;
    l->ready_key = key;
    if (c->n_ready + 2 > (int64_t)c->ready_cap) grow_ready(c);
    int64_t i = c->n_ready++;
    c->ready_lanes[c->n_ready].key = UINT64_MAX; /* the last parent's second child, if it has only one */
    for (; i > 0 && c->ready_lanes[(i - 1) / 2].key > key; i = (i - 1) / 2)
        c->ready_lanes[i] = c->ready_lanes[(i - 1) / 2];
    c->ready_lanes[i] = (struct ready_lane){key, lane};
}

/* Returns true if a dependency of a member, or an issued op of a member's lane, has not ended. */
static inline bool group_waits(const struct ht_core *c, const struct slot *sl, struct group g)
{
    for (int32_t m = g.first, left = g.size; left; m++) {
        if (!c->info[m].mine) continue;
        if (sl->ops[m].pending || c->lanes[c->info[m].lane].n_queue) return true;
        left--;
    }
    return false;
}

/* Returns true if the issue group of a FIFO lane's next op was denied its memory, and nothing has changed that could change the
   answer, unless it waited then (*waited) and does no longer. */
static inline bool was_denied(const struct ht_core *c, const struct lane *l, bool *waited)
{
    int32_t group = c->info[l->next_op].group;
    if (group < 0) {
        *waited = l->denied.waits;
        return l->denied.holds && l->denied.key == key_of(l->iteration, l->next_op);
    }
    const struct group_state *state = &c->slots[l->iteration & 1].groups[group];
    *waited = state->waited;
    return state->is_denied;
}

/* Readies the lane if it has a candidate that it may do something about. */
static inline void make_ready(struct ht_core *c, int32_t lane)
{
    const struct lane *l = &c->lanes[lane];
    uint64_t key;
    bool waited;
    enum candidate candidate = candidate_of(c, l, &key);
    if (candidate == NOTHING) return;
    if (candidate == ISSUE && l->fifo && was_denied(c, l, &waited) &&
        waited == group_waits(c, &c->slots[l->iteration & 1], ht_core_group(c, l->next_op)))
        return;
    push_ready(c, lane, key);
}

static inline struct ready_lane pop_ready(struct ht_core *c)
{
    struct ready_lane *ready = c->ready_lanes, top = ready[0], last = ready[--c->n_ready];
    int64_t n = c->n_ready, i = 0;
    ready[n].key = UINT64_MAX;
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        child += ready[child + 1].key < ready[child].key; /* no branch: which is first cannot be predicted */
        if (last.key <= ready[child].key) break;
        ready[i] = ready[child];
    }
    ready[i] = last;
    return top;
}

/* Readies the lane of an op that is its candidate unless ops that were issued before it go first. */
static inline void ready_for(struct ht_core *c, int32_t lane, int32_t iteration, int32_t op)
{
    if (c->lanes[lane].n_queue)
        make_ready(c, lane);
    else
        push_ready(c, lane, key_of(iteration, op));
}

/* Lets the group's members start, and readies the others' lanes: each lane is idle, and its first issued op is the member. */
static inline void let_start(struct ht_core *c, struct slot *sl, struct group g, int32_t op)
{
    for (int32_t m = g.first, left = g.size; left; m++) {
        if (!c->info[m].mine) continue;
        sl->ops[m].state = GO;
        if (m != op) push_ready(c, (int32_t)c->info[m].lane, key_of(sl->iteration, m));
        left--;
    }
}

/* Returns true when the lane's first issued op may start; its dependencies are done and the lane is idle. A group
   starts when its last member has come this far, which readies the others' lanes. */
static inline bool arrive_at_start(struct ht_core *c, struct lane *l)
{
    int32_t op = l->queue[0].op, group = c->info[op].group;
    if (group < 0) return true;
    struct slot *sl = slot_of(c, l->queue[0].iteration);
    if (sl->ops[op].state == GO) return true;
    if (sl->ops[op].state == ISSUED) {
        sl->ops[op].state = AT_START;
        sl->groups[group].at_start++;
    }
    if (sl->groups[group].at_start < c->groups[group].size) return false;
    let_start(c, sl, c->groups[group], op);
    return true;
}

/* ---- ready ops of PRIORITY lanes ------------------------------------------------------------------------------- */

static bool before(struct ready a, struct ready b)
{
    if (a.iteration != b.iteration) return a.iteration < b.iteration;
    if (a.priority != b.priority) return a.priority < b.priority;
    return a.op < b.op;
}

static void heap_push(struct lane *l, struct ready r)
{
    HT_RESERVE(l->heap, l->heap_cap, l->n_heap + 1);
    int32_t i = l->n_heap++;
    for (; i > 0 && before(r, l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = r;
}

static struct ready heap_pop(struct lane *l)
{
    struct ready top = l->heap[0], last = l->heap[--l->n_heap];
    int32_t i = 0;
    for (int32_t child; (child = 2 * i + 1) < l->n_heap; i = child) {
        if (child + 1 < l->n_heap && before(l->heap[child + 1], l->heap[child])) child++;
        if (!before(l->heap[child], last)) break;
        l->heap[i] = l->heap[child];
    }
    l->heap[i] = last;
    return top;
}

/* Readies the lane of an op whose last dependency has ended, if it is the op's turn. */
static inline void became_ready(struct ht_core *c, int32_t iteration, int32_t op)
{
    int32_t lane = (int32_t)c->info[op].lane;
    struct lane *l = &c->lanes[lane];
    if (!l->fifo) {
        heap_push(l, (struct ready){iteration, c->s->ops[op].priority, op});
        make_ready(c, lane);
    } else if (l->iteration == iteration && l->next_op == op) {
        ready_for(c, lane, iteration, op);
    } else if (l->n_queue && l->queue[0].iteration == iteration && l->queue[0].op == op) {
        make_ready(c, lane);
    }
}

/* ---- iterations ------------------------------------------------------------------------------------------------ */

static void open_iteration(struct ht_core *c, int32_t iteration)
{
    const struct ht_schedule *s = c->s;
    struct slot *now = slot_of(c, iteration), *last = iteration ? slot_of(c, iteration - 1) : NULL;
    now->iteration = iteration;
    now->unfinished = c->n_mine;
    now->ok = true;
    memset(now->groups, 0, sizeof *now->groups * (size_t)c->n_groups);
    for (int32_t op = 0; op < s->n_ops; op++) {
        int64_t pending = s->deps_begin[op + 1] - s->deps_begin[op];
        if (last)
            for (int64_t d = s->prev_begin[op]; d < s->prev_begin[op + 1]; d++)
                pending += last->ops[s->prev[d]].state != DONE;
        bool mine = c->info[op].mine;
        now->ops[op] = (struct op_state){.pending = mine ? pending & (2 * MAX_OPS - 1) : 0, .state = WAITING};
        if (!pending && mine && !c->lanes[c->info[op].lane].fifo) became_ready(c, iteration, op);
    }
    for (int32_t lane = 0; lane < s->n_lanes; lane++)
        if (c->lanes[lane].fifo && c->lanes[lane].iteration == iteration) make_ready(c, lane);
}

/* ---- finishing ------------------------------------------------------------------------------------------------- */

/* Readies the lanes that may now have the memory which they were denied. */
static inline void wake_waiters(struct ht_core *c)
{
    for (int32_t lane; (lane = ht_grants_next_woken(c->grants)) >= 0;) {
        struct lane *l = &c->lanes[lane];
        /* It may have gone on since, past the last iteration. */
        int32_t group = l->fifo && is_open(c, l->iteration) ? c->info[l->next_op].group : -1;
        if (group >= 0) slot_of(c, l->iteration)->groups[group].is_denied = false;
        l->denied.holds = false;
        make_ready(c, lane);
    }
}

/* Counts down the rest of an op's successors, which are in the next iteration. */
static void count_down_next(struct ht_core *c, int32_t iteration, const int32_t *succ, const int32_t *end)
{
    struct slot *next = slot_of(c, iteration + 1);
    if (!is_open(c, iteration + 1)) return;
    for (; succ < end; succ++)
        if (--next->ops[~*succ].pending == 0) became_ready(c, iteration + 1, ~*succ);
}

/* Marks an op of any node as done and counts down its successors. */
ALWAYS_INLINE void count_down_successors(struct ht_core *c, int32_t iteration, int32_t op)
{
    struct op_state *ops = slot_of(c, iteration)->ops;
    const int32_t *succ = c->succ + c->info[op].succ_begin, *end = c->succ + c->info[op + 1].succ_begin;
    ops[op].state = DONE;
    for (; succ < end && *succ >= 0; succ++)
        if (--ops[*succ].pending == 0) became_ready(c, iteration, *succ);
    if (succ < end) count_down_next(c, iteration, succ, end);
}

static void apply_remote_end(struct ht_core *c, struct ht_completion e)
{
    slot_of(c, e.inst.iteration)->ok &= e.ok;
    count_down_successors(c, e.inst.iteration, e.inst.op);
}

/* Applies the remote ends that came before their iteration opened. */
static void apply_early_ends(struct ht_core *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->n_early; i++) {
        if (is_open(c, c->early[i].inst.iteration))
            apply_remote_end(c, c->early[i]);
        else
            c->early[kept++] = c->early[i];
    }
    c->n_early = kept;
}

static void end_iterations(struct ht_core *c)
{
    while (c->oldest < c->iterations && c->oldest < c->others_ended && slot_of(c, c->oldest)->unfinished == 0) {
        c->oldest++;
        set_open_end(c);
        if (c->oldest + 1 < c->iterations) open_iteration(c, c->oldest + 1);
        if (c->oldest + 1 < c->iterations && c->n_early) apply_early_ends(c);
        if (c->oldest >= c->iterations) break;
    }
}

/* Records that an op has ended or was skipped. */
ALWAYS_INLINE void done(struct ht_core *c, int32_t iteration, int32_t op)
{
    count_down_successors(c, iteration, op);
    int64_t unfinished = --slot_of(c, iteration)->unfinished;
    if (c->info[op].is_remote_dep) {
        struct ht_completion completion = {{iteration, op},
                                           c->s->ops[op].kind != HT_OP_VALIDATE || slot_of(c, iteration)->ok};
        HT_PUSH(c->completions, c->n_completions, c->completions_cap, completion);
    }
    if (!unfinished) end_iterations(c);
    wake_waiters(c);
}

/* Ends an op whose `when` is false. */
static void skip(struct ht_core *c, int32_t iteration, int32_t op)
{
    int32_t group = c->info[op].group;
    if (group < 0 || op == c->groups[group].first) ht_grants_skip(c->grants, iteration, op);
    done(c, iteration, op);
}

int64_t ht_core_finish(struct ht_core *c, struct ht_inst inst)
{
    int32_t lane = (int32_t)c->info[inst.op].lane;
    struct lane *l = &c->lanes[lane];
    l->running = false;
    if (--l->n_queue) memmove(l->queue, l->queue + 1, sizeof(*l->queue) * (size_t)l->n_queue);
    int64_t seq = c->seq++;
    ht_grants_release(c->grants, inst.iteration, inst.op);
    done(c, inst.iteration, inst.op);
    make_ready(c, lane);
    return seq;
}

/* ---- issue ----------------------------------------------------------------------------------------------------- */

/* Asks for the memory of an op, or of all members of its group. */
static inline bool ask(struct ht_core *c, int32_t lane, int32_t iteration, int32_t op)
{
    struct lane *l = &c->lanes[lane];
    struct slot *sl = slot_of(c, iteration);
    struct group g = ht_core_group(c, op);
    bool waits = group_waits(c, sl, g), waited;
    if (l->fifo && was_denied(c, l, &waited) && waited == waits) return false;
    int32_t by = ht_grants_ask(c->grants, iteration, g.first, waits, lane, l->fifo), group = c->info[op].group;
    if (group >= 0)
        sl->groups[group].is_denied = by >= 0;
    else
        l->denied.holds = by >= 0;
    l->denied.by = by;
    if (by >= 0) {
        c->was_denied = true;
        if (group >= 0) sl->groups[group].waited = waits;
        l->denied.key = key_of(iteration, op);
        l->denied.waits = waits;
        return false;
    }
    if (group >= 0 && !waits) {
        c->starting = (struct starting){iteration, g.first, g.size, c->seq};
    } else if (group >= 0) {
        sl->groups[group].grant_seq = c->seq;
        for (int32_t m = g.first, left = g.size; left; m++) {
            if (!c->info[m].mine) continue;
            sl->ops[m].state = GRANTED;
            if (m != op) ready_for(c, (int32_t)c->info[m].lane, iteration, m);
            left--;
        }
    }
    c->seq += g.size;
    wake_waiters(c);
    return true;
}

/* Returns true when the op's `when` is false. Its dependencies are done, so the iteration's outcome is known. */
static bool is_skipped(struct ht_core *c, int32_t iteration, int32_t op)
{
    enum ht_when when = (enum ht_when)c->info[op].when;
    return when != HT_ALWAYS && (when == HT_WHEN_OK) != slot_of(c, iteration)->ok;
}

/* Returns the number of the grant of a group's member. */
static int64_t member_seq(const struct ht_core *c, const struct slot *sl, int32_t op)
{
    int64_t seq = sl->groups[c->info[op].group].grant_seq;
    for (int32_t m = c->groups[c->info[op].group].first; m < op; m++) seq += c->info[m].mine;
    return seq;
}

/* Issues an op that has its memory, and notes if it may start as soon as its group may. An op alone has just been granted. */
static inline void issue_op(struct ht_core *c, struct lane *l, int32_t iteration, int32_t op, struct ht_turn *turn)
{
    struct slot *sl = slot_of(c, iteration);
    turn->issued = true;
    turn->started = !l->n_queue && !sl->ops[op].pending;
    turn->grant_seq = c->info[op].group < 0 ? c->seq - 1 : member_seq(c, sl, op);
    turn->inst = (struct ht_inst){iteration, op};
    sl->ops[op].state = ISSUED;
    l->queue[l->n_queue++] = (struct issued){iteration, op};
}

static inline void advance(struct lane *l)
{
    if (++l->next == l->n_ops) {
        l->next = 0;
        l->iteration++;
    }
    l->next_op = l->ops[l->next];
}

/* Prefetches the data of the lane's next ops. A lane's ops have a known order, but each op's data lie far from the last
   one's. */
static inline void fetch_ahead(const struct ht_core *c, const struct lane *l)
{
    if (l->next + 2 >= l->n_ops || l->iteration >= c->iterations) return;
    int32_t next = l->ops[l->next + 1], later = l->ops[l->next + 2];
    __builtin_prefetch(&c->info[later]);
    __builtin_prefetch(&c->slots[l->iteration & 1].ops[later], 1);
    ht_grants_fetch(c->grants, next, later);
    __builtin_prefetch(&c->succ[c->info[next].succ_begin]);
}

/* Prefetches what the op's end will touch: the next iteration's states are left out. */
static inline void fetch_successors(const struct ht_core *c, int32_t op, const struct slot *sl)
{
    for (uint32_t i = c->info[op].succ_begin; i < c->info[op + 1].succ_begin && c->succ[i] >= 0; i++) {
        __builtin_prefetch(&sl->ops[c->succ[i]], 1);
        __builtin_prefetch(&c->info[c->succ[i]]);
    }
}

/* Starts the lane's first issued op, which may start. */
static inline void start(struct ht_core *c, struct lane *l)
{
    struct issued first = l->queue[0];
    struct slot *sl = slot_of(c, first.iteration);
    sl->ops[first.op].state = RUNNING;
    l->running = true;
    fetch_successors(c, first.op, sl);
}

/* Issues and starts the next member of a group of which no member waits for anything. */
static inline void start_member(struct ht_core *c, struct ht_turn *turn)
{
    struct starting *g = &c->starting;
    while (!c->info[g->next].mine) g->next++;
    int32_t op = g->next++, lane = (int32_t)c->info[op].lane;
    struct lane *l = &c->lanes[lane];
    *turn = (struct ht_turn){{g->iteration, op}, lane, true, true, g->grant_seq++};
    g->left--;
    l->queue[l->n_queue++] = (struct issued){g->iteration, op};
    advance(l);
    start(c, l);
    fetch_ahead(c, l);
    if (l->n_queue <= l->ahead) make_ready(c, lane);
}

static bool issue_fifo(struct ht_core *c, int32_t lane, struct ht_turn *turn)
{
    struct lane *l = &c->lanes[lane];
    while (l->n_queue <= l->ahead && l->n_ops && is_open(c, l->iteration)) {
        int32_t iteration = l->iteration, op = l->next_op;
        struct slot *sl = slot_of(c, iteration);
        if (sl->ops[op].state != GRANTED) {
            bool conditional = c->info[op].when != HT_ALWAYS;
            if (sl->ops[op].pending && (l->ahead == 0 || conditional)) return false;
            int32_t group = c->info[op].group;
            if (conditional && is_skipped(c, iteration, op)) {
                advance(l);
                skip(c, iteration, op);
                continue;
            }
            if (group >= 0) {
                if (sl->ops[op].state == WAITING) {
                    sl->ops[op].state = ARRIVED;
                    sl->groups[group].arrived++;
                }
                if (sl->groups[group].arrived < c->groups[group].size) return false;
            }
            if (!ask(c, lane, iteration, op)) return false;
            if (c->starting.left) return false; /* its members take the next turns, this one too */
        }
        issue_op(c, l, iteration, op, turn);
        advance(l);
        fetch_ahead(c, l);
        return true;
    }
    return false;
}

static bool issue_priority(struct ht_core *c, int32_t lane, struct ht_turn *turn)
{
    struct lane *l = &c->lanes[lane];
    if (l->n_queue) return false;
    int32_t n_denied = 0;
    bool issued = false, skipped = false;
    while (l->n_heap && !issued) {
        struct ready r = heap_pop(l);
        if (is_skipped(c, r.iteration, r.op)) {
            skip(c, r.iteration, r.op);
            skipped = true;
        } else if (ask(c, lane, r.iteration, r.op)) {
            issue_op(c, l, r.iteration, r.op, turn);
            issued = true;
        } else {
            HT_PUSH(l->set_aside, n_denied, l->set_aside_cap, r);
        }
    }
    for (int32_t i = 0; i < n_denied; i++) heap_push(l, l->set_aside[i]);
    /* A skipped op may have made room while the denied ops were out of the heap, where nothing could ready the lane for
       them. */
    if (skipped && !issued) make_ready(c, lane);
    return issued;
}

/* Issues the lane's next op if the rules allow it, and starts it if it may. */
static inline bool issue(struct ht_core *c, struct lane *l, int32_t lane, struct ht_turn *turn)
{
    if (!(l->fifo ? issue_fifo(c, lane, turn) : issue_priority(c, lane, turn))) return false;
    if (turn->started) turn->started = arrive_at_start(c, l);
    if (turn->started) start(c, l);
    return true;
}

bool ht_core_turn(struct ht_core *c, struct ht_turn *turn)
{
    for (;;) {
        if (c->starting.left) {
            start_member(c, turn);
            return true;
        }
        if (!c->n_ready) return false;
        struct ready_lane p = pop_ready(c);
        struct lane *l = &c->lanes[p.lane];
        if (!l->is_ready || l->ready_key != p.key) continue; /* superseded */
        l->is_ready = false;
        uint64_t key;
        enum candidate candidate = candidate_of(c, l, &key);
        if (candidate == NOTHING) continue;
        if (key != p.key) {
            push_ready(c, p.lane, key); /* it has another candidate by now, which takes its turn */
        } else if (candidate == START ? !arrive_at_start(c, l) : !issue(c, l, p.lane, turn)) {
            if (candidate == START) make_ready(c, p.lane);
        } else {
            if (candidate == START) {
                *turn = (struct ht_turn){.inst = {l->queue[0].iteration, l->queue[0].op}, .started = true};
                start(c, l);
            }
            turn->lane = p.lane;
            if (l->n_queue <= l->ahead) make_ready(c, p.lane);
            return true;
        }
    }
}

/* ---- the rest -------------------------------------------------------------------------------------------------- */

void ht_core_set_control(struct ht_core *c, int32_t iteration, bool ok)
{
    slot_of(c, iteration)->ok &= ok;
}

bool ht_core_has_ended(const struct ht_core *c, struct ht_inst inst)
{
    if (inst.iteration < c->oldest) return true;
    return is_open(c, inst.iteration) && c->slots[inst.iteration & 1].ops[inst.op].state == DONE;
}

bool ht_core_done(const struct ht_core *c)
{
    return c->oldest >= c->iterations;
}

bool ht_core_is_exact(const struct ht_core *c)
{
    return !c->elides || !c->was_denied;
}

int32_t ht_core_ended(const struct ht_core *c)
{
    return c->oldest;
}

int32_t ht_core_own_ended(const struct ht_core *c)
{
    int32_t n = c->oldest;
    while (n < c->iterations && n <= c->oldest + 1 && c->slots[n & 1].unfinished == 0) n++;
    return n;
}

size_t ht_core_state_bytes(const struct ht_core *c)
{
    return 2 * (size_t)c->s->n_ops * sizeof(struct op_state);
}

void ht_core_copy_state(const struct ht_core *c, void *state)
{
    size_t n = (size_t)c->s->n_ops;
    struct op_state *out = state;
    memcpy(out, c->slots[c->oldest & 1].ops, n * sizeof *out);
    memcpy(out + n, c->slots[(c->oldest + 1) & 1].ops, n * sizeof *out);
}

void ht_core_cut(struct ht_core *c, int32_t iterations)
{
    if (iterations < c->iterations) c->iterations = iterations;
    set_open_end(c);
}

void ht_core_remote_end(struct ht_core *c, struct ht_inst inst, bool ok)
{
    struct ht_completion e = {inst, ok};
    if (is_open(c, inst.iteration))
        apply_remote_end(c, e);
    else
        HT_PUSH(c->early, c->n_early, c->early_cap, e);
}

void ht_core_remote_ended(struct ht_core *c, int32_t n)
{
    c->others_ended = n;
    end_iterations(c);
}

bool ht_core_next_completion(struct ht_core *c, struct ht_completion *completion)
{
    if (!c->n_completions) return false;
    *completion = c->completions[0];
    memmove(c->completions, c->completions + 1, sizeof(*c->completions) * --c->n_completions);
    return true;
}

int64_t ht_core_unfinished(const struct ht_core *c)
{
    int64_t n = 0;
    for (int32_t k = c->oldest; k < c->iterations; k++)
        n += k <= c->oldest + 1 ? c->slots[k & 1].unfinished : c->n_mine;
    return n;
}

int64_t ht_core_peak_bytes(const struct ht_core *c, int32_t space)
{
    return ht_grants_peak(c->grants, space);
}

void ht_core_describe_stall(const struct ht_core *c, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = '\0';
    for (int32_t lane = 0; lane < c->s->n_lanes && at + 96 < n; lane++) {
        const struct lane *l = &c->lanes[lane];
        uint64_t key;
        if (l->running || candidate_of(c, l, &key) == NOTHING) continue;
        char label[64], space[32];
        int32_t op = (int32_t)(uint32_t)key;
        int written = snprintf(buf + at, n - at, "%s%s of rank %d: %s waits for %d dependencies", at ? "; " : "",
                               c->s->lanes[lane].name, c->s->lanes[lane].rank,
                               ht_op_label(c->s, op, label, sizeof(label)), c->slots[(key >> 32) & 1].ops[op].pending);
        at += (size_t)written;
        if (l->denied.by >= 0 && at < n)
            at += (size_t)snprintf(buf + at, n - at, " or memory of %s",
                                   ht_space_name(c->s, l->denied.by, space, sizeof(space)));
    }
}

void ht_core_begin(struct ht_core *c)
{
    if (c->s->n_ops == 0) c->oldest = c->iterations;
    set_open_end(c);
    if (c->s->n_ops == 0) return;
    open_iteration(c, 0);
    if (c->iterations > 1) open_iteration(c, 1);
    end_iterations(c); /* on a node without ops, all have ended */
}
