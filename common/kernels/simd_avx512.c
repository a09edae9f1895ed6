/* struct ht_simd for CPUs with AVX-512 (F, DQ, BW, VL: Skylake-X, Zen 4 and later). */
#include "common/kernels/simd_tables.h"

#if HT_SIMD_HAS_X86
#pragma GCC target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#include <immintrin.h>

#define SIMD_BYTES                 64
#define SIMD_TABLES                ht_simd_avx512
#define GEMM_ROWS                  8
#define GEMM_BROADCAST(x)          _mm512_set1_ps(x)
#define GEMM_MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define F16_WIDEN(p)               _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define F16_NARROW(p, v)           _mm256_storeu_si256((__m256i *)(p), _mm512_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))
#include "common/kernels/convert_body.h"
#include "common/kernels/gemm_body.h"
#include "common/kernels/simd_body.h"
#endif
