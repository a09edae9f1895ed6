/* One element of AdamW and of its reversal, operation by operation as in common/kernels/adamw.c and undo_path.c. */
#ifndef HT_CUDA_ADAMW_CUH
#define HT_CUDA_ADAMW_CUH

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_optimizer.h"

struct ht_adamw_values {
    float p, m, v;
};

/* Returns step_size m / (sqrt(v) / root + eps). */
static __device__ __forceinline__ float ht_adamw_move(const struct ht_adamw_step &s, float m, float v)
{
    float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), s.root), s.eps);
    return __fdiv_rn(__fmul_rn(s.step_size, m), denominator);
}

/* Steps one element. g: the gradient, already scaled. */
static __device__ __forceinline__ struct ht_adamw_values ht_adamw_one(const struct ht_adamw_step &s,
                                                                      struct ht_adamw_values x, float g)
{
    struct ht_adamw_values y;
    y.m = __fadd_rn(x.m, __fmul_rn(s.one_less_beta1, __fsub_rn(g, x.m)));
    y.v = __fadd_rn(__fmul_rn(x.v, s.beta2), __fmul_rn(__fmul_rn(s.one_less_beta2, g), g));
    y.p = __fsub_rn(__fmul_rn(x.p, s.keep), ht_adamw_move(s, y.m, y.v));
    return y;
}

static __device__ __forceinline__ float ht_one_nan(float x)
{
    return (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u ? __uint_as_float(0x7fc00000u) : x;
}

/* Estimates the values before the step, from which the log's differences count. */
static __device__ __forceinline__ struct ht_adamw_values ht_adamw_estimate(const struct ht_adamw_step &s,
                                                                           struct ht_adamw_values y, float g)
{
    float by_keep = __fdiv_rn(1, s.keep), by_beta1 = __fdiv_rn(1, __fsub_rn(1, s.one_less_beta1));
    float by_beta2 = __fdiv_rn(1, s.beta2);
    struct ht_adamw_values x;
    x.p = ht_one_nan(__fmul_rn(__fadd_rn(y.p, ht_adamw_move(s, y.m, y.v)), by_keep));
    x.m = ht_one_nan(__fmul_rn(__fsub_rn(y.m, __fmul_rn(s.one_less_beta1, g)), by_beta1));
    x.v = ht_one_nan(__fmul_rn(__fsub_rn(y.v, __fmul_rn(__fmul_rn(s.one_less_beta2, g), g)), by_beta2));
    return x;
}

/* Maps floats to ordered integers; its own inverse. */
static __device__ __forceinline__ uint32_t ht_in_order(uint32_t bits)
{
    return bits ^ (bits >> 31 ? 0x7fffffffu : 0);
}

#endif
