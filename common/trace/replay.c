/*
 * Replays the grants and releases of a trace in their order.
 *
 * The executor numbers every grant and every release with one counter. Replay puts events back into that order by
 * counting (the numbers are below twice the number of events), so it is linear; it does not use times.
 */
#include "common/base/array.h"
#include "common/trace/trace.h"

#include <stdlib.h>
#include <string.h>

/* Sorts grants and releases. order[seq]: 1 + event of the grant, or -(1 + event) of the release, or 0: no event has
   this number. */
static enum ht_status put_in_order(const struct ht_trace *t, struct ht_error *err, int64_t **out)
{
    int64_t n = 2 * t->n_events;
    int64_t *order = HT_NEW_ARRAY(int64_t, n);
    for (int64_t i = 0; i < t->n_events; i++) {
        const struct ht_trace_event *e = &t->events[i];
        if (e->grant_seq < 0) continue;
        bool released = e->release_seq >= 0;
        if (e->grant_seq >= n || e->release_seq >= n || (released && e->release_seq <= e->grant_seq) ||
            order[e->grant_seq] || (released && order[e->release_seq])) {
            free(order);
            return ht_fail(err, HT_BAD_INPUT,
                           "op %d of iteration %d: grant %lld and release %lld do not fit the order of the others",
                           ht_trace_op(t, i), ht_trace_iteration(t, i), (long long)e->grant_seq,
                           (long long)e->release_seq);
        }
        order[e->grant_seq] = i + 1;
        if (released) order[e->release_seq] = -(i + 1);
    }
    *out = order;
    return HT_OK;
}

enum ht_status ht_trace_replay(const struct ht_trace *t, struct ht_error *err, int64_t *peak_bytes)
{
    const struct ht_schedule *s = t->schedule;
    int32_t n_spaces = ht_n_spaces(s);
    int64_t *order, *live = HT_NEW_ARRAY(int64_t, n_spaces);
    enum ht_status status = put_in_order(t, err, &order);
    if (status != HT_OK) {
        free(live);
        return status;
    }
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        live[ht_space(s, r->tier, r->rank)] += ht_resident_bytes(s, r);
    }
    memcpy(peak_bytes, live, sizeof(*live) * (size_t)n_spaces);
    for (int64_t seq = 0; seq < 2 * t->n_events; seq++) {
        if (!order[seq]) continue;
        bool grant = order[seq] > 0;
        int32_t op = ht_trace_op(t, (grant ? order[seq] : -order[seq]) - 1), rank = ht_op_rank(s, op);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            if (!(f->flags & (grant ? HT_PRODUCE : HT_RELEASE))) continue;
            int32_t space = ht_space(s, f->tier, rank);
            int64_t bytes = ht_effect_bytes(s, f);
            live[space] += grant ? bytes : -bytes;
            if (live[space] > peak_bytes[space]) peak_bytes[space] = live[space];
        }
    }
    free(order);
    free(live);
    return HT_OK;
}

int64_t ht_trace_memory(const struct ht_trace *t, int32_t space, struct ht_memory_sample **samples)
{
    const struct ht_schedule *s = t->schedule;
    int64_t *order;
    *samples = NULL;
    if (put_in_order(t, NULL, &order) != HT_OK) return 0;
    struct ht_memory_sample now = {0};
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        if (ht_space(s, r->tier, r->rank) != space) continue;
        now.by_class[s->tensors[r->tensor].class] += ht_resident_bytes(s, r);
    }
    size_t cap = 0;
    int64_t n = 0;
    HT_PUSH(*samples, n, cap, now);
    for (int64_t seq = 0; seq < 2 * t->n_events; seq++) {
        if (!order[seq]) continue;
        bool grant = order[seq] > 0, moved = false;
        int64_t i = (grant ? order[seq] : -order[seq]) - 1;
        const struct ht_trace_event *event = &t->events[i];
        int32_t op = ht_trace_op(t, i), rank = ht_op_rank(s, op);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            if (!(f->flags & (grant ? HT_PRODUCE : HT_RELEASE)) || ht_space(s, f->tier, rank) != space) continue;
            int64_t bytes = ht_effect_bytes(s, f);
            now.by_class[s->tensors[f->tensor].class] += grant ? bytes : -bytes;
            moved = moved || bytes;
        }
        if (!moved) continue;
        /* A real run takes its time stamps outside the lock, so the curve must be kept from running backwards. */
        int64_t time_ns = grant ? event->issue_ns : event->end_ns;
        if (time_ns > now.time_ns) now.time_ns = time_ns;
        HT_PUSH(*samples, n, cap, now);
    }
    free(order);
    return n;
}

static int64_t sum_of(const int64_t *by_class)
{
    int64_t sum = 0;
    for (int c = 0; c < HT_N_TENSOR_CLASSES; c++) sum += by_class[c];
    return sum;
}

void ht_trace_peaks(const struct ht_trace *t, int64_t (*by_class)[HT_N_TENSOR_CLASSES])
{
    const struct ht_schedule *s = t->schedule;
    int32_t n_spaces = ht_n_spaces(s);
    int64_t *order, *most = HT_NEW_ARRAY(int64_t, n_spaces);
    int64_t(*now)[HT_N_TENSOR_CLASSES] = ht_alloc_array((size_t)n_spaces, sizeof(*now));
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_tensor *tensor = &s->tensors[s->residents[i].tensor];
        now[ht_space(s, s->residents[i].tier, s->residents[i].rank)][tensor->class] +=
            ht_resident_bytes(s, &s->residents[i]);
    }
    memcpy(by_class, now, (size_t)n_spaces * sizeof(*now));
    int32_t left = 0; /* spaces that have not come to the run's peak */
    for (int32_t space = 0; space < n_spaces; space++) {
        most[space] = sum_of(now[space]);
        left += most[space] < t->peak_bytes[space];
    }
    int64_t n = put_in_order(t, NULL, &order) == HT_OK ? 2 * t->n_events : 0;
    for (int64_t seq = 0; left && seq < n; seq++) {
        if (!order[seq]) continue;
        bool grant = order[seq] > 0;
        int32_t op = ht_trace_op(t, (grant ? order[seq] : -order[seq]) - 1), rank = ht_op_rank(s, op);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            const struct ht_effect *f = &s->effects[e];
            const struct ht_tensor *tensor = &s->tensors[f->tensor];
            if (!(f->flags & (grant ? HT_PRODUCE : HT_RELEASE))) continue;
            now[ht_space(s, f->tier, rank)][tensor->class] += (grant ? 1 : -1) * ht_effect_bytes(s, f);
        }
        for (int64_t e = s->effects_begin[op]; grant && e < s->effects_begin[op + 1]; e++) {
            int32_t space = ht_space(s, s->effects[e].tier, rank);
            int64_t live = sum_of(now[space]);
            if (live <= most[space]) continue;
            most[space] = live;
            left -= live == t->peak_bytes[space];
            memcpy(by_class[space], now[space], sizeof(now[space]));
        }
    }
    if (n) free(order);
    free(most);
    free(now);
}
