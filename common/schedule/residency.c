#include "common/schedule/residency.h"

#include "common/base/array.h"
#include "common/base/rng.h"

#include <stdlib.h>
#include <string.h>

/* Hash table of residency numbers: open addressing, at most half full. */
struct table {
    int32_t *slots;
    size_t n_slots, cap;
};

static size_t slot_of(const struct ht_residencies *p, const struct table *t, int32_t tensor, int32_t space)
{
    size_t i = ht_mix64((uint64_t)(uint32_t)tensor << 32 | (uint32_t)space) & (t->n_slots - 1);
    while (t->slots[i] >= 0 && (p->rows[t->slots[i]].tensor != tensor || p->rows[t->slots[i]].space != space))
        i = (i + 1) & (t->n_slots - 1);
    return i;
}

static void grow(struct ht_residencies *p, struct table *t)
{
    t->n_slots = t->n_slots ? 2 * t->n_slots : 256;
    t->slots = ht_realloc(t->slots, t->n_slots * sizeof *t->slots);
    memset(t->slots, 0xff, t->n_slots * sizeof *t->slots);
    for (int64_t i = 0; i < p->n; i++) t->slots[slot_of(p, t, p->rows[i].tensor, p->rows[i].space)] = (int32_t)i;
}

/* Returns the number of a residency, a new one at its first mention. */
static int32_t number(struct ht_residencies *p, struct table *t, int32_t tensor, int32_t space)
{
    if (2 * ((size_t)p->n + 1) > t->n_slots) grow(p, t);
    size_t i = slot_of(p, t, tensor, space);
    if (t->slots[i] < 0) {
        struct ht_residency residency = {.tensor = tensor, .space = space};
        t->slots[i] = (int32_t)p->n;
        HT_PUSH(p->rows, p->n, t->cap, residency);
    }
    return t->slots[i];
}

void ht_residencies_init(struct ht_residencies *p, const struct ht_schedule *s)
{
    struct table t = {0};
    *p = (struct ht_residencies){0};
    p->of_resident = HT_NEW_ARRAY(int32_t, s->n_residents);
    p->of_effect = HT_NEW_ARRAY(int32_t, s->effects_begin[s->n_ops]);
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        p->of_resident[i] = number(p, &t, r->tensor, ht_space(s, r->tier, r->rank));
        p->rows[p->of_resident[i]].resident = true;
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t rank = ht_op_rank(s, op);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++)
            p->of_effect[e] = number(p, &t, s->effects[e].tensor, ht_space(s, (enum ht_tier)s->effects[e].tier, rank));
    }
    free(t.slots);
}

void ht_residencies_free(struct ht_residencies *p)
{
    free(p->rows);
    free(p->of_effect);
    free(p->of_resident);
    *p = (struct ht_residencies){0};
}

bool ht_has_branches(const struct ht_schedule *s)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (s->ops[i].when != HT_ALWAYS) return true;
    return false;
}
