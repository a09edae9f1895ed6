/*
 * Capuchin: Peng et al., "Capuchin: Tensor-based GPU Memory Management for Deep Learning", ASPLOS 2020.
 *
 * A measured iteration gives the times of each tensor's uses (its Sec. 4). Between two uses a tensor can be swapped or
 * recomputed:
 *
 *     free time    FT = SwapInStartTime - SwapOutEndTime                                             (1)
 *     savings      MSPS = bytes / recomputation time                                                 (2)
 *
 * The policy tries to swap first, for a transfer that hides costs nothing. While the peak exceeds the memory: of the
 * tensors that wait at the peak, in the order of falling FT, it swaps the first whose transfers fit between its two
 * uses on a link that earlier choices have partly reserved. Where no transfer fits, it recomputes the tensor of the
 * highest MSPS. Where nothing can be recomputed either, it swaps one by transfers that the GPU waits for.
 *
 * As in the paper, the link carries nothing but activations, and memory holds nothing else that moves.
 *
 * Departures. Blocks' inputs cannot be recomputed here, so main memory keeps room for them. FT in the order is that of
 * a free link. A transfer relieves a peak only if it has ended before it, so that swapping stops where the link cannot
 * keep up, and not only where a tensor comes back late. A block's missing parts are recomputed in one op, from the
 * nearest ones that are there, so recomputation times add up and MSPS need not be corrected when a predecessor is
 * dropped (the paper's Algorithm 2). The paper moves swap-ins by feedback over iterations; here they begin as late as
 * the model allows (ht_policy_begins).
 */
#include "policies/timeline.h"

#include "common/base/array.h"
#include "common/base/interrupt.h"

#include <math.h>
#include <stdlib.h>

struct planner {
    const struct ht_policy_case *c;
    enum ht_fate *fates;
    struct policy_timeline timeline;
    struct policy_lane out, in;
    struct policy_order by_free_time, by_savings;
    double main_left, reserved; /* reserved: for what can only be swapped */
};

/* Returns true if main memory has room. What can be recomputed leaves room for what cannot. */
static bool has_room(const struct planner *q, const struct ht_activation *a)
{
    return a->bytes <= (isinf(a->recompute_s) ? q->main_left : q->main_left - q->reserved);
}

/* Gives an activation main memory. */
static void take_room(struct planner *q, int32_t i)
{
    q->fates[i] = HT_FATE_MAIN;
    q->main_left -= q->c->a[i].bytes;
    if (isinf(q->c->a[i].recompute_s)) q->reserved -= q->c->a[i].bytes;
}

/* Returns true if an activation that is kept waits on the GPU in this slot. */
static bool waits(const struct planner *q, int32_t i, int32_t slot)
{
    const struct ht_activation *a = &q->c->a[i];
    return policy_slot_within(&q->timeline, slot, a->made_s, a->used_s);
}

/* Swaps the first activation whose transfers hide and relieve the peak. */
static bool swap_hidden(struct planner *q, int32_t peak)
{
    struct policy_order *o = &q->by_free_time;
    for (int32_t i, *at = &o->first; (i = policy_order_at(o, at, q->fates)) >= 0; at = &o->next[i]) {
        const struct ht_activation *a = &q->c->a[i];
        if (!waits(q, i, peak) || !has_room(q, a)) continue;
        struct policy_swap s = policy_swap_of(a, &q->out, &q->in);
        if (!policy_slot_within(&q->timeline, peak, s.out_s, s.in_s)) continue;
        policy_swap_reserve(a, s, &q->out, &q->in);
        policy_timeline_remove(&q->timeline, s.out_s, s.in_s, a->bytes);
        take_room(q, i);
        return true;
    }
    return false;
}

static bool recompute(struct planner *q, int32_t peak)
{
    struct policy_order *o = &q->by_savings;
    for (int32_t i, *at = &o->first; (i = policy_order_at(o, at, q->fates)) >= 0; at = &o->next[i]) {
        const struct ht_activation *a = &q->c->a[i];
        if (!waits(q, i, peak) || isinf(a->recompute_s)) continue;
        policy_timeline_remove(&q->timeline, a->made_s, a->used_s, a->bytes);
        q->fates[i] = HT_FATE_RECOMPUTED;
        return true;
    }
    return false;
}

/* Swaps an activation whose transfers the GPU waits for. */
static bool swap_exposed(struct planner *q, int32_t peak)
{
    struct policy_order *o = &q->by_free_time;
    for (int32_t i, *at = &o->first; (i = policy_order_at(o, at, q->fates)) >= 0; at = &o->next[i]) {
        const struct ht_activation *a = &q->c->a[i];
        if (!waits(q, i, peak) || !has_room(q, a)) continue;
        policy_timeline_remove(&q->timeline, a->made_s, a->used_s, a->bytes);
        take_room(q, i);
        return true;
    }
    return false;
}

enum ht_status ht_policy_capuchin(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates)
{
    enum ht_status status = ht_policy_check(c, err);
    if (status) return status;
    struct planner q = {.c = c,
                        .fates = fates,
                        .out = {.bytes_per_s = c->out_bytes_per_s},
                        .in = {.bytes_per_s = c->in_bytes_per_s},
                        .main_left = c->main_bytes};
    double *key = HT_NEW_ARRAY(double, c->n);
    for (int32_t i = 0; i < c->n; i++) {
        const struct ht_activation *a = &c->a[i];
        struct policy_swap s = policy_swap_of(a, &q.out, &q.in);
        fates[i] = HT_FATE_KEPT;
        if (isinf(a->recompute_s)) q.reserved += a->bytes;
        key[i] = s.in_s - s.out_s; /* eq. 1 */
    }
    q.by_free_time = policy_order(key, c->n);
    for (int32_t i = 0; i < c->n; i++) key[i] = c->a[i].bytes / c->a[i].recompute_s; /* eq. 2 */
    q.by_savings = policy_order(key, c->n);
    policy_timeline_init(&q.timeline, c);
    for (int32_t peak; (peak = policy_timeline_peak(&q.timeline)) >= 0 && !ht_interrupted();)
        if (!swap_hidden(&q, peak) && !recompute(&q, peak) && !swap_exposed(&q, peak))
            policy_timeline_give_up(&q.timeline, peak);
    policy_timeline_free(&q.timeline);
    free(q.out.spans);
    free(q.in.spans);
    free(q.by_free_time.next);
    free(q.by_savings.next);
    free(key);
    return ht_interrupted() ? ht_fail(err, HT_INTERRUPTED, "interrupted") : HT_OK;
}
