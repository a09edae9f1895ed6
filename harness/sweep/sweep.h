/*
 * Runs an experiment: every point by the way of `hetbench sim`, as many at a time as there are processors, into
 * DIR/results.json and DIR/results.csv. Rows stand in the experiment's order, whatever the number of threads.
 *
 * Resuming. A row carries the commit and a key: a hash of the program's file and of everything that the point depends
 * on, the contents of named files included. Rows of an earlier run with the same commit and key are taken over, others
 * are dropped. The files are written whole, every few seconds, at the end and at Ctrl-C.
 *
 *     {"experiment": .., "title": .., "source": .., "obtained": "simulated",
 *      "complete": true,                                      every point is there
 *      "command": .., "commit": .., "machine": .., "cluster": ..,
 *      "axes":   {"models": [..], ..}, "along": "models",
 *      "series": [{"label": .., "systems": [..]}],
 *      "rows":   [{<fields of sim>, "device_peak_bytes": .., "host_peak_bytes": .., "break_even": {..},
 *                  "series": .., "device_memory_bytes": .., "figure": .., "along": .., "commit": .., "key": ..,
 *                  "chosen": true}],
 *      "traces": [{<fields of sim>, "device_peak_bytes": .., "host_peak_bytes": ..,
 *                  "file": .., "commit": .., "key": ..}]}
 */
#ifndef HT_HARNESS_SWEEP_SWEEP_H
#define HT_HARNESS_SWEEP_SWEEP_H

#include "harness/sweep/experiment.h"

#include <jansson.h>

struct ht_sweep_stats {
    int64_t points, simulated, reused;
};

/* Runs it, or goes on with it. After Ctrl-C and after the error of a point the files hold the points that are done.
   *out is the document, also on error; the caller releases it. */
enum ht_status ht_sweep_run(const struct ht_experiment *e, const char *dir, struct ht_error *err,
                            struct ht_sweep_stats *stats, json_t **out);

/* Opens DIR/results.json; *out is NULL if it is not there. HT_BAD_INPUT if it is not this experiment's. */
enum ht_status ht_sweep_open_results(const char *dir, const char *experiment, struct ht_error *err, json_t **out);

#endif
