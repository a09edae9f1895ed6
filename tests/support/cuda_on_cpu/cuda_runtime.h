/*
 * CUDA kernels on the CPU, for tests. The compiler takes this header for CUDA's own when it compiles a .cu file as C++
 * with this folder first on the include path and HT_CUDA_EMULATED defined. Tests without a GPU then find wrong indices,
 * missing barriers, reads of uninitialized memory and, under AddressSanitizer, writes beyond the end. They say nothing
 * about speed.
 *
 * Every thread of a block is a fiber, which runs until it waits at a barrier of its block or its warp.
 * Blocks run one after another, so kernels whose blocks wait for one another cannot run. The emulator reports a barrier
 * that a thread of the block (or lane of the warp) never reaches because it has returned; hardware would hang or have
 * undefined behaviour. Dynamic shared memory is NaN, or zeros, when a block starts. A kernel that lacks a barrier gives
 * different results in one of the orders (ht_emulator.order) of the threads; ht_emulator.omitted leaves a barrier out,
 * to see that a test notices.
 */
#ifndef HT_CUDA_ON_CPU_RUNTIME_H
#define HT_CUDA_ON_CPU_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__      static
#define __constant__    static
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint4 {
    unsigned x, y, z, w;
};

/* ---- for kernels ---- */

/* Orders of a block's threads. Each runs until it waits for its warp or its block. */
enum ht_emulated_order {
    HT_FORWARD,  /* a warp runs until all its lanes wait for the block; then the next warp does */
    HT_REVERSE,  /* likewise, from the last warp and lane to the first */
    HT_LOCKSTEP, /* the warps take turns; a turn ends where the lanes exchange values */
    HT_RANDOM,   /* likewise, in a drawn order of warps and lanes */
    HT_N_ORDERS
};

/* A barrier of a block or warp in the source, or a wait for copies, as one kernel reaches it. */
struct ht_emulated_site {
    const char *kernel, *file;
    int line;
};

struct ht_emulator {
    dim3 thread, block, block_dim, grid_dim; /* of the running fiber */
    void *shared;                            /* dynamic, 128-byte aligned */
    enum ht_emulated_order order;
    uint64_t seed;                          /* of HT_RANDOM */
    bool clear;                             /* shared memory starts as zeros, else as NaN */
    bool recording;                         /* of the barriers that threads reach (ht_emulated_sites) */
    const struct ht_emulated_site *omitted; /* this barrier does nothing; NULL: none */
    int64_t launches;
    struct {            /* of kernels and their calls; 0: theirs (HT_LIMIT in device.cuh) */
        int64_t slots;  /* kept algorithms of matrix products */
        int64_t blocks; /* of a grid whose threads stride over elements */
        int64_t shared; /* bytes of shared memory for cross-entropy */
        int64_t index;  /* the largest index that 32 bits hold */
    } limits;
    struct ht_emulated_stream *stream; /* the only stream that work may go to; NULL: any but the default one */
};
extern struct ht_emulator ht_emulator;
#define threadIdx (ht_emulator.thread)
#define blockIdx  (ht_emulator.block)
#define blockDim  (ht_emulator.block_dim)
#define gridDim   (ht_emulator.grid_dim)

void ht_emulated_block_barrier(const char *file, int line);
/* Returns true when this barrier is left out; else records it. */
bool ht_emulated_omits(const char *file, int line);
/* Returns the barriers that have been recorded, and forgets them. */
int ht_emulated_sites(struct ht_emulated_site *sites, int most);
/* Exchanges 64 bits of each lane of the warp; returns those of all 32. The pointer stays valid during the lane's next
   exchange. */
const uint64_t *ht_emulated_exchange(uint64_t mine);
int ht_emulated_lane(void);
typedef struct ht_emulated_stream *cudaStream_t;
void ht_emulated_launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                        const std::function<void()> &body);
/* Aborts unless work may be enqueued on the stream: never on the default one (NULL), and where ht_emulator.stream is
   set, on no other. */
void ht_emulated_on(cudaStream_t stream, const char *what);

#define __syncthreads() ht_emulated_block_barrier(__FILE__, __LINE__)

static inline int __syncthreads_or(int value, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    static int any; /* shared by the block; barriers separate its uses */
    if (ht_emulated_omits(file, line)) return value != 0;
    ht_emulated_block_barrier(NULL, 0);
    any = 0;
    ht_emulated_block_barrier(NULL, 0);
    any |= value;
    ht_emulated_block_barrier(NULL, 0);
    int result = any;
    ht_emulated_block_barrier(NULL, 0);
    return result != 0;
}

static inline void __syncwarp(unsigned = 0xffffffffu, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    if (!ht_emulated_omits(file, line)) ht_emulated_exchange(0);
}

template <class T> static inline T __shfl_sync(unsigned, T value, int from)
{
    uint64_t mine = 0;
    static_assert(sizeof(T) <= sizeof(mine), "a shuffle moves 4 or 8 bytes");
    memcpy(&mine, &value, sizeof(T));
    const uint64_t *all = ht_emulated_exchange(mine);
    T result;
    memcpy(&result, &all[from & 31], sizeof(T));
    return result;
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int by)
{
    return __shfl_sync(mask, value, ht_emulated_lane() ^ by);
}

template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by)
{
    int from = ht_emulated_lane() + (int)by;
    return __shfl_sync(mask, value, from < 32 ? from : ht_emulated_lane());
}

static inline unsigned __ballot_sync(unsigned, int predicate)
{
    const uint64_t *all = ht_emulated_exchange(predicate != 0);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) bits |= (unsigned)(all[i] != 0) << i;
    return bits;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

/* One fiber runs at a time. */
template <class T> static inline T atomicAdd(T *at, T value)
{
    T old = *at;
    *at = old + value;
    return old;
}
template <class T> static inline T atomicOr(T *at, T value)
{
    T old = *at;
    *at = old | value;
    return old;
}

/* These round after each operation: this file's users are compiled with -ffp-contract=off. */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned u;
    memcpy(&u, &x, sizeof(u));
    return u;
}
static inline float __uint_as_float(unsigned u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

/* ---- for the host ---- */

typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

static inline const char *cudaGetErrorString(cudaError_t)
{
    return "emulated";
}
static inline const char *cudaGetErrorName(cudaError_t)
{
    return "emulated";
}
extern "C" __thread int ht_emulated_last_error;
static inline cudaError_t cudaGetLastError(void)
{
    cudaError_t last = ht_emulated_last_error;
    ht_emulated_last_error = cudaSuccess;
    return last;
}
static inline cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
enum { HT_EMULATED_SHARED_BYTES = 99 * 1024 }; /* of a block, as on sm_86 and sm_89 */
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
static inline cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int)
{
    *value = HT_EMULATED_SHARED_BYTES;
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}
enum { cudaStreamNonBlocking = 1 };
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    *stream = (cudaStream_t)malloc(1);
    return cudaSuccess;
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ht_emulated_on(stream, "cudaStreamSynchronize");
    return cudaSuccess;
}
template <class T> static inline cudaError_t cudaMalloc(T **at, size_t bytes)
{
    *at = (T *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *at ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFree(void *at)
{
    free(at);
    return cudaSuccess;
}
/* cudaMemcpy and cudaMemset are left out: they use the default stream, which does not wait for non-blocking streams. */
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                                          cudaStream_t stream)
{
    ht_emulated_on(stream, "cudaMemcpyAsync");
    if (bytes) memcpy(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                                            size_t width, size_t height, enum cudaMemcpyKind, cudaStream_t stream)
{
    ht_emulated_on(stream, "cudaMemcpy2DAsync");
    for (size_t r = 0; r < height; r++) memcpy((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream)
{
    ht_emulated_on(stream, "cudaMemsetAsync");
    if (bytes) memset(at, value, bytes);
    return cudaSuccess;
}
template <class F> static inline cudaError_t cudaFuncSetAttribute(F, enum cudaFuncAttribute, int)
{
    return cudaSuccess;
}

#endif
