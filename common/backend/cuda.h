/*
 * The CUDA backend: one GPU and this machine's cores.
 *
 * Compute, copy and collective lanes are streams, issued two ops ahead (common/exec/run_ahead.h); host and disk lanes
 * are threads that run the CPU backend's own code, so that an optimizer step on the host gives the same bits beside
 * either device. What ops expect of their effects is the table in common/backend/cpu.h, for both.
 *
 *     lane "gpu"   stream  F3 F4 ..      kernels of common/kernels/cuda, through struct ht_kernels
 *     lane "h2d"   stream  C4 C5 ..      copies from and to pinned arenas
 *     lane "d2h"   stream     G9 ..
 *     lane "cpu"   threads      O9 ..    ht_cpu_backend
 *
 * What the device has to say to the host (losses, what gradients say, whether a logged step was made) is copied into
 * pinned memory behind the op, and read when the op's event has been reached: nothing waits for a stream, and lanes go
 * on. The host looks at it before it enqueues what depends on it: an op with a `when` is not issued before its verdict,
 * the next iteration's head, which reads the loss scale, is not enqueued before it, nor a logged row's next step before
 * it is known that this one was made (`awaits` in common/exec/run.h). Only undoing, which is rare, is run and waited
 * for. Op times are the device's own.
 *
 * Device memory is two allocations: the arena, whose books are kept here, and the reserve for what is no tensor of the
 * schedule. Kernels get no other memory. What CUDA itself takes (its context, its kernels' code, which it loads when
 * they are first launched, streams and events) cannot be given a place; it is what is missing of the GPU's memory
 * beside the two.
 *
 *     reserve   products   cuBLASLt's workspace, for each lane that multiplies matrices
 *               scratch    where the kernels need more workspace than the graph has
 *               aside      token ids, targets and losses of the ops in flight, and what ops tell the host
 */
#ifndef HT_BACKEND_CUDA_H
#define HT_BACKEND_CUDA_H

#include "common/backend/cpu.h"
#include "common/backend/cuda_api.h"

struct ht_arena;
struct ht_cuda_device;

/* The reserve of a training, known before it is planned: with one lane that multiplies matrices, and four at most that
   judge gradients. api NULL: this build's, which has a CUDA backend. */
struct ht_cuda_reserve {
    int64_t products_bytes, scratch_bytes, results_bytes;
};
struct ht_cuda_reserve ht_cuda_reserve_for(const struct ht_cuda_api *api, const struct ht_model *m, enum ht_dtype param,
                                           int64_t batch, int64_t seq, int64_t n_micro_batches);
int64_t ht_cuda_reserve_bytes(const struct ht_cuda_reserve *r);

/* api NULL: this build's. HT_INFEASIBLE, in one line: CUDA is not in the build, or there is no such GPU. */
enum ht_status ht_cuda_find(const struct ht_cuda_api *api, int device, struct ht_error *err,
                            struct ht_cuda_properties *out);

/* options->split is the host's cores. api NULL: this build's. HT_INFEASIBLE as above, and as ht_cpu_create. */
enum ht_status ht_cuda_device_create(const struct ht_cpu_options *options, const struct ht_cuda_api *api, int device,
                                     struct ht_error *err, struct ht_cuda_device **out);
void ht_cuda_device_destroy(struct ht_cuda_device *d); /* accepts NULL; its arenas go with it */

/* The CPU backend within: iterations, control and steps are set there. */
struct ht_cpu *ht_cuda_device_host(struct ht_cuda_device *d);

/* The table for ht_run_options.backend; backend_ctx is the struct ht_cuda_device. One run at a time. HT_INFEASIBLE at
   open for schedules of several ranks. */
extern const struct ht_backend_ops ht_cuda_backend;

/* An arena in a tier: the device's memory, or the host's, pinned, if it can be. It is destroyed with the device.
   HT_INFEASIBLE when the GPU does not have the memory. */
enum ht_status ht_cuda_device_arena(struct ht_cuda_device *d, enum ht_tier tier, int64_t capacity_bytes,
                                    int64_t slack_bytes, struct ht_error *err, struct ht_arena **out);

/* A line about what could not be had and is done without (pinned memory); NULL: nothing. */
const char *ht_cuda_device_note(const struct ht_cuda_device *d);

/* Allocates the reserve, once, before anything is run; a schedule that needs more is HT_INFEASIBLE when it is opened.
   Without this it is as large as the largest schedule needs. HT_INFEASIBLE when the GPU does not have the memory. */
enum ht_status ht_cuda_device_reserve(struct ht_cuda_device *d, int64_t bytes, struct ht_error *err);

/* What is taken of the GPU's memory beside arena and reserve, at this moment: CUDA's own, and other programs'. */
int64_t ht_cuda_device_foreign_bytes(const struct ht_cuda_device *d);
/* Of the GPU, at this moment. */
int64_t ht_cuda_device_free_bytes(const struct ht_cuda_device *d);

/* ht_cpu_init's values, wherever the buffer lies. Between runs, as the next two. */
enum ht_status ht_cuda_device_init(struct ht_cuda_device *d, const struct ht_tensor *t, struct ht_buffer buffer,
                                   struct ht_error *err);
/* A buffer of any tier to host memory, and back. */
enum ht_status ht_cuda_device_read(struct ht_cuda_device *d, struct ht_buffer from, void *to, struct ht_error *err);
enum ht_status ht_cuda_device_write(struct ht_cuda_device *d, const void *from, struct ht_buffer to,
                                    struct ht_error *err);

#endif
