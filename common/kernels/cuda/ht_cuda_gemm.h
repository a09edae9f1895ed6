/*
 * Matrix products through cuBLASLt: C = A B, row-major, either factor transposed, as common/kernels/gemm.h; FP32 sums,
 * C rounded once.
 *
 * Uses only algorithms that give the same bits every time: sums over k that are cut are put together in a fixed order
 * and in FP32 (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) or are not cut at all. FP32 products are FP32, not TF32. The
 * algorithm of a shape is chosen once and kept. If cuBLASLt has none, a slow kernel of our own runs, perhaps 100 times
 * slower; such shapes are counted (ht_cuda_gemm_each_plain).
 *
 * A long 16-bit product with ragged columns, rows of a transposed A, or terms (1024 or more, no multiple of 8) is made
 * in two: the last few, then all others. Terms that are cut off are rounded to C's type before the others are added to
 * them.
 *
 * The bias is the only epilogue. GELU (GELU_AUX) would be taken of the FP32 sum, whereas here it is of the stored,
 * rounded fc1, so that recomputing it alone gives the same bits; DGELU would save a pass over the gradient of fc1, but
 * its GELU is not the one whose error is stated; BGRADB adds up in an order that nobody states (docs/gpu-kernels.md, Slower
 * than need be).
 */
#ifndef HT_CUDA_GEMM_H
#define HT_CUDA_GEMM_H

#include "common/kernels/cuda/ht_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a cuBLASLt context. workspace: device memory of the caller's, for cuBLASLt's use on this context's stream
   alone. NVIDIA recommends 32 MiB on Hopper; less, or none, only narrows the choice of algorithms. Returns NULL with
   *err filled if cuBLASLt does not start. */
struct ht_cuda_gemm *ht_cuda_gemm_create(void *workspace, int64_t workspace_bytes, struct ht_error *err);
void ht_cuda_gemm_destroy(struct ht_cuda_gemm *gemm); /* accepts NULL */
enum { HT_CUDA_GEMM_WORKSPACE_BYTES = 32 << 20 };
/* Calls `each` for every shape that cuBLASLt has no algorithm for, with its text and the number of its products so
   far. */
void ht_cuda_gemm_each_plain(const struct ht_cuda_gemm *gemm,
                             void (*each)(void *ctx, const char *shape, int64_t products), void *ctx);

struct ht_cuda_product {
    enum ht_dtype in, out;           /* of a, b; of c, add and bias: `in` or HT_F32 */
    bool a_transposed, b_transposed; /* a is (k,m), else (m,k); b is (n,k), else (k,n) */
    int64_t m, n, k;
    const void *a, *b;
    int64_t a_stride, b_stride; /* row strides in elements */
    void *c;                    /* (m,n) */
    int64_t c_stride;
    const void *bias; /* (n), of type `out`, added to every row; NULL: none */
    const void *add;  /* (m,n), of c's type and stride, added; may be c; NULL: none */
    /* `count` products, whose matrices lie a_step, b_step, c_step elements apart; 0 and 1: one. */
    int64_t count, a_step, b_step, c_step;
};

void ht_cuda_multiply(struct ht_cuda *cuda, const struct ht_cuda_product *p);

#ifdef __cplusplus
}
#endif

#endif
