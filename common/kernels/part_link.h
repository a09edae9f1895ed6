/* Exchange between the tensor-parallel parts of a model (common/kernels/unit.h), on the CPU and on a GPU. */
#ifndef HT_KERNELS_PART_LINK_H
#define HT_KERNELS_PART_LINK_H

#include <stdint.h>

#include "common/model/model.h"

/* All parts call the same functions in the same order. A link that fails records it in ctx and returns; the pass goes on
   with undefined values. A GPU's pass gives addresses in device memory: the link waits for what its stream has been
   given, and the stream may read the result when the call returns. */
struct ht_part_link {
    void *ctx;
    void (*sum)(void *ctx, void *data, enum ht_dtype type, int64_t n); /* sums over all parts, in place */
    void (*gather)(void *ctx, const void *mine, void *all, enum ht_dtype type, int64_t n);  /* all: (parts, n) */
    void (*scatter)(void *ctx, const void *all, void *mine, enum ht_dtype type, int64_t n); /* sums; each keeps its n */
};

#endif
