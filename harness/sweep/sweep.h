/*
 * An experiment, run: every point through the job's way, into DIR/results.json and DIR/results.csv.
 *
 * Resuming. A row carries the commit and a key: a hash of the program's file and of everything that the point depends
 * on, the contents of named files included. A row of an earlier run with the same commit and key is taken over, others
 * are dropped. The files are written whole, beside their place, every few seconds, at the end and at Ctrl-C: `complete`
 * says whether every point is there.
 *
 *     {"experiment": .., "title": .., "obtained": "simulated", "command": .., "commit": .., "machine": .., "complete":
 * true, "axes": {"models": [..], ..}, "along": "models", "series": [{"label": .., "systems": [..]}], "rows":
 * [{"series": .., "chosen": true, "key": .., "commit": .., "device_memory_bytes": .., <fields of sim>}], "traces":
 * [{"file": .., "system": .., "key": .., ..}]}
 */
#ifndef HT_HARNESS_SWEEP_SWEEP_H
#define HT_HARNESS_SWEEP_SWEEP_H

#include "harness/sweep/experiment.h"

#include <jansson.h>
#include <stdbool.h>

struct ht_sweep_stats {
    int64_t points, simulated, reused;
    bool interrupted;
};

/* HT_INTERRUPTED after Ctrl-C, with the files written and *out filled. *out: the document; the caller releases it. */
enum ht_status ht_sweep_run(const struct ht_experiment *e, const char *dir, struct ht_error *err,
                            struct ht_sweep_stats *stats, json_t **out);

#endif
