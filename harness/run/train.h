/*
 * Real training on this machine: a job run by common/exec/run.h on an engine, with the progress, the losses and
 * the arenas' own account of memory.
 */
#ifndef HT_HARNESS_RUN_TRAIN_H
#define HT_HARNESS_RUN_TRAIN_H

#include "common/backend/cpu.h"
#include "common/trace/trace.h"
#include "harness/run/emulate.h"
#include "harness/run/job.h"
#include "harness/run/node_stores.h"
#include "harness/run/persist.h"
#include "harness/run/ranks.h"
#include "harness/run/tokens.h"

struct ht_training {
    struct ht_trace *trace;            /* of the steps that were done; owned by the caller */
    int32_t first_step;                /* done before, by the run that this one resumes */
    int32_t steps;                     /* done */
    double *losses;                    /* [steps]: mean over the batch's tokens of -log p(target) */
    struct ht_cpu_iteration *outcomes; /* [steps]; NULL when the schedule has no gradient check */
    int32_t skipped, redone;           /* of them */
    double loss_scale[2];              /* of the first of these steps, and of the one after the last */
    int64_t *step_ns;                  /* [steps]: from the end of the step before (the first: from the start) */
    int64_t median_step_ns;            /* without the first, when there are others */
    /* [n_spaces]; -1 where the schedule keeps nothing */
    int64_t *arena_peak_bytes, *arena_extent_bytes;
    int64_t *resident_peak_bytes; /* [n_ranks] of each rank's process, everything in it; 0: unknown */
    int32_t n_checkpoints;        /* written, and the time that it took beside the steps' */
    double checkpoints_s;
    struct ht_store_figures stores; /* of this rank, with --store */
    int64_t foreign_bytes; /* of the GPU's memory at the end, beside arena and reserve: CUDA's own, other programs' */
    struct ht_cuda_slow_shape *slow; /* [n_slow]: matrix products that cuBLASLt has no algorithm for */
    size_t n_slow;
    bool by_nccl;                /* messages between GPUs; else through host memory */
    struct ht_cpu_split split;   /* of this process's cores */
    struct ht_emulated emulated; /* all times are then modelled ones */
};

/* Trains options->steps steps, from and into the state of `persist`. All ranks call it; rank 0 gets *out, the others
   only the status. Returns HT_OK, or HT_INTERRUPTED with what was done by then; otherwise *out is zero. */
enum ht_status ht_train(const struct ht_options *options, const struct ht_job *job, const struct ht_tokens *tokens,
                        struct ht_persist *persist, struct ht_ranks *ranks, struct ht_error *err,
                        struct ht_training *out);
void ht_training_free(struct ht_training *t); /* but for the trace, when it was taken (set to NULL) */

/* Computes the range of peaks of 20 simulated runs with durations spread by 20%: [n_spaces] each. */
enum { HT_RANGE_RUNS = 20, HT_RANGE_JITTER_PERCENT = 20, HT_RANGE_ITERATIONS = 8 };
enum ht_status ht_predict_peaks(const struct ht_job *job, struct ht_error *err, int64_t *low_bytes,
                                int64_t *high_bytes);

#endif
