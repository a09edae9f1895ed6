/* The loops over one block of the undo (undo.h), a table for each instruction set. Internal to common/kernels. */
#ifndef HT_KERNELS_UNDO_PATH_H
#define HT_KERNELS_UNDO_PATH_H

#include "common/kernels/undo.h"

enum { HT_UNDO_BLOCK = 1024, HT_UNDO_ESCAPE = -128 };

/* p, m, v of at most one block. */
struct ht_undo_values {
    float p[HT_UNDO_BLOCK], m[HT_UNDO_BLOCK], v[HT_UNDO_BLOCK];
};

struct ht_undo_path {
    /* ht_adamw_update; in the same pass the values from before to `old`, and to d (of p, m, v) what has to be added to
       the estimate to get them, or HT_UNDO_ESCAPE where that does not fit. Returns how many did not. */
    int64_t (*step)(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n,
                    struct ht_undo_values *old, int8_t *const d[3]);
    /* The values before the step; anything where d is HT_UNDO_ESCAPE. Undoes the step of any path. */
    void (*undo)(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n,
                 int8_t *const d[3]);
    /* The paper's arithmetic reversal, in place. */
    void (*reverse)(const struct ht_adamw_step *s, float *p, float *m, float *v, const float *grad, int64_t n);
};

#endif
