/* struct ht_simd for any CPU. */
#include "common/kernels/simd_tables.h"

#define SIMD_BYTES 16
#define SIMD_TABLE ht_simd_portable
#include "common/kernels/simd_body.h"
