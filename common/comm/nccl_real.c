/* NCCL, opened at run time, and CUDA's streams and events for it. Needs CUDA and nccl.h in the build. */
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
    X(ncclCommInitRankConfig)                                                                                          \
    X(ncclCommFinalize)                                                                                                \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclCommAbort)                                                                                                   \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGetLastError)                                                                                                \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)                                                                                                    \
    X(ncclAllGather)                                                                                                   \
    X(ncclReduceScatter)                                                                                               \
    X(ncclAllReduce)                                                                                                   \
    X(ncclBroadcast)                                                                                                   \
    X(ncclReduce)                                                                                                      \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)

#define EACH_POINTER(name) __typeof__(name) *name;
static struct {
    EACH_FUNCTION(EACH_POINTER)
} lib;

static struct {
    const char *name;
    void *function;
} const functions[] = {
#define EACH_ENTRY(name)   {#name, &lib.name},
    EACH_FUNCTION(EACH_ENTRY)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *library;

/* ---- errors as text --------------------------------------------------------------------------------------------- */

static const char *cuda_error(cudaError_t result)
{
    static _Thread_local char text[256];
    if (result == cudaSuccess) return NULL;
    snprintf(text, sizeof(text), "%s: %s", cudaGetErrorName(result), cudaGetErrorString(result));
    (void)cudaGetLastError();
    return text;
}

/* ncclInProgress is no error: the communicators do not block. The last error says what NCCL_DEBUG=WARN would print. */
static const char *nccl_error(ncclResult_t result)
{
    static _Thread_local char text[448];
    if (result == ncclSuccess || result == ncclInProgress) return NULL;
    const char *last = lib.ncclGetLastError(NULL);
    snprintf(text, sizeof(text), "%s%s%s", lib.ncclGetErrorString(result), last && *last ? ": " : "", last ? last : "");
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    return text;
}

/* ---- CUDA ------------------------------------------------------------------------------------------------------- */

static const char *select_device(int device)
{
    return cuda_error(cudaSetDevice(device));
}

static bool on_gpu(const void *p)
{
    struct cudaPointerAttributes a;
    if (cuda_error(cudaPointerGetAttributes(&a, p))) return false;
    return a.type == cudaMemoryTypeDevice;
}

static const char *copy(void *to, const void *from, int64_t bytes, void *stream)
{
    return cuda_error(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream));
}

static const char *stream_create(void **stream)
{
    return cuda_error(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

static const char *stream_destroy(void *stream)
{
    return cuda_error(cudaStreamDestroy(stream));
}

static const char *stream_finish(void *stream)
{
    return cuda_error(cudaStreamSynchronize(stream));
}

static const char *stream_wait(void *stream, void *event)
{
    return cuda_error(cudaStreamWaitEvent(stream, event, 0));
}

static const char *event_create(void **event)
{
    return cuda_error(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventDisableTiming));
}

static const char *event_destroy(void *event)
{
    return cuda_error(cudaEventDestroy(event));
}

static const char *event_record(void *event, void *stream)
{
    return cuda_error(cudaEventRecord(event, stream));
}

static const char *event_query(void *event, bool *reached)
{
    cudaError_t result = cudaEventQuery(event);
    *reached = result == cudaSuccess;
    if (result != cudaErrorNotReady) return cuda_error(result);
    (void)cudaGetLastError(); /* else NCCL may find the error */
    return NULL;
}

/* ---- NCCL ------------------------------------------------------------------------------------------------------- */

static const char *unique_id(char id[HT_NCCL_ID_BYTES])
{
    ncclUniqueId unique;
    const char *why = nccl_error(lib.ncclGetUniqueId(&unique));
    if (!why) memcpy(id, unique.internal, HT_NCCL_ID_BYTES);
    return why;
}

static const char *create(const char id[HT_NCCL_ID_BYTES], int32_t rank, int32_t size, void **nccl)
{
    ncclUniqueId unique;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    memcpy(unique.internal, id, HT_NCCL_ID_BYTES);
    config.blocking = 0;
    return nccl_error(lib.ncclCommInitRankConfig((ncclComm_t *)nccl, size, unique, rank, &config));
}

static const char *finalize(void *nccl)
{
    return nccl_error(lib.ncclCommFinalize(nccl));
}

static const char *destroy(void *nccl)
{
    return nccl_error(lib.ncclCommDestroy(nccl));
}

static const char *abort_comm(void *nccl)
{
    return nccl_error(lib.ncclCommAbort(nccl));
}

static const char *state(void *nccl, bool *busy)
{
    ncclResult_t result = ncclSuccess;
    const char *why = nccl_error(lib.ncclCommGetAsyncError(nccl, &result));
    *busy = result == ncclInProgress;
    return why ? why : nccl_error(result);
}

static const char *group_begin(void)
{
    return nccl_error(lib.ncclGroupStart());
}

static const char *group_end(void)
{
    return nccl_error(lib.ncclGroupEnd());
}

static const char *send(void *nccl, const void *data, int64_t bytes, int32_t to, void *stream)
{
    return nccl_error(lib.ncclSend(data, (size_t)bytes, ncclChar, to, nccl, stream));
}

static const char *receive(void *nccl, void *data, int64_t bytes, int32_t from, void *stream)
{
    return nccl_error(lib.ncclRecv(data, (size_t)bytes, ncclChar, from, nccl, stream));
}

static ncclDataType_t type_of(enum ht_comm_type type)
{
    static const ncclDataType_t types[] = {ncclChar, ncclFloat32, ncclFloat16, ncclBfloat16, ncclFloat64};
    return types[type];
}

static const char *all_gather(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type,
                              void *stream)
{
    return nccl_error(lib.ncclAllGather(from, to, (size_t)count, type_of(type), nccl, stream));
}

static const char *reduce_scatter(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type,
                                  void *stream)
{
    return nccl_error(lib.ncclReduceScatter(from, to, (size_t)count, type_of(type), ncclSum, nccl, stream));
}

static const char *all_reduce(void *nccl, void *data, int64_t count, enum ht_comm_type type, void *stream)
{
    return nccl_error(lib.ncclAllReduce(data, data, (size_t)count, type_of(type), ncclSum, nccl, stream));
}

static const char *broadcast(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type,
                             int32_t root, void *stream)
{
    return nccl_error(lib.ncclBroadcast(from, to, (size_t)count, type_of(type), root, nccl, stream));
}

static const char *reduce(void *nccl, const void *from, void *to, int64_t count, enum ht_comm_type type, int32_t root,
                          void *stream)
{
    return nccl_error(lib.ncclReduce(from, to, (size_t)count, type_of(type), ncclSum, root, nccl, stream));
}

static const struct ht_nccl_api api = {.select = select_device,
                                       .on_gpu = on_gpu,
                                       .copy = copy,
                                       .stream_create = stream_create,
                                       .stream_destroy = stream_destroy,
                                       .stream_finish = stream_finish,
                                       .stream_wait = stream_wait,
                                       .event_create = event_create,
                                       .event_destroy = event_destroy,
                                       .event_record = event_record,
                                       .event_query = event_query,
                                       .unique_id = unique_id,
                                       .create = create,
                                       .finalize = finalize,
                                       .destroy = destroy,
                                       .abort = abort_comm,
                                       .state = state,
                                       .group_begin = group_begin,
                                       .group_end = group_end,
                                       .send = send,
                                       .receive = receive,
                                       .all_gather = all_gather,
                                       .reduce_scatter = reduce_scatter,
                                       .all_reduce = all_reduce,
                                       .broadcast = broadcast,
                                       .reduce = reduce};

/* ---- opening the library ---------------------------------------------------------------------------------------- */

/* Opens the library, under the lock. It is never closed, because it has threads of its own. */
static enum ht_status open_library(struct ht_error *err)
{
    const char *named = getenv("HT_NCCL");
    void *found = dlopen(named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!found)
        return ht_fail(err, HT_INFEASIBLE, "cannot open NCCL (%s); name its file in the environment as HT_NCCL",
                       dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *f = dlsym(found, functions[i].name);
        if (!f) {
            dlclose(found);
            return ht_fail(err, HT_INFEASIBLE, "this NCCL has no %s", functions[i].name);
        }
        memcpy(functions[i].function, &f, sizeof(f));
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
