/*
 * The ledger of a paper's claims: what it states, under which scenarios, and how far we may be off.
 *
 *     paper:      title
 *     tolerances: name -> {relative | absolute, why}        set by the kind of claim, before anything was computed
 *     systems:    the paper's name -> our systems           the best of them that runs stands for it
 *     setups:     name -> {models, cluster, batches, ...}   a set of scenarios: all combinations of its lists
 *     claims:     id -> row
 *
 * A row is declarative: a metric is taken at every scenario of the setup (and divided by that of `versus`), the values
 * along the list `over` become one number by `kind`, and that is held against `value` by `compare` and `tolerance`:
 *
 *     autohete.fig3a.vs-patrickstar.avg:
 *       {where: .., statement: .., setup: one-gpu, systems: [AutoHete], versus: PatrickStar, metric: throughput,
 *        kind: average, over: models, value: 1.63, tolerance: ratio}
 *
 * A claim with several parts has a row for each, with ids "claim/part". A row that cannot be checked says why
 * (`unchecked`) and nothing else.
 */
#ifndef CLAIMS_LEDGER_H
#define CLAIMS_LEDGER_H

#include "common/base/config.h"
#include "common/hw/hw.h"

enum ht_claim_metric {
    HT_CLAIM_THROUGHPUT,        /* useful TFLOP/s per device */
    HT_CLAIM_FITS,              /* with kind largest or smallest */
    HT_CLAIM_DEVICE_PEAK,       /* bytes: most live on a device in the run */
    HT_CLAIM_DEVICE_SHARE,      /* the same over the device's memory */
    HT_CLAIM_DEVICE_NEED,       /* bytes that must fit a device: of the safe sequence */
    HT_CLAIM_DEVICE_STATES,     /* of them, optimizer states with the master parameters */
    HT_CLAIM_HOST_NEED,         /* bytes that must fit the host */
    HT_CLAIM_MODEL_BYTES,       /* parameters, gradients and optimizer states, wherever they are */
    HT_CLAIM_STATES_PER_COPY,   /* optimizer states over compute copy of the parameters, in bytes */
    HT_CLAIM_COPIED_BYTES,      /* between device and host, per iteration */
    HT_CLAIM_COMPUTE_TIME,      /* s that the device computes, per iteration */
    HT_CLAIM_PLAN_VARIABLE,     /* `variable`, by the paper's name */
    HT_CLAIM_PLAN_TIME,         /* s that planning took on this machine */
    HT_CLAIM_PLAN_TIME_ERROR,   /* |iteration time by the paper's own model / simulated - 1| */
    HT_CLAIM_PLAN_MEMORY_ERROR, /* |device bytes by the paper's own equation / peak - 1| */
    HT_CLAIM_LANES_IN_ORDER,  /* 1 when compute, device-to-host and host lane end their work on blocks in this order */
    HT_CLAIM_COMPUTE_HIDDEN,  /* 1 when the host lane works without gaps and ends after the compute lane */
    HT_CLAIM_COLLECTIVES,     /* share of an iteration that its critical path spends in collectives */
    HT_CLAIM_PEAK_AT_TURN,    /* 1 when the device's peak lies between the end of F_L and the end of B_L */
    HT_CLAIM_NEED_AT_TURN,    /* the same of the safe sequence: ops one at a time, nothing ahead of its time */
    HT_CLAIM_BACKWARD_SPAN,   /* s from the start of B_L to the end of the last host step */
    HT_CLAIM_HEAD_START,      /* (end of the last host step - start of F_1 of the next iteration) / iteration */
    HT_CLAIM_LOSS_DIFFERENCE, /* largest difference of losses to those of `versus`; the setup trains */
    HT_N_CLAIM_METRICS,
};

enum ht_claim_kind {
    HT_CLAIM_VALUE,   /* of each scenario */
    HT_CLAIM_AVERAGE, /* arithmetic */
    HT_CLAIM_MAX,
    HT_CLAIM_MIN,
    HT_CLAIM_LARGEST,    /* the last of the list that fits; all before it fit too, none after it does */
    HT_CLAIM_SMALLEST,   /* the first of the list that fits; all after it fit too */
    HT_CLAIM_STEPS,      /* smallest ratio of a value to the one before it */
    HT_CLAIM_SPREAD,     /* largest / smallest */
    HT_CLAIM_HALVES,     /* mean of the upper half of the list / mean of its lower half (the middle one is left out) */
    HT_CLAIM_DIFFERENCE, /* first - second */
    HT_N_CLAIM_KINDS,
};

enum ht_claim_compare { HT_CLAIM_ABOUT, HT_CLAIM_AT_LEAST, HT_CLAIM_AT_MOST, HT_CLAIM_ABOVE, HT_CLAIM_BELOW };

/* The lists of a setup, and what a row may go over. */
enum ht_claim_axis { HT_CLAIM_MODELS, HT_CLAIM_BATCHES, HT_CLAIM_MEMORY, HT_CLAIM_SETTINGS, HT_N_CLAIM_AXES };

/* What values are counted in; of the scenario's model. */
enum ht_claim_unit {
    HT_CLAIM_NO_UNIT,
    HT_CLAIM_PARAMS,            /* parameters */
    HT_CLAIM_BLOCK_PARAMS,      /* parameters of a block: M_p */
    HT_CLAIM_BLOCK_ACTIVATIONS, /* bytes that a block keeps beyond its input: 2 (M_a - M'_a) */
    HT_CLAIM_BLOCK_FORWARD,     /* s of a block's forward pass: t_fp */
};

extern const char *const ht_claim_metric_names[], *const ht_claim_kind_names[], *const ht_claim_compare_names[],
                                                                                    *const ht_claim_axis_names[],
                                                                                        *const ht_claim_unit_names[];

enum { HT_CLAIM_LIST = 32, HT_CLAIM_SET = 4, HT_CLAIM_SYSTEMS = 4, HT_CLAIM_NAME = 64 };

struct ht_claim_tolerance {
    const char *name;
    double relative, absolute; /* one of them */
    char why[256];
};

struct ht_claim_system {
    const char *name;                       /* the paper's */
    const char *variants[HT_CLAIM_SYSTEMS]; /* "autohete", or with settings: "autohete c=2 p=1" */
    int n_variants;
};

struct ht_claim_setup {
    const char *name;
    char cluster[HT_CLAIM_NAME], numerics[16], note[512];
    int64_t seq, micro_batch; /* 0: the model's longest; the batch */
    int64_t iterations;       /* simulated; 1: nothing comes before or after */
    int64_t train_steps;      /* > 0: trained for real instead */
    const struct ht_node *models_node, *batches_node, *memory_node, *settings_node;

    const char *models[HT_CLAIM_LIST];
    int64_t model_params[HT_CLAIM_LIST];
    int64_t batches[HT_CLAIM_LIST], memory_bytes[HT_CLAIM_LIST]; /* 0 where the default is meant */
    char settings[HT_CLAIM_LIST][HT_CLAIM_SET][32];              /* "c=3" */
    int n_settings[HT_CLAIM_LIST];
    int n[HT_N_CLAIM_AXES]; /* lengths of the lists; at least 1 */
};

struct ht_claim {
    const char *id;
    char where[128], statement[512], note[512];
    char unchecked[512]; /* not empty: why; the rest does not count */
    char paper[64];      /* the paper's value in words, for tables */
    const struct ht_claim_setup *setup;
    const struct ht_claim_system *systems[HT_CLAIM_SYSTEMS], *versus; /* versus may be NULL */
    int n_systems;
    enum ht_claim_metric metric;
    enum ht_claim_kind kind;
    enum ht_claim_compare compare;
    enum ht_claim_axis over;
    enum ht_claim_unit unit;
    char variable[24];
    int fails_in; /* enum ht_tier + 1 of the first that does not fit; 0: any */
    double value; /* kinds largest and smallest: index into the list `over` */
    const struct ht_claim_tolerance *tolerance;
};

struct ht_ledger {
    struct ht_doc *doc; /* names point into it */
    char paper[256];
    struct ht_claim_tolerance *tolerances;
    struct ht_claim_system *systems;
    struct ht_claim_setup *setups;
    struct ht_claim *claims;
    int64_t n_tolerances, n_systems, n_setups, n_claims;
};

/* Takes the document. HT_BAD_INPUT with file, line, column and key; *out is then zero and the document destroyed. */
enum ht_status ht_ledger_load(struct ht_doc *doc, struct ht_error *err, struct ht_ledger *out);
void ht_ledger_free(struct ht_ledger *ledger);

/* "autohete-4b", "24", "16 GB", "c=3 p=1 o=5": an entry of a list, for people. Returns buf. */
const char *ht_claim_entry(const struct ht_claim_setup *setup, enum ht_claim_axis axis, int index, char *buf, size_t n);

#endif
