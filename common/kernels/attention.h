/*
 * Internal: causal attention of one micro-batch, all heads.
 *
 * Pairs (sequence, head) are split over the workers; a pair goes through its query rows in tiles of HT_ATTENTION_ROWS,
 * and a tile looks only at the keys up to its last row, so about half of the square is never computed.
 */
#ifndef HT_KERNELS_ATTENTION_H
#define HT_KERNELS_ATTENTION_H

#include "common/base/pool.h"
#include "common/kernels/simd.h"

struct ht_attention {
    int64_t batch, seq, heads, width; /* B, T, H, C */
    const float *qkv;                 /* (B,T,3C): query, key, value, each (H, C/H) */
    float *probs;                     /* (B,H,T,T), 0 above the diagonal; NULL: flash */
    float *lse;                       /* (B,H,T) log-sum-exp of the scaled scores; NULL: probabilities are kept */
    float *out;                       /* (B,T,C) */
    float *scores, *dscores;          /* a tile (HT_ATTENTION_ROWS, T) for each slot, tile_floats apart */
    int64_t tile_floats;
    int64_t slots; /* workers that may take part */
};

/* Writes out and probs or lse. */
void ht_attention_forward(const struct ht_simd *simd, const struct ht_attention *a, int worker, int n_workers);
/* dout: (B,T,C); dqkv: (B,T,3C), written. */
void ht_attention_backward(const struct ht_simd *simd, const struct ht_attention *a, const float *dout, float *dqkv,
                           int worker, int n_workers);

#endif
