/* Loops over elements: activations, rotary positions, rounding, accumulation. */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/ht_cuda_ops.h"
#include "common/kernels/cuda/rotary.cuh"

enum { THREADS = 256 };

/* ---- GELU, tanh form, as x / (1 + exp(-2u)): no cancellation, and one exponential ---- */

static __device__ __forceinline__ float gelu_gate(float x)
{
    float u = 0.797884560802865f * (x + 0.044715f * x * x * x);
    return 1.0f / (1.0f + expf(-2.0f * u));
}

static __device__ __forceinline__ float gelu_slope(float x)
{
    float g = gelu_gate(x), slope = 2.0f * 0.797884560802865f * (1.0f + 3.0f * 0.044715f * x * x);
    float far = x * g * (1.0f - g);
    return far == 0.0f ? g : g + far * slope; /* 0 times a slope that has overflowed is 0 */
}

template <class T, int N, bool BACK> __global__ void gelu(const T *x, T *y, int64_t n_packs)
{
    HT_EACH(i, n_packs)
    {
        ht_pack<T, N> p = ht_pack_at<T, N>(x + i * N), d = p;
        if (BACK) d = ht_pack_at<T, N>(y + i * N);
        for (int k = 0; k < N; k++) {
            float v = ht_load(p.x[k]);
            d.x[k] = ht_store<T>(BACK ? ht_load(d.x[k]) * gelu_slope(v) : v * gelu_gate(v));
        }
        ht_pack_to<T, N>(y + i * N, d);
    }
}

template <class T, bool BACK> static void gelu_as(struct ht_cuda *cuda, const void *x, void *y, int64_t n)
{
    if (ht_is_wide<T>(n, x, y)) {
        enum { N = ht_wide<T>::N };
        HT_LAUNCH(cuda, (gelu<T, N, BACK>), ht_grid_for(n / N, THREADS), THREADS, 0, (const T *)x, (T *)y, n / N);
    } else {
        HT_LAUNCH(cuda, (gelu<T, 1, BACK>), ht_grid_for(n, THREADS), THREADS, 0, (const T *)x, (T *)y, n);
    }
}

void ht_cuda_gelu(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *y, int64_t n)
{
    HT_WITH_TYPE(dtype, (gelu_as<T, false>(cuda, x, y, n)))
}

void ht_cuda_gelu_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *d, int64_t n)
{
    HT_WITH_TYPE(dtype, (gelu_as<T, true>(cuda, x, d, n)))
}

/* ---- SwiGLU ---- */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Computes SwiGLU. y: (n_rows, F), or in the backward pass d (n_rows, 2 F). */
template <class T, int N, bool BACK> __global__ void swiglu(const T *x, T *y, int64_t n_packs, int64_t row_packs)
{
    HT_EACH(i, n_packs)
    {
        int64_t row = n_packs <= HT_LIMIT(index, UINT32_MAX) ? (uint32_t)i / (uint32_t)row_packs
                                                             : i / row_packs; /* 64 bit is slow */
        int64_t at = (i + row * row_packs) * N, up = row_packs * N;
        ht_pack<T, N> g = ht_pack_at<T, N>(x + at), u = ht_pack_at<T, N>(x + at + up), d = g;
        if (BACK) d = ht_pack_at<T, N>(y + at + up);
        for (int k = 0; k < N; k++) {
            float a = ht_load(g.x[k]), b = ht_load(u.x[k]), s = sigmoid(a);
            if (BACK) {
                float dy = ht_load(d.x[k]);
                g.x[k] = ht_store<T>(dy * b * (s + a * s * (1.0f - s)));
                d.x[k] = ht_store<T>(dy * (a * s));
            } else {
                d.x[k] = ht_store<T>(a * s * b);
            }
        }
        if (BACK) {
            ht_pack_to<T, N>(y + at, g);
            ht_pack_to<T, N>(y + at + up, d);
        } else {
            ht_pack_to<T, N>(y + i * N, d);
        }
    }
}

template <class T, bool BACK>
static void swiglu_as(struct ht_cuda *cuda, const void *x, void *y, int64_t n_rows, int64_t F)
{
    int64_t n = n_rows * F;
    if (ht_is_wide<T>(F, x, y)) {
        enum { N = ht_wide<T>::N };
        HT_LAUNCH(cuda, (swiglu<T, N, BACK>), ht_grid_for(n / N, THREADS), THREADS, 0, (const T *)x, (T *)y, n / N,
                  F / N);
    } else {
        HT_LAUNCH(cuda, (swiglu<T, 1, BACK>), ht_grid_for(n, THREADS), THREADS, 0, (const T *)x, (T *)y, n, F);
    }
}

void ht_cuda_swiglu(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *y, int64_t n_rows, int64_t F)
{
    HT_WITH_TYPE(dtype, (swiglu_as<T, false>(cuda, x, y, n_rows, F)))
}

void ht_cuda_swiglu_backward(struct ht_cuda *cuda, enum ht_dtype dtype, const void *x, void *d, int64_t n_rows,
                             int64_t F)
{
    HT_WITH_TYPE(dtype, (swiglu_as<T, true>(cuda, x, d, n_rows, F)))
}

/* ---- rotary positions ---- */

/* Rotates heads. A block takes a position. A thread computes sine and cosine of a frequency once, in double, and
   rotates that pair of every head of every sequence. */
template <class T>
__global__ void rotate(T *x, int64_t batch, int64_t seq, int64_t heads, int64_t half, int64_t stride, double theta,
                       bool back)
{
    __shared__ ht_turn turns[HT_WARP];
    int64_t t = blockIdx.x, first = (int64_t)blockIdx.y * HT_WARP;
    int lane = (int)threadIdx.x % HT_WARP, warp = (int)threadIdx.x / HT_WARP, n_warps = (int)blockDim.x / HT_WARP;
    if (warp == 0 && first + lane < half) turns[lane] = ht_turn_at(theta, half, t, first + lane, back);
    __syncthreads();
    if (first + lane >= half) return;
    ht_turn turn = turns[lane];
    for (int64_t i = warp; i < batch * heads; i += n_warps) {
        T *low = x + (i / heads * seq + t) * stride + i % heads * 2 * half + first + lane;
        ht_rotate_pair(turn, low, low + half);
    }
}

void ht_cuda_rotate(struct ht_cuda *cuda, enum ht_dtype dtype, void *x, int64_t batch, int64_t seq, int64_t heads,
                    int64_t head_size, int64_t stride, double theta, bool back)
{
    int64_t half = head_size / 2;
    dim3 grid((unsigned)seq, (unsigned)((half + HT_WARP - 1) / HT_WARP));
    HT_WITH_TYPE(dtype, HT_LAUNCH(cuda, (rotate<T>), grid, dim3(THREADS), 0, (T *)x, batch, seq, heads, half, stride,
                                  theta, back))
}

/* ---- rounding and accumulation ---- */

template <class A, class B, int N> __global__ void convert(const A *from, B *to, int64_t n_packs)
{
    HT_EACH(i, n_packs)
    {
        ht_pack<A, N> a = ht_pack_at<A, N>(from + i * N);
        ht_pack<B, N> b;
        for (int k = 0; k < N; k++) b.x[k] = ht_store<B>(ht_load(a.x[k]));
        ht_pack_to<B, N>(to + i * N, b);
    }
}

template <class A>
static void convert_from(struct ht_cuda *cuda, const A *from, enum ht_dtype type, void *to, int64_t n)
{
    HT_WITH_TYPE(type, {
        if ((uintptr_t)from % 16 == 0 && (uintptr_t)to % 16 == 0 && n % 4 == 0)
            HT_LAUNCH(cuda, (convert<A, T, 4>), ht_grid_for(n / 4, THREADS), THREADS, 0, from, (T *)to, n / 4);
        else
            HT_LAUNCH(cuda, (convert<A, T, 1>), ht_grid_for(n, THREADS), THREADS, 0, from, (T *)to, n);
    })
}

void ht_cuda_convert(struct ht_cuda *cuda, enum ht_dtype from_type, const void *from, enum ht_dtype to_type, void *to,
                     int64_t n)
{
    HT_WITH_TYPE(from_type, convert_from<T>(cuda, (const T *)from, to_type, to, n))
}

template <class G, int N> __global__ void round_in_place(float *x, int64_t n_packs)
{
    HT_EACH(i, n_packs)
    {
        ht_pack<float, N> p = ht_pack_at<float, N>(x + i * N);
        for (int k = 0; k < N; k++) p.x[k] = ht_load(ht_store<G>(p.x[k]));
        ht_pack_to<float, N>(x + i * N, p);
    }
}

template <class G> static void round_as(struct ht_cuda *cuda, float *x, int64_t n)
{
    if (ht_is_wide<float>(n, x))
        HT_LAUNCH(cuda, (round_in_place<G, 4>), ht_grid_for(n / 4, THREADS), THREADS, 0, x, n / 4);
    else
        HT_LAUNCH(cuda, (round_in_place<G, 1>), ht_grid_for(n, THREADS), THREADS, 0, x, n);
}

void ht_cuda_round(struct ht_cuda *cuda, enum ht_dtype grad, float *x, int64_t n)
{
    if (grad == HT_F16) round_as<ht_f16>(cuda, x, n);
    if (grad == HT_BF16) round_as<ht_bf16>(cuda, x, n);
}

template <class A, class B, int N> __global__ void accumulate(A *acc, const B *add, int64_t n_packs)
{
    HT_EACH(i, n_packs)
    {
        ht_pack<A, N> a = ht_pack_at<A, N>(acc + i * N);
        ht_pack<B, N> b = ht_pack_at<B, N>(add + i * N);
        for (int k = 0; k < N; k++) a.x[k] = ht_store<A>(__fadd_rn(ht_load(a.x[k]), ht_load(b.x[k])));
        ht_pack_to<A, N>(acc + i * N, a);
    }
}

template <class A>
static void accumulate_to(struct ht_cuda *cuda, A *acc, enum ht_dtype type, const void *add, int64_t n)
{
    HT_WITH_TYPE(type, {
        if ((uintptr_t)acc % 16 == 0 && (uintptr_t)add % 16 == 0 && n % 4 == 0)
            HT_LAUNCH(cuda, (accumulate<A, T, 4>), ht_grid_for(n / 4, THREADS), THREADS, 0, acc, (const T *)add, n / 4);
        else
            HT_LAUNCH(cuda, (accumulate<A, T, 1>), ht_grid_for(n, THREADS), THREADS, 0, acc, (const T *)add, n);
    })
}

void ht_cuda_accumulate(struct ht_cuda *cuda, enum ht_dtype acc_type, void *acc, enum ht_dtype add_type,
                        const void *add, int64_t n)
{
    HT_WITH_TYPE(acc_type, accumulate_to<T>(cuda, (T *)acc, add_type, add, n))
}
