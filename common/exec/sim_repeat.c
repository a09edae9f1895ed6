#include "common/exec/sim_repeat.h"

#include "common/base/array.h"

#include <string.h>

enum { OF_LANE = 3 }; /* numbers of a lane beside its flow's */

void ht_sim_repeat_init(struct ht_sim_repeat *r, const struct ht_sim_parts *parts)
{
    *r = (struct ht_sim_repeat){.core_bytes = ht_core_state_bytes(parts->core), .ended = -1};
    r->bytes = r->core_bytes + (size_t)parts->n_lanes * (OF_LANE + HT_FLOW_STATE) * sizeof(int64_t);
    r->now = HT_NEW_ARRAY(char, r->bytes);
    r->before = HT_NEW_ARRAY(char, r->bytes);
}

void ht_sim_repeat_free(struct ht_sim_repeat *r)
{
    free(r->now);
    free(r->before);
    *r = (struct ht_sim_repeat){0};
}

/* Writes what runs in a lane's slot, and when it ends if that is known; times from now, ids from the oldest iteration. */
static void copy_lane(const struct ht_sim_parts *parts, int32_t lane, int64_t now_ns, int64_t out[OF_LANE])
{
    int64_t first_id = (int64_t)ht_core_ended(parts->core) << 32;
    struct ht_sim_end end = parts->ends->of_slot[lane];
    out[0] = end.time_ns < HT_SIM_NO_END ? end.time_ns - now_ns : -1;
    out[1] = end.time_ns < HT_SIM_NO_END ? end.id - first_id : -1;
    out[2] = ht_flows_is_running(parts->flows, lane) ? parts->running[lane] - first_id : -1;
}

static void copy_state(struct ht_sim_repeat *r, const struct ht_sim_parts *parts, int64_t now_ns)
{
    char *out = r->now + r->core_bytes;
    ht_core_copy_state(parts->core, r->now);
    for (int32_t lane = 0; lane < parts->n_lanes; lane++) {
        int64_t numbers[OF_LANE + HT_FLOW_STATE];
        copy_lane(parts, lane, now_ns, numbers);
        ht_flows_copy_state(parts->flows, lane, now_ns, numbers + OF_LANE);
        memcpy(out, numbers, sizeof numbers);
        out += sizeof numbers;
    }
}

int64_t ht_sim_repeat_check(struct ht_sim_repeat *r, const struct ht_sim_parts *parts, int64_t now_ns)
{
    int32_t ended = ht_core_ended(parts->core);
    if (ended == r->ended) return 0;
    copy_state(r, parts, now_ns);
    bool repeats = r->ended >= 0 && ended == r->ended + 1 && !memcmp(r->now, r->before, r->bytes);
    int64_t period_ns = repeats ? now_ns - r->at_ns : 0;
    char *swap = r->now;
    r->now = r->before;
    r->before = swap;
    r->ended = ended;
    r->at_ns = now_ns;
    return period_ns;
}

/* Writes iteration `to` as the simulated iteration `from`, `periods` periods later, in each of which `step` grants and finishes are
   numbered. */
static void copy_iteration(struct ht_trace *t, int32_t from, int32_t to, int64_t periods, int64_t period_ns,
                           int64_t step)
{
    int64_t n_ops = t->schedule->n_ops, later_ns = periods * period_ns;
    const struct ht_trace_event *source = t->events + from * n_ops;
    struct ht_trace_event *event = t->events + to * n_ops;
    for (int64_t op = 0; op < n_ops; op++) {
        event[op] = source[op];
        if (event[op].grant_seq < 0) continue; /* skipped: it has no times */
        event[op].issue_ns += later_ns;
        event[op].start_ns += later_ns;
        event[op].end_ns += later_ns;
        event[op].grant_seq += periods * step;
        event[op].release_seq += periods * step;
    }
    t->iteration_end_ns[to] = t->iteration_end_ns[from] + later_ns;
}

void ht_sim_repeat_fill(struct ht_trace *trace, int32_t n, int64_t period_ns)
{
    int64_t n_ops = trace->schedule->n_ops, step = 0;
    const struct ht_trace_event *events = trace->events + (n - 2) * n_ops;
    for (int64_t op = 0; op < n_ops; op++) step += 2 * (events[op].grant_seq >= 0);
    copy_iteration(trace, n - 1, trace->iterations - 1, trace->iterations - n, period_ns, step);
    for (int32_t k = n - 1; k < trace->iterations - 1; k++) copy_iteration(trace, n - 2, k, k - n + 2, period_ns, step);
}
