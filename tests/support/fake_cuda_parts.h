/* What the fake GPU's memory and streams (fake_cuda.c) and its kernels (fake_cuda_kernels.c) know of each other. */
#ifndef TESTS_SUPPORT_FAKE_CUDA_PARTS_H
#define TESTS_SUPPORT_FAKE_CUDA_PARTS_H

#include "common/backend/cuda_api.h"
#include "tests/support/streams.h"

struct fake_cuda_context {
    struct stream *stream;
    const char *failed;
};

/* Where a device's pointer really is. NULL stays NULL; what is not the device's is an error that nobody may miss. */
void *fake_cuda_real(const void *p);
/* True: this call is the one that is to fail, or an earlier one did. */
bool fake_cuda_fails(struct fake_cuda_context *c);
/* Enqueues a copy. strict: of host memory only pinned is taken, and small pieces that are copied from. */
void fake_cuda_move(struct stream *stream, void *to, const void *from, int64_t bytes, bool strict);

extern const struct ht_kernels fake_cuda_kernels;
/* Of struct ht_cuda_api. */
void fake_cuda_grad_check(void *context, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                          int64_t n, void *partial);
struct ht_grad_partial fake_cuda_partial_of(const void *partial);
struct ht_undo_summary fake_cuda_summary_of(const void *header, int64_t n);

#endif
