/* The window of a space and its tree: where groups are granted beyond the frontier. grant_rule.h has the rule, grant_build.c creates
   what it reads. */
#include "common/exec/grant_state.h"

#include "common/base/array.h"
#include "common/base/minmax.h"

#include <stdlib.h>

#define NONE (INT64_MIN / 4) /* `best` of a node without ungranted places: survives adding any sum of bytes */

static int64_t *net_at(const struct space *sp, int64_t place)
{
    return &sp->net[place & (sp->window - 1)];
}

static struct node join(struct node l, struct node r)
{
    int64_t through = l.best + r.sum;
    return (struct node){l.sum + r.sum, through > r.best ? through : r.best};
}

static struct node leaf(const struct space *sp, int64_t place)
{
    int64_t net = *net_at(sp, place);
    return net == HT_NOT_GRANTED ? (struct node){0, sp->need[place % sp->n]} : (struct node){net, NONE};
}

/* Updates the tree after a change of a place's group. */
static void update(struct space *sp, int64_t place)
{
    struct node *t = sp->tree;
    int64_t i = sp->window + (place & (sp->window - 1));
    t[i] = leaf(sp, place);
    for (i /= 2; i >= 1; i /= 2) t[i] = join(t[2 * i], t[2 * i + 1]);
}

static void plant(struct space *sp)
{
    struct node *t = sp->tree = HT_NEW_ARRAY(struct node, 2 * (size_t)sp->window);
    for (int64_t p = sp->frontier; p < sp->frontier + sp->window; p++)
        t[sp->window + (p & (sp->window - 1))] = leaf(sp, p);
    for (int32_t i = sp->window - 1; i >= 1; i--) t[i] = join(t[2 * i], t[2 * i + 1]);
}

/* Widens the window until it has the place. */
static void widen(struct space *sp, int64_t place)
{
    struct space old = *sp;
    int32_t window = sp->window;
    while (place - sp->frontier >= window) window *= 2;
    if (window == old.window) return;
    ht_grants_open_window(sp, window);
    for (int64_t p = old.frontier; p < old.frontier + old.window; p++) *net_at(sp, p) = *net_at(&old, p);
    free(old.net);
    free(old.tree);
    if (old.tree) plant(sp);
}

/* Returns the sum of net over the slots [from, to). */
static int64_t sum_slots(const struct space *sp, int64_t from, int64_t to)
{
    int64_t sum = 0;
    for (int64_t l = sp->window + from, r = sp->window + to; l < r; l /= 2, r /= 2) {
        if (l & 1) sum += sp->tree[l++].sum;
        if (r & 1) sum += sp->tree[--r].sum;
    }
    return sum;
}

/* Returns the sum of net over places from `place` to the window's end, which may go over its last slot. */
static int64_t sum_behind(const struct space *sp, int64_t place)
{
    int64_t first = place & (sp->window - 1), end = sp->frontier & (sp->window - 1);
    return first >= end ? sum_slots(sp, first, sp->window) + sum_slots(sp, 0, end) : sum_slots(sp, first, end);
}

/* A search for the last ungranted slot whose need, with what is granted behind it, exceeds `room`. */
struct search {
    const struct node *tree;
    int64_t room, extra; /* extra: sum of net behind what is still to be searched */
    int32_t from, to;    /* slots */
};

/* Searches the slots [low, high) of a node, last to first. Returns the slot, or -1. */
static int32_t search_node(struct search *q, int32_t node, int32_t low, int32_t high)
{
    if (high <= q->from || low >= q->to) return -1;
    if (low >= q->from && high <= q->to && q->tree[node].best + q->extra <= q->room) {
        q->extra += q->tree[node].sum;
        return -1;
    }
    if (high - low == 1) return low;
    int32_t middle = low + (high - low) / 2, found = search_node(q, 2 * node + 1, middle, high);
    return found >= 0 ? found : search_node(q, 2 * node, low, middle);
}

/* Searches places [from, to) of the window, which may go over its last slot. Returns the place, or -1. */
static int64_t search_places(struct search *q, const struct space *sp, int64_t from, int64_t to)
{
    int64_t first = from & (sp->window - 1), end = first + (to - from), over = end - sp->window;
    int32_t slot = -1;
    if (over > 0) {
        q->from = 0, q->to = (int32_t)over;
        slot = search_node(q, 1, 0, sp->window);
    }
    if (slot < 0) {
        q->from = (int32_t)first, q->to = (int32_t)(over > 0 ? sp->window : end);
        slot = search_node(q, 1, 0, sp->window);
    }
    return slot < 0 ? -1 : from + ((slot - first) & (sp->window - 1));
}

int64_t ht_grants_last_blocked(struct ht_grants *g, struct space *sp, int64_t place, int64_t bytes, int64_t most)
{
    widen(sp, place);
    if (!sp->need) ht_grants_list_needs(g);
    if (!sp->tree) plant(sp);
    struct search q = {.tree = sp->tree, .room = most - bytes, .extra = sum_behind(sp, place)};
    return search_places(&q, sp, sp->frontier, place);
}

void ht_grants_advance(struct space *sp)
{
    do {
        int64_t *passed = net_at(sp, sp->frontier);
        sp->ahead -= ht_max(*passed, 0);
        *passed = HT_NOT_GRANTED;
        if (sp->tree) update(sp, sp->frontier + sp->window);
        sp->frontier++;
    } while (*net_at(sp, sp->frontier) != HT_NOT_GRANTED);
}

void ht_grants_put(struct space *sp, int64_t place, int64_t bytes)
{
    if (place - sp->frontier >= sp->window) widen(sp, place);
    *net_at(sp, place) = bytes;
    sp->ahead += bytes;
    if (sp->tree) update(sp, place);
}

void ht_grants_less(struct space *sp, int64_t place, int64_t bytes)
{
    int64_t *net = net_at(sp, place);
    sp->ahead -= ht_max(*net, 0);
    *net -= bytes;
    sp->ahead += ht_max(*net, 0);
    if (sp->tree) update(sp, place);
}

static void note_waiter(struct space *sp, const struct waiter *w)
{
    if (w->live > sp->wake_live) sp->wake_live = w->live;
    if (w->blocked < sp->wake_blocked) sp->wake_blocked = w->blocked;
}

void ht_grants_wait(struct space *sp, struct waiter waiter, bool again)
{
    int32_t i = 0;
    while (i < sp->n_waiters && sp->waiters[i].who != waiter.who) i++;
    note_waiter(sp, &waiter);
    if (i == sp->n_waiters) {
        HT_PUSH(sp->waiters, sp->n_waiters, sp->waiters_cap, waiter);
        return;
    }
    struct waiter *known = &sp->waiters[i];
    if (!again) {
        waiter.several = true;
        if (known->live > waiter.live) waiter.live = known->live;
        if (known->blocked < waiter.blocked) waiter.blocked = known->blocked;
    }
    *known = waiter;
}

/* Returns true if what was denied may be granted. */
static bool may_have(const struct space *sp, const struct waiter *w)
{
    if (sp->live <= w->live) return true;
    if (w->blocked == INT64_MAX) return false;
    if (sp->frontier > w->blocked || sp->last_released > w->blocked) return true;
    return w->several ? sp->last_granted >= w->blocked : *net_at(sp, w->blocked) != HT_NOT_GRANTED;
}

int32_t ht_grants_wake(struct ht_grants *g)
{
    while (!g->n_woken && g->n_changed) {
        struct space *sp = &g->spaces[g->changed[--g->n_changed]];
        int32_t left = 0;
        sp->changed = false;
        sp->wake_live = INT64_MIN;
        sp->wake_blocked = INT64_MAX;
        for (int32_t i = 0; i < sp->n_waiters; i++) {
            const struct waiter w = sp->waiters[i];
            if (may_have(sp, &w)) {
                HT_PUSH(g->woken, g->n_woken, g->woken_cap, w.who);
                continue;
            }
            note_waiter(sp, &w);
            sp->waiters[left++] = w;
        }
        sp->n_waiters = left;
        sp->last_granted = sp->last_released = -1;
    }
    return g->n_woken ? g->woken[--g->n_woken] : -1;
}

int64_t ht_grants_peak(const struct ht_grants *g, int32_t space)
{
    return g->spaces[space].peak;
}
