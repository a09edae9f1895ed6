/*
 * A GPU for tests: its streams are threads (tests/support/streams.h), its kernels the CPU's, one thread each.
 *
 * Its memory is mapped twice. Where the host knows it, it cannot be touched: whatever reads or writes device memory on
 * the host faults. The device's threads use the other mapping. Copies from and to the host demand pinned memory, since
 * CUDA would wait for others in between; small ones from other memory are allowed. None is taken over when it is
 * enqueued: CUDA says that it may be.
 */
#ifndef TESTS_SUPPORT_FAKE_CUDA_H
#define TESTS_SUPPORT_FAKE_CUDA_H

#include "common/backend/cuda_api.h"

const struct ht_cuda_api *fake_cuda_api(void);

/* Which call of a kernel or copy fails, counted from 1 from now on; 0: none. */
void fake_cuda_fail_at(int64_t call);
/* At which call Ctrl-C is pressed; 0: never. */
void fake_cuda_interrupt_at(int64_t call);
/* Host memory that is there already cannot be pinned. */
void fake_cuda_refuse_pinning(bool refuse);
/* Larger pieces of device memory than this are not given; 0: 1 GiB. */
void fake_cuda_largest(int64_t bytes);
/* What the device was asked to do since the last time it was asked this. */
int64_t fake_cuda_calls(void);
/* How often a stream was waited for as a whole since the last time it was asked this. */
int64_t fake_cuda_stream_waits(void);
/* How often a thread slept until an event since the last time it was asked this. */
int64_t fake_cuda_event_waits(void);
/* Sets how a query of an event answers: truly (the default); only once it has been reached, so that no thread sleeps; or
   always that it has not, so that every thread does. */
enum fake_cuda_answer { FAKE_CUDA_TRUE, FAKE_CUDA_SOON, FAKE_CUDA_NEVER };
void fake_cuda_answer(enum fake_cuda_answer answer);
/* Allocations, streams, events, contexts and pinned ranges that are still there. */
int64_t fake_cuda_leaks(void);

#endif
