/*
 * Conversions between FP32 and 16 bit. Each simd_<level>.c includes this file after it has defined
 *
 *     SIMD_BYTES           width of a register
 *     F16_WIDEN(p)         a register of FP32 from the F16 numbers at p       (where the CPU can)
 *     F16_NARROW(p, v)     a register rounded to nearest even, to p
 *
 * All else is half.h's code, which gives the same bits: the compiler vectorises BF16's integer arithmetic by itself.
 */
#include <string.h>

#include "common/base/half.h"
#include "common/kernels/gemm.h"

static __attribute__((noinline)) void widen_f16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    int64_t i = 0;
#if defined(F16_WIDEN)
    typedef float at_any __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias));
    for (; i + SIMD_BYTES / 4 <= n; i += SIMD_BYTES / 4) *(at_any *)(y + i) = F16_WIDEN(x + i);
#endif
    for (; i < n; i++) y[i] = ht_f16_to_f32(x[i]);
}

static __attribute__((noinline)) void narrow_f16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    int64_t i = 0;
#if defined(F16_NARROW)
    typedef float at_any __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias));
    for (; i + SIMD_BYTES / 4 <= n; i += SIMD_BYTES / 4) F16_NARROW(y + i, *(const at_any *)(x + i));
#endif
    for (; i < n; i++) y[i] = ht_f32_to_f16(x[i]);
}

static __attribute__((noinline)) void widen_bf16(const uint16_t *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = ht_bf16_to_f32(x[i]);
}

static __attribute__((noinline)) void narrow_bf16(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = ht_f32_to_bf16(x[i]);
}

static void simd_widen(const void *x, enum ht_dtype type, float *y, int64_t n)
{
    if (type == HT_F32)
        memcpy(y, x, (size_t)n * sizeof(float));
    else if (type == HT_F16)
        widen_f16(x, y, n);
    else
        widen_bf16(x, y, n);
}

static void simd_narrow(const float *x, enum ht_dtype type, void *y, int64_t n)
{
    if (type == HT_F32)
        memcpy(y, x, (size_t)n * sizeof(float));
    else if (type == HT_F16)
        narrow_f16(x, y, n);
    else
        narrow_bf16(x, y, n);
}

/* Stores FP32 numbers; y may be x when they are stored as FP32. */
static void simd_store(const float *x, struct ht_stored stored, void *y, int64_t n)
{
    enum { TILE = 256 };
    if (stored.round == stored.as) {
        simd_narrow(x, stored.as, y, n);
        return;
    }
    uint16_t rounded[TILE];
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < TILE ? n - i : TILE;
        simd_narrow(x + i, stored.round, rounded, m);
        simd_widen(rounded, stored.round, (float *)y + i, m);
    }
}
