/*
 * Matrix product. Each simd_<level>.c includes this file after it has defined
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
 * Strips are padded with zeros, and a tile that exceeds C goes through a buffer. C carries the sums from one block of k
 * to the next, so when C is not FP32, a part of it (PART, COLUMNS) is held in FP32 beside it, and stored once.
 */
#include <assert.h>
#include <string.h>

#include "common/kernels/convert.h"
#include "common/kernels/gemm.h"

enum {
    GEMM_VECS = 2,
    GEMM_PER_VEC = SIMD_BYTES / 4,
    GEMM_COLUMNS = GEMM_VECS * GEMM_PER_VEC,
    GEMM_BLOCK_DEPTH = 256,
    GEMM_BLOCK_COLUMNS = 384,
    GEMM_BLOCK_HEIGHT = 96, /* a multiple of every GEMM_ROWS */
    GEMM_PART_HEIGHT = 4 * GEMM_BLOCK_HEIGHT,
};
typedef float gemm_vec __attribute__((vector_size(SIMD_BYTES)));
typedef float gemm_vec_at __attribute__((vector_size(SIMD_BYTES), aligned(4), may_alias));
typedef float gemm_quad __attribute__((vector_size(16)));
typedef float gemm_quad_at __attribute__((vector_size(16), aligned(4), may_alias));

/* Computes c (GEMM_ROWS, GEMM_COLUMNS) = or += strip of A by strip of B, over k steps. */
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

/* Computes a tile of which only (m, n) lies in C. */
static void gemm_edge_tile(const float *a, const float *b, int64_t k, bool add, float *c, int64_t c_stride, int64_t m,
                           int64_t n)
{
    float tile[GEMM_ROWS * GEMM_COLUMNS] = {0};
    size_t bytes = (size_t)n * sizeof(float);
    for (int64_t r = 0; r < m && add; r++) memcpy(tile + r * GEMM_COLUMNS, c + r * c_stride, bytes);
    gemm_tile(a, b, k, add, tile, GEMM_COLUMNS);
    for (int64_t r = 0; r < m; r++) memcpy(c + r * c_stride, tile + r * GEMM_COLUMNS, bytes);
}

/* Transposes: dst[j * dst_stride + i] = src[i * src_stride + j] for i, j in 0..3. */
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

/* A matrix from some element on. */
struct gemm_matrix {
    const void *at;
    enum ht_dtype type;
    int64_t stride;
};

static inline struct gemm_matrix gemm_from(const void *at, enum ht_dtype type, int64_t stride, int64_t row,
                                           int64_t column)
{
    return (struct gemm_matrix){ht_element(at, type, row * stride + column), type, stride};
}

enum { GEMM_CONVERTED = 4 }; /* rows converted at a time */
typedef float gemm_rows[GEMM_CONVERTED * GEMM_BLOCK_COLUMNS];

/* Returns `rows` (at most GEMM_CONVERTED) rows of n (at most GEMM_BLOCK_COLUMNS) in FP32: in place, or converted. */
static inline const float *gemm_in_f32(struct gemm_matrix s, int64_t row, int64_t rows, int64_t n, gemm_rows converted,
                                       int64_t *stride)
{
    if (s.type == HT_F32) {
        *stride = s.stride;
        return (const float *)s.at + row * s.stride;
    }
    *stride = GEMM_BLOCK_COLUMNS;
    for (int64_t r = 0; r < rows; r++)
        simd_widen(ht_element(s.at, s.type, (row + r) * s.stride), s.type, converted + r * GEMM_BLOCK_COLUMNS, n);
    return converted;
}

/* Packs one strip from a matrix whose rows run along k: dst[p * width + i] = src[(first + i) * stride + p], i < n, 0
   for n <= i < width. */
static void gemm_pack_across(struct gemm_matrix src, int64_t first, int64_t n, int64_t k, float *dst, int64_t width)
{
    gemm_rows converted;
    int64_t i = 0, stride;
    for (; i + 4 <= n; i += 4) {
        const float *s = gemm_in_f32(src, first + i, 4, k, converted, &stride);
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) gemm_transpose4(s + p, stride, dst + p * width + i, width);
        for (; p < k; p++)
            for (int j = 0; j < 4; j++) dst[p * width + i + j] = s[j * stride + p];
    }
    for (; i < n; i++) {
        const float *s = gemm_in_f32(src, first + i, 1, k, converted, &stride);
        for (int64_t p = 0; p < k; p++) dst[p * width + i] = s[p];
    }
    for (; i < width; i++)
        for (int64_t p = 0; p < k; p++) dst[p * width + i] = 0;
}

/* Packs strips from a matrix whose rows run across k: dst[strip][p * width + i] = src[p * stride + strip * width +
   i]. */
static void gemm_pack_along(struct gemm_matrix src, int64_t n, int64_t k, float *dst, int64_t width)
{
    gemm_rows converted;
    int64_t stride;
    for (int64_t p = 0; p < k; p++) {
        const float *s = gemm_in_f32(src, p, 1, n, converted, &stride);
        float *d = dst + p * width;
        int64_t i = 0;
        for (; i + width <= n; i += width, d += k * width) memcpy(d, s + i, (size_t)width * sizeof(float));
        if (i == n) continue;
        memcpy(d, s + i, (size_t)(n - i) * sizeof(float));
        memset(d + (n - i), 0, (size_t)(width - (n - i)) * sizeof(float));
    }
}

/* Packs a block n wide (rows of A, columns of B) and k deep into strips. `along`: the matrix has k as its rows. */
static inline void gemm_pack(struct gemm_matrix src, bool along, int64_t n, int64_t k, float *dst, int64_t width)
{
    if (along) {
        gemm_pack_along(src, n, k, dst, width);
        return;
    }
    for (int64_t i = 0; i < n; i += width)
        gemm_pack_across(src, i, n - i < width ? n - i : width, k, dst + i * k, width);
}

static inline int64_t gemm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Computes the tiles of a block of C (m, n). */
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

/* A part of C: rows [i, i + m) and columns [j, j + n), n <= GEMM_BLOCK_COLUMNS, in FP32. */
struct gemm_part {
    int64_t i, m, j, n;
    float *c;
    int64_t c_stride;
};

struct gemm_packed {
    _Alignas(64) float a[GEMM_BLOCK_HEIGHT * GEMM_BLOCK_DEPTH], b[GEMM_BLOCK_COLUMNS * GEMM_BLOCK_DEPTH];
};

/* Writes the sums' initial values. Returns false, and writes nothing, when they are 0. */
static bool gemm_start(const struct ht_gemm *g, const struct gemm_part *part)
{
    float bias[GEMM_BLOCK_COLUMNS];
    if (!g->bias && !g->residual && g->k > 0) return g->add;
    if (g->bias) simd_widen(ht_element(g->bias, g->b_type, part->j), g->b_type, bias, part->n);
    for (int64_t r = 0; r < part->m && !g->add; r++) {
        float *c = part->c + r * part->c_stride;
        const void *residual = ht_element(g->residual, g->a_type, (part->i + r) * g->c_stride + part->j);
        if (residual) simd_widen(residual, g->a_type, c, part->n);
        for (int64_t k = 0; k < part->n && residual && g->bias; k++) c[k] += bias[k];
        if (!residual && g->bias) memcpy(c, bias, (size_t)part->n * sizeof(float));
        if (!residual && !g->bias) memset(c, 0, (size_t)part->n * sizeof(float));
    }
    return true;
}

/* Computes all sums of a part of C. */
static void gemm_sums(const struct ht_gemm *g, const struct gemm_part *part, struct gemm_packed *packed)
{
    bool add = gemm_start(g, part);
    for (int64_t p = 0; p < g->k; p += GEMM_BLOCK_DEPTH) {
        int64_t k = gemm_min(g->k - p, GEMM_BLOCK_DEPTH), j = part->j;
        bool across = g->b_transposed;
        gemm_pack(gemm_from(g->b, g->b_type, g->b_stride, across ? j : p, across ? p : j), !across, part->n, k,
                  packed->b, GEMM_COLUMNS);
        for (int64_t i = 0; i < part->m; i += GEMM_BLOCK_HEIGHT) {
            int64_t m = gemm_min(part->m - i, GEMM_BLOCK_HEIGHT), row = part->i + i;
            bool along = g->a_transposed;
            gemm_pack(gemm_from(g->a, g->a_type, g->a_stride, along ? p : row, along ? row : p), along, m, k, packed->a,
                      GEMM_ROWS);
            gemm_block(packed->a, packed->b, m, part->n, k, add || p > 0, part->c + i * part->c_stride, part->c_stride);
        }
    }
}

static __attribute__((noinline)) void gemm_rounded(const struct ht_gemm *g, struct gemm_packed *packed)
{
    float c[GEMM_PART_HEIGHT * GEMM_BLOCK_COLUMNS];
    _Static_assert(sizeof(*packed) + sizeof(c) + 64 * 1024 <= HT_GEMM_STACK_BYTES, "HT_GEMM_STACK_BYTES");
    assert(!g->add);
    for (int64_t j = 0; j < g->n; j += GEMM_BLOCK_COLUMNS)
        for (int64_t i = 0; i < g->m; i += GEMM_PART_HEIGHT) {
            struct gemm_part part = {i, gemm_min(g->m - i, GEMM_PART_HEIGHT),
                                     j, gemm_min(g->n - j, GEMM_BLOCK_COLUMNS),
                                     c, GEMM_BLOCK_COLUMNS};
            gemm_sums(g, &part, packed);
            for (int64_t r = 0; r < part.m; r++)
                simd_store(c + r * GEMM_BLOCK_COLUMNS, g->c_stored,
                           ht_element(g->c, g->c_stored.as, (i + r) * g->c_stride + j), part.n);
        }
}

static void simd_gemm(const struct ht_gemm *g)
{
    struct gemm_packed packed;
    _Static_assert(GEMM_BLOCK_HEIGHT % GEMM_ROWS == 0 && GEMM_BLOCK_COLUMNS % GEMM_COLUMNS == 0, "blocks are of tiles");
    if (g->c_stored.round != HT_F32) {
        gemm_rounded(g, &packed);
        return;
    }
    for (int64_t j = 0; j < g->n; j += GEMM_BLOCK_COLUMNS)
        gemm_sums(
            g, &(struct gemm_part){0, g->m, j, gemm_min(g->n - j, GEMM_BLOCK_COLUMNS), (float *)g->c + j, g->c_stride},
            &packed);
}
