/*
 * The platform: what of this machine carries out a training. It is decided once, before anything is planned, from
 * --backend, --device, --clock, --emu-scale and the options of the disk; nothing below reads these again.
 */
#ifndef HT_HARNESS_RUN_PLATFORM_H
#define HT_HARNESS_RUN_PLATFORM_H

#include "harness/run/disks.h"
#include "harness/run/options.h"

enum ht_platform_kind {
    HT_PLATFORM_CPU,      /* the CPU backend, on an emulated device's cores */
    HT_PLATFORM_GPU,      /* a GPU, and the CPU backend beside it */
    HT_PLATFORM_EMULATED, /* the CPU backend under the emulated clock: any devices */
};

struct ht_platform {
    enum ht_platform_kind kind;
    /* HT_PLATFORM_GPU: */
    int device, n_visible;              /* the first GPU, among those that CUDA shows; their number */
    const struct ht_cuda_api *cuda_api; /* NULL: this build's */
    struct ht_gpu *gpus;                /* [n_gpus]: one a rank; its memory is the most that an arena can have */
    int64_t n_gpus;
    double emu_scale; /* HT_PLATFORM_EMULATED; 0: to be found */
    bool unheld;      /* the same: ops are not held at all, and times mean nothing */
    struct ht_disks disks;
};

/* Reads and checks the options, the directories of the disk among them. Finds the GPU of --backend cuda in the catalogue, or
   describes it as far as CUDA tells. Returns HT_BAD_INPUT, in one line, and HT_INFEASIBLE where there is no GPU. *out
   needs no freeing after an error. */
enum ht_status ht_platform_read(const struct ht_options *options, const char *command, struct ht_error *err,
                                struct ht_platform *out);
/* Returns the GPU of a host's rank, counted among those of its host. Ranks take the GPUs in turn; with more ranks than
   GPUs several share one, and its memory. */
int ht_platform_device(const struct ht_platform *p, int32_t local);
void ht_platform_free(struct ht_platform *p); /* accepts a zeroed one */

#endif
