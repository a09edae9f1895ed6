/* Tables that the three compilations of simd_body.h define. Internal to common/kernels. */
#ifndef HT_KERNELS_SIMD_TABLES_H
#define HT_KERNELS_SIMD_TABLES_H

#include "common/kernels/simd.h"

/* Only GCC has a pragma that sets the instructions for a whole file; other compilers build the portable tables only. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HT_SIMD_HAS_X86 1
extern const struct ht_simd ht_simd_avx2[], ht_simd_avx512[]; /* [enum ht_dtype] */
#else
#define HT_SIMD_HAS_X86 0
#endif
extern const struct ht_simd ht_simd_portable[];

#endif
