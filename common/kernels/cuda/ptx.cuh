/*
 * Instructions of attention's kernels: matrix fragments, their loads from shared memory, asynchronous copies, and 2^x.
 * All are sm_80's. For lane l, g = l / 4 and t = l % 4 (PTX manual, mma.m16n8k16):
 *
 *     A (16,16)   a[0] = (g, 2t..2t+1)   a[1] = (g+8, 2t..)   a[2] = (g, 2t+8..)   a[3] = (g+8, 2t+8..)
 *     B (16,8)    b[0] = (2t..2t+1, g)   b[1] = (2t+8.., g)
 *     D (16,8)    d[0], d[1] = (g, 2t..2t+1)   d[2], d[3] = (g+8, 2t..2t+1)
 */
#ifndef HT_CUDA_PTX_CUH
#define HT_CUDA_PTX_CUH

#include "common/kernels/cuda/device.cuh"

/* Packs two floats into one register of a fragment, `low` in the lower half. */
static __device__ __forceinline__ uint32_t ht_pair(ht_f16, float low, float high);
static __device__ __forceinline__ uint32_t ht_pair(ht_bf16, float low, float high);

#ifdef HT_CUDA_EMULATED
#include "emulated_ptx.h"

static inline uint32_t ht_pair(ht_f16, float low, float high)
{
    return ht_f16_bits(low) | (uint32_t)ht_f16_bits(high) << 16;
}
static inline uint32_t ht_pair(ht_bf16, float low, float high)
{
    return ht_bf16_bits(low) | (uint32_t)ht_bf16_bits(high) << 16;
}
static inline void ht_mma(ht_f16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    ht_emulated_mma<ht_f16_to_f32>(d, a, b);
}
static inline void ht_mma(ht_bf16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    ht_emulated_mma<ht_bf16_to_f32>(d, a, b);
}
static inline void ht_load_matrix(uint32_t r[4], const void *row)
{
    ht_ldmatrix(r, row, false);
}
static inline void ht_load_matrix_transposed(uint32_t r[4], const void *row)
{
    ht_ldmatrix(r, row, true);
}
static inline void ht_copy_16(void *to, const void *from, bool valid)
{
    ht_emulated_copy(to, from, 16, valid);
}
static inline void ht_copy_4(float *to, const float *from, bool valid)
{
    ht_emulated_copy(to, from, 4, valid);
}
static inline void ht_copy_commit(void)
{
    ht_emulated_copy_commit();
}
template <int PENDING> static inline void ht_copy_wait(const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    ht_emulated_copy_wait(PENDING, file, line);
}
static inline float ht_exp2(float x)
{
    return exp2f(x);
}
static inline int ht_fresh(int x)
{
    return x;
}

#else

static __device__ __forceinline__ uint32_t ht_pair(ht_f16, float low, float high)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
static __device__ __forceinline__ uint32_t ht_pair(ht_bf16, float low, float high)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Computes d += a b. */
static __device__ __forceinline__ void ht_mma(ht_f16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
static __device__ __forceinline__ void ht_mma(ht_bf16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Loads four 8x8 matrices of 16-bit elements; lanes 8i .. 8i+7 give the addresses of the rows of matrix i, in shared
   memory and 16-byte aligned. Register i of lane l has elements (l/4, 2(l%4) .. +1) of matrix i; transposed: of its
   transpose. */
static __device__ __forceinline__ void ht_load_matrix(uint32_t r[4], const void *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
static __device__ __forceinline__ void ht_load_matrix_transposed(uint32_t r[4], const void *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Copies 16 bytes, or 4, from global to shared memory; zeros if not valid, without reading the source. */
static __device__ __forceinline__ void ht_copy_16(void *to, const void *from, bool valid)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void ht_copy_4(float *to, const float *from, bool valid)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    int bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(at), "l"(from), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void ht_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}
/* Waits until at most PENDING of the thread's groups have not arrived. */
template <int PENDING> __device__ __forceinline__ void ht_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory");
}

static __device__ __forceinline__ float ht_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Returns x. The compiler then computes values from it here, instead of before a loop and kept in registers
   throughout. */
static __device__ __forceinline__ int ht_fresh(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

#endif
#endif
