/*
 * Softmax cross-entropy in place, one block per row: the largest logit and the sum of exponentials in one pass (online,
 * as in Milakov and Gimelshein 2018), the gradient in a second one.
 */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_ops.h"

enum { THREADS = 512, N = 4 }; /* N logits a thread and turn */

struct peak {
    float max, sum; /* sum of exp(x - max) */
};

struct join_peaks {
    static __device__ __forceinline__ struct peak of(struct peak a, struct peak b)
    {
        float max = fmaxf(a.max, b.max);
        struct peak p = {max, 0};
        if (a.sum != 0) p.sum += a.sum * expf(a.max - max); /* a thread without logits has -inf and 0 */
        if (b.sum != 0) p.sum += b.sum * expf(b.max - max);
        return p;
    }
};

/* Reads a thread's logits of the turn that starts at `first`; beyond the row's end -inf. Neighbouring threads read
   neighbouring logits, so loads are whole lines wherever a row starts. */
static __device__ __forceinline__ void read(const float *x, int64_t first, int64_t V, float v[N])
{
#pragma unroll
    for (int k = 0; k < N; k++) {
        int64_t c = first + k * THREADS + threadIdx.x;
        v[k] = c < V ? x[c] : -INFINITY;
    }
}

static __device__ struct peak row_peak(const float *x, int64_t V)
{
    struct peak p = {-INFINITY, 0};
    for (int64_t first = 0; first + threadIdx.x < V; first += THREADS * N) {
        float v[N], max = p.max;
        read(x, first, V, v);
        for (int k = 0; k < N; k++) max = fmaxf(max, v[k]);
        float sum = p.sum == 0 ? 0 : p.sum * expf(p.max - max);
        for (int k = 0; k < N; k++)
            if (first + k * THREADS + threadIdx.x < V) sum += expf(v[k] - max);
        p.max = max;
        p.sum = sum;
    }
    for (int by = HT_WARP / 2; by > 0; by /= 2) {
        struct peak other = {__shfl_xor_sync(0xffffffffu, p.max, by), __shfl_xor_sync(0xffffffffu, p.sum, by)};
        p = (threadIdx.x & (unsigned)by) ? join_peaks::of(other, p) : join_peaks::of(p, other);
    }
    __shared__ struct peak of_warp[THREADS / HT_WARP];
    if (threadIdx.x % HT_WARP == 0) of_warp[threadIdx.x / HT_WARP] = p;
    __syncthreads();
    p = of_warp[0];
    for (int i = 1; i < THREADS / HT_WARP; i++) p = join_peaks::of(p, of_warp[i]);
    return p;
}

/* Writes a gradient of type T over logits that the block has read: all threads read a turn's logits before any of them
   writes, and a turn writes at or before the addresses that it read. */
template <class T>
__global__ void cross_entropy(float *logits, const int32_t *targets, int64_t V, int64_t stride, float scale,
                              double *row_loss)
{
    int64_t row = blockIdx.x;
    float *x = logits + row * stride;
    T *d = (T *)x;
    int64_t target = targets[row];
    float picked = x[target];
    struct peak p = row_peak(x, V);
    if (threadIdx.x == 0) row_loss[row] = log((double)p.sum) + ((double)p.max - (double)picked);
    float factor = scale / p.sum;
    __syncthreads(); /* picked has been read */
    for (int64_t first = 0; first < V; first += THREADS * N) {
        float v[N];
        read(x, first, V, v);
        if (sizeof(T) < sizeof(float)) __syncthreads();
#pragma unroll
        for (int k = 0; k < N; k++) {
            int64_t c = first + k * THREADS + threadIdx.x;
            if (c < V) d[c] = ht_store<T>(expf(v[k] - p.max) * factor - (c == target ? scale : 0));
        }
    }
}

void ht_cuda_cross_entropy(struct ht_cuda *cuda, enum ht_dtype dtype, float *logits, const int32_t *targets,
                           int64_t n_rows, int64_t V, int64_t stride, float scale, double *row_loss)
{
    HT_WITH_TYPE(dtype, HT_LAUNCH(cuda, (cross_entropy<T>), dim3((unsigned)n_rows), dim3(THREADS), 0, logits, targets,
                                  V, stride, scale, row_loss))
}

static __global__ void sum_all(const double *x, int64_t n, double *sum)
{
    double mine = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) mine += x[i];
    mine = ht_block_fold<ht_add>(mine);
    if (threadIdx.x == 0) *sum = mine;
}

void ht_cuda_sum(struct ht_cuda *cuda, const double *x, int64_t n, double *sum)
{
    HT_LAUNCH(cuda, sum_all, dim3(1), dim3(1024), 0, x, n, sum);
}
