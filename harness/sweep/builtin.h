/* The experiments that the binary carries, by name. A user's own is a file: see harness/experiment.h. */
#ifndef HT_HARNESS_SWEEP_BUILTIN_H
#define HT_HARNESS_SWEEP_BUILTIN_H

#include "common/base/builtin.h"

/* The entry called `name` and its document, which the caller destroys; an unknown name lists what there is. */
enum ht_status ht_experiment_find(const char *name, struct ht_error *err, struct ht_doc **doc,
                                  const struct ht_node **entry);

/* The index-th name into buf; false past the end. */
bool ht_experiment_name(int64_t index, char *buf, size_t bytes);

#endif
