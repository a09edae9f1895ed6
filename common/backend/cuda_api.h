/*
 * CUDA's functions for the CUDA backend, as one table: the real one (cuda_real.c), or a device of threads and CPU
 * kernels, which tests the same backend without a GPU (tests/support/fake_cuda.h).
 *
 * Functions return NULL, or CUDA's text for the error, with file and line. Streams, events and contexts are opaque. A
 * context holds what kernels run on: a stream, and the memory and handles that they need beside it. One thread at a
 * time uses it.
 */
#ifndef HT_BACKEND_CUDA_API_H
#define HT_BACKEND_CUDA_API_H

#include "common/backend/kernels.h"

struct ht_cuda_properties {
    char name[128]; /* "NVIDIA H200" */
    int64_t total_bytes, free_bytes;
    int major, minor; /* compute capability */
    int multiprocessors;
    int driver, runtime;       /* CUDA versions, 13000 is 13.0 */
    double clock_hz;           /* highest clock of the multiprocessors */
    double memory_bytes_per_s; /* 0: not known */
    char pci[32];
};

struct ht_cuda_api {
    const char *name;
    const char *(*count)(int *n);
    const char *(*properties)(int device, struct ht_cuda_properties *out);
    const char *(*select)(int device); /* for the calling thread */

    const char *(*malloc)(void **p, int64_t bytes); /* on the device; at a multiple of 256 at least */
    const char *(*free)(void *p);
    const char *(*host_malloc)(void **p, int64_t bytes); /* pinned */
    const char *(*host_free)(void *p);
    const char *(*host_register)(void *p, int64_t bytes); /* pins existing memory */
    const char *(*host_unregister)(void *p);

    const char *(*stream_create)(void **stream);
    const char *(*stream_destroy)(void *stream);
    const char *(*stream_wait)(void *stream, void *event);
    const char *(*stream_finish)(void *stream);                                   /* blocks, and may spin */
    const char *(*copy)(void *to, const void *from, int64_t bytes, void *stream); /* between any two memories */

    const char *(*fill)(void *p, int byte, int64_t bytes, void *stream); /* device memory */

    const char *(*event_create)(void **event);
    const char *(*event_destroy)(void *event);
    const char *(*event_record)(void *event, void *stream);
    const char *(*event_finish)(void *event);                        /* blocks, without spinning */
    const char *(*event_reached)(void *event, bool *reached);        /* without blocking */
    const char *(*event_between)(void *from, void *to, int64_t *ns); /* both have been reached; may be negative */

    /* products: device memory of products_bytes, for matrix products; NULL: the context makes none. */
    int64_t products_bytes;
    const char *(*context_create)(void *stream, void *products, void **context);
    void (*context_destroy)(void *context);
    const char *(*context_status)(void *context); /* the first failure of a kernel's call */
    /* Optional: calls `each` for every shape of matrix products that ran on a slow kernel (ht_cuda_gemm.h). */
    void (*each_slow_shape)(void *context, void (*each)(void *ctx, const char *shape, int64_t products), void *ctx);
    /* Return the workspace of a unit's kernels, and of some sub-ops of a block; NULL: ht_unit_workspace_bytes and
       ht_block_workspace_bytes, as in the graphs. */
    int64_t (*workspace_bytes)(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype dtype,
                               bool backward);
    int64_t (*block_workspace_bytes)(const struct ht_model *m, unsigned sub_ops, int64_t batch, int64_t seq,
                                     enum ht_dtype dtype, bool backward);
    /* Optional: computes ht_unit_init, rounded to `type`, on the device. */
    void (*unit_init)(void *context, const struct ht_model *m, int64_t unit, uint64_t seed, enum ht_dtype type,
                      void *params);
    /* Kernels whose `device` is a context. All their arguments lie on the device, tokens, targets and *loss_sum
       included; host data has been copied when the call returns. `copy` takes any two memories. grad_check and
       undo_summary are absent: the functions below leave their results on the device. */
    const struct ht_kernels *kernels;
    /* Checks gradients. `partial`: partial_bytes on the device, for the result and the kernel's scratch; partial_of
       reads the result from the first partial_result_bytes, copied to the host. */
    int64_t partial_bytes, partial_result_bytes;
    void (*grad_check)(void *context, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type, int64_t n,
                       void *partial);
    struct ht_grad_partial (*partial_of)(const void *partial);
    /* Reads the state of a log from its first log_header_bytes, copied to the host. */
    int64_t log_header_bytes;
    struct ht_undo_summary (*summary_of)(const void *header, int64_t n);

    /* Optional: begin and end a range of the thread for CUDA's profilers. */
    void (*mark_begin)(const char *name);
    void (*mark_end)(void);
};

/* Returns the real table, or NULL in a build without CUDA. */
const struct ht_cuda_api *ht_cuda_api_real(void);

#endif
