/*
 * Grouping, Algorithm 1, lines 3 to 8: eq. (3) for a number of groups D, in column form.
 *
 * A column is what a group may be: counts by type. With K micro-batches, power S and P units, eq. (2) says
 *
 *     G = K S / (K + P - 1) >= Z   if and only if   sum over its units of (K g - Z) >= Z (K - 1),
 *
 * which is linear in the units. So "D groups with G >= Z" is a bin covering: each unit of power g brings K g - Z, and each
 * bin needs Z (K - 1), besides M_min. Two things follow.
 *
 *     Z <= K S / (D (K - 1) + M), for all M units of power S together: `ceiling`.
 *     What a group has above its need, its waste, is at most what all groups together have. Near the ceiling few
 *     columns remain.
 *
 * Strongest first, each to the weakest group, gives a grouping to begin with. Between its Z and the ceiling the G of
 * columns are the only values possible, which are bisected. Each step asks whether a multiset of columns uses up all
 * units: depth first, columns falling, and no known dead end twice. The search is given up after SEARCH columns tried; then the
 * grouping may not be the best, and says so.
 *
 * Sec. III-B hands eq. (3) to a solver (SCIP). tests/autohet/test_group.c compares this with GLPK (group_milp.c) and with
 * all groupings of random small clusters.
 */
#include "autohet/planner.h"

#include "common/base/array.h"
#include "common/base/minmax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEARCH = 1 << 17, MEMO_BITS = 13, MEMO = 1 << MEMO_BITS };
#define BELOW (1 - 1e-12) /* times Z: powers that differ by rounding alone are equal */

struct column {
    int32_t counts[AUTOHET_MAX_TYPES];
    double g; /* effective power */
};

/* A state without a way to the end: what is left for how many groups, and the largest column tried from there. */
struct dead_end {
    uint64_t key;
    int32_t column, round;
};

struct search {
    const struct autohet_grouping_problem *problem;
    struct column *columns; /* [n], rising by the counts of the strongest type, then of the next */
    int32_t n, tries;
    size_t cap;
    double z;
    int32_t *from;         /* [count of the strongest type + 2]: first column with at least so many of it */
    int32_t *chosen;       /* [n_groups], columns */
    int32_t round;         /* of the bisection */
    struct dead_end *dead; /* [MEMO], a hash */
};

double autohet_group_power(const struct autohet_grouping_problem *p, const int32_t *counts)
{
    double power = 0;
    int32_t units = 0;
    for (int32_t t = 0; t < p->n_types; t++) {
        power += counts[t] * p->types[t].power;
        units += counts[t];
    }
    return units ? autohet_effective_power(power, units, p->micro_batches) : 0;
}

static int32_t units_of(const struct autohet_grouping_problem *p, const int32_t *counts)
{
    int32_t units = 0;
    for (int32_t t = 0; t < p->n_types; t++) units += counts[t];
    return units;
}

static double bytes_of(const struct autohet_grouping_problem *p, const int32_t *counts)
{
    double bytes = 0;
    for (int32_t t = 0; t < p->n_types; t++) bytes += (double)counts[t] * (double)p->types[t].memory_bytes;
    return bytes;
}

/* Returns what units bring to a group's need at Z: sum of (K g - Z). */
static double brought(const struct autohet_grouping_problem *p, const int32_t *counts, double z)
{
    double sum = 0;
    for (int32_t t = 0; t < p->n_types; t++) sum += counts[t] * (p->micro_batches * p->types[t].power - z);
    return sum;
}

/* Returns true if units may be enough for so many groups at Z; false proves that they are not. */
static bool may_cover(const struct autohet_grouping_problem *p, const int32_t *counts, int32_t groups, double z)
{
    int32_t units = units_of(p, counts);
    if (units < groups || (int64_t)units > (int64_t)groups * p->max_stages) return false;
    if (bytes_of(p, counts) < groups * p->min_bytes) return false;
    double need = groups * z * BELOW * (p->micro_batches - 1);
    return brought(p, counts, z * BELOW) >= need - 1e-9 * fabs(need);
}

/* Bounds of a column, and of what a type's count brings it. */
struct bounds {
    double most, most_bytes; /* what a column may bring, and its bytes, so that the rest can cover the other groups */
};

static struct bounds column_bounds(const struct search *s)
{
    const struct autohet_grouping_problem *p = s->problem;
    int32_t all[AUTOHET_MAX_TYPES] = {0};
    for (int32_t t = 0; t < p->n_types; t++) all[t] = p->types[t].count;
    double need = s->z * BELOW * (p->micro_batches - 1);
    return (struct bounds){brought(p, all, s->z * BELOW) - (p->n_groups - 1) * need + 1e-9 * fabs(need),
                           bytes_of(p, all) - (p->n_groups - 1) * p->min_bytes};
}

/* Adds the column if G >= z and it leaves enough for the other groups. */
static void add_column(struct search *s, const struct column *x)
{
    const struct autohet_grouping_problem *p = s->problem;
    int32_t units = units_of(p, x->counts), rest[AUTOHET_MAX_TYPES] = {0};
    if (!units || units > p->max_stages || bytes_of(p, x->counts) < p->min_bytes) return;
    for (int32_t t = 0; t < p->n_types; t++) rest[t] = p->types[t].count - x->counts[t];
    double g = autohet_group_power(p, x->counts);
    if (g < s->z * BELOW || !may_cover(p, rest, p->n_groups - 1, s->z)) return;
    HT_PUSH(s->columns, s->n, s->cap, *x);
    s->columns[s->n - 1].g = g;
}

/* Adds the columns with these counts of the types above `type`, in the order of the array. units, bring, bytes: of
   these counts; weaker types may take away from what they bring. */
static void list_columns(struct search *s, const struct bounds *b, struct column *x, int32_t type, int32_t units,
                         double bring, double bytes)
{
    const struct autohet_grouping_problem *p = s->problem;
    if (type < 0) {
        add_column(s, x);
        return;
    }
    const struct autohet_unit_type *own = &p->types[type];
    double each = p->micro_batches * own->power - s->z * BELOW, takes = 0;
    for (int32_t t = 0; t < type; t++)
        takes += p->types[t].count * fmin(0, p->micro_batches * p->types[t].power - s->z * BELOW);
    for (int32_t c = p->n_groups == 1 ? own->count : 0; c <= own->count && units + c <= p->max_stages; c++) {
        double more = (double)c * (double)own->memory_bytes;
        if (bytes + more > b->most_bytes) break;
        if (each > 0 && bring + c * each + takes > b->most) break;
        x->counts[type] = c;
        list_columns(s, b, x, type - 1, units + c, bring + c * each, bytes + more);
    }
    x->counts[type] = 0;
}

/* Lists the columns that may stand in a grouping of at least s->z. */
static void find_columns(struct search *s)
{
    int32_t strongest = s->problem->n_types - 1, most = s->problem->types[strongest].count;
    struct bounds b = column_bounds(s);
    struct column x = {.g = 0};
    list_columns(s, &b, &x, strongest, 0, 0, 0);
    for (int32_t i = 0, c = 0; c <= most + 1; c++) {
        while (i < s->n && s->columns[i].counts[strongest] < c) i++;
        s->from[c] = i;
    }
}

static uint64_t state_key(const struct autohet_grouping_problem *p, const int32_t *rest, int32_t groups)
{
    uint64_t key = (uint64_t)groups;
    for (int32_t t = 0; t < p->n_types; t++) key = key * (uint64_t)(p->types[t].count + 1) + (uint64_t)rest[t];
    return key;
}

static struct dead_end *entry_of(const struct search *s, uint64_t key)
{
    return &s->dead[(key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - MEMO_BITS)];
}

/* Returns true if the groups' columns, at most `last` each, use up the rest; fills s->chosen. */
static bool cover(struct search *s, int32_t *rest, int32_t groups, int32_t last)
{
    const struct autohet_grouping_problem *p = s->problem;
    if (!groups) return units_of(p, rest) == 0;
    uint64_t key = state_key(p, rest, groups);
    struct dead_end *e = entry_of(s, key);
    if (!may_cover(p, rest, groups, s->z)) return false;
    if (e->round == s->round && e->key == key && e->column >= last) return false;
    int32_t even = (rest[p->n_types - 1] + groups - 1) / groups; /* columns fall, so this one has its share */
    for (int32_t i = s->from[even]; i <= last && s->tries < SEARCH; i++) {
        const struct column *x = &s->columns[i];
        bool fits = x->g >= s->z * BELOW;
        s->tries++;
        for (int32_t t = 0; t < p->n_types; t++) fits &= x->counts[t] <= rest[t];
        if (!fits) continue;
        for (int32_t t = 0; t < p->n_types; t++) rest[t] -= x->counts[t];
        s->chosen[p->n_groups - groups] = i;
        bool done = cover(s, rest, groups - 1, i);
        for (int32_t t = 0; t < p->n_types; t++) rest[t] += x->counts[t];
        if (done) return true;
    }
    if (s->tries < SEARCH) *e = (struct dead_end){key, last, s->round};
    return false;
}

/* Asks whether D groups with G >= z exist. */
static bool feasible(struct search *s, double z)
{
    int32_t rest[AUTOHET_MAX_TYPES] = {0};
    for (int32_t t = 0; t < s->problem->n_types; t++) rest[t] = s->problem->types[t].count;
    s->z = z;
    s->tries = 0;
    s->round++;
    return cover(s, rest, s->problem->n_groups, s->n - 1);
}

/* Takes the columns chosen as the grouping. */
static void take(const struct search *s, struct autohet_grouping *out)
{
    out->z = INFINITY;
    for (int32_t j = 0; j < out->n_groups; j++) {
        const struct column *x = &s->columns[s->chosen[j]];
        memcpy(&out->counts[j * out->n_types], x->counts, (size_t)out->n_types * sizeof(int32_t));
        out->z = fmin(out->z, x->g);
    }
}

/* Returns the smallest effective power of the groups; 0 if a group lacks memory or has too many stages. */
static double worst_group(const struct autohet_grouping_problem *p, const int32_t *counts)
{
    double z = INFINITY;
    for (int32_t j = 0; j < p->n_groups; j++) {
        const int32_t *own = &counts[j * p->n_types];
        bool possible = units_of(p, own) > 0 && units_of(p, own) <= p->max_stages && bytes_of(p, own) >= p->min_bytes;
        z = fmin(z, possible ? autohet_group_power(p, own) : 0);
    }
    return z;
}

/* Gives each unit, strongest first, to the group that has the least power, or the least memory. Returns worst_group. */
static double greedy(const struct autohet_grouping_problem *p, bool by_memory, int32_t *counts)
{
    double *filled = HT_NEW_ARRAY(double, p->n_groups);
    memset(counts, 0, (size_t)(p->n_groups * p->n_types) * sizeof(*counts));
    for (int32_t t = p->n_types - 1; t >= 0; t--)
        for (int32_t i = 0; i < p->types[t].count; i++) {
            int32_t least = 0;
            for (int32_t j = 1; j < p->n_groups; j++)
                if (filled[j] < filled[least]) least = j;
            counts[least * p->n_types + t]++;
            filled[least] += by_memory ? (double)p->types[t].memory_bytes : p->types[t].power;
        }
    free(filled);
    return worst_group(p, counts);
}

static double ceiling(const struct autohet_grouping_problem *p)
{
    double power = 0;
    int32_t units = 0;
    for (int32_t t = 0; t < p->n_types; t++) {
        power += p->types[t].count * p->types[t].power;
        units += p->types[t].count;
    }
    return p->micro_batches * power / (p->n_groups * (p->micro_batches - 1) + units);
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Bisects the columns' powers up to the ceiling. On return s->chosen is the grouping of the largest Z that was found;
   returns false if none was. *proved: no larger one exists. */
static bool bisect(struct search *s, double most, double *z, bool *proved)
{
    double *values = HT_NEW_ARRAY(double, s->n);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (s->columns[i].g * BELOW <= most) values[n++] = s->columns[i].g;
    qsort(values, (size_t)n, sizeof(*values), rising);
    int32_t low = 0, high = n; /* values[low - 1] was found, values[high] was not */
    *proved = true;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        bool found = feasible(s, values[middle]);
        if (!found && s->tries >= SEARCH) *proved = false;
        if (found) {
            *z = values[middle];
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    free(values);
    return low > 0 && feasible(s, *z);
}

/* Improves the greedy grouping in *out. */
static void improve(const struct autohet_grouping_problem *p, struct autohet_grouping *out)
{
    struct search s = {.problem = p, .z = out->z};
    double z = out->z;
    s.chosen = HT_NEW_ARRAY(int32_t, p->n_groups);
    s.from = HT_NEW_ARRAY(int32_t, p->types[p->n_types - 1].count + 2);
    s.dead = HT_NEW_ARRAY(struct dead_end, MEMO);
    find_columns(&s);
    if (bisect(&s, ceiling(p), &z, &out->proved)) take(&s, out);
    free(s.columns);
    free(s.chosen);
    free(s.from);
    free(s.dead);
}

enum ht_status autohet_group(const struct autohet_grouping_problem *p, struct ht_error *err,
                             struct autohet_grouping *out)
{
    int32_t all[AUTOHET_MAX_TYPES] = {0};
    for (int32_t t = 0; t < p->n_types; t++) all[t] = p->types[t].count;
    *out = (struct autohet_grouping){.n_groups = p->n_groups, .n_types = p->n_types};
    if (!may_cover(p, all, p->n_groups, 0))
        return ht_fail(err, HT_INFEASIBLE, "%d groups over %d units: memory, units or layers do not suffice",
                       p->n_groups, units_of(p, all));
    out->counts = HT_NEW_ARRAY(int32_t, (size_t)p->n_groups * (size_t)p->n_types);
    out->z = greedy(p, false, out->counts);
    if (out->z <= 0) out->z = greedy(p, true, out->counts);
    improve(p, out);
    if (out->z > 0) return HT_OK;
    autohet_grouping_free(out);
    return ht_fail(err, HT_INFEASIBLE, "no %d groups of the units each have the memory of a model", p->n_groups);
}

void autohet_grouping_free(struct autohet_grouping *g)
{
    free(g->counts);
    g->counts = NULL;
}
