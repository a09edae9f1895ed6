/*
 * Walks back from the op that ended the window. At each op it finds the event that determined the op's start:
 *
 *     candidates   its dependencies, in this iteration and in the previous one
 *                  the op that ran before it on its lane
 *                  these of every other member of its group
 *                  the release numbered last before its grant: when none of these explains why it was issued so late,
 *                  it waited for memory, or for its iteration to open
 *
 * It is the candidate that ended last. Every candidate ended before the op started, so the walk only moves back. The
 * op's own time (contention included) counts for its lane, the gap between the two for waiting.
 */
#include "common/trace/critical.h"

#include "common/base/array.h"

#include <stdlib.h>

struct walk {
    const struct ht_trace *t;
    int64_t *lane_before; /* [n_events]: previous event of the same lane, or -1 */
    int64_t *released;    /* [2 n_events + 1]: event released last before this number, or -1 */
};

static bool ran(const struct ht_trace_event *e)
{
    return e->grant_seq >= 0 && e->release_seq >= 0;
}

/* Finds each event's predecessor on its lane. Ops of a lane ran in the order of their releases. */
static void index_events(struct walk *w)
{
    const struct ht_trace *t = w->t;
    const struct ht_schedule *s = t->schedule;
    int64_t n = 2 * t->n_events;
    w->lane_before = HT_NEW_ARRAY(int64_t, t->n_events);
    w->released = HT_NEW_ARRAY(int64_t, n + 1);
    for (int64_t i = 0; i <= n; i++) w->released[i] = -1;
    for (int64_t i = 0; i < t->n_events; i++)
        if (ran(&t->events[i]) && t->events[i].release_seq < n) w->released[t->events[i].release_seq + 1] = i;
    int64_t *at = HT_NEW_ARRAY(int64_t, s->n_lanes), last = -1;
    for (int32_t l = 0; l < s->n_lanes; l++) at[l] = -1;
    for (int64_t seq = 0; seq <= n; seq++) {
        int64_t i = w->released[seq];
        if (i < 0) {
            w->released[seq] = last;
            continue;
        }
        int32_t lane = s->ops[ht_trace_op(t, i)].lane;
        w->lane_before[i] = at[lane];
        at[lane] = last = i;
    }
    free(at);
}

/* Keeps the candidate that ended last. */
static void consider(const struct walk *w, const struct ht_trace_event *e, int64_t candidate, int64_t *best)
{
    if (candidate < 0) return;
    const struct ht_trace_event *c = &w->t->events[candidate];
    /* Compares numbers, not times, so that the walk cannot circle among ops without duration: a cause is released
       before its effect. */
    if (!ran(c) || c->end_ns > e->start_ns || c->release_seq >= e->release_seq) return;
    const struct ht_trace_event *b = *best < 0 ? NULL : &w->t->events[*best];
    if (!b || c->end_ns > b->end_ns) *best = candidate;
}

static int64_t cause(const struct walk *w, int64_t event)
{
    const struct ht_trace *t = w->t;
    const struct ht_schedule *s = t->schedule;
    const struct ht_trace_event *e = &t->events[event];
    int32_t at = ht_trace_op(t, event), match = s->ops[at].match, first = at, end = at + 1;
    int64_t best = -1, base = event - at;
    while (match >= 0 && first > 0 && s->ops[first - 1].match == match) first--;
    while (match >= 0 && end < s->n_ops && s->ops[end].match == match) end++;
    for (int32_t op = first; op < end; op++) {
        for (int64_t d = s->deps_begin[op]; d < s->deps_begin[op + 1]; d++) consider(w, e, base + s->deps[d], &best);
        for (int64_t d = s->prev_begin[op]; base > 0 && d < s->prev_begin[op + 1]; d++)
            consider(w, e, base - s->n_ops + s->prev[d], &best);
        consider(w, e, w->lane_before[base + op], &best);
    }
    int64_t explained_ns = best < 0 ? -1 : t->events[best].end_ns;
    if (e->issue_ns > explained_ns && e->grant_seq <= 2 * t->n_events) consider(w, e, w->released[e->grant_seq], &best);
    return best;
}

void ht_trace_causes(const struct ht_trace *t, int64_t *causes)
{
    struct walk w = {.t = t};
    index_events(&w);
    for (int64_t i = 0; i < t->n_events; i++) causes[i] = ran(&t->events[i]) ? cause(&w, i) : -1;
    free(w.lane_before);
    free(w.released);
}

void ht_critical_path(const struct ht_trace *t, const struct ht_window *window, int64_t *critical_ns, int64_t *wait_ns)
{
    struct walk w = {.t = t};
    index_events(&w);
    *wait_ns = 0;
    int64_t at = -1, now_ns = window->end_ns;
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i];
        if (ran(e) && e->end_ns == window->end_ns && (at < 0 || e->release_seq > t->events[at].release_seq)) at = i;
    }
    while (at >= 0 && now_ns > window->begin_ns) {
        const struct ht_trace_event *e = &t->events[at];
        int64_t end = e->end_ns > window->begin_ns ? e->end_ns : window->begin_ns;
        int64_t start = e->start_ns > window->begin_ns ? e->start_ns : window->begin_ns;
        *wait_ns += now_ns - end;
        critical_ns[t->schedule->ops[ht_trace_op(t, at)].lane] += end - start;
        now_ns = start;
        at = now_ns > window->begin_ns ? cause(&w, at) : -1;
    }
    *wait_ns += now_ns - window->begin_ns;
    free(w.lane_before);
    free(w.released);
}
