/*
 * cuBLASLt, opened when the first matrix product's context is created. Internal to common/kernels/cuda. So a program
 * with the CUDA backend starts without CUDA, and does not map half a gigabyte of kernels to print its help.
 *
 * Searched in this order: the file that the environment's HT_CUBLASLT names; libcublasLt.so.<major of the headers> as
 * the loader finds it (run path, LD_LIBRARY_PATH, system); the same name in /usr/local/cuda/lib64.
 */
#ifndef HT_CUDA_CUBLASLT_CUH
#define HT_CUDA_CUBLASLT_CUH

#include <cublasLt.h>

#include "common/kernels/cuda/ht_cuda.h"

/* The header's inline initialisers call the ones named _internal. */
#define HT_CUBLASLT_FUNCTIONS(EACH)                                                                                    \
    EACH(cublasLtCreate)                                                                                               \
    EACH(cublasLtDestroy)                                                                                              \
    EACH(cublasLtGetStatusString)                                                                                      \
    EACH(cublasLtMatmul)                                                                                               \
    EACH(cublasLtMatmulAlgoGetHeuristic)                                                                               \
    EACH(cublasLtMatmulDescInit_internal)                                                                              \
    EACH(cublasLtMatmulDescSetAttribute)                                                                               \
    EACH(cublasLtMatmulPreferenceInit_internal)                                                                        \
    EACH(cublasLtMatmulPreferenceSetAttribute)                                                                         \
    EACH(cublasLtMatrixLayoutInit_internal)                                                                            \
    EACH(cublasLtMatrixLayoutSetAttribute)

struct ht_cublaslt {
    void *library;
#define HT_EACH_FUNCTION(name) decltype(&::name) name;
    HT_CUBLASLT_FUNCTIONS(HT_EACH_FUNCTION)
#undef HT_EACH_FUNCTION
};

enum ht_status ht_cublaslt_open(struct ht_cublaslt *lt, struct ht_error *err);
void ht_cublaslt_close(struct ht_cublaslt *lt);

#endif
