/*
 * Eq. 6: minimise T_fwd + T_bwd (mended: the period) over c, p, o subject to eqs. 1 and 2, p <= o, 0 <= c, p, o <= L.
 *
 * As an integer linear program, as printed: integers c, p, o, v in 0..L, binary z, reals TF, TB (m > 1: TF', TB'):
 *
 *     TF >= t_fp L                     TF - t_h2d o >= t_fp                        both terms of (3)
 *     TB - t_fp c + g o - (k1 - k2) v - k2 p >= (t_bp + g) L                       first term of (5)
 *     TB - t_cpu o >= t_bp + t_d2h                                                 second term of (5)
 *     2 (M'_a - M_a) c - 2 M_p p - 12 M_p o
 *         <= M_gpu - M_gc - 2 M_a (L+1) - 2 M_p (L+1) - 12 M_p L                   (1), literal
 *     14 M_p o <= M_cpu - M_cc                                                     (2)
 *     p - o <= 0
 *     v - p <= 0      v - c - o + B z <= B - L - s      v - L z <= 0               v
 *
 * k1 = max(t_h2d - t_fp - t_bp, 0), k2 = max(t_h2d - t_bp, 0), g = t_gpu, B = L + s; s is 1 for the exact v, else 0.
 * The objective minimises the maxima, so each becomes two rows. v has the coefficient k1 - k2 <= 0, so the solver
 * raises it to min(p, max(0, c - s - (L - o))). z = 0 means v = 0.
 *
 * Mended, with T instead of TF and TB: T is at least each cycle of autohete_periods (cost.c). w = min(c, L - o) is
 * pushed up like v, and u = 1 if o >= 1:
 *
 *     w - c <= 0      w + o <= L      o - L u <= 0
 *
 * and eq. 1 has a row for c < L and one for c = L, which takes what c = L - 1 does.
 *
 * The optimum is highly degenerate (with t_h2d <= t_bp any p takes equal time), so ties need a rule [ours]: least p,
 * then c, then o; mended c, then p, then o. Times are scaled by a block's largest time, bytes by its largest byte
 * count.
 */
#include "autohete/autohete.h"
#include "common/solve/milp.h"

#include "common/base/minmax.h"
#include "common/base/units.h"

#include <stdbool.h>

/* Returns the difference below which two objectives tie: a millionth of the time that all blocks compute. */
static int64_t tie_ns(const struct autohete_profile *f)
{
    return f->micro_batches * (f->fp_ns + f->bp_ns) * f->layers / AUTOHETE_TIE;
}

static bool fits(const struct autohete_profile *f, enum autohete_form form, struct autohete_choice s)
{
    return autohete_device_bytes(f, form, s) <= f->device_capacity_bytes &&
           autohete_host_bytes(f, s) <= f->host_capacity_bytes && s.p <= s.o;
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

struct program {
    struct ht_milp *m;
    double ns, bytes; /* scales: divide times and bytes by these */
    int c, p, o, v, z;
};

static struct program program_of(const struct autohete_profile *f, const struct autohete_box *box)
{
    const int64_t times[] = {f->fp_ns, f->bp_ns, f->h2d_ns, f->d2h_ns, f->cpu_ns, f->gpu_ns};
    struct program q = {.m = ht_milp_create("AutoHete"), .ns = 1, .bytes = 1};
    for (int i = 0; i < 6; i++) q.ns = times[i] > q.ns ? (double)times[i] : q.ns;
    q.bytes = (double)ht_max(ht_max(f->activation_bytes, f->state_bytes), ht_max(f->host_bytes, 1));
    double L = (double)f->layers;
    q.c = ht_milp_variable(q.m, "c", HT_MILP_INTEGER, (double)box->lower.c, (double)box->upper.c);
    q.p = ht_milp_variable(q.m, "p", HT_MILP_INTEGER, (double)box->lower.p, (double)box->upper.p);
    q.o = ht_milp_variable(q.m, "o", HT_MILP_INTEGER, (double)box->lower.o, (double)box->upper.o);
    q.v = ht_milp_variable(q.m, "v", HT_MILP_INTEGER, 0, L);
    q.z = ht_milp_variable(q.m, "z", HT_MILP_INTEGER, 0, 1);
    return q;
}

/* Adds a row: lower <= sum of c, p, o with these factors <= upper, all divided by `scale`. */
static int add_row(struct program *q, const char *name, double lower, double upper, double c, double p, double o,
                   double scale)
{
    int r = ht_milp_row(q->m, name, lower / scale, upper / scale);
    ht_milp_term(q->m, r, q->c, c / scale);
    ht_milp_term(q->m, r, q->p, p / scale);
    ht_milp_term(q->m, r, q->o, o / scale);
    return r;
}

/* Adds the rows of eqs. 1 and 2 and p <= o. Half a byte of slack keeps rounding from refusing what just fits. */
static void add_memory(struct program *q, const struct autohete_profile *f, enum autohete_form form)
{
    const struct autohete_choice none = {0, 0, 0}, p = {0, 1, 0}, o = {0, 0, 1};
    double base = (double)autohete_device_bytes(f, form, none);
    double p_bytes = (double)autohete_device_bytes(f, form, p) - base;
    double o_bytes = (double)autohete_device_bytes(f, form, o) - base;
    double capacity = (double)f->device_capacity_bytes + 0.5, one = (double)f->activation_bytes;
    add_row(q, "device memory (1)", -INFINITY, capacity - base, (double)f->input_bytes - one, p_bytes, o_bytes,
            q->bytes);
    if (form == AUTOHETE_MENDED) /* c = L takes what c = L - 1 does */
        add_row(q, "device memory (1), c = L", -INFINITY,
                capacity - base - ((double)f->input_bytes - one) * ((double)f->layers - 1), 0, p_bytes, o_bytes,
                q->bytes);
    base = (double)autohete_host_bytes(f, none);
    add_row(q, "host memory (2)", -INFINITY, (double)f->host_capacity_bytes - base + 0.5, 0, 0,
            (double)autohete_host_bytes(f, o) - base, q->bytes);
    add_row(q, "p <= o", -INFINITY, 0, 0, 1, -1, 1);
}

static void add_overlapped(struct program *q, const struct autohete_profile *f, enum autohete_form form)
{
    double L = (double)f->layers, s = form == AUTOHETE_MENDED, B = L + s;
    int r = add_row(q, "v <= p", -INFINITY, 0, 0, -1, 0, 1);
    ht_milp_term(q->m, r, q->v, 1);
    r = add_row(q, "v <= c - s - (L - o)", -INFINITY, B - L - s, -1, 0, -1, 1);
    ht_milp_term(q->m, r, q->v, 1);
    ht_milp_term(q->m, r, q->z, B);
    r = add_row(q, "v <= L z", -INFINITY, 0, 0, 0, 0, 1);
    ht_milp_term(q->m, r, q->v, 1);
    ht_milp_term(q->m, r, q->z, -L);
}

/* Adds a forward and a backward pass, `weight` times in the objective. all_fetched: O is fetched, else only P. g and u:
   time per block on device and host beside the pass itself. */
static void add_passes(struct program *q, const struct autohete_profile *f, int objective, double weight,
                       bool all_fetched, double g, double u)
{
    double L = (double)f->layers, fp = (double)f->fp_ns, bp = (double)f->bp_ns, h2d = (double)f->h2d_ns;
    double k1 = fmax(h2d - fp - bp, 0), k2 = fmax(h2d - bp, 0);
    int forward = ht_milp_variable(q->m, "T_fwd", HT_MILP_REAL, 0, INFINITY);
    int backward = ht_milp_variable(q->m, "T_bwd", HT_MILP_REAL, 0, INFINITY);
    ht_milp_objective_term(q->m, objective, forward, weight);
    ht_milp_objective_term(q->m, objective, backward, weight);
    int r = add_row(q, "compute (3)", fp * L, INFINITY, 0, 0, 0, q->ns);
    ht_milp_term(q->m, r, forward, 1);
    r = add_row(q, "prefetch (3)", fp, INFINITY, 0, all_fetched ? 0 : -h2d, all_fetched ? -h2d : 0, q->ns);
    ht_milp_term(q->m, r, forward, 1);
    r = add_row(q, "compute (5)", (bp + g) * L, INFINITY, -fp, -k2, g, q->ns);
    ht_milp_term(q->m, r, backward, 1);
    ht_milp_term(q->m, r, q->v, (k2 - k1) / q->ns);
    r = add_row(q, "CPU (5)", bp + (double)f->d2h_ns, INFINITY, 0, 0, -u, q->ns);
    ht_milp_term(q->m, r, backward, 1);
}

/* Adds T_fwd + T_bwd of every micro-batch. */
static void add_literal(struct program *q, const struct autohete_profile *f, int objective)
{
    double more = (double)(f->micro_batches - 1), some = more > 0;
    add_passes(q, f, objective, 1, true, (double)f->gpu_ns + some * (double)f->gpu_sum_ns,
               (double)f->cpu_ns + some * (double)f->cpu_sum_ns);
    if (more > 0) add_passes(q, f, objective, more, false, (double)f->gpu_sum_ns, (double)f->cpu_sum_ns);
}

/* A linear function of the variables. */
struct linear {
    double one, c, p, o, v, w, u;
};

/* Returns a + factor b. */
static struct linear plus(struct linear a, double factor, struct linear b)
{
    return (struct linear){a.one + factor * b.one, a.c + factor * b.c, a.p + factor * b.p, a.o + factor * b.o,
                           a.v + factor * b.v,     a.w + factor * b.w, a.u + factor * b.u};
}

/* Adds the row T >= t. */
static void add_bound(struct program *q, int T, int w, int u, enum autohete_bound bound, struct linear t)
{
    int r = add_row(q, autohete_bound_names[bound], t.one, INFINITY, -t.c, -t.p, -t.o, q->ns);
    ht_milp_term(q->m, r, T, 1);
    ht_milp_term(q->m, r, q->v, -t.v / q->ns);
    ht_milp_term(q->m, r, w, -t.w / q->ns);
    ht_milp_term(q->m, r, u, -t.u / q->ns);
}

/* Adds the period: autohete_periods, row by row. */
static void add_periods(struct program *q, const struct autohete_profile *f, int objective)
{
    double L = (double)f->layers, m = (double)f->micro_batches, fp = (double)f->fp_ns, bp = (double)f->bp_ns;
    double h2d = (double)f->h2d_ns, d2h = (double)f->d2h_ns, sum = (double)f->cpu_sum_ns;
    double step = (double)f->cpu_ns + (m > 1) * sum, g = (double)f->gpu_ns + (m - 1) * (double)f->gpu_sum_ns;
    double k1 = fmax(h2d - fp - bp, 0), k2 = fmax(h2d - bp, 0);
    int T = ht_milp_variable(q->m, "T", HT_MILP_REAL, 0, INFINITY);
    int w = ht_milp_variable(q->m, "w", HT_MILP_INTEGER, 0, L), u = ht_milp_variable(q->m, "u", HT_MILP_INTEGER, 0, 1);
    ht_milp_objective_term(q->m, objective, T, 1);
    ht_milp_term(q->m, add_row(q, "w <= c", -INFINITY, 0, -1, 0, 0, 1), w, 1);
    ht_milp_term(q->m, add_row(q, "w <= L - o", -INFINITY, L, 0, 0, 1, 1), w, 1);
    ht_milp_term(q->m, add_row(q, "o <= L u", -INFINITY, 0, 0, 0, 1, 1), u, -L);

    struct linear blocks = {.one = (fp + bp) * L, .c = fp, .p = k2, .v = k1 - k2};
    struct linear device = {.one = g * L + (double)f->const_ns, .o = -g};
    device = plus(device, m, blocks);
    double slot = fp + bp + (double)f->gpu_ns;
    struct linear others =
        plus(device, 1, (struct linear){.one = -slot * L - (double)f->turn_ns, .o = slot, .w = -fp, .u = d2h + step});
    add_bound(q, T, w, u, AUTOHETE_DEVICE, device);
    add_bound(q, T, w, u, AUTOHETE_CHAIN, plus(others, 1, (struct linear){.u = h2d}));
    add_bound(q, T, w, u, AUTOHETE_PREFETCH, plus(others, 1, (struct linear){.o = h2d - fp, .u = fp}));
    add_bound(q, T, w, u, AUTOHETE_H2D, (struct linear){.o = h2d, .p = (2 * m - 1) * h2d});
    for (int recomputed = 0; recomputed <= 1; recomputed++) { /* max(0, c - L + 1) */
        struct linear turn = {.u = h2d + d2h + bp + (double)f->head_ns};
        if (recomputed) turn = plus(turn, fp, (struct linear){.one = 1 - L, .c = 1});
        struct linear last =
            plus(turn, 1, (struct linear){.one = (double)f->ends_host_ns, .u = fp * (double)autohete_blocks_behind(f)});
        struct linear d2h_lane = {.o = m * d2h, .u = step + fp - d2h};
        add_bound(q, T, w, u, AUTOHETE_HOST, plus(last, 1, (struct linear){.o = (double)f->cpu_ns + (m - 1) * sum}));
        add_bound(q, T, w, u, AUTOHETE_SUMS, plus(plus(last, 1, (struct linear){.o = step}), m - 1, blocks));
        add_bound(q, T, w, u, AUTOHETE_D2H, plus(turn, 1, d2h_lane));
    }
}

enum ht_status autohete_solve(const struct autohete_profile *f, enum autohete_form form, const struct autohete_box *box,
                              struct ht_error *err, struct autohete_choice *out)
{
    if (!ht_milp_available()) return autohete_search(f, form, box, err, out);
    struct program q = program_of(f, box);
    int time = ht_milp_objective(q.m, "time", ((double)tie_ns(f) + 0.5) / q.ns);
    if (form == AUTOHETE_LITERAL || f->apart)
        add_literal(&q, f, time);
    else
        add_periods(&q, f, time);
    add_memory(&q, f, form);
    add_overlapped(&q, f, form);
    const bool literal = form == AUTOHETE_LITERAL;
    const int order[] = {literal ? q.p : q.c, literal ? q.c : q.p, q.o};
    for (int i = 0; i < 3; i++) ht_milp_objective_term(q.m, ht_milp_objective(q.m, "tie-break", 0.5), order[i], 1);
    double values[16];
    enum ht_status status = ht_milp_solve(q.m, err, values);
    ht_milp_destroy(q.m);
    if (status == HT_INFEASIBLE) return autohete_explain(f, form, box, err);
    if (status != HT_OK) return status;
    struct autohete_choice s = {(int64_t)values[q.c], (int64_t)values[q.p], (int64_t)values[q.o]};
    /* GLPK computes in doubles with tolerances; the exact bytes decide. */
    if (!fits(f, form, s)) return autohete_search(f, form, box, err, out);
    *out = s;
    return HT_OK;
}

/* ---- the search ------------------------------------------------------------------------------------------------ */

/* Finds the least p of the box that fits with c and o. Returns false if none does. Eq. 1 falls in p. */
static bool least_p(const struct autohete_profile *f, enum autohete_form form, const struct autohete_box *box,
                    struct autohete_choice *s)
{
    int64_t low = box->lower.p, high = ht_min(box->upper.p, s->o);
    while (low < high) {
        s->p = low + (high - low) / 2;
        if (fits(f, form, *s))
            high = s->p;
        else
            low = s->p + 1;
    }
    s->p = low;
    return fits(f, form, *s);
}

static bool is_better(enum autohete_form form, const struct autohete_choice *a, const struct autohete_choice *b)
{
    if (form == AUTOHETE_MENDED && a->c != b->c) return a->c < b->c;
    if (a->p != b->p) return a->p < b->p;
    if (a->c != b->c) return a->c < b->c;
    return a->o < b->o;
}

enum ht_status autohete_search(const struct autohete_profile *f, enum autohete_form form,
                               const struct autohete_box *box, struct ht_error *err, struct autohete_choice *out)
{
    int64_t best_ns = INT64_MAX;
    bool found = false;
    for (int pass = 0; pass < 2; pass++) /* first the least time, then the best choice that ties with it */
        for (struct autohete_choice s = box->lower; s.c <= box->upper.c; s.c++)
            for (s.o = box->lower.o; s.o <= box->upper.o; s.o++) {
                if (!least_p(f, form, box, &s)) continue;
                int64_t ns = autohete_objective_ns(f, form, s);
                if (pass == 0) {
                    best_ns = ns < best_ns ? ns : best_ns;
                } else if (ns <= best_ns + tie_ns(f) && (!found || is_better(form, &s, out))) {
                    *out = s;
                    found = true;
                }
            }
    return found ? HT_OK : autohete_explain(f, form, box, err);
}

enum ht_status autohete_explain(const struct autohete_profile *f, enum autohete_form form,
                                const struct autohete_box *box, struct ht_error *err)
{
    /* Eq. 1 falls in c and p. It falls in o too, since a block's states weigh more than its copy. */
    struct autohete_choice s = box->upper;
    if (s.p > s.o) s.p = s.o;
    int64_t need = autohete_device_bytes(f, form, s);
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT];
    if (need > f->device_capacity_bytes)
        return ht_fail_memory(
            err, HT_DEVICE, "AutoHete has no plan: device memory (eq. 1): c=%lld p=%lld o=%lld still needs %s of %s",
            (long long)s.c, (long long)s.p, (long long)s.o, ht_format_quantity(HT_BYTES, (double)need, a),
            ht_format_quantity(HT_BYTES, (double)f->device_capacity_bytes, b));
    while (s.o > box->lower.o) {
        struct autohete_choice less = {s.c, s.p < s.o - 1 ? s.p : s.o - 1, s.o - 1};
        if (autohete_device_bytes(f, form, less) > f->device_capacity_bytes) break;
        s = less;
    }
    return ht_fail_memory(
        err, HT_HOST,
        "AutoHete has no plan: host memory (eq. 2): the device needs o >= %lld, which takes %s of %s there",
        (long long)s.o, ht_format_quantity(HT_BYTES, (double)autohete_host_bytes(f, s), a),
        ht_format_quantity(HT_BYTES, (double)f->host_capacity_bytes, b));
}
