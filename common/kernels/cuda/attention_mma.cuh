/*
 * Attention on the tensor cores: common parts of the forward and the backward kernels. T is a 16-bit type, D the head
 * size, a multiple of 16.
 *
 *     forward   a block has 128 queries; a turn is 64 keys   S = Q K^T; P = exp(S - max); O += P V
 *     dk, dv    a block has 128 keys; a turn is 64 queries   S^T = K Q^T; dV += P^T dO; dP^T = V dO^T; dK += dS^T Q
 *     dq        a block has 128 queries; a turn is 64 keys   S = Q K^T; dP = dO V^T; dQ += dS K
 *
 * with P = exp(scale S - lse), dS = P (dP - dot), dot = sum of dO O, and the scale of dS put on the sums at the end.
 * ALL: every query sees all keys (bidirectional), not only those up to its own token.
 *
 * A warp owns 16 rows of a result (forward: 32) and all of its columns, so a row's statistics are folded over 4 lanes,
 * and the product of one step is, in registers, the left factor of the next. Shared memory limits such kernels: a
 * matrix load of 512 bytes takes as long as two mma do on an A100, and longer than those on an H100. So the forward
 * pass uses each right factor for 32 rows, and the backward ones keep their left factors in registers.
 *
 * Rows in shared memory are D + 8 elements apart: an odd number of 16 bytes, so that the eight rows of a matrix load
 * lie in different banks, and all of a lane's addresses are one register and a constant.
 */
#ifndef HT_CUDA_ATTENTION_MMA_CUH
#define HT_CUDA_ATTENTION_MMA_CUH

#include "common/kernels/cuda/attention.cuh"
#include "common/kernels/cuda/ptx.cuh"
#include "common/kernels/cuda/rotary.cuh"

#define HT_LOG2E 1.4426950408889634f

enum { HT_MMA_OWN = 128 }; /* rows of a result per block */

/* Copies rows first .. first + ROWS - 1 of a head to shared memory, zeros beyond row n. When the threads make whole
   rows, each copies one column, and goes down by a fixed step. */
template <int D, int ROWS, int THREADS, class T>
__device__ __forceinline__ void ht_copy_tile(T *to, const T *from, int64_t stride, int first, int n)
{
    enum { PER_ROW = D / 8, N = ROWS * PER_ROW, STEP = THREADS / PER_ROW };
    int tid = ht_fresh((int)threadIdx.x), left = n - first; /* left: rows that exist */
    if (THREADS % PER_ROW == 0) {
        int row = tid / PER_ROW, column = tid % PER_ROW * 8;
        const T *at = from + (first + row) * stride + column;
#pragma unroll
        for (int i = 0; i < ROWS / STEP; i++, at += STEP * stride)
            ht_copy_16(to + (row + i * STEP) * (D + 8) + column, at, row + i * STEP < left);
        return;
    }
    from += first * stride;
#pragma unroll
    for (int pass = 0; pass < (N + THREADS - 1) / THREADS; pass++) {
        int i = tid + pass * THREADS, row = i / PER_ROW, column = i % PER_ROW * 8;
        if (N % THREADS == 0 || i < N) /* within a tile offsets are 32-bit */
            ht_copy_16(to + row * (D + 8) + column, from + (row * (int)stride + column), row < left);
    }
}

/* Loads an A fragment: 16 rows from `rows` on, columns 16 k .. 16 k + 15. */
template <int D, class T> __device__ __forceinline__ void ht_left(uint32_t a[4], const T *rows, int k)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_load_matrix(a, rows + lane % 16 * (D + 8) + 16 * k + lane / 16 * 8);
}

/* Loads B fragments of two column tiles of a factor stored transposed: rows 16 n .. of `rows` are its columns. */
template <int D, class T>
__device__ __forceinline__ void ht_right_transposed(uint32_t b[4], const T *rows, int n, int k)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_load_matrix(b, rows + (16 * n + lane % 8 + lane / 16 * 8) * (D + 8) + 16 * k + lane / 8 % 2 * 8);
}

/* Loads B fragments of two column tiles of a factor stored as it is: rows 16 k .. are its rows, columns 16 n .. its
   columns. */
template <int D, class T> __device__ __forceinline__ void ht_right(uint32_t b[4], const T *rows, int n, int k)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_load_matrix_transposed(b, rows + (16 * k + lane % 16) * (D + 8) + 16 * n + lane / 16 * 8);
}

/* Makes the left factor's fragment from columns 16 k .. 16 k + 15 of a product. */
template <class T> __device__ __forceinline__ void ht_as_left(uint32_t a[4], float (*s)[4], int k)
{
    a[0] = ht_pair(T(), s[2 * k][0], s[2 * k][1]);
    a[1] = ht_pair(T(), s[2 * k][2], s[2 * k][3]);
    a[2] = ht_pair(T(), s[2 * k + 1][0], s[2 * k + 1][1]);
    a[3] = ht_pair(T(), s[2 * k + 1][2], s[2 * k + 1][3]);
}

/* Puts 16 rows of results, times `low` (rows 0-7) and `high`, into the warp's own rows of shared memory. */
template <int D, class T>
__device__ __forceinline__ void ht_put_rows(T *rows, float sum[D / 8][4], float low, float high)
{
    int lane = (int)threadIdx.x % HT_WARP, g = lane / 4, t = lane % 4;
    __syncwarp();
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
        *(uint32_t *)(rows + g * (D + 8) + 8 * c + 2 * t) = ht_pair(T(), sum[c][0] * low, sum[c][1] * low);
        *(uint32_t *)(rows + (g + 8) * (D + 8) + 8 * c + 2 * t) = ht_pair(T(), sum[c][2] * high, sum[c][3] * high);
    }
    __syncwarp();
}

/* Writes 16 rows of results, times `low` (rows 0-7) and `high`, to rows first .. of `to` that are before n, through the
   warp's own rows of shared memory. */
template <int D, class T>
__device__ __forceinline__ void ht_write_rows(T *rows, float sum[D / 8][4], float low, float high, T *to,
                                              int64_t stride, int first, int n)
{
    int lane = (int)threadIdx.x % HT_WARP;
    ht_put_rows<D>(rows, sum, low, high);
#pragma unroll
    for (int i = lane; i < 16 * (D / 8); i += HT_WARP) {
        int row = i / (D / 8), column = i % (D / 8) * 8;
        if (first + row < n)
            *(uint4 *)(to + (first + row) * stride + column) = *(const uint4 *)(rows + row * (D + 8) + column);
    }
}

/* Writes 16 rows of dq or dk likewise, rotated if h has turns. They are rounded before they are rotated. ALL: there are
   no turns. */
template <int D, bool ALL, class T>
__device__ __forceinline__ void ht_write_rotated(const ht_heads<T> &h, T *rows, float sum[D / 8][4], T *to, int first)
{
    enum { HALF = D / 2, PER_ROW = HALF / 8 };
    int lane = ht_fresh((int)threadIdx.x) % HT_WARP;
    if (ALL || !h.turns) {
        ht_write_rows<D>(rows, sum, h.scale, h.scale, to, h.stride, first, h.seq);
        return;
    }
    ht_put_rows<D>(rows, sum, h.scale, h.scale);
    for (int i = lane; i < 16 * PER_ROW; i += HT_WARP) {
        int row = i / PER_ROW, column = i % PER_ROW * 8;
        if (first + row >= h.seq) continue;
        const T *from = rows + row * (D + 8) + column;
        const float *cosine = h.turns + (int64_t)(first + row) * HALF + column, *sine = cosine + (int64_t)h.seq * HALF;
        ht_pack<T, 8> low = ht_pack_at<T, 8>(from), high = ht_pack_at<T, 8>(from + HALF);
#pragma unroll
        for (int k = 0; k < 8; k++) ht_rotate_pair({cosine[k], sine[k]}, &low.x[k], &high.x[k]);
        ht_pack_to<T, 8>(to + (first + row) * h.stride + column, low);
        ht_pack_to<T, 8>(to + (first + row) * h.stride + column + HALF, high);
    }
}

#endif
