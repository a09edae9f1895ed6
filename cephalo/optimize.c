/*
 * The planner: parametric search instead of the dynamic program.
 *
 * Fix a bound on the duration of a plan: one on T_i, or one on T_f and one on T_b. Then each micro-batch size m of a
 * GPU has a largest count l that stays within it. So a GPU has a set of batches b = m l that it can take in time, and
 * for each of them the m that needs the least memory. A plan within the bounds exists exactly if
 *
 *     min { sum_i F_i(b_i) : sum_i b_i = B } <= sum cap - S        F_i(b) = least M_i(m) over the allowed (m, b / m)
 *
 * since any of its m can make up b_i, and only the sum of memory is constrained. knapsack.c finds that minimum. A
 * higher bound only adds to the sets, so bisection among the values that T_i, T_f and T_b can take finds the least
 * bounds. The tables may have any shape, even M, which the third dimension of eq. 4 does not allow.
 *
 * CEPHALO_SLOWEST_GPU begins at the least bound within which the GPUs reach B at all, whatever the memory. This is
 * usually the optimum or close to it; else the bound is raised by growing steps, and the last step is bisected.
 * CEPHALO_LAYER has two bounds, alpha on T_f and beta on T_b. The least beta that fits falls as alpha rises:
 *
 *     beta  |  - + + + + + +      + fits, - does not
 *           |  - - + + + + +
 *           |  - - - - + + +
 *           |  - - - - - - -
 *           +---------------- alpha
 *
 * The search halves boxes of (alpha, beta). It leaves out a box whose lower left corner is no better than the best so
 * far, or whose upper right corner does not fit. The plan of CEPHALO_SLOWEST_GPU is the first best.
 */
#include "cephalo/knapsack.h"
#include "cephalo/optimize.h"

#include "common/base/array.h"
#include "common/base/minmax.h"
#include "common/base/units.h"
#include "common/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory is summed in doubles, several of which the compiler can compare at a time; they are exact below this. */
#define MOST_BYTES (INT64_C(1) << 53)
#define MOST_NS    (INT64_MAX / 64)

/* A micro-batch size that fits a GPU (II); m = 0: no samples. */
struct option {
    int32_t m, most; /* l is at most `most` */
    bool uneven;     /* an even share of the state does not fit beside it */
    int64_t forward_ns, backward_ns;
    double bytes;
};

/* Bounds on l tf, l tb and l (tf + tb) of an option. forward_ns is negative if the option is not allowed. */
struct limits {
    int64_t forward_ns, backward_ns, both_ns;
};

/* Quantity that a bound limits. */
enum bound { ON_SLOWEST_GPU, ON_FORWARD, ON_BACKWARD };

struct solver {
    const struct cephalo_problem *p;
    struct option *options; /* those of kind k are [begin[k], begin[k+1]) */
    int32_t *begin;         /* [n_kinds + 1] */
    double room;            /* sum cap - S */
    int64_t ceiling_ns;     /* no plan takes longer */
    bool uneven;            /* ON_FORWARD, ON_BACKWARD: collectives that all GPUs have */
    struct cephalo_knapsack knapsack;
};

static const struct cephalo_collectives *collectives(const struct cephalo_problem *p, bool uneven)
{
    return uneven ? &p->uneven : &p->even;
}

/* Returns the floor under T_b: RS + AG. */
static int64_t floor_ns(const struct cephalo_collectives *c)
{
    return c->reduce_scatter_ns + c->all_gather_ns;
}

bool cephalo_overflows(const struct cephalo_problem *p, int32_t kind, int64_t compute_bytes)
{
    return (__int128)(p->kinds[kind].capacity_bytes - compute_bytes) * p->n_gpus < p->state_bytes;
}

struct cephalo_outcome cephalo_evaluate(const struct cephalo_problem *p, const struct cephalo_part *parts)
{
    struct cephalo_outcome out = {0};
    for (int32_t i = 0; i < p->n_gpus; i++) {
        const struct cephalo_kind *k = &p->kinds[p->kind_of[i]];
        int32_t m = parts[i].micro_batch, l = parts[i].count;
        int64_t forward_ns = l ? l * k->forward_ns[m] : 0, backward_ns = l ? l * k->backward_ns[m] : 0;
        bool uneven = cephalo_overflows(p, p->kind_of[i], k->compute_bytes[m]);
        const struct cephalo_collectives *c = collectives(p, uneven);
        out.slowest_gpu_ns =
            ht_max(out.slowest_gpu_ns, ht_max(forward_ns, c->all_gather_ns) + ht_max(backward_ns, floor_ns(c)));
        out.forward_ns = ht_max(out.forward_ns, forward_ns);
        out.backward_ns = ht_max(out.backward_ns, backward_ns);
        out.compute_bytes += k->compute_bytes[m];
        out.uneven |= uneven;
    }
    const struct cephalo_collectives *c = collectives(p, out.uneven);
    out.forward_ns = ht_max(out.forward_ns, c->all_gather_ns);
    out.backward_ns = ht_max(out.backward_ns, floor_ns(c));
    return out;
}

/* Returns true if GPU i may have `part` in the place of its own: no worse than `before`. */
static bool is_no_worse(const struct cephalo_problem *p, struct cephalo_part *parts, int32_t i,
                        struct cephalo_part part, const struct cephalo_outcome *before)
{
    const struct cephalo_kind *k = &p->kinds[p->kind_of[i]];
    struct cephalo_part own = parts[i];
    if (k->compute_bytes[part.micro_batch] > k->capacity_bytes) return false;
    parts[i] = part;
    struct cephalo_outcome after = cephalo_evaluate(p, parts);
    parts[i] = own;
    __int128 room = -(__int128)p->state_bytes - after.compute_bytes;
    for (int32_t g = 0; g < p->n_gpus; g++) room += p->kinds[p->kind_of[g]].capacity_bytes;
    return room >= 0 && (!after.uneven || before->uneven) && after.forward_ns <= before->forward_ns &&
           after.backward_ns <= before->backward_ns && after.slowest_gpu_ns <= before->slowest_gpu_ns;
}

void cephalo_enlarge(const struct cephalo_problem *p, struct cephalo_part *parts)
{
    struct cephalo_outcome before = cephalo_evaluate(p, parts);
    bool *done = HT_NEW_ARRAY(bool, p->n_gpus);
    for (int32_t n = 0; n < p->n_gpus; n++) {
        int32_t next = -1;
        for (int32_t i = 0; i < p->n_gpus; i++)
            if (!done[i] && (next < 0 || parts[i].count > parts[next].count)) next = i;
        int32_t batch = parts[next].micro_batch * parts[next].count;
        int32_t m = (int32_t)ht_min(batch, p->kinds[p->kind_of[next]].max_micro_batch);
        for (; m > parts[next].micro_batch; m--) {
            struct cephalo_part part = {m, batch / m};
            if (batch % m || !is_no_worse(p, parts, next, part, &before)) continue;
            parts[next] = part;
            break;
        }
        done[next] = true;
    }
    free(done);
}

/* ---- limits ---------------------------------------------------------------------------------------------------- */

/* Sets the limits of T_i <= x: out[0] for options with even collectives, out[1] with uneven ones. */
static void limit_gpu(const struct solver *s, int64_t x, struct limits out[2])
{
    for (int uneven = 0; uneven <= 1; uneven++) {
        const struct cephalo_collectives *c = collectives(s->p, uneven);
        bool allowed = x >= c->all_gather_ns + floor_ns(c);
        out[uneven] = (struct limits){allowed ? x - floor_ns(c) : -1, x - c->all_gather_ns, x};
    }
}

/* Sets the limits of T_f <= alpha and T_b <= beta. With even collectives only options that leave room for an even share
   are allowed. With uneven ones all are: if all left that room, the plan would be one of the even case, which is no
   slower. */
static void limit_layer(const struct solver *s, int64_t alpha, int64_t beta, struct limits out[2])
{
    const struct cephalo_collectives *c = collectives(s->p, s->uneven);
    bool allowed = alpha >= c->all_gather_ns && beta >= floor_ns(c);
    out[0] = (struct limits){allowed ? alpha : -1, beta, INT64_MAX};
    out[1] = (struct limits){allowed && s->uneven ? alpha : -1, beta, INT64_MAX};
}

static void limit(const struct solver *s, enum bound what, int64_t x, struct limits out[2])
{
    if (what == ON_SLOWEST_GPU)
        limit_gpu(s, x, out);
    else
        limit_layer(s, what == ON_FORWARD ? x : s->ceiling_ns, what == ON_BACKWARD ? x : s->ceiling_ns, out);
}

/* Returns the bounded quantity for an option taken l times. */
static int64_t value(const struct solver *s, enum bound what, const struct option *o, int64_t l)
{
    const struct cephalo_collectives *c = collectives(s->p, what == ON_SLOWEST_GPU ? o->uneven : s->uneven);
    int64_t forward_ns = ht_max(l * o->forward_ns, c->all_gather_ns),
            backward_ns = ht_max(l * o->backward_ns, floor_ns(c));
    return what == ON_FORWARD ? forward_ns : what == ON_BACKWARD ? backward_ns : forward_ns + backward_ns;
}

/* Returns the largest l within the limits, or -1 if they do not allow the option. */
static int32_t most(const struct option *o, const struct limits limits[2])
{
    const struct limits *at = &limits[o->uneven];
    int64_t l = o->most, both_ns = o->forward_ns + o->backward_ns;
    if (at->forward_ns < 0) return -1;
    if (l * o->forward_ns > at->forward_ns) l = at->forward_ns / o->forward_ns;
    if (l * o->backward_ns > at->backward_ns) l = at->backward_ns / o->backward_ns;
    if (l * both_ns > at->both_ns) l = at->both_ns / both_ns;
    return l || !o->m ? (int32_t)l : -1;
}

/* Sets every kind's reach. Returns the sum over all GPUs, or -1 if a GPU has no allowed option. */
static int64_t reach_within(struct solver *s, const struct limits limits[2])
{
    int64_t sum = 0;
    for (int32_t k = 0; k < s->p->n_kinds; k++) {
        s->knapsack.reach[k] = -1;
        for (int32_t i = s->begin[k]; i < s->begin[k + 1]; i++) {
            int32_t l = most(&s->options[i], limits);
            if (l >= 0 && l * s->options[i].m > s->knapsack.reach[k]) s->knapsack.reach[k] = l * s->options[i].m;
        }
        if (s->knapsack.reach[k] < 0 && s->knapsack.n_gpus[k]) return -1;
        sum += (int64_t)s->knapsack.n_gpus[k] * s->knapsack.reach[k];
    }
    return sum;
}

/* Returns the least bound within which the GPUs together reach B, ignoring memory (III); -1 if no bound suffices. */
static int64_t least_reaching(struct solver *s, enum bound what)
{
    struct limits limits[2];
    int64_t x = 1, low = -1;
    for (;; low = x, x = ht_min(2 * x, s->ceiling_ns)) {
        limit(s, what, x, limits);
        if (reach_within(s, limits) >= s->p->batch) break;
        if (x >= s->ceiling_ns) return -1;
    }
    while (x - low > 1) {
        int64_t middle = low + (x - low) / 2;
        limit(s, what, middle, limits);
        if (reach_within(s, limits) >= s->p->batch)
            x = middle;
        else
            low = middle;
    }
    return x;
}

/* ---- the least memory within limits ---------------------------------------------------------------------------- */

/* Fills in the row F of a kind. */
static void make_frontier(const struct solver *s, int32_t kind, const struct limits limits[2])
{
    double *f = cephalo_knapsack_row(&s->knapsack, kind);
    for (int32_t b = 0; b <= s->knapsack.reach[kind]; b++) f[b] = INFINITY;
    for (int32_t i = s->begin[kind]; i < s->begin[kind + 1]; i++) {
        const struct option *o = &s->options[i];
        int32_t l = most(o, limits);
        if (l >= 0 && !o->m) f[0] = o->bytes;
        for (int32_t b = o->m; l > 0; b += o->m, l--) f[b] = o->bytes < f[b] ? o->bytes : f[b];
    }
}

/* Returns the least compute memory of a plan within the limits, or infinity if it exceeds `room`. */
static double least_bytes(struct solver *s, const struct limits limits[2], double room)
{
    if (reach_within(s, limits) < s->p->batch) return INFINITY;
    for (int32_t k = 0; k < s->p->n_kinds; k++)
        if (s->knapsack.n_gpus[k]) make_frontier(s, k, limits);
    return cephalo_knapsack_least(&s->knapsack, room);
}

static bool fits(struct solver *s, const struct limits limits[2])
{
    return !isinf(least_bytes(s, limits, s->room));
}

/* Returns a GPU's part for a batch: the m of least memory, then of least time, then the smallest. */
static struct cephalo_part part_of(const struct solver *s, int32_t kind, const struct limits limits[2], int32_t batch)
{
    struct cephalo_part best = {0, 0};
    double bytes = INFINITY;
    int64_t ns = 0;
    for (int32_t i = s->begin[kind]; i < s->begin[kind + 1]; i++) {
        const struct option *o = &s->options[i];
        int32_t l = o->m ? batch / o->m : 0;
        if (l * o->m != batch || l > most(o, limits) || (o->m && !l)) continue;
        int64_t takes_ns = l * (o->forward_ns + o->backward_ns);
        if (o->bytes > bytes || (o->bytes == bytes && takes_ns >= ns)) continue;
        best = (struct cephalo_part){o->m, l};
        bytes = o->bytes;
        ns = takes_ns;
    }
    return best;
}

/* Writes the plan of least memory within limits that a plan fits. */
static void make_plan(struct solver *s, const struct limits limits[2], struct cephalo_part *parts)
{
    const struct cephalo_problem *p = s->p;
    int32_t *batches = HT_NEW_ARRAY(int32_t, p->n_gpus);
    least_bytes(s, limits, s->room);
    cephalo_knapsack_solve(&s->knapsack, p->n_gpus, p->kind_of, batches);
    for (int32_t i = 0; i < p->n_gpus; i++) parts[i] = part_of(s, p->kind_of[i], limits, batches[i]);
    free(batches);
}

/* ---- candidates ------------------------------------------------------------------------------------------------ */

struct values {
    int64_t *v;
    size_t n, cap;
};

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the values in (low, high] that a plan can have, in ascending order. */
static struct values candidates(const struct solver *s, enum bound what, int64_t low, int64_t high)
{
    struct values c = {0};
    struct limits at_low[2], at_high[2];
    limit(s, what, low, at_low);
    limit(s, what, high, at_high);
    for (int32_t i = 0; i < s->begin[s->p->n_kinds]; i++) {
        const struct option *o = &s->options[i];
        for (int32_t l = most(o, at_low) + 1, end = most(o, at_high); l <= end; l++)
            HT_PUSH(c.v, c.n, c.cap, value(s, what, o, l));
    }
    if (c.n) qsort(c.v, c.n, sizeof(*c.v), by_value);
    size_t n = 0;
    for (size_t i = 0; i < c.n; i++)
        if (!n || c.v[i] != c.v[n - 1]) c.v[n++] = c.v[i];
    c.n = n;
    return c;
}

/* ---- CEPHALO_SLOWEST_GPU --------------------------------------------------------------------------------------- */

/* Sets the limits of the least max T_i. Returns false if there is no plan. */
static bool bound_slowest_gpu(struct solver *s, struct limits out[2])
{
    int64_t low, high = least_reaching(s, ON_SLOWEST_GPU);
    if (high < 0) return false;
    limit_gpu(s, high, out);
    if (fits(s, out)) return true; /* the usual case, unless memory is short */
    for (int64_t step = high / 64 + 1;; step *= 2) {
        low = high;
        if (low >= s->ceiling_ns) return false;
        high = ht_min(high + step, s->ceiling_ns);
        limit_gpu(s, high, out);
        if (fits(s, out)) break;
    }
    struct values c = candidates(s, ON_SLOWEST_GPU, low, high);
    size_t first = 0, end = c.n - 1; /* the last one fits: no plan has a value between it and `high` */
    while (first < end) {
        size_t middle = (first + end) / 2;
        limit_gpu(s, c.v[middle], out);
        if (fits(s, out))
            end = middle;
        else
            first = middle + 1;
    }
    limit_gpu(s, c.v[first], out);
    free(c.v);
    return true;
}

/* ---- CEPHALO_LAYER --------------------------------------------------------------------------------------------- */

struct corner {
    int64_t alpha, beta;
    bool uneven;
};

struct staircase {
    struct solver *s;
    struct values alpha, beta;
    struct corner best;
};

static bool is_better(const struct staircase *c, int64_t alpha, int64_t beta)
{
    int64_t sum = alpha + beta, best = c->best.alpha + c->best.beta;
    return sum < best || (sum == best && alpha < c->best.alpha);
}

static bool fits_within(const struct staircase *c, int64_t alpha, int64_t beta)
{
    struct limits limits[2];
    limit_layer(c->s, alpha, beta, limits);
    return fits(c->s, limits);
}

/* Searches the box alpha[a..a_end], beta[b..b_end]. */
static void descend(struct staircase *c, int64_t a, int64_t a_end, int64_t b, int64_t b_end)
{
    const int64_t *alpha = c->alpha.v, *beta = c->beta.v;
    if (a > a_end || b > b_end || !is_better(c, alpha[a], beta[b])) return;
    while (!is_better(c, alpha[a_end], beta[b])) a_end--;
    while (!is_better(c, alpha[a], beta[b_end])) b_end--;
    if (!fits_within(c, alpha[a_end], beta[b_end])) return; /* then nothing in the box fits */
    int64_t middle = a + (a_end - a) / 2;
    int64_t low = b, high = b_end + 1; /* first beta that fits, or that is no better than the best */
    while (low < high) {
        int64_t at = low + (high - low) / 2;
        if (!is_better(c, alpha[middle], beta[at]) || fits_within(c, alpha[middle], beta[at]))
            high = at;
        else
            low = at + 1;
    }
    if (low <= b_end && is_better(c, alpha[middle], beta[low]))
        c->best = (struct corner){alpha[middle], beta[low], c->s->uneven};
    descend(c, a, middle - 1, low, b_end);
    descend(c, middle + 1, a_end, b, low - 1);
}

/* Sets the limits of the least T_f + T_b. Returns false if there is no plan. */
static bool bound_layer(struct solver *s, struct limits out[2])
{
    if (!bound_slowest_gpu(s, out)) return false;
    struct cephalo_part *parts = HT_NEW_ARRAY(struct cephalo_part, s->p->n_gpus);
    make_plan(s, out, parts);
    struct cephalo_outcome first = cephalo_evaluate(s->p, parts);
    free(parts);
    /* This upper bound has an alpha that loses to every other: the search finds this plan again, or one that wins the
       tie. */
    struct staircase c = {.s = s, .best = {first.forward_ns + first.backward_ns + 1, -1, first.uneven}};
    for (int uneven = 0; uneven <= !s->p->even_only; uneven++) {
        s->uneven = uneven;
        int64_t alpha = least_reaching(s, ON_FORWARD), beta = least_reaching(s, ON_BACKWARD);
        if (alpha < 0 || beta < 0) continue;
        int64_t most_ns = c.best.alpha + c.best.beta;
        c.alpha = candidates(s, ON_FORWARD, alpha - 1, most_ns - beta);
        c.beta = candidates(s, ON_BACKWARD, beta - 1, most_ns - alpha);
        descend(&c, 0, (int64_t)c.alpha.n - 1, 0, (int64_t)c.beta.n - 1);
        free(c.alpha.v);
        free(c.beta.v);
    }
    s->uneven = c.best.uneven;
    limit_layer(s, c.best.alpha, c.best.beta, out);
    return true;
}

/* ---- the problem ----------------------------------------------------------------------------------------------- */

enum ht_status cephalo_check(const struct cephalo_problem *p, struct ht_error *err)
{
    int64_t room = 0, longest = ht_max(p->uneven.all_gather_ns, p->uneven.reduce_scatter_ns);
    if (p->batch < 1 || p->batch > INT16_MAX || p->n_gpus < 1 || p->n_gpus > INT16_MAX)
        return ht_fail(err, HT_BAD_INPUT, "Cephalo cannot plan a batch of %d on %d GPUs: expected 1 to %d of each",
                       p->batch, p->n_gpus, INT16_MAX);
    if (p->state_bytes < 0 || p->state_bytes >= MOST_BYTES)
        return ht_fail(err, HT_BAD_INPUT, "a training state of %lld bytes; expected 0 to 2^53",
                       (long long)p->state_bytes);
    if (p->even.all_gather_ns < 0 || p->even.reduce_scatter_ns < 0 || p->uneven.all_gather_ns < p->even.all_gather_ns ||
        p->uneven.reduce_scatter_ns < p->even.reduce_scatter_ns)
        return ht_fail(err, HT_BAD_INPUT,
                       "invalid times of collectives: expected 0 or more, and uneven ones no shorter");
    for (int32_t k = 0; k < p->n_kinds; k++) {
        const struct cephalo_kind *kind = &p->kinds[k];
        for (int32_t m = !p->may_idle; m <= kind->max_micro_batch; m++) {
            if (kind->compute_bytes[m] < 0 || (m && (kind->forward_ns[m] < 0 || kind->backward_ns[m] < 0)))
                return ht_fail(err, HT_BAD_INPUT, "GPU kind %d has a negative time or memory for micro-batch %d", k, m);
            if (m) longest = ht_max(longest, ht_max(kind->forward_ns[m], kind->backward_ns[m]));
        }
    }
    if (longest > MOST_NS / p->batch)
        return ht_fail(err, HT_BAD_INPUT,
                       "%lld ns is too long for a layer's micro-batch or collective of a batch of %d",
                       (long long)longest, p->batch);
    for (int32_t i = 0; i < p->n_gpus; i++) {
        int64_t bytes = p->kinds[p->kind_of[i]].capacity_bytes;
        if (bytes < 0 || (room += bytes) >= MOST_BYTES || bytes >= MOST_BYTES)
            return ht_fail(err, HT_BAD_INPUT, "invalid memory of the GPUs: expected 0 to 2^53 bytes in all");
    }
    return HT_OK;
}

static void add_options(struct solver *s, int32_t kind)
{
    const struct cephalo_problem *p = s->p;
    const struct cephalo_kind *k = &p->kinds[kind];
    int32_t n = s->begin[kind];
    for (int32_t m = !p->may_idle; m <= k->max_micro_batch && m <= p->batch; m++) {
        bool uneven = cephalo_overflows(p, kind, k->compute_bytes[m]);
        if (k->compute_bytes[m] > k->capacity_bytes || (uneven && p->even_only)) continue;
        struct option o = {.m = m, .uneven = uneven, .bytes = (double)k->compute_bytes[m]};
        if (m) {
            o.most = p->max_count ? (int32_t)ht_min(p->batch / m, p->max_count) : p->batch / m;
            o.forward_ns = k->forward_ns[m];
            o.backward_ns = k->backward_ns[m];
        }
        s->ceiling_ns = ht_max(s->ceiling_ns, o.most * (o.forward_ns + o.backward_ns));
        s->options[n++] = o;
    }
    s->begin[kind + 1] = n;
}

static struct solver solver_of(const struct cephalo_problem *p)
{
    struct solver s = {.p = p,
                       .options = HT_NEW_ARRAY(struct option, (size_t)p->n_kinds * ((size_t)p->batch + 1)),
                       .begin = HT_NEW_ARRAY(int32_t, p->n_kinds + 1),
                       .room = -(double)p->state_bytes};
    cephalo_knapsack_init(&s.knapsack, p->n_kinds, p->batch);
    for (int32_t k = 0; k < p->n_kinds; k++) add_options(&s, k);
    s.ceiling_ns += p->uneven.all_gather_ns + floor_ns(&p->uneven) + 1;
    for (int32_t i = 0; i < p->n_gpus; i++) {
        s.knapsack.n_gpus[p->kind_of[i]]++;
        s.room += (double)p->kinds[p->kind_of[i]].capacity_bytes;
    }
    return s;
}

static void free_solver(struct solver *s)
{
    free(s->options);
    free(s->begin);
    cephalo_knapsack_free(&s->knapsack);
}

enum ht_status cephalo_optimize(const struct cephalo_problem *p, enum cephalo_objective objective, struct ht_error *err,
                                struct cephalo_part *parts)
{
    enum ht_status status = cephalo_check(p, err);
    if (status) return status;
    struct solver s = solver_of(p);
    struct limits limits[2];
    bool found = objective == CEPHALO_LAYER ? bound_layer(&s, limits) : bound_slowest_gpu(&s, limits);
    if (found) make_plan(&s, limits, parts);
    free_solver(&s);
    return found ? HT_OK : cephalo_explain(p, err);
}

/* Fails with the first GPU that no option fits. Returns HT_OK if every GPU has an option. */
static enum ht_status explain_gpu(const struct solver *s, struct ht_error *err)
{
    const struct cephalo_problem *p = s->p;
    char need[HT_QUANTITY_TEXT], share[HT_QUANTITY_TEXT], room[HT_QUANTITY_TEXT];
    for (int32_t i = 0; i < p->n_gpus; i++) {
        int32_t k = p->kind_of[i];
        const struct cephalo_kind *kind = &p->kinds[k];
        if (s->begin[k] < s->begin[k + 1]) continue;
        if (kind->max_micro_batch < 1)
            return ht_fail(err, HT_INFEASIBLE, "Cephalo has no plan: GPU %d takes no samples but may not be idle", i);
        int64_t bytes = kind->compute_bytes[!p->may_idle];
        ht_format_quantity(HT_BYTES, (double)bytes, need);
        ht_format_quantity(HT_BYTES, (double)p->state_bytes / p->n_gpus, share);
        ht_format_quantity(HT_BYTES, (double)kind->capacity_bytes, room);
        return ht_fail_memory(err, HT_DEVICE, "Cephalo has no plan: GPU %d (constraint II) needs %s %s%s%s, and has %s",
                              i, need, p->may_idle ? "without samples" : "for micro-batch 1",
                              bytes > kind->capacity_bytes ? "" : " and an even share of the state of ",
                              bytes > kind->capacity_bytes ? "" : share, room);
    }
    return HT_OK;
}

/* Returns true if memory rules out a micro-batch that some GPU has entries for. */
static bool is_cut_by_memory(const struct solver *s)
{
    for (int32_t k = 0; k < s->p->n_kinds; k++) {
        int64_t all = ht_min(s->p->kinds[k].max_micro_batch, s->p->batch) + s->p->may_idle;
        if (s->begin[k + 1] - s->begin[k] < all) return true;
    }
    return false;
}

enum ht_status cephalo_explain(const struct cephalo_problem *p, struct ht_error *err)
{
    struct solver s = solver_of(p);
    enum ht_status status = explain_gpu(&s, err);
    if (status) goto out;
    struct limits limits[2];
    limit_gpu(&s, s.ceiling_ns, limits);
    int64_t reach = reach_within(&s, limits);
    double bytes = least_bytes(&s, limits, INFINITY);
    if (isinf(bytes)) {
        status =
            ht_fail(err, HT_INFEASIBLE,
                    "Cephalo has no plan: no micro-batches of %d GPUs make up a batch of %d (constraint I); %s %lld",
                    p->n_gpus, p->batch,
                    reach < p->batch ? "they take at most" : "each takes at least one, all at most", (long long)reach);
        if (err && reach < p->batch && is_cut_by_memory(&s)) err->lacks = 1 + HT_DEVICE;
        goto out;
    }
    char state[HT_QUANTITY_TEXT], compute[HT_QUANTITY_TEXT], room[HT_QUANTITY_TEXT];
    ht_format_quantity(HT_BYTES, (double)p->state_bytes, state);
    ht_format_quantity(HT_BYTES, bytes, compute);
    ht_format_quantity(HT_BYTES, s.room + (double)p->state_bytes, room);
    status = ht_fail_memory(
        err, HT_DEVICE,
        "Cephalo has no plan: a training state of %s and compute memory of at least %s exceed all GPUs' %s "
        "(constraint III)",
        state, compute, room);
out:
    free_solver(&s);
    return status;
}
