#include "harness/claims/parts.h"

#include "common/base/array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_claim_verdict_names[] = {"within", "outside", "not checkable", "not there yet", "broken"};
_Static_assert(HT_COUNT(ht_claim_verdict_names) == HT_N_CLAIM_VERDICTS, "a name for each verdict");

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

static double mean_of(const double *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += v[i];
    return n ? sum / n : NAN;
}

/* Returns b - a, and 0 where the two differ by their rounding only: equal ratios have no difference of 1e-15. */
static double increment(double a, double b)
{
    return fabs(b - a) <= 1e-12 * fmax(fabs(a), fabs(b)) ? 0 : b - a;
}

static double smallest_increment(const double *v, int n)
{
    double least = INFINITY;
    for (int i = 1; i < n; i++) least = fmin(least, increment(v[i - 1], v[i]));
    return n > 1 ? least : NAN;
}

double ht_claim_reduce(enum ht_claim_kind kind, const double *values, int n)
{
    if (kind == HT_CLAIM_DIFFERENCE) return n == 2 ? values[0] - values[1] : NAN;
    double v[HT_CLAIM_VALUES];
    int m = 0, positive = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(values[i])) v[m++] = values[i];
    if (m == 0) return NAN;
    for (int i = 0; i < m; i++) positive += v[i] > 0;
    double low = v[0], high = v[0], step = INFINITY;
    for (int i = 1; i < m; i++) {
        if (v[i] < low) low = v[i];
        if (v[i] > high) high = v[i];
        if (v[i] / v[i - 1] < step) step = v[i] / v[i - 1];
    }
    switch (kind) {
    case HT_CLAIM_VALUE:
        return m == 1 ? v[0] : NAN;
    case HT_CLAIM_AVERAGE:
        return mean_of(v, m);
    case HT_CLAIM_MAX:
        return high;
    case HT_CLAIM_MIN:
        return low;
    case HT_CLAIM_STEPS:
        return m > 1 ? step : NAN;
    case HT_CLAIM_SPREAD:
        return high / low;
    case HT_CLAIM_HALVES:
        return m > 1 ? mean_of(v + m - m / 2, m / 2) / mean_of(v, m / 2) : NAN;
    case HT_CLAIM_INCREMENT:
        return smallest_increment(v, m);
    case HT_CLAIM_BEND:
        return m > 2 ? increment(v[m - 2], v[m - 1]) - increment(v[0], v[1]) : NAN;
    case HT_CLAIM_POSITIVE:
        return (double)positive / m;
    default:
        return NAN;
    }
}

int ht_claim_boundary(enum ht_claim_kind kind, const bool *fits, int n, bool *hole)
{
    int at = -1;
    *hole = false;
    if (kind == HT_CLAIM_LARGEST) {
        for (int i = 0; i < n; i++)
            if (fits[i]) at = i;
        for (int i = 0; i < at; i++) *hole |= !fits[i];
    } else {
        for (int i = n - 1; i >= 0; i--)
            if (fits[i]) at = i;
        for (int i = at + 1; at >= 0 && i < n; i++) *hole |= !fits[i];
    }
    return at;
}

bool ht_claim_good(const struct ht_claim *c, double ours, double *badness)
{
    double slack = c->tolerance->relative >= 0 ? c->tolerance->relative * fabs(c->value) : c->tolerance->absolute;
    *badness = INFINITY;
    if (isnan(ours)) return false;
    double off = ours - c->value;
    switch (c->compare) {
    case HT_CLAIM_ABOUT:
        *badness = fabs(off);
        break;
    case HT_CLAIM_AT_LEAST:
    case HT_CLAIM_ABOVE:
        *badness = -off;
        break;
    case HT_CLAIM_AT_MOST:
    case HT_CLAIM_BELOW:
        *badness = off;
        break;
    }
    if (c->compare == HT_CLAIM_ABOVE || c->compare == HT_CLAIM_BELOW) return *badness < slack;
    /* A tolerance of 15% is met by 1.15 of it, whatever the last bit of 0.15 is. */
    return *badness <= slack + 1e-12 * fabs(c->value);
}

/* Returns true for metrics of a part of an iteration. */
static bool is_time_of_part(enum ht_claim_metric metric)
{
    return metric >= HT_CLAIM_FULL_THROUGHPUT && metric <= HT_CLAIM_BACKWARD_PER_COPIES;
}

bool ht_outcome_has_figure(const struct ht_outcome *o)
{
    const struct ht_claim *c = o->claim;
    bool simulated =
        c->metric == HT_CLAIM_THROUGHPUT || (c->metric == HT_CLAIM_PLAN_VARIABLE && !c->setup->recovery[0]) ||
        c->metric == HT_CLAIM_ITERATION_TIME || c->metric == HT_CLAIM_GPU_TIME || c->metric == HT_CLAIM_CPU_TIME ||
        c->metric == HT_CLAIM_RECOVERY_TIME || c->metric == HT_CLAIM_GPU_SHARE || is_time_of_part(c->metric);
    return !c->reading[0] && (o->verdict == HT_CLAIM_WITHIN || o->verdict == HT_CLAIM_OUTSIDE) &&
           c->compare == HT_CLAIM_ABOUT && simulated && !c->setup->units.devices && !isnan(o->deviation);
}

/* ---- a system at a scenario ------------------------------------------------------------------------------------ */

struct stand_in {
    const struct ht_observation *best; /* HT_SEEN; NULL: nothing runs */
    const struct ht_observation *last; /* of the last variant that exists: says why nothing runs */
    const char *by;
};

/* Finds the best variant of a system at a scenario. Sets the outcome's verdict when the row cannot be decided. */
static enum ht_status find_best(const struct ht_claim_system *system, const struct ht_claim *c,
                                struct ht_claim_point point, struct ht_observations *seen, struct ht_error *err,
                                struct ht_outcome *out, struct stand_in *best)
{
    *best = (struct stand_in){.by = "-"};
    const struct ht_observation *absent = NULL;
    for (int i = 0; i < system->n_variants; i++) {
        const struct ht_observation *o;
        enum ht_status status = ht_observe(seen, system->variants[i], c->setup, point, err, &o);
        if (status != HT_OK) return status;
        if (o->sight == HT_SEEN_BROKEN) {
            out->verdict = HT_CLAIM_BROKEN;
            snprintf(out->why, sizeof(out->why), "%s: %s", system->variants[i], o->why);
            return HT_OK;
        }
        if (o->sight == HT_SEEN_NOT_THERE) {
            absent = o;
            continue;
        }
        best->last = o;
        if (o->sight != HT_SEEN) continue;
        if (best->best && !(o->metric[HT_CLAIM_THROUGHPUT] > best->best->metric[HT_CLAIM_THROUGHPUT])) continue;
        best->best = o;
        best->by = system->variants[i];
    }
    if (!best->last && absent) {
        out->verdict = HT_CLAIM_NOT_THERE;
        snprintf(out->why, sizeof(out->why), "%s", absent->why);
    }
    return HT_OK;
}

static double loss_difference(const struct ht_observation *a, const struct ht_observation *b)
{
    double most = 0;
    if (!a->n_losses || a->n_losses != b->n_losses) return NAN;
    for (int64_t i = 0; i < a->n_losses; i++) {
        double d = fabs(a->losses[i] - b->losses[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

static bool undecidable(const struct ht_outcome *out)
{
    return out->verdict == HT_CLAIM_BROKEN || out->verdict == HT_CLAIM_NOT_THERE;
}

/* Writes "SysX sysx-10b batch 16 a node": the system, and the entries of lists that have several. */
static void name_place(const struct ht_claim *c, const struct ht_claim_system *system, struct ht_claim_point p,
                       unsigned axes, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = '\0';
    if (axes & (1u << HT_CLAIM_BY_SYSTEM)) at = (size_t)snprintf(buf, n, "%s", system->name);
    for (int axis = 0; axis < HT_N_CLAIM_LISTS && at < n; axis++) {
        static const char *const before[] = {"", "batch ", "", "", "seq ", "micro-batch ", "host ", "SSDs "};
        char entry[64];
        if (!(axes & (1u << axis))) continue;
        ht_claim_entry(c->setup, (enum ht_claim_axis)axis, p.at[axis], entry, sizeof(entry));
        at += (size_t)snprintf(buf + at, n - at, "%s%s%s", at ? " " : "", before[axis], entry);
    }
}

static unsigned axes_with_several(const struct ht_claim *c)
{
    unsigned axes = 0;
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++)
        if (c->entries.n[axis] > 1) axes |= 1u << axis;
    return axes;
}

static struct ht_claim_point point_of(const struct ht_claim_entries *entries, const int *at)
{
    struct ht_claim_point p;
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) p.at[axis] = entries->at[axis][at[axis]];
    return p;
}

/* Returns the entries that the row takes. of_versus: of the system that it divides by after its first step. */
static const struct ht_claim_entries *entries_of(const struct ht_claim *c, bool of_versus)
{
    return of_versus ? &c->versus_entries : &c->entries;
}

/* Returns the ratio of a's metric to b's, or a's metric when b is NULL. */
static enum ht_status observed_ratio(const struct ht_observation *a, const struct ht_observation *b,
                                     const struct ht_claim *c, struct ht_error *err, double *out)
{
    double over = 1;
    enum ht_status status = ht_observed(a, c, err, out);
    if (status == HT_OK && b) status = ht_observed(b, c, err, &over);
    *out /= over;
    return status;
}

/* Computes a row's value at a scenario and adds it to the outcome. of_versus: of the system that the row divides by
   after its first step. */
static enum ht_status value_at(const struct ht_claim *c, const int *at, bool of_versus, struct ht_observations *seen,
                               struct ht_error *err, struct ht_outcome *out, double *value, int *fails_in)
{
    struct ht_claim_value v = {.value = NAN, .point = point_of(entries_of(c, of_versus), at)};
    v.system = of_versus ? c->versus : c->systems[at[HT_CLAIM_BY_SYSTEM]];
    const struct ht_claim_system *versus = c->versus_reduced ? NULL : c->versus;
    struct stand_in a, b = {0};
    enum ht_status status = find_best(v.system, c, v.point, seen, err, out, &a);
    if (status == HT_OK && versus && !undecidable(out)) status = find_best(versus, c, v.point, seen, err, out, &b);
    if (status != HT_OK || undecidable(out)) return status;

    *fails_in = a.best ? 0 : a.last->fails_in;
    if (a.best) {
        v.params = (int64_t)a.best->metric[HT_CLAIM_PARAMETERS];
        v.batch = (int64_t)a.best->metric[HT_CLAIM_BATCH];
        v.seq = (int64_t)a.best->metric[HT_CLAIM_SEQ];
    }
    if (c->metric == HT_CLAIM_FITS)
        v.value = a.best != NULL;
    else if (c->metric == HT_CLAIM_LOSS_DIFFERENCE)
        v.value = a.best && b.best ? loss_difference(a.best, b.best) : NAN;
    else if (a.best && (!versus || b.best))
        status = observed_ratio(a.best, b.best, c, err, &v.value);
    if (status != HT_OK) return status;
    if (!a.best || (versus && !b.best))
        snprintf(v.why, sizeof(v.why), "%s: %.200s", !a.best ? v.system->name : versus->name,
                 !a.best ? a.last->why : b.last->why);
    else if (isnan(v.value))
        snprintf(v.why, sizeof(v.why), "%s says nothing about it", a.by);
    snprintf(v.by, sizeof(v.by), versus ? "%s / %s" : "%s", a.by, versus ? b.by : "");
    name_place(c, v.system, v.point, axes_with_several(c) | 1u << HT_CLAIM_BY_SYSTEM | 1u << HT_CLAIM_MODELS, v.where,
               sizeof(v.where));
    HT_PUSH(out->values, out->n_values, out->values_cap, v);
    *value = v.value;
    return HT_OK;
}

/* ---- a row ----------------------------------------------------------------------------------------------------- */

/* Applies the first `n_steps` steps at at[]. of_versus: to the system that the row divides by after its first step.
   `fits`, `tiers`: of a row that looks for a border, or NULL. */
static enum ht_status reduce(const struct ht_claim *c, int n_steps, const int *at, bool of_versus,
                             struct ht_observations *seen, struct ht_error *err, struct ht_outcome *out,
                             struct ht_claim_group *g, bool *fits, int *tiers, double *ours)
{
    double values[HT_CLAIM_VALUES];
    int here[HT_N_CLAIM_AXES], n = 0;
    if (n_steps == 0) {
        int tier = 0;
        enum ht_status status = value_at(c, at, of_versus, seen, err, out, ours, &tier);
        if (status != HT_OK || undecidable(out)) return status;
        if (tiers) *tiers = tier;
        if (c->metric == HT_CLAIM_FITS && *ours == 0) g->failing_tier = tier;
        isnan(*ours) ? g->n_missing++ : g->n_values++;
        return HT_OK;
    }
    const struct ht_claim_step *step = &c->steps[n_steps - 1];
    memcpy(here, at, sizeof(here));
    do {
        enum ht_status status =
            reduce(c, n_steps - 1, here, of_versus, seen, err, out, g, NULL, tiers ? &tiers[n] : NULL, &values[n]);
        if (status != HT_OK || undecidable(out)) return status;
        if (fits) fits[n] = values[n] > 0;
        n++;
    } while (ht_claim_next(entries_of(c, of_versus), step->over, here));
    if (fits) {
        int border = ht_claim_boundary(step->kind, fits, n, &g->hole);
        int failing = step->kind == HT_CLAIM_LARGEST ? border + 1 : border - 1;
        g->failing_tier = failing >= 0 && failing < n ? tiers[failing] : 0;
        *ours = border;
        return HT_OK;
    }
    *ours = ht_claim_reduce(step->kind, values, n);
    if (n_steps == 1 && c->versus_reduced && !of_versus) {
        double over = NAN;
        enum ht_status status = reduce(c, n_steps, at, true, seen, err, out, g, NULL, NULL, &over);
        if (status != HT_OK || undecidable(out)) return status;
        *ours /= over;
    }
    g->low = INFINITY;
    g->high = -INFINITY;
    g->n_last = 0;
    for (int i = 0; i < n; i++) {
        if (isnan(values[i])) continue;
        g->n_last++;
        g->low = fmin(g->low, values[i]);
        g->high = fmax(g->high, values[i]);
    }
    return HT_OK;
}

static unsigned axes_of_steps(const struct ht_claim *c)
{
    return c->steps[0].over | (c->n_steps > 1 ? c->steps[1].over : 0);
}

static enum ht_status check_group(const struct ht_claim *c, const int *at, struct ht_observations *seen,
                                  struct ht_error *err, struct ht_outcome *out, struct ht_claim_group *g)
{
    bool fits[HT_CLAIM_VALUES], border = ht_claim_is_boundary(c);
    int tiers[HT_CLAIM_VALUES];
    *g = (struct ht_claim_group){.ours = NAN};
    enum ht_status status =
        reduce(c, c->n_steps, at, false, seen, err, out, g, border ? fits : NULL, border ? tiers : NULL, &g->ours);
    if (status != HT_OK || undecidable(out)) return status;
    g->good = ht_claim_good(c, g->ours, &g->badness) && !g->hole;
    if (c->fails_in && g->failing_tier != c->fails_in) g->good = false;
    unsigned free_axes = axes_with_several(c) & ~axes_of_steps(c);
    if (!(axes_of_steps(c) & (1u << HT_CLAIM_BY_SYSTEM))) free_axes |= 1u << HT_CLAIM_BY_SYSTEM;
    name_place(c, c->systems[at[HT_CLAIM_BY_SYSTEM]], point_of(&c->entries, at), free_axes, g->where, sizeof(g->where));
    return HT_OK;
}

enum ht_status ht_claim_check(const struct ht_claim *c, struct ht_observations *seen, struct ht_error *err,
                              struct ht_outcome *out)
{
    *out = (struct ht_outcome){.claim = c, .ours = NAN, .deviation = NAN};
    snprintf(out->paper_text, sizeof(out->paper_text), "%s", c->paper[0] ? c->paper : "-");
    snprintf(out->ours_text, sizeof(out->ours_text), "-");
    snprintf(out->how, sizeof(out->how), "-");
    if (c->unchecked[0]) {
        out->verdict = HT_CLAIM_UNCHECKED;
        snprintf(out->why, sizeof(out->why), "%s", c->unchecked);
        return HT_OK;
    }
    struct ht_claim_group worst = {.good = true, .badness = -INFINITY};
    int n_groups = 0, at[HT_N_CLAIM_AXES] = {0};
    do {
        struct ht_claim_group g;
        enum ht_status status = check_group(c, at, seen, err, out, &g);
        if (status != HT_OK) {
            ht_outcome_free(out);
            return status;
        }
        if (undecidable(out)) {
            char why[sizeof(out->why)];
            memcpy(why, out->why, sizeof(why));
            ht_claim_describe(c, &g, 1, out);
            memcpy(out->why, why, sizeof(why));
            snprintf(out->ours_text, sizeof(out->ours_text), "-");
            out->ours = out->deviation = NAN;
            return HT_OK;
        }
        if (n_groups++ == 0 || g.good < worst.good || (g.good == worst.good && g.badness > worst.badness)) worst = g;
    } while (ht_claim_next(&c->entries, ((1u << HT_N_CLAIM_AXES) - 1) & ~axes_of_steps(c), at));
    out->ours = worst.ours;
    out->verdict = worst.good ? HT_CLAIM_WITHIN : HT_CLAIM_OUTSIDE;
    ht_claim_describe_how(c, out);
    ht_claim_describe(c, &worst, n_groups, out);
    return HT_OK;
}

void ht_outcome_free(struct ht_outcome *o)
{
    free(o->values);
    o->values = NULL;
    o->n_values = o->values_cap = 0;
}
