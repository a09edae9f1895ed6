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
/* Returns true for an op between ranks that the transport carries out on the tensors themselves: on streams, enqueued
   like any other. The same on all ranks, for any rank's op. */
bool ht_cuda_comm_is_direct(const struct ht_cuda_device *d, int32_t op);
/* Returns why streams may wait for ever for other ranks' GPUs; NULL: they need not. */
const char *ht_cuda_comm_lost(const struct ht_cuda_device *d);
/* Runs an op between ranks that is not direct, and blocks until it has ended. */
enum ht_status ht_cuda_comm_run(struct ht_cuda_device *d, int32_t iteration, int32_t op,
                                const struct ht_buffer *buffers, int32_t n, struct ht_error *err);

#endif
