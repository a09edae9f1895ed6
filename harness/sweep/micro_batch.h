/*
 * The micro-batch at which a system is fastest: every power of two that divides its part of the batch is tried.
 *
 * A micro-batch is not simulated if its busiest lane alone already takes as long as the best one so far, and its simulation
 * gives up once it surely does; that changes no answer.
 */
#ifndef HT_HARNESS_SWEEP_MICRO_BATCH_H
#define HT_HARNESS_SWEEP_MICRO_BATCH_H

#include "harness/result/evaluate.h"

enum { HT_MAX_MICRO_BATCHES = 24 };

/* Lists the micro-batches to try, the largest first, behind 0 (the planner's own) for a system that plans each rank's.
   A pipeline's may be as large as the batch, others' as a device's part. Returns their number. */
size_t ht_micro_batches(const struct ht_system *system, int64_t batch, int64_t n_gpus,
                        int64_t list[HT_MAX_MICRO_BATCHES]);

/* Evaluates a system as ht_evaluate does, at its fastest micro-batch; at the smallest when none fits. A micro-batch that
   the options give is taken as it is, and so is a graph or a trace. */
enum ht_status ht_evaluate_best(const struct ht_options *options, const char *system, const char *model,
                                struct ht_error *err, struct ht_evaluation *out);

#endif
