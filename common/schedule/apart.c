#include "common/schedule/apart.h"

#include "common/base/array.h"

#include <stdlib.h>

/* Collects what the tensors of a unit say of its halves. */
struct halves {
    int32_t front, back; /* parts; 0: the half has no tensor of its own */
    int32_t copies;      /* momenta of the front, less those of the back */
};

bool *ht_halves_apart(const struct ht_schedule *s)
{
    int32_t n = s->n_units; /* a graph may have tensors of units, and no units */
    for (int32_t i = 0; i < s->n_tensors && !s->n_units; i++)
        if (s->tensors[i].label.unit >= n) n = s->tensors[i].label.unit + 1;
    bool *apart = HT_NEW_ARRAY(bool, n);
    struct halves *halves = HT_NEW_ARRAY(struct halves, n);
    for (int32_t i = 0; i < s->n_tensors; i++) {
        const struct ht_tensor *t = &s->tensors[i];
        bool back = ht_is_back(t->label.sub_ops);
        if ((!back && !ht_is_front(t->label.sub_ops)) || !ht_is_unit_state(t)) continue;
        *(back ? &halves[t->label.unit].back : &halves[t->label.unit].front) = t->parts;
        if (t->class == HT_MOMENTUM) halves[t->label.unit].copies += back ? -1 : 1;
    }
    for (int32_t u = 0; u < n; u++) {
        const struct halves *h = &halves[u];
        apart[u] = h->front && ((h->back && h->front != h->back) || h->copies);
    }
    free(halves);
    return apart;
}

unsigned ht_apart_half(const bool *apart, const struct ht_tensor *t)
{
    return t->label.unit >= 0 && apart[t->label.unit] ? t->label.sub_ops : 0;
}
