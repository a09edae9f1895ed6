/* Opens and closes the CUDA backend. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_OPEN_H
#define HT_BACKEND_CUDA_OPEN_H

#include "common/backend/cuda_state.h"

/* Returns true for lanes that are streams of their rank's GPU. */
bool ht_cuda_is_stream(enum ht_lane_kind kind);
/* Returns true when the host finalizes the op after its end: a gradient check's result, or a logged step's. */
bool ht_cuda_is_finalized(const struct ht_schedule *s, int32_t op);
/* Functions `open` and `close` of ht_cuda_backend. */
enum ht_status ht_cuda_open(void *device, const struct ht_schedule *s, struct ht_error *err);
void ht_cuda_close(void *device);

#endif
