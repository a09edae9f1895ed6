/*
 * Attention's forward pass on the tensor cores (attention_mma.cuh). A block of 4 warps owns 128 queries and loops over
 * the keys, 64 a turn. The values are copied while a turn multiplies Q and K; the next turn's keys are copied while it
 * multiplies P and V.
 */
#include "common/kernels/cuda/attention_mma.cuh"

enum { WARPS = 4, THREADS = WARPS * HT_WARP, TURN = 64, ROWS = HT_MMA_OWN / WARPS, M = ROWS / 16 };

template <int D> struct shape {
    enum { STRIDE = D + 8, TILE = TURN * STRIDE, OWN = HT_MMA_OWN * STRIDE, BYTES = (OWN + 2 * TILE) * 2 };
    static_assert(BYTES <= 99 * 1024, "what the smallest GPUs give a block");
};

/* Adds one key tile to the running maximum, sum and output of 16 rows (Milakov and Gimelshein 2018); s becomes P. When
   no row of the warp has a new maximum, which is most of the time, nothing has to shrink. */
template <int D>
static __device__ __forceinline__ void online_softmax(float s[TURN / 8][4], float o[D / 8][4], float max[2],
                                                      float sum[2], float scale_log2)
{
    float top[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = max[half];
#pragma unroll
        for (int n = 0; n < TURN / 8; n++) top[half] = fmaxf(top[half], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
        top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
    }
    if (__any_sync(0xffffffffu, top[0] > max[0] || top[1] > max[1])) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float shrink = ht_exp2((max[half] - top[half]) * scale_log2);
            max[half] = top[half];
            sum[half] *= shrink;
#pragma unroll
            for (int c = 0; c < D / 8; c++) {
                o[c][2 * half] *= shrink;
                o[c][2 * half + 1] *= shrink;
            }
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float shift = max[half] * scale_log2;
#pragma unroll
        for (int n = 0; n < TURN / 8; n++)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; e++) {
                s[n][e] = ht_exp2(fmaf(s[n][e], scale_log2, -shift));
                sum[half] += s[n][e];
            }
    }
}

template <class T, int D, bool ALL> static __global__ void __launch_bounds__(THREADS) forward(ht_heads<T> h)
{
    enum { STRIDE = shape<D>::STRIDE, TILE = shape<D>::TILE };
    HT_DYNAMIC_SHARED(T, shared);
    T *q = shared, *k = q + shape<D>::OWN, *v = k + TILE;
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, g = lane / 4, t = lane % 4;
    int head = (int)blockIdx.x % h.heads, q0 = (int)(gridDim.y - 1 - blockIdx.y) * HT_MMA_OWN; /* longest first */
    int64_t batch = blockIdx.x / (unsigned)h.heads;
    const T *keys = h.qkv + ht_k_at(h, batch, head / h.sharing);
    int to_values = (int)(h.stride - h.width) / 2;         /* from a key's row */
    int end = ht_keys_before(ALL, q0 + HT_MMA_OWN, h.seq); /* no query of the block sees keys from here on */
    int first_row = q0 + warp * ROWS;                      /* the warp's */
    float scale_log2 = h.scale * HT_LOG2E;
    float o[M][D / 8][4], max[M][2], sum[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        max[m][0] = max[m][1] = -INFINITY;
        sum[m][0] = sum[m][1] = 0;
#pragma unroll
        for (int c = 0; c < D / 8; c++) o[m][c][0] = o[m][c][1] = o[m][c][2] = o[m][c][3] = 0;
    }
    ht_copy_tile<D, HT_MMA_OWN, THREADS>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq);
    ht_copy_tile<D, TURN, THREADS>(k, keys, h.stride, 0, h.seq);
    ht_copy_commit();
    for (int k0 = 0; k0 < end; k0 += TURN) {
        ht_copy_wait<0>();
        __syncthreads(); /* the keys have arrived, and the last values are no longer needed */
        ht_copy_tile<D, TURN, THREADS>(v, keys + to_values, h.stride, k0, h.seq);
        ht_copy_commit();
        bool sees = k0 < first_row + (ALL ? h.seq : ROWS); /* sees any of these keys */
        float s[M][TURN / 8][4];
        if (sees) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < TURN / 8; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                uint32_t a[M][4], b[4];
#pragma unroll
                for (int m = 0; m < M; m++) ht_left<D>(a[m], q + (warp * ROWS + 16 * m) * STRIDE, i);
#pragma unroll
                for (int n = 0; n < TURN / 16; n++) {
                    ht_right_transposed<D>(b, k, n, i);
#pragma unroll
                    for (int m = 0; m < M; m++) {
                        ht_mma(T(), s[m][2 * n], a[m], b);
                        ht_mma(T(), s[m][2 * n + 1], a[m], b + 2);
                    }
                }
            }
            if (k0 + TURN > (ALL ? h.seq : first_row)) { /* the diagonal, and what is beyond the last token */
                int behind = ht_fresh(ALL ? h.seq - 1 - 2 * t : first_row + g - 2 * t) - k0;
#pragma unroll
                for (int m = 0; m < M; m++)
#pragma unroll
                    for (int n = 0; n < TURN / 8; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++)
                            if (8 * n + e % 2 - (ALL ? 0 : 16 * m + e / 2 * 8) > behind) s[m][n][e] = -INFINITY;
            }
        }
        ht_copy_wait<0>();
        __syncthreads(); /* the values have arrived, and the keys are no longer needed */
        if (k0 + TURN < end) {
            ht_copy_tile<D, TURN, THREADS>(k, keys, h.stride, k0 + TURN, h.seq);
            ht_copy_commit();
        }
        if (!sees) continue;
#pragma unroll
        for (int m = 0; m < M; m++) online_softmax<D>(s[m], o[m], max[m], sum[m], scale_log2);
#pragma unroll
        for (int i = 0; i < TURN / 16; i++) {
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

/* ---- launches ---- */

template <class T, int D, bool ALL> static bool launch(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    enum { BYTES = shape<D>::BYTES };
    dim3 grid((unsigned)(a->batch * a->heads), (unsigned)((a->seq + HT_MMA_OWN - 1) / HT_MMA_OWN));
    HT_ALLOW_SHARED(cuda, (forward<T, D, ALL>), BYTES);
    HT_LAUNCH(cuda, (forward<T, D, ALL>), grid, dim3(THREADS), BYTES, ht_heads_of<T>(a));
    return true;
}

template <class T, bool ALL> static bool forward_as(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    switch (a->head_size) {
    case 64:
        return launch<T, 64, ALL>(cuda, a);
    case 80:
        return launch<T, 80, ALL>(cuda, a);
    case 96: /* with ALL, ptxas is a register short on sm_90 */
        return !ALL && launch<T, 96, false>(cuda, a);
    case 128:
        return launch<T, 128, ALL>(cuda, a);
    default:
        return false;
    }
}

bool ht_attention_mma_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    if (a->dtype == HT_F16)
        return a->bidirectional ? forward_as<ht_f16, true>(cuda, a) : forward_as<ht_f16, false>(cuda, a);
    if (a->dtype == HT_BF16)
        return a->bidirectional ? forward_as<ht_bf16, true>(cuda, a) : forward_as<ht_bf16, false>(cuda, a);
    return false;
}
