/*
 * The order in which a schedule adds up its gradients, as one number. Additions of floating-point numbers do not
 * associate, so two systems train to the same bits only if they add up each gradient in the same order.
 *
 * A gradient that a step reads is an expression over the backward passes of its unit, which the walk follows through
 * sums, collectives and copies:
 *
 *     in_memory, 4 micro-batches            ((g0 + g1) + g2) + g3
 *     ZeRO-3, 4 ranks with one each         ((g0 + g1) + g2) + g3       the same
 *     ZeRO-3, 2 ranks with two each         (g0 + g2) + (g1 + g3)
 *     two pipelines with two each           (g0 + g1) + (g2 + g3)
 *     a tied table, on one device           (h0 & e0) + (h1 & e1)       h: the head's, & e: the embedding's on top of it
 *     on two stages of a pipeline           (h0 + h1) + (e0 + e1)
 *
 * A block whose halves are on different numbers of replicas has the order of a whole one if its halves are stepped with the same
 * expression, as they are with one micro-batch, of two shares here:
 *
 *     front on one device, back on two      g0 + g1                     the same in both
 *     the same, two micro-batches           ((g0 + g1) + g2) + g3 and (g0 + g2) + (g1 + g3)
 *
 * 16-bit sums are rounded, so there an expression has its roundings, too.
 */
#ifndef HT_SCHEDULE_SUM_ORDER_H
#define HT_SCHEDULE_SUM_ORDER_H

#include "common/schedule/schedule.h"

/* Returns a number that two schedules of one model, batch and numerics share if they add up, and round, every gradient
   alike; others share it with a probability of 2^-64. Follows whole units' gradients, as the verifier does. The
   schedule must be verified. */
uint64_t ht_schedule_sum_order(const struct ht_schedule *s, const struct ht_model *model,
                               const struct ht_numerics *numerics, int64_t batch);

/* Returns a number that two schedules share if their gradient checks cut the model into the same tensors, whose squares
   are then added up to the norm alike. */
uint64_t ht_schedule_norm_order(const struct ht_schedule *s);

/* Returns true when gradients are sums of several micro-batches of a rank. Those of one micro-batch of each rank are
   added up in the type of gradients (numerics.reduce). */
bool ht_schedule_has_sums(const struct ht_schedule *s);

#endif
