/*
 * The plain trainer: everything in memory, one unit after another, no graph, no arena. It is what units are for, in a
 * hundred lines, and what systems' losses are compared with; it is itself compared with PyTorch
 * (tests/common/kernels/test_torch.c).
 *
 * One step, over M micro-batches of (B,T) tokens:
 *
 *     for each micro-batch    forward all units; backward all units, gradients formed fresh
 *                             the first one's gradients are the accumulator, later ones are added to it
 *     AdamW on every unit
 */
#ifndef HT_KERNELS_PLAIN_H
#define HT_KERNELS_PLAIN_H

#include "common/kernels/adamw.h"
#include "common/kernels/unit.h"

struct ht_plain;

/* pool stays the caller's. Parameters are those of ht_unit_init(seed). */
struct ht_plain *ht_plain_create(const struct ht_model *model, int64_t batch, int64_t seq, struct ht_pool *pool,
                                 uint64_t seed);
void ht_plain_destroy(struct ht_plain *p); /* accepts NULL */

/* tokens, targets: (M,B,T). Returns the mean loss over the M B T tokens, before the update. */
double ht_plain_step(struct ht_plain *p, int64_t n_micro, const int32_t *tokens, const int32_t *targets,
                     const struct ht_adamw *adamw);

/* A unit's flat parameters, for comparison. */
const float *ht_plain_params(const struct ht_plain *p, int64_t unit);

#endif
