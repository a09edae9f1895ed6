/* Loops over one block of the undo (undo.h), a table for each instruction set. Internal to common/kernels. */
#ifndef HT_KERNELS_UNDO_PATH_H
#define HT_KERNELS_UNDO_PATH_H

#include "common/kernels/undo.h"

enum { HT_UNDO_BLOCK = 1024, HT_UNDO_ESCAPE = -128 };

/* p, m, v of at most one block. */
struct ht_undo_values {
    float p[HT_UNDO_BLOCK], m[HT_UNDO_BLOCK], v[HT_UNDO_BLOCK];
};

struct ht_undo_path {
    /* Steps as ht_adamw_update does. In the same pass writes the values from before to `old`, and to d (of p, m, v) the
       difference from the estimate to them, or HT_UNDO_ESCAPE when it does not fit. Returns how many did not. */
    int64_t (*step)(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n,
                    struct ht_undo_values *old, int8_t *const d[3]);
    /* Restores the values before the step, of any path; leaves undefined values where d is HT_UNDO_ESCAPE. */
    void (*undo)(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n,
                 int8_t *const d[3]);
    /* Applies the paper's arithmetic reversal, in place. */
    void (*reverse)(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n);
};

#endif
