/* CUDA's runtime for NCCL (tests/support/nccl_on_cpu), on hetbench's emulated device: its streams, events and memory. */
#include "tests/support/fake_cuda.h"
#include "tests/support/nccl_on_cpu/on_cpu.h"
#include "tests/support/streams.h"

static _Thread_local int device;

static cudaError_t error_of(const char *why)
{
    return why ? cudaErrorInvalidValue : cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorInvalidDevice ? "cudaErrorInvalidDevice" : "an error";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "it failed";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int to)
{
    if (fake_cuda_api()->select(to)) return cudaErrorInvalidDevice;
    device = to;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    a->type = ht_on_cpu_memory(p, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    return error_of(fake_cuda_api()->stream_create((void **)stream));
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    return error_of(fake_cuda_api()->stream_destroy(s));
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    stream_finish(s);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    return error_of(fake_cuda_api()->stream_wait(s, event));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    return error_of(fake_cuda_api()->copy(to, from, (int64_t)bytes, stream));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return error_of(fake_cuda_api()->event_create((void **)event));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return error_of(fake_cuda_api()->event_destroy(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return error_of(fake_cuda_api()->event_record(event, stream));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return stream_event_reached((struct stream_event *)event) ? cudaSuccess : cudaErrorNotReady;
}

int ht_on_cpu_device(void)
{
    return device;
}

void *ht_on_cpu_memory(const void *p, size_t bytes)
{
    return fake_cuda_find(p, (int64_t)bytes);
}

struct task {
    void (*run)(void *arg);
    void *arg;
};

static void run_task(void *arg)
{
    const struct task *t = arg;
    t->run(t->arg);
}

void ht_on_cpu_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg)
{
    struct task t = {run, arg};
    stream_do(stream, run_task, &t, sizeof(t));
}
