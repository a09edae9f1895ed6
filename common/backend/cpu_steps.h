/* Counts how often each element of the model has been stepped, from one run to the next. Internal to common/backend. */
#ifndef HT_BACKEND_CPU_STEPS_H
#define HT_BACKEND_CPU_STEPS_H

#include <stdint.h>

struct ht_cpu_steps;
struct ht_cpu_steps *ht_cpu_steps_create(void);
void ht_cpu_steps_destroy(struct ht_cpu_steps *s); /* accepts NULL */

/* Sets the count of elements [begin, end) of a unit. */
void ht_cpu_steps_put(struct ht_cpu_steps *s, int32_t unit, int64_t begin, int64_t end, int64_t steps);
/* Returns the count of these elements; `otherwise` for elements without one; -1: not the same for all of them. */
int64_t ht_cpu_steps_get(const struct ht_cpu_steps *s, int32_t unit, int64_t begin, int64_t end, int64_t otherwise);

#endif
