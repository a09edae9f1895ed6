/*
 * Max-min sharing, incrementally.
 *
 * Each resource keeps the list of its flows; each flow knows its position in those lists, so that removing it is a swap
 * with the last. Starting and finishing only edit lists and sums and mark resources. ht_flows_settle collects the
 * marked component breadth first and fills it progressively. A run has at most as many flows as lanes, so all of this
 * stays in the first cache levels.
 *
 *     demand  sum of ceil(max(cap, 1) a / 2^16)   charges of the flows at their caps
 *     weight  sum of a
 */
#include "common/exec/flow.h"

#include "common/base/array.h"
#include "common/base/minmax.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define FULL_SPEED ((uint64_t)1 << HT_FLOW_SPEED_BITS)

struct member {
    int32_t slot;
    int32_t use; /* index into the flow's uses */
};

struct resource {
    uint64_t capacity, demand, weight;
    struct member *members;
    int32_t n;
    size_t cap;
    bool tight, marked;
    /* during a filling */
    bool listed;
    uint64_t left, open_weight, share;
};

struct flow {
    const struct ht_flow_use *uses;
    int32_t n_uses;
    bool listed, is_new, frozen;
    uint64_t cap, speed, rate;
    int64_t left, at_ns, end_ns; /* work left at time at_ns */
};

struct ht_flows {
    struct resource *resources;
    struct flow *flows;
    int32_t *position; /* [n_slots * max_uses]: the flow's index in the resource's list */
    int32_t n_resources, n_slots, max_uses;
    int32_t *marked, n_marked; /* resources to settle */
    int32_t *new_flows, n_new; /* flows without an end yet */
    int32_t *todo, *tight;     /* scratch: the component's flows and tight resources */
};

int64_t ht_flow_per_giga(int64_t a, int64_t b)
{
    /* Long division with the digits 32000 and 31250, whose product is 1e9: remainders stay below 2^60. */
    int64_t q = a / b, r = a % b;
    if (q > INT64_MAX / 1000000000 - 1) return INT64_MAX;
    int64_t high = r * 32000 / b, low = r * 32000 % b * 31250 / b;
    return q * 1000000000 + high * 31250 + low;
}

int64_t ht_flow_per_giga_up(int64_t a, int64_t b)
{
    int64_t q = ht_flow_per_giga(a, b);
    if (q == INT64_MAX) return q;
    return q + ((a % b * 32000 % b * 31250 % b) != 0);
}

enum ht_status ht_flows_create(int32_t n_resources, const int64_t *capacity_per_s, int32_t n_slots, int32_t max_uses,
                               struct ht_error *err, struct ht_flows **out)
{
    for (int32_t r = 0; r < n_resources; r++)
        if (capacity_per_s[r] < 1 || capacity_per_s[r] >= HT_FLOW_MAX_CAPACITY)
            return ht_fail(err, HT_BAD_INPUT, "resource %d: capacity %lld per second; expected 1 to %lld", r,
                           (long long)capacity_per_s[r], (long long)HT_FLOW_MAX_CAPACITY - 1);
    struct ht_flows *f = HT_NEW(struct ht_flows);
    f->n_resources = n_resources;
    f->n_slots = n_slots;
    f->max_uses = max_uses;
    f->resources = HT_NEW_ARRAY(struct resource, n_resources);
    f->flows = HT_NEW_ARRAY(struct flow, n_slots);
    f->position = HT_NEW_ARRAY(int32_t, (int64_t)n_slots * max_uses);
    f->marked = HT_NEW_ARRAY(int32_t, n_resources);
    f->tight = HT_NEW_ARRAY(int32_t, n_resources);
    f->new_flows = HT_NEW_ARRAY(int32_t, n_slots);
    f->todo = HT_NEW_ARRAY(int32_t, n_slots);
    for (int32_t r = 0; r < n_resources; r++) f->resources[r].capacity = (uint64_t)capacity_per_s[r];
    *out = f;
    return HT_OK;
}

void ht_flows_destroy(struct ht_flows *f)
{
    if (!f) return;
    for (int32_t r = 0; r < f->n_resources; r++) free(f->resources[r].members);
    free(f->resources);
    free(f->flows);
    free(f->position);
    free(f->marked);
    free(f->tight);
    free(f->new_flows);
    free(f->todo);
    free(f);
}

/* Marks an edited resource for settling if it was or has become tight. Returns true if so. */
static bool mark_if_tight(struct ht_flows *f, int32_t r)
{
    struct resource *res = &f->resources[r];
    bool tight = ht_flow_is_tight(res->demand, res->weight, res->capacity), touched = tight || res->tight;
    if (touched && !res->marked) {
        res->marked = true;
        f->marked[f->n_marked++] = r;
    }
    res->tight = tight;
    return touched;
}

bool ht_flows_start(struct ht_flows *f, int32_t slot, int64_t now_ns, int64_t cost_ns, int64_t cap,
                    const struct ht_flow_use *uses, int32_t n_uses)
{
    assert(slot >= 0 && slot < f->n_slots && n_uses <= f->max_uses && cost_ns > 0 && cost_ns < HT_FLOW_MAX_NS);
    struct flow *flow = &f->flows[slot];
    assert(!flow->uses);
    *flow = (struct flow){.uses = uses,
                          .n_uses = n_uses,
                          .cap = (uint64_t)cap,
                          .speed = FULL_SPEED,
                          .rate = (uint64_t)cap,
                          .left = cost_ns << HT_FLOW_SPEED_BITS,
                          .at_ns = now_ns,
                          .end_ns = ht_min(now_ns + cost_ns, HT_FLOW_NEVER_NS)};
    bool tight = false;
    for (int32_t k = 0; k < n_uses; k++) {
        struct resource *r = &f->resources[uses[k].resource];
        f->position[(int64_t)slot * f->max_uses + k] = r->n;
        HT_RESERVE(r->members, r->cap, r->n + 1);
        r->members[r->n++] = (struct member){.slot = slot, .use = k};
        r->demand += ht_flow_charge(cap > 0 ? (uint64_t)cap : 1, &uses[k]);
        r->weight += ht_flow_weight(&uses[k]);
        tight |= mark_if_tight(f, uses[k].resource);
    }
    flow->is_new = tight;
    if (tight) f->new_flows[f->n_new++] = slot;
    return !tight;
}

bool ht_flows_finish(struct ht_flows *f, int32_t slot)
{
    struct flow *flow = &f->flows[slot];
    bool tight = false;
    assert(flow->uses && !flow->is_new);
    for (int32_t k = 0; k < flow->n_uses; k++) {
        const struct ht_flow_use *use = &flow->uses[k];
        struct resource *r = &f->resources[use->resource];
        int32_t at = f->position[(int64_t)slot * f->max_uses + k];
        struct member last = r->members[--r->n];
        r->members[at] = last;
        f->position[(int64_t)last.slot * f->max_uses + last.use] = at;
        r->demand -= ht_flow_charge(flow->cap ? flow->cap : 1, use);
        r->weight -= ht_flow_weight(use);
        tight |= mark_if_tight(f, use->resource);
    }
    flow->uses = NULL;
    return !tight;
}

static int32_t list_members(struct ht_flows *f, const struct resource *r, int32_t n)
{
    for (int32_t i = 0; i < r->n; i++) {
        int32_t slot = r->members[i].slot;
        if (f->flows[slot].listed) continue;
        f->flows[slot].listed = true;
        f->todo[n++] = slot;
    }
    return n;
}

/* Lists the flows reached from new flows and marked resources in todo, and the tight resources among them in tight.
   Returns the number of flows. */
static int32_t collect(struct ht_flows *f, int32_t *n_tight)
{
    int32_t n = 0, nt = 0;
    for (int32_t i = 0; i < f->n_new; i++) {
        f->flows[f->new_flows[i]].listed = true;
        f->todo[n++] = f->new_flows[i];
    }
    for (int32_t i = 0; i < f->n_marked; i++) {
        f->resources[f->marked[i]].marked = false;
        n = list_members(f, &f->resources[f->marked[i]], n);
    }
    for (int32_t i = 0; i < n; i++) {
        const struct flow *flow = &f->flows[f->todo[i]];
        for (int32_t k = 0; k < flow->n_uses; k++) {
            struct resource *r = &f->resources[flow->uses[k].resource];
            if (!r->tight || r->listed) continue;
            r->listed = true;
            r->left = r->capacity;
            r->open_weight = r->weight;
            f->tight[nt++] = flow->uses[k].resource;
            n = list_members(f, r, n);
        }
    }
    f->n_new = f->n_marked = 0;
    *n_tight = nt;
    return n;
}

/* Returns true when the flow can go no faster than the level. */
static bool is_limited_at(const struct ht_flows *f, const struct flow *flow, uint64_t level)
{
    if (flow->cap == level) return true;
    for (int32_t k = 0; k < flow->n_uses; k++) {
        const struct resource *r = &f->resources[flow->uses[k].resource];
        if (r->listed && r->share == level) return true;
    }
    return false;
}

/* Fills the collected component progressively: sets every flow's rate. */
static void fill(struct ht_flows *f, int32_t n, int32_t n_tight)
{
    int32_t open = n;
    while (open > 0) {
        uint64_t level = UINT64_MAX;
        for (int32_t i = 0; i < n_tight; i++) {
            struct resource *r = &f->resources[f->tight[i]];
            r->share = r->open_weight ? (r->left << HT_FLOW_WEIGHT_BITS) / r->open_weight : UINT64_MAX;
            if (r->share < level) level = r->share;
        }
        /* Frozen flows are swapped behind `open`. */
        for (int32_t i = 0; i < open; i++) {
            const struct flow *flow = &f->flows[f->todo[i]];
            if (flow->cap < level) level = flow->cap;
        }
        for (int32_t i = 0; i < open;) {
            int32_t slot = f->todo[i];
            struct flow *flow = &f->flows[slot];
            if (!is_limited_at(f, flow, level)) {
                i++;
                continue;
            }
            flow->rate = level ? level : 1;
            for (int32_t k = 0; k < flow->n_uses; k++) {
                struct resource *r = &f->resources[flow->uses[k].resource];
                if (!r->listed) continue;
                uint64_t taken = ht_flow_charge(flow->rate, &flow->uses[k]);
                r->left -= taken < r->left ? taken : r->left;
                r->open_weight -= ht_flow_weight(&flow->uses[k]);
            }
            f->todo[i] = f->todo[--open];
            f->todo[open] = slot;
        }
    }
}

int32_t ht_flows_settle(struct ht_flows *f, int64_t now_ns, int32_t *changed)
{
    if (!f->n_new && !f->n_marked) return 0;
    int32_t n_tight, n = collect(f, &n_tight), n_changed = 0;
    if (n_tight)
        fill(f, n, n_tight);
    else
        for (int32_t i = 0; i < n; i++) f->flows[f->todo[i]].rate = f->flows[f->todo[i]].cap;
    for (int32_t i = 0; i < n_tight; i++) f->resources[f->tight[i]].listed = false;
    for (int32_t i = 0; i < n; i++) {
        struct flow *flow = &f->flows[f->todo[i]];
        flow->listed = false;
        uint64_t speed = FULL_SPEED;
        if (flow->rate < flow->cap) {
            speed = (flow->rate << HT_FLOW_SPEED_BITS) / flow->cap;
            if (speed == 0) speed = 1;
        }
        if (speed == flow->speed && !flow->is_new) continue;
        flow->is_new = false;
        flow->left -= (int64_t)flow->speed * (now_ns - flow->at_ns);
        if (flow->left < 0) flow->left = 0;
        flow->at_ns = now_ns;
        flow->speed = speed;
        int64_t wait = (int64_t)(((uint64_t)flow->left + speed - 1) / speed);
        flow->end_ns = wait < HT_FLOW_NEVER_NS - now_ns ? now_ns + wait : HT_FLOW_NEVER_NS;
        changed[n_changed++] = f->todo[i];
    }
    return n_changed;
}

int64_t ht_flows_end_ns(const struct ht_flows *f, int32_t slot)
{
    return f->flows[slot].end_ns;
}

bool ht_flows_is_running(const struct ht_flows *f, int32_t slot)
{
    return f->flows[slot].uses != NULL;
}

void ht_flows_copy_state(const struct ht_flows *f, int32_t slot, int64_t now_ns, int64_t state[HT_FLOW_STATE])
{
    const struct flow *flow = &f->flows[slot];
    for (int i = 0; i < HT_FLOW_STATE; i++) state[i] = 0;
    if (!flow->uses) return;
    state[0] = flow->left;
    state[1] = flow->at_ns - now_ns;
    state[2] = flow->is_new ? 0 : flow->end_ns - now_ns;
    state[3] = (int64_t)flow->cap;
    state[4] = flow->is_new ? -1 : (int64_t)flow->speed;
    state[5] = flow->is_new ? 0 : (int64_t)flow->rate;
}
