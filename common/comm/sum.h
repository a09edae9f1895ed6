/* The one order in which ranks' numbers are added up. Internal to common/comm. */
#ifndef HT_COMM_SUM_H
#define HT_COMM_SUM_H

#include "common/comm/comm.h"

/* out[k] = terms[0][k] + terms[1][k] + ..., from the left; out may be one of the terms. F16 and BF16 are summed in FP32
   and rounded once; F64 in FP64. Not of HT_COMM_BYTE. */
void ht_comm_sum(void *out, const void *const *terms, int32_t n_terms, int64_t count, enum ht_comm_type type);

#endif
