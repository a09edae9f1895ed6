/*
 * --inject-overflow STEP:UNIT[:inf|nan|square]: faults to order, for drills and tests of gradients that
 * overflow. One element of the gradient of UNIT (0: embedding, then the blocks, then the head) is overwritten in step
 * STEP, counted from 1, after its backward pass in the first micro-batch. STEP and UNIT determine the element, so every
 * system meets the same fault. Steps after the last one are for the run that resumes this one.
 *
 * A square is refused where none overflows: in a gradient of F16, and where the loss scale is too large.
 */
#ifndef HT_HARNESS_RUN_FAULTS_H
#define HT_HARNESS_RUN_FAULTS_H

#include "common/backend/cpu.h"
#include "harness/run/job.h"

/* Reads --inject-overflow into *out, which the caller frees. Returns HT_BAD_INPUT for an invalid text, a unit out of
   range, and a square that would not overflow in the job's schedule. */
enum ht_status ht_faults_read(const struct ht_options *options, const struct ht_job *job, struct ht_error *err,
                              struct ht_cpu_fault **out);

#endif
