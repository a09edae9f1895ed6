/*
 * An experiment file: several systems over every combination of a sweep's lists.
 *
 *     name:          my-sweep                     of a user's file; a built-in entry is named by its key
 *     title, source: free text
 *     cluster:       autohete-1gpu
 *     models:        [autohete-4b, my-model.yaml]
 *                    [{name: sysx-10b, cluster: sysx-1node}, ..]      each on a cluster of its own, without `cluster`
 *     clusters:      [A, B, "gpus=rtx4090:2;ram=128GB"]     every model on each of them, in place of `cluster`
 *     batches:       [8, 16]                      default [8]
 *     batches_per_node: [16]                      as many sequences a node of the model's cluster, instead
 *     device_memory: [16 GiB, all]                default [all]: the device's own
 *     seqs:          [1024]                       default: the model's longest
 *     micro_batches: [1, 2, 4]                    default [micro_batch]
 *     best_micro_batch: true                      each point has the micro-batch at which its system is fastest
 *     host_memory:   [128 GB, all]                default [all]: the node's own
 *     ssds:          [1, 3, 12]                   default: the node's own
 *     mixes:         {a100-80gb: 8, h800-80gb: 8} default: all devices of the cluster. Else every mix of up to so many
 *                                                 devices of these kinds, at least one, in place of the cluster's
 *     along:         batches                      the list along the axis of figures; default the longest
 *     figure:        speedups                     how the report draws it: lines (default), bars, speedups (over the last
 *                                                 of `systems`), breakdown, sizes, rollback, totals, gains (over the
 *                                                 last), parts, prediction, times, price, mixes, wins (the fastest series of each
 *                                                 model on each cluster)
 *     systems:                                    a name with settings, or a label with variants of which the fastest
 *       - zero_offload c=4                          stands for it
 *       - {label: PatrickStar, best_of: [patrickstar, patrickstar_ckpt]}
 *     break_even:    true                         also find the break-even rates of PCIe and CPU Adam
 *     timelines:     {model: .., batch: .., device_memory: .., systems: [..]}     points whose traces are kept
 *
 * Everything is checked when the file is read. A wrong model, cluster or system is an error at its place in the file.
 * Experiments on recovery have keys of their own (recoveries.h).
 */
#ifndef HT_HARNESS_SWEEP_EXPERIMENT_H
#define HT_HARNESS_SWEEP_EXPERIMENT_H

#include "common/base/config.h"
#include "common/hw/hw.h"
#include "harness/run/options.h"

enum ht_axis {
    HT_AXIS_MODELS,
    HT_AXIS_BATCHES,
    HT_AXIS_MEMORY,
    HT_AXIS_SEQS,
    HT_AXIS_MICRO_BATCHES,
    HT_AXIS_HOST_MEMORY,
    HT_AXIS_SSDS,
    HT_AXIS_MIXES,
    HT_N_AXES
};
extern const char *const ht_axis_names[HT_N_AXES]; /* as in the file */

enum ht_figure {
    HT_FIGURE_LINES,      /* throughput along a list, a line a series */
    HT_FIGURE_BARS,       /* the same as bars */
    HT_FIGURE_SPEEDUPS,   /* over the last series: of iterations, of the devices' passes, of the rest */
    HT_FIGURE_BREAKDOWN,  /* iterations of each series in two parts: the devices' passes, the rest */
    HT_FIGURE_SIZES,      /* bars: the largest model that fits, or of one model the largest batch, along another list */
    HT_FIGURE_ROLLBACK,   /* what `bad` iterations cost over an ok one */
    HT_FIGURE_TOTALS,     /* throughput of all devices together, as bars */
    HT_FIGURE_GAINS,      /* throughput and highest device peak of each series over those of the last one */
    HT_FIGURE_PARTS,      /* each rank's part of the batch, of the state, and of its memory */
    HT_FIGURE_PREDICTION, /* the planner's iteration time against the simulated one */
    HT_FIGURE_TIMES,      /* iteration time along a list, and the lane that the critical path takes most of */
    HT_FIGURE_WINS,       /* the fastest series of each model and cluster */
    HT_FIGURE_PRICE,      /* throughput over the cluster's price along a list, a line a series */
    HT_FIGURE_MIXES,      /* who is fastest on each mix of two kinds of devices, and what one more device brings */
    HT_N_FIGURES
};
extern const char *const ht_figure_names[HT_N_FIGURES]; /* as in the file */

enum {
    HT_AXIS_MAX = 128,
    HT_SERIES_MAX = 16,
    HT_VARIANTS_MAX = 8,
    HT_VARIANT_MAX = 128,
    HT_LABEL_MAX = 64,
    HT_MIX_MAX = 96
};

/* One line or one colour of a figure. */
struct ht_series {
    const char *label;
    const char *systems[HT_VARIANTS_MAX]; /* "sysx", or with settings: "sysx d=2 log=0" */
    int64_t n_systems;
};

/* Points whose traces are kept. */
struct ht_timelines {
    const char *model;                  /* NULL: none */
    int64_t batch, device_memory_bytes; /* 0: the default */
    const char *systems[HT_SERIES_MAX]; /* without settings */
    int64_t n_systems;
};

struct ht_experiment {
    struct ht_doc *doc; /* the strings point into it */
    char name[64], title[256], source[256], cluster[256];
    struct ht_scenario_request request; /* what the points share, without model and cluster */
    struct ht_simulation_options sim;
    bool break_even, best_micro_batch;
    int along;  /* enum ht_axis */
    int figure; /* enum ht_figure */

    int64_t n[HT_N_AXES];
    const char *models[HT_AXIS_MAX], *clusters[HT_AXIS_MAX]; /* clusters: a model's own, or the experiment's */
    int64_t n_nodes[HT_AXIS_MAX];                            /* of these clusters */
    bool per_node;                                           /* batches are of a node */
    char mixes[HT_AXIS_MAX][HT_MIX_MAX];                     /* as --only takes them; "": all devices */
    int64_t values[HT_N_AXES][HT_AXIS_MAX];                  /* of the other axes; 0: the default */

    struct ht_series series[HT_SERIES_MAX];
    int64_t n_series;
    struct ht_timelines timelines;
};

/* Loads a built-in experiment or a file. HT_BAD_INPUT comes with file, line, column and key. *out is zero on error. */
enum ht_status ht_experiment_load(const char *name_or_path, struct ht_error *err, struct ht_experiment *out);
void ht_experiment_free(struct ht_experiment *e);

/* Checks the name that an experiment's map has read into `name`; of a built-in entry its key stands in for it. It becomes a
   folder's. */
enum ht_status ht_experiment_read_name(const struct ht_node *map, struct ht_error *err, char *name, size_t bytes);

/* Returns the sequences of an iteration at these indices into the lists; 0 for the default. */
int64_t ht_experiment_batch(const struct ht_experiment *e, const int64_t at[HT_N_AXES]);

/* One combination. */
struct ht_point {
    int64_t series, variant;
    int64_t at[HT_N_AXES]; /* index into each list */
};
/* Returns the number of points. */
int64_t ht_experiment_points(const struct ht_experiment *e);
/* Returns the point at an index. The variants of a series follow each other. */
struct ht_point ht_experiment_point(const struct ht_experiment *e, int64_t index);

#endif
