/*
 * Checks a row of the ledger against our systems: the number, the deviation, the verdict.
 *
 *     for each combination of the lists that no step goes over, the row's systems among them:
 *         values along the lists `over`  --kind-->  (several of these  --then-->)  one number
 *         one number  --compare, tolerance-->  good or bad
 *     the worst of these numbers stands for the row
 *
 * The best variant of a system (the one with the highest throughput among those that fit) stands for it at each
 * scenario, as the papers do with and without full checkpointing. With `versus` a value is the ratio of two systems',
 * taken where both run.
 */
#ifndef HT_HARNESS_CLAIMS_CHECK_H
#define HT_HARNESS_CLAIMS_CHECK_H

#include "harness/claims/observe.h"

enum ht_claim_verdict {
    HT_CLAIM_WITHIN,
    HT_CLAIM_OUTSIDE,
    HT_CLAIM_UNCHECKED, /* the ledger says why */
    HT_CLAIM_NOT_THERE, /* a system that it needs is missing */
    HT_CLAIM_BROKEN,    /* something that should have run failed: our bug */
    HT_N_CLAIM_VERDICTS,
};
extern const char *const ht_claim_verdict_names[];

/* One value that went into a row. */
struct ht_claim_value {
    const struct ht_claim_system *system;
    struct ht_claim_point point;
    char where[96];             /* "AutoHete autohete-4b" */
    char by[96];                /* our systems: "autohete / patrickstar_ckpt" */
    double value;               /* NaN: none */
    int64_t params, batch, seq; /* of the size that ran; 0: none did */
    char why[256];              /* reason, if value is NaN */
};

struct ht_outcome {
    const struct ht_claim *claim;
    enum ht_claim_verdict verdict;
    double ours;      /* NaN: none. Of a boundary: the index into the row's entries, -1 when nothing fits */
    double deviation; /* ours / the paper's - 1; NaN: none */
    char paper_text[64], ours_text[64];
    char how[128];  /* "simulated on autohete-1gpu" */
    char why[1024]; /* how the number came about, or why there is none */
    struct ht_claim_value *values;
    size_t n_values, values_cap;
};

/* Checks one row. Returns an error for an interrupt and the like only: any answer of a system is an outcome. */
enum ht_status ht_claim_check(const struct ht_claim *claim, struct ht_observations *seen, struct ht_error *err,
                              struct ht_outcome *out);
void ht_outcome_free(struct ht_outcome *outcome);

/* Returns true when the row counts into the mean deviation: simulated rates and times, their ratios, and plan
   variables, with a figure. Identities of the method (bytes a parameter, units of time) would only flatter it, and a
   second reading would count a claim twice. */
bool ht_outcome_has_figure(const struct ht_outcome *outcome);

/* Writes the unit of a row's figure after its first n_steps steps into buf and returns it: of the values for 0, of the
   row for the claim's own number. A quotient of two systems, or of two values, is a "ratio". Setups that count in units
   of time have those instead of seconds. A border is an entry of a list: "sequences", "B". "" if the row is not checked. */
enum { HT_CLAIM_UNIT_TEXT = 64 };
const char *ht_claim_unit_of(const struct ht_claim *claim, int n_steps, char buf[HT_CLAIM_UNIT_TEXT]);

/* ---- the arithmetic, apart from systems ------------------------------------------------------------------------ */

/* Reduces at most HT_CLAIM_VALUES values to one number, leaving out NaN (a difference needs both values). Returns NaN
   when nothing is left. Not for boundaries. */
double ht_claim_reduce(enum ht_claim_kind kind, const double *values, int n);
/* Returns the entry at the border of what fits, or -1 if nothing fits. *hole: an entry is on the wrong side of it. */
int ht_claim_boundary(enum ht_claim_kind kind, const bool *fits, int n, bool *hole);
/* Returns true when ours satisfies the row. *badness grows with the distance from it. */
bool ht_claim_good(const struct ht_claim *claim, double ours, double *badness);

#endif
