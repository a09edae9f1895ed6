/*
 * How ranks with a GPU each exchange tensors that lie on GPUs: through pinned host memory (common/backend/cuda_comm.h),
 * or by NCCL (common/comm/nccl.h), where each of them has a card of its own.
 */
#ifndef HT_HARNESS_RUN_TRANSPORT_H
#define HT_HARNESS_RUN_TRANSPORT_H

#include "harness/run/job.h"
#include "harness/run/ranks.h"

/* Checks --transport and --deterministic. Returns HT_BAD_INPUT for a value that is not known, and beside a backend or
   job that has no such messages. */
enum ht_status ht_transport_check(const struct ht_platform_options *o, const struct ht_platform *platform,
                                  int32_t n_ranks, struct ht_error *err);

/* Connects the ranks' GPUs by NCCL; all ranks call it. *out is NULL for host memory: that is asked for, ranks share a
   card, or NCCL is not there, which is said in one line. Returns HT_INFEASIBLE when --transport nccl asks for what cannot
   be, on all ranks alike. */
enum ht_status ht_transport_open(const struct ht_platform_options *o, const struct ht_platform *platform,
                                 const struct ht_ranks *ranks, struct ht_error *err, struct ht_comm **out);
/* All ranks call it. Does nothing for NULL, and after a failure that ends the job. */
void ht_transport_close(const struct ht_ranks *ranks, struct ht_comm *c);

#endif
