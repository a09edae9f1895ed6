#include "common/trace/trace.h"

#include "common/base/array.h"

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
    struct ht_trace_event *e = t->events;
    for (int32_t k = 0; k < iterations; k++)
        for (int32_t op = 0; op < s->n_ops; op++)
            *e++ = (struct ht_trace_event){.iteration = k, .op = op, .grant_seq = -1, .release_seq = -1};
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
