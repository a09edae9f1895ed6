/*
 * Attention for FP32 and for head sizes that the tensor-core kernels do not cover. The algorithm is theirs
 * (attention_mma.cuh), in FP32 arithmetic on the ordinary cores.
 *
 * The 256 threads form a square of 16 by 16. With tiles of R rows each thread computes R/16 by R/16 scores and R/16 by
 * WIDE/16 elements of a result. Tiles are FP32 in shared memory with a row stride of WIDE + 1, so that neither rows nor
 * columns share a bank. WIDE is the head size rounded up; the columns beyond the head size are 0. R is the largest that
 * fits into the 99 KB that the smallest GPUs give a block.
 */
#include "common/kernels/cuda/attention.cuh"
#include "common/kernels/cuda/rotary.cuh"

enum { SIDE = 16, THREADS = SIDE * SIDE };

template <int WIDE> struct shape {
    enum {
        ROWS = WIDE > 128  ? 16
               : WIDE > 64 ? 32
                           : 64,
        STRIDE = WIDE + 1,
        TILE = ROWS * STRIDE,       /* floats */
        SCORES = ROWS * (ROWS + 1), /* floats */
        N = ROWS / SIDE,            /* scores of a thread, each way */
        COLUMNS = WIDE / SIDE,      /* of a result, of a thread */
        FORWARD_BYTES = (2 * TILE + SCORES) * 4,
        BACKWARD_BYTES = (4 * TILE + 2 * ROWS) * 4 + SCORES * 4
    };
    static_assert(BACKWARD_BYTES <= 99 * 1024, "what the smallest GPUs give a block");
};

/* Copies rows first .. of a head to shared memory; 0 beyond row n and column D. */
template <int WIDE, class T>
static __device__ void fill(float *to, const T *from, int64_t stride, int first, int n, int D)
{
    for (int i = (int)threadIdx.x; i < shape<WIDE>::ROWS * WIDE; i += THREADS) {
        int row = i / WIDE, column = i % WIDE;
        bool valid = first + row < n && column < D;
        to[row * (WIDE + 1) + column] = valid ? ht_load(from[(first + row) * stride + column]) : 0;
    }
}

/* Computes s[i][j] = row (y + 16 i) of a times row (x + 16 j) of b. */
template <int WIDE>
static __device__ void row_products(float s[shape<WIDE>::N][shape<WIDE>::N], const float *a, const float *b, int y,
                                    int x, int D)
{
    enum { N = shape<WIDE>::N, STRIDE = shape<WIDE>::STRIDE };
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) s[i][j] = 0;
    for (int d = 0; d < D; d++) {
        float left[N], right[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            left[i] = a[(y + SIDE * i) * STRIDE + d];
            right[i] = b[(x + SIDE * i) * STRIDE + d];
        }
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++) s[i][j] = fmaf(left[i], right[j], s[i][j]);
    }
}

/* Computes sum[i][c] += over k of s[row (y + 16 i)][k] b[k][x + 16 c]; transposed: s[k][row]. */
template <int WIDE, bool TRANSPOSED>
static __device__ void add_product(float sum[shape<WIDE>::N][shape<WIDE>::COLUMNS], const float *s, const float *b,
                                   int y, int x)
{
    enum { N = shape<WIDE>::N, ROWS = shape<WIDE>::ROWS, STRIDE = shape<WIDE>::STRIDE, C = shape<WIDE>::COLUMNS };
    for (int k = 0; k < ROWS; k++) {
        float left[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            left[i] = TRANSPOSED ? s[k * (ROWS + 1) + y + SIDE * i] : s[(y + SIDE * i) * (ROWS + 1) + k];
#pragma unroll
        for (int c = 0; c < C; c++) {
            float right = b[k * STRIDE + x + SIDE * c];
#pragma unroll
            for (int i = 0; i < N; i++) sum[i][c] = fmaf(left[i], right, sum[i][c]);
        }
    }
}

template <int WIDE> static __device__ void clear(float sum[shape<WIDE>::N][shape<WIDE>::COLUMNS])
{
    for (int i = 0; i < shape<WIDE>::N; i++)
        for (int c = 0; c < shape<WIDE>::COLUMNS; c++) sum[i][c] = 0;
}

template <int WIDE, class T>
static __device__ void write(T *to, int64_t stride, float sum[shape<WIDE>::N][shape<WIDE>::COLUMNS], float factor,
                             int first, int n, int D, int y, int x)
{
    for (int i = 0; i < shape<WIDE>::N; i++)
#pragma unroll
        for (int c = 0; c < shape<WIDE>::COLUMNS; c++) {
            int row = first + y + SIDE * i, column = x + SIDE * c;
            if (row < n && column < D) to[row * stride + column] = ht_store<T>(sum[i][c] * factor);
        }
}

/* Writes dq or dk, times the scale and rounded, then rotated if h has turns, through `tile`, which nobody reads any more. */
template <int WIDE, class T>
static __device__ void write_rotated(const ht_heads<T> &h, T *to, float sum[shape<WIDE>::N][shape<WIDE>::COLUMNS],
                                     float *tile, int first, int y, int x)
{
    enum { ROWS = shape<WIDE>::ROWS, STRIDE = shape<WIDE>::STRIDE };
    int D = h.head_size, half = (D + 1) / 2;
    for (int i = 0; i < shape<WIDE>::N; i++)
#pragma unroll
        for (int c = 0; c < shape<WIDE>::COLUMNS; c++)
            tile[(y + SIDE * i) * STRIDE + x + SIDE * c] = ht_load(ht_store<T>(sum[i][c] * h.scale));
    __syncthreads(); /* the pairs are complete */
    for (int i = (int)threadIdx.x; i < ROWS * half && first + i / half < h.seq; i += THREADS) {
        int row = i / half, column = i % half;
        const float *from = tile + row * STRIDE + column;
        T low = ht_store<T>(from[0]), high = ht_store<T>(from[half]), *at = to + (first + row) * h.stride + column;
        if (h.turns) {
            const float *cosine = h.turns + (int64_t)(first + row) * half + column;
            ht_rotate_pair({*cosine, cosine[(int64_t)h.seq * half]}, &low, &high);
        }
        at[0] = low;
        if (column + half < D) at[half] = high;
    }
}

/* Folds x over a row of 16 threads: half a warp. */
template <class Op> static __device__ __forceinline__ float fold_row(float x)
{
    for (int by = SIDE / 2; by > 0; by /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

/* Returns true when a query sees a key. The answer does not matter for a query beyond the last one. */
template <class T> static __device__ __forceinline__ bool sees(const ht_heads<T> &h, int query, int key)
{
    return h.bidirectional ? key < h.seq : key <= query;
}

template <class T, int WIDE> __global__ void __launch_bounds__(THREADS, 2) general_forward(ht_heads<T> h)
{
    enum { N = shape<WIDE>::N, ROWS = shape<WIDE>::ROWS };
    HT_DYNAMIC_SHARED(float, shared);
    float *q = shared, *kv = q + shape<WIDE>::TILE, *p = kv + shape<WIDE>::TILE;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE, D = h.head_size;
    int head = (int)blockIdx.x % h.heads, q0 = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int64_t batch = blockIdx.x / (unsigned)h.heads;
    int end = ht_keys_before(h.bidirectional, q0 + ROWS, h.seq);
    float o[N][shape<WIDE>::COLUMNS], max[N], sum[N];
    clear<WIDE>(o);
    for (int i = 0; i < N; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    fill<WIDE>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq, D);
    for (int k0 = 0; k0 < end; k0 += ROWS) {
        float s[N][N];
        __syncthreads(); /* the last turn's values and P are no longer needed */
        fill<WIDE>(kv, h.qkv + ht_k_at(h, batch, head / h.sharing), h.stride, k0, h.seq, D);
        __syncthreads();
        row_products<WIDE>(s, q, kv, y, x, D);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float top = max[i], row = 0;
            for (int j = 0; j < N; j++) {
                s[i][j] = sees(h, q0 + y + SIDE * i, k0 + x + SIDE * j) ? s[i][j] * h.scale : -INFINITY;
                top = fmaxf(top, s[i][j]);
            }
            top = fold_row<ht_max>(top);
            float shrink = expf(max[i] - top);
            max[i] = top;
            for (int j = 0; j < N; j++) {
                float e = expf(s[i][j] - top);
                row += e;
                p[(y + SIDE * i) * (ROWS + 1) + x + SIDE * j] = e;
            }
            sum[i] = sum[i] * shrink + fold_row<ht_add>(row);
            for (int c = 0; c < shape<WIDE>::COLUMNS; c++) o[i][c] *= shrink;
        }
        __syncthreads(); /* all have read the keys; P is written */
        fill<WIDE>(kv, h.qkv + ht_v_at(h, batch, head / h.sharing), h.stride, k0, h.seq, D);
        __syncthreads();
        add_product<WIDE, false>(o, p, kv, y, x);
    }
    for (int i = 0; i < N; i++) {
        int row = q0 + y + SIDE * i;
        if (x == 0 && row < h.seq) h.lse[ht_stat_at(h, batch, head) + row] = max[i] + logf(sum[i]);
        for (int c = 0; c < shape<WIDE>::COLUMNS; c++) o[i][c] /= sum[i];
    }
    write<WIDE>(h.to + ht_out_at(h, batch, head), h.width, o, 1, q0, h.seq, D, y, x);
}

/* Computes P of a tile, query rows q0 .. and keys k0 ..: thread (y, x) makes rows y + 16 i and columns x + 16 j. P is 0
   for a key that a query does not see. */
template <int WIDE, class T>
static __device__ void tile_p(const ht_heads<T> &h, float p[shape<WIDE>::N][shape<WIDE>::N], const float *q,
                              const float *k, const float *lse, int q0, int k0, int y, int x)
{
    row_products<WIDE>(p, q, k, y, x, h.head_size);
    for (int i = 0; i < shape<WIDE>::N; i++)
        for (int j = 0; j < shape<WIDE>::N; j++) {
            bool seen = sees(h, q0 + y + SIDE * i, k0 + x + SIDE * j);
            p[i][j] = seen ? expf(p[i][j] * h.scale - lse[y + SIDE * i]) : 0;
        }
}

/* Turns P into dS, without the scale. */
template <int WIDE>
static __device__ void tile_ds(float p[shape<WIDE>::N][shape<WIDE>::N], const float *dout, const float *v,
                               const float *dot, int y, int x, int D)
{
    float dp[shape<WIDE>::N][shape<WIDE>::N];
    row_products<WIDE>(dp, dout, v, y, x, D);
    for (int i = 0; i < shape<WIDE>::N; i++)
        for (int j = 0; j < shape<WIDE>::N; j++) p[i][j] *= dp[i][j] - dot[y + SIDE * i];
}

template <int WIDE> static __device__ void put(float *to, float s[shape<WIDE>::N][shape<WIDE>::N], int y, int x)
{
    for (int i = 0; i < shape<WIDE>::N; i++)
        for (int j = 0; j < shape<WIDE>::N; j++) to[(y + SIDE * i) * (shape<WIDE>::ROWS + 1) + x + SIDE * j] = s[i][j];
}

/* Loads the statistics of query rows q0 ..; beyond the last row lse is infinity, and so P = 0. */
template <int WIDE, class T>
static __device__ void fill_stats(const ht_heads<T> &h, int64_t batch, int head, int q0, float *lse, float *dot)
{
    int i = (int)threadIdx.x, row = q0 + i;
    if (i >= shape<WIDE>::ROWS) return;
    lse[i] = row < h.seq ? h.lse[ht_stat_at(h, batch, head) + row] : INFINITY;
    dot[i] = row < h.seq ? h.dot[ht_stat_at(h, batch, head) + row] : 0;
}

template <class T, int WIDE> __global__ void __launch_bounds__(THREADS, 2) general_backward_keys(ht_heads<T> h)
{
    enum { N = shape<WIDE>::N, ROWS = shape<WIDE>::ROWS, TILE = shape<WIDE>::TILE };
    HT_DYNAMIC_SHARED(float, shared);
    float *k = shared, *v = k + TILE, *q = v + TILE, *dout = q + TILE, *s = dout + TILE;
    float *lse = s + shape<WIDE>::SCORES, *dot = lse + ROWS;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE, D = h.head_size;
    int kv_heads = h.heads / h.sharing, kv_head = (int)blockIdx.x % kv_heads, k0 = (int)blockIdx.y * ROWS;
    int64_t batch = blockIdx.x / (unsigned)kv_heads;
    float dk[N][shape<WIDE>::COLUMNS], dv[N][shape<WIDE>::COLUMNS];
    clear<WIDE>(dk);
    clear<WIDE>(dv);
    fill<WIDE>(k, h.qkv + ht_k_at(h, batch, kv_head), h.stride, k0, h.seq, D);
    fill<WIDE>(v, h.qkv + ht_v_at(h, batch, kv_head), h.stride, k0, h.seq, D);
    for (int head = kv_head * h.sharing; head < (kv_head + 1) * h.sharing; head++)
        for (int q0 = ht_first_query(h.bidirectional, k0); q0 < h.seq; q0 += ROWS) {
            float p[N][N];
            __syncthreads(); /* the last turn's dS and queries are no longer needed */
            fill<WIDE>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq, D);
            fill<WIDE>(dout, h.dout + ht_out_at(h, batch, head), h.width, q0, h.seq, D);
            fill_stats<WIDE>(h, batch, head, q0, lse, dot);
            __syncthreads();
            tile_p<WIDE>(h, p, q, k, lse, q0, k0, y, x);
            put<WIDE>(s, p, y, x);
            __syncthreads();
            add_product<WIDE, true>(dv, s, dout, y, x);
            tile_ds<WIDE>(p, dout, v, dot, y, x, D);
            __syncthreads(); /* all have read P */
            put<WIDE>(s, p, y, x);
            __syncthreads();
            add_product<WIDE, true>(dk, s, q, y, x);
        }
    write<WIDE>(h.dqkv + ht_v_at(h, batch, kv_head), h.stride, dv, 1, k0, h.seq, D, y, x);
    write_rotated<WIDE>(h, h.dqkv + ht_k_at(h, batch, kv_head), dk, k, k0, y, x);
}

template <class T, int WIDE> __global__ void __launch_bounds__(THREADS, 2) general_backward_queries(ht_heads<T> h)
{
    enum { N = shape<WIDE>::N, ROWS = shape<WIDE>::ROWS, TILE = shape<WIDE>::TILE };
    HT_DYNAMIC_SHARED(float, shared);
    float *k = shared, *v = k + TILE, *q = v + TILE, *dout = q + TILE, *s = dout + TILE;
    float *lse = s + shape<WIDE>::SCORES, *dot = lse + ROWS;
    int y = (int)threadIdx.x / SIDE, x = (int)threadIdx.x % SIDE, D = h.head_size;
    int head = (int)blockIdx.x % h.heads, q0 = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    int64_t batch = blockIdx.x / (unsigned)h.heads;
    float dq[N][shape<WIDE>::COLUMNS];
    clear<WIDE>(dq);
    fill<WIDE>(q, h.qkv + ht_q_at(h, batch, head), h.stride, q0, h.seq, D);
    fill<WIDE>(dout, h.dout + ht_out_at(h, batch, head), h.width, q0, h.seq, D);
    fill_stats<WIDE>(h, batch, head, q0, lse, dot);
    for (int k0 = 0, end = ht_keys_before(h.bidirectional, q0 + ROWS, h.seq); k0 < end; k0 += ROWS) {
        float p[N][N];
        __syncthreads(); /* the last turn's dS and keys are no longer needed */
        fill<WIDE>(k, h.qkv + ht_k_at(h, batch, head / h.sharing), h.stride, k0, h.seq, D);
        fill<WIDE>(v, h.qkv + ht_v_at(h, batch, head / h.sharing), h.stride, k0, h.seq, D);
        __syncthreads();
        tile_p<WIDE>(h, p, q, k, lse, q0, k0, y, x);
        tile_ds<WIDE>(p, dout, v, dot, y, x, D);
        put<WIDE>(s, p, y, x);
        __syncthreads();
        add_product<WIDE, false>(dq, s, k, y, x);
    }
    write_rotated<WIDE>(h, h.dqkv + ht_q_at(h, batch, head), dq, q, q0, y, x);
}

/* ---- launches ---- */

template <class T, int WIDE> static void run_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    enum { BYTES = shape<WIDE>::FORWARD_BYTES, ROWS = shape<WIDE>::ROWS };
    dim3 grid((unsigned)(a->batch * a->heads), (unsigned)((a->seq + ROWS - 1) / ROWS));
    HT_ALLOW_SHARED(cuda, (general_forward<T, WIDE>), BYTES);
    HT_LAUNCH(cuda, (general_forward<T, WIDE>), grid, dim3(THREADS), BYTES, ht_heads_of<T>(a));
}

template <class T, int WIDE> static void run_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    enum { BYTES = shape<WIDE>::BACKWARD_BYTES, ROWS = shape<WIDE>::ROWS };
    unsigned tiles = (unsigned)((a->seq + ROWS - 1) / ROWS);
    HT_ALLOW_SHARED(cuda, (general_backward_keys<T, WIDE>), BYTES);
    HT_LAUNCH(cuda, (general_backward_keys<T, WIDE>), dim3((unsigned)(a->batch * a->kv_heads), tiles), dim3(THREADS),
              BYTES, ht_heads_of<T>(a));
    HT_ALLOW_SHARED(cuda, (general_backward_queries<T, WIDE>), BYTES);
    HT_LAUNCH(cuda, (general_backward_queries<T, WIDE>), dim3((unsigned)(a->batch * a->heads), tiles), dim3(THREADS),
              BYTES, ht_heads_of<T>(a));
}

void ht_attention_general_forward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    HT_WITH_TYPE(a->dtype, {
        if (a->head_size <= 64)
            run_forward<T, 64>(cuda, a);
        else if (a->head_size <= 128)
            run_forward<T, 128>(cuda, a);
        else
            run_forward<T, 256>(cuda, a);
    })
}

void ht_attention_general_backward(struct ht_cuda *cuda, const struct ht_cuda_attention *a)
{
    HT_WITH_TYPE(a->dtype, {
        if (a->head_size <= 64)
            run_backward<T, 64>(cuda, a);
        else if (a->head_size <= 128)
            run_backward<T, 128>(cuda, a);
        else
            run_backward<T, 256>(cuda, a);
    })
}
