#include "common/comm/nccl_order.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

static bool fits(const struct ht_nccl_match *open, const struct ht_nccl_want *w)
{
    const struct ht_nccl_want *first = &open->ends[0];
    if (first->tag != w->tag || (first->peer < 0) != (w->peer < 0)) return false;
    if (w->peer >= 0) return first->rank == w->peer && first->peer == w->rank && first->receive != w->receive;
    for (int32_t i = 0; i < open->n; i++)
        if (open->ends[i].rank == w->rank) return false; /* of its collective before */
    return first->team == w->team && first->members == w->members;
}

void ht_nccl_order_add(struct ht_nccl_order *o, struct ht_nccl_want want)
{
    int32_t whole = want.peer < 0 ? want.members : 2;
    size_t i = 0;
    while (i < o->n_open && !fits(&o->open[i], &want)) i++;
    if (i == o->n_open) {
        struct ht_nccl_match opened = {.ends = HT_NEW_ARRAY(struct ht_nccl_want, whole), .alike = true};
        HT_PUSH(o->open, o->n_open, o->cap_open, opened);
    }
    struct ht_nccl_match *m = &o->open[i];
    m->ends[m->n++] = want;
    m->alike &= m->ends[0].bytes == want.bytes;
    if (m->n < whole) return;
    HT_PUSH(o->matches, o->n_matches, o->cap_matches, *m);
    o->n_open--;
    memmove(&o->open[i], &o->open[i + 1], (o->n_open - i) * sizeof(*o->open));
}

void ht_nccl_order_free(struct ht_nccl_order *o)
{
    for (size_t i = 0; i < o->n_open; i++) free(o->open[i].ends);
    for (size_t i = 0; i < o->n_matches; i++) free(o->matches[i].ends);
    free(o->open);
    free(o->matches);
    *o = (struct ht_nccl_order){0};
}
