/*
 * AutoHete's plans for iterations that overlap: the system autohete_period, which is ours. The paper plans an iteration
 * by itself (eqs. 1 to 6) and lets priorities overlap iterations afterwards. Here the planner counts on that. It differs
 * from the paper's in six ways:
 *
 *     objective    the period of overlapping iterations (autohete_periods), linear in c, p, o like T_fwd + T_bwd, which
 *                  counts the overlap twice and leaves out what follows the last backward op
 *     memory       eq. 1 by footnote 2, without the "+1" set of activations
 *     proof        a plan that needs less than eq. 1 says raises the capacity, while plans get faster (in the paper's
 *                  planner a proof only lowers it)
 *     v            the exact number of blocks of P whose successor is checkpointed
 *     ties         least c, then p, then o: recomputation is work of the device, a fetch is not
 *     neighbours   plans with one block more or less in C or O are simulated, and embedding and head are tried on both
 *                  sides. The equations know neither what lanes cost each other that share DRAM or NVLink, nor where
 *                  free memory lets prefetches run ahead
 */
#include "autohete/planner.h"
#include "autohete/program.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"

#include <stdio.h>

/* ---- the equations --------------------------------------------------------------------------------------------- */

/*
 * Eq. 1 by footnote 2. The L - o blocks stepped on the device have no FP16 copy at the transition: 2 M_p (o - p + 1).
 * And when block c is recomputed, the L - c sets of the blocks behind it are gone, so no set is counted for that: 2 M'_a
 * c + 2 M_a (L - c). Block L is recomputed at the transition itself, so c = L takes what c = L - 1 does.
 */
static int64_t device_bytes(const struct autohete_profile *f, struct autohete_choice s)
{
    int64_t L = f->layers, c = ht_min(s.c, L - 1);
    int64_t activations = f->input_bytes * c + f->activation_bytes * (L - c);
    int64_t states = (f->state_bytes + f->sum_bytes) * (L - s.o);
    return activations + f->copy_bytes * (s.o - s.p + 1) + states + f->device_const_bytes;
}

/* Returns the number of blocks of P whose successor is checkpointed: max(0, min(p, c - 1 - (L - o))). PB_i overlaps with
   the backward slot of block i+1. */
static int64_t overlapped(const struct autohete_profile *f, struct autohete_choice s)
{
    return ht_max(0, ht_min(s.p, s.c - 1 - (f->layers - s.o)));
}

const char *const autohete_bound_names[] = {
    "the device", "the first offloaded block", "the prefetches", "the host", "the host's sums", "d2h", "h2d",
};
_Static_assert(HT_COUNT(autohete_bound_names) == AUTOHETE_N_BOUNDS, "a name for each bound");

/*
 * With priorities the CPU takes the earliest block that waits. While it is slower than the backward pass, that is the
 * newest: block L first, when it alone is there, and from then on those that have just come. The first block that is
 * passed over is the last one to be stepped. It is block L - i, where i steps after the first take a block's time more
 * than i backward slots do: i (t_cpu - t_bp) >= t_bp. Returns i + 1, the number of forward slots from that block on.
 */
int64_t autohete_blocks_behind(const struct autohete_profile *f)
{
    int64_t more = f->cpu_ns - f->bp_ns;
    if (more <= 0) return 1; /* the CPU keeps up, so no step is late */
    return ht_min(f->layers, (f->bp_ns + more - 1) / more + 1);
}

/*
 * The period of iterations that overlap: the longest cycle of what waits for what. j = L - o + 1 is the first block of O, w = min(c, L - o) the
 * checkpointed blocks before it, D the device's own work, t_turn what the embedding does between B_1 and F_1:
 *
 *     D = m (t_fp L + t_bp L + t_fp c + t_sync) + t_gpu (L - o) + t_const
 *     device     D
 *     chain      D - (t_fp + t_bp + t_gpu) (L - o) - t_fp w - t_turn + t_d2h + t_cpu + t_h2d
 *     prefetch   the same - t_h2d + t_h2d o - t_fp (o - 1)
 *     host       t_cpu o + t_h2d + t_fp (i + 1) + t_head + [c = L] t_fp + t_bp + t_d2h
 *     d2h        m t_d2h o + t_cpu + t_h2d + t_fp + t_head + [c = L] t_fp + t_bp
 *     h2d        t_h2d (o + (2 m - 1) p)
 *
 * chain: F_j waits for PF_j, O_j, G_j and B_j; the device has the blocks before j to do meanwhile. This is the tail
 * that eq. 5 lacks: with o = L only t_turn hides it. prefetch: PF_L comes after all others behind PF_j. host: after its
 * last step the CPU waits for PF and F of that block, L - i, for the forward slots behind it, and for B_L and G_L
 * (autohete_blocks_behind). For the blocks between, chain and host follow linearly.
 *
 * With several micro-batches t_gpu and t_cpu have the sums with them, and after the last micro-batch (sums) the host
 * still has the last sums and all steps to do.
 */
void autohete_periods(const struct autohete_profile *f, struct autohete_choice s, int64_t ns[AUTOHETE_N_BOUNDS])
{
    int64_t L = f->layers, m = f->micro_batches, any = s.o > 0, device = L - s.o;
    int64_t blocks = (f->fp_ns + f->bp_ns) * L + f->fp_ns * s.c + autohete_sync_ns(f, s, overlapped(f, s));
    int64_t step = f->cpu_ns + (m > 1) * f->cpu_sum_ns;
    ns[AUTOHETE_DEVICE] = m * blocks + (f->gpu_ns + (m - 1) * f->gpu_sum_ns) * device + f->const_ns;
    int64_t others = ns[AUTOHETE_DEVICE] - (f->fp_ns + f->bp_ns + f->gpu_ns) * device - f->fp_ns * ht_min(s.c, device) -
                     f->turn_ns + any * (f->d2h_ns + step);
    ns[AUTOHETE_CHAIN] = others + any * f->h2d_ns;
    ns[AUTOHETE_PREFETCH] = others + f->h2d_ns * s.o - f->fp_ns * (s.o - any);
    int64_t turn = any * (f->h2d_ns + f->d2h_ns + f->bp_ns + f->head_ns) + f->fp_ns * ht_max(0, s.c - L + 1);
    int64_t last = turn + any * f->fp_ns * autohete_blocks_behind(f) + f->ends_host_ns;
    ns[AUTOHETE_HOST] = (f->cpu_ns + (m - 1) * f->cpu_sum_ns) * s.o + last;
    ns[AUTOHETE_SUMS] = step * s.o + last + (m - 1) * blocks;
    ns[AUTOHETE_D2H] = turn + m * f->d2h_ns * s.o + any * (step + f->fp_ns - f->d2h_ns);
    ns[AUTOHETE_H2D] = f->h2d_ns * (s.o + (2 * m - 1) * s.p);
}

enum autohete_bound autohete_longest(const int64_t ns[AUTOHETE_N_BOUNDS])
{
    enum autohete_bound longest = AUTOHETE_DEVICE;
    for (enum autohete_bound i = 0; i < AUTOHETE_N_BOUNDS; i++)
        if (ns[i] > ns[longest]) longest = i;
    return longest;
}

/* Returns the period, or under control, where iterations do not overlap, the time of one by itself. */
static int64_t period_ns(const struct autohete_profile *f, struct autohete_choice s)
{
    int64_t ns[AUTOHETE_N_BOUNDS];
    if (f->apart) return autohete_iteration_ns(f, s, overlapped(f, s));
    autohete_periods(f, s, ns);
    return ns[autohete_longest(ns)];
}

/* ---- the program ----------------------------------------------------------------------------------------------- */

/* Variables beside those of struct autohete_program: w = min(c, L - o) is pushed up like v, and u = 1 if o >= 1:

       w - c <= 0      w + o <= L      o - L u <= 0 */

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
static void add_bound(struct autohete_program *q, int T, int w, int u, enum autohete_bound bound, struct linear t)
{
    int r = autohete_add_row(q, autohete_bound_names[bound], t.one, INFINITY, -t.c, -t.p, -t.o, q->ns);
    ht_milp_term(q->m, r, T, 1);
    ht_milp_term(q->m, r, q->v, -t.v / q->ns);
    ht_milp_term(q->m, r, w, -t.w / q->ns);
    ht_milp_term(q->m, r, u, -t.u / q->ns);
}

/* Adds the period: autohete_periods, bound by bound. */
static void add_periods(struct autohete_program *q, const struct autohete_profile *f, int objective)
{
    double L = (double)f->layers, m = (double)f->micro_batches, fp = (double)f->fp_ns, bp = (double)f->bp_ns;
    double h2d = (double)f->h2d_ns, d2h = (double)f->d2h_ns, sum = (double)f->cpu_sum_ns;
    double step = (double)f->cpu_ns + (m > 1) * sum, g = (double)f->gpu_ns + (m - 1) * (double)f->gpu_sum_ns;
    double k1 = fmax(h2d - fp - bp, 0), k2 = fmax(h2d - bp, 0);
    int T = ht_milp_variable(q->m, "T", HT_MILP_REAL, 0, INFINITY);
    int w = ht_milp_variable(q->m, "w", HT_MILP_INTEGER, 0, L), u = ht_milp_variable(q->m, "u", HT_MILP_INTEGER, 0, 1);
    ht_milp_objective_term(q->m, objective, T, 1);
    ht_milp_term(q->m, autohete_add_row(q, "w <= c", -INFINITY, 0, -1, 0, 0, 1), w, 1);
    ht_milp_term(q->m, autohete_add_row(q, "w <= L - o", -INFINITY, L, 0, 0, 1, 1), w, 1);
    ht_milp_term(q->m, autohete_add_row(q, "o <= L u", -INFINITY, 0, 0, 0, 1, 1), u, -L);

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

/* Adds eq. 1's row for c = L, which takes what c = L - 1 does. */
static void add_memory_of_all(struct autohete_program *q, const struct autohete_profile *f)
{
    const struct autohete_choice last = {.c = f->layers}, p = {f->layers, 1, 0}, o = {f->layers, 0, 1};
    double base = (double)device_bytes(f, last);
    autohete_add_row(q, "device memory (1), c = L", -INFINITY, (double)f->device_capacity_bytes + 0.5 - base, 0,
                     (double)device_bytes(f, p) - base, (double)device_bytes(f, o) - base, q->bytes);
}

static void add_rows(struct autohete_program *q, const struct autohete_profile *f, int objective)
{
    if (f->apart)
        autohete_add_passes(q, f, objective);
    else
        add_periods(q, f, objective);
    autohete_add_overlapped(q, f, 1);
    add_memory_of_all(q, f);
}

const struct autohete_model autohete_by_period = {
    .name = "by footnote 2",
    .device_bytes = device_bytes,
    .overlapped = overlapped,
    .objective_ns = period_ns,
    .add_rows = add_rows,
    .least_c_first = true,
};

/* ---- the plan -------------------------------------------------------------------------------------------------- */

/* Raises the capacity in eq. 1 by what the schedule needs less than eq. 1 says. Returns false if it does not. */
static bool raise(const struct autohete_planner *q, struct autohete_outcome *r)
{
    int64_t spare = ht_scenario_device_bytes(q->scenario) - r->needs.peak_bytes[HT_DEVICE];
    int64_t capacity = device_bytes(&r->f, r->s) + spare;
    if (capacity <= r->f.device_capacity_bytes) return false;
    r->f.device_capacity_bytes = capacity;
    return true;
}

/* Solves eq. 6 for one e, and again with more memory as long as schedules fit and get faster. */
static enum ht_status choose(const struct autohete_planner *q, int64_t e, struct ht_error *err,
                             struct autohete_outcome *best)
{
    *best = (struct autohete_outcome){.e = e};
    enum ht_status status = autohete_measure(q->scenario, q->costs, e, err, &best->f);
    if (status == HT_OK) status = autohete_fit(q, INT64_MAX, err, best);
    if (status != HT_OK || q->forced) return status;
    struct autohete_outcome r = *best;
    while (r.solved == 1 && raise(q, &r)) {
        struct ht_error why = {0};
        status = autohete_fit(q, best->simulated_ns, &why, &r);
        if (status != HT_OK && status != HT_INFEASIBLE) return ht_fail(err, status, "%s", why.text);
        if (status == HT_INFEASIBLE || r.simulated_ns >= best->simulated_ns) break;
        *best = r;
    }
    return HT_OK;
}

/* Tries one block more or less with checkpointing or on the host, each with the least p that fits by eq. 1, and moves
   on as long as the simulated iteration shortens. */
static enum ht_status refine(const struct autohete_planner *q, struct ht_error *err, struct autohete_outcome *r)
{
    static const struct autohete_choice steps[] = {{.c = -1}, {.c = 1}, {.o = -1}, {.o = 1}};
    enum { STEPS = HT_COUNT(steps) };
    if (q->forced) return HT_OK;
    for (int i = 0, in_vain = 0; in_vain < STEPS; i = (i + 1) % STEPS) {
        struct autohete_outcome x = *r;
        struct autohete_box box = q->box;
        struct ht_error why = {0};
        int64_t c = r->s.c + steps[i].c, o = r->s.o + steps[i].o;
        in_vain++;
        if (c < box.lower.c || c > box.upper.c || o < box.lower.o || o > box.upper.o) continue;
        box.lower.c = box.upper.c = c;
        box.lower.o = box.upper.o = o;
        enum ht_status status = autohete_search(&x.f, q->model, &box, &why, &x.s);
        if (status == HT_OK) status = autohete_try(q, 1, r->simulated_ns, &why, &x);
        if (status == HT_INFEASIBLE) continue;
        if (status != HT_OK) return ht_fail(err, status, "%s", why.text);
        if (x.simulated_ns >= r->simulated_ns) continue;
        *r = x;
        in_vain = 0;
        i--; /* the same step again */
    }
    return HT_OK;
}

enum ht_status autohete_plan_by_period(const struct autohete_planner *q, struct ht_error *err,
                                       struct autohete_outcome *out)
{
    enum ht_status status = HT_OK;
    bool found = false;
    for (int64_t e = 0; e <= 1 && (status == HT_OK || status == HT_INFEASIBLE); e++) {
        struct autohete_outcome r;
        if (q->e >= 0 && e != q->e) continue;
        status = choose(q, e, err, &r);
        if (status != HT_OK || (found && r.simulated_ns >= out->simulated_ns)) continue;
        *out = r;
        found = true;
    }
    if (!found || (status != HT_OK && status != HT_INFEASIBLE)) return status;
    if (err) *err = (struct ht_error){0}; /* one e may have failed; the other has a plan */
    return refine(q, err, out);
}

void autohete_describe_period(const struct autohete_outcome *r, struct ht_plan *plan)
{
    const struct autohete_profile *f = &r->f;
    int64_t ns[AUTOHETE_N_BOUNDS];
    char need[HT_QUANTITY_TEXT], capacity[HT_QUANTITY_TEXT];
    autohete_periods(f, r->s, ns);
    ht_plan_input(plan, "eq. 1 by footnote 2", "bytes", (double)device_bytes(f, r->s));
    ht_plan_input(plan, "period", "s", (double)period_ns(f, r->s) / 1e9);
    ht_plan_input(plan, "c (6)", "", (double)r->first.c);
    ht_plan_input(plan, "p (6)", "", (double)r->first.p);
    ht_plan_input(plan, "o (6)", "", (double)r->first.o);
    snprintf(plan->why, sizeof(plan->why), "%s %s; eq. 1 by footnote 2 gives %s, corrected capacity %s",
             f->apart ? "iterations apart; the longest of an overlapping one is" : "an iteration waits for",
             autohete_bound_names[autohete_longest(ns)],
             ht_format_quantity(HT_BYTES, (double)device_bytes(f, r->s), need),
             ht_format_quantity(HT_BYTES, (double)f->device_capacity_bytes, capacity));
}
