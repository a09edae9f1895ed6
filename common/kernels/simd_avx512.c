/* struct ht_simd for CPUs with AVX-512 (F, DQ, BW, VL: Skylake-X, Zen 4 and later). */
#include "common/kernels/simd_tables.h"

#if HT_SIMD_HAS_X86
#pragma GCC target("avx2,avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#define SIMD_BYTES 64
#define SIMD_TABLE ht_simd_avx512
#include "common/kernels/simd_body.h"
#endif
