/* struct ht_simd for CPUs with AVX2, FMA and F16C (Haswell, Zen and later). */
#include "common/kernels/simd_tables.h"

#if HT_SIMD_HAS_X86
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>

#define SIMD_BYTES                 32
#define SIMD_TABLES                ht_simd_avx2
#define GEMM_ROWS                  6
#define GEMM_BROADCAST(x)          _mm256_set1_ps(x)
#define GEMM_MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define F16_WIDEN(p)               _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define F16_NARROW(p, v)           _mm_storeu_si128((__m128i *)(p), _mm256_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))
#include "common/kernels/convert_body.h"
#include "common/kernels/gemm_body.h"
#include "common/kernels/simd_body.h"
#endif
