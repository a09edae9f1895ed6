#include "common/schedule/apart.h"

#include "common/base/array.h"

#include <stdlib.h>

bool ht_is_unit_state(const struct ht_tensor *t)
{
    bool is_state = t->class == HT_PARAM || t->class == HT_MASTER || t->class == HT_MOMENTUM ||
                    t->class == HT_VARIANCE || t->class == HT_GRAD;
    return is_state && t->label.unit >= 0 && t->label.n_units <= 1;
}

bool *ht_halves_apart(const struct ht_schedule *s)
{
    int32_t n = s->n_units; /* a graph may have tensors of units, and no units */
    for (int32_t i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].label.unit >= n) n = s->tensors[i].label.unit + 1;
    bool *apart = HT_NEW_ARRAY(bool, n);
    int32_t *parts = HT_NEW_ARRAY(int32_t, n);  /* of the front; 0: none seen */
    int32_t *copies = HT_NEW_ARRAY(int32_t, n); /* momenta of the front, less those of the back */
    for (int back = 0; back < 2; back++)
        for (int32_t i = 0; i < s->n_tensors; i++) {
            const struct ht_tensor *t = &s->tensors[i];
            if (!ht_is_unit_state(t) || !(back ? ht_is_back : ht_is_front)(t->label.sub_ops)) continue;
            int32_t *front = &parts[t->label.unit];
            if (t->class == HT_MOMENTUM) copies[t->label.unit] += back ? -1 : 1;
            if (!back)
                *front = t->parts;
            else
                apart[t->label.unit] |= *front && *front != t->parts;
        }
    for (int32_t u = 0; u < n; u++) apart[u] |= parts[u] && copies[u];
    free(parts);
    free(copies);
    return apart;
}

unsigned ht_apart_half(const bool *apart, const struct ht_tensor *t)
{
    return t->label.unit >= 0 && apart[t->label.unit] ? t->label.sub_ops : 0;
}
