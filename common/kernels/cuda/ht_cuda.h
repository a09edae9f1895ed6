/*
 * Kernels on an NVIDIA GPU: their context, and their errors.
 *
 * The functions of this folder enqueue work on a stream and return; they allocate nothing, wait for nothing, and read
 * nothing back. Every buffer is the caller's, in device memory, and starts at a multiple of 16 bytes.
 *
 * The context keeps the first failure, and every later call does nothing. After waiting for the stream, the caller
 * checks ht_cuda_status. So calls read as on the CPU, and no launch goes unchecked.
 *
 * The same call with the same inputs on the same GPU gives the same bits every time, wherever the buffers lie: no
 * kernel adds numbers with rounding atomically, and matrix products use no algorithm that does.
 */
#ifndef HT_CUDA_H
#define HT_CUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "common/base/status.h"
#include "common/model/model.h"

struct ht_cuda_gemm; /* ht_cuda_gemm.h */

struct ht_cuda {
    cudaStream_t stream;
    struct ht_cuda_gemm *gemm; /* may be NULL for all but matrix products */
    struct ht_error error;     /* the first failure; status HT_OK: none */
};

/* Returns the first failure, in *err as well (which may be NULL); HT_OK if nothing failed. Errors of launched kernels
   are known only when they have ended: call it after waiting for the stream, with that call's result. */
enum ht_status ht_cuda_status(struct ht_cuda *cuda, cudaError_t of_wait, struct ht_error *err);

/* Returns true when nothing has failed yet. Records `result` as the context's failure if it is one. Internal. */
bool ht_cuda_check(struct ht_cuda *cuda, cudaError_t result, const char *what, const char *file, int line);
/* Records a failure with a text of our own. */
void ht_cuda_fail(struct ht_cuda *cuda, enum ht_status status, const char *text, const char *file, int line);

#ifdef __cplusplus
}
#endif

#endif
