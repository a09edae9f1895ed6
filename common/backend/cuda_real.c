/*
 * The CUDA backend's table over CUDA itself: the runtime, and the kernels of common/kernels/cuda. The only file of this
 * folder that includes CUDA's headers; without CUDA in the build there is no table.
 */
#include "common/backend/cuda_api.h"

#ifndef HT_HAVE_CUDA

#include <stddef.h>

const struct ht_cuda_api *ht_cuda_api_real(void)
{
    return NULL;
}

#else

#include "common/base/array.h"
#include "common/kernels/cuda/ht_cuda_gemm.h"
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "common/kernels/cuda/ht_cuda_optimizer.h"
#include "common/kernels/cuda/ht_cuda_unit.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HT_HAVE_NVTX
#endif

/* Returns NULL, or "cudaErrorX: what it means (file:line)", in a buffer of the calling thread. */
static const char *error_text(cudaError_t result, int line)
{
    static _Thread_local char text[256];
    if (result == cudaSuccess) return NULL;
    snprintf(text, sizeof(text), "%s: %s (%s:%d)", cudaGetErrorName(result), cudaGetErrorString(result), "cuda_real.c",
             line);
    (void)cudaGetLastError(); /* clears the error, if it can be cleared */
    return text;
}
#define SAID(call) error_text(call, __LINE__)

/* ---- device ---- */

static const char *count(int *n)
{
    *n = 0;
    return SAID(cudaGetDeviceCount(n));
}

static const char *choose(int device)
{
    return SAID(cudaSetDevice(device));
}

static const char *properties(int device, struct ht_cuda_properties *out)
{
    struct cudaDeviceProp p;
    size_t free_bytes = 0, total_bytes = 0;
    int khz = 0, memory_khz = 0;
    *out = (struct ht_cuda_properties){0};
    const char *why = SAID(cudaSetDevice(device));
    if (!why) why = SAID(cudaGetDeviceProperties(&p, device));
    if (!why) why = SAID(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (!why) why = SAID(cudaDriverGetVersion(&out->driver));
    if (!why) why = SAID(cudaRuntimeGetVersion(&out->runtime));
    if (!why) why = SAID(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
    if (!why) why = SAID(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, device));
    if (!why) why = SAID(cudaDeviceGetPCIBusId(out->pci, sizeof(out->pci), device));
    if (why) return why;
    snprintf(out->name, sizeof(out->name), "%.127s", p.name);
    out->free_bytes = (int64_t)free_bytes;
    out->total_bytes = (int64_t)total_bytes;
    out->major = p.major;
    out->minor = p.minor;
    out->multiprocessors = p.multiProcessorCount;
    out->clock_hz = khz * 1e3;
    out->memory_bytes_per_s = 2.0 * memory_khz * 1e3 * (p.memoryBusWidth / 8.0); /* both edges of the clock */
    return NULL;
}

/* ---- memory ---- */

static const char *device_malloc(void **p, int64_t bytes)
{
    return SAID(cudaMalloc(p, (size_t)bytes));
}

static const char *device_free(void *p)
{
    return SAID(cudaFree(p));
}

static const char *host_malloc(void **p, int64_t bytes)
{
    return SAID(cudaHostAlloc(p, (size_t)bytes, cudaHostAllocPortable));
}

static const char *host_free(void *p)
{
    return SAID(cudaFreeHost(p));
}

static const char *host_register(void *p, int64_t bytes)
{
    return bytes ? SAID(cudaHostRegister(p, (size_t)bytes, cudaHostRegisterPortable)) : NULL;
}

static const char *host_unregister(void *p)
{
    return SAID(cudaHostUnregister(p));
}

/* ---- streams and events ---- */

static const char *stream_create(void **stream)
{
    return SAID(cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

static const char *stream_destroy(void *stream)
{
    return SAID(cudaStreamDestroy(stream));
}

static const char *stream_wait(void *stream, void *event)
{
    return SAID(cudaStreamWaitEvent(stream, event, 0));
}

static const char *stream_finish(void *stream)
{
    return SAID(cudaStreamSynchronize(stream));
}

static const char *copy(void *to, const void *from, int64_t bytes, void *stream)
{
    return SAID(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, stream));
}

static const char *fill(void *p, int byte, int64_t bytes, void *stream)
{
    return SAID(cudaMemsetAsync(p, byte, (size_t)bytes, stream));
}

static const char *event_create(void **event)
{
    return SAID(cudaEventCreateWithFlags((cudaEvent_t *)event, cudaEventBlockingSync));
}

static const char *event_destroy(void *event)
{
    return SAID(cudaEventDestroy(event));
}

static const char *event_record(void *event, void *stream)
{
    return SAID(cudaEventRecord(event, stream));
}

static const char *event_finish(void *event)
{
    return SAID(cudaEventSynchronize(event));
}

static const char *event_reached(void *event, bool *reached)
{
    cudaError_t answer = cudaEventQuery(event);
    *reached = answer == cudaSuccess;
    if (answer != cudaErrorNotReady) return SAID(answer);
    (void)cudaGetLastError(); /* else the thread's next launch would seem to have failed */
    return NULL;
}

static const char *event_between(void *from, void *to, int64_t *ns)
{
    float ms = 0;
    const char *why = SAID(cudaEventElapsedTime(&ms, from, to));
    *ns = (int64_t)((double)ms * 1e6);
    return why;
}

/* ---- contexts ---- */

struct context {
    struct ht_cuda cuda;
    char text[512];
};

static void context_destroy(void *context)
{
    struct context *c = context;
    if (!c) return;
    ht_cuda_gemm_destroy(c->cuda.gemm);
    free(c);
}

static const char *context_status(void *context)
{
    struct context *c = context;
    struct ht_error err = {0};
    if (ht_cuda_status(&c->cuda, cudaSuccess, &err) == HT_OK) return NULL;
    const char *file = strstr(err.text, "common/kernels/"); /* leaves out the path of the build's folder */
    snprintf(c->text, sizeof(c->text), "%.511s", file ? file : err.text);
    return c->text;
}

static void each_slow_shape(void *context, void (*each)(void *ctx, const char *shape, int64_t products), void *ctx)
{
    struct context *c = context;
    ht_cuda_gemm_each_plain(c->cuda.gemm, each, ctx);
}

/* Launches a kernel to find out whether the build has kernels for this GPU and the driver takes them, before the first
   op does. */
static const char *try_kernel(struct context *c, void *anywhere)
{
    ht_cuda_convert(&c->cuda, HT_F32, anywhere, HT_F16, (char *)anywhere + 512, 1);
    const char *why = SAID(cudaStreamSynchronize(c->cuda.stream));
    if (!why && c->cuda.error.status) why = context_status(c);
    if (!why) return NULL;
    static _Thread_local char text[512];
    snprintf(text, sizeof(text), "no kernel of this build runs on this GPU: %.400s", why);
    return text;
}

static const char *context_create(void *stream, void *products, void **context)
{
    struct context *c = HT_NEW(struct context);
    c->cuda.stream = stream;
    const char *why = NULL;
    struct ht_error err = {0};
    if (products) c->cuda.gemm = ht_cuda_gemm_create(products, HT_CUDA_GEMM_WORKSPACE_BYTES, &err);
    if (products && !c->cuda.gemm) {
        static _Thread_local char text[sizeof(err.text)];
        snprintf(text, sizeof(text), "%s", err.text);
        why = text;
    }
    if (!why && products) why = try_kernel(c, products);
    if (why)
        context_destroy(c);
    else
        *context = c;
    return why;
}

/* ---- kernels ---- */

static struct ht_cuda_args args_on(struct context *c, const struct ht_unit_args *a)
{
    return (struct ht_cuda_args){.cuda = &c->cuda,
                                 .model = a->model,
                                 .batch = a->batch,
                                 .seq = a->seq,
                                 .dtype = a->dtype,
                                 .grad = a->grad,
                                 .grad_store = a->grad_store,
                                 .link = a->link};
}

static void embedding_forward(void *device, const struct ht_unit_args *args, const void *input, const void *params,
                              void *out, void *workspace)
{
    struct ht_cuda_args a = args_on(device, args);
    ht_cuda_embedding_forward(&a, input, params, out, workspace);
}

static void embedding_backward(void *device, const struct ht_unit_args *args, const void *input, const void *dout,
                               void *grad, void *workspace)
{
    struct ht_cuda_args a = args_on(device, args);
    ht_cuda_embedding_backward(&a, input, dout, grad, workspace);
}

static void block_forward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                          const void *x, const struct ht_block_acts *act, void *out, void *workspace)
{
    struct ht_cuda_args a = args_on(device, args);
    ht_cuda_block_forward(&a, sub_ops, params, x, act, out, workspace);
}

static void block_backward(void *device, const struct ht_unit_args *args, unsigned sub_ops, const void *params,
                           const void *x, const struct ht_block_acts *act, const void *dout, void *dx, void *grad,
                           void *workspace)
{
    struct ht_cuda_args a = args_on(device, args);
    ht_cuda_block_backward(&a, sub_ops, params, x, act, dout, dx, grad, workspace);
}

static void head_forward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                         const void *x, void *act, float *logits, const int32_t *targets, float scale, double *loss_sum,
                         void *workspace)
{
    struct ht_cuda_args a = args_on(device, args);
    ht_cuda_head_forward(&a, params, wte, x, act, logits, targets, scale, loss_sum, workspace);
}

static void head_backward(void *device, const struct ht_unit_args *args, const void *params, const void *wte,
                          const void *x, const void *act, const float *dlogits, void *dx, void *grad, void *dwte,
                          void *workspace)
{
    struct ht_cuda_args a = args_on(device, args);
    ht_cuda_head_backward(&a, params, wte, x, act, dlogits, dx, grad, dwte, workspace);
}

static void kernel_copy(void *device, void *to, const void *from, int64_t bytes)
{
    struct context *c = device;
    if (c->cuda.error.status) return;
    ht_cuda_check(&c->cuda, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, c->cuda.stream), "a copy",
                  __FILE__, __LINE__);
}

static void zero(void *device, void *at, int64_t bytes)
{
    struct context *c = device;
    if (c->cuda.error.status) return;
    ht_cuda_check(&c->cuda, cudaMemsetAsync(at, 0, (size_t)bytes, c->cuda.stream), "zeros", __FILE__, __LINE__);
}

/* Widens the first half of what is left, whose place has been read, until one is left, which its thread reads before it
   writes: element i comes from bytes 2n + 2i and goes to bytes 4i. */
static void widen(void *device, void *data, int64_t n, enum ht_dtype type)
{
    struct context *c = device;
    char *to = data, *from = to + 2 * n;
    for (int64_t left = n, some; left; left -= some) {
        some = left > 1 ? left / 2 : 1;
        ht_cuda_convert(&c->cuda, type, from, HT_F32, to, some);
        from += 2 * some;
        to += 4 * some;
    }
}

static void round_copy(void *device, struct ht_pool *pool, const float *from, void *to, enum ht_dtype type, int64_t n)
{
    struct context *c = device;
    (void)pool;
    ht_cuda_convert(&c->cuda, HT_F32, from, type, to, n);
}

static void grad_sum(void *device, struct ht_pool *pool, void *acc, enum ht_dtype acc_type, const void *add,
                     enum ht_dtype add_type, int64_t n)
{
    struct context *c = device;
    (void)pool;
    ht_cuda_accumulate(&c->cuda, acc_type, acc, add_type, add, n);
}

static struct ht_cuda_adamw row_on(const struct ht_adamw_row *r)
{
    return (struct ht_cuda_adamw){.param = r->param,
                                  .m = r->m,
                                  .v = r->v,
                                  .grad = r->grad,
                                  .grad_type = r->grad_type,
                                  .copy = r->copy,
                                  .copy_type = r->copy_type,
                                  .n = r->n};
}

static void adamw(void *device, struct ht_pool *pool, const struct ht_adamw_step *step, const struct ht_adamw_row *row)
{
    struct context *c = device;
    struct ht_cuda_adamw a = row_on(row);
    (void)pool;
    ht_cuda_adamw_update(&c->cuda, step, &a);
}

static void unit_init(void *context, const struct ht_model *m, int64_t unit, uint64_t seed, enum ht_dtype type,
                      void *params)
{
    struct context *c = context;
    ht_cuda_unit_init(&c->cuda, m, unit, seed, type, params);
}

/* ---- calls that return a result ---- */

/* Copies bytes to the host and waits for them. Pinned memory is not needed, since the stream is waited for anyway. */
static bool fetch(struct context *c, void *to, const void *from, size_t bytes)
{
    if (c->cuda.error.status) return false;
    return ht_cuda_check(&c->cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->cuda.stream), "an answer",
                         __FILE__, __LINE__) &&
           ht_cuda_check(&c->cuda, cudaStreamSynchronize(c->cuda.stream), "an answer", __FILE__, __LINE__);
}

static void grad_check(void *context, const struct ht_adamw_step *step, const void *grad, enum ht_dtype type, int64_t n,
                       void *partial)
{
    struct context *c = context;
    ht_cuda_grad_check(&c->cuda, step, type, grad, n, partial);
}

static struct ht_grad_partial partial_of(const void *partial)
{
    const struct ht_cuda_grad_partial *p = partial; /* only its first bytes, without the parts */
    return (struct ht_grad_partial){.fits = !p->bad, .squares = p->squares};
}

static struct ht_cuda_undo_header header_of(struct context *c, const void *log)
{
    struct ht_cuda_undo_header h = {0};
    if (!fetch(c, &h, log, sizeof(h))) h = (struct ht_cuda_undo_header){0};
    return h;
}

static void step_logged(void *device, const struct ht_undo *u, const struct ht_adamw_step *step)
{
    struct context *c = device;
    struct ht_cuda_adamw a = row_on(&u->row);
    ht_cuda_adamw_step_logged(&c->cuda, step, &a, u->log, u->log_bytes);
}

static bool undo(void *device, const struct ht_undo *u)
{
    struct context *c = device;
    struct ht_cuda_adamw a = row_on(&u->row);
    struct ht_cuda_undo_header h = header_of(c, u->log);
    if (h.n != u->row.n || h.state == HT_CUDA_UNDO_EMPTY) return false;
    ht_cuda_adamw_undo(&c->cuda, &a, u->log, u->log_bytes);
    return c->cuda.error.status == HT_OK;
}

static struct ht_undo_summary summary_of(const void *header, int64_t n)
{
    struct ht_cuda_undo_header h;
    memcpy(&h, header, sizeof(h));
    struct ht_undo_summary s = {.exceptions = (int64_t)h.exceptions};
    if (h.n != n) return (struct ht_undo_summary){0};
    s.state = h.state == HT_CUDA_UNDO_STEPPED   ? HT_UNDO_STEPPED
              : h.state == HT_CUDA_UNDO_REFUSED ? HT_UNDO_REFUSED
                                                : HT_UNDO_EMPTY;
    s.used_bytes = ht_undo_log_bytes(n, s.state == HT_UNDO_STEPPED ? s.exceptions : 0);
    return s;
}

static const struct ht_kernels kernels = {
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .block_forward = block_forward,
    .block_backward = block_backward,
    .head_forward = head_forward,
    .head_backward = head_backward,
    .copy = kernel_copy,
    .zero = zero,
    .widen = widen,
    .round_copy = round_copy,
    .grad_sum = grad_sum,
    .adamw = adamw,
    .step_logged = step_logged,
    .undo = undo,
};

#ifdef HT_HAVE_NVTX
static void mark_begin(const char *name)
{
    nvtxRangePushA(name);
}

static void mark_end(void)
{
    nvtxRangePop();
}
#endif

static const struct ht_cuda_api api = {
    .name = "cuda",
    .count = count,
    .properties = properties,
    .select = choose,
    .malloc = device_malloc,
    .free = device_free,
    .host_malloc = host_malloc,
    .host_free = host_free,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_finish = stream_finish,
    .copy = copy,
    .fill = fill,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_finish = event_finish,
    .event_reached = event_reached,
    .event_between = event_between,
    .products_bytes = HT_CUDA_GEMM_WORKSPACE_BYTES,
    .context_create = context_create,
    .context_destroy = context_destroy,
    .context_status = context_status,
    .each_slow_shape = each_slow_shape,
    .workspace_bytes = ht_cuda_unit_workspace_bytes,
    .block_workspace_bytes = ht_cuda_block_workspace_bytes,
    .unit_init = unit_init,
    .kernels = &kernels,
    .partial_bytes = sizeof(struct ht_cuda_grad_partial),
    .partial_result_bytes = offsetof(struct ht_cuda_grad_partial, bad) + sizeof(uint32_t),
    .grad_check = grad_check,
    .partial_of = partial_of,
    .log_header_bytes = sizeof(struct ht_cuda_undo_header),
    .summary_of = summary_of,
#ifdef HT_HAVE_NVTX
    .mark_begin = mark_begin,
    .mark_end = mark_end,
#endif
};

const struct ht_cuda_api *ht_cuda_api_real(void)
{
    return &api;
}

#endif
