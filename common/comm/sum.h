/* Adds up numbers of several ranks in a fixed order. Internal to common/comm. */
#ifndef HT_COMM_SUM_H
#define HT_COMM_SUM_H

#include "common/comm/comm.h"

/* Computes out[k] = terms[0][k] + terms[1][k] + ..., from the left; out may be one of the terms. Sums F16 and BF16 in
   FP32 and rounds once; sums F64 in FP64. Not for HT_COMM_BYTE. */
void ht_comm_sum(void *out, const void *const *terms, int32_t n_terms, int64_t count, enum ht_comm_type type);

#endif
