/* Results of ops for the host: their memory, and the kernels that leave and read them. Internal. */
#ifndef HT_BACKEND_CUDA_RESULTS_H
#define HT_BACKEND_CUDA_RESULTS_H

#include "common/backend/cuda_state.h"

/* The kernels that ops call: they enqueue on the lane's stream. `device` is the op's struct ht_cuda_in_flight. */
extern const struct ht_kernels ht_cuda_enqueue_kernels;
/* Counts the results of the schedule's ops. Returns how many bytes of device memory they take. */
int64_t ht_cuda_results_plan(struct ht_cuda_device *d);
/* Lays them out: at `on_device`, and in pinned memory, which it allocates. */
enum ht_status ht_cuda_results_create(struct ht_cuda_device *d, char *on_device, struct ht_error *err);
void ht_cuda_results_destroy(struct ht_cuda_device *d);
/* Brings the loss and the gradient checks of an ended op to where they belong. */
void ht_cuda_collect_results(struct ht_cuda_in_flight *f);
/* The kernels that finalize an ended op: a log's summary is read from its result, a gradient check runs anew and is
   waited for. `device` as above. */
extern const struct ht_kernels ht_cuda_collect_kernels;

#endif
