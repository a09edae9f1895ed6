/*
 * Attention of one micro-batch, all heads: out = softmax(q k^T / sqrt(D)) v, token i seeing tokens 0..i (causal) or all
 * tokens (bidirectional).
 *
 * Without kept probabilities (`lse` is kept) no matrix of scores is ever stored: tiles of it live in registers (Dao
 * 2023, "FlashAttention-2"). 16-bit types with heads of 64, 80, 96 or 128 go to the tensor cores; FP32, all other
 * head sizes up to 256, and bidirectional heads of 96 take a slower way in FP32 arithmetic.
 *
 * The backward pass adds nothing atomically: one kernel owns a tile of keys and goes through the queries (and through
 * the query heads that share them, in order), a second one owns a tile of queries and goes through the keys. That costs
 * 7 products of tiles instead of 5.
 *
 * With kept probabilities it is matrix products and a softmax; scores pass through the scratch in FP32.
 */
#ifndef HT_CUDA_ATTENTION_H
#define HT_CUDA_ATTENTION_H

#include "common/kernels/cuda/ht_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HT_CUDA_MAX_HEAD_SIZE = 256, HT_CUDA_MAX_SEQ = 65535 * 16 }; /* a grid's height, of tiles of 16 rows */

struct ht_cuda_attention {
    enum ht_dtype dtype;
    int64_t batch, seq, heads, kv_heads, head_size; /* B, T, H, Hkv, D */
    bool bidirectional;                             /* else causal */
    const void *qkv;                                /* (B,T,C+2K): query (H,D), key, value (Hkv,D) each */
    void *out;                                      /* (B,T,C); the backward pass reads it */
    float *lse;                                     /* (B,H,T) log-sum-exp of the scaled scores; NULL: probs */
    void *probs;                                    /* (B,H,T,T), causal: 0 above the diagonal; NULL: lse */
    const void *dout;                               /* (B,T,C); NULL forward */
    void *dqkv;                                     /* (B,T,C+2K); NULL forward */
    float *scratch;                                 /* ht_cuda_attention_scratch_bytes */
    double rope_theta;                              /* backward: of ht_cuda_rotate; 0: q and k are not rotated */
    float *turns;                                   /* backward: ht_cuda_attention_turns_bytes of scratch */
};

int64_t ht_cuda_attention_scratch_bytes(const struct ht_model *m, int64_t batch, int64_t seq, bool backward);
int64_t ht_cuda_attention_turns_bytes(const struct ht_model *m, int64_t seq);

/* Writes out, and lse or probs. */
void ht_cuda_attention_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a);
/* Writes dqkv. With rope_theta dq and dk are rotated back, with the bits of ht_cuda_rotate: each is stored once, rotated,
   unless probabilities are kept or attention is bidirectional. */
void ht_cuda_attention_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a);

#ifdef __cplusplus
}
#endif

#endif
