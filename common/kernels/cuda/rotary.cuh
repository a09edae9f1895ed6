/*
 * Rotary positions (common/kernels/rotary.h) of a pair of elements. Internal to common/kernels/cuda. Every operation
 * rounds, as on the CPU: the compiler could fuse others, and in each kernel differently.
 */
#ifndef HT_CUDA_ROTARY_CUH
#define HT_CUDA_ROTARY_CUH

#include "common/kernels/cuda/device.cuh"

struct ht_turn {
    float cosine, sine;
};

/* Returns the turn of pair i of `half` = D/2 at position t; back: the opposite one. */
static __device__ __forceinline__ ht_turn ht_turn_at(double theta, int64_t half, int64_t t, int64_t i, bool back)
{
    double angle = (double)t * pow(theta, -2.0 * (double)i / (double)(2 * half)), sine = sin(angle);
    ht_turn turn = {(float)cos(angle), (float)(back ? -sine : sine)};
    return turn;
}

template <class T> __device__ __forceinline__ void ht_rotate_pair(ht_turn turn, T *low, T *high)
{
    float a = ht_load(*low), b = ht_load(*high);
    *low = ht_store<T>(__fsub_rn(__fmul_rn(a, turn.cosine), __fmul_rn(b, turn.sine)));
    *high = ht_store<T>(__fadd_rn(__fmul_rn(b, turn.cosine), __fmul_rn(a, turn.sine)));
}

#endif
