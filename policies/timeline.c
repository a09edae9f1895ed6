#include "policies/timeline.h"

#include "common/base/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lanes ----------------------------------------------------------------------------------------------------- */

/* Returns the first span that ends after a time, or n. */
static int32_t first_after(const struct policy_lane *lane, double at_s)
{
    int32_t low = 0, high = lane->n;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (lane->spans[middle].end_s <= at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

double policy_lane_end(const struct policy_lane *lane, double from_s, double bytes)
{
    double at = from_s, left = bytes / lane->bytes_per_s;
    for (int32_t i = first_after(lane, at); i < lane->n; i++) {
        const struct policy_span *x = &lane->spans[i];
        if (x->begin_s - at >= left) break;
        left -= fmax(0, x->begin_s - at);
        at = x->end_s;
    }
    return at + left;
}

double policy_lane_begin(const struct policy_lane *lane, double until_s, double bytes)
{
    double at = until_s, left = bytes / lane->bytes_per_s;
    int32_t i = first_after(lane, at);
    if (i == lane->n || lane->spans[i].begin_s >= at) i--;
    for (; i >= 0; i--) {
        const struct policy_span *x = &lane->spans[i];
        if (at - x->end_s >= left) break;
        left -= fmax(0, at - x->end_s);
        at = x->begin_s;
    }
    return at - left;
}

bool policy_lane_is_free(const struct policy_lane *lane, double begin_s, double end_s)
{
    int32_t i = first_after(lane, begin_s);
    return i == lane->n || lane->spans[i].begin_s >= end_s;
}

void policy_lane_reserve(struct policy_lane *lane, double begin_s, double end_s)
{
    int32_t first = first_after(lane, begin_s), last;
    if (first > 0 && lane->spans[first - 1].end_s == begin_s) first--;
    for (last = first; last < lane->n && lane->spans[last].begin_s <= end_s; last++) {
        begin_s = fmin(begin_s, lane->spans[last].begin_s);
        end_s = fmax(end_s, lane->spans[last].end_s);
    }
    HT_RESERVE(lane->spans, lane->cap, lane->n + 1);
    memmove(lane->spans + first + 1, lane->spans + last, sizeof *lane->spans * (size_t)(lane->n - last));
    lane->spans[first] = (struct policy_span){begin_s, end_s};
    lane->n += 1 - (last - first);
}

struct policy_swap policy_swap_of(const struct ht_activation *a, const struct policy_lane *out,
                                  const struct policy_lane *in)
{
    return (struct policy_swap){.out_s = policy_lane_end(out, a->made_s, a->bytes),
                                .in_s = policy_lane_begin(in, a->used_s, a->bytes)};
}

void policy_swap_reserve(const struct ht_activation *a, struct policy_swap s, struct policy_lane *out,
                         struct policy_lane *in)
{
    policy_lane_reserve(out, a->made_s, s.out_s);
    policy_lane_reserve(in, s.in_s, a->used_s);
}

/* ---- slots ----------------------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Describes all slots below a node. Subtract `removed` of the nodes above it from both counts of bytes. */
struct policy_slots {
    double most;       /* bytes that wait in the fullest slot */
    double least_over; /* in the emptiest of those in which more waits than fits; INFINITY: there are none */
    double over_s;     /* time of those */
    double removed;    /* bytes, from all of them */
};

/* Sums of sizes up to 2^53 are exact; beyond that a byte in 2^50 is no reason to evict. */
static double limit(const struct policy_timeline *t)
{
    return t->device_bytes * (1 + 1e-15);
}

static void join(struct policy_timeline *t, int32_t node)
{
    const struct policy_slots *a = &t->nodes[2 * node], *b = &t->nodes[2 * node + 1];
    struct policy_slots *x = &t->nodes[node];
    x->most = fmax(a->most, b->most) - x->removed;
    x->least_over = fmin(a->least_over, b->least_over) - x->removed;
    x->over_s = a->over_s + b->over_s;
}

/* Removes bytes from slots [first, end) below a node, which has slots [low, low + width). */
static void take(struct policy_timeline *t, int32_t node, int32_t low, int32_t width, int32_t first, int32_t end,
                 double bytes)
{
    struct policy_slots *x = &t->nodes[node];
    if (end <= low || low + width <= first) return;
    if (first <= low && low + width <= end) {
        x->most -= bytes;
        x->least_over -= bytes;
        x->removed += bytes;
        return;
    }
    take(t, 2 * node, low, width / 2, first, end, bytes);
    take(t, 2 * node + 1, low + width / 2, width / 2, first, end, bytes);
    join(t, node);
}

/* Finds the slots below a node in which everything fits by now. removed: at the nodes above it. A slot is found once. */
static void settle(struct policy_timeline *t, int32_t node, double removed)
{
    struct policy_slots *x = &t->nodes[node];
    if (x->least_over - removed > limit(t)) return;
    if (node >= t->leaves) {
        x->least_over = INFINITY;
        x->over_s = 0;
        return;
    }
    settle(t, 2 * node, removed + x->removed);
    settle(t, 2 * node + 1, removed + x->removed);
    join(t, node);
}

static double sum_over(const struct policy_timeline *t, int32_t node, int32_t low, int32_t width, int32_t first,
                       int32_t end)
{
    if (end <= low || low + width <= first) return 0;
    if (first <= low && low + width <= end) return t->nodes[node].over_s;
    return sum_over(t, 2 * node, low, width / 2, first, end) +
           sum_over(t, 2 * node + 1, low + width / 2, width / 2, first, end);
}

/* Returns the first boundary that is not before a time. */
static int32_t boundary(const struct policy_timeline *t, double at_s)
{
    int32_t low = 0, high = t->n + 1;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (t->at_s[middle] < at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the end of the slots that end by a time. */
static int32_t slots_until(const struct policy_timeline *t, double at_s)
{
    int32_t k = boundary(t, at_s);
    return k > t->n || t->at_s[k] > at_s ? k - 1 : k;
}

void policy_timeline_init(struct policy_timeline *t, const struct ht_policy_case *c)
{
    int32_t ends = 2 * c->n, distinct = 0;
    *t = (struct policy_timeline){.at_s = HT_NEW_ARRAY(double, ends + 1), .device_bytes = c->device_bytes, .leaves = 1};
    for (int32_t i = 0; i < c->n; i++) {
        t->at_s[2 * i] = c->a[i].made_s;
        t->at_s[2 * i + 1] = c->a[i].used_s;
    }
    qsort(t->at_s, (size_t)ends, sizeof *t->at_s, ascending);
    for (int32_t i = 0; i < ends; i++)
        if (i == 0 || t->at_s[i] > t->at_s[distinct - 1]) t->at_s[distinct++] = t->at_s[i];
    t->n = distinct ? distinct - 1 : 0;
    while (t->leaves < t->n) t->leaves *= 2;
    t->nodes = HT_NEW_ARRAY(struct policy_slots, 2 * t->leaves);
    double *change = HT_NEW_ARRAY(double, t->n + 1), waiting = 0; /* of bytes, at a boundary */
    for (int32_t i = 0; i < c->n; i++) {
        change[boundary(t, c->a[i].made_s)] += c->a[i].bytes;
        change[boundary(t, c->a[i].used_s)] -= c->a[i].bytes;
    }
    for (int32_t k = 0; k < t->leaves; k++) {
        waiting = k < t->n ? waiting + change[k] : 0;
        bool over = waiting > limit(t);
        t->nodes[t->leaves + k] = (struct policy_slots){.most = k < t->n ? waiting : -INFINITY,
                                                        .least_over = over ? waiting : INFINITY,
                                                        .over_s = over ? t->at_s[k + 1] - t->at_s[k] : 0};
    }
    for (int32_t node = t->leaves - 1; node > 0; node--) join(t, node);
    free(change);
}

void policy_timeline_free(struct policy_timeline *t)
{
    free(t->at_s);
    free(t->nodes);
}

int32_t policy_timeline_peak(const struct policy_timeline *t)
{
    int32_t node = 1;
    if (!(t->nodes[1].most > limit(t))) return -1;
    while (node < t->leaves) {
        node *= 2;
        if (t->nodes[node + 1].most > t->nodes[node].most) node++;
    }
    return node - t->leaves;
}

void policy_timeline_give_up(struct policy_timeline *t, int32_t slot)
{
    take(t, 1, 0, t->leaves, slot, slot + 1, INFINITY);
    settle(t, 1, 0);
}

bool policy_slot_within(const struct policy_timeline *t, int32_t slot, double begin_s, double end_s)
{
    return t->at_s[slot] >= begin_s && t->at_s[slot + 1] <= end_s;
}

void policy_timeline_remove(struct policy_timeline *t, double begin_s, double end_s, double bytes)
{
    take(t, 1, 0, t->leaves, boundary(t, begin_s), slots_until(t, end_s), bytes);
    settle(t, 1, 0);
}

double policy_timeline_over(const struct policy_timeline *t, double begin_s, double end_s)
{
    return sum_over(t, 1, 0, t->leaves, boundary(t, begin_s), slots_until(t, end_s));
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

struct keyed {
    double key;
    int32_t index;
};

static int falling(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? 1 : -1;
    return x->index - y->index;
}

struct policy_order policy_order(const double *key, int32_t n)
{
    struct policy_order order = {.next = HT_NEW_ARRAY(int32_t, n)};
    int32_t *link = &order.first;
    struct keyed *x = HT_NEW_ARRAY(struct keyed, n);
    for (int32_t i = 0; i < n; i++) x[i] = (struct keyed){key[i], i};
    qsort(x, (size_t)n, sizeof *x, falling);
    for (int32_t i = 0; i < n; i++) {
        *link = x[i].index;
        link = &order.next[x[i].index];
    }
    *link = -1;
    free(x);
    return order;
}

int32_t policy_order_at(const struct policy_order *order, int32_t *link, const enum ht_fate *fates)
{
    while (*link >= 0 && fates[*link] != HT_FATE_KEPT) *link = order->next[*link];
    return *link;
}

/* ---- cases ----------------------------------------------------------------------------------------------------- */

static enum ht_status check_activation(const struct ht_activation *a, int32_t i, struct ht_error *err)
{
    if (!(a->bytes > 0) || !isfinite(a->bytes))
        return ht_fail(err, HT_BAD_INPUT, "activation %d has %g bytes; expected more than 0", (int)i, a->bytes);
    if (!(a->recompute_s >= 0))
        return ht_fail(err, HT_BAD_INPUT, "activation %d takes %g s to recompute; expected 0 or more", (int)i,
                       a->recompute_s);
    if (!(a->made_s >= 0) || !isfinite(a->used_s) || !(a->used_s > a->made_s))
        return ht_fail(err, HT_BAD_INPUT, "activation %d is made at %g s and used at %g s; expected a later use",
                       (int)i, a->made_s, a->used_s);
    return HT_OK;
}

enum ht_status ht_policy_check(const struct ht_policy_case *c, struct ht_error *err)
{
    const struct {
        const char *name;
        double value;
        bool positive;
    } all[] = {{"forward_s", c->forward_s, false},
               {"backward_s", c->backward_s, false},
               {"out_bytes_per_s", c->out_bytes_per_s, true},
               {"in_bytes_per_s", c->in_bytes_per_s, true},
               {"ssd_write_bytes_per_s", c->ssd_write_bytes_per_s, false},
               {"ssd_read_bytes_per_s", c->ssd_read_bytes_per_s, false},
               {"device_bytes", c->device_bytes, false},
               {"main_bytes", c->main_bytes, false}};
    for (size_t i = 0; i < HT_COUNT(all); i++) {
        double v = all[i].value;
        if (!isfinite(v) || v < 0 || (all[i].positive && v == 0))
            return ht_fail(err, HT_BAD_INPUT, "%s is %g; expected a number %s", all[i].name, v,
                           all[i].positive ? "above 0" : "of 0 or more");
    }
    for (int32_t i = 0; i < c->n; i++) {
        enum ht_status status = check_activation(&c->a[i], i, err);
        if (status) return status;
    }
    return HT_OK;
}

struct ht_policy_sums ht_policy_sum(const struct ht_policy_case *c, const enum ht_fate *fates)
{
    struct ht_policy_sums s = {0};
    for (int32_t i = 0; i < c->n; i++) {
        s.bytes[fates[i]] += c->a[i].bytes;
        if (fates[i] == HT_FATE_RECOMPUTED) s.recompute_s += c->a[i].recompute_s;
    }
    return s;
}

void ht_policy_begins(const struct ht_policy_case *c, const enum ht_fate *fates, double *used_s, double *in_s)
{
    double ssd = fmin(c->in_bytes_per_s, c->ssd_read_bytes_per_s), later_s = 0;
    struct policy_lane link = {.bytes_per_s = c->in_bytes_per_s}, disk = {.bytes_per_s = ssd};
    for (int32_t i = c->n - 1, first; i >= 0; i = first - 1) {
        for (first = i; first > 0 && c->a[first - 1].block == c->a[i].block;) first--;
        for (int32_t k = first; k <= i; k++) used_s[k] = c->a[k].used_s + later_s;
        for (int32_t k = first; k <= i; k++)
            if (fates[k] == HT_FATE_RECOMPUTED) later_s += c->a[k].recompute_s;
    }
    for (int32_t i = 0; i < c->n; i++) { /* the last used come first */
        bool swapped = fates[i] == HT_FATE_MAIN || fates[i] == HT_FATE_SSD;
        struct policy_lane *lane = fates[i] == HT_FATE_SSD ? &disk : &link;
        in_s[i] = used_s[i];
        if (!swapped || lane->bytes_per_s == 0) continue;
        in_s[i] = policy_lane_begin(lane, used_s[i], c->a[i].bytes);
        policy_lane_reserve(lane, in_s[i], used_s[i]);
    }
    free(link.spans);
    free(disk.spans);
}
