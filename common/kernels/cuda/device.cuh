/*
 * Common parts of the kernels of this folder: storage types, 16-byte loads, sums over a warp or a block, launches.
 *
 * Arithmetic is FP32; a 16-bit type is storage only, read exactly and rounded once (to nearest, ties to even) when
 * written. Sources compile with nvcc, and with a C++ compiler over tests/support/cuda_on_cpu.
 */
#ifndef HT_CUDA_DEVICE_CUH
#define HT_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "common/kernels/cuda/ht_cuda.h"

#ifdef HT_CUDA_EMULATED
#include "common/base/half.h"
#define HT_DYNAMIC_SHARED(type, name) type *name = (type *)ht_emulator.shared
/* A limit that tests lower, to reach the code beyond it with small shapes. */
#define HT_LIMIT(name, value) (ht_emulator.limits.name ? ht_emulator.limits.name : (int64_t)(value))
#define HT_LAUNCH_(kernel, grid, block, bytes, stream, ...)                                                            \
    ht_emulated_launch(#kernel, grid, block, bytes, stream, [&]() { kernel(__VA_ARGS__); })
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define HT_LIMIT(name, value) ((int64_t)(value))
#define HT_DYNAMIC_SHARED(type, name)                                                                                  \
    extern __shared__ uint4 ht_dynamic_shared[];                                                                       \
    type *name = (type *)ht_dynamic_shared
#define HT_LAUNCH_(kernel, grid, block, bytes, stream, ...) kernel<<<grid, block, bytes, stream>>>(__VA_ARGS__)
#endif

/* Launches on the context's stream and records a failure. kernel: a name, in parentheses if it has template arguments.
   Does nothing for an empty grid, or after a failure. */
#define HT_LAUNCH(cuda, kernel, grid, block, bytes, ...)                                                               \
    do {                                                                                                               \
        dim3 grid_ = (grid), block_ = (block);                                                                         \
        if ((cuda)->error.status == HT_OK && grid_.x > 0 && grid_.y > 0 && grid_.z > 0) {                              \
            HT_LAUNCH_(kernel, grid_, block_, (size_t)(bytes), (cuda)->stream, __VA_ARGS__);                           \
            ht_cuda_check((cuda), cudaGetLastError(), #kernel, __FILE__, __LINE__);                                    \
        }                                                                                                              \
    } while (0)

/* Allows a kernel more than 48 KB of shared memory. */
#define HT_ALLOW_SHARED(cuda, kernel, bytes)                                                                           \
    ht_cuda_check((cuda), cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes)),     \
                  #kernel, __FILE__, __LINE__)

/* ---- storage ---- */

struct ht_f16 {
    uint16_t bits;
};
struct ht_bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float ht_load(float x)
{
    return x;
}

#ifdef HT_CUDA_EMULATED
static inline float ht_load(ht_f16 x)
{
    return ht_f16_to_f32(x.bits);
}
static inline float ht_load(ht_bf16 x)
{
    return ht_bf16_to_f32(x.bits);
}
static inline uint16_t ht_f16_bits(float x)
{
    return ht_f32_to_f16(x);
}
static inline uint16_t ht_bf16_bits(float x)
{
    return ht_f32_to_bf16(x);
}
#else
static __device__ __forceinline__ float ht_load(ht_f16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}
static __device__ __forceinline__ float ht_load(ht_bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}
static __device__ __forceinline__ uint16_t ht_f16_bits(float x)
{
    return __half_as_ushort(__float2half_rn(x));
}
static __device__ __forceinline__ uint16_t ht_bf16_bits(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
#endif

template <class T> __device__ __forceinline__ T ht_store(float x);
template <> __device__ __forceinline__ float ht_store<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ ht_f16 ht_store<ht_f16>(float x)
{
    ht_f16 h = {ht_f16_bits(x)};
    return h;
}
template <> __device__ __forceinline__ ht_bf16 ht_store<ht_bf16>(float x)
{
    ht_bf16 h = {ht_bf16_bits(x)};
    return h;
}

/* N elements that are loaded and stored at once; N * sizeof(T) is at most 16 and the address a multiple of it. */
template <class T, int N> struct alignas(sizeof(T) * N) ht_pack {
    T x[N];
};
/* Elements in 16 bytes. */
template <class T> struct ht_wide {
    enum { N = 16 / sizeof(T) };
};

template <class T, int N> __device__ __forceinline__ ht_pack<T, N> ht_pack_at(const T *x)
{
    return *(const ht_pack<T, N> *)x;
}
template <class T, int N> __device__ __forceinline__ void ht_pack_to(T *x, const ht_pack<T, N> &p)
{
    *(ht_pack<T, N> *)x = p;
}

/* Returns true when rows of `width` elements at these addresses may be read 16 bytes at a time; NULL may. On the
   host. */
template <class T> static inline bool ht_is_wide(int64_t width, const void *a, const void *b = 0, const void *c = 0)
{
    return width * (int64_t)sizeof(T) % 16 == 0 && (uintptr_t)a % 16 == 0 && (uintptr_t)b % 16 == 0 &&
           (uintptr_t)c % 16 == 0;
}

/* Runs a statement with T as the dtype's type. */
#define HT_WITH_TYPE(dtype, ...)                                                                                       \
    switch (dtype) {                                                                                                   \
    case HT_F32: {                                                                                                     \
        typedef float T;                                                                                               \
        __VA_ARGS__;                                                                                                   \
    } break;                                                                                                           \
    case HT_F16: {                                                                                                     \
        typedef ht_f16 T;                                                                                              \
        __VA_ARGS__;                                                                                                   \
    } break;                                                                                                           \
    case HT_BF16: {                                                                                                    \
        typedef ht_bf16 T;                                                                                             \
        __VA_ARGS__;                                                                                                   \
    } break;                                                                                                           \
    }

/* ---- gradients of parameters: rounded to `grad`, stored as `store` (grad or F32) ---- */

struct ht_grad_type {
    enum ht_dtype grad, store;
};

static __device__ __forceinline__ float ht_round_to(enum ht_dtype t, float x)
{
    if (t == HT_F16) return ht_load(ht_store<ht_f16>(x));
    if (t == HT_BF16) return ht_load(ht_store<ht_bf16>(x));
    return x;
}

static __device__ __forceinline__ float ht_get(enum ht_dtype t, const void *base, int64_t i)
{
    if (t == HT_F16) return ht_load(((const ht_f16 *)base)[i]);
    if (t == HT_BF16) return ht_load(((const ht_bf16 *)base)[i]);
    return ((const float *)base)[i];
}

static __device__ __forceinline__ void ht_put(enum ht_dtype t, void *base, int64_t i, float x)
{
    if (t == HT_F16)
        ((ht_f16 *)base)[i] = ht_store<ht_f16>(x);
    else if (t == HT_BF16)
        ((ht_bf16 *)base)[i] = ht_store<ht_bf16>(x);
    else
        ((float *)base)[i] = x;
}

static __device__ __forceinline__ void ht_put_grad(struct ht_grad_type t, void *base, int64_t i, float x)
{
    ht_put(t.store, base, i, ht_round_to(t.grad, x));
}

static inline void *ht_offset(void *base, enum ht_dtype t, int64_t elements)
{
    return (char *)base + elements * ht_dtype_bytes(t);
}
static inline const void *ht_offset(const void *base, enum ht_dtype t, int64_t elements)
{
    return (const char *)base + elements * ht_dtype_bytes(t);
}

/* ---- sums ---- */

enum { HT_WARP = 32, HT_MAX_WARPS = 32 };

struct ht_add {
    template <class X> static __device__ __forceinline__ X of(X a, X b) { return a + b; }
};
struct ht_max {
    static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};

/* Folds x over a warp; every lane gets the result. */
template <class Op, class X> __device__ __forceinline__ X ht_warp_fold(X x)
{
    for (int by = HT_WARP / 2; by > 0; by /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

/* Folds x over a block of whole warps; every thread of the block must call it and gets the result. */
template <class Op, class X> __device__ __forceinline__ X ht_block_fold(X x)
{
    __shared__ X of_warp[HT_MAX_WARPS];
    int warp = (int)threadIdx.x / HT_WARP, n = (int)blockDim.x / HT_WARP;
    x = ht_warp_fold<Op>(x);
    __syncthreads(); /* the last fold's results have been read */
    if (threadIdx.x % HT_WARP == 0) of_warp[warp] = x;
    __syncthreads();
    X sum = of_warp[0];
    for (int i = 1; i < n; i++) sum = Op::of(sum, of_warp[i]);
    return sum;
}

/* Returns the threads of a block for a row of `pieces`. */
static inline unsigned ht_row_threads(int64_t pieces)
{
    int64_t warps = (pieces + HT_WARP - 1) / HT_WARP;
    return (unsigned)((warps < 1 ? 1 : warps > 8 ? 8 : warps) * HT_WARP);
}

/* Returns the blocks of a kernel that strides over n pieces with so many threads: enough for any GPU, and few enough to
   be cheap. */
static inline unsigned ht_grid_for(int64_t n, int threads)
{
    int64_t blocks = (n + threads - 1) / threads, most = HT_LIMIT(blocks, 8192);
    return (unsigned)(blocks < most ? blocks : most);
}

#define HT_EACH(i, n)                                                                                                  \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step_ = (int64_t)gridDim.x * blockDim.x; i < (n); \
         i += step_)

#endif
