/* Keeps the first error of a context. */
#include <stdio.h>

#include "common/kernels/cuda/ht_cuda.h"

void ht_cuda_fail(struct ht_cuda *cuda, enum ht_status status, const char *text, const char *file, int line)
{
    if (cuda->error.status != HT_OK) return;
    cuda->error.status = status;
    snprintf(cuda->error.text, sizeof(cuda->error.text), "%s:%d: %s", file, line, text);
}

bool ht_cuda_check(struct ht_cuda *cuda, cudaError_t result, const char *what, const char *file, int line)
{
    if (result != cudaSuccess) {
        char text[512];
        snprintf(text, sizeof(text), "%s: %s (%s)", what, cudaGetErrorString(result), cudaGetErrorName(result));
        ht_cuda_fail(cuda, HT_FAILED, text, file, line);
    }
    return cuda->error.status == HT_OK;
}

enum ht_status ht_cuda_status(struct ht_cuda *cuda, cudaError_t of_wait, struct ht_error *err)
{
    ht_cuda_check(cuda, of_wait, "waiting for the stream", __FILE__, __LINE__);
    if (cuda->error.status != HT_OK && err) *err = cuda->error;
    return cuda->error.status;
}
