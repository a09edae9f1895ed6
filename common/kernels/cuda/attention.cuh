/*
 * Attention that keeps its log-sum-exp and never stores scores. Internal to common/kernels/cuda. q, k, v of one
 * token lie in one row of qkv (H heads of q, Hkv of k, Hkv of v, D each); H / Hkv consecutive query heads share a head
 * of keys and values.
 */
#ifndef HT_CUDA_ATTENTION_CUH
#define HT_CUDA_ATTENTION_CUH

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_attention.h"

/* Arguments of kernels: addresses, and strides in elements. */
template <class T> struct ht_heads {
    const T *qkv, *out, *dout; /* (B,T,W), (B,T,C), (B,T,C) */
    T *to, *dqkv;              /* forward's output (B,T,C); backward's (B,T,W) */
    float *lse, *dot;          /* (B,H,T) */
    const float *turns;        /* (T,D/2) cosines, then sines, by which dq and dk are rotated; NULL: they are not */
    int seq, heads, sharing, head_size;
    bool bidirectional;
    int64_t width, stride; /* C, W = C + 2 K */
    float scale;           /* 1 / sqrt(D) */
};

/* Returns true when the backward kernels rotate dq and dk as they write them. */
static inline bool ht_rotates(const struct ht_cuda_attention *a)
{
    return a->rope_theta > 0 && !a->probs && !a->bidirectional;
}

template <class T> static inline ht_heads<T> ht_heads_of(const struct ht_cuda_attention *a)
{
    ht_heads<T> h = {};
    h.qkv = (const T *)a->qkv;
    h.out = (const T *)a->out;
    h.to = (T *)a->out;
    h.dout = (const T *)a->dout;
    h.dqkv = (T *)a->dqkv;
    h.lse = a->lse;
    h.dot = a->scratch;
    h.turns = ht_rotates(a) ? a->turns : NULL;
    h.seq = (int)a->seq;
    h.heads = (int)a->heads;
    h.sharing = (int)(a->heads / a->kv_heads);
    h.head_size = (int)a->head_size;
    h.bidirectional = a->bidirectional;
    h.width = a->heads * a->head_size;
    h.stride = h.width + 2 * a->kv_heads * a->head_size;
    h.scale = 1.0f / sqrtf((float)a->head_size);
    return h;
}

/* Return element offsets of row 0 of a head's q, k, v (rows `stride` apart) and of its output (rows `width` apart). */
template <class T> static __device__ __forceinline__ int64_t ht_q_at(const ht_heads<T> &h, int64_t batch, int head)
{
    return batch * h.seq * h.stride + (int64_t)head * h.head_size;
}
template <class T> static __device__ __forceinline__ int64_t ht_k_at(const ht_heads<T> &h, int64_t batch, int kv_head)
{
    return batch * h.seq * h.stride + h.width + (int64_t)kv_head * h.head_size;
}
template <class T> static __device__ __forceinline__ int64_t ht_v_at(const ht_heads<T> &h, int64_t batch, int kv_head)
{
    return ht_k_at(h, batch, kv_head) + (int64_t)(h.heads / h.sharing) * h.head_size;
}
template <class T> static __device__ __forceinline__ int64_t ht_out_at(const ht_heads<T> &h, int64_t batch, int head)
{
    return batch * h.seq * h.width + (int64_t)head * h.head_size;
}
template <class T> static __device__ __forceinline__ int64_t ht_stat_at(const ht_heads<T> &h, int64_t batch, int head)
{
    return (batch * h.heads + head) * h.seq;
}

/* Returns the number of keys that queries before `end` see. */
static __device__ __forceinline__ int ht_keys_before(bool bidirectional, int end, int seq)
{
    return bidirectional || end > seq ? seq : end;
}
/* Returns the first query that sees some of the keys from k0 on. */
static __device__ __forceinline__ int ht_first_query(bool bidirectional, int k0)
{
    return bidirectional ? 0 : k0;
}

/* The mma functions run on tensor cores and return false for a case that they do not cover; the general ones cover any
   case. */
bool ht_attention_mma_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a);
bool ht_attention_mma_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a);
void ht_attention_general_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a);
void ht_attention_general_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a);

#endif
