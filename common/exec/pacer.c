/*
 * A row's way, and who takes the step:
 *
 *     FREE --> POSTED       the lane, at begin
 *     POSTED --> HELD       the server, when the op's whole group is posted
 *     HELD --> FREE         the server, when the modelled time is up; it writes due_ns before
 *
 * The lane sleeps on its row's state, the server on the bell, at most until the next end that it knows of. The server
 * goes by the ends that it has computed, not by when it was woken: being late for one does not make the next one late.
 */
#include "common/exec/pacer.h"

#include "common/base/array.h"
#include "common/base/futex.h"
#include "common/base/interrupt.h"
#include "common/exec/sim_heap.h"
#include "common/exec/sim_groups.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum state { FREE, POSTED, HELD };

struct row {
    _Alignas(64) atomic_uint state;
    int32_t iteration, op; /* of what is posted */
    int64_t begin_ns;      /* wall clock: when it was */
    int64_t due_ns;        /* when its time was up */
};

struct ht_pacer_table {
    _Alignas(64) atomic_uint bell;
    atomic_bool over; /* nobody is held any more */
    int32_t n_lanes;
    int32_t server_pid;
    struct row rows[];
};

struct ht_pacer {
    const struct ht_schedule *s;
    struct ht_pacer_table *table;
    double scale;
    struct ht_sim_groups steps;
    struct ht_flows *flows;
    struct ht_sim_heap heap; /* ends, in modelled time since `origin_ns`, by lane of a step's first op */
    int32_t *changed;        /* [n_lanes] scratch */
    int32_t *posted;         /* [n_ops] members of the step that begins here whose rows are posted */
    int64_t origin_ns;       /* wall clock */
    atomic_bool stop;
    pthread_t thread;
};

static int64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t modelled_ns(const struct ht_pacer *b, int64_t wall)
{
    return (int64_t)((double)(wall - b->origin_ns) / b->scale);
}

static int64_t wall_of(const struct ht_pacer *b, int64_t modelled)
{
    return b->origin_ns + (int64_t)((double)modelled * b->scale);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

int64_t ht_pacer_table_bytes(int32_t n_lanes)
{
    return (int64_t)(sizeof(struct ht_pacer_table) + (size_t)n_lanes * sizeof(struct row));
}

struct ht_pacer_table *ht_pacer_table_init(void *memory, int32_t n_lanes)
{
    struct ht_pacer_table *t = memory;
    t->n_lanes = n_lanes;
    return t;
}

static void ring(struct ht_pacer_table *t)
{
    atomic_fetch_add_explicit(&t->bell, 1, memory_order_release);
    ht_futex_wake_shared(&t->bell, 1);
}

void ht_pacer_begin(struct ht_pacer_table *table, int32_t lane, int32_t iteration, int32_t op)
{
    struct row *r = &table->rows[lane];
    r->iteration = iteration;
    r->op = op;
    r->begin_ns = wall_ns();
    atomic_store_explicit(&r->state, POSTED, memory_order_release);
    ring(table);
}

int64_t ht_pacer_end(struct ht_pacer_table *table, int32_t lane, const atomic_bool *cancelled)
{
    enum { LOOK_AGAIN_NS = 100000000 };
    struct row *r = &table->rows[lane];
    int64_t done_ns = wall_ns();
    for (unsigned state; (state = atomic_load_explicit(&r->state, memory_order_acquire)) != FREE;) {
        if (atomic_load(&table->over) || (cancelled && atomic_load(cancelled))) return 0;
        if (kill(table->server_pid, 0) && errno == ESRCH) return 0;
        ht_futex_wait_shared(&r->state, state, LOOK_AGAIN_NS);
    }
    return done_ns > r->due_ns ? done_ns - r->due_ns : 0;
}

void ht_pacer_cancel(struct ht_pacer_table *table)
{
    atomic_store(&table->over, true);
    ring(table);
}

static void let_go(struct row *r, int64_t due_ns)
{
    r->due_ns = due_ns;
    atomic_store_explicit(&r->state, FREE, memory_order_release);
    ht_futex_wake_shared(&r->state, 1);
}

/* ---- the server ------------------------------------------------------------------------------------------------ */

/* The first op of the step that op belongs to. */
static int32_t first_of(const struct ht_pacer *b, int32_t op)
{
    while (b->steps.rows[op].flow == HT_SIM_MEMBER) op--;
    return op;
}

static void begin_step(struct ht_pacer *b, int32_t first, int32_t iteration, int64_t now)
{
    const struct ht_sim_row *row = &b->steps.rows[first];
    int32_t slot = b->s->ops[first].lane;
    if (row->flow == HT_SIM_NO_FLOW) {
        int64_t id = (int64_t)iteration * b->s->n_ops + first;
        ht_sim_heap_set(&b->heap, (struct ht_sim_entry){now + row->cost_ns, id, slot});
        return;
    }
    const struct ht_sim_flow *flow = &b->steps.flows[row->flow];
    ht_flows_start(b->flows, slot, now, row->cost_ns, flow->cap, b->steps.uses + flow->uses_begin, flow->n_uses);
}

static void end_step(struct ht_pacer *b, struct ht_sim_entry e)
{
    int32_t first = (int32_t)(e.id % b->s->n_ops);
    const struct ht_sim_row *row = &b->steps.rows[first];
    if (row->flow >= 0) ht_flows_finish(b->flows, e.slot);
    for (int32_t op = first; op < first + (int32_t)row->size; op++)
        let_go(&b->table->rows[b->s->ops[op].lane], wall_of(b, e.time_ns));
}

static void settle(struct ht_pacer *b, int64_t now)
{
    int32_t n = ht_flows_settle(b->flows, now, b->changed);
    for (int32_t i = 0; i < n; i++) {
        int32_t slot = b->changed[i];
        const struct row *r = &b->table->rows[slot];
        int64_t id = (int64_t)r->iteration * b->s->n_ops + r->op;
        ht_sim_heap_set(&b->heap, (struct ht_sim_entry){ht_flows_end_ns(b->flows, slot), id, slot});
    }
}

/* The row that was posted first of those that are waiting to be taken up, or NULL. */
static struct row *first_post(const struct ht_pacer *b)
{
    struct row *first = NULL;
    for (int32_t lane = 0; lane < b->table->n_lanes; lane++) {
        struct row *r = &b->table->rows[lane];
        if (atomic_load_explicit(&r->state, memory_order_acquire) != POSTED) continue;
        if (!first || r->begin_ns < first->begin_ns) first = r;
    }
    return first;
}

/* The last member's begin is the step's. */
static void take_post(struct ht_pacer *b, struct row *r, int64_t begin)
{
    int32_t first = first_of(b, r->op), iteration = r->iteration;
    atomic_store_explicit(&r->state, HELD, memory_order_relaxed);
    if (++b->posted[first] < (int32_t)b->steps.rows[first].size) return;
    b->posted[first] = 0;
    begin_step(b, first, iteration, begin);
    if (b->steps.rows[first].flow >= 0) settle(b, begin);
}

/* All that has begun and ended up to now, in the order of its times: flows may not go back in time, or what begins late
   would be paced as if it had begun with what ended before. Returns the time of the last. */
static int64_t catch_up(struct ht_pacer *b, int64_t last)
{
    int64_t now = modelled_ns(b, wall_ns());
    for (;;) {
        struct row *post = first_post(b);
        int64_t begin = post ? modelled_ns(b, post->begin_ns) : INT64_MAX;
        int64_t end = b->heap.n ? b->heap.entries[0].time_ns : INT64_MAX;
        if (post && begin < last) begin = last;
        if (post && begin <= end) {
            take_post(b, post, last = begin);
        } else if (end <= now) {
            struct ht_sim_entry e = ht_sim_heap_pop(&b->heap);
            bool flow = b->steps.rows[e.id % b->s->n_ops].flow >= 0;
            if (end > last) last = end;
            end_step(b, e);
            if (flow) settle(b, last);
        } else {
            return last;
        }
    }
}

static void *serve(void *arg)
{
    enum { IDLE_NS = 100000000 };
    struct ht_pacer *b = arg;
    int64_t last = 0;
    while (!atomic_load(&b->stop) && !atomic_load(&b->table->over) && !ht_interrupted()) {
        unsigned bell = atomic_load_explicit(&b->table->bell, memory_order_acquire);
        last = catch_up(b, last);
        int64_t sleep_ns = b->heap.n ? wall_of(b, b->heap.entries[0].time_ns) - wall_ns() : IDLE_NS;
        if (sleep_ns > 0) ht_futex_wait_shared(&b->table->bell, bell, sleep_ns < IDLE_NS ? sleep_ns : IDLE_NS);
    }
    atomic_store(&b->table->over, true);
    for (int32_t lane = 0; lane < b->table->n_lanes; lane++) let_go(&b->table->rows[lane], wall_ns());
    return NULL;
}

/* ---- its life -------------------------------------------------------------------------------------------------- */

static void free_pacer(struct ht_pacer *b)
{
    ht_flows_destroy(b->flows);
    ht_sim_heap_free(&b->heap);
    ht_sim_groups_free(&b->steps);
    free(b->changed);
    free(b->posted);
    free(b);
}

static enum ht_status make_flows(struct ht_pacer *b, struct ht_error *err)
{
    const struct ht_schedule *s = b->s;
    int64_t *capacity = HT_NEW_ARRAY(int64_t, s->n_resources);
    for (int32_t r = 0; r < s->n_resources; r++) capacity[r] = s->resources[r].capacity_per_s;
    enum ht_status status = ht_flows_create(s->n_resources, capacity, s->n_lanes, b->steps.max_uses, err, &b->flows);
    free(capacity);
    return status;
}

enum ht_status ht_pacer_start(const struct ht_schedule *s, const int64_t *cost_ns, double scale,
                              struct ht_pacer_table *table, struct ht_error *err, struct ht_pacer **out)
{
    *out = NULL;
    if (!(scale > 0)) return ht_fail(err, HT_BAD_INPUT, "emulation scale %g; expected more than 0", scale);
    struct ht_pacer *b = HT_NEW(struct ht_pacer);
    b->s = s;
    b->table = table;
    b->scale = scale;
    ht_sim_heap_init(&b->heap, s->n_lanes);
    b->changed = HT_NEW_ARRAY(int32_t, s->n_lanes);
    b->posted = HT_NEW_ARRAY(int32_t, s->n_ops);
    enum ht_status status = ht_sim_groups_init(s, cost_ns, err, &b->steps);
    if (status == HT_OK) status = make_flows(b, err);
    b->origin_ns = wall_ns();
    table->server_pid = (int32_t)getpid();
    if (status == HT_OK) {
        int rc = pthread_create(&b->thread, NULL, serve, b);
        if (rc) status = ht_fail(err, HT_INFEASIBLE, "cannot start the pacer's thread: %s", strerror(rc));
    }
    if (status != HT_OK) {
        free_pacer(b);
        return status;
    }
    *out = b;
    return HT_OK;
}

void ht_pacer_stop(struct ht_pacer *b)
{
    if (!b) return;
    atomic_store(&b->stop, true);
    ring(b->table);
    pthread_join(b->thread, NULL);
    free_pacer(b);
}
