/*
 * Checkmate: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020. The
 * cheapest choice under memory limits, by an integer program.
 *
 * Checkmate's program decides for every stage and every tensor whether it is there (S) and whether it is computed (R),
 * and minimises the cost of R under the GPU's memory (its eq. 1). A block's input always stays available here, and a
 * block's missing parts are recomputed once, when its backward pass begins. Then S and R of all stages follow from one
 * choice an activation: keep, recompute or, as in LoHan's comparison (LoHan, Sec. V-E, LoHan+CM: "recomputes or
 * offloads activations to main memory"), swap.
 *
 * Blocks are alike, so activations of equal size and cost form a group g, of n_g. With r_g recomputed, s_g swapped and
 * the rest kept:
 *
 *     minimise     sum_g t_g r_g + E_f + E_b
 *     subject to   sum_g a_g (n_g - r_g - s_g) <= device_bytes
 *                  sum_g a_g s_g               <= main_bytes
 *                  r_g + s_g <= n_g                                    r_g = 0 where recomputation is not possible
 *                  E_f >= sum_g a_g s_g / out - T_f                    what swapping out exceeds the forward pass by
 *                  E_b >= sum_g a_g s_g / in - T_b - sum_g t_g r_g     and swapping in the backward pass
 *
 * Within a group the first blocks are swapped, which have most time, and the last are kept. Of equals the program takes
 * one that swaps little [ours]. Up to EXACT activations it is solved to the optimum; with more of them the solver may
 * stop within GAP of the least time of passes, recomputation and exposed transfers together.
 *
 * A chain of unlike activations has a group each, and the program decides on each of them. Times are scaled by the
 * passes' time, bytes by the sum of all activations.
 */
#include "policies/policy.h"

#include "common/base/array.h"
#include "common/base/units.h"
#include "common/schedule/schedule.h"
#include "common/solve/milp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXACT = 32 };
static const double GAP = 1e-3, TIE = 1e-6;

struct group {
    double bytes, recompute_s;
    int32_t n;
    int r, s; /* variables */
};

struct program {
    const struct ht_policy_case *c;
    struct group *groups;
    int32_t n;
    int32_t *group_of;   /* [activations] */
    double bytes;        /* of all activations */
    double byte, second; /* scales: 1 of these is a thousandth of all */
};

static void find_groups(struct program *q)
{
    double seconds = q->c->forward_s + q->c->backward_s;
    for (int32_t i = 0; i < q->c->n; i++) {
        const struct ht_activation *a = &q->c->a[i];
        int32_t g = 0;
        while (g < q->n && (q->groups[g].bytes != a->bytes || q->groups[g].recompute_s != a->recompute_s)) g++;
        if (g == q->n) q->groups[q->n++] = (struct group){.bytes = a->bytes, .recompute_s = a->recompute_s};
        q->groups[g].n++;
        q->group_of[i] = g;
        q->bytes += a->bytes;
        if (isfinite(a->recompute_s)) seconds += a->recompute_s;
    }
    q->byte = q->bytes > 0 ? q->bytes / 1000 : 1;
    q->second = seconds > 0 ? seconds / 1000 : 1;
}

static struct ht_milp *program_of(struct program *q)
{
    const struct ht_policy_case *c = q->c;
    struct ht_milp *m = ht_milp_create("Checkmate");
    int exposed_f = ht_milp_variable(m, "E_f", HT_MILP_REAL, 0, INFINITY);
    int exposed_b = ht_milp_variable(m, "E_b", HT_MILP_REAL, 0, INFINITY);
    int device = ht_milp_row(m, "gpu memory", (q->bytes - c->device_bytes) / q->byte, INFINITY); /* what leaves it */
    int host = ht_milp_row(m, "main memory", -INFINITY, c->main_bytes / q->byte);
    int out = ht_milp_row(m, "swap out", -c->forward_s / q->second, INFINITY);
    int in = ht_milp_row(m, "swap in", -c->backward_s / q->second, INFINITY);
    int cost = ht_milp_objective(m, "time", 0);
    ht_milp_gap(m, c->n > EXACT ? GAP : 0);
    ht_milp_term(m, out, exposed_f, 1);
    ht_milp_term(m, in, exposed_b, 1);
    ht_milp_objective_term(m, cost, exposed_f, 1);
    ht_milp_objective_term(m, cost, exposed_b, 1);
    /* A constant, so that the gap is a part of the passes' whole time. */
    double passes = (c->forward_s + c->backward_s) / q->second;
    ht_milp_objective_term(m, cost, ht_milp_variable(m, "passes", HT_MILP_REAL, passes, passes), 1);
    for (int32_t g = 0; g < q->n; g++) {
        struct group *x = &q->groups[g];
        bool can = isfinite(x->recompute_s);
        double bytes = x->bytes / q->byte, seconds = can ? x->recompute_s / q->second : 0;
        x->r = ht_milp_variable(m, "r", HT_MILP_INTEGER, 0, can ? x->n : 0);
        x->s = ht_milp_variable(m, "s", HT_MILP_INTEGER, 0, x->n);
        int each = ht_milp_row(m, "group", -INFINITY, x->n);
        ht_milp_term(m, each, x->r, 1);
        ht_milp_term(m, each, x->s, 1);
        ht_milp_term(m, device, x->r, bytes);
        ht_milp_term(m, device, x->s, bytes);
        ht_milp_term(m, host, x->s, bytes);
        ht_milp_term(m, out, x->s, -x->bytes / c->out_bytes_per_s / q->second);
        ht_milp_term(m, in, x->s, -x->bytes / c->in_bytes_per_s / q->second);
        ht_milp_term(m, in, x->r, seconds);
        ht_milp_objective_term(m, cost, x->r, seconds);
        ht_milp_objective_term(m, cost, x->s, TIE * bytes); /* of equals the one that swaps least */
    }
    return m;
}

/* Gives each group's fates to its activations: the first ones are swapped, the last ones kept. */
static void spread(const struct program *q, const double *values, enum ht_fate *fates)
{
    int32_t *seen = HT_NEW_ARRAY(int32_t, q->n);
    for (int32_t i = 0; i < q->c->n; i++) {
        const struct group *x = &q->groups[q->group_of[i]];
        int32_t k = seen[q->group_of[i]]++;
        fates[i] = k < values[x->s]                  ? HT_FATE_MAIN
                   : k < values[x->s] + values[x->r] ? HT_FATE_RECOMPUTED
                                                     : HT_FATE_KEPT;
    }
    free(seen);
}

enum ht_status ht_policy_checkmate(const struct ht_policy_case *c, struct ht_error *err, enum ht_fate *fates)
{
    enum ht_status status = ht_policy_check(c, err);
    if (status) return status;
    char device[HT_QUANTITY_TEXT], host[HT_QUANTITY_TEXT], all[HT_QUANTITY_TEXT];
    struct program q = {.c = c, .groups = HT_NEW_ARRAY(struct group, c->n), .group_of = HT_NEW_ARRAY(int32_t, c->n)};
    find_groups(&q);
    struct ht_milp *m = program_of(&q);
    double *values = HT_NEW_ARRAY(double, 3 + 2 * q.n);
    status = ht_milp_solve(m, err, values);
    if (!status) spread(&q, values, fates);
    if (status == HT_INFEASIBLE && ht_milp_available())
        ht_fail_memory(
            err, HT_DEVICE,
            "no choice by Checkmate fits: beside all else %s of GPU memory and %s of main memory are left for %s of "
            "activations",
            ht_format_quantity(HT_BYTES, c->device_bytes, device), ht_format_quantity(HT_BYTES, c->main_bytes, host),
            ht_format_quantity(HT_BYTES, q.bytes, all));
    ht_milp_destroy(m);
    free(values);
    free(q.groups);
    free(q.group_of);
    return status;
}

double ht_policy_checkmate_s(const struct ht_policy_case *c, const enum ht_fate *fates)
{
    struct ht_policy_sums s = ht_policy_sum(c, fates);
    double swapped = s.bytes[HT_FATE_MAIN] + s.bytes[HT_FATE_SSD];
    double out = fmax(0, swapped / c->out_bytes_per_s - c->forward_s);
    double in = fmax(0, swapped / c->in_bytes_per_s - c->backward_s - s.recompute_s);
    return s.recompute_s + out + in;
}
