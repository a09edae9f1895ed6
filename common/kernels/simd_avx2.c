/* struct ht_simd for CPUs with AVX2 and FMA. */
#include "common/kernels/simd_tables.h"

#if HT_SIMD_HAS_X86
#pragma GCC target("avx2,fma")
#include <immintrin.h>

#define SIMD_BYTES                 32
#define SIMD_TABLE                 ht_simd_avx2
#define GEMM_ROWS                  6
#define GEMM_BROADCAST(x)          _mm256_set1_ps(x)
#define GEMM_MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "common/kernels/gemm_body.h"
#include "common/kernels/simd_body.h"
#endif
