/*
 * What nccl.c needs of the stand-in for CUDA beside it: cuda.c of this folder, or tests/support/fake_gpus/cuda.c, which
 * is hetbench's emulated device.
 */
#ifndef HT_NCCL_ON_CPU_ON_CPU_H
#define HT_NCCL_ON_CPU_ON_CPU_H

#include "cuda_runtime_api.h"

/* Returns the calling thread's device. */
int ht_on_cpu_device(void);
/* Returns the address at which the host may touch device memory; NULL: it is none. */
void *ht_on_cpu_memory(const void *p, size_t bytes);
/* Runs on the stream. */
void ht_on_cpu_enqueue(cudaStream_t stream, void (*run)(void *arg), void *arg);

#endif
