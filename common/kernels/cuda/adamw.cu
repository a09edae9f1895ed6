/* AdamW, the gradient check and initial values. Memory bandwidth limits all. A thread takes four elements a turn. */
#include <math.h>
#include <string.h>

#include "common/kernels/cuda/adamw.cuh"

enum { THREADS = 256 };

template <class G, int N, class C>
__global__ void adamw(struct ht_adamw_step s, float *param, float *m, float *v, const G *grad, C *copy, int64_t n_packs)
{
    HT_EACH(i, n_packs)
    {
        ht_pack<float, N> p = ht_pack_at<float, N>(param + i * N), mi = ht_pack_at<float, N>(m + i * N);
        ht_pack<float, N> vi = ht_pack_at<float, N>(v + i * N);
        ht_pack<G, N> g = ht_pack_at<G, N>(grad + i * N);
        ht_pack<C, N> c;
        for (int k = 0; k < N; k++) {
            struct ht_adamw_values x = {p.x[k], mi.x[k], vi.x[k]};
            x = ht_adamw_one(s, x, __fmul_rn(ht_load(g.x[k]), s.grad_scale));
            p.x[k] = x.p;
            mi.x[k] = x.m;
            vi.x[k] = x.v;
            c.x[k] = ht_store<C>(x.p);
        }
        ht_pack_to<float, N>(param + i * N, p);
        ht_pack_to<float, N>(m + i * N, mi);
        ht_pack_to<float, N>(v + i * N, vi);
        if (copy) ht_pack_to<C, N>(copy + i * N, c);
    }
}

static bool aligned(const struct ht_cuda_adamw *a)
{
    return ((uintptr_t)a->param | (uintptr_t)a->m | (uintptr_t)a->v | (uintptr_t)a->grad | (uintptr_t)a->copy) % 16 ==
           0;
}

/* Launches over the elements from `begin` on, N at a time. */
template <class G, int N, class C>
static void launch(struct ht_cuda *cuda, const struct ht_adamw_step *s, const struct ht_cuda_adamw *a, int64_t begin,
                   int64_t n)
{
    C *copy = a->copy ? (C *)a->copy + begin : NULL;
    HT_LAUNCH(cuda, (adamw<G, N, C>), ht_grid_for(n / N, THREADS), THREADS, 0, *s, a->param + begin, a->m + begin,
              a->v + begin, (const G *)a->grad + begin, copy, n / N);
}

template <class G, class C>
static void update_as(struct ht_cuda *cuda, const struct ht_adamw_step *s, const struct ht_cuda_adamw *a)
{
    int64_t wide = aligned(a) ? a->n / 4 * 4 : 0;
    launch<G, 4, C>(cuda, s, a, 0, wide);
    launch<G, 1, C>(cuda, s, a, wide, a->n - wide);
}

template <class G>
static void update_from(struct ht_cuda *cuda, const struct ht_adamw_step *s, const struct ht_cuda_adamw *a)
{
    HT_WITH_TYPE(a->copy ? a->copy_type : HT_F32, update_as<G, T>(cuda, s, a))
}

void ht_cuda_adamw_update(struct ht_cuda *cuda, const struct ht_adamw_step *step, const struct ht_cuda_adamw *a)
{
    HT_WITH_TYPE(a->grad_type, update_from<T>(cuda, step, a))
}

/* ---- the gradient check ---- */

/* The CPU's sum has ht_grad_parts parts of 16 lanes, each lane one chain of additions. Here a block takes a part: four
   warps read a tile and store its squares, which are exact in double, while 16 threads of the fifth add those of the
   previous tile to their chains. So the chains have nothing to do but load and add, and all warps share the conversions
   to double, of which a multiprocessor makes few a cycle. Blocks are small, so that all parts are on the GPU at once. */
enum { LANES = 16, CHECKERS = 128, TILE = 1024 };

/* A thread's elements of a tile, N side by side at a time; those beyond the part's end are 0. */
template <class T, int N> struct own_tile {
    enum { PACKS = TILE / N / CHECKERS };
    ht_pack<T, N> kept[PACKS];

    __device__ __forceinline__ void read(const T *x, int64_t begin, int64_t end)
    {
        bool whole = begin + TILE <= end;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64_t i = begin + (k * CHECKERS + (int)threadIdx.x) * N;
            if (whole || i + N <= end) {
                kept[k] = ht_pack_at<T, N>(x + i);
                continue;
            }
            for (int e = 0; e < N; e++) kept[k].x[e] = i + e < end ? x[i + e] : ht_store<T>(0);
        }
    }

    /* Stores the squares. Returns `nan`, or NaN if a gradient does not fit: where it is not finite itself, or scaled,
       its scaled square is not finite either. */
    __device__ __forceinline__ float square(float scale, float factor, float nan, double *squares) const
    {
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            ht_pack<double, N> to;
#pragma unroll
            for (int e = 0; e < N; e++) {
                float v = ht_load(kept[k].x[e]), g = __fmul_rn(v, scale);
                nan = __fmaf_rn(__fmul_rn(__fmul_rn(factor, g), g), 0, nan);
                to.x[e] = (double)v * (double)v;
            }
            for (int e = 0; e < N; e++) squares[(k * CHECKERS + (int)threadIdx.x) * N + e] = to.x[e];
        }
        return nan;
    }
};

template <class T, int N>
__global__ void __launch_bounds__(CHECKERS + HT_WARP)
    grad_check(const T *x, float scale, float factor, int64_t n, uint32_t *part_bad, double *part_squares)
{
    __shared__ double tiles[2][TILE], lanes[LANES];
    int64_t grains = (n + LANES - 1) / LANES; /* ht_range_split */
    int64_t begin = grains * blockIdx.x / gridDim.x * LANES, end = grains * (blockIdx.x + 1) / gridDim.x * LANES;
    int lane = (int)threadIdx.x - CHECKERS; /* of the sum; negative: reads */
    float nan = 0;
    double sum = 0;
    own_tile<T, N> own;
    if (end > n) end = n;
    int64_t n_tiles = (end - begin + TILE - 1) / TILE;
    if (lane < 0) own.read(x, begin, end);
    for (int64_t t = 0; t <= n_tiles; t++) { /* tile t is squared, tile t + 1 read, tile t - 1 added */
        if (lane < 0 && t < n_tiles) {
            nan = own.square(scale, factor, nan, tiles[t & 1]);
            own.read(x, begin + (t + 1) * TILE, end);
        }
        if (t > 0 && lane >= 0 && lane < LANES) {
            const double *last = tiles[(t - 1) & 1] + lane;
#pragma unroll 16
            for (int i = 0; i < TILE; i += LANES) sum += last[i];
        }
        __syncthreads();
    }
    if (lane >= 0 && lane < LANES) lanes[lane] = sum;
    int any = __syncthreads_or(nan != nan);
    if (threadIdx.x > 0) return;
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    part_squares[blockIdx.x] = lanes[0];
    part_bad[blockIdx.x] = any != 0;
}

/* Adds the parts in their order: all threads of the block load them, one adds. */
static __global__ void fold_parts(struct ht_cuda_grad_partial *p, int n_parts)
{
    __shared__ double squares[HT_GRAD_PARTS];
    uint32_t bad = 0;
    for (int i = (int)threadIdx.x; i < n_parts; i += (int)blockDim.x) {
        squares[i] = p->part_squares[i];
        bad |= p->part_bad[i];
    }
    int any = __syncthreads_or((int)bad);
    if (threadIdx.x > 0) return;
    double sum = 0;
#pragma unroll 16
    for (int i = 0; i < n_parts; i++) sum += squares[i];
    p->squares = sum;
    p->bad = any != 0;
}

template <class T, int N>
static void check_as(struct ht_cuda *cuda, const struct ht_adamw_step *step, const T *grad, int64_t n,
                     struct ht_cuda_grad_partial *partial)
{
    HT_LAUNCH(cuda, (grad_check<T, N>), dim3((unsigned)ht_grad_parts(n)), dim3(CHECKERS + HT_WARP), 0, grad,
              step->grad_scale, step->one_less_beta2, n, partial->part_bad, partial->part_squares);
}

void ht_cuda_grad_check(struct ht_cuda *cuda, const struct ht_adamw_step *step, enum ht_dtype type, const void *grad,
                        int64_t n, struct ht_cuda_grad_partial *partial)
{
    HT_WITH_TYPE(type, {
        if ((uintptr_t)grad % 16 == 0)
            check_as<T, ht_wide<T>::N>(cuda, step, (const T *)grad, n, partial);
        else
            check_as<T, 1>(cuda, step, (const T *)grad, n, partial);
    })
    HT_LAUNCH(cuda, fold_parts, dim3(1), dim3(THREADS), 0, partial, ht_grad_parts(n));
}

/* ---- initial values: common/kernels/params.c and common/base/rng.h ---- */

static __device__ __forceinline__ uint64_t mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t host_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Computes elements [begin, begin + n) of a unit: a (2 u - 1), or `constant` where a is 0. mixed: mix64 of the unit's
   stream. */
template <class T> __global__ void init(T *params, int64_t begin, int64_t n, uint64_t mixed, float a, float constant)
{
    HT_EACH(i, n)
    {
        float u = (float)(mix64(mixed + (uint64_t)(begin + i)) >> 40) * 5.9604644775390625e-8f; /* 2^-24 */
        float x = __fmul_rn(a, __fsub_rn(__fmul_rn(2, u), 1));
        params[begin + i] = ht_store<T>(a == 0 ? constant : x);
    }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

void ht_cuda_unit_init(struct ht_cuda *cuda, const struct ht_model *model, int64_t unit, uint64_t seed,
                       enum ht_dtype type, void *params)
{
    struct ht_param_part parts[HT_MAX_PARAM_PARTS];
    int n = ht_unit_param_parts(model, unit, parts);
    uint64_t stream = host_mix64(host_mix64(seed) + (uint64_t)unit), mixed = host_mix64(stream);
    for (int k = 0; k < n; k++) {
        const struct ht_param_part *part = &parts[k];
        int64_t elements = part->rows * part->cols;
        bool bias = ends_with(part->name, ".bias");
        bool norm = strncmp(part->name, "ln_", 3) == 0 || strstr(part->name, "norm") != NULL;
        double range = 0.02 * sqrt(3.0);
        if (ends_with(part->name, "c_proj.weight")) range /= sqrt(2.0 * (double)model->layers);
        float a = bias || norm ? 0 : (float)range, constant = bias ? 0 : 1;
        HT_WITH_TYPE(type, HT_LAUNCH(cuda, (init<T>), ht_grid_for(elements, THREADS), THREADS, 0, (T *)params,
                                     part->offset, elements, mixed, a, constant))
    }
}
