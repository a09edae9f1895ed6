#include "harness/claims_check.h"

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

double ht_claim_reduce(enum ht_claim_kind kind, const double *values, int n)
{
    if (kind == HT_CLAIM_DIFFERENCE) return n == 2 ? values[0] - values[1] : NAN;
    double v[HT_CLAIM_LIST];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(values[i])) v[m++] = values[i];
    if (m == 0) return NAN;
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

bool ht_outcome_has_figure(const struct ht_outcome *o)
{
    const struct ht_claim *c = o->claim;
    return (o->verdict == HT_CLAIM_WITHIN || o->verdict == HT_CLAIM_OUTSIDE) && c->compare == HT_CLAIM_ABOUT &&
           (c->metric == HT_CLAIM_THROUGHPUT || c->metric == HT_CLAIM_PLAN_VARIABLE) && !isnan(o->deviation);
}

/* ---- a system at a scenario ------------------------------------------------------------------------------------ */

struct stand_in {
    const struct ht_observation *best; /* HT_SEEN; NULL: nothing runs */
    const struct ht_observation *last; /* why, when nothing runs: of the last variant that is there */
    const char *by;
};

/* Sets outcome->verdict when the row cannot be decided. */
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

/* The value of a row at a scenario, remembered in the outcome. */
static enum ht_status value_at(const struct ht_claim *c, const struct ht_claim_system *system,
                               struct ht_claim_point point, struct ht_observations *seen, struct ht_error *err,
                               struct ht_outcome *out, double *value, int *fails_in)
{
    struct stand_in a, b = {0};
    struct ht_claim_value v = {.value = NAN};
    enum ht_status status = find_best(system, c, point, seen, err, out, &a);
    if (status == HT_OK && c->versus) status = find_best(c->versus, c, point, seen, err, out, &b);
    if (status != HT_OK || out->verdict == HT_CLAIM_BROKEN || out->verdict == HT_CLAIM_NOT_THERE) return status;

    *fails_in = a.best ? 0 : a.last->fails_in;
    if (c->metric == HT_CLAIM_FITS)
        v.value = a.best != NULL;
    else if (c->metric == HT_CLAIM_LOSS_DIFFERENCE)
        v.value = a.best && b.best ? loss_difference(a.best, b.best) : NAN;
    else if (a.best && (!c->versus || b.best))
        v.value = ht_observed(a.best, c) / (c->versus ? ht_observed(b.best, c) : 1);
    if (!a.best || (c->versus && !b.best))
        snprintf(v.why, sizeof(v.why), "%.250s", !a.best ? a.last->why : b.last->why);
    else if (isnan(v.value))
        snprintf(v.why, sizeof(v.why), "%s says nothing about it", a.by);
    snprintf(v.by, sizeof(v.by), c->versus ? "%s / %s" : "%s", a.by, c->versus ? b.by : "");

    size_t at = (size_t)snprintf(v.where, sizeof(v.where), "%s", system->name);
    for (int axis = 0; axis < HT_N_CLAIM_AXES && at < sizeof(v.where); axis++) {
        char entry[64];
        if (axis != HT_CLAIM_MODELS && c->setup->n[axis] == 1) continue;
        ht_claim_entry(c->setup, (enum ht_claim_axis)axis, point.at[axis], entry, sizeof(entry));
        at += (size_t)snprintf(v.where + at, sizeof(v.where) - at, " %s%s", axis == HT_CLAIM_BATCHES ? "batch " : "",
                               entry);
    }
    HT_PUSH(out->values, out->n_values, out->values_cap, v);
    *value = v.value;
    return HT_OK;
}

/* ---- a row ----------------------------------------------------------------------------------------------------- */

/* One number out of the values along `over`, for one system and one choice of the other lists. */
struct group {
    double ours;
    bool good, hole;
    double badness;
    int first_failing_tier;
    char where[96];
    int n_values, n_missing;
    double low, high;
};

static enum ht_status check_group(const struct ht_claim *c, const struct ht_claim_system *system,
                                  struct ht_claim_point point, struct ht_observations *seen, struct ht_error *err,
                                  struct ht_outcome *out, struct group *g)
{
    double values[HT_CLAIM_LIST];
    bool fits[HT_CLAIM_LIST];
    int n = c->setup->n[c->over], tiers[HT_CLAIM_LIST];
    *g = (struct group){.low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < n; i++) {
        point.at[c->over] = i;
        enum ht_status status = value_at(c, system, point, seen, err, out, &values[i], &tiers[i]);
        if (status != HT_OK || out->verdict == HT_CLAIM_BROKEN || out->verdict == HT_CLAIM_NOT_THERE) return status;
        fits[i] = values[i] > 0;
        if (isnan(values[i])) {
            g->n_missing++;
            continue;
        }
        g->n_values++;
        if (values[i] < g->low) g->low = values[i];
        if (values[i] > g->high) g->high = values[i];
    }
    if (c->metric == HT_CLAIM_FITS) {
        int at = ht_claim_boundary(c->kind, fits, n, &g->hole);
        int failing = c->kind == HT_CLAIM_LARGEST ? at + 1 : at - 1;
        g->first_failing_tier = failing >= 0 && failing < n ? tiers[failing] : 0;
        g->ours = at;
    } else {
        g->ours = ht_claim_reduce(c->kind, values, n);
    }
    g->good = ht_claim_good(c, g->ours, &g->badness) && !g->hole;
    if (c->fails_in && g->first_failing_tier != c->fails_in) g->good = false;
    snprintf(g->where, sizeof(g->where), "%s", system->name);
    size_t at = strlen(g->where);
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) {
        char entry[64];
        if ((enum ht_claim_axis)axis == c->over || c->setup->n[axis] == 1) continue;
        ht_claim_entry(c->setup, (enum ht_claim_axis)axis, point.at[axis], entry, sizeof(entry));
        at += (size_t)snprintf(g->where + at, at < sizeof(g->where) ? sizeof(g->where) - at : 0, " %s", entry);
        if (at >= sizeof(g->where)) break;
    }
    return HT_OK;
}

/* The next choice of the lists other than `over`; false after the last. */
static bool next_point(const struct ht_claim *c, struct ht_claim_point *p)
{
    for (int axis = 0; axis < HT_N_CLAIM_AXES; axis++) {
        if ((enum ht_claim_axis)axis == c->over) continue;
        if (++p->at[axis] < c->setup->n[axis]) return true;
        p->at[axis] = 0;
    }
    return false;
}

/* What an index into the list `over` stands for, as a number; NaN for -1. */
static double entry_value(const struct ht_claim *c, double index)
{
    if (index < 0) return NAN;
    int i = (int)index;
    switch (c->over) {
    case HT_CLAIM_MODELS:
        return (double)c->setup->model_params[i];
    case HT_CLAIM_BATCHES:
        return (double)c->setup->batches[i];
    case HT_CLAIM_MEMORY:
        return c->setup->memory_bytes[i] ? (double)c->setup->memory_bytes[i] : NAN;
    default:
        return NAN;
    }
}

static void describe(const struct ht_claim *c, const struct group *worst, int n_groups, struct ht_outcome *out)
{
    static const char *const signs[] = {"", ">= ", "<= ", "> ", "< "};
    static const char *const tiers[] = {"no memory that we know", "device memory", "host memory"};
    char entry[64];
    size_t n = sizeof(out->why);
    int at = 0;
    if (c->metric == HT_CLAIM_FITS) {
        ht_claim_entry(c->setup, c->over, (int)c->value, entry, sizeof(entry));
        snprintf(out->paper_text, sizeof(out->paper_text), "%s%.50s", signs[c->compare], entry);
        if (worst->ours >= 0)
            ht_claim_entry(c->setup, c->over, (int)worst->ours, out->ours_text, sizeof(out->ours_text));
        else
            snprintf(out->ours_text, sizeof(out->ours_text), "none fits");
        out->deviation = entry_value(c, worst->ours) / entry_value(c, c->value) - 1;
        if (worst->first_failing_tier)
            at = snprintf(out->why, n, "beyond it %s fails", tiers[worst->first_failing_tier]);
        if (worst->hole) at += snprintf(out->why + at, n - (size_t)at, "%sfits with gaps", at ? "; " : "");
    } else {
        snprintf(out->paper_text, sizeof(out->paper_text), "%s%.6g", signs[c->compare], c->value);
        if (isnan(worst->ours))
            snprintf(out->ours_text, sizeof(out->ours_text), "nothing runs");
        else
            snprintf(out->ours_text, sizeof(out->ours_text), "%.4g", worst->ours);
        if (c->value != 0) out->deviation = worst->ours / c->value - 1;
        if (worst->n_values > 1)
            at = snprintf(out->why, n, "%d values from %.4g to %.4g", worst->n_values, worst->low, worst->high);
        if (worst->n_missing)
            at += snprintf(out->why + at, n - (size_t)at, "%s%d of %d without one", at ? "; " : "", worst->n_missing,
                           worst->n_missing + worst->n_values);
    }
    if (n_groups > 1)
        snprintf(out->why + at, n - (size_t)at, "%sworst of %d: %s", at ? "; " : "", n_groups, worst->where);
    if (c->paper[0]) snprintf(out->paper_text, sizeof(out->paper_text), "%s", c->paper);
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
    struct group worst = {.good = true, .badness = -INFINITY};
    int n_groups = 0;
    for (int s = 0; s < c->n_systems; s++) {
        struct ht_claim_point point = {{0}};
        do {
            struct group g;
            enum ht_status status = check_group(c, c->systems[s], point, seen, err, out, &g);
            if (status != HT_OK) {
                ht_outcome_free(out);
                return status;
            }
            if (out->verdict == HT_CLAIM_BROKEN || out->verdict == HT_CLAIM_NOT_THERE) {
                char why[sizeof(out->why)];
                memcpy(why, out->why, sizeof(why));
                describe(c, &g, 1, out);
                memcpy(out->why, why, sizeof(why));
                snprintf(out->ours_text, sizeof(out->ours_text), "-");
                out->ours = out->deviation = NAN;
                return HT_OK;
            }
            if (n_groups++ == 0 || g.good < worst.good || (g.good == worst.good && g.badness > worst.badness))
                worst = g;
        } while (next_point(c, &point));
    }
    out->ours = worst.ours;
    out->verdict = worst.good ? HT_CLAIM_WITHIN : HT_CLAIM_OUTSIDE;
    const char *clock = c->setup->train_steps             ? "trained on"
                        : c->metric == HT_CLAIM_PLAN_TIME ? "measured here for"
                                                          : "simulated on";
    snprintf(out->how, sizeof(out->how), "%s %s", clock, c->setup->cluster);
    describe(c, &worst, n_groups, out);
    return HT_OK;
}

void ht_outcome_free(struct ht_outcome *o)
{
    free(o->values);
    o->values = NULL;
    o->n_values = o->values_cap = 0;
}
