#include "common/schedule/residency.h"

#include "common/base/array.h"

#include <stdlib.h>

/* The residencies of each tensor as a list: most have one or two. */
struct lists {
    int32_t *first; /* [n_tensors] residency + 1; 0: none */
    int32_t *next;  /* [residencies] */
    size_t cap, next_cap;
};

/* Returns the number of a residency, a new one at its first mention. */
static int32_t number(struct ht_residencies *p, struct lists *l, int32_t tensor, int32_t space)
{
    struct ht_residency residency = {.tensor = tensor, .space = space};
    int32_t *at = &l->first[tensor];
    while (*at && p->rows[*at - 1].space != space) at = &l->next[*at - 1];
    if (*at) return *at - 1;
    *at = (int32_t)p->n + 1;
    HT_RESERVE(l->next, l->next_cap, (size_t)p->n + 1);
    l->next[p->n] = 0;
    HT_PUSH(p->rows, p->n, l->cap, residency);
    return (int32_t)p->n - 1;
}

void ht_residencies_init(struct ht_residencies *p, const struct ht_schedule *s)
{
    struct lists l = {.first = HT_NEW_ARRAY(int32_t, s->n_tensors)};
    *p = (struct ht_residencies){0};
    p->of_resident = HT_NEW_ARRAY(int32_t, s->n_residents);
    p->of_effect = ht_realloc(NULL, (size_t)s->effects_begin[s->n_ops] * sizeof *p->of_effect); /* each is written */
    HT_RESERVE(p->rows, l.cap, s->n_tensors);                                                   /* most have one */
    HT_RESERVE(l.next, l.next_cap, s->n_tensors);
    for (int32_t i = 0; i < s->n_residents; i++) {
        const struct ht_resident *r = &s->residents[i];
        p->of_resident[i] = number(p, &l, r->tensor, ht_space(s, r->tier, r->rank));
        p->rows[p->of_resident[i]].resident = true;
    }
    for (int32_t op = 0; op < s->n_ops; op++) {
        int32_t rank = ht_op_rank(s, op);
        for (int64_t e = s->effects_begin[op]; e < s->effects_begin[op + 1]; e++) {
            int32_t tensor = s->effects[e].tensor, space = ht_space(s, (enum ht_tier)s->effects[e].tier, rank);
            int32_t first = l.first[tensor] - 1;
            p->of_effect[e] = first >= 0 && p->rows[first].space == space ? first : number(p, &l, tensor, space);
        }
    }
    free(l.first);
    free(l.next);
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
