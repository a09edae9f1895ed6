#include "common/exec/residents.h"

#include "common/base/array.h"
#include "common/exec/node_mailbox.h"
#include "common/exec/run_slots.h"

#include <stdlib.h>

enum ht_status ht_residents_create(const struct ht_schedule *s, struct ht_arena **arenas, struct ht_error *err,
                                   struct ht_residents **out)
{
    struct ht_residents *r = HT_NEW(struct ht_residents);
    r->s = s;
    enum ht_status status = ht_slots_create(s, -1, arenas, err, &r->slots);
    if (status == HT_OK) status = ht_slots_allocate_residents(r->slots, err);
    if (status != HT_OK) {
        ht_residents_destroy(r);
        r = NULL;
    }
    *out = r;
    return status;
}

static int32_t space_of(const struct ht_residents *r, int32_t i)
{
    return ht_space(r->s, r->s->residents[i].tier, r->s->residents[i].rank);
}

/* Publishes the offsets of the residents to the other ranks of the node, from the leader. */
static void publish(const struct ht_residents *r)
{
    for (int32_t i = 0; i < r->s->n_residents; i++) {
        int32_t space;
        if (!ht_slots_has_resident(r->slots, i)) continue;
        struct ht_buffer b = ht_slots_resident(r->slots, i, &space);
        r->node->resident_offsets[i] = ht_node_offset(r->node, space, b.data);
    }
}

enum ht_status ht_residents_create_ranks(struct ht_node *node, struct ht_error *err, struct ht_residents **out)
{
    enum ht_status status = HT_OK;
    struct ht_residents *r = HT_NEW(struct ht_residents);
    r->s = node->s;
    r->node = node;
    if (ht_node_leads(node)) {
        status = ht_slots_create(node->s, node->node, node->arenas, err, &r->slots);
        if (status == HT_OK) status = ht_slots_allocate_residents(r->slots, err);
        if (status == HT_OK) publish(r);
    }
    status = ht_agree(node->comm, status, err);
    if (status != HT_OK) {
        ht_residents_destroy(r);
        r = NULL;
    }
    *out = r;
    return status;
}

void ht_residents_destroy(struct ht_residents *r)
{
    if (!r) return;
    ht_slots_destroy(r->slots);
    free(r);
}

void ht_residents_settle(struct ht_residents *r)
{
    ht_slots_settle(r->slots);
    if (r->node) publish(r);
}

bool ht_residents_get(const struct ht_residents *r, int32_t i, struct ht_buffer *out)
{
    const struct ht_resident *resident = &r->s->residents[i];
    int32_t space = space_of(r, i);
    if (r->node && resident->tier == HT_DEVICE && resident->rank != r->node->rank) return false;
    if (r->slots) {
        if (!ht_slots_has_resident(r->slots, i)) return false;
        *out = ht_slots_resident(r->slots, i, &space);
        return true;
    }
    if (resident->tier != HT_DEVICE) return false;
    int64_t offset = r->node->resident_offsets[i];
    *out = (struct ht_buffer){.tensor = resident->tensor,
                              .tier = (uint8_t)resident->tier,
                              .flags = HT_UPDATE,
                              .data = offset < 0 ? NULL : r->node->bases[space] + offset,
                              .bytes = r->s->tensors[resident->tensor].bytes};
    return true;
}

enum ht_status ht_residents_each(const struct ht_residents *r, ht_resident_fn fn, void *ctx, struct ht_error *err)
{
    for (int32_t i = 0; i < r->s->n_residents; i++) {
        struct ht_buffer buffer;
        if (!ht_residents_get(r, i, &buffer)) continue;
        enum ht_status status = fn(ctx, space_of(r, i), buffer, err);
        if (status) return status;
    }
    return HT_OK;
}
