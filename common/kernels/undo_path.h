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
    enum ht_simd_level level; /* and that of AdamW, which gives the same bits at every level */
    /* out = the arithmetic reversal; out may not overlap the others. */
    void (*reverse)(const struct ht_adamw_step *s, const float *p, const float *m, const float *v, const float *grad,
                    int64_t n, struct ht_undo_values *out);
    /* d = truth - estimate, or HT_UNDO_ESCAPE where that does not fit. Returns how many did not. */
    int64_t (*differences)(const float *truth, const float *estimate, int64_t n, int8_t *d);
    /* x = estimate + d; anything where d is HT_UNDO_ESCAPE. */
    void (*correct)(const float *estimate, const int8_t *d, int64_t n, float *x);
};

#endif
