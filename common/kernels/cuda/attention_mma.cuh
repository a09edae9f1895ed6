/*
 * Attention on the tensor cores: T a 16-bit type, D the head size, a multiple of 16.
 *
 * Rows in shared memory are D + 8 elements apart: an odd number of 16 bytes, so that the eight rows of a matrix load
 * lie in different banks. A warp owns 16 rows of a result (forward: 32) and all of its columns, so a row's statistics
 * are folded over 4 lanes, and the product of one step is, in registers, the left factor of the next.
 *
 *     forward   a block has 128 queries; per 64 keys   S = Q K^T; P = exp(S - max); O += P V
 *     dk, dv    a block has 64 keys; per 64 queries    S^T = K Q^T; dV += P^T dO; dP^T = V dO^T; dK += dS^T Q
 *     dq        a block has 64 queries; per 64 keys    S = Q K^T; dP = dO V^T; dQ += dS K
 *
 * with P = exp(scale S - lse), dS = P (dP - dot), dot = sum of dO O, and the scale of dS put on the sums at the end.
 */
#ifndef HT_CUDA_ATTENTION_MMA_CUH
#define HT_CUDA_ATTENTION_MMA_CUH

#include "common/kernels/cuda/attention.cuh"
#include "common/kernels/cuda/ptx.cuh"

#define HT_LOG2E 1.4426950408889634f

enum { HT_MMA_THREADS = 128, HT_MMA_TILE = 64, HT_MMA_QUERIES = 128 };

template <int D> struct ht_mma_shape {
    enum {
        STRIDE = D + 8,
        TILE = HT_MMA_TILE * STRIDE, /* elements of 64 rows */
        FORWARD_BYTES = 4 * TILE * 2,
        STATS_BYTES = 2 * 2 * HT_MMA_TILE * 4,
        KEYS_BYTES = 6 * TILE * 2 + STATS_BYTES,
        QUERIES_BYTES = 6 * TILE * 2
    };
};

/* Rows first .. first + ROWS - 1 of a head to shared memory, zeros beyond row n. */
template <int D, int ROWS, class T>
__device__ __forceinline__ void ht_copy_tile(T *to, const T *from, int64_t stride, int first, int n)
{
    enum { PER_ROW = D / 8 };
    const T *base = from + first * stride; /* offsets within a tile are 32-bit */
#pragma unroll 2
    for (int i = (int)threadIdx.x; i < ROWS * PER_ROW; i += HT_MMA_THREADS) {
        int row = i / PER_ROW, column = i % PER_ROW * 8;
        bool valid = first + row < n;
        ht_copy_16(to + row * (D + 8) + column, base + (valid ? row * (int)stride + column : 0), valid);
    }
}

/* A fragment: 16 rows from `rows` on, columns 16 k .. 16 k + 15. */
template <int D, class T> __device__ __forceinline__ void ht_left(uint32_t a[4], const T *rows, int k)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_load_matrix(a, rows + lane % 16 * (D + 8) + 16 * k + lane / 16 * 8);
}

/* B fragments of two column tiles, the factor stored transposed: rows 16 n .. of `rows` are its columns. */
template <int D, class T>
__device__ __forceinline__ void ht_right_transposed(uint32_t b[4], const T *rows, int n, int k)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_load_matrix(b, rows + (16 * n + lane % 8 + lane / 16 * 8) * (D + 8) + 16 * k + lane / 8 % 2 * 8);
}

/* The same, the factor stored as it is: rows 16 k .. are its rows, columns 16 n .. its columns. */
template <int D, class T> __device__ __forceinline__ void ht_right(uint32_t b[4], const T *rows, int n, int k)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_load_matrix_transposed(b, rows + (16 * k + lane % 16) * (D + 8) + 16 * n + lane / 16 * 8);
}

/* s (16,64) = left (16,D) right (64,D)^T */
template <int D, class T>
__device__ __forceinline__ void ht_scores(float s[HT_MMA_TILE / 8][4], const T *left, const T *right)
{
#pragma unroll
    for (int n = 0; n < HT_MMA_TILE / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[n][e] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];
        ht_left<D>(a, left, k);
#pragma unroll
        for (int n = 0; n < HT_MMA_TILE / 16; n++) {
            ht_right_transposed<D>(b, right, n, k);
            ht_mma(T(), s[2 * n], a, b);
            ht_mma(T(), s[2 * n + 1], a, b + 2);
        }
    }
}

/* The left factor's fragment that columns 16 k .. 16 k + 15 of a product make. */
template <class T> __device__ __forceinline__ void ht_as_left(uint32_t a[4], float (*s)[4], int k)
{
    a[0] = ht_pair(T(), s[2 * k][0], s[2 * k][1]);
    a[1] = ht_pair(T(), s[2 * k][2], s[2 * k][3]);
    a[2] = ht_pair(T(), s[2 * k + 1][0], s[2 * k + 1][1]);
    a[3] = ht_pair(T(), s[2 * k + 1][2], s[2 * k + 1][3]);
}

/* sum (16,D) += left (16,64) right (64,D) */
template <int D, class T>
__device__ __forceinline__ void ht_add_product(float sum[D / 8][4], float left[HT_MMA_TILE / 8][4], const T *right)
{
#pragma unroll
    for (int k = 0; k < HT_MMA_TILE / 16; k++) {
        uint32_t a[4], b[4];
        ht_as_left<T>(a, left, k);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            ht_right<D>(b, right, n, k);
            ht_mma(T(), sum[2 * n], a, b);
            ht_mma(T(), sum[2 * n + 1], a, b + 2);
        }
    }
}

/* 16 rows of results, times `low` (rows 0-7) and `high`, to rows first .. of `to` that are before n, through the warp's
   own rows of shared memory. */
template <int D, class T>
__device__ __forceinline__ void ht_write_rows(T *rows, float sum[D / 8][4], float low, float high, T *to,
                                              int64_t stride, int first, int n)
{
    int lane = (int)threadIdx.x % HT_WARP, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
        *(uint32_t *)(rows + g * (D + 8) + 8 * c + 2 * t) = ht_pair(T(), sum[c][0] * low, sum[c][1] * low);
        *(uint32_t *)(rows + (g + 8) * (D + 8) + 8 * c + 2 * t) = ht_pair(T(), sum[c][2] * high, sum[c][3] * high);
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * (D / 8); i += HT_WARP) {
        int row = i / (D / 8), column = i % (D / 8) * 8;
        if (first + row < n)
            *(uint4 *)(to + (first + row) * stride + column) = *(const uint4 *)(rows + row * (D + 8) + column);
    }
}

/* ---- forward ---- */

/* One key tile into the running maximum, sum and output of 16 rows (Milakov and Gimelshein 2018); s becomes P. */
template <int D>
__device__ __forceinline__ void ht_online_softmax(float s[HT_MMA_TILE / 8][4], float o[D / 8][4], float max[2],
                                                  float sum[2], float scale_log2)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = max[half];
#pragma unroll
        for (int n = 0; n < HT_MMA_TILE / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float shrink = ht_exp2((max[half] - top) * scale_log2), shift = top * scale_log2, row = 0;
        max[half] = top;
#pragma unroll
        for (int n = 0; n < HT_MMA_TILE / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[n][e] = ht_exp2(fmaf(s[n][e], scale_log2, -shift));
                row += s[n][e];
            }
        sum[half] = sum[half] * shrink + row;
#pragma unroll
        for (int c = 0; c < D / 8; c++) {
            o[c][2 * half] *= shrink;
            o[c][2 * half + 1] *= shrink;
        }
    }
}

template <class T, int D> __global__ void __launch_bounds__(HT_MMA_THREADS) ht_mma_forward(ht_heads<T> h)
{
    enum { STRIDE = ht_mma_shape<D>::STRIDE, TILE = ht_mma_shape<D>::TILE, ROWS = HT_MMA_QUERIES / 4, M = ROWS / 16 };
    HT_DYNAMIC_SHARED(T, shared);
    T *q = shared, *k = q + 2 * TILE, *v = k + TILE;
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, g = lane / 4, t = lane % 4;
    int head = (int)blockIdx.x % h.heads, q0 = (int)(gridDim.y - 1 - blockIdx.y) * HT_MMA_QUERIES; /* longest first */
    int64_t batch = blockIdx.x / (unsigned)h.heads;
    const T *keys = h.qkv + ht_k_at(h, batch, head / h.sharing), *values = h.qkv + ht_v_at(h, batch, head / h.sharing);
    int end = q0 + HT_MMA_QUERIES < h.seq ? q0 + HT_MMA_QUERIES : h.seq; /* keys from here on are seen by none */
    int first_row = q0 + warp * ROWS;                                    /* the warp's */
    float scale_log2 = h.scale * HT_LOG2E;
    float o[M][D / 8][4], max[M][2], sum[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        max[m][0] = max[m][1] = -INFINITY;
        sum[m][0] = sum[m][1] = 0;
#pragma unroll
        for (int c = 0; c < D / 8; c++) o[m][c][0] = o[m][c][1] = o[m][c][2] = o[m][c][3] = 0;
    }
    ht_copy_tile<D, HT_MMA_QUERIES>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq);
    ht_copy_tile<D, HT_MMA_TILE>(k, keys, h.stride, 0, h.seq);
    ht_copy_commit();
    for (int k0 = 0; k0 < end; k0 += HT_MMA_TILE) {
        ht_copy_wait<0>();
        __syncthreads(); /* the keys are there, and the last values no longer needed */
        ht_copy_tile<D, HT_MMA_TILE>(v, values, h.stride, k0, h.seq);
        ht_copy_commit();
        bool sees = k0 < first_row + ROWS; /* any of these keys */
        float s[M][HT_MMA_TILE / 8][4];
        if (sees) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < HT_MMA_TILE / 8; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                uint32_t a[M][4], b[4];
#pragma unroll
                for (int m = 0; m < M; m++) ht_left<D>(a[m], q + (warp * ROWS + 16 * m) * STRIDE, i);
#pragma unroll
                for (int n = 0; n < HT_MMA_TILE / 16; n++) {
                    ht_right_transposed<D>(b, k, n, i);
#pragma unroll
                    for (int m = 0; m < M; m++) {
                        ht_mma(T(), s[m][2 * n], a[m], b);
                        ht_mma(T(), s[m][2 * n + 1], a[m], b + 2);
                    }
                }
            }
            if (k0 + HT_MMA_TILE > first_row) { /* the diagonal, and what is beyond the last token */
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < HT_MMA_TILE / 8; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            if (k0 + 8 * n + 2 * t + e % 2 > first_row + 16 * m + g + e / 2 * 8) s[m][n][e] = -INFINITY;
            }
        }
        ht_copy_wait<0>();
        __syncthreads(); /* the values are there, and the keys no longer needed */
        if (k0 + HT_MMA_TILE < end) {
            ht_copy_tile<D, HT_MMA_TILE>(k, keys, h.stride, k0 + HT_MMA_TILE, h.seq);
            ht_copy_commit();
        }
        if (!sees) continue;
#pragma unroll
        for (int m = 0; m < M; m++) ht_online_softmax<D>(s[m], o[m], max[m], sum[m], scale_log2);
#pragma unroll
        for (int i = 0; i < HT_MMA_TILE / 16; i++) {
            uint32_t a[M][4], b[4];
#pragma unroll
            for (int m = 0; m < M; m++) ht_as_left<T>(a[m], s[m], i);
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                ht_right<D>(b, v, n, i);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    ht_mma(T(), o[m][2 * n], a[m], b);
                    ht_mma(T(), o[m][2 * n + 1], a[m], b + 2);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        int row = first_row + 16 * m;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            sum[m][half] += __shfl_xor_sync(0xffffffffu, sum[m][half], 1);
            sum[m][half] += __shfl_xor_sync(0xffffffffu, sum[m][half], 2);
            int r = row + g + 8 * half;
            if (t == 0 && r < h.seq)
                h.lse[ht_stat_at(h, batch, head) + r] = max[m][half] * h.scale + logf(sum[m][half]);
        }
        ht_write_rows<D>(q + (warp * ROWS + 16 * m) * STRIDE, o[m], 1 / sum[m][0], 1 / sum[m][1],
                         h.to + ht_out_at(h, batch, head), h.width, row, h.seq);
    }
}

/* ---- backward: keys and values ---- */

/* Rows q0 .. of Q and dO on their way to stage `stage`, and their statistics. A row that is none gets lse infinity: its
   P is 0. */
template <class T, int D>
__device__ __forceinline__ void ht_fetch_queries(const ht_heads<T> &h, int64_t batch, int head, int q0, T *q, T *dout,
                                                 float *lse_log2, float *dot)
{
    int tid = (int)threadIdx.x, row = q0 + tid % HT_MMA_TILE;
    ht_copy_tile<D, HT_MMA_TILE>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq);
    ht_copy_tile<D, HT_MMA_TILE>(dout, h.dout + ht_out_at(h, batch, head), h.width, q0, h.seq);
    ht_copy_commit();
    int64_t at = ht_stat_at(h, batch, head) + row;
    if (tid < HT_MMA_TILE)
        lse_log2[tid] = row < h.seq ? h.lse[at] * HT_LOG2E : INFINITY;
    else
        dot[tid - HT_MMA_TILE] = row < h.seq ? h.dot[at] : 0;
}

template <class T, int D> __global__ void __launch_bounds__(HT_MMA_THREADS) ht_mma_backward_keys(ht_heads<T> h)
{
    enum { STRIDE = ht_mma_shape<D>::STRIDE, TILE = ht_mma_shape<D>::TILE };
    HT_DYNAMIC_SHARED(T, shared);
    T *k = shared, *v = k + TILE, *queries = v + TILE, *douts = queries + 2 * TILE;
    float *lse = (float *)(douts + 2 * TILE), *dot = lse + 2 * HT_MMA_TILE;
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, g = lane / 4, t = lane % 4;
    int kv_heads = h.heads / h.sharing, kv_head = (int)blockIdx.x % kv_heads;
    int k0 = (int)blockIdx.y * HT_MMA_TILE; /* the first keys are seen by the most queries */
    int64_t batch = blockIdx.x / (unsigned)kv_heads;
    int n_tiles = (h.seq - k0 + HT_MMA_TILE - 1) / HT_MMA_TILE, n_turns = n_tiles * h.sharing;
    float scale_log2 = h.scale * HT_LOG2E;
    T *own_k = k + 16 * warp * STRIDE, *own_v = v + 16 * warp * STRIDE;
    float dk[D / 8][4], dv[D / 8][4];
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) dk[c][e] = dv[c][e] = 0;
    ht_copy_tile<D, HT_MMA_TILE>(k, h.qkv + ht_k_at(h, batch, kv_head), h.stride, k0, h.seq);
    ht_copy_tile<D, HT_MMA_TILE>(v, h.qkv + ht_v_at(h, batch, kv_head), h.stride, k0, h.seq);
    ht_fetch_queries<T, D>(h, batch, kv_head * h.sharing, k0, queries, douts, lse, dot);
    for (int turn = 0; turn < n_turns; turn++) {
        int stage = turn & 1, next = turn + 1, q0 = k0 + turn % n_tiles * HT_MMA_TILE;
        ht_copy_wait<0>();
        __syncthreads(); /* this turn's tiles are there, and the last one's no longer needed */
        if (next < n_turns)
            ht_fetch_queries<T, D>(h, batch, kv_head * h.sharing + next / n_tiles, k0 + next % n_tiles * HT_MMA_TILE,
                                   queries + (next & 1) * TILE, douts + (next & 1) * TILE,
                                   lse + (next & 1) * HT_MMA_TILE, dot + (next & 1) * HT_MMA_TILE);
        const T *q = queries + stage * TILE, *dout = douts + stage * TILE;
        const float *row_lse = lse + stage * HT_MMA_TILE, *row_dot = dot + stage * HT_MMA_TILE;
        float p[HT_MMA_TILE / 8][4], dp[HT_MMA_TILE / 8][4];
        ht_scores<D>(p, own_k, q); /* transposed: keys are rows */
#pragma unroll
        for (int n = 0; n < HT_MMA_TILE / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int column = 8 * n + 2 * t + e % 2, key = k0 + 16 * warp + g + e / 2 * 8;
                float x = ht_exp2(fmaf(p[n][e], scale_log2, -row_lse[column]));
                p[n][e] = key > q0 + column ? 0 : x;
            }
        ht_add_product<D>(dv, p, dout);
        ht_scores<D>(dp, own_v, dout);
#pragma unroll
        for (int n = 0; n < HT_MMA_TILE / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) dp[n][e] = p[n][e] * (dp[n][e] - row_dot[8 * n + 2 * t + e % 2]);
        ht_add_product<D>(dk, dp, q);
    }
    int row = k0 + 16 * warp;
    ht_write_rows<D>(own_k, dk, h.scale, h.scale, h.dqkv + ht_k_at(h, batch, kv_head), h.stride, row, h.seq);
    ht_write_rows<D>(own_v, dv, 1, 1, h.dqkv + ht_v_at(h, batch, kv_head), h.stride, row, h.seq);
}

/* ---- backward: queries ---- */

template <class T, int D> __global__ void __launch_bounds__(HT_MMA_THREADS) ht_mma_backward_queries(ht_heads<T> h)
{
    enum { STRIDE = ht_mma_shape<D>::STRIDE, TILE = ht_mma_shape<D>::TILE };
    HT_DYNAMIC_SHARED(T, shared);
    T *q = shared, *dout = q + TILE, *keys = dout + TILE, *values = keys + 2 * TILE;
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, g = lane / 4, t = lane % 4;
    int head = (int)blockIdx.x % h.heads, q0 = (int)(gridDim.y - 1 - blockIdx.y) * HT_MMA_TILE; /* longest first */
    int64_t batch = blockIdx.x / (unsigned)h.heads;
    const T *from_k = h.qkv + ht_k_at(h, batch, head / h.sharing),
            *from_v = h.qkv + ht_v_at(h, batch, head / h.sharing);
    int end = q0 + HT_MMA_TILE < h.seq ? q0 + HT_MMA_TILE : h.seq, row = q0 + 16 * warp;
    T *own_q = q + 16 * warp * STRIDE, *own_dout = dout + 16 * warp * STRIDE;
    float scale_log2 = h.scale * HT_LOG2E, lse[2], dot[2], dq[D / 8][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = row + g + 8 * half;
        int64_t at = ht_stat_at(h, batch, head) + r;
        lse[half] = r < h.seq ? h.lse[at] * HT_LOG2E : INFINITY;
        dot[half] = r < h.seq ? h.dot[at] : 0;
    }
#pragma unroll
    for (int c = 0; c < D / 8; c++) dq[c][0] = dq[c][1] = dq[c][2] = dq[c][3] = 0;
    ht_copy_tile<D, HT_MMA_TILE>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq);
    ht_copy_tile<D, HT_MMA_TILE>(dout, h.dout + ht_out_at(h, batch, head), h.width, q0, h.seq);
    ht_copy_tile<D, HT_MMA_TILE>(keys, from_k, h.stride, 0, h.seq);
    ht_copy_tile<D, HT_MMA_TILE>(values, from_v, h.stride, 0, h.seq);
    ht_copy_commit();
    for (int k0 = 0; k0 < end; k0 += HT_MMA_TILE) {
        int stage = k0 / HT_MMA_TILE & 1;
        ht_copy_wait<0>();
        __syncthreads(); /* this turn's tiles are there, and the last one's no longer needed */
        if (k0 + HT_MMA_TILE < end) {
            ht_copy_tile<D, HT_MMA_TILE>(keys + (1 - stage) * TILE, from_k, h.stride, k0 + HT_MMA_TILE, h.seq);
            ht_copy_tile<D, HT_MMA_TILE>(values + (1 - stage) * TILE, from_v, h.stride, k0 + HT_MMA_TILE, h.seq);
            ht_copy_commit();
        }
        const T *k = keys + stage * TILE, *v = values + stage * TILE;
        float p[HT_MMA_TILE / 8][4], dp[HT_MMA_TILE / 8][4];
        ht_scores<D>(p, own_q, k);
        ht_scores<D>(dp, own_dout, v);
#pragma unroll
        for (int n = 0; n < HT_MMA_TILE / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float x = ht_exp2(fmaf(p[n][e], scale_log2, -lse[e / 2])) * (dp[n][e] - dot[e / 2]);
                p[n][e] = k0 + 8 * n + 2 * t + e % 2 > row + g + e / 2 * 8 ? 0 : x;
            }
        ht_add_product<D>(dq, p, k);
    }
    ht_write_rows<D>(own_q, dq, h.scale, h.scale, h.dqkv + ht_q_at(h, batch, head), h.stride, row, h.seq);
}

/* ---- launches ---- */

template <class T, int D> static void ht_mma_run_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    enum { BYTES = ht_mma_shape<D>::FORWARD_BYTES };
    dim3 grid((unsigned)(a->batch * a->heads), (unsigned)((a->seq + HT_MMA_QUERIES - 1) / HT_MMA_QUERIES));
    HT_ALLOW_SHARED(cuda, (ht_mma_forward<T, D>), BYTES);
    HT_LAUNCH(cuda, (ht_mma_forward<T, D>), grid, dim3(HT_MMA_THREADS), BYTES, ht_heads_of<T>(a));
}

/* h.dot has been filled. */
template <class T, int D> static void ht_mma_run_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    enum { KEYS = ht_mma_shape<D>::KEYS_BYTES, QUERIES = ht_mma_shape<D>::QUERIES_BYTES };
    unsigned tiles = (unsigned)((a->seq + HT_MMA_TILE - 1) / HT_MMA_TILE);
    HT_ALLOW_SHARED(cuda, (ht_mma_backward_keys<T, D>), KEYS);
    HT_LAUNCH(cuda, (ht_mma_backward_keys<T, D>), dim3((unsigned)(a->batch * a->kv_heads), tiles), dim3(HT_MMA_THREADS),
              KEYS, ht_heads_of<T>(a));
    HT_ALLOW_SHARED(cuda, (ht_mma_backward_queries<T, D>), QUERIES);
    HT_LAUNCH(cuda, (ht_mma_backward_queries<T, D>), dim3((unsigned)(a->batch * a->heads), tiles), dim3(HT_MMA_THREADS),
              QUERIES, ht_heads_of<T>(a));
}

#endif
