/*
 * --inject-overflow STEP:UNIT[:inf|nan|square]: faults to order, for drills and tests of what follows from a gradient that
 * overflows. One element of the gradient of UNIT (0: embedding, then the blocks, then the head) is overwritten in step
 * STEP, counted from 1, after its backward pass in the first micro-batch. Which element it is follows from STEP and UNIT, so
 * every system meets the same fault. Steps after the last one are for the run that resumes this one.
 */
#ifndef HT_HARNESS_RUN_FAULTS_H
#define HT_HARNESS_RUN_FAULTS_H

#include "common/backend/cpu.h"

/* Reads n texts into *out, the caller's to free. HT_BAD_INPUT for a text that is none, or about a unit that is not
   there. */
enum ht_status ht_faults_parse(const char *const *texts, int64_t n, int64_t n_units, struct ht_error *err,
                               struct ht_cpu_fault **out);

#endif
