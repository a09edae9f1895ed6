/* Times of ops on the host's clock. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_CLOCK_H
#define HT_BACKEND_CUDA_CLOCK_H

#include "common/backend/cuda_state.h"

/* Returns the host's clock (CLOCK_MONOTONIC). */
int64_t ht_cuda_now_ns(void);
/* Records the base event and determines when it was reached. Closing an unopened clock does nothing. */
enum ht_status ht_cuda_clock_open(struct ht_cuda_device *d, struct ht_error *err);
void ht_cuda_clock_close(struct ht_cuda_device *d);
/* Computes when an ended op began and ended on the GPU; the present time if CUDA fails. */
void ht_cuda_clock_times(struct ht_cuda_device *d, const struct ht_cuda_in_flight *f, int64_t *start_ns,
                         int64_t *end_ns);

#endif
