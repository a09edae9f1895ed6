/*
 * What carries out the ops of a training: the CPU backend, or a GPU with the CPU backend beside it.
 */
#ifndef HT_HARNESS_RUN_ENGINE_H
#define HT_HARNESS_RUN_ENGINE_H

#include "common/backend/cuda.h"
#include "harness/run/job.h"

struct ht_engine {
    const struct ht_backend_ops *ops; /* for the executor, */
    void *ctx;                        /* with their context */
    struct ht_cpu *cpu;               /* the CPU backend, or the one beside the GPU; borrowed from ctx */
    struct ht_cuda_device *gpu;       /* NULL: there is none */
    struct ht_arena **arenas;         /* [n_spaces] */
    int32_t n_arenas;
};

/* Is --backend cuda asked for? HT_BAD_INPUT for a backend that is not known, and for a --device without. */
enum ht_status ht_engine_wants_gpu(const struct ht_options *options, const char *command, struct ht_error *err,
                                   bool *wants);

/* The GPU of --backend cuda as the catalogue knows it, or as far as CUDA tells; memory_bytes is what an arena can have.
   HT_INFEASIBLE, in one line, where there is none. */
enum ht_status ht_engine_find_gpu(const struct ht_options *options, struct ht_error *err, struct ht_gpu *out);

/* Takes what the backend needs beside tensors, for so many micro-batches of that size, off the GPU's memory, before anything
   is planned that goes by it: so --device-memory is all that arena and reserve may have together. HT_INFEASIBLE when nothing is left. */
enum ht_status ht_engine_take_reserve(const struct ht_options *options, struct ht_scenario *s, int64_t micro_batch,
                                      int64_t n_micro_batches, struct ht_error *err, struct ht_cuda_reserve *out);

/* cpu->split is taken over. */
enum ht_status ht_engine_create(const struct ht_options *options, const struct ht_cpu_options *cpu,
                                struct ht_error *err, struct ht_engine *out);
void ht_engine_destroy(struct ht_engine *e);

/* Of a space's arena: a device's is the size that was given, but no more than any run can use where the device is not
   an emulated one; the others' the most that any run can use. */
int64_t ht_engine_capacity(const struct ht_job *job, int32_t space);
/* The most that the arenas can take of this machine's memory: of all ranks, but for a real GPU's own. */
double ht_engine_machine_bytes(const struct ht_job *job, bool on_gpu);
/* One arena for each space that holds anything. */
enum ht_status ht_engine_make_arenas(struct ht_engine *e, const struct ht_job *job, struct ht_error *err);

/* Initial values (ht_cpu_init), and bytes from and to a buffer of any tier. */
enum ht_status ht_engine_init(struct ht_engine *e, const struct ht_tensor *t, struct ht_buffer buffer,
                              struct ht_error *err);
enum ht_status ht_engine_read(struct ht_engine *e, struct ht_buffer from, void *to, struct ht_error *err);
enum ht_status ht_engine_write(struct ht_engine *e, const void *from, struct ht_buffer to, struct ht_error *err);

#endif
