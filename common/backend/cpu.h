/*
 * The CPU backend: runs ops of a schedule as kernels on this machine's cores.
 *
 * The "device" is an arena and a set of cores of its own. Host memory is another arena, host work runs on the other
 * cores, and a copy between the two is a real one. A disk is a space over files (common/mem/disk.h). Copy and disk
 * lanes run on the host's cores.
 *
 * common/draft/effects.md says which effects it expects of each kind of op. Opening the backend checks all of them: a
 * missing effect, a wrong size, an op without a kernel in this backend, or a final check that comes too early is
 * HT_FAILED with the op's label, before anything runs.
 */
#ifndef HT_BACKEND_CPU_H
#define HT_BACKEND_CPU_H

#include "common/exec/run.h"
#include "common/kernels/adamw.h"
#include "common/kernels/scaler.h"
#include "common/model/model.h"

/* The device's and the host's CPUs. */
enum { HT_CPU_MAX_CORES = 256 };
struct ht_cpu_split {
    int n_device, n_host; /* >= 1 each */
    int device[HT_CPU_MAX_CORES], host[HT_CPU_MAX_CORES];
    bool shared; /* one core for both; then no thread is pinned */
};

/* Splits the CPUs that this process may use: device_cores for the device (0: three quarters, at least one, leaving one
   for the host), the others for the host. A single CPU is shared. Returns HT_BAD_INPUT when the process has not that
   many. */
enum ht_status ht_cpu_split_cores(int device_cores, struct ht_error *err, struct ht_cpu_split *out);

/* The outcome of an iteration. */
enum ht_cpu_outcome {
    HT_CPU_OK,      /* stepped; clipped, if the steps waited for the final check */
    HT_CPU_SKIPPED, /* overflow: nothing was stepped, or all steps were undone */
    HT_CPU_REDONE,  /* stepped, undone, stepped again with the clip factor */
};
struct ht_cpu_iteration {
    double loss_scale;  /* of this iteration */
    double norm;        /* norm of the unscaled gradients; infinite or NaN if they are */
    double clip_factor; /* at most 1; 1 when skipped */
    enum ht_cpu_outcome outcome;
};

/* A fault for tests and drills: after the backward op of (unit, micro_batch), overwrites one element of the gradient
   that it wrote. Iterations count from ht_cpu_set_first_iteration. */
enum ht_cpu_fault_kind {
    HT_CPU_FAULT_INFINITE,
    HT_CPU_FAULT_NAN,
    HT_CPU_FAULT_HUGE, /* 1e30: finite, but its square is not; F16: its largest number, whose square is finite */
};
/* Returns the number that a fault writes into a gradient of this type. */
double ht_cpu_fault_value(enum ht_cpu_fault_kind kind, enum ht_dtype type);
struct ht_cpu_fault {
    int32_t iteration, unit, micro_batch;
    int64_t element; /* taken modulo the elements of the gradient */
    enum ht_cpu_fault_kind kind;
};

struct ht_comm; /* common/comm/comm.h */
struct ht_disk; /* common/mem/disk.h */

/* Splits the CPUs for one of `ranks` processes on this machine: each device has device_cores of its own (0: an equal
   share of all but one), the host has the rest. With too few CPUs no thread is pinned. */
enum ht_status ht_cpu_split_for_rank(int device_cores, int rank, int ranks, struct ht_error *err,
                                     struct ht_cpu_split *out);

struct ht_cpu_options {
    struct ht_model model;        /* no dropout */
    struct ht_numerics numerics;  /* grad as param; accumulate FP32 or as param */
    int64_t tokens_per_iteration; /* of the whole batch, all micro-batches; gradients are of the mean loss over them */
    uint64_t seed;                /* of the initial parameters */
    struct ht_adamw adamw;
    /* Optional: returns the learning rate of an iteration (from 0), instead of adamw.lr. */
    double (*learning_rate)(void *data_ctx, int32_t iteration);
    /* Returns the input and the targets of a micro-batch (ht_embedding_forward, ht_head_forward), valid until the
       iteration has ended. A pure function of its arguments, called from compute lanes, several times for the same
       micro-batch. */
    enum ht_status (*data)(void *data_ctx, int32_t iteration, int32_t micro_batch, const void **input,
                           const int32_t **targets, struct ht_error *err);
    void *data_ctx;
    /* [iterations * n_micro_batches], the caller's; may be NULL. The head's forward op writes the sum over the
       micro-batch's tokens of -log p(target) to losses[iteration * n_micro_batches + j]. */
    double *losses;
    /* Loss scale and clipping. A dynamic scale, and clipping, need a schedule with a final check. */
    struct ht_control_options control;
    /* [iterations], the caller's, indexed as losses: each iteration's outcome. May be NULL; only written when the
       schedule has a final check. */
    struct ht_cpu_iteration *outcomes;
    const struct ht_cpu_fault *faults; /* [n_faults], the caller's */
    int32_t n_faults;
    struct ht_comm *comm;             /* of the schedule's ranks, when each is a process; NULL: one process */
    bool sums_in_order;               /* over ranks, in their order, though the transport adds up on GPUs in another */
    struct ht_disk *disk;             /* of this rank's node; NULL: none (ht_cpu_set_disk) */
    bool foreign_device;              /* device memory is not this process's to touch: a GPU's */
    const struct ht_cpu_split *split; /* copied. NULL: one thread each for device and host, not pinned */
};

struct ht_cpu;

/* Creates the backend. Returns HT_INFEASIBLE for a model or numerics without kernels here; HT_FAILED when threads
   cannot be created. */
enum ht_status ht_cpu_create(const struct ht_cpu_options *options, struct ht_error *err, struct ht_cpu **out);
void ht_cpu_destroy(struct ht_cpu *cpu); /* accepts NULL */

/* Returns the bytes of an element of the compute parameters. */
int64_t ht_cpu_param_bytes(const struct ht_cpu *cpu);
/* Sets the disk space that copies from and to HT_DISK go through, before a run. Borrowed; NULL: none. */
void ht_cpu_set_disk(struct ht_cpu *cpu, struct ht_disk *disk);

/* Sets the iteration that data, learning_rate, losses and the optimizer's step count get for the next run's iteration
   0, for a training that is cut into several runs, or resumed. Initially 0. */
void ht_cpu_set_first_iteration(struct ht_cpu *cpu, int32_t iteration);

/* Get and set the state of the loss scaler, which a checkpoint keeps. Call them between runs, when a run has ended all
   iterations that it began. */
struct ht_scaler ht_cpu_control_get(const struct ht_cpu *cpu);
void ht_cpu_control_set(struct ht_cpu *cpu, struct ht_scaler scaler);

/* Returns how often elements [begin, end) of a unit have been stepped, net of undone steps, which AdamW's bias
   corrections use; -1: not the same for all of them. Before any run or set it is the first iteration's number. Call it
   between runs, as above. */
int64_t ht_cpu_row_steps(const struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end);
void ht_cpu_set_row_steps(struct ht_cpu *cpu, int32_t unit, int64_t begin, int64_t end, int64_t steps);

/* Table for ht_run_options.backend; backend_ctx is the struct ht_cpu. One run at a time. */
extern const struct ht_backend_ops ht_cpu_backend;

/* Fills a resident's buffer with initial values: parameters by ht_unit_init, equal in every residency; optimizer state
   0; anything else NaN, so that a read before the first write shows. */
enum ht_status ht_cpu_init(const struct ht_cpu *cpu, const struct ht_tensor *t, struct ht_buffer buffer,
                           struct ht_error *err);

#endif
