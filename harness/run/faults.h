/*
 * --inject-overflow STEP:UNIT[:inf|nan|square]: faults to order, for drills and tests of gradients that
 * overflow. One element of the gradient of UNIT (0: embedding, then the blocks, then the head) is overwritten in step
 * STEP, counted from 1, after its backward pass in the first micro-batch. STEP and UNIT determine the element, so every
 * system meets the same fault. Steps after the last one are for the run that resumes this one.
 */
#ifndef HT_HARNESS_RUN_FAULTS_H
#define HT_HARNESS_RUN_FAULTS_H

#include "common/backend/cpu.h"

/* Reads n texts into *out, which the caller frees. Returns HT_BAD_INPUT for an invalid text or a unit out of range. */
enum ht_status ht_faults_parse(const char *const *texts, int64_t n, int64_t n_units, struct ht_error *err,
                               struct ht_cpu_fault **out);

#endif
