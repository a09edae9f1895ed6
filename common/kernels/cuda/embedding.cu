/*
 * Embedding.
 *
 * Backward without atomics and without a sort: block r looks whether token r is the first of its kind, by reading the
 * tokens before it. The first one's block gathers the others' places, in order, and adds their rows up. That reads the
 * list of tokens (from the L1 and L2 caches) up to B T times in all: 0.05 ms for 16 thousand of them by bandwidth, and
 * it grows with the square.
 */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_ops.h"

enum { THREADS = 256, LOOK = 4 * THREADS, GATHER = 2 * LOOK }; /* tokens looked at in one go; places gathered at most */

template <class T, int N>
__global__ void embed(const int32_t *tokens, const T *wte, const T *wpe, T *out, int64_t seq, int64_t C)
{
    int64_t row = blockIdx.x;
    const T *token = wte + tokens[row] * C, *position = wpe ? wpe + row % seq * C : NULL;
    for (int64_t i = threadIdx.x; i < C / N; i += blockDim.x) {
        ht_pack<T, N> a = ht_pack_at<T, N>(token + i * N);
        if (position) {
            ht_pack<T, N> b = ht_pack_at<T, N>(position + i * N);
            for (int k = 0; k < N; k++) a.x[k] = ht_store<T>(ht_load(a.x[k]) + ht_load(b.x[k]));
        }
        ht_pack_to<T, N>(out + row * C + i * N, a);
    }
}

void ht_cuda_embed(struct ht_cuda *cuda, enum ht_dtype dtype, const int32_t *tokens, const void *wte, const void *wpe,
                   void *out, int64_t batch, int64_t seq, int64_t C)
{
    dim3 grid((unsigned)(batch * seq));
    HT_WITH_TYPE(dtype, {
        enum { N = ht_wide<T>::N };
        if (ht_is_wide<T>(C, wte, wpe, out))
            HT_LAUNCH(cuda, (embed<T, N>), grid, ht_row_threads(C / N), 0, tokens, (const T *)wte, (const T *)wpe,
                      (T *)out, seq, C);
        else
            HT_LAUNCH(cuda, (embed<T, 1>), grid, ht_row_threads(C), 0, tokens, (const T *)wte, (const T *)wpe, (T *)out,
                      seq, C);
    })
}

/* Rows of the position table: sums over the sequences, 0 beyond the sequence's length. */
template <class T>
__global__ void embed_positions(const T *dout, struct ht_grad_type type, void *dwpe, int64_t batch, int64_t seq,
                                int64_t C, int64_t max_seq)
{
    HT_EACH(i, max_seq * C)
    {
        float sum = 0;
        if (i < seq * C) {
            sum = ht_load(dout[i]);
            for (int64_t b = 1; b < batch; b++) sum += ht_load(dout[b * seq * C + i]);
        }
        ht_put_grad(type, dwpe, i, sum);
    }
}

static __global__ void clear(enum ht_dtype store, void *x, int64_t n)
{
    HT_EACH(i, n) ht_put(store, x, i, 0);
}

/* Adds the rows at places[0..n) to the sums that thread's columns have so far, which are kept in the table itself in
   FP32 only if it is FP32: so all of a thread's columns go through all places, at most COLUMNS at a time. */
enum { COLUMNS = 8 };

/* Does this thread find the token among the LOOK from `first` on, before `end`? */
static __device__ __forceinline__ bool is_among(const int32_t *tokens, int64_t first, int64_t end, int32_t token)
{
    bool found = false;
#pragma unroll
    for (int k = 0; k < LOOK; k += THREADS) {
        int64_t i = first + k + threadIdx.x;
        found = (i < end && tokens[i] == token) || found;
    }
    return found;
}

template <class T>
__global__ void embed_tokens(const int32_t *tokens, const T *dout, struct ht_grad_type type, void *dwte, bool tied,
                             int64_t n_tokens, int64_t C)
{
    __shared__ int places[GATHER];
    __shared__ int n_of_warp[HT_MAX_WARPS];
    int64_t row = blockIdx.x;
    int32_t token = tokens[row];
    int tid = (int)threadIdx.x, lane = tid % HT_WARP, warp = tid / HT_WARP;
    for (int64_t i = 0; i < row; i += LOOK)
        if (__syncthreads_or(is_among(tokens, i, row, token))) return; /* an earlier block does this one */
    for (int64_t first = 0; first < C; first += THREADS * COLUMNS) {
        float sum[COLUMNS];
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            int64_t c = first + k * THREADS + tid;
            sum[k] = tied && c < C ? ht_get(type.store, dwte, token * C + c) : 0;
        }
        int64_t from = row;
        while (from < n_tokens) {
            int gathered = 0;
            for (; from < n_tokens && gathered <= GATHER - LOOK; from += LOOK) {
                if (!__syncthreads_or(is_among(tokens, from, n_tokens, token))) continue;
                for (int64_t i = from + tid; i < from + LOOK + tid; i += THREADS) {
                    bool mine = i < n_tokens && tokens[i] == token;
                    unsigned ballot = __ballot_sync(0xffffffffu, mine);
                    __syncthreads();
                    if (lane == 0) n_of_warp[warp] = __popc(ballot);
                    __syncthreads();
                    int at = gathered + __popc(ballot & ((1u << lane) - 1));
                    for (int w = 0; w < THREADS / HT_WARP; w++) {
                        if (w < warp) at += n_of_warp[w];
                        gathered += n_of_warp[w];
                    }
                    if (mine) places[at] = (int)i;
                }
            }
            __syncthreads();
            for (int p = 0; p < gathered; p++) {
                const T *d = dout + (int64_t)places[p] * C;
#pragma unroll
                for (int k = 0; k < COLUMNS; k++) {
                    int64_t c = first + k * THREADS + tid;
                    if (c < C) sum[k] += ht_load(d[c]);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            int64_t c = first + k * THREADS + tid;
            if (c < C) ht_put_grad(type, dwte, token * C + c, sum[k]);
        }
    }
}

void ht_cuda_embed_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const int32_t *tokens, const void *dout,
                            enum ht_dtype grad, enum ht_dtype store, void *dwte, void *dwpe, bool tied, int64_t batch,
                            int64_t seq, int64_t C, int64_t vocab, int64_t max_seq)
{
    struct ht_grad_type type = {grad, store};
    int64_t n = vocab * C;
    if (!tied) HT_LAUNCH(cuda, clear, ht_grid_for(n, THREADS), THREADS, 0, store, dwte, n);
    HT_WITH_TYPE(dtype, {
        HT_LAUNCH(cuda, (embed_tokens<T>), dim3((unsigned)(batch * seq)), dim3(THREADS), 0, tokens, (const T *)dout,
                  type, dwte, tied, batch * seq, C);
        if (dwpe)
            HT_LAUNCH(cuda, (embed_positions<T>), ht_grid_for(max_seq * C, THREADS), THREADS, 0, (const T *)dout, type,
                      dwpe, batch, seq, C, max_seq);
    })
}
