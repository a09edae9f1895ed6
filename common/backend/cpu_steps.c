#include "common/backend/cpu_steps.h"

#include "common/base/array.h"

#include <stdlib.h>

/* A range of elements with one count. Spans do not overlap. There are about as many as momentum tensors. */
struct span {
    int32_t unit;
    int64_t begin, end, steps;
};

struct ht_cpu_steps {
    struct span *spans;
    int32_t n;
    size_t cap;
};

struct ht_cpu_steps *ht_cpu_steps_create(void)
{
    return HT_NEW(struct ht_cpu_steps);
}

void ht_cpu_steps_destroy(struct ht_cpu_steps *s)
{
    if (!s) return;
    free(s->spans);
    free(s);
}

void ht_cpu_steps_put(struct ht_cpu_steps *s, int32_t unit, int64_t begin, int64_t end, int64_t steps)
{
    for (int32_t i = s->n - 1; i >= 0; i--) { /* keeps the rest of overlapped spans, on both sides */
        struct span old = s->spans[i];
        if (old.unit != unit || old.end <= begin || old.begin >= end) continue;
        s->spans[i] = s->spans[--s->n];
        struct span left = {unit, old.begin, begin, old.steps}, right = {unit, end, old.end, old.steps};
        if (left.begin < left.end) HT_PUSH(s->spans, s->n, s->cap, left);
        if (right.begin < right.end) HT_PUSH(s->spans, s->n, s->cap, right);
    }
    struct span added = {unit, begin, end, steps};
    if (begin == end) return; /* an empty shard */
    HT_PUSH(s->spans, s->n, s->cap, added);
}

int64_t ht_cpu_steps_get(const struct ht_cpu_steps *s, int32_t unit, int64_t begin, int64_t end, int64_t otherwise)
{
    int64_t known = 0, steps = -1;
    for (int32_t i = 0; i < s->n; i++) {
        const struct span *x = &s->spans[i];
        if (x->unit != unit || x->end <= begin || x->begin >= end) continue;
        if (known && x->steps != steps) return -1;
        known += (x->end < end ? x->end : end) - (x->begin > begin ? x->begin : begin);
        steps = x->steps;
    }
    if (known == 0) return otherwise;
    return known == end - begin || steps == otherwise ? steps : -1;
}
