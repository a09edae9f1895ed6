/*
 * The knapsack inside the planner (optimize.c). GPU i takes b_i of B samples, for which it needs F_i(b_i) bytes:
 *
 *     minimise sum_i F_i(b_i)    subject to    sum_i b_i = B
 *
 * F may have any shape. It is infinite for an impossible batch, and the same for GPUs of one kind.
 */
#ifndef CEPHALO_KNAPSACK_H
#define CEPHALO_KNAPSACK_H

#include <stdint.h>

struct cephalo_knapsack {
    int32_t n_kinds, batch; /* B */
    int32_t *n_gpus;        /* [n_kinds]: GPUs of the kind */
    int32_t *reach;         /* [n_kinds]: largest b with finite F; set by the caller */
    double *bytes;          /* [n_kinds][B+1]: F(0..reach), whole numbers below 2^53; set by the caller */
    int32_t *low, *high;    /* [n_kinds]: range of b that a solution can have; set by cephalo_knapsack_least */
    /* scratch */
    double *off;    /* [n_kinds] */
    double *row[3]; /* [B+1] */
    int32_t *hull;  /* [B+1] */
    struct cephalo_edge *edges;
};

void cephalo_knapsack_init(struct cephalo_knapsack *k, int32_t n_kinds, int32_t batch); /* no GPUs yet */
void cephalo_knapsack_free(struct cephalo_knapsack *k);

/* Returns the row F of a kind. */
double *cephalo_knapsack_row(const struct cephalo_knapsack *k, int32_t kind);

/* Returns the minimum if it is at most `room` (which may be infinite), else infinity. Sets entries of F that no
   solution within `room` can have to infinity. */
double cephalo_knapsack_least(struct cephalo_knapsack *k, double room);

/*
 * Writes a solution of cephalo_knapsack_least, which must have been finite: batches[n_gpus]. Of several solutions it
 * takes, GPU by GPU from the last to the first, the batch nearest to the GPU's share of what is left, in proportion to
 * reach; of two equally near the smaller one.
 */
void cephalo_knapsack_solve(const struct cephalo_knapsack *k, int32_t n_gpus, const int32_t *kind_of, int32_t *batches);

#endif
