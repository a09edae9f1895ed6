/*
 * Eq. 6: minimise T_fwd + T_bwd over c, p, o subject to eqs. 1 and 2, p <= o, 0 <= c, p, o <= L.
 *
 * As an integer linear program: integers c, p, o, v in 0..L, binary z, reals TF, TB (m > 1: TF', TB'):
 *
 *     TF >= t_fp L                     TF - t_h2d o >= t_fp                        both terms of (3)
 *     TB - t_fp c + g o - (k1 - k2) v - k2 p >= (t_bp + g) L                       first term of (5)
 *     TB - t_cpu o >= t_bp + t_d2h                                                 second term of (5)
 *     2 (M'_a - M_a) c - 2 M_p p - 12 M_p o
 *         <= M_gpu - M_gc - 2 M_a (L+1) - 2 M_p (L+1) - 12 M_p L                   (1)
 *     14 M_p o <= M_cpu - M_cc                                                     (2)
 *     p - o <= 0
 *     v - p <= 0      v - c - o + L z <= 0      v - L z <= 0                       v
 *
 * k1 = max(t_h2d - t_fp - t_bp, 0), k2 = max(t_h2d - t_bp, 0), g = t_gpu. The objective minimises the maxima, so each
 * becomes two rows. v has the coefficient k1 - k2 <= 0, so the solver raises it to min(p, max(0, c - (L - o))). z = 0
 * means v = 0. Other programs over c, p, o replace the rows of (3), (5) and v (struct autohete_model).
 *
 * The optimum is highly degenerate (with t_h2d <= t_bp any p takes equal time), so ties need a rule [ours]: least p,
 * then c, then o. Times are scaled by a block's largest time, bytes by its largest byte count.
 */
#include "autohete/program.h"

#include "common/base/interrupt.h"
#include "common/base/minmax.h"
#include "common/base/units.h"

#include <stdbool.h>

/* Returns the difference below which two objectives tie: a millionth of the time that all blocks compute. */
static int64_t tie_ns(const struct autohete_profile *f)
{
    return f->micro_batches * (f->fp_ns + f->bp_ns) * f->layers / AUTOHETE_TIE;
}

static bool fits(const struct autohete_profile *f, const struct autohete_model *model, struct autohete_choice s)
{
    return model->device_bytes(f, s) <= f->device_capacity_bytes &&
           autohete_host_bytes(f, s) <= f->host_capacity_bytes && s.p <= s.o;
}

/* Fails (HT_INFEASIBLE) with the constraint that leaves no point in the box. */
static enum ht_status explain(const struct autohete_profile *f, const struct autohete_model *model,
                              const struct autohete_box *box, struct ht_error *err)
{
    /* Eq. 1 falls in c and p. It falls in o too, since a block's states weigh more than its copy. */
    struct autohete_choice s = box->upper;
    if (s.p > s.o) s.p = s.o;
    int64_t need = model->device_bytes(f, s);
    char a[HT_QUANTITY_TEXT], b[HT_QUANTITY_TEXT];
    if (need > f->device_capacity_bytes)
        return ht_fail_memory(
            err, HT_DEVICE, "AutoHete has no plan: device memory (eq. 1 %s): c=%lld p=%lld o=%lld still needs %s of %s",
            model->name, (long long)s.c, (long long)s.p, (long long)s.o, ht_format_quantity(HT_BYTES, (double)need, a),
            ht_format_quantity(HT_BYTES, (double)f->device_capacity_bytes, b));
    while (s.o > box->lower.o) {
        struct autohete_choice less = {s.c, s.p < s.o - 1 ? s.p : s.o - 1, s.o - 1};
        if (model->device_bytes(f, less) > f->device_capacity_bytes) break;
        s = less;
    }
    return ht_fail_memory(
        err, HT_HOST,
        "AutoHete has no plan: host memory (eq. 2): the device needs o >= %lld, which takes %s of %s there",
        (long long)s.o, ht_format_quantity(HT_BYTES, (double)autohete_host_bytes(f, s), a),
        ht_format_quantity(HT_BYTES, (double)f->host_capacity_bytes, b));
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

static struct autohete_program program_of(const struct autohete_profile *f, const struct autohete_box *box)
{
    const int64_t times[] = {f->fp_ns, f->bp_ns, f->h2d_ns, f->d2h_ns, f->cpu_ns, f->gpu_ns};
    struct autohete_program q = {.m = ht_milp_create("AutoHete"), .ns = 1, .bytes = 1};
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

int autohete_add_row(struct autohete_program *q, const char *name, double lower, double upper, double c, double p,
                     double o, double scale)
{
    int r = ht_milp_row(q->m, name, lower / scale, upper / scale);
    ht_milp_term(q->m, r, q->c, c / scale);
    ht_milp_term(q->m, r, q->p, p / scale);
    ht_milp_term(q->m, r, q->o, o / scale);
    return r;
}

/* Adds the rows of eqs. 1 and 2 and p <= o. Half a byte of slack keeps rounding from refusing what just fits. */
static void add_memory(struct autohete_program *q, const struct autohete_profile *f, const struct autohete_model *model)
{
    const struct autohete_choice none = {0, 0, 0}, p = {0, 1, 0}, o = {0, 0, 1};
    double base = (double)model->device_bytes(f, none);
    double p_bytes = (double)model->device_bytes(f, p) - base;
    double o_bytes = (double)model->device_bytes(f, o) - base;
    double capacity = (double)f->device_capacity_bytes + 0.5, one = (double)f->activation_bytes;
    autohete_add_row(q, "device memory (1)", -INFINITY, capacity - base, (double)f->input_bytes - one, p_bytes, o_bytes,
                     q->bytes);
    base = (double)autohete_host_bytes(f, none);
    autohete_add_row(q, "host memory (2)", -INFINITY, (double)f->host_capacity_bytes - base + 0.5, 0, 0,
                     (double)autohete_host_bytes(f, o) - base, q->bytes);
    autohete_add_row(q, "p <= o", -INFINITY, 0, 0, 1, -1, 1);
}

void autohete_add_overlapped(struct autohete_program *q, const struct autohete_profile *f, int64_t less)
{
    double L = (double)f->layers, s = (double)less, B = L + s;
    int r = autohete_add_row(q, "v <= p", -INFINITY, 0, 0, -1, 0, 1);
    ht_milp_term(q->m, r, q->v, 1);
    r = autohete_add_row(q, "v <= c - s - (L - o)", -INFINITY, B - L - s, -1, 0, -1, 1);
    ht_milp_term(q->m, r, q->v, 1);
    ht_milp_term(q->m, r, q->z, B);
    r = autohete_add_row(q, "v <= L z", -INFINITY, 0, 0, 0, 0, 1);
    ht_milp_term(q->m, r, q->v, 1);
    ht_milp_term(q->m, r, q->z, -L);
}

/* Adds a forward and a backward pass, `weight` times in the objective. all_fetched: O is fetched, else only P. g and u:
   time per block on device and host beside the pass itself. */
static void add_passes(struct autohete_program *q, const struct autohete_profile *f, int objective, double weight,
                       bool all_fetched, double g, double u)
{
    double L = (double)f->layers, fp = (double)f->fp_ns, bp = (double)f->bp_ns, h2d = (double)f->h2d_ns;
    double k1 = fmax(h2d - fp - bp, 0), k2 = fmax(h2d - bp, 0);
    int forward = ht_milp_variable(q->m, "T_fwd", HT_MILP_REAL, 0, INFINITY);
    int backward = ht_milp_variable(q->m, "T_bwd", HT_MILP_REAL, 0, INFINITY);
    ht_milp_objective_term(q->m, objective, forward, weight);
    ht_milp_objective_term(q->m, objective, backward, weight);
    int r = autohete_add_row(q, "compute (3)", fp * L, INFINITY, 0, 0, 0, q->ns);
    ht_milp_term(q->m, r, forward, 1);
    r = autohete_add_row(q, "prefetch (3)", fp, INFINITY, 0, all_fetched ? 0 : -h2d, all_fetched ? -h2d : 0, q->ns);
    ht_milp_term(q->m, r, forward, 1);
    r = autohete_add_row(q, "compute (5)", (bp + g) * L, INFINITY, -fp, -k2, g, q->ns);
    ht_milp_term(q->m, r, backward, 1);
    ht_milp_term(q->m, r, q->v, (k2 - k1) / q->ns);
    r = autohete_add_row(q, "CPU (5)", bp + (double)f->d2h_ns, INFINITY, 0, 0, -u, q->ns);
    ht_milp_term(q->m, r, backward, 1);
}

void autohete_add_passes(struct autohete_program *q, const struct autohete_profile *f, int objective)
{
    double more = (double)(f->micro_batches - 1), some = more > 0;
    add_passes(q, f, objective, 1, true, (double)f->gpu_ns + some * (double)f->gpu_sum_ns,
               (double)f->cpu_ns + some * (double)f->cpu_sum_ns);
    if (more > 0) add_passes(q, f, objective, more, false, (double)f->gpu_sum_ns, (double)f->cpu_sum_ns);
}

static int64_t printed_ns(const struct autohete_profile *f, struct autohete_choice s)
{
    return autohete_iteration_ns(f, s, autohete_overlapped(f, s));
}

static void add_printed(struct autohete_program *q, const struct autohete_profile *f, int objective)
{
    autohete_add_passes(q, f, objective);
    autohete_add_overlapped(q, f, 0);
}

const struct autohete_model autohete_printed = {
    .name = "as printed",
    .device_bytes = autohete_device_bytes,
    .overlapped = autohete_overlapped,
    .objective_ns = printed_ns,
    .add_rows = add_printed,
};

enum ht_status autohete_solve(const struct autohete_profile *f, const struct autohete_model *model,
                              const struct autohete_box *box, struct ht_error *err, struct autohete_choice *out)
{
    if (!ht_milp_available()) return autohete_search(f, model, box, err, out);
    struct autohete_program q = program_of(f, box);
    int time = ht_milp_objective(q.m, "time", ((double)tie_ns(f) + 0.5) / q.ns);
    model->add_rows(&q, f, time);
    add_memory(&q, f, model);
    const int order[] = {model->least_c_first ? q.c : q.p, model->least_c_first ? q.p : q.c, q.o};
    for (int i = 0; i < 3; i++) ht_milp_objective_term(q.m, ht_milp_objective(q.m, "tie-break", 0.5), order[i], 1);
    double values[16];
    enum ht_status status = ht_milp_solve(q.m, err, values);
    ht_milp_destroy(q.m);
    if (status == HT_INFEASIBLE) return explain(f, model, box, err);
    if (status != HT_OK) return status;
    struct autohete_choice s = {(int64_t)values[q.c], (int64_t)values[q.p], (int64_t)values[q.o]};
    /* GLPK computes in doubles with tolerances; the exact bytes decide. */
    if (!fits(f, model, s)) return autohete_search(f, model, box, err, out);
    *out = s;
    return HT_OK;
}

/* ---- the search ------------------------------------------------------------------------------------------------ */

/* Finds the least p of the box that fits with c and o. Returns false if none does. Eq. 1 falls in p. */
static bool least_p(const struct autohete_profile *f, const struct autohete_model *model,
                    const struct autohete_box *box, struct autohete_choice *s)
{
    int64_t low = box->lower.p, high = ht_min(box->upper.p, s->o);
    while (low < high) {
        s->p = low + (high - low) / 2;
        if (fits(f, model, *s))
            high = s->p;
        else
            low = s->p + 1;
    }
    s->p = low;
    return fits(f, model, *s);
}

static bool is_better(const struct autohete_model *model, const struct autohete_choice *a,
                      const struct autohete_choice *b)
{
    if (model->least_c_first && a->c != b->c) return a->c < b->c;
    if (a->p != b->p) return a->p < b->p;
    if (a->c != b->c) return a->c < b->c;
    return a->o < b->o;
}

enum ht_status autohete_search(const struct autohete_profile *f, const struct autohete_model *model,
                               const struct autohete_box *box, struct ht_error *err, struct autohete_choice *out)
{
    int64_t best_ns = INT64_MAX;
    bool found = false;
    for (int pass = 0; pass < 2; pass++) /* first the least time, then the best choice that ties with it */
        for (struct autohete_choice s = box->lower; s.c <= box->upper.c; s.c++) {
            if (ht_interrupted()) return ht_fail(err, HT_INTERRUPTED, "interrupted");
            for (s.o = box->lower.o; s.o <= box->upper.o; s.o++) {
                if (!least_p(f, model, box, &s)) continue;
                int64_t ns = model->objective_ns(f, s);
                if (pass == 0) {
                    best_ns = ns < best_ns ? ns : best_ns;
                } else if (ns <= best_ns + tie_ns(f) && (!found || is_better(model, &s, out))) {
                    *out = s;
                    found = true;
                }
            }
        }
    return found ? HT_OK : explain(f, model, box, err);
}
