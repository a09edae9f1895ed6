/* struct ht_simd for any CPU. */
#include "common/kernels/simd_tables.h"

#define SIMD_BYTES                 16
#define SIMD_TABLES                ht_simd_portable
#define GEMM_ROWS                  4
#define GEMM_BROADCAST(x)          ((gemm_vec){(x), (x), (x), (x)})
#define GEMM_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "common/kernels/convert_body.h"
#include "common/kernels/gemm_body.h"
#include "common/kernels/simd_body.h"
