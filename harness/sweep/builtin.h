/* The experiments that the binary carries, by name. Users write files of their own: see experiment.h. */
#ifndef HT_HARNESS_SWEEP_BUILTIN_H
#define HT_HARNESS_SWEEP_BUILTIN_H

#include "common/base/builtin.h"

/* Finds the entry called `name` and its document, which the caller destroys. An unknown name is an error that says what
   exists. */
enum ht_status ht_experiment_find(const char *name, struct ht_error *err, struct ht_doc **doc,
                                  const struct ht_node **entry);

/* Writes the index-th name into buf. Returns false past the end. */
bool ht_experiment_name(int64_t index, char *buf, size_t bytes);

#endif
