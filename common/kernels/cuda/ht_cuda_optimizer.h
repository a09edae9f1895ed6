/*
 * AdamW, its exact undo, the gradient check and initial values on the device. Parameters, momentum and variance are
 * FP32; gradients are of any type and are read exactly. Each operation is rounded on its own, in the order of
 * common/kernels/adamw.h, so the results are the CPU's bit for bit (except the payloads of NaNs).
 */
#ifndef HT_CUDA_OPTIMIZER_H
#define HT_CUDA_OPTIMIZER_H

#include "common/kernels/cuda/ht_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif
#include "common/kernels/adamw.h"
#include "common/kernels/grad_check.h"

/* Flat arrays of n in device memory, of any alignment; 16-byte aligned ones are faster. */
struct ht_cuda_adamw {
    float *param, *m, *v;
    const void *grad;
    enum ht_dtype grad_type;
    void *copy; /* NULL, or a copy of the new parameters, rounded to copy_type */
    enum ht_dtype copy_type;
    int64_t n;
};

void ht_cuda_adamw_update(struct ht_cuda *cuda, const struct ht_adamw_step *step, const struct ht_cuda_adamw *a);

/*
 * The logged step and its undo (common/kernels/undo.h explains it, and why it is exact). The log has the size of the
 * CPU's, ht_undo_log_bytes, with this header. A step whose exceptions do not fit is refused: the arrays are then as
 * before, and `copy` is rounded from them again, as it is by the undo.
 */
enum ht_cuda_undo_state { HT_CUDA_UNDO_EMPTY, HT_CUDA_UNDO_STEPPED, HT_CUDA_UNDO_REFUSED };
struct ht_cuda_undo_header {
    uint64_t magic;
    int64_t n;
    unsigned long long exceptions; /* of the last step; after a refusal, as many as it needs room for */
    uint32_t state;                /* enum ht_cuda_undo_state */
    struct ht_adamw_step step;
};

/* Makes a logged step. log: device memory, 8-byte aligned, log_bytes at least ht_undo_log_bytes(n, 0). The caller may
   read the header back. */
void ht_cuda_adamw_step_logged(struct ht_cuda *cuda, const struct ht_adamw_step *step, const struct ht_cuda_adamw *a,
                               void *log, int64_t log_bytes);
/* Undoes the logged step, and leaves the log empty. Needs the same gradients. Changes nothing if this is not a log of n
   elements, or an empty or refused one. */
void ht_cuda_adamw_undo(struct ht_cuda *cuda, const struct ht_cuda_adamw *a, void *log, int64_t log_bytes);

/* Partial result for one row of gradients, as in common/kernels/grad_check.h: the same sum as ht_grad_check, bit for
   bit. In device memory; the fields before the scratch are the result. */
struct ht_cuda_grad_partial {
    double squares; /* of the gradients as stored */
    uint32_t bad;   /* 1: some gradient, scaled gradient, or square as AdamW forms it, is not finite */
    uint32_t part_bad[HT_GRAD_PARTS]; /* scratch */
    double part_squares[HT_GRAD_PARTS];
};
void ht_cuda_grad_check(struct ht_cuda *cuda, const struct ht_adamw_step *step, enum ht_dtype type, const void *grad,
                        int64_t n, struct ht_cuda_grad_partial *partial);

/* Computes common/kernels/unit.h's ht_unit_init, rounded to `type`: the CPU's bits. */
void ht_cuda_unit_init(struct ht_cuda *cuda, const struct ht_model *model, int64_t unit, uint64_t seed,
                       enum ht_dtype type, void *params);

#ifdef __cplusplus
}
#endif

#endif
