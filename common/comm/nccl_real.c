/* NCCL, opened at run time, and CUDA's streams and events for it. Without CUDA or nccl.h in the build there is none. */
#include "common/comm/nccl.h"

#ifndef HT_HAVE_NCCL

enum ht_status ht_nccl_api_real(const struct ht_nccl_api **out, struct ht_error *err)
{
    *out = 0;
    return ht_fail(err, HT_INFEASIBLE, "this build has no NCCL (it needs CUDA, and NCCL's nccl.h)");
}

#else

#include <assert.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(NCCL_UNIQUE_ID_BYTES == HT_NCCL_ID_BYTES, "as in nccl.h");

#define EACH_FUNCTION(X)                                                                                               \
    X(ncclGetUniqueId)                                                                                                 \
    X(ncclCommInitRank)                                                                                                \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclCommAbort)                                                                                                   \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)                                                                                                    \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)

#define EACH_POINTER(name) __typeof__(name) *name;
static struct {
    EACH_FUNCTION(EACH_POINTER)
} lib;

static struct {
    const char *name;
    void *place;
} const functions[] = {
#define EACH_PLACE(name)   {#name, &lib.name},
    EACH_FUNCTION(EACH_PLACE)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;

/* ---- what was said ---------------------------------------------------------------------------------------------- */

static const char *cuda_said(cudaError_t result)
{
    static _Thread_local char text[256];
    if (result == cudaSuccess) return NULL;
    snprintf(text, sizeof(text), "%s: %s", cudaGetErrorName(result), cudaGetErrorString(result));
    (void)cudaGetLastError();
    return text;
}

static const char *nccl_said(ncclResult_t result)
{
    return result == ncclSuccess ? NULL : lib.ncclGetErrorString(result);
}

/* ---- CUDA ------------------------------------------------------------------------------------------------------- */

static const char *choose(int device)
{
    return cuda_said(cudaSetDevice(device));
}

static bool on_gpu(const void *p)
{
    struct cudaPointerAttributes a;
    if (cuda_said(cudaPointerGetAttributes(&a, p))) return false;
    return a.type == cudaMemoryTypeDevice;
}

static const char *copy(void *to, const void *from, int64_t bytes, void *stream)
{
    return cuda_said(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream));
}

static const char *stream_create(void **stream)
{
    return cuda_said(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

static const char *stream_destroy(void *stream)
{
    return cuda_said(cudaStreamDestroy(stream));
}

static const char *stream_finish(void *stream)
{
    return cuda_said(cudaStreamSynchronize(stream));
}

static const char *event_create(void **event)
{
    return cuda_said(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

static const char *event_destroy(void *event)
{
    return cuda_said(cudaEventDestroy(event));
}

static const char *event_record(void *event, void *stream)
{
    return cuda_said(cudaEventRecord(event, stream));
}

static const char *event_query(void *event, bool *reached)
{
    cudaError_t result = cudaEventQuery(event);
    *reached = result == cudaSuccess;
    if (result != cudaErrorNotReady) return cuda_said(result);
    (void)cudaGetLastError(); /* which may keep it, and NCCL would find it */
    return NULL;
}

/* ---- NCCL ------------------------------------------------------------------------------------------------------- */

static const char *unique_id(char id[HT_NCCL_ID_BYTES])
{
    ncclUniqueId unique;
    const char *why = nccl_said(lib.ncclGetUniqueId(&unique));
    if (!why) memcpy(id, unique.internal, HT_NCCL_ID_BYTES);
    return why;
}

static const char *create(const char id[HT_NCCL_ID_BYTES], int32_t rank, int32_t size, void **nccl)
{
    ncclUniqueId unique;
    memcpy(unique.internal, id, HT_NCCL_ID_BYTES);
    return nccl_said(lib.ncclCommInitRank((ncclComm_t *)nccl, size, unique, rank));
}

static const char *destroy(void *nccl)
{
    return nccl_said(lib.ncclCommDestroy(nccl));
}

static const char *end_at_once(void *nccl)
{
    return nccl_said(lib.ncclCommAbort(nccl));
}

static const char *state(void *nccl)
{
    ncclResult_t result = ncclSuccess;
    const char *why = nccl_said(lib.ncclCommGetAsyncError(nccl, &result));
    return why ? why : nccl_said(result);
}

static const char *group_begin(void)
{
    return nccl_said(lib.ncclGroupStart());
}

static const char *group_end(void)
{
    return nccl_said(lib.ncclGroupEnd());
}

static const char *send(void *nccl, const void *data, int64_t bytes, int32_t to, void *stream)
{
    return nccl_said(lib.ncclSend(data, (size_t)bytes, ncclChar, to, nccl, stream));
}

static const char *receive(void *nccl, void *data, int64_t bytes, int32_t from, void *stream)
{
    return nccl_said(lib.ncclRecv(data, (size_t)bytes, ncclChar, from, nccl, stream));
}

static const struct ht_nccl_api api = {.select = choose,
                                       .on_gpu = on_gpu,
                                       .copy = copy,
                                       .stream_create = stream_create,
                                       .stream_destroy = stream_destroy,
                                       .stream_finish = stream_finish,
                                       .event_create = event_create,
                                       .event_destroy = event_destroy,
                                       .event_record = event_record,
                                       .event_query = event_query,
                                       .unique_id = unique_id,
                                       .create = create,
                                       .destroy = destroy,
                                       .abort = end_at_once,
                                       .state = state,
                                       .group_begin = group_begin,
                                       .group_end = group_end,
                                       .send = send,
                                       .receive = receive};

/* ---- finding it ------------------------------------------------------------------------------------------------- */

/* Under the lock. The library stays open: it has threads of its own. */
static enum ht_status open_library(struct ht_error *err)
{
    const char *named = getenv("HT_NCCL");
    void *found = dlopen(named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!found)
        return ht_fail(err, HT_INFEASIBLE, "NCCL is not here (%s); name its file in the environment as HT_NCCL",
                       dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *f = dlsym(found, functions[i].name);
        if (!f) {
            dlclose(found);
            return ht_fail(err, HT_INFEASIBLE, "this NCCL has no %s", functions[i].name);
        }
        memcpy(functions[i].place, &f, sizeof(f));
    }
    library = found;
    return HT_OK;
}

enum ht_status ht_nccl_api_real(const struct ht_nccl_api **out, struct ht_error *err)
{
    pthread_mutex_lock(&lock);
    enum ht_status status = library ? HT_OK : open_library(err);
    pthread_mutex_unlock(&lock);
    *out = status ? NULL : &api;
    return status;
}

#endif
