/*
 * The plain trainer: everything in memory, one unit after another, no graph, no arena. It shows the use of units in a
 * hundred lines, and systems' losses are compared with its own; it is itself compared with PyTorch
 * (tests/common/kernels/test_torch.c).
 *
 * One step, over M micro-batches of (B,T) tokens:
 *
 *     for each micro-batch    forward all units; backward all units, with fresh gradients
 *                             the first one's gradients are the accumulator, later ones are added to it
 *     AdamW on every unit
 *
 * In 16-bit numerics AdamW steps FP32 master copies; the units read these, rounded.
 */
#ifndef HT_TESTS_PLAIN_H
#define HT_TESTS_PLAIN_H

#include "common/kernels/adamw.h"
#include "common/kernels/unit.h"

struct ht_plain;

/* Creates a trainer. pool stays the caller's. numerics: NULL for FP32. Parameters are those of ht_unit_init(seed),
   rounded where they are not FP32. */
struct ht_plain *ht_plain_create(const struct ht_model *model, const struct ht_numerics *numerics, int64_t batch,
                                 int64_t seq, struct ht_pool *pool, uint64_t seed);
void ht_plain_destroy(struct ht_plain *p); /* accepts NULL */

/* Runs one step. input: token ids (M,B,T), int32, or images (M,B,c,S,S), uint8; targets: (M,B,T); a classifier's: (M,B). Computes gradients of loss_scale
   times the loss; the step divides by it
   again, and is made whatever the gradients are. Returns the mean loss over the targets, not scaled, before the
   update. */
double ht_plain_step(struct ht_plain *p, int64_t n_micro, const void *input, const int32_t *targets,
                     const struct ht_adamw *adamw, double loss_scale);
/* Returns the logits (B,T,V), a classifier's (B,classes), of an input, rows ht_logits_stride apart, valid until the
   next call. */
const float *ht_plain_logits(struct ht_plain *p, const void *input);

/* Returns a unit's flat parameters in FP32 (the master copy), for comparison. */
const float *ht_plain_params(const struct ht_plain *p, int64_t unit);

#endif
