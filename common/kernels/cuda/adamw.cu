/* AdamW, checks of gradients and initial values: bound by memory, four elements a thread and turn. */
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

/* Elements from `begin` on, N at a time. */
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

/* ---- checks and the sum of squares ---- */

/* The CPU's sum has 64 parts of 16 lanes, each lane one chain of additions. Here a block takes a part: all of its
   threads square (exact in double) what the 16 chains add next. */
enum { LANES = 16, TILE = 2048, OF_THREAD = TILE / THREADS };

static __device__ __forceinline__ bool not_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u;
}

template <class T>
__global__ void judge(const T *x, float scale, float factor, int64_t n, struct ht_cuda_grad_partial *to)
{
    __shared__ double squares[2][TILE];
    __shared__ double lanes[LANES];
    int64_t grains = (n + LANES - 1) / LANES; /* ht_range_split */
    int64_t begin = grains * blockIdx.x / HT_CUDA_JUDGE_PARTS * LANES;
    int64_t end = grains * (blockIdx.x + 1) / HT_CUDA_JUDGE_PARTS * LANES;
    int tid = (int)threadIdx.x;
    bool bad = false;
    double sum = 0;
    if (end > n) end = n;
    int64_t n_tiles = (end - begin + TILE - 1) / TILE;
    for (int64_t t = 0; t <= n_tiles; t++) { /* tile t is squared, tile t - 1 added */
        if (t < n_tiles) {
#pragma unroll
            for (int k = 0; k < OF_THREAD; k++) {
                int64_t i = begin + t * TILE + k * THREADS + tid;
                float v = i < end ? ht_load(x[i]) : 0, g = __fmul_rn(v, scale);
                bad = bad || not_finite(v) || not_finite(g) || not_finite(__fmul_rn(__fmul_rn(factor, g), g));
                squares[t & 1][k * THREADS + tid] = (double)v * (double)v;
            }
        }
        if (t > 0 && tid < LANES)
#pragma unroll 8
            for (int i = 0; i < TILE; i += LANES) sum += squares[(t - 1) & 1][i + tid];
        __syncthreads();
    }
    if (tid < LANES) lanes[tid] = sum;
    int any = __syncthreads_or(bad);
    if (tid > 0) return;
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    to->part_squares[blockIdx.x] = lanes[0];
    to->part_bad[blockIdx.x] = any != 0;
}

static __global__ void fold_parts(struct ht_cuda_grad_partial *p)
{
    double sum = 0;
    uint32_t bad = 0;
    for (int i = 0; i < HT_CUDA_JUDGE_PARTS; i++) {
        sum += p->part_squares[i];
        bad |= p->part_bad[i];
    }
    p->squares = sum;
    p->bad = bad;
}

void ht_cuda_grad_judge(struct ht_cuda *cuda, const struct ht_adamw_step *step, enum ht_dtype type, const void *grad,
                        int64_t n, struct ht_cuda_grad_partial *partial)
{
    HT_WITH_TYPE(type, HT_LAUNCH(cuda, (judge<T>), dim3(HT_CUDA_JUDGE_PARTS), dim3(THREADS), 0, (const T *)grad,
                                 step->grad_scale, step->one_less_beta2, n, partial))
    HT_LAUNCH(cuda, fold_parts, dim3(1), dim3(1), 0, partial);
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

/* Elements [begin, begin + n) of a unit: a (2 u - 1), or `constant` where a is 0. mixed: mix64 of the unit's stream. */
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
