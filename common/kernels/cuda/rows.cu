/*
 * Norms of rows, and sums over rows.
 *
 * A block takes a row, which its threads keep in registers; they read the rest of a very wide row again. Sums over rows
 * (gradients of weights and biases) take two launches. In the first, a block sums a chunk of rows for 32 groups of
 * columns; in the second, one thread per column adds up the chunks. The number of chunks depends only on the number of
 * rows.
 */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_ops.h"

static const float NORM_EPSILON = 1e-5f; /* common/kernels/simd_body.h */

enum { KEEP = 2, MOST = 512 }; /* packs kept by a thread; most threads */

/* Precedes the loop over the packs that are not kept. nvcc 13.0 unrolls it four times, and on sm_100 two kernels then
   spill registers; without unrolling none does. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define REST_UNROLL _Pragma("unroll 1")
#else
#define REST_UNROLL
#endif

/* Returns the threads for a row of so many packs: 256 at most, unless more of them are needed to keep the row. */
static unsigned threads_for(int64_t packs)
{
    int64_t needed = (packs + KEEP * HT_WARP - 1) / (KEEP * HT_WARP) * HT_WARP;
    unsigned usual = ht_row_threads(packs);
    if (needed > MOST) return MOST;
    return needed > usual ? (unsigned)needed : usual;
}

/* A thread's packs of a row of `n`: those at threadIdx.x + k blockDim.x. */
template <class T, int N> struct own_packs {
    ht_pack<T, N> kept[KEEP];

    __device__ __forceinline__ void read(const T *row, int64_t n)
    {
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            int64_t i = threadIdx.x + k * (int64_t)blockDim.x;
            if (i < n) kept[k] = ht_pack_at<T, N>(row + i * N);
        }
    }
};

/* Runs the statement for each of the thread's packs; i is its number. Takes the kept ones first, with k their index,
   then the others, with k = -1. */
#define EACH_PACK(n, ...)                                                                                              \
    do {                                                                                                               \
        _Pragma("unroll") for (int k = 0; k < KEEP; k++)                                                               \
        {                                                                                                              \
            int64_t i = threadIdx.x + k * (int64_t)blockDim.x;                                                         \
            if (i < (n)) __VA_ARGS__                                                                                   \
        }                                                                                                              \
        REST_UNROLL for (int64_t i = threadIdx.x + KEEP * (int64_t)blockDim.x; i < (n); i += blockDim.x)               \
        {                                                                                                              \
            const int k = -1;                                                                                          \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    } while (0)
#define PACK(own, row) (k >= 0 ? (own).kept[k < 0 ? 0 : k] : ht_pack_at<T, N>((row) + i * N))

/* ---- forward ---- */

template <class T, int N, bool LAYER>
__global__ void __launch_bounds__(MOST) norm_forward(const T *x, const T *weight, const T *bias, float eps, T *y,
                                                     float *stats, int64_t n_rows, int64_t width)
{
    int64_t row = blockIdx.x, packs = width / N;
    const T *xr = x + row * width;
    T *yr = y + row * width;
    own_packs<T, N> own;
    own.read(xr, packs);
    float mean = 0;
    if (LAYER) {
        float sum = 0;
        EACH_PACK(packs, {
            ht_pack<T, N> p = PACK(own, xr);
            for (int e = 0; e < N; e++) sum += ht_load(p.x[e]);
        });
        mean = ht_block_fold<ht_add>(sum) / (float)width;
    }
    float square = 0;
    EACH_PACK(packs, {
        ht_pack<T, N> p = PACK(own, xr);
        for (int e = 0; e < N; e++) {
            float d = ht_load(p.x[e]) - mean;
            square += d * d;
        }
    });
    float scale = 1.0f / sqrtf(ht_block_fold<ht_add>(square) / (float)width + (LAYER ? NORM_EPSILON : eps));
    EACH_PACK(packs, {
        ht_pack<T, N> p = PACK(own, xr), w = ht_pack_at<T, N>(weight + i * N), b = w;
        if (LAYER) b = ht_pack_at<T, N>(bias + i * N);
        for (int e = 0; e < N; e++) {
            float out = (ht_load(p.x[e]) - mean) * scale * ht_load(w.x[e]);
            p.x[e] = ht_store<T>(LAYER ? out + ht_load(b.x[e]) : out);
        }
        ht_pack_to<T, N>(yr + i * N, p);
    });
    if (threadIdx.x > 0) return;
    if (LAYER) stats[row] = mean;
    stats[LAYER ? n_rows + row : row] = scale;
}

template <class T, int N>
static void forward_as(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, void *y, float *stats)
{
    dim3 grid((unsigned)n->n_rows), block(threads_for(n->width / N));
    const T *w = (const T *)n->weight, *b = (const T *)n->bias;
    if (b)
        HT_LAUNCH(cuda, (norm_forward<T, N, true>), grid, block, 0, (const T *)x, w, b, n->eps, (T *)y, stats,
                  n->n_rows, n->width);
    else
        HT_LAUNCH(cuda, (norm_forward<T, N, false>), grid, block, 0, (const T *)x, w, b, n->eps, (T *)y, stats,
                  n->n_rows, n->width);
}

void ht_cuda_norm_forward(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, void *y, float *stats)
{
    HT_WITH_TYPE(n->dtype, {
        if (ht_is_wide<T>(n->width, x, y, n->weight) && ht_is_wide<T>(n->width, n->bias))
            forward_as<T, ht_wide<T>::N>(cuda, n, x, y, stats);
        else
            forward_as<T, 1>(cuda, n, x, y, stats);
    })
}

/* ---- backward ---- */

/* Computes dx = residual + rstd (dy w - mean(dy w) - xhat mean(dy w xhat)), xhat = (x - mean) rstd; RMSNorm has no
   second term. */
template <class T, int N, bool LAYER>
__global__ void __launch_bounds__(MOST) norm_backward(const T *x, const T *weight, const T *dy, const float *stats,
                                                      const T *residual, T *dx, int64_t n_rows, int64_t width)
{
    int64_t row = blockIdx.x, packs = width / N, at = row * width;
    float mean = LAYER ? stats[row] : 0, scale = stats[LAYER ? n_rows + row : row];
    float sum = 0, centred = 0;
    own_packs<T, N> own_x, own_dy;
    own_x.read(x + at, packs);
    own_dy.read(dy + at, packs);
    EACH_PACK(packs, {
        ht_pack<T, N> p = PACK(own_x, x + at), d = PACK(own_dy, dy + at), w = ht_pack_at<T, N>(weight + i * N);
        for (int e = 0; e < N; e++) {
            float g = ht_load(d.x[e]) * ht_load(w.x[e]);
            sum += g;
            centred += g * (ht_load(p.x[e]) - mean);
        }
    });
    float m1 = LAYER ? ht_block_fold<ht_add>(sum) / (float)width : 0;
    float m2 = ht_block_fold<ht_add>(centred) * scale * scale / (float)width;
    EACH_PACK(packs, {
        ht_pack<T, N> p = PACK(own_x, x + at), d = PACK(own_dy, dy + at), r = p;
        ht_pack<T, N> w = ht_pack_at<T, N>(weight + i * N);
        if (residual) r = ht_pack_at<T, N>(residual + at + i * N);
        for (int e = 0; e < N; e++) {
            float g = scale * (ht_load(d.x[e]) * ht_load(w.x[e]) - m1 - (ht_load(p.x[e]) - mean) * m2);
            p.x[e] = ht_store<T>(residual ? ht_load(r.x[e]) + g : g);
        }
        ht_pack_to<T, N>(dx + at + i * N, p);
    });
}

template <class T, int N>
static void backward_as(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, const void *dy,
                        const float *stats, const void *residual, void *dx)
{
    dim3 grid((unsigned)n->n_rows), block(threads_for(n->width / N));
    const T *w = (const T *)n->weight;
    if (n->bias)
        HT_LAUNCH(cuda, (norm_backward<T, N, true>), grid, block, 0, (const T *)x, w, (const T *)dy, stats,
                  (const T *)residual, (T *)dx, n->n_rows, n->width);
    else
        HT_LAUNCH(cuda, (norm_backward<T, N, false>), grid, block, 0, (const T *)x, w, (const T *)dy, stats,
                  (const T *)residual, (T *)dx, n->n_rows, n->width);
}

void ht_cuda_norm_backward(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, const void *dy,
                           const float *stats, const void *residual, void *dx)
{
    HT_WITH_TYPE(n->dtype, {
        if (ht_is_wide<T>(n->width, x, dy, n->weight) && ht_is_wide<T>(n->width, residual, dx))
            backward_as<T, ht_wide<T>::N>(cuda, n, x, dy, stats, residual, dx);
        else
            backward_as<T, 1>(cuda, n, x, dy, stats, residual, dx);
    })
}

/* ---- sums over rows ---- */

enum { CHUNKS = 64, CHUNK_ROWS = 32, SUM_ROWS = 8 }; /* most chunks; least rows of a chunk; rows taken at once */

struct chunks {
    int64_t rows, n; /* rows of a chunk; number of chunks */
};

static struct chunks chunks_of(int64_t n_rows)
{
    int64_t rows = (n_rows + CHUNKS - 1) / CHUNKS;
    if (rows < CHUNK_ROWS) rows = CHUNK_ROWS;
    struct chunks c = {rows, (n_rows + rows - 1) / rows};
    return c;
}

int64_t ht_cuda_column_scratch_bytes(int64_t width)
{
    return 2 * CHUNKS * width * (int64_t)sizeof(float);
}

enum sums { PLAIN, LAYER_NORM, RMS_NORM };

/* Sums a chunk of rows. partial (n_chunks, width): sums of dy (PLAIN) or of dy xhat; after those, for LayerNorm, the
   sums of dy. */
template <class T, int N, int SUMS>
__global__ void column_sums(const T *x, const T *dy, const float *stats, int64_t n_rows, int64_t width,
                            int64_t chunk_rows, float *partial)
{
    __shared__ float of_row[2][SUM_ROWS][HT_WARP * N];
    int lane = (int)threadIdx.x, sub = (int)threadIdx.y;
    int64_t column = ((int64_t)blockIdx.x * HT_WARP + lane) * N;
    int64_t begin = blockIdx.y * chunk_rows, end = begin + chunk_rows < n_rows ? begin + chunk_rows : n_rows;
    float first[N], second[N];
    for (int k = 0; k < N; k++) first[k] = second[k] = 0;
    for (int64_t r = begin + sub; r < end && column < width; r += SUM_ROWS) {
        float mean = SUMS == LAYER_NORM ? stats[r] : 0;
        float scale = SUMS == LAYER_NORM ? stats[n_rows + r] : SUMS == RMS_NORM ? stats[r] : 0;
        ht_pack<T, N> d = ht_pack_at<T, N>(dy + r * width + column), p = d;
        if (SUMS != PLAIN) p = ht_pack_at<T, N>(x + r * width + column);
        for (int k = 0; k < N; k++) {
            float g = ht_load(d.x[k]);
            first[k] += SUMS == PLAIN ? g : g * ((ht_load(p.x[k]) - mean) * scale);
            if (SUMS == LAYER_NORM) second[k] += g;
        }
    }
    for (int k = 0; k < N; k++) {
        of_row[0][sub][k * HT_WARP + lane] = first[k];
        of_row[1][sub][k * HT_WARP + lane] = second[k];
    }
    __syncthreads();
    if (sub >= (SUMS == LAYER_NORM ? 2 : 1) || column >= width) return;
    float *to = partial + ((int64_t)sub * gridDim.y + blockIdx.y) * width + column;
    for (int k = 0; k < N; k++) {
        float sum = 0;
        for (int i = 0; i < SUM_ROWS; i++) sum += of_row[sub][i][k * HT_WARP + lane];
        to[k] = sum;
    }
}

/* Adds up the chunks. blockIdx.y: 0 the first sum, 1 the second. */
static __global__ void fold_columns(const float *partial, int64_t n_chunks, int64_t width, struct ht_grad_type type,
                                    void *first, void *second)
{
    partial += blockIdx.y * n_chunks * width;
    HT_EACH(c, width)
    {
        float sum = 0;
        for (int64_t i = 0; i < n_chunks; i++) sum += partial[i * width + c];
        ht_put_grad(type, blockIdx.y ? second : first, c, sum);
    }
}

template <class T, int N>
static void sums_as(struct ht_cuda *cuda, enum sums kind, const void *x, const void *dy, const float *stats,
                    int64_t n_rows, int64_t width, float *scratch)
{
    struct chunks c = chunks_of(n_rows);
    dim3 grid((unsigned)((width / N + HT_WARP - 1) / HT_WARP), (unsigned)c.n), block(HT_WARP, SUM_ROWS);
    const T *xt = (const T *)x, *dt = (const T *)dy;
    if (kind == PLAIN)
        HT_LAUNCH(cuda, (column_sums<T, N, PLAIN>), grid, block, 0, xt, dt, stats, n_rows, width, c.rows, scratch);
    else if (kind == LAYER_NORM)
        HT_LAUNCH(cuda, (column_sums<T, N, LAYER_NORM>), grid, block, 0, xt, dt, stats, n_rows, width, c.rows, scratch);
    else
        HT_LAUNCH(cuda, (column_sums<T, N, RMS_NORM>), grid, block, 0, xt, dt, stats, n_rows, width, c.rows, scratch);
}

static void sums(struct ht_cuda *cuda, enum ht_dtype dtype, enum sums kind, const void *x, const void *dy,
                 const float *stats, int64_t n_rows, int64_t width, struct ht_grad_type type, void *first, void *second,
                 float *scratch)
{
    HT_WITH_TYPE(dtype, {
        if (ht_is_wide<T>(width, x, dy))
            sums_as<T, 4>(cuda, kind, x, dy, stats, n_rows, width, scratch);
        else
            sums_as<T, 1>(cuda, kind, x, dy, stats, n_rows, width, scratch);
    })
    dim3 grid(ht_grid_for(width, 256), second ? 2 : 1);
    HT_LAUNCH(cuda, fold_columns, grid, dim3(256), 0, scratch, chunks_of(n_rows).n, width, type, first, second);
}

void ht_cuda_norm_grad(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, const void *dy,
                       const float *stats, enum ht_dtype grad, enum ht_dtype store, void *dweight, void *dbias,
                       float *scratch)
{
    struct ht_grad_type type = {grad, store};
    sums(cuda, n->dtype, n->bias ? LAYER_NORM : RMS_NORM, x, dy, stats, n->n_rows, n->width, type, dweight, dbias,
         scratch);
}

void ht_cuda_column_sum(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, int64_t n_rows, int64_t width,
                        enum ht_dtype grad, enum ht_dtype store, void *out, float *scratch)
{
    struct ht_grad_type type = {grad, store};
    sums(cuda, dtype, PLAIN, NULL, x, NULL, n_rows, width, type, out, NULL, scratch);
}
