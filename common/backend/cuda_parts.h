/* Exchange inside the passes of a tensor-parallel part that runs on a GPU. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_PARTS_H
#define HT_BACKEND_CUDA_PARTS_H

#include "common/backend/cuda_state.h"

/* A pass on a GPU, and its link to the other parts'. */
struct ht_cuda_pass {
    struct ht_cuda_in_flight *f;
    const struct ht_part_link *between; /* the CPU backend's, which exchanges through messages */
    struct ht_part_link link;
    struct ht_unit_args args;
};

/* Returns args with a link for device memory; args itself for a whole model. pass lives as long as the kernel's call. */
const struct ht_unit_args *ht_cuda_pass_args(struct ht_cuda_pass *pass, struct ht_cuda_in_flight *f,
                                             const struct ht_unit_args *args);
/* Returns the pinned bytes that the op's exchanges need; 0 for an op that has none. */
int64_t ht_cuda_pass_staged_bytes(const struct ht_cuda_device *d, int32_t op);
/* Returns the model that the op computes with: the whole, or its first part, which is the largest. */
struct ht_model ht_cuda_pass_model(const struct ht_cuda_device *d, int32_t op);

#endif
