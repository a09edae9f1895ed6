/*
 * Embedding.
 *
 * Backward takes time linear in the tokens. A counting sort by token fills buckets in any order. Then one block per
 * bucket (and piece of the columns) sorts the bucket's positions in shared memory and adds up their rows in that order.
 * If a bucket does not fit into shared memory, the block finds its positions by a pass over all tokens.
 */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_ops.h"

enum { THREADS = 256 };

/* The rows of a vocabulary that a token table has: [first, first + count). */
struct tokens_of {
    int64_t first, count;
    __device__ __forceinline__ bool has(int32_t token) const { return token >= first && token - first < count; }
};

template <class T, int N>
__global__ void embed(const int32_t *tokens, struct tokens_of table, const T *wte, const T *wpe, const T *wtype, T *out,
                      int64_t seq, int64_t C)
{
    int64_t row = blockIdx.x;
    bool has = table.has(tokens[row]);
    const T *token = has ? wte + (tokens[row] - table.first) * C : NULL, *position = wpe ? wpe + row % seq * C : NULL;
    for (int64_t i = threadIdx.x; i < C / N; i += blockDim.x) {
        ht_pack<T, N> a;
        if (has)
            a = ht_pack_at<T, N>(token + i * N);
        else
            for (int k = 0; k < N; k++) a.x[k] = ht_store<T>(0);
        if (position) {
            ht_pack<T, N> b = ht_pack_at<T, N>(position + i * N);
            for (int k = 0; k < N; k++) a.x[k] = ht_store<T>(ht_load(a.x[k]) + ht_load(b.x[k]));
        }
        if (wtype) {
            ht_pack<T, N> b = ht_pack_at<T, N>(wtype + i * N);
            for (int k = 0; k < N; k++) a.x[k] = ht_store<T>(ht_load(a.x[k]) + ht_load(b.x[k]));
        }
        ht_pack_to<T, N>(out + row * C + i * N, a);
    }
}

void ht_cuda_embed(struct ht_cuda *cuda, enum ht_dtype dtype, const int32_t *tokens, int64_t first, int64_t vocab,
                   const void *wte, const void *wpe, const void *wtype, void *out, int64_t batch, int64_t seq,
                   int64_t C)
{
    struct tokens_of table = {first, vocab};
    dim3 grid((unsigned)(batch * seq));
    HT_WITH_TYPE(dtype, {
        enum { N = ht_wide<T>::N };
        if (ht_is_wide<T>(C, wte, wpe, out) && (uintptr_t)wtype % 16 == 0)
            HT_LAUNCH(cuda, (embed<T, N>), grid, ht_row_threads(C / N), 0, tokens, table, (const T *)wte,
                      (const T *)wpe, (const T *)wtype, (T *)out, seq, C);
        else
            HT_LAUNCH(cuda, (embed<T, 1>), grid, ht_row_threads(C), 0, tokens, table, (const T *)wte, (const T *)wpe,
                      (const T *)wtype, (T *)out, seq, C);
    })
}

/* Adds positions and the first type to rows that begin at row `begin` of the micro-batch; each sum is rounded. */
template <class T>
__global__ void add_positions(T *y, const T *wpe, const T *wtype, int64_t begin, int64_t n, int64_t seq, int64_t C)
{
    HT_EACH(i, n)
    {
        T sum = ht_store<T>(ht_load(y[i]) + ht_load(wpe[(begin + i / C) % seq * C + i % C]));
        y[i] = wtype ? ht_store<T>(ht_load(sum) + ht_load(wtype[i % C])) : sum;
    }
}

void ht_cuda_add_positions(struct ht_cuda *cuda, enum ht_dtype dtype, void *y, const void *wpe, const void *wtype,
                           int64_t begin, int64_t n_rows, int64_t seq, int64_t C)
{
    HT_WITH_TYPE(dtype, HT_LAUNCH(cuda, (add_positions<T>), ht_grid_for(n_rows * C, THREADS), THREADS, 0, (T *)y,
                                  (const T *)wpe, (const T *)wtype, begin, n_rows * C, seq, C))
}

/* ---- backward: positions ---- */

/* Computes rows of the position table's gradient: sums over the sequences, 0 beyond the sequence's length. */
template <class T, int N>
__global__ void embed_positions(const T *dout, struct ht_grad_type type, void *dwpe, int64_t batch, int64_t seq,
                                int64_t C, int64_t max_seq)
{
    HT_EACH(i, max_seq * C / N)
    {
        float sum[N];
        for (int k = 0; k < N; k++) sum[k] = 0;
        if (i * N < seq * C)
            for (int64_t b = 0; b < batch; b++) {
                ht_pack<T, N> d = ht_pack_at<T, N>(dout + b * seq * C + i * N);
                for (int k = 0; k < N; k++) sum[k] = b ? sum[k] + ht_load(d.x[k]) : ht_load(d.x[k]);
            }
        for (int k = 0; k < N; k++) ht_put_grad(type, dwpe, i * N + k, sum[k]);
    }
}

/* ---- backward: tokens ---- */

/* Layout of the scratch: at (V), then places (B T). Token v's bucket is places [at[v - 1], at[v]), once they are
   filled; v counts from the table's first token. Rows of other tokens are in no bucket. */
int64_t ht_cuda_embed_scratch_bytes(int64_t n_tokens, int64_t vocab)
{
    return (vocab + n_tokens) * (int64_t)sizeof(int32_t);
}

static __global__ void count_tokens(const int32_t *tokens, struct tokens_of table, int64_t n, int32_t *at)
{
    HT_EACH(i, n)
    {
        if (table.has(tokens[i])) atomicAdd(&at[tokens[i] - table.first], 1); /* integers: any order, the same sum */
    }
}

enum { SCANNERS = 1024, SCAN = 4 }; /* threads of a block; counts of a thread in a turn */

/* Turns counts into the beginnings of the buckets. */
static __global__ void __launch_bounds__(SCANNERS) begin_buckets(int32_t *at, int64_t vocab)
{
    __shared__ int32_t of_warp[SCANNERS / HT_WARP];
    int tid = (int)threadIdx.x, lane = tid % HT_WARP, warp = tid / HT_WARP;
    int32_t before = 0; /* this turn */
    for (int64_t first = 0; first < vocab; first += SCANNERS * SCAN) {
        int64_t i = first + tid * SCAN;
        int32_t count[SCAN], mine = 0;
        for (int k = 0; k < SCAN; k++) mine += count[k] = i + k < vocab ? at[i + k] : 0;
        int32_t sum = mine;
        for (int by = 1; by < HT_WARP; by *= 2) {
            int32_t other = __shfl_sync(0xffffffffu, sum, lane - by);
            if (lane >= by) sum += other;
        }
        __syncthreads(); /* the last turn's sums have been read */
        if (lane == HT_WARP - 1) of_warp[warp] = sum;
        __syncthreads();
        int32_t to = before + sum - mine;
        for (int w = 0; w < SCANNERS / HT_WARP; w++) {
            if (w < warp) to += of_warp[w];
            before += of_warp[w];
        }
        for (int k = 0; k < SCAN; k++) {
            if (i + k < vocab) at[i + k] = to;
            to += count[k];
        }
    }
}

/* Fills the buckets in any order; `at` then has their ends. */
static __global__ void fill_buckets(const int32_t *tokens, struct tokens_of table, int64_t n, int32_t *at,
                                    int32_t *places)
{
    HT_EACH(i, n)
    {
        if (table.has(tokens[i])) places[atomicAdd(&at[tokens[i] - table.first], 1)] = (int32_t)i;
    }
}

enum { SUMMERS = 128, LIST = 2048, ROWS = 4 }; /* threads of a block; positions that it sorts; rows loaded at once */

/* Sorts list[0..n) (bitonic; LIST is a power of two). */
static __device__ void sort_list(int32_t *list, int n)
{
    int m = 1;
    while (m < n) m *= 2;
    for (int i = n + (int)threadIdx.x; i < m; i += SUMMERS) list[i] = 0x7fffffff;
    for (int size = 2; size <= m; size *= 2)
        for (int by = size / 2; by > 0; by /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < m / 2; i += SUMMERS) {
                int low = i / by * 2 * by + i % by, high = low + by;
                int32_t a = list[low], b = list[high];
                if ((a > b) == ((low & size) == 0)) {
                    list[low] = b;
                    list[high] = a;
                }
            }
        }
    __syncthreads();
}

/* Lists the positions of a token among [first, first + LIST) of the tokens, in order. Returns their number. */
static __device__ int list_window(int32_t *list, const int32_t *tokens, int64_t first, int64_t n, int32_t token)
{
    __shared__ int of_warp[SUMMERS / HT_WARP];
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, found = 0;
    for (int64_t i = first + threadIdx.x; i < first + LIST + threadIdx.x; i += SUMMERS) {
        bool mine = i < n && tokens[i] == token;
        unsigned ballot = __ballot_sync(0xffffffffu, mine);
        __syncthreads(); /* all have read the old contents */
        if (lane == 0) of_warp[warp] = __popc(ballot);
        __syncthreads();
        int to = found + __popc(ballot & ((1u << lane) - 1));
        for (int w = 0; w < SUMMERS / HT_WARP; w++) {
            if (w < warp) to += of_warp[w];
            found += of_warp[w];
        }
        if (mine) list[to] = (int32_t)i;
    }
    __syncthreads();
    return found;
}

/* Computes sum[k] += column k of the rows list[0..n), in that order. */
template <class T, int N>
static __device__ __forceinline__ void add_rows(float sum[N], const int32_t *list, int n, const T *column, int64_t C)
{
    int p = 0;
    for (; p + ROWS <= n; p += ROWS) {
        ht_pack<T, N> d[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) d[r] = ht_pack_at<T, N>(column + list[p + r] * C);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += ht_load(d[r].x[k]);
    }
    for (; p < n; p++) {
        ht_pack<T, N> d = ht_pack_at<T, N>(column + list[p] * C);
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] += ht_load(d.x[k]);
    }
}

/* Sums the tokens' rows. blockIdx.x: a position in the sorted list; the first of each bucket does the work. blockIdx.y:
   a piece of the columns. */
template <class T, int N>
__global__ void __launch_bounds__(SUMMERS, 6)
    embed_tokens(const int32_t *tokens, struct tokens_of table, const int32_t *at, const int32_t *places, const T *dout,
                 struct ht_grad_type type, void *dwte, bool tied, int64_t n_tokens, int64_t C)
{
    __shared__ int32_t list[LIST];
    if ((int32_t)blockIdx.x >= at[table.count - 1]) return;
    int32_t token = tokens[places[blockIdx.x]];
    int64_t row = token - table.first;
    int32_t begin = row ? at[row - 1] : 0;
    if ((int32_t)blockIdx.x != begin) return;
    int n = at[row] - begin;
    int64_t c = ((int64_t)blockIdx.y * SUMMERS + threadIdx.x) * N, to = row * C + c;
    bool mine = c < C;
    float sum[N];
    for (int k = 0; k < N; k++) sum[k] = tied && mine ? ht_get(type.store, dwte, to + k) : 0;
    if (n <= LIST) {
        for (int i = (int)threadIdx.x; i < n; i += SUMMERS) list[i] = places[begin + i];
        sort_list(list, n);
        if (mine) add_rows<T, N>(sum, list, n, dout + c, C);
    } else {
        for (int64_t first = 0; first < n_tokens; first += LIST) {
            int found = list_window(list, tokens, first, n_tokens, token);
            if (mine) add_rows<T, N>(sum, list, found, dout + c, C);
        } /* list_window writes to the list behind a barrier */
    }
    for (int k = 0; k < N && mine; k++) ht_put_grad(type, dwte, to + k, sum[k]);
}

template <class T, int N>
static void embed_backward_as(struct ht_cuda *cuda, const int32_t *tokens, struct tokens_of table, const T *dout,
                              struct ht_grad_type type, void *dwte, void *dwpe, bool tied, int64_t batch, int64_t seq,
                              int64_t C, int64_t max_seq, const int32_t *at, const int32_t *places)
{
    int64_t n = batch * seq;
    dim3 grid((unsigned)n, (unsigned)((C / N + SUMMERS - 1) / SUMMERS));
    HT_LAUNCH(cuda, (embed_tokens<T, N>), grid, dim3(SUMMERS), 0, tokens, table, at, places, dout, type, dwte, tied, n,
              C);
    if (dwpe)
        HT_LAUNCH(cuda, (embed_positions<T, N>), ht_grid_for(max_seq * C / N, THREADS), THREADS, 0, dout, type, dwpe,
                  batch, seq, C, max_seq);
}

void ht_cuda_zero(struct ht_cuda *cuda, void *x, int64_t bytes)
{
    if (cuda->error.status == HT_OK)
        ht_cuda_check(cuda, cudaMemsetAsync(x, 0, (size_t)bytes, cuda->stream), "clearing", __FILE__, __LINE__);
}

void ht_cuda_embed_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const int32_t *tokens, const void *dout,
                            enum ht_dtype grad, enum ht_dtype store, void *dwte, void *dwpe, bool tied, int64_t batch,
                            int64_t seq, int64_t C, int64_t first, int64_t vocab, int64_t max_seq, int32_t *scratch)
{
    struct tokens_of table = {first, vocab};
    struct ht_grad_type type = {grad, store};
    int64_t n = batch * seq;
    int32_t *at = scratch, *places = at + vocab;
    if (!tied) ht_cuda_zero(cuda, dwte, vocab * C * ht_dtype_bytes(store));
    ht_cuda_zero(cuda, at, vocab * (int64_t)sizeof(*at));
    HT_LAUNCH(cuda, count_tokens, ht_grid_for(n, THREADS), THREADS, 0, tokens, table, n, at);
    HT_LAUNCH(cuda, begin_buckets, dim3(1), dim3(SCANNERS), 0, at, vocab);
    HT_LAUNCH(cuda, fill_buckets, ht_grid_for(n, THREADS), THREADS, 0, tokens, table, n, at, places);
    HT_WITH_TYPE(dtype, {
        if (ht_is_wide<T>(C, dout))
            embed_backward_as<T, ht_wide<T>::N>(cuda, tokens, table, (const T *)dout, type, dwte, dwpe, tied, batch,
                                                seq, C, max_seq, at, places);
        else
            embed_backward_as<T, 1>(cuda, tokens, table, (const T *)dout, type, dwte, dwpe, tied, batch, seq, C,
                                    max_seq, at, places);
    })
}
