/* The part of CUDA's runtime that common/comm/nccl_real.c uses, on the CPU (nccl.c). */
#ifndef HT_NCCL_ON_CPU_CUDA_H
#define HT_NCCL_ON_CPU_CUDA_H

#include <stddef.h>

typedef enum {
    cudaSuccess,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600
} cudaError_t;
typedef struct stream *cudaStream_t;
typedef struct event *cudaEvent_t;
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeDevice = 2 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
struct cudaPointerAttributes {
    enum cudaMemoryType type;
};

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);

#endif
