/*
 * The CUDA backend: one GPU and this machine's cores.
 *
 * Compute, copy and collective lanes are streams, issued two ops ahead (common/exec/run_ahead.h). Host and disk lanes
 * are threads that run the CPU backend's own code, so an optimizer step on the host gives the same bits beside either
 * device. common/draft/effects.md says which effects both expect of an op.
 *
 *     lane "gpu"   stream  F3 F4 ..      kernels of common/kernels/cuda, through struct ht_kernels
 *     lane "h2d"   stream  C4 C5 ..      copies from and to pinned arenas
 *     lane "d2h"   stream     G9 ..
 *     lane "cpu"   threads      O9 ..    ht_cpu_backend
 *
 * Results for the host (losses, partials of the gradient check, whether a logged step was made) are copied into pinned
 * memory behind the op, and read when the op's event has been reached: no thread waits for a stream, and lanes go on.
 * The host reads them before it enqueues ops that depend on them. An op with a `when` is not issued before its final
 * check. The next iteration's head, which reads the loss scale, is not enqueued before it; nor is the next step of a
 * logged tensor before the host knows that this one was made (`host_deps` in common/exec/run.h). Only undoing, which is
 * rare, is run and waited for. Op times are the device's own.
 *
 * Device memory is two allocations: the arena, whose tables are on the host, and the reserve for memory that no tensor
 * of the schedule has. Kernels get no other memory. CUDA's own memory (its context, its kernels' code, which it loads
 * when they are first launched, streams and events) cannot be allocated by us; it is the rest of the GPU's used memory.
 *
 *     reserve   products   cuBLASLt's workspace, for each lane that multiplies matrices
 *               scratch    when the kernels need more workspace than the graph has
 *               results    token ids, targets and losses of the ops in flight, and results for the host
 */
#ifndef HT_BACKEND_CUDA_H
#define HT_BACKEND_CUDA_H

#include "common/backend/cpu.h"
#include "common/backend/cuda_api.h"

struct ht_arena;
struct ht_cuda_device;

/* The reserve of a training, known before it is planned: for one lane that multiplies matrices, and at most four that
   check gradients. most_parts: of tensor parallelism. api NULL: this build's, which has a CUDA backend. */
struct ht_cuda_reserve {
    int64_t products_bytes, scratch_bytes, results_bytes;
};
struct ht_cuda_reserve ht_cuda_reserve_for(const struct ht_cuda_api *api, const struct ht_model *m, enum ht_dtype param,
                                           int64_t batch, int64_t seq, int64_t n_micro_batches, int64_t most_parts);
int64_t ht_cuda_reserve_bytes(const struct ht_cuda_reserve *r);

/* Counts the GPUs that CUDA shows, 1 at least. api NULL: this build's. Returns HT_INFEASIBLE, in one line, when CUDA is not
   in the build, or there is no GPU. */
enum ht_status ht_cuda_count(const struct ht_cuda_api *api, struct ht_error *err, int *n);
/* Finds a GPU. api NULL: this build's. Returns HT_INFEASIBLE, in one line, when CUDA is not in the build, or the GPU
   does not exist. */
enum ht_status ht_cuda_find(const struct ht_cuda_api *api, int device, struct ht_error *err,
                            struct ht_cuda_properties *out);

/* Creates the backend. options->split is the host's cores. api NULL: this build's. Returns HT_INFEASIBLE as
   ht_cuda_find and ht_cpu_create do. */
enum ht_status ht_cuda_device_create(const struct ht_cpu_options *options, const struct ht_cuda_api *api, int device,
                                     struct ht_error *err, struct ht_cuda_device **out);
void ht_cuda_device_destroy(struct ht_cuda_device *d); /* with its arenas; accepts NULL */

/* Returns the CPU backend inside, on which iterations, control and steps are set. */
struct ht_cpu *ht_cuda_device_host(struct ht_cuda_device *d);

/* Table for ht_run_options.backend; backend_ctx is the struct ht_cuda_device. One run at a time. With options->comm it runs
   the ops of this rank. */
extern const struct ht_backend_ops ht_cuda_backend;

/* Creates an arena in a tier: the device's memory, or the host's, pinned if possible. It is destroyed with the device.
   Returns HT_INFEASIBLE when the GPU does not have the memory. */
enum ht_status ht_cuda_device_arena(struct ht_cuda_device *d, enum ht_tier tier, int64_t capacity_bytes,
                                    int64_t slack_bytes, struct ht_error *err, struct ht_arena **out);

/* Allocates device memory, which is freed with the device. Returns HT_INFEASIBLE when the GPU does not have it. */
enum ht_status ht_cuda_device_memory(struct ht_cuda_device *d, int64_t bytes, struct ht_error *err, void **out);
/* Pins existing host memory if possible, and ends that for all there is: before the memory is freed. */
void ht_cuda_device_pin(struct ht_cuda_device *d, void *base, int64_t bytes);
void ht_cuda_device_unpin(struct ht_cuda_device *d);

/* Returns a line about a resource that the backend does without (pinned memory); NULL: none. */
const char *ht_cuda_device_note(const struct ht_cuda_device *d);

/* Allocates the reserve, once, before any run; opening a schedule that needs more then returns HT_INFEASIBLE. Without
   this call the reserve is as large as the largest schedule needs. Returns HT_INFEASIBLE when the GPU does not have the
   memory. */
enum ht_status ht_cuda_device_reserve(struct ht_cuda_device *d, int64_t bytes, struct ht_error *err);

/* A shape of matrix products that cuBLASLt has no algorithm for. A kernel of our own ran, perhaps 100 times slower. */
struct ht_cuda_slow_shape {
    char text[256];
    int64_t products; /* that ran */
};
/* Returns the shapes of all runs that have ended, which the device keeps. */
const struct ht_cuda_slow_shape *ht_cuda_device_slow_shapes(const struct ht_cuda_device *d, size_t *n);

/* Returns the GPU's memory in use now beside arena and reserve: CUDA's own, and other programs'. */
int64_t ht_cuda_device_foreign_bytes(const struct ht_cuda_device *d);
/* Returns the GPU's free memory now. */
int64_t ht_cuda_device_free_bytes(const struct ht_cuda_device *d);

/* Fills a buffer in any tier with ht_cpu_init's values. Between runs, as the next two. */
enum ht_status ht_cuda_device_init(struct ht_cuda_device *d, const struct ht_tensor *t, struct ht_buffer buffer,
                                   struct ht_error *err);
/* Copy a buffer of any tier to host memory, and back. */
enum ht_status ht_cuda_device_read(struct ht_cuda_device *d, struct ht_buffer from, void *to, struct ht_error *err);
enum ht_status ht_cuda_device_write(struct ht_cuda_device *d, const void *from, struct ht_buffer to,
                                    struct ht_error *err);

#endif
