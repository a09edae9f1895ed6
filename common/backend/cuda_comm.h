/* Messages and collectives between ranks with a GPU each. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_COMM_H
#define HT_BACKEND_CUDA_COMM_H

#include "common/backend/cuda_state.h"

/* Returns true for ops that talk to other ranks. */
bool ht_cuda_communicates(const struct ht_schedule *s, int32_t op);
/* Returns true if collectives of tensors on GPUs are the transport's own. */
bool ht_cuda_collects(const struct ht_cuda_device *d);
/* Gives each of this rank's lanes with such ops, or passes of parts, pinned memory for the largest of them, and takes it
   back. */
enum ht_status ht_cuda_comm_open(struct ht_cuda_device *d, struct ht_error *err);
void ht_cuda_comm_close(struct ht_cuda_device *d);
/* Runs such an op, and blocks until it has ended. */
enum ht_status ht_cuda_comm_run(struct ht_cuda_device *d, int32_t iteration, int32_t op,
                                const struct ht_buffer *buffers, int32_t n, struct ht_error *err);

#endif
