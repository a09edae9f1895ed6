/* Grouping by trying everything. */
#ifndef HT_TESTS_AUTOHET_GROUPINGS_H
#define HT_TESTS_AUTOHET_GROUPINGS_H

#include "autohet/planner.h"

#include <math.h>
#include <string.h>

enum { MOST_GROUPS = 8 };

/* All ways to give a type's units to the groups, one unit after the other; a unit may not go to an earlier group than the
   one of its type before it. */
struct exhaustive {
    const struct autohet_grouping_problem *p;
    int32_t counts[MOST_GROUPS * AUTOHET_MAX_TYPES], best[MOST_GROUPS * AUTOHET_MAX_TYPES];
    double z;
};

static inline int before(const int32_t *a, const int32_t *b, int32_t types)
{
    for (int32_t t = types - 1; t >= 0; t--)
        if (a[t] != b[t]) return a[t] < b[t] ? -1 : 1;
    return 0;
}

static inline void judge(struct exhaustive *x)
{
    const struct autohet_grouping_problem *p = x->p;
    double z = INFINITY;
    for (int32_t j = 0; j < p->n_groups; j++) {
        const int32_t *own = &x->counts[j * p->n_types];
        double power = 0, bytes = 0;
        int32_t n = 0;
        if (j && before(own - p->n_types, own, p->n_types) < 0) return; /* groups fall */
        for (int32_t t = 0; t < p->n_types; t++) {
            power += own[t] * p->types[t].power;
            bytes += own[t] * (double)p->types[t].memory_bytes;
            n += own[t];
        }
        if (!n || n > p->max_stages || bytes < p->min_bytes) return;
        z = fmin(z, p->micro_batches * power / (p->micro_batches + n - 1));
    }
    bool first = fabs(z - x->z) <= 1e-9 * z; /* a tie goes to the first */
    for (int32_t j = 0; j < p->n_groups && first; j++) {
        int order = before(&x->counts[j * p->n_types], &x->best[j * p->n_types], p->n_types);
        if (order < 0) break;
        first = order == 0;
    }
    if (z > x->z * (1 + 1e-9) || first) {
        x->z = z;
        memcpy(x->best, x->counts, sizeof(x->best));
    }
}

static inline void give(struct exhaustive *x, int32_t type, int32_t unit, int32_t from)
{
    if (type == x->p->n_types) {
        judge(x);
        return;
    }
    if (unit == x->p->types[type].count) {
        give(x, type + 1, 0, 0);
        return;
    }
    for (int32_t j = from; j < x->p->n_groups; j++) {
        x->counts[j * x->p->n_types + type]++;
        give(x, type, unit + 1, j);
        x->counts[j * x->p->n_types + type]--;
    }
}

#endif
