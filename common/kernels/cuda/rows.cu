/*
 * Norms of rows, and sums over rows.
 *
 * A block takes a row, which its threads keep in registers; they read the rest of a very wide row again. In the
 * backward pass a block takes several rows in turn, and sums the gradients of weight and bias over them on the way.
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

/* ---- sums over rows ---- */

/* A sum over rows takes two launches: blocks sum chunks of rows, whose number depends on the number of rows alone, then
   fold_columns adds up the chunks. */
struct chunks {
    int64_t rows, n; /* rows of a chunk; number of chunks */
};

static struct chunks chunks_of(int64_t n_rows, int64_t most, int64_t least_rows)
{
    int64_t rows = (n_rows + most - 1) / most;
    if (rows < least_rows) rows = least_rows;
    struct chunks c = {rows, (n_rows + rows - 1) / rows};
    return c;
}

enum { FOLDERS = 8 }; /* threads to a column */

/* Adds up the chunks of `partial` (n_chunks, width), twice that for two sums. blockIdx.y: 0 the first sum, 1 the
   second. */
static __global__ void fold_columns(const float *partial, int64_t n_chunks, int64_t width, struct ht_grad_type type,
                                    void *first, void *second)
{
    __shared__ float sums[FOLDERS][HT_WARP];
    int lane = (int)threadIdx.x, sub = (int)threadIdx.y;
    int64_t column = (int64_t)blockIdx.x * HT_WARP + lane;
    float sum = 0;
    partial += blockIdx.y * n_chunks * width;
    if (column < width) {
#pragma unroll 8
        for (int64_t i = sub; i < n_chunks; i += FOLDERS) sum += partial[i * width + column];
    }
    sums[sub][lane] = sum;
    __syncthreads();
    if (sub > 0 || column >= width) return;
    for (int i = 1; i < FOLDERS; i++) sum += sums[i][lane];
    ht_put_grad(type, blockIdx.y ? second : first, column, sum);
}

static void fold(struct ht_cuda *cuda, const float *partial, int64_t n_chunks, int64_t width, struct ht_grad_type type,
                 void *first, void *second)
{
    dim3 grid((unsigned)((width + HT_WARP - 1) / HT_WARP), second ? 2 : 1);
    HT_LAUNCH(cuda, fold_columns, grid, dim3(HT_WARP, FOLDERS), 0, partial, n_chunks, width, type, first, second);
}

/* ---- backward ---- */

/* Chunks keep two blocks busy on each of an H100's 132 multiprocessors. */
enum { NORM_CHUNKS = 256, NORM_ROWS = 4 }; /* most chunks; least rows of a chunk */

int64_t ht_cuda_norm_scratch_bytes(int64_t width)
{
    return 2 * NORM_CHUNKS * width * (int64_t)sizeof(float);
}

/* Adds up two numbers over a block; every thread gets both sums. One barrier is enough where `turn` alternates between
   0 and 1: a thread that writes a turn's numbers again has passed the next turn's barrier, behind everyone's reads. */
static __device__ __forceinline__ void fold_both(int turn, float *a, float *b)
{
    __shared__ float of_warp[2][2][HT_MAX_WARPS];
    int warp = (int)threadIdx.x / HT_WARP, n = (int)blockDim.x / HT_WARP;
    *a = ht_warp_fold<ht_add>(*a);
    *b = ht_warp_fold<ht_add>(*b);
    if (threadIdx.x % HT_WARP == 0) {
        of_warp[turn][0][warp] = *a;
        of_warp[turn][1][warp] = *b;
    }
    __syncthreads();
    *a = of_warp[turn][0][0];
    *b = of_warp[turn][1][0];
    for (int i = 1; i < n; i++) {
        *a += of_warp[turn][0][i];
        *b += of_warp[turn][1][i];
    }
}

/* Computes dx = residual + rstd (dy w - mean(dy w) - xhat mean(dy w xhat)), xhat = (x - mean) rstd; RMSNorm has no
   second term. A block takes a chunk of rows, and reads the next row while it works on one. partial (n_chunks, width):
   sums of dy xhat; after those, for LayerNorm, the sums of dy. A thread has the same columns in every row, and keeps
   their sums in registers; those of packs that are not kept lie in `partial`. */
template <class T, int N, bool LAYER>
__global__ void __launch_bounds__(MOST)
    norm_backward(const T *x, const T *weight, const T *dy, const float *stats, const T *residual, T *dx,
                  int64_t n_rows, int64_t width, int64_t chunk_rows, float *partial)
{
    int64_t packs = width / N, begin = blockIdx.x * chunk_rows;
    int64_t end = begin + chunk_rows < n_rows ? begin + chunk_rows : n_rows;
    float *dweight = partial + blockIdx.x * width, *dbias = dweight + gridDim.x * width;
    float dw[KEEP][N], db[KEEP][N];
    for (int k = 0; k < KEEP; k++)
        for (int e = 0; e < N; e++) dw[k][e] = db[k][e] = 0;
    own_packs<T, N> own_x, own_dy, next_x, next_dy;
    next_x.read(x + begin * width, packs);
    next_dy.read(dy + begin * width, packs);
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * width;
        float mean = LAYER ? stats[row] : 0, scale = stats[LAYER ? n_rows + row : row];
        float sum = 0, centred = 0;
        own_x = next_x;
        own_dy = next_dy;
        if (row + 1 < end) {
            next_x.read(x + at + width, packs);
            next_dy.read(dy + at + width, packs);
        }
        EACH_PACK(packs, {
            ht_pack<T, N> p = PACK(own_x, x + at), d = PACK(own_dy, dy + at), w = ht_pack_at<T, N>(weight + i * N);
            for (int e = 0; e < N; e++) {
                float g = ht_load(d.x[e]) * ht_load(w.x[e]);
                sum += g;
                centred += g * (ht_load(p.x[e]) - mean);
            }
        });
        fold_both((int)(row & 1), &sum, &centred);
        float m1 = LAYER ? sum / (float)width : 0, m2 = centred * scale * scale / (float)width;
        EACH_PACK(packs, {
            ht_pack<T, N> p = PACK(own_x, x + at), d = PACK(own_dy, dy + at), w = ht_pack_at<T, N>(weight + i * N),
                          r = p;
            if (residual) r = ht_pack_at<T, N>(residual + at + i * N);
            for (int e = 0; e < N; e++) {
                float dye = ht_load(d.x[e]), from_mean = ht_load(p.x[e]) - mean;
                float g = scale * (dye * ht_load(w.x[e]) - m1 - from_mean * m2), hat = from_mean * scale;
                p.x[e] = ht_store<T>(residual ? ht_load(r.x[e]) + g : g);
                if (k >= 0) {
                    dw[k < 0 ? 0 : k][e] += dye * hat;
                    if (LAYER) db[k < 0 ? 0 : k][e] += dye;
                } else {
                    int64_t c = i * N + e;
                    dweight[c] = (row > begin ? dweight[c] : 0) + dye * hat;
                    if (LAYER) dbias[c] = (row > begin ? dbias[c] : 0) + dye;
                }
            }
            ht_pack_to<T, N>(dx + at + i * N, p);
        });
    }
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        int64_t i = threadIdx.x + k * (int64_t)blockDim.x;
        if (i >= packs) continue;
        for (int e = 0; e < N; e++) {
            dweight[i * N + e] = dw[k][e];
            if (LAYER) dbias[i * N + e] = db[k][e];
        }
    }
}

template <class T, int N>
static void backward_as(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, const void *dy,
                        const float *stats, const void *residual, void *dx, const struct chunks *c, float *partial)
{
    dim3 grid((unsigned)c->n), block(threads_for(n->width / N));
    const T *w = (const T *)n->weight;
    if (n->bias)
        HT_LAUNCH(cuda, (norm_backward<T, N, true>), grid, block, 0, (const T *)x, w, (const T *)dy, stats,
                  (const T *)residual, (T *)dx, n->n_rows, n->width, c->rows, partial);
    else
        HT_LAUNCH(cuda, (norm_backward<T, N, false>), grid, block, 0, (const T *)x, w, (const T *)dy, stats,
                  (const T *)residual, (T *)dx, n->n_rows, n->width, c->rows, partial);
}

void ht_cuda_norm_backward(struct ht_cuda *cuda, const struct ht_cuda_norm *n, const void *x, const void *dy,
                           const float *stats, const void *residual, void *dx, const struct ht_cuda_norm_grad *g)
{
    struct chunks c = chunks_of(n->n_rows, NORM_CHUNKS, NORM_ROWS);
    struct ht_grad_type type = {g->grad, g->store};
    HT_WITH_TYPE(n->dtype, {
        if (ht_is_wide<T>(n->width, x, dy, n->weight) && ht_is_wide<T>(n->width, residual, dx))
            backward_as<T, ht_wide<T>::N>(cuda, n, x, dy, stats, residual, dx, &c, g->scratch);
        else
            backward_as<T, 1>(cuda, n, x, dy, stats, residual, dx, &c, g->scratch);
    })
    fold(cuda, g->scratch, c.n, n->width, type, g->weight, n->bias ? g->bias : NULL);
}

/* ---- sums of columns ---- */

enum { CHUNKS = 64, CHUNK_ROWS = 32, SUM_ROWS = 8 }; /* most chunks; least rows of a chunk; rows taken at once */

int64_t ht_cuda_column_scratch_bytes(int64_t width)
{
    return CHUNKS * width * (int64_t)sizeof(float);
}

/* Sums a chunk of rows for 32 groups of N columns. partial (n_chunks, width). */
template <class T, int N>
__global__ void column_sums(const T *x, int64_t n_rows, int64_t width, int64_t chunk_rows, float *partial)
{
    __shared__ float of_row[SUM_ROWS][HT_WARP * N];
    int lane = (int)threadIdx.x, sub = (int)threadIdx.y;
    int64_t column = ((int64_t)blockIdx.x * HT_WARP + lane) * N;
    int64_t begin = blockIdx.y * chunk_rows, end = begin + chunk_rows < n_rows ? begin + chunk_rows : n_rows;
    float sums[N];
    for (int k = 0; k < N; k++) sums[k] = 0;
    for (int64_t r = begin + sub; r < end && column < width; r += SUM_ROWS) {
        ht_pack<T, N> p = ht_pack_at<T, N>(x + r * width + column);
        for (int k = 0; k < N; k++) sums[k] += ht_load(p.x[k]);
    }
    for (int k = 0; k < N; k++) of_row[sub][k * HT_WARP + lane] = sums[k];
    __syncthreads();
    if (sub > 0 || column >= width) return;
    float *to = partial + blockIdx.y * width + column;
    for (int k = 0; k < N; k++) {
        float sum = 0;
        for (int i = 0; i < SUM_ROWS; i++) sum += of_row[i][k * HT_WARP + lane];
        to[k] = sum;
    }
}

template <class T, int N>
static void sums_as(struct ht_cuda *cuda, const void *x, int64_t n_rows, int64_t width, const struct chunks *c,
                    float *scratch)
{
    dim3 grid((unsigned)((width / N + HT_WARP - 1) / HT_WARP), (unsigned)c->n), block(HT_WARP, SUM_ROWS);
    HT_LAUNCH(cuda, (column_sums<T, N>), grid, block, 0, (const T *)x, n_rows, width, c->rows, scratch);
}

void ht_cuda_column_sum(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, int64_t n_rows, int64_t width,
                        enum ht_dtype grad, enum ht_dtype store, void *out, float *scratch)
{
    struct chunks c = chunks_of(n_rows, CHUNKS, CHUNK_ROWS);
    struct ht_grad_type type = {grad, store};
    HT_WITH_TYPE(dtype, {
        if (ht_is_wide<T>(width, x))
            sums_as<T, 4>(cuda, x, n_rows, width, &c, scratch);
        else
            sums_as<T, 1>(cuda, x, n_rows, width, &c, scratch);
    })
    fold(cuda, scratch, c.n, width, type, out, NULL);
}
