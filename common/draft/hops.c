#include "common/draft/hops.h"

#include "common/base/array.h"
#include "common/draft/draft_extra.h"

#include <stdlib.h>

void ht_hops_init(struct ht_hops *h, struct ht_draft *g, int32_t rounds)
{
    int32_t n_turns = rounds * ht_turns(g->n_units);
    *h = (struct ht_hops){.g = g,
                          .n_turns = n_turns,
                          .ahead = {1, 1},
                          .read_ahead = 1,
                          .before = -1,
                          .last = -1,
                          .stays = HT_NEW_ARRAY(bool, g->n_units),
                          .computed = ht_alloc_ids(n_turns * g->sharers),
                          .fetched = ht_alloc_ids(n_turns * g->sharers),
                          .in_host = HT_NEW_ARRAY(bool, g->n_units),
                          .on_device = HT_NEW_ARRAY(bool, g->n_units)};
}

void ht_hops_restart(struct ht_hops *h, int32_t before)
{
    h->next_read = h->next_fetch = 0;
    h->before = h->last = before;
}

void ht_hops_free(struct ht_hops *h)
{
    void *all[] = {h->stays, h->computed, h->fetched, h->in_host, h->on_device};
    for (size_t i = 0; i < HT_COUNT(all); i++) free(all[i]);
}

int32_t ht_hops_first(const struct ht_hops *h, int32_t turn)
{
    return turn - h->ahead[!ht_turn(h->g->n_units, turn).forward];
}

void ht_hops_not_before(const struct ht_hops *h, int32_t turn, int32_t sharer)
{
    ht_op_after(h->g->schedule, turn >= 1 ? h->computed[ht_hops_at(h, turn - 1, sharer)] : h->before);
}

/* Lists the units whose parameters take the hops of a turn. Returns their number. */
static int32_t units_of(const struct ht_hops *h, int32_t turn, int32_t units[2])
{
    int32_t n = 0, u = ht_turn(h->g->n_units, turn).unit;
    if (!h->stays[u]) units[n++] = u;
    if (u == h->g->n_units - 1 && h->g->scenario->model.tied && !h->stays[0]) units[n++] = 0;
    return n;
}

/* Returns true if no turn before has parameters of this one in a tier. */
static bool are_gone(const struct ht_hops *h, int32_t turn, const bool *there)
{
    int32_t units[2], n = units_of(h, turn, units);
    for (int32_t i = 0; i < n; i++)
        if (there[units[i]]) return false;
    return true;
}

void ht_hops_read(struct ht_hops *h, int32_t now)
{
    int32_t units[2], end = h->on_read ? h->n_turns : 0, t;
    now += h->read_ahead;
    for (; (t = h->next_read) < end && ht_hops_first(h, t) <= now && are_gone(h, t, h->in_host); h->next_read++) {
        ht_draft_turn_to(h->g, -1);
        for (int32_t i = 0, n = units_of(h, t, units); i < n; i++) {
            ht_draft_copy(h->g, h->g->param[units[i]], HT_DISK, HT_HOST, HT_PRODUCE, false);
            h->on_read(h->system, t, units[i]);
            h->in_host[units[i]] = true;
        }
    }
}

/* Appends a unit's copy to each sharer's device. The last of them frees what came from the disk; behind several copies
   the last sharer's host lane does. */
static void fetch(struct ht_hops *h, int32_t turn, int32_t unit)
{
    int32_t row = h->g->param[unit], sharers = h->g->sharers;
    bool leaves = h->on_read != NULL;
    for (int32_t k = 0; k < sharers; k++) {
        ht_draft_turn_to(h->g, k);
        h->last = ht_draft_copy(h->g, row, HT_HOST, HT_DEVICE, HT_PRODUCE, leaves && sharers == 1);
        h->fetched[ht_hops_at(h, turn, k)] = h->last;
        ht_hops_not_before(h, ht_hops_first(h, turn), k);
    }
    if (leaves && sharers > 1) ht_draft_release(h->g, row);
    h->in_host[unit] = false;
    h->on_device[unit] = true;
}

void ht_hops_fetch(struct ht_hops *h, int32_t now)
{
    int32_t units[2], end = h->on_read ? h->next_read : h->n_turns, t;
    for (; (t = h->next_fetch) < end && ht_hops_first(h, t) <= now && are_gone(h, t, h->on_device); h->next_fetch++)
        for (int32_t i = 0, n = units_of(h, t, units); i < n; i++) fetch(h, t, units[i]);
}

void ht_hops_drop(struct ht_hops *h, int32_t turn)
{
    int32_t units[2], n = units_of(h, turn, units);
    for (int32_t i = 0; i < n; i++) {
        ht_op_effect(h->g->schedule, h->g->param[units[i]], HT_DEVICE, HT_RELEASE);
        h->on_device[units[i]] = false;
    }
}
