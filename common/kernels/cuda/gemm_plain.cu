/*
 * Matrix products on the ordinary cores, for shapes that cuBLASLt has no algorithm for (such as 16-bit matrices with
 * odd strides). A block computes a tile of 32 by 32; each element is one sum over k, in order.
 */
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/gemm_plain.cuh"

enum { TILE = 32, ROWS = 8, EACH = TILE / ROWS }; /* 32 by 8 threads, four elements each */

template <class I, class O> __global__ void multiply_plain(struct ht_cuda_product p)
{
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE + 1];
    int x = (int)threadIdx.x, y = (int)threadIdx.y;
    int64_t r0 = (int64_t)blockIdx.y * TILE, c0 = (int64_t)blockIdx.x * TILE;
    const I *a = (const I *)p.a + blockIdx.z * p.a_step, *b = (const I *)p.b + blockIdx.z * p.b_step;
    float sum[EACH] = {0};
    for (int64_t k0 = 0; k0 < p.k; k0 += TILE) {
        for (int i = 0; i < EACH; i++) { /* x runs along the stored rows */
            int other = y + ROWS * i;
            int64_t ar = r0 + (p.a_transposed ? x : other), ak = k0 + (p.a_transposed ? other : x);
            int64_t bc = c0 + (p.b_transposed ? other : x), bk = k0 + (p.b_transposed ? x : other);
            float av =
                ar < p.m && ak < p.k ? ht_load(a[p.a_transposed ? ak * p.a_stride + ar : ar * p.a_stride + ak]) : 0;
            float bv =
                bc < p.n && bk < p.k ? ht_load(b[p.b_transposed ? bc * p.b_stride + bk : bk * p.b_stride + bc]) : 0;
            left[p.a_transposed ? x : other][p.a_transposed ? other : x] = av;
            right[p.b_transposed ? x : other][p.b_transposed ? other : x] = bv;
        }
        __syncthreads();
        for (int k = 0; k < TILE; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++) sum[i] = fmaf(left[y + ROWS * i][k], right[k][x], sum[i]);
        __syncthreads();
    }
    int64_t c = c0 + x;
    for (int i = 0; i < EACH && c < p.n; i++) {
        int64_t r = r0 + y + ROWS * i, at = blockIdx.z * p.c_step + r * p.c_stride + c;
        if (r >= p.m) continue;
        if (p.add) sum[i] += ht_load(((const O *)p.add)[at]);
        if (p.bias) sum[i] += ht_load(((const O *)p.bias)[c]);
        ((O *)p.c)[at] = ht_store<O>(sum[i]);
    }
}

template <class I, class O> static void launch(struct ht_cuda *cuda, const struct ht_cuda_product *p)
{
    dim3 grid((unsigned)((p->n + TILE - 1) / TILE), (unsigned)((p->m + TILE - 1) / TILE),
              (unsigned)(p->count > 1 ? p->count : 1));
    if (grid.y > 65535 || grid.z > 65535)
        ht_cuda_fail(cuda, HT_FAILED, "a matrix product too large for the plain kernel", __FILE__, __LINE__);
    HT_LAUNCH(cuda, (multiply_plain<I, O>), grid, dim3(TILE, ROWS), 0, *p);
}

void ht_cuda_multiply_plain(struct ht_cuda *cuda, const struct ht_cuda_product *p)
{
    HT_WITH_TYPE(p->in, if (p->out == HT_F32) launch<T, float>(cuda, p); else launch<T, T>(cuda, p))
}
