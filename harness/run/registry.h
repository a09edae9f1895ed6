/* The registry: every system that the command line knows, in the order in which it lists them. */
#ifndef HT_HARNESS_RUN_REGISTRY_H
#define HT_HARNESS_RUN_REGISTRY_H

#include "common/plan/system.h"
#include "harness/run/options.h"

/* Returns the i-th system, NULL past the end. */
const struct ht_system *ht_system_at(size_t index);

/* Returns true for ablations, variants to compare with, and the example: nobody would train with them. */
bool ht_system_is_ablation(const struct ht_system *system);

/* Finds a system by name. Returns HT_BAD_INPUT, with the nearest name, if no system has that name. */
enum ht_status ht_system_find(const char *name, struct ht_error *err, const struct ht_system **out);

/* Splits "autohete c=2 p=1", a system and the settings that make it a variant. Cuts `words`, adds the settings to the
   options, which point into it, and returns the system. */
const char *ht_variant_of(char *words, struct ht_options *options);

#endif
