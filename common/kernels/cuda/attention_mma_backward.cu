/*
 * Attention's backward pass on the tensor cores (attention_mma.cuh). A block of 8 warps owns 128 rows and keeps their
 * left factors in registers. It loops over the rows of the other side, of which shared memory holds two stages.
 */
#include "common/kernels/cuda/attention_mma.cuh"

enum { WARPS = 8, THREADS = WARPS * HT_WARP };
static_assert(16 * WARPS == HT_MMA_OWN, "a warp owns 16 rows");

/* Heads of 128 have 128 registers of sums over queries: keys go through 32 of these a turn, and only K, not V, fits in
   the rest. */
template <int D> struct shape {
    static const bool KEEPS_V = D <= 96;
    enum {
        STRIDE = D + 8,
        OWN = HT_MMA_OWN * STRIDE, /* elements */
        KEYS_TURN = KEEPS_V ? 64 : 32,
        QUERIES_TURN = 64,
        STATS = 2 * KEYS_TURN, /* floats of a stage: lse, dot */
        KEYS_ROWS = 4 * KEYS_TURN + (KEEPS_V ? 0 : HT_MMA_OWN),
        KEYS_BYTES = KEYS_ROWS * STRIDE * 2 + 2 * STATS * 4,
        QUERIES_BYTES = 4 * QUERIES_TURN * STRIDE * 2
    };
    static_assert(KEYS_ROWS >= 2 * HT_MMA_OWN && 4 * QUERIES_TURN >= 2 * HT_MMA_OWN, "the owned rows pass through");
    static_assert(KEYS_BYTES <= 99 * 1024 && QUERIES_BYTES <= 99 * 1024, "what the smallest GPUs give a block");
};

/* Computes s (16,N) = left (16,D) right (N,D)^T; the left factor is in the fragments of `kept`, or in the rows of
   shared memory. */
template <int D, int N, class T>
static __device__ __forceinline__ void scores(float s[N / 8][4], const uint32_t (*kept)[4], const T *rows,
                                              const T *right)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[4], b[4];
        if (!kept) ht_left<D>(a, rows, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            ht_right_transposed<D>(b, right, n, k);
            ht_mma(T(), s[2 * n], kept ? kept[k] : a, b);
            ht_mma(T(), s[2 * n + 1], kept ? kept[k] : a, b + 2);
        }
    }
}

/* Computes sum (16,D) += left (16,N) right (N,D). */
template <int D, int N, class T>
static __device__ __forceinline__ void add_product(float sum[D / 8][4], float left[N / 8][4], const T *right)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
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

/* ---- keys and values ---- */

/* Starts copying rows q0 .. of Q and dO to a stage, and loads their statistics. Beyond the last row all are zeros, lse
   and dot, too: P is 1 there, dO and dS are 0. */
template <class T, int D>
static __device__ __forceinline__ void fetch_queries(const ht_heads<T> &h, int of_batch, int head, int q0, T *q,
                                                     T *dout, float *stats)
{
    enum { TURN = shape<D>::KEYS_TURN };
    int tid = ht_fresh((int)threadIdx.x), row = q0 + tid % TURN;
    int64_t batch = ht_fresh(of_batch);
    ht_copy_tile<D, TURN, THREADS>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq);
    ht_copy_tile<D, TURN, THREADS>(dout, h.dout + ht_out_at(h, batch, head), h.width, q0, h.seq);
    if (tid < 2 * TURN) {
        const float *from = tid < TURN ? h.lse : h.dot;
        ht_copy_4(stats + tid, from + (row < h.seq ? ht_stat_at(h, batch, head) + row : 0), row < h.seq);
    }
    ht_copy_commit();
}

template <class T, int D, bool ALL> static __global__ void __launch_bounds__(THREADS, 1) backward_keys(ht_heads<T> h)
{
    enum { STRIDE = shape<D>::STRIDE, TURN = shape<D>::KEYS_TURN, TILE = TURN * STRIDE, STATS = shape<D>::STATS };
    enum { N = TURN / 8 };
    const bool KEEPS_V = shape<D>::KEEPS_V;
    HT_DYNAMIC_SHARED(T, shared); /* stages of Q and dO; V, unless it is kept */
    float *stats = (float *)(shared + shape<D>::KEYS_ROWS * STRIDE);
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, g = lane / 4, t = lane % 4;
    int kv_heads = h.heads / h.sharing, kv_head = (int)blockIdx.x % kv_heads;
    int k0 = (int)blockIdx.y * HT_MMA_OWN; /* the first keys are seen by the most queries */
    int own = k0 + 16 * warp, first_query = ht_first_query(ALL, k0);
    int batch = (int)(blockIdx.x / (unsigned)kv_heads);
    float scale_log2 = h.scale * HT_LOG2E;
    T *own_k = shared + 16 * warp * STRIDE, *own_v = own_k + shape<D>::OWN;
    ht_copy_tile<D, HT_MMA_OWN, THREADS>(shared, h.qkv + ht_k_at(h, batch, kv_head), h.stride, k0, h.seq);
    ht_copy_tile<D, HT_MMA_OWN, THREADS>(shared + shape<D>::OWN, h.qkv + ht_v_at(h, batch, kv_head), h.stride, k0,
                                         h.seq);
    ht_copy_commit();
    float dk[D / 8][4], dv[D / 8][4];
#pragma unroll
    for (int c = 0; c < D / 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) dk[c][e] = dv[c][e] = 0;
    uint32_t k[D / 16][4], v[KEEPS_V ? D / 16 : 1][4];
    ht_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        ht_left<D>(k[i], own_k, i);
        if (KEEPS_V) ht_left<D>(v[KEEPS_V ? i : 0], own_v, i);
    }
    __syncthreads(); /* the stages are free */
    int head = kv_head * h.sharing, end = head + h.sharing, stage = 0;
    fetch_queries<T, D>(h, batch, head, first_query, shared, shared + TILE, stats);
    for (int q0 = first_query; head < end; stage ^= 1) {
        bool last = q0 + TURN >= h.seq;
        int next = last ? first_query : q0 + TURN, next_head = head + last;
        ht_copy_wait<0>();
        __syncthreads(); /* this turn's tiles have arrived, the last one's are free */
        if (next_head < end) {
            T *to = shared + (stage ^ 1) * 2 * TILE;
            fetch_queries<T, D>(h, batch, next_head, next, to, to + TILE, stats + (stage ^ 1) * STATS);
        }
        if (ALL || own < q0 + TURN) { /* some of these queries see some of the warp's keys */
            const T *q = shared + stage * 2 * TILE, *dout = q + TILE;
            const float *lse = stats + stage * STATS + 2 * t, *dot = lse + TURN;
            float p[N][4], dp[N][4];
            scores<D, TURN>(p, k, own_k, q); /* transposed: keys are rows */
#pragma unroll
            for (int n = 0; n < N; n++) {
                ht_pack<float, 2> l = ht_pack_at<float, 2>(lse + 8 * n);
#pragma unroll
                for (int e = 0; e < 4; e++) p[n][e] = ht_exp2(fmaf(p[n][e], scale_log2, -HT_LOG2E * l.x[e % 2]));
            }
            if (!ALL && own + 15 > q0) { /* the diagonal */
                int first = own + g - q0 - 2 * t;
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (8 * n + e % 2 - e / 2 * 8 < first) p[n][e] = 0;
            }
            add_product<D, TURN>(dv, p, dout);
            scores<D, TURN>(dp, KEEPS_V ? v : NULL, own_v, dout);
#pragma unroll
            for (int n = 0; n < N; n++) {
                ht_pack<float, 2> x = ht_pack_at<float, 2>(dot + 8 * n);
#pragma unroll
                for (int e = 0; e < 4; e++) dp[n][e] = p[n][e] * (dp[n][e] - x.x[e % 2]);
            }
            add_product<D, TURN>(dk, dp, q);
        }
        q0 = next;
        head = next_head;
    }
    __syncthreads(); /* the last stage has been read */
    ht_write_rotated<D, ALL>(h, own_k, dk, h.dqkv + ht_k_at(h, batch, kv_head), own);
    ht_write_rows<D>(own_v, dv, 1, 1, h.dqkv + ht_v_at(h, batch, kv_head), h.stride, own, h.seq);
}

/* ---- queries ---- */

template <class T, int D, bool ALL> static __global__ void __launch_bounds__(THREADS) backward_queries(ht_heads<T> h)
{
    enum { STRIDE = shape<D>::STRIDE, TURN = shape<D>::QUERIES_TURN, TILE = TURN * STRIDE, N = TURN / 8 };
    HT_DYNAMIC_SHARED(T, shared); /* stages of K and V */
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, g = lane / 4, t = lane % 4;
    int head = (int)blockIdx.x % h.heads, q0 = (int)(gridDim.y - 1 - blockIdx.y) * HT_MMA_OWN; /* longest first */
    int64_t batch = blockIdx.x / (unsigned)h.heads;
    const T *from_k = h.qkv + ht_k_at(h, batch, head / h.sharing),
            *from_v = h.qkv + ht_v_at(h, batch, head / h.sharing);
    int end = ht_keys_before(ALL, q0 + HT_MMA_OWN, h.seq), own = q0 + 16 * warp;
    T *own_q = shared + 16 * warp * STRIDE, *own_dout = own_q + shape<D>::OWN;
    ht_copy_tile<D, HT_MMA_OWN, THREADS>(shared, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq);
    ht_copy_tile<D, HT_MMA_OWN, THREADS>(shared + shape<D>::OWN, h.dout + ht_out_at(h, batch, head), h.width, q0,
                                         h.seq);
    ht_copy_commit();
    float scale_log2 = h.scale * HT_LOG2E, lse[2], dot[2], dq[D / 8][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int r = own + g + 8 * half;
        int64_t at = ht_stat_at(h, batch, head) + r;
        lse[half] = r < h.seq ? h.lse[at] * HT_LOG2E : 0;
        dot[half] = r < h.seq ? h.dot[at] : 0;
    }
#pragma unroll
    for (int c = 0; c < D / 8; c++) dq[c][0] = dq[c][1] = dq[c][2] = dq[c][3] = 0;
    uint32_t q[D / 16][4], dout[D / 16][4];
    ht_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        ht_left<D>(q[i], own_q, i);
        ht_left<D>(dout[i], own_dout, i);
    }
    __syncthreads(); /* the stages are free */
    ht_copy_tile<D, TURN, THREADS>(shared, from_k, h.stride, 0, h.seq);
    ht_copy_tile<D, TURN, THREADS>(shared + TILE, from_v, h.stride, 0, h.seq);
    ht_copy_commit();
    for (int k0 = 0, stage = 0; k0 < end; k0 += TURN, stage ^= 1) {
        ht_copy_wait<0>();
        __syncthreads(); /* this turn's tiles have arrived, and the last one's are no longer needed */
        if (k0 + TURN < end) {
            T *to = shared + (stage ^ 1) * 2 * TILE;
            ht_copy_tile<D, TURN, THREADS>(to, from_k, h.stride, k0 + TURN, h.seq);
            ht_copy_tile<D, TURN, THREADS>(to + TILE, from_v, h.stride, k0 + TURN, h.seq);
            ht_copy_commit();
        }
        if (!ALL && k0 > own + 15) continue; /* none of the warp's queries sees any of these keys */
        const T *k = shared + stage * 2 * TILE, *v = k + TILE;
        float p[N][4], dp[N][4];
        scores<D, TURN>(p, q, own_q, k);
        scores<D, TURN>(dp, dout, own_dout, v);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                p[n][e] = ht_exp2(fmaf(p[n][e], scale_log2, -lse[e / 2])) * (dp[n][e] - dot[e / 2]);
        if (ALL && k0 + TURN > h.seq) { /* what is beyond the last token: its P may be infinite */
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (k0 + 8 * n + 2 * t + e % 2 >= h.seq) p[n][e] = 0;
        }
        if (!ALL && k0 + TURN - 1 > own) { /* the diagonal */
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (k0 + 8 * n + 2 * t + e % 2 > own + g + e / 2 * 8) p[n][e] = 0;
        }
        add_product<D, TURN>(dq, p, k);
    }
    __syncthreads(); /* the last stage has been read */
    ht_write_rotated<D, ALL>(h, own_q, dq, h.dqkv + ht_q_at(h, batch, head), own);
}

/* ---- launches ---- */

template <class T, int D, bool ALL> static bool launch(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    enum { KEYS = shape<D>::KEYS_BYTES, QUERIES = shape<D>::QUERIES_BYTES };
    unsigned tiles = (unsigned)((a->seq + HT_MMA_OWN - 1) / HT_MMA_OWN);
    dim3 keys((unsigned)(a->batch * a->kv_heads), tiles), queries((unsigned)(a->batch * a->heads), tiles);
    HT_ALLOW_SHARED(cuda, (backward_keys<T, D, ALL>), KEYS);
    HT_LAUNCH(cuda, (backward_keys<T, D, ALL>), keys, dim3(THREADS), KEYS, ht_heads_of<T>(a));
    HT_ALLOW_SHARED(cuda, (backward_queries<T, D, ALL>), QUERIES);
    HT_LAUNCH(cuda, (backward_queries<T, D, ALL>), queries, dim3(THREADS), QUERIES, ht_heads_of<T>(a));
    return true;
}

template <class T, bool ALL> static bool backward_as(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
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

/* a->scratch holds the rows' dots. */
bool ht_attention_mma_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    if (a->dtype == HT_F16)
        return a->bidirectional ? backward_as<ht_f16, true>(cuda, a) : backward_as<ht_f16, false>(cuda, a);
    if (a->dtype == HT_BF16)
        return a->bidirectional ? backward_as<ht_bf16, true>(cuda, a) : backward_as<ht_bf16, false>(cuda, a);
    return false;
}
