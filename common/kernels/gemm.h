/*
 * Matrix products of one worker: C = A B or C += A B, FP32, row-major, either factor transposed.
 *
 * Reasons for our own: (1) A serial BLAS need not be safe to call from several threads at once: Debian's serial
 * OpenBLAS 0.3.21 is built without locks around its buffer table, and two workers then share a packing buffer and get
 * wrong numbers. (2) Here every element of C is one chain of operations over k in ascending order, however the blocks
 * and panels are cut: the same bits for any number of workers. (3) No hidden memory: packing buffers are on the stack.
 *
 * AVX2 and AVX-512 fuse multiply and add and give the same bits; the portable version rounds twice.
 *
 * A, B and C may each be stored in 16 bit. Arithmetic is FP32 all the same: factors are converted as they are packed,
 * and an element of C is rounded once, when its chain has ended.
 */
#ifndef HT_KERNELS_GEMM_H
#define HT_KERNELS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/model/model.h"

/* Stack that a product needs, for sizing threads' stacks. */
enum { HT_GEMM_STACK_BYTES = 1152 * 1024 };

/* Storage of a result: rounded to one type, and kept as that type or as FP32. {0}: FP32, no rounding. */
struct ht_stored {
    enum ht_dtype round, as; /* as: equal to round, or HT_F32 */
};

struct ht_gemm {
    bool a_transposed; /* a is (k,m), else (m,k) */
    bool b_transposed; /* b is (n,k), else (k,n) */
    bool add;          /* C += A B, C in FP32; otherwise C is written and its old contents do not matter */
    int64_t m, n, k;   /* any may be 0 */
    const void *a;
    int64_t a_stride; /* row strides in elements */
    const void *b;
    int64_t b_stride;
    void *c; /* (m,n) */
    int64_t c_stride;
    enum ht_dtype a_type, b_type;
    struct ht_stored c_stored;
    /* Initial values of the chains, instead of 0: residual + bias, or one of the two. Not with add. */
    const void *residual; /* (m,n), rows c_stride apart, of a's type; NULL: none */
    const void *bias;     /* (n), of b's type; NULL: none */
};

#endif
