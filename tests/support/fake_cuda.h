/*
 * A GPU for tests: its streams are threads (tests/support/streams.h), its kernels the CPU's, one thread each.
 *
 * A tensor-parallel part's pass is run by the thread that launches it, between what its stream has before and after: it
 * stops to exchange numbers with the other parts' passes.
 *
 * Its memory is mapped twice. The host cannot touch the mapping that it knows: reading or writing device memory on the
 * host faults. The device's threads use the other mapping. Copies from and to the host need pinned memory, since CUDA
 * would otherwise wait for other work in between; small ones from other memory are allowed. Host memory of a copy is
 * read when the copy runs, not when it is enqueued: CUDA may do so.
 */
#ifndef TESTS_SUPPORT_FAKE_CUDA_H
#define TESTS_SUPPORT_FAKE_CUDA_H

#include "common/backend/cuda_api.h"

const struct ht_cuda_api *fake_cuda_api(void);

/* Returns the address at which the host may touch device memory; NULL: it is none. */
void *fake_cuda_find(const void *p, int64_t bytes);
/* Lets a call of a kernel or copy fail, counted from 1 from now on; 0: none. */
void fake_cuda_fail_at(int64_t call);
/* Presses Ctrl-C at this call; 0: never. */
void fake_cuda_interrupt_at(int64_t call);
/* Refuses to pin existing host memory. */
void fake_cuda_refuse_pinning(bool refuse);
/* Refuses device allocations above this size; 0: 1 GiB. */
void fake_cuda_largest(int64_t bytes);
/* Returns the number of calls to the device since its last call. */
int64_t fake_cuda_calls(void);
/* Returns how often a thread waited for a whole stream since its last call. */
int64_t fake_cuda_stream_waits(void);
/* Returns how often a thread slept until an event since its last call. */
int64_t fake_cuda_event_waits(void);
/* Sets the answer of an event's query: true (the default); only once it has been reached, so that no thread sleeps; or
   always not reached, so that every thread does. */
enum fake_cuda_answer { FAKE_CUDA_TRUE, FAKE_CUDA_SOON, FAKE_CUDA_NEVER };
void fake_cuda_answer(enum fake_cuda_answer answer);
/* Returns how many allocations, streams, events, contexts and pinned ranges still exist. */
int64_t fake_cuda_leaks(void);

#endif
