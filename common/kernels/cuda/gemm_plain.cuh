/* Computes ht_cuda_multiply's product slowly, without cuBLASLt. Internal to common/kernels/cuda. */
#ifndef HT_CUDA_GEMM_PLAIN_CUH
#define HT_CUDA_GEMM_PLAIN_CUH

#include "common/kernels/cuda/ht_cuda_gemm.h"

#ifdef __cplusplus
extern "C" {
#endif
void ht_cuda_multiply_plain(struct ht_cuda *cuda, const struct ht_cuda_product *p);
#ifdef __cplusplus
}
#endif

#endif
