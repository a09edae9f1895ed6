/*
 * The ledger of a paper's claims: its statements, their scenarios, and our tolerances.
 *
 *     paper:      title
 *     tolerances: name -> {relative | absolute, why}        set by the kind of claim, before anything was computed
 *     systems:    the paper's name -> our systems           the best of them that runs stands for it
 *     software:   {name, why}                               what the paper's programs are; a setup may have its own
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
 * Scenarios. A setup's lists are models, batches, memory, settings, seq, micro_batch, host_memory and ssds; each
 * combination of their entries is a scenario. Where models were run on different machines, an entry of `models` has a cluster of its own,
 * and `batches_per_node` stands for as many sequences a node of it:
 *
 *     models: [{name: sysx-10b, cluster: sysx-1node}, {name: sysx-30b, cluster: sysx-2node}]
 *     batches_per_node: [16]
 *
 * Where systems run at the largest size that fits them, `search` says of what: `model` (blocks of the entry's width, in
 * any number), `batch` or `seq`. Each scenario is then of the size that `hetbench maxsize` finds.
 *
 * A figure that draws passes in units of time has `unit_times` instead of models and a cluster: the real planner and
 * builder on `blocks` equal blocks over `devices` devices, a block's work taking as many seconds as is said there,
 * everything else no time, and nothing being shared. `read` and `write` are of a block's states on disk, and may be left
 * out.
 *
 *     unit_times: {devices: 4, blocks: 16, forward: 0.5, backward: 1, fetch: 1, offload: 1, step: 2}
 *
 * A setup about recovery has `recovery`, a change of nodes by its name (common/store/recoveries.yaml) or file, instead of a cluster. Its
 * systems are `stores`, which reads from disks, peers and the remote store, and `remote`, which reads all from the latter. What
 * papers leave unsaid are their settings: "stores whole_files=1 param_bytes=4 serial=1 once=1". Its plan has vectors by rank of the
 * ranks after: `files`, `first_layer`, `last_layer`, `first_part` and `last_part` of the blocks that it reads, from 0.
 *
 * Rows. `at` narrows the setup's lists for a row; `over` may be several lists, and `systems` is one of them; `then` is
 * a second step, over other lists, on what the first one makes; `versus_reduced` is a system by whose number the first
 * step's is divided, where `versus` divides at each scenario; `versus_at` narrows the lists of the first step for it:
 *
 *     at: {models: [sysx-10b, sysx-19b]}, kind: average, over: [models, seq], then: {kind: steps, over: micro_batch}
 *
 * A claim with several parts has a row for each, with ids "claim/part". A row that cannot be checked says why
 * (`unchecked`) and nothing else. Where the paper leaves something unsaid, a claim may have a row for another reading of
 * it (`reading`). Such rows are shown, but no total counts them.
 */
#ifndef HT_HARNESS_CLAIMS_LEDGER_LEDGER_H
#define HT_HARNESS_CLAIMS_LEDGER_LEDGER_H

#include "common/base/config.h"
#include "common/hw/hw.h"

enum ht_claim_metric {
    HT_CLAIM_THROUGHPUT,        /* useful TFLOP/s per device */
    HT_CLAIM_FITS,              /* 1 or 0; with kinds largest and smallest an entry of the list */
    HT_CLAIM_DEVICE_PEAK,       /* bytes: most live on a device in the run */
    HT_CLAIM_DEVICE_SHARE,      /* the same over the device's memory */
    HT_CLAIM_DEVICE_NEED,       /* bytes that must fit a device: of the safe sequence */
    HT_CLAIM_DEVICE_STATES,     /* of them, optimizer states with the master parameters */
    HT_CLAIM_HOST_NEED,         /* bytes that must fit the host */
    HT_CLAIM_MODEL_BYTES,       /* parameters, gradients and optimizer states, wherever they are */
    HT_CLAIM_STATES_PER_COPY,   /* optimizer states over compute copy of the parameters, in bytes */
    HT_CLAIM_COPIED_BYTES,      /* between device and host, per iteration */
    HT_CLAIM_COMPUTE_TIME,      /* s that the device computes, per iteration */
    HT_CLAIM_PLAN_VARIABLE,     /* `variable`, by the paper's name; of a vector an element, m[2]; m[0]*l[0]/m[2] */
    HT_CLAIM_PLAN_TIME,         /* s that planning took on this machine */
    HT_CLAIM_PLAN_TIME_ERROR,   /* |iteration time by the paper's own model / simulated - 1| */
    HT_CLAIM_PLAN_MEMORY_ERROR, /* |device bytes by the paper's own equation / peak - 1| */
    HT_CLAIM_LANES_IN_ORDER, /* 1 when compute, device-to-host and host lane end their work on blocks in this order */
    HT_CLAIM_COMPUTE_HIDDEN, /* 1 when the host lane works without gaps and ends after the compute lane */
    HT_CLAIM_COLLECTIVES,    /* share of an iteration that its critical path spends in collectives */
    HT_CLAIM_PEAK_AT_TURN,   /* 1 when the device's peak lies between the end of F_L and the end of B_L */
    HT_CLAIM_NEED_AT_TURN,   /* the same of the safe sequence: ops one at a time, nothing ahead of its time */
    HT_CLAIM_BACKWARD_SPAN,  /* s from the start of B_L to the end of the last host step */
    HT_CLAIM_HEAD_START,     /* (end of the last host step - start of F_1 of the next iteration) / iteration */
    HT_CLAIM_ITERATION_TIME, /* s */
    HT_CLAIM_GPU_TIME,       /* s from an iteration's first forward to its last backward, over all devices */
    HT_CLAIM_CPU_TIME,       /* s that remain: iteration - GPU time */
    HT_CLAIM_GPU_SHARE,      /* GPU time / iteration */
    HT_CLAIM_BUBBLE_RATIO,   /* share of an iteration that a device does not compute, mean over devices */
    HT_CLAIM_REMOTE_CHECKPOINTS, /* inputs sent per micro-batch to a device that runs the unit backward, not forward */
    HT_CLAIM_FETCHED_BYTES,      /* of parameters that come to devices, per iteration */
    HT_CLAIM_DEVICE_ACTIVATIONS, /* bytes: most of the activations beyond units' inputs that live on device 0 */
    HT_CLAIM_DEVICE_GRADIENTS,   /* bytes: most of the parameters' gradients that live on device 0 */
    HT_CLAIM_HOST_PARAMS,        /* bytes of compute copies that lie in the fullest node's memory between iterations */
    HT_CLAIM_OPTIMIZER_OVERLAP,  /* share of the host's optimizer time before the last backward of its iteration ends */
    HT_CLAIM_BACKWARD_PER_FORWARD, /* device time of blocks' backward, recomputation included / of their forward */
    HT_CLAIM_TURN_IDLE,            /* s that device 0 waits between its last forward and its first backward */
    HT_CLAIM_OPTIMIZERS,           /* lanes of the host on which device 0's optimizer steps run */
    HT_CLAIM_PARAMETERS,           /* of the model */
    HT_CLAIM_BATCH,                /* sequences of an iteration */
    HT_CLAIM_SEQ,                  /* tokens of a sequence */
    HT_CLAIM_STEP_PER_BACKWARD,    /* host step of a stage / its backward passes, of the stage where it is largest */
    HT_CLAIM_BAD_TIME,             /* s of an iteration whose gradients overflow; of setups with `bad` */
    HT_CLAIM_BAD_OVERHEAD,         /* what it takes beyond the passes (undo, steps that nothing hides) / iteration */
    HT_CLAIM_FULL_THROUGHPUT,      /* TFLOP/s per device, the forward pass counted twice */
    HT_CLAIM_COMPUTE_SHARE,        /* share of an iteration that device 0 computes */
    HT_CLAIM_USEFUL_SHARE,         /* the same without what it recomputes */
    HT_CLAIM_OPTIMIZER_SHARE,      /* share of an iteration beyond the passes: 1 - GPU share */
    HT_CLAIM_RECOMPUTE_TIME,       /* s that devices recompute, per iteration */
    HT_CLAIM_RECOMPUTE_SHARE,      /* of the backward stage, from its first pass to its last */
    HT_CLAIM_RECOMPUTED,           /* FLOPs recomputed / those of the backward passes */
    HT_CLAIM_BACKWARD_COMPUTE,     /* s of the backward stage that device 0 computes */
    HT_CLAIM_BACKWARD_DISK,        /* s of it that the disks work, reads and writes added up */
    HT_CLAIM_BACKWARD_COPIES,      /* s of it that device 0's link works, both directions added up */
    HT_CLAIM_DEVICE_STEPS,         /* s of device 0's optimizer steps, per iteration */
    HT_CLAIM_OPTIMIZER_DISK,       /* s that the disks work after the last backward pass */
    HT_CLAIM_SWAP_TIME,            /* s of the copies that `swapped` counts, per iteration */
    HT_CLAIM_FORWARD_SHARE,        /* share of the time up to the first backward pass that device 0 computes */
    HT_CLAIM_REST_SHARE,           /* share of the rest of the iteration that it computes */
    HT_CLAIM_BACKWARD_DISK_SHARE,  /* disks' s / backward stage */
    HT_CLAIM_BACKWARD_PER_DISK,    /* device's s without recomputation / disks' s, in the backward stage */
    HT_CLAIM_BACKWARD_PER_COPIES,  /* the same / s of copies from the device */
    HT_CLAIM_STEP_PER_DISK,        /* s of the host's optimizer steps / s that the disks work, per iteration */
    HT_CLAIM_SWAPPED,              /* bytes of activations and boundaries that leave device 0, per iteration */
    HT_CLAIM_ACTIVATIONS,          /* bytes that the blocks keep of the batch beyond their inputs */
    HT_CLAIM_STEP_BYTES_IN,        /* bytes of states and gradients that copies bring to devices, per iteration */
    HT_CLAIM_STEP_BYTES_OUT,       /* bytes of states and parameters that copies bring back */
    HT_CLAIM_BOUNDARIES,           /* bytes of the blocks' inputs */
    HT_CLAIM_BOUNDARY_SHARE,       /* of both together */
    HT_CLAIM_DISK_NEED,            /* bytes that must fit the disks */
    HT_CLAIM_PRICED_THROUGHPUT,    /* useful TFLOP/s of all devices per 1000 USD of the cluster */
    HT_CLAIM_RECOVERY_TIME, /* s until all ranks have read the state; this and those below: of setups with `recovery` */
    HT_CLAIM_REMOTE_BYTES,  /* that the remote store sends */
    HT_CLAIM_PEER_BYTES,    /* that nodes send each other */
    HT_CLAIM_REMOTE_PER_LOST, /* remote bytes / bytes that only lost nodes had, once for each group */
    HT_CLAIM_STATE_BYTES,     /* of a checkpoint */
    HT_CLAIM_PEER_PER_REMOTE, /* rate of a NIC / rate of the remote store */
    HT_CLAIM_LOSS_DIFFERENCE, /* largest difference of losses to those of `versus`; the setup trains */
    HT_N_CLAIM_METRICS,
};

enum ht_claim_kind {
    HT_CLAIM_VALUE,   /* of one scenario */
    HT_CLAIM_AVERAGE, /* arithmetic */
    HT_CLAIM_MAX,
    HT_CLAIM_MIN,
    HT_CLAIM_LARGEST,    /* the last of the list that fits; all before it fit too, none after it does */
    HT_CLAIM_SMALLEST,   /* the first of the list that fits; all after it fit too */
    HT_CLAIM_STEPS,      /* smallest ratio of a value to the one before it */
    HT_CLAIM_SPREAD,     /* largest / smallest */
    HT_CLAIM_HALVES,     /* mean of the upper half of the list / mean of its lower half (the middle one is left out) */
    HT_CLAIM_DIFFERENCE, /* first - second */
    HT_CLAIM_INCREMENT,  /* smallest difference of a value to the one before it */
    HT_CLAIM_BEND,       /* last such difference - first; below 0 the values level off */
    HT_CLAIM_POSITIVE,   /* share of the values that are above 0 */
    HT_N_CLAIM_KINDS,
};

enum ht_claim_compare { HT_CLAIM_ABOUT, HT_CLAIM_AT_LEAST, HT_CLAIM_AT_MOST, HT_CLAIM_ABOVE, HT_CLAIM_BELOW };

/* The lists of a setup; a row may also go over its systems. */
enum ht_claim_axis {
    HT_CLAIM_MODELS,
    HT_CLAIM_BATCHES,
    HT_CLAIM_MEMORY,
    HT_CLAIM_SETTINGS,
    HT_CLAIM_SEQS,
    HT_CLAIM_MICRO_BATCHES,
    HT_CLAIM_HOST_MEMORY,
    HT_CLAIM_SSDS,
    HT_N_CLAIM_LISTS,
    HT_CLAIM_BY_SYSTEM = HT_N_CLAIM_LISTS,
    HT_N_CLAIM_AXES,
};

/* Of what a setup's scenarios have the largest size that fits. */
enum ht_claim_search { HT_CLAIM_NO_SEARCH, HT_CLAIM_SEARCH_MODEL, HT_CLAIM_SEARCH_BATCH, HT_CLAIM_SEARCH_SEQ };

/* The unit that values are counted in; of the scenario's model. */
enum ht_claim_unit {
    HT_CLAIM_NO_UNIT,
    HT_CLAIM_PARAMS,            /* parameters */
    HT_CLAIM_BLOCK_PARAMS,      /* parameters of a block: M_p */
    HT_CLAIM_BLOCK_ACTIVATIONS, /* bytes that a block keeps beyond its input: 2 (M_a - M'_a) */
    HT_CLAIM_BLOCK_FORWARD,     /* s of a block's forward pass: t_fp */
};

extern const char *const ht_claim_metric_units[HT_N_CLAIM_METRICS]; /* "s", "B", "share", .. */
extern const char *const ht_claim_metric_names[], *const ht_claim_kind_names[], *const ht_claim_compare_names[];
extern const char *const ht_claim_axis_names[], *const ht_claim_unit_names[], *const ht_claim_search_names[];

enum {
    HT_CLAIM_LIST = 32,
    HT_CLAIM_SET = 4,
    HT_CLAIM_SYSTEMS = 8,
    HT_CLAIM_NAME = 64,
    HT_CLAIM_MODEL = 256, /* a model's name, or its file's */
    HT_CLAIM_STEPS_MAX = 2,
    HT_CLAIM_VALUES = 256 /* that one step makes one of */
};

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

/* Seconds that a block's work takes; a backward pass includes its recomputation. devices 0: the setup has none. */
struct ht_claim_units {
    int64_t devices, blocks;
    double forward, backward, fetch, offload, step, read, write;
};

/* The software profile of the paper's programs, and why it is that. */
struct ht_claim_software {
    char name[HT_CLAIM_MODEL]; /* or its file's; empty: fused */
    char why[1024];
};

struct ht_claim_setup {
    const char *name;
    char cluster[HT_CLAIM_NAME], numerics[16], accumulate[8], note[512];
    struct ht_claim_software software; /* the setup's own, or the ledger's */
    int64_t iterations;                /* simulated; 1: nothing comes before or after */
    const char *bad[HT_CLAIM_LIST];    /* "5": iterations whose gradients overflow, from 1 */
    int64_t n_bad;
    int64_t train_steps;          /* > 0: trained for real instead */
    char recovery[HT_CLAIM_NAME]; /* not empty: the change of nodes that is priced (common/store/recovery_case.h) */
    enum ht_claim_search search;
    struct ht_claim_units units;
    /* as they are written; may be NULL */
    const struct ht_node *nodes_of[HT_N_CLAIM_LISTS], *per_node, *bad_nodes, *software_node;

    const char *models[HT_CLAIM_LIST], *clusters[HT_CLAIM_LIST]; /* a model's own cluster, or the setup's */
    int64_t n_units[HT_CLAIM_LIST], n_nodes[HT_CLAIM_LIST];
    /* Of the lists but the settings; 0: the default. Models: parameters; batches: of a node when per_node. */
    int64_t values[HT_N_CLAIM_LISTS][HT_CLAIM_LIST];
    char settings[HT_CLAIM_LIST][HT_CLAIM_SET][32]; /* "c=3" */
    int n_settings[HT_CLAIM_LIST];
    int n[HT_N_CLAIM_LISTS]; /* lengths of the lists; at least 1 */
};

/* A scenario of a setup: an index into each list, and into a row's systems. */
struct ht_claim_point {
    int at[HT_N_CLAIM_AXES];
};

/* Returns the value that a scenario takes of a list. */
static inline int64_t ht_claim_value_of(const struct ht_claim_setup *s, enum ht_claim_axis axis,
                                        struct ht_claim_point p)
{
    return s->values[axis][p.at[axis]];
}

/* The entries of each list that a row takes. */
struct ht_claim_entries {
    int at[HT_N_CLAIM_AXES][HT_CLAIM_LIST], n[HT_N_CLAIM_AXES];
};

/* A step that makes one value of the values along lists. */
struct ht_claim_step {
    enum ht_claim_kind kind;
    unsigned over; /* mask of enum ht_claim_axis */
};

enum { HT_CLAIM_FACTORS = 4 };

/* A plan variable that metric `plan` multiplies or divides by, in the order in which they are written. */
struct ht_claim_factor {
    char variable[24];
    int64_t element; /* of a vector, from 0; -1: the variable is a number */
    bool divides;
};

struct ht_claim {
    const char *id;
    char where[128], statement[512], note[512];
    char reading[256];   /* not empty: which second reading this row is of a claim; it does not count */
    char unchecked[512]; /* not empty: why; the rest does not count */
    char paper[64];      /* the paper's value in words, for tables */
    const struct ht_claim_setup *setup;
    const struct ht_claim_system *systems[HT_CLAIM_SYSTEMS], *versus; /* versus may be NULL */
    bool versus_reduced;                                              /* divide what the first step makes */
    int n_systems;
    struct ht_claim_entries entries, versus_entries; /* versus_entries: of the system that `versus` names */
    enum ht_claim_metric metric;
    struct ht_claim_step steps[HT_CLAIM_STEPS_MAX];
    int n_steps;
    enum ht_claim_compare compare;
    enum ht_claim_unit unit;
    struct ht_claim_factor factors[HT_CLAIM_FACTORS]; /* of metric `plan` */
    int n_factors;
    const struct ht_node *variable_node; /* where the ledger names it; NULL: nowhere */
    int fails_in;                        /* enum ht_tier + 1 of the first that does not fit; 0: any */
    double value;                        /* kinds largest and smallest: which of the row's entries of the list */
    const struct ht_claim_tolerance *tolerance;
};

struct ht_ledger {
    struct ht_doc *doc; /* names point into it */
    char paper[256];
    struct ht_claim_software software;
    struct ht_claim_tolerance *tolerances;
    struct ht_claim_system *systems;
    struct ht_claim_setup *setups;
    struct ht_claim *claims;
    int64_t n_tolerances, n_systems, n_setups, n_claims;
};

/* Reads a ledger and takes the document. On HT_BAD_INPUT (file, line, column and key) *out is zero and the document
   destroyed. */
enum ht_status ht_ledger_load(struct ht_doc *doc, struct ht_error *err, struct ht_ledger *out);
void ht_ledger_free(struct ht_ledger *ledger);
/* Returns the software of a setup's scenarios. What trains for real, or has no sizes and rates but units of time, has
   ours: NULL. */
const char *ht_claim_software(const struct ht_claim_setup *setup);

/* Writes an entry of a list for people: "autohete-4b", "24", "16 GB", "c=3 p=1 o=5". Returns buf. */
const char *ht_claim_entry(const struct ht_claim_setup *setup, enum ht_claim_axis axis, int index, char *buf, size_t n);
/* Returns the sequences of a scenario's iteration, 0 for the default. */
int64_t ht_claim_batch(const struct ht_claim_setup *setup, struct ht_claim_point point);
/* Returns true when the row's one step finds the border of what fits. */
bool ht_claim_is_boundary(const struct ht_claim *claim);
/* Returns the first list of a step. */
enum ht_claim_axis ht_claim_first_axis(const struct ht_claim_step *step);
/* Advances at[], indices into the entries, to the next choice from the lists in `axes` (a mask). Returns false after the
   last, with all back at the first. */
bool ht_claim_next(const struct ht_claim_entries *entries, unsigned axes, int *at);

#endif
