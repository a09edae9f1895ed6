/*
 * States of an entry, and who changes them:
 *
 *     FREE --> POSTED       the lane, at begin
 *     POSTED --> HELD       the server, when the op's whole group is posted
 *     HELD --> FREE         the server, when the modelled time is up; it writes due_ns before
 *
 * Over several hosts an entry is also posted in rank 0's table, by a message, if the op is up to rank 0's pacer. Its
 * own host's server holds it until the end that rank 0's says; rank 0's frees its copy at the same time.
 *
 * The lane sleeps on its entry's state, the server on the doorbell, at most until the next end that it knows of. The
 * server goes by the ends that it has computed, not by when it was woken: being late for one does not delay the next.
 */
#include "common/exec/pacer.h"

#include "common/base/array.h"
#include "common/base/clock.h"
#include "common/base/futex.h"
#include "common/base/interrupt.h"
#include "common/exec/pacer_link.h"
#include "common/exec/sim_ends.h"
#include "common/exec/sim_groups.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum state { FREE, POSTED, HELD };

struct entry {
    _Alignas(64) atomic_uint state;
    int32_t iteration, op; /* of the posted op */
    int64_t begin_ns;      /* wall clock: when the op was posted */
    int64_t due_ns;        /* wall clock: when its time is up */
};

struct ht_pacer_table {
    _Alignas(64) atomic_uint doorbell;
    atomic_bool over; /* no op is held any more */
    int32_t n_lanes;
    int32_t server_pid;
    struct entry entries[];
};

struct ht_pacer {
    const struct ht_schedule *s;
    struct ht_pacer_table *table;
    struct ht_pacer_link *link;       /* NULL: there is one host */
    struct ht_pacer_message *arrived; /* BEGINs of other hosts whose lane is not free here yet */
    size_t n_arrived, arrived_cap;
    double scale;
    struct ht_sim_groups groups;
    struct ht_flows *flows;
    struct ht_sim_ends ends; /* ends in modelled time since `origin_ns`; slot: the lane of a group's first op */
    int32_t *changed;        /* [n_lanes] scratch */
    int32_t *posted;         /* [n_ops] how many members of the group with this first op are posted */
    int64_t origin_ns;       /* wall clock */
    atomic_bool stop;
    pthread_t thread;
};

static int64_t modelled_ns(const struct ht_pacer *p, int64_t wall)
{
    return (int64_t)((double)(wall - p->origin_ns) / p->scale);
}

static int64_t wall_of(const struct ht_pacer *p, int64_t modelled)
{
    return p->origin_ns + (int64_t)((double)modelled * p->scale);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

int64_t ht_pacer_table_bytes(int32_t n_lanes)
{
    return (int64_t)(sizeof(struct ht_pacer_table) + (size_t)n_lanes * sizeof(struct entry));
}

struct ht_pacer_table *ht_pacer_table_init(void *memory, int32_t n_lanes)
{
    struct ht_pacer_table *t = memory;
    t->n_lanes = n_lanes;
    return t;
}

static void ring(struct ht_pacer_table *t)
{
    atomic_fetch_add_explicit(&t->doorbell, 1, memory_order_release);
    ht_futex_wake_shared(&t->doorbell, 1);
}

void ht_pacer_begin(struct ht_pacer_table *table, int32_t lane, int32_t iteration, int32_t op)
{
    struct entry *r = &table->entries[lane];
    r->iteration = iteration;
    r->op = op;
    r->begin_ns = ht_now_ns();
    atomic_store_explicit(&r->state, POSTED, memory_order_release);
    ring(table);
}

int64_t ht_pacer_end(struct ht_pacer_table *table, int32_t lane, const atomic_bool *cancelled)
{
    enum { POLL_NS = 100000000 };
    struct entry *r = &table->entries[lane];
    int64_t done_ns = ht_now_ns();
    for (unsigned state; (state = atomic_load_explicit(&r->state, memory_order_acquire)) != FREE;) {
        if (atomic_load(&table->over) || (cancelled && atomic_load(cancelled))) return 0;
        if (kill(table->server_pid, 0) && errno == ESRCH) return 0;
        ht_futex_wait_shared(&r->state, state, POLL_NS);
    }
    return done_ns > r->due_ns ? done_ns - r->due_ns : 0;
}

void ht_pacer_cancel(struct ht_pacer_table *table)
{
    atomic_store(&table->over, true);
    ring(table);
}

static void release(struct entry *r, int64_t due_ns)
{
    r->due_ns = due_ns;
    atomic_store_explicit(&r->state, FREE, memory_order_release);
    ht_futex_wake_shared(&r->state, 1);
}

/* ---- the server ------------------------------------------------------------------------------------------------ */

/* Returns the first op of op's issue group. */
static int32_t first_of(const struct ht_pacer *p, int32_t op)
{
    while (p->groups.kind_of[op] == HT_SIM_MEMBER) op--;
    return op;
}

/* Returns true if the issue group that begins with op `first` shares resources. */
static bool is_flow(const struct ht_pacer *p, int32_t first)
{
    return ht_sim_kind_of(&p->groups, first)->flow >= 0;
}

/* Returns true if rank 0's pacer, on another host, decides when the group ends. */
static bool is_far(const struct ht_pacer *p, int32_t first)
{
    return p->link && !ht_pacer_link_decides(p->link) &&
           (is_flow(p, first) || ht_sim_kind_of(&p->groups, first)->size > 1);
}

/* Tells the members' other hosts when the group will end. */
static void announce(struct ht_pacer *p, int64_t id, int64_t end_ns)
{
    int32_t first = (int32_t)(id % p->s->n_ops), size = ht_sim_kind_of(&p->groups, first)->size;
    if (!p->link || !ht_pacer_link_decides(p->link)) return;
    int32_t *ranks = HT_NEW_ARRAY(int32_t, size);
    for (int32_t i = 0; i < size; i++) ranks[i] = ht_op_rank(p->s, first + i);
    ht_pacer_link_end(p->link, ranks, size, (int32_t)(id / p->s->n_ops), first, wall_of(p, end_ns));
    free(ranks);
}

static void set_end(struct ht_pacer *p, int32_t slot, int64_t id, int64_t end_ns)
{
    ht_sim_ends_set(&p->ends, slot, (struct ht_sim_end){end_ns, id});
    announce(p, id, end_ns);
}

static void begin_group(struct ht_pacer *p, int32_t first, int32_t iteration, int64_t now)
{
    const struct ht_sim_kind *kind = ht_sim_kind_of(&p->groups, first);
    int32_t slot = p->s->ops[first].lane;
    const struct ht_sim_flow *flow = kind->flow == HT_SIM_NO_FLOW ? NULL : &p->groups.flows[kind->flow];
    if (!flow ||
        ht_flows_start(p->flows, slot, now, kind->cost_ns, flow->cap, p->groups.uses + flow->uses_begin, flow->n_uses))
        set_end(p, slot, (int64_t)iteration * p->s->n_ops + first, now + kind->cost_ns);
}

/* Returns the entry of an op that is held here, or NULL. */
static struct entry *held(const struct ht_pacer *p, int32_t iteration, int32_t op)
{
    struct entry *r = &p->table->entries[p->s->ops[op].lane];
    bool is = atomic_load_explicit(&r->state, memory_order_acquire) == HELD && r->op == op && r->iteration == iteration;
    return is ? r : NULL;
}

static void end_group(struct ht_pacer *p, int32_t slot, struct ht_sim_end e)
{
    int32_t first = (int32_t)(e.id % p->s->n_ops), iteration = (int32_t)(e.id / p->s->n_ops);
    if (is_flow(p, first) && !is_far(p, first)) ht_flows_finish(p->flows, slot);
    for (int32_t op = first; op < first + ht_sim_kind_of(&p->groups, first)->size; op++) {
        struct entry *r = held(p, iteration, op);
        if (r) release(r, wall_of(p, e.time_ns)); /* else its lane is another host's */
    }
}

static void settle(struct ht_pacer *p, int64_t now)
{
    int32_t n = ht_flows_settle(p->flows, now, p->changed);
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = p->changed[i];
        const struct entry *r = &p->table->entries[slot];
        set_end(p, slot, (int64_t)r->iteration * p->s->n_ops + r->op, ht_flows_end_ns(p->flows, slot));
    }
}

/* Returns the posted entry with the earliest begin, or NULL. */
static struct entry *first_post(const struct ht_pacer *p)
{
    struct entry *first = NULL;
    for (int32_t lane = 0; lane < p->table->n_lanes; lane++) {
        struct entry *r = &p->table->entries[lane];
        if (atomic_load_explicit(&r->state, memory_order_acquire) != POSTED) continue;
        if (!first || r->begin_ns < first->begin_ns) first = r;
    }
    return first;
}

/* Takes a posted entry. A group begins when its last member does. */
static void take_post(struct ht_pacer *p, struct entry *r, int64_t begin)
{
    int32_t first = first_of(p, r->op), iteration = r->iteration;
    atomic_store_explicit(&r->state, HELD, memory_order_relaxed);
    if (is_far(p, first)) {
        ht_pacer_link_begin(p->link, iteration, r->op, r->begin_ns);
        return;
    }
    if (++p->posted[first] < ht_sim_kind_of(&p->groups, first)->size) return;
    p->posted[first] = 0;
    begin_group(p, first, iteration, begin);
    if (is_flow(p, first)) settle(p, begin);
}

/* Sets the end of a group that rank 0's pacer decides about, if an op of it is still held here. */
static void take_end(struct ht_pacer *p, const struct ht_pacer_message *m)
{
    int32_t slot = p->s->ops[m->op].lane;
    struct ht_sim_end before = p->ends.of_slot[slot];
    int64_t id = (int64_t)m->iteration * p->s->n_ops + m->op;
    bool any = false;
    for (int32_t op = m->op; op < m->op + ht_sim_kind_of(&p->groups, m->op)->size; op++)
        any |= held(p, m->iteration, op) != NULL;
    if (!any) return;
    /* The slot's lane is another host's, and that has gone on already: so the group before has ended. */
    if (before.time_ns < HT_SIM_NO_END && before.id != id) end_group(p, slot, before);
    set_end(p, slot, id, modelled_ns(p, m->at_ns));
}

/* Takes the messages of other hosts' pacers. Posts their ops as their lanes would; one whose lane's op before has not
   ended here yet, since its host let it go some microseconds too early, waits for that. */
static void take_messages(struct ht_pacer *p)
{
    struct ht_pacer_message m;
    size_t kept = 0;
    if (!p->link) return;
    while (ht_pacer_link_take(p->link, &m)) {
        if (m.kind == HT_PACER_END)
            take_end(p, &m);
        else
            HT_PUSH(p->arrived, p->n_arrived, p->arrived_cap, m);
    }
    for (size_t i = 0; i < p->n_arrived; i++) {
        struct entry *r = &p->table->entries[p->s->ops[p->arrived[i].op].lane];
        if (atomic_load_explicit(&r->state, memory_order_relaxed) != FREE) {
            p->arrived[kept++] = p->arrived[i];
            continue;
        }
        r->iteration = p->arrived[i].iteration;
        r->op = p->arrived[i].op;
        r->begin_ns = p->arrived[i].at_ns;
        atomic_store_explicit(&r->state, POSTED, memory_order_relaxed);
    }
    p->n_arrived = kept;
}

/* Handles all begins and ends up to now, in the order of their times. Flows may not go back in time: an op that begins
   late would be paced as if it had begun with ops that ended before. Returns the time of the last. */
static int64_t catch_up(struct ht_pacer *p, int64_t last)
{
    int64_t now = modelled_ns(p, ht_now_ns());
    for (;;) {
        take_messages(p);
        struct entry *post = first_post(p);
        int64_t begin = post ? modelled_ns(p, post->begin_ns) : INT64_MAX;
        int64_t end = ht_sim_ends_next_ns(&p->ends);
        if (post && begin < last) begin = last;
        if (post && begin <= end) {
            take_post(p, post, last = begin);
        } else if (end <= now) {
            struct ht_sim_end e;
            int32_t slot = ht_sim_ends_take(&p->ends, &e);
            bool flow = is_flow(p, (int32_t)(e.id % p->s->n_ops));
            if (end > last) last = end;
            end_group(p, slot, e);
            if (flow) settle(p, last);
        } else {
            return last;
        }
    }
}

static bool is_over(const struct ht_pacer *p)
{
    return atomic_load(&p->stop) || atomic_load(&p->table->over) || ht_interrupted() ||
           (p->link && ht_pacer_link_is_over(p->link));
}

static void *serve(void *arg)
{
    enum { IDLE_NS = 100000000 };
    struct ht_pacer *p = arg;
    int64_t last = 0;
    while (!is_over(p)) {
        if (p->link) ht_pacer_link_tick(p->link);
        unsigned doorbell = atomic_load_explicit(&p->table->doorbell, memory_order_acquire);
        last = catch_up(p, last);
        int64_t end = ht_sim_ends_next_ns(&p->ends);
        int64_t sleep_ns = end < HT_SIM_NO_END ? wall_of(p, end) - ht_now_ns() : IDLE_NS;
        if (sleep_ns > 0) ht_futex_wait_shared(&p->table->doorbell, doorbell, sleep_ns < IDLE_NS ? sleep_ns : IDLE_NS);
    }
    atomic_store(&p->table->over, true);
    if (p->link) ht_pacer_link_over(p->link);
    for (int32_t lane = 0; lane < p->table->n_lanes; lane++) release(&p->table->entries[lane], ht_now_ns());
    return NULL;
}

/* ---- create and destroy ----------------------------------------------------------------------------------------- */

static void free_pacer(struct ht_pacer *p)
{
    ht_flows_destroy(p->flows);
    ht_sim_ends_free(&p->ends);
    ht_sim_groups_free(&p->groups);
    free(p->changed);
    free(p->posted);
    free(p->arrived);
    free(p);
}

static enum ht_status make_flows(struct ht_pacer *p, struct ht_error *err)
{
    const struct ht_schedule *s = p->s;
    int64_t *capacity = HT_NEW_ARRAY(int64_t, s->n_resources);
    for (int32_t r = 0; r < s->n_resources; r++) capacity[r] = s->resources[r].capacity_per_s;
    enum ht_status status = ht_flows_create(s->n_resources, capacity, s->n_lanes, p->groups.max_uses, err, &p->flows);
    free(capacity);
    return status;
}

static void ring_for_message(void *ctx)
{
    const struct ht_pacer *p = ctx;
    ring(p->table);
}

enum ht_status ht_pacer_start(const struct ht_schedule *s, const int64_t *cost_ns, double scale,
                              struct ht_pacer_table *table, struct ht_pacer_link *link, struct ht_error *err,
                              struct ht_pacer **out)
{
    *out = NULL;
    if (!(scale > 0)) return ht_fail(err, HT_BAD_INPUT, "emulation scale %g; expected more than 0", scale);
    struct ht_pacer *p = HT_NEW(struct ht_pacer);
    p->s = s;
    p->table = table;
    p->link = link;
    p->scale = scale;
    ht_sim_ends_init(&p->ends, s->n_lanes);
    p->changed = HT_NEW_ARRAY(int32_t, s->n_lanes);
    p->posted = HT_NEW_ARRAY(int32_t, s->n_ops);
    enum ht_status status = ht_sim_groups_init(s, cost_ns, err, &p->groups);
    if (status == HT_OK) status = make_flows(p, err);
    p->origin_ns = ht_now_ns();
    table->server_pid = (int32_t)getpid();
    if (status == HT_OK && link) ht_pacer_link_on_message(link, ring_for_message, p);
    if (status == HT_OK) {
        int rc = pthread_create(&p->thread, NULL, serve, p);
        if (rc) status = ht_fail(err, HT_INFEASIBLE, "cannot start the pacer's thread: %s", strerror(rc));
    }
    if (status != HT_OK) {
        if (link) ht_pacer_link_on_message(link, NULL, NULL);
        free_pacer(p);
        return status;
    }
    *out = p;
    return HT_OK;
}

void ht_pacer_stop(struct ht_pacer *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    ring(p->table);
    pthread_join(p->thread, NULL);
    if (p->link) ht_pacer_link_on_message(p->link, NULL, NULL);
    free_pacer(p);
}
