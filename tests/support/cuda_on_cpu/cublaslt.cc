/*
 * cuBLASLt on the CPU, column-major like the library. An element is one sum in FP32, rounded once.
 *
 * It refuses the calls that the library refuses. A 16-bit matrix with an odd leading dimension has no algorithm, so
 * that tests reach the code for that case. An algorithm that relies on more alignment than the matrices have aborts.
 */
#include <cublasLt.h>

#include <vector>

#include "common/base/half.h"
#include "common/kernels/cuda/cublaslt.cuh"

enum ht_status ht_cublaslt_open(struct ht_cublaslt *lt, struct ht_error *)
{
#define HT_EACH_FUNCTION(name) lt->name = name;
    HT_CUBLASLT_FUNCTIONS(HT_EACH_FUNCTION)
#undef HT_EACH_FUNCTION
    return HT_OK;
}

void ht_cublaslt_close(struct ht_cublaslt *) {}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = NULL;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "refused";
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t bytes, cublasComputeType_t compute,
                                               cudaDataType_t scale)
{
    if (bytes != sizeof(*desc) || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) abort();
    *desc = {CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, NULL};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *field, size_t field_bytes, const void *value, size_t bytes)
{
    if (bytes != field_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->a, sizeof(d->a), value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->b, sizeof(d->b), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&d->epilogue, sizeof(d->epilogue), value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, sizeof(d->bias), value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType_t type,
                                                 uint64_t rows, uint64_t columns, int64_t stride)
{
    if (bytes != sizeof(*layout)) abort();
    *layout = {type, rows, columns, stride, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(&l->count, sizeof(l->count), value, bytes);
    return set(&l->step, sizeof(l->step), value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t wish, size_t bytes)
{
    if (bytes != sizeof(*wish)) abort();
    *wish = {7, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes)
{
    size_t workspace;
    int i = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return set(&workspace, sizeof(workspace), value, bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return set(&wish->reductions, 4, value, bytes);
    return set(&wish->alignment[i], 4, value, bytes);
}

/* Returns the rows and columns of op(layout). */
static uint64_t rows_of(cublasLtMatrixLayout_t l, cublasOperation_t op)
{
    return op == CUBLAS_OP_N ? l->rows : l->columns;
}
static uint64_t columns_of(cublasLtMatrixLayout_t l, cublasOperation_t op)
{
    return op == CUBLAS_OP_N ? l->columns : l->rows;
}

static bool fits(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t d)
{
    for (cublasLtMatrixLayout_t l : {a, b, d})
        if (l->stride < (int64_t)l->rows || l->count != d->count) return false;
    return a->type == b->type && (d->type == a->type || d->type == CUDA_R_32F) && rows_of(a, desc->a) == d->rows &&
           columns_of(b, desc->b) == d->columns && columns_of(a, desc->a) == rows_of(b, desc->b);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t wish, int,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    if (!fits(desc, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (wish->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) abort(); /* others differ from run to run */
    *found = 0;
    if (a->type != CUDA_R_32F && ((a->stride | b->stride) & 1)) return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(results[0].algo.alignment, wish->alignment, sizeof(wish->alignment));
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static float get(cudaDataType_t t, const void *x, int64_t i)
{
    if (t == CUDA_R_32F) return ((const float *)x)[i];
    uint16_t h = ((const uint16_t *)x)[i];
    return t == CUDA_R_16F ? ht_f16_to_f32(h) : ht_bf16_to_f32(h);
}

static void put(cudaDataType_t t, void *x, int64_t i, float v)
{
    if (t == CUDA_R_32F)
        ((float *)x)[i] = v;
    else
        ((uint16_t *)x)[i] = t == CUDA_R_16F ? ht_f32_to_f16(v) : ht_f32_to_bf16(v);
}

static float at(cublasLtMatrixLayout_t l, cublasOperation_t op, const void *x, int64_t i, uint64_t row, uint64_t column)
{
    if (op == CUBLAS_OP_T) {
        uint64_t swapped = row;
        row = column;
        column = swapped;
    }
    return get(l->type, x, i * l->step + (int64_t)row + (int64_t)column * l->stride);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cl, void *d, cublasLtMatrixLayout_t dl,
                              const cublasLtMatmulAlgo_t *algo, void *, size_t, cudaStream_t stream)
{
    ht_emulated_on(stream, "cublasLtMatmul");
    const void *const bases[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)bases[i] % algo->alignment[i] != 0) abort();
    if (!fits(desc, al, bl, dl) || *(const float *)alpha != 1) return CUBLAS_STATUS_INVALID_VALUE;
    uint64_t n = columns_of(al, desc->a);
    std::vector<float> rows(dl->rows * n), column(n); /* of a, and one of b */
    for (int64_t i = 0; i < dl->count; i++) {
        for (uint64_t r = 0; r < dl->rows; r++)
            for (uint64_t k = 0; k < n; k++) rows[r * n + k] = at(al, desc->a, a, i, r, k);
        for (uint64_t j = 0; j < dl->columns; j++) {
            for (uint64_t k = 0; k < n; k++) column[k] = at(bl, desc->b, b, i, k, j);
            for (uint64_t r = 0; r < dl->rows; r++) {
                float sum = 0;
                for (uint64_t k = 0; k < n; k++) sum += rows[r * n + k] * column[k];
                if (*(const float *)beta != 0) sum += at(cl, CUBLAS_OP_N, c, i, r, j);
                if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS) sum += get(dl->type, desc->bias, (int64_t)r);
                put(dl->type, d, i * dl->step + (int64_t)r + (int64_t)j * dl->stride, sum);
            }
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}
