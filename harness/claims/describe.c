/* Writes the texts of an outcome: the paper's value, ours, how ours was obtained, and the reason if nothing ran. */
#include "harness/claims/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the size that one of the row's entries stands for, NaN for -1. */
static double entry_value(const struct ht_claim *c, double index)
{
    enum ht_claim_axis axis = ht_claim_first_axis(&c->steps[0]);
    const struct ht_claim_setup *s = c->setup;
    if (!(index >= 0) || axis >= HT_N_CLAIM_LISTS || axis == HT_CLAIM_SETTINGS) return NAN;
    int64_t value = s->values[axis][c->entries.at[axis][(int)index]];
    bool memory = axis == HT_CLAIM_MEMORY || axis == HT_CLAIM_HOST_MEMORY;
    return memory && !value ? NAN : (double)value;
}

static const char *border_unit(const struct ht_claim *c)
{
    static const char *const units[HT_N_CLAIM_AXES] = {"model",     "sequences", "B",    "setting", "tokens",
                                                       "sequences", "B",         "SSDs", "system"};
    return units[ht_claim_first_axis(&c->steps[0])];
}

static const char *value_unit(const struct ht_claim *c, char buf[HT_CLAIM_UNIT_TEXT])
{
    static const char *const per[] = {[HT_CLAIM_PARAMS] = "parameter",
                                      [HT_CLAIM_BLOCK_PARAMS] = "parameter of a block",
                                      [HT_CLAIM_BLOCK_ACTIVATIONS] = "B of a block's activations",
                                      [HT_CLAIM_BLOCK_FORWARD] = "s of a block's forward pass"};
    const char *unit = ht_claim_metric_units[c->metric];
    if (c->versus && !c->versus_reduced && c->metric != HT_CLAIM_LOSS_DIFFERENCE) return "ratio";
    if (c->setup->units.devices && !strcmp(unit, "s")) unit = "unit of time";
    if (c->unit == HT_CLAIM_NO_UNIT) return unit;
    snprintf(buf, HT_CLAIM_UNIT_TEXT, "%s per %s", unit, per[c->unit]);
    return buf;
}

const char *ht_claim_unit_of(const struct ht_claim *c, int n_steps, char buf[HT_CLAIM_UNIT_TEXT])
{
    if (c->unchecked[0]) return "";
    if (n_steps && ht_claim_is_boundary(c)) return border_unit(c);
    const char *unit = value_unit(c, buf);
    for (int i = 0; i < n_steps; i++) {
        enum ht_claim_kind kind = c->steps[i].kind;
        if (kind == HT_CLAIM_STEPS || kind == HT_CLAIM_SPREAD || kind == HT_CLAIM_HALVES) unit = "ratio";
        if (kind == HT_CLAIM_POSITIVE) unit = "share";
        if (i == 0 && c->versus_reduced) unit = "ratio";
    }
    return unit;
}

static const char *const tier_names[] = {"no memory that we know", "device memory", "host memory", "the disks"};

static const char *const signs[] = {"", ">= ", "<= ", "> ", "< "};

static int describe_border(const struct ht_claim *c, const struct ht_claim_group *worst, struct ht_outcome *out)
{
    enum ht_claim_axis axis = ht_claim_first_axis(&c->steps[0]);
    char entry[64];
    size_t n = sizeof(out->why);
    int at = 0;
    snprintf(out->paper_text, sizeof(out->paper_text), "%s%.50s", signs[c->compare],
             ht_claim_entry(c->setup, axis, c->entries.at[axis][(int)c->value], entry, sizeof(entry)));
    snprintf(out->ours_text, sizeof(out->ours_text), "none fits");
    if (worst->ours >= 0)
        ht_claim_entry(c->setup, axis, c->entries.at[axis][(int)worst->ours], out->ours_text, sizeof(out->ours_text));
    out->deviation = entry_value(c, worst->ours) / entry_value(c, c->value) - 1;
    if (worst->failing_tier) at = snprintf(out->why, n, "beyond it %s fails", tier_names[worst->failing_tier]);
    if (worst->hole) at += snprintf(out->why + at, n - (size_t)at, "%sfits with gaps", at ? "; " : "");
    return at;
}

static int describe_number(const struct ht_claim *c, const struct ht_claim_group *worst, struct ht_outcome *out)
{
    static const char *const fits[] = {"does not fit", "fits"};
    size_t n = sizeof(out->why);
    bool word = c->metric == HT_CLAIM_FITS && c->steps[0].kind == HT_CLAIM_VALUE && c->compare == HT_CLAIM_ABOUT;
    int at = 0;
    snprintf(out->paper_text, sizeof(out->paper_text), "%s%.6g", signs[c->compare], c->value);
    if (word) snprintf(out->paper_text, sizeof(out->paper_text), "%s", fits[c->value > 0]);
    if (isnan(worst->ours))
        snprintf(out->ours_text, sizeof(out->ours_text), "nothing runs");
    else if (word)
        snprintf(out->ours_text, sizeof(out->ours_text), "%s", fits[worst->ours > 0]);
    else
        snprintf(out->ours_text, sizeof(out->ours_text), "%.4g", worst->ours);
    if (c->value != 0 && !word) out->deviation = worst->ours / c->value - 1;
    if (worst->n_last > 1)
        at = snprintf(out->why, n, "%d values from %.4g to %.4g", worst->n_last, worst->low, worst->high);
    if (worst->n_missing)
        at += snprintf(out->why + at, n - (size_t)at, "%s%d of %d without one", at ? "; " : "", worst->n_missing,
                       worst->n_missing + worst->n_values);
    if (word && worst->failing_tier)
        at += snprintf(out->why + at, n - (size_t)at, "%s%s fails", at ? "; " : "", tier_names[worst->failing_tier]);
    return at;
}

void ht_claim_describe(const struct ht_claim *c, const struct ht_claim_group *worst, int n_groups,
                       struct ht_outcome *out)
{
    int at = ht_claim_is_boundary(c) ? describe_border(c, worst, out) : describe_number(c, worst, out);
    if (n_groups > 1)
        snprintf(out->why + at, sizeof(out->why) - (size_t)at, "%sworst of %d: %s", at ? "; " : "", n_groups,
                 worst->where);
    if (c->paper[0]) snprintf(out->paper_text, sizeof(out->paper_text), "%s", c->paper);
}

/* Writes "simulated on sysx-1node", ".. on sysx-1node to sysx-8node", "units of time on 4 devices". */
void ht_claim_describe_how(const struct ht_claim *c, struct ht_outcome *out)
{
    const struct ht_claim_setup *s = c->setup;
    const char *clock = s->train_steps                    ? "trained on"
                        : c->metric == HT_CLAIM_PLAN_TIME ? "measured here for"
                                                          : "simulated on";
    const int *models = c->entries.at[HT_CLAIM_MODELS];
    const char *first = s->clusters[models[0]], *last = s->clusters[models[c->entries.n[HT_CLAIM_MODELS] - 1]];
    if (s->units.devices)
        snprintf(out->how, sizeof(out->how), "units of time on %lld devices", (long long)s->units.devices);
    else if (strcmp(first, last) != 0)
        snprintf(out->how, sizeof(out->how), "%s %s to %s", clock, first, last);
    else
        snprintf(out->how, sizeof(out->how), "%s %s", clock, first);
}
