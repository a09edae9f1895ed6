/* Systems that the papers compare with. Each is a planner and a schedule builder (common/plan/system.h). */
#ifndef HT_BASELINES_BASELINES_H
#define HT_BASELINES_BASELINES_H

#include "common/plan/system.h"

extern const struct ht_system ht_in_memory;      /* everything on the device: the reference for losses */
extern const struct ht_system ht_in_memory_ckpt; /* in_memory with every block checkpointed */
extern const struct ht_system ht_ddp;            /* everything on every device, gradients all-reduced */
extern const struct ht_system ht_whale;          /* the same with batches by the devices' speeds */
extern const struct ht_system ht_fast_dit;       /* ddp with every block checkpointed */
extern const struct ht_system ht_fsdp;         /* sharded states, unequal ranks; gradients reduced once an iteration */
extern const struct ht_system ht_fsdp_ga;      /* fsdp with gradients reduced once a micro-batch */
extern const struct ht_system ht_zero_offload; /* gradients and optimizer on the host */
extern const struct ht_system ht_zero_offload_ckpt;
extern const struct ht_system ht_patrickstar; /* parameters in chunks, fetched when needed, nothing overlapped */
extern const struct ht_system ht_patrickstar_ckpt;
extern const struct ht_system ht_stronghold; /* a window of blocks on the device, CPU steps in the backward pass */
extern const struct ht_system ht_stronghold_ckpt;
extern const struct ht_system ht_zero3_offload; /* everything on the host, a unit at a time on the device */
extern const struct ht_system ht_zero3_offload_ckpt;
extern const struct ht_system ht_zero_infinity; /* the same with parameters and states on disk */
extern const struct ht_system ht_gemini;        /* parameters in chunks, optimizer states on disk */
extern const struct ht_system ht_gpipe;         /* pipelines on the devices */
extern const struct ht_system ht_dapple;
extern const struct ht_system ht_interleaved;
extern const struct ht_system ht_megatron_3d; /* one shape of pipelines, the fastest */
extern const struct ht_system ht_whale_3d;
extern const struct ht_system ht_varuna; /* equal pipelines that recompute, for spot instances */
extern const struct ht_system ht_mobius; /* pipelines with everything in host memory */
extern const struct ht_system ht_megatron;
/* Policies for activations (policies). */
extern const struct ht_system ht_capuchin; /* states on the device */
extern const struct ht_system ht_checkmate;
extern const struct ht_system ht_g10;         /* states on SSDs, Adam on the device */
extern const struct ht_system ht_flashneuron; /* and activations on SSDs */

#endif
