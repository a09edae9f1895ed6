/*
 * Grouping by eq. (3) as a linear program, for a number of groups D: the reference that group.c is compared with.
 *
 *     maximise  Z                                                       (3a): (sum_j y_j) Z with all y_j = 1
 *     subject to  sum_t m_t c_tj >= M_min            for each group j   (3b)
 *                 (K + n - 1) Z <= K S_j + (K + n - 1) Z_max (1 - w_jn)  for each n   (3c) with eq. (2)
 *                 sum_n w_jn = 1, sum_n n w_jn = sum_t c_tj                            P_j = n, at least 1: (3d)
 *                 sum_j c_tj = C_t                   for each type t    (3e)
 *
 * c_tj: units of type t in group j, in place of the paper's x_ij, since units of a type are alike. S_j = sum_t g_t c_tj.
 * w_jn selects the number of stages, by which (3c) with eq. (2) is linear. Z_max is the power of all units, which no G
 * exceeds. Groups are interchangeable, so S_j >= S_{j-1} is required, too.
 */
#include "autohet/planner.h"

#include "common/base/array.h"
#include "common/solve/milp.h"

#include <math.h>
#include <stdlib.h>

#define GIB (1024.0 * 1024 * 1024)

struct rows {
    const struct autohet_grouping_problem *p;
    struct ht_milp *m;
    int z, *c, *w; /* variables: Z, [n_groups * n_types], [n_groups * stages] */
    int32_t stages;
    double z_max;
};

static void add_variables(struct rows *r)
{
    const struct autohet_grouping_problem *p = r->p;
    r->z = ht_milp_variable(r->m, "Z", HT_MILP_REAL, 0, r->z_max);
    for (int32_t j = 0; j < p->n_groups; j++) {
        for (int32_t t = 0; t < p->n_types; t++)
            r->c[j * p->n_types + t] = ht_milp_variable(r->m, "c", HT_MILP_INTEGER, 0, p->types[t].count);
        for (int32_t n = 1; n <= r->stages; n++)
            r->w[j * r->stages + n - 1] = ht_milp_variable(r->m, "w", HT_MILP_INTEGER, 0, 1);
    }
}

/* Adds sum_t of a value of the type times c_tj to a row. */
static void add_group(const struct rows *r, int row, int32_t j, double power, double memory, double count)
{
    for (int32_t t = 0; t < r->p->n_types; t++) {
        const struct autohet_unit_type *u = &r->p->types[t];
        double value = power * u->power + memory * (double)u->memory_bytes / GIB + count;
        ht_milp_term(r->m, row, r->c[j * r->p->n_types + t], value);
    }
}

static void add_group_rows(const struct rows *r, int32_t j)
{
    const struct autohet_grouping_problem *p = r->p;
    int one = ht_milp_row(r->m, "one size", 1, 1), size = ht_milp_row(r->m, "3d size", 0, 0);
    add_group(r, ht_milp_row(r->m, "3b", p->min_bytes / GIB, INFINITY), j, 0, 1, 0);
    add_group(r, size, j, 0, 0, -1);
    for (int32_t n = 1; n <= r->stages; n++) {
        double scale = p->micro_batches + n - 1;
        int w = r->w[j * r->stages + n - 1], row = ht_milp_row(r->m, "3c", -INFINITY, scale * r->z_max);
        ht_milp_term(r->m, row, r->z, scale);
        ht_milp_term(r->m, row, w, scale * r->z_max);
        add_group(r, row, j, -p->micro_batches, 0, 0);
        ht_milp_term(r->m, one, w, 1);
        ht_milp_term(r->m, size, w, n);
    }
    if (!j) return;
    int row = ht_milp_row(r->m, "order", 0, INFINITY);
    add_group(r, row, j, 1, 0, 0);
    add_group(r, row, j - 1, -1, 0, 0);
}

static void read_counts(const struct rows *r, const double *values, struct autohet_grouping *out)
{
    const struct autohet_grouping_problem *p = r->p;
    *out = (struct autohet_grouping){.n_groups = p->n_groups, .n_types = p->n_types, .z = INFINITY, .proved = true};
    out->counts = HT_NEW_ARRAY(int32_t, p->n_groups * p->n_types);
    for (int32_t i = 0; i < p->n_groups * p->n_types; i++) out->counts[i] = (int32_t)values[r->c[i]];
    for (int32_t j = 0; j < p->n_groups; j++)
        out->z = fmin(out->z, autohet_group_power(p, &out->counts[j * p->n_types]));
}

enum ht_status autohet_group_milp(const struct autohet_grouping_problem *p, struct ht_error *err,
                                  struct autohet_grouping *out)
{
    struct rows r = {.p = p, .m = ht_milp_create("AutoHet, eq. (3)")};
    int32_t units = 0;
    for (int32_t t = 0; t < p->n_types; t++) {
        units += p->types[t].count;
        r.z_max += p->types[t].count * p->types[t].power;
    }
    r.stages = units < p->max_stages ? units : p->max_stages;
    r.c = HT_NEW_ARRAY(int, p->n_groups * p->n_types);
    r.w = HT_NEW_ARRAY(int, p->n_groups *r.stages);
    double *values = HT_NEW_ARRAY(double, 1 + p->n_groups * (p->n_types + r.stages));
    add_variables(&r);
    for (int32_t j = 0; j < p->n_groups; j++) add_group_rows(&r, j);
    for (int32_t t = 0; t < p->n_types; t++) {
        int row = ht_milp_row(r.m, "3e", p->types[t].count, p->types[t].count);
        for (int32_t j = 0; j < p->n_groups; j++) ht_milp_term(r.m, row, r.c[j * p->n_types + t], 1);
    }
    ht_milp_objective_term(r.m, ht_milp_objective(r.m, "Z", 0), r.z, -1);
    enum ht_status status = ht_milp_solve(r.m, err, values);
    if (!status) read_counts(&r, values, out);
    ht_milp_destroy(r.m);
    free(r.c);
    free(r.w);
    free(values);
    return status;
}
