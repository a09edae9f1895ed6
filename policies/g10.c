/*
 * G10: Zhang et al., "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture with Smart Tensor
 * Migrations", MICRO 2023; where the paper leaves a choice, its simulator (github: platformxlab/G10, src/analysis.cc).
 *
 * Every tensor has inactive periods between its uses. Nothing is recomputed. While more waits on the GPU than fits:
 *
 *     evict     the period that takes most off the time in which memory is exceeded: size x the part of the period,
 *               between the end of its eviction and the begin of its prefetch, in which memory is exceeded; of equals
 *               the largest size x period
 *     where to  the SSDs; main memory if the SSDs are busy when the period begins and main memory has room
 *     prefetch  as late as the reserved bandwidth allows; a period too short for both transfers is not used
 *
 * If that does not suffice, periods that contain the peak are evicted to the SSDs by falling size x period, and the GPU
 * waits for them.
 *
 * Departures. The paper moves prefetches forward into free memory; here they keep their latest time. Bytes for the SSDs
 * pass through main memory, since GPUs of this class have no GPUDirect (LoHan, Sec. III-C); they move at the rate of
 * the slower of the two links, and evictions to main memory have what is left of the GPU's link, as in the authors'
 * simulator. Parameters and optimizer states are the system's to place.
 */
#include "policies/timeline.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>

/* Holds a period that may be evicted, and the area that this took off when the planner last looked at it. */
struct period {
    double area; /* bytes x s of exceeded time */
    int32_t i;
};

struct planner {
    const struct ht_policy_case *c;
    enum ht_fate *fates;
    struct period *heap; /* the best first, by is_better */
    int32_t n_heap;
    struct policy_order by_volume;
    struct policy_timeline timeline;
    struct policy_lane ssd_out, ssd_in, main_out, main_in;
    double main_left;
};

static bool is_open(const struct policy_lane *out, const struct policy_lane *in)
{
    return out->bytes_per_s > 0 && in->bytes_per_s > 0;
}

/* Returns when an activation would have left the GPU and when it would begin to come back, by which candidates are
   compared: over the SSDs' lanes, or main memory's if there are no SSDs. */
static struct policy_swap swap_of(const struct planner *q, const struct ht_activation *a)
{
    return is_open(&q->ssd_out, &q->ssd_in) ? policy_swap_of(a, &q->ssd_out, &q->ssd_in)
                                            : policy_swap_of(a, &q->main_out, &q->main_in);
}

static double volume(const struct ht_activation *a)
{
    return a->bytes * (a->used_s - a->made_s);
}

static double area_of(const struct planner *q, int32_t i)
{
    const struct ht_activation *a = &q->c->a[i];
    struct policy_swap s = swap_of(q, a);
    return a->bytes * policy_timeline_over(&q->timeline, s.out_s, s.in_s);
}

static bool is_better(const struct planner *q, const struct period *x, const struct period *y)
{
    if (x->area != y->area) return x->area > y->area;
    double v = volume(&q->c->a[x->i]), w = volume(&q->c->a[y->i]);
    return v != w ? v > w : x->i < y->i;
}

/* Restores the order of the heap below element k. */
static void sift(struct planner *q, int32_t k)
{
    struct period x = q->heap[k];
    for (int32_t child; (child = 2 * k + 1) < q->n_heap; k = child) {
        if (child + 1 < q->n_heap && is_better(q, &q->heap[child + 1], &q->heap[child])) child++;
        if (!is_better(q, &q->heap[child], &x)) break;
        q->heap[k] = q->heap[child];
    }
    q->heap[k] = x;
}

static void fill_heap(struct planner *q)
{
    for (int32_t i = 0; i < q->c->n; i++) q->heap[q->n_heap++] = (struct period){area_of(q, i), i};
    for (int32_t k = q->n_heap / 2; k-- > 0;) sift(q, k);
}

/* Takes the period to evict next from the heap, or returns -1. Evictions fill the lanes and take off exceeded time, so
   areas only shrink: if the first one is still first by its area of now, it is the best. */
static int32_t best_period(struct planner *q)
{
    while (q->n_heap && q->heap[0].area > 0) {
        struct period x = {area_of(q, q->heap[0].i), q->heap[0].i};
        bool stays = x.area == q->heap[0].area;
        q->heap[0] = stays ? q->heap[--q->n_heap] : x;
        sift(q, 0);
        if (stays) return x.i;
    }
    return -1;
}

/* Returns true if the SSDs have no time for an activation right when it is made, and main memory takes it. */
static bool goes_to_main(const struct planner *q, const struct ht_activation *a)
{
    if (!is_open(&q->main_out, &q->main_in) || a->bytes > q->main_left) return false;
    if (!is_open(&q->ssd_out, &q->ssd_in)) return true;
    return !policy_lane_is_free(&q->ssd_out, a->made_s, a->made_s + a->bytes / q->ssd_out.bytes_per_s);
}

static void evict(struct planner *q, int32_t i)
{
    const struct ht_activation *a = &q->c->a[i];
    bool to_main = goes_to_main(q, a);
    struct policy_lane *out = to_main ? &q->main_out : &q->ssd_out, *in = to_main ? &q->main_in : &q->ssd_in;
    if (!is_open(out, in)) return;
    struct policy_swap s = policy_swap_of(a, out, in);
    if (s.in_s <= s.out_s) return;
    policy_swap_reserve(a, s, out, in);
    policy_timeline_remove(&q->timeline, s.out_s, s.in_s, a->bytes);
    q->fates[i] = to_main ? HT_FATE_MAIN : HT_FATE_SSD;
    if (to_main) q->main_left -= a->bytes;
}

/* Evicts the largest period that contains the peak, for the GPU to wait for. Returns false if there is none. */
static bool evict_exposed(struct planner *q, int32_t peak)
{
    bool ssd = is_open(&q->ssd_out, &q->ssd_in);
    struct policy_order *o = &q->by_volume;
    for (int32_t i, *at = &o->first; (i = policy_order_at(o, at, q->fates)) >= 0; at = &o->next[i]) {
        const struct ht_activation *a = &q->c->a[i];
        if (!policy_slot_within(&q->timeline, peak, a->made_s, a->used_s)) continue;
        if (!ssd && a->bytes > q->main_left) continue;
        policy_timeline_remove(&q->timeline, a->made_s, a->used_s, a->bytes);
        q->fates[i] = ssd ? HT_FATE_SSD : HT_FATE_MAIN;
        if (!ssd) q->main_left -= a->bytes;
        return true;
    }
    return false;
}

static enum ht_status plan(struct planner *q, struct ht_error *err)
{
    bool ssd = is_open(&q->ssd_out, &q->ssd_in);
    int32_t i, peak;
    if (policy_timeline_peak(&q->timeline) >= 0 && !ssd && q->main_left == 0)
        return ht_fail(err, HT_INFEASIBLE, "G10 has neither SSDs nor main memory to evict activations to");
    fill_heap(q);
    while (policy_timeline_peak(&q->timeline) >= 0 && (i = best_period(q)) >= 0) evict(q, i);
    while ((peak = policy_timeline_peak(&q->timeline)) >= 0)
        if (!evict_exposed(q, peak)) policy_timeline_give_up(&q->timeline, peak);
    return HT_OK;
}

enum ht_status ht_policy_g10(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates)
{
    enum ht_status status = ht_policy_check(c, err);
    if (status) return status;
    bool ssd = c->ssd_write_bytes_per_s > 0 && c->ssd_read_bytes_per_s > 0;
    double write = ssd ? fmin(c->out_bytes_per_s, c->ssd_write_bytes_per_s) : 0;
    double read = ssd ? fmin(c->in_bytes_per_s, c->ssd_read_bytes_per_s) : 0;
    struct planner q = {.c = c,
                        .fates = fates,
                        .heap = HT_NEW_ARRAY(struct period, c->n),
                        .ssd_out = {.bytes_per_s = write},
                        .ssd_in = {.bytes_per_s = read},
                        .main_out = {.bytes_per_s = c->out_bytes_per_s - write},
                        .main_in = {.bytes_per_s = c->in_bytes_per_s - read},
                        .main_left = c->main_bytes};
    double *key = HT_NEW_ARRAY(double, c->n);
    for (int32_t i = 0; i < c->n; i++) {
        fates[i] = HT_FATE_KEPT;
        key[i] = volume(&c->a[i]);
    }
    q.by_volume = policy_order(key, c->n);
    policy_timeline_init(&q.timeline, c);
    status = plan(&q, err);
    policy_timeline_free(&q.timeline);
    free(q.ssd_out.spans);
    free(q.ssd_in.spans);
    free(q.main_out.spans);
    free(q.main_in.spans);
    free(q.heap);
    free(key);
    free(q.by_volume.next);
    return status;
}
