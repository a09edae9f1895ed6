#include "common/trace/trace.h"

#include "common/base/array.h"

#include <assert.h>
#include <stdlib.h>

struct ht_trace *ht_trace_create(const struct ht_schedule *s, enum ht_clock clock, int32_t iterations)
{
    struct ht_trace *t = HT_NEW(struct ht_trace);
    t->clock = clock;
    t->schedule = s;
    t->iterations = iterations;
    t->n_events = (int64_t)iterations * s->n_ops;
    t->events = HT_NEW_ARRAY(struct ht_trace_event, t->n_events);
    t->iteration_end_ns = HT_NEW_ARRAY(int64_t, iterations);
    t->peak_bytes = HT_NEW_ARRAY(int64_t, ht_n_spaces(s));
    for (int64_t i = 0; i < t->n_events; i++)
        t->events[i] = (struct ht_trace_event){.grant_seq = -1, .release_seq = -1};
    return t;
}

void ht_trace_destroy(struct ht_trace *t)
{
    if (!t) return;
    free(t->events);
    free(t->iteration_end_ns);
    free(t->peak_bytes);
    free(t);
}

void ht_trace_append(struct ht_trace *t, const struct ht_trace *later)
{
    assert(t->schedule == later->schedule && t->clock == later->clock);
    int64_t n = t->n_events, seq = 0;
    for (int64_t i = 0; i < n; i++) {
        if (t->events[i].grant_seq >= seq) seq = t->events[i].grant_seq + 1;
        if (t->events[i].release_seq >= seq) seq = t->events[i].release_seq + 1;
    }
    t->events = ht_realloc(t->events, (size_t)(n + later->n_events) * sizeof(*t->events));
    for (int64_t i = 0; i < later->n_events; i++) {
        struct ht_trace_event e = later->events[i];
        if (e.grant_seq >= 0) {
            e.issue_ns += t->end_ns;
            e.start_ns += t->end_ns;
            e.end_ns += t->end_ns;
            e.grant_seq += seq;
        }
        if (e.release_seq >= 0) e.release_seq += seq;
        t->events[n + i] = e;
    }
    int32_t iterations = t->iterations + later->iterations;
    t->iteration_end_ns = ht_realloc(t->iteration_end_ns, (size_t)iterations * sizeof(*t->iteration_end_ns));
    for (int32_t k = 0; k < later->iterations; k++)
        t->iteration_end_ns[t->iterations + k] = t->end_ns + later->iteration_end_ns[k];
    for (int32_t i = 0; i < ht_n_spaces(t->schedule); i++)
        if (later->peak_bytes[i] > t->peak_bytes[i]) t->peak_bytes[i] = later->peak_bytes[i];
    if (later->clock_error_ns > t->clock_error_ns) t->clock_error_ns = later->clock_error_ns;
    t->iterations = iterations;
    t->n_events = n + later->n_events;
    t->end_ns += later->end_ns;
}
