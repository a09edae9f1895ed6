/*
 * Drills: elastic trainings with faults, each drawn from one number and then checked:
 *
 *     it reaches the last step within a time; or its stores have no whole step any more, which is then true
 *     no step is lost that was whole, unless stores were damaged
 *     its losses have the bits of a training that took the same steps in the same layouts, through the same saves, without a fault
 *     no process, and nothing in TMPDIR, is left
 */
#ifndef HT_HARNESS_ELASTIC_DRILLS_H
#define HT_HARNESS_ELASTIC_DRILLS_H

#include "harness/run/options.h"

#include <jansson.h>

/* Runs options->elastic.drills drills, in folders of --store that those that pass remove again. HT_FAILED if one does not. */
enum ht_status ht_drills_run(const struct ht_options *options, unsigned own_group, struct ht_error *err);
/* Trains what led to the last step of `runs` (a supervisor's), in the same layouts and through the same saves, without a fault, in
   DIR/plain. HT_FAILED if it fails, or if DIR/losses.csv has other bits than its losses. DIR/tmp exists. */
enum ht_status ht_drill_check_losses(const struct ht_options *options, unsigned own_group, const char *dir,
                                     const json_t *runs, struct ht_error *err);

#endif
