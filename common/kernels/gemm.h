/*
 * Matrix products of one worker: C = A B or C += A B, FP32, row-major, either factor transposed.
 *
 * Why our own. (1) A serial BLAS need not be safe to call from several threads at once: Debian's serial OpenBLAS 0.3.21
 * is built without locks around its buffer table, and two workers then share a packing buffer and get wrong numbers.
 * (2) Here every element of C is one chain of operations over k in ascending order, wherever the blocks and panels are
 * cut: the same bits for any number of workers. (3) No hidden memory: packing buffers are on the stack.
 *
 * AVX2 and AVX-512 fuse multiply and add and give the same bits as one another; the portable version rounds twice.
 */
#ifndef HT_KERNELS_GEMM_H
#define HT_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* Stack that a product needs, for those who size threads' stacks. */
enum { HT_GEMM_STACK_BYTES = 640 * 1024 };

struct ht_gemm {
    bool a_transposed; /* a is (k,m), else (m,k) */
    bool b_transposed; /* b is (n,k), else (k,n) */
    bool add;          /* C += A B; otherwise C is written and its old contents do not matter */
    int64_t m, n, k;   /* any may be 0 */
    const float *a;
    int64_t a_stride; /* floats from row to row */
    const float *b;
    int64_t b_stride;
    float *c; /* (m,n) */
    int64_t c_stride;
};

#endif
