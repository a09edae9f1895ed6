/* Implements cuda_runtime_api.h and on_cpu.h of this folder: a GPU's memory is an array. */
#include "nccl.h"
#include "on_cpu.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "CUDA on the CPU: %s\n", what);
    abort();
}

/* ---- CUDA: a stream is a thread that works through a list -------------------------------------------------------- */

struct entry {
    void (*run)(void *arg);
    void *arg;
    struct entry *next;
};

struct stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *first, *last;
    int64_t enqueued, done;
    bool closing;
    struct stream *next; /* of those that were destroyed, whose events still stand for their work */
};

struct event {
    struct stream *stream;
    int64_t after; /* entries of the stream */
};

static _Thread_local int device;
static _Atomic(struct stream *) destroyed;

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
    if (to < 0 || to >= HT_ON_CPU_DEVICES) return cudaErrorInvalidDevice;
    device = to;
    return cudaSuccess;
}

static void use_context(void)
{
    atomic_fetch_or(&ht_nccl_on_cpu.contexts, 1U << device);
}

static bool on_device(const void *p, size_t bytes)
{
    const char *c = p, *memory = ht_nccl_on_cpu.memory;
    return c >= memory && c + bytes <= memory + sizeof(ht_nccl_on_cpu.memory);
}

void *ht_on_cpu_memory(const void *p, size_t bytes)
{
    return on_device(p, bytes) ? (void *)(uintptr_t)p : NULL;
}

int ht_on_cpu_device(void)
{
    return device;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    use_context();
    a->type = on_device(p, 1) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    return cudaSuccess;
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->closing) pthread_cond_wait(&s->changed, &s->lock);
        struct entry *e = s->first;
        if (!e) break;
        s->first = e->next;
        pthread_mutex_unlock(&s->lock);
        e->run(e->arg);
        free(e);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void ht_on_cpu_enqueue(struct stream *s, void (*run)(void *arg), void *arg)
{
    struct entry *e = malloc(sizeof(*e));
    must(e, "memory");
    *e = (struct entry){.run = run, .arg = arg};
    pthread_mutex_lock(&s->lock);
    if (s->first)
        s->last->next = e;
    else
        s->first = e;
    s->last = e;
    s->enqueued++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct stream *s = calloc(1, sizeof(*s));
    must(s && flags == cudaStreamNonBlocking, "a stream");
    use_context();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    must(!pthread_create(&s->thread, NULL, stream_main, s), "a stream's thread");
    ht_nccl_on_cpu.objects++;
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    s->next = destroyed;
    while (!atomic_compare_exchange_weak(&destroyed, &s->next, s)) continue;
    ht_nccl_on_cpu.objects--;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t until = s->enqueued; s->done < until;) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return cudaSuccess;
}

static void wait_for_event(void *arg)
{
    struct event *e = arg;
    pthread_mutex_lock(&e->stream->lock);
    while (e->stream->done < e->after) pthread_cond_wait(&e->stream->changed, &e->stream->lock);
    pthread_mutex_unlock(&e->stream->lock);
    free(e);
}

/* Waits for what the event stands for now: it may be recorded again. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct event *e = malloc(sizeof(*e));
    must(e && event->stream && !flags, "an event that a stream waits for");
    *e = *event;
    ht_on_cpu_enqueue(stream, wait_for_event, e);
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void run_copy(void *arg)
{
    struct copy *c = arg;
    memmove(c->to, c->from, c->bytes);
    free(c);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct copy *c = malloc(sizeof(*c));
    must(c && kind == cudaMemcpyDefault, "a copy");
    *c = (struct copy){to, from, bytes};
    ht_on_cpu_enqueue(stream, run_copy, c);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    must(flags == cudaEventDisableTiming, "an event's flags");
    *event = calloc(1, sizeof(**event));
    must(*event, "memory");
    ht_nccl_on_cpu.objects++;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    ht_nccl_on_cpu.objects--;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    pthread_mutex_lock(&stream->lock);
    *event = (struct event){stream, stream->enqueued};
    pthread_mutex_unlock(&stream->lock);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    must(event->stream, "an event is asked for that was not recorded");
    pthread_mutex_lock(&event->stream->lock);
    bool reached = event->stream->done >= event->after;
    pthread_mutex_unlock(&event->stream->lock);
    return reached ? cudaSuccess : cudaErrorNotReady;
}
