/* Interface between the fake GPU's memory and streams (fake_cuda.c) and its kernels (fake_cuda_kernels.c). */
#ifndef TESTS_SUPPORT_FAKE_CUDA_PARTS_H
#define TESTS_SUPPORT_FAKE_CUDA_PARTS_H

#include "common/backend/cuda_api.h"
#include "tests/support/streams.h"

struct fake_cuda_context {
    struct stream *stream;
    const char *failed;
};

/* Returns the address that a device's pointer stands for. NULL stays NULL; aborts for a pointer that is not the
   device's. */
void *fake_cuda_real(const void *p);
/* Returns the device's pointer that stands for such an address. */
void *fake_cuda_known(const void *real);
/* Counts a call. Returns true when it, or an earlier one, is the one that should fail. */
bool fake_cuda_fails(struct fake_cuda_context *c);
/* Enqueues a copy. strict: accepts only pinned host memory, or a small piece as the source. */
void fake_cuda_move(struct stream *stream, void *to, const void *from, int64_t bytes, bool strict);

extern const struct ht_kernels fake_cuda_kernels;
/* Functions of struct ht_cuda_api. */
void fake_cuda_grad_check(void *context, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type,
                          int64_t n, void *partial);
struct ht_grad_partial fake_cuda_partial_of(const void *partial);
struct ht_undo_summary fake_cuda_summary_of(const void *header, int64_t n);

#endif
