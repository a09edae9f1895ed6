/* A block under way, and steps that whole blocks and parts that cut rows share. Internal to common/kernels. */
#ifndef HT_KERNELS_BLOCK_H
#define HT_KERNELS_BLOCK_H

#include "common/kernels/attention.h"
#include "common/kernels/rotary.h"
#include "common/kernels/rows.h"
#include "common/kernels/unit.h"

/* Parameters of a block. */
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC1_W, FC1_B, FC2_W, FC2_B, N_PARTS };

/* Pointers to the kept activations; shapes in model.h. */
struct ht_block_kept {
    void *norm1, *qkv, *attention, *proj, *norm2, *fc1, *gelu;
    float *norm1_stats, *norm2_stats;
};

struct ht_block {
    const struct ht_simd *simd;
    int64_t n_rows, n_own; /* B T, and those that the part has of norms and residuals */
    unsigned sub_ops;
    struct ht_norm norm1, norm2;
    struct ht_linear qkv, proj, fc1, fc2;
    bool rotates, gated; /* LLaMA */
    bool post_norm;      /* BERT */
    struct ht_rotary rotary;
    struct ht_attention attention;
    bool first; /* adds residuals and biases to the sum over parts; true for a whole model */
    struct ht_block_kept act;
    const void *x;
    void *out;       /* forward */
    void *all, *own; /* of a part that cuts rows */
    /* backward */
    const void *dout;
    void *dx;                         /* holds the gradient of proj until the last rows step */
    void *dwide, *dnorm, *dattention; /* (B,T,E) or (B,T,W); (B,T,C); (B,T,C) */
    struct ht_stored stored;          /* of the parameters' gradients */
    void *grad[N_PARTS];              /* NULL: no such part */
};

/* Returns a worker's share of all rows. */
static inline struct ht_range ht_block_rows(const struct ht_block *b, int worker, int n_workers)
{
    return ht_range_split(b->n_rows, HT_ROW_GRAIN, worker, n_workers);
}

static inline bool ht_block_wants(const struct ht_block *b, enum ht_sub_op sub)
{
    return b->sub_ops >> sub & 1;
}

/* Computes gelu (rows, F) from fc1 (rows, E). */
void ht_block_activate(const struct ht_block *b, struct ht_range rows);
/* Computes dwide (rows, E), the gradient of fc1, from dout. The product with W2 is the gradient of gelu. With a gate it
   goes to the right half of each row, which swiglu_backward turns into the gradient of up. */
void ht_block_activate_backward(const struct ht_block *b, struct ht_range rows);
/* Steps of a pool: attention forward, and backward from dattention to dwide. arg: the block. */
void ht_block_attend(void *arg, int worker, int n_workers);
void ht_block_attend_backward(void *arg, int worker, int n_workers);

/* The passes of a part that cuts rows (block_rows.c). */
void ht_block_forward_by_rows(const struct ht_unit_args *args, struct ht_block *b);
void ht_block_backward_by_rows(const struct ht_unit_args *args, struct ht_block *b);

#endif
