/*
 * Softmax cross-entropy in place, one block per row: the largest logit and the sum of exponentials in one pass (online,
 * as in Milakov and Gimelshein 2018), which keeps the row in shared memory where it fits; then the gradient from there.
 * GPT-2's 50257 logits, 201 KB, fit on sm_90 (227 KB a block), one block to a multiprocessor; up to 41 thousand fit on
 * sm_80 (163 KB), 25 thousand on sm_86 (99 KB). A row that does not fit is read twice.
 */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_ops.h"

/* N logits a thread and turn: 32 KB a block are under way, which hides the memory's latency with one block, too. */
enum { N = 8, MOST_THREADS = HT_MAX_WARPS * HT_WARP, STATIC_BYTES = 1024 };

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
        int64_t c = first + k * (int64_t)blockDim.x + threadIdx.x;
        v[k] = c < V ? x[c] : -INFINITY;
    }
}

/* Returns the peak of a row, to all threads. kept: the row in shared memory, which it fills; NULL: none. A barrier
   follows every thread's last read of the row. */
static __device__ struct peak row_peak(const float *x, int64_t V, float *kept)
{
    struct peak p = {-INFINITY, 0};
    for (int64_t first = 0; first + threadIdx.x < V; first += (int64_t)blockDim.x * N) {
        float v[N], max = p.max;
        read(x, first, V, v);
        for (int k = 0; k < N; k++) max = fmaxf(max, v[k]);
        float sum = p.sum == 0 ? 0 : p.sum * expf(p.max - max);
        for (int k = 0; k < N; k++) {
            int64_t c = first + k * (int64_t)blockDim.x + threadIdx.x;
            if (c >= V) continue;
            sum += expf(v[k] - max);
            if (kept) kept[c] = v[k];
        }
        p.max = max;
        p.sum = sum;
    }
    for (int by = HT_WARP / 2; by > 0; by /= 2) {
        struct peak other = {__shfl_xor_sync(0xffffffffu, p.max, by), __shfl_xor_sync(0xffffffffu, p.sum, by)};
        p = (threadIdx.x & (unsigned)by) ? join_peaks::of(other, p) : join_peaks::of(p, other);
    }
    __shared__ struct peak of_warp[HT_MAX_WARPS];
    if (threadIdx.x % HT_WARP == 0) of_warp[threadIdx.x / HT_WARP] = p;
    __syncthreads();
    p = of_warp[0];
    for (int i = 1; i < (int)blockDim.x / HT_WARP; i++) p = join_peaks::of(p, of_warp[i]);
    return p;
}

/* Writes d[c] = exp(x[c] - max) factor, less `scale` at the target, over logits that the block has read. ONCE: `from` is
   the row in dynamic shared memory, where each thread finds the logits that it has put there. Otherwise all threads read
   a turn's logits again before any of them writes, and a turn writes at or before the addresses that it read. Both forms
   give the same bits. */
template <class T, bool ONCE>
static __device__ __forceinline__ void put_gradient(const float *from, T *d, int64_t V, int64_t target, float max,
                                                    float factor, float scale)
{
    for (int64_t first = 0; first < V; first += (int64_t)blockDim.x * N) {
        float v[N];
        read(from, first, V, v);
        if (!ONCE && sizeof(T) < sizeof(float)) __syncthreads();
#pragma unroll
        for (int k = 0; k < N; k++) {
            int64_t c = first + k * (int64_t)blockDim.x + threadIdx.x;
            if (c < V) d[c] = ht_store<T>(expf(v[k] - max) * factor - (c == target ? scale : 0));
        }
    }
}

template <class T, bool ONCE>
__global__ void __launch_bounds__(MOST_THREADS)
    cross_entropy(float *logits, const int32_t *targets, int64_t V, int64_t stride, float scale, double *row_loss)
{
    HT_DYNAMIC_SHARED(float, kept);
    int64_t row = blockIdx.x;
    float *x = logits + row * stride;
    int64_t target = targets[row];
    float picked = x[target];
    struct peak p = row_peak(x, V, ONCE ? kept : NULL);
    if (threadIdx.x == 0) row_loss[row] = log((double)p.sum) + ((double)p.max - (double)picked);
    put_gradient<T, ONCE>(ONCE ? kept : x, (T *)x, V, target, p.max, scale / p.sum, scale);
}

/* ---- a part's tokens ---- */

static __global__ void __launch_bounds__(MOST_THREADS)
    part_peaks(const float *logits, const int32_t *targets, int64_t first, int64_t V, int64_t stride, float *mine)
{
    int64_t row = blockIdx.x, target = targets[row] - first;
    const float *x = logits + row * stride;
    struct peak p = row_peak(x, V, NULL);
    if (threadIdx.x > 0) return;
    mine[2 * row] = p.max + logf(p.sum);
    mine[2 * row + 1] = target >= 0 && target < V ? x[target] : 0;
}

/* Every part adds up in the same order, so all have the same loss. */
template <class T>
__global__ void __launch_bounds__(MOST_THREADS)
    part_cross_entropy(float *logits, const int32_t *targets, int64_t first, int64_t V, int64_t stride, float scale,
                       const float *theirs, int64_t parts, double *row_loss)
{
    int64_t row = blockIdx.x, rows = gridDim.x;
    float *x = logits + row * stride;
    double max = theirs[2 * row], sum = 0, picked = 0;
    for (int64_t q = 1; q < parts; q++) max = fmax(max, (double)theirs[2 * (q * rows + row)]);
    for (int64_t q = 0; q < parts; q++) {
        sum += exp((double)theirs[2 * (q * rows + row)] - max);
        picked += theirs[2 * (q * rows + row) + 1];
    }
    if (threadIdx.x == 0) row_loss[row] = log(sum) + (max - picked);
    put_gradient<T, false>(x, (T *)x, V, targets[row] - first, (float)max, (float)(scale / sum), scale);
}

/* Returns the shared memory that a block of the current device may have, in bytes. */
static int64_t most_shared(struct ht_cuda *cuda)
{
    int device = 0, bytes = 0;
    ht_cuda_check(cuda, cudaGetDevice(&device), "cudaGetDevice", __FILE__, __LINE__);
    ht_cuda_check(cuda, cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                  "cudaDeviceGetAttribute", __FILE__, __LINE__);
    return HT_LIMIT(shared, bytes);
}

static unsigned threads_for(int64_t V)
{
    int64_t warps = (V + HT_WARP * N - 1) / (HT_WARP * N);
    return (unsigned)(warps * HT_WARP < MOST_THREADS ? warps * HT_WARP : (int64_t)MOST_THREADS);
}

template <class T>
static void launch(struct ht_cuda *cuda, float *logits, const int32_t *targets, int64_t n_rows, int64_t V,
                   int64_t stride, float scale, double *row_loss)
{
    int64_t bytes = V * (int64_t)sizeof(float);
    unsigned threads = threads_for(V);
    if (bytes + STATIC_BYTES <= most_shared(cuda)) {
        HT_ALLOW_SHARED(cuda, (cross_entropy<T, true>), bytes);
        HT_LAUNCH(cuda, (cross_entropy<T, true>), dim3((unsigned)n_rows), dim3(threads), bytes, logits, targets, V,
                  stride, scale, row_loss);
    } else {
        HT_LAUNCH(cuda, (cross_entropy<T, false>), dim3((unsigned)n_rows), dim3(threads), 0, logits, targets, V, stride,
                  scale, row_loss);
    }
}

void ht_cuda_cross_entropy(struct ht_cuda *cuda, enum ht_dtype dtype, float *logits, const int32_t *targets,
                           int64_t n_rows, int64_t V, int64_t stride, float scale, double *row_loss)
{
    HT_WITH_TYPE(dtype, launch<T>(cuda, logits, targets, n_rows, V, stride, scale, row_loss))
}

void ht_cuda_part_peaks(struct ht_cuda *cuda, const float *logits, const int32_t *targets, int64_t first,
                        int64_t n_rows, int64_t V, int64_t stride, float *mine)
{
    HT_LAUNCH(cuda, part_peaks, dim3((unsigned)n_rows), dim3(threads_for(V)), 0, logits, targets, first, V, stride,
              mine);
}

void ht_cuda_part_cross_entropy(struct ht_cuda *cuda, enum ht_dtype dtype, float *logits, const int32_t *targets,
                                int64_t first, int64_t n_rows, int64_t V, int64_t stride, float scale,
                                const float *theirs, int64_t parts, double *row_loss)
{
    HT_WITH_TYPE(dtype, HT_LAUNCH(cuda, (part_cross_entropy<T>), dim3((unsigned)n_rows), dim3(threads_for(V)), 0,
                                  logits, targets, first, V, stride, scale, theirs, parts, row_loss))
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
