/* Results of ops for the host: their memory, and the kernels that leave and read them. Internal to common/backend. */
#ifndef HT_BACKEND_CUDA_RESULTS_H
#define HT_BACKEND_CUDA_RESULTS_H

#include "common/backend/cuda_state.h"

/* Kernels that ops call. They enqueue on the lane's stream. `device` is the op's struct ht_cuda_in_flight. */
extern const struct ht_kernels ht_cuda_enqueue_kernels;
/* Counts the results of the schedule's ops. Returns their bytes of device memory. */
int64_t ht_cuda_results_plan(struct ht_cuda_device *d);
/* Assigns the results their memory: at `on_device`, and in pinned memory, which it allocates. */
enum ht_status ht_cuda_results_create(struct ht_cuda_device *d, char *on_device, struct ht_error *err);
void ht_cuda_results_destroy(struct ht_cuda_device *d);
/* Stores the loss and the partials of an ended op. */
void ht_cuda_collect_results(struct ht_cuda_in_flight *f);
/* Kernels that finalize an ended op: undo_summary reads the op's result, grad_check runs again and waits. `device` as
   above. */
extern const struct ht_kernels ht_cuda_collect_kernels;

#endif
