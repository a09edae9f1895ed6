/*
 * The engine carries out the ops of a training: the CPU backend, or a GPU with the CPU backend beside it.
 */
#ifndef HT_HARNESS_RUN_ENGINE_H
#define HT_HARNESS_RUN_ENGINE_H

#include "common/backend/cuda.h"
#include "harness/run/job.h"

struct ht_ranks; /* harness/run/ranks.h */

struct ht_engine {
    const struct ht_backend_ops *ops; /* for the executor, */
    void *ctx;                        /* with their context */
    struct ht_cpu *cpu;               /* the CPU backend, or the one beside the GPU; borrowed from ctx */
    struct ht_cuda_device *gpu;       /* NULL: none */
    struct ht_arena **arenas;         /* [n_spaces] */
    int32_t n_arenas;
    int32_t disk_space;   /* whose arena is not the GPU's; -1: none */
    struct ht_disk *disk; /* of this process's node; NULL: none */
    bool speaks;          /* says what the kernel refuses of the disk */
};

/* Takes the backend's reserve, for so many micro-batches of that size, off the GPU's memory before anything is planned:
   arena and reserve together fit --device-memory. Returns HT_INFEASIBLE when nothing is left. */
enum ht_status ht_engine_take_reserve(const struct ht_platform *platform, struct ht_scenario *s, int64_t micro_batch,
                                      int64_t n_micro_batches, struct ht_error *err, struct ht_cuda_reserve *out);
void ht_engine_give_reserve(struct ht_scenario *s, const struct ht_cuda_reserve *reserve); /* undoes that */

/* Creates the engine of a host's rank, counted among those of its host, and takes cpu->split. */
enum ht_status ht_engine_create(const struct ht_platform *platform, int32_t local, const struct ht_cpu_options *cpu,
                                struct ht_error *err, struct ht_engine *out);
void ht_engine_destroy(struct ht_engine *e);

/* Returns the size of a space's arena. An emulated device's is the given size, another device's the smaller of that and
   the most that any run can use; of the other spaces it is the most that any run can use. */
int64_t ht_engine_capacity(const struct ht_job *job, int32_t space);
/* Returns the most that the arenas of a training in one process can take of this machine's memory, without a real GPU's
   own and without disks. */
double ht_engine_machine_bytes(const struct ht_job *job);
/* Makes an arena for each space that holds anything, and the files behind a disk's. */
enum ht_status ht_engine_make_arenas(struct ht_engine *e, const struct ht_job *job, const struct ht_disk_options *disk,
                                     struct ht_error *err);
/* Over ranks: returns the size of a space that holds anything; it is the same on all ranks. */
struct ht_space_size ht_engine_space(const struct ht_job *job, int32_t space);
/* Takes the reserve and this rank's device memory of that size from its GPU, if it has one. */
enum ht_status ht_engine_take_device(struct ht_engine *e, const struct ht_job *job, struct ht_space_size *size,
                                     struct ht_error *err);
/* Begin and end the use of the node's host memory by this rank's GPU, if it has one. */
void ht_engine_join_node(struct ht_engine *e, const struct ht_job *job, const struct ht_ranks *ranks);
void ht_engine_leave_node(struct ht_engine *e);
/* Makes or joins the disk of this rank's node, whose memory there is (ht_ranks_make_node). All ranks call it. */
enum ht_status ht_engine_join_disk(struct ht_engine *e, const struct ht_job *job, const struct ht_ranks *ranks,
                                   const struct ht_disk_options *disk, struct ht_error *err);

/* Fill a buffer of any tier with initial values (ht_cpu_init), read its bytes, write them. */
enum ht_status ht_engine_init(struct ht_engine *e, const struct ht_tensor *t, struct ht_buffer buffer,
                              struct ht_error *err);
enum ht_status ht_engine_read(struct ht_engine *e, struct ht_buffer from, void *to, struct ht_error *err);
/* Returns a buffer's bytes where they are; NULL if the CPU cannot read them there. */
const void *ht_engine_bytes(const struct ht_engine *e, struct ht_buffer buffer);
enum ht_status ht_engine_write(struct ht_engine *e, const void *from, struct ht_buffer to, struct ht_error *err);

#endif
