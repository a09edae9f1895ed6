/*
 * What one of our systems does at one scenario, seen once: planned, proved, simulated (or trained), and reduced to the
 * numbers that claims ask for. Claims share scenarios, so observations are kept for the run.
 */
#ifndef HT_HARNESS_CLAIMS_OBSERVE_H
#define HT_HARNESS_CLAIMS_OBSERVE_H

#include "common/plan/system.h"
#include "claims/ledger.h"

enum ht_sight {
    HT_SEEN,           /* it runs */
    HT_SEEN_NO_FIT,    /* it does not fit: an answer */
    HT_SEEN_NOT_THERE, /* we have no such system, or it cannot do this yet */
    HT_SEEN_BROKEN,    /* it should have run: our bug */
};

struct ht_observation {
    char key[384];
    enum ht_sight sight;
    char why[512];                     /* unless HT_SEEN */
    int fails_in;                      /* HT_SEEN_NO_FIT: enum ht_tier + 1; 0: not known */
    double metric[HT_N_CLAIM_METRICS]; /* NaN: has none */
    double unit[HT_CLAIM_BLOCK_FORWARD + 1];
    struct ht_plan_variable variables[16];
    int n_variables;
    double *losses; /* [train_steps] when trained */
    int64_t n_losses;
};

/* A scenario of a setup: an index into each list. */
struct ht_claim_point {
    int at[HT_N_CLAIM_AXES];
};

struct ht_observations {
    struct ht_observation **list; /* pointers stay valid */
    size_t n, cap;
};

/* Looks, or remembers. An error is what the user can mend or an interrupt; what a system cannot do is in the
   observation. */
enum ht_status ht_observe(struct ht_observations *seen, const char *system, const struct ht_claim_setup *setup,
                          struct ht_claim_point point, struct ht_error *err, const struct ht_observation **out);
void ht_observations_free(struct ht_observations *seen);

/* The metric of an observation; NaN when it has none. */
double ht_observed(const struct ht_observation *o, const struct ht_claim *claim);

#endif
