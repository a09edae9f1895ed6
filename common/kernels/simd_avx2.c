/* struct ht_simd for CPUs with AVX2. */
#include "common/kernels/simd_tables.h"

#if HT_SIMD_HAS_X86
#pragma GCC target("avx2")
#define SIMD_BYTES 32
#define SIMD_TABLE ht_simd_avx2
#include "common/kernels/simd_body.h"
#endif
