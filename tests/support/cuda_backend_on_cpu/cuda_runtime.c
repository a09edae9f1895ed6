/*
 * The part of CUDA's runtime that common/backend/cuda_real.c uses, on the CPU: malloc gives the memory, and enqueued
 * work runs at once. With the kernels of tests/support/cuda_on_cpu the CUDA backend runs its own table and kernels,
 * with their rounding, as on a GPU; only the timing differs.
 */
#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALIGN = 512, FREE_BYTES = 1 << 30 };

struct CUevent_st {
    double ms;
    bool not_ready; /* the first query returns this, once */
};

extern _Thread_local int ht_emulated_last_error; /* of tests/support/cuda_on_cpu; launches read it, too */

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : error == cudaErrorNotReady ? "cudaErrorNotReady" : "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t last = (cudaError_t)ht_emulated_last_error;
    ht_emulated_last_error = cudaSuccess;
    return last;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof(*p));
    strcpy(p->name, "emulated");
    p->major = 8;
    p->multiProcessorCount = 1;
    p->memoryBusWidth = 8;
    return cudaSetDevice(device);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = *total_bytes = FREE_BYTES;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)attribute;
    *value = 1000000; /* kHz */
    return cudaSetDevice(device);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device)
{
    if (n > 0) id[0] = '\0';
    return cudaSetDevice(device);
}

/* Fills memory with NaN, so that a read before the first write shows. */
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    *p = aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
    if (!*p) return cudaErrorMemoryAllocation;
    memset(*p, 0xff, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(p, bytes);
}

cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    return p && bytes ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaHostUnregister(void *p)
{
    return p ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    *stream = malloc(1);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream, (void)flags;
    return event ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    memcpy(to, from, bytes);
    return kind == cudaMemcpyDefault && stream ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t bytes, cudaStream_t stream)
{
    memset(p, byte, bytes);
    return stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(**event));
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    *event = (struct CUevent_st){.ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6, .not_ready = true};
    return stream ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return event ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    bool not_ready = event && event->not_ready;
    if (!not_ready) return cudaEventSynchronize(event);
    event->not_ready = false;
    return (cudaError_t)(ht_emulated_last_error = cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(to->ms - from->ms);
    return cudaSuccess;
}
