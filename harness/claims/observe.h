/*
 * An observation: one of our systems at one scenario, planned, proved, simulated (or trained), and reduced to the
 * numbers that claims ask for. Claims share scenarios, so observations are kept for the run.
 */
#ifndef HT_HARNESS_CLAIMS_OBSERVE_H
#define HT_HARNESS_CLAIMS_OBSERVE_H

#include "harness/claims/ledger/ledger.h"
#include "harness/result/result.h"

enum ht_sight {
    HT_SEEN,           /* it runs */
    HT_SEEN_NO_FIT,    /* it does not fit: an answer */
    HT_SEEN_NOT_THERE, /* the system is missing, or cannot do this yet */
    HT_SEEN_BROKEN,    /* it should have run: our bug */
};

enum { HT_OBSERVATION_KEY = 1024 }; /* has room for the longest names of a ledger */

struct ht_observation {
    char key[HT_OBSERVATION_KEY];
    enum ht_sight sight;
    char why[512];                     /* unless HT_SEEN */
    int fails_in;                      /* HT_SEEN_NO_FIT: enum ht_tier + 1; 0: not known */
    double metric[HT_N_CLAIM_METRICS]; /* NaN: none */
    double unit[HT_CLAIM_BLOCK_FORWARD + 1];
    struct ht_plan plan;
    double *losses; /* [train_steps] when trained */
    int64_t n_losses;
};

struct ht_observations {
    struct ht_observation **list; /* pointers stay valid */
    size_t n, cap;
};

/* Writes the key that tells scenarios apart. variant: a system with its settings, "autohete c=2 p=1". */
void ht_observation_key(const char *variant, const struct ht_claim_setup *setup, struct ht_claim_point point,
                        char key[HT_OBSERVATION_KEY]);
/* Finds an observation by its key. Returns NULL if no observation has it. */
const struct ht_observation *ht_observation_of(const struct ht_observations *seen, const char *key);

/* Makes an observation. Several threads may call it for different scenarios. Returns an error for an interrupt only: a
   system's refusal or failure is in the observation. */
enum ht_status ht_look(const char *variant, const struct ht_claim_setup *setup, struct ht_claim_point point,
                       struct ht_error *err, struct ht_observation *out);
/* Estimates the memory that ht_look takes there, in bytes. */
double ht_look_bytes(const struct ht_claim_setup *setup, struct ht_claim_point point);
/* Returns the observation in `seen`, or makes it and adds it. */
enum ht_status ht_observe(struct ht_observations *seen, const char *variant, const struct ht_claim_setup *setup,
                          struct ht_claim_point point, struct ht_error *err, const struct ht_observation **out);
void ht_observation_destroy(struct ht_observation *o);
void ht_observations_free(struct ht_observations *seen);

/* Reads the metric of an observation, NaN when it has none. Returns HT_BAD_INPUT, with the place in the ledger, when
   the claim names an element that the plan's variable does not have. */
enum ht_status ht_observed(const struct ht_observation *o, const struct ht_claim *claim, struct ht_error *err,
                           double *out);

/* ---- gather.c ---------------------------------------------------------------------------------------------------- */

/* Observes all scenarios of these claims that are not in `seen` yet, on the pool of tasks. Training takes the whole
   machine and is left to ht_observe. */
enum ht_status ht_claims_gather(const struct ht_claim *const *claims, size_t n, struct ht_observations *seen,
                                struct ht_error *err);

/* ---- metrics.c: into metric[HT_N_CLAIM_METRICS], unit[] ---------------------------------------------------------- */

void ht_observe_tensors(const struct ht_schedule *s, double *metric);
void ht_observe_activations(const struct ht_job *job, double *metric);
void ht_observe_units(const struct ht_job *job, double *unit);
void ht_observe_result(const struct ht_job *job, const struct ht_result *r, double *metric);

/* ---- stages.c: the same --------------------------------------------------------------------------------------------- */

/* Compares the lanes in the stages of the last iteration: forward passes, backward passes, optimizer. */
void ht_observe_stages(const struct ht_job *job, const struct ht_result *r, double *metric);

/* ---- recoveries.c ------------------------------------------------------------------------------------------------- */

/* Prices a setup's recovery by way of `variant`: "stores" or "remote", with settings. HT_BAD_INPUT for any other. */
enum ht_status ht_look_recovery(const char *variant, const struct ht_claim_setup *setup, struct ht_claim_point point,
                                struct ht_error *err, struct ht_observation *out);

/* ---- units.c ----------------------------------------------------------------------------------------------------- */

/* Prices a job's ops in units of time, with nothing shared, in place of what the catalogue says. */
void ht_price_in_units(const struct ht_claim_units *units, struct ht_job *job);

#endif
