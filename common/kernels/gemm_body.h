/*
 * Matrix product, included by each simd_<level>.c after it has defined
 *
 *     SIMD_BYTES               width of a register
 *     GEMM_ROWS                rows of the tile of C that is held in registers
 *     GEMM_BROADCAST(x)        a register full of x
 *     GEMM_MULTIPLY_ADD(a,b,c) a b + c
 *
 * The classic scheme (Goto and van de Geijn 2008). A block of B (DEPTH, COLUMNS) is packed into strips as wide as the
 * tile and stays in L2; a block of A (HEIGHT, DEPTH) is packed into strips as high as the tile. A tile of C stays in
 * registers while it runs down one strip of A and one of B, two registers wide:
 *
 *                     B strip: 2 registers a step of k
 *                       | |
 *     A strip:   -->   [c c]   GEMM_ROWS rows
 *     a column         [c c]
 *     a step of k      [c c]
 *
 * Strips are padded with zeros, and a tile that sticks out of C goes through a buffer.
 */
#include <string.h>

#include "common/kernels/gemm.h"

enum {
    GEMM_VECS = 2,
    GEMM_PER_VEC = SIMD_BYTES / 4,
    GEMM_COLUMNS = GEMM_VECS * GEMM_PER_VEC,
    GEMM_BLOCK_DEPTH = 256,
    GEMM_BLOCK_COLUMNS = 384,
    GEMM_BLOCK_HEIGHT = 96, /* a multiple of every GEMM_ROWS */
};
typedef float gemm_vec __attribute__((vector_size(SIMD_BYTES)));
typedef float gemm_vec_at __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias));
typedef float gemm_quad __attribute__((vector_size(16)));
typedef float gemm_quad_at __attribute__((vector_size(16), aligned(4), may_alias));

/* c (GEMM_ROWS, GEMM_COLUMNS) = or += strip of A by strip of B, over k steps. */
static void gemm_tile(const float *a, const float *b, int64_t k, bool add, float *c, int64_t c_stride)
{
    gemm_vec acc[GEMM_ROWS][GEMM_VECS];
#pragma GCC unroll 16
    for (int r = 0; r < GEMM_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < GEMM_VECS; v++)
            acc[r][v] = add ? (gemm_vec)(*(const gemm_vec_at *)(c + r * c_stride + v * GEMM_PER_VEC)) : (gemm_vec){0};
    for (int64_t p = 0; p < k; p++, a += GEMM_ROWS, b += GEMM_COLUMNS) {
        gemm_vec b0 = *(const gemm_vec *)b, b1 = *(const gemm_vec *)(b + GEMM_PER_VEC);
#pragma GCC unroll 16
        for (int r = 0; r < GEMM_ROWS; r++) {
            gemm_vec ar = GEMM_BROADCAST(a[r]);
            acc[r][0] = GEMM_MULTIPLY_ADD(ar, b0, acc[r][0]);
            acc[r][1] = GEMM_MULTIPLY_ADD(ar, b1, acc[r][1]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < GEMM_ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < GEMM_VECS; v++) *(gemm_vec_at *)(c + r * c_stride + v * GEMM_PER_VEC) = acc[r][v];
}

/* A tile of which only (m, n) lies in C. */
static void gemm_edge_tile(const float *a, const float *b, int64_t k, bool add, float *c, int64_t c_stride, int64_t m,
                           int64_t n)
{
    float tile[GEMM_ROWS * GEMM_COLUMNS] = {0};
    size_t bytes = (size_t)n * sizeof(float);
    for (int64_t r = 0; r < m && add; r++) memcpy(tile + r * GEMM_COLUMNS, c + r * c_stride, bytes);
    gemm_tile(a, b, k, add, tile, GEMM_COLUMNS);
    for (int64_t r = 0; r < m; r++) memcpy(c + r * c_stride, tile + r * GEMM_COLUMNS, bytes);
}

/* dst[j * dst_stride + i] = src[i * src_stride + j] for i, j in 0..3 */
static inline void gemm_transpose4(const float *src, int64_t src_stride, float *dst, int64_t dst_stride)
{
    gemm_quad r0 = *(const gemm_quad_at *)src, r1 = *(const gemm_quad_at *)(src + src_stride);
    gemm_quad r2 = *(const gemm_quad_at *)(src + 2 * src_stride), r3 = *(const gemm_quad_at *)(src + 3 * src_stride);
    gemm_quad lo01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), hi01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    gemm_quad lo23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), hi23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(gemm_quad_at *)dst = __builtin_shufflevector(lo01, lo23, 0, 1, 4, 5);
    *(gemm_quad_at *)(dst + dst_stride) = __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7);
    *(gemm_quad_at *)(dst + 2 * dst_stride) = __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5);
    *(gemm_quad_at *)(dst + 3 * dst_stride) = __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7);
}

/* One strip from a matrix whose rows run along k: dst[p * width + i] = src[i * stride + p], i < n, 0 for n <= i <
 * width. */
static void gemm_pack_across(const float *src, int64_t stride, int64_t n, int64_t k, float *dst, int64_t width)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float *s = src + i * stride;
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) gemm_transpose4(s + p, stride, dst + p * width + i, width);
        for (; p < k; p++)
            for (int j = 0; j < 4; j++) dst[p * width + i + j] = s[j * stride + p];
    }
    for (; i < n; i++)
        for (int64_t p = 0; p < k; p++) dst[p * width + i] = src[i * stride + p];
    for (; i < width; i++)
        for (int64_t p = 0; p < k; p++) dst[p * width + i] = 0;
}

/* Strips from a matrix whose rows run across k: dst[strip][p * width + i] = src[p * stride + strip * width + i]. */
static void gemm_pack_along(const float *src, int64_t stride, int64_t n, int64_t k, float *dst, int64_t width)
{
    for (int64_t p = 0; p < k; p++) {
        const float *s = src + p * stride;
        float *d = dst + p * width;
        int64_t i = 0;
        for (; i + width <= n; i += width, d += k * width) memcpy(d, s + i, (size_t)width * sizeof(float));
        if (i == n) continue;
        memcpy(d, s + i, (size_t)(n - i) * sizeof(float));
        memset(d + (n - i), 0, (size_t)(width - (n - i)) * sizeof(float));
    }
}

/* A block n wide (rows of A, columns of B) and k deep into strips. `along`: the matrix has k as its rows. */
static inline void gemm_pack(const float *src, int64_t stride, bool along, int64_t n, int64_t k, float *dst,
                             int64_t width)
{
    if (along) {
        gemm_pack_along(src, stride, n, k, dst, width);
        return;
    }
    for (int64_t i = 0; i < n; i += width)
        gemm_pack_across(src + i * stride, stride, n - i < width ? n - i : width, k, dst + i * k, width);
}

static inline int64_t gemm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Tiles of a block of C (m, n). */
static void gemm_block(const float *a, const float *b, int64_t m, int64_t n, int64_t k, bool add, float *c,
                       int64_t c_stride)
{
    for (int64_t j = 0; j < n; j += GEMM_COLUMNS)
        for (int64_t i = 0; i < m; i += GEMM_ROWS) {
            float *at = c + i * c_stride + j;
            if (m - i >= GEMM_ROWS && n - j >= GEMM_COLUMNS)
                gemm_tile(a + i * k, b + j * k, k, add, at, c_stride);
            else
                gemm_edge_tile(a + i * k, b + j * k, k, add, at, c_stride, gemm_min(m - i, GEMM_ROWS),
                               gemm_min(n - j, GEMM_COLUMNS));
        }
}

static void simd_gemm(const struct ht_gemm *g)
{
    _Alignas(64) float a[GEMM_BLOCK_HEIGHT * GEMM_BLOCK_DEPTH], b[GEMM_BLOCK_COLUMNS * GEMM_BLOCK_DEPTH];
    _Static_assert(sizeof(a) + sizeof(b) + 64 * 1024 <= HT_GEMM_STACK_BYTES, "HT_GEMM_STACK_BYTES");
    _Static_assert(GEMM_BLOCK_HEIGHT % GEMM_ROWS == 0 && GEMM_BLOCK_COLUMNS % GEMM_COLUMNS == 0, "blocks are of tiles");
    if (g->k == 0 && !g->add)
        for (int64_t i = 0; i < g->m; i++) memset(g->c + i * g->c_stride, 0, (size_t)g->n * sizeof(float));
    for (int64_t j = 0; j < g->n; j += GEMM_BLOCK_COLUMNS) {
        int64_t n = gemm_min(g->n - j, GEMM_BLOCK_COLUMNS);
        for (int64_t p = 0; p < g->k; p += GEMM_BLOCK_DEPTH) {
            int64_t k = gemm_min(g->k - p, GEMM_BLOCK_DEPTH);
            const float *from = g->b + (g->b_transposed ? j * g->b_stride + p : p * g->b_stride + j);
            gemm_pack(from, g->b_stride, !g->b_transposed, n, k, b, GEMM_COLUMNS);
            for (int64_t i = 0; i < g->m; i += GEMM_BLOCK_HEIGHT) {
                int64_t m = gemm_min(g->m - i, GEMM_BLOCK_HEIGHT);
                from = g->a + (g->a_transposed ? p * g->a_stride + i : i * g->a_stride + p);
                gemm_pack(from, g->a_stride, g->a_transposed, m, k, a, GEMM_ROWS);
                gemm_block(a, b, m, n, k, g->add || p > 0, g->c + i * g->c_stride + j, g->c_stride);
            }
        }
    }
}
