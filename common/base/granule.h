/* Granules: the multiples in which memory and disks are handed out, and in which proofs and budgets count them. */
#ifndef HT_BASE_GRANULE_H
#define HT_BASE_GRANULE_H

#include <stdint.h>

enum {
    HT_MEMORY_GRANULE = 512, /* as allocators of GPUs round */
    HT_DISK_GRANULE = 4096   /* the largest block in which disks are written directly (O_DIRECT) */
};

/* Rounds a size >= 0 up to a multiple. */
static inline int64_t ht_round_up(int64_t bytes, int64_t to)
{
    return (int64_t)(((uint64_t)bytes + (uint64_t)to - 1) / (uint64_t)to * (uint64_t)to);
}

#endif
