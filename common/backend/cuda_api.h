/*
 * What the CUDA backend asks of CUDA, as one table: the real one (cuda_real.c), or a device of threads and CPU kernels
 * on which the same backend is tested where there is no GPU (tests/support/fake_cuda.h).
 *
 * Functions return NULL, or CUDA's text for what went wrong, with file and line. Streams, events and contexts are
 * opaque. A context is what the kernels run on: a stream, and what they need beside it; it is used by one thread at a
 * time.
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
    double clock_hz;           /* of the multiprocessors, at most */
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
    const char *(*host_register)(void *p, int64_t bytes); /* pins what is there */
    const char *(*host_unregister)(void *p);

    const char *(*stream_create)(void **stream);
    const char *(*stream_destroy)(void *stream);
    const char *(*stream_wait)(void *stream, void *event);
    const char *(*stream_finish)(void *stream);                                   /* the caller waits, and may spin */
    const char *(*copy)(void *to, const void *from, int64_t bytes, void *stream); /* between any two memories */

    const char *(*fill)(void *p, int byte, int64_t bytes, void *stream); /* device memory */

    const char *(*event_create)(void **event);
    const char *(*event_destroy)(void *event);
    const char *(*event_record)(void *event, void *stream);
    const char *(*event_finish)(void *event);                        /* the caller waits, without spinning */
    const char *(*event_reached)(void *event, bool *reached);        /* asks, without waiting */
    const char *(*event_between)(void *from, void *to, int64_t *ns); /* both have been reached; may be negative */

    /* products: device memory of products_bytes, for matrix products; NULL: the context makes none. */
    int64_t products_bytes;
    const char *(*context_create)(void *stream, void *products, void **context);
    void (*context_destroy)(void *context);
    const char *(*context_status)(void *context); /* the first failure of a kernel's call */
    /* What a unit's kernels need as workspace; NULL: what ht_unit_workspace_bytes says, as the graphs have it. */
    int64_t (*workspace_bytes)(const struct ht_model *m, int64_t unit, int64_t batch, int64_t seq, enum ht_dtype dtype,
                               bool backward);
    /* Optional: ht_unit_init's bits, rounded to `type`, where they are wanted. */
    void (*unit_init)(void *context, const struct ht_model *m, int64_t unit, uint64_t seed, enum ht_dtype type,
                      void *params);
    /* The `device` of these is a context, and everything they get lies on the device, tokens, targets and *loss_sum
       included; what is not has been copied when the call returns. `copy` takes any two memories. There is neither
       judge nor undo_summary: their answers are left on the device, as these say. */
    const struct ht_kernels *kernels;
    /* judge: what ht_kernels' says, with the kernel's scratch in so many bytes on the device; of which the first are
       the answer, and what they say, when they are on the host. */
    int64_t partial_bytes, partial_said_bytes;
    void (*grad_check)(void *context, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type, int64_t n,
                       void *partial);
    struct ht_grad_partial (*partial_of)(const void *partial);
    /* The first bytes of a log, and what they say, when they are on the host. */
    int64_t log_header_bytes;
    struct ht_undo_summary (*summary_of)(const void *header, int64_t n);

    /* Optional: what a profiler of CUDA shows as the thread's range. */
    void (*mark_begin)(const char *name);
    void (*mark_end)(void);
};

/* The real one, or NULL where CUDA is not in the build. */
const struct ht_cuda_api *ht_cuda_api_real(void);

#endif
