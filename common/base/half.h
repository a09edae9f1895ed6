/*
 * 16-bit floating point as bits: IEEE binary16 (F16) and the upper half of binary32 (BF16). Conversion to FP32 is
 * exact. Conversion from FP32 rounds to nearest, ties to even, overflows to infinity, and keeps NaN a (quiet) NaN.
 */
#ifndef HT_BASE_HALF_H
#define HT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ht_float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static inline float ht_bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline float ht_bf16_to_f32(uint16_t h)
{
    return ht_bits_float((uint32_t)h << 16);
}

static inline uint16_t ht_f32_to_bf16(float x)
{
    uint32_t u = ht_float_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40); /* quiet, so that it stays a NaN */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float ht_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return ht_bits_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0)); /* quiet */
    if (exponent) return ht_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float x = (float)fraction * 0x1p-24f; /* subnormal, or zero */
    return ht_bits_float(sign | ht_float_bits(x));
}

static inline uint16_t ht_f32_to_f16(float x)
{
    uint32_t u = ht_float_bits(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 1023));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* from 65520 on, halfway beyond the largest */
    if (a < 0x38800000u) {                                  /* below 2^-14: a multiple of 2^-24 */
        float scaled = ht_bits_float(a) + 0.5f;             /* 0.5 has an ulp of 2^-24, so this addition rounds */
        return (uint16_t)(sign | (ht_float_bits(scaled) - 0x3f000000u));
    }
    a -= 112u << 23;
    return (uint16_t)(sign | (a + 0xfff + (a >> 13 & 1)) >> 13);
}

#endif
