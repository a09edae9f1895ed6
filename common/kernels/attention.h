/*
 * Attention of one micro-batch, all heads: causal, or bidirectional. Internal to common/kernels.
 *
 * Grouped-query attention: H / Hkv consecutive query heads share a head of keys and values; with Hkv = H each has its
 * own. K = Hkv C / H.
 *
 * Groups (sequence, head of keys) are split over the workers. A worker takes a group's query heads in order, so the
 * sums of dk and dv over them are one chain. A pair (sequence, query head) goes through its query rows in tiles of
 * HT_ATTENTION_ROWS. With causal attention a tile reads only the keys up to its last row, so about half of the square is
 * never computed; with bidirectional attention every row sees every key.
 *
 * Scores are FP32. Kept probabilities are rounded to the storage type, and used as rounded; flash has them in FP32
 * only. In 16 bit a group's dk and dv are summed in FP32 beside dqkv, and rounded after its last head.
 */
#ifndef HT_KERNELS_ATTENTION_H
#define HT_KERNELS_ATTENTION_H

#include "common/base/pool.h"
#include "common/kernels/simd.h"

struct ht_attention {
    int64_t batch, seq, heads, width; /* B, T, H, C */
    int64_t kv_heads;                 /* Hkv */
    bool bidirectional;               /* every token sees every token; else those up to itself */
    enum ht_dtype type;               /* of qkv, probs, out and their gradients */
    const void *qkv;                  /* (B,T,C+2K): query (H, C/H), key, value (Hkv, C/H) each */
    void *probs;                      /* (B,H,T,T), causal: 0 above the diagonal; NULL: flash */
    float *lse;                       /* (B,H,T) log-sum-exp of the scaled scores; NULL: probabilities are kept */
    void *out;                        /* (B,T,C) */
    float *scores, *dscores;          /* a tile (HT_ATTENTION_ROWS, T) for each slot, tile_floats apart; scores: for
                                         flash, and in 16 bit for the forward pass */
    int64_t tile_floats;
    float *dkv; /* (T,2,C/H) for each slot, dkv_floats apart; NULL in FP32 */
    int64_t dkv_floats;
    int64_t slots; /* workers that may take part */
};

/* Writes out and probs or lse. */
void ht_attention_forward(const struct ht_simd *simd, const struct ht_attention *a, int worker, int n_workers);
/* dout: (B,T,C); dqkv: (B,T,C+2K), written. */
void ht_attention_backward(const struct ht_simd *simd, const struct ht_attention *a, const void *dout, void *dqkv,
                           int worker, int n_workers);

#endif
