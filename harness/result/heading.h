/*
 * The heading of a report, in words and as JSON: devices, numerics, parallelism, micro-batches.
 */
#ifndef HT_HARNESS_RESULT_HEADING_H
#define HT_HARNESS_RESULT_HEADING_H

#include "common/plan/system.h"

#include <jansson.h>
#include <stdio.h>

enum { HT_HEADING_TEXT = 512 };

/* Writes "f16 parameters and gradients, summed in f32". Returns buf. */
const char *ht_numerics_text(const struct ht_numerics *numerics, char buf[HT_HEADING_TEXT]);

/* Returns the type whose dense peak prices a device's matrix products: FP32 where it has no units for the numerics'
   own. */
enum ht_dtype ht_rate_dtype(const struct ht_gpu *gpu, enum ht_dtype dtype);

/* Writes "v100-32gb has no bf16 units: priced at the f32 rate, also for MFU", or "" where every device has the units.
   Returns buf. */
const char *ht_rate_note(const struct ht_scenario *s, char buf[HT_HEADING_TEXT]);
/* Writes what passes through host memory, how fast, and whether that rate is assumed; nothing if GPUs reach each other.
   Returns buf. */
const char *ht_host_path_note(const struct ht_scenario *s, char buf[HT_HEADING_TEXT]);

/* Adds the same to an object, as "host_path_note", "through_host_bytes_per_s" and "through_host_assumed". */
void ht_host_path_json(const struct ht_scenario *s, json_t *root);

/* Returns the system's title for the scenario's number of devices. */
const char *ht_system_title(const struct ht_system *system, const struct ht_scenario *s);

/* Prints two lines, the second one without its end: cluster and devices; batch, micro-batch and numerics. */
void ht_scenario_print(const struct ht_scenario *s, enum ht_division division, FILE *out);

/* Prints the heading and the rate note of rows of JSON that share a cluster; lists different values ("micro-batches of
   1 or 8"). found: "batch", "seq" or "micro_batch" if each row has found its own, which then stays out; or NULL. */
void ht_rows_print_scenario(const json_t *rows, const char *found, FILE *out);

/* Return JSON that the caller owns. */
json_t *ht_scenario_json(const struct ht_scenario *s, enum ht_division division);
json_t *ht_numerics_json(const struct ht_numerics *numerics);

#endif
