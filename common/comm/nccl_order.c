#include "common/comm/nccl_order.h"

#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

void ht_nccl_order_add(struct ht_nccl_order *o, struct ht_nccl_want want)
{
    for (size_t i = 0; i < o->n_open; i++) {
        struct ht_nccl_want other = o->open[i];
        if (other.rank != want.peer || other.peer != want.rank || other.tag != want.tag ||
            other.receive == want.receive)
            continue;
        o->n_open--;
        memmove(&o->open[i], &o->open[i + 1], (o->n_open - i) * sizeof(*o->open));
        struct ht_nccl_match match = {.end = {other, want}, .alike = other.bytes == want.bytes};
        HT_PUSH(o->matches, o->n_matches, o->cap_matches, match);
        return;
    }
    HT_PUSH(o->open, o->n_open, o->cap_open, want);
}

void ht_nccl_order_free(struct ht_nccl_order *o)
{
    free(o->open);
    free(o->matches);
    *o = (struct ht_nccl_order){0};
}
