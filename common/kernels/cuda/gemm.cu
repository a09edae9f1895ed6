/*
 * Matrix products by cuBLASLt, whose matrices are column-major. A row-major C = A B is the column-major C^T = B^T A^T,
 * and a row-major matrix with rows `stride` apart is its own transpose in column-major order with the same leading
 * dimension. So cuBLASLt's A is our b, its B our a, its m our n, and its bias, one value a row, is ours, one a column.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/kernels/cuda/cublaslt.cuh"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/gemm_plain.cuh"
#include "common/kernels/cuda/ht_cuda_gemm.h"

/* cuBLASLt learns of no alignment above 16 bytes: an algorithm, and with it the bits, must not depend on a tensor's
   position in an arena. */
enum { SLOTS = 512, MAX_ALIGNMENT = 16 };

/* All that the choice of an algorithm depends on. Padding is 0, since keys are compared as bytes. */
struct key {
    int64_t m, n, k, a_stride, b_stride, c_stride, count, a_step, b_step, c_step;
    int32_t in, out, a_transposed, b_transposed, biased, adds;
    uint32_t a_alignment, b_alignment, c_alignment, add_alignment;
};

struct slot {
    bool used;
    int plain; /* cuBLASLt has no algorithm, gemm_plain.cu runs: index in `plain`; -1: cuBLASLt's */
    struct key key;
    cublasLtMatmulAlgo_t algo;
};

struct plain {
    struct key key;
    int64_t products;
};

struct ht_cuda_gemm {
    struct ht_cublaslt lt;
    cublasLtHandle_t handle;
    void *workspace;
    size_t workspace_bytes;
    struct slot slots[SLOTS];
    struct plain *plain;
    int n_plain;
};

struct ht_cuda_gemm *ht_cuda_gemm_create(void *workspace, int64_t workspace_bytes, struct ht_error *err)
{
    struct ht_cuda_gemm *g = (struct ht_cuda_gemm *)calloc(1, sizeof(*g));
    if (!g) {
        ht_fail(err, HT_FAILED, "no memory for the table of matrix products");
        return NULL;
    }
    if (ht_cublaslt_open(&g->lt, err) != HT_OK) {
        free(g);
        return NULL;
    }
    cublasStatus_t status = g->lt.cublasLtCreate(&g->handle);
    if (status != CUBLAS_STATUS_SUCCESS) {
        ht_fail(err, HT_FAILED, "cublasLtCreate: %s", g->lt.cublasLtGetStatusString(status));
        ht_cublaslt_close(&g->lt);
        free(g);
        return NULL;
    }
    g->workspace = workspace;
    g->workspace_bytes = workspace ? (size_t)workspace_bytes : 0;
    return g;
}

void ht_cuda_gemm_destroy(struct ht_cuda_gemm *g)
{
    if (!g) return;
    g->lt.cublasLtDestroy(g->handle);
    ht_cublaslt_close(&g->lt);
    free(g->plain);
    free(g);
}

static cudaDataType_t data_type(enum ht_dtype t)
{
    return t == HT_F16 ? CUDA_R_16F : t == HT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Returns the largest power of two, at most MAX_ALIGNMENT, that divides the address of every matrix. */
static uint32_t alignment(const void *at, int64_t step, enum ht_dtype t)
{
    uintptr_t bits = (uintptr_t)at | (uintptr_t)(step * ht_dtype_bytes(t)) | MAX_ALIGNMENT;
    return (uint32_t)(bits & (~bits + 1));
}

static struct key key_of(const struct ht_cuda_product *p)
{
    struct key key;
    memset(&key, 0, sizeof(key));
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.a_stride = p->a_stride;
    key.b_stride = p->b_stride;
    key.c_stride = p->c_stride;
    key.count = p->count > 1 ? p->count : 1;
    if (key.count > 1) {
        key.a_step = p->a_step;
        key.b_step = p->b_step;
        key.c_step = p->c_step;
    }
    key.in = p->in;
    key.out = p->out;
    key.a_transposed = p->a_transposed;
    key.b_transposed = p->b_transposed;
    key.biased = p->bias != NULL;
    key.adds = p->add != NULL;
    key.a_alignment = alignment(p->a, key.a_step, p->in);
    key.b_alignment = alignment(p->b, key.b_step, p->in);
    key.c_alignment = alignment(p->c, key.c_step, p->out);
    if (p->bias && alignment(p->bias, 0, p->out) < key.c_alignment) /* C's alignment also stands for the bias's */
        key.c_alignment = alignment(p->bias, 0, p->out);
    key.add_alignment = p->add ? alignment(p->add, key.c_step, p->out) : key.c_alignment;
    return key;
}

static struct slot *slot_of(struct ht_cuda_gemm *g, const struct key *key)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)key;
    for (size_t i = 0; i < sizeof(*key); i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    uint64_t n = HT_LIMIT(slots, SLOTS);
    for (uint64_t i = 0; i < n; i++) {
        struct slot *s = &g->slots[(hash + i) % n];
        if (!s->used || memcmp(&s->key, key, sizeof(*key)) == 0) return s;
    }
    struct slot *s = &g->slots[hash % n]; /* full: replaces another key */
    s->used = false;
    return s;
}

/* Writes "(m,n) = (m,k) (k,n), bf16 to f32, rows 8, 8, 16 apart". */
static const char *shape_text(const struct key *key, char text[256])
{
    char count[32] = "";
    if (key->count > 1) snprintf(count, sizeof(count), "%lld x ", (long long)key->count);
    snprintf(text, 256, "%s(%lld,%lld) = (%lld,%lld)%s (%lld,%lld)%s, %s to %s%s%s, rows %lld, %lld, %lld apart", count,
             (long long)key->m, (long long)key->n, (long long)key->m, (long long)key->k, key->a_transposed ? "^T" : "",
             (long long)key->k, (long long)key->n, key->b_transposed ? "^T" : "", ht_dtype_name((enum ht_dtype)key->in),
             ht_dtype_name((enum ht_dtype)key->out), key->biased ? ", with a bias" : "", key->adds ? ", added" : "",
             (long long)key->a_stride, (long long)key->b_stride, (long long)key->c_stride);
    return text;
}

void ht_cuda_gemm_each_plain(const struct ht_cuda_gemm *g, void (*each)(void *ctx, const char *shape, int64_t products),
                             void *ctx)
{
    char text[256];
    for (int i = 0; g && i < g->n_plain; i++) each(ctx, shape_text(&g->plain[i].key, text), g->plain[i].products);
}

/* Returns the shape's index among those without an algorithm, added if it is new; -1 without memory. */
static int plain_of(struct ht_cuda_gemm *g, const struct key *key)
{
    for (int i = 0; i < g->n_plain; i++)
        if (memcmp(&g->plain[i].key, key, sizeof(*key)) == 0) return i;
    struct plain *more = (struct plain *)realloc(g->plain, ((size_t)g->n_plain + 1) * sizeof(*more));
    if (!more) return -1;
    more[g->n_plain] = {*key, 0};
    g->plain = more;
    return g->n_plain++;
}

/* Records cuBLASLt's first refusal of a call. Returns true on success. */
static bool ok(struct ht_cuda *cuda, cublasStatus_t status, const char *what, const struct key *key, int line)
{
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    char text[512], shape[256];
    snprintf(text, sizeof(text), "%s: %s, for %s", what, cuda->gemm->lt.cublasLtGetStatusString(status),
             shape_text(key, shape));
    ht_cuda_fail(cuda, HT_FAILED, text, __FILE__, line);
    return false;
}

struct operation {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c; /* cuBLASLt's */
};

#define TRY(name, ...)                                                                                                 \
    do {                                                                                                               \
        if (!ok(cuda, cuda->gemm->lt.name(__VA_ARGS__), #name, key, __LINE__)) return false;                           \
    } while (0)

static bool layout_init(struct ht_cuda *cuda, const struct key *key, cublasLtMatrixLayoutOpaque_t *l, int32_t type,
                        int64_t rows, int64_t columns, int64_t stride, int64_t step)
{
    int32_t count = (int32_t)key->count;
    TRY(cublasLtMatrixLayoutInit_internal, l, sizeof(*l), data_type((enum ht_dtype)type), (uint64_t)rows,
        (uint64_t)columns, stride);
    if (count == 1) return true;
    TRY(cublasLtMatrixLayoutSetAttribute, l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    TRY(cublasLtMatrixLayoutSetAttribute, l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step));
    return true;
}

static bool operation_init(struct ht_cuda *cuda, const struct key *key, const void *bias, struct operation *o)
{
    cublasOperation_t a = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                      b = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    TRY(cublasLtMatmulDescInit_internal, &o->desc, sizeof(o->desc), CUBLAS_COMPUTE_32F, CUDA_R_32F);
    TRY(cublasLtMatmulDescSetAttribute, &o->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof(a));
    TRY(cublasLtMatmulDescSetAttribute, &o->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof(b));
    if (key->biased) {
        TRY(cublasLtMatmulDescSetAttribute, &o->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
        TRY(cublasLtMatmulDescSetAttribute, &o->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
    }
    int64_t b_rows = key->b_transposed ? key->n : key->k, a_rows = key->a_transposed ? key->k : key->m; /* ours */
    return layout_init(cuda, key, &o->a, key->in, key->k + key->n - b_rows, b_rows, key->b_stride, key->b_step) &&
           layout_init(cuda, key, &o->b, key->in, key->k + key->m - a_rows, a_rows, key->a_stride, key->a_step) &&
           layout_init(cuda, key, &o->c, key->out, key->n, key->m, key->c_stride, key->c_step);
}

/* Chooses cuBLASLt's first algorithm among those that always give the same bits. */
static bool choose(struct ht_cuda *cuda, const struct key *key, struct operation *o, struct slot *slot)
{
    struct ht_cuda_gemm *g = cuda->gemm;
    cublasLtMatmulPreferenceOpaque_t wish;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    TRY(cublasLtMatmulPreferenceInit_internal, &wish, sizeof(wish));
#define WISH(what, value) TRY(cublasLtMatmulPreferenceSetAttribute, &wish, what, &(value), sizeof(value))
    WISH(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, g->workspace_bytes);
    WISH(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    WISH(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->b_alignment);
    WISH(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->a_alignment);
    WISH(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key->add_alignment);
    WISH(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->c_alignment);
#undef WISH
    cublasStatus_t status =
        g->lt.cublasLtMatmulAlgoGetHeuristic(g->handle, &o->desc, &o->a, &o->b, &o->c, &o->c, &wish, 1, &found, &n);
    if (status == CUBLAS_STATUS_SUCCESS) status = n > 0 ? found.state : CUBLAS_STATUS_NOT_SUPPORTED;
    bool plain = status == CUBLAS_STATUS_NOT_SUPPORTED;
    if (!plain && !ok(cuda, status, "cublasLtMatmulAlgoGetHeuristic", key, __LINE__)) return false;
    slot->key = *key;
    slot->plain = plain ? plain_of(g, key) : -1;
    if (plain && slot->plain < 0) {
        ht_cuda_fail(cuda, HT_FAILED, "no memory for the list of shapes without an algorithm", __FILE__, __LINE__);
        return false;
    }
    if (!plain) slot->algo = found.algo;
    slot->used = true;
    return true;
}

static bool multiply(struct ht_cuda *cuda, const struct ht_cuda_product *p, const struct key *key)
{
    struct ht_cuda_gemm *g = cuda->gemm;
    struct operation o;
    struct slot *slot = slot_of(g, key);
    if (!operation_init(cuda, key, p->bias, &o)) return false;
    if (!slot->used && !choose(cuda, key, &o, slot)) return false;
    if (slot->plain >= 0) {
        g->plain[slot->plain].products++;
        ht_cuda_multiply_plain(cuda, p);
        return true;
    }
    float alpha = 1, beta = p->add ? 1 : 0;
    TRY(cublasLtMatmul, g->handle, &o.desc, &alpha, p->b, &o.a, p->a, &o.b, &beta, p->add ? p->add : p->c, &o.c, p->c,
        &o.c, &slot->algo, g->workspace, g->workspace_bytes, cuda->stream);
    return true;
}

static void multiply_whole(struct ht_cuda *cuda, const struct ht_cuda_product *p)
{
    struct key key = key_of(p);
    multiply(cuda, p, &key);
}

/* Returns the part of a long extent beyond the last multiple of 16 bytes, in elements. An extent that is no such
   multiple keeps cuBLASLt from its fast kernels (measured in docs/gpu-kernels.md, Slower than need be). */
static int64_t ragged(const struct ht_cuda_product *p, int64_t extent)
{
    enum { LONG = 1024, ALIGNED_BYTES = 16 };
    if (p->in == HT_F32 || p->count > 1 || extent < LONG) return 0;
    return extent % (ALIGNED_BYTES / ht_dtype_bytes(p->in));
}

/* Cuts off the last `rest` columns of C. */
static struct ht_cuda_product last_columns(struct ht_cuda_product p, int64_t rest)
{
    int64_t at = p.n - rest;
    p.n = rest;
    p.b = ht_offset(p.b, p.in, p.b_transposed ? at * p.b_stride : at);
    p.c = ht_offset(p.c, p.out, at);
    if (p.bias) p.bias = ht_offset(p.bias, p.out, at);
    if (p.add) p.add = ht_offset(p.add, p.out, at);
    return p;
}

/* Cuts off the last `rest` rows of C. */
static struct ht_cuda_product last_rows(struct ht_cuda_product p, int64_t rest)
{
    int64_t at = p.m - rest;
    p.m = rest;
    p.a = ht_offset(p.a, p.in, p.a_transposed ? at : at * p.a_stride);
    p.c = ht_offset(p.c, p.out, at * p.c_stride);
    if (p.add) p.add = ht_offset(p.add, p.out, at * p.c_stride);
    return p;
}

/* Cuts off the last `rest` terms of every sum. */
static struct ht_cuda_product last_terms(struct ht_cuda_product p, int64_t rest)
{
    int64_t at = p.k - rest;
    p.k = rest;
    p.a = ht_offset(p.a, p.in, p.a_transposed ? at * p.a_stride : at);
    p.b = ht_offset(p.b, p.in, p.b_transposed ? at : at * p.b_stride);
    return p;
}

void ht_cuda_multiply(struct ht_cuda *cuda, const struct ht_cuda_product *p)
{
    if (cuda->error.status != HT_OK || p->m <= 0 || p->n <= 0) return;
    if (!cuda->gemm) {
        ht_cuda_fail(cuda, HT_FAILED, "a matrix product without cuBLASLt", __FILE__, __LINE__);
        return;
    }
    struct ht_cuda_product most = *p, rest;
    if (int64_t columns = ragged(p, p->n)) {
        rest = last_columns(*p, columns);
        multiply_whole(cuda, &rest);
        most.n -= columns;
    } else if (int64_t rows = p->a_transposed ? ragged(p, p->m) : 0) {
        rest = last_rows(*p, rows);
        multiply_whole(cuda, &rest);
        most.m -= rows;
    } else if (int64_t terms = p->bias || p->add ? 0 : ragged(p, p->k)) {
        rest = last_terms(*p, terms);
        multiply_whole(cuda, &rest);
        most.k -= terms;
        most.add = p->c;
    }
    multiply_whole(cuda, &most);
}
