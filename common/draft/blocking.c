#include "common/draft/blocking.h"

bool ht_blocks_host(enum ht_lane_kind lane)
{
    return lane == HT_LANE_H2D || lane == HT_LANE_D2H || lane == HT_LANE_HOST;
}

void ht_blocking_wait(struct ht_schedule *s, struct ht_blocking_edges *b)
{
    b->waited = s->n_ops - 1;
    ht_mark_set(s, b->prev);
}

void ht_blocking_follow(struct ht_schedule *s, struct ht_blocking_edges *b)
{
    int32_t before = b->blocking == HT_BLOCKS_ALL ? s->n_ops - 2 : b->waited;
    if (b->blocking == HT_BLOCKS_NOTHING) return;
    if (before >= 0)
        ht_op_after(s, before);
    else
        ht_op_after_prev(s, b->prev);
    if (b->blocking == HT_BLOCKS_HOST && ht_blocks_host(s->lanes[s->ops[s->n_ops - 1].lane].kind))
        ht_blocking_wait(s, b);
}
