#include "tests/support/trace_rules.h"

#include <check.h>

static const struct ht_trace_event *event(const struct ht_trace *t, int32_t iteration, int32_t op)
{
    return &t->events[(int64_t)iteration * t->schedule->n_ops + op];
}

static bool ran(const struct ht_trace_event *e)
{
    return e->grant_seq >= 0;
}

/* Returns true when the op had ended before number `seq`, by the order of grants and releases. */
static bool ended_before(const struct ht_trace_event *e, int64_t seq)
{
    return ran(e) && e->release_seq < seq;
}

void trace_check_dependencies(const struct ht_trace *t)
{
    const struct ht_schedule *s = t->schedule;
    for (int32_t k = 0; k < t->iterations; k++)
        for (int32_t op = 0; op < s->n_ops; op++) {
            const struct ht_trace_event *e = event(t, k, op);
            if (!ran(e)) continue;
            ck_assert(e->issue_ns <= e->start_ns && e->start_ns <= e->end_ns && e->end_ns <= t->iteration_end_ns[k]);
            ck_assert_int_lt(e->grant_seq, e->release_seq);
            for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) {
                const struct ht_trace_event *before = event(t, k, s->deps[d]);
                ck_assert(!ran(before) || (before->release_seq < e->grant_seq && before->end_ns <= e->start_ns));
            }
            for (int64_t d = s->prev_begin[op]; k && d < s->prev_begin[op + 1]; d++) {
                const struct ht_trace_event *before = event(t, k - 1, s->prev[d]);
                ck_assert(!ran(before) || (before->release_seq < e->grant_seq && before->end_ns <= e->start_ns));
            }
        }
}

/* Returns true when an op may have to wait for memory in the space. A residency has a few instances at most. */
static bool is_scarce(const struct ht_schedule *s, int32_t space)
{
    double all = 0;
    for (int32_t i = 0; i < s->n_tensors; i++) all += 4.0 * (double)s->tensors[i].bytes;
    return all > (double)s->capacity_bytes[space];
}

/* Returns true when the op was ready, waited for no memory, and could be issued at the time of number `seq`. */
static bool was_ready(const struct ht_trace *t, int32_t k, int32_t op, int64_t seq)
{
    const struct ht_schedule *s = t->schedule;
    for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
        if ((s->effects[e].flags & HT_PRODUCE) &&
            is_scarce(s, ht_space(s, (enum ht_tier)s->effects[e].tier, ht_op_rank(s, op))))
            return false;
    for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++)
        if (!ended_before(event(t, k, s->deps[d]), seq)) return false;
    for (int64_t d = s->prev_begin[op]; k && d < s->prev_begin[op + 1]; d++)
        if (!ended_before(event(t, k - 1, s->prev[d]), seq)) return false;
    return s->ops[op].when == HT_ALWAYS;
}

static int64_t check_lane(const struct ht_trace *t, int32_t lane)
{
    const struct ht_schedule *s = t->schedule;
    const struct ht_trace_event *last = NULL;
    int64_t n_choices = 0;
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i];
        int32_t op = ht_trace_op(t, i), k = ht_trace_iteration(t, i);
        if (s->ops[op].lane != lane || !ran(e)) continue;
        if (s->lanes[lane].order == HT_FIFO) {
            ck_assert(!last || (last->release_seq < e->grant_seq && last->end_ns <= e->start_ns));
            last = e;
            continue;
        }
        for (int32_t other = 0; other < s->n_ops; other++) {
            const struct ht_trace_event *o = event(t, k, other);
            if (s->ops[other].lane != lane || other == op || !ran(o)) continue;
            ck_assert(o->release_seq < e->grant_seq || e->release_seq < o->grant_seq);
            if (o->grant_seq < e->grant_seq || !was_ready(t, k, other, e->grant_seq)) continue;
            int32_t a = s->ops[op].priority, b = s->ops[other].priority;
            ck_assert_msg(a < b || (a == b && op < other), "lane %d: op %d of priority %d went before %d of %d", lane,
                          op, a, other, b);
            n_choices++;
        }
    }
    return n_choices;
}

int64_t trace_check_lanes(const struct ht_trace *t)
{
    int64_t n_choices = 0;
    for (int32_t lane = 0; lane < t->schedule->n_lanes; lane++) n_choices += check_lane(t, lane);
    return n_choices;
}
