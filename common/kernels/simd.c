/* Chooses among the compilations of simd_body.h. */
#include "common/kernels/simd.h"

#include <stddef.h>

#include "common/kernels/simd_tables.h"

static const struct ht_simd *tables(enum ht_simd_level level)
{
#if HT_SIMD_HAS_X86
    if (level == HT_SIMD_AVX512)
        return tables(HT_SIMD_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
                   ? ht_simd_avx512
                   : NULL;
    if (level == HT_SIMD_AVX2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")
                   ? ht_simd_avx2
                   : NULL;
#endif
    return level == HT_SIMD_PORTABLE ? ht_simd_portable : NULL;
}

const struct ht_simd *ht_simd_at(enum ht_simd_level level, enum ht_dtype stored)
{
    const struct ht_simd *t = tables(level);
    return t ? &t[stored] : NULL;
}

const struct ht_simd *ht_simd_for(enum ht_dtype stored)
{
    for (int level = HT_N_SIMD_LEVELS - 1; level > 0; level--) {
        const struct ht_simd *s = ht_simd_at((enum ht_simd_level)level, stored);
        if (s) return s;
    }
    return &ht_simd_portable[stored];
}

const struct ht_simd *ht_simd(void)
{
    return ht_simd_for(HT_F32);
}
