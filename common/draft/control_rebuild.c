/* Lanes, effects and logs under control: the questions that ordering the ops and writing them have in common. */
#include "common/draft/control_rebuild.h"

#include "common/kernels/undo.h"

/* ---- lanes ---- */

int32_t ht_rebuild_lane(const struct ht_schedule *s, int32_t rank, enum ht_lane_kind kind)
{
    for (int32_t i = 0; i < s->n_lanes; i++)
        if (s->lanes[i].kind == kind && s->lanes[i].rank == rank) return i;
    return -1;
}

int32_t ht_rebuild_last_lane(const struct ht_schedule *s, int32_t rank, enum ht_lane_kind kind)
{
    int32_t lane = s->n_lanes - 1;
    while (lane >= 0 && (s->lanes[lane].kind != kind || s->lanes[lane].rank != rank)) lane--;
    return lane;
}

int32_t ht_rebuild_copy_lane(const struct ht_schedule *s, int32_t rank, enum ht_tier from, enum ht_tier to)
{
    if (from == HT_DISK || to == HT_DISK) return ht_rebuild_lane(s, rank, HT_LANE_DISK);
    if (from == HT_DEVICE && to == HT_HOST) return ht_rebuild_lane(s, rank, HT_LANE_D2H);
    if (from == HT_HOST && to == HT_DEVICE) return ht_rebuild_lane(s, rank, HT_LANE_H2D);
    return -1;
}

/* ---- effects ---- */

bool ht_rebuild_gradient(const struct ht_schedule *s, const struct ht_effect *e)
{
    return s->tensors[e->tensor].class == HT_GRAD && e->flags & HT_NEED;
}

bool ht_rebuild_momentum(const struct ht_schedule *s, const struct ht_effect *e)
{
    return s->tensors[e->tensor].class == HT_MOMENTUM && e->flags & HT_UPDATE;
}

bool ht_rebuild_writes(const struct ht_effect *e)
{
    return e->flags & HT_WRITES && !(e->flags & HT_RELEASE);
}

bool ht_rebuild_copied(const struct ht_rebuild *r, const struct ht_effect *e, enum ht_tier to)
{
    return ht_rebuild_writes(e) && to != e->tier && r->current[e->tensor] >> to & 1;
}

bool ht_rebuild_fetched(const struct ht_rebuild *r, const struct ht_effect *e, enum ht_tier from)
{
    unsigned current = r->current[e->tensor], below = (1u << from) - 1;
    return ht_rebuild_copied(r, e, from) && !(current >> e->tier & 1) && !(current & below);
}

/* ---- logs ---- */

int64_t ht_control_log_bytes(const struct ht_control *control, int64_t elements)
{
    if (control->mode != HT_CONTROL_ROLLBACK) return 0;
    return ht_undo_log_bytes(elements, ht_undo_usual_exceptions(elements));
}

int64_t ht_rebuild_log_traffic_bytes(const struct ht_control *control, int64_t elements)
{
    return control->mode == HT_CONTROL_ROLLBACK ? ht_undo_log_bytes(elements, 0) : 0;
}

void ht_control_works(const struct ht_control *control, struct ht_work *step, struct ht_work *grad_check)
{
    *grad_check = *step;
    grad_check->kind = HT_OP_VALIDATE;
    step->bytes = ht_rebuild_log_traffic_bytes(control, step->params);
}
